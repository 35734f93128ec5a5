/* Memory that its owner takes away while it is registered: no process ends. A device that reaches the memory by the
 * owner's own mapping refuses the request; one that pins pages, or has a mapping of its own, still executes it. */
#include "pair.h"

#include <errno.h>
#include <sys/mman.h>

#define PAGES_BYTES 65536u
#define PAGE_BYTES  4096u
#define GIVEN       (PROT_READ | PROT_WRITE)

enum kind { WRITE, READ, ATOMIC, KINDS };

/* A whole page in the middle of memory 1 of a side, which is registered as mr 1. */
static uint64_t page_of(struct pair *pair, struct side *side)
{
	if (pair->bed->world_open != NULL)
		skip_because("the memory of a simulated host stays");
	if (side->mem_bytes[1] == 0) {
		assert_int_equal(side_mem_alloc(side, 1, PAGES_BYTES), 0);
		assert_int_equal(side_mr_reg(side, 1, 0, side->mem[1], PAGES_BYTES, side->mem[1], ALL_ACCESS), 0);
	}
	return (side->mem[1] + PAGES_BYTES / 2) & ~(uint64_t)(PAGE_BYTES - 1);
}

static enum kind kinds_of(const struct pair *pair)
{
	return pair->b->no_atomics ? ATOMIC : KINDS;
}

static struct wr *aim(struct wr *wr, struct pair *pair, enum kind kind, uint64_t at)
{
	if (kind == ATOMIC) {
		wr_faa(wr, pair->a, pair->b, 0, 0, 1);
		wr->wr.wr.atomic.remote_addr = at;
		wr->wr.wr.atomic.rkey = pair->b->rkey[1];
		return wr;
	}
	if (kind == READ)
		wr_read(wr, pair->a, pair->b, 0, 0, 64);
	else
		wr_write(wr, pair->a, pair->b, 0, 0, 64);
	wr->wr.wr.rdma.remote_addr = at;
	wr->wr.wr.rdma.rkey = pair->b->rkey[1];
	return wr;
}

/* Both processes live, and other qps of theirs work. */
static void expect_alive(struct pair *pair, uint32_t qp)
{
	struct wr wr;

	pair_connect(pair, qp, (struct link_options){0});
	post(pair->a, qp, wr_write(&wr, pair->a, pair->b, 0, 0, 64), 99);
	expect_wc(pair, pair->a, SEND_CQ, 99, IBV_WC_SUCCESS);
}

static void expect_refused_or_executed(struct pair *pair, uint32_t qp, enum kind kind, int protection)
{
	uint64_t page = page_of(pair, pair->b);
	struct ibv_wc wc;
	struct wr wr;

	pair_connect(pair, qp, (struct link_options){0});
	aim(&wr, pair, kind, page);
	assert_int_equal(side_mem_protect(pair->b, page, PAGE_BYTES, protection), 0);
	post(pair->a, qp, &wr, 1);
	wc = next_wc(pair, pair->a, SEND_CQ);
	assert_int_equal(side_mem_protect(pair->b, page, PAGE_BYTES, GIVEN), 0);
	assert_int_equal(wc.wr_id, 1);
	if (wc.status != IBV_WC_SUCCESS)
		assert_int_equal(wc.status, IBV_WC_REM_ACCESS_ERR);
}

static void memory_that_is_gone_ends_the_qp_and_not_the_process(void **state)
{
	struct pair *pair = pair_of(state);

	for (enum kind kind = 0; kind < kinds_of(pair); kind++)
		expect_refused_or_executed(pair, kind, kind, PROT_NONE);
	expect_alive(pair, KINDS);
}

static void memory_that_became_read_only_ends_the_qp_and_not_the_process(void **state)
{
	struct pair *pair = pair_of(state);

	expect_refused_or_executed(pair, 0, WRITE, PROT_READ);
	if (kinds_of(pair) == KINDS)
		expect_refused_or_executed(pair, 1, ATOMIC, PROT_READ);
	expect_alive(pair, 2);
}

