/* broker_bench.h - the parts of `holdfast bench broker`: two sides (broker_sides.c), the cost of writes
 * (broker_produce.c) and of reads (broker_consume.c), the delay of events (broker_events.c), the cost of rolls
 * (broker_rolls.c). */
#ifndef HOLDFAST_BENCH_BROKER_BENCH_H
#define HOLDFAST_BENCH_BROKER_BENCH_H

#include <holdfast/consumer.h>
#include <jansson.h>

#include "bench/bed.h"

#define BROKER_BENCH_SMALL      100u /* bytes of a record, unless said */
#define BROKER_BENCH_WARM       500u
#define BROKER_BENCH_PRELOADED  10000u
#define BROKER_BENCH_LIMIT_NS   20000000000ull
#define BROKER_BENCH_VALUE_MOST 32768u
#define BROKER_BENCH_TIMES_MOST 200000u

#define BROKER_BENCH_SIZES 2u /* of records whose bandwidth is measured */

enum broker_part {
	BROKER_PRODUCE,
	BROKER_FETCH,
	BROKER_END,
	BROKER_EMPTY,
	BROKER_BANDWIDTH,
	BROKER_EVENTS,
	BROKER_ROLLS,
	BROKER_PACKED,
	BROKER_STOPPED,
	BROKER_PARTS,
};

/* What one round measured, in us, a second, or MB/s; 0: not measured on this way. */
struct broker_round {
	double produce, produce_p99, fetch, fetch_large, empty, empty_rate, end_to_end, bandwidth[BROKER_BENCH_SIZES];
	double packed[HF_CODECS];                     /* MB/s of records in batches, by codec */
	double events, events_constant, events_burst; /* mean delays */
	double rolls, around_rolls, between_rolls;    /* how many; p99.9 of records around them, and of the others */
	double around_ratio, around_most, between_most;
	double stopped_rate;      /* looks a second while the broker's process is stopped */
	uint64_t stopped_records; /* read meanwhile */
};

struct broker_task {
	const char *kind;                  /* "shm", "soft", "tcp" */
	const char *at;                    /* brokers that run; NULL: ours, on the far side */
	const struct hf_node_config *node; /* of a client at brokers that run; NULL: over TCP */
	const char *topic;                 /* of all parts; NULL: each has its own */
	unsigned parts;                    /* bits of enum broker_part */
	bool acks_all;
	unsigned generation;
	struct broker_round round;
};

enum { TO_PRODUCE, TO_FETCH, TO_FETCH_LARGE, TO_END, TO_EVENTS, TO_ROLL, TOPICS };

struct broker_side {
	struct bed bed;
	struct hf_node *node;
	struct hf_producer *producer;
	struct hf_consumer *consumer;
	char address[256];
	char topics[TOPICS][64]; /* of this round */
	unsigned told, failed;
	uint64_t turned_ns; /* when the loop had a turn while something was measured without */
};

uint64_t broker_bench_now_ns(void);

/* broker_sides.c; both get a struct broker_task */
int broker_bench_far_side(struct bench_meeting *meeting, void *context);
int broker_bench_near_side(struct bench_meeting *meeting, void *context);
int broker_bench_at_running(struct broker_task *task);

/* broker_produce.c; 0, or -errno with words in the side where there are any */
int broker_bench_send(struct broker_side *side, unsigned topic, const void *value, uint32_t bytes);
int broker_bench_send_one(struct broker_side *side, unsigned topic, uint32_t bytes); /* of zeros */
int broker_bench_wait_for_all(struct broker_side *side); /* turns until everything is told */
double broker_bench_quantile_us(uint32_t *times, unsigned n, double quantile);
int broker_bench_measure_produce(struct broker_side *side, uint32_t *times, unsigned n, struct broker_round *round);
int broker_bench_measure_bandwidth(struct broker_side *side, uint32_t bytes, double *mb_s_out);
int broker_bench_measure_packed(struct broker_side *side, double *mb_s_out); /* of the producer's codec */

/* broker_consume.c; likewise */
int broker_bench_read_only(struct broker_side *side, unsigned topic, uint32_t bytes); /* from its first record on */
int broker_bench_next(struct broker_side *side, bool turns);                          /* polls until a record comes */
int broker_bench_measure_fetch_large(struct broker_side *side, struct broker_round *round);
int broker_bench_measure_fetch(
	struct broker_side *side, uint32_t *times, unsigned n, bool tcp, struct broker_round *round);
int broker_bench_measure_empty(struct broker_side *side, uint32_t *times, struct broker_round *round);
int broker_bench_measure_stopped(struct bench_meeting *meeting, struct broker_side *side, struct broker_round *round);
int broker_bench_measure_end_to_end(struct broker_side *side, uint32_t *times, unsigned n, struct broker_round *round);

/* broker_events.c; likewise */
int broker_bench_measure_events(struct broker_side *side, struct broker_round *round);

/* broker_rolls.c; likewise, over RDMA */
int broker_bench_measure_rolls(struct broker_side *side, struct broker_round *round);

#endif
