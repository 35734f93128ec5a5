/* served.h - requests of clients at other nodes, proposed at this node's replica and answered over the channel.
 *
 * An answer waits while the channel has no room. Without memory for an answer it is dropped: the client sends the
 * request again, and gets the result that its session keeps. Owned by the client's loop. */
#ifndef HOLDFAST_SMR_SERVED_H
#define HOLDFAST_SMR_SERVED_H

#include <holdfast/channel.h>
#include <holdfast/smr.h>

#include "base/list.h"

struct smr_served {
	struct hf_smr *smr; /* NULL: there is no replica, or it is over: nothing is served */
	struct hf_channel *channel;
	struct list proposed, answers;
};

/* The channel is set once there is one. */
void smr_served_init(struct smr_served *served, struct hf_smr *smr);
/* Frees what is left, without an answer. The replica has stopped, or calls nothing back. */
void smr_served_close(struct smr_served *served);

void smr_served_hear(struct smr_served *served, struct hf_peer *peer, const uint8_t *message, size_t bytes);
/* The channel has room again. */
void smr_served_flush(struct smr_served *served);
/* Its answers are dropped. */
void smr_served_forget(struct smr_served *served, const struct hf_peer *peer);

#endif
