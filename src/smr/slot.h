/* slot.h - the layout of the log in memory, and the validation of its contents. Pure; any thread.
 *
 * Log region, little-endian:
 *     0 u64 promise    a word: the number below which nothing is accepted here any more
 *     8 u64 commit     a word: everything below is decided; written by the holder of the log alone
 *    64 u64 magic, u64 cluster[2], u32 slots, u32 slot_bytes
 *  4096 slot[], slot_bytes each; index i lies in slot i mod slots:
 *         0 u64 accept   number << 24 | the low 24 bits of crc; 0: nothing was accepted
 *         8 u64 index   16 u32 bytes   20 u16 kind   22 u16 requests
 *        24 u64 origin   the number under which the entry was proposed << 16 | the place of this slot in it, from 0
 *        32 u32 crc      CRC32C of bytes 8..31 and the payload, seeded with the cluster's id
 *        36 u32 check    the same of index and commit
 *        40 u64 commit   the leader's when it wrote this; never above index
 *        48 payload
 *
 * A word is value << 16 | 16 bits of its CRC, because not every NIC writes eight bytes at once. Invariants:
 *   SLOT-1  Index and payload are covered by crc, and accept names crc: a number is never valid with another value.
 *   SLOT-2  An entry of an earlier lap is never valid, because the index is absolute.
 *   SLOT-3  Slots form an entry only if one leader proposed them as one: a slot keeps its origin when it is copied
 *           under another number, and a leader proposes one entry at an index. */
#ifndef HOLDFAST_SMR_SLOT_H
#define HOLDFAST_SMR_SLOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SMR_LOG_PROMISE 0u
#define SMR_LOG_COMMIT  8u
#define SMR_LOG_MAGIC   64u
#define SMR_LOG_SLOTS   4096u

#define SMR_SLOT_ACCEPT 0u
#define SMR_SLOT_INDEX  8u
#define SMR_SLOT_CRC    32u
#define SMR_SLOT_CHECK  36u
#define SMR_SLOT_HEADER 48u

enum smr_kind {
	SMR_REQUESTS = 1,
	SMR_NOOP = 2,
	SMR_CONFIG = 3,
	SMR_KINDS_MASK = 0xff,
	SMR_FIRST = 0x100, /* of the slots of an entry */
	SMR_LAST = 0x200,
};

struct smr_geometry {
	uint32_t slots, slot_bytes;
	uint32_t span; /* slots that may be undecided; the largest entry */
	uint32_t seed; /* of the checksums: the cluster's */
};

struct smr_slot {
	uint64_t accept, index, origin, commit; /* commit 0: not valid */
	uint32_t bytes, crc;
	uint16_t kind, requests;
};

enum smr_slot_state {
	SMR_SLOT_EMPTY,  /* of an earlier lap, or never written */
	SMR_SLOT_BROKEN, /* neither a value nor the end of the log */
	SMR_SLOT_VALID,
	SMR_SLOT_LATER, /* valid, for a later lap */
};

/* For `index`, in the slot_bytes at `at`, which may change meanwhile: what is returned as valid was so. */
enum smr_slot_state smr_slot_judge(
	const struct smr_geometry *geometry, const uint8_t *at, uint64_t index, struct smr_slot *slot_out);
/* Fills header and payload in; accept last. slot.crc is computed. Returns the bytes to be written, a multiple of 8. */
uint32_t smr_slot_store(const struct smr_geometry *geometry, uint8_t *at, const struct smr_slot *slot, uint64_t number,
	const void *payload);
/* Takes a value, valid at `from`, over into another log under `number`. */
void smr_slot_copy(const struct smr_geometry *geometry, uint8_t *at, const uint8_t *from, uint64_t number);
bool smr_slot_same(const uint8_t *a, const uint8_t *b); /* both valid: the same value */
uint32_t smr_slot_bytes(const struct smr_slot *slot);   /* that a WRITE of it has */

static inline uint64_t smr_slot_number(const struct smr_slot *slot)
{
	return slot->accept >> 24;
}

static inline uint64_t smr_slot_word(uint64_t number, uint32_t crc)
{
	return number << 24 | (crc & 0xffffff);
}

/* Of the first slot of an entry; each further slot has one more. */
static inline uint64_t smr_slot_origin(uint64_t number)
{
	return number << 16;
}

#define SMR_WORD_MAX ((1ull << 48) - 1)
uint64_t smr_slot_seal(uint64_t value); /* a word */
/* False: it was never written, or not all of it has arrived. */
bool smr_slot_open(uint64_t word, uint64_t *value_out);

#endif
