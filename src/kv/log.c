#include "kv/log.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "base/list.h"
#include "base/log.h"

#define BUFFER_BYTES_MIN (64u << 10)
#define SLOW_NS_PER_BYTE 100u /* 10 MB/s */
#define MARK_SYNC_NS     1000000000ull
#define WITHIN_TURN_MAX  (48u << 10) /* more goes to the helper whatever the medium: pages of a file take time too */

static bool is_synced(const struct log *log)
{
	return log->config->medium == HF_KV_FILE;
}

void kv_log_path(const struct log *log, uint64_t position, char path[LOG_PATH_BYTES])
{
	snprintf(path, LOG_PATH_BYTES, "%s/log-%016" PRIx64, log->config->log, position);
}

int kv_log_add_segment(struct log *log, uint64_t position, uint64_t bytes)
{
	if (log->segment_count == log->segment_room) {
		size_t room = log->segment_room == 0 ? 16 : 2 * log->segment_room;
		struct log_segment *segments = realloc(log->segments, room * sizeof(*segments));

		if (segments == NULL)
			return -ENOMEM;
		log->segments = segments;
		log->segment_room = room;
	}
	log->segments[log->segment_count++] = (struct log_segment){.position = position, .bytes = bytes};
	return 0;
}

int kv_log_add_life(struct log *log, uint64_t incarnation, bool moved)
{
	if (log->life_count == log->life_room) {
		size_t room = log->life_room == 0 ? 16 : 2 * log->life_room;
		struct log_life *lives = realloc(log->lives, room * sizeof(*lives));

		if (lives == NULL)
			return -ENOMEM;
		log->lives = lives;
		log->life_room = room;
	}
	if (log->life_count > 0)
		log->lives[log->life_count - 1].end = log->end;
	log->lives[log->life_count++] =
		(struct log_life){.incarnation = incarnation, .end = UINT64_MAX, .moved = moved};
	return 0;
}

uint64_t kv_log_end_of(const struct log *log, uint64_t incarnation)
{
	for (size_t i = log->life_count; i > 0; i--)
		if (log->lives[i - 1].incarnation == incarnation)
			return log->lives[i - 1].end < log->durable ? log->lives[i - 1].end : log->durable;
	return 0;
}

bool kv_log_has_ended(const struct log *log, uint64_t incarnation)
{
	for (size_t i = log->life_count; i > 0; i--) {
		if (log->lives[i - 1].incarnation == incarnation)
			return i < log->life_count;
		if (log->lives[i - 1].moved)
			return false;
	}
	return false;
}

/* ---- appending ---- */

static void fail(struct log *log, int rc)
{
	log->failed = rc;
	log_error("kv: the log in %s cannot be written: %s; make room or repair the disk, and restart this member",
		log->config->log, rc == -ENOSPC ? "the disk is full" : strerror(-rc));
}

static uint8_t *reserve(struct log_buffer *buffer, size_t bytes)
{
	size_t room = buffer->room == 0 ? BUFFER_BYTES_MIN : buffer->room;
	uint8_t *at = buffer->at;

	while (room < buffer->bytes + bytes)
		room *= 2;
	if (room > buffer->room) {
		at = realloc(buffer->at, room);
		if (at == NULL)
			return NULL;
		buffer->at = at;
		buffer->room = room;
	}
	buffer->bytes += bytes;
	return at + buffer->bytes - bytes;
}

uint64_t kv_log_append(struct log *log, struct log_entry *entry)
{
	uint64_t position = log->end;
	uint32_t bytes = kv_log_entry_bytes(entry);
	uint8_t *at;

	if (log->env == NULL || log->held)
		return 0;
	entry->flush = is_synced(log) ? 1 + (uint32_t)(log->filling.bytes / LOG_UNIT) : 0;
	at = log->failed == 0 ? reserve(&log->filling, bytes) : NULL;
	if (at == NULL) {
		if (log->failed == 0)
			fail(log, -ENOMEM);
		return position;
	}
	entry->sequence = log->sequence++;
	entry->life = log->life;
	kv_log_entry_write(entry, at);
	log->end += bytes;
	return position;
}

/* ---- a flush ---- */

static int write_all(struct hf_file *file, const void *data, size_t bytes, uint64_t offset)
{
	ssize_t n = hf_file_write_at(file, data, bytes, offset);

	return n < 0 ? (int)n : (size_t)n < bytes ? -ENOSPC : 0;
}

