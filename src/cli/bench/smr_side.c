#include "cli/bench/smr.h"

#include <errno.h>
#include <string.h>

#define ATTEMPTS         20u
#define PATIENT_PULSE_NS 20000000u
#define CONTROL          18600u

static uint32_t apply(void *context, const struct hf_smr_applied *request, void *result)
{
	(void)context, (void)request, (void)result;
	return 0;
}

static void on_event(void *context, const struct hf_smr_event *event)
{
	struct smr_side *side = context;

	if (event->kind == HF_SMR_LEADING)
		side->led_ns = hf_env_now_ns(hf_env_host());
}

static int open_member(struct smr_side *side, unsigned id, int near_pid, const struct smr_task *task)
{
	static const struct hf_node_events events = {0};
	static const struct hf_smr_app app = {.apply = apply, .event = on_event};
	struct hf_smr_config replica = {.cluster = "bench",
		.id = (uint8_t)id,
		.members = side->who,
		.member_count = SMR_MEMBERS,
		.preset = HF_SMR_FAST,
		.slots = task->slots,
		.pulse_ns = task->patient ? PATIENT_PULSE_NS : 0,
		.stuck_ns = task->patient ? SMR_LIMIT_NS : 0,
		.patience_ns = task->patient ? SMR_LIMIT_NS : 0};
	struct hf_node_config config = {.rail_count = 1};
	int rc;

	for (unsigned i = 0; i < SMR_MEMBERS; i++) {
		char text[HF_ADDR_TEXT];

		side->who[i] = (struct hf_smr_member){.id = (uint8_t)i, .address_count = 1};
		snprintf(text, sizeof(text), "127.%u.%u.%u:%u", 200 + ((unsigned)near_pid >> 8) % 50,
			(unsigned)near_pid & 0xff, 1 + i + SMR_MEMBERS * (task->generation % 80), CONTROL);
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

void smr_side_close(struct smr_side *side)
{
	for (unsigned i = 0; i < SMR_MEMBERS; i++) {
		hf_smr_stop(side->members[i]);
		hf_node_close(side->nodes[i]);
	}
	hf_loop_destroy(side->loop);
}

static bool all_follow(const struct smr_side *side)
{
	struct hf_smr_status status;
	unsigned confirmed = 0;

	if (!hf_smr_is_leader(side->members[0]))
		return false;
	hf_smr_status(side->members[0], &status);
	for (unsigned i = 0; i < status.member_count; i++)
		confirmed += status.members[i].confirmed;
	return confirmed == SMR_MEMBERS;
}

/* Members first to last; the fabric has the name of the near process. */
static int open_side(struct smr_side *side, struct bench_meeting *meeting, bool near, unsigned first, unsigned last,
	const struct smr_task *task)
{
	int pid = bench_own_pid(), other = 0, rc;

	if (!bench_swap(meeting, near, &pid, &other, sizeof(pid)))
		return -EPIPE;
	rc = hf_loop_create(hf_env_host(), &side->loop);
	if (rc == 0)
		hf_loop_set_slack(side->loop, 1000);
	for (unsigned id = first; rc == 0 && id <= last; id++)
		rc = open_member(side, id, near ? pid : other, task);
	if (rc != 0)
		fprintf(stderr, "holdfast bench: %s\n", side->error.text);
	return rc;
}

int smr_side_lead(struct smr_side *side, struct bench_meeting *meeting, bool near, const struct smr_task *task)
{
	uint64_t end_ns = hf_env_now_ns(hf_env_host()) + SMR_LIMIT_NS;
	int rc = open_side(side, meeting, near, 0, 0, task);

	while (rc == 0 && !all_follow(side)) {
		(void)hf_loop_turn(side->loop, 1000000);
		if (hf_env_now_ns(hf_env_host()) > end_ns || bench_other_left(meeting, near) ||
			hf_smr_leader(side->members[0]) > 0)
			return -EAGAIN;
	}
	return rc;
}

int smr_side_follow(struct smr_side *side, struct bench_meeting *meeting, bool near, const struct smr_task *task)
{
	return open_side(side, meeting, near, 1, SMR_MEMBERS - 1, task);
}

static void answered(struct hf_smr_call *call)
{
	call->data = NULL;
}

bool smr_side_propose(struct smr_side *side, const void *data, uint32_t *ns_out)
{
	struct hf_smr_call call = {.done = answered, .data = data, .bytes = SMR_BYTES};
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

int smr_side_together(int (*near)(struct bench_meeting *, void *), int (*far)(struct bench_meeting *, void *),
	struct smr_task *task, unsigned *generation)
{
	int rc = -EAGAIN;

	for (unsigned i = 0; i < ATTEMPTS && rc == -EAGAIN; i++) {
		task->generation = (*generation)++;
		rc = bench_together(near, far, task);
		if (rc == -ECHILD && task->killed)
			rc = 0;
	}
	if (rc != 0)
		fprintf(stderr, "holdfast bench: %u clusters did not come to a leader here; is the machine busy?\n",
			ATTEMPTS);
	return rc;
}
