/* broker_bench.h - the parts of `holdfast bench broker`: two sides (broker_sides.c), what writing costs
 * (broker_produce.c), what reading costs (broker_consume.c). */
#ifndef HOLDFAST_CLI_BENCH_BROKER_BENCH_H
#define HOLDFAST_CLI_BENCH_BROKER_BENCH_H

#include <holdfast/consumer.h>

#include "cli/bench/bench.h"

#define BROKER_BENCH_SMALL      100u /* bytes of a record, unless said */
#define BROKER_BENCH_WARM       500u
#define BROKER_BENCH_PRELOADED  10000u
#define BROKER_BENCH_LIMIT_NS   20000000000ull
#define BROKER_BENCH_VALUE_MOST 32768u
#define BROKER_BENCH_TIMES_MOST 200000u

#define BROKER_BENCH_SIZES 2u /* of records whose bandwidth is measured */

/* What one round measured, in us, a second, or MB/s; 0: not measured on this way. */
struct broker_round {
	double produce, produce_p99, fetch, empty, empty_rate, end_to_end, bandwidth[BROKER_BENCH_SIZES];
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

uint64_t broker_bench_now_ns(void);

/* broker_sides.c; both get a struct broker_task */
int broker_bench_far_side(struct bench_meeting *meeting, void *context);
int broker_bench_near_side(struct bench_meeting *meeting, void *context);

/* broker_produce.c; 0, or -errno with words in the side where there are any */
int broker_bench_send_one(struct broker_side *side, unsigned topic, uint32_t bytes);
int broker_bench_wait_for_all(struct broker_side *side); /* turns until everything is told */
double broker_bench_quantile_us(uint32_t *times, unsigned n, double quantile);
int broker_bench_measure_produce(struct broker_side *side, uint32_t *times, unsigned n, struct broker_round *round);
int broker_bench_measure_bandwidth(struct broker_side *side, uint32_t bytes, double *mb_s_out);

/* broker_consume.c; likewise */
int broker_bench_measure_fetch(
	struct broker_side *side, uint32_t *times, unsigned n, bool tcp, struct broker_round *round);
int broker_bench_measure_empty(struct broker_side *side, uint32_t *times, struct broker_round *round);
int broker_bench_measure_stopped(struct bench_meeting *meeting, struct broker_side *side, struct broker_round *round);
int broker_bench_measure_end_to_end(struct broker_side *side, uint32_t *times, unsigned n, struct broker_round *round);

#endif
