/* The run of virtual queue pairs that promise exactly once, and its verdict. */
#include "sim/varuna.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "sim/device.h"
#include "vqp/objects.h"

#define SMALL_SEEDS     4u  /* one in so many with QP_WR_FEW */
#define QP_WR_FEW       20u /* the least with which vqps can be made; on a standby qp they wait for each other then */
#define HEARTBEAT_NS    (5 * NS_MS)
#define FAILBACK_NS     (20 * NS_MS)
#define QP_TIMEOUT      8 /* 1 ms */
#define QP_RETRY_CNT    2
#define BUDGET_NS       (2 * NS_S)
#define BUDGET_NS_SHORT (600 * NS_MS) /* where many budgets or leases are to end in one world */
#define TRIGGER_SEEDS   4u            /* of so many seeds one has a trigger, and every second of these no faults */
#define STALL_SEEDS     6u            /* of so many seeds one has a process that stands still for longer than a lease */
#define STALL_NS_MAX    (5 * NS_S)
#define SILENCE_NS_MAX  (2500 * NS_MS) /* where a silence has a short budget */
#define LEASES_NS_MAX   (1 * NS_S)     /* as long for one in as many with leases that change */
#define LEASE_NS_LEAST  (100 * NS_MS)
#define HOLDUP_PPM      700000u /* of worlds without leases of devices */
#define SUSPEND_PPM     400000u /* of those: a host is suspended */
#define REPEAT_SEEDS    8u      /* of so many seeds one has WRITEs that may be repeated */
#define QUIT_SEEDS      4u      /* of so many groups of those, one in which programs end vqps in the midst */
#define MASKED_PPM      350000u /* of worlds */
#define SHARED_RC_PPM   300000u /* of worlds: standby qps are RC, not DC */
#define NO_DC_PPM       100000u /* of nodes in the others: so they are towards this one */
#define FEW_ATOMICS_PPM 500000u /* of worlds: nodes differ in how many atomics they keep track of */
#define LINGER_PPM      250000u /* of worlds */
#define LIVE_NS         (6 * NS_S)
#define LIVE_OPERATIONS 5u /* of each link */
#define VR_FAULTS                                                                                                      \
	(FAULT_BIT(FAULT_CUT) | FAULT_BIT(FAULT_CUT_TX) | FAULT_BIT(FAULT_CUT_RX) | FAULT_BIT(FAULT_PORT_DOWN) |       \
		FAULT_BIT(FAULT_FLAP) | FAULT_BIT(FAULT_LOSS) | FAULT_BIT(FAULT_DELAY) | FAULT_BIT(FAULT_DUPLICATE) |  \
		FAULT_BIT(FAULT_REORDER) | FAULT_BIT(FAULT_LATE) | FAULT_BIT(FAULT_RAIL_DOWN) |                        \
		FAULT_BIT(FAULT_ACKS_LOST) | FAULT_BIT(FAULT_RESPONSES_LOST) | FAULT_BIT(FAULT_CONTROL_HELD) |         \
		FAULT_BIT(FAULT_CLOG) | FAULT_BIT(FAULT_STREAM_RESET) | FAULT_BIT(FAULT_PAUSE) |                       \
		FAULT_BIT(FAULT_PARTITION) | FAULT_BIT(FAULT_PROCESS_CRASH) | FAULT_BIT(FAULT_HOST_STOP) |             \
		FAULT_BIT(FAULT_NIC_CRASH) | FAULT_BIT(FAULT_FENCE_FAILS) | FAULT_BIT(FAULT_DRAIN_FAILS) |             \
		FAULT_BIT(FAULT_FENCE_SLOW) | FAULT_BIT(FAULT_DRAIN_HANGS))

#define SILENT_FAULTS                                                                                                  \
	(FAULT_BIT(FAULT_DATA_LOST) | FAULT_BIT(FAULT_CUT) | FAULT_BIT(FAULT_LOSS) | FAULT_BIT(FAULT_CONTROL_HELD) |   \
		FAULT_BIT(FAULT_PAUSE))

