/* ordered_index.h - the keys of a store in the order of their bytes, for scans: a crit-bit tree over the entries of the
 * hash index.
 *
 * A node has the first place at which the keys below it differ; the value there sends a key left or right. So a
 * search compares one whole key, and visits at most as many nodes as there are places at which keys differ; nothing is
 * balanced. A byte of a key has nine places: whether the key has it, and its bits. So a key is before the keys of which
 * it is a prefix.
 *
 * There is one node fewer than keys. Their memory, 12 bytes for each entry of the hash index, is allocated at once and
 * touched as keys arrive. */
#ifndef HOLDFAST_KV_ORDERED_INDEX_H
#define HOLDFAST_KV_ORDERED_INDEX_H

#include <stdbool.h>
#include <stdint.h>

struct store;

struct ordered_node {
	uint32_t place; /* byte << 4 | 0: there is one, 1 to 8: its bits, the highest first */
	uint32_t child[2];
};

struct ordered_index {
	struct ordered_node *nodes;
	uint32_t root, used, free; /* free: number + 1 of the first node that was left */
};

int kv_ordered_index_open(struct ordered_index *index, uint32_t entries); /* 0 or -ENOMEM */
void kv_ordered_index_close(struct ordered_index *index);
void kv_ordered_index_clear(struct ordered_index *index);

/* The entry has its record, which no other entry has. */
void kv_ordered_index_add(struct ordered_index *index, const struct store *store, uint32_t entry);
/* The entry has its record yet. */
void kv_ordered_index_remove(struct ordered_index *index, const struct store *store, uint32_t entry);
/* The first key that is not less than this one, or with `after` is greater; STORE_NO_ENTRY: there is none. */
uint32_t kv_ordered_index_seek(
	const struct ordered_index *index, const struct store *store, const void *key, uint32_t key_bytes, bool after);

#endif
