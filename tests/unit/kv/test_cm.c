/* Who is a member, entry by entry. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs those before it */
#include <cmocka.h>

#include "kv/cm.h"

static struct cm founded(void)
{
	struct cm cm = {0};
	struct cm_entry entry = {.kind = CM_COLD, .present = 7, .incarnation = {11, 12, 13}};

	assert_true(kv_cm_step(&cm, &entry));
	return cm;
}

static bool step(struct cm *cm, enum cm_kind kind, uint8_t node, uint64_t incarnation)
{
	struct cm_entry entry = {.kind = kind,
		.node = node,
		.epoch = cm->epoch,
		.suspicion = kind == CM_SUSPECT ? cm->suspicions + 1 : cm->nodes[node].suspicion};

	entry.incarnation[node] = incarnation;
	return kv_cm_step(cm, &entry);
}

static bool leave(struct cm *cm, uint8_t node, uint64_t incarnation)
{
	assert_false(step(cm, CM_SUSPECT, node, incarnation)); /* no epoch */
	return step(cm, CM_EXCLUDE, node, incarnation);
}

static void member_leaves_and_returns_as_a_shadow(void **state)
{
	struct cm cm = founded();

	(void)state;
	assert_int_equal(kv_cm_in(&cm, CM_MEMBER), 7);
	assert_true(leave(&cm, 1, 12));
	assert_int_equal(kv_cm_live(&cm), 5);
	assert_int_equal(cm.nodes[1].absent_since, 2);
	assert_true(step(&cm, CM_ADMIT, 1, 99));
	assert_int_equal(kv_cm_in(&cm, CM_SHADOW), 2);
	assert_int_equal(cm.nodes[1].join, 3);
	assert_true(leave(&cm, 1, 99));                /* it dies again */
	assert_int_equal(cm.nodes[1].absent_since, 2); /* and misses what it missed (R-K16) */
	assert_true(step(&cm, CM_ADMIT, 1, 100));
	assert_true(step(&cm, CM_PROMOTE, 1, 100));
	assert_int_equal(cm.nodes[1].member_join, cm.nodes[1].join);
}

/* A member that ends between COLD's decision and its own first step has a store that is whole as of before. */
static void a_member_of_a_second_cold_is_whole_as_of_the_first(void **state)
{
	struct cm cm = founded();
	struct cm_entry entry = {.kind = CM_COLD, .present = 3, .epoch = cm.epoch, .incarnation = {21, 22, 0}};

	(void)state;
	assert_true(kv_cm_step(&cm, &entry));
	assert_int_equal(kv_cm_in(&cm, CM_MEMBER), 3);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(cm.nodes[i].join, 2); /* timestamps are new */
		assert_int_equal(cm.nodes[i].member_join, 1);
	}
	assert_int_equal(cm.nodes[2].absent_since, 2);
}

static void late_and_repeated_entries_change_nothing(void **state)
{
	struct cm cm = founded();
	struct cm_entry entry = {
		.kind = CM_EXCLUDE, .node = 2, .epoch = cm.epoch, .suspicion = 1, .incarnation = {0, 0, 13}};

	(void)state;
	assert_false(step(&cm, CM_SUSPECT, 2, 13));
	assert_true(kv_cm_step(&cm, &entry));
	assert_false(kv_cm_step(&cm, &entry));
	assert_int_equal(cm.epoch, 2);
	assert_false(leave(&cm, 1, 77));            /* of another incarnation */
	assert_false(step(&cm, CM_PROMOTE, 2, 13)); /* it is absent */
	assert_false(step(&cm, CM_ADMIT, 1, 12));   /* it is a member */
	assert_int_equal(cm.epoch, 2);
}

static void last_member_stays(void **state)
{
	struct cm cm = founded();

	(void)state;
	assert_true(leave(&cm, 1, 12));
	assert_true(leave(&cm, 2, 13));
	assert_false(leave(&cm, 0, 11));
	assert_true(step(&cm, CM_ADMIT, 1, 12));
	assert_false(leave(&cm, 0, 11)); /* a shadow does not count (R-K23) */
}

/* A replica that starts again applies some entries a second time. */
static void exclusion_follows_its_own_suspicion(void **state)
{
	struct cm cm = founded();
	struct cm_entry suspect = {
		.kind = CM_SUSPECT, .node = 1, .epoch = cm.epoch, .suspicion = 1, .incarnation = {0, 12, 0}};
	struct cm_entry exclude = suspect, clear = suspect;

	(void)state;
	exclude.kind = CM_EXCLUDE;
	clear.kind = CM_CLEAR;
	assert_false(kv_cm_step(&cm, &exclude)); /* nobody has suspected it */
	(void)kv_cm_step(&cm, &suspect);
	assert_int_equal(cm.nodes[1].suspicion, 1);
	(void)kv_cm_step(&cm, &clear);
	assert_int_equal(cm.nodes[1].suspicion, 0);
	assert_false(kv_cm_step(&cm, &exclude));
	(void)kv_cm_step(&cm, &suspect);
	assert_int_equal(cm.nodes[1].suspicion, 0);
	assert_false(step(&cm, CM_SUSPECT, 1, 12));
	assert_int_equal(cm.nodes[1].suspicion, 2);
	assert_false(kv_cm_step(&cm, &exclude)); /* of the suspicion before */
	assert_false(kv_cm_step(&cm, &clear));
	assert_int_equal(cm.nodes[1].suspicion, 2);
	assert_true(step(&cm, CM_EXCLUDE, 1, 12));
	assert_int_equal(cm.nodes[1].suspicion, 0);
}

static void state_is_loaded_as_it_was_saved(void **state)
{
	struct cm cm = founded(), other;
	uint8_t bytes[CM_STATE_BYTES], again[CM_STATE_BYTES];

	(void)state;
	assert_true(leave(&cm, 1, 12));
	assert_false(step(&cm, CM_SUSPECT, 2, 13));
	kv_cm_save(&cm, bytes);
	assert_true(kv_cm_load(bytes, sizeof(bytes), &other));
	kv_cm_save(&other, again);
	assert_memory_equal(bytes, again, sizeof(bytes));
	assert_int_equal(other.nodes[2].suspicion, 2);
	assert_int_equal(other.suspicions, 2);
	assert_false(kv_cm_load(bytes, sizeof(bytes) - 1, &other));
	bytes[16] = CM_NODE_STATES;
	assert_false(kv_cm_load(bytes, sizeof(bytes), &other));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(member_leaves_and_returns_as_a_shadow),
		cmocka_unit_test(a_member_of_a_second_cold_is_whole_as_of_the_first),
		cmocka_unit_test(late_and_repeated_entries_change_nothing),
		cmocka_unit_test(last_member_stays),
		cmocka_unit_test(exclusion_follows_its_own_suspicion),
		cmocka_unit_test(state_is_loaded_as_it_was_saved),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
