/* How the paths of a vqp end: the one in use, its backups, and its place in a pool. */
#include "vqp/path/pool.h"

void vqp_drop_path(struct hf_vqp *vqp)
{
	path_ops(vqp->path)->leave(vqp);
}

void vqp_drop_backups(struct hf_vqp *vqp)
{
	for (unsigned i = 0; i < HF_RAILS_MAX; i++)
		vqp->qp_remains |= !path_destroy(vqp->node, &vqp->backup[i]);
}

void vqp_forget_paths(struct hf_vqp *vqp)
{
	rebuild_end(vqp, false, 0);
	pool_forget(vqp);
	vqp->qp_remains |= !path_destroy(vqp->node, &vqp->own_path); /* now: nothing of it is to arrive any more */
	vqp_drop_path(vqp);
	vqp_drop_backups(vqp);
}

void vqp_end_paths(struct hf_vqp *vqp, bool reads)
{
	path_ops(vqp->path)->stop(vqp);
	if (reads && vqp->path->qp != NULL)
		rail_cqs_drain(vqp->path->cqs);
	vqp_forget_paths(vqp);
}
