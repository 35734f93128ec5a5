/* D5 and the keys: nobody reaches what was not given to them, now or any more. */
#include "pair.h"

#include <errno.h>

#define BYTES 4096u

enum kind { WRITE, READ, ATOMIC };
#define KINDS 3
static const int access_of[KINDS] = {IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_ATOMIC};

static struct wr *make(struct wr *wr, struct pair *pair, unsigned kind)
{
	if (kind == WRITE)
		return wr_write(wr, pair->a, pair->b, 0, 0, 64);
	if (kind == READ)
		return wr_read(wr, pair->a, pair->b, 0, 0, 64);
	return wr_faa(wr, pair->a, pair->b, 0, 0, 1);
}

/* Both memories hold their seeds before, and still after a wr that was refused. */
static void fill_both(struct pair *pair)
{
	side_fill(pair->a, pair->a->mem[0], BYTES, 1);
	side_fill(pair->b, pair->b->mem[0], BYTES, 2);
}

static void expect_refused(struct pair *pair, uint32_t qp, struct wr *wr)
{
	struct ibv_wc wc;

	fill_both(pair);
	post(pair->a, qp, wr, 1);
	wc = next_wc(pair, pair->a, SEND_CQ);
	/* A key that does not fit is REM_ACCESS, a qp that may not is REM_INV_REQ on some NICs. */
	assert_true(wc.status == IBV_WC_REM_ACCESS_ERR || wc.status == IBV_WC_REM_INV_REQ_ERR);
	assert_int_equal(wc.wr_id, 1);
	assert_int_equal(qp_state(pair->a, qp), IBV_QPS_ERR);
	turns_for(pair, MS);
	assert_int_equal(side_mismatch(pair->b, pair->b->mem[0], BYTES, 2), BYTES);
	assert_int_equal(side_mismatch(pair->a, pair->a->mem[0], BYTES, 1), BYTES);
}

static void a_region_gives_only_the_access_it_was_registered_with(void **state)
{
	struct pair *pair = pair_of(state);
	struct wr wr;

	for (unsigned kind = 0; kind < KINDS; kind++) {
		assert_int_equal(side_mr_reg(pair->b, 1 + kind, 0, pair->b->mem[0], BYTES, iova_of(pair->b, 0),
					 ALL_ACCESS & ~access_of[kind]),
			0);
		pair_connect(pair, kind, (struct link_options){0});
		make(&wr, pair, kind);
		if (kind == ATOMIC)
			wr.wr.wr.atomic.rkey = pair->b->rkey[1 + kind];
		else
			wr.wr.wr.rdma.rkey = pair->b->rkey[1 + kind];
		expect_refused(pair, kind, &wr);
	}
}

static void a_qp_gives_only_the_access_of_its_flags(void **state)
{
	struct pair *pair = pair_of(state);
	struct wr wr;

	for (unsigned kind = 0; kind < KINDS; kind++) {
		pair_connect(pair, kind, (struct link_options){.no_access = access_of[kind]});
		expect_refused(pair, kind, make(&wr, pair, kind));
	}
}

static void a_wrong_key_is_refused(void **state)
{
	struct pair *pair = pair_of(state);
	struct wr wr;

	for (unsigned bit = 0; bit < 8; bit++) {
		pair_connect(pair, bit, (struct link_options){0});
		make(&wr, pair, bit % 2 == 0 ? WRITE : READ);
		wr.wr.wr.rdma.rkey ^= 1u << (bit * 4);
		expect_refused(pair, bit, &wr);
	}
}

static void a_range_beyond_the_region_is_refused(void **state)
{
	struct pair *pair = pair_of(state);
	const int64_t offsets[] = {-1, -64, BYTES - 63, BYTES, 1 << 20, INT64_MIN};
	struct wr wr;

	assert_int_equal(side_mr_reg(pair->b, 1, 0, pair->b->mem[0], BYTES, iova_of(pair->b, 0), ALL_ACCESS), 0);
	for (unsigned i = 0; i < 2 * sizeof(offsets) / sizeof(offsets[0]); i++) {
		pair_connect(pair, i, (struct link_options){0});
		make(&wr, pair, i % 2 == 0 ? WRITE : READ);
		wr.wr.wr.rdma.rkey = pair->b->rkey[1];
		wr.wr.wr.rdma.remote_addr += (uint64_t)offsets[i / 2];
		expect_refused(pair, i, &wr);
	}
}

