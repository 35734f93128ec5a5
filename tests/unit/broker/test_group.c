/* A consumer group: joining, generations, assignments, leaving, time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "broker/groups/group.h"

#define MS        1000000ull
#define DELAY     (3 * MS)
#define SESSION   (100 * MS)
#define REBALANCE (500 * MS)
#define MOST      4
#define BUDGET    65536

static struct group *group;
static struct group_budget budget;
static uint64_t now;

static struct codec_string text(const char *at)
{
	return (struct codec_string){at, at == NULL ? -1 : (int32_t)strlen(at)};
}

static int set_up(void **state)
{
	(void)state;
	now = 1000 * MS;
	budget = (struct group_budget){.most = BUDGET};
	group = group_new(text("g"), DELAY, &budget);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	group_free(group);
	assert_int_equal(budget.used, 0);
	return 0;
}

/* `id` "" for a new one, which gets the id `fresh`. */
static enum kafka_error join_as(const char *id, const char *fresh, const char *instance, const char *metadata,
	bool must_name, struct group_member **member)
{
	struct kafka_join_group_request_join_group_request_protocol protocols[] = {
		{.name = {"range", 5}, .metadata = {(const uint8_t *)metadata, (int32_t)strlen(metadata)}}};
	struct group_join join = {.member_id = text(id),
		.instance_id = text(instance),
		.client_id = {"c", 1},
		.protocol_type = {"consumer", 8},
		.client_host = "/h",
		.protocols = protocols,
		.protocol_count = 1,
		.session_ns = SESSION,
		.rebalance_ns = REBALANCE,
		.most_members = MOST,
		.must_name = must_name,
		.fresh = fresh};

	return group_join(group, &join, now, member);
}

static struct group_member *join(const char *fresh)
{
	struct group_member *member;

	assert_int_equal(join_as("", fresh, NULL, "m", false, &member), KAFKA_NONE);
	return member;
}

static struct group_member *join_again(const char *id)
{
	struct group_member *member;

	assert_int_equal(join_as(id, "unused", NULL, "m", false, &member), KAFKA_NONE);
	return member;
}

static void expect_answer(struct group_member *member, enum kafka_error error)
{
	assert_true(member->due);
	assert_int_equal(member->error, error);
	group_answered(member);
}

static enum kafka_error sync_as(const char *id, int32_t generation, const char *first, const char *second)
{
	struct kafka_sync_group_request_sync_group_request_assignment assignments[] = {
		{text(first), {(const uint8_t *)first, 1}}, {text(second), {(const uint8_t *)second, 1}}};
	struct kafka_sync_group_request request = {.assignments = {assignments, first == NULL    ? 0
										: second == NULL ? 1
												 : 2},
		.protocol_type = {NULL, -1},
		.protocol_name = {NULL, -1}};
	struct group_member *member;

	return group_sync(group, text(id), text(NULL), generation, &request, now, &member);
}

static enum kafka_error heartbeat(const char *id, int32_t generation)
{
	return group_heartbeat(group, text(id), text(NULL), generation, now);
}

/* A stable group of a, who leads, and b. */
static void make_two(struct group_member **a, struct group_member **b)
{
	*a = join("a");
	*b = join("b");
	now += DELAY;
	group_tick(group, now);
	expect_answer(*a, KAFKA_NONE);
	expect_answer(*b, KAFKA_NONE);
	assert_true(group_is_leader(group, *a));
	assert_int_equal(sync_as("b", 1, NULL, NULL), KAFKA_NONE);
	assert_false((*b)->due);
	assert_int_equal(sync_as("a", 1, "a", "b"), KAFKA_NONE);
	expect_answer(*a, KAFKA_NONE);
	expect_answer(*b, KAFKA_NONE);
	assert_int_equal(group->state, GROUP_STABLE);
	assert_memory_equal((*b)->assignment, "b", 1);
}

static void without_an_initial_delay_the_first_member_begins(void **state)
{
	struct group_member *a;

	(void)state;
	group_free(group);
	group = group_new(text("g"), 0, &budget);
	a = join("a");
	assert_int_equal(group->generation, 1);
	expect_answer(a, KAFKA_NONE);
}

