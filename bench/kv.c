/* holdfast bench kv: the store beside others, after a kill, and when a member returns. */
#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"
#include "bench/kv_bench.h"
#include "cli/cli.h"

#define ROUNDS_DEFAULT    7u
#define ABSENCE_DEFAULT_S 6

const char *const kv_bench_part_names[KV_BENCH_PARTS] = {[KV_BENCH_BESIDE] = "beside",
	[KV_BENCH_YCSB] = "ycsb",
	[KV_BENCH_COST] = "cost",
	[KV_BENCH_KILL] = "kill",
	[KV_BENCH_RECOVERY] = "recovery",
	[KV_BENCH_LOSS] = "loss"};

const char *const kv_bench_ways[KV_BENCH_WAYS] = {"heal", "copy", "stop"};

/* ---- what the parts share ---- */

bool kv_bench_goes(const struct kv_bench *bench, const char *way)
{
	return bench->recovery == NULL || strcmp(bench->recovery, way) == 0;
}

uint64_t kv_bench_now_ns(const struct kv_bench *bench)
{
	return hf_env_now_ns(hf_loop_env(bench->loop));
}

double kv_bench_number(const json_t *row, const char *key)
{
	return json_number_value(json_object_get(row, key));
}

int kv_bench_fill(struct kv_bench *bench, const struct hf_addr *to, uint32_t keys, uint32_t value_bytes)
{
	struct kv_load_config config = {.dialect = &kv_dialect_resp,
		.to = to,
		.to_count = 1,
		.connections = 4,
		.batch = 32,
		.keys = keys,
		.value_bytes = value_bytes};
	struct kv_load *load = kv_load_open(bench->loop, &config);
	int rc = load == NULL ? -ENOMEM : kv_load_fill(load);

	kv_load_close(load);
	return rc;
}

/* ---- the command ---- */

static int take_part(struct kv_bench *bench, const char *name)
{
	for (unsigned i = 0; i < KV_BENCH_PARTS; i++)
		if (strcmp(name, kv_bench_part_names[i]) == 0) {
			bench->parts |= 1u << i;
			return EXIT_DONE;
		}
	return bench_refuse("there is no part of `bench kv` called", name);
}

static int take_way(struct kv_bench *bench, const char *name)
{
	for (unsigned i = 0; i < KV_BENCH_WAYS; i++)
		if (strcmp(name, kv_bench_ways[i]) == 0) {
			bench->recovery = name;
			return EXIT_DONE;
		}
	return bench_refuse("--recovery takes heal, copy or stop, not", name);
}

static int take_number(struct kv_bench *bench, int option, const char *text)
{
	double value = 0;

	if (option == 'r' && cli_number(text, 1, KV_BENCH_ROUNDS_MAX, &value))
		bench->rounds = (unsigned)value;
	else if (option == 'n' && cli_number(text, 3, KV_BED_MAX, &value))
		bench->nodes = (unsigned)value;
	else if (option == 'm' && cli_number(text, 1, 100000, &value))
		bench->missed = (unsigned)value;
	else if (option == 'a' && cli_number(text, 0.5, 3600, &value))
		bench->absence_s = value;
	else
		return bench_refuse("--rounds takes 1 to 99, --nodes 3 to 5, --missed 1 to 100000, "
				    "--absence 0.5 to 3600 seconds, not",
			text);
	return EXIT_DONE;
}

static int parse(int argc, char **argv, struct kv_bench *bench)
{
	static const struct option known[] = {{"rounds", required_argument, NULL, 'r'},
		{"nodes", required_argument, NULL, 'n'}, {"missed", required_argument, NULL, 'm'},
		{"absence", required_argument, NULL, 'a'}, {"recovery", required_argument, NULL, 'R'},
		{"out", required_argument, NULL, 'o'}, {"json", no_argument, NULL, 'j'}, {0}};
	int c, status = EXIT_DONE;

	opterr = 0;
	while (status == EXIT_DONE && (c = getopt_long(argc, argv, ":", known, NULL)) != -1) {
		if (c == 'o')
			bench->files.out = optarg;
		else if (c == 'R')
			status = take_way(bench, optarg);
		else if (c == 'j')
			bench->files.json = true;
		else if (c == '?' || c == ':')
			status = cli_refuse_option("bench", argv, c);
		else
			status = take_number(bench, c, optarg);
	}
	for (; status == EXIT_DONE && optind < argc; optind++)
		status = take_part(bench, argv[optind]);
	if (bench->parts == 0)
		bench->parts = (1u << KV_BENCH_PARTS) - 1;
	bench->log = bench->files.json ? stderr : stdout;
	return status;
}

static int run_parts(struct kv_bench *bench, json_t *all)
{
	static int (*const runs[KV_BENCH_PARTS])(struct kv_bench *, json_t *) = {[KV_BENCH_BESIDE] = kv_bench_beside,
		[KV_BENCH_YCSB] = kv_bench_ycsb,
		[KV_BENCH_COST] = kv_bench_cost,
		[KV_BENCH_KILL] = kv_bench_kill,
		[KV_BENCH_RECOVERY] = kv_bench_recovery,
		[KV_BENCH_LOSS] = kv_bench_loss};
	int status = EXIT_DONE;

	for (unsigned i = 0; i < KV_BENCH_PARTS && status != EXIT_INTERRUPTED; i++) {
		json_t *rows;
		int rc;

		if ((bench->parts & 1u << i) == 0)
			continue;
		rows = json_array();
		json_object_set_new(all, kv_bench_part_names[i], rows);
		bench->error.text[0] = '\0';
		rc = runs[i](bench, rows);
		if (rc == 0)
			continue;
		status = rc == -EINTR ? EXIT_INTERRUPTED : EXIT_FOUND;
		cli_refuse("bench", "kv %s: %s", kv_bench_part_names[i],
			bench->error.text[0] != '\0' ? bench->error.text : strerror(-rc));
	}
	return status;
}

int bench_kv(int argc, char **argv)
{
	struct kv_bench bench = {.rounds = ROUNDS_DEFAULT, .absence_s = ABSENCE_DEFAULT_S};
	int status = parse(argc, argv, &bench), written;
	json_t *all;

	if (status != EXIT_DONE)
		return status;
	if (hf_loop_create(hf_env_host(), &bench.loop) != 0)
		return cli_refuse("bench", "cannot make a loop");
	process_catch_signals();
	all = json_object();
	status = run_parts(&bench, all);
	written = bench_files_write(&bench.files, all);
	json_decref(all);
	hf_loop_destroy(bench.loop);
	return status != EXIT_DONE ? status : written;
}
