/* Three brokers, of which one has a partition that it cannot go on with. */
#include "sim/tests/fixture.h"

#include <stdio.h>

#include "base/ensure.h"
#include "base/log.h"
#include "broker/log/records.h"
#include "sim/broker/brokers.h"
#include "tests/unit/broker/batches.h"

#define BROKERS     3u
#define PATIENCE_NS (20 * NS_S) /* it bounds a failure */

static struct world world;
static struct broker_sim all;
static unsigned refusals; /* lines about what a leader wrote */

/* ---- the brokers ---- */

static void hear_log(enum log_level level, const char *line, void *context)
{
	(void)level, (void)context;
	refusals += strstr(line, "is refused") != NULL;
}

static const struct broker *broker_at(unsigned i)
{
	return all.brokers[i].broker;
}

static bool are_whole(void)
{
	const struct broker *brokers[BROKERS];

	for (unsigned i = 0; i < BROKERS; i++)
		brokers[i] = broker_at(i);
	return sim_brokers_are_whole(brokers, BROKERS, SIM_BROKER_TOPIC);
}

static void run_until(bool (*reached)(void))
{
	uint64_t limit_ns = world.now_ns + PATIENCE_NS;

	while (!reached() && world.now_ns < limit_ns)
		world_run_until(&world, world.now_ns + NS_MS);
	assert_true(reached());
	assert_int_equal(world.violations, 0);
}

static int set_up(void **state)
{
	(void)state;
	refusals = 0;
	memory_reset();
	log_set_limit(0);
	log_set_sink(hear_log, NULL);
	world_init(&world, 3, false);
	memset(&all, 0, sizeof(all));
	all.world = &world;
	all.rails = true;
	network_init(&all.network, &world);
	sim_brokers_set_up(&all, BROKERS);
	for (unsigned i = 0; i < BROKERS; i++)
		process_start(all.brokers[i].process);
	run_until(are_whole);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	for (unsigned i = BROKERS; i > 0; i--)
		host_free(&all.brokers[i - 1].host);
	network_free(&all.network);
	world_free(&world);
	log_set_sink(NULL, NULL);
	return 0;
}

static struct partition *partition_at(unsigned broker)
{
	return topics_partition(&broker_at(broker)->topics, request_text(SIM_BROKER_TOPIC), 0);
}

static const struct controller_partition *known_at(unsigned broker)
{
	return &controller_find(&broker_at(broker)->controller, request_text(SIM_BROKER_TOPIC))->at[0];
}

static const struct controller_partition *known(void)
{
	return known_at(0);
}

static unsigned leading(void)
{
	return (unsigned)known()->leader - 1;
}

static enum kafka_error append(struct partition *partition)
{
	const struct batch_wish wish = {.records = 1, .value_bytes = 100, .producer_id = -1, .timestamp_ms = 1};
	struct append_result result;
	uint8_t data[512];
	size_t bytes = batches_make(&wish, data);

	return partition_append(partition, data, bytes, 1, &result);
}

static bool have_all(void)
{
	int64_t end = partition_log_end(partition_at(leading())->log);

	for (unsigned i = 0; i < BROKERS; i++)
		if (partition_at(i)->hw != end)
			return false;
	return true;
}

/* ---- a holder that changes what is committed ---- */

static struct partition *spoilt;

static bool is_given_up(void)
{
	return spoilt->log->failed;
}

static bool is_led_by_another(void)
{
	return partition_at(leading()) != spoilt && partition_at(leading())->leads;
}

