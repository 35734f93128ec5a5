/* bitmap.h - bits of qps in shared memory: set by the producer of an event, cleared and visited by the owner. */
#ifndef HOLDFAST_DEV_SHM_BITMAP_H
#define HOLDFAST_DEV_SHM_BITMAP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define QP_SLOTS      8192u
#define BITMAP_WORDS  (QP_SLOTS / 64)
#define SUMMARY_WORDS (BITMAP_WORDS / 64)

/* Bits of qps, with words that say which words have any. */
struct qp_bitmap {
	_Alignas(64) _Atomic uint64_t summary[SUMMARY_WORDS];
	_Alignas(64) _Atomic uint64_t words[BITMAP_WORDS];
};

_Static_assert(sizeof(struct qp_bitmap) == 64 + BITMAP_WORDS * 8, "shared layout");
_Static_assert(SUMMARY_WORDS == 2, "qp_bitmap_any looks at both");

/* Sets a bit. The owner clears it before it reads, so it sees everything that was published before. */
static inline void qp_bitmap_set(struct qp_bitmap *bitmap, uint32_t slot)
{
	uint32_t word = slot / 64;
	uint64_t bit = 1ull << (slot % 64), word_bit = 1ull << (word % 64);

	if ((atomic_load(&bitmap->words[word]) & bit) == 0)
		atomic_fetch_or(&bitmap->words[word], bit);
	if ((atomic_load(&bitmap->summary[word / 64]) & word_bit) == 0)
		atomic_fetch_or(&bitmap->summary[word / 64], word_bit);
}

static inline bool qp_bitmap_any(struct qp_bitmap *bitmap)
{
	return atomic_load(&bitmap->summary[0]) != 0 || atomic_load(&bitmap->summary[1]) != 0;
}

/* Clears all bits, and visits their qps. */
static inline void qp_bitmap_take(struct qp_bitmap *bitmap, void (*visit)(uint32_t slot, void *context), void *context)
{
	for (uint32_t i = 0; i < SUMMARY_WORDS; i++) {
		uint64_t words = atomic_load(&bitmap->summary[i]) == 0 ? 0 : atomic_exchange(&bitmap->summary[i], 0);

		for (; words != 0; words &= words - 1) {
			uint32_t word = i * 64 + (uint32_t)__builtin_ctzll(words);
			uint64_t bits = atomic_exchange(&bitmap->words[word], 0);

			for (; bits != 0; bits &= bits - 1)
				visit(word * 64 + (uint32_t)__builtin_ctzll(bits), context);
		}
	}
}

#endif
