#include "sim/smr/smr_nodes.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/ensure.h"
#include "sim/disk.h"
#include "sim/smr/smr_clients.h"
#include "sim/smr/smr_watch.h"
#include "smr/durable.h"

#define CONTROL_PORT   7000u
#define REST_NS_MAX    (1 * NS_MS)
#define OPS_KEPT       200u /* until all has healed */
#define HEARTBEAT_NS   (5 * NS_MS)
#define FAILBACK_NS    (20 * NS_MS)
#define BUDGET_NS      (2 * NS_S)
#define RESTART_NS_MAX (50 * NS_MS)
#define QP_TIMEOUT     8 /* 1 ms */
#define QP_RETRY_CNT   2

/* ---- the application ---- */

static uint32_t apply(void *context, const struct hf_smr_applied *request, void *result)
{
	struct smr_sim_member *member = context;
	uint32_t op = request->bytes < 4 ? UINT32_MAX : get_le32(request->data);

	for (uint32_t i = 4; i < request->bytes; i++)
		if (((const uint8_t *)request->data)[i] != (uint8_t)(op + i)) {
			world_violate(member->sim->world, "proposed", "request %u is applied with other bytes", op);
			break;
		}
	replicas_apply(member->sim->replicas, member->id, request->index << 8 | request->position, op);
	put_le32(result, op + 1);
	return 4;
}

/* The state is how many were applied; its snapshot has pieces. */
struct snapshot {
	uint32_t place, pieces;
	uint64_t until; /* index: its pieces are not there before that is applied */
};

static int snapshot_open(void *context, void **snapshot_out)
{
	struct smr_sim_member *member = context;
	struct snapshot *snapshot = malloc(sizeof(*snapshot));

	ensure(snapshot != NULL);
	*snapshot = (struct snapshot){.place = member->sim->replicas->next[member->id],
		.pieces = (uint32_t)world_range(member->sim->world, 1, 20),
		.until = member->sim->laps * (uint64_t)member->sim->config.slots};
	if (snapshot->until > 0)
		snapshot->until += member->smr->applied;
	member->snapshots++;
	*snapshot_out = snapshot;
	return 0;
}

static ssize_t snapshot_read(void *context, void *at, void *data, size_t bytes)
{
	struct smr_sim_member *member = context;
	struct snapshot *snapshot = at;

	if (world_chance(member->sim->world, 200000) ||
		(snapshot->until > member->smr->applied && member->sim->decided_since_quiet == 0))
		return -EAGAIN;
	if (snapshot->pieces == 0 || bytes < 8)
		return 0;
	put_le32(data, snapshot->place);
	put_le32((uint8_t *)data + 4, snapshot->pieces--);
	return 8;
}

static void snapshot_close(void *context, void *snapshot)
{
	struct smr_sim_member *member = context;

	member->snapshots--;
	free(snapshot);
}

static int restore_open(void *context)
{
	struct smr_sim_member *member = context;

	if (member->snapshots > 0)
		world_violate(member->sim->world, "snapshot", "member %u gives the state that it drops", member->id);
	member->restoring = true;
	member->restored_left = 0;
	return 0;
}

static int restore_write(void *context, const void *data, size_t bytes)
{
	struct smr_sim_member *member = context;
	const uint8_t *at = data;
	uint32_t left = get_le32(at + 4);

	if (world_chance(member->sim->world, 200000))
		return -EAGAIN;
	if (!member->restoring || bytes != 8 || (member->restored_left != 0 && left != member->restored_left - 1))
		world_violate(member->sim->world, "snapshot", "member %u gets pieces in another order", member->id);
	member->restored_left = left;
	member->restored_place = get_le32(at);
	return 0;
}

static int restore_close(void *context, bool whole)
{
	struct smr_sim_member *member = context;

	if (whole && member->restored_left != 1)
		world_violate(member->sim->world, "snapshot", "member %u lacks pieces", member->id);
	member->restoring = false;
	if (whole)
		replicas_restart(member->sim->replicas, member->id, member->restored_place);
	member->sim->restored += whole;
	return 0;
}