/* By default. */
static uint64_t lease_of(const struct vr *vr)
{
	return vr->config.budget_ns / 2;
}

/* ---- excuses ---- */

uint64_t vr_incidents(const struct vr_node *node)
{
	const struct process *process = node->endpoint.process;
	uint64_t sum =
		process->incarnation + node->peers_failed +
		faults_stalls(&node->vr->faults, process, node->vr->leases ? VR_LEASE_MIN_NS : lease_of(node->vr)) +
		faults_silences(&node->vr->faults, process->host, node->vr->config.budget_ns);

	for (unsigned i = 0; i < node->vr->rail_count; i++)
		sum += vr_port(node, i)->nic_crashes + vr_port(node, i)->fence_failures;
	return sum;
}

static bool is_silent(const struct vr_node *node)
{
	return faults_is_silent(&node->vr->faults, &node->endpoint.host, node->vr->config.budget_ns);
}

bool vr_excused(const struct vr_link *link)
{
	return link->quit || vr_incidents(link->ends[0].node) + vr_incidents(link->ends[1].node) != link->incidents ||
	       !link->ends[0].node->endpoint.process->running || !link->ends[1].node->endpoint.process->running ||
	       link->ends[0].culprit != UINT32_MAX || link->ends[1].culprit != UINT32_MAX ||
	       is_silent(link->ends[0].node) || is_silent(link->ends[1].node);
}

/* ---- the run ---- */

static void name_nodes(struct vr *vr)
{
	static const char *const names[VR_NODES] = {"a", "m", "z"}; /* the lower name picks the paths */
	unsigned turn = (unsigned)world_range(vr->world, 0, VR_NODES - 1);
	bool backwards = world_chance(vr->world, 500000);

	for (unsigned i = 0; i < vr->node_count; i++) {
		unsigned at = (turn + i) % VR_NODES;

		snprintf(vr->nodes[i].name, sizeof(vr->nodes[i].name), "%s", names[backwards ? VR_NODES - 1 - at : at]);
	}
}

static void make_links(struct vr *vr)
{
	unsigned each = (unsigned)world_range(vr->world, 1, vr->node_count == 2 ? 3 : 2);

	for (unsigned a = 0; a < vr->node_count; a++)
		for (unsigned b = a + 1; b < vr->node_count; b++)
			for (unsigned i = 0; i < each; i++) {
				struct vr_link *link = &vr->links[vr->link_count];

				*link = (struct vr_link){.vr = vr, .index = vr->link_count++};
				link->ends[0] =
					(struct vr_end){.node = &vr->nodes[a], .link = link, .culprit = UINT32_MAX};
				link->ends[1] =
					(struct vr_end){.node = &vr->nodes[b], .link = link, .culprit = UINT32_MAX};
			}
}

/* Every set of capabilities, and every kind of evidence that is to be had with it. */
static void pick_capabilities(struct vr *vr)
{
	static const uint32_t maskable = HF_DEV_EXECUTED_PSN | HF_DEV_ATOMIC_RESULTS | HF_DEV_ACCESS_IN_RTS |
					 HF_DEV_DC | HF_DEV_SRQ | HF_DEV_FOOTER | HF_DEV_SEND_FENCE;
	bool psn;

	if (world_chance(vr->world, MASKED_PPM))
		vr->caps_masked = (uint32_t)rng_next(&vr->world->rng) & maskable;
	if (world_chance(vr->world, SHARED_RC_PPM))
		vr->caps_masked |= HF_DEV_DC_EVIDENCE;
	if (vr->hca_atomics)
		vr->caps_masked |= HF_DEV_ATOMIC_GLOBAL;
	if (world_chance(vr->world, MASKED_PPM))
		vr->config.evidence = world_chance(vr->world, 500000) ? HF_EVIDENCE_PSN : HF_EVIDENCE_LOG;
	psn = (vr->caps_masked & HF_DEV_EXECUTED_PSN) == 0 && vr->config.evidence != HF_EVIDENCE_LOG;
	vr->weak = !psn || (vr->caps_masked & HF_DEV_ATOMIC_RESULTS) != 0;
}

