/* tar.h - headers of a tar archive: POSIX ustar, with GNU's long names and large sizes where ustar has no room.
 *
 *   header (512 bytes) | content, padded with zeros to 512 | header | ... | 1024 zeros
 *   a name longer than 99 bytes: header of type 'L' | the name, padded | header of the file itself
 *
 * Pure: fills buffers, opens nothing. */
#ifndef HOLDFAST_CLI_TAR_H
#define HOLDFAST_CLI_TAR_H

#include <stddef.h>
#include <stdint.h>

#define TAR_BLOCK_BYTES 512u
#define TAR_NAME_MAX    4096u
/* What tar_header may fill: a long name's header and blocks, and the file's own header. */
#define TAR_HEADER_MAX (2 * TAR_BLOCK_BYTES + TAR_NAME_MAX + TAR_BLOCK_BYTES)

/* The header of a regular file; returns its length in bytes, 0 when the name is too long for any. */
size_t tar_header(char out[TAR_HEADER_MAX], const char *name, uint64_t bytes, uint64_t mtime_s);

static inline size_t tar_padding(uint64_t bytes)
{
	return (size_t)(-bytes % TAR_BLOCK_BYTES);
}

#endif
