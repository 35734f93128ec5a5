/* Reading a log: which segments there are, whose they are, and their entries up to the first that does not follow. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "kv/log.h"

#define PREFIX  "log-"
#define CUT     "cut-"     /* what was torn */
#define DAMAGED "damaged-" /* position and incarnation of the process that found it so */
#define DIGITS  16

#define PIECE_BYTES (2u << 20)

_Static_assert(PIECE_BYTES > LOG_ENTRY_BYTES + LOG_UNIT + HF_KV_KEY_BYTES_MAX + HF_KV_VALUE_BYTES_MAX, "an entry fits");

struct scan {
	struct log *log;
	log_reader *reader;
	void *context;
	uint8_t *piece;      /* of a segment */
	uint64_t *positions; /* that the names say */
	size_t count, room;
	bool marked;              /* a segment was begun beside a mark */
	uint64_t proven;          /* behind the break, by an entry there */
	bool goes_on;             /* the last file does, behind the last entry that was read */
	bool is_segment, follows; /* the last one: it has a head, and continues the one before */
	int rc;
};

/* ---- names ---- */

static void found(const char *name, void *context)
{
	struct scan *scan = context;
	char *end;
	uint64_t position;

	if (strncmp(name, PREFIX, strlen(PREFIX)) != 0 || strlen(name) != strlen(PREFIX) + DIGITS)
		return;
	position = strtoull(name + strlen(PREFIX), &end, 16);
	if (*end != '\0')
		return;
	if (scan->count == scan->room) {
		size_t room = scan->room == 0 ? 64 : 2 * scan->room;
		uint64_t *positions = realloc(scan->positions, room * sizeof(*positions));

		if (positions == NULL) {
			scan->rc = -ENOMEM;
			return;
		}
		scan->positions = positions;
		scan->room = room;
	}
	scan->positions[scan->count++] = position;
}

static int by_position(const void *a, const void *b)
{
	uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;

	return left < right ? -1 : left > right;
}

/* ---- one segment ---- */

static int read_file(struct log *log, uint64_t position, uint8_t **data_out, size_t *bytes_out)
{
	char path[LOG_PATH_BYTES];
	struct hf_file *file;
	int64_t size;
	ssize_t n;
	int rc;

	*data_out = NULL;
	kv_log_path(log, position, path);
	rc = hf_file_open(log->env, path, 0, &file);
	if (rc != 0)
		return rc;
	size = hf_file_bytes(file);
	if (size >= 0)
		*data_out = malloc((size_t)size + 1);
	n = size < 0 ? size : *data_out == NULL ? -ENOMEM : hf_file_read_at(file, *data_out, (size_t)size, 0);
	hf_file_close(file);
	*bytes_out = n < 0 ? 0 : (size_t)n;
	return n < 0 ? (int)n : 0;
}

static int set_unread(const struct log *log, int rc, struct hf_error *error)
{
	return hf_error_set(error, rc, "kv: the log in %s cannot be read: %s", log->config->log, strerror(-rc));
}

static int check_owner(const struct log *log, const struct log_head *head, struct hf_error *error)
{
	if (strcmp(head->cluster, log->config->cluster) == 0 && strcmp(head->member, log->member) == 0)
		return 0;
	return hf_error_set(error, -EINVAL,
		"kv: the log in %s is that of member %s of cluster %s, and this is %s of %s; give each member a `log` "
		"of its own",
		log->config->log, head->member, head->cluster, log->member, log->config->cluster);
}

/* The entries in these bytes, LOG_BATCH at most, up to the first that does not follow or is not whole. */
static int read_batch(struct scan *scan, const uint8_t *at, size_t bytes, size_t *used_out, struct hf_error *error)
{
	struct log *log = scan->log;
	struct log_entry entries[LOG_BATCH];
	uint64_t positions[LOG_BATCH];
	unsigned n = 0;

	*used_out = 0;
	while (n < LOG_BATCH && kv_log_entry_read(at + *used_out, bytes - *used_out, &entries[n]) &&
		kv_log_entry_follows(&entries[n], log->sequence, log->life)) {
		const struct log_entry *entry = &entries[n];

		log->sequence++;
		log->life = entry->life;
		if (entry->kind == LOG_MARK)
			log->mark = entry->ts.version;
		else if (entry->kind == LOG_WIPE)
			log->mark = log->end;
		else if (entry->kind == LOG_LIFE && kv_log_add_life(log, entry->ts.version, entry->ts.join != 0) != 0)
			return set_unread(log, -ENOMEM, error);
		positions[n++] = log->end;
		*used_out += kv_log_entry_bytes(entry);
		log->end += kv_log_entry_bytes(entry);
	}
	log->segments[log->segment_count - 1].bytes += *used_out;
	return n == 0 ? 0 : scan->reader(scan->context, entries, positions, n, error);
}

