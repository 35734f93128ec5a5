#include "broker/connection_memory.h"

#include "base/log.h"
#include "broker/connection.h"

#define PATIENCE_NS 200000000ull /* of one that waits */
#define AGAIN_NS    50000000ull

static struct connection *waiting_of(struct list *node)
{
	return container_of(node, struct connection, memory_node);
}

static uint64_t beyond_own(size_t bytes)
{
	return bytes > CONNECTION_BUFFER_BYTES ? bytes - CONNECTION_BUFFER_BYTES : 0;
}

/* Those that hold least, as far as there is room; the room is theirs until their turn. */
static void resume(struct connection_memory *memory)
{
	while (!list_empty(&memory->waiting)) {
		struct connection *first = waiting_of(memory->waiting.next);

		if (memory->held + first->memory_wanted > memory->most)
			return;
		list_remove(&first->memory_node);
		first->memory_reserved = first->memory_wanted;
		memory->held += first->memory_reserved;
		connection_resume(first);
	}
}

static void take_reserved(struct connection_memory *memory, struct connection *connection)
{
	memory->held -= connection->memory_reserved;
	connection->memory_reserved = 0;
}

static void wait_in(struct connection_memory *memory, struct connection *connection, uint64_t wanted)
{
	struct list *at = memory->waiting.next;
	uint64_t now_ns = hf_loop_now_ns(memory->loop);

	if (list_empty(&memory->waiting))
		hf_loop_set_timer(memory->loop, &memory->timer, now_ns + PATIENCE_NS);
	while (at != &memory->waiting && waiting_of(at)->held <= connection->held)
		at = at->next;
	connection->memory_wanted = wanted;
	connection->memory_since_ns = now_ns;
	list_insert_before(at, &connection->memory_node);
}

bool connection_memory_allows(struct connection_memory *memory, struct connection *connection, size_t bytes)
{
	uint64_t more = beyond_own(bytes) - beyond_own(connection->in_capacity);
	bool is_reserved = connection->memory_reserved >= more,
	     is_first = list_empty(&memory->waiting) || waiting_of(memory->waiting.next)->held >= connection->held;

	take_reserved(memory, connection);
	if ((is_reserved || is_first) && memory->held + more <= memory->most)
		return true;
	wait_in(memory, connection, more);
	return false;
}

void connection_memory_count(struct connection_memory *memory, struct connection *connection)
{
	uint64_t before = connection->held + connection->memory_reserved;

	take_reserved(memory, connection);
	memory->held -= connection->held;
	connection->held = beyond_own(connection->in_capacity) +
			   (connection->state == CONNECTION_READING ? 0 : connection->request.arena.taken);
	memory->held += connection->held;
	if (connection->held < before)
		resume(memory);
}

void connection_memory_forget(struct connection_memory *memory, struct connection *connection)
{
	uint64_t held = connection->held;

	list_remove(&connection->memory_node);
	take_reserved(memory, connection);
	connection->held = 0;
	connection_memory_give_back(memory, held);
}

void connection_memory_give_back(struct connection_memory *memory, size_t bytes)
{
	memory->held -= bytes;
	resume(memory);
}

static struct connection *largest_of(const struct connection_memory *memory)
{
	struct connection *largest = NULL;

	list_for_each (at, memory->connections) {
		struct connection *connection = container_of(at, struct connection, node);

		if (largest == NULL || connection->held > largest->held)
			largest = connection;
	}
	return largest;
}

/* The one that holds most makes room for one that holds less. */
static void end_largest(struct connection_memory *memory, const struct connection *waits)
{
	struct connection *largest = largest_of(memory);
	static struct log_limit ended;
	char text[HF_ADDR_TEXT];
	uint64_t left_out;

	if (largest == NULL || largest->held <= waits->held)
		return;
	if (log_limit_allows(&ended, hf_loop_now_ns(memory->loop), &left_out))
		log_warn("broker: the requests of all clients take queued.max.request.bytes (%llu), and clients wait; "
			 "the connection of %s, which holds most (%llu bytes), ends (%llu lines suppressed)",
			(unsigned long long)memory->most, hf_addr_format(&largest->remote, text),
			(unsigned long long)largest->held, (unsigned long long)left_out);
	connection_close(largest);
}

static void patience_is_over(struct hf_timer *timer, uint64_t now_ns)
{
	struct connection_memory *memory = container_of(timer, struct connection_memory, timer);

	list_for_each (at, memory->connections)
		connection_give_up_room(container_of(at, struct connection, node));
	list_for_each (at, &memory->waiting)
		if (now_ns - waiting_of(at)->memory_since_ns >= PATIENCE_NS) {
			end_largest(memory, waiting_of(at));
			break;
		}
	if (!list_empty(&memory->waiting))
		hf_loop_set_timer(memory->loop, timer, now_ns + AGAIN_NS);
}

void connection_memory_open(
	struct connection_memory *memory, struct hf_loop *loop, const struct list *connections, uint64_t most)
{
	*memory = (struct connection_memory){
		.loop = loop, .connections = connections, .most = most, .timer = {.fire = patience_is_over}};
	list_init(&memory->waiting);
}

void connection_memory_close(struct connection_memory *memory)
{
	hf_loop_cancel_timer(memory->loop, &memory->timer);
}