static void the_first_members_come_together(void **state)
{
	struct group_member *a = join("a"), *b;

	(void)state;
	assert_false(a->due);
	now += DELAY - 1;
	b = join("b"); /* the delay begins again */
	now += DELAY - 1;
	group_tick(group, now);
	assert_false(a->due);
	now += 1;
	assert_int_equal(group_next_ns(group), now);
	group_tick(group, now);
	assert_int_equal(group->generation, 1);
	expect_answer(a, KAFKA_NONE);
	expect_answer(b, KAFKA_NONE);
}

static void the_leader_brings_the_assignment(void **state)
{
	struct group_member *a, *b;

	(void)state;
	make_two(&a, &b);
	assert_int_equal(heartbeat("a", 1), KAFKA_NONE);
	assert_int_equal(heartbeat("a", 2), KAFKA_ILLEGAL_GENERATION);
	assert_int_equal(heartbeat("x", 1), KAFKA_UNKNOWN_MEMBER_ID);
	assert_int_equal(sync_as("b", 1, NULL, NULL), KAFKA_NONE); /* again: the same */
	expect_answer(b, KAFKA_NONE);
}

static void one_more_member_makes_all_join_again(void **state)
{
	struct group_member *a, *b, *c;

	(void)state;
	make_two(&a, &b);
	c = join("c");
	assert_int_equal(group->state, GROUP_PREPARING);
	assert_int_equal(heartbeat("a", 1), KAFKA_REBALANCE_IN_PROGRESS);
	assert_int_equal(sync_as("a", 1, NULL, NULL), KAFKA_REBALANCE_IN_PROGRESS);
	join_again("a");
	assert_false(c->due);
	join_again("b");
	assert_int_equal(group->generation, 2);
	expect_answer(a, KAFKA_NONE);
	expect_answer(b, KAFKA_NONE);
	expect_answer(c, KAFKA_NONE);
	assert_int_equal(group->member_count, 3);
}

static void a_member_that_does_not_join_again_is_out(void **state)
{
	struct group_member *a, *b;

	(void)state;
	make_two(&a, &b);
	assert_int_equal(group_member_leave(group, text("a"), text(NULL), now), KAFKA_NONE);
	assert_int_equal(group->state, GROUP_PREPARING);
	now += SESSION; /* b is silent */
	group_tick(group, now);
	assert_int_equal(group->state, GROUP_EMPTY);
	assert_int_equal(group->member_count, 0);
	assert_int_equal(group_next_ns(group), UINT64_MAX);
}

static void the_members_that_are_left_replace_a_silent_one(void **state)
{
	struct group_member *a, *b;

	(void)state;
	make_two(&a, &b);
	now += SESSION / 2;
	assert_int_equal(heartbeat("b", 1), KAFKA_NONE);
	now += SESSION / 2;
	group_tick(group, now);
	assert_int_equal(group->member_count, 1);
	assert_int_equal(heartbeat("b", 1), KAFKA_REBALANCE_IN_PROGRESS);
	join_again("b");
	expect_answer(b, KAFKA_NONE);
	assert_int_equal(group->generation, 2);
	assert_true(group_is_leader(group, b));
}

static void members_that_wait_for_a_dead_leader_go_on_without_it(void **state)
{
	struct group_member *a = join("a"), *b = join("b");

	(void)state;
	now += DELAY;
	group_tick(group, now);
	expect_answer(a, KAFKA_NONE);
	expect_answer(b, KAFKA_NONE);
	assert_int_equal(sync_as("b", 1, NULL, NULL), KAFKA_NONE);
	now += SESSION; /* a, the leader, is silent; b waits and is alive */
	group_tick(group, now);
	assert_int_equal(group->state, GROUP_PREPARING);
	expect_answer(b, KAFKA_REBALANCE_IN_PROGRESS);
	join_again("b");
	expect_answer(b, KAFKA_NONE);
	assert_int_equal(sync_as("b", 2, "b", NULL), KAFKA_NONE);
	expect_answer(b, KAFKA_NONE);
}

