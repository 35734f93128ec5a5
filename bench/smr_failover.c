/* The time without a leader when one stops.
 *
 *   asleep    it stands still between two operations, as a process that waits does
 *   stopped   it proposes all the time and gets SIGSTOP: perhaps in the middle of a WRITE
 *   killed    likewise, and SIGKILL
 *
 * The far process has the leader, the near one both followers; it stops the leader, and its clock has both ends. */
#include <errno.h>
#include <stddef.h>

#include <holdfast/env.h>

#include "bench/smr.h"

#define WARM         500u
#define DELAY_NS     1000000u /* of proposals before the signal, and up to four times that */
#define BUCKETS      10u      /* of the histogram: up to 0.5 ms, then twice that each */
#define BUCKET_US    500.0
#define HALF(count)  (((count) + 1) / 2)
#define KILLS(count) (((count) + 9) / 10)

enum way { ASLEEP, STOPPED, KILLED, WAYS };

static const char *const ways[WAYS] = {[ASLEEP] = "asleep", [STOPPED] = "stopped", [KILLED] = "killed"};

struct failover {
	enum way way;
	double total_us, seen_us, detected_us, granted_us, leading_us;
};

/* ---- the leader ---- */

static int lead(struct bench_meeting *meeting, void *context)
{
	static const uint8_t data[SMR_BYTES];
	const struct smr_task *task = context;
	const struct failover *at = task->result;
	struct smr_side side = {0};
	uint32_t ns;
	int rc = smr_side_lead(&side, meeting, false, task);

	for (unsigned i = 0; rc == 0 && i < WARM; i++)
		rc = smr_side_propose(&side, data, &ns) ? 0 : -EAGAIN;
	if (rc == 0 && !bench_swap(meeting, false, &rc, &(int){0}, sizeof(rc)))
		rc = -EPIPE;
	while (rc == 0 && !bench_asked(meeting, false) && !bench_other_left(meeting, false)) {
		if (at->way == ASLEEP)
			bench_pause_ms(1);
		else
			(void)smr_side_propose(&side, data, &ns);
	}
	smr_side_close(&side);
	return rc;
}

/* ---- the followers ---- */

static void note(const struct smr_side *side, uint64_t stopped_ns, struct failover *at)
{
	struct hf_smr_status status;

	at->total_us = (double)(side->led_ns - stopped_ns) / 1e3;
	for (unsigned id = 1; id < SMR_MEMBERS; id++) {
		if (!hf_smr_is_leader(side->members[id]))
			continue;
		hf_smr_status(side->members[id], &status);
		at->detected_us = (double)status.failovers[0].detected_ns / 1e3;
		at->granted_us = (double)status.failovers[0].granted_ns / 1e3;
		at->leading_us = (double)status.failovers[0].leading_ns / 1e3;
		at->seen_us = at->total_us - at->detected_us - at->granted_us - at->leading_us;
	}
}

static int wait_for_leader(struct smr_side *side, struct bench_meeting *meeting, struct failover *at)
{
	struct hf_env *env = hf_env_host();
	uint64_t stopped_ns, delay_ns;

	hf_env_entropy(env, &delay_ns, sizeof(delay_ns));
	delay_ns = DELAY_NS + delay_ns % (4 * DELAY_NS);
	stopped_ns = hf_env_now_ns(env);
	while (at->way != ASLEEP && hf_env_now_ns(env) - stopped_ns < delay_ns)
		(void)hf_loop_turn(side->bed.loop, 100000);
	if (side->led_ns != 0)
		return -EAGAIN; /* the machine had no time for the leader */
	stopped_ns = hf_env_now_ns(env);
	if (at->way != ASLEEP)
		bench_stop_far(meeting, at->way == KILLED);
	while (side->led_ns == 0 && hf_env_now_ns(env) - stopped_ns < SMR_LIMIT_NS)
		(void)hf_loop_turn(side->bed.loop, 1000000);
	if (side->led_ns == 0)
		return -ETIMEDOUT;
	note(side, stopped_ns, at);
	return 0;
}

