/* Virtual queue pairs under faults: what took effect at the server, against what the client was told. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/ensure.h"
#include "sim/device.h"
#include "sim/vq.h"

#define BUDGET_NS       (2 * NS_S)
#define BUDGET_SLACK_NS (1 * NS_S)      /* for the error to be found, and for pauses */
#define LEASE_NS        (BUDGET_NS / 2) /* by default */
#define STALL_SEEDS     6u /* of so many seeds one has a process that stands still for longer than a lease */
#define STALL_NS_MAX    (5 * NS_S)
#define FENCED_SEEDS    4u            /* of so many seeds of `grants` one has NICs that take access by a fence alone */
#define BUDGET_NS_SHORT (600 * NS_MS) /* where devices keep no leases (D9): in as many seeds of `grants` */
#define HOLDUP_NS_MAX   (2500 * NS_MS)
#define REPEAT_SEEDS    2u /* of so many seeds of `grants` one has WRITEs that may be repeated */
#define LIVE_NS         (6 * NS_S)
#define LIVE_OPERATIONS 5u
#define DATA_FAULTS                                                                                                    \
	(FAULT_BIT(FAULT_CUT) | FAULT_BIT(FAULT_CUT_TX) | FAULT_BIT(FAULT_CUT_RX) | FAULT_BIT(FAULT_PORT_DOWN) |       \
		FAULT_BIT(FAULT_FLAP) | FAULT_BIT(FAULT_LOSS) | FAULT_BIT(FAULT_DELAY) | FAULT_BIT(FAULT_DUPLICATE) |  \
		FAULT_BIT(FAULT_REORDER) | FAULT_BIT(FAULT_LATE) | FAULT_BIT(FAULT_ACKS_LOST) |                        \
		FAULT_BIT(FAULT_RESPONSES_LOST) | FAULT_BIT(FAULT_FENCE_SLOW))
#define VQ_FAULTS                                                                                                      \
	(FAULT_BIT(FAULT_CUT) | FAULT_BIT(FAULT_CUT_TX) | FAULT_BIT(FAULT_CUT_RX) | FAULT_BIT(FAULT_PORT_DOWN) |       \
		FAULT_BIT(FAULT_FLAP) | FAULT_BIT(FAULT_LOSS) | FAULT_BIT(FAULT_DELAY) | FAULT_BIT(FAULT_DUPLICATE) |  \
		FAULT_BIT(FAULT_REORDER) | FAULT_BIT(FAULT_LATE) | FAULT_BIT(FAULT_RAIL_DOWN) |                        \
		FAULT_BIT(FAULT_ACKS_LOST) | FAULT_BIT(FAULT_RESPONSES_LOST) | FAULT_BIT(FAULT_DRAIN_HANGS) |          \
		FAULT_BIT(FAULT_DRAIN_FAILS) | FAULT_BIT(FAULT_CONTROL_HELD) | FAULT_BIT(FAULT_CLOG) |                 \
		FAULT_BIT(FAULT_STREAM_RESET) | FAULT_BIT(FAULT_PAUSE) | FAULT_BIT(FAULT_FENCE_SLOW) |                 \
		FAULT_BIT(FAULT_PARTITION) | FAULT_BIT(FAULT_FENCE_FAILS) | FAULT_BIT(FAULT_PROCESS_CRASH) |           \
		FAULT_BIT(FAULT_HOST_STOP) | FAULT_BIT(FAULT_NIC_CRASH))

/* ---- effects ---- */

static bool settled(const struct vq_op *op, uint32_t generation)
{
	return op->executed > 0 || op->completed || op->generation != generation || op->kind == VQ_SEND;
}

/* Those before it that did not take effect may be about to be told as unknown; then they never may. */
static void took_effect_first(struct vq *vq, uint32_t number)
{
	struct vq_op *op = &vq->ops[number];

	for (uint32_t i = 0; i < number; i++)
		if (!settled(&vq->ops[i], op->generation) && vq->ops[i].overtaken_by == 0)
			vq->ops[i].overtaken_by = number;
	if (op->overtaken_by != 0)
		world_violate(vq->world, "order", "wr %u took effect before wr %u, which was posted earlier",
			op->overtaken_by, number);
}

