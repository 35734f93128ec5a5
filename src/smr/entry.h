/* entry.h - an entry that is put together from its slots, in the order of their indexes. Pure; any thread. */
#ifndef HOLDFAST_SMR_ENTRY_H
#define HOLDFAST_SMR_ENTRY_H

#include "smr/slot.h"

struct smr_entry {
	uint64_t first; /* the index of its first slot; 0: none is begun */
	uint32_t bytes, requests;
};

/* Appends a slot, whose payload goes to `memory`, which is as long as geometry.span slots. True: the entry is whole.
 * Slots that make no whole entry are skipped, at each member alike. */
bool smr_entry_add(struct smr_entry *entry, uint8_t *memory, const struct smr_geometry *geometry,
	const struct smr_slot *slot, const uint8_t *payload);

#endif
