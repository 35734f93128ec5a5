/* A vqp's own qps made beforehand, one on each rail: by policy (resend-cache), where a grant may be revoked (R13), and
 * while a dedicated qp is being made in the background (rebuild.h). The picker offers, the other end matches. */
#include "base/ensure.h"
#include "vqp/objects.h"

static const struct field backup_fields[] = {PATH_MESSAGE_FIELDS};
static void take_backup(struct hf_vqp *vqp, const struct message_head *head);
static const struct vqp_kind backup_kind =
	VQP_KIND(MESSAGE_BACKUP, "BACKUP", struct path_message, backup_fields, take_backup);
static const struct vqp_kind backup_qp_kind =
	VQP_KIND(MESSAGE_BACKUP_QP, "BACKUP_QP", struct path_message, backup_fields, take_backup);

void backup_register(struct message_kinds *kinds)
{
	message_register(kinds, &backup_kind.kind);
	message_register(kinds, &backup_qp_kind.kind);
}

bool backup_offer(struct hf_vqp *vqp, unsigned rail)
{
	if (path_create(vqp, &vqp->backup[rail], rail) != 0)
		return false;
	path_say(vqp, &backup_kind, &vqp->backup[rail], PATH_BUILT);
	return true;
}

void backup_offer_all(struct hf_vqp *vqp)
{
	uint32_t usable = peer_usable(vqp->peer);

	if (!vqp->recovery.picks || !(vqp->grants.dedicated || policy_caches(vqp->node->config.policy)) ||
		vqp->state != HF_VQP_UP || vqp->lane >= 0)
		return;
	for (unsigned rail = 0; rail < vqp->node->rail_count; rail++) {
		if (vqp->backup[rail].withdrawn)
			path_destroy(vqp->node, &vqp->backup[rail]);
		if (rail == vqp->path->rail || (usable & 1u << rail) == 0 || vqp->backup[rail].qp != NULL)
			continue;
		(void)backup_offer(vqp, rail);
	}
}

/* To what is offered now: an offer that was given up and made again has two answers. */
static bool is_answer(const struct hf_vqp *vqp, const struct path *path, const struct path_message *message)
{
	return message->head.kind == &backup_qp_kind.kind && vqp->recovery.picks && path->qp != NULL && !path->ready &&
	       message->about_qp == path->qp->qp_num;
}

static void on_backup(struct hf_vqp *vqp, const struct path_message *message, unsigned rail)
{
	struct path *path = &vqp->backup[rail];

	/* It would be of a grant of which the peer has not heard: it could post to it what it posted in the one before.
	 * The exchange that tells it is due, and then another one is offered. */
	if (access_is_stale(vqp)) {
		if (vqp->recovery.picks)
			path_destroy(vqp->node, path);
		return;
	}
	if (message->head.kind == &backup_kind.kind && !vqp->recovery.picks) {
		path_destroy(vqp->node, path);
		if (path_create(vqp, path, rail) != 0)
			return;
		if (path_connect(vqp, path, &message->offer) != 0) {
			path_destroy(vqp->node, path);
			return;
		}
		path->ready = true;
		path_say(vqp, &backup_qp_kind, path, PATH_BUILT);
	} else if (is_answer(vqp, path, message)) {
		path->ready = path_connect(vqp, path, &message->offer) == 0;
		if (path->ready)
			marks_rebuild(vqp);
		else
			path_destroy(vqp->node, path);
	}
}

static void take_backup(struct hf_vqp *vqp, const struct message_head *head)
{
	const struct path_message *message = (const void *)head;
	int rail = peer_our_rail(vqp->peer, message->offer.rail);

	if (rail >= 0)
		on_backup(vqp, message, (unsigned)rail);
}

/* The picker may say GO to it before it hears that it is of no use any more, and posts at once: then it is asked what
 * executed, as any path that broke. */
void backup_withdraw(struct hf_vqp *vqp, unsigned rail)
{
	struct path *path = &vqp->backup[rail];

	if (vqp->recovery.picks || !path->ready)
		path_destroy(vqp->node, path);
	else
		path->withdrawn = true;
}

bool backup_is_withdrawn(struct hf_vqp *vqp, unsigned rail, uint64_t now_ns)
{
	struct path *path = &vqp->backup[rail];
	enum fence fence;

	if (path->qp == NULL || !path->withdrawn)
		return true;
	fence = fence_path(vqp, path, now_ns);
	if (fence == FENCE_HOPELESS && path_end_qp(path) == 0) {
		path_destroy(vqp->node, path);
		return true;
	}
	return fence == FENCE_DONE;
}

bool backup_take(struct hf_vqp *vqp, unsigned rail)
{
	if (!vqp->backup[rail].ready || (vqp->recovery.picks && vqp->backup[rail].withdrawn))
		return false;
	ensure(vqp->path == &vqp->own_path && vqp->own_path.qp == NULL);
	vqp->own_path = vqp->backup[rail];
	vqp->backup[rail] = (struct path){0};
	path_join(vqp, &vqp->own_path, vqp->own_path.withdrawn);
	path_activate(&vqp->own_path);
	return true;
}