static void a_new_member_gets_its_id_first(void **state)
{
	struct group_member *member;

	(void)state;
	assert_int_equal(join_as("", "a", NULL, "m", true, &member), KAFKA_MEMBER_ID_REQUIRED);
	assert_int_equal(group->member_count, 0);
	assert_int_equal(join_as("x", "y", NULL, "m", true, &member), KAFKA_UNKNOWN_MEMBER_ID);
	assert_int_equal(join_as("a", "y", NULL, "m", true, &member), KAFKA_NONE);
	now += DELAY;
	group_tick(group, now);
	expect_answer(member, KAFKA_NONE);
	/* An id that nobody comes back with is forgotten. */
	assert_int_equal(join_as("", "b", NULL, "m", true, &member), KAFKA_MEMBER_ID_REQUIRED);
	now += SESSION;
	group_tick(group, now);
	assert_int_equal(join_as("b", "y", NULL, "m", true, &member), KAFKA_UNKNOWN_MEMBER_ID);
}

static void a_static_member_comes_back_without_a_rebalance(void **state)
{
	struct group_member *old, *member;

	(void)state;
	assert_int_equal(join_as("", "a", "i", "m", true, &old), KAFKA_NONE);
	now += DELAY;
	group_tick(group, now);
	expect_answer(old, KAFKA_NONE);
	assert_int_equal(sync_as("a", 1, "a", NULL), KAFKA_NONE);
	expect_answer(old, KAFKA_NONE);
	assert_int_equal(join_as("", "b", "i", "m", true, &member), KAFKA_NONE);
	expect_answer(member, KAFKA_NONE);
	assert_int_equal(group->generation, 1);
	assert_int_equal(group->state, GROUP_STABLE);
	assert_memory_equal(member->assignment, "a", 1);
	assert_int_equal(group_heartbeat(group, text("a"), text("i"), 1, now), KAFKA_FENCED_INSTANCE_ID);
	assert_int_equal(group_heartbeat(group, text("b"), text("i"), 1, now), KAFKA_NONE);
}

/* Members that send heartbeats and do not join again. */
static void stay_away(const char *const *ids, unsigned count)
{
	for (unsigned i = 0; i < REBALANCE / SESSION * 2 && group->state == GROUP_PREPARING; i++) {
		now += SESSION / 2;
		for (unsigned k = 0; k < count; k++)
			assert_int_equal(heartbeat(ids[k], 1), KAFKA_REBALANCE_IN_PROGRESS);
		group_tick(group, now);
	}
}

static void make_two_static(struct group_member **a, struct group_member **b)
{
	assert_int_equal(join_as("", "a", "i", "m", true, a), KAFKA_NONE);
	assert_int_equal(join_as("", "b", "k", "m", true, b), KAFKA_NONE);
	now += DELAY;
	group_tick(group, now);
	expect_answer(*a, KAFKA_NONE);
	expect_answer(*b, KAFKA_NONE);
	assert_true(group_is_leader(group, *a));
	assert_int_equal(sync_as("a", 1, "a", "b"), KAFKA_NONE);
	expect_answer(*a, KAFKA_NONE);
}

/* It assigns nothing: every generation would end without an assignment. */
static void an_absent_static_member_leads_no_generation(void **state)
{
	static const char *const absent[] = {"a"};
	struct group_member *a, *b;

	(void)state;
	make_two_static(&a, &b);
	assert_int_equal(join_as("b", "y", "k", "other", true, &b), KAFKA_NONE);
	stay_away(absent, 1);
	assert_int_equal(group->state, GROUP_COMPLETING);
	assert_true(group_is_leader(group, b));
	assert_int_equal(group->member_count, 2);
	expect_answer(b, KAFKA_NONE);
	assert_int_equal(sync_as("b", 2, "a", "b"), KAFKA_NONE);
	assert_int_equal(group->state, GROUP_STABLE);
	expect_answer(b, KAFKA_NONE);
}

