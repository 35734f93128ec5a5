/* The controller: brokers, their sessions, who leads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "broker/controller/controller.h"

static struct topic_config defaults;
static struct controller controller;
static struct controller_result result;
static bool unclean, flushes; /* what brokers register with */
static int64_t life, ended;

static struct codec_string text(const char *at)
{
	return (struct codec_string){at, (int32_t)strlen(at)};
}

static enum kafka_error apply(const struct kafka_controller_command *command)
{
	controller_apply(&controller, command, &result);
	return result.error;
}

static enum kafka_error registers_with(int32_t broker, int64_t incarnation, bool whole, struct codec_string cluster_id)
{
	struct kafka_controller_command_command_endpoint endpoint = {text("PLAINTEXT"), text("host"), 9092};
	struct kafka_controller_command command = {.kind = CONTROLLER_REGISTER_BROKER,
		.broker = broker,
		.incarnation = incarnation,
		.sequence = 1,
		.whole = whole,
		.cluster_id = cluster_id,
		.endpoints = {&endpoint, 1},
		.unclean_election = unclean,
		.flushes_each = flushes,
		.life = life,
		.ended = ended};

	return apply(&command);
}

static enum kafka_error registers(int32_t broker, int64_t incarnation, bool whole)
{
	return registers_with(broker, incarnation, whole, text(controller.cluster_id));
}

static enum kafka_error ends(int32_t broker, int64_t incarnation)
{
	struct kafka_controller_command command = {
		.kind = CONTROLLER_END_SESSION, .target = broker, .target_incarnation = incarnation};

	return apply(&command);
}

static struct kafka_controller_command creation(const char *name, int32_t partitions, int16_t factor)
{
	return (struct kafka_controller_command){.kind = CONTROLLER_CREATE_TOPIC,
		.topic = text(name),
		.partitions = partitions,
		.replication_factor = factor};
}

static struct controller_partition *partition(void)
{
	return &controller_find(&controller, text("t"))->at[0];
}

static int set_up(void **state)
{
	struct kafka_controller_command command = creation("t", 3, 3);

	(void)state;
	unclean = flushes = false;
	life = 0;
	ended = -1;
	topic_config_default(&defaults);
	controller_init(&controller, &defaults);
	for (int32_t i = 1; i <= 3; i++)
		assert_int_equal(registers(i, 10 * i, true), KAFKA_NONE);
	command.topic_id.byte[15] = 7;
	assert_int_equal(apply(&command), KAFKA_NONE);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	controller_free(&controller);
	return 0;
}

static void partitions_are_spread(void **state)
{
	const struct controller_topic *topic = controller_find(&controller, text("t"));
	struct kafka_controller_command command = creation("u", 1, 4);

	(void)state;
	for (int32_t i = 0; i < 3; i++) {
		assert_int_equal(topic->at[i].leader, i + 1);
		assert_int_equal(topic->at[i].replicas.count, 3);
		assert_int_equal(topic->at[i].isr.count, 3);
	}
	assert_int_equal(apply(&command), KAFKA_INVALID_REPLICATION_FACTOR);
}

static void a_session_that_ends_moves_leaders(void **state)
{
	(void)state;
	assert_int_equal(ends(1, 99), KAFKA_INVALID_REQUEST);
	assert_int_equal(partition()->leader, 1);
	assert_int_equal(ends(1, 10), KAFKA_NONE);
	assert_int_equal(partition()->leader, 2);
	assert_int_equal(partition()->leader_epoch, 1);
	assert_false(controller_set_has(&partition()->isr, 1));
	/* Of a partition that it did not lead the epoch stays. */
	assert_int_equal(controller_find(&controller, text("t"))->at[1].leader_epoch, 0);
	assert_int_equal(controller_find(&controller, text("t"))->at[1].epoch, 1);
}

/* It has a lease, perhaps (R-D10). */
static void a_process_that_may_live_is_not_replaced(void **state)
{
	(void)state;
	ended = 9;
	assert_int_equal(registers(1, 11, true), KAFKA_DUPLICATE_BROKER_REGISTRATION);
	assert_int_equal(controller_broker(&controller, 1)->incarnation, 10);
	assert_int_equal(partition()->leader, 1);
	assert_int_equal(partition()->epoch, 0);
	assert_int_equal(ends(1, 10), KAFKA_NONE);
	assert_int_equal(registers(1, 11, true), KAFKA_NONE);
	assert_int_equal(controller_broker(&controller, 1)->incarnation, 11);
	ended = 11;
	assert_int_equal(registers(1, 12, true), KAFKA_NONE);
	ended = 0;
	assert_int_equal(registers(1, 13, true), KAFKA_DUPLICATE_BROKER_REGISTRATION);
}

