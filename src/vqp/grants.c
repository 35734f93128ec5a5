/* Questions about grants: what qps and completions have to know of them. What changes them is access.c. */
#include "vqp/objects.h"

unsigned access_at_rtr(const struct hf_vqp *vqp, struct path *path)
{
	path->grant = vqp->grants.ours;
	path->access = vqp->access;
	return (unsigned)vqp->access;
}

bool access_is_stale(const struct hf_vqp *vqp)
{
	return vqp->grants.told != vqp->grants.ours;
}

bool access_is_current(const struct hf_vqp *vqp)
{
	const struct path *path = vqp->path;

	return !vqp->path_broken && (path->shared != NULL || path->grant == vqp->grants.ours);
}

bool access_may_be_revoked(struct hf_vqp *vqp, uint64_t position, enum ibv_wc_status status)
{
	if (!vqp->grants.dedicated || (status != IBV_WC_REM_ACCESS_ERR && status != IBV_WC_REM_INV_REQ_ERR))
		return false;
	vqp->grants.refused = status;
	vqp->grants.refused_at = position;
	return true;
}