/* The new segment's name must be durable before anything in it counts. */
static int roll(struct log *log)
{
	struct log_flush *flush = &log->flush;
	char path[LOG_PATH_BYTES];
	int rc;

	hf_file_close(log->file);
	log->file = NULL;
	kv_log_path(log, flush->to.position, path);
	rc = hf_file_open(log->env, path, HF_FILE_WRITE | HF_FILE_CREATE | HF_FILE_TRUNCATE, &log->file);
	if (rc == 0)
		rc = write_all(log->file, flush->head, LOG_HEAD_BYTES, 0);
	return rc;
}

static int flush_run(struct hf_work *work)
{
	struct log_flush *flush = container_of(work, struct log_flush, work);
	struct log *log = container_of(flush, struct log, flush);
	uint64_t bytes;
	int rc = flush->rolls ? roll(log) : 0;

	if (rc == 0)
		rc = write_all(log->file, flush->data.at, flush->data.bytes, LOG_HEAD_BYTES + flush->to.bytes);
	if (rc == 0 && is_synced(log))
		rc = hf_file_sync_data(log->file);
	if (rc == 0 && is_synced(log) && flush->rolls)
		rc = hf_dir_sync(log->env, log->config->log);
	if (rc == 0 && flush->syncs_mark)
		rc = synced_sync(log->synced);
	/* The oldest first: what is left is always one piece. */
	for (unsigned i = 0; i < flush->removed_count && rc == 0; i++) {
		char path[LOG_PATH_BYTES];

		kv_log_path(log, flush->removed[i], path);
		rc = hf_file_remove(log->env, path);
	}
	if (hf_dir_space(log->env, log->config->log, &flush->free_bytes, &bytes) != 0)
		flush->free_bytes = UINT64_MAX;
	return rc;
}

/* Writes are refused at all members meanwhile. */
static void note_room(struct log *log, uint64_t free_bytes)
{
	uint64_t least = LOG_RESERVE_PART * log->config->segment_bytes;
	bool low = free_bytes < least;

	if (low && !log->low)
		log_error("kv: the disk of the log in %s is nearly full: %" PRIu64 " bytes are free, and the log needs "
			  "%" PRIu64 "; writes get -OOM until there is room",
			log->config->log, free_bytes, least);
	else if (!low && log->low)
		log_info("kv: the disk of the log in %s has room again", log->config->log);
	log->low = low;
}

/* The mark follows the sync, before anything is acknowledged (SYNCED-1). */
static int note_end(struct log *log, uint64_t end)
{
	struct log_mark_state *mark = &log->beside;
	int rc = synced_write(log->synced, mark->first, is_synced(log) ? end : 0, end);

	if (rc != 0)
		return rc;
	log->durable = end;
	mark->first_written = mark->first;
	if (log->flush.syncs_mark) {
		mark->synced_ns = hf_env_now_ns(log->env);
		mark->first_durable = log->flush.first_synced;
	}
	return 0;
}

static void flush_done(struct hf_work *work, int rc)
{
	struct log_flush *flush = container_of(work, struct log_flush, work);
	struct log *log = container_of(flush, struct log, flush);
	struct log_segment *last;

	log->flushing = false;
	if (rc == -ECANCELED)
		return;
	if (rc == 0 && flush->rolls)
		rc = kv_log_add_segment(log, flush->to.position, 0);
	if (rc != 0) {
		fail(log, rc);
		return;
	}
	last = &log->segments[log->segment_count - 1];
	last->bytes += flush->data.bytes;
	rc = note_end(log, last->position + last->bytes);
	if (rc != 0) {
		fail(log, rc);
		return;
	}
	note_room(log, flush->free_bytes);
	flush->data.bytes = 0;
	log->segment_count -= flush->removed_count;
	memmove(log->segments, log->segments + flush->removed_count, log->segment_count * sizeof(*log->segments));
}

/* Segments go when the mark on the disk says that the log begins behind them: else they would be missing after a loss
 * of power. The sync of a flush covers what was written behind the flush before. */
