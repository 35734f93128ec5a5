/* The directory of a partition's log: its checkpoints, what opening reads from it, closing, removing. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "broker/log/checkpoint.h"
#include "broker/log/next_segment.h"
#include "broker/log/partition_log_parts.h"

#define NAME_DIGITS     20
#define CHECKPOINT_MOST (80u << 20)

static struct segment *segment_of(struct list *node)
{
	return container_of(node, struct segment, node);
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

void partition_log_write_snapshot(struct partition_log *log)
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

static int add_segment(struct partition_log *log, int64_t base_offset, uint32_t capacity, int64_t end_offset,
	bool clean, struct hf_error *error)
{
	struct segment *segment;
	int rc = segment_open(log->env, log->directory, base_offset, capacity, log->config.index_interval_bytes,
		end_offset, clean ? SEGMENT_WHOLE : SEGMENT_CHECK, &segment, NULL, error);

	if (rc != 0)
		return rc;
	list_push_back(&log->segments, &segment->node);
	log->flush.names = true;
	return 0;
}

int partition_log_add(struct partition_log *log, int64_t base_offset, uint32_t capacity, struct hf_error *error)
{
	return add_segment(log, base_offset, capacity, SEGMENT_HEAD, true, error);
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
	struct segment *last = partition_log_head(log);
	int64_t end = last->next_offset;

	log_error("broker: %s: the log is damaged behind offset %lld and now ends there; the rest is in the %u files "
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
	return partition_log_add(log, end, log->config.segment_bytes, error);
}

/* Segments follow each other without a gap; what comes behind the first fault is not a part of the log. */
static int open_segments(struct partition_log *log, const struct found *found, bool clean, struct hf_error *error)
{
	for (unsigned i = 0; i < found->count; i++) {
		int rc;

		if (i > 0 && partition_log_head(log)->next_offset != found->offsets[i] && !clean)
			return end_at_gap(log, found, i, error);
		if (i > 0 && partition_log_head(log)->next_offset != found->offsets[i])
			return hf_error_set(error, -EBADMSG,
				"%s: %020lld.log ends at offset %lld, and the next segment begins at %lld: the log is "
				"damaged; "
				"move the later segments away, or restore the directory",
				log->directory, (long long)partition_log_head(log)->base_offset,
				(long long)partition_log_head(log)->next_offset, (long long)found->offsets[i]);
		rc = add_segment(log, found->offsets[i], log->config.segment_bytes,
			i + 1 == found->count ? SEGMENT_HEAD : found->offsets[i + 1], clean, error);
		if (rc != 0)
			return rc;
	}
	return found->count > 0 ? 0 : partition_log_add(log, log->start_offset, log->config.segment_bytes, error);
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

struct clearing {
	struct hf_env *env;
	const char *directory;
	bool next_only; /* of segments that were made ahead */
};

static void remove_file(const char *name, void *context)
{
	const struct clearing *clearing = context;
	char path[CHECKPOINT_PATH_BYTES];

	if (clearing->next_only && !next_segment_is_name(name))
		return;
	snprintf(path, sizeof(path), "%s/%s", clearing->directory, name);
	(void)hf_file_remove(clearing->env, path);
}

static int load(struct partition_log *log, bool clean, int64_t now_ms, struct hf_error *error)
{
	struct clearing leftovers = {log->env, log->directory, true};
	struct found found = {.snapshot = -1};
	int rc = hf_dir_make(log->env, log->directory);

	if (rc != 0 && rc != -EEXIST)
		return hf_error_set(error, rc, "cannot make the directory %s: %s", log->directory, strerror(-rc));
	(void)hf_dir_list(log->env, log->directory, remove_file, &leftovers);
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
	next_segment_drop(log->next);
	log->next = NULL;
}

static void log_free(struct partition_log *log)
{
	flusher_remove(log);
	producer_state_free(&log->producers);
	leader_epochs_free(&log->epochs);
	free(log);
}

int partition_log_close(struct partition_log *log)
{
	int rc;

	if (log == NULL)
		return 0;
	rc = log->failed ? -EIO : 0;
	if (!log->failed) {
		partition_log_write_snapshot(log);
		write_epochs(log);
		rc = flusher_flush(log);
		if (rc != 0)
			log_error("broker: %s cannot be synced: %s", log->directory, strerror(-rc));
	}
	drop_segments(log, false);
	log_free(log);
	return rc;
}

void partition_log_clear(struct hf_env *env, const char *directory)
{
	struct clearing clearing = {env, directory, false};

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