static void set_up(struct vr *vr, struct world *world, struct outcome *outcome)
{
	static const enum ibv_mtu mtus[] = {IBV_MTU_256, IBV_MTU_512, IBV_MTU_1024};
	enum ibv_mtu mtu = mtus[world_range(world, 0, 2)];
	bool few_atomics = world_chance(world, FEW_ATOMICS_PPM);

	vr->world = world;
	vr->outcome = outcome;
	vr->node_count = (unsigned)world_range(world, 2, VR_NODES);
	vr->rail_count = (unsigned)world_range(world, 2, VR_RAILS);
	vr->config = (struct hf_node_config){
		.policy = HF_POLICY_VARUNA,
		.heartbeat_ns = HEARTBEAT_NS,
		.heartbeat_misses = 4,
		.failback_ns = FAILBACK_NS,
		.budget_ns = vr->short_budget ? BUDGET_NS_SHORT : BUDGET_NS,
		.timeout = QP_TIMEOUT,
		.retry_cnt = QP_RETRY_CNT,
		.pool_size = (unsigned)world_range(world, 1, 2),
	};
	vr->repeats = world->seed % REPEAT_SEEDS == 7;
	vr->quits = world->seed / TRIGGER_SEEDS % QUIT_SEEDS == 2 ||
		    ((vr->leases || vr->no_device_leases) && world_chance(world, 500000));
	pick_capabilities(vr);
	vr->caps_masked |= vr->no_device_leases ? HF_DEV_LEASE : 0;
	vr->lingers = world_chance(world, LINGER_PPM);
	for (unsigned i = 0; i < VR_RAILS; i++)
		vr->config.rails[i].mtu = mtu;
	list_init(&vr->words);
	network_init(&vr->network, world);
	vr->network.stream_limit_ns = 8 * NS_S;
	execution_init(&vr->execution, world);
	name_nodes(vr);
	for (unsigned i = 0; i < vr->node_count; i++) {
		struct vr_node *node = &vr->nodes[i];

		node->vr = vr;
		node->index = i;
		host_init(&node->endpoint.host, world, &vr->network, node->name);
		if (few_atomics && world_chance(world, 500000))
			node->endpoint.host.rd_atomic = (uint8_t)world_range(world, 1, 2);
		node->endpoint.host.caps_masked = vr->caps_masked;
		if (world->seed % SMALL_SEEDS == 1)
			node->endpoint.host.qp_wr = QP_WR_FEW;
		if (world_chance(world, NO_DC_PPM))
			node->endpoint.host.caps_masked |= HF_DEV_DC;
		if (vr->no_device_leases || (vr->leases && world_chance(world, 700000)))
			node->lease_ns = world_range(world, LEASE_NS_LEAST, lease_of(vr));
		node->endpoint.process = process_create(&node->endpoint.host, node->name, &vr_program, node);
	}
	for (unsigned rail = 0; rail < vr->rail_count; rail++)
		for (unsigned i = 0; i < vr->node_count; i++) {
			char address[HF_ADDR_TEXT];

			snprintf(address, sizeof(address), "10.%u.0.%u", rail, i + 1);
			network_add_port(&vr->network, &vr->nodes[i].endpoint.host, rail, address);
		}
	make_links(vr);
}

static bool all_links(const struct vr *vr, bool (*holds)(const struct vr_link *link))
{
	for (unsigned i = 0; i < vr->link_count; i++)
		if (!holds(&vr->links[i]))
			return false;
	return true;
}

static bool is_alive(const struct vr_link *link)
{
	return link->completed_since_quiet >= LIVE_OPERATIONS;
}

