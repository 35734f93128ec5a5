/* What a durable proposal costs: an entry is decided when a majority has synced it to its disk. The leader has a
 * process and both followers another one, each member a directory. */
#include <errno.h>

#include "bench/smr.h"

#define PROPOSALS 1000u
#define WARM      50u

struct latency {
	double median, p99;
};

/* What goes to a disk comes back on the loop, which turns meanwhile. */
static bool propose(struct smr_side *side, uint32_t *ns_out)
{
	static const uint8_t data[SMR_BYTES];
	struct hf_smr_call call = {.done = smr_side_answered, .data = data, .bytes = SMR_BYTES};
	struct hf_env *env = hf_env_host();
	uint64_t start_ns = hf_env_now_ns(env);

	if (hf_smr_propose(side->members[0], &call) != 0)
		return false;
	while (call.data != NULL)
		(void)hf_loop_turn(side->bed.loop, 1000000);
	*ns_out = (uint32_t)(hf_env_now_ns(env) - start_ns);
	return call.outcome == HF_SMR_DECIDED;
}

static int measure(struct bench_meeting *meeting, void *context)
{
	static uint32_t times[PROPOSALS];
	const struct smr_task *task = context;
	struct latency *at = task->result;
	struct smr_side side = {0};
	uint32_t ns;
	int rc = smr_side_lead(&side, meeting, true, task);

	for (unsigned i = 0; rc == 0 && i < WARM; i++)
		rc = propose(&side, &ns) ? 0 : -EAGAIN;
	for (unsigned i = 0; rc == 0 && i < PROPOSALS; i++)
		rc = propose(&side, &times[i]) ? 0 : -EAGAIN;
	bench_sort_times(times, PROPOSALS);
	at->median = times[PROPOSALS / 2];
	at->p99 = times[PROPOSALS / 100 * 99];
	smr_side_close(&side);
	return rc;
}

bool smr_durable(const char *directory, struct smr_bed *bed, json_t *all, FILE *log)
{
	struct latency latency = {0};
	struct smr_task task = {.patient = true, .directory = directory, .look_ns = 50000, .result = &latency};

	if (smr_side_together(measure, smr_side_only_follow, &task, bed) != 0)
		return false;
	fprintf(log, "  durable proposal of 64 B: median %.0f us, p99 %.0f\n", latency.median / 1e3, latency.p99 / 1e3);
	json_object_set_new(all, "durable",
		json_pack("[{s:f, s:f, s:i}]", "median_ns", latency.median, "p99_ns", latency.p99, "proposals",
			(int)PROPOSALS));
	return true;
}
