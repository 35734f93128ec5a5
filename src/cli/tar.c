#include "cli/tar.h"

#include <stdio.h>
#include <string.h>

#define TYPE_FILE      '0'
#define TYPE_LONG_NAME 'L'
#define OCTAL_SIZE_MAX 077777777777ull

struct tar_block {
	char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], checksum[8], type, link[100];
	char magic[6], version[2], user[32], group[32], major[8], minor[8], prefix[155], rest[12];
};
_Static_assert(sizeof(struct tar_block) == TAR_BLOCK_BYTES, "a tar header is one block");

static void put_size(char field[12], uint64_t bytes)
{
	if (bytes <= OCTAL_SIZE_MAX) {
		snprintf(field, 12, "%011llo", (unsigned long long)bytes);
		return;
	}
	memset(field, 0, 12); /* GNU: big-endian binary, marked by the highest bit */
	field[0] = (char)0x80;
	for (unsigned i = 0; i < 8; i++)
		field[11 - i] = (char)(bytes >> (8 * i));
}

static void put_block(char *out, const char *name, size_t name_bytes, char type, uint64_t bytes, uint64_t mtime_s)
{
	struct tar_block block;
	unsigned sum = 0;

	memset(&block, 0, sizeof(block));
	memcpy(block.name, name, name_bytes < sizeof(block.name) ? name_bytes : sizeof(block.name) - 1);
	snprintf(block.mode, sizeof(block.mode), "%07o", 0644u);
	snprintf(block.uid, sizeof(block.uid), "%07o", 0u);
	snprintf(block.gid, sizeof(block.gid), "%07o", 0u);
	put_size(block.size, bytes);
	put_size(block.mtime, mtime_s);
	block.type = type;
	memcpy(block.magic, "ustar", 6);
	memcpy(block.version, "00", 2);
	memset(block.checksum, ' ', sizeof(block.checksum));
	memcpy(out, &block, sizeof(block));
	for (unsigned i = 0; i < TAR_BLOCK_BYTES; i++)
		sum += (unsigned char)out[i];
	snprintf(block.checksum, sizeof(block.checksum), "%06o", sum & 0777777u);
	memcpy(out, &block, sizeof(block));
}

size_t tar_header(char out[TAR_HEADER_MAX], const char *name, uint64_t bytes, uint64_t mtime_s)
{
	size_t name_bytes = strlen(name), used = 0;

	if (name_bytes > TAR_NAME_MAX)
		return 0;
	if (name_bytes >= sizeof(((struct tar_block *)0)->name)) {
		put_block(out, "././@LongLink", 13, TYPE_LONG_NAME, name_bytes + 1, 0);
		used = TAR_BLOCK_BYTES;
		memset(out + used, 0, name_bytes + 1 + tar_padding(name_bytes + 1));
		memcpy(out + used, name, name_bytes);
		used += name_bytes + 1 + tar_padding(name_bytes + 1);
	}
	put_block(out + used, name, name_bytes, TYPE_FILE, bytes, mtime_s);
	return used + TAR_BLOCK_BYTES;
}
