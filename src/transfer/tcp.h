/* tcp.h - slices over tcp streams to a peer, where its rails do not reach it.
 *
 * Each peer has `streams` streams, each of an epoch that no other stream of this engine ever has. When a stream ends,
 * sent data may be in the peer's kernel, so the WRITEs in flight come back only when the peer has answered a
 * FENCE of that epoch, or has left and its lease is over (R-T3, R-T4). READs come back at once. */
#ifndef HOLDFAST_TRANSFER_TCP_H
#define HOLDFAST_TRANSFER_TCP_H

#include "transfer/slice.h"
#include "transfer/tcp_stream.h"

#define TCP_STREAMS_MAX 8u

struct peer;
struct tcp_peer;

struct tcp_transport {
	struct transport transport;
	struct hf_loop *loop;
	struct hf_addr local; /* streams connect from its host */
	uint64_t incarnation;
	unsigned streams;
	uint64_t block_bytes, max_timeout_ns;
	uint32_t next_epoch;
	void (*say_fence)(struct peer *peer, uint32_t epoch);
};

enum tcp_line_state {
	TCP_LINE_CLOSED,  /* waits for retry_ns and for slices */
	TCP_LINE_OPEN,    /* connecting, or carries slices */
	TCP_LINE_FENCING, /* ended; waits for FENCED, or for the end of the lease of a peer that has left */
	TCP_LINE_FENCED,  /* up to `placed`; the next turn ends the slices */
	TCP_LINE_STATES,
};

/* One stream after another, in one place of the peer's. */
struct tcp_line {
	struct tcp_peer *peer;
	enum tcp_line_state state;
	struct tcp_stream stream;
	bool answered;               /* the stream has carried a slice */
	uint64_t placed;             /* FENCED: the last slice that was */
	uint64_t moved, progress_ns; /* bytes at the last look, and when they were more, or the first slice came */
	uint64_t retry_ns, backoff_ns;
};

struct tcp_peer {
	struct tcp_transport *transport;
	struct peer *peer;
	struct list jobs;
	unsigned failures;    /* streams in a row that carried nothing */
	uint64_t stranded_ns; /* since when the peer counts as out of reach; 0: it does not */
	uint64_t bytes;
	struct tcp_line lines[TCP_STREAMS_MAX];
};

void tcp_transport_init(struct tcp_transport *tcp);
void tcp_peer_init(struct tcp_peer *tcp_peer, struct tcp_transport *tcp, struct peer *peer);
/* The peer has left: turns end the lines and give the jobs up. True: none is left. */
bool tcp_peer_has_ended(const struct tcp_peer *tcp_peer);
/* The peer has left so, or the engine closes: slices come back at once, jobs are given up. */
void tcp_peer_close(struct tcp_peer *tcp_peer);

/* The peer has fenced the stream of this epoch, and answered its slices up to this id. */
void tcp_peer_fenced(struct tcp_peer *tcp_peer, uint32_t epoch, uint64_t answered);

bool tcp_peer_is_released(const struct tcp_peer *tcp_peer); /* peer_is_released */

bool tcp_peer_turn(struct tcp_peer *tcp_peer, uint64_t now_ns);
uint64_t tcp_peer_wake_ns(const struct tcp_peer *tcp_peer);

#endif
