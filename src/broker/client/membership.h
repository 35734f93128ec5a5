/* membership.h - a consumer in a group of Kafka's classic protocol: it finds the coordinator, joins, gets its
 * partitions and their committed offsets, commits, and sends heartbeats.
 *
 * Rejoining, leaving and automatic commits happen in a poll: messages that earlier polls returned count as processed
 * then. Heartbeats are sent in turns of the loop. Calls to the coordinator have a connection of their own, because a
 * join waits there for other members. */
#ifndef HOLDFAST_BROKER_MEMBERSHIP_H
#define HOLDFAST_BROKER_MEMBERSHIP_H

#include <holdfast/consumer.h>

#include "broker/client/assignor.h"
#include "broker/client/kafka_link.h"

/* What it waits for. */
enum membership_state {
	MEMBERSHIP_FINDING,   /* the coordinator */
	MEMBERSHIP_JOINING,   /* JoinGroup: all the others */
	MEMBERSHIP_COUNTING,  /* it leads: how many partitions the topics have */
	MEMBERSHIP_SYNCING,   /* SyncGroup: its partitions */
	MEMBERSHIP_FETCHING,  /* where the group was */
	MEMBERSHIP_STABLE,    /* it reads */
	MEMBERSHIP_GIVING_UP, /* the commit before it joins again, or leaves */
	MEMBERSHIP_LEAVING,   /* LeaveGroup */
	MEMBERSHIP_OVER,
	MEMBERSHIP_STATES,
};

struct membership {
	struct hf_consumer *consumer;
	enum membership_state state;
	char *group, *member, **topics; /* member: "" before the first join */
	unsigned topic_count;
	uint64_t session_ns, rebalance_ns, heartbeat_ns, commit_ns;
	struct kafka_link link; /* to the coordinator */
	bool linked;
	struct kafka_call call, heartbeat, commit;
	struct hf_timer timer;
	struct assignor assignor;    /* of the leader, from COUNTING to the next join */
	struct codec_bytes assigned; /* the result of SyncGroup */
	char **members;              /* assignments that the leader sends */
	int32_t member_count, generation;
	uint64_t again_ns, heard_ns, committed_ns, counting_end_ns;
	bool rejoin, leave; /* as soon as a poll comes */
	bool lost;          /* its partitions may be another's */
	int16_t refusal;
	hf_committed *committed;
	void *context;
};

/* NULL: no memory. The configuration is complete. */
struct membership *membership_open(struct hf_consumer *consumer, const struct hf_group_config *config);
/* In a poll, before anything is given out. */
void membership_turn(struct membership *membership, uint64_t now_ns);
void membership_close(struct membership *membership); /* NULL is legal */

/* Between the two files of it. */
void membership_move(struct membership *membership, enum membership_state to);
/* What an error of the coordinator means; KAFKA_NOT_COORDINATOR: there was no answer. */
void membership_failed(struct membership *membership, int16_t error);
/* False: there is no connection, which is seen to. */
bool membership_call(struct membership *membership, void (*done)(struct kafka_call *call, const void *response),
	int16_t key, int16_t version, const void *request);
/* membership_offsets.c: requests the committed offsets of assigned partitions, and makes the consumer read from them.
 * */
void membership_fetch(struct membership *membership);
/* Commits where the consumer is. False: there is nothing to commit, or no connection. */
bool membership_commit(struct membership *membership);

#endif
