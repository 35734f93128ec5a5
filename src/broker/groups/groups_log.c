/* Committed offsets in the log. A key is {i16 1, OffsetCommitKey}, a value {i16 3, OffsetCommitValue}, or null. */
#include "broker/groups/groups_log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/log.h"
#include "broker/broker.h"
#include "broker/log/records.h"

#define KEY_KIND      1 /* an offset; others are not written by this broker */
#define KEY_VERSION   0
#define VALUE_VERSION 3
#define BATCH_BYTES   (512u << 10)

struct partition *groups_log_partition(const struct groups *groups)
{
	return topics_partition(&groups->broker->topics, request_text(GROUPS_TOPIC), 0);
}

/* ---- reading ---- */

static int load_record(struct groups *groups, const struct record *record, struct codec_arena *arena)
{
	struct kafka_offset_commit_key key;
	struct kafka_offset_commit_value value;
	struct groups_entry *entry;

	if (record->key.bytes < 2 || get_be16(record->key.at) != KEY_KIND)
		return 0;
	if (codec_decode(&kafka_offset_commit_key_codec, KEY_VERSION, record->key.at + 2, (size_t)record->key.bytes - 2,
		    arena, &key, NULL) != CODEC_OK)
		return -EBADMSG;
	if (record->value.bytes < 0) {
		entry = groups_find(groups, key.group);
		if (entry != NULL)
			offsets_remove(&entry->offsets, key.topic, key.partition);
		return 0;
	}
	if (record->value.bytes < 2 || get_be16(record->value.at) > VALUE_VERSION ||
		codec_decode(&kafka_offset_commit_value_codec, (int16_t)get_be16(record->value.at),
			record->value.at + 2, (size_t)record->value.bytes - 2, arena, &value, NULL) != CODEC_OK)
		return -EBADMSG;
	entry = groups_find_or_make(groups, key.group);
	if (entry == NULL)
		return -ENOMEM;
	return offsets_set(&entry->offsets, key.topic, key.partition, value.offset, value.leader_epoch, value.metadata,
		value.commit_timestamp);
}

static int load_span(struct groups *groups, const struct log_span *span, int64_t *next_offset)
{
	struct codec_arena arena;
	uint32_t place = 0;
	int rc = 0;

	codec_arena_init(&arena, REQUEST_ARENA_BYTES);
	while (rc == 0 && place < span->bytes) {
		struct batch batch;
		struct records_reader reader;
		struct record record;

		if (batch_read(span->at + place, span->bytes - place, &batch) != BATCH_RIGHT ||
			batch_check(span->at + place, &batch) != BATCH_RIGHT) {
			rc = -EBADMSG;
			break;
		}
		reader = records_begin(span->at + place, &batch);
		while (rc == 0 && records_next(&reader, &record))
			rc = load_record(groups, &record, &arena);
		place += (uint32_t)batch.length;
		*next_offset = batch_next_offset(&batch);
	}
	codec_arena_free(&arena);
	return rc;
}

int groups_log_load(struct groups *groups, struct hf_error *error)
{
	struct partition *partition = groups_log_partition(groups);
	/* What is not replicated yet will be: this broker leads. */
	int64_t end = partition == NULL ? 0 : partition_log_end(partition->log);
	int64_t offset = partition == NULL ? 0 : partition->log->start_offset;
	int rc = 0;

	while (rc == 0 && partition != NULL && offset < end) {
		struct log_span span;

		if (partition_log_read(partition->log, offset, end, BATCH_BYTES, true, &span) != KAFKA_NONE ||
			span.segment == NULL) {
			rc = -EBADMSG;
			break;
		}
		rc = load_span(groups, &span, &offset);
		segment_release(span.segment);
	}
	if (rc != 0)
		return hf_error_set(error, rc,
			"the topic %s is damaged at offset %lld; delete its directory to begin without "
			"committed offsets",
			GROUPS_TOPIC, (long long)offset);
	return 0;
}

/* ---- writing ---- */

struct writing {
	struct groups *groups;
	struct partition *partition;
	struct records_writer records;
	struct codec_arena arena; /* of the record that is made */
	uint8_t *batch;
	int64_t now_ms;
	enum kafka_error error;
};

static void flush(struct writing *writing)
{
	struct append_result result;
	size_t bytes;

	if (writing->records.count == 0 || writing->error != KAFKA_NONE)
		return;
	bytes = records_finish(&writing->records, BATCH_NO_PRODUCER, -1, -1);
	writing->error = partition_append(writing->partition, writing->batch, bytes, writing->now_ms, &result);
	records_start(&writing->records, writing->batch, BATCH_BYTES);
}