/* Its entries, up to the first that does not follow. A piece of the file is in memory at a time. */
static int read_entries(struct scan *scan, struct hf_file *file, struct hf_error *error)
{
	uint64_t offset = LOG_HEAD_BYTES;
	size_t from = 0, end = 0, used = 1;
	bool more = true;
	int rc = 0;

	while (rc == 0 && (used > 0 || more)) {
		if (used == 0 || end == 0) {
			ssize_t n;

			memmove(scan->piece, scan->piece + from, end - from);
			end -= from;
			from = 0;
			n = hf_file_read_at(file, scan->piece + end, PIECE_BYTES - end, offset);
			if (n < 0)
				return set_unread(scan->log, (int)n, error);
			more = (size_t)n == PIECE_BYTES - end && n > 0;
			offset += (size_t)n;
			end += (size_t)n;
		}
		rc = read_batch(scan, scan->piece + from, end - from, &used, error);
		from += used;
	}
	scan->goes_on = end > from;
	return rc;
}

static int take_segment(struct scan *scan, const struct log_head *head, struct hf_file *file, struct hf_error *error)
{
	struct log *log = scan->log;
	int rc = 0;

	if (log->segment_count == 0) {
		log->end = log->mark = head->position;
		log->sequence = head->sequence;
		log->life = head->life;
		rc = kv_log_add_life(log, head->incarnation, false);
	}
	scan->follows = head->position == log->end && head->sequence == log->sequence && head->life >= log->life;
	if (rc == 0 && scan->follows)
		rc = kv_log_add_segment(log, head->position, 0);
	if (rc != 0)
		return set_unread(log, rc, error);
	return scan->follows ? read_entries(scan, file, error) : 0;
}

static int read_segment(struct scan *scan, uint64_t position, struct hf_error *error)
{
	struct log *log = scan->log;
	char path[LOG_PATH_BYTES];
	struct hf_file *file = NULL;
	struct log_head head;
	ssize_t n;
	int rc;

	kv_log_path(log, position, path);
	rc = hf_file_open(log->env, path, 0, &file);
	n = rc != 0 ? rc : hf_file_read_at(file, scan->piece, LOG_HEAD_BYTES, 0);
	if (n >= 0) {
		scan->is_segment = kv_log_head_read(scan->piece, (size_t)n, &head) && head.position == position;
		scan->follows = false;
		if (kv_log_head_is_foreign(scan->piece, (size_t)n))
			rc = hf_error_set(error, -EPROTO,
				"kv: %s has the layout of another version; run that version, or give this member "
				"an empty `log`: it copies all records from the others",
				path);
		if (scan->is_segment)
			rc = check_owner(log, &head, error);
		scan->marked |= scan->is_segment && head.marked;
		if (rc == 0 && scan->is_segment)
			rc = take_segment(scan, &head, file, error);
	} else {
		rc = set_unread(log, (int)n, error);
	}
	hf_file_close(file);
	return rc;
}

/* ---- what a sync may have lost ---- */

