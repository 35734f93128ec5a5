/* How late events are: a constant rate, and a burst in the middle of every ten seconds. */
#include <errno.h>
#include <string.h>

#include "bench/broker_bench.h"

#define SECONDS  10u
#define RATE     400u
#define BURST    1000u /* at once */
#define EVENTS   ((uint64_t)RATE * SECONDS)
#define MESSAGES 64
#define NS       1000000000ull

/* At the front of a record. */
struct event {
	uint64_t due_ns;
	uint64_t of_burst;
};

struct events {
	uint64_t begin_ns, burst_ns; /* burst_ns 0: it is not due yet */
	uint64_t sent, burst_sent, seen;
	double sums[2]; /* of delays, in us; of the burst's */
};

static int send_event(struct broker_side *side, uint64_t due_ns, bool of_burst)
{
	uint8_t value[BROKER_BENCH_SMALL] = {0};
	const struct event event = {.due_ns = due_ns, .of_burst = of_burst};

	memcpy(value, &event, sizeof(event));
	return broker_bench_send(side, TO_EVENTS, value, sizeof(value));
}

/* Sends what is due, as far as there is room. */
static int send_due(struct broker_side *side, struct events *events)
{
	int rc = 0;

	while (rc == 0 && events->burst_ns != 0 && events->burst_sent < BURST) {
		rc = send_event(side, events->burst_ns, true);
		events->burst_sent += rc == 0;
	}
	while (rc == 0 && events->sent < EVENTS) {
		uint64_t now_ns = broker_bench_now_ns(), due_ns = events->begin_ns + events->sent * NS / RATE;

		if (now_ns < due_ns)
			break;
		rc = send_event(side, due_ns, false);
		events->sent += rc == 0;
		if (events->sent == EVENTS / 2 && events->burst_ns == 0)
			events->burst_ns = now_ns;
	}
	return rc == -EAGAIN ? 0 : rc;
}

static int take_events(struct broker_side *side, struct events *events)
{
	struct hf_message messages[MESSAGES];
	int n = hf_consumer_poll(side->consumer, messages, MESSAGES);

	for (int i = 0; i < n; i++) {
		struct event event;

		if (messages[i].value_bytes != BROKER_BENCH_SMALL)
			return hf_error_set(&side->bed.error, -EIO, "another client writes into the topic");
		memcpy(&event, messages[i].value, sizeof(event));
		events->sums[event.of_burst != 0] += (double)(broker_bench_now_ns() - event.due_ns) / 1e3;
		events->seen++;
	}
	return n < 0 ? n : 0;
}

int broker_bench_measure_events(struct broker_side *side, struct broker_round *round)
{
	struct events events = {0};
	uint64_t end_ns;
	int rc = broker_bench_send_one(side, TO_EVENTS, BROKER_BENCH_SMALL); /* so that the consumer is there */

	if (rc == 0)
		rc = broker_bench_read_only(side, TO_EVENTS, 0);
	if (rc == 0)
		rc = broker_bench_next(side, true);
	events.begin_ns = broker_bench_now_ns();
	end_ns = events.begin_ns + SECONDS * NS + BROKER_BENCH_LIMIT_NS;
	while (rc == 0 && events.seen < EVENTS + BURST) {
		rc = send_due(side, &events);
		if (rc == 0)
			rc = take_events(side, &events);
		(void)hf_loop_turn(side->bed.loop, 0);
		if (rc == 0 && broker_bench_now_ns() > end_ns)
			rc = hf_error_set(&side->bed.error, -ETIMEDOUT, "an event did not arrive");
	}
	if (rc == 0)
		rc = broker_bench_wait_for_all(side);
	round->events = (events.sums[0] + events.sums[1]) / (double)(EVENTS + BURST);
	round->events_constant = events.sums[0] / (double)EVENTS;
	round->events_burst = events.sums[1] / (double)BURST;
	return rc;
}
