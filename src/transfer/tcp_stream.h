/* tcp_stream.h - the initiator of tcp transfers: one stream to a target, and the slices in flight on it.
 *
 * A WRITE has ended when its ACK has arrived and the kernel has released its bytes; a READ when its DATA is in place.
 * When the stream breaks, the slices that are still in `out` have not ended: the READs among them end with
 * tcp_stream_close, because only this side stores their bytes; the WRITEs end when the target is fenced for `epoch`
 * (R-T3). Owned by a loop. */
#ifndef HOLDFAST_TRANSFER_TCP_STREAM_H
#define HOLDFAST_TRANSFER_TCP_STREAM_H

#include "base/list.h"
#include "transfer/request.h"
#include "transfer/tcp_pipe.h"

/* The caller's, from tcp_stream_send until `ended`, or until it takes the slice out of a broken stream's list. */
struct tcp_slice {
	struct list link;
	enum hf_transfer_opcode opcode;
	uint8_t *local;
	uint32_t length;
	uint64_t key, offset; /* at the target */
	uint64_t id;          /* on its stream */
	uint64_t piece;       /* of the pipe */
	bool answered;        /* with `reason` */
	enum tcp_nak reason;
};

struct tcp_stream;

struct tcp_stream_events {
	void (*ended)(struct tcp_stream *stream, struct tcp_slice *slice, enum tcp_nak reason);
	void (*broken)(struct tcp_stream *stream, const char *reason); /* once; the owner closes it */
	void (*room)(struct tcp_stream *stream);                       /* more may be sent */
};

struct tcp_stream {
	const struct tcp_stream_events *events;
	struct tcp_pipe pipe;
	uint32_t epoch;
	uint64_t next_id;
	struct list out;
	unsigned out_count;
};

/* Connects from the host of `local`; slices may be sent at once. */
int tcp_stream_open(struct tcp_stream *stream, struct hf_loop *loop, const struct hf_addr *local,
	const struct hf_addr *target, const struct tcp_header *hello, const struct tcp_stream_events *events,
	struct hf_error *error);
void tcp_stream_close(struct tcp_stream *stream); /* legal on a closed one; `out` stays */

/* A HELLO of this initiator to that target. */
struct tcp_header tcp_stream_hello(uint64_t initiator, uint64_t target, uint32_t epoch);

bool tcp_stream_has_room(const struct tcp_stream *stream);
void tcp_stream_send(struct tcp_stream *stream, struct tcp_slice *slice); /* with room; tcp_stream_push sends it */
void tcp_stream_push(struct tcp_stream *stream);

#endif
