/* torn_slots.h - what a torn WRITE leaves in a slot of a replicated log is no value (slot.h: SLOT-1, SLOT-2).
 *
 * A writer may end in mid-WRITE, and not every NIC writes in order. So for each slot that is written, words of the new
 * contents are mixed with words of what the memory has, or of another value for that index, and the product judges the
 * mixture. Claim:
 *   torn   what is judged valid is the new value, or the one that was there, under the number that it had
 *
 * The world goes on as if it had not been looked at: which words are mixed follows from the contents alone. */
#ifndef HOLDFAST_SIM_CHECKERS_TORN_SLOTS_H
#define HOLDFAST_SIM_CHECKERS_TORN_SLOTS_H

#include <stddef.h>

#include "sim/world.h"
#include "smr/slot.h"

/* `bytes` of `data` are about to be visible at `slot`, where slot_bytes may be read. */
void torn_slots_write(struct world *world, const struct smr_geometry *geometry, const uint8_t *slot,
	const uint8_t *data, size_t bytes);

#endif
