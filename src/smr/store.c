#include "smr/store.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/crc.h"
#include "base/log.h"

#define IDENTITY_MAGIC 0x32646e4964486d53ull
#define IDENTITY_BYTES 48u
#define IDENTITY_CRC   44u
#define SYNC_BYTES     (4u << 20) /* of a snapshot, so that its last sync is short */
#define PIECE_HEAD     12u
#define SESSIONS_MASK  0x7fffffu
#define REPLACES       0x80000000u
#define MARK_NS        1000000000ull /* the mark is synced as often */
#define MOVED_MAX      32u           /* files, at a time */

void smr_store_path(const struct smr_store *store, const char *name, uint64_t generation, bool numbered,
	char path_out[SMR_STORE_PATH_BYTES + SMR_STORE_NAME_BYTES])
{
	if (numbered)
		snprintf(path_out, SMR_STORE_PATH_BYTES + SMR_STORE_NAME_BYTES, "%s/%s.%llu", store->directory, name,
			(unsigned long long)generation);
	else
		snprintf(path_out, SMR_STORE_PATH_BYTES + SMR_STORE_NAME_BYTES, "%s/%s", store->directory, name);
}

static int cannot(const char *path, int rc, struct hf_error *error)
{
	return hf_error_set(error, rc, "cannot write %s: %s", path,
		rc == -ENOSPC ? "the disk is full; make room and start the member again" : strerror(-rc));
}

static int write_all(struct hf_file *file, const void *data, size_t bytes, uint64_t offset)
{
	ssize_t n = hf_file_write_at(file, data, bytes, offset);

	return n < 0 ? (int)n : (size_t)n < bytes ? -ENOSPC : 0;
}

/* ---- identity ---- */

static void encode_identity(const struct smr_store_identity *identity, uint8_t out[IDENTITY_BYTES])
{
	memset(out, 0, IDENTITY_BYTES);
	put_le64(out, IDENTITY_MAGIC);
	put_le64(out + 8, identity->cluster[0]);
	put_le64(out + 16, identity->cluster[1]);
	put_le64(out + 24, identity->incarnation);
	put_le32(out + 32, identity->slots);
	put_le32(out + 36, identity->slot_bytes);
	put_le32(out + 40, identity->id | identity->sessions << 8 | (identity->replaces ? REPLACES : 0));
	put_le32(out + IDENTITY_CRC, crc32c(0, out, IDENTITY_CRC));
}

static int replace(struct smr_store *store, const char *name, const void *data, size_t bytes, struct hf_error *error)
{
	char path[SMR_STORE_PATH_BYTES + SMR_STORE_NAME_BYTES], next[SMR_STORE_PATH_BYTES + SMR_STORE_NAME_BYTES];
	struct hf_file *file;
	int rc;

	smr_store_path(store, name, 0, false, path);
	smr_store_path(store, "new.tmp", 0, false, next);
	rc = hf_file_open(store->env, next, HF_FILE_WRITE | HF_FILE_CREATE | HF_FILE_TRUNCATE, &file);
	if (rc != 0)
		return cannot(next, rc, error);
	rc = write_all(file, data, bytes, 0);
	if (rc == 0)
		rc = hf_file_sync(file);
	hf_file_close(file);
	if (rc == 0)
		rc = hf_file_rename(store->env, next, path);
	return rc == 0 ? 0 : cannot(path, rc, error);
}

