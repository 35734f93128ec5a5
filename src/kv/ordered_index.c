#include "kv/ordered_index.h"

#include <errno.h>
#include <stdlib.h>

#include "base/ensure.h"
#include "kv/store.h"

#define NODE  (1u << 31) /* a link to a node; others are entries, of which there are at most as many */
#define NONE  STORE_NO_ENTRY
#define EQUAL UINT32_MAX /* behind all places */

struct key {
	const uint8_t *at;
	uint32_t bytes;
};

static struct key key_of(const struct store *store, uint32_t entry)
{
	const struct record *record = kv_store_at(store, entry);

	return (struct key){.at = record->key, .bytes = record->key_bytes};
}

static unsigned side_of(struct key key, uint32_t place)
{
	uint32_t byte = place >> 4, bit = place & 15;

	if (byte >= key.bytes)
		return 0;
	return bit == 0 ? 1 : (unsigned)key.at[byte] >> (8 - bit) & 1;
}

static uint32_t first_difference(struct key a, struct key b)
{
	uint32_t n = 0, least = a.bytes < b.bytes ? a.bytes : b.bytes;

	while (n < least && a.at[n] == b.at[n])
		n++;
	if (n < least)
		return n << 4 | (uint32_t)(__builtin_clz((unsigned)(a.at[n] ^ b.at[n])) - 23);
	return a.bytes == b.bytes ? EQUAL : n << 4;
}

static bool is_node(uint32_t link)
{
	return link != NONE && (link & NODE) != 0;
}

/* Follows the key past all nodes of places before this one. Behind: what is next in order when nothing here is. */
static uint32_t *walk(struct ordered_node *nodes, uint32_t *link, struct key key, uint32_t before, uint32_t *behind)
{
	while (is_node(*link) && nodes[*link & ~NODE].place < before) {
		struct ordered_node *node = &nodes[*link & ~NODE];
		unsigned side = side_of(key, node->place);

		if (side == 0)
			*behind = node->child[1];
		link = &node->child[side];
	}
	return link;
}

int kv_ordered_index_open(struct ordered_index *index, uint32_t entries)
{
	*index = (struct ordered_index){.nodes = malloc(entries * sizeof(*index->nodes)), .root = NONE};
	return index->nodes == NULL ? -ENOMEM : 0;
}

void kv_ordered_index_close(struct ordered_index *index)
{
	free(index->nodes);
	*index = (struct ordered_index){.root = NONE};
}

void kv_ordered_index_clear(struct ordered_index *index)
{
	index->root = NONE;
	index->used = index->free = 0;
}

static uint32_t node_take(struct ordered_index *index)
{
	uint32_t number = index->free - 1;

	if (index->free == 0)
		return index->used++;
	index->free = index->nodes[number].child[0];
	return number;
}

void kv_ordered_index_add(struct ordered_index *index, const struct store *store, uint32_t entry)
{
	struct key key = key_of(store, entry);
	uint32_t behind, place, number, *link;
	unsigned side;

	if (index->root == NONE) {
		index->root = entry;
		return;
	}
	link = walk(index->nodes, &index->root, key, EQUAL, &behind);
	place = first_difference(key, key_of(store, *link));
	ensure(place != EQUAL);
	link = walk(index->nodes, &index->root, key, place, &behind);
	side = side_of(key, place);
	number = node_take(index);
	index->nodes[number].place = place;
	index->nodes[number].child[side] = entry;
	index->nodes[number].child[1 - side] = *link;
	*link = number | NODE;
}

void kv_ordered_index_remove(struct ordered_index *index, const struct store *store, uint32_t entry)
{
	struct key key = key_of(store, entry);
	uint32_t *link = &index->root, *above = NULL, number;
	struct ordered_node *node = NULL;

	while (is_node(*link)) {
		above = link;
		node = &index->nodes[*link & ~NODE];
		link = &node->child[side_of(key, node->place)];
	}
	ensure(*link == entry);
	if (node == NULL) {
		index->root = NONE;
		return;
	}
	number = *above & ~NODE;
	*above = node->child[link == &node->child[0]];
	node->child[0] = index->free;
	index->free = number + 1;
}

static uint32_t least_of(const struct ordered_index *index, uint32_t link)
{
	while (is_node(link))
		link = index->nodes[link & ~NODE].child[0];
	return link;
}

uint32_t kv_ordered_index_seek(
	const struct ordered_index *index, const struct store *store, const void *key, uint32_t key_bytes, bool after)
{
	struct key sought = {.at = key, .bytes = key_bytes};
	uint32_t root = index->root, behind = NONE, found, place;

	if (root == NONE)
		return NONE;
	found = *walk(index->nodes, &root, sought, EQUAL, &behind);
	place = first_difference(sought, key_of(store, found));
	if (place == EQUAL && !after)
		return found;
	behind = NONE;
	found = *walk(index->nodes, &root, sought, place, &behind);
	return least_of(index, place != EQUAL && side_of(sought, place) == 0 ? found : behind);
}