static uint64_t failovers_of(const struct vq_client *client)
{
	struct hf_vqp_counters counters;

	hf_vqp_counters(client->vqp, &counters);
	return counters.failovers;
}

/* The grant that it was posted in was taken away. */
static bool grant_is_over(const struct vq *vq, const struct vq_op *op)
{
	for (unsigned i = 0; i < vq->server.server.count; i++) {
		const struct vq_served *served = &vq->server.server.served[i];

		if (served->generation == op->generation && op->posted_ns < served->revoked_ns[op->kind])
			return true;
	}
	return false;
}

static void check_grant(struct vq *vq, const struct vq_op *op, uint32_t number)
{
	if (grant_is_over(vq, op))
		world_violate(vq->world, "grants", "wr %u took effect in another grant than it was posted in", number);
}

/* A grant that ends leaves the vqp alive, which may end for another reason just then. */
static void keep_refusal(struct vq *vq, uint32_t number, enum ibv_wc_status status)
{
	struct vq_client *client = &vq->client.client;
	bool refused = (status == IBV_WC_REM_ACCESS_ERR || status == IBV_WC_REM_INV_REQ_ERR) &&
		       !grant_is_over(vq, &vq->ops[number]);

	if (refused && hf_vqp_state(client->vqp) == HF_VQP_ERROR &&
		(number == client->first || vq->ops[number - 1].succeeded))
		client->refused = number;
}

/* A vqp whose first wr to fail was refused ended for what its program did, and this one does nothing that is not
 * granted; unless it ended for what nobody knows. */
void vq_ended(struct vq *vq)
{
	const struct vq_client *client = &vq->client.client;

	if (client->refused != VQ_OPS_MAX && !client->unknown)
		world_violate(vq->world, "grants", "wr %u was refused in a grant that allows it", client->refused);
}

/* What is in doubt is sent again when it is declared idempotent. */
static bool may_repeat(const struct vq *vq, const struct vq_op *op)
{
	return vq->repeats && vq->policy == HF_POLICY_VARUNA && op->idempotent;
}

/* Then so is all behind it that executed (V2). */
static void check_repeat(struct vq *vq, uint32_t number)
{
	for (uint32_t i = number + 1; i < vq->count; i++)
		if (vq->ops[i].generation == vq->ops[number].generation && vq->ops[i].executed > 0 &&
			vq->ops[i].kind != VQ_SEND && !may_repeat(vq, &vq->ops[i]))
			world_violate(vq->world, "order", "wr %u was repeated behind wr %u", number, i);
}

static void began(struct vq *vq, uint32_t number)
{
	const struct vq_client *client = &vq->client.client;
	struct vq_op *op = &vq->ops[number];

	if (op->completed)
		world_violate(vq->world, "after", "wr %u took effect although it had completed", number);
	check_grant(vq, op, number);
	if (op->begun++ == 0)
		took_effect_first(vq, number);
	else if (may_repeat(vq, op))
		check_repeat(vq, number);
	else if (vq->policy == HF_POLICY_NONE || vq->policy == HF_POLICY_VARUNA)
		world_violate(vq->world, "once", "wr %u took effect again", number);
	else if (op->generation == client->generation && client->vqp != NULL && op->failovers == failovers_of(client))
		world_violate(vq->world, "once", "wr %u took effect again without a failover", number);
}

