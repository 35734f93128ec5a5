#include "sim/checkers/replicas.h"

#include <inttypes.h>
#include <string.h>

void replicas_init(struct replicas *replicas, struct world *world)
{
	memset(replicas, 0, sizeof(*replicas));
	replicas->world = world;
}

uint32_t replicas_propose(struct replicas *replicas)
{
	replicas->ops[replicas->proposed] = (struct replicas_op){.place = REPLICAS_NEVER};
	return replicas->proposed++;
}

static void apply_first(struct replicas *replicas, unsigned member, uint64_t index, uint32_t op)
{
	struct replicas_op *at = &replicas->ops[op];

	if (at->place != REPLICAS_NEVER)
		world_violate(replicas->world, "proposed", "member %u applied request %u again, at place %u", member,
			op, replicas->applied);
	if (at->disclaimed)
		world_violate(replicas->world, "told", "request %u is applied, and was said not to be written", op);
	at->place = replicas->applied;
	replicas->order[replicas->applied] = op;
	replicas->index[replicas->applied++] = index;
}

void replicas_apply(struct replicas *replicas, unsigned member, uint64_t index, uint32_t op)
{
	uint32_t place = replicas->next[member]++;

	if (op >= replicas->proposed)
		world_violate(replicas->world, "proposed", "member %u applied what nobody proposed", member);
	else if (place == replicas->applied)
		apply_first(replicas, member, index, op);
	else if (replicas->order[place] != op || replicas->index[place] != index)
		world_violate(replicas->world, "alike",
			"member %u applied request %u of entry %" PRIu64
			" at place %u, where request %u of entry %" PRIu64 " was applied by another one",
			member, op, index, place, replicas->order[place], replicas->index[place]);
}

void replicas_answer(struct replicas *replicas, uint32_t op)
{
	const struct replicas_op *at = &replicas->ops[op];

	if (at->place == REPLICAS_NEVER)
		world_violate(replicas->world, "told", "request %u was answered and is not applied", op);
	else if (at->place >= replicas->answered_end)
		replicas->answered_end = at->place + 1;
	replicas->ops[op].answered = true;
}

void replicas_disclaim(struct replicas *replicas, uint32_t op)
{
	replicas->ops[op].disclaimed = true;
	if (replicas->ops[op].place != REPLICAS_NEVER)
		world_violate(replicas->world, "told", "request %u was applied, and is said not to be written", op);
}

void replicas_restart(struct replicas *replicas, unsigned member, uint32_t place)
{
	replicas->next[member] = place;
	if (place > replicas->applied)
		world_violate(replicas->world, "alike", "member %u begins behind place %u, which nobody has reached",
			member, place);
}

uint32_t replicas_read_begins(const struct replicas *replicas)
{
	return replicas->answered_end;
}

void replicas_read_ends(struct replicas *replicas, unsigned member, uint32_t least)
{
	if (replicas->next[member] < least)
		world_violate(replicas->world, "fresh",
			"a read at member %u saw %u requests, and %u had been answered when it began", member,
			replicas->next[member], least);
	if (replicas->answered_end < replicas->next[member]) /* what one read saw, later ones see */
		replicas->answered_end = replicas->next[member];
}

void replicas_settled(struct replicas *replicas, unsigned member)
{
	if (replicas->next[member] < replicas->answered_end)
		world_violate(replicas->world, "kept", "member %u has %u requests, and %u were answered", member,
			replicas->next[member], replicas->answered_end);
}
