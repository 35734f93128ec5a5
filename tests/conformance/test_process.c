/* Two processes: one that is stopped in the middle of an operation (R15), and one that dies. */
#include "pair.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>

#define BIG (64u << 20)

static struct pair *two_processes(void **state)
{
	struct pair *pair = pair_of(state);

	if (!pair->bed->two_processes)
		skip_because("both ends live in one process");
	if (pair->bed->kind_b != NULL)
		skip_because("b's process is another command's child");
	return pair;
}

/* b copies 64 MB into a, by a WRITE or a SEND, and is stopped on the way. */
static void start_copy_and_stop(struct pair *pair, enum ibv_wr_opcode opcode)
{
	struct recv recv;
	struct wr wr;
	struct side *sides[] = {pair->a, pair->b};

	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(side_mem_alloc(sides[i], 1, BIG), 0);
		assert_int_equal(side_mr_reg(sides[i], 1, 0, sides[i]->mem[1], BIG, sides[i]->mem[1], ALL_ACCESS), 0);
	}
	side_fill(pair->b, pair->b->mem[1], BIG, 1);
	side_fill(pair->a, pair->a->mem[1], BIG, 2);
	wr_write(&wr, pair->b, pair->a, 0, 0, BIG);
	wr.sge[0] = (struct ibv_sge){.addr = pair->b->mem[1], .length = BIG, .lkey = pair->b->lkey[1]};
	wr.wr.opcode = opcode;
	if (opcode == IBV_WR_SEND) {
		recv_into(&recv, pair->a, 0, BIG);
		recv.sge[0] = (struct ibv_sge){.addr = pair->a->mem[1], .length = BIG, .lkey = pair->a->lkey[1]};
		post_receive(pair->a, 0, &recv, 7);
	}
	wr.wr.wr.rdma.remote_addr = pair->a->mem[1];
	wr.wr.wr.rdma.rkey = pair->a->rkey[1];
	wr.wr.send_flags = IBV_SEND_SIGNALED;
	side_post_send_ask(pair->b, 0, &wr.wr);
	while (side_mismatch_from(pair->a, pair->a->mem[1] + 4096, 64, 1, 4096) != 64)
		side_poll(pair->a);
	assert_int_equal(kill(pair->b->pid, SIGSTOP), 0);
}

static void a_process_stopped_in_the_middle_of_a_copy_writes_nothing_after_the_fence(void **state)
{
	struct pair *pair = two_processes(state);
	struct actor_answer answer;
	uint64_t digest;

	pair_connect(pair, 0, impatient);
	start_copy_and_stop(pair, IBV_WR_RDMA_WRITE);
	fence(pair, pair->a, 0);
	digest = side_digest(pair->a, pair->a->mem[1], BIG);
	assert_int_equal(kill(pair->b->pid, SIGCONT), 0);
	side_hear(pair->b, &answer);
	turns_for(pair, 5 * MS);
	assert_int_equal(side_digest(pair->a, pair->a->mem[1], BIG), digest);
}

/* The owner does not want to wait for long, and has the memory to itself. */
static void access_that_was_taken_from_a_process_stopped_in_a_copy_stays_taken(void **state)
{
	struct pair *pair = two_processes(state);
	struct ibv_qp_attr attr = {.qp_access_flags = IBV_ACCESS_REMOTE_READ};
	struct link_options options = impatient;
	struct actor_answer answer;
	uint64_t digest;
	int rc;

	require_cap(pair, HF_DEV_ACCESS_IN_RTS, "access does not change in RTS");
	options.revoke_ns = MS / 5;
	pair_connect(pair, 0, options);
	start_copy_and_stop(pair, IBV_WR_RDMA_WRITE);
	rc = side_qp_modify(pair->a, 0, &attr, IBV_QP_ACCESS_FLAGS);
	assert_true(rc == 0 || rc == -EINPROGRESS);
	if (rc == -EINPROGRESS)
		fence(pair, pair->a, 0);
	digest = side_digest(pair->a, pair->a->mem[1], BIG);
	assert_int_equal(kill(pair->b->pid, SIGCONT), 0);
	side_hear(pair->b, &answer);
	turns_for(pair, 5 * MS);
	assert_int_equal(side_digest(pair->a, pair->a->mem[1], BIG), digest);
}

