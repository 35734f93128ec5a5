/* Messages of the other members, as their bytes come in. */
#include "kv/engine.h"

#define BATCH 16u

/* Of an epoch that is decided and not yet installed here: it waits, and what is behind it (R-K1). */
static bool is_early(const struct hf_kv *kv, const struct wire_message *message)
{
	return message->epoch > kv->epoch && message->kind != WIRE_VAL && message->kind != WIRE_ASK &&
	       message->kind != WIRE_GRANT;
}

static bool dispatch(struct hf_kv *kv, unsigned peer, const struct wire_message *message)
{
	switch (message->kind) {
	case WIRE_INV:
	case WIRE_ACK:
	case WIRE_NACK:
	case WIRE_VAL:
		return kv_writes_hear(kv, peer, message);
	case WIRE_ASK:
	case WIRE_GRANT:
		return kv_council_hear(kv, peer, message);
	case WIRE_COPY_REQUEST:
	case WIRE_COPY_MISSED:
	case WIRE_COPY_ASKED:
	case WIRE_COPY_NONE:
	case WIRE_COPY_RECORD:
	case WIRE_COPY_END:
		return kv_copy_hear(kv, peer, message);
	case WIRE_KINDS:
		break;
	}
	return false;
}

struct batch {
	struct wire_message messages[BATCH];
	size_t bytes[BATCH];
	unsigned count;
	enum wire_outcome last; /* of what is behind them */
};

/* The next messages, and what they will look at. */
static void read_batch(const struct hf_kv *kv, const uint8_t *at, size_t bytes, struct batch *batch)
{
	uint32_t entries[BATCH];
	unsigned n = 0;

	batch->last = WIRE_WHOLE;
	for (; n < BATCH; n++) {
		const struct wire_message *message = &batch->messages[n];

		batch->last = kv_wire_read(at, bytes, &batch->messages[n], &batch->bytes[n]);
		if (batch->last != WIRE_WHOLE)
			break;
		at += batch->bytes[n];
		bytes -= batch->bytes[n];
		entries[n] = kv_store_expect(&kv->store, message->key, message->key_bytes);
		kv_busy_expect(kv, entries[n]);
	}
	batch->count = n;
	for (unsigned i = 0; i < n; i++)
		kv_store_fetch(&kv->store, entries[i]);
}

size_t kv_hear_messages(void *context, unsigned peer, const uint8_t *at, size_t bytes)
{
	struct hf_kv *kv = context;
	struct batch batch;
	size_t from = 0;

	do {
		read_batch(kv, at + from, bytes - from, &batch);
		for (unsigned i = 0; i < batch.count; i++) {
			const struct wire_message *message = &batch.messages[i];

			if (is_early(kv, message)) {
				kv_council_heard(kv, peer, message->epoch);
				return from;
			}
			if (!dispatch(kv, peer, message))
				return SIZE_MAX;
			from += batch.bytes[i];
		}
	} while (batch.last == WIRE_WHOLE);
	return batch.last == WIRE_MORE ? from : SIZE_MAX;
}
