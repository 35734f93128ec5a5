/* The results of operations whose member is excluded while they wait. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs those before it */
#include <cmocka.h>

#include "kv/engine.h"

struct bed {
	struct hf_kv kv;
	struct hf_kv_flow flow;
	struct busy busy;
	struct hf_kv_op user;
	struct op op;
};

static void set_up(struct bed *bed)
{
	*bed = (struct bed){.user = {.kind = HF_KV_ADD}};
	list_init(&bed->kv.ready);
	list_init(&bed->kv.ages);
	list_init(&bed->flow.in_ready);
	list_init(&bed->busy.waiters);
	list_init(&bed->op.in_flow);
	list_init(&bed->op.in_key);
	list_init(&bed->op.in_age);
	bed->flow.kv = &bed->kv;
	bed->op.user = &bed->user;
	bed->op.flow = &bed->flow;
	list_push_back(&bed->kv.ages, &bed->op.in_age);
}

/* Its write was sent, and a newer one has refused it. */
static void set_up_refused(struct bed *bed)
{
	set_up(bed);
	kv_flows_begun(&bed->busy, &bed->op);
	kv_flows_refused(&bed->busy.waiters, &bed->op);
}

/* R-K6: the others replay it, unless they have the newer record. */
static void a_refused_operation_ends_as_unknown(void **state)
{
	struct bed bed;

	(void)state;
	set_up_refused(&bed);
	kv_flows_wake(&bed.kv, &bed.busy.waiters);
	assert_int_equal(bed.op.state, OP_DONE);
	assert_int_equal(bed.user.result, HF_KV_UNKNOWN);
	set_up_refused(&bed);
	kv_flows_forget(&bed.kv);
	assert_int_equal(bed.op.state, OP_DONE);
	assert_int_equal(bed.user.result, HF_KV_UNKNOWN);
}

/* R-K10 */
static void an_operation_that_has_not_begun_is_told_so(void **state)
{
	struct bed bed;

	(void)state;
	set_up(&bed);
	kv_flows_wait(&bed.busy.waiters, &bed.op);
	kv_flows_wake(&bed.kv, &bed.busy.waiters);
	assert_int_equal(bed.op.state, OP_DONE);
	assert_int_equal(bed.user.result, HF_KV_LOADING);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_refused_operation_ends_as_unknown),
		cmocka_unit_test(an_operation_that_has_not_begun_is_told_so),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