static void the_last_member_stays_and_leads_again_only_if_it_is_whole(void **state)
{
	(void)state;
	ends(2, 20);
	ends(3, 30);
	assert_int_equal(partition()->isr.count, 1);
	ends(1, 10);
	assert_int_equal(partition()->leader, -1);
	assert_true(controller_set_has(&partition()->isr, 1));
	assert_int_equal(registers(2, 21, true), KAFKA_NONE);
	assert_int_equal(partition()->leader, -1);
	assert_int_equal(registers(1, 11, true), KAFKA_NONE);
	assert_int_equal(partition()->leader, 1);
	ends(1, 11);
	assert_int_equal(registers(1, 12, false), KAFKA_NONE);
	assert_int_equal(partition()->leader, -1);
}

/* Broker 1 last: it stays the isr of its partition. */
static void all_end(void)
{
	ends(2, 20);
	ends(3, 30);
	ends(1, 10);
}

static enum kafka_error sets(const char *name, const char *value)
{
	struct kafka_controller_command_command_config config = {text(name), text(value)};
	struct kafka_controller_command command = {
		.kind = CONTROLLER_SET_CONFIGS, .topic = text("t"), .configs = {&config, 1}};

	return apply(&command);
}

static void load_image(void)
{
	struct codec_arena arena;
	uint8_t *image;
	size_t bytes;

	codec_arena_init(&arena, 1u << 20);
	bytes = controller_save(&controller, &arena, &image);
	controller_free(&controller);
	controller_init(&controller, &defaults);
	assert_true(controller_load(&controller, image, bytes));
	codec_arena_free(&arena);
}

/* Its process lives on, or is closed in order later, but its log is as short as it was (R-B22). */
static void a_last_member_that_was_not_whole_once_leads_only_where_the_topic_allows_it(void **state)
{
	(void)state;
	all_end();
	assert_int_equal(registers(1, 11, false), KAFKA_NONE);
	for (int64_t i = 12; i < 15; i++) {
		load_image();
		assert_int_equal(registers(1, i, true), KAFKA_NONE);
		assert_int_equal(partition()->leader, -1);
		assert_true(controller_set_has(&partition()->isr, 1));
	}
	assert_int_equal(sets("unclean.leader.election.enable", "true"), KAFKA_NONE);
	assert_int_equal(partition()->leader, 1);
	assert_int_equal(sets("unclean.leader.election.enable", "false"), KAFKA_NONE);
	ends(1, 14);
	assert_int_equal(registers(1, 15, true), KAFKA_NONE);
	assert_int_equal(partition()->leader, 1);
}

/* Its disk was replaced: a flush of each record does not bring them back, and any other replica has more (R-B22). */
static void a_last_member_that_returns_with_nothing_is_the_last_choice(void **state)
{
	(void)state;
	assert_int_equal(sets("flush.messages", "1"), KAFKA_NONE);
	all_end();
	assert_int_equal(registers_with(1, 11, true, text("")), KAFKA_NONE);
	assert_int_equal(partition()->leader, -1);
	load_image();
	assert_int_equal(registers(3, 31, true), KAFKA_NONE);
	assert_int_equal(partition()->leader, -1);
	assert_int_equal(sets("unclean.leader.election.enable", "true"), KAFKA_NONE);
	assert_int_equal(partition()->leader, 3);
	assert_int_equal(partition()->isr.count, 1);
	assert_int_equal(partition()->isr.at[0], 3);
}

/* Brokers with other defaults apply the same commands, and the same broker leads. */
static void the_own_defaults_of_a_broker_elect_nobody(void **state)
{
	(void)state;
	defaults.log.unclean_election = true;
	defaults.log.flush_messages = 1;
	load_image();
	all_end();
	assert_int_equal(registers(3, 31, true), KAFKA_NONE);
	assert_int_equal(registers(1, 11, false), KAFKA_NONE);
	assert_int_equal(partition()->leader, -1);
	load_image();
	unclean = true;
	assert_int_equal(registers(2, 21, true), KAFKA_NONE);
	assert_int_equal(partition()->leader, 1); /* the isr's, before the others */
	load_image();
	unclean = false;
	ends(3, 31);
	ends(2, 21);
	ends(1, 11);
	assert_int_equal(registers(3, 32, true), KAFKA_NONE);
	assert_int_equal(partition()->leader, -1);
}

