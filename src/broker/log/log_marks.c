/* Marks of logs. */
#include "broker/log/log_marks.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc.h"
#include "base/crc.h"
#include "base/ensure.h"
#include "base/list.h"
#include "base/log.h"
#include "broker/log/checkpoint.h"

#define SLOT_BYTES      256u
#define RECORD_BYTES    128u
#define PIECE_SLOTS     256u /* mapped at a time */
#define PIECE_BYTES     (PIECE_SLOTS * SLOT_BYTES)
#define PIECES_MAX      4096u
#define DIRECTORY_INDEX (-1) /* of nobody */
#define LIVES_INDEX     (-2) /* likewise */

static const uint8_t nobody[LOG_OWNER_BYTES];

struct record {
	uint32_t crc, serial;
	uint8_t owner[LOG_OWNER_BYTES];
	int32_t index, node;
	struct boot {
		uint8_t id[16];
		uint64_t device, inode;
	} boot;
	int64_t start, synced, written;
	uint32_t closed, damaged;
	uint64_t boot_ns; /* how long that boot lasted when the process began */
	uint32_t failed;
	int32_t hw_epoch;
	int64_t hw;
	uint32_t spare[2];
};

_Static_assert(sizeof(struct record) == RECORD_BYTES, "the layout of the file");
_Static_assert(offsetof(struct record, hw) == 112, "the same");
_Static_assert(offsetof(struct record, start) == 64 && offsetof(struct record, closed) == 88, "the same");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the file is little-endian");

struct slot {
	struct record records[2];
};

struct log_marks {
	struct hf_env *env;
	struct hf_file *file;
	char path[CHECKPOINT_PATH_BYTES];
	int32_t node;
	struct boot boot;
	uint64_t now_ns;
	bool boot_known;
	struct slot *pieces[PIECES_MAX];
	struct log_mark **taken; /* by slot; NULL: it is not taken */
	struct hf_work work;
	uint32_t piece_count;
	bool changed, syncing;
};

/* ---- records ---- */

static uint32_t crc_of(const struct record *record)
{
	return crc32c(0, &record->serial, sizeof(*record) - offsetof(struct record, serial));
}

/* A record of another broker is none. */
static bool is_right(const struct log_marks *marks, const struct record *record)
{
	return record->serial != 0 && record->crc == crc_of(record) && record->node == marks->node;
}

static struct slot *slot_at(const struct log_marks *marks, uint32_t i)
{
	return &marks->pieces[i / PIECE_SLOTS][i % PIECE_SLOTS];
}

/* The mark; NULL: the slot is free, or cannot be read. */
static const struct record *record_at(const struct log_marks *marks, uint32_t i)
{
	const struct record *at = slot_at(marks, i)->records;
	bool first = is_right(marks, &at[0]), second = is_right(marks, &at[1]);

	if (first && second)
		return (int32_t)(at[0].serial - at[1].serial) > 0 ? &at[0] : &at[1];
	return first ? &at[0] : second ? &at[1] : NULL;
}

static void write_record(struct log_mark *mark)
{
	struct log_marks *marks = mark->marks;
	const struct record *last = record_at(marks, mark->slot);
	struct record next = *last,
		      *to = &slot_at(marks, mark->slot)->records[last == slot_at(marks, mark->slot)->records];

	next.serial = last->serial + 1 == 0 ? 1 : last->serial + 1;
	next.node = marks->node;
	next.boot = marks->boot;
	next.boot_ns = marks->now_ns;
	next.start = mark->start;
	next.synced = mark->synced;
	next.written = mark->written;
	next.closed = mark->closed;
	next.damaged = mark->damaged;
	next.failed = mark->failed;
	next.hw_epoch = mark->hw_epoch;
	next.hw = mark->hw;
	next.crc = crc_of(&next);
	*to = next;
	marks->changed = true;
}

/* ---- the file ---- */

static int map_piece(struct log_marks *marks, struct hf_error *error)
{
	struct hf_error why;
	void *at;
	int rc = hf_mem_map_file(marks->env, marks->file, (uint64_t)marks->piece_count * PIECE_BYTES, PIECE_BYTES,
		HF_MAP_WRITE, &at, &why);

	if (rc != 0)
		return hf_error_set(error, rc, "%s: %s", marks->path, why.text);
	marks->pieces[marks->piece_count++] = at;
	return 0;
}

