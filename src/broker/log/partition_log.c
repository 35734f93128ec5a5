/* The log of one partition, once it is open: appending, grants, reading, retention. */
#include "broker/log/partition_log.h"

#include <errno.h>
#include <string.h>

#include "base/bytes.h"
#include "base/ensure.h"
#include "base/log.h"
#include "broker/log/next_segment.h"
#include "broker/log/partition_log_parts.h"

#define GRANT_BYTES (1u << 20) /* of pages that the loop makes while others wait: a millisecond */

static struct segment *segment_of(struct list *node)
{
	return container_of(node, struct segment, node);
}

struct segment *partition_log_head(const struct partition_log *log)
{
	return segment_of(log->segments.prev);
}

static struct segment *head_of(const struct partition_log *log)
{
	return partition_log_head(log);
}

int64_t partition_log_end(const struct partition_log *log)
{
	return head_of(log)->next_offset;
}

int64_t partition_log_sure_end(const struct partition_log *log)
{
	return log->flush.due <= log->flush.done ? partition_log_end(log) : log->flush.done;
}

int64_t partition_log_bytes(const struct partition_log *log)
{
	int64_t bytes = 0;

	list_for_each (at, &log->segments)
		bytes += segment_of(at)->bytes;
	return bytes;
}

static uint32_t place_in(const struct segment *segment, int64_t offset)
{
	struct batch batch;
	uint32_t place;

	if (offset <= segment->base_offset)
		return 0;
	return segment_find(segment, offset, &place, &batch) ? place : segment->bytes;
}

uint32_t partition_log_bytes_between(const struct partition_log *log, int64_t from, int64_t to)
{
	uint64_t bytes = 0;

	for (struct list *at = log->segments.prev; at != &log->segments && segment_of(at)->next_offset > from;
		at = at->prev)
		bytes += place_in(segment_of(at), to) - place_in(segment_of(at), from);
	return bytes < UINT32_MAX ? (uint32_t)bytes : UINT32_MAX - 1;
}

/* ---- appending ---- */

static int roll(struct partition_log *log, struct hf_error *error)
{
	return partition_log_roll(log, log->config.segment_bytes, error);
}

void partition_log_look_ahead(struct partition_log *log)
{
	const struct segment *head = head_of(log);
	struct hf_workers *workers;

	if (log->next != NULL || log->failed || head->bytes < head->capacity - head->capacity / 4)
		return;
	workers = flusher_workers(log->flush.flusher);
	if (workers != NULL)
		log->next = next_segment_make(log->env, log->directory, log->config.segment_bytes, workers);
}

/* One that is on its way is the next time's. */
static bool take_next(struct partition_log *log, uint32_t capacity)
{
	struct next_segment *next = log->next;
	struct segment *segment;

	if (next == NULL || next->state == NEXT_SEGMENT_MAKING)
		return false;
	log->next = NULL;
	segment = next_segment_take(
		next, log->directory, partition_log_end(log), capacity, log->config.index_interval_bytes);
	if (segment == NULL) {
		next_segment_drop(next);
		return false;
	}
	list_push_back(&log->segments, &segment->node);
	log->flush.names = true;
	return true;
}

int partition_log_roll(struct partition_log *log, uint32_t capacity, struct hf_error *error)
{
	struct segment *head = head_of(log);
	int rc = take_next(log, capacity) ? 0 : partition_log_add(log, head->next_offset, capacity, error);

	if (rc != 0)
		return rc;
	head_of(log)->last_epoch = head->last_epoch;
	rc = segment_seal(head);
	if (rc != 0)
		log_warn("broker: %s: segment %lld cannot be trimmed: %s", log->directory, (long long)head->base_offset,
			strerror(-rc));
	partition_log_write_snapshot(log);
	/* The mark follows: a start verifies what is above it (R-D8). */
	if (log->flush.flusher != NULL)
		flusher_start(log);
	return 0;
}

/* The age of a segment is that of its records: what is written late has old ones. Where its first batch has no
 * timestamp, the age is that of the segment (R-B44). */
static int64_t age_ms(const struct partition_log *log, const struct batch *batch, int64_t now_ms)
{
	const struct segment *head = head_of(log);
	int64_t latest_ms = log->config.log_append_time ? now_ms : batch->latest_ms;

	if (head->first_timestamp_ms < 0)
		return now_ms - head->begun_ms;
	return latest_ms < head->first_timestamp_ms ? 0 : latest_ms - head->first_timestamp_ms;
}

