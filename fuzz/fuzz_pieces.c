/* Pieces of messages of a channel, in any order and of any length: each is two bytes of length, three of what is left,
 * then its bytes, as many as there are. */
#include <holdfast/channel.h>

#include <string.h>

#include "base/bytes.h"
#include "base/ensure.h"
#include "node/pieces.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	static uint8_t piece[PIECE_BYTES];
	struct pieces pieces = {0};
	uint32_t expected = 0;

	for (; bytes >= 5; data += 5, bytes -= 5) {
		uint32_t length = get_le16(data), left = get_le16(data + 2) | (uint32_t)data[4] << 16, whole = 0;
		const uint8_t *message = NULL;
		enum pieces_outcome outcome;

		memset(piece, data[0], sizeof(piece));
		outcome = pieces_add(&pieces, piece, length, left, &message, &whole);
		ensure(pieces.room <= HF_CHANNEL_MESSAGE_BYTES && pieces.bytes <= pieces.room);
		if (outcome == PIECES_VIOLATION)
			break;
		expected += length;
		if (outcome == PIECES_MORE)
			continue;
		ensure(outcome == PIECES_WHOLE && whole == expected && whole <= HF_CHANNEL_MESSAGE_BYTES);
		ensure(whole == 0 || message[whole - 1] == data[0]);
		expected = 0;
		pieces_reset(&pieces);
	}
	pieces_reset(&pieces);
	return 0;
}
