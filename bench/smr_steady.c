/* What must not hold a leader up.
 *
 *   undisturbed   nothing, for comparison
 *   cut           its rails, one after the other, each mended before the next one is cut
 *   stopped       a follower, while the ring goes round many times; continued, it has to take a snapshot
 *   killed        likewise; then another process takes its place
 *
 * The near process has the leader and one follower, the far one the other. A proposal counts from the end of the one
 * before: what the loop did in between delays it. */
#include <errno.h>
#include <stdlib.h>

#include <holdfast/env.h>

#include "bench/smr.h"

#define WARM       20000u
#define TURN_EVERY 32u
#define SECOND_NS  1000000000ull
#define CUT_NS     20000000ull /* that a rail is away, and that it is back */
#define RETURN_NS  20000000000ull

enum way { UNDISTURBED, CUT, STOPPED, KILLED, WAYS };

static const char *const ways[WAYS] = {[UNDISTURBED] = "undisturbed",
	[CUT] = "rails cut",
	[STOPPED] = "follower stopped",
	[KILLED] = "follower killed"};

struct steady {
	enum way way;
	unsigned cuts, seconds, entries;
	/* found */
	uint64_t proposals, longest_ns, late; /* late: over 5 ms */
	uint64_t returned_ns;                 /* until the follower was in again */
	unsigned snapshots;
	bool alike; /* the follower has what the leader has */
	bool lost;  /* another member led: behind `done` cuts */
	unsigned done;
};

struct run {
	struct smr_side side;
	struct steady *at;
	uint64_t before_ns; /* end of the proposal before */
};

/* What a follower tells in the end. */
struct state {
	uint64_t entries, sum;
	unsigned snapshots;
};

/* ---- the follower ---- */

static int follow(struct bench_meeting *meeting, void *context)
{
	struct smr_side side = {0};
	const struct smr_counter *counter = &side.counters[2];
	struct state state, other;
	int rc = smr_side_follow(&side, meeting, false, context);

	while (rc == 0 && !bench_other_left(meeting, false) && !bench_asked(meeting, false))
		(void)hf_loop_turn(side.bed.loop, 1000000);
	state = (struct state){.entries = counter->entries, .sum = counter->sum, .snapshots = counter->snapshots};
	if (rc == 0 && bench_asked(meeting, false) && !bench_swap(meeting, false, &state, &other, sizeof(state)))
		rc = -EPIPE;
	smr_side_close(&side);
	return rc;
}

/* ---- the leader ---- */

/* The loop turns also while there is no answer: it is what changes to another rail. */
static int propose(struct run *run)
{
	static const uint8_t data[SMR_BYTES];
	struct hf_smr_call call = {.done = smr_side_answered, .data = data, .bytes = SMR_BYTES};
	struct steady *at = run->at;
	uint64_t end_ns, took_ns;

	if (hf_smr_propose(run->side.members[0], &call) != 0)
		return -EIO;
	for (unsigned i = 1; call.data != NULL; i++) {
		hf_smr_flush(run->side.members[0]);
		if (i % TURN_EVERY == 0)
			(void)hf_loop_turn(run->side.bed.loop, 0);
	}
	if (call.outcome != HF_SMR_DECIDED)
		return -EIO;
	if (++at->proposals % TURN_EVERY == 0)
		(void)hf_loop_turn(run->side.bed.loop, 0);
	end_ns = hf_env_now_ns(hf_env_host());
	took_ns = end_ns - run->before_ns;
	run->before_ns = end_ns;
	at->longest_ns = took_ns > at->longest_ns ? took_ns : at->longest_ns;
	at->late += took_ns > 5000000;
	return 0;
}

static int propose_for(struct run *run, uint64_t ns, unsigned entries)
{
	uint64_t until_ns = run->before_ns + ns, until = run->at->proposals + entries;
	int rc = 0;

	while (rc == 0 && (run->before_ns < until_ns || run->at->proposals < until))
		rc = propose(run);
	return rc;
}

static int cut_rails(struct run *run)
{
	int rc = 0;

	for (unsigned i = 0; rc == 0 && i < run->at->cuts; i++) {
		struct hf_dev *dev = hf_node_dev(run->side.nodes[0], i % 2);

		hf_dev_set_link(dev, HF_LINK_BOTH, false);
		rc = propose_for(run, CUT_NS, 0);
		hf_dev_set_link(dev, HF_LINK_BOTH, true);
		if (rc == 0)
			rc = propose_for(run, 2 * CUT_NS, 0);
		run->at->done += rc == 0;
	}
	run->at->lost = rc == -EIO;
	return rc == -EIO ? 0 : rc;
}

static int wait_for_return(struct run *run)
{
	uint64_t since_ns = run->before_ns;
	int rc = 0;

	do
		rc = run->before_ns - since_ns > RETURN_NS ? -ETIMEDOUT : propose_for(run, 1000000, 0);
	while (rc == 0 && !smr_side_all_follow(&run->side));
	run->at->returned_ns = run->before_ns - since_ns;
	return rc;
}