/* 1: it was read; 0: there is none; -errno. */
static int read_identity(struct smr_store *store, const struct smr_store_identity *ours, struct hf_error *error)
{
	char path[SMR_STORE_PATH_BYTES + SMR_STORE_NAME_BYTES];
	uint8_t found[IDENTITY_BYTES], own[IDENTITY_BYTES];
	struct smr_store_identity same = *ours;
	struct hf_file *file;
	ssize_t n;
	int rc;

	smr_store_path(store, "identity", 0, false, path);
	rc = hf_file_open(store->env, path, 0, &file);
	if (rc == -ENOENT)
		return 0;
	if (rc != 0)
		return hf_error_set(error, rc, "cannot read %s: %s", path, strerror(-rc));
	n = hf_file_read_at(file, found, sizeof(found), 0);
	hf_file_close(file);
	if (n < 0)
		return hf_error_set(error, (int)n, "cannot read %s: %s", path, strerror((int)-n));
	if (n != (ssize_t)sizeof(found) || get_le32(found + IDENTITY_CRC) != crc32c(0, found, IDENTITY_CRC))
		return smr_store_damaged(path, 0, "its checksum is another one", error);
	if (get_le64(found) != IDENTITY_MAGIC) /* its WAL has slots of another layout */
		return hf_error_set(error, -EINVAL,
			"%s is of another version of Holdfast, whose files this one does not read; start the "
			"member with that version, or with an empty directory",
			path);
	same.incarnation = store->incarnation = get_le64(found + 24);
	same.replaces = store->replaces = (get_le32(found + 40) & REPLACES) != 0;
	encode_identity(&same, own);
	if (memcmp(own, found, sizeof(own)) != 0)
		return hf_error_set(error, -EINVAL,
			"%s is of member %u with %u slots of %u bytes and %u sessions, or of another cluster; "
			"give each member its own directory, and the slots and sessions that it began with",
			path, found[40], get_le32(found + 32), get_le32(found + 36),
			get_le32(found + 40) >> 8 & SESSIONS_MASK);
	return 1;
}

/* ---- files of a generation ---- */

static void put_head(const struct smr_store *store, uint64_t generation, uint8_t out[SMR_WAL_HEAD])
{
	const struct smr_wal_head head = {.cluster = {store->cluster[0], store->cluster[1]},
		.incarnation = store->incarnation,
		.generation = generation};

	smr_wal_head_put(&head, out);
}

static int create_wal(struct smr_store *store, uint64_t generation, struct hf_file **file_out, struct hf_error *error)
{
	char path[SMR_STORE_PATH_BYTES + SMR_STORE_NAME_BYTES];
	uint8_t bytes[SMR_WAL_HEAD];
	int rc;

	smr_store_path(store, "wal", generation, true, path);
	rc = hf_file_open(store->env, path, HF_FILE_WRITE | HF_FILE_CREATE | HF_FILE_TRUNCATE, file_out);
	if (rc != 0)
		return cannot(path, rc, error);
	put_head(store, generation, bytes);
	rc = write_all(*file_out, bytes, sizeof(bytes), 0);
	if (rc == 0)
		rc = hf_file_sync(*file_out);
	if (rc == 0)
		return 0;
	hf_file_close(*file_out);
	*file_out = NULL;
	return cannot(path, rc, error);
}

int smr_store_rotate_name(struct smr_store *store, struct hf_error *error)
{
	int rc = hf_dir_sync(store->env, store->directory);

	return rc == 0 ? 0 : cannot(store->directory, rc, error);
}

struct listing {
	uint64_t snapshot, wal, lowest; /* the highest of each; the lowest of both */
};

static bool has_generation(const char *name, const char *kind, uint64_t *generation_out)
{
	size_t bytes = strlen(kind);
	uint64_t value = 0;

	if (strncmp(name, kind, bytes) != 0 || name[bytes] != '.' || name[bytes + 1] == '\0')
		return false;
	for (const char *at = name + bytes + 1; *at != '\0'; at++) {
		if (*at < '0' || *at > '9' || value > UINT64_MAX / 100)
			return false;
		value = value * 10 + (uint64_t)(*at - '0');
	}
	*generation_out = value;
	return true;
}

static void found(const char *name, void *context)
{
	struct listing *listing = context;
	uint64_t generation;

	if (has_generation(name, "snapshot", &generation)) {
		listing->snapshot = generation > listing->snapshot ? generation : listing->snapshot;
	} else if (has_generation(name, "wal", &generation)) {
		listing->wal = generation > listing->wal ? generation : listing->wal;
	} else {
		return;
	}
	if (generation < listing->lowest)
		listing->lowest = generation;
}

