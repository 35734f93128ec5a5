/* our_members.h - members of a consumer group (groups.h) that are consumers of our library: the first over TCP, the
 * others over RDMA where it is to be had. They poll, and sometimes not for longer than a rebalance waits, commit by
 * themselves or let polls do it, leave and join anew. Held to
 *   gap    a member is given record behind record of what it owns, from where it began
 *   told   what became of a commit is told once
 *
 * What the library knows of its generation is looked up in it: the leader's id tells generations of two coordinators
 * with one number apart. */
#ifndef HOLDFAST_SIM_BROKER_OUR_MEMBERS_H
#define HOLDFAST_SIM_BROKER_OUR_MEMBERS_H

#include <holdfast/consumer.h>

#include "sim/broker/members.h"

struct our_partition {
	bool owned, in_commit;
	uint64_t next, committed; /* of the next record; as the group was told */
	/* the commit under way */
	uint64_t committing;
	uint32_t assigned;
};

struct our_member {
	struct broker_sim *all;
	unsigned index;
	struct host host;
	struct process *process;
	struct hf_loop *loop;
	struct hf_node *node;
	struct hf_poller poller;
	struct hf_timer timer;
	struct hf_consumer *consumer;
	bool begun, commits_alone,
		committing;             /* begun: it has its assignment; committing: a commit is not told of yet */
	uint32_t number, commit_number; /* of its generation, as the checker counts; of that commit's */
	uint64_t next_ns;
	struct our_partition partitions[SIM_MEMBER_PARTITIONS];
};

/* Who is in a generation, by its leader. */
struct our_seat {
	int32_t generation;
	char id[SIM_MEMBER_ID_BYTES], leader[SIM_MEMBER_ID_BYTES];
};

void our_member_set_up(struct our_member *member, struct broker_sim *all, unsigned index);

#endif
