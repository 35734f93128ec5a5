/* node.h - one process and its rails: a node, its devices, and the layer above it. Used in src/node and above it.
 *
 *   layer above (struct node_layer)     callbacks for a turn, a tick, and a peer that comes, ends or loses a rail
 *        |
 *   node -- rails[] (a device and its completion queues each)
 *        `- peers   (the state of another incarnation: peer.h)
 *
 * The node uses the layer above through this table only. That layer embeds the node and each peer in objects of
 * its own. All of it runs on the node's loop. */
#ifndef HOLDFAST_NODE_NODE_H
#define HOLDFAST_NODE_NODE_H

#include <holdfast/loop.h>
#include <holdfast/node.h>

#include "base/list.h"
#include "net/control.h"
#include "node/channels.h"
#include "node/message.h"
#include "node/rail_cq.h"
#include "node/status.h"

struct hf_peer;

struct node_rail {
	struct hf_node *node;
	struct hf_rail_config config;
	struct hf_dev *dev;
	struct hf_watch watch;
	struct rail_cqs cqs;
	uint8_t timeout, retry_cnt; /* of its qps, as in ibv_qp_attr */
	bool up;
	bool fatal; /* its device reported it: the device does not respond any more */
};

struct node_layer {
	/* Before the devices are polled: what ends a path, so that nothing is tried on it in vain. */
	enum hf_poll (*begin_turn)(struct hf_node *node, uint64_t now_ns);
	/* After that; `so_far`: IDLE when nothing was busy in this turn. */
	enum hf_poll (*turn)(struct hf_node *node, uint64_t now_ns, enum hf_poll so_far);
	bool (*may_sleep)(struct hf_node *node); /* false: there is something to do now */
	void (*tick)(struct hf_node *node, uint64_t now_ns);

	struct hf_peer *(*peer_alloc)(void); /* zeroed; NULL: no memory */
	void (*peer_free)(struct hf_peer *peer);
	void (*peer_up)(struct hf_peer *peer);      /* its rails are known */
	void (*peer_down)(struct hf_peer *peer);    /* it is gone, and freed behind this */
	void (*peer_closing)(struct hf_peer *peer); /* the peer is informed that we left, after this */
	bool (*peer_in_use)(const struct hf_peer *peer);
	void (*heard)(struct hf_peer *peer); /* some messages were taken */
	/* No message arrived for our lease: the peer may count on our fence (docs/protocol.md, R5). Again at each tick
	 * until there is contact. */
	void (*lease_over)(struct hf_peer *peer);
	/* A rail to it became unusable, or a port of it is down. ports_up: only heartbeats are missing. */
	void (*rail_lost)(struct hf_peer *peer, unsigned rail, bool ports_up);
	bool (*waits_for_rails)(const struct hf_node *node); /* the next tick is to be now, once rails have changed */
	void (*peer_tick)(struct hf_peer *peer, uint64_t now_ns);
};

struct hf_node {
	const struct node_layer *layer;
	struct hf_loop *loop;
	struct hf_env *env;
	struct hf_node_config config;
	struct hf_node_listener program, *next_listener; /* listeners.h */
	struct node_rail rails[HF_RAILS_MAX];
	unsigned rail_count;
	struct control *control;
	struct message_kinds kinds; /* of messages of peers */
	struct channels channels;
	struct node_status status;
	struct hf_poller poller;
	struct hf_timer timer;
	bool switching, hearing; /* ports changed: peer_refresh_rails follows; messages are read: node_flush does */
	bool attached;           /* the poller is the loop's */
	bool rails_untold;       /* some peer_rail may be due */
	struct list peers;
	struct hf_peer *own[2]; /* this node as its own peer, both ends; NULL: not in use */
	uint64_t random;
	uint64_t turned_ns; /* when the last turn began */
};

/* Of a node inside of an object of the layer's, zeroed but for its kinds of messages. On failure node_close follows. */
int node_open(struct hf_node *node, struct hf_loop *loop, const struct hf_node_config *config,
	const struct hf_node_events *events, void *context, const struct node_layer *layer, struct hf_error *error);
void node_close(struct hf_node *node); /* the layer's objects are gone, and the peers */

uint32_t node_up_mask(const struct hf_node *node);
/* Until a qp of this rail gives up a wr that nobody answers, and the longest of these times of all rails. */
uint64_t node_rail_silence_ns(const struct node_rail *rail);
uint64_t node_silence_ns(const struct hf_node *node);
/* Before a peer is up: where the configuration does not set them, the times of qps become so short, if they can, that a
 * rail which falls silent is left within limit_ns. */
void node_limit_silence(struct hf_node *node, uint64_t limit_ns);
void node_tick_soon(struct hf_node *node);
uint32_t node_random(struct hf_node *node); /* to spread things by chance; not to keep secrets */
void node_flush(struct hf_node *node);      /* sends the messages to peers now */
/* Handles pending messages of peers that are about to get a message, so that the replies are sent with it. */
void node_hear(struct hf_node *node);

#endif
