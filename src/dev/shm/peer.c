/* Ports of others, mapped into this process, and their registrations.
 *
 * A port is found by its gid, which names its file. Nothing in it is believed: places of rings are checked against the
 * files they name, and a registration is copied and then used only while its entry's word has not changed. Mappings
 * are counted: a region may be withdrawn by its owner while another qp of ours is still in the middle of a copy. */
#include "dev/shm/shm.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PEERS_LOOK_NS 1000000ull /* a system call for each peer */

static bool header_is_sound(const struct share_segment *segment, const uint8_t gid[16])
{
	const struct port_header *header = segment->addr;

	return segment->bytes >= sizeof(struct segment) && header->magic == SEGMENT_MAGIC &&
	       header->version == SEGMENT_VERSION && memcmp(header->gid, gid, 16) == 0 &&
	       memchr(header->node, 0, HF_NAME_BYTES) != NULL && memchr(header->rail, 0, HF_NAME_BYTES) != NULL;
}

static void peer_close(struct peer *peer)
{
	for (uint32_t i = 0; i < MR_SLOTS; i++)
		peer_region_put(peer->regions[i]);
	for (uint32_t i = 0; i < SHM_ARENAS; i++)
		if (peer->arenas[i].addr != NULL)
			share_segment_close(&peer->arenas[i]);
	if (peer->segment.addr != NULL)
		share_segment_close(&peer->segment);
	share_process_close(peer->process);
	if (peer->bell >= 0)
		close(peer->bell);
	free(peer);
}

static struct peer *peer_open(struct shm_dev *dev, const uint8_t gid[16])
{
	struct peer *peer = calloc(1, sizeof(*peer));
	struct port_header *header;
	char name[64];

	if (peer == NULL)
		return NULL;
	peer->bell = -1;
	memcpy(peer->gid, gid, 16);
	port_file(name, gid);
	if (share_segment_open(fabric_port_dir(dev->port), name, &peer->segment, NULL) != 0 ||
		!header_is_sound(&peer->segment, gid))
		goto fail;
	peer->shared = peer->segment.addr;
	header = &peer->shared->header;
	if (observe(&header->open) == 0 || share_process_open(header->pid, &peer->process) != 0)
		goto fail;
	peer->line = fabric_port_find(dev->port, header->node, header->rail);
	if (peer->line == NULL || fabric_port_open_bell(dev->port, header->node, header->rail, &peer->bell) != 0)
		goto fail;
	list_init(&peer->node);
	return peer;
fail:
	peer_close(peer);
	return NULL;
}

struct peer *peer_get(struct shm_dev *dev, const uint8_t gid[16])
{
	struct peer *found = NULL;

	shm_lock(&dev->lock);
	list_for_each (node, &dev->peers) {
		struct peer *peer = container_of(node, struct peer, node);

		if (memcmp(peer->gid, gid, 16) == 0)
			found = peer;
	}
	if (found == NULL && (found = peer_open(dev, gid)) != NULL)
		list_push_back(&dev->peers, &found->node);
	if (found != NULL)
		found->users++;
	shm_unlock(&dev->lock);
	return found;
}

void peer_put(struct shm_dev *dev, struct peer *peer)
{
	bool last;

	if (peer == NULL)
		return;
	shm_lock(&dev->lock);
	last = --peer->users == 0;
	if (last)
		list_remove(&peer->node);
	shm_unlock(&dev->lock);
	if (last)
		peer_close(peer);
}

/* The time of the last question, which peers_look_now asks at every millisecond at which a qp waits for its peer. */
bool peer_was_gone(const struct peer *peer)
{
	return peer->gone || observe(&peer->shared->header.open) == 0;
}

bool peer_is_gone(struct peer *peer)
{
	peer->gone = peer_was_gone(peer) || share_process_exited(peer->process);
	return peer->gone;
}

void peers_look_now(struct shm_dev *dev, uint64_t now_ns)
{
	shm_lock(&dev->lock);
	if (now_ns < dev->look_after_peers_ns) {
		shm_unlock(&dev->lock);
		return;
	}
	dev->look_after_peers_ns = now_ns + PEERS_LOOK_NS;
	list_for_each (node, &dev->peers)
		peer_is_gone(container_of(node, struct peer, node));
	shm_unlock(&dev->lock);
}

void peer_ring_bell(struct peer *peer)
{
	atomic_store(&peer->shared->header.rung, 1);
	share_bell_ring(peer->bell);
}

static bool peer_map_arena(struct shm_dev *dev, struct peer *peer, uint32_t arena)
{
	char name[64];

	if (peer->arenas[arena].addr != NULL)
		return true;
	arena_file(name, peer->gid, arena);
	return share_segment_open(fabric_port_dir(dev->port), name, &peer->arenas[arena], NULL) == 0;
}

