/* The log of a partition as a follower has it. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "broker/log/checkpoint.h"
#include "broker/log/next_segment.h"
#include "broker/log/partition_log_parts.h"

static struct segment *segment_of(struct list *node)
{
	return container_of(node, struct segment, node);
}

/* ---- taking over ---- */

/* The one batch at the tail; its length, or 0 and why. */
static uint32_t accept_one(
	struct partition_log *log, uint32_t bytes, int32_t leader_epoch, int64_t now_ms, const char **wrong_out)
{
	struct segment *head = partition_log_head(log);
	const uint8_t *at = head->map + head->bytes;
	struct batch batch;
	enum batch_verdict verdict = batch_read(at, bytes, &batch);

	if (verdict == BATCH_RIGHT)
		verdict = batch_check(at, &batch);
	*wrong_out =
		verdict != BATCH_RIGHT                   ? batch_fault(verdict)
		: batch.base_offset != head->next_offset ? "the batch does not begin where the log ends"
		: batch.leader_epoch < 0 || batch.leader_epoch < head->last_epoch || batch.leader_epoch > leader_epoch
			? "the batch has an epoch that it cannot have"
		: leader_epochs_add(&log->epochs, batch.leader_epoch, batch.base_offset) != 0 ||
				producer_state_book(&log->producers, &batch, now_ms) != 0
			? "there is no memory"
			: NULL;
	if (*wrong_out != NULL)
		return 0;
	segment_accept(head, &batch, now_ms);
	return (uint32_t)batch.length;
}

const char *partition_log_accept(struct partition_log *log, uint32_t bytes, int32_t leader_epoch, int64_t now_ms)
{
	struct segment *head = partition_log_head(log);
	const char *wrong = bytes > head->capacity - head->bytes ? "the bytes lie beyond the segment" : NULL;

	while (wrong == NULL && bytes > 0)
		bytes -= accept_one(log, bytes, leader_epoch, now_ms, &wrong);
	log_mark_written(log->mark, partition_log_end(log));
	partition_log_look_ahead(log);
	flusher_look(log);
	return wrong;
}

void partition_log_verify_on(struct partition_log *log, uint32_t place, int32_t leader_epoch, int64_t now_ms)
{
	struct segment *head = partition_log_head(log);
	const char *wrong;

	while (head->bytes < place && accept_one(log, place - head->bytes, leader_epoch, now_ms, &wrong) > 0)
		continue;
	if (head->bytes < place)
		memset(head->map + head->bytes, 0, place - head->bytes);
	log_mark_written(log->mark, partition_log_end(log));
	flusher_look(log);
}

/* ---- cutting ---- */

struct snapshots {
	struct partition_log *log;
	int64_t newest, end;
};

/* Those behind the end are of records that are gone. */
static void snapshot_found(const char *name, void *context)
{
	struct snapshots *snapshots = context;
	char path[CHECKPOINT_PATH_BYTES];
	int64_t offset;

	if (!partition_log_parse_name(name, ".snapshot", &offset))
		return;
	if (offset <= snapshots->end) {
		if (offset > snapshots->newest)
			snapshots->newest = offset;
		return;
	}
	snprintf(path, sizeof(path), "%s/%s", snapshots->log->directory, name);
	(void)hf_file_remove(snapshots->log->env, path);
}

int partition_log_forget_behind(struct partition_log *log, int64_t now_ms, struct hf_error *error)
{
	struct snapshots snapshots = {.log = log, .newest = -1, .end = partition_log_end(log)};

	leader_epochs_truncate(&log->epochs, snapshots.end);
	producer_state_free(&log->producers);
	(void)hf_dir_list(log->env, log->directory, snapshot_found, &snapshots);
	if (partition_log_load_producers(log, snapshots.newest, now_ms) != 0)
		return hf_error_set(error, -ENOMEM, "no memory for the producers of %s", log->directory);
	return 0;
}

/* Of the batch that begins at this place; the tail's is the end. */
static int64_t offset_at(const struct segment *segment, uint32_t place)
{
	struct batch batch;

	return segment_at(segment, place, &batch) ? batch.base_offset : segment->next_offset;
}

/* The log went on in this segment; its head is what comes behind `place`. A file that is registered keeps its length,
 * and what may still be written into it belongs to no other (R-B14). */
int partition_log_make_head(
	struct partition_log *log, struct segment *segment, uint32_t place, uint32_t capacity, struct hf_error *error)
{
	int rc;

	if (segment->pins > 0)
		return hf_error_set(error, -EBUSY, "segment %lld of %s is still registered",
			(long long)segment->base_offset, log->directory);
	rc = log_mark_lower(log->mark, offset_at(segment, place));
	if (rc != 0)
		return hf_error_set(error, rc, "cannot sync the mark of %s: %s", log->directory, strerror(-rc));
	while (partition_log_head(log) != segment)
		segment_delete(partition_log_head(log));
	rc = segment_reopen(&segment, place, capacity, error);
	if (rc != 0) {
		log->failed = true;
		return rc;
	}
	if (segment->node.prev != &log->segments && segment->bytes == 0)
		segment->last_epoch = segment_of(segment->node.prev)->last_epoch;
	flusher_cut(log);
	return 0;
}

