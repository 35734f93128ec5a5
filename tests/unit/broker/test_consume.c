/* A consumer and a broker: segments that are READ, slots, and what ends them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>

#include "broker/client/consumer.h"
#include "broker/client/membership.h"
#include "broker/groups/groups_log.h"
#include "broker/rdma/reader.h"
#include "stand.h"

#define SEGMENT_BYTES 65536u
#define EXTENT_BYTES  16384u

static const struct hf_producer_config one_by_one = {.batch_records = 1};

static struct hf_consumer_stats stats(void)
{
	struct hf_consumer_stats stats;

	hf_consumer_stats(stand.consumer, &stats);
	return stats;
}

static void open_both(const struct hf_consumer_config *config)
{
	stand_open(SEGMENT_BYTES, EXTENT_BYTES);
	stand_open_producer(&one_by_one);
	stand_open_consumer(config);
}

static void segments_are_read_one_behind_the_other(void **state)
{
	(void)state;
	open_both(&(struct hf_consumer_config){.fetch_bytes = 2000});
	stand_send_all(0, 0, 1000, 200);
	assert_int_equal(hf_consumer_seek(stand.consumer, STAND_TOPIC, 0, HF_OFFSET_BEGIN), 0);
	stand_receive(0, 1000, 0);
	assert_int_equal(stats().rdma_records, 1000);
	assert_true(stats().attached >= 4);
	assert_int_equal(stats().anew, 0);
	assert_int_equal(hf_consumer_position(stand.consumer, STAND_TOPIC, 0), 1000);
	stand_close();
}

static void what_is_produced_while_it_reads_is_seen(void **state)
{
	(void)state;
	open_both(&(struct hf_consumer_config){0});
	assert_int_equal(hf_consumer_seek(stand.consumer, STAND_TOPIC, 1, HF_OFFSET_BEGIN), 0);
	for (uint64_t i = 0; i < 300; i++) {
		stand_send_all(1, i, 1, 300);
		stand_receive(i, 1, 0);
	}
	assert_int_equal(stats().rdma_records, 300);
	stand_close();
}

/* The broker's end of the consumer's session. */
static struct reader *broker_reader(void)
{
	const struct rdma_client *client = container_of(stand.broker->rdma->clients.next, struct rdma_client, node);

	return container_of(client->readers.next, struct reader, node);
}

static void check_registered(void)
{
	const struct reader *reader = broker_reader();

	for (unsigned i = 0; i < RDMA_SLOTS; i++)
		if (reader->slots[i].segment != NULL)
			assert_true(reader->slots[i].mr->bytes <= segment_present(reader->slots[i].segment));
}

/* A READ reaches no hole of the head: its device would die of that on a full disk. */
static void a_slot_ends_where_pages_do(void **state)
{
	(void)state;
	stand_open(4 << 20, EXTENT_BYTES);
	stand_open_producer(&(struct hf_producer_config){.rdma = HF_RDMA_OFF});
	stand_open_consumer(&(struct hf_consumer_config){0});
	assert_int_equal(hf_consumer_seek(stand.consumer, STAND_TOPIC, 0, HF_OFFSET_BEGIN), 0);
	for (uint64_t i = 0; i < 240; i += 10) {
		stand_send_all(0, i, 10, 30000);
		stand_receive(i, 10, 0);
		check_registered();
	}
	assert_int_equal(stats().rdma_records, 240);
	assert_true(stats().attached > 4); /* in two segments */
	assert_int_equal(stats().anew, 0);
	stand_close();
}