/* Offsets within a segment have 32 bits. */
static bool must_roll(const struct partition_log *log, const struct batch *batch, int64_t now_ms)
{
	const struct segment *head = head_of(log);

	if (head->bytes == 0)
		return false;
	return !segment_fits(head, (uint32_t)batch->length) ||
	       (log->config.segment_ms >= 0 && age_ms(log, batch, now_ms) > log->config.segment_ms) ||
	       head->next_offset + batch->last_offset_delta - head->base_offset > INT32_MAX;
}

static int fail(struct partition_log *log, int rc, const char *why)
{
	log->failed = true;
	log_error("broker: %s accepts no more records: %s (%s); make room and restart the broker", log->directory, why,
		strerror(-rc));
	return rc;
}

/* An empty head may be smaller than a batch: its segment.bytes, or that of the leader then, was. It becomes larger in
 * place, because another one would have the same name; while it is registered its file keeps its length (R-B14).
 * -EMSGSIZE: so it is. */
static int enlarge_head(struct partition_log *log, uint32_t bytes, struct hf_error *error)
{
	struct segment *head = head_of(log);
	int32_t last_epoch = head->last_epoch;
	int rc;

	if (head->bytes > 0 || segment_fits(head, bytes))
		return 0;
	if (head->pins > 0)
		return -EMSGSIZE;
	rc = segment_reopen(&head, 0, log->config.segment_bytes, error);
	if (rc == 0)
		head->last_epoch = last_epoch;
	return rc;
}

static enum kafka_error make_room(
	struct partition_log *log, const struct batch *batch, int64_t now_ms, struct append_result *result)
{
	struct hf_error error = {.text = "the disk is full"};
	int rc = must_roll(log, batch, now_ms) ? roll(log, &error) : enlarge_head(log, (uint32_t)batch->length, &error);

	if (rc == -EMSGSIZE) {
		result->message = "the record batch is larger than the newest segment, which clients read";
		return KAFKA_RECORD_LIST_TOO_LARGE;
	}
	if (rc == 0)
		rc = segment_prepare(head_of(log), (uint32_t)batch->length);
	if (rc == 0)
		return KAFKA_NONE;
	(void)fail(log, rc, error.text);
	return KAFKA_STORAGE_ERROR;
}

/* What is far ahead would keep its segment for as long. */
static bool is_too_late(const struct partition_log *log, const struct batch *batch, int64_t now_ms)
{
	return !log->config.log_append_time && batch->latest_ms > now_ms &&
	       batch->latest_ms - now_ms > log->config.timestamp_after_ms;
}

/* Packed records: what is not found here, consumers find, and stand at it for ever (R-B42). */
static enum kafka_error check_contents(
	const uint8_t *data, const struct batch_contents *contents, struct batch *batch, struct append_result *result)
{
	struct batch_contents found;

	if ((batch->attributes & BATCH_COMPRESSION) == 0)
		return KAFKA_NONE;
	if (contents == NULL)
		batch_contents_check(data, batch, BATCH_CONTENTS_MOST, &found);
	else
		found = *contents;
	batch->latest_ms = found.latest_ms;
	switch (found.result) {
	case BATCH_CONTENTS_RIGHT:
		break;
	case BATCH_CONTENTS_WRONG:
		result->message = "the compressed records do not unpack, or contradict their batch";
		return KAFKA_INVALID_RECORD;
	case BATCH_CONTENTS_LARGE:
		result->message = "the compressed records unpack to more than 256 MiB";
		return KAFKA_MESSAGE_TOO_LARGE;
	case BATCH_CONTENTS_NO_MEMORY:
		result->message = "there is no memory to unpack the records";
		return KAFKA_STORAGE_ERROR;
	}
	return KAFKA_NONE;
}

static enum kafka_error check_times(
	const struct partition_log *log, const struct batch *batch, int64_t now_ms, struct append_result *result)
{
	if ((batch->attributes & BATCH_LOG_APPEND_TIME) != 0) {
		result->message = "the record batch has the time type LogAppendTime, which only a broker sets";
		return KAFKA_INVALID_TIMESTAMP;
	}
	if (is_too_late(log, batch, now_ms)) {
		result->message = "a timestamp is later than message.timestamp.after.max.ms allows";
		return KAFKA_INVALID_TIMESTAMP;
	}
	return KAFKA_NONE;
}

