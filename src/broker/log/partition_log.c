/* The log of one partition. */
#include "broker/log/partition_log.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/ensure.h"
#include "base/log.h"
#include "broker/log/checkpoint.h"
#include "broker/log/partition_log_parts.h"

#define NAME_DIGITS     20
#define CHECKPOINT_MOST (16u << 20)

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

int64_t partition_log_bytes(const struct partition_log *log)
{
	int64_t bytes = 0;

	list_for_each (at, &log->segments)
		bytes += segment_of(at)->bytes;
	return bytes;
}

static void path_of(const struct partition_log *log, const char *name, char path[CHECKPOINT_PATH_BYTES])
{
	snprintf(path, CHECKPOINT_PATH_BYTES, "%s/%s", log->directory, name);
}

/* ---- checkpoints ---- */

static void write_epochs(struct partition_log *log)
{
	char *text = leader_epochs_format(&log->epochs), path[CHECKPOINT_PATH_BYTES];
	struct hf_error error;

	path_of(log, "leader-epoch-checkpoint", path);
	if (text == NULL || checkpoint_write(log->env, path, text, strlen(text), &error) != 0)
		log_warn("broker: %s; the epochs are read from the segments at the next start",
			text == NULL ? "no memory for leader epochs" : error.text);
	free(text);
}

static void write_snapshot(struct partition_log *log)
{
	size_t bytes = producer_state_snapshot_bytes(&log->producers);
	uint8_t *data = malloc(bytes);
	char name[40], path[CHECKPOINT_PATH_BYTES];
	struct hf_error error = {.text = "no memory for a snapshot of producers"};
	int rc = -ENOMEM;

	snprintf(name, sizeof(name), "%020lld.snapshot", (long long)partition_log_end(log));
	path_of(log, name, path);
	if (data != NULL) {
		producer_state_snapshot(&log->producers, data);
		rc = checkpoint_put(log->env, path, data, bytes, &error);
	}
	if (rc != 0)
		log_warn("broker: %s; producers are read from the segments at the next start", error.text);
	free(data);
}

/* ---- opening ---- */

struct found {
	int64_t *offsets;
	unsigned count, capacity;
	int64_t snapshot; /* the newest; -1: none */
	bool failed;
};

bool partition_log_parse_name(const char *name, const char *ending, int64_t *offset_out)
{
	char *end;

	if (strlen(name) != NAME_DIGITS + strlen(ending) || strcmp(name + NAME_DIGITS, ending) != 0)
		return false;
	errno = 0;
	*offset_out = strtoll(name, &end, 10);
	return end == name + NAME_DIGITS && errno == 0 && *offset_out >= 0;
}

static void file_found(const char *name, void *context)
{
	struct found *found = context;
	int64_t offset;

	if (partition_log_parse_name(name, ".snapshot", &offset) && offset > found->snapshot)
		found->snapshot = offset;
	if (!partition_log_parse_name(name, ".log", &offset))
		return;
	if (found->count == found->capacity) {
		unsigned capacity = found->capacity == 0 ? 16 : found->capacity * 2;
		int64_t *offsets = realloc(found->offsets, capacity * sizeof(*offsets));

		if (offsets == NULL) {
			found->failed = true;
			return;
		}
		found->offsets = offsets;
		found->capacity = capacity;
	}
	found->offsets[found->count++] = offset;
}

static int compare_offsets(const void *a, const void *b)
{
	int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;

	return (left > right) - (left < right);
}

static int add_segment(struct partition_log *log, int64_t base_offset, bool head, bool clean, struct hf_error *error)
{
	return partition_log_add(log, base_offset, log->config.segment_bytes, head, clean, error);
}

int partition_log_add(struct partition_log *log, int64_t base_offset, uint32_t capacity, bool head, bool clean,
	struct hf_error *error)
{
	struct segment *segment;
	uint64_t cut = 0;
	int rc = segment_open(log->env, log->directory, base_offset, capacity, log->config.index_interval_bytes, head,
		clean ? SEGMENT_WHOLE : SEGMENT_CHECK, &segment, &cut, error);

