/* Footers: eight bytes that execute with an operation, or not at all. */
#include "pair.h"

#include <errno.h>

#define FOOT 1048576 /* where footers go, in b's memory 0 */

static struct hf_footer footer_at(const struct pair *pair, uint64_t offset, uint64_t value)
{
	return (struct hf_footer){.remote_addr = iova_of(pair->b, offset), .value = value, .rkey = pair->b->rkey[0]};
}

static struct pair *footed(void **state)
{
	struct pair *pair = connected(state);

	require_cap(pair, HF_DEV_FOOTER, "the device has no footers");
	return pair;
}

static void post_footed(struct pair *pair, struct wr *wr, uint64_t wr_id, struct hf_footer footer)
{
	wr->wr.wr_id = wr_id;
	wr->wr.send_flags |= IBV_SEND_SIGNALED;
	assert_int_equal(side_post_send_footed(pair->a, 0, NULL, &wr->wr, &footer), 0);
}

static uint64_t foot(struct pair *pair, uint64_t n)
{
	return side_load(pair->b, pair->b->mem[0] + FOOT + 8 * n);
}

static void a_footer_lands_with_every_operation_that_may_have_one(void **state)
{
	static const uint32_t sizes[] = {0, 1, 8, 1024, 1025, 100000};
	struct pair *pair = footed(state);
	struct recv recv;
	struct wr wr;

	side_fill(pair->a, pair->a->mem[0], 100000, 9);
	for (unsigned i = 0; i < 6; i++) {
		post_footed(pair, wr_write(&wr, pair->a, pair->b, 0, 131072, sizes[i]), i,
			footer_at(pair, FOOT + 8 * i, 0x1122334455667700 + i));
		expect_wc(pair, pair->a, SEND_CQ, i, IBV_WC_SUCCESS);
		assert_int_equal(foot(pair, i), 0x1122334455667700 + i);
		assert_int_equal(side_mismatch(pair->b, pair->b->mem[0] + 131072, sizes[i], 9), sizes[i]);
	}
	for (unsigned i = 6; i < 8; i++) {
		post_receive(pair->b, 0, recv_into(&recv, pair->b, 262144, 4096), i);
		wr_send(&wr, pair->a, 0, 3000);
		post_footed(pair, i == 6 ? &wr : wr_imm(&wr, 77), i, footer_at(pair, FOOT + 8 * i, i));
		expect_wc(pair, pair->b, RECV_CQ, i, IBV_WC_SUCCESS);
		expect_wc(pair, pair->a, SEND_CQ, i, IBV_WC_SUCCESS);
		assert_int_equal(foot(pair, i), i);
	}
	side_store(pair->b, pair->b->mem[0], 5);
	post_footed(pair, wr_cas(&wr, pair->a, pair->b, 0, 0, 5, 6), 8, footer_at(pair, FOOT + 64, 8));
	post_footed(pair, wr_faa(&wr, pair->a, pair->b, 8, 0, 2), 9, footer_at(pair, FOOT + 72, 9));
	expect_wc(pair, pair->a, SEND_CQ, 8, IBV_WC_SUCCESS);
	expect_wc(pair, pair->a, SEND_CQ, 9, IBV_WC_SUCCESS);
	assert_int_equal(side_load(pair->b, pair->b->mem[0]), 8);
	assert_int_equal(foot(pair, 8), 8);
	assert_int_equal(foot(pair, 9), 9);
}

static void footers_of_a_list_belong_to_its_wrs_and_take_no_psn(void **state)
{
	struct pair *pair = footed(state);
	struct hf_footer footers[3] = {footer_at(pair, FOOT, 1), {0}, footer_at(pair, FOOT + 16, 3)};
	uint32_t psn = side_next_psn(pair->a, 0);
	struct wr wr[3];

	side_store(pair->b, pair->b->mem[0] + FOOT + 8, 42);
	for (unsigned i = 0; i < 3; i++) {
		wr_write(&wr[i], pair->a, pair->b, 0, 64 * i, 8)->wr.wr_id = i;
		wr[i].wr.next = i < 2 ? &wr[i + 1].wr : NULL;
	}
	wr[2].wr.send_flags |= IBV_SEND_SIGNALED;
	assert_int_equal(side_post_send_footed(pair->a, 0, NULL, &wr[0].wr, footers), 0);
	expect_wc(pair, pair->a, SEND_CQ, 2, IBV_WC_SUCCESS);
	expect_no_wc(pair, pair->a, SEND_CQ);
	assert_int_equal(foot(pair, 0), 1);
	assert_int_equal(foot(pair, 1), 42);
	assert_int_equal(foot(pair, 2), 3);
	assert_int_equal(side_next_psn(pair->a, 0), (psn + 3) & PSN_MASK);
}