static enum kafka_error check_batch(const struct partition_log *log, const uint8_t *data, size_t bytes, int64_t now_ms,
	const struct batch_contents *contents, struct batch *batch, struct append_result *result)
{
	enum kafka_error error;
	enum batch_verdict verdict = bytes > INT32_MAX ? BATCH_WRONG : batch_read(data, bytes, batch);

	if (verdict == BATCH_RIGHT && (size_t)batch->length > log->config.max_message_bytes) {
		result->message = "the record batch is larger than max.message.bytes";
		return KAFKA_MESSAGE_TOO_LARGE;
	}
	if (verdict == BATCH_RIGHT && (size_t)batch->length != bytes) {
		result->message = "a partition takes one record batch in a request";
		return KAFKA_INVALID_RECORD;
	}
	if (verdict == BATCH_RIGHT)
		verdict = batch_check(data, batch);
	if (verdict != BATCH_RIGHT) {
		result->message = batch_fault(verdict);
		return verdict == BATCH_WRONG || verdict == BATCH_WRONG_MAGIC ? KAFKA_INVALID_RECORD
									      : KAFKA_CORRUPT_MESSAGE;
	}
	if ((batch->attributes & (BATCH_CONTROL | BATCH_TRANSACTIONAL)) != 0) {
		result->message = "this broker has no transactions";
		return KAFKA_INVALID_RECORD;
	}
	error = check_contents(data, contents, batch, result);
	if (error == KAFKA_NONE)
		error = check_times(log, batch, now_ms, result);
	if (error != KAFKA_NONE)
		return error;
	if (batch->producer_id > (int64_t)PRODUCER_STATE_ID_MAX) {
		result->message = "this producer id was never handed out";
		return KAFKA_UNKNOWN_PRODUCER_ID;
	}
	if ((uint32_t)batch->length > log->config.segment_bytes) {
		result->message = "the record batch is larger than segment.bytes";
		return KAFKA_RECORD_LIST_TOO_LARGE;
	}
	return KAFKA_NONE;
}

static enum kafka_error check_producer(
	struct partition_log *log, const struct batch *batch, struct append_result *result)
{
	switch (producer_state_check(&log->producers, batch, &result->base_offset)) {
	case PRODUCER_NEXT:
		break;
	case PRODUCER_DUPLICATE:
		result->duplicate = true;
		break;
	case PRODUCER_GAP:
		result->message = "a batch before this one of the same producer is missing";
		return KAFKA_OUT_OF_ORDER_SEQUENCE;
	case PRODUCER_OLD_EPOCH:
		result->message = "the producer was replaced by one of a later epoch";
		return KAFKA_INVALID_PRODUCER_EPOCH;
	case PRODUCER_NO_MEMORY:
		return KAFKA_STORAGE_ERROR;
	}
	return KAFKA_NONE;
}

static enum kafka_error check_all(struct partition_log *log, const uint8_t *data, size_t bytes, int64_t now_ms,
	const struct batch_contents *contents, struct batch *batch, struct append_result *result)
{
	enum kafka_error error;

	*result = (struct append_result){.base_offset = -1, .append_time_ms = -1};
	if (log->failed) {
		result->message = "the disk of this partition failed";
		return KAFKA_STORAGE_ERROR;
	}
	error = check_batch(log, data, bytes, now_ms, contents, batch, result);
	return error == KAFKA_NONE ? check_producer(log, batch, result) : error;
}

/* The bytes get there with an epoch that was never assigned; base offset and epoch come last (R-B9). */
static void copy_batch(uint8_t *to, const uint8_t *from, uint32_t bytes)
{
	put_be32(to + 12, UINT32_MAX);
	memcpy(to + 16, from + 16, bytes - 16);
	memcpy(to + 8, from + 8, 4);
}

/* The batch, which was checked, lies at the tail: it is a part of the log now. */
static enum kafka_error take_tail(struct partition_log *log, struct batch *batch, int32_t leader_epoch, int64_t now_ms,
	struct append_result *result)
{
	struct segment *head = head_of(log);

	if (log->config.log_append_time) {
		batch_stamp(head->map + head->bytes, batch, now_ms);
		result->append_time_ms = now_ms;
	} else if (batch->latest_ms != batch->max_timestamp_ms) {
		batch_correct_time(head->map + head->bytes, batch);
	}
	if (leader_epochs_add(&log->epochs, leader_epoch, head->next_offset) != 0)
		return KAFKA_STORAGE_ERROR; /* the bytes lie behind the tail; the next batch overwrites them */
	segment_commit(head, batch, leader_epoch, now_ms);
	result->base_offset = batch->base_offset;
	/* There is memory: the check made the entry. */
	ensure(producer_state_book(&log->producers, batch, now_ms) == 0);
	log_mark_written(log->mark, head->next_offset);
	partition_log_look_ahead(log);
	flusher_look(log);
	return KAFKA_NONE;
}

