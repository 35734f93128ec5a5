#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/bytes.h"
#include "base/crc.h"
#include "base/histogram.h"
#include "base/list.h"
#include "base/log.h"

static void crcs_match_their_published_check_values(void **state)
{
	(void)state;
	assert_int_equal(crc32(0, "123456789", 9), 0xcbf43926);
	assert_int_equal(crc32c(0, "123456789", 9), 0xe3069283);
}

static void a_crc_can_be_taken_in_pieces(void **state)
{
	(void)state;
	assert_int_equal(crc32c(crc32c(0, "1234", 4), "56789", 5), crc32c(0, "123456789", 9));
	assert_int_equal(crc32(crc32(0, "1234", 4), "56789", 5), crc32(0, "123456789", 9));
}

/* The CPU's instruction computes short ones, ISA-L the others. */
static void checksum_of_pieces_is_that_of_the_whole(void **state)
{
	uint8_t bytes[400];

	(void)state;
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)(i * 167 + i / 7);
	for (size_t n = 0; n <= sizeof(bytes); n++)
		for (size_t cut = 0; cut <= n; cut += 1 + cut / 5)
			assert_int_equal(crc32c(crc32c(77, bytes, cut), bytes + cut, n - cut), crc32c(77, bytes, n));
}

static void quantiles_are_within_a_bucket_of_the_truth(void **state)
{
	static struct histogram histogram;

	(void)state;
	histogram_reset(&histogram);
	for (uint64_t value = 1; value <= 1000000; value++)
		histogram_add(&histogram, value);
	for (unsigned percent = 1; percent <= 100; percent++) {
		uint64_t truth = 10000ull * percent;
		uint64_t found = histogram_quantile(&histogram, percent / 100.0);

		assert_in_range(found, truth - truth / 64, truth + truth / 64);
	}
	assert_int_equal(histogram_quantile(&histogram, 0), 1);
	assert_int_equal(histogram_quantile(&histogram, 1), 1000000);
}

static void extremes_of_the_histogram_have_buckets(void **state)
{
	static struct histogram a, b;

	(void)state;
	histogram_reset(&a);
	histogram_reset(&b);
	assert_int_equal(histogram_quantile(&a, 0.5), 0);
	histogram_add(&a, 0);
	histogram_add(&b, UINT64_MAX);
	histogram_merge(&a, &b);
	assert_int_equal(a.count, 2);
	assert_int_equal(histogram_quantile(&a, 0), 0);
	assert_true(histogram_quantile(&a, 1) == UINT64_MAX);
}

static void list_keeps_order_and_survives_removal_while_walking(void **state)
{
	struct item {
		struct list node;
		int value;
	} items[4];
	struct list list;
	int sum = 0;

	(void)state;
	list_init(&list);
	for (int i = 0; i < 4; i++) {
		items[i].value = i;
		list_push_back(&list, &items[i].node);
	}
	list_for_each_safe (at, &list)
		if (container_of(at, struct item, node)->value % 2 == 0)
			list_remove(at);
	list_for_each (at, &list)
		sum = sum * 10 + container_of(at, struct item, node)->value;
	assert_int_equal(sum, 13);
	assert_ptr_equal(list_pop_front(&list), &items[1].node);
	assert_ptr_equal(list_pop_front(&list), &items[3].node);
	assert_null(list_pop_front(&list));
}

static uint64_t wall_ns(void)
{
	return 1764310320123000000ull; /* 2025-11-28T06:12:00.123Z */
}

static void printed(const char *expected, enum log_level level, const char *text)
{
	char line[256] = {0};
	int pipe_fds[2], kept = dup(STDERR_FILENO);

	assert_int_equal(pipe(pipe_fds), 0);
	dup2(pipe_fds[1], STDERR_FILENO);
	log_line(level, "%s", text);
	dup2(kept, STDERR_FILENO);
	assert_true(read(pipe_fds[0], line, sizeof(line) - 1) > 0);
	close(pipe_fds[0]);
	close(pipe_fds[1]);
	close(kept);
	assert_string_equal(line, expected);
}

static void a_line_has_time_level_service_and_name(void **state)
{
	(void)state;
	log_set_clock(wall_ns);
	printed("2025-11-28T06:12:00.123Z holdfast: warn: rail r0 is down\n", LOG_WARN, "rail r0 is down");
	log_set_service("kv", "a");
	printed("2025-11-28T06:12:00.123Z holdfast: error: kv a: it ends\n", LOG_ERROR, "it ends");
	setenv("HOLDFAST_LOG_TIME", "off", 1);
	printed("holdfast: error: kv a: it ends\n", LOG_ERROR, "it ends");
	unsetenv("HOLDFAST_LOG_TIME");
	setenv("HOLDFAST_LOG_FORMAT", "json", 1);
	printed("{\"time\":\"2025-11-28T06:12:00.123Z\",\"level\":\"warn\",\"service\":\"kv\",\"name\":\"a\",\"text\":"
		"\"a \\\"b\\\"\"}\n",
		LOG_WARN, "a \"b\"");
	unsetenv("HOLDFAST_LOG_FORMAT");
	log_set_service("", "");
	log_set_clock(NULL);
}

static void limited_lines_come_once_a_second_and_are_counted(void **state)
{
	struct log_limit limit = {0};
	uint64_t suppressed;

	(void)state;
	assert_true(log_limit_allows(&limit, 0, &suppressed));
	assert_false(log_limit_allows(&limit, 1, &suppressed));
	assert_false(log_limit_allows(&limit, 999999999, &suppressed));
	assert_true(log_limit_allows(&limit, 1000000000, &suppressed));
	assert_int_equal(suppressed, 2);
}

static void bytes_are_in_the_order_their_name_says(void **state)
{
	uint8_t buffer[9] = {0};

	(void)state;
	put_be24(buffer + 1, 0x123456);
	assert_int_equal(buffer[1], 0x12);
	assert_int_equal(get_be24(buffer + 1), 0x123456);
	put_le32(buffer + 1, 0x01020304);
	assert_int_equal(buffer[1], 4);
	put_be64(buffer + 1, 0x0102030405060708);
	assert_int_equal(buffer[8], 8);
	assert_true(get_be64(buffer + 1) == 0x0102030405060708);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(crcs_match_their_published_check_values),
		cmocka_unit_test(checksum_of_pieces_is_that_of_the_whole),
		cmocka_unit_test(a_crc_can_be_taken_in_pieces),
		cmocka_unit_test(quantiles_are_within_a_bucket_of_the_truth),
		cmocka_unit_test(extremes_of_the_histogram_have_buckets),
		cmocka_unit_test(list_keeps_order_and_survives_removal_while_walking),
		cmocka_unit_test(a_line_has_time_level_service_and_name),
		cmocka_unit_test(limited_lines_come_once_a_second_and_are_counted),
		cmocka_unit_test(bytes_are_in_the_order_their_name_says),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
