/* copy.h - stores into memory that another thread or process polls.
 *
 * A word is stored as a word: a poller never sees half of it. A copy that ends with a word stores that word last and
 * once: memcpy may store bytes twice, and a poller that saw the last word may have changed the others by then. In short
 * copies of words, such as the slots of atomics (vqp/atomic/uid.h), every word is stored whole and once.
 *
 * The bytes before the last word are memcpy's, which ThreadSanitizer reports as a race with atomic loads of a poller,
 * as in one-sided communication. Under ThreadSanitizer the same bytes are stored by relaxed atomic stores. A plain load
 * without having observed the last word is still reported. */
#ifndef HOLDFAST_BASE_COPY_H
#define HOLDFAST_BASE_COPY_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define COPY_WORD_BYTES  8u
#define COPY_WORDS_BYTES 32u /* the longest copy that is stored word by word */

/* Prefetches the cache line of the last byte that will be stored: the poller's core has it, and the transfer overlaps
 * with the work before the store. A poller takes the line back as soon as it has arrived, so the prefetch helps only
 * when the store follows within the time of a line transfer. */
#define COPY_EXPECT_BYTES 8192u

static inline void copy_expect(const void *last)
{
#if defined(__x86_64__)
	__asm__ volatile("prefetchw %0" : : "m"(*(const char *)last));
#else
	__builtin_prefetch(last, 1);
#endif
}

static inline void copy_word(void *to, const void *from, memory_order order)
{
	uint64_t word;

	memcpy(&word, from, sizeof(word));
	atomic_store_explicit((_Atomic uint64_t *)to, word, order);
}

#if defined(__SANITIZE_THREAD__)
#define COPY_IS_CHECKED 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define COPY_IS_CHECKED 1
#endif
#endif

#if defined(COPY_IS_CHECKED)
static inline void copy_before(void *to, const void *from, size_t bytes)
{
	uint8_t *at = to;
	const uint8_t *source = from, *end = source + bytes;

	while (source != end) {
		size_t step = 1;

		if (((uintptr_t)at & (COPY_WORD_BYTES - 1)) == 0 && (size_t)(end - source) >= COPY_WORD_BYTES) {
			step = COPY_WORD_BYTES;
			copy_word(at, source, memory_order_relaxed);
		} else {
			atomic_store_explicit((_Atomic uint8_t *)at, *source, memory_order_relaxed);
		}
		at += step;
		source += step;
	}
}
#else
static inline void copy_before(void *to, const void *from, size_t bytes)
{
	memcpy(to, from, bytes);
}
#endif

static inline void copy_shown(void *to, const void *from, size_t bytes)
{
	uint8_t *at = to;
	const uint8_t *source = from;
	size_t before;

	if (bytes < COPY_WORD_BYTES || ((uintptr_t)(at + bytes) & (COPY_WORD_BYTES - 1)) != 0) {
		copy_before(to, from, bytes);
		return;
	}
	before = bytes - COPY_WORD_BYTES;
	if (bytes <= COPY_WORDS_BYTES && bytes % COPY_WORD_BYTES == 0)
		for (size_t i = 0; i < before; i += COPY_WORD_BYTES)
			copy_word(at + i, source + i, memory_order_relaxed);
	else
		copy_before(at, source, before);
	copy_word(at + before, source + before, memory_order_release);
}

#endif
