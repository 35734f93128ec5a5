/* holdfast bench broker: what it costs to write a record into a broker's log and to read one out of it.
 *
 * The far process, on the second core, has the broker; the near one, on the first, is the client: over shm, over soft,
 * over TCP, and over TCP to a Kafka broker that the user runs (--kafka). One client's code for all, which spins, so the
 * figures are of ways and brokers. Records of 100 B without batching, unless said; the logs are in memory. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <holdfast/consumer.h>

#include "broker/broker.h"
#include "cli/bench/bench.h"
#include "cli/report_file.h"
#include "cli/scratch.h"

#define CONTROL          18700u
#define SMALL            100u
#define WARM             500u
#define PRODUCES         20000u
#define PRODUCES_TCP     4000u
#define PRELOADED        10000u
#define LOOKS            200000u
#define LOOKS_TCP        4000u
#define ENDS             10000u
#define ENDS_TCP         2000u
#define STOPPED_LOOKS    100000u
#define BANDWIDTH_NS     1000000000ull
#define LIMIT_NS         20000000000ull
#define SEGMENT_BYTES    (256u << 20)
#define VALUE_MOST       32768u
#define ROUNDS_DEFAULT   5u
#define ROUNDS_MAX       99u
#define TIMES_MOST       LOOKS
#define LOG_MEMORY_BYTES (4ull << 30)

static const uint32_t sizes[] = {512, VALUE_MOST};
#define SIZES (sizeof(sizes) / sizeof(*sizes))

/* What one round measured, in us, a second, or MB/s; 0: not measured on this way. */
struct broker_round {
	double produce, produce_p99, fetch, empty, empty_rate, end_to_end, bandwidth[SIZES];
	double stopped_rate;      /* looks a second while the broker's process is stopped */
	uint64_t stopped_records; /* read meanwhile */
};

struct broker_task {
	const char *kind;  /* "shm", "soft", "tcp" */
	const char *kafka; /* NULL: our broker */
	unsigned generation;
	struct broker_round round;
};

enum { TO_PRODUCE, TO_FETCH, TO_END, TOPICS };

struct broker_side {
	struct hf_loop *loop;
	struct hf_node *node;
	struct hf_producer *producer;
	struct hf_consumer *consumer;
	struct hf_error error;
	char address[64];
	char topics[TOPICS][64]; /* of this round */
	unsigned told, failed;
};

static uint64_t now_ns(void)
{
	return hf_env_now_ns(hf_env_host());
}

/* ---- nodes ---- */

static int open_node(struct broker_side *side, const struct broker_task *task, bool near, int near_pid)
{
	struct hf_node_config config = {.rail_count = 1, .policy = HF_POLICY_VARUNA};
	char text[HF_ADDR_TEXT];
	int rc = hf_loop_create(hf_env_host(), &side->loop);

	if (rc != 0 || strcmp(task->kind, "tcp") == 0)
		return rc;
	hf_loop_set_slack(side->loop, 1000);
	snprintf(config.name, sizeof(config.name), "%s%u", near ? "near" : "far", task->generation);
	if (strcmp(task->kind, "shm") == 0)
		bench_fabric_name(config.fabric, near_pid);
	snprintf(config.rails[0].name, HF_NAME_BYTES, "r0");
	snprintf(config.rails[0].kind, HF_NAME_BYTES, "%s", task->kind);
	snprintf(text, sizeof(text), "127.%u.%u.%u:%u", 150 + ((unsigned)near_pid >> 8) % 50, (unsigned)near_pid & 0xff,
		1 + near + 2 * (task->generation % 100), CONTROL);
	if (hf_addr_parse(text, &config.rails[0].control) != 0)
		return hf_error_set(&side->error, -EINVAL, "%s is no address", text);
	config.rails[0].address = config.rails[0].control;
	hf_addr_set_port(&config.rails[0].address, 0);
	return hf_node_open(side->loop, &config, NULL, NULL, &side->node, &side->error);
}

/* ---- the far side: the broker ---- */

