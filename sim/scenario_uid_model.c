/* Atomics by uid, in every order there is: an explicit-state search over the pure steps of vqp/atomic/uid.h.
 *
 * A state is the memory of the responder (one target, a slot for each requester) and where everybody is: requesters
 * with the accesses that they have posted, a reader, the responder's resolver. Every access is one step for each word
 * that it touches, so a slot is written and read in pieces. At any moment a path may fail: what was posted and did
 * not execute never will (the fence), and what was answered is lost. A requester may die instead.
 *
 * Where atomicity ends at the NIC, what it writes is posted: it sees its own writes at once, the responder's CPU only
 * later, one after another. Requesters and readers are on one NIC then (home.h), the resolver is the CPU.
 *
 * Beside the memory stands the value that the target means; it changes when a CAS installs a UID. Checked in each
 * state, and at the end of each path through them:
 *   once     an operation that was answered with success took effect once, any other one never
 *   value    what it returned is what the target meant then, or, of one that changed nothing, at some moment of it
 *   memory   a UID is replaced by what it stands for
 *   quiet    when nobody has anything left to do the target holds its value
 *
 * A seed is a case: who does what, in which order a slot's words are touched, how many failures there may be, and,
 * from HCA_SEED on, with posted writes. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "sim/scenario.h"
#include "vqp/atomic/uid.h"

#define ACTORS     4u
#define TODOS_MAX  3u
#define SLOTS      2u
#define WORDS      3u
#define TARGET     0x1000u
#define STATES_MAX 3000000u
#define TABLE_BITS 22u
#define DEPTH_MAX  400u
#define POSTED_MAX 6u
#define HCA_SEED   256u                  /* and so on: 16 cases in 16 orders */
#define GHOST      0xb5000100000000ffull /* looks like a UID of slot 1, and is a value */

struct todo {
	enum uid_kind kind;
	uint64_t compare, argument;
};

struct part {
	unsigned count;
	struct todo todos[TODOS_MAX];
	uint8_t failures, deaths;
};

struct model_case {
	const char *what;
	uint64_t initial;
	struct part parts[ACTORS]; /* 0 and 1 own a slot */
};

enum phase { PHASE_IDLE, PHASE_RUNNING, PHASE_CONFIRMING, PHASE_DEAD };

struct actor {
	struct uid_op op;
	struct uid_plan plan;
	struct uid_result result;
	uint64_t before; /* what the target meant when the operation took effect */
	uint64_t meant;  /* bit per value that it has meant since the operation began */
	uint32_t access, word, next;
	enum phase phase;
	uint32_t failures, deaths, executed, unused;
};

/* Written by the NIC, not yet visible to the CPU. */
struct posted {
	uint64_t value;
	uint32_t slot, word; /* slot SLOTS: the target */
};

struct state {
	uint64_t target, logical;
	struct uid_slot slots[SLOTS];
	struct posted posted[POSTED_MAX];
	uint32_t posted_count, unused;
	struct actor actors[ACTORS];
};

struct search {
	struct world *world;
	const struct model_case *what;
	bool hca;
	unsigned write_order[WORDS], read_order[WORDS];
	uint64_t *table; /* hashes of the states that were seen */
	uint64_t states;
	struct state *stack;
};

/* ---- cases ---- */

#define CAS(c, s)                                                                                                      \
	{                                                                                                              \
		UID_CAS, c, s                                                                                          \
	}
#define FAA(a)                                                                                                         \
	{                                                                                                              \
		UID_FAA, 0, a                                                                                          \
	}
#define READ                                                                                                           \
	{                                                                                                              \
		UID_READ, 0, 0                                                                                         \
	}
#define RESOLVE(i)                                                                                                     \
	{                                                                                                              \
		UID_RESOLVE, i, 0                                                                                      \
	}
#define DIRECT(c, s)                                                                                                   \
	{                                                                                                              \
		UID_DIRECT_CAS, c, s                                                                                   \
	}
#define NONE                                                                                                           \
	{                                                                                                              \
		0                                                                                                      \
	}