static void a_range_that_wraps_around_is_refused(void **state)
{
	struct pair *pair = connected(state);
	struct wr wr;

	wr_write(&wr, pair->a, pair->b, 0, 0, 64);
	wr.wr.wr.rdma.remote_addr = UINT64_MAX - 7;
	expect_refused(pair, 0, &wr);
}

static void the_last_byte_of_a_region_can_be_reached(void **state)
{
	struct pair *pair = connected(state);
	uint64_t iova = 0x123456000 + (pair->b->mem[0] + 10) % 4096; /* drivers want the same place in a page */
	struct wr wr;

	assert_int_equal(side_mr_reg(pair->b, 1, 0, pair->b->mem[0] + 10, 100, iova, ALL_ACCESS), 0);
	fill_both(pair);
	wr_write(&wr, pair->a, pair->b, 0, 0, 100);
	wr.wr.wr.rdma.rkey = pair->b->rkey[1];
	wr.wr.wr.rdma.remote_addr = iova;
	post(pair->a, 0, &wr, 1);
	expect_wc(pair, pair->a, SEND_CQ, 1, IBV_WC_SUCCESS);
	assert_int_equal(side_mismatch(pair->b, pair->b->mem[0] + 10, 100, 1), 100);
}

static void a_key_of_another_protection_domain_is_refused(void **state)
{
	struct pair *pair = connected(state);
	struct wr wr;

	assert_int_equal(side_pd_alloc(pair->b, 1), 0);
	assert_int_equal(side_mr_reg(pair->b, 1, 1, pair->b->mem[0], BYTES, iova_of(pair->b, 0), ALL_ACCESS), 0);
	make(&wr, pair, WRITE);
	wr.wr.wr.rdma.rkey = pair->b->rkey[1];
	expect_refused(pair, 0, &wr);
}

static void a_deregistered_region_cannot_be_reached(void **state)
{
	struct pair *pair = connected(state);
	struct wr wr;

	assert_int_equal(side_mr_reg(pair->b, 1, 0, pair->b->mem[0], BYTES, iova_of(pair->b, 0), ALL_ACCESS), 0);
	make(&wr, pair, WRITE);
	wr.wr.wr.rdma.rkey = pair->b->rkey[1];
	post(pair->a, 0, &wr, 7);
	expect_wc(pair, pair->a, SEND_CQ, 7, IBV_WC_SUCCESS);
	assert_int_equal(side_mr_dereg(pair->b, 1), 0);
	expect_refused(pair, 0, &wr);
}

static void an_empty_write_needs_no_key(void **state)
{
	struct pair *pair = connected(state);
	struct wr wr;

	wr_write(&wr, pair->a, pair->b, 0, 0, 0);
	wr.wr.wr.rdma.rkey = 0;
	post(pair->a, 0, &wr, 1);
	expect_wc(pair, pair->a, SEND_CQ, 1, IBV_WC_SUCCESS);
}

/* ---- at the requester's own end ---- */

static void expect_local_error(struct pair *pair, uint32_t qp, struct wr *wr)
{
	fill_both(pair);
	post(pair->a, qp, wr, 3);
	expect_wc(pair, pair->a, SEND_CQ, 3, IBV_WC_LOC_PROT_ERR);
	assert_int_equal(side_mismatch(pair->b, pair->b->mem[0], BYTES, 2), BYTES);
	assert_int_equal(side_mismatch(pair->a, pair->a->mem[0], BYTES, 1), BYTES);
}

static void a_wr_with_a_wrong_local_key_or_range_fails_by_itself(void **state)
{
	struct pair *pair = pair_of(state);
	struct wr wr;

	for (unsigned i = 0; i < 6; i++) {
		pair_connect(pair, i, (struct link_options){0});
		make(&wr, pair, i % 2 == 0 ? WRITE : READ);
		if (i / 2 == 0)
			wr.sge[0].lkey ^= 0x10;
		else if (i / 2 == 1)
			wr.sge[0].addr = pair->a->mem[0] - 1;
		else
			wr.sge[0].addr = pair->a->mem[0] + PAIR_BYTES - 63;
		expect_local_error(pair, i, &wr);
	}
}

static void a_read_into_memory_without_local_write_fails(void **state)
{
	struct pair *pair = connected(state);
	struct wr wr;

	assert_int_equal(
		side_mr_reg(pair->a, 1, 0, pair->a->mem[0], BYTES, pair->a->mem[0], IBV_ACCESS_REMOTE_READ), 0);
	make(&wr, pair, READ);
	wr.sge[0].lkey = pair->a->lkey[1];
	expect_local_error(pair, 0, &wr);
}

