/* Queue pairs as objects: states and their moves, limits, malformed wrs, what refuses to be destroyed. */
#include "pair.h"

#include <errno.h>

static const struct link_options plain = {.psn_a = 1000};

static void a_qp_walks_from_reset_to_rts_and_back(void **state)
{
	struct pair *pair = pair_of(state);
	struct side *a = pair->a;

	pair_create_qp(pair, 0, plain);
	for (unsigned round = 0; round < 2; round++) {
		assert_int_equal(qp_state(a, 0), IBV_QPS_RESET);
		assert_int_equal(qp_to_init(a, 0, 0), 0);
		assert_int_equal(qp_state(a, 0), IBV_QPS_INIT);
		assert_int_equal(qp_to_rtr(a, 0, pair->b, plain), 0);
		assert_int_equal(qp_state(a, 0), IBV_QPS_RTR);
		assert_int_equal(qp_to_rts(a, 0, 5, plain), 0);
		assert_int_equal(qp_state(a, 0), IBV_QPS_RTS);
		assert_int_equal(qp_to(a, 0, IBV_QPS_ERR), 0);
		assert_int_equal(qp_state(a, 0), IBV_QPS_ERR);
		assert_int_equal(qp_to(a, 0, IBV_QPS_RESET), 0);
	}
}

static void moves_that_are_not_allowed_change_nothing(void **state)
{
	struct pair *pair = pair_of(state);
	struct side *a = pair->a;

	pair_create_qp(pair, 0, plain);
	assert_int_equal(qp_to_rtr(a, 0, pair->b, plain), -EINVAL);
	assert_int_equal(qp_to_rts(a, 0, 5, plain), -EINVAL);
	assert_int_equal(qp_to(a, 0, IBV_QPS_INIT), -EINVAL); /* attributes are missing */
	assert_int_equal(qp_state(a, 0), IBV_QPS_RESET);
	assert_int_equal(qp_to_init(a, 0, 0), 0);
	assert_int_equal(qp_to_rts(a, 0, 5, plain), -EINVAL);
	assert_int_equal(qp_to(a, 0, IBV_QPS_RTR), -EINVAL);
	assert_int_equal(qp_state(a, 0), IBV_QPS_INIT);
	assert_int_equal(qp_to_rtr(a, 0, pair->b, plain), 0);
	assert_int_equal(qp_to_init(a, 0, 0), -EINVAL);
	assert_int_equal(qp_to_rts(a, 0, 5, plain), 0);
	assert_int_equal(qp_to_init(a, 0, 0), -EINVAL);
	assert_int_equal(qp_to_rtr(a, 0, pair->b, plain), -EINVAL);
	assert_int_equal(qp_state(a, 0), IBV_QPS_RTS);
	assert_int_equal(qp_to(a, 0, IBV_QPS_ERR), 0);
	assert_int_equal(qp_to_init(a, 0, 0), -EINVAL);
	assert_int_equal(qp_to_rts(a, 0, 5, plain), -EINVAL);
}

static void a_query_returns_what_was_set(void **state)
{
	struct pair *pair = connected_with(
		state, (struct link_options){.psn_a = 4242, .psn_b = 2424, .timeout = 13, .retry_cnt = 5});
	struct ibv_qp_attr attr;

	assert_int_equal(side_qp_query(pair->a, 0, &attr,
				 IBV_QP_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_DEST_QPN | IBV_QP_SQ_PSN | IBV_QP_RQ_PSN |
					 IBV_QP_TIMEOUT | IBV_QP_PATH_MTU | IBV_QP_RETRY_CNT),
		0);
	assert_int_equal(attr.qp_state, IBV_QPS_RTS);
	assert_int_equal(attr.qp_access_flags & REMOTE_ACCESS, REMOTE_ACCESS);
	assert_int_equal(attr.dest_qp_num, pair->b->qp_num[0]);
	assert_int_equal(attr.sq_psn, 4242);
	assert_int_equal(attr.rq_psn, 2424);
	assert_int_equal(attr.timeout, 13);
	assert_int_equal(attr.retry_cnt, 5);
	assert_int_equal(attr.path_mtu, IBV_MTU_1024);
}

