/* pack.h - directories, links and small files of a copy in one slot, one behind the other.
 *
 *   entry[]: u32 bytes of the message, a FILE message (message.h), SHA-256 in hexadecimal with its NUL, content
 *
 * Only regular files have a hash and content. Pure. */
#ifndef HOLDFAST_CLI_TRANSFER_PACK_H
#define HOLDFAST_CLI_TRANSFER_PACK_H

#include "cli/transfer/message.h"

#define COPY_PACK_FILE_BYTES (256u << 10) /* a file of more is sent in chunks */

struct copy_pack {
	uint8_t *at; /* COPY_CHUNK_BYTES */
	size_t bytes;
	uint8_t *hash; /* of the last entry */
};

/* The place for the content of the file, which copy_pack_seal follows; NULL: there is no room for one more entry. */
uint8_t *copy_pack_add(struct copy_pack *pack, const struct copy_file *file);
/* The hash of the last entry, a regular file. */
void copy_pack_seal(struct copy_pack *pack, const char sha256[DIGEST_TEXT]);

struct copy_packed {
	struct copy_file file;
	char sha256[DIGEST_TEXT]; /* of a regular file; else "" */
	const uint8_t *content;
};

/* The entry that begins at *used, which then is behind it. False: malformed. */
bool copy_pack_next(const uint8_t *at, size_t bytes, size_t *used, struct copy_packed *entry_out);

#endif
