/* completion_log.h - the log of executed wrs at a responder, written there by the requester (Varuna, section 3.2).
 *
 * Every vqp has a ring of 8-byte entries in memory of its responder. Behind each wr whose effect is not idempotent
 * the requester posts an inline WRITE of 8 bytes into the next entry of the ring, in the same call; by D1 it
 * executes only after the wr, so an entry that is there proves that its wr, and all before it on that qp, executed.
 * The ring is not read in normal operation. After the fence the responder finds the newest entry and sends it to
 * the requester, which compares all 64 bits of it with those of its wrs in flight.
 *
 *   entry, 8 bytes, little-endian
 *      0..47  pointer   to the requester's copy of the wr, in its request log
 *     48..62  stamp     the number of earlier rounds of the ring, modulo 2^15
 *         63  finished  1; an entry of zeros was never written
 *
 * Invariants:
 *   CLOG-1  Entries are used in order by everything that is logged, replays included, and each post uses a new one: so
 *           the newest in the ring is the last that executed, and stamps in the ring are at most a few rounds apart.
 *   CLOG-2  A ring has as many entries as the requester has slots for wrs in flight; without a free slot a post fails
 *           (-ENOMEM). So an entry is never overwritten while its wr may still need it (R17). */
#ifndef HOLDFAST_VQP_DATA_COMPLETION_LOG_H
#define HOLDFAST_VQP_DATA_COMPLETION_LOG_H

#include <stdbool.h>
#include <stdint.h>

#define LOG_ENTRY_BYTES  8u
#define LOG_POINTER_BITS 48
#define LOG_STAMP_BITS   15
#define LOG_STAMP_MASK   ((1u << LOG_STAMP_BITS) - 1)
#define LOG_FINISHED     (1ull << 63)
#define LOG_ENTRIES_MAX  65536u

_Static_assert(LOG_POINTER_BITS + LOG_STAMP_BITS + 1 == 8 * LOG_ENTRY_BYTES, "the layout of an entry");
_Static_assert(sizeof(uint64_t) == LOG_ENTRY_BYTES, "an entry is one word");

/* The requester's end of a ring. */
struct log_writer {
	uint64_t addr;    /* at the responder */
	uint32_t entries; /* a power of two; 0: there is no log */
	uint64_t turn;    /* entries taken so far */
};

/* Takes the next entry for the wr with its copy at `pointer`; returns its number in the ring. */
uint32_t completion_log_take(struct log_writer *writer, const void *pointer, uint64_t *entry_out);

/* The newest entry of a ring; false: nothing was ever written. */
bool completion_log_newest(const uint64_t *ring, uint32_t entries, uint32_t *number_out, uint64_t *entry_out);

/* The number of entries for a requester with this many wrs in flight. */
uint32_t completion_log_entries_for(uint32_t wrs);

#endif