static void nothing_can_be_sent_before_rts(void **state)
{
	struct pair *pair = pair_of(state);
	unsigned bad = 9;
	struct wr wr;

	pair_create_qp(pair, 0, plain);
	wr_write(&wr, pair->a, pair->b, 0, 0, 8);
	assert_int_equal(side_post_send(pair->a, 0, &wr.wr, &bad), -EINVAL);
	assert_int_equal(bad, 0);
	assert_int_equal(qp_to_init(pair->a, 0, 0), 0);
	assert_int_equal(side_post_send(pair->a, 0, &wr.wr, NULL), -EINVAL);
	assert_int_equal(qp_to_rtr(pair->a, 0, pair->b, plain), 0);
	assert_int_equal(side_post_send(pair->a, 0, &wr.wr, NULL), -EINVAL);
}

static void a_reset_forgets_wrs_without_completing_them(void **state)
{
	struct pair *pair = connected(state);
	struct recv recv;
	struct wr wr;

	side_store(pair->b, pair->b->mem[0], 0);
	assert_int_equal(side_set_link(pair->b, HF_LINK_BOTH, false), 0);
	post(pair->a, 0, wr_faa(&wr, pair->a, pair->b, 64, 0, 1), 1);
	post_receive(pair->a, 0, recv_into(&recv, pair->a, 0, 8), 2);
	expect_no_wc(pair, pair->a, SEND_CQ);
	assert_int_equal(qp_to(pair->a, 0, IBV_QPS_RESET), 0);
	assert_int_equal(side_set_link(pair->b, HF_LINK_BOTH, true), 0);
	expect_no_wc(pair, pair->a, SEND_CQ);
	expect_no_wc(pair, pair->a, RECV_CQ);
	assert_int_equal(side_load(pair->b, pair->b->mem[0]), 0);
}

static void a_full_send_queue_refuses_the_first_that_does_not_fit(void **state)
{
	struct pair *pair = connected_with(state, (struct link_options){.send_wr = 16});
	uint32_t room = pair->a->qp_cap[0].max_send_wr;
	struct wr wr[2];
	unsigned bad = 9;

	if (pair->bed->real)
		skip_because("a NIC may have more room than it says");
	side_store(pair->b, pair->b->mem[0], 0);
	assert_int_equal(side_set_link(pair->b, HF_LINK_BOTH, false), 0);
	for (uint32_t i = 0; i + 1 < room; i++)
		post(pair->a, 0, wr_faa(&wr[0], pair->a, pair->b, 64, 0, 1), i);
	for (unsigned i = 0; i < 2; i++) {
		wr_faa(&wr[i], pair->a, pair->b, 64, 0, 1)->wr.wr_id = room - 1 + i;
		wr[i].wr.send_flags = IBV_SEND_SIGNALED;
	}
	wr[0].wr.next = &wr[1].wr;
	assert_int_equal(side_post_send(pair->a, 0, &wr[0].wr, &bad), -ENOMEM);
	assert_int_equal(bad, 1);
	assert_int_equal(side_set_link(pair->b, HF_LINK_BOTH, true), 0);
	for (uint32_t i = 0; i < room; i++)
		expect_wc(pair, pair->a, SEND_CQ, i, IBV_WC_SUCCESS);
	assert_int_equal(side_load(pair->b, pair->b->mem[0]), room);
	post(pair->a, 0, wr_faa(&wr[0], pair->a, pair->b, 64, 0, 1), 77);
	expect_wc(pair, pair->a, SEND_CQ, 77, IBV_WC_SUCCESS);
}

/* Queues need not be of a power of two: each lap begins at another place. */
static void a_queue_of_an_odd_size_goes_round_and_round(void **state)
{
	enum { LAPS = 12 };
	struct pair *pair = connected_with(state, (struct link_options){.send_wr = 5});
	uint32_t room = pair->a->qp_cap[0].max_send_wr;
	uint64_t posted = 0, taken = 0;
	struct wr wr;

	side_store(pair->b, pair->b->mem[0], 0);
	for (unsigned lap = 0; lap < LAPS; lap++) {
		for (; posted - taken < room; posted++)
			post(pair->a, 0, wr_faa(&wr, pair->a, pair->b, 64, 0, 1), posted);
		for (uint32_t i = 0; i < room - lap % 2; i++)
			expect_wc(pair, pair->a, SEND_CQ, taken++, IBV_WC_SUCCESS);
	}
	while (taken < posted)
		expect_wc(pair, pair->a, SEND_CQ, taken++, IBV_WC_SUCCESS);
	assert_int_equal(side_load(pair->b, pair->b->mem[0]), posted);
}