static int add_piece(struct log_marks *marks, struct hf_error *error)
{
	struct log_mark **taken;
	int rc = 0;

	if (marks->piece_count == PIECES_MAX)
		return hf_error_set(error, -EMFILE, "%s has no more slots", marks->path);
	taken = realloc(marks->taken, (marks->piece_count + 1) * PIECE_SLOTS * sizeof(*taken));
	if (taken == NULL)
		return hf_error_set(error, -ENOMEM, "no memory for %s", marks->path);
	memset(taken + marks->piece_count * PIECE_SLOTS, 0, PIECE_SLOTS * sizeof(*taken));
	marks->taken = taken;
	if (hf_file_bytes(marks->file) < (int64_t)(marks->piece_count + 1) * PIECE_BYTES)
		rc = hf_file_resize(marks->file, (uint64_t)(marks->piece_count + 1) * PIECE_BYTES);
	if (rc != 0)
		return hf_error_set(error, rc, "cannot make %s longer: %s", marks->path, strerror(-rc));
	return map_piece(marks, error);
}

static bool is_blank(const struct slot *slot)
{
	static const struct slot blank;

	return memcmp(slot, &blank, sizeof(blank)) == 0;
}

static void look(const struct log_marks *marks)
{
	unsigned unread = 0;

	for (uint32_t i = 0; i < marks->piece_count * PIECE_SLOTS; i++)
		unread += record_at(marks, i) == NULL && !is_blank(slot_at(marks, i));
	if (unread > 0)
		log_warn("broker: %s: %u marks cannot be read, or are of another broker; every record batch of their "
			 "logs "
			 "is verified",
			marks->path, unread);
}

static int load(struct log_marks *marks, struct hf_error *error)
{
	int64_t bytes = hf_file_bytes(marks->file);
	int rc = bytes < 0 ? (int)bytes : 0;

	while (rc == 0 && (int64_t)marks->piece_count * PIECE_BYTES < bytes && marks->piece_count < PIECES_MAX)
		rc = add_piece(marks, error);
	if (rc == 0)
		look(marks);
	return rc;
}

int log_marks_open(struct hf_env *env, const char *directory, int32_t node_id, struct log_marks **marks_out,
	struct hf_error *error)
{
	struct log_marks *marks = calloc(1, sizeof(*marks));
	int rc;

	*marks_out = NULL;
	if (marks == NULL)
		return hf_error_set(error, -ENOMEM, "no memory for the marks of logs");
	marks->env = env;
	marks->node = node_id;
	snprintf(marks->path, sizeof(marks->path), "%s/synced", directory);
	rc = hf_file_open(env, marks->path, HF_FILE_WRITE | HF_FILE_CREATE, &marks->file);
	if (rc != 0)
		hf_error_set(error, rc, "cannot open %s: %s", marks->path, strerror(-rc));
	if (rc == 0) {
		marks->boot_known = hf_env_boot_id(env, marks->boot.id);
		marks->now_ns = hf_env_boot_ns(env);
		rc = hf_file_identity(marks->file, &marks->boot.device, &marks->boot.inode);
		rc = rc == 0 ? load(marks, error)
			     : hf_error_set(error, rc, "cannot read %s: %s", marks->path, strerror(-rc));
	}
	if (rc != 0) {
		log_marks_close(marks);
		return rc;
	}
	*marks_out = marks;
	return 0;
}

int log_marks_sync(struct log_marks *marks)
{
	return hf_file_sync_data(marks->file);
}

static int sync_run(struct hf_work *work)
{
	return log_marks_sync(container_of(work, struct log_marks, work));
}

/* What is not on the disk proves less at the next start. */
static void sync_done(struct hf_work *work, int rc)
{
	struct log_marks *marks = container_of(work, struct log_marks, work);

	marks->syncing = false;
	marks->changed |= rc != 0;
}

void log_marks_sync_later(struct log_marks *marks, struct hf_workers *workers)
{
	if (marks == NULL || workers == NULL || marks->syncing || !marks->changed)
		return;
	marks->changed = false;
	marks->syncing = true;
	marks->work = (struct hf_work){.run = sync_run, .done = sync_done};
	ensure(hf_work_submit(workers, &marks->work) == 0);
}

void log_marks_close(struct log_marks *marks)
{
	if (marks == NULL)
		return;
	if (marks->changed && log_marks_sync(marks) != 0)
		log_warn("broker: %s cannot be synced; the next start verifies more record batches", marks->path);
	for (uint32_t i = 0; i < marks->piece_count * PIECE_SLOTS; i++)
		free(marks->taken[i]);
	for (uint32_t i = 0; i < marks->piece_count; i++)
		hf_mem_free(marks->env, marks->pieces[i]);
	if (marks->file != NULL)
		hf_file_close(marks->file);
	free(marks->taken);
	free(marks);
}

/* ---- marks ---- */

static bool is_of(const struct record *record, const uint8_t owner[LOG_OWNER_BYTES], int32_t index)
{
	return record->index == index && memcmp(record->owner, owner, LOG_OWNER_BYTES) == 0;
}

