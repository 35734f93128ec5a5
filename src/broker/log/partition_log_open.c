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
#define ASIDE           ".aside"
#define PROBE_BYTES     65536u

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
	struct log_files *found = context;
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

int partition_log_list(const struct partition_log *log, struct log_files *files, struct hf_error *error)
{
	int rc;

	*files = (struct log_files){.snapshot = -1};
	rc = hf_dir_list(log->env, log->directory, file_found, files);
	if (rc != 0)
		hf_error_set(error, rc, "cannot read the directory %s: %s", log->directory, strerror(-rc));
	else if (files->failed)
		rc = hf_error_set(error, -ENOMEM, "no memory for the segments of %s", log->directory);
	else if (files->count > 0)
		qsort(files->offsets, files->count, sizeof(*files->offsets), compare_offsets);
	return rc;
}

static void any_found(const char *name, void *context)
{
	int64_t unused;

	*(bool *)context |= partition_log_parse_name(name, ".log", &unused);
}

bool partition_log_has_files(struct hf_env *env, const char *directory)
{
	bool any = false;

	return hf_dir_list(env, directory, any_found, &any) != 0 || any;
}

int partition_log_add(struct partition_log *log, int64_t base_offset, uint32_t capacity, struct hf_error *error)
{
	struct segment *segment;
	int rc = segment_make(
		log->env, log->directory, base_offset, capacity, log->config.index_interval_bytes, &segment, error);

	if (rc != 0)
		return rc;
	list_push_back(&log->segments, &segment->node);
	log->flush.names = true;
	return 0;
}

/* Segments follow each other without a gap. Reads files until one does not end where the next one begins; how many. */
static int read_segments(struct partition_log *log, const struct log_files *found, const struct log_proof *proof,
	unsigned *count_out, struct hf_error *error)
{
	for (unsigned i = 0; i < found->count; i++) {
		int64_t end = i + 1 == found->count ? SEGMENT_HEAD : found->offsets[i + 1];
		bool last = end == SEGMENT_HEAD, below = end <= log_verdict_proven(proof);
		struct segment *segment;
		int rc = segment_open(log->env, log->directory, found->offsets[i], log->config.index_interval_bytes,
			end, !proof->damaged && (proof->closed || below) ? SEGMENT_INDEX : SEGMENT_CHECK, &segment,
			error);

		if (rc != 0)
			return rc;
		list_push_back(&log->segments, &segment->node);
		*count_out = i + 1;
		if (!last && segment->next_offset != found->offsets[i + 1])
			return 0;
	}
	return 0;
}

static void drop_all(struct partition_log *log)
{
	while (!list_empty(&log->segments)) {
		struct segment *segment = segment_of(log->segments.next);

		list_remove(&segment->node);
		segment_release(segment);
	}
}

/* Nothing is changed: the log has what can be read before the damage, and takes no records. */
static int keep_damaged(struct partition_log *log, struct hf_error *error)
{
	struct log_verdict *verdict = &log->verdict;
	struct segment *last;

	if (list_empty(&log->segments) || segment_of(log->segments.next)->base_offset > verdict->end) {
		drop_all(log);
		last = segment_absent(log->env, log->directory, verdict->end);
		if (last == NULL)
			return hf_error_set(error, -ENOMEM, "no memory for the log %s", log->directory);
		list_push_back(&log->segments, &last->node);
	}
	last = partition_log_head(log);
	verdict->file = last->base_offset;
	verdict->place = last->bytes;
	partition_log_damage(log);
	return 0;
}

/* Ends the log behind the last right batch; what is not a part of it any more is kept under other names. */
static int cut_tail(struct partition_log *log, const struct log_files *found, unsigned count, struct hf_error *error)
{
	struct segment *last = partition_log_head(log);
	int rc = 0;

	if (log->verdict.state == LOG_TORN) {
		log_warn("broker: %s ends at offset %lld; what lies behind was not whole, and is kept in "
			 "%020lld.log.cut%s",
			log->directory, (long long)log->verdict.end, (long long)last->base_offset,
			count < found->count ? " and the later files *.log.cut" : "");
		rc = segment_keep_rest(last, last->bytes, ".cut", error);
	}
	for (unsigned i = count; i < found->count && rc == 0; i++)
		rc = partition_log_set_aside(log, found->offsets[i], ".cut", error);
	return rc;
}

/* Each but the last one is sealed, and that takes records. */
static int begin_segments(struct partition_log *log, struct hf_error *error)
{
	struct segment *last = partition_log_head(log);

	list_for_each (at, &log->segments) {
		struct segment *segment = segment_of(at);
		int rc = segment == last || segment->sealed ? 0 : segment_seal(segment);

		if (rc != 0)
			log_warn("broker: %s: the indexes of segment %lld cannot be written: %s", log->directory,
				(long long)segment->base_offset, strerror(-rc));
		if (segment == last && at->prev != &log->segments && last->bytes == 0)
			last->last_epoch = segment_of(at->prev)->last_epoch;
	}
	log->flush.names = true;
	return segment_begin(last, log->config.segment_bytes, error);
}

