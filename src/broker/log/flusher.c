/* Flushes. */
#include "broker/log/flusher.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "base/log.h"
#include "broker/log/partition_log.h"

#define THREADS 4u

/* One flush of one log. It may outlive the log. */
struct flush {
	struct hf_work work;
	struct hf_env *env;
	struct flusher *flusher;
	struct partition_log *log; /* NULL: it is closed */
	char directory[SEGMENT_PATH_BYTES];
	int64_t to;
	bool names, stale; /* stale: the log was cut since */
	unsigned count;
	struct segment *segments[]; /* held */
};

static struct segment *segment_of(struct list *node)
{
	return container_of(node, struct segment, node);
}

/* ---- on a helper thread ---- */

/* A segment is lost with its name, and the log with that of its directory. */
static int sync_names(const struct flush *flush)
{
	char parent[SEGMENT_PATH_BYTES], *slash;
	int rc = hf_dir_sync(flush->env, flush->directory);

	snprintf(parent, sizeof(parent), "%s", flush->directory);
	slash = strrchr(parent, '/');
	if (slash != NULL)
		slash[slash == parent] = '\0';
	return rc != 0 ? rc : hf_dir_sync(flush->env, slash == NULL ? "." : parent);
}

/* Stores into the mappings of a file are its content. */
static int flush_run(struct hf_work *work)
{
	const struct flush *flush = container_of(work, struct flush, work);
	int rc = 0;

	for (unsigned i = 0; i < flush->count && rc == 0; i++)
		rc = hf_file_sync_data(flush->segments[i]->file);
	return rc == 0 && flush->names ? sync_names(flush) : rc;
}

/* ---- on the loop ---- */

static void flush_free(struct flush *flush)
{
	for (unsigned i = 0; i < flush->count; i++)
		segment_release(flush->segments[i]);
	free(flush);
}

/* Of all segments with records that are not durable. NULL: no memory. */
static struct flush *flush_make(struct partition_log *log)
{
	unsigned count = 0;
	struct flush *flush;

	list_for_each (at, &log->segments)
		count++;
	flush = calloc(1, sizeof(*flush) + count * sizeof(struct segment *));
	if (flush == NULL)
		return NULL;
	flush->env = log->env;
	flush->flusher = log->flush.flusher;
	flush->log = log;
	flush->to = partition_log_end(log);
	flush->names = log->flush.names;
	snprintf(flush->directory, sizeof(flush->directory), "%s", log->directory);
	list_for_each (at, &log->segments) {
		if (segment_of(at)->next_offset <= log->flush.done)
			continue;
		segment_hold(segment_of(at));
		flush->segments[flush->count++] = segment_of(at);
	}
	return flush;
}

static void book(struct partition_log *log, int64_t to)
{
	log->flush.done = to;
	log_mark_synced(log->mark, to);
	log->flush.since_ns = log->flush.flusher == NULL ? 0 : hf_loop_now_ns(log->flush.flusher->loop);
}

static void fail(struct partition_log *log, int rc)
{
	log->failed = true;
	log_mark_failed(log->mark);
	log_error("broker: %s accepts no more records: the sync failed: %s; repair the disk and restart the broker",
		log->directory, strerror(-rc));
}

static void flush_done(struct hf_work *work, int rc)
{
	struct flush *flush = container_of(work, struct flush, work);
	struct flusher *flusher = flush->flusher;
	struct partition_log *log = flush->log;
	bool stale = flush->stale;
	int64_t to = flush->to;

	flush_free(flush);
	if (log == NULL) {
		if (rc != 0 && rc != -ECANCELED)
			flusher->error = rc;
		return;
	}
	log->flush.under_way = NULL;
	if (rc != 0)
		fail(log, rc); /* what is on the disk is not known, and the next sync would not say */
	else if (!stale)
		book(log, to);
	if (log->flush.told != NULL)
		log->flush.told(log, log->flush.owner);
	if (log->flush.due > log->flush.done)
		flusher_start(log);
}

static int open_workers(struct flusher *flusher)
{
	struct hf_error error;
	int rc = flusher->workers != NULL ? 0
					  : hf_workers_open(flusher->loop, "broker-flush", THREADS, UINT32_MAX,
						    &flusher->workers, &error);

	if (rc != 0)
		log_error("%s", error.text);
	return rc;
}

struct hf_workers *flusher_workers(struct flusher *flusher)
{
	return flusher != NULL && open_workers(flusher) == 0 ? flusher->workers : NULL;
}

void flusher_start(struct partition_log *log)
{
	struct log_flush *state = &log->flush;
	struct flush *flush;
	int rc;

	if (state->under_way != NULL || log->failed)
		return;
	flush = flush_make(log);
	rc = flush == NULL ? -ENOMEM : open_workers(state->flusher);
	if (rc != 0) {
		if (flush != NULL)
			flush_free(flush);
		fail(log, rc);
		return;
	}
	flush->work.run = flush_run;
	flush->work.done = flush_done;
	state->under_way = flush;
	state->names = false;
	ensure(hf_work_submit(state->flusher->workers, &flush->work) == 0);
}

/* ---- flush.ms ---- */