static void a_local_key_of_another_protection_domain_fails(void **state)
{
	struct pair *pair = connected(state);
	struct wr wr;

	assert_int_equal(side_pd_alloc(pair->a, 1), 0);
	assert_int_equal(side_mr_reg(pair->a, 1, 1, pair->a->mem[0], BYTES, pair->a->mem[0], ALL_ACCESS), 0);
	make(&wr, pair, WRITE);
	wr.sge[0].lkey = pair->a->lkey[1];
	expect_local_error(pair, 0, &wr);
}

/* ---- changes while connected ---- */

static void access_taken_away_in_rts_is_gone_when_the_call_returns(void **state)
{
	struct pair *pair = pair_of(state);
	struct wr wr;

	require_cap(pair, HF_DEV_ACCESS_IN_RTS, "access cannot change in RTS");
	for (unsigned kind = 0; kind < KINDS; kind++) {
		pair_connect(pair, kind, (struct link_options){0});
		post(pair->a, kind, make(&wr, pair, kind), 7);
		expect_wc(pair, pair->a, SEND_CQ, 7, IBV_WC_SUCCESS);
		assert_int_equal(qp_access(pair->b, kind, REMOTE_ACCESS & ~access_of[kind]), 0);
		expect_refused(pair, kind, &wr);
	}
}

static void access_given_in_rts_works_at_once(void **state)
{
	struct pair *pair = connected_with(state, (struct link_options){.no_access = REMOTE_ACCESS});
	struct wr wr;

	require_cap(pair, HF_DEV_ACCESS_IN_RTS, "access cannot change in RTS");
	assert_int_equal(qp_access(pair->b, 0, IBV_ACCESS_REMOTE_WRITE), 0);
	fill_both(pair);
	post(pair->a, 0, make(&wr, pair, WRITE), 1);
	expect_wc(pair, pair->a, SEND_CQ, 1, IBV_WC_SUCCESS);
	assert_int_equal(side_mismatch(pair->b, pair->b->mem[0], 64, 1), 64);
	expect_refused(pair, 0, make(&wr, pair, READ));
}

/* Posts a stream of WRITEs, interrupts it after some turns, and expects the target to stay as it was then. */
static void stream_is_stopped_by(struct pair *pair, uint32_t qp, unsigned turns, void (*stop)(struct side *, uint32_t))
{
	uint64_t digest;
	struct wr wr;

	assert_int_equal(side_mr_reg(pair->b, 1, 0, pair->b->mem[0], 1u << 20, iova_of(pair->b, 0), ALL_ACCESS), 0);
	side_fill(pair->a, pair->a->mem[0], 1u << 20, turns);
	side_fill(pair->b, pair->b->mem[0], 1u << 20, turns + 1);
	for (unsigned i = 0; i < 16; i++) {
		wr_write(&wr, pair->a, pair->b, i << 16, i << 16, 1u << 16);
		wr.wr.wr.rdma.rkey = pair->b->rkey[1];
		post_quiet(pair->a, qp, &wr, i);
	}
	for (unsigned i = 0; i < turns; i++)
		turn(pair);
	stop(pair->b, qp);
	digest = side_digest(pair->b, pair->b->mem[0], 1u << 20);
	turns_for(pair, 3 * MS);
	assert_int_equal(side_digest(pair->b, pair->b->mem[0], 1u << 20), digest);
	for (struct ibv_wc wc; side_cq_poll(pair->a, SEND_CQ, 1, &wc) == 1;)
		continue;
}

static void revoke(struct side *side, uint32_t qp)
{
	assert_int_equal(qp_access(side, qp, 0), 0);
}

static void deregister(struct side *side, uint32_t qp)
{
	(void)qp;
	assert_int_equal(side_mr_dereg(side, 1), 0);
}

static void a_running_stream_stops_where_access_was_taken_away(void **state)
{
	struct pair *pair = pair_of(state);

	require_cap(pair, HF_DEV_ACCESS_IN_RTS, "access cannot change in RTS");
	for (uint32_t i = 0; i < 6; i++) {
		pair_connect(pair, i, (struct link_options){0});
		stream_is_stopped_by(pair, i, i, revoke);
		assert_int_equal(side_mr_dereg(pair->b, 1), 0);
	}
}

static void a_running_stream_stops_where_its_region_was_deregistered(void **state)
{
	struct pair *pair = pair_of(state);

	for (uint32_t i = 0; i < 6; i++) {
		pair_connect(pair, i, (struct link_options){0});
		stream_is_stopped_by(pair, i, i, deregister);
	}
}