/* What its log has was written under the value before (R-B22). */
static void a_last_member_that_flushed_each_record_leads_again(void **state)
{
	(void)state;
	ends(2, 20);
	ends(3, 30);
	flushes = true;
	assert_int_equal(registers(1, 11, false), KAFKA_NONE);
	assert_int_equal(partition()->leader, -1);
	assert_int_equal(sets("unclean.leader.election.enable", "true"), KAFKA_NONE);
	assert_int_equal(sets("unclean.leader.election.enable", "false"), KAFKA_NONE);
	assert_int_equal(partition()->leader, 1);
	load_image();
	flushes = false;
	assert_int_equal(registers(1, 12, false), KAFKA_NONE);
	assert_int_equal(partition()->leader, 1);
	assert_int_equal(registers(1, 13, false), KAFKA_NONE);
	assert_int_equal(partition()->leader, -1);
}

static void a_topic_may_allow_a_leader_that_is_not_in_sync(void **state)
{
	(void)state;
	all_end();
	assert_int_equal(registers(3, 31, true), KAFKA_NONE);
	assert_int_equal(partition()->leader, -1);
	assert_int_equal(sets("unclean.leader.election.enable", "perhaps"), KAFKA_INVALID_CONFIG);
	assert_int_equal(sets("unclean.leader.election.enable", "true"), KAFKA_NONE);
	assert_int_equal(partition()->leader, 3);
	assert_int_equal(partition()->isr.count, 1);
	assert_int_equal(partition()->isr.at[0], 3);
	assert_int_equal(partition()->leader_epoch, 2);
	/* From now on whoever is first. */
	ends(3, 31);
	assert_int_equal(partition()->leader, -1);
	assert_int_equal(registers(1, 11, false), KAFKA_NONE);
	assert_int_equal(partition()->leader, 1);
	assert_int_equal(partition()->isr.at[0], 1);
	assert_int_equal(registers(3, 32, true), KAFKA_NONE);
	assert_int_equal(partition()->leader, 1);
}

static void another_incarnation_has_left_every_isr(void **state)
{
	(void)state;
	assert_int_equal(registers(1, 11, false), KAFKA_NONE);
	assert_false(controller_set_has(&partition()->isr, 1));
	assert_int_equal(partition()->leader, 2);
}

/* All were killed, or some: one that has everything keeps its place, and that of another one is not given back. */
static void one_that_has_everything_keeps_its_place(void **state)
{
	int32_t epoch = partition()->epoch;

	(void)state;
	assert_int_equal(registers(1, 11, true), KAFKA_NONE);
	assert_int_equal(partition()->isr.count, 3);
	assert_int_equal(partition()->leader, 1);
	assert_int_equal(partition()->leader_epoch, 1);
	assert_int_equal(partition()->epoch, epoch + 1);
	assert_int_equal(registers(2, 21, true), KAFKA_NONE);
	assert_int_equal(partition()->leader_epoch, 1);
	assert_int_equal(registers(3, 31, false), KAFKA_NONE);
	assert_false(controller_set_has(&partition()->isr, 3));
	assert_int_equal(registers(3, 32, true), KAFKA_NONE);
	assert_false(controller_set_has(&partition()->isr, 3));
}

/* It is whole as it was when it was copied. */
static void an_older_copy_of_a_directory_is_not_whole(void **state)
{
	(void)state;
	life = 5;
	assert_int_equal(registers(2, 21, true), KAFKA_NONE);
	assert_int_equal(partition()->isr.count, 3);
	assert_int_equal(registers(2, 22, true), KAFKA_NONE);
	assert_false(controller_set_has(&partition()->isr, 2));
	life = 4;
	ends(3, 30);
	ends(1, 10);
	life = 6;
	assert_int_equal(registers(1, 11, true), KAFKA_NONE);
	assert_int_equal(partition()->leader, 1);
	ends(1, 11);
	assert_int_equal(registers(1, 12, true), KAFKA_NONE);
	assert_int_equal(partition()->leader, -1);
}

/* Who comes back last is an accident: others that have everything lead without it. */
static void those_that_have_everything_lead_without_the_last_one(void **state)
{
	(void)state;
	registers(2, 21, true);
	registers(3, 31, true);
	assert_int_equal(partition()->isr.count, 3);
	ends(1, 10);
	assert_int_equal(partition()->leader, 2);
	assert_int_equal(partition()->isr.count, 2);
}

