/* Atomics of two clients and the owner under faults: what was answered, against words that change one at a time. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/ensure.h"
#include "sim/atomics.h"
#include "sim/device.h"
#include "vqp/atomic/uid_slots.h"

#define LIVE_NS         (6 * NS_S)
#define LIVE_OPERATIONS 5u
#define IDLE_NS         (6 * NS_S)
#define SETTLE_NS       (200 * NS_MS) /* for confirmations, and the owner's look into the slots */
#define CONFIRM_NS      (4 * NS_S)    /* for those that wait for a rail */
#define REVOKE_SEEDS    4u            /* of so many seeds by uid one has grants that end */
#define STALL_SEEDS     5u            /* of so many seeds one has a process that stands still beyond its lease */
#define STALL_NS_MAX    (1500 * NS_MS)
#define OFF_HOME_NS     NS_MS /* more than a NIC that is atomic with nobody else holds the result of an atomic back */
#define NEVER           0xdeadull /* no word ever holds it: a READ is a CAS that fails */
#define ATOMICS_FAULTS                                                                                                 \
	(FAULT_BIT(FAULT_CUT) | FAULT_BIT(FAULT_CUT_TX) | FAULT_BIT(FAULT_CUT_RX) | FAULT_BIT(FAULT_PORT_DOWN) |       \
		FAULT_BIT(FAULT_FLAP) | FAULT_BIT(FAULT_LOSS) | FAULT_BIT(FAULT_DELAY) | FAULT_BIT(FAULT_DUPLICATE) |  \
		FAULT_BIT(FAULT_REORDER) | FAULT_BIT(FAULT_LATE) | FAULT_BIT(FAULT_CLOG) |                             \
		FAULT_BIT(FAULT_STREAM_RESET) | FAULT_BIT(FAULT_PAUSE) | FAULT_BIT(FAULT_FENCE_SLOW) |                 \
		FAULT_BIT(FAULT_PARTITION) | FAULT_BIT(FAULT_PROCESS_CRASH))

/* ---- what is asked for ---- */

/* Of HF_ATOMIC_PLAIN: each word has one writer, who waits for each CAS. */
static void keep_promise(struct atomics_side *side, struct atomics_op *op)
{
	op->kind = op->kind == ATOMICS_FAA ? ATOMICS_CAS : op->kind;
	if (op->kind != ATOMICS_CAS)
		return;
	op->word = side->number;
	for (uint32_t i = side->completed; i + 1 < side->posted; i++)
		if (side->ops[i].kind == ATOMICS_CAS)
			op->kind = ATOMICS_READ;
}

/* A READ by a rail that is not the home returns what is in memory, and the home's NIC may hold a newer value. */
static uint64_t earliest(const struct atomics *run, const struct atomics_op *op)
{
	return run->hca && op->kind == ATOMICS_READ && op->posted_ns > OFF_HOME_NS ? op->posted_ns - OFF_HOME_NS
										   : op->posted_ns;
}

struct atomics_op *atomics_choose(struct atomics_side *side)
{
	struct atomics *run = side->run;
	struct atomics_op *op = &side->ops[side->posted++];
	bool is_cas;

	op->kind = (enum atomics_kind)world_range(run->world, ATOMICS_CAS, ATOMICS_READ);
	op->word = (unsigned)world_range(run->world, 0, ATOMICS_WORDS - 1);
	if (run->mode == HF_ATOMIC_PLAIN)
		keep_promise(side, op);
	op->argument = rng_next(&run->world->rng);
	if (world_chance(run->world, 100000))
		op->argument = (op->argument & UINT32_MAX) | 0xb5ull << 56; /* looks like a uid */
	op->compare = op->kind == ATOMICS_READ ? NEVER : run->last[op->word];
	op->posted_ns = run->world->now_ns;
	is_cas = op->kind != ATOMICS_FAA;
	op->linear = linear_post(&run->words[op->word], is_cas, op->argument, op->compare, earliest(run, op));
	return op;
}

void atomics_answered(struct atomics_side *side, struct atomics_op *op, uint64_t original)
{
	struct atomics *run = side->run;
	bool took_effect = op->kind == ATOMICS_FAA || (op->kind == ATOMICS_CAS && original == op->compare);

	linear_complete(&run->words[op->word], op->linear, original, run->world->now_ns);
	run->last[op->word] = !took_effect              ? original
			      : op->kind == ATOMICS_FAA ? original + op->argument
							: op->argument;
	run->outcome->operations++;
}

