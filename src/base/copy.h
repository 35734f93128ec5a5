/* copy.h - stores into memory that somebody else polls.
 *
 * A word is stored as a word: whoever polls it never sees half of it. What ends with a word has that stored last and
 * once: memcpy may store bytes twice, and who saw the last of them may have changed the others by then. */
#ifndef HOLDFAST_BASE_COPY_H
#define HOLDFAST_BASE_COPY_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define COPY_WORD_BYTES 8u

/* Asks for the cache line of the last byte that will be stored: who polls it has it, and it travels while we do what
 * comes before the store. A poller takes it back as soon as it has arrived, so it is worth while only when the store
 * follows within the time that a line takes. */
#define COPY_EXPECT_BYTES 8192u

static inline void copy_expect(const void *last)
{
#if defined(__x86_64__)
	__asm__ volatile("prefetchw %0" : : "m"(*(const char *)last));
#else
	__builtin_prefetch(last, 1);
#endif
}

static inline void copy_shown(void *to, const void *from, size_t bytes)
{
	uint8_t *end = (uint8_t *)to + bytes;
	uint64_t last;

	if (bytes < COPY_WORD_BYTES || ((uintptr_t)end & (COPY_WORD_BYTES - 1)) != 0) {
		memcpy(to, from, bytes);
		return;
	}
	bytes -= COPY_WORD_BYTES;
	memcpy(&last, (const uint8_t *)from + bytes, COPY_WORD_BYTES);
	if (bytes > 0)
		memcpy(to, from, bytes);
	atomic_store_explicit((_Atomic uint64_t *)(void *)((uint8_t *)to + bytes), last, memory_order_release);
}

#endif