static int remove_file(struct smr_store *store, const char *name, uint64_t generation, bool numbered)
{
	char path[SMR_STORE_PATH_BYTES + SMR_STORE_NAME_BYTES];
	int rc;

	smr_store_path(store, name, generation, numbered, path);
	rc = hf_file_remove(store->env, path);
	return rc == -ENOENT ? 0 : rc;
}

int smr_store_trim(struct smr_store *store, uint64_t base, uint64_t generation, struct hf_error *error)
{
	int rc = 0;

	for (uint64_t i = base; rc == 0 && i < generation; i++) {
		rc = remove_file(store, "snapshot", i, true);
		if (rc == 0)
			rc = remove_file(store, "wal", i, true);
	}
	return rc == 0 ? 0
		       : hf_error_set(error, rc, "cannot remove old files of %s: %s", store->directory, strerror(-rc));
}

/* ---- opening ---- */

static int check_snapshot(struct smr_store *store, struct hf_error *error)
{
	struct smr_store_reader reader;
	struct smr_store_piece piece = {0};
	int rc;

	if (store->base == 0)
		return 0;
	store->has_state = true;
	rc = smr_store_read_snapshot(&reader, store, error);
	while (rc == 0 && !piece.end) {
		rc = smr_store_next_piece(&reader, &piece, error);
		rc = rc < 0 ? rc : 0;
	}
	smr_store_read_close(&reader);
	return rc;
}

/* Finds the last whole batch, and what is to be written behind. */
static int check_wal(struct smr_store *store, uint64_t last, struct hf_error *error)
{
	struct smr_store_reader reader;
	struct smr_wal_batch batch;
	uint64_t number = UINT64_MAX;
	int rc = smr_store_read_wal(&reader, store, last, error);

	store->current = store->base;
	store->wal_bytes = SMR_WAL_HEAD;
	while (rc == 0 && (rc = smr_store_next_batch(&reader, &batch, error)) == 1) {
		if (batch.number != number || reader.generation != store->current || smr_wal_promises(&batch))
			store->promised = batch.sequence;
		store->last_at = reader.generation == store->current ? store->wal_bytes : SMR_WAL_HEAD;
		store->current = reader.generation;
		store->wal_bytes = reader.offset;
		store->sequence = batch.sequence;
		number = batch.number;
		store->has_state = true;
		rc = 0;
	}
	smr_store_read_close(&reader);
	return rc;
}

static int open_mark(struct smr_store *store, struct synced_proof *before_out, struct hf_error *error)
{
	char path[SMR_STORE_PATH_BYTES + SMR_STORE_NAME_BYTES], owner[SYNCED_OWNER_BYTES];

	smr_store_path(store, "synced", 0, false, path);
	snprintf(owner, sizeof(owner), "smr %016llx", (unsigned long long)store->incarnation);
	return synced_open(store->env, path, owner, &store->mark, before_out, error);
}

static int mark(struct smr_store *store, bool now)
{
	uint64_t now_ns = hf_env_now_ns(store->env);
	int rc = synced_write(store->mark, 0, store->sequence + 1, store->sequence + 1);

	if (rc != 0 || (!now && now_ns - store->marked_ns < MARK_NS))
		return rc;
	store->marked_ns = now_ns;
	return synced_sync(store->mark);
}

static int write_mark(struct smr_store *store, bool now, struct hf_error *error)
{
	char path[SMR_STORE_PATH_BYTES + SMR_STORE_NAME_BYTES];
	int rc = mark(store, now);

	smr_store_path(store, "synced", 0, false, path);
	return rc == 0 ? 0 : cannot(path, rc, error);
}