static void it_begins_in_the_middle_and_goes_back(void **state)
{
	(void)state;
	stand_open(SEGMENT_BYTES, EXTENT_BYTES);
	stand_open_producer(&(struct hf_producer_config){0});
	stand_open_consumer(&(struct hf_consumer_config){0});
	stand_send_all(0, 0, 500, 100);
	assert_int_equal(hf_consumer_seek(stand.consumer, STAND_TOPIC, 0, 123), 0);
	stand_receive(123, 300, 0);
	assert_int_equal(hf_consumer_seek(stand.consumer, STAND_TOPIC, 0, 7), 0);
	stand_receive(7, 493, 0);
	assert_int_equal(hf_consumer_seek(stand.consumer, STAND_TOPIC, 0, HF_OFFSET_END), 0);
	stand_send_all(0, 500, 1, 100);
	assert_int_equal(hf_consumer_seek(stand.consumer, STAND_TOPIC, 0, 500), 0);
	stand_receive(500, 1, 0);
	stand_close();
}

static void two_partitions_have_slots_of_their_own(void **state)
{
	struct hf_message messages[4];
	uint64_t end_ns = hf_env_now_ns(hf_env_host()) + STAND_PATIENCE_NS;
	unsigned seen[2] = {0};

	(void)state;
	open_both(&(struct hf_consumer_config){0});
	stand_send_all(0, 0, 400, 200);
	stand_send_all(1, 0, 400, 200);
	for (int32_t i = 0; i < 2; i++)
		assert_int_equal(hf_consumer_seek(stand.consumer, STAND_TOPIC, i, HF_OFFSET_BEGIN), 0);
	while (seen[0] + seen[1] < 800 && hf_env_now_ns(hf_env_host()) < end_ns) {
		int n = hf_consumer_poll(stand.consumer, messages, 4);

		for (int i = 0; i < n; i++)
			assert_int_equal(messages[i].offset, seen[messages[i].partition]++);
		if (n == 0)
			(void)hf_loop_turn(stand.pair.loop, 100000);
	}
	assert_int_equal(seen[0], 400);
	assert_int_equal(seen[1], 400);
	stand_close();
}

/* More partitions of one broker than slots: the rest is fetched, until a slot is released. */
static void a_partition_without_a_slot_is_fetched(void **state)
{
	static struct segment taken;
	struct reader *reader;
	uint64_t before;

	(void)state;
	open_both(&(struct hf_consumer_config){0});
	stand_send_all(0, 0, 100, 200);
	stand_send_all(1, 0, 100, 200);
	assert_int_equal(hf_consumer_seek(stand.consumer, STAND_TOPIC, 0, HF_OFFSET_BEGIN), 0);
	stand_receive(0, 100, 0);
	reader = broker_reader();
	for (unsigned i = 0; i < RDMA_SLOTS; i++)
		if (reader->slots[i].segment == NULL)
			reader->slots[i].segment = &taken;
	before = stats().rdma_records;
	assert_int_equal(hf_consumer_seek(stand.consumer, STAND_TOPIC, 1, HF_OFFSET_BEGIN), 0);
	stand_receive(0, 100, 0);
	assert_int_equal(stats().rdma_records, before);
	for (unsigned i = 0; i < RDMA_SLOTS; i++)
		if (reader->slots[i].segment == &taken)
			reader->slots[i].segment = NULL;
	assert_int_equal(hf_consumer_seek(stand.consumer, STAND_TOPIC, 0, HF_OFFSET_END), 0); /* releases its slot */
	stand_send_all(1, 100, 100, 200);
	stand_receive(100, 100, 0);
	for (unsigned i = 2; stats().rdma_records == before; i++) {
		stand_send_all(1, 100 * i, 100, 200);
		stand_receive(100 * i, 100, 0);
		assert_true(i < 100);
	}
	stand_close();
}