static int open_broker(struct broker_side *side, const struct scratch *scratch, struct broker **broker_out)
{
	struct broker_config config;
	int rc;

	broker_config_default(&config);
	config.node_id = 1;
	config.segment_bytes = SEGMENT_BYTES;
	config.listeners =
		(struct broker_endpoints){.at = {{.name = "PLAINTEXT", .host = "127.0.0.1", .port = 0}}, .count = 1};
	if ((size_t)snprintf(config.log_dirs, sizeof(config.log_dirs), "%s/logs", scratch->path) >=
		sizeof(config.log_dirs))
		return hf_error_set(&side->error, -ENAMETOOLONG, "%s is too long", scratch->path);
	rc = broker_open(side->loop, side->node, &config, broker_out, &side->error);
	if (rc == 0)
		snprintf(side->address, sizeof(side->address), "127.0.0.1:%u",
			(*broker_out)->config.listeners.at[0].port);
	return rc;
}

static int far_side(struct bench_meeting *meeting, void *context)
{
	const struct broker_task *task = context;
	struct broker_side side = {0};
	struct scratch scratch = {0};
	struct broker *broker = NULL;
	int pid = bench_own_pid(), near_pid = 0, rc;

	if (!bench_swap(meeting, false, &pid, &near_pid, sizeof(pid)))
		return -EPIPE;
	rc = scratch_create(&scratch, LOG_MEMORY_BYTES, &side.error);
	if (rc == 0)
		rc = open_node(&side, task, false, near_pid);
	if (rc == 0 && task->kafka == NULL)
		rc = open_broker(&side, &scratch, &broker);
	if (rc == 0 && !bench_swap(meeting, false, side.address, side.address, sizeof(side.address)))
		rc = -EPIPE;
	while (rc == 0 && !bench_other_left(meeting, false))
		(void)hf_loop_turn(side.loop, 1000000);
	if (rc != 0)
		fprintf(stderr, "holdfast bench: %s\n", side.error.text);
	broker_close(broker);
	hf_node_close(side.node);
	if (side.loop != NULL)
		hf_loop_destroy(side.loop);
	scratch_remove(&scratch);
	return rc;
}

/* ---- the near side: the client ---- */

static void delivered(void *context, const struct hf_delivery *delivery)
{
	struct broker_side *side = context;

	side->told++;
	side->failed += delivery->error != 0;
}

static int send_one(struct broker_side *side, unsigned topic, uint32_t bytes)
{
	static const uint8_t value[VALUE_MOST];
	const struct hf_record record = {.topic = side->topics[topic],
		.value = value,
		.value_bytes = bytes,
		.timestamp_ms = (int64_t)(hf_env_wall_ns(hf_env_host()) / 1000000)};

	return hf_producer_send(side->producer, &record, delivered, side);
}

/* Turns until everything is told. */
static int wait_for_all(struct broker_side *side)
{
	uint64_t end_ns = now_ns() + LIMIT_NS;

	while (hf_producer_pending(side->producer) > 0) {
		(void)hf_loop_turn(side->loop, 0);
		if (now_ns() > end_ns)
			return hf_error_set(&side->error, -ETIMEDOUT, "a record is not answered");
	}
	return side->failed == 0 ? 0 : hf_error_set(&side->error, -EIO, "a record was refused");
}

static int send_and_wait(struct broker_side *side, unsigned topic)
{
	int rc = send_one(side, topic, SMALL);

	return rc != 0 ? rc : wait_for_all(side);
}

