/* log_memory.h - what is written into the logs of a replicated log, seen at the buses, against Paxos itself.
 *
 * Keeps a copy of each member's log region, and reads slots out of it by the layout alone. Claims:
 *   holder    nothing is written into a log but by the member to which its owner gives it at that moment
 *   promise   a promise in a log never falls (R-S5)
 *   value     under one number, an index has one value
 *   paxos     what a majority has accepted under a number is all that is accepted under higher ones
 *   commit    a commit word covers only what a majority has accepted, and the log that it is told to has no other value
 *             there
 *   rewrite   what is decided is not written again, whole and under another number, into a log of the majority that
 *             has it: its accept word is enough (R-S7)
 *
 * A majority is one of the configuration of the index (log_members.h). A process that lost its memory is another one,
 * whose copy begins empty. Indexes are chosen in their order: what a majority has accepted is looked at when all below
 * is chosen. */
#ifndef HOLDFAST_SIM_CHECKERS_LOG_MEMORY_H
#define HOLDFAST_SIM_CHECKERS_LOG_MEMORY_H

#include <stddef.h>

#include "sim/checkers/log_members.h"
#include "sim/world.h"

#define LOG_MEMORY_MEMBERS 8u
#define LOG_MEMORY_ENTRIES 40000u
#define LOG_MEMORY_NUMBERS 12u /* under which an index is accepted */

struct log_memory_accept {
	uint64_t number, set; /* set: of processes */
	uint32_t crc;
};
struct log_memory_entry {
	struct log_memory_accept accepts[LOG_MEMORY_NUMBERS];
	unsigned count;
	uint64_t chosen_number; /* the lowest that a majority has accepted; 0: none */
	uint32_t chosen_crc;
};
struct log_memory {
	struct world *world;
	unsigned count;
	uint32_t slots, slot_bytes, seed;
	uint8_t *copy[LOG_MEMORY_MEMBERS], *before;      /* before: of the one that is written, as it was */
	const uint8_t *region[LOG_MEMORY_MEMBERS];       /* of the process that runs; NULL: none does */
	const uint64_t *incarnation[LOG_MEMORY_MEMBERS]; /* of that process */
	struct log_memory_entry *entries;                /* by index */
	uint64_t chosen_end, seen;                       /* all below is chosen; slots that were seen */
	uint64_t told[LOG_MEMORY_MEMBERS];               /* by commit words */
	uint64_t promised[LOG_MEMORY_MEMBERS];           /* by words that NICs wrote there, in any process */
	uint64_t decided_end; /* all below was said to be decided when a member lost its memory */
	uint64_t writes;
	struct log_members members;
};

void log_memory_init(struct log_memory *memory, struct world *world, unsigned count, uint32_t slots,
	uint32_t slot_bytes, const char *cluster);
void log_memory_free(struct log_memory *memory);
/* NULL: it ended. Both are borrowed; a process knows its incarnation before anything is written into its log. */
void log_memory_start(struct log_memory *memory, unsigned member, const uint8_t *region, const uint64_t *incarnation);
/* Durable logs: a member loses its memory and keeps its disk, of which it has said that it has what is below `durable`.
 * What it had accepted above may be gone, and, from `decided` on, may not have been chosen. */
void log_memory_lost(struct log_memory *memory, unsigned member, uint64_t decided, uint64_t durable);
/* The last thing that NICs wrote into the slot is about that entry, or a later one. */
bool log_memory_has(const struct log_memory *memory, unsigned member, uint64_t index);
/* A member to whose log something is written. */
struct log_memory_owner {
	unsigned member;
	int holder;       /* to which it has given the log; negative: to nobody */
	uint64_t applied; /* what it applied, or has by a snapshot: its log need not have that */
};
/* A NIC writes into the region. The configuration that founds the cluster is in memory->members. */
void log_memory_write(struct log_memory *memory, const struct log_memory_owner *owner, size_t offset,
	const uint8_t *data, size_t bytes);

#endif