static void begin(struct writing *writing, struct groups *groups)
{
	if (groups_log_partition(groups) == NULL)
		broker_create_offsets(groups->broker, NULL);
	*writing = (struct writing){.groups = groups,
		.partition = groups_log_partition(groups),
		.batch = malloc(BATCH_BYTES),
		.now_ms = broker_now_ms(groups->broker)};
	codec_arena_init(&writing->arena, REQUEST_ARENA_BYTES);
	if (writing->partition == NULL || writing->batch == NULL)
		writing->error = KAFKA_COORDINATOR_NOT_AVAILABLE;
	else
		records_start(&writing->records, writing->batch, BATCH_BYTES);
}

static enum kafka_error end(struct writing *writing)
{
	flush(writing);
	free(writing->batch);
	codec_arena_free(&writing->arena);
	return writing->error;
}

static void add(
	struct writing *writing, struct codec_string group, const struct groups_commit *commit, int64_t committed_ms)
{
	struct kafka_offset_commit_key key = {.group = group, .topic = commit->topic, .partition = commit->partition};
	struct kafka_offset_commit_value value = {.offset = commit->offset,
		.leader_epoch = commit->leader_epoch,
		.metadata = commit->metadata.bytes < 0 ? request_text("") : commit->metadata,
		.commit_timestamp = committed_ms};
	struct codec_bytes key_bytes, value_bytes = {NULL, -1};
	uint8_t *data;

	if (writing->error != KAFKA_NONE)
		return;
	codec_arena_reset(&writing->arena, REQUEST_ARENA_BYTES);
	key_bytes.bytes = (int32_t)codec_encode(
		&kafka_offset_commit_key_codec, KEY_VERSION, &key, &writing->arena, 2, &data, NULL);
	if (key_bytes.bytes == 0) {
		writing->error = KAFKA_COORDINATOR_NOT_AVAILABLE;
		return;
	}
	put_be16(data, KEY_KIND);
	key_bytes.at = data;
	if (!commit->removed) {
		value_bytes.bytes = (int32_t)codec_encode(
			&kafka_offset_commit_value_codec, VALUE_VERSION, &value, &writing->arena, 2, &data, NULL);
		if (value_bytes.bytes == 0) {
			writing->error = KAFKA_COORDINATOR_NOT_AVAILABLE;
			return;
		}
		put_be16(data, VALUE_VERSION);
		value_bytes.at = data;
	}
	if (!records_add(&writing->records, writing->now_ms, key_bytes, value_bytes)) {
		flush(writing);
		if (writing->error == KAFKA_NONE &&
			!records_add(&writing->records, writing->now_ms, key_bytes, value_bytes))
			writing->error = KAFKA_OFFSET_METADATA_TOO_LARGE;
	}
}

static void add_all(struct writing *writing, const struct groups_entry *entry, bool forget)
{
	for (unsigned i = 0; i < entry->offsets.count; i++) {
		const struct offset_entry *at = &entry->offsets.at[i];
		struct groups_commit commit = {.topic = request_text(at->topic),
			.metadata = request_text(at->metadata),
			.partition = at->partition,
			.leader_epoch = at->leader_epoch,
			.offset = at->offset,
			.removed = forget};

		add(writing, request_text(entry->group->id), &commit, at->committed_ms);
	}
}

static void add_flight(struct writing *writing, const struct flight *flight)
{
	for (int32_t i = 0; i < flight->count; i++)
		add(writing, flight->group, &flight->commits[i], writing->now_ms);
}

/* Of a flight: what of it commits offsets of this topic (null: of any) is written as removed, and will not be taken
 * over. A wait for it gets what it would be. */
static void remove_from_flight(struct writing *writing, struct flight *flight, struct codec_string topic)
{
	int32_t kept = 0;

	for (int32_t i = 0; i < flight->count; i++) {
		struct groups_commit commit = flight->commits[i];

		if (topic.bytes >= 0 && (commit.topic.bytes != topic.bytes ||
						memcmp(commit.topic.at, topic.at, (size_t)topic.bytes) != 0)) {
			flight->commits[kept++] = commit;
			continue;
		}
		commit.removed = true;
		add(writing, flight->group, &commit, 0);
	}
	flight->count = kept;
}

/* What the snapshot replaces goes once the snapshot is as safe as that was. */
static void snapshot_grown(struct partition_wait *wait, uint32_t bytes)
{
	struct groups *groups = container_of(wait, struct groups, snapshot.wait);
	struct partition *partition = groups_log_partition(groups);

	if (bytes != UINT32_MAX && partition->log->flush.done < groups->snapshot.end) {
		flusher_start(partition->log);
		return;
	}
	if (bytes != UINT32_MAX && partition->hw < groups->snapshot.end)
		return;
	partition_remove_wait(wait);
	groups->snapshot.end = 0;
	if (bytes == UINT32_MAX)
		return;
	partition_log_advance_start(partition->log, groups->snapshot.begin);
	topics_write_starts(&groups->broker->topics);
	groups->snapshot_bytes = partition_log_bytes(partition->log);
}

