#include "node/outbox.h"

#include <string.h>

#include "base/bytes.h"

bool outbox_add(struct outbox *box, const struct message_head *message)
{
	uint8_t at[MESSAGE_MAX];
	uint32_t bytes = message_encode(message, at);

	if (sizeof(box->bytes) - box->used < MESSAGE_LENGTH_BYTES + bytes)
		return false;
	put_le16(box->bytes + box->used, (uint16_t)bytes);
	memcpy(box->bytes + box->used + MESSAGE_LENGTH_BYTES, at, bytes);
	box->used += MESSAGE_LENGTH_BYTES + bytes;
	return true;
}

bool outbox_next(const struct message_kinds *kinds, const uint8_t **at, const uint8_t *end, union message *message_out)
{
	uint32_t left = (uint32_t)(end - *at), bytes;

	if (left < MESSAGE_LENGTH_BYTES)
		return false;
	bytes = get_le16(*at);
	if (left - MESSAGE_LENGTH_BYTES < bytes ||
		!message_decode(kinds, *at + MESSAGE_LENGTH_BYTES, bytes, message_out))
		return false;
	*at += MESSAGE_LENGTH_BYTES + bytes;
	return true;
}