static int open_segments(struct partition_log *log, const struct log_files *found, bool closed, struct hf_error *error)
{
	struct log_proof proof = log->mark == NULL ? (struct log_proof){0} : log->mark->before;
	struct log_found seen = {log->start_offset, log->start_offset, false};
	unsigned count = 0;
	bool rest = false;
	int rc;

	proof.closed = closed && (proof.closed || !proof.known);
	rc = read_segments(log, found, &proof, &count, error);
	if (rc != 0)
		return rc;
	if (count > 0) {
		seen = (struct log_found){found->offsets[0], partition_log_end(log), count < found->count};
		rest = segment_has_rest(partition_log_head(log));
	} else if (proof.known) {
		seen.start = seen.end = proof.start;
	}
	log->verdict = log_verdict_of(&proof, &seen, rest);
	if (log->verdict.state == LOG_DAMAGED)
		return keep_damaged(log, error);
	if (count == 0)
		return partition_log_add(log, log->start_offset, log->config.segment_bytes, error);
	rc = cut_tail(log, found, count, error);
	return rc == 0 ? begin_segments(log, error) : rc;
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

static bool has_epoch(const struct partition_log *log, int64_t offset, int32_t epoch, bool begins)
{
	struct segment *segment;
	struct batch batch;
	uint32_t place;

	if (offset < log->start_offset || offset < segment_of(log->segments.next)->base_offset)
		return true; /* it is deleted */
	return partition_log_find(log, offset, &segment, &place) == KAFKA_NONE && segment_at(segment, place, &batch) &&
	       batch.leader_epoch == epoch && (!begins || batch.base_offset == offset);
}

/* Epochs rise within a log: where those at both sides of each beginning are right, all are. */
static bool epochs_are_right(const struct partition_log *log)
{
	const struct leader_epochs *epochs = &log->epochs;

	if (epochs->count > 0 && epochs->at[0].start_offset > segment_of(log->segments.next)->base_offset)
		return false;
	for (unsigned i = 0; i < epochs->count; i++) {
		int64_t end = i + 1 < epochs->count ? epochs->at[i + 1].start_offset : partition_log_end(log);

		if (!has_epoch(log, epochs->at[i].start_offset, epochs->at[i].epoch, true))
			return false;
		if (i + 1 < epochs->count && !has_epoch(log, end - 1, epochs->at[i].epoch, false))
			return false;
	}
	return true;
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
		bool is_right = leader_epochs_parse(&log->epochs, text) == 0;

		leader_epochs_truncate(&log->epochs, partition_log_end(log));
		if (!is_right || !epochs_are_right(log)) {
			log_warn("broker: %s is damaged; the epochs are read from the segments", path);
			leader_epochs_free(&log->epochs);
		}
		free(text);
	}
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
	bool keep_aside;
};

static void remove_file(const char *name, void *context)
{
	const struct clearing *clearing = context;
	char path[CHECKPOINT_PATH_BYTES];

	if (clearing->next_only && !next_segment_is_name(name))
		return;
	if (clearing->keep_aside && strstr(name, ASIDE) != NULL)
		return;
	snprintf(path, sizeof(path), "%s/%s", clearing->directory, name);
	(void)hf_file_remove(clearing->env, path);
}

static int load(struct partition_log *log, bool closed, int64_t now_ms, struct hf_error *error)
{
	struct clearing leftovers = {log->env, log->directory, true, false};
	struct log_files found = {0};
	int rc = hf_dir_make(log->env, log->directory);

	if (rc != 0 && rc != -EEXIST)
		return hf_error_set(error, rc, "cannot make the directory %s: %s", log->directory, strerror(-rc));
	(void)hf_dir_list(log->env, log->directory, remove_file, &leftovers);
	rc = partition_log_list(log, &found, error);
	if (rc == 0)
		rc = open_segments(log, &found, closed, error);
	if (rc == 0 && (load_epochs(log) != 0 || partition_log_load_producers(log, found.snapshot, now_ms) != 0))
		rc = hf_error_set(error, -ENOMEM, "no memory for the producers of %s", log->directory);
	free(found.offsets);
	return rc;
}

static void set_start(struct partition_log *log)
{
	if (log->mark != NULL &&
		log->mark->before.known) /* the checkpoint is a text, that a byte may have changed in */
		log->start_offset = log->mark->before.start;
	if (log->start_offset < segment_of(log->segments.next)->base_offset)
		log->start_offset = segment_of(log->segments.next)->base_offset;
	if (log->start_offset > partition_log_end(log))
		log->start_offset = partition_log_end(log);
}