/* What the mark proves is there (R-D2); else the mark is made durable as it is, so that it proves it again. */
static int check_mark(struct smr_store *store, const struct synced_proof *before, struct hf_error *error)
{
	char path[SMR_STORE_PATH_BYTES + SMR_STORE_NAME_BYTES], what[128];

	if (!before->known || store->sequence + 1 >= before->end)
		return 0;
	(void)synced_sync(store->mark);
	snprintf(what, sizeof(what), "batch %llu was on the disk, and the last whole one is batch %llu",
		(unsigned long long)before->end - 1, (unsigned long long)store->sequence);
	smr_store_path(store, "wal", store->current, true, path);
	return smr_store_damaged(path, store->wal_bytes, what, error);
}

/* The last batch may be in the kernel's memory alone: its process ended before the sync, or behind one that failed, and
 * the kernel does not write then what it takes for written. What counts as durable from now on is written again. */
static int write_last(struct smr_store *store)
{
	size_t bytes = store->last_at == 0 ? 0 : (size_t)(store->wal_bytes - store->last_at);
	uint8_t *batch = bytes == 0 ? NULL : malloc(bytes);
	ssize_t n = 0;
	int rc;

	if (bytes > 0 && batch == NULL)
		return -ENOMEM;
	if (bytes > 0)
		n = hf_file_read_at(store->wal, batch, bytes, store->last_at);
	rc = n < 0 ? (int)n : (size_t)n != bytes ? -EIO : 0;
	if (rc == 0 && bytes > 0)
		rc = write_all(store->wal, batch, bytes, store->last_at);
	free(batch);
	return rc == 0 ? hf_file_sync(store->wal) : rc;
}

static bool has_batches(struct smr_store *store, uint64_t generation)
{
	char path[SMR_STORE_PATH_BYTES + SMR_STORE_NAME_BYTES];
	struct hf_file *file;
	bool has;

	smr_store_path(store, "wal", generation, true, path);
	if (hf_file_open(store->env, path, 0, &file) != 0)
		return false;
	has = hf_file_bytes(file) > (int64_t)SMR_WAL_HEAD;
	hf_file_close(file);
	return has;
}

/* A file that was begun, and of which no batch is whole. */
static int keep_unfinished(struct smr_store *store, uint64_t generation)
{
	char path[SMR_STORE_PATH_BYTES + SMR_STORE_NAME_BYTES], kept[sizeof(path)];
	int rc;

	if (!has_batches(store, generation))
		return remove_file(store, "wal", generation, true);
	smr_store_path(store, "wal", generation, true, path);
	smr_store_path(store, "cut", generation, true, kept);
	rc = hf_file_rename(store->env, path, kept);
	if (rc == 0)
		log_warn("smr: %s was begun and not finished; nothing in it was acknowledged, and it is kept as %s",
			path, kept);
	return rc;
}

/* What lies behind the last whole batch. */
static int copy_torn(struct smr_store *store, uint64_t bytes, const char *to)
{
	uint8_t piece[4096];
	struct hf_file *file;
	int rc = hf_file_open(store->env, to, HF_FILE_WRITE | HF_FILE_CREATE | HF_FILE_TRUNCATE, &file);

	if (rc != 0)
		return rc;
	for (uint64_t at = 0; rc == 0 && at < bytes; at += sizeof(piece)) {
		size_t some = bytes - at < sizeof(piece) ? (size_t)(bytes - at) : sizeof(piece);
		ssize_t n = hf_file_read_at(store->wal, piece, some, store->wal_bytes + at);

		rc = n < 0 ? (int)n : (size_t)n != some ? -EIO : write_all(file, piece, some, at);
	}
	if (rc == 0)
		rc = hf_file_sync(file);
	hf_file_close(file);
	return rc == 0 ? hf_dir_sync(store->env, store->directory) : rc;
}