static void restart_soon(struct smr_sim_member *member)
{
	struct world *world = member->sim->world;

	world_schedule(world, &member->restart, world->now_ns + world_range(world, NS_MS, RESTART_NS_MAX));
}

static void event(void *context, const struct hf_smr_event *event)
{
	struct smr_sim_member *member = context;
	struct smr_sim *sim = member->sim;

	world_note(sim->world, "smr-event", (uint64_t)event->kind << 8 | member->id);
	if (event->kind == HF_SMR_LEADING) {
		/* One that stood still may learn late that it led; its own numbers grow, and nobody else has them. */
		if (event->number <= member->last_number || (event->number & 0xff) != member->id)
			world_violate(sim->world, "numbers", "member %u leads with number %llu after %llu", member->id,
				(unsigned long long)event->number, (unsigned long long)member->last_number);
		member->last_number = event->number;
		sim->led++;
		member->leads = true;
	} else if (event->kind == HF_SMR_FOLLOWING) {
		sim->aborts += member->leads;
		member->aborts += member->leads;
		member->leads = false;
	} else if (event->kind == HF_SMR_REMOVED || event->kind == HF_SMR_FAILED) {
		bool failed = event->kind == HF_SMR_FAILED;

		sim->aborts += member->leads;
		member->leads = false;
		member->out = true;
		if (!failed && smr_members_find(&member->smr->members, member->id) == NULL)
			smr_watch_settled(member); /* no other process has its place */
		if (event->reason != NULL && strstr(event->reason, "damaged") != NULL)
			world_violate(sim->world, "damage", "member %u: %s", member->id, event->reason);
		if (failed && member->endpoint.host.disk->bytes == 0 &&
			strstr(event->reason, "the disk is full") == NULL &&
			strstr(event->reason, "a device") == NULL && /* or its disk failed just then */
			strstr(event->reason, "Input/output error") == NULL)
			world_violate(
				sim->world, "words", "the disk of member %u is full: %s", member->id, event->reason);
		if (sim->durable)
			restart_soon(member);
	}
}

/* ---- clients: calls of the leader ---- */

static void done(struct hf_smr_call *hf_call)
{
	struct smr_sim_call *call = container_of(hf_call, struct smr_sim_call, call);
	struct smr_sim_member *member = call->member;
	struct smr_sim *sim = member->sim;

	world_note(sim->world, "smr-done", (uint64_t)hf_call->outcome << 32 | call->op);
	call->busy = false;
	if (call->reads) {
		if (hf_call->outcome == HF_SMR_DECIDED) {
			replicas_read_ends(sim->replicas, member->id, call->least);
			sim->reads++;
		}
		return;
	}
	if (call->client != NULL) {
		smr_client_done(call);
		return;
	}
	switch (hf_call->outcome) {
	case HF_SMR_DECIDED:
		if (hf_call->result_bytes != 4 || get_le32(hf_call->result) != call->op + 1)
			world_violate(
				sim->world, "told", "request %u was answered with the result of another one", call->op);
		replicas_answer(sim->replicas, call->op);
		sim->decided++;
		sim->outcome->operations++;
		sim->decided_since_quiet += sim->world->now_ns >= sim->faults.quiet_ns;
		break;
	case HF_SMR_NOT_LEADER:
		replicas_disclaim(sim->replicas, call->op);
		break;
	case HF_SMR_UNKNOWN:
		if (hf_smr_is_leader(member->smr) && member->smr->number == call->number)
			world_violate(sim->world, "told", "request %u is said to be unknown by a member that leads",
				call->op);
		sim->unknown++;
		sim->outcome->unknown++;
		break;
	case HF_SMR_SESSION_OVER:
		world_violate(sim->world, "told", "request %u has no session, and it is said to be over", call->op);
		break;
	}
}