/* clang-format off */
static const struct model_case cases[] = {
	{"two take a lock and one loses its path twice", 0,
		{{1, {CAS(0, 1)}, 2, 0}, {1, {CAS(0, 2)}, 0, 0}, NONE, NONE}},
	{"a lock is taken and released while the other tries", 0,
		{{2, {CAS(0, 1), CAS(1, 0)}, 1, 0}, {1, {CAS(0, 2)}, 0, 0}, NONE, NONE}},
	{"a value comes back while a helper is stalled", 0,
		{{2, {CAS(0, 1), CAS(1, 2)}, 0, 0}, {1, {CAS(1, 5)}, 0, 0}, NONE, NONE}},
	{"the same uid would come back with the same compare", 0,
		{{3, {CAS(0, 1), CAS(1, 0), CAS(0, 3)}, 0, 0}, {1, {CAS(7, 8)}, 0, 0}, NONE, NONE}},
	{"additions meet", 0,
		{{1, {FAA(1)}, 1, 0}, {1, {FAA(2)}, 1, 0}, NONE, NONE}},
	{"a reader beside a cas whose path fails", 0,
		{{2, {CAS(0, 1), CAS(1, 2)}, 1, 0}, NONE, {1, {READ}, 0, 0}, NONE}},
	{"two readers beside one another's cas", 0,
		{{1, {CAS(0, 1)}, 0, 0}, {1, {CAS(1, 2)}, 0, 0}, {1, {READ}, 0, 0}, NONE}},
	{"the resolver beside a cas whose path fails", 0,
		{{2, {CAS(0, 1), CAS(1, 2)}, 1, 0}, NONE, NONE, {2, {RESOLVE(0), RESOLVE(0)}, 0, 0}}},
	{"a requester dies while another helps", 0,
		{{1, {CAS(0, 1)}, 0, 1}, {1, {CAS(1, 2)}, 1, 0}, NONE, {1, {RESOLVE(0)}, 0, 0}}},
	{"a value that looks like a uid comes and goes", 0,
		{{1, {CAS(0, GHOST)}, 1, 0}, {1, {CAS(GHOST, 2)}, 0, 0}, {1, {READ}, 0, 0}, NONE}},
	{"an addition to a value that looks like a uid", GHOST - 1,
		{{1, {FAA(1)}, 1, 0}, NONE, {1, {READ}, 0, 0}, NONE}},
	{"the responder's own cas among the others'", 0,
		{{2, {CAS(0, 1), CAS(3, 4)}, 1, 0}, NONE, NONE, {1, {DIRECT(1, 3)}, 0, 0}}},
	{"two paths fail, and the resolver works", 0,
		{{1, {CAS(0, 1)}, 1, 0}, {1, {CAS(1, 2)}, 1, 0}, NONE, {1, {RESOLVE(0)}, 0, 0}}},
	{"a slot is used three times under a stalled reader and a stalled helper", 0,
		{{3, {CAS(0, 1), CAS(1, 0), CAS(0, 3)}, 0, 0}, {1, {CAS(1, 2)}, 0, 0}, {1, {READ}, 0, 0}, NONE}},
	{"additions by three, one of them the responder's own", 0,
		{{1, {FAA(1)}, 1, 0}, {1, {FAA(2)}, 0, 0}, NONE, {1, {{UID_DIRECT_FAA, 0, 4}}, 0, 0}}},
	{"a failed cas is tried again after its path failed", 5,
		{{2, {CAS(0, 1), CAS(5, 0)}, 2, 0}, {1, {CAS(0, 5)}, 0, 0}, NONE, NONE}},
};
/* clang-format on */

static const unsigned orders[][WORDS] = {{0, 1, 2}, {2, 1, 0}, {1, 2, 0}, {0, 2, 1}};

/* ---- checks ---- */

static uint64_t bit_of(uint64_t value)
{
	if (value >= GHOST - 4 && value <= GHOST + 4)
		return 1ull << (40 + value - (GHOST - 4));
	return value < 40 ? 1ull << value : 1ull << 63;
}

static void check_answer(struct search *search, const struct actor *actor, const struct todo *todo)
{
	bool success = todo->kind == UID_FAA || todo->kind == UID_DIRECT_FAA ||
		       ((todo->kind == UID_CAS || todo->kind == UID_DIRECT_CAS) && actor->op.original == todo->compare);

	if (todo->kind == UID_RESOLVE)
		return;
	if (actor->executed != success)
		world_violate(search->world, "once", "%s: an operation that %s took effect %u times",
			search->what->what, success ? "succeeded" : "failed", actor->executed);
	else if (success && actor->op.original != actor->before)
		world_violate(search->world, "value", "%s: it returned %" PRIx64 ", the target meant %" PRIx64,
			search->what->what, actor->op.original, actor->before);
	else if (!success && (bit_of(actor->op.original) & actor->meant) == 0)
		world_violate(search->world, "value", "%s: it returned %" PRIx64 ", which the target never meant",
			search->what->what, actor->op.original);
}

