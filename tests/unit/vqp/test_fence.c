/* Fences that fail, qps that cannot be destroyed, and regions that cannot be deregistered (docs/protocol.md, D3). */
#include <errno.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "pair.h"
#include "vqp/objects.h"

static bool on_rail_0(struct pair *pair)
{
	return hf_vqp_rail(pair->a.vqp) == 0 && hf_vqp_rail(pair->b.vqp) == 0;
}

static struct hf_dev_ops failing_ops;
static const struct hf_dev_ops *true_ops;
static unsigned fences_tried, destroys_to_fail;

static int fence_that_fails(struct hf_qp *qp)
{
	(void)qp;
	fences_tried++;
	return -EIO;
}

/* As shm answers while the peer is stopped in an operation that cannot be ended. */
static int destroy_that_fails_at_first(struct hf_qp *qp)
{
	if (destroys_to_fail == 0)
		return true_ops->qp_destroy(qp);
	destroys_to_fail--;
	return -EBUSY;
}

static void let_fail(struct hf_dev *dev, unsigned destroys)
{
	true_ops = dev->ops;
	failing_ops = *dev->ops;
	failing_ops.qp_fence = fence_that_fails;
	failing_ops.qp_destroy = destroy_that_fails_at_first;
	destroys_to_fail = destroys;
	fences_tried = 0;
	dev->ops = &failing_ops;
}

static void traffic_moves_after(unsigned destroys)
{
	struct pair pair;
	struct hf_dev *dev;
	struct ibv_wc wc;

	pair_open(&pair, HF_POLICY_RESEND);
	pair_connect(&pair);
	assert_true(pair_until(&pair, on_rail_0));
	dev = hf_node_dev(pair.b.node, 0);
	let_fail(dev, destroys);
	memset(pair.a.memory, 0x5a, 4096);
	pair_cut(&pair, 0, false);
	assert_int_equal(pair_write(&pair, 1, 0, 4096, true), 0);
	pair_collect(&pair, &pair.a, 1, &wc);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_memory_equal(pair.a.memory, pair.b.memory, 4096);
	assert_true(fences_tried > 1);
	assert_int_equal(destroys_to_fail, 0);
	dev->ops = true_ops;
	pair_close(&pair);
}

/* Its qp cannot be fenced, so it is ended before anything of it is judged. */
static void traffic_moves_although_the_responder_cannot_fence(void **state)
{
	(void)state;
	traffic_moves_after(0);
}

static void traffic_waits_while_the_responder_can_neither_fence_nor_destroy(void **state)
{
	(void)state;
	traffic_moves_after(3);
}

static bool is_there(struct pair *pair)
{
	return pair->b.vqp != NULL && pair->b.vqp->log_ring.entries != NULL;
}

static bool no_destroy_fails(struct pair *pair)
{
	(void)pair;
	return destroys_to_fail == 0;
}

static void a_qp_that_cannot_be_destroyed_is_destroyed_later(void **state)
{
	struct pair pair;
	struct hf_dev *dev;

	(void)state;
	pair_open(&pair, HF_POLICY_RESEND);
	pair_connect(&pair);
	assert_true(pair_until(&pair, on_rail_0));
	dev = hf_node_dev(pair.b.node, 0);
	let_fail(dev, 3);
	hf_vqp_destroy(pair.b.vqp);
	pair.b.vqp = NULL;
	assert_true(pair_until(&pair, no_destroy_fails));
	dev->ops = true_ops;
	assert_int_equal(hf_vmr_dereg(pair.b.mr), 0);
	pair.b.mr = NULL;
	pair_close(&pair);
}

/* Its peer may store a footer there when it goes on. */
static void the_log_of_a_qp_that_cannot_be_destroyed_is_given_to_no_other_vqp(void **state)
{
	const uint64_t *entries;
	struct pair pair;
	struct hf_dev *dev;

	(void)state;
	pair_open(&pair, HF_POLICY_VARUNA);
	pair_connect(&pair);
	assert_true(pair_until(&pair, on_rail_0));
	entries = pair.b.vqp->log_ring.entries;
	assert_non_null(entries);
	dev = hf_node_dev(pair.b.node, 0);
	let_fail(dev, UINT_MAX);
	hf_vqp_destroy(pair.b.vqp);
	pair.b.vqp = NULL;
	dev->ops = true_ops;
	hf_vqp_destroy(pair.a.vqp);
	pair_make_vqp(&pair, &pair.a);
	assert_int_equal(hf_vqp_connect(pair.a.vqp, pair.a.peer, "test", "hello", 5), 0);
	assert_true(pair_until(&pair, is_there));
	assert_ptr_not_equal(pair.b.vqp->log_ring.entries, entries);
	pair_close(&pair);
}

