#include "vqp/marks.h"

#include "vqp/objects.h"

static void mark(struct hf_vqp *vqp)
{
	if (list_empty(&vqp->mark_link))
		list_push_back(&vqps_of(vqp->node)->marked, &vqp->mark_link);
}

void marks_broken(struct hf_vqp *vqp)
{
	if (vqp->path_broken)
		return;
	vqp->path_broken = true;
	vqp->fence = FENCE_WAITS;
	mark(vqp);
}

void marks_rebuild(struct hf_vqp *vqp)
{
	mark(vqp);
}

void marks_probed(struct hf_vqp *vqp, bool came_through)
{
	vqp->rebuild.answered = true;
	vqp->rebuild.came_through = came_through;
	mark(vqp);
}

void marks_fence(struct hf_vqp *vqp)
{
	vqp->fence = FENCE_WAITS;
	if (list_empty(&vqp->fence_link))
		list_push_back(&vqps_of(vqp->node)->fence_queue, &vqp->fence_link);
}