static void took_effect(struct search *search, struct state *state, struct actor *actor, const struct todo *todo)
{
	if (++actor->executed > 1)
		world_violate(search->world, "once", "%s: a second time", search->what->what);
	if (todo->kind != UID_FAA && todo->kind != UID_DIRECT_FAA && state->logical != todo->compare)
		world_violate(
			search->world, "value", "%s: it took effect on %" PRIx64, search->what->what, state->logical);
	actor->before = state->logical;
	state->logical = todo->kind == UID_FAA || todo->kind == UID_DIRECT_FAA ? state->logical + todo->argument
									       : todo->argument;
	for (unsigned i = 0; i < ACTORS; i++)
		state->actors[i].meant |= bit_of(state->logical);
}

/* ---- steps ---- */

static uint64_t *word_of(struct uid_slot *slot, unsigned word)
{
	return word == 0 ? &slot->word : word == 1 ? &slot->swap : &slot->target;
}

static uint64_t *memory_of(struct state *state, uint32_t slot, uint32_t word)
{
	return slot == SLOTS ? &state->target : word_of(&state->slots[slot], word);
}

static void show_first(struct state *state)
{
	const struct posted first = state->posted[0];

	*memory_of(state, first.slot, first.word) = first.value;
	state->posted_count--;
	memmove(state->posted, state->posted + 1, state->posted_count * sizeof(first));
	memset(&state->posted[state->posted_count], 0, sizeof(first));
}

static bool is_cpu(const struct actor *actor)
{
	return actor->op.kind == UID_RESOLVE || actor->op.kind == UID_DIRECT_CAS || actor->op.kind == UID_DIRECT_FAA;
}

static uint64_t load(struct state *state, const struct actor *actor, uint32_t slot, uint32_t word)
{
	uint64_t value = *memory_of(state, slot, word);

	for (uint32_t i = 0; i < state->posted_count && !is_cpu(actor); i++)
		if (state->posted[i].slot == slot && state->posted[i].word == word)
			value = state->posted[i].value;
	return value;
}

static void store(const struct search *search, struct state *state, const struct actor *actor, uint32_t slot,
	uint32_t word, uint64_t value)
{
	if (!search->hca || is_cpu(actor)) {
		*memory_of(state, slot, word) = value;
		return;
	}
	if (state->posted_count == POSTED_MAX)
		show_first(state);
	state->posted[state->posted_count++] = (struct posted){.value = value, .slot = slot, .word = word};
}

static uint64_t cas(const struct search *search, struct state *state, const struct actor *actor, uint32_t slot,
	const struct uid_access *access)
{
	uint64_t original = load(state, actor, slot, 0);

	if (original == access->compare)
		store(search, state, actor, slot, 0, access->swap);
	return original;
}

static void cas_target(struct search *search, struct state *state, unsigned who, const struct uid_access *access)
{
	struct actor *actor = &state->actors[who];

	actor->result.value = cas(search, state, actor, SLOTS, access);
	if (actor->result.value != access->compare)
		return;
	if (actor->phase == PHASE_RUNNING && actor->op.state == UID_OP_TRY)
		took_effect(search, state, actor, &search->what->parts[who].todos[actor->next]);
	else if (access->swap != state->logical && !(search->hca && is_cpu(actor)))
		/* the CPU may be late where writes are posted; what it wrote is overwritten then */
		world_violate(search->world, "memory", "%s: a uid is replaced by %" PRIx64 ", it means %" PRIx64,
			search->what->what, access->swap, state->logical);
}

/* One word of the access in turn. */
static void do_access(struct search *search, struct state *state, unsigned who)
{
	struct actor *actor = &state->actors[who];
	struct uid_access *access = &actor->plan.access[actor->access];
	unsigned word;

	ensure(access->index < SLOTS);
	switch (access->kind) {
	case UID_WRITE_SLOT:
		word = search->write_order[actor->word++];
		store(search, state, actor, access->index, word, *word_of(&access->slot, word));
		break;
	case UID_READ_SLOT:
		word = search->read_order[actor->word++];
		*word_of(&actor->result.slot, word) = load(state, actor, access->index, word);
		break;
	case UID_CAS_SLOT:
		actor->result.value = cas(search, state, actor, access->index, access);
		actor->word = WORDS;
		break;
	case UID_READ_TARGET:
		actor->result.value = access->target == TARGET ? load(state, actor, SLOTS, 0) : 0;
		actor->word = WORDS;
		break;
	case UID_CAS_TARGET:
		cas_target(search, state, who, access);
		actor->word = WORDS;
		break;
	}
	if (actor->word == WORDS) {
		actor->word = 0;
		actor->access++;
	}
}