/* In a file beside it (R-D2); a member starts on a full disk all the same. */
static int keep_torn(struct smr_store *store, uint64_t bytes)
{
	char path[SMR_STORE_PATH_BYTES + SMR_STORE_NAME_BYTES], kept[sizeof(path)];
	int rc;

	smr_store_path(store, "wal", store->current, true, path);
	smr_store_path(store, "cut", store->current, true, kept);
	rc = copy_torn(store, bytes, kept);
	if (rc == 0 || rc == -ENOSPC)
		log_warn(
			"smr: %s is torn behind byte %llu, as a loss of power leaves it; the %llu bytes there were not "
			"acknowledged, and are %s %s",
			path, (unsigned long long)store->wal_bytes, (unsigned long long)bytes,
			rc == 0 ? "kept in" : "not kept, since the disk has no room for", kept);
	return rc == -ENOSPC ? remove_file(store, "cut", store->current, true) : rc;
}

/* Cuts off what is torn, so that nothing whole can follow something broken later. */
static int open_current(struct smr_store *store, uint64_t last, struct hf_error *error)
{
	char path[SMR_STORE_PATH_BYTES + SMR_STORE_NAME_BYTES];
	int64_t bytes = 0;
	int rc = 0;

	for (uint64_t i = store->current + 1; rc == 0 && i <= last; i++)
		rc = keep_unfinished(store, i);
	smr_store_path(store, "wal", store->current, true, path);
	if (rc == 0)
		rc = hf_file_open(store->env, path, HF_FILE_WRITE, &store->wal);
	if (rc == 0)
		bytes = hf_file_bytes(store->wal);
	if (bytes > (int64_t)store->wal_bytes)
		rc = keep_torn(store, (uint64_t)bytes - store->wal_bytes);
	if (rc == 0 && bytes != (int64_t)store->wal_bytes)
		rc = hf_file_resize(store->wal, store->wal_bytes);
	if (rc == 0)
		rc = write_last(store);
	if (rc == 0)
		rc = remove_file(store, "snapshot.tmp", 0, false);
	if (rc == 0)
		rc = remove_file(store, "new.tmp", 0, false);
	if (rc == 0)
		rc = hf_dir_sync(store->env, store->directory);
	return rc == 0 ? 0 : cannot(path, rc, error);
}

static int make(struct smr_store *store, const struct smr_store_identity *identity, struct hf_error *error)
{
	uint8_t bytes[IDENTITY_BYTES];
	int rc;

	store->incarnation = identity->incarnation;
	store->replaces = identity->replaces;
	store->base = store->current = store->sequence = store->promised = store->last_at = 0;
	store->wal_bytes = SMR_WAL_HEAD;
	rc = create_wal(store, 0, &store->wal, error);
	if (rc == 0)
		rc = smr_store_rotate_name(store, error);
	if (rc != 0)
		return rc;
	encode_identity(identity, bytes);
	return replace(store, "identity", bytes, sizeof(bytes), error);
}

/* The mark is made behind the identity, so one without the other has lost it. */
static bool has_mark(struct smr_store *store)
{
	char path[SMR_STORE_PATH_BYTES + SMR_STORE_NAME_BYTES];
	struct hf_file *file;

	smr_store_path(store, "synced", 0, false, path);
	if (hf_file_open(store->env, path, 0, &file) != 0)
		return false;
	hf_file_close(file);
	return true;
}

static int begin_new(struct smr_store *store, const struct smr_store_identity *identity, const struct listing *listing,
	struct hf_error *error)
{
	char path[SMR_STORE_PATH_BYTES + SMR_STORE_NAME_BYTES];
	struct synced_proof before;
	int rc;

	smr_store_path(store, "identity", 0, false, path);
	if (listing->snapshot > 0 || listing->wal > 0 || has_batches(store, 0) || has_mark(store))
		return smr_store_damaged(path, 0, "it is missing", error);
	rc = make(store, identity, error);
	if (rc == 0)
		rc = open_mark(store, &before, error);
	return rc == 0 ? write_mark(store, true, error) : rc;
}