static void a_generation_begins_when_a_static_member_is_there(void **state)
{
	static const char *const absent[] = {"a", "b"};
	struct group_member *a, *b, *c;

	(void)state;
	make_two_static(&a, &b);
	c = join("c");
	assert_int_equal(group->state, GROUP_PREPARING);
	assert_int_equal(group_member_leave(group, text("c"), text(NULL), now), KAFKA_NONE);
	expect_answer(c, KAFKA_UNKNOWN_MEMBER_ID);
	stay_away(absent, 2);
	assert_int_equal(group->state, GROUP_PREPARING);
	assert_int_equal(group->generation, 1);
	assert_int_equal(join_as("b", "y", "k", "m", true, &b), KAFKA_NONE);
	stay_away(absent, 1);
	stay_away(absent, 1); /* its time has begun again meanwhile */
	assert_int_equal(group->generation, 2);
	assert_true(group_is_leader(group, b));
	expect_answer(b, KAFKA_NONE);
}

static void changed_metadata_makes_a_new_generation(void **state)
{
	struct group_member *a, *b;

	(void)state;
	make_two(&a, &b);
	assert_int_equal(join_as("b", "y", NULL, "m", false, &b), KAFKA_NONE);
	expect_answer(b, KAFKA_NONE); /* nothing changed: the generation stands */
	assert_int_equal(group->state, GROUP_STABLE);
	assert_int_equal(join_as("b", "y", NULL, "other", false, &b), KAFKA_NONE);
	assert_int_equal(group->state, GROUP_PREPARING);
	join_again("a");
	expect_answer(a, KAFKA_NONE);
	expect_answer(b, KAFKA_NONE);
	assert_int_equal(group_metadata(group, b).bytes, 5);
}

static void a_member_of_another_protocol_is_refused(void **state)
{
	struct group_member *a, *b, *member;
	struct kafka_join_group_request_join_group_request_protocol other = {
		.name = {"other", 5}, .metadata = {(const uint8_t *)"", 0}};
	struct group_join what = {.member_id = {"", 0},
		.instance_id = {NULL, -1},
		.protocol_type = {"consumer", 8},
		.client_host = "",
		.protocols = &other,
		.protocol_count = 1,
		.most_members = MOST,
		.fresh = "x"};

	(void)state;
	make_two(&a, &b);
	assert_int_equal(group_join(group, &what, now, &member), KAFKA_INCONSISTENT_GROUP_PROTOCOL);
	other.name = text("range");
	what.protocol_type = text("connect");
	assert_int_equal(group_join(group, &what, now, &member), KAFKA_INCONSISTENT_GROUP_PROTOCOL);
	what.protocol_count = 0;
	assert_int_equal(group_join(group, &what, now, &member), KAFKA_INCONSISTENT_GROUP_PROTOCOL);
}

static void only_members_of_the_generation_commit(void **state)
{
	struct group_member *a, *b;

	(void)state;
	assert_int_equal(group_may_commit(group, text(""), text(NULL), -1, now), KAFKA_NONE);
	make_two(&a, &b);
	assert_int_equal(group_may_commit(group, text(""), text(NULL), -1, now), KAFKA_UNKNOWN_MEMBER_ID);
	assert_int_equal(group_may_commit(group, text("a"), text(NULL), 0, now), KAFKA_ILLEGAL_GENERATION);
	assert_int_equal(group_may_commit(group, text("a"), text(NULL), 1, now), KAFKA_NONE);
}

static void a_member_whose_connection_ended_is_no_longer_waited_for(void **state)
{
	struct group_member *a, *b;

	(void)state;
	make_two(&a, &b);
	a = join_again("a"); /* the leader asks for a new generation, and goes */
	assert_int_equal(group->state, GROUP_PREPARING);
	group_abandon(a);
	now += SESSION / 2;
	assert_int_equal(heartbeat("b", 1), KAFKA_REBALANCE_IN_PROGRESS);
	join_again("b");
	now += SESSION / 2;
	group_tick(group, now);
	expect_answer(b, KAFKA_NONE);
	assert_int_equal(group->member_count, 1);
}

