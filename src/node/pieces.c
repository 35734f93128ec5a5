#include "node/pieces.h"

#include <holdfast/channel.h>

#include <stdlib.h>
#include <string.h>

static bool follows(const struct pieces *pieces, uint32_t bytes, uint32_t left)
{
	if (bytes > PIECE_BYTES || (left > 0 && bytes != PIECE_BYTES) || left > HF_CHANNEL_MESSAGE_BYTES)
		return false;
	return pieces->left > 0 ? bytes + left == pieces->left : bytes + left <= HF_CHANNEL_MESSAGE_BYTES;
}

/* Doubles, up to what the message takes. */
static bool make_room(struct pieces *pieces, uint32_t bytes, uint32_t left)
{
	uint32_t need = pieces->bytes + bytes, whole = need + left, room = pieces->room * 2;
	uint8_t *data;

	if (need <= pieces->room)
		return true;
	room = room < need ? need * 2 : room;
	room = room > whole ? whole : room;
	data = realloc(pieces->data, room);
	if (data == NULL)
		return false;
	pieces->data = data;
	pieces->room = room;
	return true;
}

enum pieces_outcome pieces_add(struct pieces *pieces, const uint8_t *data, uint32_t bytes, uint32_t left,
	const uint8_t **message_out, uint32_t *bytes_out)
{
	if (!follows(pieces, bytes, left))
		return PIECES_VIOLATION;
	if (pieces->left == 0 && left == 0) {
		*message_out = data;
		*bytes_out = bytes;
		return PIECES_WHOLE;
	}
	if (!make_room(pieces, bytes, left))
		return PIECES_NO_MEMORY;
	memcpy(pieces->data + pieces->bytes, data, bytes);
	pieces->bytes += bytes;
	pieces->left = left;
	if (left > 0)
		return PIECES_MORE;
	*message_out = pieces->data;
	*bytes_out = pieces->bytes;
	return PIECES_WHOLE;
}

void pieces_reset(struct pieces *pieces)
{
	free(pieces->data);
	*pieces = (struct pieces){0};
}

uint32_t pieces_next(uint32_t message_bytes, uint32_t sent)
{
	return message_bytes - sent < PIECE_BYTES ? message_bytes - sent : PIECE_BYTES;
}
