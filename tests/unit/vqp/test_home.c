/* Where atomics take place when NICs do not exclude one another. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "pair.h"
#include "vqp/objects.h"

static const struct region *region_of(const struct hf_vmr *mr)
{
	return container_of(mr, struct region, mr);
}

static void add_one(struct pair *pair, uint64_t wr_id)
{
	struct ibv_sge sge = {.addr = (uintptr_t)pair->a.memory + wr_id * 8, .length = 8, .lkey = pair->a.mr->lkey};
	struct ibv_send_wr wr = {.wr_id = wr_id,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.atomic = {.remote_addr = (uintptr_t)pair->b.memory, .rkey = pair->b.mr->rkey, .compare_add = 1}};
	struct ibv_send_wr *bad;

	assert_int_equal(hf_vqp_post_send(pair->a.vqp, &wr, &bad), 0);
}

static void expect(struct pair *pair, uint64_t wr_id)
{
	struct ibv_wc wc;

	pair_collect(pair, &pair->a, 1, &wc);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.wr_id, wr_id);
	assert_int_equal(((const uint64_t *)(const void *)pair->a.memory)[wr_id], wr_id);
}

static bool home_is_1(struct pair *pair)
{
	return pair->b.pd->home.rail == 1;
}

static bool home_is_0(struct pair *pair)
{
	return pair->b.pd->home.rail == 0 && hf_vqp_rail(pair->a.vqp) == 0;
}

static void atomics_have_a_rail_of_their_own_and_follow_the_peers(void **state)
{
	struct pair pair;

	(void)state;
	pair_caps_masked = HF_DEV_ATOMIC_GLOBAL;
	pair_open(&pair, HF_POLICY_VARUNA);
	pair_connect(&pair);
	assert_int_equal(region_of(pair.b.mr)->mrs[0]->access & IBV_ACCESS_REMOTE_ATOMIC, 0);
	assert_int_equal(region_of(pair.b.mr)->mrs[1]->access & IBV_ACCESS_REMOTE_ATOMIC, 0);
	assert_true(home_is_0(&pair));
	add_one(&pair, 0);
	expect(&pair, 0);
	pair_cut(&pair, 0, false);
	add_one(&pair, 1);
	expect(&pair, 1);
	assert_true(home_is_1(&pair));
	assert_ptr_equal(region_of(pair.b.mr)->atomics->dev, hf_node_dev(pair.b.node, 1));
	pair_cut(&pair, 0, true);
	assert_true(pair_until(&pair, home_is_0));
	add_one(&pair, 2);
	expect(&pair, 2);
	pair_close(&pair);
	pair_caps_masked = 0;
}

static void where_atomicity_is_global_no_rail_is_special(void **state)
{
	struct pair pair;

	(void)state;
	pair_open(&pair, HF_POLICY_VARUNA);
	pair_connect(&pair);
	assert_int_equal(pair.b.pd->home.rail, HOME_ANY);
	assert_null(region_of(pair.b.mr)->atomics);
	assert_int_not_equal(region_of(pair.b.mr)->mrs[1]->access & IBV_ACCESS_REMOTE_ATOMIC, 0);
	pair_cut(&pair, 0, false);
	add_one(&pair, 0);
	expect(&pair, 0);
	pair_close(&pair);
}

static void the_cpu_keeps_out_of_atomics_that_are_not_its_own(void **state)
{
	uint64_t original;
	struct pair pair;

	(void)state;
	pair_caps_masked = HF_DEV_ATOMIC_GLOBAL;
	pair_open(&pair, HF_POLICY_VARUNA);
	pair_connect(&pair);
	assert_int_equal(hf_vmr_atomic_cas(pair.b.mr, (uint64_t *)(void *)pair.b.memory, 0, 1, &original), -EOPNOTSUPP);
	pair_close(&pair);
	pair_caps_masked = 0;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(atomics_have_a_rail_of_their_own_and_follow_the_peers),
		cmocka_unit_test(where_atomicity_is_global_no_rail_is_special),
		cmocka_unit_test(the_cpu_keeps_out_of_atomics_that_are_not_its_own),
	};

	if (argc > 1)
		pair_kind = argv[1];
	return cmocka_run_group_tests(tests, NULL, NULL);
}
