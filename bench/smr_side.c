#include "bench/smr.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define LOOK_NS          1000000u
#define ATTEMPTS         20u
#define PATIENT_PULSE_NS 20000000u

static uint32_t apply(void *context, const struct hf_smr_applied *request, void *result)
{
	struct smr_counter *counter = context;

	(void)result;
	counter->entries++;
	counter->sum = (counter->sum + request->index) * 31;
	return 0;
}

static int snapshot_open(void *context, void **snapshot_out)
{
	struct smr_counter *copy = malloc(sizeof(*copy));

	if (copy == NULL)
		return -ENOMEM;
	*copy = *(struct smr_counter *)context;
	copy->snapshots = 0; /* pieces that were read */
	*snapshot_out = copy;
	return 0;
}

static ssize_t snapshot_read(void *context, void *snapshot, void *data, size_t bytes)
{
	struct smr_counter *copy = snapshot;

	(void)context;
	if (copy->snapshots++ > 0 || bytes < 16)
		return 0;
	memcpy(data, &copy->entries, 8);
	memcpy((uint8_t *)data + 8, &copy->sum, 8);
	return 16;
}

static void snapshot_close(void *context, void *snapshot)
{
	(void)context;
	free(snapshot);
}

static int restore_open(void *context)
{
	struct smr_counter *counter = context;

	counter->entries = counter->sum = 0;
	return 0;
}

static int restore_write(void *context, const void *data, size_t bytes)
{
	struct smr_counter *counter = context;

	if (bytes != 16)
		return -EINVAL;
	memcpy(&counter->entries, data, 8);
	memcpy(&counter->sum, (const uint8_t *)data + 8, 8);
	return 0;
}

static int restore_close(void *context, bool whole)
{
	struct smr_counter *counter = context;

	counter->snapshots += whole;
	return 0;
}

static void on_event(void *context, const struct hf_smr_event *event)
{
	struct smr_side *side = ((struct smr_counter *)context)->side;

	if (event->kind != HF_SMR_LEADING)
		return;
	side->led_ns = hf_env_now_ns(hf_env_host());
	side->led++;
}

static unsigned place_of(unsigned id, const struct smr_task *task)
{
	return id + SMR_MEMBERS * (task->bed->generation % (BED_PLACES / SMR_MEMBERS));
}

/* Where it is, and how its node is configured. */
static void place_member(
	struct smr_side *side, unsigned id, unsigned rails, const struct smr_task *task, struct hf_node_config *config)
{
	const struct smr_bed *of = task->bed;
	char name[HF_NAME_BYTES];

	snprintf(name, sizeof(name), "m%u-", of->generation);
	bed_configure(&side->bed, name, id, of->kind, rails, place_of(id, task), config);
	side->who[id] = (struct hf_smr_member){.id = (uint8_t)id, .address_count = rails};
	for (unsigned rail = 0; rail < rails; rail++) {
		side->who[id].addresses[rail] = config->rails[rail].control;
		if (strcmp(of->kind, "verbs") == 0) {
			config->rails[rail].address = of->devices[id];
			hf_addr_set_port(&config->rails[rail].address, 0);
		}
	}
}

static int open_member(struct smr_side *side, unsigned id, const struct smr_task *task)
{
	static const struct hf_node_events events = {0};
	static const struct hf_smr_app app = {.apply = apply,
		.snapshot_open = snapshot_open,
		.snapshot_read = snapshot_read,
		.snapshot_close = snapshot_close,
		.restore_open = restore_open,
		.restore_write = restore_write,
		.restore_close = restore_close,
		.event = on_event};
	struct hf_smr_config replica = {.cluster = "bench",
		.id = (uint8_t)id,
		.members = side->who,
		.member_count = SMR_MEMBERS,
		.preset = HF_SMR_FAST,
		.slots = task->slots,
		.pulse_ns = task->patient ? PATIENT_PULSE_NS : 0,
		.stuck_ns = task->patient ? SMR_LIMIT_NS : 0,
		.patience_ns = task->patient ? SMR_LIMIT_NS : 0};
	unsigned rails = task->rails == 0 ? 1 : task->rails;
	struct hf_node_config config, other;
	char directory[192];
	int rc;

	if (task->directory != NULL) {
		(void)snprintf(
			directory, sizeof(directory), "%.150s/%u-%u", task->directory, task->bed->generation, id);
		replica.directory = directory;
	}
	for (unsigned i = 0; i < SMR_MEMBERS; i++)
		place_member(side, i, rails, task, i == id ? &config : &other);
	side->counters[id] = (struct smr_counter){.side = side};
	rc = bed_node(&side->bed, &config, &events, side, &side->nodes[id]);
	if (rc == 0)
		rc = hf_smr_start(
			side->nodes[id], &replica, &app, &side->counters[id], &side->members[id], &side->bed.error);
	return rc;
}

