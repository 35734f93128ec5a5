/* Reading what store.h describes, and telling damage from what a power loss left. */
#include "smr/store.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/crc.h"

#define BUFFER_BYTES (2 * SMR_WAL_BATCH_MAX)
#define PIECE_HEAD   12u

int smr_store_damaged(const char *path, uint64_t offset, const char *what, struct hf_error *error)
{
	return hf_error_set(
		error, -EBADMSG, "%s is damaged at offset %llu: %s", path, (unsigned long long)offset, what);
}

static int cannot(const char *path, int rc, struct hf_error *error)
{
	return hf_error_set(error, rc, "cannot read %s: %s", path, strerror(-rc));
}

static void close_file(struct smr_store_reader *reader)
{
	hf_file_close(reader->file);
	reader->file = NULL;
	reader->buffer_bytes = 0;
}

void smr_store_read_close(struct smr_store_reader *reader)
{
	if (reader->file != NULL)
		close_file(reader);
	free(reader->buffer);
	reader->buffer = NULL;
}

/* Bytes that were read at an offset, as many as there are and fit; or -errno. What does not read back is no end. */
static ssize_t read_at(struct smr_store_reader *reader, uint64_t offset, struct hf_error *error)
{
	uint64_t left = offset < reader->file_bytes ? reader->file_bytes - offset : 0;
	size_t wanted = left < BUFFER_BYTES ? (size_t)left : BUFFER_BYTES;
	ssize_t n = 0;

	reader->buffer_at = offset;
	reader->buffer_bytes = 0;
	if (wanted > 0)
		n = hf_file_read_at(reader->file, reader->buffer, wanted, offset);
	if (n >= 0 && (size_t)n < wanted)
		n = -EIO;
	if (n < 0)
		return cannot(reader->path, (int)n, error);
	reader->buffer_bytes = (size_t)n;
	return n;
}

/* What the buffer has of what comes next. */
static size_t near_bytes(const struct smr_store_reader *reader, const uint8_t **at_out)
{
	uint64_t skip = reader->offset - reader->buffer_at; /* huge when the buffer begins behind it */

	*at_out = reader->buffer;
	if (skip >= reader->buffer_bytes)
		return 0;
	*at_out += skip;
	return reader->buffer_bytes - skip;
}

/* 1: its head is whole; 0: it is not; -errno. */
static int open_file(struct smr_store_reader *reader, const char *name, struct hf_error *error)
{
	const struct smr_store *store = reader->store;
	struct smr_wal_head head;
	int64_t bytes;
	ssize_t n;
	int rc;

	smr_store_path(store, name, reader->generation, true, reader->path);
	rc = hf_file_open(store->env, reader->path, 0, &reader->file);
	if (rc == -ENOENT)
		return smr_store_damaged(reader->path, 0, "it is missing", error);
	if (rc != 0)
		return cannot(reader->path, rc, error);
	bytes = hf_file_bytes(reader->file);
	if (bytes < 0)
		return cannot(reader->path, (int)bytes, error);
	reader->file_bytes = (uint64_t)bytes;
	reader->offset = SMR_WAL_HEAD;
	n = read_at(reader, 0, error);
	if (n < 0)
		return (int)n;
	if (!smr_wal_head_read(reader->buffer, (size_t)n, &head))
		return 0;
	if (head.cluster[0] != store->cluster[0] || head.cluster[1] != store->cluster[1] ||
		head.incarnation != store->incarnation || head.generation != reader->generation)
		return smr_store_damaged(reader->path, 8, "it is another replica's, or another file's", error);
	return 1;
}

static int begin(struct smr_store_reader *reader, const struct smr_store *store)
{
	*reader = (struct smr_store_reader){.store = store, .generation = store->base, .last = store->base};
	reader->crc = store->seed;
	reader->buffer = malloc(BUFFER_BYTES);
	return reader->buffer == NULL ? -ENOMEM : 0;
}

/* ---- a snapshot ---- */

int smr_store_read_snapshot(struct smr_store_reader *reader, const struct smr_store *store, struct hf_error *error)
{
	int rc = begin(reader, store);

	if (rc != 0)
		return hf_error_set(error, rc, "no memory to read %s", store->directory);
	rc = open_file(reader, "snapshot", error);
	return rc == 0 ? smr_store_damaged(reader->path, 0, "its head is none", error) : rc < 0 ? rc : 0;
}

