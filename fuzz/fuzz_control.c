/* Bytes of a control stream: frames, HELLOs and the messages in them. What is accepted must survive being written and
 * read again; nothing may crash. The first byte chooses whether the checksum is made right, so that what is behind it
 * is reached as well. */
#include <stdint.h>
#include <string.h>

#include "base/bytes.h"
#include "base/crc.h"
#include "base/ensure.h"
#include "net/frame.h"
#include "node/outbox.h"
#include "node/peer.h"
#include "vqp/kinds.h"
#include "net/control.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static const struct message_kinds *all_kinds(void)
{
	static struct message_kinds kinds;

	if (kinds.by_number[MESSAGE_NODE] == NULL) {
		peer_register(&kinds);
		kinds_register(&kinds);
	}
	return &kinds;
}

static void read_message(const uint8_t *at, uint32_t bytes)
{
	uint8_t again[MESSAGE_MAX];
	static union message message, copy;

	if (!message_decode(all_kinds(), at, bytes, &message))
		return;
	ensure(message_encode(&message.head, again) == bytes);
	ensure(message_decode(all_kinds(), again, bytes, &copy));
}

static void read_box(const uint8_t *at, uint32_t bytes)
{
	static struct outbox box;
	static union message message;
	const uint8_t *from = at;

	box.used = 0;
	while (outbox_next(all_kinds(), &at, from + bytes, &message))
		ensure(outbox_add(&box, &message.head));
	ensure(box.used == (uint32_t)(at - from));
}

static void read_hello(const uint8_t *at, uint32_t bytes)
{
	uint8_t again[FRAME_BODY_MAX];
	struct frame_hello hello;
	const char *reason = NULL;

	if (frame_hello_decode(at, bytes, &hello, &reason) == FRAME_OK)
		ensure(frame_hello_encode(&hello, again) == bytes && memcmp(again, at, bytes) == 0);
	else
		ensure(reason != NULL);
}

/* As if the sender had computed it. */
static void mend(uint8_t *at, size_t bytes)
{
	uint32_t body_bytes, crc;

	if (bytes < FRAME_HEADER_BYTES)
		return;
	body_bytes = (uint32_t)(bytes - FRAME_HEADER_BYTES);
	put_le32(at + 8, body_bytes);
	put_le32(at + 12, 0);
	crc = crc32c(0, at, FRAME_HEADER_BYTES + body_bytes);
	put_le32(at + 12, crc);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	static uint8_t copy[FRAME_MAX];
	const char *reason = NULL;
	uint32_t used = 0;
	struct frame frame;
	size_t at = 0;

	if (bytes < 1 || bytes - 1 > sizeof(copy))
		return 0;
	memcpy(copy, data + 1, bytes - 1);
	bytes--;
	if (data[0] & 1)
		mend(copy, bytes);
	if (data[0] & 2) {
		read_hello(copy, bytes > FRAME_BODY_MAX ? FRAME_BODY_MAX : (uint32_t)bytes);
		read_message(copy, bytes > FRAME_BODY_MAX ? FRAME_BODY_MAX : (uint32_t)bytes);
	}
	while (frame_decode(copy + at, bytes - at, &frame, &used, &reason) == FRAME_OK) {
		ensure(used >= FRAME_HEADER_BYTES && used <= bytes - at);
		if (frame.type == FRAME_HELLO)
			read_hello(frame.body, frame.body_bytes);
		if (frame.type == FRAME_MESSAGE)
			read_box(frame.body, frame.body_bytes);
		at += used;
	}
	return 0;
}