/* Retention takes a segment from under a reader: its slot is withdrawn; it goes on at the beginning that is left. */
static void what_is_deleted_is_withdrawn(void **state)
{
	struct partition_log *log;
	uint64_t first, end_ns = hf_env_now_ns(hf_env_host()) + STAND_PATIENCE_NS;
	struct hf_message message;

	(void)state;
	open_both(&(struct hf_consumer_config){.fetch_bytes = 300});
	stand_send_all(0, 0, 1000, 200);
	assert_int_equal(hf_consumer_seek(stand.consumer, STAND_TOPIC, 0, HF_OFFSET_BEGIN), 0);
	stand_receive(0, 10, 0);
	log = stand_partition(0)->log;
	partition_log_advance_start(log, 600);
	first = (uint64_t)container_of(log->segments.next, struct segment, node)->base_offset;
	assert_true(first > 300);
	message.offset = 0;
	while (message.offset < 600 && hf_env_now_ns(hf_env_host()) < end_ns) {
		if (hf_consumer_poll(stand.consumer, &message, 1) == 0)
			(void)hf_loop_turn(stand.pair.loop, 1000000);
		else /* what had been read before it was withdrawn may still be given out */
			assert_true(message.offset < (int64_t)first || message.offset == 600);
	}
	assert_int_equal(message.offset, 600);
	stand_receive(601, 399, 0);
	stand_close();
}

/* The slot of a reader that is in the first of several segments. */
static struct reader_slot *begin_in_the_first_segment(void)
{
	open_both(&(struct hf_consumer_config){.fetch_bytes = 2000});
	stand_send_all(0, 0, 600, 200);
	assert_int_equal(hf_consumer_seek(stand.consumer, STAND_TOPIC, 0, HF_OFFSET_BEGIN), 0);
	stand_receive(0, 10, 0);
	return broker_reader()->slots;
}

/* Two segments one behind the other have the same slot, and a look that was on its way is of the first (R-B13). */
static void a_slot_returns_under_another_generation(void **state)
{
	const struct reader_slot *slot;
	uint16_t first;

	(void)state;
	slot = begin_in_the_first_segment();
	first = slot->generation;
	assert_non_null(slot->segment);
	stand_receive(10, 590, 0);
	assert_true(stats().attached > 2);
	assert_int_not_equal(slot->generation, first);
	stand_close();
}

/* Also one that is complete: its segment is pinned, and who follows the next leader cannot truncate it. */
static void slots_are_withdrawn_when_the_partition_ends(void **state)
{
	const struct reader_slot *slot;

	(void)state;
	slot = begin_in_the_first_segment();
	assert_true(slot->segment->sealed);
	partition_end(stand_partition(0));
	assert_int_not_equal(slot->withdrawn_ns, 0);
	stand_close();
}

/* As a holder can leave it, which writes until its extent is deregistered. */
static void a_batch_that_is_damaged_is_not_given_out(void **state)
{
	uint64_t end_ns = hf_env_now_ns(hf_env_host()) + STAND_PATIENCE_NS;
	struct hf_message message;
	struct segment *head;
	uint8_t *byte;

	(void)state;
	open_both(&(struct hf_consumer_config){0});
	stand_send_all(0, 0, 3, 200);
	head = container_of(stand_partition(0)->log->segments.prev, struct segment, node);
	byte = &head->map[head->bytes / 3 * 2 - 5]; /* of the second of three batches */
	*byte ^= 1;
	assert_int_equal(hf_consumer_seek(stand.consumer, STAND_TOPIC, 0, HF_OFFSET_BEGIN), 0);
	stand_receive(0, 1, 0);
	while (stats().anew < 2 && hf_env_now_ns(hf_env_host()) < end_ns) {
		assert_int_equal(hf_consumer_poll(stand.consumer, &message, 1), 0);
		(void)hf_loop_turn(stand.pair.loop, 1000000);
	}
	assert_true(stats().anew >= 2);
	*byte ^= 1;
	stand_receive(1, 2, 0);
	stand_close();
}

