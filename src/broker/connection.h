/* connection.h - one client over TCP: requests and answers, in order.
 *
 *   request: i32 bytes, header, body        answer: i32 bytes, header, body
 *
 * A connection serves one request at a time; further requests wait in the buffer and the socket.
 * So its memory is bounded by socket.request.max.bytes and the arena of one request, also for a slow reader: records
 * are sent from the mapping of their segment, which the request holds until they are sent. That of all connections
 * together: connection_memory.h.
 *
 * Owned by the broker's loop. */
#ifndef HOLDFAST_BROKER_CONNECTION_H
#define HOLDFAST_BROKER_CONNECTION_H

#include "broker/broker.h"
#include "broker/request.h"

enum connection_state {
	CONNECTION_READING, /* waits for a request */
	CONNECTION_SERVING, /* its handler has it, or waits for records, members, replicas */
	CONNECTION_WRITING, /* waits for the client to take the answer */
	CONNECTION_STATES,
};

struct connection {
	struct broker *broker;
	struct list node, ready_node;
	struct hf_io *io;
	struct hf_watch watch;
	struct hf_timer idle;
	struct hf_addr remote;
	unsigned listener;
	enum connection_state state;
	uint8_t *in;
	size_t in_from, in_to, in_capacity; /* [from, to) was read and not yet served */
	struct request request;
	struct iovec *out; /* what is left of the answer, in the request's arena */
	unsigned out_count;
	bool in_turn;
	uint64_t held; /* this and the members below: of connection_memory.h */
	struct list memory_node;
	uint64_t memory_wanted, memory_since_ns; /* while it waits */
	uint64_t memory_reserved;                /* behind that, until it reads on */
};

/* Takes the io. */
int connection_open(struct broker *broker, struct hf_io *io, const struct hf_addr *remote, unsigned listener);
void connection_close(struct connection *connection);

/* There is memory for it: it reads on. */
void connection_resume(struct connection *connection);
/* Gives back what its buffer has beyond what it needs now. */
void connection_give_up_room(struct connection *connection);

/* The bytes of a request that outlive its connection. */
struct connection_bytes {
	struct broker *broker;
	uint8_t *at;
	size_t bytes;
};
/* Of a request that is being cancelled: its bytes stay where they are. */
void connection_take_bytes(struct connection *connection, struct connection_bytes *bytes_out);
void connection_bytes_free(struct connection_bytes *bytes);

/* The request's answer is ready to be sent; n == 0: there is none. */
void connection_answer(struct connection *connection, struct iovec *pieces, unsigned n);
/* Sends what became ready outside of its connection's turn. */
void connections_flush(struct broker *broker);

#endif