/* Of a batch that no follower has yet. */
static void spoil(uint32_t at)
{
	struct segment *head;

	spoilt = partition_at(leading());
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(append(spoilt), KAFKA_NONE);
	run_until(have_all);
	head = partition_log_head(spoilt->log);
	at += head->bytes;
	assert_int_equal(append(spoilt), KAFKA_NONE);
	head->map[at] ^= 1;
	run_until(is_given_up);
	world_run_until(&world, world.now_ns + NS_S);
	assert_int_equal(world.violations, 0);
	assert_true(refusals <= 2 * BROKERS);
	assert_true(is_led_by_another());
	assert_int_equal(known()->isr.count, BROKERS); /* it has cut its log at the damage, and follows */
	for (unsigned i = 0; i < BROKERS; i++)
		assert_int_equal(partition_log_end(partition_at(i)->log), 3);
	assert_int_equal(append(partition_at(leading())), KAFKA_NONE);
}

static void a_batch_that_is_none_any_more_is_not_pushed(void **state)
{
	(void)state;
	spoil(16); /* its magic */
}

static void a_leader_whose_own_copy_is_wrong_gives_up(void **state)
{
	(void)state;
	spoil(100);
}

static void a_leader_whose_own_epoch_is_wrong_gives_up(void **state)
{
	(void)state;
	spoil(12);
}

/* ---- an epoch that no leader had ---- */

static bool leads_without_spoilt(void)
{
	return is_led_by_another() && known()->isr.count == BROKERS - 1;
}

static bool are_replicated(void)
{
	const struct partition *partition = partition_at(leading());

	return partition->hw == partition_log_end(partition->log);
}

/* As recovery finds it on a damaged disk: nothing but the epoch is wrong. */
static void append_of_epoch(struct partition *partition, int32_t epoch)
{
	const struct batch_wish wish = {.records = 1, .value_bytes = 100, .producer_id = -1, .timestamp_ms = 1};
	struct append_result result;
	uint8_t data[512];
	size_t bytes = batches_make(&wish, data);

	assert_int_equal(partition_log_append(partition->log, data, bytes, epoch, 1, &result), KAFKA_NONE);
}

static void a_new_leader_cuts_what_has_an_epoch_that_no_leader_had(void **state)
{
	struct partition *next;

	(void)state;
	spoilt = partition_at(leading());
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(append(spoilt), KAFKA_NONE);
	run_until(have_all);
	next = partition_at((leading() + 1) % BROKERS);
	append_of_epoch(next, 1000);
	assert_int_equal(partition_log_end(next->log), 4);
	spoilt->log->failed = true;
	run_until(leads_without_spoilt);
	assert_ptr_equal(partition_at(leading()), next);
	assert_int_equal(partition_log_end(next->log), 3);
	assert_int_equal(append(next), KAFKA_NONE);
	run_until(are_replicated);
	assert_int_equal(partition_log_end(partition_at((leading() + 1) % BROKERS)->log), 4);
}

static bool leads_again(void)
{
	return spoilt->leads;
}

/* As where a peer stood still in the middle of a write as the controller named the leader. */
static void who_begins_to_lead_at_a_tick_knows_the_isr(void **state)
{
	struct replica *replica;

	(void)state;
	spoilt = partition_at(leading());
	replica = spoilt->replication;
	leader_end(replica);
	replica->epoch = -1;
	spoilt->in_sync = spoilt->replicas = 1;
	run_until(leads_again);
	assert_int_equal(spoilt->in_sync, BROKERS);
	assert_int_equal(spoilt->replicas, BROKERS);
	run_until(have_all);
}

/* ---- the end of a process (R-G5) ---- */

#define NOTICE_NS (200 * NS_MS) /* much less than a session, or than a replica may lag */

static unsigned killed;

static void kill_broker(unsigned broker)
{
	killed = broker;
	process_crash(all.brokers[broker].process);
}

static unsigned another_than(unsigned a, unsigned b)
{
	for (unsigned i = 0; i < BROKERS; i++)
		if (i != a && i != b)
			return i;
	return BROKERS;
}

static const struct broker *decider(void)
{
	for (unsigned i = 0; i < BROKERS; i++)
		if (i != killed && broker_at(i)->quorum.leads)
			return broker_at(i);
	return NULL;
}

