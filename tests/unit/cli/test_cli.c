/* The parts of the program that need no device, process or terminal. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "cli/channel.h"
#include "cli/cli.h"
#include "cli/demo/html.h"
#include "cli/demo/node.h"
#include "cli/demo/picture.h"
#include "cli/demo/report.h"
#include "cli/demo/schedule.h"
#include "cli/digest.h"
#include "cli/draw.h"
#include "cli/series.h"
#include "cli/tar.h"

#define MS 1000000ull

/* ---- numbers of the command line ---- */

static void numbers_are_read_whole_and_in_range(void **state)
{
	double value = 0;

	(void)state;
	assert_true(cli_number("2.5", 1, 10, &value));
	assert_true(value == 2.5);
	assert_true(cli_number("10", 1, 10, &value));
	assert_false(cli_number("10.1", 1, 10, &value));
	assert_false(cli_number("0", 1, 10, &value));
	assert_false(cli_number("5s", 1, 10, &value));
	assert_false(cli_number("", 0, 10, &value));
	assert_false(cli_number(" 5", 0, 10, &value));
	assert_false(cli_number("-5", -10, 10, &value));
	assert_false(cli_number("nan", 0, 10, &value));
	assert_false(cli_number("1e999", 0, 1e300, &value));
}

/* ---- channel ---- */

static void lines_are_cut_one_by_one(void **state)
{
	char in[CHANNEL_LINE_BYTES] = "{\"a\":1}\n{\"b\":2}\n{\"c\"";
	size_t used = strlen(in);
	bool bad;
	json_t *message = channel_cut_line(in, &used, &bad);

	(void)state;
	assert_int_equal(json_integer_value(json_object_get(message, "a")), 1);
	json_decref(message);
	message = channel_cut_line(in, &used, &bad);
	assert_int_equal(json_integer_value(json_object_get(message, "b")), 2);
	json_decref(message);
	assert_null(channel_cut_line(in, &used, &bad));
	assert_false(bad);
	assert_int_equal(used, strlen("{\"c\""));
}

static void a_line_that_is_no_object_is_bad(void **state)
{
	static const char *const lines[] = {"[1]\n", "7\n", "\n", "{\"a\":}\n", "\xff\xfe\n"};

	(void)state;
	for (unsigned i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
		char in[CHANNEL_LINE_BYTES];
		size_t used = strlen(lines[i]);
		bool bad = false;

		memcpy(in, lines[i], used);
		assert_null(channel_cut_line(in, &used, &bad));
		assert_true(bad);
	}
}

static void a_line_without_end_is_bad(void **state)
{
	static char in[CHANNEL_LINE_BYTES];
	size_t used = sizeof(in);
	bool bad = false;

	(void)state;
	memset(in, 'x', sizeof(in));
	assert_null(channel_cut_line(in, &used, &bad));
	assert_true(bad);
}

/* ---- digest ---- */