static void an_operation_whose_footer_is_refused_does_not_execute(void **state)
{
	struct pair *pair = footed(state);
	struct hf_footer footer = footer_at(pair, FOOT, 1);
	struct wr wr;

	footer.rkey ^= 1;
	side_store(pair->b, pair->b->mem[0], 5);
	post_footed(pair, wr_faa(&wr, pair->a, pair->b, 0, 0, 1), 1, footer);
	expect_wc(pair, pair->a, SEND_CQ, 1, IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(side_load(pair->b, pair->b->mem[0]), 5);
	assert_int_equal(foot(pair, 0), 0);
}

static void an_operation_that_is_refused_leaves_no_footer(void **state)
{
	struct pair *pair = footed(state);
	struct wr wr;

	wr_write(&wr, pair->a, pair->b, 0, 0, 8)->wr.wr.rdma.rkey ^= 1;
	post_footed(pair, &wr, 1, footer_at(pair, FOOT, 1));
	expect_wc(pair, pair->a, SEND_CQ, 1, IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(foot(pair, 0), 0);
}

/* They are writes: an atomic's permission is not enough. */
static void a_footer_needs_the_permission_to_write(void **state)
{
	struct pair *pair = pair_of(state);
	struct wr wr;

	require_cap(pair, HF_DEV_FOOTER, "the device has no footers");
	pair_connect(pair, 0, (struct link_options){.no_access = IBV_ACCESS_REMOTE_WRITE});
	post_footed(pair, wr_faa(&wr, pair->a, pair->b, 0, 0, 1), 1, footer_at(pair, FOOT, 1));
	assert_int_not_equal(next_wc(pair, pair->a, SEND_CQ).status, IBV_WC_SUCCESS);
	assert_int_equal(side_load(pair->b, pair->b->mem[0]), 0);
}

static void a_footer_behind_a_read_or_at_an_odd_address_is_not_posted(void **state)
{
	struct pair *pair = footed(state);
	struct hf_footer odd = footer_at(pair, FOOT + 4, 1), even = footer_at(pair, FOOT, 1);
	struct wr wr;

	wr_write(&wr, pair->a, pair->b, 0, 0, 8);
	assert_int_equal(side_post_send_footed(pair->a, 0, NULL, &wr.wr, &odd), -EINVAL);
	wr_read(&wr, pair->a, pair->b, 0, 0, 8);
	assert_int_equal(side_post_send_footed(pair->a, 0, NULL, &wr.wr, &even), -EINVAL);
}

static void a_device_without_footers_says_so(void **state)
{
	struct pair *pair = connected(state);
	struct hf_footer footer = footer_at(pair, FOOT, 1);
	struct wr wr;

	if (pair->a->attr.caps & HF_DEV_FOOTER)
		skip_because("the device has footers");
	wr_write(&wr, pair->a, pair->b, 0, 0, 8);
	assert_int_equal(side_post_send_footed(pair->a, 0, NULL, &wr.wr, &footer), -EOPNOTSUPP);
}

const struct CMUnitTest footer_tests[] = {
	CONFORMS(a_footer_lands_with_every_operation_that_may_have_one),
	CONFORMS(footers_of_a_list_belong_to_its_wrs_and_take_no_psn),
	CONFORMS(an_operation_whose_footer_is_refused_does_not_execute),
	CONFORMS(an_operation_that_is_refused_leaves_no_footer),
	CONFORMS(a_footer_needs_the_permission_to_write),
	CONFORMS(a_footer_behind_a_read_or_at_an_odd_address_is_not_posted),
	CONFORMS(a_device_without_footers_says_so),
};
const size_t footer_tests_count = sizeof(footer_tests) / sizeof(footer_tests[0]);