static void a_follower_whose_process_ended_leaves_the_isr_at_once(void **state)
{
	unsigned leader = leading();

	(void)state;
	run_until(have_all);
	kill_broker(another_than(leader, leader));
	world_run_until(&world, world.now_ns + NOTICE_NS);
	assert_int_equal(known_at(leader)->isr.count, BROKERS - 1);
	assert_int_equal(append(partition_at(leader)), KAFKA_NONE);
	world_run_until(&world, world.now_ns + NOTICE_NS);
	assert_int_equal(partition_at(leader)->hw, partition_log_end(partition_at(leader)->log));
	assert_int_equal(known_at(leader)->isr.count, BROKERS - 1); /* it does not come in again */
}

/* A closed connection proves no end: until its lease is over it might lead. */
static void the_session_of_a_process_that_ended_is_over_with_its_lease(void **state)
{
	uint64_t session_ns = broker_at(0)->config.session_ns, begin_ns;
	unsigned other;

	(void)state;
	run_until(have_all);
	kill_broker(leading());
	other = another_than(killed, killed);
	begin_ns = world.now_ns;
	while (known_at(other)->leader == (int32_t)killed + 1 && world.now_ns < begin_ns + PATIENCE_NS)
		world_run_until(&world, world.now_ns + NS_MS);
	assert_non_null(decider());
	assert_in_range(world.now_ns - begin_ns, session_ns * 6 / 8, session_ns - 1);
}

static bool last_has_lease(void)
{
	return broker_has_lease(broker_at(BROKERS - 1));
}

/* The others end, and its lease with them. */
static void leave_alone(unsigned broker)
{
	for (unsigned i = 0; i < BROKERS; i++)
		if (i != broker)
			kill_broker(i);
	world_run_until(&world, world.now_ns + 2 * broker_at(broker)->config.session_ns);
}

/* Others may have taken records meanwhile that this broker does not know (B9). */
static void a_broker_without_a_lease_calls_no_offset_out_of_range(void **state)
{
	const struct broker *last = broker_at(BROKERS - 1);

	(void)state;
	run_until(last_has_lease);
	assert_int_equal(broker_range_error(last, KAFKA_OFFSET_OUT_OF_RANGE), KAFKA_OFFSET_OUT_OF_RANGE);
	leave_alone(BROKERS - 1);
	assert_int_equal(broker_range_error(last, KAFKA_OFFSET_OUT_OF_RANGE), KAFKA_NOT_LEADER_OR_FOLLOWER);
}

/* R-B46, R-B47. */
static void a_broker_without_a_lease_is_not_ready_and_names_no_controller(void **state)
{
	const struct broker *last = broker_at(BROKERS - 1);
	char reason[BROKER_REASON_BYTES];

	(void)state;
	run_until(last_has_lease);
	assert_false(broker_status_wrong(last, reason));
	assert_int_not_equal(broker_controller(last), -1);
	leave_alone(BROKERS - 1);
	assert_true(broker_status_wrong(last, reason));
	assert_non_null(strstr(reason, "no majority of controller.quorum.voters"));
	assert_int_equal(broker_controller(last), -1);
}

/* ---- grants ---- */

#define LAST_TURN 0xffffu

static bool has_new_grants(void)
{
	for (unsigned i = 0; i < BROKERS; i++)
		if (i != leading() && broker_at(i)->replication.turns == LAST_TURN)
			return false;
	return true;
}

/* After so many the numbers begin anew, and 0 is none. The next one comes with the next segment, which is short. */
static void a_grant_has_a_number(void **state)
{
	struct partition *partition = partition_at(leading());

	(void)state;
	for (unsigned i = 0; i < BROKERS; i++)
		all.brokers[i].broker->replication.turns = LAST_TURN;
	for (unsigned i = 0; i < 500 && !has_new_grants(); i++) {
		assert_int_equal(append(partition), KAFKA_NONE);
		world_run_until(&world, world.now_ns + NS_MS);
	}
	assert_true(has_new_grants());
	assert_int_equal(append(partition), KAFKA_NONE);
	run_until(have_all);
	assert_int_equal(known()->isr.count, BROKERS); /* nobody has waited until they had left it */
}

