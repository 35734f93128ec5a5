/* reader.h - one-sided consume: a client READs segments by itself, up to the end of committed records in a slot.
 *
 *   client                                  broker
 *     | ATTACH partition, offset -------------> registers the segment for reading, fills a slot
 *     | <------------- ATTACHED place, slot
 *     | READ all slots                          nothing
 *     | READ the segment up to `readable`       nothing
 *     | RELEASE slot -------------------------> deregisters
 *
 * A slot follows the high watermark: it is stored when hw grows, and becomes `immutable` once hw is at the end of a
 * sealed segment (R-B12), or beyond the registered part, which of a head are the pages allocated by then (R-B14). A
 * slot belongs to one reader and segment; freed, it is reused under another generation (R-B13). A segment that
 * retention deletes, or of a partition that this broker no longer leads, is withdrawn from its slot 1 s before it is
 * deregistered (R-B14).
 *
 * Owned by the broker's loop. */
#ifndef HOLDFAST_BROKER_READER_H
#define HOLDFAST_BROKER_READER_H

#include "broker/rdma/rdma.h"

struct reader_slot {
	struct partition_wait wait;
	struct reader *reader;
	struct partition *partition; /* NULL: it is withdrawn or free */
	struct segment *segment;     /* pinned; NULL: the slot is free */
	struct hf_vmr *mr;
	uint16_t generation;
	uint32_t readable;
	uint64_t withdrawn_ns; /* 0: it is not */
};

struct reader {
	struct rdma_end end;
	struct rdma_client *client;
	struct list node;        /* the client's */
	uint8_t *words, *memory; /* the slots, a page of their own; receives, then sends */
	struct hf_vmr *words_mr, *mr;
	struct reader_slot slots[RDMA_SLOTS];
	uint32_t free_sends[RDMA_READER_RECEIVES], free_count;
};

/* NULL: no memory. */
struct hf_vqp *reader_open(struct rdma_client *client, uint8_t *reply, size_t *reply_bytes);
bool reader_turn(struct reader *reader);
void reader_tick(struct reader *reader, uint64_t now_ns);
void reader_close(struct reader *reader);

#endif
