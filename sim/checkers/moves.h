/* moves.h - what a transfer promises, seen where bytes are stored: at the buses of NICs, at streams, and in memory.
 *
 * An area is memory that a program gives to its engine. A move is one request, from its submit to its terminal status:
 * bytes of one area that are to be stored in another. Claims:
 *   late       nothing is stored outside of the range of a pending move (T3), and no source is read for one that has
 *              ended (R-T6)
 *   foreign    what is stored are the bytes of that move, at their place
 *   completed  a move that is told to be COMPLETED has all bytes in place (T2), unless a NIC died with them
 *   memory     memory holds what was stored, and nothing else
 * In memory that is not registered nothing is stored. An area of a process that has restarted, or that is registered
 * for one that has, is another generation: moves to the one before store nothing in it. This looks at addresses and
 * bytes alone and shares no code with the product. */
#ifndef HOLDFAST_SIM_CHECKERS_MOVES_H
#define HOLDFAST_SIM_CHECKERS_MOVES_H

#include "base/list.h"
#include "sim/bus.h"
#include "sim/network.h"

struct move_area {
	struct list node; /* of the moves */
	const char *name; /* of its process */
	uint8_t *memory;
	size_t bytes;
	bool registered;
	bool own; /* no peer reads it: whoever reads it sends its bytes */
	uint32_t generation;
	uint8_t *holds; /* what memory holds, but for ranges of pending moves */
	bool lossy;     /* a NIC died with bytes for it: nobody knows what it holds */
};

struct move {
	struct list node; /* of the pending ones */
	uint32_t number;
	struct move_area *from, *to;
	uint32_t from_generation, to_generation;
	size_t from_offset, to_offset, bytes;
	uint8_t *data;
};

struct moves {
	struct world *world;
	struct stream_observer streams;
	struct list areas, pending, watches;
	uint32_t count;
};

void moves_init(struct moves *moves, struct world *world, struct network *network);
void moves_free(struct moves *moves);
void moves_watch(struct moves *moves, struct nic_bus *bus);

/* Memory stays the caller's and outlives the moves. */
struct move_area *moves_add_area(struct moves *moves, const char *name, uint8_t *memory, size_t bytes, bool own);
/* It is registered for a new generation, and holds what memory holds. */
void move_area_begin(struct move_area *area);
/* The program stores bytes that nothing else holds: it uses the memory for another purpose. */
void moves_fill(struct moves *moves, struct move_area *area, size_t offset, size_t bytes);
void moves_check(struct moves *moves, const struct move_area *area, size_t offset, size_t bytes); /* "memory" */

/* A copy of `asked`, which has areas, offsets and bytes, is pending from now. When the requester dies it stays so,
 * until the target's area is another generation. */
struct move *moves_begin(struct moves *moves, const struct move *asked);
/* It has its terminal status, and is freed. What NICs of the target held is in memory. */
void moves_end(struct moves *moves, struct move *move, bool completed);

#endif