/* Pages that a failed sync left behind count as clean, so another sync alone writes nothing. */
static int write_again(struct log *log, const struct log_segment *segment)
{
	uint64_t from = segment->position > log->mark ? 0 : log->mark - segment->position;
	char path[LOG_PATH_BYTES];
	struct hf_file *file;
	uint8_t *data = NULL;
	size_t bytes;
	ssize_t n;
	int rc;

	if (from >= segment->bytes)
		return 0;
	rc = read_file(log, segment->position, &data, &bytes);
	kv_log_path(log, segment->position, path);
	if (rc == 0)
		rc = hf_file_open(log->env, path, HF_FILE_WRITE, &file);
	if (rc != 0) {
		free(data);
		return rc;
	}
	bytes = (size_t)(segment->bytes - from);
	n = hf_file_write_at(file, data + LOG_HEAD_BYTES + from, bytes, LOG_HEAD_BYTES + from);
	rc = n < 0 ? (int)n : (size_t)n < bytes ? -ENOSPC : hf_file_sync_data(file);
	hf_file_close(file);
	free(data);
	return rc;
}

/* ---- what is not read ---- */

/* Bytes behind the end of the last segment, which were never acknowledged. */
static int keep_tail(struct log *log, const struct log_segment *segment)
{
	char path[LOG_PATH_BYTES], kept[LOG_PATH_BYTES];
	struct hf_file *file = NULL;
	uint8_t *data = NULL;
	size_t bytes = 0, end = (size_t)(LOG_HEAD_BYTES + segment->bytes);
	int rc = read_file(log, segment->position, &data, &bytes);

	if (rc != 0 || bytes <= end) {
		free(data);
		return rc;
	}
	kv_log_path(log, segment->position, path);
	snprintf(kept, sizeof(kept), "%s/" CUT "%016" PRIx64, log->config->log, segment->position);
	rc = hf_file_open(log->env, kept, HF_FILE_WRITE | HF_FILE_CREATE | HF_FILE_TRUNCATE, &file);
	if (rc == 0)
		rc = hf_file_write_at(file, data + end, bytes - end, 0) == (ssize_t)(bytes - end) ? hf_file_sync(file)
												  : -ENOSPC;
	hf_file_close(file);
	free(data);
	if (rc == 0)
		rc = hf_file_open(log->env, path, HF_FILE_WRITE, &file);
	if (rc != 0)
		return rc;
	rc = hf_file_resize(file, end);
	hf_file_close(file);
	log_warn("kv: %s is torn behind offset %zu, as a loss of power leaves it; the %zu bytes there were not "
		 "acknowledged, "
		 "and are kept in %s",
		path, end, bytes - end, kept);
	return rc;
}

/* Segments behind the last one that is read. */
static int keep_behind(struct scan *scan)
{
	struct log *log = scan->log;
	int rc = 0;

	for (size_t i = scan->count; i > log->segment_count && rc == 0; i--) {
		char path[LOG_PATH_BYTES], kept[LOG_PATH_BYTES];

		kv_log_path(log, scan->positions[i - 1], path);
		snprintf(kept, sizeof(kept), "%s/" CUT "%016" PRIx64, log->config->log, scan->positions[i - 1]);
		rc = hf_file_rename(log->env, path, kept);
		log_warn("kv: %s was begun and not finished; nothing in it was acknowledged, and it is kept as %s",
			path, kept);
	}
	return rc;
}

/* ---- damage ---- */

/* Entries of lives before are what an earlier torn end has left (R-K27). A MARK without a flush is of a version before:
 * what it names is durable. */
static bool proves(const struct log *log, const struct log_entry *entry, uint64_t position, uint64_t broken)
{
	uint64_t before = (uint64_t)(entry->flush - 1) * LOG_UNIT;

	if (entry->life < log->life || entry->sequence <= log->sequence)
		return false;
	if (entry->flush == 0)
		return entry->kind == LOG_MARK && log->config->medium == HF_KV_FILE && entry->ts.version > broken;
	return before < position - broken;
}

/* Looks for an entry of a later flush behind the break, in a file that begins at `segment`. */
static void find_proof_in(struct scan *scan, uint64_t segment, uint64_t broken, const uint8_t *data, size_t bytes)
{
	size_t at = (size_t)(LOG_HEAD_BYTES + broken - segment);

	while (at + LOG_UNIT <= bytes) {
		struct log_entry entry;
		bool whole = kv_log_entry_read(data + at, bytes - at, &entry);
		uint64_t position = segment + at - LOG_HEAD_BYTES;

		at += whole ? kv_log_entry_bytes(&entry) : LOG_UNIT;
		if (whole && position > broken && proves(scan->log, &entry, position, broken))
			scan->proven = segment + at - LOG_HEAD_BYTES;
	}
}

