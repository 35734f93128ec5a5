/* channel.h - messages between the same layer at two nodes, over the control connection.
 *
 * A layer registers a name with its node. When the same name is registered at a peer, the channel to that peer opens,
 * and both ends can send messages of up to 1 MiB. Messages of a channel arrive in order, and once, while the peer
 * lives and both ends stay registered; nothing is said about the order between channels. A message leaves in pieces, so
 * that a long one does not hold up other channels, nor recovery of vqps.
 *
 * What a layer has sent and the peer has not taken is kept, at most HF_CHANNEL_QUEUE_BYTES for each channel and peer.
 * What was sent and had not arrived when the channel ends is dropped: a layer that must know waits for an answer.
 *
 * A peer that restarts is another peer, and its channels may open shortly before those of the one before end.
 *
 * Owned by the node's loop, on which all callbacks come. A callback may send on and close any channel; it closes
 * neither the node nor a peer. */
#ifndef HOLDFAST_CHANNEL_H
#define HOLDFAST_CHANNEL_H

#include <holdfast/node.h>

#define HF_CHANNELS_MAX          16u /* of a node */
#define HF_CHANNEL_MESSAGE_BYTES (1u << 20)
#define HF_CHANNEL_QUEUE_BYTES   (2u << 20)

struct hf_channel;

struct hf_channel_events {
	/* Both ends are registered: the peer can be sent to. */
	void (*open)(struct hf_channel *channel, struct hf_peer *peer, void *context);
	/* `data` belongs to the library and is not aligned; it is gone when this returns. */
	void (*message)(
		struct hf_channel *channel, struct hf_peer *peer, const void *data, size_t bytes, void *context);
	/* After a send that was refused with -EAGAIN: there is room for a message of any length. */
	void (*writable)(struct hf_channel *channel, struct hf_peer *peer, void *context);
	/* The peer is gone or has closed its end. Follows each `open`, before peer_down; but not hf_channel_close. */
	void (*end)(struct hf_channel *channel, struct hf_peer *peer, void *context);
};

/* `name` is copied. Peers that have registered it already are told to `open` in the next turn. -EINVAL: the name is
 * empty or too long; -EEXIST: it is registered; -ENOSPC: the node has HF_CHANNELS_MAX. Callbacks may be NULL. */
int hf_channel_register(struct hf_node *node, const char *name, const struct hf_channel_events *events, void *context,
	struct hf_channel **channel_out, struct hf_error *error);
/* No callback of it follows. NULL is legal. hf_node_close closes what is left. */
void hf_channel_close(struct hf_channel *channel);

/* Copies the message. 0: it arrives unless the channel ends first. Otherwise nothing was taken:
 * -EAGAIN: the queue is full, `writable` follows; -EPROTONOSUPPORT: the peer has not registered the name, `open`
 * follows when it does; -ENOTCONN: the peer is not up; -EMSGSIZE: more than HF_CHANNEL_MESSAGE_BYTES; -ENOMEM. */
int hf_channel_send(struct hf_channel *channel, struct hf_peer *peer, const void *data, size_t bytes);
bool hf_channel_is_open(const struct hf_channel *channel, const struct hf_peer *peer);

/* What the layer keeps for one peer; NULL at each `open`. */
void hf_channel_set_peer_context(struct hf_channel *channel, struct hf_peer *peer, void *context);
void *hf_channel_peer_context(const struct hf_channel *channel, const struct hf_peer *peer);

#endif
