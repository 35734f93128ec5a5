/* channels.h - the state of a node and its peers for channels (<holdfast/channel.h>). The messages are in channel.c. */
#ifndef HOLDFAST_NODE_CHANNELS_H
#define HOLDFAST_NODE_CHANNELS_H

#include <holdfast/channel.h>

#include "base/list.h"
#include "node/message.h"
#include "node/pieces.h"

struct channels { /* of a node */
	struct hf_channel *at[HF_CHANNELS_MAX];
	uint32_t last_num;
	struct hf_timer timer; /* fires when some `open` is due */
};

enum channel_state {
	CHANNEL_ABSENT, /* waiting until both sides have registered the name */
	CHANNEL_FOUND,  /* both have; `open` is due */
	CHANNEL_OPEN,
	CHANNEL_STATES,
};

struct channel_end { /* of one channel, to one peer */
	enum channel_state state;
	uint32_t theirs;       /* the peer's number of it */
	struct list queue;     /* messages that have not left, or not wholly */
	uint32_t queued_bytes; /* of them */
	bool refused;          /* -EAGAIN: `writable` is due once there is room */
	struct pieces pieces;  /* of the message that is arriving */
	void *context;
};

/* A name that a peer has registered. */
struct remote_channel {
	uint32_t num; /* 0: none */
	char name[HF_NAME_BYTES];
};

struct peer_channels {   /* of a peer */
	bool introduced; /* our names were sent to it */
	struct remote_channel remote[HF_CHANNELS_MAX];
	struct channel_end ends[HF_CHANNELS_MAX]; /* as channels.at */
	unsigned turn;                            /* the end of the last sent piece */
	uint32_t left, credited;                  /* our pieces that have left; that the peer has taken */
	uint32_t taken, told;                     /* received from the peer; acknowledged to it */
};

void channels_register(struct message_kinds *kinds);
void channels_init(struct channels *channels);
void channels_close(struct hf_node *node);
void channels_peer_init(struct peer_channels *channels);
void channels_introduce(struct hf_peer *peer); /* the control channel to it is up, and NODE was sent */
void channels_peer_end(struct hf_peer *peer);  /* it is gone, or is about to be closed */

#endif
