/* buffers.h - the registered memory of an engine: its segment, for peers.
 *
 * Each buffer is registered on every rail (hf_vmr_reg) and has a key for tcp that no other registration ever has.
 * Owned by the engine's loop. */
#ifndef HOLDFAST_TRANSFER_BUFFERS_H
#define HOLDFAST_TRANSFER_BUFFERS_H

#include <holdfast/vqp.h>

#include "base/list.h"
#include "transfer/request.h"
#include "transfer/tcp_header.h"
#include "transfer/wire.h"

struct buffer {
	struct list link;
	uint8_t *addr;
	uint64_t bytes;
	uint8_t permission; /* enum hf_transfer_permission */
	uint64_t key;
	unsigned users; /* requests that are pending */
	struct hf_vmr *mr;
	bool leaving; /* being unregistered (release.h); peers do not see it from `left` on, a generation */
	uint32_t left;
	uint64_t left_ns, retry_ns; /* retry_ns: when it is tried again */
	void (*done)(struct hf_transfer *engine, void *addr, void *context);
	void *context;
};

struct buffers {
	struct hf_vpd *pd;
	struct hf_env *env;
	struct list list;        /* in the order of registration */
	struct buffer **by_addr; /* `count` of them, in order, in room for `most` */
	unsigned count, most;
	uint32_t generation; /* changes with the list */
};

/* 0, -ENOMEM. `most`: how many there may be. */
int buffers_init(struct buffers *buffers, struct hf_env *env, struct hf_vpd *pd, unsigned most);
void buffers_free(struct buffers *buffers);

/* -EEXIST: it overlaps with a registered buffer; -ENOSPC: there are `most`; -EINVAL: it has no bytes. */
int buffers_add(struct buffers *buffers, void *addr, uint64_t bytes, unsigned permission, struct hf_error *error);
/* The buffer that begins there; NULL. */
struct buffer *buffers_at(const struct buffers *buffers, const void *addr);
/* Nothing of it is under way here. -EBUSY, and it stays: an operation of a stopped process cannot be ended. */
int buffers_remove(struct buffers *buffers, struct buffer *buffer);

/* No new request may name it. */
void buffers_leave(struct buffers *buffers, struct buffer *buffer, uint64_t now_ns);

/* The buffer that holds all of [addr, addr + bytes) and is not leaving; NULL. */
struct buffer *buffers_holding(const struct buffers *buffers, const void *addr, uint64_t bytes);
/* Where a tcp slice of a peer goes; or why it is refused. `offset` is an address. */
enum tcp_nak buffers_find(const struct buffers *buffers, uint64_t key, enum hf_transfer_opcode opcode, uint64_t offset,
	uint32_t length, uint8_t **at_out);
void buffers_describe(const struct buffers *buffers, struct wire_segment *segment_out);

#endif