static bool start_call(struct smr_sim_member *member, struct smr_sim_call *call)
{
	struct smr_sim *sim = member->sim;
	int rc;

	call->reads = world_chance(sim->world, 200000);
	call->call = (struct hf_smr_call){.done = done};
	call->client = NULL;
	call->number = member->smr->number;
	if (!call->reads && sim->sessions) {
		rc = smr_client_start(call);
	} else if (call->reads) {
		call->least = replicas_read_begins(sim->replicas);
		rc = hf_smr_read(member->smr, &call->call);
	} else {
		uint32_t most = world_chance(sim->world, sim->large_ppm) ? sim->bytes_max : 64;

		call->op = replicas_propose(sim->replicas);
		call->call.bytes = (uint32_t)world_range(sim->world, 4, most);
		put_le32(call->data, call->op);
		for (uint32_t i = 4; i < call->call.bytes; i++)
			call->data[i] = (uint8_t)(call->op + i);
		call->call.data = call->data;
		rc = hf_smr_propose(member->smr, &call->call);
		if (rc != 0)
			replicas_disclaim(sim->replicas, call->op);
	}
	call->busy = rc == 0;
	if (rc != 0 && rc != -ENOTCONN && rc != -EAGAIN)
		world_violate(sim->world, "calls", "a well-formed call is refused: %d", rc);
	return rc == 0;
}

static bool work(struct smr_sim_member *member, uint64_t now_ns)
{
	struct smr_sim *sim = member->sim;
	uint64_t wait_ns;
	bool any = false;

	if (member->smr == NULL || !hf_smr_is_leader(member->smr) || now_ns < member->next_ns || sim->stopping ||
		!sim->working)
		return false;
	wait_ns = faults_wait_ns(&sim->faults, sim->replicas->proposed, REPLICAS_OPS_MAX - OPS_KEPT);
	if (wait_ns > 0) {
		member->next_ns = now_ns + wait_ns;
		return false;
	}
	for (unsigned i = 0; i < SMR_SIM_CALLS && sim->replicas->proposed < REPLICAS_OPS_MAX; i++)
		if (!member->calls[i].busy && world_chance(sim->world, 700000))
			any |= start_call(member, &member->calls[i]);
	member->next_ns =
		now_ns + (sim->laps == 0 && world_chance(sim->world, 700000) ? world_range(sim->world, 0, 20 * NS_US)
									     : world_range(sim->world, 0, REST_NS_MAX));
	return any;
}

static enum hf_poll poll_member(struct hf_poller *poller, uint64_t now_ns)
{
	struct smr_sim_member *member = container_of(poller, struct smr_sim_member, endpoint.poller);

	smr_watch_turn(member);
	return work(member, now_ns) ? HF_BUSY : HF_IDLE;
}

static bool arm_member(struct hf_poller *poller)
{
	struct smr_sim_member *member = container_of(poller, struct smr_sim_member, endpoint.poller);
	uint64_t now_ns = hf_loop_now_ns(member->endpoint.loop);

	hf_loop_set_timer(member->endpoint.loop, &member->endpoint.timer,
		member->next_ns > now_ns ? member->next_ns : now_ns + REST_NS_MAX);
	return true;
}

/* ---- processes ---- */

static struct hf_addr address_of(const struct smr_sim_member *member, unsigned rail, uint16_t port)
{
	struct hf_addr addr = member->sim->network.ports[rail * member->sim->count + member->id].address;

	hf_addr_set_port(&addr, port);
	return addr;
}

static void configure(struct smr_sim_member *member, struct hf_node_config *config)
{
	*config = (struct hf_node_config){.rail_count = SMR_SIM_RAILS,
		.policy = HF_POLICY_VARUNA,
		.heartbeat_ns = HEARTBEAT_NS,
		.heartbeat_misses = 4,
		.failback_ns = FAILBACK_NS,
		.budget_ns = BUDGET_NS,
		.timeout = QP_TIMEOUT,
		.retry_cnt = QP_RETRY_CNT};
	if (member->sim->config.cores == HF_CORES_SHARED) {
		config->cores = HF_CORES_SHARED;
		config->heartbeat_ns = config->budget_ns = 0;
		config->timeout = config->retry_cnt = 0;
	}
	snprintf(config->name, sizeof(config->name), "%s", member->endpoint.host.name);
	for (unsigned i = 0; i < SMR_SIM_RAILS; i++) {
		struct hf_addr address = address_of(member, i, 0);

		endpoint_set_rail(config, i, &address, CONTROL_PORT);
	}
}

