/* A segment: open and recover, append, find. */
#include "broker/log/segment.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"

#define PAGE_BYTES     4096u
#define POPULATE_BYTES (1u << 20) /* at a time, behind the tail: of a small segment a quarter */

static void segment_path(const struct segment *segment, const char *ending, char path[SEGMENT_PATH_BYTES])
{
	snprintf(
		path, SEGMENT_PATH_BYTES, "%s/%020lld.%s", segment->directory, (long long)segment->base_offset, ending);
}

/* ---- batches in the mapping ---- */

bool segment_at(const struct segment *segment, uint32_t place, struct batch *batch_out)
{
	return place < segment->bytes &&
	       batch_read(segment->map + place, segment->bytes - place, batch_out) == BATCH_RIGHT;
}

/* From the batch at `place`, which begins with `next`. */
static bool segment_find_from(const struct segment *segment, uint32_t place, int64_t next, int64_t offset,
	uint32_t *place_out, struct batch *batch_out)
{
	while (segment_at(segment, place, batch_out)) {
		if (batch_out->base_offset != next || next > offset)
			return false;
		if (batch_last_offset(batch_out) >= offset) {
			*place_out = place;
			return true;
		}
		next = batch_next_offset(batch_out);
		place += (uint32_t)batch_out->length;
	}
	return false;
}

/* Offsets are believed as far as they follow the index: the holder of an extent can change those in its batches, and a
 * follower must not be led to another place. An index that was read from the disk may itself be wrong. */
bool segment_find(const struct segment *segment, int64_t offset, uint32_t *place_out, struct batch *batch_out)
{
	int64_t next = segment->base_offset;
	uint32_t place, entry = 0;

	if (offset < segment->base_offset || offset >= segment->next_offset)
		return false;
	place = segment_index_place(&segment->places, (uint32_t)(offset - segment->base_offset), &entry);
	if (place > 0 && segment_at(segment, place, batch_out))
		next += (int64_t)entry - batch_out->last_offset_delta;
	return segment_find_from(segment, place, next, offset, place_out, batch_out) ||
	       (!segment->checked && place > 0 &&
		       segment_find_from(segment, 0, segment->base_offset, offset, place_out, batch_out));
}

void segment_find_break(const struct segment *segment, uint32_t *place_out, int64_t *offset_out)
{
	struct batch batch;

	*place_out = 0;
	*offset_out = segment->base_offset;
	while (segment_at(segment, *place_out, &batch) && batch.base_offset == *offset_out) {
		*offset_out = batch_next_offset(&batch);
		*place_out += (uint32_t)batch.length;
	}
}

bool segment_find_time(const struct segment *segment, int64_t timestamp_ms, int64_t offset, uint32_t *place_out,
	struct batch *batch_out)
{
	uint32_t place, unused;

	if (segment->max_timestamp_ms < timestamp_ms)
		return false;
	place = segment_index_place(&segment->places, segment_index_before(&segment->times, timestamp_ms), &unused);
	while (segment_at(segment, place, batch_out)) {
		if (batch_out->max_timestamp_ms >= timestamp_ms && batch_last_offset(batch_out) >= offset) {
			*place_out = place;
			return true;
		}
		place += (uint32_t)batch_out->length;
	}
	return false;
}

/* Books a batch whose bytes lie at the tail: index, timestamps, tail. */
static void segment_book(struct segment *segment, const struct batch *batch, int64_t now_ms)
{
	uint32_t last = (uint32_t)(batch_last_offset(batch) - segment->base_offset);

	segment->changed_ms = now_ms;
	if (segment->bytes == 0) {
		segment->first_timestamp_ms = batch->max_timestamp_ms;
		segment->begun_ms = now_ms;
	}
	if (batch->max_timestamp_ms > segment->max_timestamp_ms) {
		segment->max_timestamp_ms = batch->max_timestamp_ms;
		segment->max_timestamp_offset = batch_last_offset(batch);
	}
	/* An index that cannot grow makes a search longer, and no answer wrong. */
	if (segment->since_index > segment->index_interval &&
		segment_index_add_place(&segment->places, last, segment->bytes)) {
		uint32_t unused;

		if (segment->max_timestamp_ms > segment_index_last_time(&segment->times, &unused))
			(void)segment_index_add_time(&segment->times, segment->max_timestamp_ms,
				(uint32_t)(segment->max_timestamp_offset - segment->base_offset));
		segment->since_index = 0;
	}
	segment->since_index += (uint32_t)batch->length;
	segment->bytes += (uint32_t)batch->length;
	segment->next_offset = batch_next_offset(batch);
	segment->last_epoch = batch->leader_epoch;
}