static int make_directory(struct smr_store *store, struct hf_error *error)
{
	char parent[SMR_STORE_PATH_BYTES];
	size_t bytes = strlen(store->directory);
	int rc = hf_dir_make(store->env, store->directory);

	while (bytes > 1 && store->directory[bytes - 1] == '/')
		bytes--;
	while (bytes > 0 && store->directory[bytes - 1] != '/')
		bytes--;
	(void)snprintf(parent, sizeof(parent), "%.*s", (int)bytes, store->directory);
	if (rc == 0 || rc == -EEXIST)
		rc = hf_dir_sync(store->env, bytes == 0 ? "." : parent);
	return rc == 0 ? 0
		       : hf_error_set(error, rc, "cannot make the directory %s: %s", store->directory, strerror(-rc));
}

static int lock(struct smr_store *store, struct hf_error *error)
{
	char path[SMR_STORE_PATH_BYTES + SMR_STORE_NAME_BYTES];
	int rc = make_directory(store, error);

	if (rc != 0)
		return rc;
	smr_store_path(store, "lock", 0, false, path);
	rc = hf_file_open(store->env, path, HF_FILE_WRITE | HF_FILE_CREATE, &store->lock);
	if (rc != 0)
		return cannot(path, rc, error);
	rc = hf_file_lock(store->lock);
	if (rc == -EAGAIN)
		return hf_error_set(error, -EBUSY,
			"%s is in use by another process: end that process, or give this member a directory of its own",
			path);
	return rc == 0 ? 0 : hf_error_set(error, rc, "cannot lock %s: %s", path, strerror(-rc));
}

static int open_files(struct smr_store *store, const struct smr_store_identity *identity, struct hf_error *error)
{
	struct listing listing = {.lowest = UINT64_MAX};
	struct synced_proof before;
	int rc = lock(store, error);

	if (rc == 0 && (rc = hf_dir_list(store->env, store->directory, found, &listing)) != 0)
		return hf_error_set(error, rc, "cannot list %s: %s", store->directory, strerror(-rc));
	if (rc != 0)
		return rc;
	rc = read_identity(store, identity, error);
	if (rc < 0)
		return rc;
	if (rc == 0)
		return begin_new(store, identity, &listing, error);
	rc = open_mark(store, &before, error);
	if (rc != 0)
		return rc;
	store->base = listing.snapshot;
	rc = check_snapshot(store, error);
	if (rc == 0)
		rc = check_wal(store, listing.wal > store->base ? listing.wal : store->base, error);
	if (rc == 0)
		rc = check_mark(store, &before, error);
	if (rc == 0)
		rc = smr_store_trim(store, listing.lowest, store->base, error);
	if (rc == 0)
		rc = open_current(store, listing.wal, error);
	return rc == 0 ? write_mark(store, true, error) : rc;
}

static void close_files(struct smr_store *store)
{
	smr_store_snapshot_drop(store);
	if (store->wal != NULL)
		hf_file_close(store->wal);
	synced_close(store->mark, false);
	store->wal = NULL;
	store->mark = NULL;
}

static int damaged(struct smr_store *store, bool alone, struct hf_error *error)
{
	const struct hf_error what = *error;

	close_files(store);
	if (alone)
		return hf_error_set(error, -EBADMSG,
			"%s; restore it from a copy, or empty the directory to begin without what it had", what.text);
	store->damaged = true;
	store->has_state = false;
	store->base = store->sequence = store->promised = 0;
	return -EBADMSG;
}

int smr_store_open(struct smr_store *store, struct hf_env *env, const char *directory,
	const struct smr_store_identity *identity, struct hf_error *error)
{
	int rc;

	*store = (struct smr_store){
		.env = env, .cluster = {identity->cluster[0], identity->cluster[1]}, .seed = identity->seed};
	if ((size_t)snprintf(store->directory, sizeof(store->directory), "%s", directory) >= sizeof(store->directory))
		return hf_error_set(error, -ENAMETOOLONG, "%.60s...: the path of the directory has at most %u bytes",
			directory, SMR_STORE_PATH_BYTES - 1);
	rc = open_files(store, identity, error);
	if (rc == -EBADMSG)
		rc = damaged(store, identity->alone, error);
	if (rc != 0 && !store->damaged)
		smr_store_close(store);
	return rc;
}