	if (rc != 0)
		return rc;
	list_push_back(&log->segments, &segment->node);
	return 0;
}

/* A segment that is not a part of the log any more keeps its bytes under another name. */
static int set_aside(struct partition_log *log, int64_t base_offset, struct hf_error *error)
{
	char name[40], from[CHECKPOINT_PATH_BYTES], to[CHECKPOINT_PATH_BYTES + 8];
	int rc;

	snprintf(name, sizeof(name), "%020lld.log", (long long)base_offset);
	path_of(log, name, from);
	snprintf(to, sizeof(to), "%s.cut", from);
	rc = hf_file_rename(log->env, from, to);
	return rc == 0 ? 0 : hf_error_set(error, rc, "cannot rename %s: %s", from, strerror(-rc));
}

/* Segment i does not follow the one before it: power was lost before that one was on the disk. The log ends there. */
static int end_at_gap(struct partition_log *log, const struct found *found, unsigned i, struct hf_error *error)
{
	struct segment *last = head_of(log);
	int64_t end = last->next_offset;

	log_error("broker: %s: the log is damaged behind offset %lld and ends there now; what followed is in the %u "
		  "files "
		  "*.log.cut",
		log->directory, (long long)end, found->count - i);
	for (; i < found->count; i++) {
		int rc = set_aside(log, found->offsets[i], error);

		if (rc != 0)
			return rc;
	}
	if (last->bytes == 0) { /* it is the head itself */
		list_remove(&last->node);
		segment_release(last);
	}
	return add_segment(log, end, true, true, error);
}

/* Segments follow each other without a gap; what comes behind the first fault is not a part of the log. */
static int open_segments(struct partition_log *log, const struct found *found, bool clean, struct hf_error *error)
{
	for (unsigned i = 0; i < found->count; i++) {
		int rc;

		if (i > 0 && head_of(log)->next_offset != found->offsets[i] && !clean)
			return end_at_gap(log, found, i, error);
		if (i > 0 && head_of(log)->next_offset != found->offsets[i])
			return hf_error_set(error, -EBADMSG,
				"%s: %020lld.log ends at offset %lld, and the next segment begins at %lld: the log is "
				"damaged; "
				"move the later segments away, or restore the directory",
				log->directory, (long long)head_of(log)->base_offset,
				(long long)head_of(log)->next_offset, (long long)found->offsets[i]);
		rc = add_segment(log, found->offsets[i], i + 1 == found->count, clean, error);
		if (rc != 0)
			return rc;
	}
	return found->count > 0 ? 0 : add_segment(log, log->start_offset, true, true, error);
}

/* Reads the producers of the newest snapshot, and books the batches behind it. */
int partition_log_load_producers(struct partition_log *log, int64_t snapshot, int64_t now_ms)
{
	char name[40], path[CHECKPOINT_PATH_BYTES], *data;
	struct batch batch;
	size_t bytes;

	snprintf(name, sizeof(name), "%020lld.snapshot", (long long)snapshot);
	path_of(log, name, path);
	if (snapshot < 0 || snapshot > partition_log_end(log) ||
		checkpoint_read(log->env, path, CHECKPOINT_MOST, &data, &bytes, NULL) != 0) {
		snapshot = -1;
	} else {
		if (producer_state_restore(&log->producers, (const uint8_t *)data, bytes, now_ms) != 0) {
			log_warn("broker: %s is damaged; producers are read from the segments", path);
			snapshot = -1;
		}
		free(data);
	}
	list_for_each (at, &log->segments) {
		struct segment *segment = segment_of(at);
		uint32_t place = 0;

		if (segment->next_offset <= snapshot)
			continue;
		for (; segment_at(segment, place, &batch); place += (uint32_t)batch.length)
			if (batch.base_offset >= snapshot && producer_state_book(&log->producers, &batch, now_ms) != 0)
				return -ENOMEM;
	}
	return 0;
}