static int by_value(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

static double quantile_us(uint32_t *times, unsigned n, double quantile)
{
	qsort(times, n, sizeof(*times), by_value);
	return times[(unsigned)((n - 1) * quantile)] / 1e3;
}

static int measure_produce(struct broker_side *side, uint32_t *times, unsigned n, struct broker_round *round)
{
	int rc = 0;

	for (unsigned i = 0; rc == 0 && i < WARM; i++)
		rc = send_and_wait(side, TO_PRODUCE);
	for (unsigned i = 0; rc == 0 && i < n; i++) {
		uint64_t start_ns = now_ns();

		rc = send_and_wait(side, TO_PRODUCE);
		times[i] = (uint32_t)(now_ns() - start_ns);
	}
	if (rc != 0)
		return rc;
	round->produce = quantile_us(times, n, 0.5);
	round->produce_p99 = quantile_us(times, n, 0.99);
	return 0;
}

/* As many as there is room for. */
static int measure_bandwidth(struct broker_side *side, uint32_t bytes, double *mb_s_out)
{
	uint64_t start_ns = now_ns(), end_ns = start_ns + BANDWIDTH_NS, sent = 0;
	int rc = 0;

	while (now_ns() < end_ns) {
		for (unsigned i = 0; i < 16 && (rc = send_one(side, TO_PRODUCE, bytes)) == 0; i++)
			sent += bytes;
		if (rc != 0 && rc != -EAGAIN)
			return rc;
		(void)hf_loop_turn(side->loop, 0);
	}
	rc = wait_for_all(side);
	*mb_s_out = (double)sent / ((double)(now_ns() - start_ns) / 1e3);
	return rc;
}

/* Its records from the first on; a consumer of its own, so that nothing else is read. */
static int read_only(struct broker_side *side, unsigned topic)
{
	const struct hf_consumer_config config = {.brokers = side->address,
		.rdma = side->node == NULL ? HF_RDMA_OFF : HF_RDMA_REQUIRED,
		.fetch_bytes = SMALL + 80}; /* one record, with the header of its batch */
	int rc;

	hf_consumer_close(side->consumer);
	rc = hf_consumer_open(side->loop, side->node, &config, &side->consumer, &side->error);
	return rc == 0 ? hf_consumer_seek(side->consumer, side->topics[topic], 0, 0) : rc;
}

/* Polls until a record comes; what a program that waits for the next one does. */
static int next_record(struct broker_side *side, bool turns)
{
	uint64_t end_ns = now_ns() + LIMIT_NS;
	struct hf_message message;
	int n;

	while ((n = hf_consumer_poll(side->consumer, &message, 1)) == 0) {
		if (turns)
			(void)hf_loop_turn(side->loop, 0);
		if (now_ns() > end_ns)
			return hf_error_set(&side->error, -ETIMEDOUT, "a record does not come");
	}
	return n == 1 ? 0 : n;
}

/* One record a READ, or a Fetch. */
static int measure_fetch(struct broker_side *side, uint32_t *times, unsigned n, bool tcp, struct broker_round *round)
{
	int rc = 0;

	for (unsigned i = 0; rc == 0 && i < PRELOADED; i++)
		rc = send_one(side, TO_FETCH, SMALL) == 0 && (i % 64 != 0 || wait_for_all(side) == 0) ? 0 : -EAGAIN;
	if (rc == 0)
		rc = wait_for_all(side);
	if (rc == 0)
		rc = read_only(side, TO_FETCH);
	for (unsigned i = 0; rc == 0 && i < WARM; i++)
		rc = next_record(side, true);
	for (unsigned i = 0; rc == 0 && i < n; i++) {
		uint64_t start_ns = now_ns();

		rc = next_record(side, tcp);
		times[i] = (uint32_t)(now_ns() - start_ns);
		if (!tcp && i % 64 == 0)
			(void)hf_loop_turn(side->loop, 0);
	}
	if (rc == 0)
		round->fetch = quantile_us(times, n, 0.5);
	return rc;
}

static uint64_t looks_of(const struct broker_side *side)
{
	struct hf_consumer_stats stats;

	hf_consumer_stats(side->consumer, &stats);
	return stats.looks;
}

/* From one look that found nothing to the next. */
static int look_once(struct broker_side *side)
{
	uint64_t before = looks_of(side), end_ns = now_ns() + LIMIT_NS;
	struct hf_message message;

	while (looks_of(side) == before) {
		if (hf_consumer_poll(side->consumer, &message, 1) != 0 || now_ns() > end_ns)
			return hf_error_set(&side->error, -EIO, "a look finds what is not there");
	}
	return 0;
}

static int measure_empty(struct broker_side *side, uint32_t *times, struct broker_round *round)
{
	uint64_t all_ns;
	int rc = read_only(side, TO_FETCH);

	while (rc == 0 && hf_consumer_position(side->consumer, side->topics[TO_FETCH], 0) < (int64_t)PRELOADED)
		rc = next_record(side, true);
	for (unsigned i = 0; rc == 0 && i < WARM; i++)
		rc = look_once(side);
	all_ns = now_ns();
	for (unsigned i = 0; rc == 0 && i < LOOKS; i++) {
		uint64_t start_ns = now_ns();

		rc = look_once(side);
		times[i] = (uint32_t)(now_ns() - start_ns);
		if (i % 1024 == 0)
			(void)hf_loop_turn(side->loop, 0);
	}
	if (rc != 0)
		return rc;
	round->empty_rate = LOOKS / ((double)(now_ns() - all_ns) / 1e9);
	round->empty = quantile_us(times, LOOKS, 0.5);
	return 0;
}

/* The same, and records that were not read before, while the broker's process is stopped. */
static int measure_stopped(struct bench_meeting *meeting, struct broker_side *side, struct broker_round *round)
{
	uint64_t start_ns;
	int rc = read_only(side, TO_FETCH);

	for (unsigned i = 0; rc == 0 && i < WARM; i++) /* until it reads the segment */
		rc = next_record(side, true);
	bench_stop_far(meeting, false);
	while (rc == 0 && hf_consumer_position(side->consumer, side->topics[TO_FETCH], 0) < (int64_t)PRELOADED) {
		rc = next_record(side, false);
		round->stopped_records++;
	}
	start_ns = now_ns();
	for (unsigned i = 0; rc == 0 && i < STOPPED_LOOKS; i++)
		rc = look_once(side);
	round->stopped_rate = STOPPED_LOOKS / ((double)(now_ns() - start_ns) / 1e9);
	bench_continue_far(meeting);
	return rc;
}

static int measure_end_to_end(struct broker_side *side, uint32_t *times, unsigned n, struct broker_round *round)
{
	int rc = read_only(side, TO_END);

	for (unsigned i = 0; rc == 0 && i < WARM + n; i++) {
		uint64_t start_ns = now_ns();

		rc = send_one(side, TO_END, SMALL);
		if (rc == 0)
			rc = next_record(side, true);
		if (i >= WARM)
			times[i - WARM] = (uint32_t)(now_ns() - start_ns);
	}
	if (rc == 0)
		rc = wait_for_all(side);
	if (rc == 0)
		round->end_to_end = quantile_us(times, n, 0.5);
	return rc;
}

static int open_producer(struct broker_side *side, const struct broker_task *task)
{
	const struct hf_producer_config config = {.brokers = side->address,
		.rdma = side->node == NULL ? HF_RDMA_OFF : HF_RDMA_REQUIRED,
		.acks_leader = true,
		.batch_records = 1};

	if (task->kafka != NULL)
		snprintf(side->address, sizeof(side->address), "%s", task->kafka);
	for (unsigned i = 0; i < TOPICS; i++)
		snprintf(side->topics[i], sizeof(side->topics[i]), "bench-%d-%u-%u", bench_own_pid(), task->generation,
			i);
	return hf_producer_open(side->loop, side->node, &config, &side->producer, &side->error);
}

static int measure_all(struct bench_meeting *meeting, struct broker_side *side, const struct broker_task *task,
	struct broker_round *round)
{
	static uint32_t times[TIMES_MOST];
	bool tcp = side->node == NULL;
	int rc = measure_produce(side, times, tcp ? PRODUCES_TCP : PRODUCES, round);

	if (rc == 0)
		rc = measure_fetch(side, times, tcp ? PRODUCES_TCP : PRELOADED - 2 * WARM, tcp, round);
	if (rc == 0)
		rc = measure_end_to_end(side, times, tcp ? ENDS_TCP : ENDS, round);
	if (rc == 0 && !tcp)
		rc = measure_empty(side, times, round);
	for (unsigned i = 0; rc == 0 && !tcp && i < SIZES; i++)
		rc = measure_bandwidth(side, sizes[i], &round->bandwidth[i]);
	if (rc == 0 && strcmp(task->kind, "shm") == 0)
		rc = measure_stopped(meeting, side, round);
	return rc;
}

static int near_side(struct bench_meeting *meeting, void *context)
{
	struct broker_task *task = context;
	struct broker_side side = {0};
	char mine[sizeof(side.address)] = "";
	int pid = bench_own_pid(), far_pid, rc;

	if (!bench_swap(meeting, true, &pid, &far_pid, sizeof(pid)))
		return -EPIPE;
	rc = open_node(&side, task, true, pid);
	if (rc == 0 && !bench_swap(meeting, true, mine, side.address, sizeof(mine)))
		rc = -EPIPE;
	if (rc == 0)
		rc = open_producer(&side, task);
	if (rc == 0)
		rc = measure_all(meeting, &side, task, &task->round);
	if (rc != 0)
		fprintf(stderr, "holdfast bench: %s: %s\n", task->kind,
			side.error.text[0] != '\0' ? side.error.text : strerror(-rc));
	hf_producer_close(side.producer);
	hf_consumer_close(side.consumer);
	hf_node_close(side.node);
	if (side.loop != NULL)
		hf_loop_destroy(side.loop);
	return rc;
}

/* ---- figures ---- */

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

		if (bench_together(near_side, far_side, &task) != 0) {
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