static void begin(struct search *search, struct state *state, unsigned who)
{
	struct actor *actor = &state->actors[who];
	const struct todo *todo = &search->what->parts[who].todos[actor->next];
	uint64_t sequence = actor->op.sequence;

	memset(&actor->op, 0, sizeof(actor->op));
	actor->op.kind = todo->kind;
	actor->op.slots = SLOTS;
	actor->op.index = todo->kind == UID_RESOLVE ? (uint32_t)todo->compare : who < SLOTS ? who : 0;
	actor->op.sequence = sequence;
	actor->op.target = TARGET;
	actor->op.compare = todo->compare;
	actor->op.argument = todo->argument;
	actor->executed = 0;
	actor->before = 0;
	actor->meant = bit_of(state->logical);
	actor->phase = PHASE_RUNNING;
	actor->access = 0;
	uid_begin(&actor->op, &actor->plan);
}

static void ended(struct actor *actor)
{
	actor->phase = PHASE_IDLE;
	actor->next++;
	memset(&actor->plan, 0, sizeof(actor->plan));
}

static void deliver(struct search *search, struct state *state, unsigned who)
{
	struct actor *actor = &state->actors[who];
	struct uid_result result = actor->result;

	memset(&actor->result, 0, sizeof(actor->result));
	actor->access = 0;
	if (actor->phase == PHASE_CONFIRMING) {
		ended(actor);
		return;
	}
	uid_step(&actor->op, &result, &actor->plan);
	if (actor->op.state != UID_OP_OVER)
		return;
	check_answer(search, actor, &search->what->parts[who].todos[actor->next]);
	if (actor->op.installed) {
		uid_confirm(&actor->op, &actor->plan);
		actor->phase = PHASE_CONFIRMING;
	} else {
		ended(actor);
	}
}

static void lose(struct state *state, unsigned who)
{
	struct actor *actor = &state->actors[who];

	actor->failures--;
	actor->access = actor->word = 0;
	memset(&actor->result, 0, sizeof(actor->result));
	if (actor->phase == PHASE_RUNNING)
		uid_lost(&actor->op, &actor->plan);
}

enum move { MOVE_ON, MOVE_LOSE, MOVE_DIE, MOVES };

/* False: not possible in this state. */
static bool move(struct search *search, struct state *state, unsigned who, enum move kind)
{
	struct actor *actor = &state->actors[who];

	if (actor->phase == PHASE_DEAD || (actor->phase == PHASE_IDLE && actor->next == search->what->parts[who].count))
		return false;
	switch (kind) {
	case MOVE_ON:
		if (actor->phase == PHASE_IDLE)
			begin(search, state, who);
		else if (actor->access < actor->plan.count)
			do_access(search, state, who);
		else
			deliver(search, state, who);
		return true;
	case MOVE_LOSE:
		if (actor->failures == 0 || actor->phase == PHASE_IDLE)
			return false;
		lose(state, who);
		return true;
	case MOVE_DIE:
		if (actor->deaths == 0)
			return false;
		actor->deaths = 0;
		actor->phase = PHASE_DEAD;
		return true;
	case MOVES:
		break;
	}
	return false;
}

/* The slots of the dead are resolved, and then nothing but values is left. */
static void check_quiet(struct search *search, const struct state *end)
{
	static struct state state;

	memcpy(&state, end, sizeof(state));
	for (unsigned i = 0; i < SLOTS; i++) {
		struct actor *actor = &state.actors[ACTORS - 1];

		if (end->actors[i].phase != PHASE_DEAD)
			continue;
		memset(actor, 0, sizeof(*actor));
		actor->op = (struct uid_op){.kind = UID_RESOLVE, .slots = SLOTS, .index = i};
		actor->phase = PHASE_RUNNING;
		uid_begin(&actor->op, &actor->plan);
		while (actor->op.state != UID_OP_OVER) {
			struct uid_result result;

			while (actor->access < actor->plan.count)
				do_access(search, &state, ACTORS - 1);
			result = actor->result;
			actor->access = 0;
			uid_step(&actor->op, &result, &actor->plan);
		}
	}
	if (state.target != state.logical)
		world_violate(search->world, "quiet", "%s: the target holds %" PRIx64 ", it means %" PRIx64,
			search->what->what, state.target, state.logical);
}

