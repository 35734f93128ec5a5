/* Metrics as they are read: by Prometheus, as JSON, and by another thread. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <holdfast/metrics.h>

#include "base/log.h"

static const uint64_t bounds[] = {1000000, 10000000, 100000000};

static struct hf_metric *counter(const char *node)
{
	return hf_metric_register(&(struct hf_metric_info){.name = "test_cuts_total",
		.help = "Cuts that the test made.",
		.kind = HF_METRIC_COUNTER,
		.labels = {{"node", node}, {"rail", "r0"}}});
}

static struct hf_metric *gauge(void)
{
	return hf_metric_register(
		&(struct hf_metric_info){.name = "test_peers", .help = "Peers.", .kind = HF_METRIC_GAUGE});
}

static struct hf_metric *histogram(void)
{
	return hf_metric_register(&(struct hf_metric_info){.name = "test_failover_seconds",
		.help = "How long failovers took.",
		.kind = HF_METRIC_HISTOGRAM,
		.labels = {{"node", "a"}},
		.bounds = bounds,
		.bound_count = 3,
		.divisor = 1000000000});
}

static void has(const char *text, const char *line)
{
	if (strstr(text, line) == NULL)
		fail_msg("there is no \"%s\" in:\n%s", line, text);
}

static unsigned count(const char *text, const char *words)
{
	unsigned n = 0;

	for (; (text = strstr(text, words)) != NULL; text++)
		n++;
	return n;
}

static void prometheus_text_has_every_series_under_its_name(void **state)
{
	struct hf_metric *a = counter("a"), *peers = gauge(), *b = counter("b \"\\\n");
	char *text;

	(void)state;
	hf_metric_add(a, 3);
	hf_metric_add(a, 4);
	hf_metric_add(b, 1);
	hf_metric_set(peers, -2);
	text = hf_metrics_prometheus();
	has(text, "# HELP test_cuts_total Cuts that the test made.\n# TYPE test_cuts_total counter\n"
		  "test_cuts_total{node=\"a\",rail=\"r0\"} 7\n"
		  "test_cuts_total{node=\"b \\\"\\\\\\n\",rail=\"r0\"} 1\n");
	has(text, "# TYPE test_peers gauge\ntest_peers -2\n");
	assert_int_equal(count(text, "# TYPE test_cuts_total"), 1);
	free(text);
}

static void a_histogram_counts_what_is_at_most_so_large(void **state)
{
	struct hf_metric *metric = histogram();
	char *text;

	(void)state;
	hf_metric_observe(metric, 500000);
	hf_metric_observe(metric, 1000000); /* a bound belongs to its bucket */
	hf_metric_observe(metric, 50000000);
	hf_metric_observe(metric, 2000000000);
	assert_int_equal(hf_metric_value(metric), 4);
	text = hf_metrics_prometheus();
	has(text, "# TYPE test_failover_seconds histogram\n"
		  "test_failover_seconds_bucket{node=\"a\",le=\"0.001\"} 2\n"
		  "test_failover_seconds_bucket{node=\"a\",le=\"0.01\"} 2\n"
		  "test_failover_seconds_bucket{node=\"a\",le=\"0.1\"} 3\n"
		  "test_failover_seconds_bucket{node=\"a\",le=\"+Inf\"} 4\n"
		  "test_failover_seconds_sum{node=\"a\"} 2.0515\n"
		  "test_failover_seconds_count{node=\"a\"} 4\n");
	free(text);
}

static void what_is_registered_again_goes_on(void **state)
{
	struct hf_metric *metric = counter("again");
	char *text;

	(void)state;
	hf_metric_add(metric, 5);
	hf_metric_hide(metric);
	text = hf_metrics_prometheus();
	assert_null(strstr(text, "again"));
	free(text);
	assert_ptr_equal(counter("again"), metric);
	hf_metric_add(metric, 1);
	text = hf_metrics_prometheus();
	has(text, "node=\"again\",rail=\"r0\"} 6\n");
	free(text);
}

static void json_says_the_same(void **state)
{
	char *text = hf_metrics_json();
	json_t *root = json_loads(text, 0, NULL), *metric;
	unsigned seen = 0;
	size_t i;

	(void)state;
	assert_non_null(root);
	json_array_foreach(json_object_get(root, "metrics"), i, metric)
	{
		const char *name = json_string_value(json_object_get(metric, "name"));
		const char *node = json_string_value(json_object_get(json_object_get(metric, "labels"), "node"));

		if (strcmp(name, "test_cuts_total") == 0 && strcmp(node, "a") == 0) {
			assert_int_equal(json_integer_value(json_object_get(metric, "value")), 7);
			assert_string_equal(json_string_value(json_object_get(metric, "type")), "counter");
			seen |= 1;
		}
		if (strcmp(name, "test_failover_seconds") == 0) {
			assert_int_equal(json_array_size(json_object_get(metric, "buckets")), 4);
			seen |= 2;
		}
	}
	assert_int_equal(seen, 3);
	json_decref(root);
	free(text);
}

static atomic_bool stop;

static void *read_all(void *context)
{
	unsigned *reads = context;

	while (!atomic_load(&stop)) {
		char *text = hf_metrics_prometheus();

		assert_non_null(text);
		free(text);
		++*reads;
	}
	return NULL;
}

/* Under ThreadSanitizer this shows that no lock is needed. */
static void any_thread_reads_while_one_registers_and_counts(void **state)
{
	struct hf_metric *metric = counter("thread");
	unsigned reads = 0;
	pthread_t thread;

	(void)state;
	atomic_store(&stop, false);
	assert_int_equal(pthread_create(&thread, NULL, read_all, &reads), 0);
	for (unsigned i = 0; i < 500; i++) {
		char name[16];

		snprintf(name, sizeof(name), "t%u", i % 50);
		hf_metric_hide(counter(name));
		hf_metric_add(metric, 1);
	}
	atomic_store(&stop, true);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(hf_metric_value(metric), 500);
}

static unsigned warnings;

static void count_warning(enum log_level level, const char *line, void *context)
{
	(void)context;
	warnings += level >= LOG_WARN && strstr(line, "no room for test_cuts_total") != NULL;
}

/* The last test: it uses up the room. */
static void what_has_no_room_is_not_exported(void **state)
{
	struct hf_metric *metric = NULL;
	char *text;

	(void)state;
	log_set_sink(count_warning, NULL);
	for (unsigned i = 0; i <= HF_METRICS_MAX; i++) {
		char name[16];

		snprintf(name, sizeof(name), "n%u", i);
		metric = counter(name);
	}
	hf_metric_add(metric, 1); /* it may be used all the same */
	(void)counter("one more");
	log_set_sink(NULL, NULL);
	assert_int_equal(warnings, 1);
	text = hf_metrics_prometheus();
	assert_true(count(text, "test_cuts_total{") < HF_METRICS_MAX);
	assert_null(strstr(text, "one more"));
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(prometheus_text_has_every_series_under_its_name),
		cmocka_unit_test(a_histogram_counts_what_is_at_most_so_large),
		cmocka_unit_test(what_is_registered_again_goes_on),
		cmocka_unit_test(json_says_the_same),
		cmocka_unit_test(any_thread_reads_while_one_registers_and_counts),
		cmocka_unit_test(what_has_no_room_is_not_exported),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