static bool is_idle(const struct vr_link *link)
{
	for (unsigned i = 0; i < 2; i++)
		if (link->ends[i].vqp != NULL && vr_in_flight(&link->ends[i]) > 0)
			return false;
	return true;
}

static void run_until(struct vr *vr, bool (*holds)(const struct vr_link *link), uint64_t limit_ns, const char *claim,
	const char *what)
{
	struct world *world = vr->world;

	while (world->violations == 0 && !all_links(vr, holds) && world->now_ns < limit_ns)
		world_run_until(world, world->now_ns + NS_MS);
	for (unsigned i = 0; i < vr->link_count && world->violations == 0; i++)
		if (!holds(&vr->links[i]))
			world_violate(world, claim, "link %u %s", i, what);
}

/* ---- at rest ---- */

static void check_memory(struct vr *vr)
{
	for (unsigned i = 0; i < vr->node_count; i++)
		for (unsigned rail = 0; rail < vr->rail_count; rail++)
			bus_drain(&nic_of(hf_node_dev(vr->nodes[i].endpoint.node, rail))->bus);
	for (unsigned i = 0; i < vr->link_count; i++)
		for (unsigned end = 0; end < 2; end++)
			area_check(&vr->execution, vr->links[i].ends[end].target);
	for (unsigned i = 0; i < vr->node_count; i++)
		area_check(&vr->execution, vr->nodes[i].words->area);
}

static void check_words(struct vr *vr)
{
	for (unsigned i = 0; i < vr->link_count; i++)
		vr_end_flows(&vr->links[i]);
	list_for_each (at, &vr->words) {
		struct vr_words *words = container_of(at, struct vr_words, node);

		for (unsigned i = 0; i < VR_WORDS && !words->area->lossy && vr->world->violations == 0; i++) {
			const char *wrong = linear_check(&words->history[i]);

			if (wrong != NULL)
				world_violate(vr->world, "linearizability", "%s", wrong);
		}
	}
}

static void count_failovers(struct vr *vr)
{
	struct hf_vqp_counters counters;

	for (unsigned i = 0; i < vr->link_count; i++)
		for (unsigned end = 0; end < 2; end++)
			if (vr->links[i].ends[end].vqp != NULL) {
				hf_vqp_counters(vr->links[i].ends[end].vqp, &counters);
				vr->failovers += counters.failovers;
				vr->unprovoked += vr->links[i].culprits == 0 ? counters.failovers : 0;
			}
	vr->outcome->failovers += vr->failovers;
	if (vr->faults.count == 0 && !vr->network.unordered && !vr->triggered && vr->unprovoked > 0)
		world_violate(vr->world, "calm", "a failover without a fault");
}

static void check_blame(struct vr *vr)
{
	for (unsigned i = 0; i < vr->node_count; i++) {
		const struct hf_node *node = vr->nodes[i].endpoint.node;

		if (node == NULL || vr->faults.count > 0 || vr->network.unordered)
			continue;
		list_for_each (at, &node->peers)
			for (unsigned rail = 0; rail < vr->rail_count; rail++)
				if (container_of(at, struct hf_peer, node_link)->rails[rail].pause_ns > 0)
					world_violate(vr->world, "blame", "%s left rail %u alone without a fault",
						vr->nodes[i].name, rail);
	}
}

static void tear_down(struct vr *vr)
{
	for (unsigned i = 0; i < vr->node_count; i++)
		host_free(&vr->nodes[i].endpoint.host);
	execution_free(&vr->execution);
	network_free(&vr->network);
	while (!list_empty(&vr->words)) {
		struct vr_words *words = container_of(list_pop_front(&vr->words), struct vr_words, node);

		for (unsigned i = 0; i < VR_WORDS; i++)
			linear_free(&words->history[i]);
		free(words);
	}
	free(vr);
}

struct variant {
	bool hca_atomics;
	uint32_t faults;
	uint64_t quiet_ns_max;
};

