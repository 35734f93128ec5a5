/* glob.h - patterns as Redis' MATCH has them: * any bytes, ? any byte, [abc] [a-z] [^a] one of, or none of, and a
 * backslash before a byte that stands for itself. Pure; the time grows with the product of both lengths. */
#ifndef HOLDFAST_NET_GLOB_H
#define HOLDFAST_NET_GLOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GLOB_PATTERN_MAX 1024u /* bytes of a pattern that a caller should take from outside */

bool glob_match(const uint8_t *pattern, size_t pattern_bytes, const uint8_t *text, size_t text_bytes);

#endif
