#include "pair.h"
#include "vqp/objects.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include <holdfast/fabric.h>

#define PATIENCE_NS 20000000000ull
#define PAIRS_MAX   60u /* whose addresses fit into the last byte */

const char *pair_kind = "soft";
uint32_t pair_caps_masked;
bool pair_management;
bool pair_http;

static bool is_open;
static unsigned
	left; /* by tests that failed: their ports stay, and the next test has addresses and a fabric of its own */

static struct end *end_of(struct pair *pair, struct hf_node *node)
{
	return node == pair->a.node ? &pair->a : &pair->b;
}

static void on_peer_up(struct hf_peer *peer, void *context)
{
	struct end *end = context;

	end->peer = peer;
	end->peers_up++;
}

static void on_peer_down(struct hf_peer *peer, void *context)
{
	struct end *end = context;

	if (end->peer == peer)
		end->peer = NULL;
	end->peers_down++;
}

void pair_make_vqp(struct pair *pair, struct end *end)
{
	struct hf_vqp_init init = {.send_cq = end->cq,
		.recv_cq = end->cq,
		.cap = {.max_send_wr = PAIR_DEPTH,
			.max_recv_wr = PAIR_DEPTH,
			.max_send_sge = 2,
			.max_recv_sge = 1,
			.max_inline_data = 64},
		.access = pair->access,
		.revocable = pair->revocable,
		.revoke_ns = pair->revoke_ns,
		.hand_back = pair->hand_back,
		.rail = pair->rail};

	assert_int_equal(hf_vqp_create(end->pd, &init, &end->vqp), 0);
}

static struct hf_vqp *on_request(const struct hf_vqp_request *request, void *reply, size_t *reply_bytes, void *context)
{
	struct pair *pair = context;

	(void)request;
	pair_make_vqp(pair, &pair->b);
	memcpy(reply, &pair->b.mr->rkey, sizeof(uint32_t));
	*reply_bytes = sizeof(uint32_t);
	return pair->b.vqp;
}

static void name_fabric(char name[HF_NAME_BYTES])
{
	snprintf(name, HF_NAME_BYTES, "test-vqp-%u-%u", (unsigned)getpid(), left);
}

void pair_config(struct pair *pair, const struct end *end, enum hf_policy policy, struct hf_node_config *config)
{
	static unsigned pid; /* of the first process of a test */
	unsigned side = end == &pair->b;

	pid = pid == 0 ? (unsigned)getpid() : pid;
	*config = (struct hf_node_config){.rail_count = 2,
		.policy = policy,
		.caps_masked = pair_caps_masked,
		.heartbeat_ns = 20000000,
		.failback_ns = 100000000,
		.budget_ns = 3000000000};
	snprintf(config->name, sizeof(config->name), "%s", end->name);
	if (strcmp(pair_kind, "shm") == 0)
		name_fabric(config->fabric);
	for (unsigned i = 0; i < 2; i++) {
		char text[HF_ADDR_TEXT];

		snprintf(config->rails[i].name, HF_NAME_BYTES, "r%u", i);
		snprintf(config->rails[i].kind, HF_NAME_BYTES, "%s", pair_kind);
		snprintf(text, sizeof(text), "127.%u.%u.%u", 32 + (pid >> 8) % 64, pid & 0xff,
			1 + (left % PAIRS_MAX) * 4 + side * 2 + i);
		assert_int_equal(hf_addr_parse(text, &config->rails[i].address), 0);
		config->rails[i].control = config->rails[i].address;
		hf_addr_set_port(&config->rails[i].control, 18515);
		pair->control[side][i] = config->rails[i].control;
	}
	if (pair_http)
		assert_int_equal(hf_addr_parse("127.0.0.1", &config->http), 0);
	if (pair_management) {
		config->management[config->management_count++] = config->rails[0].address;
		hf_addr_set_port(&config->management[0], 18516);
	}
}

