/* Checks of segments. */
#include "broker/log/log_checks.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/ensure.h"
#include "base/log.h"
#include "broker/log/partition_log.h"

#define PIECE_BYTES      (1u << 20)
#define BYTES_PER_SECOND (100u << 20)
#define NS_PER_SECOND    1000000000ull

/* Of one segment, as it was when the check began. */
struct log_check {
	struct hf_work work;
	struct flusher *flusher;
	struct partition_log *log; /* NULL: it is closed */
	struct segment *segment;   /* held */
	uint32_t bytes;
	int64_t end_offset;
	/* What was right. */
	uint32_t place;
	int64_t offset;
	int32_t epoch;
	int64_t latest_ms, latest_offset;
	const char *fault; /* NULL: all of it is */
};

static struct segment *segment_of(struct list *node)
{
	return container_of(node, struct segment, node);
}

/* ---- on a helper thread ---- */

/* The batch at the front of `bytes` bytes; 0: more bytes are needed, or it is wrong. */
static uint32_t check_batch(struct log_check *check, const uint8_t *at, size_t bytes)
{
	struct batch batch;
	enum batch_verdict verdict = batch_read(at, bytes, &batch);

	if (verdict == BATCH_SHORT)
		return 0;
	if (verdict == BATCH_RIGHT)
		verdict = batch_check(at, &batch);
	if (verdict != BATCH_RIGHT)
		check->fault = batch_fault(verdict);
	else if (batch.base_offset != check->offset || !batch_epoch_is_whole(batch.leader_epoch) ||
		 batch.leader_epoch < check->epoch)
		check->fault = "the batch has an offset or an epoch that it cannot have";
	if (check->fault != NULL)
		return 0;
	if (batch.max_timestamp_ms > check->latest_ms) {
		check->latest_ms = batch.max_timestamp_ms;
		check->latest_offset = batch_last_offset(&batch);
	}
	check->offset = batch_next_offset(&batch);
	check->epoch = batch.leader_epoch;
	return (uint32_t)batch.length;
}

/* The whole batches of a piece; how many bytes they have. */
static uint32_t check_piece(struct log_check *check, const uint8_t *piece, size_t bytes)
{
	uint32_t done = 0, n;

	while (done < bytes && (n = check_batch(check, piece + done, bytes - done)) > 0)
		done += n;
	return done;
}

/* How much has to be read for the batch at the front; 0: it cannot be whole. */
static size_t need_of(const struct log_check *check, const uint8_t *piece, size_t bytes)
{
	uint64_t need = bytes < BATCH_LENGTH_END ? 0 : (uint64_t)get_be32(piece + 8) + BATCH_LENGTH_END;

	return need <= bytes || need > check->bytes - check->place ? 0 : (size_t)need;
}

static int check_run(struct hf_work *work)
{
	struct log_check *check = container_of(work, struct log_check, work);
	size_t room = PIECE_BYTES;
	uint8_t *piece = malloc(room), *more;

	while (piece != NULL && check->place < check->bytes && check->fault == NULL) {
		uint32_t left = check->bytes - check->place, done;
		ssize_t n = hf_file_read_at(check->segment->file, piece, left < room ? left : room, check->place);

		if (n <= 0) {
			check->fault = n < 0 ? "the disk cannot read it" : "the file is shorter";
			break;
		}
		done = check_piece(check, piece, (size_t)n);
		check->place += done;
		if (done > 0 || check->fault != NULL)
			continue;
		room = need_of(check, piece, (size_t)n);
		if (room == 0) {
			check->fault = "the batch is longer than what there is of it";
			break;
		}
		more = realloc(piece, room);
		if (more == NULL)
			free(piece);
		piece = more;
	}
	if (piece != NULL && check->fault == NULL && check->offset != check->end_offset)
		check->fault = "records are missing at its end";
	free(piece);
	return piece == NULL ? -ENOMEM : 0;
}

/* ---- on the loop ---- */

