/* A message, little-endian, packed:
 *
 *   0  u16 kind     its number
 *   2  u16 zero
 *   4  u32 to       below 2^24
 *   8  u32 from     below 2^24
 *  12  u32 epoch
 *  16  the fields of the kind, in the order of its table */
#include "node/message.h"

#include <string.h>

#include "base/ensure.h"

#define NUM_MAX 0xffffffu

struct wire_head {
	uint16_t number, zero;
	uint32_t to, from, epoch;
};
_Static_assert(sizeof(struct wire_head) == MESSAGE_HEAD_BYTES, "the head has no holes");

static const struct field head_fields[] = {
	FIELD_MAX(struct wire_head, number, MESSAGE_NUMBERS - 1),
	FIELD_MAX(struct wire_head, zero, 0),
	FIELD_MAX(struct wire_head, to, NUM_MAX),
	FIELD_MAX(struct wire_head, from, NUM_MAX),
	FIELD_ANY(struct wire_head, epoch),
};
static const struct fields head_layout = FIELDS(head_fields);

void message_register(struct message_kinds *kinds, const struct message_kind *kind)
{
	ensure(kind->number > 0 && kind->number < MESSAGE_NUMBERS && kinds->by_number[kind->number] == NULL);
	ensure(kind->bytes >= sizeof(struct message_head) && kind->bytes <= sizeof(union message));
	ensure(MESSAGE_HEAD_BYTES + fields_bytes_max(&kind->fields) <= MESSAGE_MAX);
	kinds->by_number[kind->number] = kind;
}

uint32_t message_encode(const struct message_head *message, uint8_t *at)
{
	const struct message_kind *kind = message->kind;
	const struct wire_head head = {
		.number = kind->number, .to = message->to, .from = message->from, .epoch = message->epoch};

	ensure(kind->valid == NULL || kind->valid(message));
	(void)fields_write(&head_layout, &head, at);
	return MESSAGE_HEAD_BYTES + fields_write(&kind->fields, message, at + MESSAGE_HEAD_BYTES);
}

bool message_decode(const struct message_kinds *kinds, const uint8_t *at, uint32_t bytes, union message *message_out)
{
	const struct message_kind *kind;
	struct wire_head head;

	if (bytes < MESSAGE_HEAD_BYTES || !fields_read(&head_layout, at, MESSAGE_HEAD_BYTES, &head))
		return false;
	kind = kinds->by_number[head.number];
	if (kind == NULL)
		return false;
	memset(message_out, 0, kind->bytes);
	message_out->head = (struct message_head){.kind = kind, .to = head.to, .from = head.from, .epoch = head.epoch};
	return fields_read(&kind->fields, at + MESSAGE_HEAD_BYTES, bytes - MESSAGE_HEAD_BYTES, message_out) &&
	       (kind->valid == NULL || kind->valid(&message_out->head));
}
