/* entry.h - an entry that is put together from its slots, in the order of their indexes. Pure; any thread.
 *
 * Consensus is per slot. A WRITE that is torn between two slots leaves the first slots of an entry before the last
 * ones of an older entry, and a recovery may decide both. The origin (SLOT-3) tells them apart. All members have the
 * same slots, so each drops the same ones. An entry that was answered is whole: all its slots were decided. */
#ifndef HOLDFAST_SMR_ENTRY_H
#define HOLDFAST_SMR_ENTRY_H

#include "smr/slot.h"

struct smr_entry {
	uint64_t first; /* the index of its first slot; 0: none is begun */
	uint64_t next;  /* the origin of its next slot */
	uint32_t bytes, requests;
};

/* Appends a slot, whose payload goes to `memory`, which is as long as geometry.span slots. True: the entry is whole.
 * A slot that does not continue the entry ends it: its slots so far are dropped, and this one too unless it is the
 * first slot of another entry. */
bool smr_entry_add(struct smr_entry *entry, uint8_t *memory, const struct smr_geometry *geometry,
	const struct smr_slot *slot, const uint8_t *payload);

#endif