static void a_full_group_takes_no_member_and_hands_out_no_id(void **state)
{
	static const char *const ids[MOST] = {"a", "b", "c", "d"}, *const others[MOST] = {"e", "f", "g", "h"};
	struct group_member *member, *first;

	(void)state;
	assert_int_equal(join_as("", "a", "i", "m", false, &first), KAFKA_NONE);
	for (unsigned i = 0; i < MOST; i++)
		assert_int_equal(join_as("", others[i], NULL, "m", true, &member), KAFKA_MEMBER_ID_REQUIRED);
	assert_int_equal(join_as("", "x", NULL, "m", true, &member), KAFKA_GROUP_MAX_SIZE_REACHED);
	for (unsigned i = 1; i < MOST; i++)
		join(ids[i]);
	assert_int_equal(join_as("", "x", NULL, "m", false, &member), KAFKA_GROUP_MAX_SIZE_REACHED);
	assert_int_equal(join_as("e", "x", NULL, "m", true, &member), KAFKA_GROUP_MAX_SIZE_REACHED);
	assert_int_equal(group->member_count, MOST);
	now += SESSION; /* nobody came back with the ids */
	group_tick(group, now);
	assert_int_equal(group->named_count, 0);
	/* A static member that comes back takes its own place. */
	expect_answer(first, KAFKA_NONE);
	assert_int_equal(join_as("", "y", "i", "m", false, &member), KAFKA_NONE);
	assert_int_equal(group->member_count, MOST);
}

/* Of all members of all groups. */
static void members_hold_no_more_memory_than_their_budget(void **state)
{
	struct group_member *a, *b;

	(void)state;
	make_two(&a, &b);
	budget.most = budget.used + 2;
	assert_int_equal(join_as("", "c", NULL, "m", false, &a), KAFKA_COORDINATOR_NOT_AVAILABLE);
	assert_int_equal(join_as("b", "", NULL, "much", false, &b), KAFKA_COORDINATOR_NOT_AVAILABLE);
	assert_int_equal(b->protocols[0].metadata_bytes, 1); /* as before */
	assert_int_equal(join_as("b", "", NULL, "mmm", false, &b), KAFKA_NONE);
	assert_int_equal(budget.used, budget.most);
	assert_int_equal(group_member_leave(group, text("b"), text(NULL), now), KAFKA_NONE);
	expect_answer(b, KAFKA_UNKNOWN_MEMBER_ID);
	join("c");
}

static void an_assignment_beyond_the_budget_is_not_taken(void **state)
{
	struct group_member *a, *b;

	(void)state;
	a = join("a");
	b = join("b");
	now += DELAY;
	group_tick(group, now);
	expect_answer(a, KAFKA_NONE);
	expect_answer(b, KAFKA_NONE);
	budget.most = budget.used + 1;
	assert_int_equal(sync_as("a", 1, "a", "b"), KAFKA_NONE);
	assert_int_equal(group->state, GROUP_COMPLETING);
	assert_false(a->due);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define GROUP_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
		GROUP_TEST(without_an_initial_delay_the_first_member_begins),
		GROUP_TEST(the_first_members_come_together),
		GROUP_TEST(the_leader_brings_the_assignment),
		GROUP_TEST(one_more_member_makes_all_join_again),
		GROUP_TEST(a_member_that_does_not_join_again_is_out),
		GROUP_TEST(the_members_that_are_left_replace_a_silent_one),
		GROUP_TEST(members_that_wait_for_a_dead_leader_go_on_without_it),
		GROUP_TEST(a_new_member_gets_its_id_first),
		GROUP_TEST(a_static_member_comes_back_without_a_rebalance),
		GROUP_TEST(an_absent_static_member_leads_no_generation),
		GROUP_TEST(a_generation_begins_when_a_static_member_is_there),
		GROUP_TEST(changed_metadata_makes_a_new_generation),
		GROUP_TEST(a_member_of_another_protocol_is_refused),
		GROUP_TEST(only_members_of_the_generation_commit),
		GROUP_TEST(a_full_group_takes_no_member_and_hands_out_no_id),
		GROUP_TEST(a_member_whose_connection_ended_is_no_longer_waited_for),
		GROUP_TEST(members_hold_no_more_memory_than_their_budget),
		GROUP_TEST(an_assignment_beyond_the_budget_is_not_taken),
	};

	return cmocka_run_group_tests_name("group", tests, NULL, NULL);
}