/* Posts a good wr and then this one; only the good one is taken. */
static void expect_malformed(struct pair *pair, struct wr *wr)
{
	struct wr good;
	unsigned bad = 9;

	wr_write(&good, pair->a, pair->b, 0, 0, 8);
	good.wr.wr_id = 5;
	good.wr.send_flags = IBV_SEND_SIGNALED;
	good.wr.next = &wr->wr;
	assert_int_equal(side_post_send(pair->a, 0, &good.wr, &bad), -EINVAL);
	assert_int_equal(bad, 1);
	expect_wc(pair, pair->a, SEND_CQ, 5, IBV_WC_SUCCESS);
	assert_int_equal(qp_state(pair->a, 0), IBV_QPS_RTS);
}

static void malformed_wrs_are_refused_and_those_before_them_posted(void **state)
{
	struct pair *pair = connected(state);
	uint32_t too_long = pair->a->qp_cap[0].max_inline_data + 1;
	struct wr wr;

	wr_write(&wr, pair->a, pair->b, 0, 0, 8)->wr.num_sge = (int)pair->a->qp_cap[0].max_send_sge + 1;
	expect_malformed(pair, &wr);
	wr_write(&wr, pair->a, pair->b, 0, 0, 8)->wr.num_sge = -1;
	expect_malformed(pair, &wr);
	wr_write(&wr, pair->a, pair->b, 0, 0, too_long)->wr.send_flags = IBV_SEND_INLINE;
	expect_malformed(pair, &wr);
	wr_read(&wr, pair->a, pair->b, 0, 0, 8)->wr.send_flags = IBV_SEND_INLINE;
	expect_malformed(pair, &wr);
	wr_write(&wr, pair->a, pair->b, 0, 0, 8)->wr.opcode = IBV_WR_BIND_MW;
	expect_malformed(pair, &wr);
	wr_write(&wr, pair->a, pair->b, 0, 0, 8)->wr.opcode = (enum ibv_wr_opcode)4711;
	expect_malformed(pair, &wr);
	wr_faa(&wr, pair->a, pair->b, 0, 0, 1)->sge[0].length = 4;
	expect_malformed(pair, &wr);
	wr_faa(&wr, pair->a, pair->b, 0, 4, 1);
	expect_malformed(pair, &wr);
}

static void a_message_longer_than_the_port_takes_is_refused(void **state)
{
	struct pair *pair = connected(state);
	struct wr wr;

	wr_write(&wr, pair->a, pair->b, 0, 0, 8)->wr.num_sge = 3;
	for (unsigned i = 0; i < 3; i++)
		wr.sge[i].length = UINT32_MAX;
	if (3ull * UINT32_MAX <= pair->a->attr.max_msg_bytes)
		skip_because("no message is too long for this device");
	expect_malformed(pair, &wr);
}

static void what_is_in_use_cannot_be_destroyed(void **state)
{
	struct pair *pair = connected(state);

	assert_int_equal(side_pd_free(pair->a, 0), -EBUSY);
	assert_int_equal(side_cq_destroy(pair->a, SEND_CQ), -EBUSY);
	assert_int_equal(side_cq_destroy(pair->a, RECV_CQ), -EBUSY);
	assert_int_equal(side_qp_destroy(pair->a, 0), 0);
	assert_int_equal(side_pd_free(pair->a, 0), -EBUSY); /* its region */
	assert_int_equal(side_mr_dereg(pair->a, 0), 0);
	assert_int_equal(side_pd_free(pair->a, 0), 0);
	assert_int_equal(side_cq_destroy(pair->a, SEND_CQ), 0);
}

static void a_shared_receive_queue_in_use_cannot_be_destroyed(void **state)
{
	struct pair *pair = pair_of(state);

	require_cap(pair, HF_DEV_SRQ, "the device has no shared receive queues");
	assert_int_equal(side_srq_create(pair->a, 0, 0, 16), 0);
	assert_int_equal(side_srq_create(pair->b, 0, 0, 16), 0);
	pair_create_qp(pair, 0, (struct link_options){.srq_plus1 = 1});
	assert_int_equal(side_srq_destroy(pair->a, 0), -EBUSY);
	assert_int_equal(side_qp_destroy(pair->a, 0), 0);
	assert_int_equal(side_srq_destroy(pair->a, 0), 0);
}