void atomics_completed(struct atomics_side *side, const struct ibv_wc *wc)
{
	struct atomics *run = side->run;
	struct atomics_op *op = &side->ops[wc->wr_id];

	world_note(run->world, "wc", wc->wr_id << 8 | wc->status);
	if (wc->wr_id != side->completed) {
		world_violate(run->world, "completed", "a completion of wr %" PRIu64 " where wr %u was due", wc->wr_id,
			side->completed);
		return;
	}
	side->completed++;
	if (wc->status == IBV_WC_SUCCESS) {
		run->succeeded_since_quiet += run->world->now_ns >= run->faults.quiet_ns;
		atomics_answered(side, op, side->memory[wc->wr_id]);
		return;
	}
	if (wc->vendor_err == HF_WC_NOT_EXECUTED)
		linear_withdraw(&run->words[op->word], op->linear);
	else
		linear_doubt(&run->words[op->word], op->linear, run->world->now_ns);
	run->outcome->unknown += wc->vendor_err != HF_WC_NOT_EXECUTED;
	if (!run->crashed && !run->stalls && !run->may_be_unknown && !run->revokes) {
		world_violate(run->world, "lost", "wr %" PRIu64 " failed with status %d although a path came back",
			wc->wr_id, (int)wc->status);
	}
}

/* ---- the run ---- */

static void set_up(struct atomics *run, struct world *world, struct outcome *outcome)
{
	static const char *names[] = {"m", "a", "z"};

	run->world = world;
	run->outcome = outcome;
	run->mode = world_chance(world, 700000) ? HF_ATOMIC_UID : HF_ATOMIC_NATIVE;
	run->policy = HF_POLICY_VARUNA;
	run->hca = world_chance(world, 500000);
	run->may_be_unknown = run->mode == HF_ATOMIC_NATIVE && world_chance(world, 300000);
	if (run->may_be_unknown && world->seed % 2 == 0) { /* what is in doubt is sent again instead */
		run->mode = HF_ATOMIC_PLAIN;
		run->may_be_unknown = false;
	}
	run->revokes = run->mode == HF_ATOMIC_UID && world->seed % REVOKE_SEEDS == 0;
	run->stalls = world->seed % STALL_SEEDS == 1;
	network_init(&run->network, world);
	run->network.stream_limit_ns = 8 * NS_S;
	for (unsigned i = 0; i <= ATOMICS_CLIENTS; i++) {
		struct atomics_side *side = &run->sides[i];

		side->run = run;
		side->number = i;
		host_init(&side->endpoint.host, world, &run->network, names[i]);
		if (run->mode != HF_ATOMIC_NATIVE || run->may_be_unknown)
			side->endpoint.host.caps_masked |= HF_DEV_ATOMIC_RESULTS;
		if (run->hca)
			side->endpoint.host.caps_masked |= HF_DEV_ATOMIC_GLOBAL;
		side->endpoint.process =
			process_create(&side->endpoint.host, side->endpoint.host.name, &atomics_program, side);
	}
	for (unsigned rail = 0; rail < ATOMICS_RAILS; rail++)
		for (unsigned i = 0; i <= ATOMICS_CLIENTS; i++) {
			char address[HF_ADDR_TEXT];

			snprintf(address, sizeof(address), "10.%u.0.%u", rail, i + 1);
			network_add_port(&run->network, &run->sides[i].endpoint.host, rail, address);
		}
}

static bool idle(const struct atomics *run)
{
	if (run->sides[0].own_op != NULL)
		return false;
	for (unsigned i = 1; i <= ATOMICS_CLIENTS; i++)
		if (run->sides[i].vqp != NULL && run->sides[i].completed < run->sides[i].posted)
			return false;
	return true;
}

static bool has_room(const struct atomics *run)
{
	return run->sides[1].posted < ATOMICS_OPS && run->sides[2].posted < ATOMICS_OPS;
}

static void run_until_alive(struct atomics *run, uint64_t limit_ns)
{
	struct world *world = run->world;

	while (world->violations == 0 && world->now_ns < limit_ns && run->succeeded_since_quiet < LIVE_OPERATIONS &&
		has_room(run))
		world_run_until(world, world->now_ns + NS_MS);
	if (world->violations == 0 && run->succeeded_since_quiet < LIVE_OPERATIONS && has_room(run))
		world_violate(world, "liveness", "no progress after the faults had healed");
}

static bool is_uid(const struct atomics_side *owner, unsigned word)
{
	const struct uid_arena *arena = owner->endpoint.pd->uids;
	uint32_t index;
	uint64_t sequence;

	return arena != NULL && uid_decode(owner->memory[word], arena->count, &index, &sequence) &&
	       uid_slot_matches(&arena->slots[index], owner->memory[word], (uintptr_t)&owner->memory[word]);
}

static bool holds_uids(const struct atomics *run)
{
	for (unsigned i = 0; i < ATOMICS_WORDS; i++)
		if (is_uid(&run->sides[0], i))
			return true;
	return false;
}