static int start_replica(struct smr_sim_member *member)
{
	static const struct hf_smr_app app = {.apply = apply,
		.snapshot_open = snapshot_open,
		.snapshot_read = snapshot_read,
		.snapshot_close = snapshot_close,
		.restore_open = restore_open,
		.restore_write = restore_write,
		.restore_close = restore_close,
		.event = event};
	struct smr_sim *sim = member->sim;
	struct hf_smr_config config = sim->config;
	struct hf_error error = {0};
	int rc;

	config.id = (uint8_t)member->id;
	config.members = sim->who;
	config.member_count = member->started || member->id >= sim->founders ? sim->count : sim->founders;
	member->started = true;
	config.directory = sim->durable ? "/smr" : NULL;
	rc = hf_smr_start(member->endpoint.node, &config, &app, member, &member->smr, &error);
	if (rc != 0 && (member->endpoint.host.disk->sync_fails_ppm > 0 || member->endpoint.host.disk->bytes == 0))
		restart_soon(member);
	else if (rc != 0)
		world_violate(sim->world, "start", "member %u: %s", member->id, error.text);
	smr_watch_start(member);
	return rc;
}

static int start_member(struct process *process, void *context)
{
	static const struct hf_node_events events = {0};
	struct smr_sim_member *member = context;
	struct smr_sim *sim = member->sim;
	struct hf_node_config config;
	int rc;

	(void)process;
	configure(member, &config);
	for (unsigned i = 0; i < sim->count; i++) {
		struct hf_smr_member *who = &sim->who[i];

		who->id = (uint8_t)i;
		who->address_count = SMR_SIM_RAILS;
		for (unsigned rail = 0; rail < SMR_SIM_RAILS; rail++)
			who->addresses[rail] = address_of(&sim->members[i], rail, CONTROL_PORT);
	}
	rc = endpoint_open(&member->endpoint, &config, &events, member, 16);
	if (rc != 0)
		return rc;
	for (unsigned i = 0; i < SMR_SIM_CALLS; i++) {
		member->calls[i] = (struct smr_sim_call){.member = member, .data = malloc(sim->bytes_max)};
		ensure(member->calls[i].data != NULL);
	}
	member->out = false;
	replicas_restart(sim->replicas, member->id, 0);
	rc = start_replica(member);
	endpoint_run(&member->endpoint, poll_member, arm_member);
	return rc;
}

/* Nobody was told of more. */
static uint64_t decided_end(const struct smr_sim *sim)
{
	uint64_t end = 0;

	for (unsigned i = 0; i < sim->count; i++)
		if (sim->members[i].smr != NULL && sim->members[i].smr->commit > end)
			end = sim->members[i].smr->commit;
	return end > sim->logs.decided_end ? end : sim->logs.decided_end;
}

static void stop_member(struct process *process, void *context)
{
	struct smr_sim_member *member = context;

	(void)process;
	if (member->endpoint.loop == NULL)
		return;
	if (member->sim->durable)
		log_memory_lost(&member->sim->logs, member->id, decided_end(member->sim),
			member->smr == NULL ? 0 : member->smr->durable->shown);
	smr_watch_end(member);
	log_memory_start(&member->sim->logs, member->id, NULL, NULL);
	hf_smr_stop(member->smr);
	member->smr = NULL;
	member->sim->aborts += member->leads;
	member->leads = false;
	for (unsigned i = 0; i < SMR_SIM_CALLS; i++) {
		free(member->calls[i].data);
		member->calls[i].data = NULL;
	}
	endpoint_close(&member->endpoint);
}

/* By its operator. */
static void restart(struct world_event *event)
{
	struct smr_sim_member *member = container_of(event, struct smr_sim_member, restart);
	struct process *process = member->endpoint.process;

	if (member->endpoint.host.stopped) {
		host_start(&member->endpoint.host);
	} else if (!process->running) {
		process_start(process);
	} else if (member->out) {
		process_crash(process);
		process_start(process);
	}
	network_healed(&member->sim->network);
}

void smr_sim_member_init(struct smr_sim_member *member)
{
	member->restart.what = "restart";
	member->restart.fire = restart;
	member->restart.outermost = true;
}

const struct program smr_sim_program = {.name = "smr", .start = start_member, .stop = stop_member};