/* The checkpoint may be older than the segments, never newer. */
static int load_epochs(struct partition_log *log)
{
	char path[CHECKPOINT_PATH_BYTES], *text;
	struct batch batch;
	size_t bytes;
	int rc;

	path_of(log, "leader-epoch-checkpoint", path);
	if (checkpoint_read(log->env, path, CHECKPOINT_MOST, &text, &bytes, NULL) == 0) {
		if (leader_epochs_parse(&log->epochs, text) != 0) {
			log_warn("broker: %s is damaged; the epochs are read from the segments", path);
			leader_epochs_free(&log->epochs);
		}
		free(text);
	}
	leader_epochs_truncate(&log->epochs, partition_log_end(log));
	list_for_each (at, &log->segments) {
		struct segment *segment = segment_of(at);
		uint32_t place = 0;

		if (log->epochs.count > 0 && segment->last_epoch <= log->epochs.at[log->epochs.count - 1].epoch)
			continue;
		for (; segment_at(segment, place, &batch); place += (uint32_t)batch.length) {
			rc = leader_epochs_add(&log->epochs, batch.leader_epoch, batch.base_offset);
			if (rc != 0)
				return rc;
		}
	}
	return 0;
}

static int load(struct partition_log *log, bool clean, int64_t now_ms, struct hf_error *error)
{
	struct found found = {.snapshot = -1};
	int rc = hf_dir_make(log->env, log->directory);

	if (rc != 0 && rc != -EEXIST)
		return hf_error_set(error, rc, "cannot make the directory %s: %s", log->directory, strerror(-rc));
	rc = hf_dir_list(log->env, log->directory, file_found, &found);
	if (rc != 0)
		hf_error_set(error, rc, "cannot read the directory %s: %s", log->directory, strerror(-rc));
	else if (found.failed)
		rc = hf_error_set(error, -ENOMEM, "no memory for the segments of %s", log->directory);
	if (rc == 0) {
		if (found.count > 0)
			qsort(found.offsets, found.count, sizeof(*found.offsets), compare_offsets);
		rc = open_segments(log, &found, clean, error);
	}
	if (rc == 0 && (load_epochs(log) != 0 || partition_log_load_producers(log, found.snapshot, now_ms) != 0))
		rc = hf_error_set(error, -ENOMEM, "no memory for the producers of %s", log->directory);
	free(found.offsets);
	return rc;
}

int partition_log_open(struct hf_env *env, const char *directory, const struct log_config *config, bool clean,
	int64_t start_offset, int64_t now_ms, struct partition_log **log_out, struct hf_error *error)
{
	struct partition_log *log = calloc(1, sizeof(*log));
	int rc;

	*log_out = NULL;
	if (log == NULL)
		return hf_error_set(error, -ENOMEM, "no memory for the log %s", directory);
	*log = (struct partition_log){.env = env, .config = *config, .start_offset = start_offset, .failed = true};
	list_init(&log->segments);
	if ((size_t)snprintf(log->directory, sizeof(log->directory), "%s", directory) >= sizeof(log->directory)) {
		free(log);
		return hf_error_set(
			error, -ENAMETOOLONG, "%.100s...: the path is too long; choose a shorter log.dirs", directory);
	}
	rc = load(log, clean, now_ms, error);
	if (rc != 0) {
		partition_log_close(log);
		return rc;
	}
	log->failed = false;
	if (log->start_offset < segment_of(log->segments.next)->base_offset)
		log->start_offset = segment_of(log->segments.next)->base_offset;
	if (log->start_offset > partition_log_end(log))
		log->start_offset = partition_log_end(log);
	*log_out = log;
	return 0;
}

static void drop_segments(struct partition_log *log, bool files)
{
	list_for_each_safe (at, &log->segments) {
		struct segment *segment = segment_of(at);

		if (files) {
			segment_delete(segment);
			continue;
		}
		if (!segment->sealed && segment_seal(segment) != 0)
			log_warn("broker: %s: the head cannot be trimmed", log->directory);
		list_remove(&segment->node);
		segment_release(segment);
	}
}