static void prepare_mark(struct log *log)
{
	struct log_mark_state *mark = &log->beside;
	struct log_flush *flush = &log->flush;

	mark->first = log->segment_count == 0 ? flush->to.position : log->segments[0].position;
	for (size_t i = 0; i + 1 < log->segment_count && log->segments[i + 1].position <= log->drop_before; i++)
		mark->first = log->segments[i + 1].position;
	flush->first_synced = mark->first_written;
	flush->syncs_mark = is_synced(log) && (hf_env_now_ns(log->env) >= mark->synced_ns + MARK_SYNC_NS ||
						      mark->first_durable != mark->first_written);
	if (!is_synced(log)) /* nothing is proven after a loss of power */
		mark->first_durable = mark->first_written;
}

/* Everything that was appended leaves, and what is to be dropped goes. */
static void prepare(struct log *log)
{
	struct log_flush *flush = &log->flush;
	struct log_buffer empty = flush->data;
	const struct log_segment *last = log->segment_count == 0 ? NULL : &log->segments[log->segment_count - 1];

	flush->data = log->filling;
	log->filling = empty;
	log->filling.bytes = 0;
	log->looks = false;
	flush->rolls = flush->data.bytes > 0 && (last == NULL || last->bytes >= log->config->segment_bytes);
	flush->to = flush->rolls ? (struct log_segment){.position = log->durable} : *last;
	if (flush->rolls) {
		struct log_head head = {
			.position = log->durable, .life = log->life, .marked = true, .incarnation = log->incarnation};
		struct log_entry first;

		ensure(kv_log_entry_read(flush->data.at, flush->data.bytes, &first));
		head.sequence = first.sequence;
		snprintf(head.cluster, sizeof(head.cluster), "%s", log->config->cluster);
		snprintf(head.member, sizeof(head.member), "%s", log->member);
		kv_log_head_write(&head, flush->head);
	}
	prepare_mark(log);
	flush->removed_count = 0;
	for (size_t i = 0; i + 1 < log->segment_count && flush->removed_count < LOG_REMOVE_MAX; i++) {
		if (log->segments[i].position + log->segments[i].bytes > log->beside.first_durable)
			break;
		flush->removed[flush->removed_count++] = log->segments[i].position;
	}
}

int kv_log_flush_now(struct log *log)
{
	ensure(!log->flushing);
	prepare(log);
	flush_done(&log->flush.work, flush_run(&log->flush.work));
	return log->failed;
}

bool kv_log_turn(struct log *log)
{
	if (log->env == NULL || log->failed != 0 || log->flushing || (log->filling.bytes == 0 && !log->looks))
		return false;
	if (!is_synced(log) && log->filling.bytes <= WITHIN_TURN_MAX) {
		(void)kv_log_flush_now(log);
		return true;
	}
	prepare(log);
	log->flush.work.run = flush_run;
	log->flush.work.done = flush_done;
	log->flushing = true;
	log->flushing_ns = hf_env_now_ns(log->env);
	ensure(hf_work_submit(log->workers, &log->flush.work) == 0);
	return true;
}

bool kv_log_hangs(const struct log *log, uint64_t patience_ns)
{
	return log->flushing &&
	       hf_env_now_ns(log->env) > log->flushing_ns + patience_ns + log->flush.data.bytes * SLOW_NS_PER_BYTE;
}

void kv_log_excuse(struct log *log, uint64_t stood_ns)
{
	log->flushing_ns += stood_ns;
}

void kv_log_drop(struct log *log, uint64_t position)
{
	log->drop_before = position;
}

/* ---- opening and closing ---- */

/* The directory, and its name in its parent. */
static int make_directory(const struct log *log)
{
	const char *slash = strrchr(log->config->log, '/');
	char parent[HF_KV_PATH_BYTES] = ".";
	int rc = hf_dir_make(log->env, log->config->log);

	if (rc != 0 && rc != -EEXIST)
		return rc;
	if (slash != NULL)
		snprintf(parent, sizeof(parent), "%.*s",
			slash == log->config->log ? 1 : (int)(slash - log->config->log), log->config->log);
	return is_synced(log) ? hf_dir_sync(log->env, parent) : 0;
}

