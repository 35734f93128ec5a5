/* A vqp's own qps made beforehand, one on each rail: by policy (resend-cache), where a grant may be revoked (R13), and
 * while a dedicated qp is being made in the background (rebuild.h). The picker offers, the other end matches. */
#include "vqp/objects.h"

bool backup_offer(struct hf_vqp *vqp, unsigned rail)
{
	if (path_create(vqp, &vqp->backup[rail], rail) != 0)
		return false;
	exchange_say_path(vqp, MESSAGE_BACKUP, &vqp->backup[rail], MESSAGE_PATH_BUILT);
	return true;
}

void backup_offer_all(struct hf_vqp *vqp)
{
	uint32_t usable = peer_usable(vqp->peer);

	if (!vqp->recovery.picks || !(vqp->grants.dedicated || policy_caches(vqp->node->config.policy)) ||
		vqp->state != HF_VQP_UP)
		return;
	for (unsigned rail = 0; rail < vqp->node->rail_count; rail++) {
		if (vqp->backup[rail].broken)
			path_destroy(&vqp->backup[rail]);
		if (rail == vqp->path.rail || (usable & 1u << rail) == 0 || vqp->backup[rail].qp != NULL)
			continue;
		(void)backup_offer(vqp, rail);
	}
}

/* To what is offered now: an offer that was given up and made again has two answers. */
static bool is_answer(const struct hf_vqp *vqp, const struct path *path, const struct message *message)
{
	return message->kind == MESSAGE_BACKUP_QP && vqp->recovery.picks && path->qp != NULL && !path->ready &&
	       message->about_qp == path->qp->qp_num;
}

void backup_message(struct hf_vqp *vqp, const struct message *message, unsigned rail)
{
	struct path *path = &vqp->backup[rail];

	/* It would be of a grant of which the peer has not heard: it could post to it what it posted in the one before.
	 * The exchange that tells it is due, and then another one is offered. */
	if (access_is_stale(vqp)) {
		if (vqp->recovery.picks)
			path_destroy(path);
		return;
	}
	if (message->kind == MESSAGE_BACKUP && !vqp->recovery.picks) {
		path_destroy(path);
		if (path_create(vqp, path, rail) != 0)
			return;
		if (path_connect(vqp, path, message) != 0) {
			path_destroy(path);
			return;
		}
		path->ready = true;
		exchange_say_path(vqp, MESSAGE_BACKUP_QP, path, MESSAGE_PATH_BUILT);
	} else if (is_answer(vqp, path, message)) {
		path->ready = path_connect(vqp, path, message) == 0;
		if (path->ready)
			rebuild_ready(vqp, rail);
		else
			path_destroy(path);
	}
}

/* The picker may say GO to it before it hears that it is of no use any more, and posts at once: then it is asked what
 * executed, as any path that broke. */
void backup_withdraw(struct hf_vqp *vqp, unsigned rail)
{
	struct path *path = &vqp->backup[rail];

	if (vqp->recovery.picks || !path->ready)
		path_destroy(path);
	else
		path->broken = true;
}

bool backup_is_withdrawn(struct hf_vqp *vqp, unsigned rail, uint64_t now_ns)
{
	struct path *path = &vqp->backup[rail];
	enum fence fence;

	if (path->qp == NULL || !path->broken)
		return true;
	fence = fence_path(vqp, path, now_ns);
	if (fence == FENCE_HOPELESS && path_end_qp(path) == 0) {
		path_destroy(path);
		return true;
	}
	return fence == FENCE_DONE;
}

bool backup_take(struct hf_vqp *vqp, unsigned rail)
{
	if (!vqp->backup[rail].ready || (vqp->recovery.picks && vqp->backup[rail].broken))
		return false;
	vqp->path = vqp->backup[rail];
	vqp->backup[rail] = (struct path){0};
	path_activate(&vqp->path);
	return true;
}
