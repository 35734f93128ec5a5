/* Messages of the other members, as their bytes come in. */
#include "kv/engine.h"

size_t kv_hear_messages(void *context, unsigned peer, const uint8_t *at, size_t bytes)
{
	struct hf_kv *kv = context;
	size_t from = 0, used;

	for (;;) {
		struct wire_message message;
		enum wire_outcome outcome = kv_wire_read(at + from, bytes - from, &message, &used);

		if (outcome == WIRE_MORE)
			return from;
		if (outcome == WIRE_WRONG || !kv_writes_hear(kv, peer, &message))
			return SIZE_MAX;
		from += used;
	}
}