/* Polls until the position is known, for so long. */
static int64_t position_within(uint64_t ns)
{
	uint64_t end_ns = hf_env_now_ns(hf_env_host()) + ns;
	struct hf_message message;

	while (hf_consumer_position(stand.consumer, STAND_TOPIC, 0) < 0 && hf_env_now_ns(hf_env_host()) < end_ns) {
		assert_int_equal(hf_consumer_poll(stand.consumer, &message, 1), 0);
		(void)hf_loop_turn(stand.pair.loop, 1000000);
	}
	return hf_consumer_position(stand.consumer, STAND_TOPIC, 0);
}

/* What was acknowledged may lie behind the hw of a leader that is new. */
static void the_end_is_told_when_the_hw_has_come_to_the_epoch(void **state)
{
	struct partition *partition;

	(void)state;
	open_both(&(struct hf_consumer_config){0});
	stand_send_all(0, 0, 5, 200);
	partition = stand_partition(0);
	partition->epoch_start = partition->hw + 1;
	assert_int_equal(hf_consumer_seek(stand.consumer, STAND_TOPIC, 0, HF_OFFSET_END), 0);
	assert_true(position_within(200000000) < 0);
	partition->epoch_start = 0;
	assert_int_equal(position_within(STAND_PATIENCE_NS), 5);
	stand_send_all(0, 5, 1, 200);
	stand_receive(5, 1, 0);
	stand_close();
}

static void without_rails_it_fetches(void **state)
{
	(void)state;
	open_both(&(struct hf_consumer_config){.rdma = HF_RDMA_OFF, .fetch_bytes = 1000});
	stand_send_all(0, 0, 700, 200);
	assert_int_equal(hf_consumer_seek(stand.consumer, STAND_TOPIC, 0, HF_OFFSET_BEGIN), 0);
	stand_receive(0, 700, 0);
	assert_int_equal(stats().rdma_records, 0);
	stand_close();
}

/* A broker that has gone leaves its readers to TCP, and to another session. */
static void a_session_that_is_lost_is_opened_again(void **state)
{
	uint64_t end_ns = hf_env_now_ns(hf_env_host()) + STAND_PATIENCE_NS;

	(void)state;
	open_both(&(struct hf_consumer_config){.return_ns = 50000000});
	stand_send_all(0, 0, 10, 100);
	assert_int_equal(hf_consumer_seek(stand.consumer, STAND_TOPIC, 0, HF_OFFSET_BEGIN), 0);
	stand_receive(0, 10, 0);
	hf_vqp_abort(broker_reader()->end.vqp);
	stand_send_all(0, 10, 10, 100);
	stand_receive(10, 10, 0);
	assert_int_equal(stats().losses, 1);
	for (uint64_t i = 20; stats().attached == 1 && hf_env_now_ns(hf_env_host()) < end_ns; i++) {
		stand_send_all(0, i, 1, 100);
		stand_receive(i, 1, 0);
		pair_turn(&stand.pair, 1, 1000000);
	}
	assert_true(stats().attached > 1);
	stand_close();
}

static void packed_batches_are_written_and_read_by_rdma(void **state)
{
	(void)state;
	for (unsigned codec = HF_CODEC_GZIP; codec < HF_CODECS; codec++) {
		stand_open(1 << 20, 1 << 20);
		stand_open_producer(&(struct hf_producer_config){.codec = (enum hf_codec)codec});
		stand_open_consumer(&(struct hf_consumer_config){0});
		stand_send_all(0, 0, 1000, 500);
		assert_int_equal(stand.failed, 0);
		assert_int_equal(stand.rdma, 1000);
		assert_true(container_of(stand_partition(0)->log->segments.prev, struct segment, node)->bytes < 250000);
		assert_int_equal(hf_consumer_seek(stand.consumer, STAND_TOPIC, 0, 10), 0);
		stand_receive(10, 990, 0);
		assert_int_equal(stats().rdma_records, 990);
		stand_close();
	}
}

static const struct offset_entry *committed_by_g(void)
{
	const struct groups_entry *entry = groups_find(&stand.broker->groups, (struct codec_string){"g", 1});

	return entry == NULL ? NULL : offsets_find(&entry->offsets, (struct codec_string){STAND_TOPIC, 1}, 0);
}

