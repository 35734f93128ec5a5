/* holdfast bench smr: what a proposal costs, and how long nobody leads.
 *
 * Three members over shm. The near process, on the first core, has the member that leads; the far one, on the second
 * core, turns the loop of both followers. In a round a bare cache line is measured before and behind. For a failover
 * the near process stands still, as one that the kernel has stopped does, until another member leads. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <holdfast/smr.h>

#include "cli/bench/bench.h"

#define MEMBERS          3u
#define ROUNDS_DEFAULT   11u
#define ROUNDS_MAX       99u
#define PROPOSALS        100000u
#define WARM             2000u
#define BYTES            64u
#define ATTEMPTS         20u
#define FAILOVERS        20u
#define LIMIT_NS         5000000000ull
#define PATIENT_PULSE_NS 20000000u
#define CONTROL          18600u
#define CALLS_MAX        (HF_SMR_BATCH_MAX * HF_SMR_WINDOW_MAX)

struct side {
	struct hf_loop *loop;
	struct hf_node *nodes[MEMBERS];
	struct hf_smr *members[MEMBERS];
	struct hf_smr_member who[MEMBERS];
	uint64_t led_ns; /* when a member of this side began to lead */
	struct hf_error error;
};

struct latency {
	double line_before, line_after, median, p99, p999;
	double batch_rate[2]; /* requests a second: 1 in flight, and as many as there may be */
};
struct failover {
	double total_us, detected_us, granted_us, leading_us;
};
struct task {
	unsigned generation; /* tells the members of one measurement from those before */
	bool patient;        /* nobody else leads, though this process does not run for a while */
	struct latency latency;
	struct failover failover;
};

static uint32_t apply(void *context, const struct hf_smr_applied *request, void *result)
{
	(void)context, (void)request, (void)result;
	return 0;
}

static void on_event(void *context, const struct hf_smr_event *event)
{
	struct side *side = context;

	if (event->kind == HF_SMR_LEADING)
		side->led_ns = hf_env_now_ns(hf_env_host());
}

/* ---- three members ---- */

static int open_member(struct side *side, unsigned id, int near_pid, const struct task *task)
{
	static const struct hf_node_events events = {0};
	static const struct hf_smr_app app = {.apply = apply, .event = on_event};
	struct hf_smr_config replica = {.cluster = "bench",
		.id = (uint8_t)id,
		.members = side->who,
		.member_count = MEMBERS,
		.preset = HF_SMR_FAST,
		.slots = 65536,
		.pulse_ns = task->patient ? PATIENT_PULSE_NS : 0,
		.stuck_ns = task->patient ? LIMIT_NS : 0,
		.patience_ns = task->patient ? LIMIT_NS : 0};
	struct hf_node_config config = {.rail_count = 1};
	int rc;

	for (unsigned i = 0; i < MEMBERS; i++) {
		char text[HF_ADDR_TEXT];

		side->who[i] = (struct hf_smr_member){.id = (uint8_t)i, .address_count = 1};
		snprintf(text, sizeof(text), "127.%u.%u.%u:%u", 200 + ((unsigned)near_pid >> 8) % 50,
			(unsigned)near_pid & 0xff, 1 + i + MEMBERS * (task->generation % 80), CONTROL);
		if (hf_addr_parse(text, &side->who[i].addresses[0]) != 0)
			return hf_error_set(&side->error, -1, "%s is no address", text);
	}
	snprintf(config.name, sizeof(config.name), "m%u-%u", task->generation, id);
	bench_fabric_name(config.fabric, near_pid);
	snprintf(config.rails[0].name, HF_NAME_BYTES, "r0");
	snprintf(config.rails[0].kind, HF_NAME_BYTES, "shm");
	config.rails[0].control = side->who[id].addresses[0];
	config.rails[0].address = config.rails[0].control;
	hf_addr_set_port(&config.rails[0].address, 0);
	rc = hf_node_open(side->loop, &config, &events, side, &side->nodes[id], &side->error);
	if (rc == 0)
		rc = hf_smr_start(side->nodes[id], &replica, &app, side, &side->members[id], &side->error);
	return rc;
}

static void close_side(struct side *side)
{
	for (unsigned i = 0; i < MEMBERS; i++) {
		hf_smr_stop(side->members[i]);
		hf_node_close(side->nodes[i]);
	}
	hf_loop_destroy(side->loop);
}

static bool all_follow(const struct side *side)
{
	struct hf_smr_status status;
	unsigned confirmed = 0;

	if (!hf_smr_is_leader(side->members[0]))
		return false;
	hf_smr_status(side->members[0], &status);
	for (unsigned i = 0; i < status.member_count; i++)
		confirmed += status.members[i].confirmed;
	return confirmed == MEMBERS;
}

