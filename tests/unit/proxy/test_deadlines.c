/* The list of deadlines against a plain array. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "proxy/deadlines.h"

#define KEYS  300u
#define STEPS 20000u

static uint32_t state_of_draw = 1;

static uint32_t draw(uint32_t below)
{
	state_of_draw = state_of_draw * 1664525u + 1013904223u;
	return (state_of_draw >> 8) % below;
}

static void check(const struct deadlines *deadlines, const int64_t *model)
{
	const struct deadline *due[KEYS], *first = proxy_deadlines_first(deadlines);
	int64_t least = INT64_MAX, limit = draw(1000);
	size_t held = 0, late = 0, found;

	for (unsigned i = 0; i < KEYS; i++) {
		held += model[i] >= 0;
		late += model[i] >= 0 && model[i] <= limit;
		least = model[i] >= 0 && model[i] < least ? model[i] : least;
	}
	assert_int_equal(deadlines->count, held);
	assert_true(held == 0 ? first == NULL : first->ms == least);
	found = proxy_deadlines_due(deadlines, limit, due, KEYS);
	assert_int_equal(found, late);
	for (size_t i = 0; i < found; i++) {
		unsigned key;

		assert_int_equal(sscanf((const char *)due[i]->key, "key%u.", &key), 1);
		assert_true(due[i]->ms == model[key] && due[i]->ms <= limit);
	}
	if (late > 3)
		assert_int_equal(proxy_deadlines_due(deadlines, limit, due, 3), 3);
}

static void list_is_what_was_set(void **state)
{
	struct deadlines deadlines = {.seed = 7};
	int64_t model[KEYS];
	char key[16];

	(void)state;
	memset(model, 0xff, sizeof(model));
	for (unsigned step = 0; step < STEPS; step++) {
		unsigned i = draw(KEYS);
		size_t bytes = (size_t)snprintf(key, sizeof(key), "key%u.", i);

		if (draw(3) == 0) {
			proxy_deadlines_drop(&deadlines, (const uint8_t *)key, bytes);
			model[i] = -1;
		} else {
			model[i] = draw(1000);
			assert_int_equal(proxy_deadlines_set(&deadlines, (const uint8_t *)key, bytes, model[i]), 0);
		}
		if (step % 16 == 0)
			check(&deadlines, model);
	}
	proxy_deadlines_free(&deadlines);
	assert_null(proxy_deadlines_first(&deadlines));
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(list_is_what_was_set)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