/* It may have been cut, or deleted, since. */
static bool is_current(const struct log_check *check)
{
	if (check->log == NULL || check->log->failed)
		return false;
	list_for_each (at, &check->log->segments)
		if (segment_of(at) == check->segment)
			return check->segment->bytes >= check->bytes;
	return false;
}

/* The index on the disk, which the start has read, was wrong; without it times are found by a search. */
static void correct_times(const struct log_check *check)
{
	struct segment *segment = check->segment;

	log_warn("broker: the time index of segment %lld in %s was wrong; it is not used",
		(long long)segment->base_offset, segment->directory);
	segment->max_timestamp_ms = check->latest_ms;
	segment->max_timestamp_offset = check->latest_offset;
	segment_index_free(&segment->times);
}

static bool conclude(struct log_check *check)
{
	struct partition_log *log = check->log;

	check->segment->checked = true;
	if (check->fault == NULL && check->segment->sealed && check->latest_ms != check->segment->max_timestamp_ms)
		correct_times(check);
	if (check->fault == NULL || !is_current(check))
		return false;
	partition_log_found_damage(log, check->segment, check->place, check->offset, check->fault);
	return true;
}

static void check_done(struct hf_work *work, int rc)
{
	struct log_check *check = container_of(work, struct log_check, work);
	struct flusher *flusher = check->flusher;
	struct partition_log *log = check->log;
	bool damaged = rc == 0 && conclude(check);
	uint64_t pause_ns = (uint64_t)check->bytes * NS_PER_SECOND / BYTES_PER_SECOND;

	flusher->checks.under_way = NULL;
	segment_release(check->segment);
	free(check);
	if (rc == -ECANCELED)
		return;
	if (damaged && log->flush.told != NULL)
		log->flush.told(log, log->flush.owner);
	flusher->checks.due = true;
	hf_loop_set_timer(flusher->loop, &flusher->checks.timer, hf_loop_now_ns(flusher->loop) + pause_ns);
}

/* The newest one that was not checked; NULL: all are. */
static struct segment *unchecked(const struct partition_log *log)
{
	for (struct list *at = log->segments.prev; at != &log->segments && !log->failed; at = at->prev)
		if (!segment_of(at)->checked)
			return segment_of(at);
	return NULL;
}

static void begin(struct flusher *flusher, struct partition_log *log, struct segment *segment)
{
	struct hf_workers *workers = flusher_workers(flusher);
	struct log_check *check = workers == NULL ? NULL : malloc(sizeof(*check));

	if (check == NULL)
		return; /* at a later start */
	*check = (struct log_check){.work = {.run = check_run, .done = check_done},
		.flusher = flusher,
		.log = log,
		.segment = segment,
		.bytes = segment->bytes,
		.end_offset = segment->next_offset,
		.offset = segment->base_offset,
		.epoch = -1,
		.latest_ms = INT64_MIN};
	segment_hold(segment);
	flusher->checks.under_way = check;
	ensure(hf_work_submit(workers, &check->work) == 0);
}

void log_checks_go(struct flusher *flusher)
{
	if (flusher->checks.under_way != NULL || flusher->checks.due)
		return;
	list_for_each (at, &flusher->logs) {
		struct partition_log *log = container_of(at, struct partition_log, flush.node);
		struct segment *segment = unchecked(log);

		if (segment == NULL)
			continue;
		begin(flusher, log, segment);
		return;
	}
}

static void due(struct hf_timer *timer, uint64_t now_ns)
{
	struct flusher *flusher = container_of(timer, struct flusher, checks.timer);

	(void)now_ns;
	flusher->checks.due = false;
	log_checks_go(flusher);
}

void log_checks_init(struct log_checks *checks)
{
	*checks = (struct log_checks){.timer = {.fire = due, .quiet = true}};
}

void log_checks_close(struct log_checks *checks, struct hf_loop *loop)
{
	hf_loop_cancel_timer(loop, &checks->timer);
}

void log_checks_forget(struct log_checks *checks, const struct partition_log *log)
{
	if (checks->under_way != NULL && checks->under_way->log == log)
		checks->under_way->log = NULL;
}
