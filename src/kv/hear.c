/* Messages of the other members, as their bytes come in. */
#include "kv/engine.h"

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

size_t kv_hear_messages(void *context, unsigned peer, const uint8_t *at, size_t bytes)
{
	struct hf_kv *kv = context;
	size_t from = 0, used;

	for (;;) {
		struct wire_message message;
		enum wire_outcome outcome = kv_wire_read(at + from, bytes - from, &message, &used);

		if (outcome == WIRE_MORE)
			return from;
		if (outcome == WIRE_WHOLE && is_early(kv, &message)) {
			kv_council_heard(kv, peer, message.epoch);
			return from;
		}
		if (outcome == WIRE_WRONG || !dispatch(kv, peer, &message))
			return SIZE_MAX;
		from += used;
	}
}
