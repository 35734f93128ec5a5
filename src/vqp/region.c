/* Regions: registered on the NIC of every rail, and again where atomics take place. Their keys: region_keys.c. */
#include "vqp/atomic/owner.h"
#include "vqp/atomic/uid_slots.h"
#include "vqp/path/pool.h"

#include <errno.h>
#include <stdlib.h>

#include "base/log.h"

#define SLOTS_MIN 64u

static int take_slot(struct hf_node *node, uint32_t *slot_out)
{
	uint32_t slots = vqps_of(node)->region_slots == 0 ? SLOTS_MIN : vqps_of(node)->region_slots * 2;
	struct region **grown;

	for (uint32_t i = 0; i < vqps_of(node)->region_slots; i++)
		if (vqps_of(node)->regions[i] == NULL) {
			*slot_out = i;
			return 0;
		}
	if (slots > REGION_SLOTS_MAX)
		return -ENOSPC;
	grown = realloc(vqps_of(node)->regions, slots * sizeof(struct region *));
	if (grown == NULL)
		return -ENOMEM;
	for (uint32_t i = vqps_of(node)->region_slots; i < slots; i++)
		grown[i] = NULL;
	*slot_out = vqps_of(node)->region_slots;
	vqps_of(node)->regions = grown;
	vqps_of(node)->region_slots = slots;
	return 0;
}

static int end_mr(struct hf_mr **mr)
{
	int rc = hf_mr_dereg(*mr);

	if (rc == 0)
		*mr = NULL;
	return rc;
}

/* 0: no remote operation touches the memory any more, on any rail. */
static int region_end(struct region *region)
{
	int rc;

	region->leaving = true;
	if (region->mr.pd != NULL)
		owner_leave_region(region->mr.pd, &region->mr);
	rc = end_mr(&region->atomics);
	for (unsigned i = 0; i < HF_RAILS_MAX; i++) {
		int of_rail = end_mr(&region->mrs[i]);

		rc = rc == 0 ? of_rail : rc;
	}
	return rc;
}

void region_free(struct region *region)
{
	(void)region_end(region);
	if (region->mr.pd != NULL)
		uid_slots_leave_region(region->mr.pd, &region->mr);
	list_remove(&region->pd_link);
	free(region);
}

/* What atomics go through, on the home of the domain. */
static int reg_atomics(struct hf_vpd *pd, struct region *region, struct hf_error *error)
{
	if ((region->access & IBV_ACCESS_REMOTE_ATOMIC) == 0)
		return 0;
	return hf_mr_reg(pd->pds[pd->home.rail], region->mr.addr, region->mr.bytes, (uintptr_t)region->mr.addr,
		IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC, &region->atomics, error);
}

void region_announce_home(struct hf_vpd *pd)
{
	list_for_each (at, &pd->regions)
		region_tell_all(container_of(at, struct region, pd_link));
}

void region_move_home(struct hf_vpd *pd)
{
	struct hf_error error = {0};

	list_for_each (at, &pd->regions) {
		struct region *region = container_of(at, struct region, pd_link);

		if (region->leaving)
			continue;
		(void)hf_mr_dereg(region->atomics);
		region->atomics = NULL;
		if (reg_atomics(pd, region, &error) != 0)
			log_error("node %s: region %x cannot be registered for atomics on the new home: %s; peers' "
				  "atomics on it fail",
				pd->node->config.name, region->mr.rkey, error.text);
	}
	region_announce_home(pd);
}

static int check_mode(enum hf_atomic_mode mode, uint64_t addr, uint64_t bytes, int access, struct hf_error *error)
{
	const int needed = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

	switch (mode) {
	case HF_ATOMIC_NATIVE:
	case HF_ATOMIC_PLAIN:
		return 0;
	case HF_ATOMIC_UID:
		if (access & IBV_ACCESS_REMOTE_WRITE)
			return hf_error_set(error, -EINVAL,
				"a region in HF_ATOMIC_UID cannot have REMOTE_WRITE, which would erase UIDs");
		if ((access & needed) != needed)
			return hf_error_set(
				error, -EINVAL, "a region in HF_ATOMIC_UID needs REMOTE_READ and REMOTE_ATOMIC");
		if (addr % 8 != 0 || bytes % 8 != 0)
			return hf_error_set(
				error, -EINVAL, "a region in HF_ATOMIC_UID consists of whole aligned words of 8 bytes");
		return 0;
	case HF_ATOMIC_MODES:
		break;
	}
	return hf_error_set(error, -EINVAL, "%d is not a mode of enum hf_atomic_mode", (int)mode);
}

int hf_vmr_reg(
	struct hf_vpd *pd, void *addr, uint64_t bytes, int access, struct hf_vmr **mr_out, struct hf_error *error)
{
	return hf_vmr_reg_atomic(pd, addr, bytes, access, HF_ATOMIC_NATIVE, mr_out, error);
}

int hf_vmr_reg_atomic(struct hf_vpd *pd, void *addr, uint64_t bytes, int access, enum hf_atomic_mode mode,
	struct hf_vmr **mr_out, struct hf_error *error)
{
	struct hf_node *node = pd->node;
	struct region *region;
	uint32_t slot = 0;
	int rc = check_mode(mode, (uintptr_t)addr, bytes, access, error);

	*mr_out = NULL;
	if (rc == 0 && mode == HF_ATOMIC_UID)
		rc = uid_arena_open(pd, error);
	if (rc != 0)
		return rc;
	region = calloc(1, sizeof(*region));
	rc = region == NULL ? -ENOMEM : take_slot(node, &slot);
	if (rc != 0) {
		free(region);
		return hf_error_set(error, rc, "no room for another region");
	}
	list_init(&region->pd_link);
	region->access = access;
	region->mr = (struct hf_vmr){.addr = addr, .bytes = bytes, .mode = mode};
	if (pd->home.rail >= 0)
		access &= ~IBV_ACCESS_REMOTE_ATOMIC;
	for (unsigned i = 0; rc == 0 && i < node->rail_count; i++)
		rc = hf_mr_reg(pd->pds[i], addr, bytes, (uintptr_t)addr, access, &region->mrs[i], error);
	if (rc == 0 && pd->home.rail >= 0)
		rc = reg_atomics(pd, region, error);
	if (rc != 0) {
		region_free(region);
		return rc;
	}
	vqps_of(node)->region_turn = (vqps_of(node)->region_turn + 1) & (REGION_SLOTS_MAX - 1);
	if (vqps_of(node)->region_turn == 0)
		vqps_of(node)->region_turn = 1;
	region->mr.pd = pd;
	region->mr.lkey = region->mr.rkey = vqps_of(node)->region_turn << REGION_SLOT_BITS | slot;
	vqps_of(node)->regions[slot] = region;
	list_push_back(&pd->regions, &region->pd_link);
	region_tell_all(region);
	*mr_out = &region->mr;
	return 0;
}

int hf_vmr_dereg(struct hf_vmr *mr)
{
	struct region *region = region_of(mr);
	int rc;

	if (mr == NULL)
		return 0;
	if (!region->leaving) { /* called again, the slot may be another region's */
		region_tell_gone(region);
		vqps_of(mr->pd->node)->regions[mr->lkey & (REGION_SLOTS_MAX - 1)] = NULL;
	}
	rc = region_end(region);
	if (rc == 0)
		region_free(region);
	return rc;
}