int partition_log_open(struct hf_env *env, const char *directory, const struct log_config *config,
	struct log_mark *mark, bool closed, int64_t start_offset, int64_t now_ms, struct partition_log **log_out,
	struct hf_error *error)
{
	struct partition_log *log = calloc(1, sizeof(*log));
	int rc;

	*log_out = NULL;
	if (log == NULL) {
		log_mark_release(mark);
		return hf_error_set(error, -ENOMEM, "no memory for the log %s", directory);
	}
	*log = (struct partition_log){
		.env = env, .config = *config, .mark = mark, .start_offset = start_offset, .failed = true};
	list_init(&log->segments);
	if ((size_t)snprintf(log->directory, sizeof(log->directory), "%s", directory) >= sizeof(log->directory)) {
		log_mark_release(mark);
		free(log);
		return hf_error_set(
			error, -ENAMETOOLONG, "%.100s...: the path is too long; choose a shorter log.dirs", directory);
	}
	rc = load(log, closed, now_ms, error);
	if (rc != 0) {
		drop_all(log);
		partition_log_close(log);
		return rc;
	}
	set_start(log);
	log->failed = log->verdict.state == LOG_DAMAGED;
	if (!log->failed) {
		log_mark_whole(mark);
		if (log_mark_started(mark, log->start_offset, true) != 0)
			log_warn("broker: %s: its mark cannot be synced", log->directory);
		log_mark_written(mark, partition_log_end(log));
	}
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
		if (!segment->sealed && log->verdict.state != LOG_DAMAGED && segment_seal(segment) != 0)
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
	log_mark_release(log->mark);
	producer_state_free(&log->producers);
	leader_epochs_free(&log->epochs);
	free(log);
}

int partition_log_close(struct partition_log *log)
{
	int rc;

	if (log == NULL)
		return 0;
	rc = log->failed && log->verdict.state != LOG_DAMAGED ? -EIO : 0;
	if (!log->failed) {
		partition_log_write_snapshot(log);
		write_epochs(log);
		rc = flusher_flush(log);
		if (rc != 0)
			log_error("broker: %s cannot be synced: %s", log->directory, strerror(-rc));
		else
			log_mark_closed(log->mark);
	}
	drop_segments(log, false);
	log_free(log);
	return rc;
}

void partition_log_clear(struct hf_env *env, const char *directory)
{
	struct clearing clearing = {env, directory, false, false};

	(void)hf_dir_list(env, directory, remove_file, &clearing); /* a directory that is not there is clear */
}

int partition_log_clear_aside(struct hf_env *env, const char *directory, struct hf_error *error)
{
	struct clearing clearing = {env, directory, false, true};
	struct partition_log shell = {.env = env};
	struct log_files files;
	int rc;

	if ((size_t)snprintf(shell.directory, sizeof(shell.directory), "%s", directory) >= sizeof(shell.directory))
		return hf_error_set(error, -ENAMETOOLONG, "%.100s...: the path is too long", directory);
	rc = partition_log_list(&shell, &files, error);
	for (unsigned i = 0; i < files.count && rc == 0; i++) {
		struct segment *segment;
		bool some;

		rc = segment_open(env, directory, files.offsets[i], 0, SEGMENT_HEAD, SEGMENT_WHOLE, &segment, error);
		if (rc != 0)
			break;
		some = segment->bytes > 0 || segment_has_rest(segment);
		segment_release(segment);
		if (!some)
			continue;
		log_error("broker: %s has records of a topic that is not known; they are kept in files *" ASIDE,
			directory);
		rc = partition_log_set_aside(&shell, files.offsets[i], ASIDE, error);
	}
	free(files.offsets);
	if (rc == -ENOENT)
		return 0; /* there is no directory */
	if (rc == 0)
		(void)hf_dir_list(env, directory, remove_file, &clearing);
	return rc;
}

int partition_log_probe(struct partition_log *log, struct hf_error *error)
{
	int rc = segment_probe(partition_log_head(log), PROBE_BYTES);

	return rc == 0 ? 0 : hf_error_set(error, rc, "cannot make pages of %s: %s", log->directory, strerror(-rc));
}

void partition_log_remove(struct partition_log *log)
{
	int rc;

	drop_segments(log, true);
	partition_log_clear(log->env, log->directory);
	log_mark_free(log->mark); /* now: a log without a mark is not whole (R-D9) */
	log->mark = NULL;
	rc = hf_dir_remove(log->env, log->directory);
	if (rc != 0)
		log_warn("broker: cannot remove %s: %s; remove it by hand", log->directory, strerror(-rc));
	log_free(log);
}
