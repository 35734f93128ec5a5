/* Both sides of a round: the broker, and the client that measures. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "broker/broker.h"
#include "bench/broker_bench.h"
#include "cli/scratch.h"

#define PRODUCES         20000u
#define PRODUCES_TCP     4000u
#define ENDS             10000u
#define ENDS_TCP         2000u
#define SEGMENT_BYTES    (256u << 20)
#define ROLLED_BYTES     (128u << 20) /* of a segment, where rolling is measured */
#define LOG_MEMORY_BYTES (4ull << 30)

static const uint32_t sizes[BROKER_BENCH_SIZES] = {512, BROKER_BENCH_VALUE_MOST};

/* ---- nodes ---- */

/* None, when records go over TCP. */
static int open_node(struct broker_side *side, const struct broker_task *task)
{
	bool near = side->bed.near;
	struct hf_node_config config;

	if (strcmp(task->kind, "tcp") == 0)
		return 0;
	hf_loop_set_slack(side->bed.loop, 1000);
	bed_configure(&side->bed, near ? "near" : "far", task->generation, task->kind, 1,
		near + 2 * (task->generation % (BED_PLACES / 2)), &config);
	return bed_node(&side->bed, &config, NULL, NULL, &side->node);
}

/* ---- the far side: the broker ---- */

static bool wanted(const struct broker_task *task, enum broker_part part)
{
	return (task->parts & 1u << part) != 0;
}

static int open_broker(struct broker_side *side, const struct broker_task *task, const struct scratch *scratch,
	struct broker **broker_out)
{
	struct broker_config config;
	int rc;

	broker_config_default(&config);
	config.cores = HF_CORES_OWNED;
	config.node_id = 1;
	config.segment_bytes = wanted(task, BROKER_ROLLS) ? ROLLED_BYTES : SEGMENT_BYTES;
	config.listeners =
		(struct broker_endpoints){.at = {{.name = "PLAINTEXT", .host = "127.0.0.1", .port = 0}}, .count = 1};
	if ((size_t)snprintf(config.log_dirs, sizeof(config.log_dirs), "%s/logs", scratch->path) >=
		sizeof(config.log_dirs))
		return hf_error_set(&side->bed.error, -ENAMETOOLONG, "%s is too long", scratch->path);
	rc = broker_open(side->bed.loop, side->node, &config, broker_out, &side->bed.error);
	if (rc == 0)
		snprintf(side->address, sizeof(side->address), "127.0.0.1:%u",
			(*broker_out)->config.listeners.at[0].port);
	return rc;
}

int broker_bench_far_side(struct bench_meeting *meeting, void *context)
{
	const struct broker_task *task = context;
	struct broker_side side = {0};
	struct scratch scratch = {0};
	struct broker *broker = NULL;
	int rc = bed_open(&side.bed, meeting, false);

	if (rc == 0)
		rc = scratch_create(&scratch, LOG_MEMORY_BYTES, &side.bed.error);
	if (rc == 0)
		rc = open_node(&side, task);
	if (rc == 0)
		rc = open_broker(&side, task, &scratch, &broker);
	if (rc == 0 && !bench_swap(meeting, false, side.address, side.address, sizeof(side.address)))
		rc = -EPIPE;
	if (rc == 0)
		bed_serve(&side.bed, 1000000);
	else
		fprintf(stderr, "holdfast bench: %s\n", side.bed.error.text);
	broker_close(broker);
	bed_close(&side.bed);
	scratch_remove(&scratch);
	return rc;
}

static void name_topics(struct broker_side *side, const struct broker_task *task)
{
	for (unsigned i = 0; i < TOPICS; i++)
		if (task->topic != NULL)
			snprintf(side->topics[i], sizeof(side->topics[i]), "%s", task->topic);
		else
			snprintf(side->topics[i], sizeof(side->topics[i]), "bench-%d-%u-%u", bench_own_pid(),
				task->generation, i);
}

/* In place of the one before, if there is one. batch_records: of its configuration. */
static int open_producer(
	struct broker_side *side, const struct broker_task *task, uint32_t batch_records, enum hf_codec codec)
{
	const struct hf_producer_config config = {.brokers = side->address,
		.rdma = side->node == NULL ? HF_RDMA_OFF : HF_RDMA_REQUIRED,
		.acks_leader = !task->acks_all,
		.codec = codec,
		.batch_records = batch_records};

	hf_producer_close(side->producer);
	return hf_producer_open(side->bed.loop, side->node, &config, &side->producer, &side->bed.error);
}

