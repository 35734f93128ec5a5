/* Rings live in arenas: files GID.N of the fabric's directory, that peers map when they connect.
 *
 * An arena is cut into blocks of powers of two, at least a cache line each; a freed block goes to the list of its size
 * and is cleared when it is used again. Arenas are not given back before the device closes, so a peer's mapping of one
 * stays good. */
#include "dev/shm/shm.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ARENA_BYTES   (1u << 20)
#define BLOCK_MIN_LOG 6

struct free_block {
	struct list node;
	uint32_t arena;
	uint64_t offset;
};

static void gid_text(char text[33], const uint8_t gid[16])
{
	for (int i = 0; i < 16; i++)
		snprintf(text + 2 * i, 3, "%02x", gid[i]);
}

void port_file(char name[64], const uint8_t gid[16])
{
	char text[33];

	gid_text(text, gid);
	snprintf(name, 64, "%s.port", text);
}

void arena_file(char name[64], const uint8_t gid[16], uint32_t arena)
{
	char text[33];

	gid_text(text, gid);
	snprintf(name, 64, "%s.%u", text, arena);
}

static unsigned block_log(size_t bytes)
{
	unsigned log = BLOCK_MIN_LOG;

	while (((size_t)1 << log) < bytes)
		log++;
	return log;
}

static int arena_open(struct shm_dev *dev, uint32_t index, size_t bytes, struct hf_error *error)
{
	char name[64];

	arena_file(name, dev->gid.raw, index);
	return share_segment_create(fabric_port_dir(dev->port), name, bytes, &dev->arenas[index].segment, error);
}

static int cut_block(struct shm_dev *dev, size_t bytes, struct ring_place *place, struct hf_error *error)
{
	for (uint32_t i = 0; i < SHM_ARENAS; i++) {
		struct arena *arena = &dev->arenas[i];

		if (arena->segment.addr == NULL) {
			int rc = arena_open(dev, i, bytes > ARENA_BYTES ? bytes : ARENA_BYTES, error);

			if (rc != 0)
				return rc;
		}
		if (arena->segment.bytes - arena->used >= bytes) {
			place->arena = i;
			place->offset = arena->used;
			arena->used += bytes;
			return 0;
		}
	}
	return hf_error_set(error, -ENOMEM, "shm: all %u arenas are full: use fewer or shorter queues", SHM_ARENAS);
}

static bool reuse_block(struct shm_dev *dev, unsigned log, struct ring_place *place)
{
	struct list *node = list_pop_front(&dev->free_blocks[log]);
	struct free_block *found;

	if (node == NULL)
		return false;
	found = container_of(node, struct free_block, node);
	place->arena = found->arena;
	place->offset = found->offset;
	free(found);
	return true;
}

int arena_alloc(struct shm_dev *dev, size_t bytes, struct ring_place *place, uint8_t **at_out, struct hf_error *error)
{
	unsigned log = block_log(bytes);
	size_t block = (size_t)1 << log;
	int rc;

	if (log >= BLOCK_LOGS)
		return hf_error_set(error, -ENOMEM, "shm: a queue of %zu bytes is too long", bytes);
	if (!reuse_block(dev, log, place) && (rc = cut_block(dev, block, place, error)) != 0)
		return rc;
	*at_out = (uint8_t *)dev->arenas[place->arena].segment.addr + place->offset;
	memset(*at_out, 0, block);
	return 0;
}

void arena_free(struct shm_dev *dev, const struct ring_place *place)
{
	struct free_block *block;

	if (place->slots == 0)
		return;
	block = calloc(1, sizeof(*block));
	if (block == NULL)
		return; /* lost until the device closes */
	block->arena = place->arena;
	block->offset = place->offset;
	list_push_back(&dev->free_blocks[block_log((size_t)place->slots * place->stride)], &block->node);
}

void arena_close(struct shm_dev *dev)
{
	for (unsigned log = 0; log < BLOCK_LOGS; log++)
		for (struct list *node; (node = list_pop_front(&dev->free_blocks[log])) != NULL;)
			free(container_of(node, struct free_block, node));
	for (uint32_t i = 0; i < SHM_ARENAS && dev->arenas[i].segment.addr != NULL; i++) {
		char name[64];

		arena_file(name, dev->gid.raw, i);
		share_segment_close(&dev->arenas[i].segment);
		share_dir_remove(fabric_port_dir(dev->port), name);
	}
}
