/* say.h - sends an engine's messages to a peer over their channel (wire.h). */
#ifndef HOLDFAST_TRANSFER_SAY_H
#define HOLDFAST_TRANSFER_SAY_H

#include "transfer/peer.h"

void say_describe_segment(struct hf_transfer *engine, struct wire_segment *segment); /* the content of say_segment */
void say_segment(struct peer *peer);
void say_fence(struct peer *peer, uint32_t epoch); /* nothing when the peer is gone: its lease is over */
void say_fenced(struct peer *peer, uint32_t epoch, uint64_t answered);
void say_released(struct peer *peer, uint32_t generation);

void say_waiting(struct peer *peer);      /* the channel is writable again */
void say_nothing_more(struct peer *peer); /* the channel has ended */

#endif
