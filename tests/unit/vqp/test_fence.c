/* Fences that fail, and qps that cannot be destroyed (docs/protocol.md, D3). */
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

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(traffic_moves_although_the_responder_cannot_fence),
		cmocka_unit_test(traffic_waits_while_the_responder_can_neither_fence_nor_destroy),
		cmocka_unit_test(a_qp_that_cannot_be_destroyed_is_destroyed_later),
		cmocka_unit_test(the_log_of_a_qp_that_cannot_be_destroyed_is_given_to_no_other_vqp),
	};

	if (argc > 1)
		pair_kind = argv[1];
	return cmocka_run_group_tests(tests, NULL, NULL);
}
