#include "vqp/atomic/home.h"

#include "vqp/objects.h"

static bool is_needed(const struct hf_node *node)
{
	for (unsigned i = 0; i < node->rail_count && node->rail_count > 1; i++)
		if ((node->rails[i].dev->attr.caps & HF_DEV_ATOMIC_GLOBAL) == 0)
			return true;
	return false;
}

void home_init(struct hf_vpd *pd)
{
	pd->home = (struct home){.rail = is_needed(pd->node) ? 0 : HOME_ANY, .next = -1};
}

bool home_binds(const struct hf_vqp *vqp)
{
	return vqp->pd->home.rail >= 0 && (vqp->access & IBV_ACCESS_REMOTE_ATOMIC) != 0;
}

bool home_needed(const struct hf_node *node)
{
	list_for_each (at, &vqps_of(node)->vpds)
		if (container_of(at, struct hf_vpd, node_link)->home.rail >= 0)
			return true;
	return false;
}

static int wanted(const struct hf_vqp *vqp)
{
	const struct home *home = &vqp->pd->home;

	if (home_binds(vqp))
		return home->next >= 0 ? home->next : home->rail;
	return vqp->home_rail;
}

uint32_t home_rails(const struct hf_vqp *vqp, uint32_t usable)
{
	int rail = wanted(vqp);

	return rail >= 0 && (usable & 1u << rail) ? 1u << rail : usable;
}

/* ---- the requester ---- */

void home_wait(struct hf_vqp *vqp, int rail)
{
	vqp->home_rail = rail;
	if (vqp->home_wait_ns == 0)
		vqp->home_wait_ns = hf_env_now_ns(vqp->node->env);
}

void home_reached(struct hf_vqp *vqp)
{
	vqp->home_wait_ns = 0;
}

bool home_despairs(struct hf_vqp *vqp, uint64_t now_ns)
{
	if (vqp->sends.next == vqp->sends.tail)
		home_reached(vqp); /* no wr waits any more, or only a confirmation of a UID does */
	return vqp->home_wait_ns != 0 && now_ns > vqp->home_wait_ns + vqp->node->config.budget_ns;
}

/* ---- the owner ---- */

void home_left(struct hf_vqp *vqp)
{
	vqp->home_leaves = false;
}

void home_took_withdrawn(struct hf_vqp *vqp)
{
	const struct home *home = &vqp->pd->home;

	vqp->home_leaves = home_binds(vqp) && home->next >= 0 && (int)vqp->path->rail == home->rail;
}