/* The same of the requester's own memory: what it sends, and where responses land. */
static void local_memory_that_is_gone_is_a_local_error(void **state)
{
	struct pair *pair = pair_of(state);
	uint64_t page = page_of(pair, pair->a);
	struct ibv_wc wc;
	struct wr wr;

	for (enum kind kind = 0; kind < kinds_of(pair); kind++) {
		pair_connect(pair, kind, (struct link_options){0});
		if (kind == ATOMIC)
			wr_faa(&wr, pair->a, pair->b, 0, 0, 1);
		else if (kind == READ)
			wr_read(&wr, pair->a, pair->b, 0, 0, 64);
		else
			wr_write(&wr, pair->a, pair->b, 0, 0, 64);
		wr.sge[0].addr = page;
		wr.sge[0].lkey = pair->a->lkey[1];
		assert_int_equal(side_mem_protect(pair->a, page, PAGE_BYTES, PROT_NONE), 0);
		post(pair->a, kind, &wr, 1);
		wc = next_wc(pair, pair->a, SEND_CQ);
		assert_int_equal(side_mem_protect(pair->a, page, PAGE_BYTES, GIVEN), 0);
		assert_int_equal(wc.wr_id, 1);
		if (wc.status != IBV_WC_SUCCESS)
			assert_int_equal(wc.status, IBV_WC_LOC_PROT_ERR);
	}
	expect_alive(pair, KINDS);
}

static void a_receive_into_memory_that_is_gone_fails_by_itself(void **state)
{
	struct pair *pair = pair_of(state);
	uint64_t page = page_of(pair, pair->b);
	struct recv recv;
	struct ibv_wc wc;
	struct wr wr;

	pair_connect(pair, 0, (struct link_options){0});
	recv_into(&recv, pair->b, 0, 64);
	recv.sge[0].addr = page;
	recv.sge[0].lkey = pair->b->lkey[1];
	post_receive(pair->b, 0, &recv, 2);
	assert_int_equal(side_mem_protect(pair->b, page, PAGE_BYTES, PROT_NONE), 0);
	post(pair->a, 0, wr_send(&wr, pair->a, 0, 64), 1);
	wc = next_wc(pair, pair->a, SEND_CQ);
	assert_int_equal(side_mem_protect(pair->b, page, PAGE_BYTES, GIVEN), 0);
	if (wc.status != IBV_WC_SUCCESS) {
		assert_int_equal(wc.status, IBV_WC_REM_OP_ERR);
		expect_wc(pair, pair->b, RECV_CQ, 2, IBV_WC_LOC_PROT_ERR);
	}
	expect_alive(pair, 1);
}

static void memory_that_is_not_there_is_not_registered(void **state)
{
	struct pair *pair = pair_of(state);
	uint64_t page = page_of(pair, pair->b);
	int rc;

	assert_int_equal(side_mem_protect(pair->b, page, PAGE_BYTES, PROT_NONE), 0);
	rc = side_mr_reg(pair->b, 2, 0, page, PAGE_BYTES, page, ALL_ACCESS);
	assert_int_equal(side_mem_protect(pair->b, page, PAGE_BYTES, GIVEN), 0);
	if (rc == 0)
		skip_because("this device has a mapping of its own of such memory");
	assert_int_equal(rc, -EFAULT);
}

const struct CMUnitTest gone_tests[] = {
	CONFORMS(memory_that_is_gone_ends_the_qp_and_not_the_process),
	CONFORMS(memory_that_became_read_only_ends_the_qp_and_not_the_process),
	CONFORMS(local_memory_that_is_gone_is_a_local_error),
	CONFORMS(a_receive_into_memory_that_is_gone_fails_by_itself),
	CONFORMS(memory_that_is_not_there_is_not_registered),
};
const size_t gone_tests_count = sizeof(gone_tests) / sizeof(gone_tests[0]);
