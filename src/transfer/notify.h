/* notify.h - notifications (hf_transfer_notify), and one that waits for the end of a batch. */
#ifndef HOLDFAST_TRANSFER_NOTIFY_H
#define HOLDFAST_TRANSFER_NOTIFY_H

#include <holdfast/channel.h>
#include <holdfast/transfer.h>

#define NOTIFY_CHANNEL "holdfast.notify"

extern const struct hf_channel_events notify_channel_events; /* context: the engine */

struct owner_context;
struct notice; /* it waits */

/* Replaces *notice. -EMSGSIZE; -ENOMEM: *notice stays. */
int notify_wait(struct notice **notice, struct hf_segment *segment, const void *data, size_t bytes);
/* Sends it if all is COMPLETED, frees it, and sets *notice to NULL. NULL is legal. `owners` are an engine's. */
void notify_end(struct owner_context *owners, struct notice **notice, enum hf_transfer_status status);

#endif