enum kafka_error partition_log_append_inspected(struct partition_log *log, const uint8_t *data, size_t bytes,
	int32_t leader_epoch, int64_t now_ms, const struct batch_contents *contents, struct append_result *result)
{
	enum kafka_error error;
	struct segment *head;
	struct batch batch;

	ensure(!log->granted);
	error = check_all(log, data, bytes, now_ms, contents, &batch, result);
	if (error != KAFKA_NONE || result->duplicate)
		return error;
	error = make_room(log, &batch, now_ms, result);
	if (error != KAFKA_NONE)
		return error;
	head = head_of(log);
	copy_batch(head->map + head->bytes, data, (uint32_t)batch.length);
	return take_tail(log, &batch, leader_epoch, now_ms, result);
}

/* ---- what a holder writes by itself ---- */

void partition_log_prepare_ahead(struct partition_log *log, uint32_t end)
{
	if (!head_of(log)->ahead)
		segment_prepare_ahead(head_of(log), flusher_workers(log->flush.flusher), end);
}

/* What has pages; or so much more that the loop does not stand for long. */
static uint32_t extent_bytes(const struct segment *head, uint32_t most, uint32_t batch_bytes)
{
	uint32_t left = head->capacity - head->bytes, ready = segment_present(head) - head->bytes;
	uint32_t bytes = left < most ? left : most, soon = bytes < GRANT_BYTES ? bytes : GRANT_BYTES;

	if (bytes > ready)
		bytes = ready > soon ? ready : soon;
	return bytes < batch_bytes ? batch_bytes : bytes;
}

int partition_log_grant(struct partition_log *log, uint32_t most, uint32_t batch_bytes, struct log_extent *extent_out)
{
	struct segment *head = head_of(log);
	struct hf_error error = {.text = "the disk is full"};
	uint32_t bytes;
	int rc = log->failed ? -EIO : 0;

	ensure(!log->granted);
	if (batch_bytes > log->config.segment_bytes || batch_bytes > log->config.max_message_bytes)
		return -EMSGSIZE;
	if (rc == 0 && !segment_fits(head, batch_bytes)) {
		rc = head->bytes > 0 ? roll(log, &error) : enlarge_head(log, batch_bytes, &error);
		head = head_of(log);
	}
	if (rc == -EMSGSIZE)
		return rc;
	bytes = extent_bytes(head, most, batch_bytes);
	if (rc == 0)
		rc = segment_prepare(head, bytes);
	if (rc != 0)
		return log->failed ? rc : fail(log, rc, error.text);
	segment_pin(head);
	log->granted = true;
	*extent_out = (struct log_extent){.segment = head, .end = head->bytes + bytes, .tail = head->bytes};
	return 0;
}

enum kafka_error partition_log_commit(struct partition_log *log, const struct log_extent *extent, uint32_t bytes,
	int32_t leader_epoch, int64_t now_ms, const struct batch_contents *contents, struct append_result *result)
{
	struct segment *head = head_of(log);
	enum kafka_error error;
	struct batch batch;

	ensure(log->granted && extent->segment == head);
	if (bytes > extent->end - head->bytes) {
		*result = (struct append_result){
			.base_offset = -1, .append_time_ms = -1, .message = "the batch ends behind the extent"};
		return KAFKA_INVALID_RECORD;
	}
	error = check_all(log, head->map + head->bytes, bytes, now_ms, contents, &batch, result);
	if (error != KAFKA_NONE || result->duplicate)
		return error;
	if (batch.leader_epoch != BATCH_NO_EPOCH) {
		result->message = "the batch has a leader epoch, which the broker assigns";
		return KAFKA_INVALID_RECORD;
	}
	if (head->next_offset + batch.last_offset_delta - head->base_offset > INT32_MAX) {
		result->message = "the batch has more offsets than its segment has room for";
		return KAFKA_RECORD_LIST_TOO_LARGE;
	}
	return take_tail(log, &batch, leader_epoch, now_ms, result);
}

void partition_log_end_grant(struct partition_log *log, const struct log_extent *extent)
{
	struct segment *head = head_of(log);

	ensure(log->granted && extent->segment == head);
	memset(head->map + head->bytes, 0, extent->end - head->bytes);
	log->granted = false;
}

void partition_log_leave_grant(struct partition_log *log, const struct log_extent *extent)
{
	struct hf_error error = {.text = "a client that stands still may still write into it"};
	int rc;

	ensure(log->granted && extent->segment == head_of(log));
	log->granted = false;
	rc = head_of(log)->bytes == 0 ? -EBUSY : roll(log, &error); /* an empty one has no other name */
	if (rc != 0)
		(void)fail(log, rc, error.text);
}

/* ---- reading ---- */