static int miss_follower(struct run *run, struct bench_meeting *meeting, struct smr_task *task)
{
	bool kills = run->at->way == KILLED;
	int pid = bench_own_pid(), other, rc;

	bench_stop_far(meeting, kills);
	rc = propose_for(run, run->at->seconds * SECOND_NS, run->at->entries);
	if (rc != 0)
		return rc;
	if (kills) {
		rc = bench_replace_far(meeting, follow, task);
		if (rc == 0 && !bench_swap(meeting, true, &pid, &other, sizeof(pid)))
			rc = -EPIPE;
		run->before_ns = hf_env_now_ns(hf_env_host()); /* making a process is no part of it */
	} else {
		bench_continue_far(meeting);
	}
	return rc == 0 ? wait_for_return(run) : rc;
}

static bool all_have_applied(const struct run *run)
{
	struct hf_smr_status status;

	if (!smr_side_all_follow(&run->side))
		return false;
	hf_smr_status(run->side.members[0], &status);
	for (unsigned i = 0; i < status.member_count; i++)
		if (status.members[i].applied != status.applied)
			return false;
	return true;
}

static int compare(struct run *run, struct bench_meeting *meeting)
{
	const struct smr_counter *counter = &run->side.counters[0];
	uint64_t end_ns = hf_env_now_ns(hf_env_host()) + RETURN_NS;
	struct state own = {.entries = counter->entries, .sum = counter->sum}, other = {0};

	while (!all_have_applied(run)) {
		if (hf_env_now_ns(hf_env_host()) > end_ns)
			return -ETIMEDOUT;
		(void)hf_loop_turn(run->side.bed.loop, 1000000);
	}
	if (!bench_swap(meeting, true, &own, &other, sizeof(own)))
		return -EPIPE;
	run->at->snapshots = other.snapshots;
	run->at->alike = own.entries == other.entries && own.sum == other.sum;
	return 0;
}

static int lead(struct bench_meeting *meeting, void *context)
{
	struct smr_task *task = context;
	struct steady *at = task->result;
	struct run run = {.at = at};
	int rc = smr_side_lead(&run.side, meeting, true, task);

	run.before_ns = hf_env_now_ns(hf_env_host());
	if (rc == 0 && propose_for(&run, 0, WARM) != 0)
		rc = -EAGAIN; /* the machine had no time for it */
	at->proposals = at->longest_ns = at->late = 0;
	if (rc == 0)
		rc = at->way == UNDISTURBED ? propose_for(&run, at->seconds * SECOND_NS, at->entries)
		     : at->way == CUT       ? cut_rails(&run)
					    : miss_follower(&run, meeting, task);
	if (rc == 0 && !at->lost)
		rc = compare(&run, meeting);
	if (rc == 0 && !at->lost && (run.side.led != 1 || !hf_smr_is_leader(run.side.members[0])))
		rc = -EIO;
	bench_continue_far(meeting);
	smr_side_close(&run.side);
	return rc;
}

/* ---- the report ---- */

static json_t *report(const struct steady *at, FILE *log)
{
	fprintf(log, "  %s: %llu proposals, the longest took %.2f ms, %llu more than 5 ms; ", ways[at->way],
		(unsigned long long)at->proposals, (double)at->longest_ns / 1e6, (unsigned long long)at->late);
	if (at->lost)
		fprintf(log, "another member led after %u cuts", at->done + 1);
	else
		fputs("no other member led, and a follower has the same state", log);
	if (at->way == STOPPED || at->way == KILLED)
		fprintf(log, ", by %u snapshots, %.0f ms after it returned", at->snapshots,
			(double)at->returned_ns / 1e6);
	fputs("\n", log);
	return json_pack("{s:s, s:I, s:f, s:I, s:b, s:i, s:i, s:f}", "disturbed_by", ways[at->way], "proposals",
		(json_int_t)at->proposals, "longest_us", (double)at->longest_ns / 1e3, "over_5_ms",
		(json_int_t)at->late, "leader_changed", (int)at->lost, "cuts", (int)at->done, "snapshots",
		(int)at->snapshots, "returned_us", (double)at->returned_ns / 1e3);
}

bool smr_steady(unsigned cuts, unsigned seconds, unsigned entries, struct smr_bed *bed, json_t *all, FILE *log)
{
	json_t *rows = json_array();

	json_object_set_new(all, "steady", rows);
	for (enum way way = UNDISTURBED; way < WAYS; way++) {
		struct steady at = {.way = way, .cuts = cuts, .seconds = seconds, .entries = entries};
		struct smr_task task = {.rails = 2, .two_near = true, .result = &at};
		int rc = smr_side_together(lead, follow, &task, bed);

		if (rc == 0 && !at.lost && (!at.alike || ((way == STOPPED || way == KILLED) && at.snapshots == 0))) {
			fprintf(stderr, "holdfast bench: %s: the follower has another state, or no snapshot\n",
				ways[way]);
			rc = -EIO;
		}
		if (rc != 0)
			return false;
		json_array_append_new(rows, report(&at, log));
	}
	return true;
}
