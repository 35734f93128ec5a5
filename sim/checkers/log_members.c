#include "sim/checkers/log_members.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/ensure.h"

#define MEMBER_BYTES 124u /* of each in a CONFIG entry, behind a byte with their number */
#define AT_VOTER     1u
#define AT_ID        4u
#define ENTRY_MAX    2048u

void log_members_free(struct log_members *members)
{
	for (unsigned i = 0; i < members->slot_count; i++)
		free(members->slots[i].payload);
	free(members->slots);
	free(members->chosen);
}

uint64_t log_members_bit(struct log_members *members, unsigned member, uint64_t incarnation)
{
	unsigned i = 0;

	while (i < members->process_count &&
		(members->processes[i].member != member || members->processes[i].incarnation != incarnation))
		i++;
	ensure(i < LOG_MEMBERS_PROCESSES);
	if (i == members->process_count)
		members->processes[members->process_count++] =
			(struct log_members_voter){.member = member, .incarnation = incarnation};
	return 1ull << i;
}

static void add(struct log_members *members, uint64_t index, uint64_t voters)
{
	members->chosen = realloc(members->chosen, (members->chosen_count + 1) * sizeof(*members->chosen));
	ensure(members->chosen != NULL);
	members->chosen[members->chosen_count++] = (struct log_members_configuration){.index = index, .voters = voters};
}

void log_members_found(struct log_members *members, const struct log_members_voter *voters, unsigned count)
{
	uint64_t set = 0;

	for (unsigned i = 0; i < count; i++)
		set |= log_members_bit(members, voters[i].member, voters[i].incarnation);
	add(members, 1, set);
}

static struct log_members_slot *find(struct log_members *members, uint64_t index, uint32_t crc)
{
	for (unsigned i = 0; i < members->slot_count; i++)
		if (members->slots[i].index == index && members->slots[i].crc == crc)
			return &members->slots[i];
	return NULL;
}

void log_members_saw(struct log_members *members, uint64_t index, uint32_t crc, uint64_t origin, bool last,
	const uint8_t *payload, uint32_t bytes)
{
	struct log_members_slot *slot;

	if (find(members, index, crc) != NULL)
		return;
	members->slots = realloc(members->slots, (members->slot_count + 1) * sizeof(*members->slots));
	ensure(members->slots != NULL);
	slot = &members->slots[members->slot_count++];
	*slot = (struct log_members_slot){.index = index, .origin = origin, .crc = crc, .bytes = bytes, .last = last};
	slot->payload = malloc(bytes + 1);
	ensure(slot->payload != NULL);
	memcpy(slot->payload, payload, bytes);
}

static const struct log_members_slot *find_chosen(const struct log_members *members, uint64_t index, uint64_t origin)
{
	for (unsigned i = 0; i < members->slot_count; i++)
		if (members->slots[i].chosen && members->slots[i].index == index && members->slots[i].origin == origin)
			return &members->slots[i];
	return NULL;
}

/* The voters of the entry that the slot ends; 0: it ends none, because another entry has overwritten its beginning. */
static uint64_t voters_of(struct log_members *members, const struct log_members_slot *last)
{
	uint64_t place = last->origin & 0xffff, set = 0;
	uint8_t entry[ENTRY_MAX];
	size_t bytes = 0;

	for (uint64_t i = 0; i <= place; i++) {
		const struct log_members_slot *slot =
			i == place ? last : find_chosen(members, last->index - place + i, last->origin - place + i);

		if (slot == NULL)
			return 0;
		ensure(bytes + slot->bytes <= sizeof(entry));
		memcpy(entry + bytes, slot->payload, slot->bytes);
		bytes += slot->bytes;
	}
	ensure(bytes == 1 + entry[0] * (size_t)MEMBER_BYTES);
	for (const uint8_t *at = entry + 1; at < entry + bytes; at += MEMBER_BYTES)
		if (at[AT_VOTER] != 0)
			set |= log_members_bit(members, at[0], get_le64(at + AT_ID));
	return set;
}

static bool is_majority(uint64_t voters, uint64_t set)
{
	return 2 * __builtin_popcountll(voters & set) > __builtin_popcountll(voters);
}

bool log_members_majority(struct log_members *members, uint64_t index, uint32_t crc, uint64_t set)
{
	const struct log_members_slot *slot = find(members, index, crc);
	unsigned i = members->chosen_count;

	while (i > 0 && members->chosen[i - 1].index >= index)
		i--;
	if (i == 0 || !is_majority(members->chosen[i - 1].voters, set))
		return false;
	if (slot != NULL && slot->last) {
		uint64_t next = voters_of(members, slot);

		return next == 0 || is_majority(next, set);
	}
	return true;
}

void log_members_chosen(struct log_members *members, uint64_t index, uint32_t crc)
{
	struct log_members_slot *slot = find(members, index, crc);
	uint64_t voters;

	if (slot == NULL)
		return;
	slot->chosen = true;
	voters = slot->last ? voters_of(members, slot) : 0;
	if (voters != 0)
		add(members, index, voters);
}

void log_members_back(struct log_members *members, uint64_t index)
{
	while (members->chosen_count > 0 && members->chosen[members->chosen_count - 1].index >= index)
		members->chosen_count--;
	for (unsigned i = 0; i < members->slot_count; i++)
		if (members->slots[i].index >= index)
			members->slots[i].chosen = false;
}
