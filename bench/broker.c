/* holdfast bench broker: what it costs to write a record into a broker's log and to read one out of it.
 *
 * The far process, on the second core, has the broker; the near one, on the first, is the client: over shm, over soft,
 * over TCP. Or the client is alone, at brokers that the user runs, ours (over the rails of --config) or Kafka's. One
 * client's code for all, which spins, so the figures are of ways and brokers. Records of 100 B without batching, unless
 * said; the logs are in memory. */
#include <errno.h>
#include <getopt.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <holdfast/config.h>

#include "bench/broker_bench.h"
#include "bench/files.h"
#include "cli/cli.h"
#include "cli/report_file.h"

#define ROUNDS_DEFAULT 5u
#define ROUNDS_MAX     99u

static const char *const ways[] = {"shm", "soft", "tcp"};
#define WAYS (sizeof(ways) / sizeof(*ways))

static const char *const parts[BROKER_PARTS] = {[BROKER_PRODUCE] = "produce",
	[BROKER_FETCH] = "fetch",
	[BROKER_END] = "end",
	[BROKER_EMPTY] = "empty",
	[BROKER_BANDWIDTH] = "bandwidth",
	[BROKER_EVENTS] = "events",
	[BROKER_ROLLS] = "rolls",
	[BROKER_PACKED] = "packed",
	[BROKER_STOPPED] = "stopped"};

static const struct {
	const char *name, *words;
	size_t offset;
} figures[] = {
	{"produce_us", "produce, one in flight, us", offsetof(struct broker_round, produce)},
	{"produce_p99_us", "the same, p99", offsetof(struct broker_round, produce_p99)},
	{"fetch_us", "a record that was there, us", offsetof(struct broker_round, fetch)},
	{"fetch_32k_mb_s", "32 KiB, one at a time, MB/s", offsetof(struct broker_round, fetch_large)},
	{"empty_us", "a look that finds nothing, us", offsetof(struct broker_round, empty)},
	{"empty_per_s", "such looks a second", offsetof(struct broker_round, empty_rate)},
	{"stopped_per_s", "the same, broker stopped", offsetof(struct broker_round, stopped_rate)},
	{"end_to_end_us", "from producer to consumer, us", offsetof(struct broker_round, end_to_end)},
	{"bandwidth_512_mb_s", "512 B without batching, MB/s", offsetof(struct broker_round, bandwidth[0])},
	{"bandwidth_32k_mb_s", "32 KiB without batching, MB/s", offsetof(struct broker_round, bandwidth[1])},
	{"packed_none_mb_s", "1 KB in batches, plain, MB/s", offsetof(struct broker_round, packed[HF_CODEC_NONE])},
	{"packed_gzip_mb_s", "the same in gzip", offsetof(struct broker_round, packed[HF_CODEC_GZIP])},
	{"packed_snappy_mb_s", "the same in snappy", offsetof(struct broker_round, packed[HF_CODEC_SNAPPY])},
	{"packed_lz4_mb_s", "the same in lz4", offsetof(struct broker_round, packed[HF_CODEC_LZ4])},
	{"packed_zstd_mb_s", "the same in zstd", offsetof(struct broker_round, packed[HF_CODEC_ZSTD])},
	{"events_us", "delay of an event, mean, us", offsetof(struct broker_round, events)},
	{"events_constant_us", "of those at a constant rate", offsetof(struct broker_round, events_constant)},
	{"events_burst_us", "of those of the burst", offsetof(struct broker_round, events_burst)},
	{"rolls", "extents that were rolled", offsetof(struct broker_round, rolls)},
	{"around_rolls_p999_us", "records around a roll, p99.9, us", offsetof(struct broker_round, around_rolls)},
	{"around_rolls_max_us", "the longest of them, us", offsetof(struct broker_round, around_most)},
	{"between_rolls_p999_us", "all others, p99.9, us", offsetof(struct broker_round, between_rolls)},
	{"between_rolls_max_us", "the longest of them, us", offsetof(struct broker_round, between_most)},
	{"rolls_ratio", "p99.9 around a roll to p99.9 of others", offsetof(struct broker_round, around_ratio)},
};
#define FIGURES (sizeof(figures) / sizeof(*figures))

struct broker_bench {
	struct broker_task task;
	const char *only, *kafka, *config;
	struct bench_files files;
	unsigned rounds, generation;
	FILE *log;
};

static json_t *median_row(const char *way, const struct broker_round *rounds, unsigned n, FILE *log)
{
	json_t *row = json_pack("{s:s, s:i}", "way", way, "rounds", (int)n);

	for (unsigned i = 0; i < FIGURES; i++) {
		double values[ROUNDS_MAX], median;

		for (unsigned k = 0; k < n; k++)
			values[k] = *(const double *)(const void *)((const char *)&rounds[k] + figures[i].offset);
		median = bench_median(values, n);
		if (median <= 0)
			continue;
		(void)json_object_set_new(row, figures[i].name, json_real(median));
		fprintf(log, "  %-6s %-38s %12.2f\n", way, figures[i].words, median);
	}
	if (rounds[0].stopped_records > 0)
		(void)json_object_set_new(row, "stopped_records", json_integer((json_int_t)rounds[0].stopped_records));
	return row;
}

