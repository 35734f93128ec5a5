/* What it costs to write records. */
#include <errno.h>

#include "cli/bench/broker_bench.h"

#define BANDWIDTH_NS 1000000000ull

uint64_t broker_bench_now_ns(void)
{
	return hf_env_now_ns(hf_env_host());
}

static void delivered(void *context, const struct hf_delivery *delivery)
{
	struct broker_side *side = context;

	side->told++;
	side->failed += delivery->error != 0;
}

int broker_bench_send(struct broker_side *side, unsigned topic, const void *value, uint32_t bytes)
{
	const struct hf_record record = {.topic = side->topics[topic],
		.value = value,
		.value_bytes = bytes,
		.timestamp_ms = (int64_t)(hf_env_wall_ns(hf_env_host()) / 1000000)};

	return hf_producer_send(side->producer, &record, delivered, side);
}

int broker_bench_send_one(struct broker_side *side, unsigned topic, uint32_t bytes)
{
	static const uint8_t zeros[BROKER_BENCH_VALUE_MOST];

	return broker_bench_send(side, topic, zeros, bytes);
}

/* Turns until everything is told. */
int broker_bench_wait_for_all(struct broker_side *side)
{
	uint64_t end_ns = broker_bench_now_ns() + BROKER_BENCH_LIMIT_NS;

	while (hf_producer_pending(side->producer) > 0) {
		(void)hf_loop_turn(side->loop, 0);
		if (broker_bench_now_ns() > end_ns)
			return hf_error_set(&side->error, -ETIMEDOUT, "a record was not acknowledged");
	}
	return side->failed == 0 ? 0 : hf_error_set(&side->error, -EIO, "a record was refused");
}

static int send_and_wait(struct broker_side *side, unsigned topic)
{
	int rc = broker_bench_send_one(side, topic, BROKER_BENCH_SMALL);

	return rc != 0 ? rc : broker_bench_wait_for_all(side);
}

double broker_bench_quantile_us(uint32_t *times, unsigned n, double quantile)
{
	bench_sort_times(times, n);
	return times[(unsigned)((n - 1) * quantile)] / 1e3;
}

int broker_bench_measure_produce(struct broker_side *side, uint32_t *times, unsigned n, struct broker_round *round)
{
	int rc = 0;

	for (unsigned i = 0; rc == 0 && i < BROKER_BENCH_WARM; i++)
		rc = send_and_wait(side, TO_PRODUCE);
	for (unsigned i = 0; rc == 0 && i < n; i++) {
		uint64_t start_ns = broker_bench_now_ns();

		rc = send_and_wait(side, TO_PRODUCE);
		times[i] = (uint32_t)(broker_bench_now_ns() - start_ns);
	}
	if (rc != 0)
		return rc;
	round->produce = broker_bench_quantile_us(times, n, 0.5);
	round->produce_p99 = broker_bench_quantile_us(times, n, 0.99);
	return 0;
}

/* As many as there is room for. */
int broker_bench_measure_bandwidth(struct broker_side *side, uint32_t bytes, double *mb_s_out)
{
	uint64_t start_ns = broker_bench_now_ns(), end_ns = start_ns + BANDWIDTH_NS, sent = 0;
	int rc = 0;

	while (broker_bench_now_ns() < end_ns) {
		for (unsigned i = 0; i < 16 && (rc = broker_bench_send_one(side, TO_PRODUCE, bytes)) == 0; i++)
			sent += bytes;
		if (rc != 0 && rc != -EAGAIN)
			return rc;
		(void)hf_loop_turn(side->loop, 0);
	}
	rc = broker_bench_wait_for_all(side);
	*mb_s_out = (double)sent / ((double)(broker_bench_now_ns() - start_ns) / 1e3);
	return rc;
}
