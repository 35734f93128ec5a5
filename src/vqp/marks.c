#include "vqp/marks.h"

#include "vqp/objects.h"

static void mark(struct hf_vqp *vqp)
{
	if (list_empty(&vqp->mark_link))
		list_push_back(&vqps_of(vqp->node)->marked, &vqp->mark_link);
}

void marks_broken(struct hf_vqp *vqp)
{
	if (vqp->path.broken)
		return;
	vqp->path.broken = true;
	vqp->fence = FENCE_WAITS;
	mark(vqp);
}

void marks_rebuild(struct hf_vqp *vqp)
{
	mark(vqp);
}
