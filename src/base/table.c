#include "base/table.h"

#include <errno.h>
#include <stdlib.h>

#include "base/ensure.h"

#define SLOTS_MIN 16u

static void insert(struct table *table, uint32_t key, void *value)
{
	uint32_t at = table_hash(key);

	while (table->slots[at & table->mask].key != 0)
		at++;
	table->slots[at & table->mask] = (struct table_slot){.key = key, .value = value};
}

static int grow(struct table *table)
{
	struct table old = *table;
	uint32_t slots = old.slots == NULL ? SLOTS_MIN : 2 * (old.mask + 1);

	table->slots = calloc(slots, sizeof(*table->slots));
	if (table->slots == NULL) {
		*table = old;
		return -ENOMEM;
	}
	table->mask = slots - 1;
	for (uint32_t i = 0; old.slots != NULL && i <= old.mask; i++)
		if (old.slots[i].key != 0)
			insert(table, old.slots[i].key, old.slots[i].value);
	free(old.slots);
	return 0;
}

int table_put(struct table *table, uint32_t key, void *value)
{
	ensure(key != 0 && table_get(table, key) == NULL);
	if (table->slots == NULL || 2 * (table->used + 1) > table->mask + 1) {
		int rc = grow(table);

		if (rc != 0)
			return rc;
	}
	insert(table, key, value);
	table->used++;
	return 0;
}

void table_remove(struct table *table, uint32_t key)
{
	uint32_t hole = table_hash(key);

	if (table_get(table, key) == NULL)
		return;
	while (table->slots[hole & table->mask].key != key)
		hole++;
	table->slots[hole & table->mask] = (struct table_slot){0};
	table->used--;
	/* Those that had been pushed past it move up, so that no search ends at the hole before it has found them. */
	for (uint32_t at = hole + 1; table->slots[at & table->mask].key != 0; at++) {
		struct table_slot moved = table->slots[at & table->mask];

		table->slots[at & table->mask] = (struct table_slot){0};
		insert(table, moved.key, moved.value);
	}
}

void table_free(struct table *table)
{
	free(table->slots);
	*table = (struct table){0};
}