static unsigned commits_told;

static void commit_told(void *context, int error)
{
	*(int *)context = error;
	commits_told++;
}

static bool is_member(void)
{
	struct hf_message message;
	struct hf_consumer_group group;

	assert_int_equal(hf_consumer_poll(stand.consumer, &message, 0), 0);
	hf_consumer_group(stand.consumer, &group);
	return group.generation >= 0 && hf_consumer_position(stand.consumer, STAND_TOPIC, 0) >= 0;
}

static void who_leaves_without_a_coordinator_is_told_of_its_commit(void **state)
{
	const struct hf_group_config config = {
		.group = "g", .topics = (const char *const[]){STAND_TOPIC}, .topic_count = 1, .commit_ns = UINT64_MAX};
	struct hf_consumer_group group;
	struct hf_message message;
	int error = 0;

	(void)state;
	stand_open(SEGMENT_BYTES, EXTENT_BYTES);
	stand.broker->config.rebalance_delay_ms = 0;
	stand_open_consumer(&(struct hf_consumer_config){0});
	assert_int_equal(hf_consumer_join(stand.consumer, &config), 0);
	stand_until(is_member);
	assert_int_equal(hf_consumer_commit(stand.consumer, commit_told, &error), 0);
	membership_failed(stand.consumer->membership, KAFKA_NOT_COORDINATOR);
	hf_consumer_leave(stand.consumer);
	assert_int_equal(hf_consumer_poll(stand.consumer, &message, 1), 0);
	hf_consumer_group(stand.consumer, &group);
	assert_true(group.is_over);
	assert_int_equal(commits_told, 1);
	assert_int_equal(error, -EAGAIN);
	stand_close();
}

static bool later_is_read(void)
{
	return is_member() && hf_consumer_position(stand.consumer, "later", 0) >= 0;
}

static void a_topic_that_comes_later_is_given_out(void **state)
{
	const struct hf_group_config config = {
		.group = "g", .topics = (const char *const[]){STAND_TOPIC, "later"}, .topic_count = 2};

	(void)state;
	stand_open(SEGMENT_BYTES, EXTENT_BYTES);
	stand.broker->config.rebalance_delay_ms = 0;
	stand.broker->config.auto_create_topics = false;
	stand_open_consumer(&(struct hf_consumer_config){0});
	assert_int_equal(hf_consumer_join(stand.consumer, &config), 0);
	stand_until(is_member);
	assert_true(hf_consumer_position(stand.consumer, "later", 0) < 0);
	broker_create_topic(stand.broker, (struct codec_string){"later", 5}, 1, NULL);
	stand_until(later_is_read);
	stand_close();
}

/* ---- commits ---- */

static enum kafka_error told_of; /* the last commit of commit_of_g; -1: it is in flight */

static void told(void *context, enum kafka_error error)
{
	(void)context;
	told_of = error;
}

static struct groups *groups_of(void)
{
	return &stand.broker->groups;
}

/* As a request does. */
static struct flight *commit_of_g(int64_t offset)
{
	const struct groups_commit commit = {.topic = {STAND_TOPIC, 1}, .metadata = {NULL, -1}, .offset = offset};
	struct flight *flight;

	assert_int_equal(
		groups_log_commit(groups_of(), (struct codec_string){"g", 1}, &commit, 1, &flight), KAFKA_NONE);
	told_of = KAFKA_UNKNOWN_SERVER_ERROR;
	flight->told = told;
	flights_settle(groups_of());
	return flight;
}