/* At brokers that run, or at one of ours on the far side. */
static int run_way(struct broker_bench *bench, const char *way, const char *at, json_t *rows)
{
	struct broker_round results[ROUNDS_MAX];

	for (unsigned i = 0; i < bench->rounds; i++) {
		struct broker_task task = bench->task;
		int rc;

		task.kind = way;
		task.at = at;
		task.generation = bench->generation++;
		rc = at != NULL ? broker_bench_at_running(&task)
				: bench_together(broker_bench_near_side, broker_bench_far_side, &task);
		bed_clean();
		if (rc != 0)
			return EXIT_FOUND;
		results[i] = task.round;
	}
	(void)json_array_append_new(rows, median_row(way, results, bench->rounds, bench->log));
	return EXIT_DONE;
}

static int run_all(struct broker_bench *bench, json_t *rows)
{
	struct hf_node_config node;
	struct hf_config_section section = hf_node_config_section(&node);
	struct hf_error error = {0};
	int status = EXIT_DONE;

	if (bench->config != NULL && hf_config_load(hf_env_host(), bench->config, &section, 1, &error) != 0)
		return cli_refuse("bench", "%s", error.text);
	bench->task.node = bench->config == NULL ? NULL : &node;
	if (bench->task.at != NULL)
		return run_way(bench, bench->config == NULL ? "tcp" : node.rails[0].kind, bench->task.at, rows);
	for (unsigned i = 0; i < WAYS && status == EXIT_DONE; i++)
		if (bench->only == NULL || strcmp(bench->only, ways[i]) == 0)
			status = run_way(bench, ways[i], NULL, rows);
	if (status == EXIT_DONE && bench->kafka != NULL)
		status = run_way(bench, "kafka", bench->kafka, rows);
	return status;
}

/* ---- the command ---- */

static int take_part(struct broker_bench *bench, const char *name)
{
	for (unsigned i = 0; i < BROKER_PARTS; i++)
		if (strcmp(name, parts[i]) == 0) {
			bench->task.parts |= 1u << i;
			return EXIT_DONE;
		}
	return bench_refuse("there is no part of `bench broker` called", name);
}

static int take(struct broker_bench *bench, int option)
{
	double value;

	switch (option) {
	case 'r':
		if (!cli_number(optarg, 1, ROUNDS_MAX, &value))
			return bench_refuse("--rounds takes 1 to 99, not", optarg);
		bench->rounds = (unsigned)value;
		return EXIT_DONE;
	case 'd':
		bench->only = optarg;
		return EXIT_DONE;
	case 'k':
		bench->kafka = optarg;
		return EXIT_DONE;
	case 'b':
		bench->task.at = optarg;
		return EXIT_DONE;
	case 'c':
		bench->config = optarg;
		return EXIT_DONE;
	case 't':
		bench->task.topic = optarg;
		return EXIT_DONE;
	case 'a':
		bench->task.acks_all = true;
		return EXIT_DONE;
	case 'o':
		bench->files.out = optarg;
		return EXIT_DONE;
	default:
		bench->files.json = true;
		return EXIT_DONE;
	}
}

static int parse(int argc, char **argv, struct broker_bench *bench)
{
	static const struct option known[] = {{"rounds", required_argument, NULL, 'r'},
		{"device", required_argument, NULL, 'd'}, {"kafka", required_argument, NULL, 'k'},
		{"brokers", required_argument, NULL, 'b'}, {"config", required_argument, NULL, 'c'},
		{"topic", required_argument, NULL, 't'}, {"acks-all", no_argument, NULL, 'a'},
		{"out", required_argument, NULL, 'o'}, {"json", no_argument, NULL, 'j'}, {0}};
	int c, status = EXIT_DONE;

	opterr = 0;
	while (status == EXIT_DONE && (c = getopt_long(argc, argv, ":", known, NULL)) != -1)
		status = c == '?' || c == ':' ? cli_refuse_option("bench", argv, c) : take(bench, c);
	for (; status == EXIT_DONE && optind < argc; optind++)
		status = take_part(bench, argv[optind]);
	if (bench->task.parts == 0)
		bench->task.parts =
			(1u << BROKER_PARTS) - 1 - (1u << BROKER_EVENTS | 1u << BROKER_ROLLS | 1u << BROKER_PACKED);
	if ((bench->task.parts & (1u << BROKER_EMPTY | 1u << BROKER_STOPPED)) != 0)
		bench->task.parts |= 1u << BROKER_FETCH; /* whose records they find or do not find */
	if (status == EXIT_DONE && bench->config != NULL && bench->task.at == NULL)
		status = cli_refuse("bench", "--config is of a client of --brokers");
	bench->log = bench->files.json ? stderr : stdout;
	return status;
}

int bench_broker(int argc, char **argv)
{
	struct broker_bench bench = {.rounds = ROUNDS_DEFAULT};
	int status = parse(argc, argv, &bench), written;
	json_t *rows;

	if (status != EXIT_DONE)
		return status;
	rows = json_array();
	status = run_all(&bench, rows);
	written = bench_files_write(&bench.files, rows);
	json_decref(rows);
	return status != EXIT_DONE ? status : written;
}