static enum kafka_error sets_isr(
	int32_t leader, int32_t epoch, int32_t partition_epoch, int32_t member, int64_t incarnation)
{
	struct kafka_controller_command_command_member isr[] = {{2, 0}, {3, 0}, {member, incarnation}};
	struct kafka_controller_command command = {.kind = CONTROLLER_SET_ISR,
		.topic_id = controller_find(&controller, text("t"))->id,
		.broker = leader,
		.leader_epoch = epoch,
		.partition_epoch = partition_epoch,
		.isr = {isr, 3}};

	return apply(&command);
}

static void an_isr_is_changed_by_the_leader_who_knows_it(void **state)
{
	int32_t epoch;

	(void)state;
	registers(1, 11, false);
	epoch = partition()->epoch;
	assert_int_equal(sets_isr(3, 1, epoch, 1, 11), KAFKA_FENCED_LEADER_EPOCH);
	assert_int_equal(sets_isr(2, 0, epoch, 1, 11), KAFKA_FENCED_LEADER_EPOCH);
	assert_int_equal(sets_isr(2, 1, epoch - 1, 1, 11), KAFKA_INVALID_UPDATE_VERSION);
	assert_int_equal(sets_isr(2, 1, epoch, 1, 10), KAFKA_INVALID_REQUEST);
	assert_int_equal(sets_isr(2, 1, epoch, 4, 11), KAFKA_INVALID_REQUEST);
	assert_int_equal(sets_isr(2, 1, epoch, 1, 11), KAFKA_NONE);
	assert_int_equal(partition()->isr.count, 3);
	assert_int_equal(partition()->epoch, epoch + 1);
	assert_int_equal(partition()->leader_epoch, 1);
}

static enum kafka_error resigns(int32_t leader, int32_t epoch, int32_t partition_epoch)
{
	struct kafka_controller_command command = {.kind = CONTROLLER_RESIGN,
		.topic_id = controller_find(&controller, text("t"))->id,
		.broker = leader,
		.leader_epoch = epoch,
		.partition_epoch = partition_epoch};

	return apply(&command);
}

static void a_leader_resigns_unless_it_is_the_last_member(void **state)
{
	int32_t epoch = partition()->epoch;

	(void)state;
	assert_int_equal(resigns(2, 0, epoch), KAFKA_FENCED_LEADER_EPOCH);
	assert_int_equal(resigns(1, 1, epoch), KAFKA_FENCED_LEADER_EPOCH);
	assert_int_equal(resigns(1, 0, epoch + 1), KAFKA_INVALID_UPDATE_VERSION);
	assert_int_equal(resigns(1, 0, epoch), KAFKA_NONE);
	assert_ptr_equal(result.topic, controller_find(&controller, text("t")));
	assert_int_equal(partition()->leader, 2);
	assert_int_equal(partition()->leader_epoch, 1);
	assert_int_equal(partition()->epoch, epoch + 1);
	assert_false(controller_set_has(&partition()->isr, 1));
	assert_int_equal(resigns(2, 1, epoch + 1), KAFKA_NONE);
	assert_int_equal(partition()->leader, 3);
	assert_int_equal(resigns(3, 2, epoch + 2), KAFKA_INVALID_REQUEST);
	assert_int_equal(partition()->leader, 3);
	assert_int_equal(partition()->isr.count, 1);
}

/* Nobody is in sync but it: it leads again when it has come back whole. */
static void a_damaged_leader_resigns_also_as_the_last_member(void **state)
{
	struct kafka_controller_command command = {.kind = CONTROLLER_RESIGN,
		.topic_id = controller_find(&controller, text("t"))->id,
		.broker = 1,
		.damaged = true};

	(void)state;
	ends(2, 20);
	ends(3, 30);
	command.leader_epoch = partition()->leader_epoch;
	command.partition_epoch = partition()->epoch;
	assert_int_equal(apply(&command), KAFKA_NONE);
	assert_int_equal(partition()->leader, -1);
	assert_int_equal(partition()->isr.count, 1);
	assert_int_equal(partition()->leader_epoch, command.leader_epoch + 1);
	assert_int_equal(registers(1, 11, true), KAFKA_NONE);
	assert_int_equal(partition()->leader, 1);
}

/* All have lost power: nobody leads by itself. */
static void all_lose_power(void)
{
	for (int32_t i = 1; i <= 3; i++)
		registers(i, 10 * i + 1, false);
	assert_int_equal(partition()->leader, -1);
}

