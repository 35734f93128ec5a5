#include "sim/checkers/torn_slots.h"

#include <inttypes.h>
#include <string.h>

#include "base/bytes.h"
#include "base/ensure.h"

#define SLOT_BYTES_MAX 4096u
#define WORDS_HEADER   (SMR_SLOT_HEADER / 8)
#define WORDS_LOOKED   (WORDS_HEADER + 3) /* a mixture has, or lacks, one of the first */

enum mixture { FIRST_WORDS, ONE_WORD, ALL_BUT_ONE_WORD, MIXTURES };

static void mix(uint8_t *slot, const uint8_t *data, size_t bytes, enum mixture mixture, size_t word)
{
	uint8_t kept[8];
	size_t at = 8 * word;

	memcpy(kept, slot + at, sizeof(kept));
	if (mixture == FIRST_WORDS)
		memcpy(slot, data, at);
	else if (mixture == ONE_WORD)
		memcpy(slot + at, data + at, sizeof(kept));
	else
		memcpy(slot, data, bytes);
	if (mixture == ALL_BUT_ONE_WORD)
		memcpy(slot + at, kept, sizeof(kept));
}

/* Index, length, kind, origin and payload; `slot` is as long as a slot is. */
static bool has_value_of(const uint8_t *mixed, const uint8_t *slot)
{
	uint32_t bytes = get_le32(slot + 16);

	return memcmp(mixed + 8, slot + 8, SMR_SLOT_CRC - 8) == 0 &&
	       memcmp(mixed + SMR_SLOT_HEADER, slot + SMR_SLOT_HEADER, bytes) == 0;
}

static void check(struct world *world, const struct smr_geometry *geometry, const uint8_t *old, const uint8_t *whole,
	const uint8_t *mixed)
{
	uint64_t index = get_le64(whole + 8);
	struct smr_slot slot;

	if (smr_slot_judge(geometry, mixed, index, &slot) != SMR_SLOT_VALID || has_value_of(mixed, whole))
		return;
	if (smr_slot_judge(geometry, old, index, &slot) == SMR_SLOT_VALID && has_value_of(mixed, old) &&
		get_le64(mixed) == get_le64(old))
		return;
	world_violate(world, "torn",
		"a torn WRITE of entry %" PRIu64 " is taken for a value under number %" PRIu64 " that nobody wrote",
		index, get_le64(mixed) >> 24);
}

/* What an earlier leader may have written there: another value for that index. */
static void store_other(const struct smr_geometry *geometry, uint8_t *slot, const uint8_t *whole)
{
	const struct smr_slot other = {
		.index = get_le64(whole + 8), .kind = SMR_NOOP | SMR_FIRST | SMR_LAST, .requests = UINT16_MAX};

	(void)smr_slot_store(geometry, slot, &other, 1, NULL);
}

void torn_slots_write(struct world *world, const struct smr_geometry *geometry, const uint8_t *slot,
	const uint8_t *data, size_t bytes)
{
	uint8_t old[SLOT_BYTES_MAX], whole[SLOT_BYTES_MAX], mixed[SLOT_BYTES_MAX];
	size_t words = bytes / 8, looked = words < WORDS_LOOKED ? words : WORDS_LOOKED;

	ensure(geometry->slot_bytes <= SLOT_BYTES_MAX && bytes <= geometry->slot_bytes);
	memcpy(old, slot, geometry->slot_bytes);
	memcpy(whole, old, geometry->slot_bytes);
	memcpy(whole, data, bytes);
	if (words <= 1)
		return;
	for (unsigned mixture = 0; mixture < MIXTURES; mixture++) {
		size_t word = (get_le32(data + SMR_SLOT_CRC) + mixture) % looked;

		memcpy(mixed, old, geometry->slot_bytes);
		mix(mixed, data, bytes, (enum mixture)mixture, word);
		check(world, geometry, old, whole, mixed);
	}
	store_other(geometry, old, whole);
	if (smr_slot_word(0, get_le32(old + SMR_SLOT_CRC)) == smr_slot_word(0, get_le32(whole + SMR_SLOT_CRC)))
		return; /* one value in 2^24 has the tag of another one */
	memcpy(mixed, old, geometry->slot_bytes);
	mix(mixed, data, bytes, FIRST_WORDS, 1);
	check(world, geometry, old, whole, mixed);
}
