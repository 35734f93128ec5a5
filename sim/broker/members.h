/* members.h - members of a consumer group (groups.h) that join, read what they are assigned, commit and leave as stock
 * clients do with the classic protocol. Held to
 *   ids        no two members are given the same id
 *
 * A member asks one broker after another for the coordinator and for leaders. */
#ifndef HOLDFAST_SIM_BROKER_MEMBERS_H
#define HOLDFAST_SIM_BROKER_MEMBERS_H

#include "sim/broker/wire.h"
#include "sim/checkers/group.h"
#include "sim/host.h"

#define SIM_MEMBERS           3u
#define SIM_MEMBERS_FROM      20u /* of the numbers of hosts */
#define SIM_MEMBER_ID_BYTES   128u
#define SIM_MEMBER_PARTITIONS 2u

struct broker_sim;

/* What a member asks the coordinator next. */
enum member_step {
	MEMBER_FINDS, /* who it is */
	MEMBER_JOINS,
	MEMBER_SYNCS,
	MEMBER_BEGINS, /* the offsets of what it was assigned */
	MEMBER_WORKS,  /* it beats, commits, leaves */
};

struct member_partition {
	bool owned, asking; /* asking: a Fetch is under way, from `position` */
	uint64_t position, committed;
	struct group_floor floor; /* when it asked where to begin */
	/* the commit under way */
	uint64_t committing;
	uint32_t assigned;
};

struct sim_member {
	struct broker_sim *all;
	unsigned index, broker, data_broker; /* that it asks now */
	struct host host;
	struct process *process;
	struct wire wire, data; /* to the coordinator; to leaders */
	enum member_step step;
	bool leads, stale; /* stale: it knows that it must join again */
	char id[SIM_MEMBER_ID_BYTES], leader[SIM_MEMBER_ID_BYTES];
	int32_t generation;
	uint32_t number;                                   /* of its generation, as the checker counts */
	char joined[SIM_MEMBERS + 1][SIM_MEMBER_ID_BYTES]; /* LEADS: who is assigned */
	unsigned joined_count;
	struct member_partition partitions[SIM_MEMBER_PARTITIONS];
	unsigned turn; /* of partitions to fetch from */
};

void sim_member_set_up(struct sim_member *member, struct broker_sim *all, unsigned index);

#endif
