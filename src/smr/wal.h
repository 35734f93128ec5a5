/* wal.h - the layout of a durable replica's write-ahead log of accepts and promises. Pure; any thread.
 *
 * A file, little-endian, all parts at multiples of 8:
 *    0 u64 magic   8 u64 cluster[2]   24 u64 incarnation   32 u64 generation   40 u32 0   44 u32 CRC32C of bytes 0..43
 *   64 batches, each written and synced as a whole:
 *         0 u32 magic     4 u32 crc         CRC32C of bytes 8..39 and the records, seeded with the cluster's
 *         8 u64 sequence                    1, 2, ..., through all files
 *        16 u64 number                      the highest that is promised
 *        24 u64 commit                      all below is decided, and is in earlier batches as it was decided
 *        32 u32 bytes of the records        36 u32 0
 *        40 records: u32 bytes, u32 type: a slot as in the log (slot.h), the configuration that founded the cluster, or
 *           what another member has published as durable {u64 id, u64 incarnation, u64 sequence, u64 number} (R-D4);
 *           padded to 8
 *
 * Invariants:
 *   WAL-1  A batch begins behind a durable one: only the last batch can be torn by a power loss.
 *   WAL-2  Of an index the last record counts: it has the highest number. */
#ifndef HOLDFAST_SMR_WAL_H
#define HOLDFAST_SMR_WAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SMR_WAL_HEAD        64u
#define SMR_WAL_BATCH_HEAD  40u
#define SMR_WAL_RECORD_HEAD 8u
#define SMR_WAL_BATCH_MAX   (1u << 20) /* with its head */
#define SMR_WAL_SEEN_BYTES  32u

struct smr_wal_head {
	uint64_t cluster[2], incarnation, generation;
};
void smr_wal_head_put(const struct smr_wal_head *head, uint8_t out[SMR_WAL_HEAD]);
bool smr_wal_head_read(const uint8_t *data, size_t bytes, struct smr_wal_head *head_out);

enum smr_wal_type { SMR_WAL_SLOT = 1, SMR_WAL_FOUNDED = 2, SMR_WAL_SEEN = 3 };

struct smr_wal_batch {
	uint64_t sequence, number, commit;
	uint32_t bytes;         /* of the records */
	const uint8_t *records; /* in the memory that was read */
};
/* Fills in the head of a batch whose records are in place. */
void smr_wal_seal(uint32_t seed, const struct smr_wal_batch *batch, uint8_t *out);
/* Bytes of the batch; 0: no whole one stands there. */
size_t smr_wal_open(uint32_t seed, const uint8_t *data, size_t bytes, struct smr_wal_batch *batch_out);
/* What a batch that begins so would have; 0: none begins so. From SMR_WAL_BATCH_HEAD bytes. */
size_t smr_wal_length(const uint8_t *head);

/* Not only what was seen of others. */
bool smr_wal_promises(const struct smr_wal_batch *batch);

struct smr_wal_record {
	uint32_t type, bytes;
	const uint8_t *data;
};
/* Appends behind `at` bytes of records; the new number of bytes. There is room. */
uint32_t smr_wal_put(uint8_t *records, uint32_t at, enum smr_wal_type type, const void *data, uint32_t bytes);
static inline uint32_t smr_wal_room(uint32_t bytes) /* that a record takes */
{
	return SMR_WAL_RECORD_HEAD + ((bytes + 7) & ~7u);
}
/* From *at on, which moves on. False: there is no further one. */
bool smr_wal_next(const struct smr_wal_batch *batch, uint32_t *at, struct smr_wal_record *record_out);

#endif
