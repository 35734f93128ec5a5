/* Pairs of clients at two members use two keys in the opposite order, each in one go: a connection reads behind its own
 * writes, and not both can have been the first (R-K8, K5). Keys are used once. Histories of single keys do not tell. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "sim/kv/kv.h"

#define LEASE_NS (100 * NS_MS)
#define ROUNDS   400u
#define LOOK_NS  (5 * NS_US)
#define APART_NS (20 * NS_US) /* two of a pair begin at most */
#define SIDES    2u           /* of a pair: clients of members 0 and 1 */
#define STEPS    3u
#define VALUE    "5"

enum shape {
	SETS,  /* each side: SET its key, GET the other one; one GET finds a value */
	ADDS,  /* the same with INCR */
	HEARD, /* one side: SET x, SET y; the other: GET y, GET x: with y there is x */
	/* One side: INCR x, SET y; the other: SET x, GET y, GET x: with y there is the INCR, unless SET outdid it. */
	MET,
	SHAPES
};

#define X 0u
#define Y 1u

struct step {
	enum hf_kv_kind kind;
	unsigned key; /* X or Y */
};

static const struct step shapes[SHAPES][SIDES][STEPS] = {
	[SETS] = {{{HF_KV_SET, X}, {HF_KV_GET, Y}}, {{HF_KV_SET, Y}, {HF_KV_GET, X}}},
	[ADDS] = {{{HF_KV_ADD, X}, {HF_KV_GET, Y}}, {{HF_KV_ADD, Y}, {HF_KV_GET, X}}},
	[HEARD] = {{{HF_KV_SET, X}, {HF_KV_SET, Y}}, {{HF_KV_GET, Y}, {HF_KV_GET, X}}},
	[MET] = {{{HF_KV_ADD, X}, {HF_KV_SET, Y}}, {{HF_KV_SET, X}, {HF_KV_GET, Y}, {HF_KV_GET, X}}},
};

/* Operations in one go. */
struct side {
	struct hf_kv_op ops[STEPS];
	int64_t numbers[STEPS]; /* what a GET found, and a sum; 0: nothing */
	uint64_t at_ns;         /* UINT64_MAX: they are posted */
	unsigned count, done;   /* count: 0 before the first round */
};

struct pair {
	struct side sides[SIDES];
	char keys[2][24];
	enum shape shape;
	unsigned round;
};

struct order {
	struct kv_cluster all;
	struct pair pairs[KV_CLIENTS];
};

static void done(struct hf_kv_op *op)
{
	struct side *side = op->context;
	int64_t *number = &side->numbers[op - side->ops];

	if (op->kind == HF_KV_GET && op->result == HF_KV_OK)
		*number = *(const char *)op->returned - '0';
	else if (op->kind == HF_KV_ADD)
		*number = op->number;
	side->done++;
}

static bool post(struct kv_client *client)
{
	struct kv_node *node = client->node;
	struct order *order = container_of(node->all, struct order, all);
	struct side *side = &order->pairs[client - node->clients].sides[node->index];

	if (node->index >= SIDES || order->all.world->now_ns < side->at_ns)
		return false;
	side->at_ns = UINT64_MAX;
	for (unsigned i = 0; i < side->count; i++)
		hf_kv_post(client->flow, &side->ops[i]);
	return true;
}

static void begin_round(struct order *order, unsigned n)
{
	struct world *world = order->all.world;
	struct pair *pair = &order->pairs[n];

	pair->round++;
	pair->shape = (enum shape)world_range(world, 0, SHAPES - 1);
	snprintf(pair->keys[X], sizeof(pair->keys[X]), "x%u.%u", n, pair->round);
	snprintf(pair->keys[Y], sizeof(pair->keys[Y]), "y%u.%u", n, pair->round);
	for (unsigned i = 0; i < SIDES; i++) {
		struct side *side = &pair->sides[i];

		*side = (struct side){.at_ns = world->now_ns + world_range(world, 0, APART_NS),
			.count = pair->shape == MET && i == 1 ? 3 : 2};
		for (unsigned k = 0; k < side->count; k++) {
			const struct step *step = &shapes[pair->shape][i][k];

			side->ops[k] = (struct hf_kv_op){.kind = step->kind,
				.key = pair->keys[step->key],
				.key_bytes = (uint32_t)strlen(pair->keys[step->key]),
				.value = VALUE,
				.value_bytes = 1,
				.delta = 1,
				.done = done,
				.context = side};
		}
	}
}

static bool is_in_order(const struct pair *pair)
{
	const int64_t *first = pair->sides[0].numbers, *second = pair->sides[1].numbers;

	switch (pair->shape) {
	case SETS:
	case ADDS:
		return first[1] != 0 || second[1] != 0;
	case HEARD:
		return second[0] == 0 || second[1] != 0;
	case MET: /* the sum tells which of both was first */
		return second[1] == 0 || first[0] == 1 || second[2] == first[0];
	case SHAPES:
		break;
	}
	return false;
}

static void judge(struct order *order, const struct pair *pair)
{
	static const char *const names[SHAPES] = {"SET and GET", "INCR and GET", "SET and SET", "INCR and SET"};

	for (unsigned i = 0; i < SIDES; i++)
		order->all.outcome->operations += pair->sides[i].count;
	if (!is_in_order(pair))
		world_violate(order->all.world, "order", "of %s and %s: %s of a connection are not in its order",
			pair->keys[X], pair->keys[Y], names[pair->shape]);
}

static bool has_ended(const struct pair *pair)
{
	return pair->sides[0].done == pair->sides[0].count && pair->sides[1].done == pair->sides[1].count;
}

static void run_rounds(struct order *order)
{
	struct world *world = order->all.world;
	uint64_t limit_ns = world->now_ns + ROUNDS * 10 * NS_MS;
	unsigned rounds = 0;

	for (unsigned i = 0; i < KV_CLIENTS; i++)
		begin_round(order, i);
	while (rounds < ROUNDS && world->violations == 0 && world->now_ns < limit_ns) {
		world_run_until(world, world->now_ns + LOOK_NS);
		for (unsigned i = 0; i < KV_CLIENTS; i++)
			if (has_ended(&order->pairs[i])) {
				judge(order, &order->pairs[i]);
				begin_round(order, i);
				rounds++;
			}
	}
	if (rounds < ROUNDS)
		world_violate(world, "liveness", "%u of %u rounds ended", rounds, ROUNDS);
}

static void run(struct world *world, struct outcome *outcome)
{
	struct order *order = calloc(1, sizeof(*order));
	struct kv_cluster *all = &order->all;

	ensure(order != NULL);
	kv_calm_set_up(all, world, outcome, LEASE_NS, KV_KEEP_NOTHING);
	all->work = post;
	if (kv_calm_begin(all))
		run_rounds(order);
	all->stopping = true;
	kv_nodes_free(all);
	free(order);
}

const struct scenario scenario_kv_order = {
	.name = "kv-order",
	.only_when_named = true,
	.what = "the same without a fault; pairs of clients use two keys in the opposite order, each in one go",
	.run = run,
};