/* The receive goes back to its owner, who may use the memory for something else at once. */
static void a_process_stopped_in_the_middle_of_a_send_writes_nothing_into_a_flushed_receive(void **state)
{
	struct pair *pair = two_processes(state);
	struct actor_answer answer;
	uint64_t digest;

	pair_connect(pair, 0, impatient);
	start_copy_and_stop(pair, IBV_WR_SEND);
	fence(pair, pair->a, 0);
	expect_wc(pair, pair->a, RECV_CQ, 7, IBV_WC_WR_FLUSH_ERR);
	digest = side_digest(pair->a, pair->a->mem[1], BIG);
	assert_int_equal(kill(pair->b->pid, SIGCONT), 0);
	side_hear(pair->b, &answer);
	turns_for(pair, 5 * MS);
	assert_int_equal(side_digest(pair->a, pair->a->mem[1], BIG), digest);
}

static void the_executed_psn_of_a_stopped_copy_is_true(void **state)
{
	struct pair *pair = two_processes(state);
	struct actor_answer answer;
	uint32_t psn = 0;
	uint64_t bytes;

	require_cap(pair, HF_DEV_EXECUTED_PSN, "the device does not tell executed psns");
	pair_connect(pair, 0, impatient);
	start_copy_and_stop(pair, IBV_WR_RDMA_WRITE);
	fence(pair, pair->a, 0);
	assert_int_equal(side_executed_psn(pair->a, 0, &psn), 0);
	bytes = (uint64_t)((psn - 2000) & PSN_MASK) * 1024;
	assert_in_range(bytes, 0, BIG);
	assert_int_equal(side_mismatch(pair->a, pair->a->mem[1], bytes, 1), bytes);
	assert_int_equal(kill(pair->b->pid, SIGCONT), 0);
	side_hear(pair->b, &answer);
}

static void kill_b(struct pair *pair)
{
	assert_int_equal(kill(pair->b->pid, SIGKILL), 0);
	assert_int_equal(waitpid(pair->b->pid, NULL, 0), pair->b->pid);
}

static void expect_timeout(struct pair *pair)
{
	struct ibv_wc wc;

	while (side_cq_poll(pair->a, SEND_CQ, 1, &wc) == 0)
		side_poll(pair->a);
	assert_int_equal(wc.status, IBV_WC_RETRY_EXC_ERR);
}

static void requests_to_a_process_that_died_time_out(void **state)
{
	struct pair *pair = two_processes(state);
	struct wr wr;

	pair_connect(pair, 0, impatient);
	wr_write(&wr, pair->a, pair->b, 0, 0, 8);
	kill_b(pair);
	post(pair->a, 0, &wr, 1);
	expect_timeout(pair);
}

static void a_send_that_waits_for_a_receive_times_out_when_the_process_dies(void **state)
{
	struct pair *pair = two_processes(state);
	struct ibv_wc wc;
	struct wr wr;

	pair_connect(pair, 0, impatient);
	post(pair->a, 0, wr_send(&wr, pair->a, 0, 64), 1);
	assert_int_equal(side_cq_poll(pair->a, SEND_CQ, 1, &wc), 0);
	kill_b(pair);
	expect_timeout(pair);
}

/* Its name is free, its regions can be left, and others go on. */
static void a_process_that_died_in_the_middle_of_a_copy_holds_up_nobody(void **state)
{
	struct pair *pair = two_processes(state);
	struct actor_config config = {.node = "b", .rail = "r0"};
	struct side *next;
	int rc;

	pair_connect(pair, 0, impatient);
	start_copy_and_stop(pair, IBV_WR_RDMA_WRITE);
	kill_b(pair);
	pair->b->asking = false;
	while ((rc = side_fence(pair->a, 0)) == -EINPROGRESS)
		side_poll(pair->a);
	assert_int_equal(rc, 0);
	assert_int_equal(side_mr_dereg(pair->a, 1), 0);
	assert_int_equal(side_qp_destroy(pair->a, 0), 0);
	next = side_remote(NULL);
	snprintf(config.kind, sizeof(config.kind), "%s", pair->bed->kind);
	snprintf(config.fabric, sizeof(config.fabric), "%s", bed_fabric());
	if (side_open(next, &config) != 0)
		fail_msg("open: %s", next->error.text);
	side_free(next);
}

const struct CMUnitTest process_tests[] = {
	CONFORMS(a_process_stopped_in_the_middle_of_a_copy_writes_nothing_after_the_fence),
	CONFORMS(access_that_was_taken_from_a_process_stopped_in_a_copy_stays_taken),
	CONFORMS(a_process_stopped_in_the_middle_of_a_send_writes_nothing_into_a_flushed_receive),
	CONFORMS(the_executed_psn_of_a_stopped_copy_is_true),
	CONFORMS(requests_to_a_process_that_died_time_out),
	CONFORMS(a_send_that_waits_for_a_receive_times_out_when_the_process_dies),
	CONFORMS(a_process_that_died_in_the_middle_of_a_copy_holds_up_nobody),
};
const size_t process_tests_count = sizeof(process_tests) / sizeof(process_tests[0]);