/* By the flags where they can change, else by the fence. */
static void take_access(struct pair *pair, uint32_t qp)
{
	int rc;

	if ((pair->b->attr.caps & HF_DEV_ACCESS_IN_RTS) == 0) {
		fence(pair, pair->b, qp);
		return;
	}
	while ((rc = qp_access(pair->b, qp, 0)) == -EINPROGRESS)
		continue;
	assert_int_equal(rc, 0);
}

/* D5: the memory is as the executed psn says at the moment of the return, without another turn of either side. */
static void what_executed_is_visible_when_access_has_been_taken_away(void **state)
{
	const uint64_t stream = 1u << 20, packet = 1024;
	struct pair *pair = pair_of(state);
	uint64_t digest;
	uint32_t psn;
	struct wr wr;

	require_cap(pair, HF_DEV_EXECUTED_PSN, "the device does not tell executed psns");
	for (uint32_t i = 0; i < 8; i++) {
		pair_connect(pair, i, (struct link_options){0});
		side_fill(pair->a, pair->a->mem[0], stream, 1);
		side_fill(pair->b, pair->b->mem[0], stream, 2);
		for (unsigned k = 0; k < 16; k++)
			post(pair->a, i, wr_write(&wr, pair->a, pair->b, k << 16, k << 16, 1u << 16), k);
		for (unsigned k = 0; k < 8 * i; k++)
			turn(pair);
		take_access(pair, i);
		digest = side_digest(pair->b, pair->b->mem[0], stream);
		fence(pair, pair->b, i);
		assert_int_equal(side_executed_psn(pair->b, i, &psn), 0);
		assert_in_range((psn - 1000) & PSN_MASK, 0, stream / packet);
		side_fill(pair->b, pair->b->mem[0], ((psn - 1000) & PSN_MASK) * packet, 1);
		assert_int_equal(side_digest(pair->b, pair->b->mem[0], stream), digest);
		fence(pair, pair->a, i);
		for (struct ibv_wc wc; side_cq_poll(pair->a, SEND_CQ, 1, &wc) == 1;)
			continue;
	}
}

static void remote_keys_cannot_be_guessed_from_one_another(void **state)
{
	struct pair *pair = pair_of(state);
	struct side *b = pair->b;
	unsigned near_ones = 0;

	if (pair->bed->real)
		skip_because("its keys are the NIC's");
	for (uint32_t i = 1; i < ACTOR_SLOTS; i++)
		assert_int_equal(side_mr_reg(b, i, 0, b->mem[0], BYTES, b->mem[0], ALL_ACCESS), 0);
	for (uint32_t i = 1; i < ACTOR_SLOTS; i++)
		for (uint32_t k = 0; k < i; k++) {
			uint32_t distance = b->rkey[i] - b->rkey[k];

			assert_int_not_equal(distance, 0);
			near_ones += distance + 4096 < 8192;
		}
	assert_in_range(near_ones, 0, 2);
}

const struct CMUnitTest access_tests[] = {
	CONFORMS(a_region_gives_only_the_access_it_was_registered_with),
	CONFORMS(a_qp_gives_only_the_access_of_its_flags),
	CONFORMS(a_wrong_key_is_refused),
	CONFORMS(a_range_beyond_the_region_is_refused),
	CONFORMS(a_range_that_wraps_around_is_refused),
	CONFORMS(the_last_byte_of_a_region_can_be_reached),
	CONFORMS(a_key_of_another_protection_domain_is_refused),
	CONFORMS(a_deregistered_region_cannot_be_reached),
	CONFORMS(an_empty_write_needs_no_key),
	CONFORMS(a_wr_with_a_wrong_local_key_or_range_fails_by_itself),
	CONFORMS(a_read_into_memory_without_local_write_fails),
	CONFORMS(a_local_key_of_another_protection_domain_fails),
	CONFORMS(access_taken_away_in_rts_is_gone_when_the_call_returns),
	CONFORMS(access_given_in_rts_works_at_once),
	CONFORMS(a_running_stream_stops_where_access_was_taken_away),
	CONFORMS(a_running_stream_stops_where_its_region_was_deregistered),
	CONFORMS(what_executed_is_visible_when_access_has_been_taken_away),
	CONFORMS(remote_keys_cannot_be_guessed_from_one_another),
};
const size_t access_tests_count = sizeof(access_tests) / sizeof(access_tests[0]);
