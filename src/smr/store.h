/* store.h - the files of a durable replica, in a directory of its own:
 *
 *   lock          held by the process that runs the replica
 *   synced        the sequence of the last batch that is on the disk (env/synced.h, R-D1)
 *   identity      of the replica; made first, and never changed
 *   snapshot.G    the state before the first entry of wal.G; G 0 has none
 *   wal.G         accepts and promises since (wal.h); the highest one is being written
 *   snapshot.tmp  is being written
 *   damaged.K     a directory: files of a replica that has lost something, which this one replaces
 *
 * Identity, little-endian: u64 magic, u64 cluster[2], u64 incarnation, u32 slots, u32 slot_bytes, u8 id,
 * u23 sessions, one bit: it replaces one that has lost something; u32 CRC32C of what is before. A snapshot: a head as
 * that of a WAL, then pieces {u32 bytes, u8 part, u8 end, u16 0, u32 crc, data}; each crc is seeded with the one
 * before.
 *
 * Synced data that does not read back is damage (R-D2): an error names the file, the offset and the remedy, and no byte
 * changes. So is a last batch that is not there and has a sequence below the mark. Above it a batch that is torn by a
 * power loss was never durable, and is cut off.
 *
 * All functions block. Those on the WAL are called by one thread at a time, and so are those on a snapshot. */
#ifndef HOLDFAST_SMR_STORE_H
#define HOLDFAST_SMR_STORE_H

#include <holdfast/env.h>

#include "env/synced.h"
#include "smr/wal.h"

#define SMR_STORE_PATH_BYTES  256u
#define SMR_STORE_NAME_BYTES  32u
#define SMR_STORE_PIECE_BYTES 65536u

struct smr_store {
	struct hf_env *env;
	char directory[SMR_STORE_PATH_BYTES];
	uint32_t seed; /* of checksums: the cluster's */
	uint64_t cluster[2], incarnation;
	bool replaces; /* a replica that has lost something: it founds no cluster (R-D5) */
	bool damaged;  /* nothing is written, and nothing of it counts, until smr_store_renew() */
	struct hf_file *lock;
	struct synced *mark;
	uint64_t marked_ns;     /* when it was synced last */
	uint64_t base, current; /* generations: of the snapshot, of the WAL that is written */
	struct hf_file *wal;
	uint64_t wal_bytes, sequence; /* of the current file; of the last batch */
	uint64_t promised;            /* the last one that others may count on: it has more than what was seen */
	uint64_t last_at;             /* where that one begins; 0: it is in no file that is written */
	bool has_state;               /* something was read that was accepted, promised, or snapshot */
	struct hf_file *snapshot;     /* that is being written */
	uint64_t snapshot_bytes, snapshot_synced;
	uint32_t snapshot_crc;
};

struct smr_store_identity {
	uint64_t cluster[2], incarnation; /* incarnation: of a new replica */
	uint32_t slots, slot_bytes, seed, sessions;
	uint8_t id;
	bool alone; /* no other member has what it has */
	bool replaces;
};

/* Checks everything that is there, or makes it. -EBUSY: another process has it; -EBADMSG: something is damaged;
 * -EINVAL: it is another replica's. The incarnation is the one that the files have. Damaged, and not alone: the store
 * stays open, and has nothing. */
int smr_store_open(struct smr_store *store, struct hf_env *env, const char *directory,
	const struct smr_store_identity *identity, struct hf_error *error);
void smr_store_close(struct smr_store *store);
/* The damaged files move aside, and another replica begins there, which replaces this one. */
/* `damaged` is the caller's to take back, behind the last step. */
#define SMR_STORE_RENEW_STEPS 3u /* each is durable before the next begins */
int smr_store_renew(
	struct smr_store *store, const struct smr_store_identity *identity, unsigned step, struct hf_error *error);
/* Others have proven that batches up to there were durable: the next opening finds the damage. */
void smr_store_prove(struct smr_store *store, uint64_t sequence);

/* Durable on return: a sealed batch. After an error the file ends where it did. */
int smr_store_append(struct smr_store *store, const uint8_t *batch, size_t bytes, struct hf_error *error);
/* That it was (SYNCED-1): before anything of it is published. */
int smr_store_mark(struct smr_store *store, struct hf_error *error);
/* What follows goes into the next file, once it has its name. */
int smr_store_rotate(struct smr_store *store, struct hf_error *error);
int smr_store_rotate_name(struct smr_store *store, struct hf_error *error);

int smr_store_snapshot_begin(struct smr_store *store, struct hf_error *error);
int smr_store_snapshot_piece(
	struct smr_store *store, uint8_t part, bool end, const void *data, uint32_t bytes, struct hf_error *error);
/* All pieces are written: durable on return; then with the name, too, as the snapshot of that generation. */
int smr_store_snapshot_sync(struct smr_store *store, uint64_t generation, struct hf_error *error);
int smr_store_snapshot_name(struct smr_store *store, uint64_t generation, struct hf_error *error);
void smr_store_snapshot_drop(struct smr_store *store);
/* Removes files older than that generation, which has a finished snapshot. */
int smr_store_trim(struct smr_store *store, uint64_t base, uint64_t generation, struct hf_error *error);

void smr_store_path(const struct smr_store *store, const char *name, uint64_t generation, bool numbered,
	char path_out[SMR_STORE_PATH_BYTES + SMR_STORE_NAME_BYTES]);
/* Sets the error for damage, with its remedy; returns -EBADMSG. */
int smr_store_damaged(const char *path, uint64_t offset, const char *what, struct hf_error *error);

/* ---- reading: store_read.c ---- */

struct smr_store_reader {
	const struct smr_store *store;
	uint64_t generation, last;             /* the file that is read, and the last one */
	uint64_t offset, file_bytes, sequence; /* offset: behind what was read; sequence: of the last batch; 0: none */
	struct hf_file *file;
	uint32_t crc;
	uint8_t *buffer; /* has `buffer_bytes` of the file, from `buffer_at` on */
	uint64_t buffer_at;
	size_t buffer_bytes;
	char path[SMR_STORE_PATH_BYTES + SMR_STORE_NAME_BYTES];
};
struct smr_store_piece {
	uint8_t part;
	bool end;
	const uint8_t *data;
	uint32_t bytes;
};

/* Both: 0, or -errno; close also after an error. */
int smr_store_read_wal(
	struct smr_store_reader *reader, const struct smr_store *store, uint64_t last, struct hf_error *error);
int smr_store_read_snapshot(struct smr_store_reader *reader, const struct smr_store *store, struct hf_error *error);
/* True: a batch or piece that was read with one before, in the reader's memory until the next call. Reads nothing. */
bool smr_store_near_batch(struct smr_store_reader *reader, struct smr_wal_batch *batch_out);
bool smr_store_near_piece(struct smr_store_reader *reader, struct smr_store_piece *piece_out);
/* 1: the next batch or piece, likewise; 0: the end; -EBADMSG: damage; -errno. */
int smr_store_next_batch(struct smr_store_reader *reader, struct smr_wal_batch *batch_out, struct hf_error *error);
int smr_store_next_piece(struct smr_store_reader *reader, struct smr_store_piece *piece_out, struct hf_error *error);
void smr_store_read_close(struct smr_store_reader *reader);

#endif
