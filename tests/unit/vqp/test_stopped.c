/* A process that is stopped, and goes on after others have given it up (docs/protocol.md, V4, R5 and D9). The target is
 * a process of its own; the test stops it with a signal, so that packets wait in the socket of its soft NIC. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "node/peer.h"
#include "pair.h"
#include "unit/env/child.h"

#define WRITTEN  0xabcdefull
#define ATTEMPTS 20u

/* What the target's service answers. */
struct reply {
	uint64_t addr;
	uint32_t rkey;
};

static enum hf_policy policy;
static struct pair pair;
static struct child target;
static struct reply remote;

/* ---- the target ---- */

static struct hf_vqp *accept_any(
	const struct hf_vqp_request *request, void *reply_out, size_t *reply_bytes, void *context)
{
	const struct reply reply = {.addr = (uintptr_t)pair.b.memory, .rkey = pair.b.mr->rkey};

	(void)request, (void)context;
	pair_make_vqp(&pair, &pair.b);
	memcpy(reply_out, &reply, sizeof(reply));
	*reply_bytes = sizeof(reply);
	return pair.b.vqp;
}

static int serve(struct child *child, void *context)
{
	struct hf_vqp_service service = {.name = "test", .on_request = accept_any};

	(void)context;
	if (hf_loop_create(hf_env_host(), &pair.loop) != 0)
		return 3;
	pair_open_end(&pair, &pair.b, "b", policy);
	if (hf_vqp_serve(pair.b.node, &service) != 0)
		return 3;
	child_step(child);
	for (;;) /* until it is killed */
		hf_loop_turn(pair.loop, 1000000000);
}

/* ---- the requester ---- */

static bool is_connected(struct pair *p)
{
	if (p->a.peer == NULL)
		assert_int_equal(hf_peer_connect(p->a.node, &p->control[1][0], 1, &p->a.peer, NULL), 0);
	if (p->a.vqp != NULL && hf_vqp_state(p->a.vqp) == HF_VQP_ERROR) {
		hf_vqp_destroy(p->a.vqp);
		p->a.vqp = NULL;
	}
	if (p->a.vqp == NULL) {
		pair_make_vqp(p, &p->a);
		assert_int_equal(hf_vqp_connect(p->a.vqp, p->a.peer, "test", "", 0), 0);
	}
	return hf_vqp_state(p->a.vqp) == HF_VQP_UP;
}

/* A rail that has just been given up may be the second choice for a while. */
static bool is_connected_on_rail_0(struct pair *p)
{
	if (!is_connected(p))
		return false;
	if (hf_vqp_rail(p->a.vqp) == 0)
		return true;
	hf_vqp_destroy(p->a.vqp);
	p->a.vqp = NULL;
	return false;
}

static void connect_to_target(void)
{
	size_t bytes;
	const void *reply;

	assert_true(pair_until(&pair, is_connected_on_rail_0));
	reply = hf_vqp_reply(pair.a.vqp, &bytes);
	assert_int_equal(bytes, sizeof(remote));
	memcpy(&remote, reply, sizeof(remote));
}

/* The word `word` of the target's memory, and of ours. */
static void post(enum ibv_wr_opcode opcode, unsigned word)
{
	struct ibv_sge sge = {.addr = (uintptr_t)pair.a.memory + 8 * word, .length = 8, .lkey = pair.a.mr->lkey};
	struct ibv_send_wr wr = {.opcode = opcode, .sg_list = &sge, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED};
	struct ibv_send_wr *bad;

	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = remote.addr + 8 * word;
		wr.wr.atomic.compare_add = 1;
		wr.wr.atomic.rkey = remote.rkey;
	} else {
		wr.wr.rdma.remote_addr = remote.addr + 8 * word;
		wr.wr.rdma.rkey = remote.rkey;
	}
	assert_int_equal(hf_vqp_post_send(pair.a.vqp, &wr, &bad), 0);
}

static struct ibv_wc complete(enum ibv_wr_opcode opcode, unsigned word)
{
	struct ibv_wc wc;

	post(opcode, word);
	pair_collect(&pair, &pair.a, 1, &wc);
	return wc;
}

/* The target may wait for a core for longer than a queue pair tries. */
static uint64_t read_word(unsigned word)
{
	unsigned attempts = 0;

	while (complete(IBV_WR_RDMA_READ, word).status != IBV_WC_SUCCESS) {
		assert_true(++attempts < ATTEMPTS);
		connect_to_target();
	}
	return pair_word(pair.a.memory + 8 * word);
}

static void stop_target(void)
{
	int status;

	assert_int_equal(kill(target.pid, SIGSTOP), 0);
	assert_int_equal(waitpid(target.pid, &status, WUNTRACED), target.pid);
	assert_true(WIFSTOPPED(status));
}

/* The word is 0 there, and is to become another one. */
static void prepare(unsigned word)
{
	const uint64_t written = WRITTEN;

	connect_to_target();
	assert_int_equal(read_word(word), 0);
	memcpy(pair.a.memory + 8 * word, &written, sizeof(written));
}