static enum kafka_error reports(int32_t broker, int32_t last_epoch, int64_t end, int32_t hw_epoch, int64_t hw)
{
	struct kafka_controller_command_command_report report = {
		.topic_id = controller_find(&controller, text("t"))->id,
		.leader_epoch = partition()->leader_epoch,
		.last_epoch = last_epoch,
		.end = end,
		.hw_epoch = hw_epoch,
		.hw = hw};
	struct kafka_controller_command command = {.kind = CONTROLLER_REPORT,
		.broker = broker,
		.incarnation = controller_broker(&controller, broker)->incarnation,
		.reports = {&report, 1}};

	return apply(&command);
}

static enum kafka_error recovers(int32_t broker, int64_t incarnation, int32_t partition_epoch)
{
	struct kafka_controller_command command = {.kind = CONTROLLER_RECOVER,
		.topic_id = controller_find(&controller, text("t"))->id,
		.target = broker,
		.target_incarnation = incarnation,
		.partition_epoch = partition_epoch};

	return apply(&command);
}

static const struct controller_topic *topic(void)
{
	return controller_find(&controller, text("t"));
}

/* The highest epoch is the later history, also where another log is longer. */
static void the_choice_has_the_highest_epoch_and_then_the_longest_log(void **state)
{
	(void)state;
	all_lose_power();
	assert_null(controller_choose(&controller, topic(), 0));
	assert_int_equal(reports(1, 2, 500, 2, 400), KAFKA_NONE);
	assert_int_equal(reports(2, 3, 300, 3, 350), KAFKA_NONE);
	assert_int_equal(controller_choose(&controller, topic(), 0)->broker, 2);
	assert_int_equal(reports(3, 3, 301, 1, 100), KAFKA_NONE);
	assert_int_equal(controller_choose(&controller, topic(), 0)->broker, 3);
	assert_int_equal(controller_known_hw(&controller, topic(), 0), 400);
	/* Another life of a broker has said nothing yet. */
	registers(3, 32, false);
	assert_int_equal(controller_choose(&controller, topic(), 0)->broker, 2);
}

static void an_operator_recovers_what_was_shown_and_nothing_else(void **state)
{
	int32_t epoch, leader_epoch;

	(void)state;
	assert_int_equal(recovers(1, 10, partition()->epoch), KAFKA_INVALID_REQUEST); /* it has a leader */
	all_lose_power();
	epoch = partition()->epoch;
	leader_epoch = partition()->leader_epoch;
	assert_int_equal(recovers(2, 21, epoch), KAFKA_INVALID_REQUEST); /* it was not heard */
	assert_int_equal(reports(2, 0, 300, 0, 290), KAFKA_NONE);
	assert_int_equal(recovers(2, 20, epoch), KAFKA_INVALID_REQUEST);
	assert_int_equal(recovers(2, 21, epoch - 1), KAFKA_INVALID_REQUEST);
	assert_int_equal(partition()->leader, -1);
	assert_int_equal(recovers(2, 21, epoch), KAFKA_NONE);
	assert_int_equal(partition()->leader, 2);
	assert_int_equal(partition()->isr.count, 1);
	assert_true(partition()->leader_epoch > leader_epoch);
	assert_int_equal(partition()->recovered_epoch, partition()->leader_epoch);
	assert_false(partition()->doubtful);
	/* High watermarks of before are void. */
	registers(2, 22, false);
	assert_int_equal(partition()->leader, -1);
	assert_int_equal(reports(1, 0, 300, leader_epoch, 290), KAFKA_NONE);
	assert_int_equal(controller_known_hw(&controller, topic(), 0), 0);
}

static void reports_of_partitions_with_a_leader_are_not_kept(void **state)
{
	(void)state;
	assert_int_equal(reports(1, 0, 10, 0, 10), KAFKA_NONE);
	assert_int_equal(controller.report_count, 0);
	all_lose_power();
	assert_int_equal(reports(1, 0, 10, 0, 10), KAFKA_NONE);
	assert_int_equal(reports(1, 0, 11, 0, 10), KAFKA_NONE);
	assert_int_equal(controller.report_count, 1);
	controller_forget_reports(&controller, topic()->id);
	assert_int_equal(controller.report_count, 0);
}

