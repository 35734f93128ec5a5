/* missed.h - the list of changed records, in the order of their last change, without values: updates that absent
 * members missed.
 *
 * A ring of entries of the index. Each record that is applied, validated or not (R-K11), takes the next position, which
 * stands in the record too; an older mention of it in the ring thereby is none. For each absent member there is a
 * position: whatever it may lack has that one or a later one. The ring overwrites what is oldest; whose position is
 * overwritten gets a full copy. While it is not open there is no ring; records take their positions all the same, which
 * count for others too (purge.h). Owned by the kv's loop. */
#ifndef HOLDFAST_KV_MISSED_H
#define HOLDFAST_KV_MISSED_H

#include <holdfast/kv.h>

#include "kv/store.h"

struct missed {
	uint32_t *ring;
	uint64_t mask, position; /* the last one that was given; 0: none */
	/* Of each member that was excluded while this node was a member; 0: this node does not cover it (R-K18). */
	uint64_t from[HF_KV_MEMBERS_MAX];
};

int kv_missed_open(struct missed *missed, uint32_t entries); /* -ENOMEM */
void kv_missed_close(struct missed *missed);

void kv_missed_note(struct missed *missed, struct record *record, uint32_t entry);
/* Positions behind this one are requested soon. */
void kv_missed_expect(const struct missed *missed, const struct store *store, uint64_t position);
/* Whether all that the member missed is in the ring. */
bool kv_missed_covers(const struct missed *missed, unsigned member);
/* The entry at a position that is in the ring; STORE_NO_ENTRY: its record changed again later, or was removed. */
uint32_t kv_missed_at(const struct missed *missed, const struct store *store, uint64_t position);

#endif
