/* A wr fails at its own side: what was posted behind it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "pair.h"
#include "vqp/objects.h"

/* Of a's memory, which is registered up to there. */
static void post_across_the_end(struct pair *pair, enum ibv_wr_opcode opcode)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)pair->a.memory + PAIR_BYTES - 64, .length = 128, .lkey = pair->a.mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED};
	struct ibv_send_wr *bad;

	wr.wr.rdma.remote_addr = (uintptr_t)pair->b.memory;
	wr.wr.rdma.rkey = pair->b.mr->rkey;
	assert_int_equal(hf_vqp_post_send(pair->a.vqp, &wr, &bad), 0);
}

/* It lies outside of its region, so it was not sent, nor what was posted behind it. */
static void what_is_behind_a_wr_that_cannot_be_sent_did_not_execute(void **state)
{
	struct pair pair;
	struct ibv_wc wc[3];

	(void)state;
	pair_open(&pair, HF_POLICY_VARUNA);
	pair_connect(&pair);
	memset(pair.a.memory, 0x5a, 4096);
	post_across_the_end(&pair, IBV_WR_RDMA_WRITE);
	for (unsigned i = 1; i < 3; i++)
		assert_int_equal(pair_write(&pair, i, i * 64, 64, true), 0);
	pair_collect(&pair, &pair.a, 3, wc);
	assert_int_equal(wc[0].status, IBV_WC_LOC_PROT_ERR);
	for (unsigned i = 1; i < 3; i++) {
		assert_int_equal(wc[i].status, IBV_WC_WR_FLUSH_ERR);
		assert_int_equal(wc[i].vendor_err, HF_WC_NOT_EXECUTED);
		assert_int_equal(pair.b.memory[i * 64], 0);
	}
	pair_close(&pair);
}

static bool a_asks_b_to_end(struct pair *pair)
{
	return ending_asks(&pair->a.vqp->ending);
}

/* The WRITE behind it has left when the answer cannot land: the other end has fenced before anything completes (V4). */
static void what_is_behind_a_read_that_cannot_land_ends_at_both_sides(void **state)
{
	struct pair pair;
	struct ibv_wc wc[2];

	(void)state;
	pair_open(&pair, HF_POLICY_VARUNA);
	pair_connect(&pair);
	post_across_the_end(&pair, IBV_WR_RDMA_READ);
	assert_int_equal(pair_write(&pair, 1, 64, 64, true), 0);
	assert_true(pair_until(&pair, a_asks_b_to_end));
	pair_collect(&pair, &pair.a, 2, wc);
	assert_int_equal(wc[0].status, IBV_WC_LOC_PROT_ERR);
	assert_int_equal(wc[1].status, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(hf_vqp_state(pair.b.vqp), HF_VQP_ERROR);
	pair_close(&pair);
}

/* A qp that is connected already takes the number. */
static void a_message_without_a_receive_fails_at_once_when_it_is_not_to_be_sent_again(void **state)
{
	struct pair pair;
	struct ibv_wc wc;

	(void)state;
	pair_open(&pair, HF_POLICY_VARUNA);
	pair_connect(&pair);
	hf_vqp_set_rnr_retry(pair.a.vqp, 0);
	assert_int_equal(pair_send(&pair, 1, 0, 64), 0);
	pair_collect(&pair, &pair.a, 1, &wc);
	assert_int_equal(wc.status, IBV_WC_RNR_RETRY_EXC_ERR);
	assert_int_equal(wc.vendor_err, HF_WC_NOT_EXECUTED);
	assert_int_equal(hf_vqp_state(pair.a.vqp), HF_VQP_ERROR);
	pair_close(&pair);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_behind_a_wr_that_cannot_be_sent_did_not_execute),
		cmocka_unit_test(what_is_behind_a_read_that_cannot_land_ends_at_both_sides),
		cmocka_unit_test(a_message_without_a_receive_fails_at_once_when_it_is_not_to_be_sent_again),
	};

	if (argc > 1)
		pair_kind = argv[1];
	return cmocka_run_group_tests(tests, NULL, NULL);
}
