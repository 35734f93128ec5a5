/* What rolling costs: records at full speed, into extents of 16 MiB and segments of 128 MiB. */
#include <errno.h>
#include <stdlib.h>

#include "bench/broker_bench.h"

#define RECORDS   1000000u       /* of 512 B, at most: more than 512 MiB */
#define ENOUGH_NS 10000000000ull /* after this time so many rolls will do */
#define ENOUGH    2u
#define BYTES     512u
#define IN_FLIGHT 32u
#define AROUND_NS 1000000ull
#define ROLLS     1024u
#define QUANTILE  0.999

struct roll_record {
	uint64_t sent_ns, told_ns;
	bool failed;
};

struct rolls {
	struct roll_record *records;
	unsigned sent;
	uint32_t *around, *others; /* times, in ns */
	unsigned around_count, others_count;
	uint64_t at_ns[ROLLS]; /* when another extent came */
	unsigned count;
	uint64_t extents; /* of the producer so far */
};

static void told(void *context, const struct hf_delivery *delivery)
{
	struct roll_record *record = context;

	record->told_ns = broker_bench_now_ns();
	record->failed = delivery->error != 0;
}

static uint64_t extents_of(const struct broker_side *side)
{
	struct hf_producer_stats stats;

	hf_producer_stats(side->producer, &stats);
	return stats.extents;
}

static int send_next(struct broker_side *side, struct roll_record *record)
{
	static const uint8_t zeros[BYTES];
	const struct hf_record data = {.topic = side->topics[TO_ROLL],
		.value = zeros,
		.value_bytes = BYTES,
		.timestamp_ms = (int64_t)(hf_env_wall_ns(hf_env_host()) / 1000000)};

	record->sent_ns = broker_bench_now_ns();
	return hf_producer_send(side->producer, &data, told, record);
}

static int send_all(struct broker_side *side, struct rolls *rolls)
{
	uint64_t start_ns = broker_bench_now_ns(), now_ns = start_ns;

	while (rolls->sent < RECORDS && (rolls->count < ENOUGH || now_ns - start_ns < ENOUGH_NS)) {
		int rc = 0;

		while (rc == 0 && rolls->sent < RECORDS && hf_producer_pending(side->producer) < IN_FLIGHT) {
			rc = send_next(side, &rolls->records[rolls->sent]);
			rolls->sent += rc == 0;
		}
		if (rc != 0 && rc != -EAGAIN)
			return rc;
		(void)hf_loop_turn(side->bed.loop, 0);
		now_ns = broker_bench_now_ns();
		if (extents_of(side) != rolls->extents && rolls->count < ROLLS) {
			rolls->extents = extents_of(side);
			rolls->at_ns[rolls->count++] = now_ns;
		}
		if (now_ns - start_ns > BROKER_BENCH_LIMIT_NS)
			return hf_error_set(&side->bed.error, -ETIMEDOUT, "no extent was rolled");
	}
	return broker_bench_wait_for_all(side);
}

/* Around a roll is a record under way within a millisecond of it. */
static int divide(struct broker_side *side, struct rolls *rolls)
{
	unsigned next = 0; /* the first roll that this record, and all later ones, may be around */

	for (unsigned i = 0; i < rolls->sent; i++) {
		const struct roll_record *record = &rolls->records[i];
		uint64_t ns = record->told_ns - record->sent_ns;
		uint32_t time = ns > UINT32_MAX ? UINT32_MAX : (uint32_t)ns;

		if (record->failed)
			return hf_error_set(&side->bed.error, -EIO, "a record was refused");
		while (next < rolls->count && rolls->at_ns[next] + AROUND_NS < record->sent_ns)
			next++;
		if (next < rolls->count && rolls->at_ns[next] <= record->told_ns + AROUND_NS)
			rolls->around[rolls->around_count++] = time;
		else
			rolls->others[rolls->others_count++] = time;
	}
	if (rolls->around_count == 0 || rolls->others_count == 0)
		return hf_error_set(&side->bed.error, -ENODATA, "there are no records around rolls, or no others");
	return 0;
}

static int measure(struct broker_side *side, struct rolls *rolls, struct broker_round *round)
{
	int rc = 0;

	for (unsigned i = 0; rc == 0 && i < BROKER_BENCH_WARM; i++) {
		rc = broker_bench_send_one(side, TO_ROLL, BYTES);
		if (rc == 0)
			rc = broker_bench_wait_for_all(side);
	}
	rolls->extents = extents_of(side);
	if (rc == 0)
		rc = send_all(side, rolls);
	if (rc == 0)
		rc = divide(side, rolls);
	if (rc != 0)
		return rc;
	round->rolls = rolls->count;
	round->around_rolls = broker_bench_quantile_us(rolls->around, rolls->around_count, QUANTILE);
	round->between_rolls = broker_bench_quantile_us(rolls->others, rolls->others_count, QUANTILE);
	round->around_ratio = round->around_rolls / round->between_rolls;
	round->around_most = rolls->around[rolls->around_count - 1] / 1e3;
	round->between_most = rolls->others[rolls->others_count - 1] / 1e3;
	return 0;
}

int broker_bench_measure_rolls(struct broker_side *side, struct broker_round *round)
{
	struct rolls rolls = {.records = calloc(RECORDS, sizeof(*rolls.records)),
		.around = calloc(RECORDS, sizeof(*rolls.around)),
		.others = calloc(RECORDS, sizeof(*rolls.others))};
	int rc = rolls.records == NULL || rolls.around == NULL || rolls.others == NULL ? -ENOMEM
										       : measure(side, &rolls, round);

	free(rolls.records);
	free(rolls.around);
	free(rolls.others);
	return rc;
}
