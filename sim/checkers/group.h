/* group.h - whether a consumer group misses nothing, and begins where it was told that it had come. Of one partition;
 * knows nothing of the broker.
 *
 * Each generation of the group has a number here, in the order in which a member first has its assignment.
 *
 * Claims:
 *   owner    in a generation one member has the partition
 *   begin    an owner begins at the last commit that was told as done in its generation or an earlier one, or at a
 *            later one that was sent, and none of an earlier generation is told afterwards that more is (B9)
 *   zombie   a commit that is sent when a later generation has its assignment is not told as done (B9)
 *   missed   every record below a commit that is told as done, and in the end every record, was given to some member
 *
 * Records that are given twice are counted: those behind the last commit are given again when an owner goes. */
#ifndef HOLDFAST_SIM_CHECKERS_GROUP_H
#define HOLDFAST_SIM_CHECKERS_GROUP_H

#include "sim/checkers/partition.h"

#define GROUP_GENERATIONS_MAX 4096u

/* What the owner of a generation may find when it asks now where to begin. */
struct group_floor {
	uint32_t generation;
	uint64_t offset;
};

struct group_account {
	struct world *world;
	const char *name;
	bool given[PARTITION_RECORDS_MAX];        /* to some member */
	uint32_t attempts[PARTITION_RECORDS_MAX]; /* by offset: the last generation that sent a commit of it */
	uint8_t owners[GROUP_GENERATIONS_MAX];    /* by generation: the member + 1; 0: none */
	uint32_t assigned;                        /* the last generation with an assignment */
	uint32_t done_generation;                 /* of the last commit that was told as done */
	uint64_t done_offset, doubled;
	struct group_floor begun; /* where the last generation did */
	uint64_t whole;           /* all records below it were given */
};

void group_account_init(struct group_account *account, struct world *world, const char *name);
/* Some member, perhaps without this partition, has its assignment; generations count from 1. */
void group_assigned(struct group_account *account, uint32_t generation);
void group_owned(struct group_account *account, uint32_t generation, unsigned member);

struct group_floor group_floor(const struct group_account *account);
/* The owner in `generation` was told to begin there, and the floor is that of when it asked. */
void group_begins(struct group_account *account, const struct group_floor *floor, uint32_t generation, uint64_t offset);

void group_gives(struct group_account *account, uint64_t from, uint64_t to);
/* The owner sends a commit; returns what group_committed is told if it is done. */
uint32_t group_commits(struct group_account *account, uint32_t generation, uint64_t offset);
void group_committed(struct group_account *account, uint32_t assigned, uint32_t generation, uint64_t offset);

/* Whether all records below `end` were given, and committed. */
bool group_is_at(const struct group_account *account, uint64_t end);

#endif
