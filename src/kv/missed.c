#include "kv/missed.h"

#include <errno.h>
#include <stdlib.h>

#include "base/ensure.h"

#define EXPECTED 16u

int kv_missed_open(struct missed *missed, uint32_t entries)
{
	uint64_t room = 1;

	while (room < entries)
		room *= 2;
	*missed = (struct missed){.ring = calloc(room, sizeof(*missed->ring)), .mask = room - 1};
	return missed->ring == NULL ? -ENOMEM : 0;
}

void kv_missed_close(struct missed *missed)
{
	free(missed->ring);
	*missed = (struct missed){0};
}

void kv_missed_note(struct missed *missed, struct record *record, uint32_t entry)
{
	record->missed_position = ++missed->position;
	if (missed->ring != NULL)
		missed->ring[missed->position & missed->mask] = entry;
}

void kv_missed_expect(const struct missed *missed, const struct store *store, uint64_t position)
{
	if (position + 2 * EXPECTED <= missed->position)
		kv_store_expect_entry(store, missed->ring[(position + 2 * EXPECTED) & missed->mask]);
	if (position + EXPECTED <= missed->position)
		kv_store_fetch(store, missed->ring[(position + EXPECTED) & missed->mask]);
}

bool kv_missed_covers(const struct missed *missed, unsigned member)
{
	return missed->ring != NULL && missed->from[member] != 0 &&
	       missed->position + 1 - missed->from[member] <= missed->mask;
}

uint32_t kv_missed_at(const struct missed *missed, const struct store *store, uint64_t position)
{
	uint32_t entry = missed->ring[position & missed->mask];
	const struct record *record = kv_store_look(store, entry);

	ensure(position <= missed->position && missed->position - position <= missed->mask);
	return record != NULL && record->missed_position == position ? entry : STORE_NO_ENTRY;
}