bool segment_fits(const struct segment *segment, uint32_t bytes)
{
	return !segment->sealed && bytes <= segment->capacity - segment->bytes;
}

static uint32_t whole_pages(uint32_t bytes)
{
	return (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
}

static int populate(struct segment *segment, uint32_t more)
{
	int rc = hf_mem_populate(segment->env, segment->map + segment->populated, more);

	if (rc == 0)
		segment->populated += more;
	/* The kernel says EFAULT where the file system has no block for a page. */
	return rc == -EFAULT || rc == -ENOMEM ? -ENOSPC : rc;
}

int segment_prepare(struct segment *segment, uint32_t bytes)
{
	uint32_t quarter = whole_pages(segment->capacity / 4),
		 least = quarter < POPULATE_BYTES ? quarter : POPULATE_BYTES;
	uint64_t end = (uint64_t)segment->bytes + bytes;
	uint32_t more;

	ensure(segment_fits(segment, bytes));
	if (end <= segment->populated)
		return 0;
	more = (uint32_t)(end - segment->populated);
	more = more < least ? least : whole_pages(more);
	if (more > segment->capacity - segment->populated)
		more = segment->capacity - segment->populated;
	return populate(segment, more);
}

int segment_probe(struct segment *segment, uint32_t bytes)
{
	ensure(segment->bytes == 0);
	bytes = bytes < segment->capacity ? bytes : segment->capacity;
	return bytes <= segment->populated ? 0 : populate(segment, bytes - segment->populated);
}

/* ---- pages by a helper thread ---- */

struct ahead {
	struct hf_work work;
	struct segment *segment; /* held */
	uint32_t from, to;
};

/* In pieces: a call keeps others of the process from mapping memory. */
static int ahead_run(struct hf_work *work)
{
	const struct ahead *ahead = container_of(work, struct ahead, work);
	int rc = 0;

	for (uint32_t at = ahead->from; at < ahead->to && rc == 0; at += POPULATE_BYTES)
		rc = hf_mem_populate(ahead->segment->env, ahead->segment->map + at,
			ahead->to - at < POPULATE_BYTES ? ahead->to - at : POPULATE_BYTES);
	return rc;
}

/* After a failure this segment's are made as they are needed, by segment_prepare, which says what is wrong. */
static void ahead_done(struct hf_work *work, int rc)
{
	struct ahead *ahead = container_of(work, struct ahead, work);
	struct segment *segment = ahead->segment;

	segment->ahead = rc != 0;
	if (rc == 0 && segment->populated < ahead->to)
		segment->populated = ahead->to;
	segment_release(segment);
	free(ahead);
}

void segment_prepare_ahead(struct segment *segment, struct hf_workers *workers, uint32_t end)
{
	uint32_t to = end < segment->capacity ? end : segment->capacity;
	struct ahead *ahead;

	if (segment->sealed || segment->ahead || to <= segment->populated)
		return;
	segment->ahead = true;
	ahead = workers == NULL ? NULL : calloc(1, sizeof(*ahead));
	if (ahead == NULL)
		return;
	*ahead = (struct ahead){.work = {.run = ahead_run, .done = ahead_done},
		.segment = segment,
		.from = segment->populated,
		.to = to};
	segment_hold(segment);
	ensure(hf_work_submit(workers, &ahead->work) == 0);
}

/* ---- the tail ---- */

void segment_dirty(struct segment *segment)
{
	for (uint32_t at = 0; at < segment->bytes; at += PAGE_BYTES) {
		volatile uint8_t *byte = segment->map + at;

		*byte = *byte;
	}
}

uint32_t segment_present(const struct segment *segment)
{
	return segment->sealed || segment->populated < segment->bytes ? segment->bytes : segment->populated;
}

void segment_commit(struct segment *segment, struct batch *batch, int32_t leader_epoch, int64_t now_ms)
{
	ensure(leader_epoch >= segment->last_epoch);
	batch->base_offset = segment->next_offset;
	batch->leader_epoch = leader_epoch;
	batch_commit(segment->map + segment->bytes, batch->base_offset, leader_epoch);
	segment_book(segment, batch, now_ms);
}

void segment_accept(struct segment *segment, const struct batch *batch, int64_t now_ms)
{
	segment_book(segment, batch, now_ms);
}

/* ---- opening ---- */

/* Books every batch of the file's `bytes` below `end_offset`, verified or believed; stops at the first that is not
 * right. A holder that could not be fenced may have written behind the last one of a sealed segment. */
static void segment_scan(struct segment *segment, uint32_t bytes, int64_t end_offset, bool verify, int64_t changed_ms)
{
	struct batch batch;

	while (segment->bytes < bytes && segment->next_offset < end_offset) {
		const uint8_t *at = segment->map + segment->bytes;

		if (batch_read(at, bytes - segment->bytes, &batch) != BATCH_RIGHT)
			break;
		if (batch.base_offset != segment->next_offset || !batch_epoch_is_whole(batch.leader_epoch) ||
			batch.leader_epoch < segment->last_epoch)
			break;
		if (verify && batch_check(at, &batch) != BATCH_RIGHT)
			break;
		segment_book(segment, &batch, changed_ms);
	}
}

static int segment_map(struct segment *segment, uint64_t bytes, struct hf_error *error)
{
	char path[SEGMENT_PATH_BYTES];
	struct hf_error why;
	void *map;
	int rc;

	segment_path(segment, "log", path);
	if (bytes > INT32_MAX)
		return hf_error_set(error, -EFBIG, "%s has %llu bytes, more than any segment; move it away", path,
			(unsigned long long)bytes);
	if (segment->map != NULL)
		hf_mem_free(segment->env, segment->map);
	segment->map = NULL;
	segment->capacity = (uint32_t)bytes;
	if (bytes == 0)
		return 0;
	rc = hf_mem_map_file(segment->env, segment->file, 0, (size_t)bytes, HF_MAP_SPARSE, &map, &why);
	if (rc != 0)
		return hf_error_set(error, rc, "%s: %s", path, why.text);
	segment->map = map;
	return 0;
}

/* Finds the end of what is stored, and fills holes before it: a load from one may fail by a full disk. */
static int segment_find_stored(struct segment *segment, struct hf_error *error)
{
	char path[SEGMENT_PATH_BYTES];
	uint64_t from = 0, begin, end;
	int rc;

	while ((rc = hf_file_next_data(segment->file, from, &begin, &end)) == 0 && from < segment->capacity) {
		begin = begin < segment->capacity ? begin : segment->capacity;
		end = end < segment->capacity ? end : segment->capacity;
		from = from / PAGE_BYTES * PAGE_BYTES;
		if (begin / PAGE_BYTES * PAGE_BYTES > from)
			rc = hf_mem_populate(segment->env, segment->map + from, begin / PAGE_BYTES * PAGE_BYTES - from);
		if (rc != 0)
			break;
		segment->stored = (uint32_t)end;
		from = end;
	}
	if (rc == 0 || rc == -ENXIO)
		return 0;
	segment_path(segment, "log", path);
	return hf_error_set(error, rc, "cannot read %s: %s", path, strerror(rc == -EFAULT ? ENOSPC : -rc));
}

/* From the last entry of the index on; what lies before is not read. False: they do not lead to the end, and the last
 * timestamp is not where they say. */
static bool segment_follow_indexes(struct segment *segment, int64_t end_offset, int64_t changed_ms)
{
	struct batch batch;
	uint32_t entry = 0, place = segment_index_place(&segment->places, UINT32_MAX, &entry), time_offset = 0;
	int64_t latest_ms = segment_index_last_time(&segment->times, &time_offset);

	if (batch_read(segment->map, segment->stored, &batch) != BATCH_RIGHT || place >= segment->stored)
		return false;
	segment->first_timestamp_ms = batch.max_timestamp_ms;
	segment->begun_ms = segment->changed_ms = changed_ms;
	if (batch_read(segment->map + place, segment->stored - place, &batch) != BATCH_RIGHT ||
		batch_last_offset(&batch) != segment->base_offset + entry)
		return false;
	segment->bytes = place;
	segment->next_offset = batch.base_offset;
	segment->max_timestamp_ms = latest_ms;
	segment->max_timestamp_offset = segment->base_offset + time_offset;
	segment->since_index = 0; /* nothing is added */
	segment_scan(segment, segment->stored, end_offset, false, changed_ms);
	return segment->bytes == segment->stored && segment->next_offset == end_offset &&
	       segment->max_timestamp_ms == latest_ms &&
	       segment_find(segment, segment->base_offset + time_offset, &place, &batch) &&
	       batch.max_timestamp_ms == latest_ms;
}

static bool segment_read_indexes(struct segment *segment, int64_t end_offset, int64_t changed_ms)
{
	char path[SEGMENT_PATH_BYTES];
	uint32_t places;
	bool is_right;

	if (end_offset == SEGMENT_HEAD || segment->stored == 0 || segment->stored != segment->capacity)
		return false;
	segment_path(segment, "index", path);
	is_right = segment_index_read(&segment->places, segment->env, path);
	segment_path(segment, "timeindex", path);
	is_right = is_right && segment_index_read(&segment->times, segment->env, path);
	places = segment->places.count;
	segment->sealed =
		is_right && segment_follow_indexes(segment, end_offset, changed_ms) && segment->places.count == places;
	if (segment->sealed)
		return true;
	segment_index_free(&segment->places);
	segment_index_free(&segment->times);
	segment->bytes = segment->since_index = 0;
	segment->next_offset = segment->max_timestamp_offset = segment->base_offset;
	segment->max_timestamp_ms = INT64_MIN;
	segment->last_epoch = -1;
	return false;
}

static int segment_load(struct segment *segment, int64_t end_offset, enum segment_trust trust, struct hf_error *error)
{
	int64_t size = hf_file_bytes(segment->file), changed_ns = hf_file_changed_ns(segment->file);
	char path[SEGMENT_PATH_BYTES];
	int rc;

	segment_path(segment, "log", path);
	if (size < 0)
		return hf_error_set(error, (int)size, "cannot read the size of %s: %s", path, strerror((int)-size));
	rc = segment_map(segment, (uint64_t)size, error);
	if (rc == 0)
		rc = segment_find_stored(segment, error);
	if (rc != 0)
		return rc;
	if (trust != SEGMENT_INDEX || !segment_read_indexes(segment, end_offset, changed_ns / 1000000))
		segment_scan(segment, segment->stored, end_offset, trust == SEGMENT_CHECK, changed_ns / 1000000);
	segment->checked = trust == SEGMENT_CHECK;
	segment->populated = segment->bytes / PAGE_BYTES * PAGE_BYTES;
	return 0;
}

int segment_begin(struct segment *segment, uint32_t capacity, struct hf_error *error)
{
	char path[SEGMENT_PATH_BYTES];
	int rc;

	ensure(segment->holds == 1);
	capacity = capacity < segment->bytes ? segment->bytes : capacity;
	/* Zeros without writing them: the file ends at the tail, and is long again. */
	rc = hf_file_resize(segment->file, segment->bytes);
	if (rc == 0)
		rc = hf_file_resize(segment->file, capacity);
	segment_path(segment, "log", path);
	if (rc != 0)
		return hf_error_set(error, rc, "cannot make %s %u bytes long: %s", path, capacity, strerror(-rc));
	segment->sealed = false;
	segment->populated = segment->bytes / PAGE_BYTES * PAGE_BYTES;
	return segment_map(segment, capacity, error);
}

/* ---- what lies behind the last batch ---- */

static size_t without_zeros(const uint8_t *at, size_t bytes)
{
	if (bytes > 0 && at[0] == 0 && memcmp(at, at + 1, bytes - 1) == 0)
		return 0; /* nearly all pieces, and faster */
	while (bytes > 0 && at[bytes - 1] == 0)
		bytes--;
	return bytes;
}

/* What a piece of it has, up to the last byte that is not zero; `to` NULL: nothing is written. 1: there was one. */
static int piece_of_rest(const uint8_t *piece, size_t bytes, uint64_t at, struct hf_file *to)
{
	size_t some = without_zeros(piece, bytes);
	ssize_t put = some == 0 || to == NULL ? (ssize_t)some : hf_file_write_at(to, piece, some, at);

	return put < 0 ? (int)put : (size_t)put < some ? -ENOSPC : some > 0;
}

/* 1: bytes other than zero lie there; `to` has them then, unless it is NULL. */
static int each_rest(const struct segment *segment, uint32_t place, struct hf_file *to)
{
	uint8_t piece[PAGE_BYTES];
	uint64_t from = place, begin, end;
	int found = 0, rc;

	while (hf_file_next_data(segment->file, from, &begin, &end) == 0) {
		for (from = begin; from < end;) {
			size_t bytes = end - from < sizeof(piece) ? (size_t)(end - from) : sizeof(piece);
			ssize_t n = hf_file_read_at(segment->file, piece, bytes, from);

			if (n <= 0)
				return n < 0 ? (int)n : found;
			rc = piece_of_rest(piece, (size_t)n, from - place, to);
			if (rc < 0 || (rc > 0 && to == NULL))
				return rc;
			found |= rc;
			from += (uint64_t)n;
		}
	}
	rc = to == NULL ? 0 : hf_file_resize(to, from - place);
	return rc == 0 ? found : rc;
}

bool segment_has_rest(const struct segment *segment)
{
	return segment->file != NULL && each_rest(segment, segment->bytes, NULL) != 0;
}

int segment_keep_rest(const struct segment *segment, uint32_t place, const char *ending, struct hf_error *error)
{
	char path[SEGMENT_PATH_BYTES + 48];
	struct hf_file *to;
	int rc;

	snprintf(path, sizeof(path), "%s/%020lld.log%s", segment->directory, (long long)segment->base_offset, ending);
	rc = hf_file_open(segment->env, path, HF_FILE_WRITE | HF_FILE_CREATE | HF_FILE_TRUNCATE, &to);
	if (rc == 0) {
		rc = each_rest(segment, place, to);
		rc = rc < 0 ? rc : hf_file_sync(to);
		hf_file_close(to);
	}
	if (rc == 0)
		rc = hf_dir_sync(segment->env, segment->directory);
	return rc == 0 ? 0 : hf_error_set(error, rc, "cannot write %s: %s", path, strerror(-rc));
}

/* NULL: no memory. The directory's path is not too long. */
static struct segment *segment_new(
	struct hf_env *env, const char *directory, int64_t base_offset, uint32_t index_interval)
{
	struct segment *segment = calloc(1, sizeof(*segment));

	if (segment == NULL)
		return NULL;
	*segment = (struct segment){.env = env,
		.base_offset = base_offset,
		.next_offset = base_offset,
		.last_epoch = -1,
		.places = {.entry_bytes = SEGMENT_INDEX_PLACE_BYTES},
		.times = {.entry_bytes = SEGMENT_INDEX_TIME_BYTES},
		.index_interval = index_interval,
		.max_timestamp_ms = INT64_MIN,
		.max_timestamp_offset = base_offset,
		.checked = true,
		.holds = 1};
	list_init(&segment->node);
	snprintf(segment->directory, sizeof(segment->directory), "%s", directory);
	return segment;
}

struct segment *segment_adopt(struct hf_env *env, const char *directory, int64_t base_offset, uint32_t index_interval,
	const char *path, struct hf_file *file)
{
	struct segment *segment = segment_new(env, directory, base_offset, index_interval);
	char to[SEGMENT_PATH_BYTES];

	if (segment == NULL)
		return NULL;
	segment_path(segment, "log", to);
	if (hf_file_rename(env, path, to) != 0) {
		segment_release(segment);
		return NULL;
	}
	segment->file = file;
	return segment;
}

struct segment *segment_absent(struct hf_env *env, const char *directory, int64_t base_offset)
{
	struct segment *segment = segment_new(env, directory, base_offset, 0);

	if (segment != NULL)
		segment->sealed = true;
	return segment;
}

/* With its file, nothing of which is read yet. */
static int segment_create(struct hf_env *env, const char *directory, int64_t base_offset, uint32_t index_interval,
	unsigned flags, struct segment **segment_out, struct hf_error *error)
{
	struct segment *segment;
	char path[SEGMENT_PATH_BYTES];
	int rc;

	*segment_out = NULL;
	if (strlen(directory) >= sizeof(segment->directory))
		return hf_error_set(
			error, -ENAMETOOLONG, "%.100s...: the path is too long; choose a shorter log.dirs", directory);
	segment = segment_new(env, directory, base_offset, index_interval);
	if (segment == NULL)
		return hf_error_set(error, -ENOMEM, "no memory for a segment of %s", directory);
	segment_path(segment, "log", path);
	rc = hf_file_open(env, path, flags, &segment->file);
	if (rc == 0) {
		*segment_out = segment;
		return 0;
	}
	segment_release(segment);
	return hf_error_set(error, rc, "cannot open %s: %s", path, strerror(-rc));
}

int segment_open(struct hf_env *env, const char *directory, int64_t base_offset, uint32_t index_interval,
	int64_t end_offset, enum segment_trust trust, struct segment **segment_out, struct hf_error *error)
{
	int rc = segment_create(env, directory, base_offset, index_interval, HF_FILE_WRITE, segment_out, error);

	if (rc == 0)
		rc = segment_load(*segment_out, end_offset, trust, error);
	if (rc != 0 && *segment_out != NULL) {
		segment_release(*segment_out);
		*segment_out = NULL;
	}
	return rc;
}

int segment_make(struct hf_env *env, const char *directory, int64_t base_offset, uint32_t capacity,
	uint32_t index_interval, struct segment **segment_out, struct hf_error *error)
{
	int rc = segment_create(
		env, directory, base_offset, index_interval, HF_FILE_WRITE | HF_FILE_CREATE, segment_out, error);

	if (rc == 0)
		rc = segment_begin(*segment_out, capacity, error);
	if (rc != 0 && *segment_out != NULL) {
		segment_release(*segment_out);
		*segment_out = NULL;
	}
	return rc;
}

/* ---- the end ---- */

/* A file that is as long already keeps its time (R-B44). */
static int trim(struct segment *segment)
{
	return hf_file_bytes(segment->file) == segment->bytes ? 0 : hf_file_resize(segment->file, segment->bytes);
}

int segment_seal(struct segment *segment)
{
	char path[SEGMENT_PATH_BYTES];
	uint32_t unused;
	int rc, rc_places, rc_times;

	if (segment->bytes > 0 && segment->max_timestamp_ms > segment_index_last_time(&segment->times, &unused))
		(void)segment_index_add_time(&segment->times, segment->max_timestamp_ms,
			(uint32_t)(segment->max_timestamp_offset - segment->base_offset));
	segment->sealed = true;
	rc = segment->pins > 0 ? 0 : trim(segment);
	segment_path(segment, "index", path);
	rc_places = segment_index_write(&segment->places, segment->env, path);
	segment_path(segment, "timeindex", path);
	rc_times = segment_index_write(&segment->times, segment->env, path);
	return rc != 0 ? rc : rc_places != 0 ? rc_places : rc_times;
}

void segment_hold(struct segment *segment)
{
	segment->holds++;
}

void segment_release(struct segment *segment)
{
	ensure(segment->holds > 0);
	if (--segment->holds > 0)
		return;
	if (segment->map != NULL)
		hf_mem_free(segment->env, segment->map);
	if (segment->file != NULL)
		hf_file_close(segment->file);
	segment_index_free(&segment->places);
	segment_index_free(&segment->times);
	free(segment);
}

void segment_pin(struct segment *segment)
{
	segment->pins++;
	segment_hold(segment);
}

void segment_unpin(struct segment *segment)
{
	ensure(segment->pins > 0);
	/* What stays long wastes room, and is trimmed by the next start. */
	if (--segment->pins == 0 && segment->sealed)
		(void)trim(segment);
	segment_release(segment);
}

int segment_reopen(struct segment **segment, uint32_t place, uint32_t capacity, struct hf_error *error)
{
	struct segment *old = *segment, *again;
	int rc = hf_file_resize(old->file, place);

	if (rc != 0)
		return hf_error_set(error, rc, "cannot shorten segment %lld in %s: %s", (long long)old->base_offset,
			old->directory, strerror(-rc));
	rc = segment_open(old->env, old->directory, old->base_offset, old->index_interval, SEGMENT_HEAD, SEGMENT_WHOLE,
		&again, error);
	if (rc == 0 && (rc = segment_begin(again, capacity, error)) != 0)
		segment_release(again);
	if (rc != 0) {
		(void)hf_file_resize(old->file, old->capacity); /* a read of what is gone finds zeros */
		return rc;
	}
	again->checked = old->checked;
	again->begun_ms = old->begun_ms;
	again->changed_ms = old->changed_ms;
	list_insert_before(&old->node, &again->node);
	list_remove(&old->node);
	segment_release(old);
	*segment = again;
	return 0;
}

static void segment_remove_files(const struct segment *segment, bool is_replaced)
{
	static const char *const endings[] = {"log", "index", "timeindex", "snapshot"};
	char path[SEGMENT_PATH_BYTES];

	for (unsigned i = is_replaced; i < sizeof(endings) / sizeof(*endings); i++) {
		segment_path(segment, endings[i], path);
		(void)hf_file_remove(segment->env, path); /* what is not there need not be removed */
	}
}

void segment_delete(struct segment *segment)
{
	segment_remove_files(segment, false);
	list_remove(&segment->node);
	segment_release(segment);
}

void segment_delete_replaced(struct segment *segment)
{
	segment_remove_files(segment, true);
	list_remove(&segment->node);
	segment_release(segment);
}