static void a_repeated_command_is_applied_once(void **state)
{
	struct kafka_controller_command command = {
		.kind = CONTROLLER_TAKE_PRODUCER_IDS, .count = 1000, .broker = 1, .incarnation = 10, .sequence = 2};

	(void)state;
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(apply(&command), KAFKA_NONE);
		assert_int_equal(result.repeated, i > 0);
		assert_int_equal(result.first_producer_id, 0);
	}
	command.sequence = 3;
	assert_int_equal(apply(&command), KAFKA_NONE);
	assert_int_equal(result.first_producer_id, 1000);
	/* Of an incarnation that is over nothing is taken. */
	ends(1, 10);
	command.sequence = 4;
	assert_int_equal(apply(&command), KAFKA_NOT_CONTROLLER);
}

static void a_broker_of_another_cluster_is_refused(void **state)
{
	struct kafka_controller_command command = {.kind = CONTROLLER_REGISTER_BROKER,
		.broker = 4,
		.incarnation = 1,
		.sequence = 1,
		.cluster_id = text("another")};

	(void)state;
	assert_int_equal(strlen(controller.cluster_id), 22);
	assert_int_equal(apply(&command), KAFKA_INCONSISTENT_CLUSTER_ID);
	assert_null(controller_broker(&controller, 4));
}

static void an_image_has_the_reports(void **state)
{
	struct codec_arena arena;
	struct controller other;
	uint8_t *image;
	size_t bytes;

	(void)state;
	all_lose_power();
	assert_int_equal(reports(2, 1, 9, 1, 8), KAFKA_NONE);
	codec_arena_init(&arena, 1u << 20);
	bytes = controller_save(&controller, &arena, &image);
	controller_init(&other, &defaults);
	assert_true(controller_load(&other, image, bytes));
	assert_int_equal(other.report_count, 1);
	assert_int_equal(controller_choose(&other, controller_find(&other, text("t")), 0)->end, 9);
	controller_free(&other);
	codec_arena_free(&arena);
}

static void an_image_is_the_same_state(void **state)
{
	struct codec_arena first, second;
	uint8_t *image, *again;
	struct controller other;
	size_t bytes;

	(void)state;
	unclean = flushes = true;
	registers(2, 21, true);
	ends(3, 30);
	codec_arena_init(&first, 1u << 20);
	codec_arena_init(&second, 1u << 20);
	bytes = controller_save(&controller, &first, &image);
	assert_true(bytes > 0);
	controller_init(&other, &defaults);
	assert_true(controller_load(&other, image, bytes));
	assert_int_equal(controller_save(&other, &second, &again), bytes);
	assert_memory_equal(image, again, bytes);
	controller_free(&other);
	controller_init(&other, &defaults);
	assert_false(controller_load(&other, image, bytes - 1));
	controller_free(&other);
	codec_arena_free(&first);
	codec_arena_free(&second);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define BROKERS_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
		BROKERS_TEST(partitions_are_spread),
		BROKERS_TEST(a_session_that_ends_moves_leaders),
		BROKERS_TEST(a_process_that_may_live_is_not_replaced),
		BROKERS_TEST(the_last_member_stays_and_leads_again_only_if_it_is_whole),
		BROKERS_TEST(a_last_member_that_was_not_whole_once_leads_only_where_the_topic_allows_it),
		BROKERS_TEST(a_last_member_that_returns_with_nothing_is_the_last_choice),
		BROKERS_TEST(the_own_defaults_of_a_broker_elect_nobody),
		BROKERS_TEST(a_last_member_that_flushed_each_record_leads_again),
		BROKERS_TEST(a_topic_may_allow_a_leader_that_is_not_in_sync),
		BROKERS_TEST(another_incarnation_has_left_every_isr),
		BROKERS_TEST(one_that_has_everything_keeps_its_place),
		BROKERS_TEST(an_older_copy_of_a_directory_is_not_whole),
		BROKERS_TEST(those_that_have_everything_lead_without_the_last_one),
		BROKERS_TEST(an_isr_is_changed_by_the_leader_who_knows_it),
		BROKERS_TEST(a_leader_resigns_unless_it_is_the_last_member),
		BROKERS_TEST(a_damaged_leader_resigns_also_as_the_last_member),
		BROKERS_TEST(the_choice_has_the_highest_epoch_and_then_the_longest_log),
		BROKERS_TEST(an_operator_recovers_what_was_shown_and_nothing_else),
		BROKERS_TEST(reports_of_partitions_with_a_leader_are_not_kept),
		BROKERS_TEST(a_repeated_command_is_applied_once),
		BROKERS_TEST(a_broker_of_another_cluster_is_refused),
		BROKERS_TEST(an_image_has_the_reports),
		BROKERS_TEST(an_image_is_the_same_state),
	};

	return cmocka_run_group_tests_name("brokers", tests, NULL, NULL);
}
