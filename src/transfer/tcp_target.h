/* tcp_target.h - the end of tcp transfers that owns the segment's memory.
 *
 * A stream begins with a HELLO that names the initiator's incarnation, ours, and the stream's epoch; a stream for
 * another incarnation is refused (R-T22). Each WRITE is received into place and then acknowledged, each READ is
 * answered from memory, in order. A request is checked before its payload is read.
 *
 * Data of an initiator may be in this kernel when the initiator is gone, so its close is no fence:
 * tcp_target_fence is (R-T3). Data that was in this kernel while this process stood still is stored only within the
 * lease of the initiator, which counts it as fenced afterwards (R-T5). Owned by a loop. */
#ifndef HOLDFAST_TRANSFER_TCP_TARGET_H
#define HOLDFAST_TRANSFER_TCP_TARGET_H

#include <holdfast/loop.h>

#include "transfer/request.h"
#include "transfer/tcp_header.h"

struct tcp_target;

struct tcp_target_config {
	struct hf_addr listen;
	uint64_t incarnation;
	unsigned streams_max; /* of all initiators together; when all are in use, the oldest without a HELLO ends */
	/* Whether a stream of this epoch of that initiator may begin: it is a peer, and the epoch is not fenced. */
	bool (*admits)(void *context, uint64_t initiator, uint32_t epoch);
	/* Until when what this initiator sent may be placed, by the last contact and hf_env_boot_ns. */
	uint64_t (*lease_until_ns)(void *context, uint64_t initiator);
	/* Where [offset, offset + length) of the buffer `key` lies; or why it may not be touched. */
	enum tcp_nak (*find)(void *context, uint64_t key, enum hf_transfer_opcode opcode, uint64_t offset,
		uint32_t length, uint8_t **at_out);
	void *context;
};

int tcp_target_open(struct hf_loop *loop, const struct tcp_target_config *config, struct tcp_target **target_out,
	struct hf_error *error);
void tcp_target_close(struct tcp_target *target);                /* NULL is legal */
struct hf_addr tcp_target_addr(const struct tcp_target *target); /* where it listens */

/* After the return nothing of the initiator's stream is stored any more; `admits` refuses a stream without its HELLO
 * yet. Returns the last id of that stream that was stored or answered, with none refused up to it; 0: none was. What is
 * behind a refused one is sent again. */
uint64_t tcp_target_fence(struct tcp_target *target, uint64_t initiator, uint32_t epoch);
/* Extends the leases of the streams, and ends streams with an expired lease. Due several times in a lease. */
void tcp_target_turn(struct tcp_target *target, uint64_t now_ns);
/* Ends all streams of the initiator: it is gone. */
void tcp_target_end(struct tcp_target *target, uint64_t initiator);
/* Ends the streams that have a payload to or from this memory under way: it is to be freed. */
void tcp_target_release(struct tcp_target *target, const void *memory, uint64_t bytes);

#endif