/* ---- a log that can make no file ---- */

static unsigned sick;

/* As where its directory's file system has failed, and that of the controller's log has not. */
static void lose_directory(unsigned broker)
{
	struct partition_log *log = partition_at(broker)->log;

	sick = broker;
	snprintf(log->directory, sizeof(log->directory), "nowhere");
}

static bool sick_is_out(void)
{
	return !controller_set_has(&known()->isr, (int32_t)sick + 1) && known()->leader != (int32_t)sick + 1 &&
	       partition_at(leading())->leads;
}

/* Segments are short: it rolls soon. */
static void append_until_out(void)
{
	uint64_t limit_ns = world.now_ns + PATIENCE_NS;

	while (!sick_is_out() && world.now_ns < limit_ns) {
		if (partition_at(leading())->leads)
			(void)append(partition_at(leading()));
		world_run_until(&world, world.now_ns + NS_MS);
	}
	assert_true(sick_is_out());
	assert_int_equal(world.violations, 0);
}

/* The broker's session goes on: it is only this log that has failed. */
static void check_others_go_on(void)
{
	struct partition *partition = partition_at(leading());

	assert_true(controller_broker(&broker_at(leading())->controller, (int32_t)sick + 1)->alive);
	for (unsigned i = 0; i < 100; i++)
		assert_int_equal(append(partition), KAFKA_NONE);
	run_until(are_replicated);
	assert_int_equal(known()->isr.count, BROKERS - 1);
}

static void a_leader_that_cannot_roll_gives_the_partition_to_another_replica(void **state)
{
	(void)state;
	lose_directory(leading());
	append_until_out();
	check_others_go_on();
}

static void a_follower_that_cannot_roll_leaves_the_isr_at_once(void **state)
{
	uint64_t limit_ns = world.now_ns + NS_S; /* it need not lag behind first */

	(void)state;
	for (unsigned i = 0; i < BROKERS; i++)
		ensure(broker_at(i)->config.lag_ns >= 2 * NS_S);
	lose_directory((leading() + 1) % BROKERS);
	append_until_out();
	assert_true(world.now_ns < limit_ns);
	check_others_go_on();
}

static unsigned returning;

static bool is_led_by_who_returned(void)
{
	const struct partition *partition = broker_at(returning) == NULL ? NULL : partition_at(returning);

	return partition != NULL && partition->leads;
}

/* Who comes into sync with it later takes over. */
static void a_leader_that_has_failed_alone_waits_for_another_replica(void **state)
{
	unsigned leader = leading();
	int64_t end;

	(void)state;
	returning = (leader + 1) % BROKERS;
	process_crash(all.brokers[returning].process);
	lose_directory((leader + 2) % BROKERS);
	while (known_at(leader)->isr.count > 1) {
		(void)append(partition_at(leader));
		world_run_until(&world, world.now_ns + NS_MS);
		assert_true(world.now_ns < PATIENCE_NS);
	}
	lose_directory(leader);
	while (append(partition_at(leader)) == KAFKA_NONE)
		continue;
	assert_true(partition_at(leader)->log->failed);
	end = partition_at(leader)->hw;
	world_run_until(&world, world.now_ns + NS_S);
	assert_int_equal(known_at(leader)->leader, (int32_t)leader + 1);
	process_start(all.brokers[returning].process);
	run_until(is_led_by_who_returned);
	assert_int_equal(partition_log_end(partition_at(returning)->log), end);
	assert_int_equal(append(partition_at(returning)), KAFKA_NONE);
}

/* ---- a registration that was not applied ---- */

static bool is_open(void)
{
	return broker_at(returning) != NULL;
}

static bool has_joined(void)
{
	return broker_at(returning)->quorum.registered;
}

