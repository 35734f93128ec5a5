/* replication.h - partitions with several replicas: the leader writes its appends into the logs of its followers.
 *
 *   follower                                            leader
 *     | JOIN {epoch, leo, epoch of the last batch} ------>  compares histories
 *     | <------------------------- TRUNCATE {epoch, end}    or, when they agree:
 *     | <--------- PLACE {offset, base, place, capacity}    where the follower continues (R-B18)
 *     |   arranges its head, zeroes the rest, registers an extent
 *     | GRANT {id, from, to, address, key} -------------->
 *     | <==================== WRITE_WITH_IMM of batches     same bytes, same places; contiguous ones are joined
 *     |   verifies (R-B19), advances
 *     | ACK {id, leo} -------- SEND --------------------->  hw: the end that every member of the isr has
 *     | <------------------------------- HW {id, hw}        within REPLICATION_TICK_NS (R-B20)
 *     | <------------------------- START {id, offset}       likewise: where the log begins, after records were deleted
 *     | <--------- PLACE {offset, base, place, ...}         the extent or the segment ends: the next one
 *
 * The first four go over a channel, the others over the vqp to the other broker (replica_link.h). A follower that is
 * behind gets older segments in the same way. An extent belongs to one leader and epoch: a follower deregisters it
 * before it replies, or leads, in a later one, and keeps the batches that had landed (R-B17).
 *
 * A follower whose log has failed says so in its JOIN and leaves the isr at once; a leader whose log has failed
 * resigns, unless it is the last member.
 *
 * An isr becomes smaller when the controller has said so, and larger when it was asked (R-B21): until the answer, hw
 * waits for the broker that is to come.
 *
 * Of a partition without a leader each replica reports to the controller what it has (R-D11).
 *
 * Elsewhere: roles and turns (replication.c), reports (reports.c), pushing and isr (leader.c), joining and verifying
 * (follower.c).
 * Owned by the broker's loop. */
#ifndef HOLDFAST_BROKER_REPLICATION_H
#define HOLDFAST_BROKER_REPLICATION_H

#include <holdfast/channel.h>

#include "base/log.h"
#include "broker/controller/proposal.h"
#include "broker/log/partition.h"
#include "broker/replication/replica_link.h"

#define REPLICATION_TICK_NS      10000000ull
#define REPLICATION_RETRY_NS     100000000ull /* a follower that receives nothing joins again */
#define REPLICATION_EXTENT_BYTES (4u << 20)

struct broker;
struct replica;

enum push_state {
	PUSH_IDLE,   /* waits for the follower to join */
	PUSH_PLACED, /* waits for its grant */
	PUSH_READY,  /* writes */
	PUSH_STATES,
};

/* One follower, at its leader. */
struct push {
	struct replica *replica;
	struct replica_link *link; /* NULL: of this broker itself */
	enum push_state state;
	int64_t incarnation;
	uint32_t attempt;
	uint32_t grant, from, to, key;
	uint64_t address;
	struct segment *segment; /* what is written next lies here; held */
	uint32_t place;
	int64_t placed; /* PLACED: the offset there */
	int64_t acked;  /* verified by the follower in this epoch; -1: nothing */
	bool failed;    /* the follower's log takes nothing more */
	int64_t hw_told, start_told;
	uint64_t caught_up_ns; /* attended time when the follower had all that there was then */
	int64_t mark;          /* the leo of mark_ns: once it is acked, the follower had caught up at that time */
	uint64_t mark_ns;
};

enum follow_state {
	FOLLOW_IDLE,    /* there is no leader, or this broker is it */
	FOLLOW_JOINING, /* waits for a reply, and repeats the request */
	FOLLOW_PLACED,  /* waits until the log has come to the place, and nothing old there is registered */
	FOLLOW_GRANTED, /* the leader writes */
	FOLLOW_STATES,
};

struct follow {
	enum follow_state state;
	struct replica_link *link; /* of the leader */
	uint32_t attempt;          /* the number of the last JOIN; a reply has it too */
	int64_t incarnation;       /* of this broker, when it joined */
	uint64_t asked_ns;
	struct kafka_replica_message place; /* PLACED */
	struct hf_vmr *mr;                  /* the extent; NULL: none */
	struct segment *segment;            /* of the extent, held */
	uint32_t to, grant;
	int64_t told; /* acknowledged under this grant; -1: nothing */
	bool ack_due;
	struct log_limit refusals; /* lines about what the leader wrote */
};