/* All offsets anew, and behind them commits that are newer. */
void groups_log_snapshot(struct groups *groups)
{
	struct partition *partition = groups_log_partition(groups);
	int64_t begin_offset = partition_log_end(partition->log);
	struct writing writing;

	if (groups->snapshot.end > 0 ||
		partition_log_bytes(partition->log) - groups->snapshot_bytes < GROUPS_SNAPSHOT_BYTES)
		return;
	begin(&writing, groups);
	for (unsigned i = 0; i < groups->count; i++)
		add_all(&writing, groups->at[i], false);
	list_for_each (at, &groups->flights.all)
		add_flight(&writing, container_of(at, struct flight, node));
	if (end(&writing) != KAFKA_NONE) {
		log_warn("broker: %s cannot be compacted and continues to grow", GROUPS_TOPIC);
		return;
	}
	groups->snapshot.begin = begin_offset;
	groups->snapshot.end = partition_log_end(partition->log);
	groups->snapshot.wait.grown = snapshot_grown;
	partition_add_wait(partition, &groups->snapshot.wait);
	snapshot_grown(&groups->snapshot.wait, 0);
}

void groups_log_stop(struct groups *groups)
{
	partition_remove_wait(&groups->snapshot.wait);
	groups->snapshot.end = 0;
}

enum kafka_error groups_log_commit(struct groups *groups, struct codec_string group,
	const struct groups_commit *commits, int32_t count, struct flight **flight_out)
{
	struct flight *flight = flights_make(groups, group, commits, count);
	struct writing writing;
	enum kafka_error error;

	if (flight == NULL)
		return KAFKA_COORDINATOR_NOT_AVAILABLE;
	begin(&writing, groups);
	add_flight(&writing, flight);
	error = end(&writing);
	if (error != KAFKA_NONE) {
		flights_free(groups, flight);
		return error;
	}
	flights_add(groups, flight, partition_log_end(writing.partition->log));
	*flight_out = flight;
	return KAFKA_NONE;
}

enum kafka_error groups_log_forget(struct groups *groups, struct groups_entry *entry)
{
	struct writing writing;

	if (entry->offsets.count == 0 && list_empty(&groups->flights.all))
		return KAFKA_NONE;
	begin(&writing, groups);
	add_all(&writing, entry, true);
	list_for_each (at, &groups->flights.all) {
		struct flight *flight = container_of(at, struct flight, node);

		if (codec_compare(entry->group->id, flight->group) == 0)
			remove_from_flight(&writing, flight, request_text(NULL));
	}
	return end(&writing);
}

static void remove_one(struct writing *writing, struct groups_entry *entry, const struct offset_entry *at)
{
	struct groups_commit commit = {.topic = request_text(at->topic), .partition = at->partition, .removed = true};

	add(writing, request_text(entry->group->id), &commit, 0);
	offsets_remove(&entry->offsets, commit.topic, commit.partition);
}

void groups_log_expire(struct groups *groups, struct groups_entry *entry, int64_t limit_ms)
{
	struct offsets *offsets = &entry->offsets;
	unsigned before = offsets->count;
	struct writing writing;

	if (before == 0)
		return;
	begin(&writing, groups);
	for (unsigned i = before; i > 0; i--)
		if (offsets->at[i - 1].committed_ms <= limit_ms &&
			!flights_have(&groups->flights, request_text(entry->group->id),
				request_text(offsets->at[i - 1].topic), offsets->at[i - 1].partition))
			remove_one(&writing, entry, &offsets->at[i - 1]);
	if (end(&writing) != KAFKA_NONE)
		log_warn("broker: expired offsets of group %s may reappear after a restart", entry->group->id);
	else if (offsets->count < before)
		log_info("broker: %u offsets of group %s have expired", before - offsets->count, entry->group->id);
}

void groups_log_forget_topic(struct groups *groups, struct codec_string topic)
{
	struct writing writing;

	if (codec_compare(GROUPS_TOPIC, topic) == 0 || groups->epoch < 0)
		return;
	begin(&writing, groups);
	for (unsigned i = 0; i < groups->count; i++) {
		struct offsets *offsets = &groups->at[i]->offsets;

		for (unsigned k = offsets->count; k > 0; k--)
			if (codec_compare(offsets->at[k - 1].topic, topic) == 0)
				remove_one(&writing, groups->at[i], &offsets->at[k - 1]);
	}
	list_for_each (at, &groups->flights.all)
		remove_from_flight(&writing, container_of(at, struct flight, node), topic);
	if (end(&writing) != KAFKA_NONE)
		log_warn("broker: offsets of the deleted topic %.*s may reappear after a restart", topic.bytes,
			topic.at);
}
