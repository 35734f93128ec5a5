/* Slots of any bytes, which a peer may write into the log, and words. What is valid is what was asked for. */
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/ensure.h"
#include "smr/slot.h"

#define SLOT_BYTES 128u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void judge(const uint8_t *at, uint64_t index)
{
	const struct smr_geometry geometry = {.slots = 16, .slot_bytes = SLOT_BYTES, .span = 4, .seed = 9};
	uint8_t copy[SLOT_BYTES] = {0};
	struct smr_slot slot, again;
	enum smr_slot_state state = smr_slot_judge(&geometry, at, index, &slot);

	if (state != SMR_SLOT_VALID && state != SMR_SLOT_LATER)
		return;
	ensure(slot.index >= index && (slot.index == index) == (state == SMR_SLOT_VALID));
	ensure(smr_slot_bytes(&slot) <= SLOT_BYTES && slot.commit <= slot.index);
	smr_slot_copy(&geometry, copy, at, 5);
	ensure(smr_slot_judge(&geometry, copy, slot.index, &again) == SMR_SLOT_VALID);
	ensure(smr_slot_number(&again) == 5 && smr_slot_same(copy, at));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	const struct smr_geometry geometry = {.slots = 16, .slot_bytes = SLOT_BYTES, .span = 4, .seed = 9};
	uint8_t at[SLOT_BYTES] = {0}, stored[SLOT_BYTES];
	struct smr_slot slot = {0};
	uint64_t value;

	memcpy(at, data, bytes < SLOT_BYTES ? bytes : SLOT_BYTES);
	judge(at, get_le64(at + 8));
	judge(at, 1);
	if (smr_slot_open(get_le64(at), &value))
		ensure(smr_slot_seal(value) == get_le64(at));
	/* one that was stored, with a byte that is not */
	slot = (struct smr_slot){.index = get_le32(at), .commit = get_le16(at), .kind = get_le16(at + 4)};
	slot.origin = get_le64(at + 16);
	slot.bytes = at[6] % (SLOT_BYTES - SMR_SLOT_HEADER + 1);
	(void)smr_slot_store(&geometry, stored, &slot, at[7], at + 8);
	judge(stored, slot.index);
	stored[at[8] % SLOT_BYTES] ^= at[9];
	judge(stored, slot.index);
	return 0;
}
