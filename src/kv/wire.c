#include "kv/wire.h"

#include <holdfast/kv.h>

#include <string.h>

#include "base/bytes.h"

#define FLAGS (RECORD_TOMBSTONE | RECORD_RMW)

/* What each kind carries. */
static const struct {
	bool key, value, ts, note;
} kinds[WIRE_KINDS] = {
	[WIRE_INV] = {true, true, true, false},
	[WIRE_ACK] = {false, false, true, false},
	[WIRE_NACK] = {false, true, true, false},
	[WIRE_VAL] = {true, false, true, false},
	[WIRE_ASK] = {false, true, true, true},
	[WIRE_GRANT] = {false, false, false, false},
	[WIRE_COPY_REQUEST] = {false, false, false, false},
	[WIRE_COPY_MISSED] = {false, true, false, false},
	[WIRE_COPY_ASKED] = {true, false, false, false},
	[WIRE_COPY_NONE] = {true, false, false, false},
	[WIRE_COPY_RECORD] = {true, true, true, true},
	[WIRE_COPY_END] = {false, true, false, false},
};

void kv_wire_write(const struct wire_message *message, uint8_t *at)
{
	put_le32(at, kv_wire_bytes(message));
	at[4] = (uint8_t)message->kind;
	at[5] = message->flags;
	put_le16(at + 6, message->ts.node);
	put_le64(at + 8, message->epoch);
	put_le64(at + 16, message->ts.version);
	put_le32(at + 24, message->ts.join);
	put_le32(at + 28, message->key_bytes);
	put_le32(at + 32, message->value_bytes);
	put_le32(at + 36, message->note);
	put_le64(at + 40, message->write);
	if (message->key_bytes > 0)
		memcpy(at + WIRE_HEAD_BYTES, message->key, message->key_bytes);
	if (message->value_bytes > 0)
		memcpy(at + WIRE_HEAD_BYTES + message->key_bytes, message->value, message->value_bytes);
}

static bool is_right(const struct wire_message *message, uint32_t bytes, unsigned kind)
{
	bool tombstone = (message->flags & RECORD_TOMBSTONE) != 0;

	return kind < WIRE_KINDS && (message->flags & ~FLAGS) == 0 && message->ts.node < HF_KV_MEMBERS_MAX &&
	       (message->ts.version != 0) == kinds[kind].ts && (message->note == 0 || kinds[kind].note) &&
	       message->key_bytes <= HF_KV_KEY_BYTES_MAX && message->value_bytes <= HF_KV_VALUE_BYTES_MAX &&
	       bytes == kv_wire_bytes(message) &&
	       ((message->key_bytes > 0) == kinds[kind].key || kind == WIRE_COPY_NONE) &&
	       (message->value_bytes == 0 || (kinds[kind].value && !tombstone));
}

enum wire_outcome kv_wire_read(const uint8_t *at, size_t bytes, struct wire_message *message_out, size_t *used_out)
{
	uint32_t length;

	*used_out = 0;
	if (bytes < WIRE_HEAD_BYTES)
		return WIRE_MORE;
	length = get_le32(at);
	*message_out = (struct wire_message){.kind = (enum wire_kind)at[4],
		.flags = at[5],
		.epoch = get_le64(at + 8),
		.ts = {.version = get_le64(at + 16), .join = get_le32(at + 24), .node = get_le16(at + 6)},
		.key_bytes = get_le32(at + 28),
		.value_bytes = get_le32(at + 32),
		.note = get_le32(at + 36),
		.write = get_le64(at + 40),
		.key = at + WIRE_HEAD_BYTES};
	message_out->value = message_out->key + message_out->key_bytes;
	if (!is_right(message_out, length, at[4]))
		return WIRE_WRONG;
	*used_out = length;
	return bytes < length ? WIRE_MORE : WIRE_WHOLE;
}