void smr_store_close(struct smr_store *store)
{
	if (store->mark != NULL)
		(void)mark(store, true);
	close_files(store);
	if (store->lock != NULL)
		hf_file_close(store->lock);
	store->lock = NULL;
}

void smr_store_prove(struct smr_store *store, uint64_t sequence)
{
	if (store->mark != NULL && synced_write(store->mark, 0, sequence + 1, sequence + 1) == 0)
		(void)synced_sync(store->mark);
	synced_close(store->mark, false);
	store->mark = NULL;
}

/* ---- in place of a damaged replica ---- */

struct names {
	char at[MOVED_MAX][SMR_STORE_NAME_BYTES];
	unsigned count;
};

static void note_name(const char *name, void *context)
{
	struct names *names = context;
	uint64_t generation;

	if ((has_generation(name, "snapshot", &generation) || has_generation(name, "wal", &generation) ||
		    has_generation(name, "cut", &generation) || strcmp(name, "identity") == 0) &&
		names->count < MOVED_MAX && strlen(name) < SMR_STORE_NAME_BYTES)
		snprintf(names->at[names->count++], SMR_STORE_NAME_BYTES, "%s", name);
}

static int make_aside(struct smr_store *store, char path[SMR_STORE_PATH_BYTES + SMR_STORE_NAME_BYTES])
{
	uint64_t k = 0;
	int rc;

	do {
		smr_store_path(store, "damaged", k, true, path);
		rc = hf_dir_make(store->env, path);
	} while (rc == -EEXIST && k++ < UINT32_MAX);
	return rc == 0 ? hf_dir_sync(store->env, store->directory) : rc;
}

/* Until all have moved and the new identity is there, the mark that stays proves that something is missing (R-D5). */
static int move_aside(struct smr_store *store)
{
	char aside[SMR_STORE_PATH_BYTES + SMR_STORE_NAME_BYTES], from[sizeof(aside)];
	char to[sizeof(aside) + SMR_STORE_NAME_BYTES];
	struct names names;
	int rc = make_aside(store, aside);

	do {
		names.count = 0;
		if (rc == 0)
			rc = hf_dir_list(store->env, store->directory, note_name, &names);
		for (unsigned i = 0; rc == 0 && i < names.count; i++) {
			smr_store_path(store, names.at[i], 0, false, from);
			snprintf(to, sizeof(to), "%s/%s", aside, names.at[i]);
			rc = hf_file_rename(store->env, from, to);
		}
	} while (rc == 0 && names.count > 0);
	return rc == 0 ? hf_dir_sync(store->env, store->directory) : rc;
}

int smr_store_renew(
	struct smr_store *store, const struct smr_store_identity *identity, unsigned step, struct hf_error *error)
{
	struct synced_proof before;
	int rc = 0;

	if (step == 0 && !has_mark(store)) {
		rc = open_mark(store, &before, error); /* so that it is there */
		synced_close(store->mark, false);
		store->mark = NULL;
	}
	if (step == 0 && rc == 0 && (rc = move_aside(store)) != 0)
		rc = cannot(store->directory, rc, error);
	if (step == 1)
		rc = make(store, identity, error);
	if (step == 2 && (rc = open_mark(store, &before, error)) == 0)
		rc = write_mark(store, true, error);
	return rc;
}

/* ---- writing the WAL ---- */

int smr_store_append(struct smr_store *store, const uint8_t *batch, size_t bytes, struct hf_error *error)
{
	char path[SMR_STORE_PATH_BYTES + SMR_STORE_NAME_BYTES];
	int rc = write_all(store->wal, batch, bytes, store->wal_bytes);

	if (rc == 0)
		rc = hf_file_sync_data(store->wal);
	if (rc == 0) {
		store->wal_bytes += bytes;
		store->sequence++;
		return 0;
	}
	/* What could not be synced must not be found by another process, for which the kernel has it. */
	(void)hf_file_resize(store->wal, store->wal_bytes);
	smr_store_path(store, "wal", store->current, true, path);
	return cannot(path, rc, error);
}