void pair_open_end(struct pair *pair, struct end *end, const char *name, enum hf_policy policy)
{
	const struct hf_node_events events = {.peer_up = on_peer_up, .peer_down = on_peer_down};
	struct hf_node_config config;
	struct hf_error error = {0};
	int rc;

	end->name = name;
	pair_config(pair, end, policy, &config);
	rc = hf_node_open(pair->loop, &config, &events, end, &end->node, &error);
	if (rc != 0)
		fail_msg("%s: %s", name, error.text);
	assert_ptr_equal(end_of(pair, end->node), end);
	assert_int_equal(hf_vpd_alloc(end->node, &end->pd), 0);
	assert_int_equal(hf_vcq_create(end->node, 4 * PAIR_DEPTH, end, &end->cq), 0);
	assert_int_equal(hf_mem_alloc(hf_loop_env(pair->loop), PAIR_BYTES, (void **)&end->memory, &error), 0);
	assert_int_equal(hf_vmr_reg(end->pd, end->memory, PAIR_BYTES,
				 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
					 IBV_ACCESS_REMOTE_ATOMIC,
				 &end->mr, &error),
		0);
}

void pair_open(struct pair *pair, enum hf_policy policy)
{
	pair_open_apart(pair, policy, policy);
}

void pair_open_apart(struct pair *pair, enum hf_policy policy_a, enum hf_policy policy_b)
{
	left += is_open;
	is_open = true;
	*pair = (struct pair){.access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC};
	assert_int_equal(hf_loop_create(hf_env_host(), &pair->loop), 0);
	pair_open_end(pair, &pair->a, "a", policy_a);
	pair_open_end(pair, &pair->b, "b", policy_b);
	pair->service = (struct hf_vqp_service){.name = "test", .on_request = on_request, .context = pair};
	assert_int_equal(hf_vqp_serve(pair->b.node, &pair->service), 0);
}

static bool both_up(struct pair *pair)
{
	return hf_vqp_state(pair->a.vqp) == HF_VQP_UP && pair->b.vqp != NULL && hf_vqp_state(pair->b.vqp) == HF_VQP_UP;
}

void pair_ask(struct pair *pair)
{
	assert_int_equal(hf_peer_connect(pair->a.node, &pair->control[1][0], 1, &pair->a.peer, NULL), 0);
	pair_make_vqp(pair, &pair->a);
	assert_int_equal(hf_vqp_connect(pair->a.vqp, pair->a.peer, "test", "hello", 5), 0);
}

void pair_connect(struct pair *pair)
{
	pair_ask(pair);
	assert_true(pair_until(pair, both_up));
}

void pair_close_end(struct pair *pair, struct end *end)
{
	hf_node_close(end->node);
	hf_mem_free(hf_loop_env(pair->loop), end->memory);
}

void pair_close(struct pair *pair)
{
	char fabric[HF_NAME_BYTES];

	pair_close_end(pair, &pair->a);
	pair_close_end(pair, &pair->b);
	hf_loop_destroy(pair->loop);
	is_open = false;
	if (strcmp(pair_kind, "shm") == 0) {
		name_fabric(fabric);
		assert_int_equal(hf_fabric_remove(fabric), 0);
	}
}

bool pair_until(struct pair *pair, bool (*done)(struct pair *pair))
{
	uint64_t end_ns = hf_env_now_ns(hf_env_host()) + PATIENCE_NS;

	while (!done(pair)) {
		if (hf_env_now_ns(hf_env_host()) > end_ns)
			return false;
		hf_loop_turn(pair->loop, 5000000);
	}
	return true;
}

bool pair_has_backups(struct pair *pair)
{
	return pair->a.vqp->backup[1].ready && pair->b.vqp->backup[1].ready;
}

void pair_turn_for(struct pair *pair, uint64_t ns)
{
	uint64_t end_ns = hf_env_now_ns(hf_env_host()) + ns;

	while (hf_env_now_ns(hf_env_host()) < end_ns)
		hf_loop_turn(pair->loop, 5000000);
}