/* A partition that this broker has a replica of. */
struct replica {
	struct list node; /* of the replication */
	struct replication *replication;
	struct partition *partition;
	struct codec_uuid topic_id;
	char topic[CONTROLLER_TOPIC_BYTES];
	struct controller_partition known;          /* as the controller has it */
	int32_t epoch;                              /* in which it leads or follows; -1: neither yet */
	struct push pushes[CONTROLLER_BROKERS_MAX]; /* by the place of the voter */
	struct follow follow;
	unsigned slot; /* of its grants */
	/* The isr that was requested from the controller. */
	struct proposal proposal;
	struct controller_set asked;
	uint64_t asked_ns;
	bool asking;
	/* What the controller was told of the log last: by which incarnation, about which epoch without a leader. */
	int64_t reported_by;
	int32_t reported_epoch;
};

struct replication_counters {
	uint64_t led, truncations, lost_hw, wrong_batches, grants, pushed_bytes, isr_shrinks, isr_expands, restarts;
};

struct replication {
	struct broker *broker; /* NULL: not open */
	struct replica_links links;
	struct hf_channel *channel;
	struct hf_poller poller;
	struct hf_timer timer;
	struct list replicas;
	struct replica **slots; /* by the low half of a grant */
	unsigned slot_count;
	uint32_t turns; /* the high half of grants */
	struct replication_counters counters;
	void (*roles_changed)(struct broker *broker);
	bool attached;
	struct proposal reporting;
	bool reports;      /* that proposal is under way */
	bool starts_moved; /* of followers' logs: written at the next tick, once for all */
};

/* roles_changed: partitions may have begun or ended to lead by themselves, outside of replication_follow. */
int replication_open(struct replication *replication, struct broker *broker,
	void (*roles_changed)(struct broker *broker), struct hf_error *error);
void replication_close(struct replication *replication);

/* reports.c: to the controller, what is new. */
void reports_send(struct replication *replication);
/* After the controller's word on a partition that is here. */
void replication_follow(struct replication *replication, struct partition *partition,
	const struct controller_topic *topic, int32_t index);
/* How many partitions this broker leads whose isr lacks a replica; for tests and operators. */
unsigned replication_under_replicated(const struct replication *replication);

/* ---- between its files ---- */

enum replica_message_kind { REPLICA_JOIN, REPLICA_TRUNCATE, REPLICA_PLACE, REPLICA_GRANT };

/* Fills the fields that name the replica, and sends; a queue that is full ends the link. */
void replication_send(
	struct replica *replica, struct replica_link *link, struct kafka_replica_message *message, int kind);
struct replica_link *replication_link(struct replication *replication, int32_t broker); /* NULL: no voter */

/* leader.c */
void leader_begin(struct replica *replica);
void leader_end(struct replica *replica);
void leader_know(struct replica *replica); /* the isr may be another one */
void leader_appended(struct partition *partition);
void leader_hear_join(struct replica *replica, struct replica_link *link, const struct kafka_replica_message *message);
void leader_hear_grant(struct replica *replica, struct replica_link *link, const struct kafka_replica_message *message);
void leader_hear_ack(struct replica *replica, struct replica_link *link, uint32_t grant, int64_t offset);
void leader_link_down(struct replica *replica, struct replica_link *link);
void leader_pump(struct replica *replica); /* writes what there is room for */
void leader_tick(struct replica *replica, uint64_t now_ns);

/* follower.c */
void follower_begin(struct replica *replica);
/* false: the leader may still write into the extent; call again. */
bool follower_end(struct replica *replica);
void follower_hear(struct replica *replica, struct replica_link *link, const struct kafka_replica_message *message);
void follower_wrote(struct replica *replica, uint32_t grant, uint32_t bytes);
void follower_hear_hw(struct replica *replica, uint32_t grant, int64_t hw);
void follower_hear_start(struct replica *replica, uint32_t grant, int64_t offset);
void follower_link_down(struct replica *replica, struct replica_link *link);
void follower_turn(struct replica *replica); /* acknowledges verified batches */
void follower_tick(struct replica *replica, uint64_t now_ns);

#endif
