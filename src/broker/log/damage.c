/* Damage of a log: what is reported, and how a log goes on without what cannot be read (R-D2, R-D7). */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "broker/log/checkpoint.h"
#include "broker/log/partition_log_parts.h"

#define ENDING_BYTES 24u
#define ENDINGS_MOST 1000u

static struct segment *segment_of(struct list *node)
{
	return container_of(node, struct segment, node);
}

static void path_of(
	const struct partition_log *log, int64_t base_offset, const char *ending, char path[CHECKPOINT_PATH_BYTES])
{
	snprintf(path, CHECKPOINT_PATH_BYTES, "%s/%020lld.log%s", log->directory, (long long)base_offset, ending);
}

void partition_log_damage(struct partition_log *log)
{
	const struct log_verdict *verdict = &log->verdict;

	log->failed = true;
	log_mark_damaged(log->mark, verdict->proven);
	log_error("broker: %s/%020lld.log is damaged at byte %u: offset %lld cannot be read, and there were records "
		  "below "
		  "offset %lld: %s; the partition is not served here, and no file is changed; another replica that "
		  "leads repairs it; or restore the directory from a backup; or set unclean.leader.election.enable of "
		  "the topic and restart the broker to give up the records from offset %lld on",
		log->directory, (long long)verdict->file, verdict->place, (long long)verdict->end,
		(long long)verdict->proven, verdict->fault, (long long)verdict->end);
}

void partition_log_found_damage(
	struct partition_log *log, const struct segment *segment, uint32_t place, int64_t offset, const char *fault)
{
	log->verdict = (struct log_verdict){.state = LOG_DAMAGED,
		.end = offset,
		.proven = partition_log_end(log),
		.file = segment->base_offset,
		.place = place,
		.fault = fault};
	partition_log_damage(log);
}

int partition_log_set_aside(
	const struct partition_log *log, int64_t base_offset, const char *ending, struct hf_error *error)
{
	char from[CHECKPOINT_PATH_BYTES], to[CHECKPOINT_PATH_BYTES];
	int rc;

	path_of(log, base_offset, "", from);
	path_of(log, base_offset, ending, to);
	rc = hf_file_rename(log->env, from, to);
	return rc == 0 ? 0 : hf_error_set(error, rc, "cannot rename %s: %s", from, strerror(-rc));
}

/* One that no file has yet: what an earlier damage has left stays. */
static void pick_ending(const struct partition_log *log, int64_t base_offset, char ending[ENDING_BYTES])
{
	char path[CHECKPOINT_PATH_BYTES];
	struct hf_file *file;

	snprintf(ending, ENDING_BYTES, ".damaged");
	for (unsigned i = 2; i < ENDINGS_MOST; i++) {
		path_of(log, base_offset, ending, path);
		if (hf_file_open(log->env, path, 0, &file) != 0)
			return;
		hf_file_close(file);
		snprintf(ending, ENDING_BYTES, ".damaged.%u", i);
	}
}

/* Files of segments that begin behind this one. */
static int set_aside_behind(const struct partition_log *log, int64_t base_offset, struct hf_error *error)
{
	char ending[ENDING_BYTES];
	struct log_files files;
	int rc = partition_log_list(log, &files, error);

	for (unsigned i = 0; i < files.count && rc == 0; i++) {
		if (files.offsets[i] <= base_offset)
			continue;
		pick_ending(log, files.offsets[i], ending);
		rc = partition_log_set_aside(log, files.offsets[i], ending, error);
	}
	free(files.offsets);
	return rc;
}

static int keep(const struct partition_log *log, const struct segment *segment, struct hf_error *error)
{
	char ending[ENDING_BYTES];
	int rc = 0;

	if (segment->file != NULL) {
		pick_ending(log, segment->base_offset, ending);
		rc = segment_keep_rest(segment, log->verdict.place, ending, error);
	}
	return rc == 0 ? set_aside_behind(log, segment->base_offset, error) : rc;
}

static int begin_again(struct partition_log *log, struct segment *segment, struct hf_error *error)
{
	int rc = log_mark_lower(log->mark, log->verdict.end);

	if (rc != 0)
		return hf_error_set(error, rc, "cannot sync the mark of %s: %s", log->directory, strerror(-rc));
	if (segment->file != NULL)
		return partition_log_make_head(log, segment, log->verdict.place, log->config.segment_bytes, error);
	rc = partition_log_add(log, segment->base_offset, log->config.segment_bytes, error);
	if (rc != 0)
		return rc;
	list_remove(&segment->node);
	segment_release(segment);
	flusher_cut(log);
	return 0;
}

int partition_log_cut_damage(struct partition_log *log, int64_t now_ms, struct hf_error *error)
{
	struct segment *segment = partition_log_head(log);
	int rc;

	for (; segment->base_offset != log->verdict.file; segment = segment_of(segment->node.prev))
		if (segment->pins > 0)
			return hf_error_set(error, -EBUSY, "segment %lld of %s is still registered",
				(long long)segment->base_offset, log->directory);
	if (segment->pins > 0)
		return hf_error_set(error, -EBUSY, "segment %lld of %s is still registered",
			(long long)segment->base_offset, log->directory);
	rc = keep(log, segment, error);
	if (rc == 0)
		rc = begin_again(log, segment, error);
	if (rc != 0)
		return rc;
	log_warn("broker: %s goes on at offset %lld, where it was damaged; what could not be read, and what followed, "
		 "is "
		 "kept in the files *.damaged",
		log->directory, (long long)log->verdict.end);
	log->verdict = (struct log_verdict){.state = LOG_WHOLE, .end = log->verdict.end};
	log->failed = false;
	if (log->start_offset > partition_log_end(log))
		log->start_offset = partition_log_end(log);
	return partition_log_forget_behind(log, now_ms, error);
}