/* The slot of the log, or a free one; the count: there is neither. */
static uint32_t find(const struct log_marks *marks, const uint8_t owner[LOG_OWNER_BYTES], int32_t index)
{
	uint32_t count = marks->piece_count * PIECE_SLOTS, vacant = count;

	for (uint32_t i = 0; i < count; i++) {
		const struct record *record = record_at(marks, i);

		if (record == NULL)
			vacant = vacant == count ? i : vacant;
		else if (is_of(record, owner, index))
			return i;
	}
	return vacant;
}

bool log_marks_have(const struct log_marks *marks, const uint8_t owner[LOG_OWNER_BYTES], int32_t index)
{
	uint32_t i = find(marks, owner, index);

	return i < marks->piece_count * PIECE_SLOTS && record_at(marks, i) != NULL;
}

void log_marks_keep(struct log_marks *marks, bool (*known)(const uint8_t owner[LOG_OWNER_BYTES], const void *context),
	const void *context)
{
	for (uint32_t i = 0; i < marks->piece_count * PIECE_SLOTS; i++) {
		const struct record *record = record_at(marks, i);

		if (record == NULL || marks->taken[i] != NULL || known(record->owner, context))
			continue;
		memset(slot_at(marks, i), 0, SLOT_BYTES);
		marks->changed = true;
	}
}

/* Time goes on within a boot; an id that comes again is that of another machine. */
static bool is_same_boot(const struct log_marks *marks, const struct record *last)
{
	return marks->boot_known && memcmp(&last->boot, &marks->boot, sizeof(last->boot)) == 0 &&
	       last->boot_ns <= marks->now_ns;
}

static bool is_of_directory(const struct record *record)
{
	return is_of(record, nobody, DIRECTORY_INDEX);
}

/* What cannot be read may be the mark of any log, and where that of the directory is missing, all may be. */
bool log_marks_prove_all(const struct log_marks *marks)
{
	bool some = false;

	for (uint32_t i = 0; i < marks->piece_count * PIECE_SLOTS; i++) {
		const struct record *record = record_at(marks, i);

		if (record == NULL ? !is_blank(slot_at(marks, i)) : !is_same_boot(marks, record) || record->failed != 0)
			return false;
		some |= record != NULL && is_of_directory(record);
	}
	return some;
}

int64_t log_marks_ended(const struct log_marks *marks)
{
	const struct record *record;
	uint32_t i;

	if (marks == NULL)
		return 0;
	i = find(marks, nobody, LIVES_INDEX);
	record = i < marks->piece_count * PIECE_SLOTS ? record_at(marks, i) : NULL;
	return record != NULL && is_same_boot(marks, record) ? record->hw : 0;
}

bool log_marks_are_empty(const struct log_marks *marks)
{
	for (uint32_t i = 0; i < marks->piece_count * PIECE_SLOTS; i++)
		if (record_at(marks, i) != NULL && record_at(marks, i)->index >= 0)
			return false;
	return true;
}

static void begin(struct log_mark *mark, const uint8_t owner[LOG_OWNER_BYTES], int32_t index)
{
	struct log_marks *marks = mark->marks;
	const struct record *last = record_at(marks, mark->slot);

	if (last != NULL) {
		mark->before = (struct log_proof){.known = true,
			.same_boot = is_same_boot(marks, last),
			.closed = last->closed != 0,
			.damaged = last->damaged != 0,
			.start = last->start,
			.synced = last->synced,
			.written = last->written};
		mark->damaged = mark->before.damaged;
		mark->failed = last->failed != 0;
		mark->hw_epoch = last->hw_epoch;
		mark->hw = last->hw;
		mark->start = last->start;
		mark->synced = last->synced;
		mark->written = mark->before.same_boot ? last->written : last->synced;
		return;
	}
	memset(slot_at(marks, mark->slot), 0, SLOT_BYTES);
	slot_at(marks, mark->slot)->records[0] = (struct record){.serial = 1, .index = index, .node = marks->node};
	memcpy(slot_at(marks, mark->slot)->records[0].owner, owner, LOG_OWNER_BYTES);
	slot_at(marks, mark->slot)->records[0].crc = crc_of(&slot_at(marks, mark->slot)->records[0]);
}

int log_marks_take(struct log_marks *marks, const uint8_t owner[LOG_OWNER_BYTES], int32_t index,
	struct log_mark **mark_out, struct hf_error *error)
{
	uint32_t i = find(marks, owner, index);
	struct log_mark *mark;
	int rc = i < marks->piece_count * PIECE_SLOTS ? 0 : add_piece(marks, error);

	*mark_out = NULL;
	if (rc != 0)
		return rc;
	ensure(marks->taken[i] == NULL);
	mark = calloc(1, sizeof(*mark));
	if (mark == NULL)
		return hf_error_set(error, -ENOMEM, "no memory for a mark");
	mark->marks = marks;
	mark->slot = i;
	begin(mark, owner, index);
	write_record(mark);
	*mark_out = marks->taken[i] = mark;
	return 0;
}