int partition_log_truncate(struct partition_log *log, int64_t offset, int64_t now_ms, struct hf_error *error)
{
	struct segment *segment = partition_log_head(log);
	struct batch batch;
	uint32_t place;
	int rc;

	if (offset >= partition_log_end(log))
		return 0;
	while (segment->base_offset > offset && segment->node.prev != &log->segments)
		segment = segment_of(segment->node.prev);
	if (segment->base_offset > offset)
		return partition_log_restart(log, offset, error);
	place = segment->bytes;
	if (offset < segment->next_offset && !segment_find(segment, offset, &place, &batch))
		return hf_error_set(
			error, -EBADMSG, "%s has no batch at offset %lld", log->directory, (long long)offset);
	rc = partition_log_make_head(log, segment, place, log->config.segment_bytes, error);
	if (rc != 0)
		return rc;
	if (log->start_offset > partition_log_end(log))
		log->start_offset = partition_log_end(log);
	return partition_log_forget_behind(log, now_ms, error);
}

int partition_log_cut_epochs(struct partition_log *log, int32_t most, int64_t now_ms, struct hf_error *error)
{
	const struct leader_epochs *epochs = &log->epochs;
	struct segment *segment;
	unsigned i = epochs->count;
	uint32_t place;

	while (i > 0 && epochs->at[i - 1].epoch > most)
		i--;
	if (i == epochs->count)
		return 0;
	if (log->mark != NULL && epochs->at[i].start_offset < log_verdict_proven(&log->mark->before) &&
		partition_log_locate(log, epochs->at[i].start_offset, &segment, &place)) {
		partition_log_found_damage(
			log, segment, place, epochs->at[i].start_offset, "the batch has an epoch that no leader had");
		return hf_error_set(error, -EBADMSG, "%s is damaged", log->directory);
	}
	log_error("broker: %s is cut at offset %lld: batches from there on have leader epochs up to %d, and no leader "
		  "had one above %d",
		log->directory, (long long)epochs->at[i].start_offset, epochs->at[epochs->count - 1].epoch, most);
	return partition_log_truncate(log, epochs->at[i].start_offset, now_ms, error);
}

/* The segment that the log is to have, which is in no list; one with its name in the log has no name any more. */
static int make_first(struct partition_log *log, int64_t offset, struct segment **first_out, struct hf_error *error)
{
	struct next_segment *next;
	int rc = next_segment_make_now(log->env, log->directory, log->config.segment_bytes, &next);

	if (rc != 0)
		return hf_error_set(error, rc, "cannot make a segment in %s: %s", log->directory, strerror(-rc));
	*first_out = next_segment_take(
		next, log->directory, offset, log->config.segment_bytes, log->config.index_interval_bytes);
	if (*first_out != NULL)
		return 0;
	next_segment_drop(next);
	return hf_error_set(error, -EIO, "cannot rename a segment in %s", log->directory);
}

/* There is always a segment: the new one is made before the others go. */
int partition_log_restart(struct partition_log *log, int64_t offset, struct hf_error *error)
{
	struct snapshots snapshots = {.log = log, .newest = -1, .end = -1};
	struct segment *first;
	int rc = log_mark_lower(log->mark, 0);

	if (rc != 0)
		hf_error_set(error, rc, "cannot sync the mark of %s: %s", log->directory, strerror(-rc));
	else
		rc = make_first(log, offset, &first, error);
	if (rc != 0) {
		log->failed = true;
		return rc;
	}
	while (!list_empty(&log->segments))
		if (partition_log_head(log)->base_offset == offset)
			segment_delete_replaced(partition_log_head(log));
		else
			segment_delete(partition_log_head(log));
	list_push_back(&log->segments, &first->node);
	leader_epochs_free(&log->epochs);
	producer_state_free(&log->producers);
	(void)hf_dir_list(log->env, log->directory, snapshot_found, &snapshots);
	flusher_cut(log);
	log->start_offset = offset;
	log_mark_restarted(log->mark, offset);
	return 0;
}

/* ---- the same places ---- */

int partition_log_arrange(
	struct partition_log *log, int64_t base_offset, uint32_t place, uint32_t capacity, struct hf_error *error)
{
	struct segment *head = partition_log_head(log), *before;
	int rc = 0;

	if (head->base_offset != base_offset && head->next_offset == base_offset && place == 0 && head->bytes > 0)
		return partition_log_roll(log, capacity, error);
	/* The leader has not rolled there. */
	if (head->base_offset > base_offset && head->bytes == 0 && head->node.prev != &log->segments) {
		before = segment_of(head->node.prev);
		rc = partition_log_make_head(log, before, before->bytes, capacity, error);
		head = partition_log_head(log);
	}
	if (rc == 0 && (head->base_offset != base_offset || head->bytes != place))
		return hf_error_set(
			error, -EXDEV, "the head of %s is at another place than the leader's", log->directory);
	if (rc == 0 && (head->sealed || head->capacity < capacity))
		rc = partition_log_make_head(log, head, head->bytes, capacity, error);
	return rc;
}

bool partition_log_locate(
	const struct partition_log *log, int64_t offset, struct segment **segment_out, uint32_t *place_out)
{
	struct segment *segment = partition_log_head(log);
	struct batch batch;

	while (segment->base_offset > offset && segment->node.prev != &log->segments)
		segment = segment_of(segment->node.prev);
	*segment_out = segment;
	*place_out = segment->bytes;
	if (segment == partition_log_head(log) && offset == segment->next_offset)
		return true;
	return segment_find(segment, offset, place_out, &batch) && batch.base_offset == offset;
}