uint8_t *peer_ring(struct shm_dev *dev, struct peer *peer, const struct ring_place *place, size_t bytes)
{
	uint8_t *at = NULL;
	uint64_t total = (uint64_t)place->slots * place->stride;

	if (place->arena >= SHM_ARENAS || place->slots == 0 || (place->slots & (place->slots - 1)) != 0 ||
		place->stride < bytes || place->offset % 64 != 0)
		return NULL;
	shm_lock(&dev->lock);
	if (peer_map_arena(dev, peer, place->arena) && total <= peer->arenas[place->arena].bytes &&
		place->offset <= peer->arenas[place->arena].bytes - total)
		at = (uint8_t *)peer->arenas[place->arena].addr + place->offset;
	shm_unlock(&dev->lock);
	return at;
}

/* ---- regions ---- */

void peer_region_put(struct region *region)
{
	if (region == NULL || atomic_fetch_sub(&region->users, 1) != 1)
		return;
	mapping_put(region->mapping);
	free(region);
}

void peer_region_forget(struct shm_dev *dev, struct peer *peer, struct region *region)
{
	bool ours;

	shm_lock(&dev->lock);
	ours = peer->regions[region->slot] == region;
	if (ours)
		peer->regions[region->slot] = NULL;
	shm_unlock(&dev->lock);
	if (ours)
		peer_region_put(region);
}

/* Maps from the start of the region's first page to its last byte: what lies before the region in that page belongs to
 * the same file, and a file may end in the middle of a page. */
static int region_map(struct peer *peer, const struct mr_entry *entry, struct region *region)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t skip = entry->offset % page;
	struct mapping_place place = {.pid = peer->shared->header.pid,
		.fd = entry->fd,
		.inode = entry->inode,
		.offset = entry->offset - skip,
		.bytes = (size_t)(region->bytes + skip),
		.writable = (region->access & IBV_ACCESS_LOCAL_WRITE) != 0,
		.is_file = entry->kind != MR_MAPPED};
	int rc;

	region->guarded = entry->kind != MR_MAPPED;
	region->store_as = !region->guarded ? TOUCH_WRITE : guard_works() ? TOUCH_GUARDED : TOUCH_FREE;
	if (entry->kind == MR_PRIVATE)
		return 0;
	if (region->bytes == 0 || region->bytes + skip < region->bytes)
		return -EINVAL;
	rc = mapping_get(&place, &region->mapping);
	if (rc != 0)
		return rc;
	region->at = (uint8_t *)mapping_at(region->mapping) + skip;
	return 0;
}

static enum wr_outcome region_open(struct peer *peer, uint32_t slot, struct region **region_out)
{
	struct mr_entry *shared = &peer->shared->mrs[slot], entry;
	uint64_t word = atomic_load(&shared->word);
	struct region *region;
	int rc;

	if (MR_WORD_STATE(word) == MR_MOVING)
		return WR_AGAIN;
	if (MR_WORD_STATE(word) != MR_VALID)
		return WR_FAILED;
	memcpy(&entry, shared, sizeof(entry));
	confirm();
	if (atomic_load(&shared->word) != word)
		return WR_AGAIN;
	if ((region = calloc(1, sizeof(*region))) == NULL)
		return WR_UNMAPPED;
	*region = (struct region){.users = 1,
		.word = word,
		.slot = slot,
		.rkey = entry.rkey,
		.lkey = entry.lkey,
		.access = entry.access,
		.pd = entry.pd,
		.iova = entry.iova,
		.addr = entry.addr,
		.bytes = entry.bytes};
	rc = region_map(peer, &entry, region);
	if (rc != 0) {
		free(region);
		if (atomic_load(&shared->word) != word)
			return WR_AGAIN;                           /* registered anew meanwhile */
		return rc == -ESTALE ? WR_NO_ANSWER : WR_UNMAPPED; /* its owner died */
	}
	*region_out = region;
	return WR_DONE;
}

enum wr_outcome peer_region_get(
	struct shm_dev *dev, struct peer *peer, uint32_t key, bool is_rkey, struct region **region_out)
{
	uint32_t slot = key & SLOT_MASK;
	uint64_t word = atomic_load(&peer->shared->mrs[slot].word);
	enum wr_outcome outcome = WR_DONE;
	struct region *region, *stale = NULL;

	shm_lock(&dev->lock);
	region = peer->regions[slot];
	if (region != NULL && region->word != word) {
		stale = region;
		region = peer->regions[slot] = NULL;
	}
	if (region == NULL) {
		outcome = region_open(peer, slot, &region);
		peer->regions[slot] = region;
	}
	if (outcome == WR_DONE && (is_rkey ? region->rkey : region->lkey) != key)
		outcome = WR_FAILED;
	if (outcome == WR_DONE) {
		atomic_fetch_add(&region->users, 1);
		*region_out = region;
	}
	shm_unlock(&dev->lock);
	peer_region_put(stale);
	return outcome;
}
