/* group.h - one consumer group: the classic protocol as a state machine.
 *
 *   EMPTY ---- join ----> PREPARING ---- all joined, or time is over ----> COMPLETING ---- leader's sync ----> STABLE
 *     ^                      ^ |                                              |                               |
 *     +---- last one left ---+-+------- join, leave, session over -----------+-------------------------------+
 *
 * In PREPARING members join again and wait; in COMPLETING they wait for the assignment, which their leader sends. Each
 * step marks the waiting members that get a response (`due`); the caller sends the responses. A member that waits is
 * alive; others must send a request within their session.
 *
 * Members, with metadata and assignments of any size, share a budget of memory with those of other groups; beyond it a
 * member does not join, and an assignment is not taken.
 *
 * Pure but for memory: time is an argument, and a function returns the next deadline. */
#ifndef HOLDFAST_BROKER_GROUP_H
#define HOLDFAST_BROKER_GROUP_H

#include "base/list.h"
#include "broker/kafka_error.h"
#include "broker/kafka_messages.h"

#define GROUP_PROTOCOLS_MAX 32u

enum group_state { GROUP_EMPTY, GROUP_PREPARING, GROUP_COMPLETING, GROUP_STABLE, GROUP_STATES };

struct group_budget {
	size_t used, most; /* bytes */
};

struct group_protocol {
	char *name;
	uint8_t *metadata;
	int32_t metadata_bytes;
};

enum group_wait {
	GROUP_WAITS_NOT,
	GROUP_WAITS_FOR_JOIN, /* for the others */
	GROUP_WAITS_FOR_SYNC, /* for the leader's assignment */
};

struct group_member {
	struct list node;
	char *id, *instance_id, *client_id, *client_host; /* instance_id: NULL for a dynamic member */
	uint64_t session_ns, rebalance_ns, deadline_ns;
	struct group_protocol protocols[GROUP_PROTOCOLS_MAX];
	unsigned protocol_count;
	uint8_t *assignment;
	int32_t assignment_bytes;
	struct group_budget *budget;
	size_t own_bytes, protocol_bytes; /* of the budget, besides the assignment */
	bool named;                       /* its id was handed out, and it has not joined with it yet */
	bool removed;                     /* out of the group; kept until its answer was sent */
	enum group_wait wait;
	bool due;               /* its wait is over: it gets an answer */
	enum kafka_error error; /* of that answer */
	void *request;          /* the caller's */
};

struct group {
	struct list node; /* the registry's */
	char *id, *protocol_type;
	enum group_state state;
	int32_t generation;
	struct list members;                /* in the order in which they came; also those that are removed and due */
	unsigned member_count, named_count; /* of those that joined; of ids that were only handed out */
	char *leader_id, *protocol;         /* NULL: none */
	uint64_t deadline_ns;               /* PREPARING, COMPLETING: when they end without the missing members */
	uint64_t begun_ns;                  /* PREPARING */
	bool first; /* PREPARING from EMPTY: waits the initial delay, so that the first ones come together */
	uint64_t initial_delay_ns;
	struct group_budget *budget;
};

struct group_join {
	struct codec_string member_id, instance_id, client_id, protocol_type; /* member_id empty: a new one */
	const char *client_host;
	const struct kafka_join_group_request_join_group_request_protocol *protocols;
	int32_t protocol_count;
	uint64_t session_ns, rebalance_ns;
	uint32_t most_members; /* of the group; and as many ids that are handed out */
	bool must_name;        /* the client supports MEMBER_ID_REQUIRED */
	const char *fresh;     /* an unused member id, for a new member */
};

struct group *group_new(struct codec_string id, uint64_t initial_delay_ns, struct group_budget *budget);
void group_free(struct group *group); /* no member waits */

/* A request of this member that waits is due: another one of it has come. Answer it before the other is served. */
void group_supersede(struct group *group, struct codec_string member_id);
/* KAFKA_NONE: *member_out waits or is due. MEMBER_ID_REQUIRED: *member_out has the id. Else an error. */
enum kafka_error group_join(
	struct group *group, const struct group_join *join, uint64_t now_ns, struct group_member **member_out);
enum kafka_error group_sync(struct group *group, struct codec_string member_id, struct codec_string instance_id,
	int32_t generation, const struct kafka_sync_group_request *request, uint64_t now_ns,
	struct group_member **member_out);
enum kafka_error group_heartbeat(struct group *group, struct codec_string member_id, struct codec_string instance_id,
	int32_t generation, uint64_t now_ns);
enum kafka_error group_member_leave(
	struct group *group, struct codec_string member_id, struct codec_string instance_id, uint64_t now_ns);
/* Whether this member may commit offsets in this generation; a negative one without a member is no member's. */
enum kafka_error group_may_commit(struct group *group, struct codec_string member_id, struct codec_string instance_id,
	int32_t generation, uint64_t now_ns);

/* What time has brought about, and when to ask again; UINT64_MAX: nothing waits for time. */
void group_tick(struct group *group, uint64_t now_ns);
uint64_t group_next_ns(const struct group *group);

/* A due member has its answer; one that was removed is freed. */
void group_answered(struct group_member *member);
/* Its request is gone: the response is not sent. */
void group_abandon(struct group_member *member);

bool group_is_leader(const struct group *group, const struct group_member *member);
/* Its metadata for the chosen protocol. */
struct codec_bytes group_metadata(const struct group *group, const struct group_member *member);
const char *group_state_name(enum group_state state);

#endif