static void ticked(struct hf_timer *timer, uint64_t now_ns)
{
	struct flusher *flusher = container_of(timer, struct flusher, timer);

	flusher->ticks = false;
	list_for_each (at, &flusher->logs) {
		struct partition_log *log = container_of(at, struct partition_log, flush.node);
		int64_t age_ms = (int64_t)((now_ns - log->flush.since_ns) / 1000000);

		if (log->config.flush_ms == FLUSH_NEVER || partition_log_end(log) == log->flush.done || log->failed)
			continue;
		flusher->ticks = true;
		if (age_ms >= log->config.flush_ms)
			flusher_start(log);
	}
	if (flusher->ticks)
		hf_loop_set_timer(flusher->loop, timer, now_ns + flusher->interval_ns);
}

static void tick(struct flusher *flusher)
{
	if (flusher->ticks)
		return;
	flusher->ticks = true;
	hf_loop_set_timer(flusher->loop, &flusher->timer, hf_loop_now_ns(flusher->loop) + flusher->interval_ns);
}

/* ---- logs ---- */

void flusher_look(struct partition_log *log)
{
	struct log_flush *state = &log->flush;
	int64_t from = state->due > state->done ? state->due : state->done, end;

	if (state->flusher == NULL ||
		(log->config.flush_messages == FLUSH_NEVER && log->config.flush_ms == FLUSH_NEVER))
		return;
	end = partition_log_end(log);
	if (end - from >= log->config.flush_messages) {
		state->due = end;
		flusher_start(log);
	}
	if (log->config.flush_ms != FLUSH_NEVER && end > state->done)
		tick(state->flusher);
}

void flusher_cut(struct partition_log *log)
{
	struct log_flush *state = &log->flush;
	int64_t end = partition_log_end(log);

	if (state->under_way != NULL)
		state->under_way->stale = true;
	state->done = state->done < end ? state->done : end;
	state->due = state->due < end ? state->due : end;
	state->names = true;
	if (state->flusher != NULL && state->due > state->done)
		flusher_start(log);
}

int flusher_flush(struct partition_log *log)
{
	struct flush *flush = flush_make(log);
	int rc = -ENOMEM;

	if (flush == NULL)
		return rc;
	flush->names = true; /* what is under way may have them still to do */
	rc = flush_run(&flush->work);
	if (rc == 0) {
		log->flush.done = flush->to;
		log_mark_synced(log->mark, flush->to);
	} else {
		log_mark_failed(log->mark);
	}
	flush_free(flush);
	return rc;
}

/* The life before has synced that much. */
static int64_t synced_before(const struct partition_log *log)
{
	int64_t from = segment_of(log->segments.next)->base_offset, end = partition_log_end(log);
	int64_t synced = log->mark == NULL ? 0 : log->mark->synced;

	return synced < from ? from : synced > end ? end : synced;
}

/* The disk may have refused pages that the life before wrote, and the process ended before a sync could say so: memory
 * has them as if they were written. They are written again (R-D9). */
static void dirty(struct partition_log *log)
{
	list_for_each (at, &log->segments)
		if (segment_of(at)->next_offset > log->flush.done)
			segment_dirty(segment_of(at));
	if (log->config.flush_messages != FLUSH_NEVER)
		return; /* they are synced next */
	log->flush.due = partition_log_end(log);
	flusher_start(log);
}

int flusher_add(struct flusher *flusher, struct partition_log *log, struct hf_error *error)
{
	struct log_flush *state = &log->flush;
	int rc;

	state->done = state->due = synced_before(log);
	state->names = true;
	state->flusher = flusher;
	book(log, state->done);
	list_push_back(&flusher->logs, &state->node);
	log_checks_go(flusher);
	if (log->failed || partition_log_end(log) == state->done)
		return 0;
	if (log->mark != NULL && log->mark->before.same_boot)
		dirty(log);
	if (log->config.flush_messages == FLUSH_NEVER)
		return 0;
	rc = flusher_flush(log);
	if (rc != 0)
		return hf_error_set(error, rc, "cannot sync %s: %s", log->directory, strerror(-rc));
	state->due = state->done;
	state->names = false;
	return 0;
}

void flusher_remove(struct partition_log *log)
{
	struct log_flush *state = &log->flush;

	if (state->flusher == NULL)
		return;
	log_checks_forget(&state->flusher->checks, log);
	if (state->under_way != NULL)
		state->under_way->log = NULL;
	list_remove(&state->node);
	state->flusher = NULL;
}

/* ---- opening ---- */

void flusher_open(struct flusher *flusher, struct hf_loop *loop, uint64_t interval_ns)
{
	*flusher = (struct flusher){.loop = loop, .timer = {.fire = ticked}, .interval_ns = interval_ns};
	list_init(&flusher->logs);
	log_checks_init(&flusher->checks);
}

int flusher_close(struct flusher *flusher)
{
	int error;

	if (flusher->loop == NULL)
		return 0;
	ensure(list_empty(&flusher->logs));
	hf_loop_cancel_timer(flusher->loop, &flusher->timer);
	log_checks_close(&flusher->checks, flusher->loop);
	hf_workers_close(flusher->workers);
	error = flusher->error;
	*flusher = (struct flusher){0};
	return error;
}
