/* log_members.h - the configurations of a replicated log, read out of its CONFIG entries by the layout alone.
 *
 * A process is a member with its incarnation; a set of processes has a bit for each, in the order in which they were
 * first named. Indexes are chosen in their order. The configuration of an index is the last whole one that is chosen
 * below it. The last slot of a CONFIG entry is chosen by a majority of that and of the entry's own. */
#ifndef HOLDFAST_SIM_CHECKERS_LOG_MEMBERS_H
#define HOLDFAST_SIM_CHECKERS_LOG_MEMBERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LOG_MEMBERS_PROCESSES 64u /* of all members, in a run */

struct log_members_voter {
	unsigned member;
	uint64_t incarnation;
};
struct log_members_slot { /* of a CONFIG entry, whether it is chosen or not */
	uint64_t index, origin;
	uint32_t crc, bytes;
	bool last, chosen;
	uint8_t *payload;
};
struct log_members_configuration {
	uint64_t index; /* of its last slot */
	uint64_t voters;
};
struct log_members {
	struct log_members_voter processes[LOG_MEMBERS_PROCESSES];
	unsigned process_count;
	struct log_members_slot *slots;
	unsigned slot_count;
	struct log_members_configuration *chosen; /* by index, ascending */
	unsigned chosen_count;
};

void log_members_free(struct log_members *members);
/* The configuration that founds the cluster, as entry 1. */
void log_members_found(struct log_members *members, const struct log_members_voter *voters, unsigned count);
uint64_t log_members_bit(struct log_members *members, unsigned member, uint64_t incarnation);
/* A slot of a CONFIG entry was seen; the payload is copied. */
void log_members_saw(struct log_members *members, uint64_t index, uint32_t crc, uint64_t origin, bool last,
	const uint8_t *payload, uint32_t bytes);
/* A set of processes chooses a value at an index, below which all is chosen. */
bool log_members_majority(struct log_members *members, uint64_t index, uint32_t crc, uint64_t set);
void log_members_chosen(struct log_members *members, uint64_t index, uint32_t crc);
/* Nothing is chosen from there on, after all. */
void log_members_back(struct log_members *members, uint64_t index);

#endif
