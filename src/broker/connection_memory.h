/* connection_memory.h - the memory of requests of all clients, and its limit (queued.max.request.bytes; R-B45).
 *
 * A connection holds what it has received of its next requests, and what the request that is served has made. Its first
 * 16 KiB are its own. Beyond them a connection reads on only while all together are below the limit; else it waits, and
 * who holds least reads on first. A client whose requests stay within 16 KiB never waits. When one has waited for
 * 200 ms, the connection that holds most ends: a client that sends half of a large request, or reads no answer, would
 * keep the others waiting.
 *
 * Owned by the broker's loop. */
#ifndef HOLDFAST_BROKER_CONNECTION_MEMORY_H
#define HOLDFAST_BROKER_CONNECTION_MEMORY_H

#include <holdfast/loop.h>

#include "base/list.h"

#define CONNECTION_BUFFER_BYTES 16384u

struct connection;

struct connection_memory {
	struct hf_loop *loop;
	const struct list *connections; /* struct connection, all there are */
	uint64_t most, held;
	struct list waiting; /* by what they hold */
	struct hf_timer timer;
};

void connection_memory_open(
	struct connection_memory *memory, struct hf_loop *loop, const struct list *connections, uint64_t most);
void connection_memory_close(struct connection_memory *memory);

/* Whether the buffer of the connection may have so many bytes. If not, it waits: connection_resume follows. */
bool connection_memory_allows(struct connection_memory *memory, struct connection *connection, size_t bytes);
/* After what it holds has changed. */
void connection_memory_count(struct connection_memory *memory, struct connection *connection);
/* Its end. */
void connection_memory_forget(struct connection_memory *memory, struct connection *connection);
/* Bytes that outlived their connection are free. */
void connection_memory_give_back(struct connection_memory *memory, size_t bytes);

#endif