static int far_side(struct bench_meeting *meeting, void *context)
{
	const struct task *task = context;
	struct side side = {0};
	int pid = bench_own_pid(), near_pid = 0, rc;
	struct failover failover = {0};
	struct hf_smr_status status;

	if (!bench_swap(meeting, false, &pid, &near_pid, sizeof(pid)))
		return -1;
	rc = hf_loop_create(hf_env_host(), &side.loop);
	if (rc != 0)
		return rc;
	hf_loop_set_slack(side.loop, 1000);
	for (unsigned id = 1; rc == 0 && id < MEMBERS; id++)
		rc = open_member(&side, id, near_pid, task);
	while (rc == 0 && !bench_other_left(meeting, false) && !(side.led_ns != 0 && bench_asked(meeting, false)))
		(void)hf_loop_turn(side.loop, 1000000);
	for (unsigned id = 1; rc == 0 && id < MEMBERS; id++) {
		if (!hf_smr_is_leader(side.members[id]))
			continue;
		hf_smr_status(side.members[id], &status);
		failover = (struct failover){.total_us = (double)side.led_ns,
			.detected_us = (double)status.failovers[0].detected_ns / 1e3,
			.granted_us = (double)status.failovers[0].granted_ns / 1e3,
			.leading_us = (double)status.failovers[0].leading_ns / 1e3};
	}
	if (rc == 0 && side.led_ns != 0)
		(void)bench_swap(meeting, false, &failover, &(struct failover){0}, sizeof(failover));
	if (rc != 0)
		fprintf(stderr, "holdfast bench: %s\n", side.error.text);
	close_side(&side);
	return rc;
}

static int open_near(struct side *side, struct bench_meeting *meeting, const struct task *task)
{
	uint64_t end_ns = hf_env_now_ns(hf_env_host()) + LIMIT_NS;
	int pid = bench_own_pid(), far_pid, rc;

	if (!bench_swap(meeting, true, &pid, &far_pid, sizeof(pid)))
		return -1;
	rc = hf_loop_create(hf_env_host(), &side->loop);
	if (rc == 0)
		rc = open_member(side, 0, pid, task);
	while (rc == 0 && !all_follow(side)) {
		(void)hf_loop_turn(side->loop, 1000000);
		if (hf_env_now_ns(hf_env_host()) > end_ns || bench_other_left(meeting, true) ||
			hf_smr_leader(side->members[0]) > 0)
			return -EAGAIN;
	}
	if (rc != 0)
		fprintf(stderr, "holdfast bench: %s\n", side->error.text);
	return rc;
}

/* ---- latency ---- */