/* The last confirmation waits until its vqp and the home of atomics are on one rail, and that rail may be paused. */
static void run_until_confirmed(struct atomics *run, uint64_t limit_ns)
{
	struct world *world = run->world;

	while (world->violations == 0 && world->now_ns < limit_ns && holds_uids(run))
		world_run_until(world, world->now_ns + NS_MS);
}

static void run_until_idle(struct atomics *run, uint64_t limit_ns)
{
	struct world *world = run->world;

	run->stopping = true;
	while (world->violations == 0 && world->now_ns < limit_ns && !idle(run))
		world_run_until(world, world->now_ns + NS_MS);
	if (world->violations == 0 && !idle(run))
		world_violate(world, "liveness", "a wr never completed");
	if (world->violations == 0)
		world_run_until(world, world->now_ns + SETTLE_NS);
}

static bool is_served(const struct atomics_side *owner, uint32_t num)
{
	for (unsigned i = 0; i < owner->served_count; i++)
		if (owner->served[i] != NULL && hf_vqp_num(owner->served[i]) == num)
			return true;
	return false;
}

static void check_slots(const struct atomics *run)
{
	const struct atomics_side *owner = &run->sides[0];
	const struct uid_arena *arena = owner->endpoint.pd->uids;

	for (uint32_t i = 0; arena != NULL && i < arena->count / UID_SLOTS_PER_VQP; i++) {
		const struct uid_loan *loan = &arena->loans[i];

		if (loan->vqp != 0 && loan->vqp != UID_OWNER && loan->free_ns == 0 && !is_served(owner, loan->vqp))
			world_violate(
				run->world, "quiet", "the slots of vqp %u, which ended, did not come back", loan->vqp);
	}
}

static void check(struct atomics *run)
{
	struct atomics_side *owner = &run->sides[0];

	for (unsigned i = 0; i < ATOMICS_RAILS; i++)
		bus_drain(&nic_of(hf_node_dev(owner->endpoint.node, i))->bus);
	check_slots(run);
	for (unsigned i = 0; i < ATOMICS_WORDS && run->world->violations == 0; i++) {
		const char *wrong = linear_check(&run->words[i]);

		if (wrong != NULL)
			world_violate(run->world, "linear", "word %u: %s", i, wrong);
		else if (is_uid(owner, i))
			world_violate(run->world, "quiet", "word %u still holds the uid %" PRIx64, i, owner->memory[i]);
	}
}

static void run(struct world *world, struct outcome *outcome)
{
	struct atomics *run = calloc(1, sizeof(*run));
	struct process *processes[ATOMICS_CLIENTS + 1];
	struct hf_vqp_counters counters;
	uint64_t quiet_ns = world_range(world, 100 * NS_MS, 600 * NS_MS);
	uint32_t allowed = ATOMICS_FAULTS;

	ensure(run != NULL);
	set_up(run, world, outcome);
	for (unsigned i = 0; i <= ATOMICS_CLIENTS; i++)
		process_start(processes[i] = run->sides[i].endpoint.process);
	if (run->mode == HF_ATOMIC_UID) /* a qp that cannot be fenced is destroyed, and its results with it */
		allowed |= FAULT_BIT(FAULT_FENCE_FAILS);
	if (run->stalls) {
		faults_plan(&run->faults, &run->network, processes, ATOMICS_CLIENTS + 1,
			allowed & ~FAULT_BIT(FAULT_PROCESS_CRASH), (unsigned)world_range(world, 0, 5),
			quiet_ns += STALL_NS_MAX);
		faults_plan_stall(&run->faults, FAULT_PAUSE, ATOMICS_LEASE_NS);
	} else { /* the owner lives: what its memory held would be gone with it */
		faults_plan(&run->faults, &run->network, processes + 1, ATOMICS_CLIENTS, allowed,
			(unsigned)world_range(world, 0, 10), quiet_ns);
	}
	world_run_until(world, quiet_ns);
	run_until_alive(run, quiet_ns + LIVE_NS);
	run_until_idle(run, world->now_ns + IDLE_NS);
	run_until_confirmed(run, world->now_ns + CONFIRM_NS);
	if (world->violations == 0)
		check(run);
	for (unsigned i = 1; i <= ATOMICS_CLIENTS; i++)
		if (run->sides[i].vqp != NULL) {
			hf_vqp_counters(run->sides[i].vqp, &counters);
			outcome->failovers += counters.failovers;
		}
	for (unsigned i = 0; i <= ATOMICS_CLIENTS; i++)
		host_free(&run->sides[i].endpoint.host);
	for (unsigned i = 0; i < ATOMICS_WORDS; i++)
		linear_free(&run->words[i]);
	network_free(&run->network);
	free(run);
}

const struct scenario scenario_atomics = {
	.name = "atomics",
	.what = "atomics of two clients and the owner, in each mode of a region",
	.run = run,
};
