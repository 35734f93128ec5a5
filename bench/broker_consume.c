/* What it costs to read records, and to find that there are none. */
#include <errno.h>
#include <stdlib.h>

#include "bench/broker_bench.h"

#define LOOKS       20000u
#define LOOKS_NS    500000000ull
#define POLLS       256u        /* between two looks at the clock */
#define TURN_NS     50000000ull /* at most between two turns of the loop: a broker gives up a client that is silent */
#define LARGE       1500u
#define LARGE_WARM  100u
#define BATCH_BYTES 80u /* of the header of a batch, and of its one record */

_Static_assert(LOOKS <= BROKER_BENCH_TIMES_MOST, "each look has its time");

/* A consumer of its own, so that nothing else is read. */
int broker_bench_read_only(struct broker_side *side, unsigned topic, uint32_t bytes)
{
	const struct hf_consumer_config config = {.brokers = side->address,
		.rdma = side->node == NULL ? HF_RDMA_OFF : HF_RDMA_REQUIRED,
		.fetch_bytes = bytes == 0 ? 0 : bytes + BATCH_BYTES}; /* one record */
	int rc;

	hf_consumer_close(side->consumer);
	rc = hf_consumer_open(side->bed.loop, side->node, &config, &side->consumer, &side->bed.error);
	return rc == 0 ? hf_consumer_seek(side->consumer, side->topics[topic], 0, 0) : rc;
}

/* What is measured is without turns, but for one at times. */
static void turn(struct broker_side *side, bool each_time, uint64_t now_ns)
{
	if (!each_time && now_ns - side->turned_ns < TURN_NS)
		return;
	(void)hf_loop_turn(side->bed.loop, 0);
	side->turned_ns = now_ns;
}

/* What a program that waits for the next one does. */
int broker_bench_next(struct broker_side *side, bool turns)
{
	uint64_t now_ns = broker_bench_now_ns(), end_ns = now_ns + BROKER_BENCH_LIMIT_NS;
	struct hf_message message;
	int n;

	while ((n = hf_consumer_poll(side->consumer, &message, 1)) == 0) {
		turn(side, turns, now_ns);
		now_ns = broker_bench_now_ns();
		if (now_ns > end_ns)
			return hf_error_set(&side->bed.error, -ETIMEDOUT, "a record did not arrive");
	}
	return n == 1 ? 0 : n;
}

static int preload(struct broker_side *side, unsigned topic, uint32_t bytes, unsigned n)
{
	int rc = 0;

	for (unsigned i = 0; rc == 0 && i < n; i++) {
		rc = broker_bench_send_one(side, topic, bytes);
		if (rc == 0 && i % 64 == 0)
			rc = broker_bench_wait_for_all(side);
	}
	return rc == 0 ? broker_bench_wait_for_all(side) : rc;
}

/* One record a READ, or a Fetch. */
int broker_bench_measure_fetch(
	struct broker_side *side, uint32_t *times, unsigned n, bool tcp, struct broker_round *round)
{
	int rc = preload(side, TO_FETCH, BROKER_BENCH_SMALL, BROKER_BENCH_PRELOADED);

	if (rc == 0)
		rc = broker_bench_read_only(side, TO_FETCH, BROKER_BENCH_SMALL);
	for (unsigned i = 0; rc == 0 && i < BROKER_BENCH_WARM; i++)
		rc = broker_bench_next(side, true);
	for (unsigned i = 0; rc == 0 && i < n; i++) {
		uint64_t start_ns = broker_bench_now_ns();

		rc = broker_bench_next(side, tcp);
		times[i] = (uint32_t)(broker_bench_now_ns() - start_ns);
		if (!tcp && i % 64 == 0)
			(void)hf_loop_turn(side->bed.loop, 0);
	}
	if (rc == 0)
		round->fetch = broker_bench_quantile_us(times, n, 0.5);
	return rc;
}