static unsigned dereg_to_fail; /* the first, the second; 0: none */

static int dereg_that_fails_once(struct hf_mr *mr)
{
	return dereg_to_fail > 0 && --dereg_to_fail == 0 ? -EBUSY : true_ops->mr_dereg(mr);
}

/* As on shm while a peer is stopped in an operation on it: on rail 1 it is gone already, and its home for atomics. */
static struct hf_vmr *half_a_region(struct pair *pair, uint8_t *memory)
{
	struct hf_dev *dev = hf_node_dev(pair->a.node, 0);
	struct hf_error error = {0};
	struct hf_vmr *mr;

	true_ops = dev->ops;
	failing_ops = *dev->ops;
	failing_ops.mr_dereg = dereg_that_fails_once;
	dereg_to_fail = pair->a.pd->home.rail < 0 ? 1 : 2;
	dev->ops = &failing_ops;
	assert_int_equal(
		hf_vmr_reg(pair->a.pd, memory, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC, &mr, &error),
		0);
	assert_int_equal(hf_vmr_dereg(mr), -EBUSY);
	assert_int_equal(dereg_to_fail, 0);
	return mr;
}

static void nobody_hears_of_a_region_that_is_half_deregistered(void **state)
{
	static uint8_t memory[4096];
	struct hf_vmr *half;
	struct pair pair;
	struct ibv_wc wc;

	(void)state;
	pair_caps_masked = HF_DEV_ATOMIC_GLOBAL;
	pair_open(&pair, HF_POLICY_VARUNA);
	pair_caps_masked = 0;
	half = half_a_region(&pair, memory);
	pair_connect(&pair); /* b is the first that a's regions are told to */
	region_announce_home(pair.a.pd);
	region_move_home(pair.a.pd);
	assert_null(region_of(half)->atomics);
	assert_int_equal(pair_write(&pair, 1, 0, 4096, true), 0);
	pair_collect(&pair, &pair.a, 1, &wc);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(hf_vmr_dereg(half), 0);
	hf_node_dev(pair.a.node, 0)->ops = true_ops;
	pair_close(&pair);
}

static void to_deregister_again_leaves_a_later_region_alone(void **state)
{
	static uint8_t memory[4096];
	struct hf_error error = {0};
	struct hf_vmr *half;
	struct pair pair;
	struct ibv_wc wc;

	(void)state;
	pair_open(&pair, HF_POLICY_VARUNA);
	half = half_a_region(&pair, memory);
	assert_int_equal(hf_vmr_dereg(pair.a.mr), 0);
	do /* the slots in turn, so that one of them is that of the first */
		assert_int_equal(
			hf_vmr_reg(pair.a.pd, pair.a.memory, PAIR_BYTES, IBV_ACCESS_LOCAL_WRITE, &pair.a.mr, &error),
			0);
	while (((pair.a.mr->lkey ^ half->lkey) & (REGION_SLOTS_MAX - 1)) != 0);
	pair_connect(&pair);
	assert_int_equal(hf_vmr_dereg(half), 0);
	assert_int_equal(pair_write(&pair, 1, 0, 4096, true), 0);
	pair_collect(&pair, &pair.a, 1, &wc);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	hf_node_dev(pair.a.node, 0)->ops = true_ops;
	pair_close(&pair);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(traffic_moves_although_the_responder_cannot_fence),
		cmocka_unit_test(traffic_waits_while_the_responder_can_neither_fence_nor_destroy),
		cmocka_unit_test(a_qp_that_cannot_be_destroyed_is_destroyed_later),
		cmocka_unit_test(nobody_hears_of_a_region_that_is_half_deregistered),
		cmocka_unit_test(to_deregister_again_leaves_a_later_region_alone),
		cmocka_unit_test(the_log_of_a_qp_that_cannot_be_destroyed_is_given_to_no_other_vqp),
	};

	if (argc > 1)
		pair_kind = argv[1];
	return cmocka_run_group_tests(tests, NULL, NULL);
}
