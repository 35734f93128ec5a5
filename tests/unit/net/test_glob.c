#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs those before it */
#include <cmocka.h>

#include <string.h>

#include "net/glob.h"

static bool matches(const char *pattern, const char *text)
{
	return glob_match((const uint8_t *)pattern, strlen(pattern), (const uint8_t *)text, strlen(text));
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
	assert_true(glob_match((const uint8_t *)"a*c", 3, (const uint8_t *)"a\0c", 3));
	assert_false(glob_match((const uint8_t *)"a*", 2, (const uint8_t *)"\0a", 2));
}

/* With as many stars as that, trying every way of sharing the text would take for ever. */
static void many_stars_end_soon(void **state)
{
	static uint8_t text[16384];
	char pattern[] = "*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*b";

	(void)state;
	memset(text, 'a', sizeof(text));
	assert_false(glob_match((const uint8_t *)pattern, strlen(pattern), text, sizeof(text)));
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
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
