/* channel.h - messages between the same layer at two nodes, over the control connection.
 *
 * A layer registers a name with its node. When the same name is registered at a peer, the channel to that peer opens,
 * and both ends can send messages of up to 1 MiB. Messages of a channel arrive in order, and once, while the peer
 * lives and both ends stay registered; there is no order between channels. A message is sent in pieces, so
 * that a long one delays neither other channels nor the recovery of vqps.
 *
 * The library keeps messages that the peer has not received, at most HF_CHANNEL_QUEUE_BYTES for each channel and peer.
 * Messages that have not arrived when the channel ends are dropped: a layer that needs a confirmation waits for a
 * reply.
 *
 * A peer that restarts is another peer, and its channels may open shortly before the channels of the old peer end.
 *
 * Owned by the node's loop, on which all callbacks run. A callback may send on and close any channel; it must close
 * neither the node nor a peer. */
#ifndef HOLDFAST_CHANNEL_H
#define HOLDFAST_CHANNEL_H

#include <holdfast/node.h>

#define HF_CHANNELS_MAX          16u /* of a node */
#define HF_CHANNEL_MESSAGE_BYTES (1u << 20)
#define HF_CHANNEL_QUEUE_BYTES   (2u << 20)

struct hf_channel;

struct hf_channel_events {
	/* Both ends are registered: hf_channel_send works. */
	void (*open)(struct hf_channel *channel, struct hf_peer *peer, void *context);
	/* `data` belongs to the library and is not aligned; it is gone when this returns. */
	void (*message)(
		struct hf_channel *channel, struct hf_peer *peer, const void *data, size_t bytes, void *context);
	/* After a send that returned -EAGAIN: there is room for a message of any length. */
	void (*writable)(struct hf_channel *channel, struct hf_peer *peer, void *context);
	/* The peer is gone or has closed its end. Follows each `open`, before peer_down; but not hf_channel_close. */
	void (*end)(struct hf_channel *channel, struct hf_peer *peer, void *context);
};

/* `name` is copied. `open` is called in the next turn for peers that have registered it already. -EINVAL: the name is
 * empty or too long; -EEXIST: it is registered; -ENOSPC: the node has HF_CHANNELS_MAX. Callbacks may be NULL. */
int hf_channel_register(struct hf_node *node, const char *name, const struct hf_channel_events *events, void *context,
	struct hf_channel **channel_out, struct hf_error *error);
/* No callback follows. NULL is legal. hf_node_close closes the remaining channels. */
void hf_channel_close(struct hf_channel *channel);

/* Copies the message. 0: it arrives unless the channel ends first. Otherwise the message was not accepted:
 * -EAGAIN: the queue is full, `writable` follows; -EPROTONOSUPPORT: the peer has not registered the name, `open`
 * follows when it does; -ENOTCONN: the peer is not up; -EMSGSIZE: more than HF_CHANNEL_MESSAGE_BYTES; -ENOMEM. */
int hf_channel_send(struct hf_channel *channel, struct hf_peer *peer, const void *data, size_t bytes);
bool hf_channel_is_open(const struct hf_channel *channel, const struct hf_peer *peer);

/* A pointer of the layer for one peer; NULL at each `open`. */
void hf_channel_set_peer_context(struct hf_channel *channel, struct hf_peer *peer, void *context);
void *hf_channel_peer_context(const struct hf_channel *channel, const struct hf_peer *peer);

#endif
