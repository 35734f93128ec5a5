/* ISA-L leaves the upper halves of the vector registers in use. Until they are cleared, each change between AVX and
 * SSE instructions, which compilers use freely, costs some 60 ns: as much as the checksum of a whole packet. */
#include "base/crc.h"

#include <limits.h>
#include <isa-l/crc.h>
#include <string.h>

static void clear_upper_halves(void)
{
#if defined(__x86_64__)
	if (__builtin_cpu_supports("avx"))
		__asm__ volatile("vzeroupper" ::
					 : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8",
				 "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
#endif
}

uint32_t crc32(uint32_t crc, const void *data, size_t bytes)
{
	crc = crc32_gzip_refl(crc, data, bytes);
	clear_upper_halves();
	return crc;
}

/* Below 256 bytes ISA-L folds nothing, and the CPU's own instruction takes half its time: 21 against 42 ns for 224. */
#define SHORT_BYTES 255u

#if defined(__x86_64__)
static uint32_t __attribute__((target("sse4.2"))) crc32c_short(uint32_t crc, const unsigned char *at, size_t bytes)
{
	uint64_t state = ~crc, word;

	for (; bytes >= sizeof(word); bytes -= sizeof(word), at += sizeof(word)) {
		memcpy(&word, at, sizeof(word));
		state = __builtin_ia32_crc32di(state, word);
	}
	for (; bytes > 0; bytes--)
		state = __builtin_ia32_crc32qi((uint32_t)state, *at++);
	return ~(uint32_t)state;
}
#endif

uint32_t crc32c(uint32_t crc, const void *data, size_t bytes)
{
	union {
		const void *in;
		unsigned char *out; /* ISA-L's prototype lacks a const */
	} at = {.in = data};

#if defined(__x86_64__)
	if (bytes <= SHORT_BYTES && __builtin_cpu_supports("sse4.2"))
		return crc32c_short(crc, data, bytes);
#endif
	crc = ~crc;
	while (bytes > 0) {
		int piece = bytes > INT_MAX ? INT_MAX : (int)bytes;

		crc = crc32_iscsi(at.out, piece, crc);
		at.out += piece;
		bytes -= (size_t)piece;
	}
	clear_upper_halves();
	return ~crc;
}
