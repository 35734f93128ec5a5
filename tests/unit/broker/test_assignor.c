/* Subscriptions and assignments of a group, and the assignor `range`. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "broker/client/assignor.h"

static struct codec_string name(const char *text)
{
	return (struct codec_string){text, (int32_t)strlen(text)};
}

static void joins(struct assignor *assignor, const char *member, char *const *topics, unsigned count)
{
	struct codec_bytes wants = assignor_subscribe(topics, count);

	assert_non_null(wants.at);
	assert_int_equal(assignor_take(assignor, name(member), wants), 0);
	free((void *)(uintptr_t)wants.at);
}

/* As "TOPIC-PARTITION TOPIC-PARTITION ". */
static void assert_gets(const struct assignor *assignor, const char *member, const char *expected)
{
	struct codec_bytes bytes = assignor_assignment(assignor, name(member));
	struct assignor_reader reader = {.from = bytes};
	struct codec_string topic;
	char text[256] = "";
	int32_t partition;
	int rc;

	assert_non_null(bytes.at);
	while ((rc = assignor_next(&reader, &topic, &partition)) == 1)
		snprintf(
			text + strlen(text), sizeof(text) - strlen(text), "%.*s-%d ", topic.bytes, topic.at, partition);
	assert_int_equal(rc, 0);
	assert_string_equal(text, expected);
	free((void *)(uintptr_t)bytes.at);
}

static void members_get_ranges_in_the_order_of_their_ids(void **state)
{
	struct assignor assignor = {0};
	size_t next;

	(void)state;
	joins(&assignor, "c", (char *[]){"logs", "events"}, 2);
	joins(&assignor, "a", (char *[]){"logs"}, 1);
	joins(&assignor, "b", (char *[]){"logs", "events"}, 2);
	assignor_sort(&assignor);
	next = assignor_spread(&assignor, 0, 1);
	assert_int_equal(next, 2);
	assert_int_equal(assignor_spread(&assignor, next, 5), 5);
	assert_gets(&assignor, "a", "logs-0 logs-1 ");
	assert_gets(&assignor, "b", "events-0 logs-2 logs-3 ");
	assert_gets(&assignor, "c", "logs-4 ");
	assert_gets(&assignor, "d", "");
	assignor_clear(&assignor);
}

/* What Java's ConsumerProtocol writes in version 1 for the topic "t": also partitions that the member has. */
static void a_later_version_is_read(void **state)
{
	static const uint8_t bytes[] = {0, 1, 0, 0, 0, 1, 0, 1, 't', 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0};
	struct assignor assignor = {0};

	(void)state;
	assert_int_equal(assignor_take(&assignor, name("a"), (struct codec_bytes){bytes, sizeof(bytes)}), 0);
	assignor_sort(&assignor);
	assert_int_equal(assignor_spread(&assignor, 0, 2), 1);
	assert_gets(&assignor, "a", "t-0 t-1 ");
	assignor_clear(&assignor);
}

static void what_ends_early_is_refused(void **state)
{
	static const uint8_t wants[] = {0, 0, 0, 0, 0, 1, 0, 1, 't'},
			     gets[] = {0, 0, 0, 0, 0, 1, 0, 1, 't', 0, 0, 0, 1, 0, 0, 0, 7};
	struct codec_string topic;
	int32_t partition;

	(void)state;
	for (int32_t bytes = 0; bytes < (int32_t)sizeof(wants); bytes++) {
		struct assignor assignor = {0};

		assert_int_equal(assignor_take(&assignor, name("a"), (struct codec_bytes){wants, bytes}), -EBADMSG);
		assignor_clear(&assignor);
	}
	for (int32_t bytes = 1; bytes <= (int32_t)sizeof(gets); bytes++) {
		struct assignor_reader reader = {.from = {gets, bytes}};

		assert_int_equal(
			assignor_next(&reader, &topic, &partition), bytes == (int32_t)sizeof(gets) ? 1 : -EBADMSG);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(members_get_ranges_in_the_order_of_their_ids),
		cmocka_unit_test(a_later_version_is_read),
		cmocka_unit_test(what_ends_early_is_refused),
	};

	return cmocka_run_group_tests_name("assignor", tests, NULL, NULL);
}