static struct segment *segment_with(const struct partition_log *log, int64_t offset)
{
	for (struct list *at = log->segments.prev; at != &log->segments; at = at->prev)
		if (segment_of(at)->base_offset <= offset)
			return segment_of(at);
	return NULL;
}

enum kafka_error partition_log_find(
	const struct partition_log *log, int64_t offset, struct segment **segment_out, uint32_t *place_out)
{
	struct batch batch;

	if (offset < log->start_offset || offset > partition_log_end(log))
		return KAFKA_OFFSET_OUT_OF_RANGE;
	*segment_out = segment_with(log, offset);
	if (offset < (*segment_out)->next_offset)
		return segment_find(*segment_out, offset, place_out, &batch) ? KAFKA_NONE : KAFKA_STORAGE_ERROR;
	*place_out = (*segment_out)->bytes;
	return KAFKA_NONE;
}

enum kafka_error partition_log_read(struct partition_log *log, int64_t offset, int64_t end_offset, uint32_t most,
	bool one, struct log_span *span_out)
{
	struct segment *segment;
	struct batch batch;
	uint32_t from, to;

	*span_out = (struct log_span){0};
	if (offset < log->start_offset || offset > partition_log_end(log))
		return KAFKA_OFFSET_OUT_OF_RANGE;
	if (offset >= end_offset)
		return KAFKA_NONE;
	segment = segment_with(log, offset);
	if (segment == NULL || !segment_find(segment, offset, &from, &batch))
		return KAFKA_STORAGE_ERROR;
	to = from;
	do {
		if (batch_next_offset(&batch) > end_offset)
			break;
		if (to + (uint32_t)batch.length - from > most && !(one && to == from))
			break;
		to += (uint32_t)batch.length;
	} while (segment_at(segment, to, &batch));
	if (to == from)
		return KAFKA_NONE;
	segment_hold(segment);
	*span_out = (struct log_span){segment, segment->map + from, to - from};
	return KAFKA_NONE;
}

bool partition_log_find_time(
	const struct partition_log *log, int64_t timestamp_ms, int64_t from, struct log_batch *batch_out)
{
	uint32_t place;

	list_for_each (at, &log->segments) {
		if (!segment_find_time(segment_of(at), timestamp_ms, from, &place, &batch_out->batch))
			continue;
		batch_out->segment = segment_of(at);
		batch_out->at = segment_of(at)->map + place;
		return true;
	}
	return false;
}

bool partition_log_latest_time(const struct partition_log *log, int64_t *timestamp_out)
{
	*timestamp_out = INT64_MIN;
	list_for_each (at, &log->segments)
		if (segment_of(at)->bytes > 0 && segment_of(at)->max_timestamp_ms > *timestamp_out)
			*timestamp_out = segment_of(at)->max_timestamp_ms;
	return *timestamp_out != INT64_MIN;
}

/* ---- retention ---- */

void partition_log_advance_start(struct partition_log *log, int64_t offset)
{
	if (offset > log->start_offset)
		log->start_offset = offset;
	/* Durable before files go: a file that is missing above the mark's beginning is damage. */
	if (log_mark_started(log->mark, log->start_offset, true) != 0) {
		log_warn("broker: %s: its mark cannot be synced; records are deleted later", log->directory);
		return;
	}
	list_for_each_safe (at, &log->segments)
		if (at != log->segments.prev && segment_of(at)->next_offset <= log->start_offset)
			segment_delete(segment_of(at));
	log->flush.names = true;
}

static bool is_expired(const struct partition_log *log, const struct segment *segment, int64_t bytes, int64_t now_ms)
{
	const struct log_config *config = &log->config;

	return (config->retention_ms >= 0 && segment_latest_ms(segment) < now_ms - config->retention_ms) ||
	       (config->retention_bytes >= 0 && bytes - segment->bytes >= config->retention_bytes);
}

bool partition_log_retain(struct partition_log *log, int64_t hw, int64_t now_ms, bool may_roll)
{
	int64_t bytes = partition_log_bytes(log), start = log->start_offset;
	struct hf_error error;

	list_for_each (at, &log->segments) {
		struct segment *segment = segment_of(at);

		if (segment->bytes == 0 || segment->next_offset > hw || !is_expired(log, segment, bytes, now_ms))
			break;
		/* The last one is rolled first, so that offsets go on where they are. */
		if (at == log->segments.prev && (!may_roll || log->failed || log->granted || roll(log, &error) != 0))
			break;
		bytes -= segment->bytes;
		start = segment->next_offset;
	}
	if (start == log->start_offset)
		return false;
	partition_log_advance_start(log, start);
	return true;
}
