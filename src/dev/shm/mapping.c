#include "dev/shm/mapping.h"

#include <errno.h>
#include <stdlib.h>

#include "dev/shm/shm.h"

struct mapping {
	struct list node;
	uint32_t users; /* under the lock */
	struct mapping_place place;
	void *at;
};

static struct list mappings = {&mappings, &mappings};
static atomic_flag lock = ATOMIC_FLAG_INIT; /* not held in system calls */

static bool is_same(const struct mapping_place *a, const struct mapping_place *b)
{
	return a->pid == b->pid && a->fd == b->fd && a->inode == b->inode && a->offset == b->offset &&
	       a->bytes == b->bytes && a->writable == b->writable && !a->is_file && !b->is_file;
}

static struct mapping *find(const struct mapping_place *place)
{
	struct mapping *found = NULL;

	shm_lock(&lock);
	list_for_each (node, &mappings) {
		struct mapping *mapping = container_of(node, struct mapping, node);

		if (is_same(&mapping->place, place)) {
			mapping->users++;
			found = mapping;
			break;
		}
	}
	shm_unlock(&lock);
	return found;
}

/* Two threads that do not find it make two of it, which does no harm. */
int mapping_get(const struct mapping_place *place, struct mapping **mapping_out)
{
	struct mapping *mapping = find(place);
	int rc;

	*mapping_out = mapping;
	if (mapping != NULL)
		return 0;
	mapping = calloc(1, sizeof(*mapping));
	if (mapping == NULL)
		return -ENOMEM;
	rc = share_peer_map(
		place->pid, place->fd, place->inode, place->offset, place->bytes, place->writable, &mapping->at);
	if (rc != 0) {
		free(mapping);
		return rc;
	}
	mapping->users = 1;
	mapping->place = *place;
	shm_lock(&lock);
	list_push_back(&mappings, &mapping->node);
	shm_unlock(&lock);
	*mapping_out = mapping;
	return 0;
}

void mapping_put(struct mapping *mapping)
{
	bool last;

	if (mapping == NULL)
		return;
	shm_lock(&lock);
	last = --mapping->users == 0;
	if (last)
		list_remove(&mapping->node);
	shm_unlock(&lock);
	if (!last)
		return;
	share_peer_unmap(mapping->at, mapping->place.bytes);
	free(mapping);
}

void *mapping_at(const struct mapping *mapping)
{
	return mapping->at;
}
