/* Notifications: over a channel of their own, which keeps their order, and behind the last task of a batch.
 *
 * A task is COMPLETED when every byte is in place (T2), so whatever is said afterwards arrives after the bytes. */
#include "transfer/notify.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "transfer/engine.h"

struct notice {
	struct hf_segment *segment;
	size_t bytes;
	uint8_t data[];
};

static void on_message(struct hf_channel *channel, struct hf_peer *peer, const void *data, size_t bytes, void *context)
{
	struct hf_transfer *engine = context;

	(void)channel;
	if (engine->events.notified != NULL)
		engine->events.notified(engine, peer, data, bytes, engine->context);
}

const struct hf_channel_events notify_channel_events = {.message = on_message};

int hf_transfer_notify(struct hf_transfer *engine, struct hf_segment *segment, const void *data, size_t bytes)
{
	struct peer *peer = segment->peer;

	if (peer->node_peer == NULL)
		return -ENOTCONN;
	return hf_channel_send(engine->notices, peer->node_peer, data, bytes);
}

int notify_wait(struct notice **notice, struct hf_segment *segment, const void *data, size_t bytes)
{
	struct notice *made;

	if (bytes > HF_CHANNEL_MESSAGE_BYTES)
		return -EMSGSIZE;
	made = malloc(sizeof(*made) + bytes);
	if (made == NULL)
		return -ENOMEM;
	made->segment = segment;
	made->bytes = bytes;
	if (bytes > 0)
		memcpy(made->data, data, bytes);
	free(*notice);
	*notice = made;
	return 0;
}

void notify_end(struct owner_context *owners, struct notice **notice, enum hf_transfer_status status)
{
	struct notice *due = *notice;
	int rc = 0;

	*notice = NULL;
	if (due != NULL && status == HF_TRANSFER_COMPLETED)
		rc = hf_transfer_notify(
			container_of(owners, struct hf_transfer, owners), due->segment, due->data, due->bytes);
	if (rc != 0)
		log_warn("transfer: a notification of %zu bytes is dropped: %s; the bytes of its batch are in place",
			due->bytes, strerror(-rc));
	free(due);
}