static void slot_written(struct vq *vq, const struct effect *effect)
{
	uint64_t at = effect->host - (uintptr_t)vq->server.memory;
	uint32_t number = (uint32_t)(at / VQ_SLOT_BYTES), offset = (uint32_t)(at % VQ_SLOT_BYTES);
	struct vq_op *op = &vq->ops[number];
	const uint8_t *data = effect->data;

	if (number >= vq->count || op->kind != VQ_WRITE || offset + effect->bytes > op->bytes) {
		world_violate(vq->world, "once", "%zu bytes landed in slot %u, where no wr wanted them", effect->bytes,
			number);
		return;
	}
	for (uint32_t i = 0; i + 8 <= effect->bytes; i += 8)
		if (get_le64(data + i) != vq_word(number, (offset + i) / 8)) {
			world_violate(vq->world, "once", "slot %u got other bytes than its wr's", number);
			return;
		}
	if (offset == 0)
		began(vq, number);
	if (offset < op->landed && offset > 0 && may_repeat(vq, op))
		began(vq, number); /* what of it is in no doubt is not repeated */
	else if (vq->policy == HF_POLICY_VARUNA && offset != op->landed && !(offset == 0 && may_repeat(vq, op)))
		world_violate(vq->world, "once", "byte %u of wr %u took effect where byte %u was due", offset, number,
			op->landed);
	op->landed = offset + (uint32_t)effect->bytes;
	if (offset + effect->bytes == op->bytes)
		op->executed++;
}

static void added(struct vq *vq, const struct effect *effect)
{
	for (uint32_t i = 0; i < vq->count; i++) {
		struct vq_op *op = &vq->ops[i];

		if (op->kind != VQ_FAA || op->argument != effect->argument)
			continue;
		began(vq, i);
		vq->outcome->doubled += op->executed++ > 0;
		vq->shadow_word += effect->argument;
		return;
	}
	world_violate(vq->world, "once", "an addition took effect that nobody posted");
}

static void on_effect(struct bus_observer *observer, const struct effect *effect)
{
	struct vq_side *side = env_process(effect->nic->dev->env)->context;
	struct vq *vq = side->vq;
	uint64_t slots = (uintptr_t)vq->server.memory, receives = (uintptr_t)vq_receive(vq, 0);

	(void)observer;
	if (effect->kind == EFFECT_FAA && effect->host == (uintptr_t)vq_counter(vq))
		added(vq, effect);
	else if (effect->kind == EFFECT_WRITE && effect->host >= slots && effect->host < receives)
		slot_written(vq, effect);
}

/* Values that atomics return land in the slot of their wr. */
static void on_landing(struct bus_observer *observer, const struct effect *effect)
{
	struct vq_side *side = env_process(effect->nic->dev->env)->context;
	struct vq *vq = side->vq;
	uint64_t number = (effect->host - (uintptr_t)side->memory) / VQ_SLOT_BYTES;

	(void)observer;
	if (effect->kind == EFFECT_WRITE && number < vq->count && vq->ops[number].completed)
		world_violate(vq->world, "after", "an answer landed for wr %" PRIu64 ", which had completed", number);
}

void vq_watch(struct vq_side *side)
{
	for (unsigned i = 0; i < VQ_RAILS; i++) {
		side->observers[i] = (struct bus_observer){.effect = side->is_server ? on_effect : on_landing};
		bus_observe(&nic_of(hf_node_dev(side->endpoint.node, i))->bus, &side->observers[i]);
	}
}

/* ---- what the two programs saw ---- */

static bool a_fence_failed(const struct vq *vq)
{
	for (unsigned i = 0; i < vq->network.port_count; i++)
		if (vq->network.ports[i].fence_failures > 0)
			return true;
	return false;
}

static bool a_process_stalled(const struct vq *vq)
{
	return faults_stalls(&vq->faults, vq->client.endpoint.process, LEASE_NS) > 0 ||
	       faults_stalls(&vq->faults, vq->server.endpoint.process, LEASE_NS) > 0;
}

/* Also one that was replaced since. */
static bool a_nic_died(const struct vq *vq)
{
	for (unsigned i = 0; i < vq->network.port_count; i++)
		if (vq->network.ports[i].nic_crashes > 0)
			return true;
	return false;
}