/* The file in which reading ended, or of which the head cannot be read. */
static int find_proof(struct scan *scan)
{
	struct log *log = scan->log;
	bool beheaded = log->segment_count < scan->count;
	uint64_t segment, broken;
	uint8_t *data = NULL;
	size_t bytes;
	int rc;

	if (scan->count == 0 || (!beheaded && !scan->goes_on))
		return 0;
	segment = scan->positions[beheaded ? log->segment_count : log->segment_count - 1];
	broken = beheaded ? segment : log->end;
	rc = read_file(log, segment, &data, &bytes);
	if (rc == 0)
		find_proof_in(scan, segment, broken, data, bytes);
	free(data);
	return rc;
}

/* Below what the mark proves, or an entry of a later flush; or in the middle, which a sync never leaves so: a segment
 * is begun when all before it is durable, so only the last one can be torn, its head too. */
static bool is_damaged(const struct scan *scan, const struct synced_proof *proof)
{
	const struct log *log = scan->log;

	if (log->segment_count < scan->count && (log->segment_count < scan->count - 1 || scan->is_segment))
		return true;
	if (scan->proven != 0)
		return true;
	if (!proof->known)
		return scan->marked;
	return proof->end > proof->first &&
	       (log->segment_count == 0 || log->segments[0].position > proof->first || log->end < proof->end);
}

/* The segment that is to be there, and is not; UINT64_MAX: none. */
static uint64_t missing(const struct scan *scan, const struct synced_proof *proof)
{
	const struct log *log = scan->log;

	if (log->segment_count == 0)
		return scan->count == 0 ? proof->first : scan->positions[0];
	if (proof->known && log->segments[0].position > proof->first)
		return proof->first;
	/* The last one that was read is full, and read to its end. */
	if (!scan->goes_on && log->segments[log->segment_count - 1].bytes >= log->config->segment_bytes)
		return log->end;
	return UINT64_MAX;
}

/* Where reading ended. */
static void describe(const struct scan *scan, const struct synced_proof *proof, char *text, size_t bytes)
{
	const struct log *log = scan->log;
	const struct log_segment *last;
	uint64_t position;
	char path[LOG_PATH_BYTES];

	if (!proof->known && scan->marked) {
		snprintf(text, bytes, "%.180s/synced is missing, or cannot be read", log->config->log);
		return;
	}
	if (log->segment_count < scan->count && !scan->is_segment) {
		kv_log_path(log, scan->positions[log->segment_count], path);
		snprintf(text, bytes, "the head of %s cannot be read", path);
		return;
	}
	position = missing(scan, proof);
	if (position != UINT64_MAX) {
		kv_log_path(log, position, path);
		snprintf(text, bytes, "%s is missing, or its head cannot be read", path);
		return;
	}
	last = &log->segments[log->segment_count - 1];
	kv_log_path(log, last->position, path);
	snprintf(text, bytes, "%s cannot be read at offset %" PRIu64, path, LOG_HEAD_BYTES + last->bytes);
}

/* The others serve without this member: every file keeps its bytes under another name. */
int kv_log_set_aside(struct log *log)
{
	struct scan scan = {.log = log};
	/* A log from 0 on, which is not there: the next opening finds damage again, until the WIPE is durable. R-D5 */
	int rc = synced_write(log->synced, 0, log->end, log->end);

	if (rc == 0)
		rc = synced_sync(log->synced);
	if (rc == 0)
		rc = hf_dir_sync(log->env, log->config->log);
	if (rc == 0)
		rc = hf_dir_list(log->env, log->config->log, found, &scan);
	rc = rc != 0 ? rc : scan.rc;
	for (size_t i = 0; i < scan.count && rc == 0; i++) {
		char path[LOG_PATH_BYTES], kept[LOG_PATH_BYTES + 32];

		kv_log_path(log, scan.positions[i], path);
		snprintf(kept, sizeof(kept), "%s/" DAMAGED "%016" PRIx64 "-%016" PRIx64, log->config->log,
			scan.positions[i], log->incarnation);
		rc = hf_file_rename(log->env, path, kept);
	}
	free(scan.positions);
	return rc != 0 || log->config->medium != HF_KV_FILE ? rc : hf_dir_sync(log->env, log->config->log);
}

