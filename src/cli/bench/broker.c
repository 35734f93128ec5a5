/* holdfast bench broker: what it costs to write a record into a broker's log and to read one out of it.
 *
 * The far process, on the second core, has the broker; the near one, on the first, is the client: over shm, over soft,
 * over TCP, and over TCP to a Kafka broker that the user runs (--kafka). One client's code for all, which spins, so the
 * figures are of ways and brokers. Records of 100 B without batching, unless said; the logs are in memory. */
#include <jansson.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/bench/broker_bench.h"
#include "cli/report_file.h"

#define ROUNDS_DEFAULT 5u
#define ROUNDS_MAX     99u

struct broker_way {
	const char *name, *kind;
	bool kafka;
};
static const struct broker_way ways[] = {
	{"shm", "shm", false}, {"soft", "soft", false}, {"tcp", "tcp", false}, {"kafka", "tcp", true}};
#define WAYS (sizeof(ways) / sizeof(*ways))

static const struct {
	const char *name, *words;
	size_t offset;
} figures[] = {
	{"produce_us", "produce, one in flight, us", offsetof(struct broker_round, produce)},
	{"produce_p99_us", "the same, p99", offsetof(struct broker_round, produce_p99)},
	{"fetch_us", "a record that was there, us", offsetof(struct broker_round, fetch)},
	{"empty_us", "a look that finds nothing, us", offsetof(struct broker_round, empty)},
	{"empty_per_s", "such looks a second", offsetof(struct broker_round, empty_rate)},
	{"stopped_per_s", "the same, broker stopped", offsetof(struct broker_round, stopped_rate)},
	{"end_to_end_us", "from producer to consumer, us", offsetof(struct broker_round, end_to_end)},
	{"bandwidth_512_mb_s", "512 B without batching, MB/s", offsetof(struct broker_round, bandwidth[0])},
	{"bandwidth_32k_mb_s", "32 KiB without batching, MB/s", offsetof(struct broker_round, bandwidth[1])},
};
#define FIGURES (sizeof(figures) / sizeof(*figures))

static int by_double(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static double median_of(const struct broker_round *rounds, unsigned n, size_t offset)
{
	double values[ROUNDS_MAX];

	for (unsigned i = 0; i < n; i++)
		values[i] = *(const double *)(const void *)((const char *)&rounds[i] + offset);
	qsort(values, n, sizeof(*values), by_double);
	return values[n / 2];
}

static json_t *run_way(
	const struct broker_way *way, const char *kafka, unsigned rounds, unsigned *generation, FILE *log)
{
	struct broker_round results[ROUNDS_MAX];
	json_t *row = json_pack("{s:s, s:i}", "way", way->name, "rounds", (int)rounds);

	for (unsigned i = 0; i < rounds; i++) {
		struct broker_task task = {
			.kind = way->kind, .kafka = way->kafka ? kafka : NULL, .generation = (*generation)++};

		if (bench_together(broker_bench_near_side, broker_bench_far_side, &task) != 0) {
			json_decref(row);
			return NULL;
		}
		results[i] = task.round;
	}
	for (unsigned i = 0; i < FIGURES; i++) {
		double median = median_of(results, rounds, figures[i].offset);

		if (median <= 0)
			continue;
		(void)json_object_set_new(row, figures[i].name, json_real(median));
		fprintf(log, "  %-6s %-32s %12.2f\n", way->name, figures[i].words, median);
	}
	if (results[0].stopped_records > 0)
		(void)json_object_set_new(row, "stopped_records", json_integer((json_int_t)results[0].stopped_records));
	return row;
}

int bench_broker(int argc, char **argv)
{
	const char *kafka = NULL, *only = NULL, *path = NULL;
	unsigned rounds = ROUNDS_DEFAULT, generation = 0;
	json_t *array = json_array();
	bool json = false;
	char *text;
	int status = 0;

	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--json") == 0)
			json = true;
		else if (strcmp(argv[i], "--rounds") == 0 && i + 1 < argc)
			rounds = (unsigned)strtoul(argv[++i], NULL, 10);
		else if (strcmp(argv[i], "--device") == 0 && i + 1 < argc)
			only = argv[++i];
		else if (strcmp(argv[i], "--kafka") == 0 && i + 1 < argc)
			kafka = argv[++i];
		else if (strcmp(argv[i], "--out") == 0 && i + 1 < argc)
			path = argv[++i];
		else
			return bench_refuse("there is no option", argv[i]);
	}
	if (rounds == 0 || rounds > ROUNDS_MAX)
		return bench_refuse("--rounds takes 1 to 99, not", "that");
	for (unsigned i = 0; i < WAYS && status == 0; i++) {
		json_t *row;

		if ((ways[i].kafka && kafka == NULL) || (only != NULL && strcmp(only, ways[i].kind) != 0))
			continue;
		row = run_way(&ways[i], kafka, rounds, &generation, json ? stderr : stdout);
		status = row == NULL;
		if (row != NULL)
			(void)json_array_append_new(array, row);
	}
	text = json_dumps(array, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
	if (json && text != NULL)
		puts(text);
	if (path != NULL && (text == NULL || report_write(hf_env_host(), NULL, path, text) != 0))
		status = bench_refuse("cannot write", path);
	free(text);
	json_decref(array);
	return status;
}
