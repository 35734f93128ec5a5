#include "smr/entry.h"

#include <string.h>

bool smr_entry_add(struct smr_entry *entry, uint8_t *memory, const struct smr_geometry *geometry,
	const struct smr_slot *slot, const uint8_t *payload)
{
	if ((slot->kind & SMR_FIRST) != 0)
		*entry = (struct smr_entry){.first = slot->index, .next = slot->origin, .requests = slot->requests};
	if (slot->origin != entry->next)
		entry->first = 0;
	if (entry->first == 0 || entry->bytes + slot->bytes > geometry->span * geometry->slot_bytes) {
		entry->first = 0;
		return false;
	}
	memcpy(memory + entry->bytes, payload, slot->bytes);
	entry->bytes += slot->bytes;
	entry->next++;
	return (slot->kind & SMR_LAST) != 0;
}