/* A mark of nobody; NULL: there is no room. */
static struct log_mark *own_mark(struct log_marks *marks, int32_t index)
{
	struct log_mark *mark = NULL;
	struct hf_error error;
	uint32_t i = marks == NULL ? 0 : find(marks, nobody, index);

	if (marks == NULL)
		return NULL;
	if (i < marks->piece_count * PIECE_SLOTS && marks->taken[i] != NULL)
		return marks->taken[i];
	if (log_marks_take(marks, nobody, index, &mark, &error) != 0)
		log_warn("broker: %s; when this broker is killed, its logs may be short for others", error.text);
	return mark;
}

void log_marks_go_on(struct log_marks *marks, int64_t life)
{
	struct log_mark *lives = own_mark(marks, LIVES_INDEX);

	(void)own_mark(marks, DIRECTORY_INDEX);
	if (lives != NULL && lives->start < life) {
		lives->start = life;
		write_record(lives);
	}
}

int64_t log_marks_begin_life(struct log_marks *marks, int64_t incarnation)
{
	struct log_mark *lives = own_mark(marks, LIVES_INDEX);

	if (lives == NULL)
		return 0;
	lives->start++;
	lives->hw = incarnation;
	write_record(lives);
	return lives->start;
}

void log_mark_written(struct log_mark *mark, int64_t end)
{
	if (mark == NULL || end <= mark->written)
		return;
	mark->written = end;
	write_record(mark);
}

void log_mark_synced(struct log_mark *mark, int64_t end)
{
	if (mark == NULL || (end <= mark->synced && !(mark->failed && end >= mark->written)))
		return;
	mark->synced = end;
	mark->written = mark->written < end ? end : mark->written;
	mark->failed &= end < mark->written;
	write_record(mark);
}

void log_mark_journaled(struct log_mark *mark, int64_t end, uint32_t crc)
{
	if (mark == NULL)
		return;
	mark->start = crc;
	mark->synced = mark->written = end;
	write_record(mark);
}

int log_mark_started(struct log_mark *mark, int64_t start, bool durable)
{
	if (mark == NULL || start <= mark->start)
		return 0;
	mark->start = start;
	write_record(mark);
	return durable ? log_marks_sync(mark->marks) : 0;
}

int log_mark_lower(struct log_mark *mark, int64_t end)
{
	if (mark == NULL || (mark->written <= end && mark->synced <= end && !mark->damaged))
		return 0;
	mark->damaged = false;
	mark->start = mark->start < end ? mark->start : end;
	mark->synced = mark->synced < end ? mark->synced : end;
	mark->written = mark->written < end ? mark->written : end;
	write_record(mark);
	return log_marks_sync(mark->marks);
}

void log_mark_knows(struct log_mark *mark, int32_t epoch, int64_t hw, int32_t void_below)
{
	if (mark == NULL || (hw <= mark->hw && mark->hw_epoch >= void_below))
		return;
	mark->hw_epoch = epoch;
	mark->hw = hw;
	write_record(mark);
}

void log_mark_failed(struct log_mark *mark)
{
	if (mark == NULL)
		return;
	mark->failed = true;
	mark->written = mark->synced;
	write_record(mark);
}

void log_mark_damaged(struct log_mark *mark, int64_t proven)
{
	if (mark == NULL)
		return;
	mark->damaged = true;
	mark->synced = mark->synced < proven ? proven : mark->synced;
	mark->written = mark->written < proven ? proven : mark->written;
	write_record(mark);
}

void log_mark_whole(struct log_mark *mark)
{
	if (mark == NULL || !mark->damaged)
		return;
	mark->damaged = false;
	mark->synced = mark->start;
	write_record(mark);
}

void log_mark_restarted(struct log_mark *mark, int64_t offset)
{
	if (mark == NULL)
		return;
	mark->damaged = mark->failed = false;
	mark->start = mark->synced = mark->written = offset;
	write_record(mark);
	if (log_marks_sync(mark->marks) != 0)
		log_warn("broker: %s cannot be synced; the log may be taken for damaged", mark->marks->path);
}

void log_mark_closed(struct log_mark *mark)
{
	if (mark == NULL)
		return;
	mark->closed = true;
	write_record(mark);
}

void log_mark_release(struct log_mark *mark)
{
	if (mark == NULL)
		return;
	mark->marks->taken[mark->slot] = NULL;
	free(mark);
}

void log_mark_free(struct log_mark *mark)
{
	struct log_marks *marks = mark == NULL ? NULL : mark->marks;

	if (marks == NULL)
		return;
	memset(slot_at(marks, mark->slot), 0, SLOT_BYTES);
	marks->changed = true;
	log_mark_release(mark);
}