static void sha256_matches_its_published_value(void **state)
{
	struct digest *digest;
	char text[DIGEST_TEXT];

	(void)state;
	assert_int_equal(digest_create(&digest), 0);
	digest_add(digest, "ab", 2);
	digest_add(digest, "c", 1);
	digest_finish(digest, text);
	assert_string_equal(text, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
	digest_finish(digest, text); /* it has started anew */
	assert_string_equal(text, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
	digest_destroy(digest);
}

/* ---- tar ---- */

static unsigned checksum_of(const char *block)
{
	unsigned sum = 0;

	for (unsigned i = 0; i < TAR_BLOCK_BYTES; i++)
		sum += i >= 148 && i < 156 ? ' ' : (unsigned char)block[i];
	return sum;
}

static void tar_header_has_name_size_and_checksum_in_their_places(void **state)
{
	char out[TAR_HEADER_MAX];

	(void)state;
	assert_int_equal(tar_header(out, "a/file", 01234567, 07654321), TAR_BLOCK_BYTES);
	assert_string_equal(out, "a/file");
	assert_string_equal(out + 124, "00001234567");
	assert_string_equal(out + 136, "00007654321");
	assert_int_equal(strtoul(out + 148, NULL, 8), checksum_of(out));
	assert_int_equal(out[156], '0');
	assert_memory_equal(out + 257, "ustar\00000", 8);
}

static void long_names_come_in_blocks_of_their_own(void **state)
{
	char out[TAR_HEADER_MAX], name[700];
	size_t bytes;

	(void)state;
	memset(name, 'n', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	bytes = tar_header(out, name, 5, 0);
	assert_int_equal(bytes, TAR_BLOCK_BYTES * 4); /* 'L', two blocks of name, the file */
	assert_int_equal(out[156], 'L');
	assert_int_equal(strtoul(out + 124, NULL, 8), sizeof(name));
	assert_string_equal(out + TAR_BLOCK_BYTES, name);
	assert_int_equal(out[3 * TAR_BLOCK_BYTES + 156], '0');
}

static void a_size_beyond_octal_is_binary(void **state)
{
	char out[TAR_HEADER_MAX];

	(void)state;
	tar_header(out, "big", 0x1234567890ull, 0);
	assert_memory_equal(out + 124, "\x80\0\0\0\0\0\0\x12\x34\x56\x78\x90", 12);
}

static void a_name_beyond_all_bounds_has_no_header(void **state)
{
	char out[TAR_HEADER_MAX], *name = calloc(1, TAR_NAME_MAX + 2);

	(void)state;
	memset(name, 'n', TAR_NAME_MAX);
	assert_true(tar_header(out, name, 0, 0) > 0);
	name[TAR_NAME_MAX] = 'n';
	assert_int_equal(tar_header(out, name, 0, 0), 0);
	free(name);
}

static void padding_fills_the_last_block(void **state)
{
	(void)state;
	assert_int_equal(tar_padding(0), 0);
	assert_int_equal(tar_padding(1), 511);
	assert_int_equal(tar_padding(512), 0);
	assert_int_equal(tar_padding(513), 511);
}

/* ---- series ---- */

static uint64_t series_total(const struct series *series)
{
	uint64_t total = 0;

	for (unsigned i = 0; i < SERIES_STEPS; i++)
		total += series->bytes[0][i] + series->bytes[1][i];
	return total;
}

static void bytes_are_spread_over_the_steps_they_took(void **state)
{
	static struct series series;

	(void)state;
	series_init(&series, 10);
	series_add(&series, 5, 25, 0, 200);
	assert_int_equal(series.bytes[0][0], 50);
	assert_int_equal(series.bytes[0][1], 100);
	assert_int_equal(series.bytes[0][2], 50);
	assert_int_equal(series.n, 3);
}

static void no_byte_of_a_series_is_lost_however_long_it_gets(void **state)
{
	static struct series series;
	uint64_t total = 0;

	(void)state;
	series_init(&series, 20 * MS);
	for (uint64_t i = 0; i < 100000; i++) {
		uint64_t bytes = i % 7919;

		series_add(&series, i * 50 * MS, (i + 1) * 50 * MS, (unsigned)(i / 3 % SERIES_RAILS), bytes);
		total += bytes;
	}
	assert_int_equal(series_total(&series), total);
	assert_true(series.n <= SERIES_STEPS);
	assert_true(series.n * series.step_ns >= 100000 * 50 * MS);
}

static void a_time_that_stands_still_is_no_division_by_zero(void **state)
{
	static struct series series;

	(void)state;
	series_init(&series, 10);
	series_add(&series, 7, 7, 1, 3);
	assert_int_equal(series.bytes[1][0], 3);
}

/* ---- schedule ---- */

static const struct schedule_view both_up_on_r0 = {.active = 0, .up = {true, true}};

static void a_cut_waits_until_the_other_rail_is_up(void **state)
{
	struct schedule schedule;
	struct schedule_view view = {.active = 0, .up = {true, false}};

	(void)state;
	schedule_start(&schedule, 0, 1000 * MS, 100 * MS, 250 * MS, 4, 100);
	assert_int_equal(schedule_step(&schedule, &view, 400 * MS), SCHEDULE_WAIT);
	view.up[1] = true;
	assert_int_equal(schedule_step(&schedule, &view, 401 * MS), SCHEDULE_CUT);
	assert_int_equal(schedule.rail, 0);
}

static void a_rail_that_never_comes_up_does_not_stop_the_cuts(void **state)
{
	struct schedule schedule;
	struct schedule_view view = {.active = 0, .up = {true, false}};

	(void)state;
	schedule_start(&schedule, 0, 1000 * MS, 100 * MS, 250 * MS, 4, 100);
	assert_int_equal(schedule_step(&schedule, &view, 60000 * MS), SCHEDULE_CUT);
}

static void the_rail_that_carries_traffic_is_cut_and_restored(void **state)
{
	struct schedule schedule;
	struct schedule_view view = {.active = 1, .up = {true, true}};

	(void)state;
	schedule_start(&schedule, 0, 1000 * MS, 100 * MS, 250 * MS, 4, 100);
	assert_int_equal(schedule_step(&schedule, &view, 400 * MS), SCHEDULE_CUT);
	assert_int_equal(schedule.rail, 1);
	view.active = 0;
	assert_int_equal(schedule_step(&schedule, &view, 499 * MS), SCHEDULE_WAIT);
	assert_int_equal(schedule_step(&schedule, &view, 500 * MS), SCHEDULE_RESTORE);
	assert_int_equal(schedule.rail, 1);
}

static unsigned run_schedule(struct schedule *schedule, uint64_t until_ns, unsigned *restores)
{
	unsigned cuts = 0;

	for (uint64_t now_ns = 0; now_ns < until_ns && schedule->state != SCHEDULE_OVER; now_ns += MS) {
		enum schedule_act act = schedule_step(schedule, &both_up_on_r0, now_ns);

		cuts += act == SCHEDULE_CUT;
		*restores += act == SCHEDULE_RESTORE;
	}
	return cuts;
}

static void a_short_schedule_makes_its_least_cuts_and_restores_each(void **state)
{
	struct schedule schedule;
	unsigned restores = 0;

	(void)state;
	schedule_start(&schedule, 0, 1 * MS, 100 * MS, 250 * MS, 4, 100);
	assert_int_equal(run_schedule(&schedule, 60000 * MS, &restores), 4);
	assert_int_equal(restores, 4);
	assert_int_equal(schedule.state, SCHEDULE_OVER);
}

static void a_long_schedule_ends_with_its_most_cuts(void **state)
{
	struct schedule schedule;
	unsigned restores = 0;

	(void)state;
	schedule_start(&schedule, 0, UINT64_MAX / 2, 100 * MS, 250 * MS, 4, 9);
	assert_int_equal(run_schedule(&schedule, 60000 * MS, &restores), 9);
	assert_int_equal(restores, 9);
}

static void nothing_is_cut_while_nothing_moves(void **state)
{
	struct schedule schedule;
	struct schedule_view view = {.active = -1, .up = {true, true}};

	(void)state;
	schedule_start(&schedule, 0, 1000 * MS, 100 * MS, 250 * MS, 4, 100);
	assert_int_equal(schedule_step(&schedule, &view, 60000 * MS), SCHEDULE_WAIT);
}

/* ---- shape ---- */

static void chunks_and_windows_cover_the_input_exactly(void **state)
{
	static const uint64_t sizes[] = {
		1, 4095, 4096, 4097, 262144, 300001, 3000001, 268435456, 1073741825, 1ull << 40};

	(void)state;
	for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct demo_shape shape = demo_shape_of(sizes[i]);
		uint64_t last = shape.chunks_per_pass - 1, last_window = shape.windows_per_pass - 1;

		assert_int_equal(demo_chunk_offset(&shape, 0), 0);
		assert_int_equal(demo_chunk_offset(&shape, last) + demo_chunk_bytes(&shape, last), sizes[i]);
		assert_int_equal(
			demo_window_offset(&shape, last_window) + demo_window_bytes(&shape, last_window), sizes[i]);
		assert_int_equal(demo_chunk_offset(&shape, last + 1), 0); /* the next pass */
		assert_int_equal(demo_windows_of(&shape, 0), 0);
		assert_int_equal(demo_windows_of(&shape, last), last_window);
		assert_int_equal(demo_windows_of(&shape, last + 1), shape.windows_per_pass);
		assert_int_equal(demo_windows_of(&shape, 2 * (last + 1)), 2 * shape.windows_per_pass);
	}
}

/* ---- drawing ---- */

static unsigned count_lines(const char *text)
{
	unsigned lines = 0;

	for (; *text != '\0'; text++)
		lines += *text == '\n';
	return lines;
}

static void a_picture_has_its_lines_at_every_width(void **state)
{
	static struct series moved;
	struct draw_view view = {.device = "shm", .rails = {DRAW_RAIL_CUT, DRAW_RAIL_CARRIES}, .doing = "moving"};

	(void)state;
	series_init(&moved, 20 * MS);
	for (unsigned i = 0; i < 2000; i++)
		series_add(&moved, i * 20 * MS, (i + 1) * 20 * MS, i % 2, i * 1000);
	for (unsigned columns = 0; columns < 2000; columns += 7) {
		view.columns = columns;
		char *picture = NULL;
		size_t bytes;
		FILE *to = open_memstream(&picture, &bytes);

		view.moved = &moved;
		draw_picture(to, &view);
		assert_int_equal(fclose(to), 0);
		assert_int_equal(count_lines(picture), DRAW_LINES);
		free(picture);
	}
}

static void a_sparkline_reaches_from_nothing_to_the_peak(void **state)
{
	static struct series moved;
	char out[64];

	(void)state;
	series_init(&moved, 10);
	series_add(&moved, 10, 20, 0, 1);
	series_add(&moved, 20, 30, 0, 1000);
	series_add(&moved, 30, 40, 0, 1);
	assert_int_equal(draw_sparkline(out, sizeof(out), &moved, 10), 3); /* the last step is still filling */
	assert_string_equal(out, " ▁█");
}

static void times_and_amounts_have_fitting_units(void **state)
{
	(void)state;
	assert_string_equal(draw_time(812000), "812 us");
	assert_string_equal(draw_time(2310000), "2.31 ms");
	assert_string_equal(draw_time(1200000000), "1.2 s");
	assert_string_equal(draw_bytes(999), "999 B");
	assert_string_equal(draw_bytes(1234567), "1.2 MB");
}

/* ---- reports ---- */

static struct demo_result *some_result(void)
{
	static struct demo_result result;

	memset(&result, 0, sizeof(result));
	result.device = "shm";
	result.cut_count = 2;
	result.cuts[0] = (struct demo_cut){
		.rail = 0, .at_ns = 300 * MS, .restored_ns = 500 * MS, .failover_ns = 2 * MS, .measured = true};
	result.cuts[1] = (struct demo_cut){.rail = 1, .at_ns = 700 * MS};
	histogram_add(&result.failover_ns, 2 * MS);
	result.operations = 4321;
	result.doubled = 7;
	result.hash_equal = true;
	result.duration_ns = 1000 * MS;
	series_init(&result.moved, 20 * MS);
	series_add(&result.moved, 0, 700 * MS, 0, 1000000);
	series_add(&result.moved, 700 * MS, 1000 * MS, 1, 500000);
	return &result;
}

static const struct demo_input some_input = {.what = "<b> & \"c\"", .bytes = 1500000, .sha256 = "ab"};

/* The NIC of a verbs device does not tell: zero would be a promise. */
static void what_a_device_does_not_count_is_not_said_to_be_nothing(void **state)
{
	struct demo_result *result = some_result();
	json_t *json;

	(void)state;
	result->doubled = result->doubled_bytes = 0;
	assert_string_equal(demo_doubled(result), "nothing");
	result->uncounted = true;
	assert_string_equal(demo_doubled(result), "not counted by this device");
	json = report_json(result, 1, &some_input);
	assert_true(json_is_null(json_object_get(json_array_get(json, 0), "duplicated")));
	assert_true(json_is_null(json_object_get(json_array_get(json, 0), "duplicated_bytes")));
	json_decref(json);
}

static void demo_json_has_the_promised_keys(void **state)
{
	json_t *json = report_json(some_result(), 1, &some_input);
	const json_t *device = json_array_get(json, 0), *latency = json_object_get(device, "failover_us");

	(void)state;
	assert_string_equal(json_string_value(json_object_get(device, "device")), "shm");
	assert_int_equal(json_integer_value(json_object_get(device, "cuts")), 2);
	assert_int_equal(json_integer_value(json_object_get(device, "operations")), 4321);
	assert_int_equal(json_integer_value(json_object_get(device, "lost")), 0);
	assert_int_equal(json_integer_value(json_object_get(device, "duplicated")), 7);
	assert_true(json_is_true(json_object_get(device, "hash_equal")));
	assert_true(json_real_value(json_object_get(latency, "median")) == 2000);
	assert_true(json_real_value(json_object_get(latency, "p99")) == 2000);
	assert_true(json_real_value(json_object_get(latency, "max")) == 2000);
	json_decref(json);
}

static void whatever_went_wrong_counts_as_lost(void **state)
{
	struct demo_result *result = some_result();

	(void)state;
	assert_int_equal(demo_lost(result), 0);
	result->failed = 2;
	assert_int_equal(demo_lost(result), 2);
	result->failed = 0;
	result->passes_wrong = 1;
	assert_int_equal(demo_lost(result), 1);
	result->passes_wrong = 0;
	result->hash_equal = false;
	assert_int_equal(demo_lost(result), 1);
	result->bytes_differ = 9;
	assert_int_equal(demo_lost(result), 9);
}

static void a_page_marks_each_cut_and_escapes_what_it_shows(void **state)
{
	char *page = html_page(some_result(), 1, &some_input);

	(void)state;
	assert_non_null(page);
	assert_non_null(strstr(page, "cut r0"));
	assert_non_null(strstr(page, "cut r1"));
	assert_non_null(strstr(page, "&lt;b&gt; &amp; &quot;c&quot;"));
	assert_null(strstr(page, "<b>"));
	assert_non_null(strstr(page, "prefers-color-scheme:dark"));
	assert_null(strstr(page, "nan"));
	free(page);
}

static void a_page_of_a_run_without_traffic_has_no_plot(void **state)
{
	static struct demo_result result = {.device = "soft"};
	char *page;

	(void)state;
	series_init(&result.moved, 20 * MS);
	page = html_page(&result, 1, &some_input);
	assert_non_null(page);
	assert_null(strstr(page, "<svg"));
	free(page);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(numbers_are_read_whole_and_in_range),
		cmocka_unit_test(lines_are_cut_one_by_one),
		cmocka_unit_test(a_line_that_is_no_object_is_bad),
		cmocka_unit_test(a_line_without_end_is_bad),
		cmocka_unit_test(sha256_matches_its_published_value),
		cmocka_unit_test(tar_header_has_name_size_and_checksum_in_their_places),
		cmocka_unit_test(long_names_come_in_blocks_of_their_own),
		cmocka_unit_test(a_size_beyond_octal_is_binary),
		cmocka_unit_test(a_name_beyond_all_bounds_has_no_header),
		cmocka_unit_test(padding_fills_the_last_block),
		cmocka_unit_test(bytes_are_spread_over_the_steps_they_took),
		cmocka_unit_test(no_byte_of_a_series_is_lost_however_long_it_gets),
		cmocka_unit_test(a_time_that_stands_still_is_no_division_by_zero),
		cmocka_unit_test(a_cut_waits_until_the_other_rail_is_up),
		cmocka_unit_test(a_rail_that_never_comes_up_does_not_stop_the_cuts),
		cmocka_unit_test(the_rail_that_carries_traffic_is_cut_and_restored),
		cmocka_unit_test(a_short_schedule_makes_its_least_cuts_and_restores_each),
		cmocka_unit_test(a_long_schedule_ends_with_its_most_cuts),
		cmocka_unit_test(nothing_is_cut_while_nothing_moves),
		cmocka_unit_test(chunks_and_windows_cover_the_input_exactly),
		cmocka_unit_test(a_picture_has_its_lines_at_every_width),
		cmocka_unit_test(a_sparkline_reaches_from_nothing_to_the_peak),
		cmocka_unit_test(times_and_amounts_have_fitting_units),
		cmocka_unit_test(what_a_device_does_not_count_is_not_said_to_be_nothing),
		cmocka_unit_test(demo_json_has_the_promised_keys),
		cmocka_unit_test(whatever_went_wrong_counts_as_lost),
		cmocka_unit_test(a_page_marks_each_cut_and_escapes_what_it_shows),
		cmocka_unit_test(a_page_of_a_run_without_traffic_has_no_plot),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