static void offsets_that_no_group_uses_expire(void **state)
{
	struct groups_entry *entry;
	struct hf_error error;
	int64_t kept_ms;

	(void)state;
	stand_open(SEGMENT_BYTES, EXTENT_BYTES);
	kept_ms = stand.broker->config.offsets_retention_minutes * 60000;
	entry = groups_find_or_make(groups_of(), (struct codec_string){"g", 1});
	(void)commit_of_g(7);
	assert_int_equal(told_of, KAFKA_NONE);
	broker_roles_changed(stand.broker);
	groups_expire(groups_of());
	assert_non_null(committed_by_g());
	/* The commit is old, and its group was in use until now. */
	entry->offsets.at[0].committed_ms -= kept_ms;
	groups_expire(groups_of());
	assert_non_null(committed_by_g());
	entry->used_ms -= kept_ms;
	entry->group->state = GROUP_STABLE;
	groups_expire(groups_of());
	assert_non_null(committed_by_g());
	entry->group->state = GROUP_EMPTY;
	groups_expire(groups_of());
	assert_null(committed_by_g());
	/* The log says the same. */
	assert_int_equal(groups_log_load(groups_of(), &error), 0);
	assert_null(committed_by_g());
	stand_close();
}

static void other_replicas_lack_it(struct partition *partition)
{
	(void)partition;
}

static bool the_snapshot_is_on_the_disk(void)
{
	return groups_log_partition(&stand.broker->groups)->log->flush.done >= stand.broker->groups.snapshot.end;
}

/* From now on hw stays where it is. */
static struct partition *hold_hw(void)
{
	struct partition *partition;

	(void)commit_of_g(7);
	partition = groups_log_partition(groups_of());
	partition->appended = other_replicas_lack_it;
	return partition;
}

static bool nothing_is_in_flight(void)
{
	return list_empty(&groups_of()->flights.all);
}

/* What the log has is what the next coordinator reads there. */
static void check_log_says(int64_t offset)
{
	struct hf_error error;

	assert_int_equal(groups_log_load(groups_of(), &error), 0);
	if (offset < 0)
		assert_null(committed_by_g());
	else
		assert_int_equal(committed_by_g()->offset, offset);
}

static void a_commit_holds_although_nobody_waits_for_it(void **state)
{
	struct partition *partition;

	(void)state;
	stand_open(SEGMENT_BYTES, EXTENT_BYTES);
	partition = hold_hw();
	commit_of_g(9)->told = NULL; /* its connection ends, or its time is over */
	assert_int_equal(committed_by_g()->offset, 7);
	partition_set_hw(partition, partition_log_end(partition->log));
	stand_until(nothing_is_in_flight);
	assert_int_equal(committed_by_g()->offset, 9);
	check_log_says(9);
	stand_close();
}

static void commits_are_taken_in_the_order_of_the_log(void **state)
{
	struct partition *partition;

	(void)state;
	stand_open(SEGMENT_BYTES, EXTENT_BYTES);
	partition = hold_hw();
	commit_of_g(9)->told = NULL;
	(void)commit_of_g(8);
	partition_set_hw(partition, partition_log_end(partition->log) - 1);
	flights_settle(groups_of());
	assert_int_equal(committed_by_g()->offset, 9);
	assert_int_equal(told_of, KAFKA_UNKNOWN_SERVER_ERROR);
	partition_set_hw(partition, partition_log_end(partition->log));
	flights_settle(groups_of());
	assert_int_equal(committed_by_g()->offset, 8);
	assert_int_equal(told_of, KAFKA_NONE);
	/* Another broker coordinates before it is told. */
	(void)commit_of_g(10);
	flights_stop(groups_of());
	assert_int_equal(told_of, KAFKA_NOT_COORDINATOR);
	assert_int_equal(committed_by_g()->offset, 8);
	stand_close();
}

static void the_end_of_the_partition_is_told(void **state)
{
	(void)state;
	stand_open(SEGMENT_BYTES, EXTENT_BYTES);
	(void)hold_hw();
	(void)commit_of_g(9);
	partition_end(groups_log_partition(groups_of()));
	stand_until(nothing_is_in_flight);
	assert_int_equal(told_of, KAFKA_NOT_COORDINATOR);
	assert_int_equal(committed_by_g()->offset, 7);
	stand_close();
}

