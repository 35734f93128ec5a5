/* leaders.h - a client's view of the brokers: the leader of each partition, connections, peers of its node.
 *
 * A leader of an earlier epoch than the newest known one may not have learned of its successor: its metadata is
 * rejected, and requests carry the newer epoch, so that it refuses them. If only earlier epochs arrive for seconds, the
 * topic is a new one of that name.
 *
 * A broker that has not responded for a second may stand still. The client then requests metadata from the others; once
 * they report that it leads none of our partitions, the connection is closed, and its requests go to the new leader.
 *
 * Owned by a loop. Nothing here waits: unknown data is requested, and NULL is returned meanwhile. */
#ifndef HOLDFAST_BROKER_LEADERS_H
#define HOLDFAST_BROKER_LEADERS_H

#include <holdfast/node.h>

#include "broker/client/kafka_link.h"
#include "broker/client/partitioner.h"
#include "broker/rdma/rdma_wire.h"

#define LEADERS_BROKERS_MAX 32u
#define LEADERS_TOPIC_BYTES 250u

enum leaders_access { LEADERS_ACCESS_UNKNOWN, LEADERS_ACCESS_YES, LEADERS_ACCESS_NO };

struct leaders_broker {
	struct leaders *leaders;
	int32_t id; /* -1: known by its address only */
	struct kafka_link link;
	struct kafka_call versions, metadata;
	enum leaders_access access;            /* whether it supports the key Access */
	struct codec_range served[KAFKA_APIS]; /* of each key of kafka_apis, once `access` is known */
	bool stalled;                          /* it owes an answer for long */
};

struct leaders_partition {
	int32_t leader, epoch; /* the leader's id, -1: none; -1: not known */
	uint64_t earlier_ns;   /* since when only earlier epochs arrive; 0: they do not */
};

struct leaders_topic {
	struct list node;
	char name[LEADERS_TOPIC_BYTES];
	struct leaders_partition *at;
	int32_t count;
	bool stale, fatal; /* ask again; it cannot be had */
	struct partitioner_sticky sticky;
};

struct leaders {
	struct hf_loop *loop;
	struct hf_node *node; /* NULL: TCP alone */
	struct hf_addr local;
	uint64_t late_ns, ask_ns; /* not before this moment again */
	struct leaders_broker *brokers[LEADERS_BROKERS_MAX];
	unsigned count, turn, topic_count; /* turn: the next broker for metadata */
	struct list topics;
	struct hf_timer timer; /* looks for brokers that stall */
};

/* `brokers`: "HOST:PORT,HOST:PORT", by addresses. `local`: from which to connect; no family: any. */
int leaders_open(struct leaders *leaders, struct hf_loop *loop, struct hf_node *node, const char *brokers,
	const struct hf_addr *local, uint64_t late_ns, struct hf_error *error);
void leaders_close(struct leaders *leaders);

/* NULL: no memory, or the name is too long. */
struct leaders_topic *leaders_topic(struct leaders *leaders, const char *name);
/* The leader; NULL: not known yet. */
struct leaders_broker *leaders_leader(struct leaders *leaders, struct leaders_topic *topic, int32_t partition);
/* After LEADERS_STALL_NS without progress although no connection broke: requests metadata again. True: the known leader
 * is another one than `broker`. */
#define LEADERS_STALL_NS 500000000ull
bool leaders_moved(struct leaders *leaders, const struct leaders_topic *topic, int32_t partition,
	const struct leaders_broker *broker);
static inline int32_t leaders_epoch(const struct leaders_topic *topic, int32_t partition)
{
	return partition < topic->count ? topic->at[partition].epoch : -1;
}
/* The versions of a key that it serves, from > to: none. NULL: not known yet; it is asked, and while
 * versions.waiting it may answer. */
const struct codec_range *leaders_versions(struct leaders_broker *broker, int16_t key);
/* Takes up where a broker is. False: that is no address, there are too many, or no memory. */
bool leaders_know(struct leaders *leaders, int32_t id, struct codec_string host, int32_t port);
/* NULL: it is not known. */
struct leaders_broker *leaders_find(const struct leaders *leaders, int32_t id);
/* A broker for what any of them can answer; NULL: none was found. */
struct leaders_broker *leaders_any(struct leaders *leaders);
/* Its partitions; 0: not known yet. */
int32_t leaders_partitions(struct leaders *leaders, struct leaders_topic *topic);
/* An address as brokers tell it. False: it is none. */
bool leaders_parse(struct codec_string host, int32_t port, struct hf_addr *out);
/* The peer with these control addresses, connected or to be; NULL: none of them is one. */
struct hf_peer *leaders_peer(struct leaders *leaders, const struct codec_string *addresses, int32_t count);

#endif