static int measure_fetch(struct broker_side *side, struct broker_task *task, uint32_t *times, bool tcp)
{
	unsigned n = tcp ? PRODUCES_TCP : BROKER_BENCH_PRELOADED - 2 * BROKER_BENCH_WARM;
	int rc = broker_bench_measure_fetch(side, times, n, tcp, &task->round);

	return rc == 0 ? broker_bench_measure_fetch_large(side, &task->round) : rc;
}

/* What finds nothing is at the end of what FETCH has written. */
static int measure_all(struct bench_meeting *meeting, struct broker_side *side, struct broker_task *task)
{
	static uint32_t times[BROKER_BENCH_TIMES_MOST];
	struct broker_round *round = &task->round;
	bool tcp = side->node == NULL;
	int rc = 0;

	if (wanted(task, BROKER_PRODUCE))
		rc = broker_bench_measure_produce(side, times, tcp ? PRODUCES_TCP : PRODUCES, round);
	if (rc == 0 && wanted(task, BROKER_FETCH))
		rc = measure_fetch(side, task, times, tcp);
	if (rc == 0 && wanted(task, BROKER_END))
		rc = broker_bench_measure_end_to_end(side, times, tcp ? ENDS_TCP : ENDS, round);
	if (rc == 0 && wanted(task, BROKER_EMPTY) && !tcp)
		rc = broker_bench_measure_empty(side, times, round);
	for (unsigned i = 0; rc == 0 && wanted(task, BROKER_BANDWIDTH) && i < BROKER_BENCH_SIZES; i++)
		rc = broker_bench_measure_bandwidth(side, sizes[i], &round->bandwidth[i]);
	if (rc == 0 && wanted(task, BROKER_STOPPED) && meeting != NULL && strcmp(task->kind, "shm") == 0)
		rc = broker_bench_measure_stopped(meeting, side, round);
	if (rc == 0 && wanted(task, BROKER_ROLLS) && !tcp)
		rc = broker_bench_measure_rolls(side, round);
	/* Events are a program's, which lets records gather; what stands above measures single ones. */
	if (rc == 0 && wanted(task, BROKER_EVENTS))
		rc = open_producer(side, task, 0, HF_CODEC_NONE);
	if (rc == 0 && wanted(task, BROKER_EVENTS))
		rc = broker_bench_measure_events(side, round);
	for (unsigned codec = 0; rc == 0 && wanted(task, BROKER_PACKED) && codec < HF_CODECS; codec++) {
		rc = open_producer(side, task, 0, (enum hf_codec)codec);
		if (rc == 0)
			rc = broker_bench_measure_packed(side, &round->packed[codec]);
	}
	return rc;
}

static void close_client(struct broker_side *side, const struct broker_task *task, int rc)
{
	if (rc != 0)
		fprintf(stderr, "holdfast bench: %s: %s\n", task->kind,
			side->bed.error.text[0] != '\0' ? side->bed.error.text : strerror(-rc));
	hf_producer_close(side->producer);
	hf_consumer_close(side->consumer);
	bed_close(&side->bed);
}

int broker_bench_near_side(struct bench_meeting *meeting, void *context)
{
	struct broker_task *task = context;
	struct broker_side side = {0};
	char mine[sizeof(side.address)] = "";
	int rc = bed_open(&side.bed, meeting, true);

	name_topics(&side, task);
	if (rc == 0)
		rc = open_node(&side, task);
	if (rc == 0 && !bench_swap(meeting, true, mine, side.address, sizeof(mine)))
		rc = -EPIPE;
	if (rc == 0)
		rc = open_producer(&side, task, 1, HF_CODEC_NONE);
	if (rc == 0)
		rc = measure_all(meeting, &side, task);
	close_client(&side, task, rc);
	return rc;
}

int broker_bench_at_running(struct broker_task *task)
{
	struct broker_side side = {0};
	int rc = bed_open_alone(&side.bed, bench_own_pid());

	name_topics(&side, task);
	snprintf(side.address, sizeof(side.address), "%s", task->at);
	if (rc == 0 && task->node != NULL)
		rc = bed_node(&side.bed, task->node, NULL, NULL, &side.node);
	if (rc == 0)
		rc = open_producer(&side, task, 1, HF_CODEC_NONE);
	if (rc == 0)
		rc = measure_all(NULL, &side, task);
	close_client(&side, task, rc);
	return rc;
}