void vq_completed(struct vq *vq, const struct ibv_wc *wc)
{
	struct vq_client *client = &vq->client.client;
	struct vq_op *op = &vq->ops[client->next_completed];

	world_note(vq->world, "wc", wc->wr_id << 8 | wc->status);
	if (client->next_completed >= vq->count || wc->wr_id != client->next_completed) {
		world_violate(vq->world, "completed", "a completion of wr %" PRIu64 " where wr %u was due", wc->wr_id,
			client->next_completed);
		return;
	}
	client->next_completed++;
	op->completed = true;
	op->succeeded = wc->status == IBV_WC_SUCCESS;
	if (vq->world->now_ns - op->posted_ns >
		vq->budget_ns + BUDGET_SLACK_NS + process_paused_ns(vq->client.endpoint.process))
		world_violate(vq->world, "budget", "wr %u took %.3f s", client->next_completed - 1,
			(double)(vq->world->now_ns - op->posted_ns) / 1e9);
	if (!op->succeeded) {
		bool unknown = vq->policy == HF_POLICY_VARUNA && wc->vendor_err == HF_WC_UNKNOWN;
		bool excused = vq->revokes || vq->lanes || vq->policy == HF_POLICY_NONE || vq->crashed ||
			       a_nic_died(vq) || a_process_stalled(vq) ||
			       (vq->policy == HF_POLICY_VARUNA && vq->evidence == HF_EVIDENCE_LOG) ||
			       a_fence_failed(vq); /* one is unknown, and nothing executes behind it */

		keep_refusal(vq, client->next_completed - 1, wc->status);
		client->unknown |= unknown;
		op->disclaimed = vq->policy == HF_POLICY_VARUNA && wc->vendor_err == HF_WC_NOT_EXECUTED;
		vq->outcome->unknown += unknown;
		/* what the bus saw may have died with the NIC, before it was in memory */
		if (op->disclaimed && op->begun > 0 && !a_nic_died(vq))
			world_violate(vq->world, "outcome", "wr %u took effect, and is told not to have executed",
				client->next_completed - 1);
		if (unknown && vq->only_data_faults && (op->landed == 0 || op->landed == op->bytes))
			world_violate(vq->world, "vacuous", "wr %u is told to be unknown", client->next_completed - 1);
		if (!excused)
			world_violate(vq->world, "lost",
				"wr %u failed with status %d although a path came back in time",
				client->next_completed - 1, (int)wc->status);
		return;
	}
	vq->outcome->operations++;
	vq->succeeded_since_quiet += vq->world->now_ns >= vq->faults.quiet_ns;
	if (op->kind != VQ_SEND && op->executed == 0)
		world_violate(vq->world, "completed", "wr %u completed without having taken effect",
			client->next_completed - 1);
}

static bool is_message(struct vq *vq, uint32_t number, uint32_t receive, const struct ibv_wc *wc)
{
	return wc->wr_id == receive && wc->byte_len == vq->ops[number].bytes &&
	       get_le64(vq_receive(vq, receive)) == vq_word(number, 0);
}

void vq_received(struct vq *vq, struct vq_served *served, const struct ibv_wc *wc)
{
	uint32_t sent = 0;

	if (wc->status != IBV_WC_SUCCESS)
		return;
	for (uint32_t i = 0; i < vq->count; i++) {
		struct vq_op *op = &vq->ops[i];
		/* of one that is unknown, or failed without exactly-once, nobody was told whether it arrived */
		bool failed = vq->revokes && op->completed && !op->succeeded && op->executed == 0 &&
			      (op->disclaimed || !is_message(vq, i, served->received, wc));

		if (op->kind != VQ_SEND || op->generation != served->generation || failed || sent++ != served->received)
			continue;
		if (!is_message(vq, i, served->received, wc))
			world_violate(vq->world, "receives", "message %u is not wr %u in receive %u", served->received,
				i, served->received);
		if (op->posted_ns < served->over_ns)
			world_violate(vq->world, "receives", "wr %u was received after its grant was over", i);
		op->executed = 1;
		served->received++;
		return;
	}
	world_violate(vq->world, "receives", "a message was received that was not sent");
}

/* ---- the run ---- */