/* What is proven by this boot of the host is proven in the next one, too (R-D5). */
static int keep_verdict(struct log *log, const struct synced_proof *proof)
{
	int rc = proof->known ? synced_write(log->synced, proof->first, proof->end, proof->end) : 0;

	return rc == 0 && proof->known ? synced_sync(log->synced) : rc;
}

/* Nothing is written until kv_log_begin_anew, and then behind all positions that the log had. */
static void hold(struct scan *scan, const struct synced_proof *proof)
{
	struct log *log = scan->log;

	log->held = true;
	if (proof->known && log->end < proof->end)
		log->end = proof->end;
	if (log->end < scan->proven)
		log->end = scan->proven;
	log->end += LOG_UNIT;
	log->mark = log->end;
	log->durable = log->segment_count = 0;
}

static int judge(struct scan *scan, const struct synced_proof *proof, struct hf_error *error)
{
	struct log *log = scan->log;
	char where[LOG_PATH_BYTES + 64];
	int rc = find_proof(scan);

	if (rc != 0)
		return set_unread(log, rc, error);
	log->damaged = is_damaged(scan, proof);
	if (!log->damaged)
		return 0;
	describe(scan, proof, where, sizeof(where));
	rc = keep_verdict(log, proof);
	if (rc != 0)
		return set_unread(log, rc, error);
	if (log->config->member_count <= 1)
		return hf_error_set(error, -EBADMSG,
			"kv: the log is damaged: %.200s, although it was in the log. No file was changed. Repair the "
			"disk or "
			"restore a backup; without one, move the directory away: the store begins empty then",
			where);
	log_error("kv: the log is damaged: %s, although it was in the log. No file is changed until the other members "
		  "serve without this one: then its files are kept as " DAMAGED
		  "*, and all records are copied from them. "
		  "If they do not, restore a log of one of the last members",
		where);
	hold(scan, proof);
	return 0;
}

/* ---- all of it ---- */

static int settle(struct scan *scan, struct hf_error *error)
{
	struct log *log = scan->log;
	bool synced = log->config->medium == HF_KV_FILE;
	char path[LOG_PATH_BYTES];
	int rc = keep_behind(scan);

	if (rc == 0 && log->segment_count > 0)
		rc = keep_tail(log, &log->segments[log->segment_count - 1]);
	for (size_t i = 0; synced && rc == 0 && i < log->segment_count; i++)
		rc = write_again(log, &log->segments[i]);
	if (synced && rc == 0)
		rc = hf_dir_sync(log->env, log->config->log);
	if (rc == 0 && log->segment_count > 0) {
		kv_log_path(log, log->segments[log->segment_count - 1].position, path);
		rc = hf_file_open(log->env, path, HF_FILE_WRITE, &log->file);
	}
	return rc == 0 ? 0
		       : hf_error_set(error, rc,
				 "kv: the log in %s cannot be written: %s; make room or repair the disk, and restart",
				 log->config->log, strerror(-rc));
}

int kv_log_read_all(
	struct log *log, const struct synced_proof *proof, log_reader *reader, void *context, struct hf_error *error)
{
	struct scan scan = {.log = log, .reader = reader, .context = context, .piece = malloc(PIECE_BYTES)};
	int rc = hf_dir_list(log->env, log->config->log, found, &scan);

	rc = rc != 0 ? rc : scan.piece == NULL ? -ENOMEM : scan.rc;
	if (rc != 0)
		set_unread(log, rc, error);
	if (scan.count > 0)
		qsort(scan.positions, scan.count, sizeof(*scan.positions), by_position);
	scan.follows = true;
	for (size_t i = 0; rc == 0 && scan.follows && i < scan.count; i++)
		rc = read_segment(&scan, scan.positions[i], error);
	if (rc == 0)
		rc = judge(&scan, proof, error);
	if (rc == 0 && !log->held)
		rc = settle(&scan, error);
	free(scan.positions);
	free(scan.piece);
	return rc;
}