/* The same with large ones: how much that carries. */
int broker_bench_measure_fetch_large(struct broker_side *side, struct broker_round *round)
{
	int rc = preload(side, TO_FETCH_LARGE, BROKER_BENCH_VALUE_MOST, LARGE_WARM + LARGE);
	uint64_t start_ns = 0;

	if (rc == 0)
		rc = broker_bench_read_only(side, TO_FETCH_LARGE, BROKER_BENCH_VALUE_MOST);
	for (unsigned i = 0; rc == 0 && i < LARGE_WARM + LARGE; i++) {
		if (i == LARGE_WARM)
			start_ns = broker_bench_now_ns();
		rc = broker_bench_next(side, true);
	}
	if (rc == 0)
		round->fetch_large =
			(double)LARGE * BROKER_BENCH_VALUE_MOST / ((double)(broker_bench_now_ns() - start_ns) / 1e3);
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
	uint64_t before = looks_of(side), now_ns = broker_bench_now_ns(), end_ns = now_ns + BROKER_BENCH_LIMIT_NS;
	struct hf_message message;

	while (looks_of(side) == before) {
		if (hf_consumer_poll(side->consumer, &message, 1) != 0)
			return hf_error_set(&side->bed.error, -EIO, "an empty fetch returned a record");
		turn(side, false, now_ns);
		now_ns = broker_bench_now_ns();
		if (now_ns > end_ns)
			return hf_error_set(&side->bed.error, -ETIMEDOUT, "an empty fetch did not end");
	}
	return 0;
}

/* Without the time that clocks take; 0: there was an error. */
static double looks_per_s(struct broker_side *side, bool turns)
{
	uint64_t start_ns = broker_bench_now_ns(), end_ns = start_ns + LOOKS_NS, first = looks_of(side);
	struct hf_message message;

	while (broker_bench_now_ns() < end_ns) {
		for (unsigned i = 0; i < POLLS; i++)
			if (hf_consumer_poll(side->consumer, &message, 1) != 0)
				return 0;
		if (turns)
			(void)hf_loop_turn(side->bed.loop, 0);
	}
	return (double)(looks_of(side) - first) * 1e9 / (double)(broker_bench_now_ns() - start_ns);
}

int broker_bench_measure_empty(struct broker_side *side, uint32_t *times, struct broker_round *round)
{
	int rc = broker_bench_read_only(side, TO_FETCH, BROKER_BENCH_SMALL);

	while (rc == 0 &&
		hf_consumer_position(side->consumer, side->topics[TO_FETCH], 0) < (int64_t)BROKER_BENCH_PRELOADED)
		rc = broker_bench_next(side, true);
	for (unsigned i = 0; rc == 0 && i < BROKER_BENCH_WARM; i++)
		rc = look_once(side);
	for (unsigned i = 0; rc == 0 && i < LOOKS; i++) {
		uint64_t start_ns = broker_bench_now_ns();

		rc = look_once(side);
		times[i] = (uint32_t)(broker_bench_now_ns() - start_ns);
		if (i % POLLS == 0)
			(void)hf_loop_turn(side->bed.loop, 0);
	}
	if (rc != 0)
		return rc;
	round->empty = broker_bench_quantile_us(times, LOOKS, 0.5);
	round->empty_rate = looks_per_s(side, true);
	return round->empty_rate > 0 ? 0 : hf_error_set(&side->bed.error, -EIO, "an empty fetch returned a record");
}

/* The same, and records that were not read before, while the broker's process is stopped. */
int broker_bench_measure_stopped(struct bench_meeting *meeting, struct broker_side *side, struct broker_round *round)
{
	int rc = broker_bench_read_only(side, TO_FETCH, BROKER_BENCH_SMALL);

	for (unsigned i = 0; rc == 0 && i < BROKER_BENCH_WARM; i++) /* until it reads the segment */
		rc = broker_bench_next(side, true);
	bench_stop_far(meeting, false);
	while (rc == 0 &&
		hf_consumer_position(side->consumer, side->topics[TO_FETCH], 0) < (int64_t)BROKER_BENCH_PRELOADED) {
		rc = broker_bench_next(side, false);
		round->stopped_records++;
	}
	if (rc == 0)
		round->stopped_rate = looks_per_s(side, false);
	bench_continue_far(meeting);
	return rc;
}

int broker_bench_measure_end_to_end(struct broker_side *side, uint32_t *times, unsigned n, struct broker_round *round)
{
	int rc = broker_bench_read_only(side, TO_END, BROKER_BENCH_SMALL);

	for (unsigned i = 0; rc == 0 && i < BROKER_BENCH_WARM + n; i++) {
		uint64_t start_ns = broker_bench_now_ns();

		rc = broker_bench_send_one(side, TO_END, BROKER_BENCH_SMALL);
		if (rc == 0)
			rc = broker_bench_next(side, true);
		if (i >= BROKER_BENCH_WARM)
			times[i - BROKER_BENCH_WARM] = (uint32_t)(broker_bench_now_ns() - start_ns);
	}
	if (rc == 0)
		rc = broker_bench_wait_for_all(side);
	if (rc == 0)
		round->end_to_end = broker_bench_quantile_us(times, n, 0.5);
	return rc;
}
