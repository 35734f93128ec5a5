/* What it costs to write records. */
#include <errno.h>

#include "bench/broker_bench.h"

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
		(void)hf_loop_turn(side->bed.loop, 0);
		if (broker_bench_now_ns() > end_ns)
			return hf_error_set(&side->bed.error, -ETIMEDOUT, "a record was not acknowledged");
	}
	return side->failed == 0 ? 0 : hf_error_set(&side->bed.error, -EIO, "a record was refused");
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
static int measure_rate(struct broker_side *side, const uint8_t *values, uint32_t of, uint32_t bytes, double *mb_s_out)
{
	uint64_t start_ns = broker_bench_now_ns(), end_ns = start_ns + BANDWIDTH_NS, sent = 0;
	uint32_t at = 0;
	int rc = 0;

	while (broker_bench_now_ns() < end_ns) {
		for (unsigned i = 0; i < 16; i++) {
			rc = broker_bench_send(side, TO_PRODUCE, values + at, bytes);
			if (rc != 0)
				break;
			sent += bytes;
			at = at + 2 * bytes > of ? 0 : at + bytes;
		}
		if (rc != 0 && rc != -EAGAIN)
			return rc;
		(void)hf_loop_turn(side->bed.loop, 0);
	}
	rc = broker_bench_wait_for_all(side);
	*mb_s_out = (double)sent / ((double)(broker_bench_now_ns() - start_ns) / 1e3);
	return rc;
}

int broker_bench_measure_bandwidth(struct broker_side *side, uint32_t bytes, double *mb_s_out)
{
	static const uint8_t zeros[BROKER_BENCH_VALUE_MOST];

	return measure_rate(side, zeros, bytes, bytes, mb_s_out);
}

/* Words of a small vocabulary and numbers, as lines of a log have them: they shrink to a third or so. */
static void fill(uint8_t *to, size_t bytes)
{
	uint64_t draw = 1;

	for (size_t at = 0; at < bytes; at++) {
		draw = draw * 6364136223846793005u + 1442695040888963407u;
		to[at] = (uint8_t)(at % 8 < 5    ? 'a' + (draw >> 60) % 4 + at % 5
				   : at % 8 == 7 ? ' '
						 : '0' + (draw >> 33) % 10);
	}
}

int broker_bench_measure_packed(struct broker_side *side, double *mb_s_out)
{
	static uint8_t values[1u << 20];

	if (values[0] == 0)
		fill(values, sizeof(values));
	return measure_rate(side, values, sizeof(values), 1000, mb_s_out);
}