int smr_store_mark(struct smr_store *store, struct hf_error *error)
{
	return write_mark(store, false, error);
}

int smr_store_rotate(struct smr_store *store, struct hf_error *error)
{
	struct hf_file *file;
	int rc = create_wal(store, store->current + 1, &file, error);

	if (rc != 0)
		return rc;
	hf_file_close(store->wal);
	store->wal = file;
	store->wal_bytes = SMR_WAL_HEAD;
	store->current++;
	return 0;
}

/* ---- writing a snapshot ---- */

int smr_store_snapshot_begin(struct smr_store *store, struct hf_error *error)
{
	char path[SMR_STORE_PATH_BYTES + SMR_STORE_NAME_BYTES];
	int rc;

	smr_store_snapshot_drop(store);
	smr_store_path(store, "snapshot.tmp", 0, false, path);
	rc = hf_file_open(store->env, path, HF_FILE_WRITE | HF_FILE_CREATE | HF_FILE_TRUNCATE, &store->snapshot);
	if (rc != 0)
		return cannot(path, rc, error);
	store->snapshot_bytes = store->snapshot_synced = SMR_WAL_HEAD;
	store->snapshot_crc = store->seed;
	return 0;
}

int smr_store_snapshot_piece(
	struct smr_store *store, uint8_t part, bool end, const void *data, uint32_t bytes, struct hf_error *error)
{
	char path[SMR_STORE_PATH_BYTES + SMR_STORE_NAME_BYTES];
	uint8_t head[PIECE_HEAD] = {0};
	int rc;

	put_le32(head, bytes);
	head[4] = part;
	head[5] = end;
	store->snapshot_crc = crc32c(crc32c(store->snapshot_crc, head, 8), data, bytes);
	put_le32(head + 8, store->snapshot_crc);
	rc = write_all(store->snapshot, head, sizeof(head), store->snapshot_bytes);
	if (rc == 0)
		rc = write_all(store->snapshot, data, bytes, store->snapshot_bytes + sizeof(head));
	store->snapshot_bytes += sizeof(head) + bytes;
	if (rc == 0 && store->snapshot_bytes - store->snapshot_synced > SYNC_BYTES) {
		rc = hf_file_sync_data(store->snapshot);
		store->snapshot_synced = store->snapshot_bytes;
	}
	if (rc == 0)
		return 0;
	smr_store_path(store, "snapshot.tmp", 0, false, path);
	return cannot(path, rc, error);
}

int smr_store_snapshot_sync(struct smr_store *store, uint64_t generation, struct hf_error *error)
{
	char path[SMR_STORE_PATH_BYTES + SMR_STORE_NAME_BYTES];
	uint8_t bytes[SMR_WAL_HEAD];
	int rc;

	put_head(store, generation, bytes);
	rc = write_all(store->snapshot, bytes, sizeof(bytes), 0);
	if (rc == 0)
		rc = hf_file_sync(store->snapshot);
	smr_store_snapshot_drop(store);
	smr_store_path(store, "snapshot.tmp", 0, false, path);
	return rc == 0 ? 0 : cannot(path, rc, error);
}

int smr_store_snapshot_name(struct smr_store *store, uint64_t generation, struct hf_error *error)
{
	char from[SMR_STORE_PATH_BYTES + SMR_STORE_NAME_BYTES], to[SMR_STORE_PATH_BYTES + SMR_STORE_NAME_BYTES];
	int rc;

	smr_store_path(store, "snapshot.tmp", 0, false, from);
	smr_store_path(store, "snapshot", generation, true, to);
	rc = hf_file_rename(store->env, from, to);
	return rc == 0 ? 0 : cannot(to, rc, error);
}

void smr_store_snapshot_drop(struct smr_store *store)
{
	if (store->snapshot != NULL)
		hf_file_close(store->snapshot);
	store->snapshot = NULL;
}