/* ---- the search ---- */

static uint64_t hash_of(const struct state *state)
{
	const uint64_t *words = (const void *)state;
	uint64_t hash = 0x9e3779b97f4a7c15ull;

	_Static_assert(sizeof(*state) % 8 == 0, "hashed by words");
	for (size_t i = 0; i < sizeof(*state) / 8; i++) {
		hash = (hash ^ words[i]) * 0xff51afd7ed558ccdull;
		hash ^= hash >> 32;
	}
	return hash | 1;
}

/* False: seen before. Only a hash of 64 bits is kept: two states that share one are one too few in billions. */
static bool is_new(struct search *search, const struct state *state)
{
	uint64_t hash = hash_of(state), mask = (1ull << TABLE_BITS) - 1, at = hash & mask;

	while (search->table[at] != 0 && search->table[at] != hash)
		at = (at + 1) & mask;
	if (search->table[at] == hash)
		return false;
	search->table[at] = hash;
	search->states++;
	return true;
}

static void explore(struct search *search, unsigned depth)
{
	const struct state *state = &search->stack[depth];
	bool moved = false;

	ensure(depth + 1 < DEPTH_MAX);
	for (unsigned who = 0; who < ACTORS; who++)
		for (enum move kind = MOVE_ON; kind < MOVES; kind++) {
			struct state *next = &search->stack[depth + 1];

			if (search->world->violations > 0 || search->states == STATES_MAX)
				return;
			memcpy(next, state, sizeof(*next));
			if (!move(search, next, who, kind))
				continue;
			moved |= kind == MOVE_ON;
			if (is_new(search, next))
				explore(search, depth + 1);
		}
	if (state->posted_count > 0) {
		struct state *next = &search->stack[depth + 1];

		memcpy(next, state, sizeof(*next));
		show_first(next);
		if (is_new(search, next))
			explore(search, depth + 1);
	} else if (!moved) {
		check_quiet(search, state);
	}
}

static bool has_direct(const struct model_case *what)
{
	for (unsigned i = 0; i < ACTORS; i++)
		for (unsigned j = 0; j < what->parts[i].count; j++)
			if (what->parts[i].todos[j].kind == UID_DIRECT_CAS ||
				what->parts[i].todos[j].kind == UID_DIRECT_FAA)
				return true;
	return false;
}

static void run(struct world *world, struct outcome *outcome)
{
	uint64_t count = sizeof(cases) / sizeof(cases[0]), order = world->seed / count;
	struct search search = {.world = world, .what = &cases[world->seed % count]};
	struct state *first;

	search.hca = world->seed >= HCA_SEED;
	if (search.hca && has_direct(search.what))
		return; /* the owner's own atomics are refused there */
	memcpy(search.write_order, orders[order % 4], sizeof(search.write_order));
	memcpy(search.read_order, orders[order / 4 % 4], sizeof(search.read_order));
	search.table = calloc(1ull << TABLE_BITS, sizeof(*search.table));
	search.stack = calloc(DEPTH_MAX, sizeof(*search.stack));
	ensure(search.table != NULL && search.stack != NULL);
	first = search.stack;
	first->target = first->logical = search.what->initial;
	for (unsigned i = 0; i < ACTORS; i++) {
		first->actors[i].failures = search.what->parts[i].failures;
		first->actors[i].deaths = search.what->parts[i].deaths;
	}
	explore(&search, 0);
	world_trace(world, "%s: %" PRIu64 " states", search.what->what, search.states);
	if (search.states == STATES_MAX && !search.hca) /* with posted writes some cases have many more */
		world_violate(world, "bounds", "%s has more than %u states", search.what->what, STATES_MAX);
	world_note(world, "states", search.states);
	outcome->operations += search.states;
	free(search.table);
	free(search.stack);
}

const struct scenario scenario_uid_model = {
	.name = "uid-model",
	.what = "every order of the steps of atomics by uid; a seed is a case",
	.only_when_named = true,
	.run = run,
};