static void log_free(struct partition_log *log)
{
	producer_state_free(&log->producers);
	leader_epochs_free(&log->epochs);
	free(log);
}

void partition_log_close(struct partition_log *log)
{
	if (log == NULL)
		return;
	if (!log->failed) {
		write_snapshot(log);
		write_epochs(log);
	}
	drop_segments(log, false);
	log_free(log);
}

struct clearing {
	struct hf_env *env;
	const char *directory;
};

static void remove_file(const char *name, void *context)
{
	const struct clearing *clearing = context;
	char path[CHECKPOINT_PATH_BYTES];

	snprintf(path, sizeof(path), "%s/%s", clearing->directory, name);
	(void)hf_file_remove(clearing->env, path);
}

void partition_log_clear(struct hf_env *env, const char *directory)
{
	struct clearing clearing = {env, directory};

	(void)hf_dir_list(env, directory, remove_file, &clearing); /* a directory that is not there is clear */
}

void partition_log_remove(struct partition_log *log)
{
	int rc;

	drop_segments(log, true);
	partition_log_clear(log->env, log->directory);
	rc = hf_dir_remove(log->env, log->directory);
	if (rc != 0)
		log_warn("broker: cannot remove %s: %s; remove it by hand", log->directory, strerror(-rc));
	log_free(log);
}

/* ---- appending ---- */

static int roll(struct partition_log *log, struct hf_error *error)
{
	return partition_log_roll(log, log->config.segment_bytes, error);
}

int partition_log_roll(struct partition_log *log, uint32_t capacity, struct hf_error *error)
{
	struct segment *head = head_of(log);
	int rc = partition_log_add(log, head->next_offset, capacity, true, true, error);

	if (rc != 0)
		return rc;
	head_of(log)->last_epoch = head->last_epoch;
	rc = segment_seal(head);
	if (rc != 0)
		log_warn("broker: %s: segment %lld cannot be trimmed: %s", log->directory, (long long)head->base_offset,
			strerror(-rc));
	write_snapshot(log);
	return 0;
}

/* Offsets within a segment have 32 bits. Its age is that of its records: what is written late has old ones. */
static bool must_roll(const struct partition_log *log, const struct batch *batch)
{
	const struct segment *head = head_of(log);

	if (head->bytes == 0)
		return false;
	return !segment_fits(head, (uint32_t)batch->length) ||
	       (log->config.segment_ms >= 0 && batch->max_timestamp_ms > 0 &&
		       head->first_timestamp_ms < batch->max_timestamp_ms - log->config.segment_ms) ||
	       head->next_offset + batch->last_offset_delta - head->base_offset > INT32_MAX;
}

static int fail(struct partition_log *log, int rc, const char *why)
{
	log->failed = true;
	log_error("broker: %s takes no more records: %s (%s); make room and start the broker again", log->directory,
		why, strerror(-rc));
	return rc;
}

static int make_room(struct partition_log *log, const struct batch *batch)
{
	struct hf_error error = {.text = "the disk is full"};
	int rc = 0;

	if (must_roll(log, batch))
		rc = roll(log, &error);
	if (rc == 0)
		rc = segment_prepare(head_of(log), (uint32_t)batch->length);
	return rc == 0 ? 0 : fail(log, rc, error.text);
}

static enum kafka_error check_batch(const struct partition_log *log, const uint8_t *data, size_t bytes,
	struct batch *batch, struct append_result *result)
{
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

static enum kafka_error check_all(
	struct partition_log *log, const uint8_t *data, size_t bytes, struct batch *batch, struct append_result *result)
{
	enum kafka_error error;