static void check_memory(struct vq *vq)
{
	for (unsigned i = 0; i < VQ_RAILS; i++)
		bus_drain(&nic_of(hf_node_dev(vq->server.endpoint.node, i))->bus);
	for (uint32_t i = 0; i < vq->count; i++) {
		const struct vq_op *op = &vq->ops[i];

		if (op->kind != VQ_WRITE || !op->succeeded || op->server_memory != (uintptr_t)vq->server.memory)
			continue; /* memory of an earlier incarnation is gone */
		for (uint32_t at = 0; at < op->bytes; at += 8)
			if (get_le64(vq_slot(vq, i) + at) != vq_word(i, at / 8)) {
				world_violate(vq->world, "completed", "wr %u completed and its bytes are not there", i);
				return;
			}
	}
	if (*vq_counter(vq) != vq->shadow_word)
		world_violate(vq->world, "memory", "the counter is not the sum of what took effect");
}

static const struct vq_served *not_over(const struct vq *vq)
{
	for (unsigned i = 0; i < vq->server.server.count; i++) {
		const struct vq_served *served = &vq->server.server.served[i];

		if (served->vqp != NULL && hf_vqp_state(served->vqp) == HF_VQP_UP &&
			served->over_ns != served->ended_ns)
			return served;
	}
	return NULL;
}

/* What was taken away is off on all rails, also on one whose fence fails. */
static void run_until_over(struct vq *vq, uint64_t limit_ns)
{
	struct world *world = vq->world;

	while (world->violations == 0 && world->now_ns < limit_ns && not_over(vq) != NULL)
		world_run_until(world, world->now_ns + NS_MS);
	if (world->violations == 0 && not_over(vq) != NULL)
		world_violate(
			world, "liveness", "a grant of vqp %u ended, and is never over", hf_vqp_num(not_over(vq)->vqp));
}

static void set_up(struct vq *vq, struct world *world, struct outcome *outcome)
{
	vq->world = world;
	vq->outcome = outcome;
	vq->policy = (enum hf_policy)world_range(world, HF_POLICY_NONE, HF_POLICY_VARUNA);
	vq->evidence = (enum hf_evidence)world_range(world, HF_EVIDENCE_BOTH, HF_EVIDENCE_LOG);
	vq->caps_masked = world_chance(world, 500000) ? HF_DEV_FOOTER : 0;
	vq->budget_ns = BUDGET_NS;
	network_init(&vq->network, world);
	vq->network.stream_limit_ns = 8 * NS_S;
	for (unsigned i = 0; i < 2; i++) {
		struct vq_side *side = i == 0 ? &vq->client : &vq->server;

		side->vq = vq;
		side->is_server = i == 1;
		/* the node with the lower name picks the paths */
		host_init(&side->endpoint.host, world, &vq->network,
			i == 1                        ? "m"
			: world_chance(world, 500000) ? "a"
						      : "z");
		side->endpoint.process =
			process_create(&side->endpoint.host, side->endpoint.host.name, &vq_program, side);
	}
	for (unsigned rail = 0; rail < VQ_RAILS; rail++)
		for (unsigned i = 0; i < 2; i++) {
			char address[HF_ADDR_TEXT];

			snprintf(address, sizeof(address), "10.%u.0.%u", rail, i + 1);
			network_add_port(&vq->network, i == 0 ? &vq->client.endpoint.host : &vq->server.endpoint.host,
				rail, address);
		}
}

static void run_until_alive(struct vq *vq, uint64_t limit_ns)
{
	struct world *world = vq->world;

	while (world->violations == 0 && world->now_ns < limit_ns && vq->succeeded_since_quiet < LIVE_OPERATIONS &&
		vq->count < VQ_OPS_MAX)
		world_run_until(world, world->now_ns + NS_MS);
	if (world->violations == 0 && vq->succeeded_since_quiet < LIVE_OPERATIONS && vq->count < VQ_OPS_MAX)
		world_violate(world, "liveness", "no progress after the faults had healed");
}

static void run_until_idle(struct vq *vq, uint64_t limit_ns)
{
	struct world *world = vq->world;

	vq->stopping = true;
	while (world->violations == 0 && world->now_ns < limit_ns && vq->client.client.vqp != NULL &&
		vq->client.client.next_completed < vq->count)
		world_run_until(world, world->now_ns + NS_MS);
	if (world->violations == 0 && vq->client.client.vqp != NULL && vq->client.client.next_completed < vq->count)
		world_violate(world, "budget", "wr %u never completed", vq->client.client.next_completed);
}