static bool has_no_leader(void)
{
	return known_at((returning + 1) % BROKERS)->leader < 0;
}

/* The replica of the controller's log fails before: the logs are as short as they were (R-B22). */
static void a_registration_that_was_not_applied_makes_no_log_whole(void **state)
{
	(void)state;
	returning = leading();
	for (unsigned i = 1; i < BROKERS; i++) {
		lose_directory((returning + i) % BROKERS);
		append_until_out();
	}
	assert_int_equal(known()->isr.count, 1);
	host_stop(&all.brokers[returning].host);
	run_until(has_no_leader);
	host_start(&all.brokers[returning].host);
	run_until(is_open);
	assert_false(has_joined());
	all.brokers[returning].broker->quorum.failed = true;
	run_until(has_joined);
	world_run_until(&world, world.now_ns + NS_S);
	assert_true(has_no_leader());
}

/* ---- the process before (R-D10) ---- */

static uint64_t joins_after_ns(void)
{
	uint64_t begin_ns = world.now_ns;

	run_until(is_open);
	run_until(has_joined);
	return world.now_ns - begin_ns;
}

static void a_process_whose_end_is_proven_is_replaced_at_once(void **state)
{
	(void)state;
	run_until(have_all);
	returning = leading();
	process_crash(all.brokers[returning].process);
	process_start(all.brokers[returning].process);
	assert_true(joins_after_ns() < broker_at(returning)->config.session_ns / 2);
}

/* A directory that comes back on another host, or after a loss of power: the process before may have a lease. */
static void a_process_that_may_live_has_its_session(void **state)
{
	(void)state;
	run_until(have_all);
	returning = leading();
	host_stop(&all.brokers[returning].host);
	host_start(&all.brokers[returning].host);
	assert_true(joins_after_ns() > broker_at(returning)->config.session_ns * 6 / 8);
	run_until(have_all);
}

/* ---- commands that wait ---- */

static unsigned refused;

static void told(struct proposal *proposal, const struct controller_result *result)
{
	(void)proposal;
	refused += result->error != KAFKA_NONE;
}

static unsigned count_entries(const struct quorum *quorum)
{
	unsigned count = 0;

	for (const struct list *at = quorum->entries.next; at != &quorum->entries; at = at->next)
		count++;
	return count;
}

static void commands_of_clients_that_wait_are_limited(void **state)
{
	static struct proposal proposals[QUORUM_WAITING_MAX + 10];
	struct broker *broker = all.brokers[0].broker;
	char name[16];

	(void)state;
	refused = 0;
	for (unsigned i = 1; i < BROKERS; i++)
		process_crash(all.brokers[i].process);
	for (unsigned i = 0; i < 10; i++)
		broker_create_offsets(broker, NULL);
	assert_int_equal(count_entries(&broker->quorum), 1);
	for (unsigned i = 0; i < QUORUM_WAITING_MAX + 10; i++) {
		snprintf(name, sizeof(name), "t%u", i);
		proposals[i] = (struct proposal){.done = told};
		broker_create_topic(broker, request_text(name), 1, &proposals[i]);
	}
	assert_int_equal(count_entries(&broker->quorum), QUORUM_WAITING_MAX);
	assert_int_equal(refused, 11);
}

/* ---- offsets that cannot be read ---- */

static struct partition *offsets_at(unsigned broker)
{
	return topics_partition(&broker_at(broker)->topics, request_text(GROUPS_TOPIC), 0);
}

static bool coordinates(void)
{
	for (unsigned i = 0; i < BROKERS; i++)
		if (broker_at(i) != NULL && offsets_at(i) != NULL && offsets_at(i)->leads) {
			sick = i;
			return offsets_at(i)->in_sync == BROKERS && groups_check(&broker_at(i)->groups) == KAFKA_NONE;
		}
	return false;
}

