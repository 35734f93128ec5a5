#include "net/glob.h"

#include "base/ensure.h"

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

void glob_init(struct glob *glob, const uint8_t *pattern, size_t bytes)
{
	size_t at = 0, used = 0;
	unsigned n = 0;

	ensure(bytes <= GLOB_PATTERN_MAX);
	*glob = (struct glob){0};
	while (at < bytes) {
		if (pattern[at] == '*') {
			glob->stars[n / 64] |= 1ull << n % 64;
			at++;
			continue;
		}
		for (unsigned byte = 0; byte < 256; byte++)
			if (fits(pattern + at, bytes - at, (uint8_t)byte, &used))
				glob->fits[byte][n / 64] |= 1ull << n % 64;
		at += used;
		n++;
	}
	glob->elements = n;
	glob->words = n / 64 + 1;
}

bool glob_match(const struct glob *glob, const uint8_t *text, size_t bytes)
{
	uint64_t state[GLOB_WORDS_MAX] = {1}, any = 1;

	for (size_t i = 0; i < bytes && any != 0; i++) {
		const uint64_t *may = glob->fits[text[i]];
		uint64_t carry = 0;

		any = 0;
		for (unsigned k = 0; k < glob->words; k++) {
			uint64_t goes_on = state[k] & may[k];

			state[k] = goes_on << 1 | carry | (state[k] & glob->stars[k]);
			carry = goes_on >> 63;
			any |= state[k];
		}
	}
	return (state[glob->elements / 64] >> glob->elements % 64 & 1) != 0;
}
