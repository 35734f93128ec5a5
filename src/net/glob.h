/* glob.h - patterns as Redis' MATCH has them: * any bytes, ? any byte, [abc] [a-z] [^a] one of, or none of, and a
 * backslash before a byte that stands for itself. Pure.
 *
 * A pattern is made ready once. Then each byte of a text costs a step for each 64 elements of the pattern, whatever
 * both are: the bits of a state say which beginnings of the pattern the text so far matches. */
#ifndef HOLDFAST_NET_GLOB_H
#define HOLDFAST_NET_GLOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GLOB_PATTERN_MAX 1024u /* bytes */
#define GLOB_WORDS_MAX   (GLOB_PATTERN_MAX / 64 + 1)

struct glob {
	unsigned words, elements;           /* elements: but for stars */
	uint64_t fits[256][GLOB_WORDS_MAX]; /* which elements the byte fits */
	uint64_t stars[GLOB_WORDS_MAX];     /* before which elements, and behind the last one, a star stands */
};

/* `pattern` has GLOB_PATTERN_MAX bytes at most. */
void glob_init(struct glob *glob, const uint8_t *pattern, size_t bytes);
bool glob_match(const struct glob *glob, const uint8_t *text, size_t bytes);

#endif
