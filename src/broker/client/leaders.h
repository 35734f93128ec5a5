/* leaders.h - what a client knows of brokers: who leads which partition, connections to them, peers of its node.
 *
 * Owned by a loop. Nothing here waits: what is not known yet is asked for, and NULL meanwhile. */
#ifndef HOLDFAST_BROKER_LEADERS_H
#define HOLDFAST_BROKER_LEADERS_H

#include <holdfast/node.h>

#include "broker/client/kafka_link.h"
#include "broker/rdma/rdma_wire.h"

#define LEADERS_BROKERS_MAX 32u
#define LEADERS_TOPIC_BYTES 250u

enum leaders_access { LEADERS_ACCESS_UNKNOWN, LEADERS_ACCESS_YES, LEADERS_ACCESS_NO };

struct leaders_broker {
	struct leaders *leaders;
	int32_t id; /* -1: known by its address only */
	struct kafka_link link;
	struct kafka_call versions;
	enum leaders_access access; /* whether it knows the key Access */
};

struct leaders_topic {
	struct list node;
	char name[LEADERS_TOPIC_BYTES];
	int32_t count, *leaders; /* ids; -1: nobody */
	bool stale, fatal;       /* ask again; it cannot be had */
};

struct leaders {
	struct hf_loop *loop;
	struct hf_node *node; /* NULL: TCP alone */
	struct hf_addr local;
	uint64_t late_ns, ask_ns; /* not before this moment again */
	struct leaders_broker *brokers[LEADERS_BROKERS_MAX];
	unsigned count, turn; /* turn: whom to ask next */
	struct list topics;
	struct kafka_call metadata;
	struct leaders_topic *asked;
};

/* `brokers`: "HOST:PORT,HOST:PORT", by addresses. `local`: from which to connect; no family: any. */
int leaders_open(struct leaders *leaders, struct hf_loop *loop, struct hf_node *node, const char *brokers,
	const struct hf_addr *local, uint64_t late_ns, struct hf_error *error);
void leaders_close(struct leaders *leaders);

/* NULL: no memory, or the name is too long. */
struct leaders_topic *leaders_topic(struct leaders *leaders, const char *name);
/* Who leads it; NULL: not known yet. */
struct leaders_broker *leaders_leader(struct leaders *leaders, struct leaders_topic *topic, int32_t partition);
/* Its partitions; 0: not known yet. */
int32_t leaders_partitions(struct leaders *leaders, struct leaders_topic *topic);
/* The peer with these control addresses, connected or to be; NULL: none of them is one. */
struct hf_peer *leaders_peer(struct leaders *leaders, const struct codec_string *addresses, int32_t count);

#endif
