#include "cli/transfer/pack.h"

#include <string.h>

#include "base/bytes.h"

#define LENGTH_BYTES 4u

uint8_t *copy_pack_add(struct copy_pack *pack, const struct copy_file *file)
{
	const struct copy_message message = {.kind = COPY_FILE, .file = *file};
	size_t hash_bytes = file->entry == COPY_REGULAR ? DIGEST_TEXT : 0;
	uint8_t text[COPY_MESSAGE_BYTES], *at = pack->at + pack->bytes;
	uint32_t length = copy_message_write(&message, text);

	if (file->bytes > COPY_PACK_FILE_BYTES ||
		pack->bytes + LENGTH_BYTES + length + hash_bytes + file->bytes > COPY_CHUNK_BYTES)
		return NULL;
	put_le32(at, length);
	memcpy(at + LENGTH_BYTES, text, length);
	pack->hash = at + LENGTH_BYTES + length;
	pack->bytes += LENGTH_BYTES + length + hash_bytes + file->bytes;
	return pack->hash + hash_bytes;
}

void copy_pack_seal(struct copy_pack *pack, const char sha256[DIGEST_TEXT])
{
	memcpy(pack->hash, sha256, DIGEST_TEXT);
}

bool copy_pack_next(const uint8_t *at, size_t bytes, size_t *used, struct copy_packed *entry)
{
	struct copy_message message;
	size_t left = bytes - *used;
	uint32_t length;

	if (left < LENGTH_BYTES)
		return false;
	length = get_le32(at + *used);
	left -= LENGTH_BYTES;
	if (length > left || !copy_message_read(at + *used + LENGTH_BYTES, length, &message) ||
		message.kind != COPY_FILE || message.file.bytes > COPY_PACK_FILE_BYTES)
		return false;
	entry->file = message.file;
	entry->sha256[0] = '\0';
	left -= length;
	*used += LENGTH_BYTES + length;
	if (message.file.entry == COPY_REGULAR) {
		if (left < DIGEST_TEXT || left - DIGEST_TEXT < message.file.bytes ||
			at[*used + DIGEST_TEXT - 1] != '\0')
			return false;
		memcpy(entry->sha256, at + *used, DIGEST_TEXT);
		*used += DIGEST_TEXT;
	}
	entry->content = at + *used;
	*used += message.file.bytes;
	return true;
}