static void check_unknown(const struct ibv_wc *wc)
{
	assert_int_not_equal(wc->status, IBV_WC_SUCCESS);
	if (policy == HF_POLICY_VARUNA)
		assert_int_equal(wc->vendor_err, HF_WC_UNKNOWN);
}

/* The packets wait in the socket of the target's NIC, before those of the next connection on that rail. */
static void check_final(enum ibv_wr_opcode opcode, unsigned word)
{
	struct ibv_wc wc;

	prepare(word);
	stop_target();
	wc = complete(opcode, word);
	check_unknown(&wc);
	assert_int_equal(kill(target.pid, SIGCONT), 0);
	connect_to_target();
	assert_int_equal(read_word(word), 0);
}

static void a_write_to_a_stopped_process_does_not_execute_when_it_goes_on(void **state)
{
	(void)state;
	check_final(IBV_WR_RDMA_WRITE, 1);
}

static void nor_does_an_addition(void **state)
{
	(void)state;
	check_final(IBV_WR_ATOMIC_FETCH_AND_ADD, 2);
}

static void close_peer(void)
{
	hf_peer_close(pair.a.peer);
	pair.a.peer = NULL;
}

static void abort_and_close(void)
{
	hf_vqp_abort(pair.a.vqp);
	pair_turn(&pair, 3, 0);
	close_peer();
}

/* As when it cannot be told of something: it goes on, and knows nothing of that. */
static void give_up(void)
{
	peer_fail(pair.a.peer, "the test wants it");
}

/* The target goes on within its lease, and executes what waits for it. That is over when the WRITE completes. */
static void check_waits(unsigned word, void (*end)(void), enum hf_vqp_end why)
{
	struct ibv_wc wc;

	prepare(word);
	stop_target();
	post(IBV_WR_RDMA_WRITE, word);
	pair_turn(&pair, 3, 0); /* it has left */
	end();
	pair_turn(&pair, 3, 0);
	assert_int_equal(hf_vcq_poll(pair.a.cq, 1, &wc), 0);
	assert_int_equal(kill(target.pid, SIGCONT), 0);
	pair_collect(&pair, &pair.a, 1, &wc);
	check_unknown(&wc);
	assert_int_equal(hf_vqp_end(pair.a.vqp, NULL), why);
	connect_to_target();
}

static void a_write_that_may_execute_behind_a_close_completes_later(void **state)
{
	(void)state;
	check_waits(3, close_peer, HF_VQP_END_ASKED);
}

static void nor_does_a_close_cut_short_an_abort(void **state)
{
	(void)state;
	check_waits(4, abort_and_close, HF_VQP_END_ASKED);
}

static void a_peer_that_is_given_up_may_execute_until_its_lease_is_over(void **state)
{
	(void)state;
	check_waits(5, give_up, HF_VQP_END_PEER_GONE);
}

static void a_read_does_not_hold_up_a_close(void **state)
{
	struct ibv_wc wc;

	(void)state;
	prepare(6);
	stop_target();
	post(IBV_WR_RDMA_READ, 6);
	pair_turn(&pair, 3, 0);
	close_peer();
	pair_turn(&pair, 3, 0);
	assert_int_equal(hf_vcq_poll(pair.a.cq, 1, &wc), 1);
	check_unknown(&wc);
	assert_int_equal(kill(target.pid, SIGCONT), 0);
	connect_to_target();
}

/* ---- both ---- */

static int open_both(void **state)
{
	struct hf_node_config config;

	(void)state;
	pair.access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	pair.a.name = "a";
	pair.b.name = "b";
	pair_config(&pair, &pair.b, policy, &config); /* where b listens */
	target = child_start(serve, NULL);            /* before there are threads */
	if (!child_wait_step(&target))
		return -1;
	child_go_on(&target);
	assert_int_equal(hf_loop_create(hf_env_host(), &pair.loop), 0);
	pair_open_end(&pair, &pair.a, "a", policy);
	return 0;
}

static int close_both(void **state)
{
	(void)state;
	child_kill(&target);
	pair_close_end(&pair, &pair.a);
	hf_loop_destroy(pair.loop);
	return 0;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_write_to_a_stopped_process_does_not_execute_when_it_goes_on),
		cmocka_unit_test(nor_does_an_addition),
		cmocka_unit_test(a_write_that_may_execute_behind_a_close_completes_later),
		cmocka_unit_test(nor_does_a_close_cut_short_an_abort),
		cmocka_unit_test(a_peer_that_is_given_up_may_execute_until_its_lease_is_over),
		cmocka_unit_test(a_read_does_not_hold_up_a_close),
	};

	policy = argc > 1 && strcmp(argv[1], "none") == 0 ? HF_POLICY_NONE : HF_POLICY_VARUNA;
	return cmocka_run_group_tests(tests, open_both, close_both);
}