static int follow(struct bench_meeting *meeting, void *context)
{
	const struct smr_task *task = context;
	struct failover *at = task->result;
	struct smr_side side = {0};
	int rc = smr_side_follow(&side, meeting, true, task);

	while (rc == 0 && !bench_asked(meeting, true)) {
		(void)hf_loop_turn(side.bed.loop, 1000000);
		if (bench_other_left(meeting, true))
			rc = -EAGAIN;
	}
	if (rc == 0 && !bench_swap(meeting, true, &rc, &(int){0}, sizeof(rc)))
		rc = -EPIPE;
	if (rc == 0)
		rc = wait_for_leader(&side, meeting, at);
	bench_continue_far(meeting);
	smr_side_close(&side);
	return rc;
}

/* ---- the report ---- */

static double at_most(const double *sorted, unsigned n, double part)
{
	unsigned i = (unsigned)(part * n);

	return sorted[i < n ? i : n - 1];
}

static json_t *histogram(const double *totals, unsigned n)
{
	json_t *list = json_array();
	double above = 0, most = BUCKET_US;

	for (unsigned k = 0; k < BUCKETS; k++, above = most, most *= 2) {
		unsigned found = 0;

		for (unsigned i = 0; i < n; i++)
			found += totals[i] > above && (totals[i] <= most || k == BUCKETS - 1);
		if (found > 0)
			json_array_append_new(list, json_pack("{s:f, s:i}", "to_us", most, "failovers", (int)found));
	}
	return list;
}

static int measure(struct failover *at, enum way way, struct smr_bed *bed)
{
	struct smr_task task = {.killed = way == KILLED, .result = at};

	at->way = way;
	return smr_side_together(follow, lead, &task, bed);
}

static double median_of(const struct failover *list, unsigned n, size_t member)
{
	return bench_median_at(list, n, sizeof(*list), member);
}

static void report(const struct failover *list, double *totals, unsigned n, json_t *rows, FILE *log)
{
	double median = bench_median(totals, n); /* sorts them */
	double seen = median_of(list, n, offsetof(struct failover, seen_us));
	double detected = median_of(list, n, offsetof(struct failover, detected_us));
	double granted = median_of(list, n, offsetof(struct failover, granted_us));
	double leading = median_of(list, n, offsetof(struct failover, leading_us));

	fprintf(log,
		"  leader %s, %u times: another leads after %.0f us (median), p99 %.0f, longest %.0f; last seen %.0f, "
		"detected %.0f, granted %.0f, leading %.0f (medians)\n",
		ways[list->way], n, median, at_most(totals, n, 0.99), totals[n - 1], seen, detected, granted, leading);
	json_array_append_new(
		rows, json_pack("{s:s, s:f, s:f, s:f, s:i, s:f, s:f, s:f, s:f, s:o}", "leader", ways[list->way],
			      "median_us", median, "p99_us", at_most(totals, n, 0.99), "longest_us", totals[n - 1],
			      "failovers", (int)n, "seen_us", seen, "detected_us", detected, "granted_us", granted,
			      "leading_us", leading, "histogram", histogram(totals, n)));
}

bool smr_failovers(unsigned count, struct smr_bed *bed, json_t *all, FILE *log)
{
	static struct failover list[SMR_FAILOVERS_MAX];
	double totals[SMR_FAILOVERS_MAX];
	json_t *rows = json_array();

	json_object_set_new(all, "failover", rows);
	for (enum way way = ASLEEP; way < WAYS; way++) {
		unsigned n = way == KILLED ? KILLS(count) : HALF(count);

		for (unsigned i = 0; i < n; i++) {
			if (measure(&list[i], way, bed) != 0)
				return false;
			totals[i] = list[i].total_us;
		}
		report(list, totals, n, rows, log);
	}
	return true;
}
