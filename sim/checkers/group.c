/* A consumer group's account of one partition. */
#include "sim/checkers/group.h"

#include <inttypes.h>
#include <string.h>

void group_account_init(struct group_account *account, struct world *world, const char *name)
{
	memset(account, 0, sizeof(*account));
	account->world = world;
	account->name = name;
}

void group_assigned(struct group_account *account, uint32_t generation)
{
	if (generation > account->assigned)
		account->assigned = generation;
}

void group_owned(struct group_account *account, uint32_t generation, unsigned member)
{
	uint8_t *owner = &account->owners[generation % GROUP_GENERATIONS_MAX];

	if (*owner != 0 && *owner != member + 1)
		world_violate(account->world, "owner", "%s: members %u and %u have it in generation %u", account->name,
			*owner - 1, member, generation);
	*owner = (uint8_t)(member + 1);
}

struct group_floor group_floor(const struct group_account *account)
{
	return (struct group_floor){account->done_generation, account->done_offset};
}

void group_begins(struct group_account *account, const struct group_floor *floor, uint32_t generation, uint64_t offset)
{
	bool was_sent = offset == 0 || (offset < PARTITION_RECORDS_MAX && account->attempts[offset] > 0);

	if (generation < floor->generation)
		return; /* its group goes on without it */
	if (!was_sent)
		world_violate(account->world, "begin",
			"%s: generation %u begins at %" PRIu64 ", which nobody committed", account->name, generation,
			offset);
	if (offset < floor->offset && (offset == 0 || account->attempts[offset] <= floor->generation))
		world_violate(account->world, "begin",
			"%s: generation %u begins at %" PRIu64 ", and generation %u was told that %" PRIu64
			" is committed",
			account->name, generation, offset, floor->generation, floor->offset);
	if (generation >= account->begun.generation)
		account->begun = (struct group_floor){generation, offset};
}

void group_gives(struct group_account *account, uint64_t from, uint64_t to)
{
	for (uint64_t i = from; i < to && i < PARTITION_RECORDS_MAX; i++) {
		account->doubled += account->given[i];
		account->given[i] = true;
	}
}

uint32_t group_commits(struct group_account *account, uint32_t generation, uint64_t offset)
{
	if (offset < PARTITION_RECORDS_MAX && account->attempts[offset] < generation)
		account->attempts[offset] = generation;
	return account->assigned;
}

void group_committed(struct group_account *account, uint32_t assigned, uint32_t generation, uint64_t offset)
{
	if (generation < assigned)
		world_violate(account->world, "zombie",
			"%s: a commit of generation %u is done, which was sent when generation %u had begun",
			account->name, generation, assigned);
	if (generation < account->begun.generation && offset > account->begun.offset)
		world_violate(account->world, "begin",
			"%s: generation %u is told that %" PRIu64
			" is committed, and generation %u has begun at %" PRIu64,
			account->name, generation, offset, account->begun.generation, account->begun.offset);
	while (account->whole < offset && account->given[account->whole])
		account->whole++;
	if (account->whole < offset)
		world_violate(account->world, "missed",
			"%s: %" PRIu64 " is committed, and nobody was given record %" PRIu64, account->name, offset,
			account->whole);
	if (generation < account->done_generation ||
		(generation == account->done_generation && offset < account->done_offset))
		return;
	account->done_generation = generation;
	account->done_offset = offset;
}

bool group_is_at(const struct group_account *account, uint64_t end)
{
	for (uint64_t i = 0; i < end; i++)
		if (!account->given[i])
			return false;
	return account->done_offset == end;
}