enum variant { PLAIN, GRANTS, LANES };

static void make_lanes(struct vq *vq)
{
	vq->lanes = true;
	vq->policy = HF_POLICY_VARUNA;
	/* The completion log alone leaves the first wr without an entry in doubt. */
	vq->only_data_faults = vq->evidence != HF_EVIDENCE_LOG && world_chance(vq->world, 500000);
}

static void run_with(struct world *world, struct outcome *outcome, enum variant variant)
{
	struct vq *vq = calloc(1, sizeof(*vq));
	struct process *processes[2];
	struct hf_vqp_counters counters;
	uint64_t quiet_ns = world_range(world, 100 * NS_MS, 600 * NS_MS);
	bool stalls, no_device_leases;

	ensure(vq != NULL);
	set_up(vq, world, outcome);
	vq->revokes = variant == GRANTS;
	vq->repeats = vq->revokes && world->seed % REPEAT_SEEDS == 0;
	if (variant == LANES)
		make_lanes(vq);
	stalls = world->seed % STALL_SEEDS == 1 && !vq->only_data_faults;
	if (vq->revokes && world->seed % FENCED_SEEDS == 1)
		vq->caps_masked |= HF_DEV_ACCESS_IN_RTS;
	no_device_leases = vq->revokes && world->seed % STALL_SEEDS == 5;
	if (no_device_leases) {
		vq->caps_masked |= HF_DEV_LEASE;
		vq->budget_ns = BUDGET_NS_SHORT;
	}
	quiet_ns += stalls ? STALL_NS_MAX : no_device_leases ? HOLDUP_NS_MAX : 0;
	process_start(processes[0] = vq->server.endpoint.process);
	process_start(processes[1] = vq->client.endpoint.process);
	faults_plan(&vq->faults, &vq->network, processes, 2,
		vq->only_data_faults ? DATA_FAULTS
		: no_device_leases   ? VQ_FAULTS & ~FAULT_BIT(FAULT_PAUSE)
				     : VQ_FAULTS,
		(unsigned)world_range(world, 0, 8), quiet_ns);
	if (no_device_leases)
		faults_plan_holdup(&vq->faults, BUDGET_NS_SHORT);
	if (stalls)
		faults_plan_stall(&vq->faults, FAULT_PAUSE, LEASE_NS);
	world_run_until(world, quiet_ns);
	run_until_alive(vq, quiet_ns + LIVE_NS);
	run_until_idle(vq, world->now_ns + BUDGET_NS + LIVE_NS);
	if (world->violations == 0)
		check_memory(vq);
	run_until_over(vq, world->now_ns + vq->budget_ns);
	if (vq->client.client.vqp != NULL) {
		hf_vqp_counters(vq->client.client.vqp, &counters);
		outcome->failovers += counters.failovers;
	}
	host_free(&vq->client.endpoint.host);
	host_free(&vq->server.endpoint.host);
	network_free(&vq->network);
	free(vq);
}

static void run(struct world *world, struct outcome *outcome)
{
	run_with(world, outcome, PLAIN);
}

static void run_grants(struct world *world, struct outcome *outcome)
{
	run_with(world, outcome, GRANTS);
}

static void run_lanes(struct world *world, struct outcome *outcome)
{
	run_with(world, outcome, LANES);
}

const struct scenario scenario_vqp = {
	.name = "vqp",
	.what = "virtual queue pairs over two rails, under each of the four policies",
	.run = run,
};

const struct scenario scenario_grants = {
	.name = "grants",
	.what = "virtual queue pairs whose access is taken away and given again with wrs in flight",
	.run = run_grants,
};

const struct scenario scenario_lanes = {
	.name = "lanes",
	.what = "virtual queue pairs pinned to one rail, which hand back what they have when that is lost",
	.run = run_lanes,
};