static void run_with(struct world *world, struct outcome *outcome, const struct variant *variant)
{
	struct vr *vr = calloc(1, sizeof(*vr));
	struct process *processes[VR_NODES];
	uint64_t quiet_ns = world_range(world, 50 * NS_MS, variant->quiet_ns_max);
	bool stalls = world->seed % STALL_SEEDS == 1;
	bool silence = (variant->faults & FAULT_BIT(FAULT_DATA_LOST)) != 0 && world->seed % STALL_SEEDS == 2;
	unsigned fault_count;

	ensure(vr != NULL);
	vr->hca_atomics = variant->hca_atomics;
	vr->leases = world->seed % STALL_SEEDS == 3;
	vr->no_device_leases = world->seed % STALL_SEEDS == 5;
	vr->short_budget = vr->leases || vr->no_device_leases || (silence && world->seed / STALL_SEEDS % 2 == 0);
	if (stalls || silence || vr->leases || vr->no_device_leases)
		quiet_ns += vr->leases ? LEASES_NS_MAX : vr->short_budget ? SILENCE_NS_MAX : STALL_NS_MAX;
	set_up(vr, world, outcome);
	for (unsigned i = 0; i < vr->node_count; i++)
		process_start(processes[i] = vr->nodes[i].endpoint.process);
	fault_count = (unsigned)world_range(world, 0, 8);
	if (world->seed % TRIGGER_SEEDS == 0) {
		vr->triggers = true;
		fault_count = world->seed % (2 * TRIGGER_SEEDS) == 0 ? 0 : fault_count;
	}
	faults_plan(&vr->faults, &vr->network, processes, vr->node_count,
		vr->no_device_leases ? variant->faults & ~FAULT_BIT(FAULT_PAUSE) : variant->faults, fault_count,
		quiet_ns);
	if (stalls)
		faults_plan_stall(&vr->faults, FAULT_PAUSE, lease_of(vr));
	if (vr->leases && fault_count > 0)
		faults_plan_stall(
			&vr->faults, world_chance(world, SUSPEND_PPM) ? FAULT_SUSPEND : FAULT_PAUSE, VR_LEASE_MIN_NS);
	if (vr->no_device_leases && world_chance(world, HOLDUP_PPM))
		faults_plan_holdup(&vr->faults, vr->config.budget_ns);
	if (silence)
		faults_plan_silence(&vr->faults, vr->config.budget_ns);
	world_run_until(world, quiet_ns);
	run_until(vr, is_alive, quiet_ns + LIVE_NS, "liveness", "made no progress after the faults had healed");
	vr->stopping = true;
	run_until(
		vr, is_idle, world->now_ns + vr->config.budget_ns + LIVE_NS, "budget", "has wrs that never completed");
	if (world->violations == 0)
		check_memory(vr);
	if (world->violations == 0)
		check_words(vr);
	count_failovers(vr);
	check_blame(vr);
	tear_down(vr);
}

static void run(struct world *world, struct outcome *outcome)
{
	run_with(world, outcome, &(struct variant){.faults = VR_FAULTS, .quiet_ns_max = 400 * NS_MS});
}

static void run_hca(struct world *world, struct outcome *outcome)
{
	run_with(world, outcome,
		&(struct variant){.hca_atomics = true, .faults = VR_FAULTS, .quiet_ns_max = 400 * NS_MS});
}

static void run_silent(struct world *world, struct outcome *outcome)
{
	run_with(world, outcome, &(struct variant){.faults = SILENT_FAULTS, .quiet_ns_max = 800 * NS_MS});
}

const struct scenario scenario_varuna_silent = {
	.name = "varuna-silent",
	.what = "the same on rails that lose all data for long while the control path lives",
	.run = run_silent,
};

const struct scenario scenario_varuna_hca = {
	.name = "varuna-hca",
	.what = "the same on NICs whose atomics exclude only each other's",
	.run = run_hca,
};

const struct scenario scenario_varuna = {
	.name = "varuna",
	.what = "virtual queue pairs that promise exactly once, in both directions between two or three nodes",
	.run = run,
};