bool smr_store_near_piece(struct smr_store_reader *reader, struct smr_store_piece *piece_out)
{
	const uint8_t *at;
	size_t n = near_bytes(reader, &at);
	uint32_t bytes = n < PIECE_HEAD ? UINT32_MAX : get_le32(at), crc;

	if (bytes > SMR_STORE_PIECE_BYTES || n < PIECE_HEAD + bytes)
		return false;
	crc = crc32c(crc32c(reader->crc, at, 8), at + PIECE_HEAD, bytes);
	if (crc != get_le32(at + 8) || (at[5] != 0 && reader->offset + PIECE_HEAD + bytes != reader->file_bytes))
		return false;
	*piece_out =
		(struct smr_store_piece){.part = at[4], .end = at[5] != 0, .data = at + PIECE_HEAD, .bytes = bytes};
	reader->crc = crc;
	reader->offset += PIECE_HEAD + bytes;
	return true;
}

static int damaged_piece(const struct smr_store_reader *reader, struct hf_error *error)
{
	const uint8_t *at;
	size_t n = near_bytes(reader, &at);
	uint32_t bytes = n < PIECE_HEAD ? UINT32_MAX : get_le32(at);

	if (bytes > SMR_STORE_PIECE_BYTES || n < PIECE_HEAD + bytes)
		return smr_store_damaged(reader->path, reader->offset, "a piece is cut off", error);
	if (crc32c(crc32c(reader->crc, at, 8), at + PIECE_HEAD, bytes) != get_le32(at + 8))
		return smr_store_damaged(reader->path, reader->offset, "a piece has another checksum", error);
	return smr_store_damaged(reader->path, reader->offset + PIECE_HEAD + bytes, "something follows its end", error);
}

int smr_store_next_piece(struct smr_store_reader *reader, struct smr_store_piece *piece_out, struct hf_error *error)
{
	ssize_t n;

	if (smr_store_near_piece(reader, piece_out))
		return 1;
	n = read_at(reader, reader->offset, error);
	if (n < 0)
		return (int)n;
	return smr_store_near_piece(reader, piece_out) ? 1 : damaged_piece(reader, error);
}

/* ---- the WAL ---- */

/* A whole batch behind a broken one was written after that one was durable (WAL-1). */
static int search(struct smr_store_reader *reader, struct hf_error *error)
{
	struct smr_wal_batch batch;

	for (uint64_t from = reader->offset; from < reader->file_bytes; from += SMR_WAL_BATCH_MAX) {
		ssize_t n = read_at(reader, from, error);

		if (n < 0)
			return (int)n;
		for (size_t at = 0; at < SMR_WAL_BATCH_MAX && at + SMR_WAL_BATCH_HEAD <= (size_t)n; at += 8)
			if (smr_wal_open(reader->store->seed, reader->buffer + at, (size_t)n - at, &batch) != 0 &&
				batch.sequence > reader->sequence)
				return smr_store_damaged(reader->path, reader->offset,
					"a batch is broken, and whole ones follow", error);
	}
	return 0;
}

static int open_wal(struct smr_store_reader *reader, struct hf_error *error)
{
	int rc = open_file(reader, "wal", error);

	if (rc != 0)
		return rc < 0 ? rc : 0;
	/* its head is durable before a batch is written */
	if (reader->generation == reader->store->base)
		return smr_store_damaged(reader->path, 0, "its head is none", error);
	rc = search(reader, error);
	reader->offset = 0;
	reader->file_bytes = 0;
	return rc;
}

int smr_store_read_wal(
	struct smr_store_reader *reader, const struct smr_store *store, uint64_t last, struct hf_error *error)
{
	int rc = begin(reader, store);

	if (rc != 0)
		return hf_error_set(error, rc, "no memory to read %s", store->directory);
	reader->last = last;
	return open_wal(reader, error);
}

/* Whole and right, in the buffer. */
static size_t near_batch(const struct smr_store_reader *reader, struct smr_wal_batch *batch_out)
{
	const uint8_t *at;
	size_t n = near_bytes(reader, &at);

	return smr_wal_open(reader->store->seed, at, n, batch_out);
}

bool smr_store_near_batch(struct smr_store_reader *reader, struct smr_wal_batch *batch_out)
{
	size_t length = near_batch(reader, batch_out);

	if (length == 0 || (reader->sequence != 0 && batch_out->sequence != reader->sequence + 1))
		return false;
	reader->sequence = batch_out->sequence;
	reader->offset += length;
	return true;
}

int smr_store_next_batch(struct smr_store_reader *reader, struct smr_wal_batch *batch_out, struct hf_error *error)
{
	for (;;) {
		ssize_t n = 0;
		int rc;

		if (smr_store_near_batch(reader, batch_out))
			return 1;
		n = read_at(reader, reader->offset, error);
		if (n < 0)
			return (int)n;
		if (smr_store_near_batch(reader, batch_out))
			return 1;
		if (near_batch(reader, batch_out) != 0)
			return smr_store_damaged(reader->path, reader->offset, "batches before it are missing", error);
		rc = search(reader, error);
		if (rc != 0 || reader->generation == reader->last)
			return rc;
		close_file(reader);
		reader->generation++;
		rc = open_wal(reader, error);
		if (rc != 0)
			return rc;
	}
}