	*result = (struct append_result){.base_offset = -1, .append_time_ms = -1};
	if (log->failed) {
		result->message = "the disk of this partition failed";
		return KAFKA_STORAGE_ERROR;
	}
	error = check_batch(log, data, bytes, batch, result);
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
	}
	if (leader_epochs_add(&log->epochs, leader_epoch, head->next_offset) != 0)
		return KAFKA_STORAGE_ERROR; /* the bytes lie behind the tail; the next batch overwrites them */
	segment_commit(head, batch, leader_epoch);
	result->base_offset = batch->base_offset;
	/* There is memory: the check made the entry. */
	ensure(producer_state_book(&log->producers, batch, now_ms) == 0);
	return KAFKA_NONE;
}

enum kafka_error partition_log_append(struct partition_log *log, const uint8_t *data, size_t bytes,
	int32_t leader_epoch, int64_t now_ms, struct append_result *result)
{
	enum kafka_error error;
	struct segment *head;
	struct batch batch;

	ensure(!log->granted);
	error = check_all(log, data, bytes, &batch, result);
	if (error != KAFKA_NONE || result->duplicate)
		return error;
	if (make_room(log, &batch) != 0)
		return KAFKA_STORAGE_ERROR;
	head = head_of(log);
	copy_batch(head->map + head->bytes, data, (uint32_t)batch.length);
	return take_tail(log, &batch, leader_epoch, now_ms, result);
}

/* ---- what a holder writes by itself ---- */

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
		rc = roll(log, &error);
		head = head_of(log);
	}
	if (rc == 0 && !segment_fits(head, batch_bytes))
		return -EMSGSIZE; /* the configuration has changed since */
	bytes = head->capacity - head->bytes < most ? head->capacity - head->bytes : most;
	bytes = bytes < batch_bytes ? batch_bytes : bytes;
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
	int32_t leader_epoch, int64_t now_ms, struct append_result *result)
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
	error = check_all(log, head->map + head->bytes, bytes, &batch, result);
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
	const struct partition_log *log, int64_t timestamp_ms, int64_t *offset_out, int64_t *timestamp_out)
{
	struct batch batch;
	uint32_t place;

	list_for_each (at, &log->segments) {
		if (!segment_find_time(segment_of(at), timestamp_ms, &place, &batch))
			continue;
		if (batch_last_offset(&batch) < log->start_offset)
			continue;
		batch_find_time(segment_of(at)->map + place, &batch, timestamp_ms, offset_out, timestamp_out);
		if (*offset_out < log->start_offset)
			*offset_out = log->start_offset;
		return true;
	}
	return false;
}

bool partition_log_latest_time(const struct partition_log *log, int64_t *offset_out, int64_t *timestamp_out)
{
	bool found = false;

	*timestamp_out = INT64_MIN;
	list_for_each (at, &log->segments) {
		const struct segment *segment = segment_of(at);

		if (segment->bytes == 0 || segment->max_timestamp_ms <= *timestamp_out)
			continue;
		*timestamp_out = segment->max_timestamp_ms;
		*offset_out = segment->max_timestamp_offset;
		found = true;
	}
	return found;
}

/* ---- retention ---- */

void partition_log_advance_start(struct partition_log *log, int64_t offset)
{
	if (offset > log->start_offset)
		log->start_offset = offset;
	list_for_each_safe (at, &log->segments)
		if (at != log->segments.prev && segment_of(at)->next_offset <= log->start_offset)
			segment_delete(segment_of(at));
}

static bool is_expired(const struct partition_log *log, const struct segment *segment, int64_t bytes, int64_t now_ms)
{
	const struct log_config *config = &log->config;

	return (config->retention_ms >= 0 && segment->max_timestamp_ms < now_ms - config->retention_ms) ||
	       (config->retention_bytes >= 0 && bytes - segment->bytes >= config->retention_bytes);
}

bool partition_log_retain(struct partition_log *log, int64_t now_ms, bool may_roll)
{
	int64_t bytes = partition_log_bytes(log), start = log->start_offset;
	struct hf_error error;

	list_for_each (at, &log->segments) {
		struct segment *segment = segment_of(at);

		if (segment->bytes == 0 || !is_expired(log, segment, bytes, now_ms))
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
