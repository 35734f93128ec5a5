/* What a member has for those that return: its list of the updates that they missed, and their reports. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs those before it */
#include <cmocka.h>

#include <stdlib.h>

#include "kv/engine.h"

#define STORE_BYTES  (1u << 20)
#define MEMBERS      3u
#define TURN_ENTRIES 4096u /* at most */
#define OTHER        1u    /* the one that was away */
#define EPOCH        5u

static struct hf_error error;

static int set_up(void **state)
{
	struct hf_kv *kv = calloc(1, sizeof(*kv));

	*state = kv;
	if (kv == NULL || hf_loop_create(hf_env_host(), &kv->loop) != 0)
		return -1;
	kv->config.member_count = MEMBERS;
	kv->env = hf_env_host();
	kv->incarnation = 1;
	for (unsigned i = 0; i < MEMBERS; i++)
		kv->cm.nodes[i] = (struct cm_node){.state = CM_MEMBER, .incarnation = i + 1, .join = EPOCH};
	list_init(&kv->unleased);
	list_init(&kv->stopped);
	list_init(&kv->unsettled);
	list_init(&kv->invalid);
	list_init(&kv->flights);
	list_init(&kv->flows);
	list_init(&kv->ready);
	list_init(&kv->ages);
	return kv_store_open(&kv->store, hf_env_host(), NULL, STORE_BYTES, &error) != 0 || kv_busy_open(kv) != 0 ||
	       kv_missed_open(&kv->missed, 1u << 10) != 0;
}

static int tear_down(void **state)
{
	struct hf_kv *kv = *state;

	kv_missed_close(&kv->missed);
	kv_busy_free_all(kv);
	kv_store_close(&kv->store);
	hf_loop_destroy(kv->loop);
	free(kv);
	return 0;
}

/* A cold start, and an exclusion right behind it: this member hears of both at once. */
static void an_exclusion_that_comes_with_a_cold_start_is_noted(void **state)
{
	struct hf_kv *kv = *state;

	kv->cm.epoch = EPOCH + 1;
	kv->cm.nodes[OTHER].state = CM_ABSENT;
	kv->cm.nodes[OTHER].absent_since = EPOCH + 1;
	assert_true(kv_epoch_install(kv));
	assert_true(kv->member);
	assert_true(kv_missed_covers(&kv->missed, OTHER));
}

/* As the first pieces of a snapshot, when the replica of the membership log is made anew in a running member. */
static void an_epoch_of_the_past_is_not_installed(void **state)
{
	struct hf_kv *kv = *state;

	kv->cm.epoch = EPOCH + 1;
	assert_true(kv_epoch_install(kv));
	assert_true(kv->member);
	kv->cm.epoch = EPOCH;
	kv->cm.nodes[0].state = CM_ABSENT;
	assert_false(kv_epoch_install(kv));
	assert_true(kv->member);
	assert_int_equal(kv->epoch, EPOCH + 1);
}

static bool is_served(struct hf_kv *kv, const struct told *parts, unsigned count)
{
	uint8_t value[4 * TOLD_BYTES];
	struct wire_message message = {
		.kind = WIRE_COPY_MISSED, .value = value, .value_bytes = count * TOLD_BYTES, .epoch = kv->epoch};

	kv_told_write(parts, count, value);
	kv->copy.donors[OTHER].active = false;
	assert_true(kv_copy_hear(kv, OTHER, &message));
	return kv->copy.donors[OTHER].active;
}

/* A log is older than what its process reported; that later processes made it longer is no excuse (R-K25). */
static void an_older_log_gets_no_list_however_long_it_has_grown(void **state)
{
	const struct told right[] = {{.incarnation = 7, .durable = 100}, {.incarnation = 8, .durable = 150}};
	const struct told older[] = {{.incarnation = 7, .durable = 60}, {.incarnation = 8, .durable = 150}};
	const struct told other[] = {{.incarnation = 6, .durable = 100}, {.incarnation = 8, .durable = 150}};
	struct hf_kv *kv = *state;

	kv->member = true;
	kv->installed.nodes[OTHER].state = CM_SHADOW;
	kv->missed.from[OTHER] = 1;
	assert_true(is_served(kv, right, 2));
	kv->council.reports[OTHER].told = (struct told){.incarnation = 7, .durable = 100};
	assert_true(is_served(kv, right, 2));
	assert_false(is_served(kv, older, 2));
	assert_false(is_served(kv, other, 2));
}

/* Else a member with a large index that is nearly empty is taken for dead. */
static void a_donor_walks_a_part_of_its_index_in_a_turn(void **state)
{
	struct hf_kv *kv = *state;
	struct copy_donor *donor = &kv->copy.donors[OTHER];
	unsigned turns = 0;

	kv->member = true;
	kv->installed.nodes[OTHER].state = CM_SHADOW;
	kv->links.links[OTHER].mesh.state = MESH_UP;
	assert_true(kv_copy_hear(kv, OTHER, &(struct wire_message){.kind = WIRE_COPY_REQUEST}));
	for (; donor->active; turns++) {
		uint64_t before = donor->cursor;

		assert_true(kv_copy_turn(kv, 1));
		assert_in_range(donor->cursor - before, 0, TURN_ENTRIES);
	}
	assert_in_range(turns, kv->store.mask / TURN_ENTRIES, kv->store.mask);
	free(kv->links.links[OTHER].out);
}

/* It has nothing to send for a while, as with a low copy_mbps. A restart would send everything again, for ever. */
static void a_copy_restarts_only_when_the_heartbeats_of_the_buddy_end_too(void **state)
{
	struct hf_kv *kv = *state;
	struct copy *copy = &kv->copy;
	uint64_t number, heard_ns;

	kv->installed.nodes[0].state = CM_SHADOW;
	kv->installed.nodes[OTHER].state = CM_MEMBER;
	kv->links.links[OTHER].mesh.state = MESH_UP;
	copy->wanted = true;
	assert_true(kv_copy_turn(kv, hf_loop_now_ns(kv->loop)));
	assert_true(copy->active && copy->buddy == OTHER);
	number = copy->number;
	/* Times are attended ones, which lag behind those of the loop. */
	heard_ns = kv->council.reports[OTHER].heard_ns = copy->heard_ns + 3 * COPY_SILENT_NS;
	assert_false(kv_copy_turn(kv, heard_ns + COPY_SILENT_NS - 1));
	assert_int_equal(copy->number, number);
	assert_true(kv_copy_turn(kv, heard_ns + hf_loop_gaps_ns(kv->loop) + 2 * COPY_SILENT_NS));
	assert_int_not_equal(copy->number, number);
	free(kv->links.links[OTHER].out);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(an_exclusion_that_comes_with_a_cold_start_is_noted, set_up, tear_down),
		cmocka_unit_test_setup_teardown(an_epoch_of_the_past_is_not_installed, set_up, tear_down),
		cmocka_unit_test_setup_teardown(an_older_log_gets_no_list_however_long_it_has_grown, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_donor_walks_a_part_of_its_index_in_a_turn, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			a_copy_restarts_only_when_the_heartbeats_of_the_buddy_end_too, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
