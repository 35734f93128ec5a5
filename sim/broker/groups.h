/* groups.h - a consumer group at the brokers (brokers.h): three members, which are killed and stand still, of one kind:
 * as stock clients are (members.h), or consumers of our library (our_members.h). Held to the claims of
 * checkers/group.h, and to
 *   liveness   when all has healed the group reads and commits everything */
#ifndef HOLDFAST_SIM_BROKER_GROUPS_H
#define HOLDFAST_SIM_BROKER_GROUPS_H

#include "sim/broker/brokers.h"
#include "sim/broker/members.h"
#include "sim/broker/our_members.h"

#define SIM_GROUP              "g"
#define SIM_GROUP_SESSION_MS   400
#define SIM_GROUP_REBALANCE_MS 500

/* Generations that some member has the assignment of, in that order. */
struct member_generation {
	int32_t generation;
	char leader[SIM_MEMBER_ID_BYTES];
};

struct sim_group {
	struct broker_sim *all;
	struct sim_member stock[SIM_MEMBERS]; /* or */
	struct our_member ours[SIM_MEMBERS];
	struct our_seat seats[GROUP_GENERATIONS_MAX];
	uint32_t seat_count;
	struct process *processes[SIM_MEMBERS];
	struct group_account accounts[SIM_MEMBER_PARTITIONS];
	struct member_generation generations[GROUP_GENERATIONS_MAX];
	uint32_t generation_count;
	char ids[GROUP_GENERATIONS_MAX][SIM_MEMBER_ID_BYTES];
	unsigned id_count;
	struct world_event killer;
	struct process *down;
	uint64_t commits;
};

enum sim_group_kind { SIM_GROUP_STOCK, SIM_GROUP_OURS };

void sim_group_set_up(struct broker_sim *all, enum sim_group_kind kind);
void sim_group_start(struct broker_sim *all); /* from now on members are killed too, until it is quiet */
/* The number of a generation, when a member first has its assignment. A coordinator counts generations from 1, so its
 * number is not enough. */
uint32_t sim_group_number(struct sim_group *group, int32_t generation, const char *leader);
bool sim_group_is_at_end(const struct broker_sim *all);
void sim_group_free(struct broker_sim *all);

#endif