void pair_turn(struct pair *pair, unsigned turns, uint64_t wait_ns)
{
	for (unsigned i = 0; i < turns; i++)
		hf_loop_turn(pair->loop, wait_ns);
}

void pair_cut(struct pair *pair, unsigned rail, bool up)
{
	assert_int_equal(hf_dev_set_link(hf_node_dev(pair->a.node, rail), HF_LINK_BOTH, up), 0);
}

void pair_collect(struct pair *pair, struct end *end, unsigned n, struct ibv_wc *wc)
{
	uint64_t end_ns = hf_env_now_ns(hf_env_host()) + PATIENCE_NS;
	unsigned have = 0;

	while (have < n) {
		int got = hf_vcq_poll(end->cq, (int)(n - have), wc + have);

		assert_true(got >= 0);
		have += (unsigned)got;
		if (got == 0)
			hf_loop_turn(pair->loop, 5000000);
		if (hf_env_now_ns(hf_env_host()) > end_ns)
			fail_msg("%s: %u of %u completions came", end->name, have, n);
	}
}

int pair_write(struct pair *pair, uint64_t wr_id, uint32_t offset, uint32_t bytes, bool signaled)
{
	struct ibv_sge sge = {.addr = (uintptr_t)pair->a.memory + offset, .length = bytes, .lkey = pair->a.mr->lkey};
	struct ibv_send_wr wr = {.wr_id = wr_id,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = signaled ? IBV_SEND_SIGNALED : 0,
		.wr.rdma = {.remote_addr = (uintptr_t)pair->b.memory + offset, .rkey = pair->b.mr->rkey}};
	struct ibv_send_wr *bad;

	return hf_vqp_post_send(pair->a.vqp, &wr, &bad);
}

int pair_add(struct pair *pair, uint64_t wr_id, uint32_t local, uint32_t remote, uint64_t operand)
{
	struct ibv_sge sge = {.addr = (uintptr_t)pair->a.memory + local, .length = 8, .lkey = pair->a.mr->lkey};
	struct ibv_send_wr wr = {.wr_id = wr_id,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.atomic = {.remote_addr = (uintptr_t)pair->b.memory + remote,
			.compare_add = operand,
			.rkey = pair->b.mr->rkey}};
	struct ibv_send_wr *bad;

	return hf_vqp_post_send(pair->a.vqp, &wr, &bad);
}

uint64_t pair_word(const uint8_t *memory)
{
	return __atomic_load_n((const uint64_t *)(const void *)memory, __ATOMIC_RELAXED);
}

static bool some_have_executed(struct pair *pair)
{
	return pair_word(pair->b.memory) > 0;
}

void pair_add_unanswered(struct pair *pair, unsigned n)
{
	struct hf_dev *dev = hf_node_dev(pair->a.node, (unsigned)hf_vqp_rail(pair->a.vqp));

	assert_int_equal(hf_dev_set_link(dev, HF_LINK_RX, false), 0);
	for (unsigned i = 0; i < n; i++)
		assert_int_equal(pair_add(pair, i, PAIR_RESULTS + 8 * i, 0, 1), 0);
	assert_true(pair_until(pair, some_have_executed));
}

int pair_send(struct pair *pair, uint64_t wr_id, uint32_t offset, uint32_t bytes)
{
	struct ibv_sge sge = {.addr = (uintptr_t)pair->a.memory + offset, .length = bytes, .lkey = pair->a.mr->lkey};
	struct ibv_send_wr wr = {
		.wr_id = wr_id, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED};
	struct ibv_send_wr *bad;

	return hf_vqp_post_send(pair->a.vqp, &wr, &bad);
}

int pair_recv(struct end *end, uint64_t wr_id, uint32_t offset, uint32_t bytes)
{
	struct ibv_sge sge = {.addr = (uintptr_t)end->memory + offset, .length = bytes, .lkey = end->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = wr_id, .sg_list = &sge, .num_sge = 1};
	struct ibv_recv_wr *bad;

	return hf_vqp_post_recv(end->vqp, &wr, &bad);
}
