#include "net/glob.h"

/* Whether the byte is in the class that begins at pattern[0], '['; *used_out: the bytes of the class. A class without
 * its end ends with the pattern. */
static bool in_class(const uint8_t *pattern, size_t bytes, uint8_t byte, size_t *used_out)
{
	size_t at = 1;
	bool none_of = bytes > 1 && pattern[1] == '^', found = false;

	at += none_of;
	while (at < bytes && pattern[at] != ']') {
		uint8_t from, to;

		at += pattern[at] == '\\' && at + 1 < bytes;
		from = to = pattern[at++];
		if (at + 1 < bytes && pattern[at] == '-') {
			to = pattern[at + 1];
			at += 2;
		}
		found |= (from <= byte && byte <= to) || (to <= byte && byte <= from);
	}
	*used_out = at < bytes ? at + 1 : at;
	return found != none_of;
}

/* Whether the byte fits the element at pattern[0], which is no '*'. */
static bool fits(const uint8_t *pattern, size_t bytes, uint8_t byte, size_t *used_out)
{
	*used_out = 1;
	if (pattern[0] == '?')
		return true;
	if (pattern[0] == '[')
		return in_class(pattern, bytes, byte, used_out);
	if (pattern[0] == '\\' && bytes > 1) {
		*used_out = 2;
		return pattern[1] == byte;
	}
	return pattern[0] == byte;
}

bool glob_match(const uint8_t *pattern, size_t pattern_bytes, const uint8_t *text, size_t text_bytes)
{
	size_t at = 0, in = 0, star = SIZE_MAX, star_in = 0, used;

	/* What does not fit makes the last star take one byte more. */
	while (in < text_bytes) {
		if (at < pattern_bytes && pattern[at] == '*') {
			star = ++at;
			star_in = in;
		} else if (at < pattern_bytes && fits(pattern + at, pattern_bytes - at, text[in], &used)) {
			at += used;
			in++;
		} else if (star != SIZE_MAX) {
			at = star;
			in = ++star_in;
		} else {
			return false;
		}
	}
	while (at < pattern_bytes && pattern[at] == '*')
		at++;
	return at == pattern_bytes;
}
