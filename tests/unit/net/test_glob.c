#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs those before it */
#include <cmocka.h>

#include <string.h>

#include "net/glob.h"

static bool matches_bytes(const char *pattern, size_t pattern_bytes, const void *text, size_t bytes)
{
	struct glob glob;

	glob_init(&glob, (const uint8_t *)pattern, pattern_bytes);
	return glob_match(&glob, text, bytes);
}

static bool matches(const char *pattern, const char *text)
{
	return matches_bytes(pattern, strlen(pattern), text, strlen(text));
}

static void star_takes_any_bytes(void **state)
{
	(void)state;
	assert_true(matches("*", ""));
	assert_true(matches("user:*", "user:1"));
	assert_true(matches("*:*:c", "a:b:x:c"));
	assert_false(matches("user:*", "use"));
	assert_false(matches("*a", "ab"));
	assert_false(matches("", "a"));
}

static void question_mark_takes_one_byte(void **state)
{
	(void)state;
	assert_true(matches("h?llo", "hallo"));
	assert_false(matches("h?llo", "hllo"));
}

static void class_takes_one_of_its_bytes(void **state)
{
	(void)state;
	assert_true(matches("h[ae]llo", "hello"));
	assert_false(matches("h[ae]llo", "hillo"));
	assert_true(matches("h[^e]llo", "hallo"));
	assert_false(matches("h[^e]llo", "hello"));
	assert_true(matches("[a-c]x[z-x]", "bxy"));
	assert_false(matches("[a-c]", "d"));
	assert_true(matches("[\\]]", "]"));
	assert_true(matches("[ab", "a")); /* a class without its end */
}

static void backslash_lets_the_next_byte_stand_for_itself(void **state)
{
	(void)state;
	assert_true(matches("a\\*", "a*"));
	assert_false(matches("a\\*", "ab"));
	assert_true(matches("a\\", "a\\"));
}

static void bytes_may_be_zero(void **state)
{
	(void)state;
	assert_true(matches_bytes("a*c", 3, "a\0c", 3));
	assert_false(matches_bytes("a*", 2, "\0a", 2));
}

/* With as many stars as that, trying every way of sharing the text would take for ever. */
static void many_stars_end_soon(void **state)
{
	static uint8_t text[16384];
	char pattern[] = "*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*b";

	(void)state;
	memset(text, 'a', sizeof(text));
	assert_false(matches_bytes(pattern, strlen(pattern), text, sizeof(text)));
}

/* Elements in more than one word, and as many bytes as there may be. */
static void long_patterns_match_as_short_ones(void **state)
{
	char pattern[GLOB_PATTERN_MAX + 1], text[GLOB_PATTERN_MAX + 3] = "";

	(void)state;
	for (unsigned n = 60; n <= GLOB_PATTERN_MAX; n = n < 70 ? n + 1 : n + 53) {
		memset(pattern, 'a', n);
		memset(text, 'a', n + 1);
		pattern[n] = text[n + 1] = '\0';
		assert_false(matches(pattern, text));
		text[n] = '\0';
		assert_true(matches(pattern, text));
		text[n - 1] = '\0';
		assert_false(matches(pattern, text));
		pattern[0] = '*';
		assert_true(matches(pattern, text));
		text[n - 2] = 'b';
		assert_false(matches(pattern, text));
		pattern[n - 1] = '?';
		assert_true(matches(pattern, text));
		pattern[n - 1] = '*';
		assert_true(matches(pattern, text));
	}
}

/* A simple matcher, byte by byte, without classes. */
static bool simply(const char *pattern, const char *text)
{
	if (*pattern == '\0')
		return *text == '\0';
	if (*pattern == '*')
		return simply(pattern + 1, text) || (*text != '\0' && simply(pattern, text + 1));
	return *text != '\0' && (*pattern == '?' || *pattern == *text) && simply(pattern + 1, text + 1);
}

static void all_short_patterns_match_what_they_mean(void **state)
{
	static const char letters[] = "ab*?";
	char pattern[6], text[5];

	(void)state;
	for (unsigned p = 0; p < 1024; p++)
		for (unsigned t = 0; t < 16 * 5; t++) {
			for (unsigned i = 0; i < 5; i++)
				pattern[i] = letters[p >> 2 * i & 3];
			for (unsigned i = 0; i < 4; i++)
				text[i] = letters[t >> i & 1];
			pattern[5] = text[t / 16] = '\0';
			if (matches(pattern, text) != simply(pattern, text))
				fail_msg("'%s' and '%s'", pattern, text);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(star_takes_any_bytes),
		cmocka_unit_test(question_mark_takes_one_byte),
		cmocka_unit_test(class_takes_one_of_its_bytes),
		cmocka_unit_test(backslash_lets_the_next_byte_stand_for_itself),
		cmocka_unit_test(bytes_may_be_zero),
		cmocka_unit_test(many_stars_end_soon),
		cmocka_unit_test(long_patterns_match_as_short_ones),
		cmocka_unit_test(all_short_patterns_match_what_they_mean),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
