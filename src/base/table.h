/* table.h - from a number (of a qp, of a vqp) to its object. Open addressing, linear probing, at most half full.
 *
 * Key 0 is never stored. Not thread safe. A zeroed table is empty. */
#ifndef HOLDFAST_BASE_TABLE_H
#define HOLDFAST_BASE_TABLE_H

#include <stddef.h>
#include <stdint.h>

struct table_slot {
	uint32_t key; /* 0: free */
	void *value;
};

struct table {
	struct table_slot *slots;
	uint32_t mask, used;
};

int table_put(struct table *table, uint32_t key, void *value); /* the key is new; -ENOMEM */
void table_remove(struct table *table, uint32_t key);          /* unknown: nothing happens */
void table_free(struct table *table);

static inline uint32_t table_hash(uint32_t key)
{
	return (key * 0x9e3779b1u) >> 8;
}

/* NULL: unknown. */
static inline void *table_get(const struct table *table, uint32_t key)
{
	if (table->slots == NULL)
		return NULL;
	for (uint32_t at = table_hash(key);; at++) {
		const struct table_slot *slot = &table->slots[at & table->mask];

		if (slot->key == key)
			return slot->value;
		if (slot->key == 0)
			return NULL;
	}
}

#endif