void smr_side_close(struct smr_side *side)
{
	for (unsigned i = 0; i < SMR_MEMBERS; i++)
		hf_smr_stop(side->members[i]);
	bed_close(&side->bed);
}

bool smr_side_all_follow(const struct smr_side *side)
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

/* A vqp that is cut before its peer's other rail is there has nowhere to go. */
static bool all_rails_are_up(const struct smr_side *side, const struct smr_task *task)
{
	for (unsigned i = 1; i < SMR_MEMBERS; i++) {
		const struct hf_peer *peer = hf_peer_find(side->nodes[0], &side->who[i].addresses[0]);

		if (peer == NULL)
			return false;
		for (unsigned rail = 0; rail < task->rails; rail++)
			if (hf_peer_rail(peer, rail) != HF_RAIL_UP)
				return false;
	}
	return true;
}

/* Members first to last; the fabric has the name of the near process. */
static int open_side(struct smr_side *side, struct bench_meeting *meeting, bool near, unsigned first, unsigned last,
	const struct smr_task *task)
{
	int rc = bed_open(&side->bed, meeting, near);

	if (rc == 0)
		hf_loop_set_slack(side->bed.loop, 1000);
	for (unsigned id = first; rc == 0 && id <= last; id++)
		rc = open_member(side, id, task);
	if (rc != 0)
		fprintf(stderr, "holdfast bench: %s\n", side->bed.error.text);
	return rc;
}

int smr_side_lead(struct smr_side *side, struct bench_meeting *meeting, bool near, const struct smr_task *task)
{
	uint64_t end_ns = hf_env_now_ns(hf_env_host()) + SMR_LIMIT_NS;
	int rc = open_side(side, meeting, near, 0, task->two_near ? 1 : 0, task);

	while (rc == 0 && !(smr_side_all_follow(side) && all_rails_are_up(side, task))) {
		(void)hf_loop_turn(side->bed.loop, 1000000);
		if (hf_env_now_ns(hf_env_host()) > end_ns || bench_other_left(meeting, near) ||
			hf_smr_leader(side->members[0]) > 0)
			return -EAGAIN;
	}
	return rc;
}

int smr_side_follow(struct smr_side *side, struct bench_meeting *meeting, bool near, const struct smr_task *task)
{
	return open_side(side, meeting, near, task->two_near ? 2 : 1, SMR_MEMBERS - 1, task);
}

int smr_side_only_follow(struct bench_meeting *meeting, void *context)
{
	const struct smr_task *task = context;
	struct smr_side side = {0};
	int rc = smr_side_follow(&side, meeting, false, task);

	while (rc == 0 && !bench_other_left(meeting, false))
		(void)hf_loop_turn(side.bed.loop, task->look_ns == 0 ? LOOK_NS : task->look_ns);
	smr_side_close(&side);
	return rc;
}

void smr_side_answered(struct hf_smr_call *call)
{
	call->data = NULL;
}

bool smr_side_propose(struct smr_side *side, const void *data, uint32_t *ns_out)
{
	struct hf_smr_call call = {.done = smr_side_answered, .data = data, .bytes = SMR_BYTES};
	struct hf_env *env = hf_env_host();
	uint64_t start_ns = hf_env_now_ns(env);

	if (hf_smr_propose(side->members[0], &call) != 0)
		return false;
	for (unsigned i = 0; call.data != NULL; i++) {
		hf_smr_flush(side->members[0]);
		if (i % 4096 == 4095)
			(void)hf_loop_turn(side->bed.loop, 0);
	}
	*ns_out = (uint32_t)(hf_env_now_ns(env) - start_ns);
	return call.outcome == HF_SMR_DECIDED;
}

int smr_side_together(int (*near)(struct bench_meeting *, void *), int (*far)(struct bench_meeting *, void *),
	struct smr_task *task, struct smr_bed *bed)
{
	int rc = -EAGAIN;

	task->bed = bed;
	for (unsigned i = 0; i < ATTEMPTS && rc == -EAGAIN; i++) {
		bed->generation++;
		rc = bench_together(near, far, task);
		if (rc == -ECHILD && task->killed)
			rc = 0;
	}
	if (rc != 0)
		fprintf(stderr, "holdfast bench: %u clusters did not come to a leader here; is the machine busy?\n",
			ATTEMPTS);
	return rc;
}
