#include "base/crc.h"

#include <limits.h>
#include <isa-l/crc.h>

uint32_t crc32(uint32_t crc, const void *data, size_t bytes)
{
	return crc32_gzip_refl(crc, data, bytes);
}

uint32_t crc32c(uint32_t crc, const void *data, size_t bytes)
{
	union {
		const void *in;
		unsigned char *out; /* ISA-L's prototype lacks a const */
	} at = {.in = data};

	crc = ~crc;
	while (bytes > 0) {
		int piece = bytes > INT_MAX ? INT_MAX : (int)bytes;

		crc = crc32_iscsi(at.out, piece, crc);
		at.out += piece;
		bytes -= (size_t)piece;
	}
	return ~crc;
}
