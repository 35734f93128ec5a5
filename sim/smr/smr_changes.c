#include "sim/smr/smr_changes.h"

#include <errno.h>

#include "sim/smr/smr_watch.h"

#define LEAST        3u
#define LEAST_DOWN   2u /* while a member is down: it goes, or the one that is refused does */
#define PAUSE_NS     (5 * NS_MS)
#define PAUSE_NS_MAX (60 * NS_MS)

static struct smr_sim_member *leader_of(struct smr_sim *sim, struct hf_smr_status *status_out)
{
	for (unsigned i = 0; i < sim->count; i++)
		if (sim->members[i].smr != NULL && hf_smr_is_leader(sim->members[i].smr)) {
			hf_smr_status(sim->members[i].smr, status_out);
			return &sim->members[i];
		}
	return NULL;
}

static bool all_follow(const struct hf_smr_status *status)
{
	for (unsigned i = 0; i < status->member_count; i++)
		if (!status->members[i].confirmed || !status->members[i].alive)
			return false;
	return true;
}

static void done(struct hf_smr_call *call)
{
	struct smr_changes *changes = container_of(call, struct smr_changes, call);

	if (call->outcome == HF_SMR_DECIDED)
		smr_watch_settled(changes->leader);
	world_note(changes->sim->world, "smr-changed", (uint64_t)call->outcome);
	changes->sim->changing = false;
	if (call->outcome == HF_SMR_DECIDED && changes->adds)
		changes->added++;
	else if (call->outcome == HF_SMR_DECIDED)
		changes->removed++;
}

static bool is_listed(const struct hf_smr_status *status, unsigned id)
{
	for (unsigned i = 0; i < status->member_count; i++)
		if (status->members[i].id == id)
			return true;
	return false;
}

/* Its operator starts the process anew before it is added. */
static int add(struct smr_changes *changes, struct smr_sim_member *leader, unsigned id)
{
	struct process *process = changes->sim->members[id].endpoint.process;

	if (process->host->stopped)
		return -EBUSY;
	if (process->running)
		process_crash(process);
	process_start(process);
	changes->adds = true;
	return hf_smr_add(leader->smr, &changes->sim->who[id], &changes->call);
}

static int change_one(struct smr_changes *changes)
{
	struct smr_sim *sim = changes->sim;
	struct hf_smr_status status;
	struct smr_sim_member *leader = leader_of(sim, &status);
	unsigned id = (unsigned)world_range(sim->world, 0, sim->count - 1);
	bool whole = leader != NULL && all_follow(&status);
	int rc;

	if (sim->changing || leader == NULL || leader->endpoint.process->paused)
		return -EBUSY;
	changes->call = (struct hf_smr_call){.done = done};
	changes->leader = leader;
	if (!is_listed(&status, id))
		return whole ? add(changes, leader, id) : -EBUSY;
	if (status.member_count <= (whole ? LEAST : LEAST_DOWN))
		return -EBUSY;
	changes->adds = false;
	rc = hf_smr_remove(leader->smr, (uint8_t)id, &changes->call);
	changes->refused += rc == -EHOSTDOWN;
	if (rc == -EHOSTDOWN && whole)
		world_violate(sim->world, "members", "a removal is refused although all follow");
	return rc;
}

static void change(struct world_event *event)
{
	struct smr_changes *changes = container_of(event, struct smr_changes, event);
	struct smr_sim *sim = changes->sim;

	if (sim->world->now_ns >= changes->until_ns)
		return;
	if (change_one(changes) == 0)
		sim->changing = true;
	world_schedule(sim->world, event, sim->world->now_ns + world_range(sim->world, PAUSE_NS, PAUSE_NS_MAX));
}

void smr_changes_begin(struct smr_changes *changes, struct smr_sim *sim, uint64_t until_ns)
{
	*changes = (struct smr_changes){.sim = sim, .until_ns = until_ns};
	changes->event.what = "change";
	changes->event.fire = change;
	changes->event.outermost = true;
	world_schedule(sim->world, &changes->event, sim->world->now_ns + PAUSE_NS);
}