static int lock(struct log *log, struct hf_error *error)
{
	const char *directory = log->config->log;
	char path[LOG_PATH_BYTES];
	int rc = make_directory(log);

	if (rc != 0)
		return hf_error_set(
			error, rc, "kv: the directory %s of the log cannot be made: %s", directory, strerror(-rc));
	snprintf(path, sizeof(path), "%s/lock", directory);
	rc = hf_file_open(log->env, path, HF_FILE_WRITE | HF_FILE_CREATE, &log->lock);
	if (rc != 0)
		return hf_error_set(error, rc, "kv: cannot open %s: %s", path, strerror(-rc));
	rc = hf_file_lock(log->lock);
	if (rc == -EAGAIN)
		return hf_error_set(error, rc,
			"kv: another process uses the log in %s; end it, or give this member another `log`", directory);
	return rc == 0 ? 0 : hf_error_set(error, rc, "kv: cannot lock %s: %s", path, strerror(-rc));
}

/* On the disk, with its name, before a segment says that it is there. */
static int begin_mark(struct log *log)
{
	uint64_t first = log->segment_count == 0 ? log->end : log->segments[0].position;
	int rc = synced_write(log->synced, first, is_synced(log) ? log->durable : 0, log->durable);

	if (rc == 0)
		rc = synced_sync(log->synced);
	return rc != 0 ? rc : hf_dir_sync(log->env, log->config->log);
}

/* A life of its own, durable before anything follows. */
static int begin_life(struct log *log, bool moved, struct hf_error *error)
{
	struct log_entry entry = {.kind = LOG_LIFE, .ts = {.version = log->incarnation, .join = moved}};
	int rc = kv_log_add_life(log, log->incarnation, moved);

	if (rc != 0)
		return hf_error_set(error, rc, "no memory for a log");
	log->life++;
	log->durable = log->end;
	(void)kv_log_append(log, &entry);
	if (log->damaged)
		log->mark = kv_log_append(log, &(struct log_entry){.kind = LOG_WIPE});
	if (!log->damaged)
		rc = begin_mark(log);
	if (rc == 0)
		rc = kv_log_flush_now(log);
	if (rc == 0)
		rc = synced_sync(log->synced);
	return rc == 0 ? 0
		       : hf_error_set(error, rc,
				 "kv: the log in %s cannot be written: %s; make room or repair the disk, and restart",
				 log->config->log, strerror(-rc));
}

static int open_mark(struct log *log, struct synced_proof *proof_out, struct hf_error *error)
{
	char path[LOG_PATH_BYTES], owner[SYNCED_OWNER_BYTES];

	snprintf(path, sizeof(path), "%s/synced", log->config->log);
	snprintf(owner, sizeof(owner), "%.31s/%.31s", log->config->cluster, log->member);
	return synced_open(log->env, path, owner, &log->synced, proof_out, error);
}

int kv_log_open(struct log *log, struct hf_loop *loop, const struct hf_kv_config *config, const char *member,
	uint64_t incarnation, log_reader *reader, void *context, struct hf_error *error)
{
	struct synced_proof proof;
	int rc;

	*log = (struct log){.env = hf_loop_env(loop), .config = config, .member = member, .incarnation = incarnation};
	rc = lock(log, error);
	if (rc == 0)
		rc = open_mark(log, &proof, error);
	if (rc == 0)
		rc = kv_log_read_all(log, &proof, reader, context, error);
	if (rc == 0 && !log->held)
		rc = begin_life(log, !proof.same, error);
	if (rc == 0)
		rc = hf_workers_open(loop, "kv-log", 1, 1, &log->workers, error);
	if (rc != 0)
		log->failed = rc;
	return rc;
}

int kv_log_begin_anew(struct log *log, struct hf_error *error)
{
	int rc = kv_log_set_aside(log);

	if (rc != 0)
		rc = hf_error_set(error, rc, "kv: the damaged log in %s cannot be set aside: %s", log->config->log,
			strerror(-rc));
	log->held = false;
	log->life_count = 0;
	if (rc == 0)
		rc = begin_life(log, true, error);
	if (rc != 0)
		log->failed = rc;
	return rc;
}

void kv_log_close(struct log *log)
{
	if (log->env == NULL)
		return;
	hf_workers_close(log->workers);
	log->workers = NULL;
	if (log->failed == 0 && log->filling.bytes > 0 && log->flush.data.bytes == 0)
		(void)kv_log_flush_now(log);
	synced_close(log->synced, log->failed == 0 && log->filling.bytes == 0 && log->durable == log->end);
	hf_file_close(log->file);
	hf_file_close(log->lock);
	free(log->segments);
	free(log->lives);
	free(log->filling.at);
	free(log->flush.data.at);
	*log = (struct log){0};
}