/* What is deleted does not come back with a commit that came before. */
static void a_commit_in_flight_goes_with_its_group_and_topic(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		struct partition *partition;

		stand_open(SEGMENT_BYTES, EXTENT_BYTES);
		partition = hold_hw();
		broker_roles_changed(stand.broker);
		(void)commit_of_g(9);
		if (i == 0)
			assert_int_equal(
				groups_delete(groups_of(), groups_find(groups_of(), (struct codec_string){"g", 1})),
				KAFKA_NONE);
		else
			groups_log_forget_topic(groups_of(), (struct codec_string){STAND_TOPIC, 1});
		partition_set_hw(partition, partition_log_end(partition->log));
		stand_until(nothing_is_in_flight);
		assert_int_equal(told_of, KAFKA_NONE);
		assert_null(committed_by_g());
		check_log_says(-1);
		stand_close();
	}
}

/* And it has what was committed meanwhile, whatever is older of that in memory. */
static void old_offsets_go_when_a_snapshot_is_durable_and_replicated(void **state)
{
	struct partition *partition;
	struct groups *groups;

	(void)state;
	stand_open(SEGMENT_BYTES, EXTENT_BYTES);
	groups = groups_of();
	partition = hold_hw();
	(void)commit_of_g(8);
	(void)commit_of_g(9);
	groups->snapshot_bytes = -GROUPS_SNAPSHOT_BYTES; /* as if the log had grown so much */
	partition_set_hw(partition, 2);
	flights_settle(groups);
	assert_int_equal(partition->log->start_offset, 0);
	stand_until(the_snapshot_is_on_the_disk);
	assert_int_equal(partition->log->start_offset, 0);
	assert_int_equal(committed_by_g()->offset, 8);
	partition_set_hw(partition, partition_log_end(partition->log));
	assert_int_equal(partition->log->start_offset, 3);
	assert_int_equal(committed_by_g()->offset, 8);
	check_log_says(9);
	stand_close();
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(offsets_that_no_group_uses_expire),
		cmocka_unit_test(a_commit_holds_although_nobody_waits_for_it),
		cmocka_unit_test(commits_are_taken_in_the_order_of_the_log),
		cmocka_unit_test(the_end_of_the_partition_is_told),
		cmocka_unit_test(a_commit_in_flight_goes_with_its_group_and_topic),
		cmocka_unit_test(old_offsets_go_when_a_snapshot_is_durable_and_replicated),
		cmocka_unit_test(segments_are_read_one_behind_the_other),
		cmocka_unit_test(what_is_produced_while_it_reads_is_seen),
		cmocka_unit_test(a_slot_ends_where_pages_do),
		cmocka_unit_test(it_begins_in_the_middle_and_goes_back),
		cmocka_unit_test(two_partitions_have_slots_of_their_own),
		cmocka_unit_test(a_partition_without_a_slot_is_fetched),
		cmocka_unit_test(what_is_deleted_is_withdrawn),
		cmocka_unit_test(a_slot_returns_under_another_generation),
		cmocka_unit_test(slots_are_withdrawn_when_the_partition_ends),
		cmocka_unit_test(a_batch_that_is_damaged_is_not_given_out),
		cmocka_unit_test(the_end_is_told_when_the_hw_has_come_to_the_epoch),
		cmocka_unit_test(without_rails_it_fetches),
		cmocka_unit_test(a_session_that_is_lost_is_opened_again),
		cmocka_unit_test(packed_batches_are_written_and_read_by_rdma),
		cmocka_unit_test(a_topic_that_comes_later_is_given_out),
		cmocka_unit_test(who_leaves_without_a_coordinator_is_told_of_its_commit),
	};

	if (argc > 1)
		pair_kind = argv[1];
	return cmocka_run_group_tests_name("consume", tests, NULL, NULL);
}
