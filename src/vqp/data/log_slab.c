#include "vqp/objects.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "vqp/data/completion_log.h"

#define SLAB_BYTES 65536u

static uint32_t ring_bytes(const struct log_slab *slab)
{
	return slab->ring_entries * LOG_ENTRY_BYTES;
}

/* What a stopped peer may still write to is never used again. */
static void slab_free(struct hf_vpd *pd, struct log_slab *slab)
{
	bool quiet = true;

	for (unsigned i = 0; i < pd->node->rail_count; i++)
		quiet &= hf_mr_dereg(slab->mrs[i]) == 0;
	if (quiet)
		hf_mem_free(pd->node->env, slab->memory);
	free(slab->free_ns);
	free(slab);
}

static int slab_register(struct hf_vpd *pd, struct log_slab *slab)
{
	size_t bytes = (size_t)slab->rings * ring_bytes(slab);
	int rc = hf_mem_alloc(pd->node->env, bytes, (void **)&slab->memory, NULL);

	for (unsigned i = 0; rc == 0 && i < pd->node->rail_count; i++)
		rc = hf_mr_reg(pd->pds[i], slab->memory, bytes, (uintptr_t)slab->memory,
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, &slab->mrs[i], NULL);
	return rc;
}

static int slab_make(struct hf_vpd *pd, uint32_t entries, struct log_slab **slab_out)
{
	struct log_slab *slab = calloc(1, sizeof(*slab));
	int rc;

	if (slab == NULL)
		return -ENOMEM;
	slab->ring_entries = entries;
	slab->rings = ring_bytes(slab) < SLAB_BYTES ? SLAB_BYTES / ring_bytes(slab) : 1;
	slab->free_ns = calloc(slab->rings, sizeof(*slab->free_ns));
	rc = slab->free_ns == NULL ? -ENOMEM : slab_register(pd, slab);
	if (rc != 0) {
		slab_free(pd, slab);
		return rc;
	}
	list_push_back(&pd->log_slabs, &slab->pd_link);
	*slab_out = slab;
	return 0;
}

static void end_rests(struct log_slab *slab, uint64_t now_ns)
{
	for (uint32_t i = 0; i < slab->rings && slab->resting > 0; i++)
		if (slab->free_ns[i] != 0 && slab->free_ns[i] <= now_ns) {
			slab->free_ns[i] = 0;
			slab->resting--;
		}
}

static struct log_slab *slab_with_room(struct hf_vpd *pd, uint32_t entries)
{
	uint64_t now_ns = hf_env_now_ns(pd->node->env);

	list_for_each (at, &pd->log_slabs) {
		struct log_slab *slab = container_of(at, struct log_slab, pd_link);

		if (slab->ring_entries != entries)
			continue;
		end_rests(slab, now_ns);
		if (slab->taken + slab->resting < slab->rings)
			return slab;
	}
	return NULL;
}

int log_slab_take(struct hf_vpd *pd, uint32_t entries, struct log_ring *ring_out)
{
	struct log_slab *slab = slab_with_room(pd, entries);
	int rc = slab == NULL ? slab_make(pd, entries, &slab) : 0;
	uint32_t i = 0;

	*ring_out = (struct log_ring){0};
	if (rc != 0)
		return rc;
	while (slab->free_ns[i] != 0)
		i++;
	slab->free_ns[i] = UINT64_MAX;
	slab->taken++;
	ring_out->slab = slab;
	ring_out->entries = (uint64_t *)(void *)(slab->memory + (size_t)i * ring_bytes(slab));
	memset(ring_out->entries, 0, ring_bytes(slab));
	return 0;
}

void log_slab_give(struct log_ring *ring, uint64_t until_ns)
{
	struct log_slab *slab = ring->slab;

	if (slab == NULL)
		return;
	slab->free_ns[((uint8_t *)ring->entries - slab->memory) / ring_bytes(slab)] = until_ns;
	slab->resting += until_ns != 0;
	slab->taken--;
	*ring = (struct log_ring){0};
}

uint32_t log_slab_bytes(const struct log_ring *ring)
{
	return ring->slab == NULL ? 0 : ring_bytes(ring->slab);
}

void log_slabs_free(struct hf_vpd *pd)
{
	struct list *at;

	while ((at = list_pop_front(&pd->log_slabs)) != NULL)
		slab_free(pd, container_of(at, struct log_slab, pd_link));
}