static bool offsets_are_replicated(void)
{
	for (unsigned i = 0; i < BROKERS; i++)
		if (offsets_at(i)->hw != partition_log_end(offsets_at(sick)->log))
			return false;
	return true;
}

static bool another_leads_offsets(void)
{
	for (unsigned i = 0; i < BROKERS; i++)
		if (i != sick && offsets_at(i)->leads) {
			returning = i;
			return broker_has_lease(broker_at(i));
		}
	return false;
}

/* Another broker may coordinate already, with newer offsets (B9). */
static void a_coordinator_without_a_lease_serves_none(void **state)
{
	const struct broker *broker;

	(void)state;
	broker_create_offsets(all.brokers[leading()].broker, NULL);
	run_until(coordinates);
	broker = broker_at(sick);
	leave_alone(sick);
	assert_int_equal(groups_check(&broker->groups), KAFKA_NOT_COORDINATOR);
}

static void a_coordinator_without_all_offsets_serves_none(void **state)
{
	static uint8_t data[1024];
	const uint8_t key[] = {0, 1, 0xff}; /* an offset, and nothing of it */
	struct records_writer records;
	struct append_result result;

	(void)state;
	broker_create_offsets(all.brokers[0].broker, NULL);
	run_until(coordinates);
	records_start(&records, data, sizeof(data));
	assert_true(records_add(&records, 1, (struct codec_bytes){key, sizeof(key)}, (struct codec_bytes){NULL, -1}));
	assert_int_equal(partition_append(offsets_at(sick), data, records_finish(&records, BATCH_NO_PRODUCER, -1, -1),
				 1, &result),
		KAFKA_NONE);
	run_until(offsets_are_replicated);
	process_crash(all.brokers[sick].process);
	run_until(another_leads_offsets);
	assert_int_equal(groups_check(&broker_at(returning)->groups), KAFKA_COORDINATOR_LOAD_IN_PROGRESS);
	groups_expire(&all.brokers[returning].broker->groups);
	assert_int_equal(groups_check(&broker_at(returning)->groups), KAFKA_COORDINATOR_LOAD_IN_PROGRESS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define REPLICAS_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
		REPLICAS_TEST(a_batch_that_is_none_any_more_is_not_pushed),
		REPLICAS_TEST(a_leader_whose_own_copy_is_wrong_gives_up),
		REPLICAS_TEST(a_leader_whose_own_epoch_is_wrong_gives_up),
		REPLICAS_TEST(a_new_leader_cuts_what_has_an_epoch_that_no_leader_had),
		REPLICAS_TEST(who_begins_to_lead_at_a_tick_knows_the_isr),
		REPLICAS_TEST(a_follower_whose_process_ended_leaves_the_isr_at_once),
		REPLICAS_TEST(the_session_of_a_process_that_ended_is_over_with_its_lease),
		REPLICAS_TEST(a_broker_without_a_lease_calls_no_offset_out_of_range),
		REPLICAS_TEST(a_broker_without_a_lease_is_not_ready_and_names_no_controller),
		REPLICAS_TEST(a_grant_has_a_number),
		REPLICAS_TEST(a_leader_that_cannot_roll_gives_the_partition_to_another_replica),
		REPLICAS_TEST(a_follower_that_cannot_roll_leaves_the_isr_at_once),
		REPLICAS_TEST(a_leader_that_has_failed_alone_waits_for_another_replica),
		REPLICAS_TEST(a_registration_that_was_not_applied_makes_no_log_whole),
		REPLICAS_TEST(a_process_whose_end_is_proven_is_replaced_at_once),
		REPLICAS_TEST(a_process_that_may_live_has_its_session),
		REPLICAS_TEST(commands_of_clients_that_wait_are_limited),
		REPLICAS_TEST(a_coordinator_without_all_offsets_serves_none),
		REPLICAS_TEST(a_coordinator_without_a_lease_serves_none),
	};

	return cmocka_run_group_tests_name("broker replicas in the simulator", tests, NULL, NULL);
}