static void objects_beyond_the_limits_are_refused(void **state)
{
	struct pair *pair = pair_of(state);
	const struct hf_dev_attr *attr = &pair->a->attr;
	struct side_qp init = {.srq = ACTOR_NONE, .send_cq = SEND_CQ, .recv_cq = RECV_CQ, .cap = {8, 8, 1, 1, 0}};

	assert_int_equal(side_cq_create(pair->a, 5, attr->max_cqe + 1), -EINVAL);
	assert_int_equal(side_cq_create(pair->a, 5, 0), -EINVAL);
	init.cap.max_send_wr = attr->max_qp_wr + 1;
	assert_int_equal(side_qp_create(pair->a, 0, &init), -EINVAL);
	init.cap = (struct ibv_qp_cap){8, 8, attr->max_sge + 1, 1, 0};
	assert_int_equal(side_qp_create(pair->a, 0, &init), -EINVAL);
	init.cap = (struct ibv_qp_cap){8, 8, 1, 1, attr->max_inline + 1};
	assert_int_equal(side_qp_create(pair->a, 0, &init), -EINVAL);
	init.cap =
		(struct ibv_qp_cap){attr->max_qp_wr, attr->max_qp_wr, attr->max_sge, attr->max_sge, attr->max_inline};
	assert_int_equal(side_qp_create(pair->a, 0, &init), 0);
	assert_true(pair->a->qp_cap[0].max_send_wr >= attr->max_qp_wr);
}

static void completions_of_many_qps_share_a_queue(void **state)
{
	struct pair *pair = pair_of(state);
	unsigned seen[8] = {0};
	struct wr wr;

	for (uint32_t i = 0; i < 8; i++)
		pair_connect(pair, i, (struct link_options){0});
	for (unsigned i = 0; i < 64; i++)
		post(pair->a, i % 8, wr_write(&wr, pair->a, pair->b, 0, 8 * i, 8), i);
	for (unsigned i = 0; i < 64; i++) {
		struct ibv_wc wc = next_wc(pair, pair->a, SEND_CQ);

		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		assert_int_equal(wc.qp_num, pair->a->qp_num[wc.wr_id % 8]);
		assert_int_equal(wc.wr_id / 8, seen[wc.wr_id % 8]++);
	}
}

static void a_poll_takes_no_more_than_it_was_asked_for(void **state)
{
	struct pair *pair = connected(state);
	struct ibv_wc wc[8];
	unsigned taken = 0;
	struct wr wr;

	for (unsigned i = 0; i < 20; i++)
		post(pair->a, 0, wr_write(&wr, pair->a, pair->b, 0, 0, 8), i);
	turns_for(pair, MS);
	while (taken < 20) {
		int n = side_cq_poll(pair->a, SEND_CQ, 3, wc);

		assert_in_range(n, 0, 3);
		for (int i = 0; i < n; i++)
			assert_int_equal(wc[i].wr_id, taken++);
		turn(pair);
	}
	assert_int_equal(side_cq_poll(pair->a, SEND_CQ, 8, wc), 0);
}

const struct CMUnitTest qp_tests[] = {
	CONFORMS(a_qp_walks_from_reset_to_rts_and_back),
	CONFORMS(moves_that_are_not_allowed_change_nothing),
	CONFORMS(a_query_returns_what_was_set),
	CONFORMS(nothing_can_be_sent_before_rts),
	CONFORMS(a_reset_forgets_wrs_without_completing_them),
	CONFORMS(a_full_send_queue_refuses_the_first_that_does_not_fit),
	CONFORMS(a_queue_of_an_odd_size_goes_round_and_round),
	CONFORMS(malformed_wrs_are_refused_and_those_before_them_posted),
	CONFORMS(a_message_longer_than_the_port_takes_is_refused),
	CONFORMS(what_is_in_use_cannot_be_destroyed),
	CONFORMS(a_shared_receive_queue_in_use_cannot_be_destroyed),
	CONFORMS(objects_beyond_the_limits_are_refused),
	CONFORMS(completions_of_many_qps_share_a_queue),
	CONFORMS(a_poll_takes_no_more_than_it_was_asked_for),
};
const size_t qp_tests_count = sizeof(qp_tests) / sizeof(qp_tests[0]);
