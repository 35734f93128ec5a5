/* rdma_wire.h - messages of a broker and its clients on their vqps. Little-endian.
 *
 * A vqp connects to the service "broker" with a token (Access, key 30000) as its private data. The reply:
 *
 *   PRODUCE   0 u8 version  1 u8 kind  2 u16 extent id  4 u32 credits  8 u64 address  16 u32 key  20 u32 bytes
 *             24 u32 largest batch  28 i32 leader epoch
 *   READ      0 u8 version  1 u8 kind  2 u16 slots  4 u32 key  8 u64 address of the slots
 *
 * Producing. The holder WRITEs batches one behind the other from `address` on, each WITH_IMM: order << 16 | extent id,
 * orders count from 0 in each extent. The broker SENDs entries of 32 bytes, several together:
 *
 *   ANSWER    0 u8 1  1 u8 0  2 u16 order  4 i16 error  6 u16 extent id  8 u32 credits  12 u32 0
 *             16 i64 base offset  24 i64 append time, ms (-1: the client's holds)
 *   EXTENT    0 u8 2  1 u8 0  2 u16 extent id  4 u32 key  8 u64 address  16 u32 bytes  20 u32 credits  24 u64 0
 *   END       0 u8 3  1.. 0   the grant is over: Access reports which unanswered batches are in the log
 *
 * Credits are the total of messages that the holder may send on this vqp: they are posted receives (R-B23). When a
 * batch does not fit behind the last one, the holder SENDs OVERRUN, and gets an EXTENT (R-B5):
 *
 *   OVERRUN   0 u8 4  1 u8 0  2 u16 order  4 u32 place in the extent  8 u32 bytes  12 u32 0
 *
 * Reading. A slot has 16 bytes: mutable << 63 | generation << 48 | readable, and its complement (R-B12). `readable` is
 * the place in the segment up to which records may be read. When it is not mutable, it is final, and the next ATTACH
 * continues, in the same segment or another one. A slot of another generation belongs to another reader (R-B13).
 *
 *   ATTACH    0 u8 5  1 u8 0  2 u16 request  4 i32 partition  8 i64 offset  16 u16 bytes  18 u16 0
 *             20 i32 leader epoch (-1: not known)  24 topic
 *   ATTACHED  0 u8 6  1 u8 0  2 u16 request  4 i16 error  6 u16 slot  8 u16 generation  10 u16 0  12 u32 key
 *             16 u64 address of the segment  24 u32 place  28 u32 0  32 i64 base offset of the segment
 *   RELEASE   0 u8 7  1 u8 0  2 u16 slot  4 u16 generation  6 u16 0 */
#ifndef HOLDFAST_BROKER_RDMA_WIRE_H
#define HOLDFAST_BROKER_RDMA_WIRE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/bytes.h"

#define RDMA_SERVICE         "broker"
#define RDMA_VERSION         1u
#define RDMA_TOKEN_BYTES     16u
#define RDMA_GRANT_BYTES     32u
#define RDMA_READING_BYTES   16u
#define RDMA_ENTRY_BYTES     32u
#define RDMA_ENTRIES_MAX     16u /* of one SEND */
#define RDMA_OVERRUN_BYTES   16u
#define RDMA_CREDITS         64u /* receives of a grant */
#define RDMA_ATTACH_BYTES    24u /* before the topic */
#define RDMA_TOPIC_MAX       249u
#define RDMA_ATTACHED_BYTES  40u
#define RDMA_RELEASE_BYTES   8u
#define RDMA_SLOTS           64u
#define RDMA_SLOT_BYTES      16u
#define RDMA_READER_RECEIVES 16u /* ATTACH and RELEASE that a reader may have out */

enum rdma_say {
	RDMA_ANSWER = 1,
	RDMA_EXTENT,
	RDMA_END,
	RDMA_OVERRUN,
	RDMA_ATTACH,
	RDMA_ATTACHED,
	RDMA_RELEASE,
};

enum access_kind {
	ACCESS_PRODUCE, /* a token for an exclusive grant */
	ACCESS_READ,    /* a token for a vqp to read through */
	ACCESS_SETTLE,  /* no token: what became of the producer's batches */
	ACCESS_KINDS,
};

static inline uint32_t rdma_imm(uint16_t order, uint16_t id)
{
	return (uint32_t)order << 16 | id;
}

#define RDMA_SLOT_MUTABLE   (1ull << 63)
#define RDMA_GENERATION_MAX 0x7fffu
#define RDMA_READABLE_MAX   ((1ull << 48) - 1)

static inline uint64_t rdma_slot(bool is_mutable, uint16_t generation, uint64_t readable)
{
	return (is_mutable ? RDMA_SLOT_MUTABLE : 0) | (uint64_t)generation << 48 | readable;
}

struct rdma_slot {
	bool is_mutable;
	uint16_t generation;
	uint64_t readable;
};

/* False: it was read while it changed. */
static inline bool rdma_slot_read(const uint8_t *at, struct rdma_slot *out)
{
	uint64_t word = get_le64(at);

	*out = (struct rdma_slot){.is_mutable = (word & RDMA_SLOT_MUTABLE) != 0,
		.generation = (uint16_t)(word >> 48 & RDMA_GENERATION_MAX),
		.readable = word & RDMA_READABLE_MAX};
	return word == ~get_le64(at + 8);
}

_Static_assert(RDMA_SLOTS *RDMA_SLOT_BYTES <= 4096, "a page has all slots of a reader");
_Static_assert(RDMA_ATTACHED_BYTES >= 40, "an i64 behind the place");

#endif