static int by_value(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

static void answered(struct hf_smr_call *call)
{
	call->data = NULL;
}

static bool propose_one(struct side *side, const void *data, uint32_t *ns_out)
{
	struct hf_smr_call call = {.done = answered, .data = data, .bytes = BYTES};
	struct hf_env *env = hf_env_host();
	uint64_t start_ns = hf_env_now_ns(env);

	if (hf_smr_propose(side->members[0], &call) != 0)
		return false;
	for (unsigned i = 0; call.data != NULL; i++) {
		hf_smr_flush(side->members[0]);
		if (i % 4096 == 4095)
			(void)hf_loop_turn(side->loop, 0);
	}
	*ns_out = (uint32_t)(hf_env_now_ns(env) - start_ns);
	return call.outcome == HF_SMR_DECIDED;
}

/* Requests a second, with so many at a time. */
static double rate_of(struct side *side, const void *data, unsigned at_a_time, unsigned total)
{
	static struct hf_smr_call calls[CALLS_MAX];
	uint64_t start_ns = hf_env_now_ns(hf_env_host());
	unsigned flushes = 0;

	for (unsigned left = total; left > 0; left -= at_a_time) {
		unsigned busy = at_a_time;

		for (unsigned i = 0; i < at_a_time; i++) {
			calls[i] = (struct hf_smr_call){.done = answered, .data = data, .bytes = BYTES};
			if (hf_smr_propose(side->members[0], &calls[i]) != 0)
				return 0;
		}
		while (busy > 0) {
			hf_smr_flush(side->members[0]);
			if (++flushes % 1024 == 0)
				(void)hf_loop_turn(side->loop, 0);
			busy = 0;
			for (unsigned i = 0; i < at_a_time; i++)
				busy += calls[i].data != NULL;
		}
		(void)hf_loop_turn(side->loop, 0);
	}
	return total / ((double)(hf_env_now_ns(hf_env_host()) - start_ns) / 1e9);
}

static int measure_latency(struct bench_meeting *meeting, void *context)
{
	static uint32_t times[PROPOSALS];
	static const uint8_t data[BYTES];
	struct task *task = context;
	struct side side = {0};
	uint32_t ns;
	int rc = open_near(&side, meeting, task);

	for (unsigned i = 0; rc == 0 && i < WARM; i++)
		rc = propose_one(&side, data, &ns) ? 0 : -EAGAIN;
	for (unsigned i = 0; rc == 0 && i < PROPOSALS; i++) {
		rc = propose_one(&side, data, &times[i]) ? 0 : -EAGAIN;
		if (i % 64 == 0)
			(void)hf_loop_turn(side.loop, 0);
	}
	if (rc == 0) {
		qsort(times, PROPOSALS, sizeof(times[0]), by_value);
		task->latency.median = times[PROPOSALS / 2];
		task->latency.p99 = times[PROPOSALS / 100 * 99];
		task->latency.p999 = times[PROPOSALS / 1000 * 999];
		task->latency.batch_rate[0] = rate_of(&side, data, HF_SMR_BATCH_MAX, 2000 * HF_SMR_BATCH_MAX);
		task->latency.batch_rate[1] = rate_of(&side, data, CALLS_MAX, 400 * CALLS_MAX);
		rc = task->latency.batch_rate[1] == 0 ? -EAGAIN : 0;
	}
	close_side(&side);
	return rc;
}

/* ---- failover ---- */

static int measure_failover(struct bench_meeting *meeting, void *context)
{
	static const uint8_t data[BYTES];
	struct task *task = context;
	struct side side = {0};
	uint64_t stopped_ns;
	uint32_t ns;
	int rc = open_near(&side, meeting, task);

	for (unsigned i = 0; rc == 0 && i < WARM; i++)
		rc = propose_one(&side, data, &ns) ? 0 : -EAGAIN;
	stopped_ns = hf_env_now_ns(hf_env_host());
	if (rc == 0 && !bench_swap(meeting, true, &task->failover, &task->failover, sizeof(task->failover)))
		rc = -1;
	task->failover.total_us = (task->failover.total_us - (double)stopped_ns) / 1e3;
	close_side(&side);
	return rc;
}

/* On a busy machine another member may come to lead first: others are made. */
static int together(int (*near)(struct bench_meeting *, void *), struct task *task, unsigned *generation)
{
	int rc = -EAGAIN;

	for (unsigned i = 0; i < ATTEMPTS && rc == -EAGAIN; i++) {
		task->generation = (*generation)++;
		rc = bench_together(near, far_side, task);
	}
	if (rc != 0)
		fprintf(stderr, "holdfast bench: %u clusters did not come to a leader here; is the machine busy?\n",
			ATTEMPTS);
	return rc;
}

/* ---- the report ---- */

static json_t *latencies(unsigned rounds, unsigned *generation, FILE *log)
{
	double medians[ROUNDS_MAX], tails[ROUNDS_MAX], lines[ROUNDS_MAX];
	unsigned n = 0;

	for (unsigned i = 0; i < rounds; i++) {
		struct task task = {.patient = true};
		struct latency *at = &task.latency;
		int rc = bench_cache_line_ns(&at->line_before);

		if (rc == 0)
			rc = together(measure_latency, &task, generation);
		if (rc != 0 || bench_cache_line_ns(&at->line_after) != 0)
			return NULL;
		fprintf(log,
			"  propose of 64 B: median %5.0f ns, p99 %5.0f, p99.9 %6.0f; cache line %3.0f %3.0f ns; "
			"batches of 128: %.2f M/s, 8 in flight: %.2f M/s\n",
			at->median, at->p99, at->p999, at->line_before, at->line_after, at->batch_rate[0] / 1e6,
			at->batch_rate[1] / 1e6);
		medians[n] = at->median;
		lines[n] = at->line_before;
		tails[n++] = at->p99;
	}
	return json_pack("{s:s, s:f, s:f, s:f, s:i}", "name", "smr_propose_64", "median_ns", bench_median(medians, n),
		"p99_ns", bench_median(tails, n), "cache_line_ns", bench_median(lines, n), "rounds", (int)n);
}

static json_t *failovers(unsigned *generation, FILE *log)
{
	double totals[FAILOVERS], median;
	unsigned n = 0;

	for (unsigned i = 0; i < FAILOVERS; i++) {
		struct task task = {.patient = false};
		const struct failover *at = &task.failover;

		if (together(measure_failover, &task, generation) != 0)
			return NULL;
		fprintf(log,
			"  leader stopped: another leads after %7.1f us (detected %.1f, granted %.1f, leading %.1f)\n",
			at->total_us, at->detected_us, at->granted_us, at->leading_us);
		totals[n++] = at->total_us;
	}
	median = bench_median(totals, n); /* sorts them */
	return json_pack("{s:s, s:f, s:f, s:i}", "name", "smr_failover", "median_us", median, "longest_us",
		totals[n - 1], "failovers", (int)n);
}

int bench_smr(int argc, char **argv)
{
	unsigned rounds = ROUNDS_DEFAULT, generation = 0;
	json_t *array = json_array(), *latency, *failover;
	bool json = false;
	FILE *log;
	int status;

	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--json") == 0)
			json = true;
		else if (strcmp(argv[i], "--rounds") == 0 && i + 1 < argc)
			rounds = (unsigned)strtoul(argv[++i], NULL, 10);
		else
			return bench_refuse("there is no option", argv[i]);
	}
	if (rounds == 0 || rounds > ROUNDS_MAX)
		return bench_refuse("--rounds takes 1 to 99, not", "that");
	log = json ? stderr : stdout;
	latency = latencies(rounds, &generation, log);
	failover = latency == NULL ? NULL : failovers(&generation, log);
	status = latency == NULL || failover == NULL;
	if (latency != NULL)
		(void)json_array_append_new(array, latency);
	if (failover != NULL)
		(void)json_array_append_new(array, failover);
	(void)json_dumpf(array, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
	puts("");
	json_decref(array);
	return status;
}
