/* message.h - messages between the two ends of a copy over a channel of their nodes, and records of a journal.
 *
 *   sender                                        receiver
 *   BEGIN: the name ------------------------------>
 *          <------------------------------------- RING: where slots for chunks lie
 *   a WRITE of a pack, then PACK ----------------->  directories, links and small files (pack.h), before all FILEs
 *          <------------------------------------- TAKEN: the slot is free again
 *          <------------------------------------- PACKED: so many more of them are verified, as VERIFIED below
 *   FILE: what it is ----------------------------->
 *          <------------------------------------- HAVE: chunks that its journal has; READY: send the others
 *   a WRITE into a free slot, then CHUNK --------->
 *          <------------------------------------- TAKEN: the slot is free again
 *   HOLE: chunks of zeros, of a sparse file ------>
 *   END: the hash -------------------------------->
 *          <------------------------------------- VERIFIED: it was read there with that hash, and is on disk
 *   FINISH --------------------------------------->
 *          <------------------------------------- FINISHED: it has its name
 *   FAIL: why, from either end, ends the copy.
 *
 * A message is its kind in one byte, then its fields, little-endian. Pure. */
#ifndef HOLDFAST_CLI_TRANSFER_MESSAGE_H
#define HOLDFAST_CLI_TRANSFER_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "cli/digest.h"

#define COPY_CHANNEL     "holdfast.copy"
#define COPY_VERSION     2u
#define COPY_CHUNK_BYTES (1u << 20)
#define COPY_SLOTS       16u
#define COPY_FILES       32u   /* begun and not verified, at most */
#define COPY_NAME_BYTES  4096u /* of a file, relative to what is copied, with its NUL */
#define COPY_TITLE_BYTES 200u  /* of what is copied, with its NUL: names beside it are longer */
#define COPY_TEXT_BYTES  250u
#define COPY_OWN         ".holdfast" /* the receiver's own files, beside what it receives */

enum copy_kind {
	COPY_BEGIN,
	COPY_RING,
	COPY_FILE,
	COPY_HAVE,
	COPY_READY,
	COPY_CHUNK,
	COPY_TAKEN,
	COPY_END,
	COPY_VERIFIED,
	COPY_FINISH,
	COPY_FINISHED,
	COPY_FAIL,
	COPY_PACK,
	COPY_PACKED,
	COPY_HOLE,
	COPY_KINDS
};

struct copy_begin {
	uint32_t version;
	uint8_t directory; /* or one file */
	uint16_t name_bytes;
	char name[COPY_TITLE_BYTES];
};
struct copy_ring {
	uint64_t addr;
	uint32_t slots, slot_bytes;
	uint8_t packs; /* may be sent */
};
enum copy_entry { COPY_REGULAR, COPY_DIRECTORY, COPY_LINK, COPY_ENTRIES };

struct copy_file {
	uint32_t file;                   /* by which the others call it; counted from 0 */
	uint8_t entry;                   /* enum copy_entry */
	uint8_t sparse;                  /* blocks of zeros stay holes */
	uint32_t mode;                   /* as of chmod(2) */
	uint64_t bytes, mtime_ns, inode; /* another one of these: another file */
	uint16_t name_bytes;
	char name[COPY_NAME_BYTES]; /* of a copy that is one file: empty */
	uint16_t target_bytes;
	char target[COPY_NAME_BYTES]; /* of a link */
};
struct copy_have {
	uint32_t file;
	uint64_t begin, end; /* chunks */
};
struct copy_chunk {
	uint32_t file, slot, bytes, crc32c;
	uint64_t chunk;
};
struct copy_pack_sent {
	uint32_t slot, bytes, crc32c;
};
struct copy_end {
	uint32_t file;
	char sha256[DIGEST_TEXT];
};
struct copy_number {
	uint32_t number; /* of the file, or the slot */
};
struct copy_fail {
	uint16_t text_bytes;
	char text[COPY_TEXT_BYTES];
};

struct copy_message {
	enum copy_kind kind;
	union {
		struct copy_begin begin;
		struct copy_ring ring;
		struct copy_file file;
		struct copy_have have;     /* HAVE, HOLE */
		struct copy_number number; /* READY, TAKEN, VERIFIED; of PACKED, FINISH: how many files */
		struct copy_chunk chunk;
		struct copy_pack_sent pack;
		struct copy_end end;
		struct copy_fail fail;
	};
};

#define COPY_MESSAGE_BYTES (sizeof(struct copy_message) + 1)

/* Returns the length, at most COPY_MESSAGE_BYTES. Texts are counted, without a NUL. */
uint32_t copy_message_write(const struct copy_message *message, uint8_t at[COPY_MESSAGE_BYTES]);
/* False: malformed. Texts get a NUL; names are checked: relative, no "..", nothing empty between slashes. */
bool copy_message_read(const void *at, size_t bytes, struct copy_message *message_out);
/* Whether a part of it is a name of a receiver's own files, of any version: no sender may make one (R-T27). */
bool copy_name_is_own(const char *name);
#define COPY_OWN_REFUSED "%.150s: that is a name of the receiver's own files; rename it and send it again"
/* Whether a link of that name leads to a place in the copy, as long as all other links in it do: relative, ".." only at
 * its beginning, and no more of them than directories above it (R-T29). */
bool copy_link_stays(const char *name, const char *target);

static inline bool copy_is_zeros(const uint8_t *at, size_t bytes) /* at least one */
{
	return at[0] == 0 && memcmp(at, at + 1, bytes - 1) == 0;
}
/* Of a whole file: a directory and an empty file have none. */
static inline uint64_t copy_chunks(uint64_t bytes)
{
	return bytes / COPY_CHUNK_BYTES + (bytes % COPY_CHUNK_BYTES != 0);
}
static inline uint32_t copy_chunk_bytes(uint64_t bytes, uint64_t chunk)
{
	uint64_t left = bytes - chunk * COPY_CHUNK_BYTES;

	return left < COPY_CHUNK_BYTES ? (uint32_t)left : COPY_CHUNK_BYTES;
}

#endif
