/* The path that both ends go on with: what was made beforehand, or a qp made now. The picker takes its end and says GO;
 * the other end takes what matches. */
#include "vqp/path/pool.h"

#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "vqp/atomic/uid_post.h"

static const struct field path_fields[] = {PATH_MESSAGE_FIELDS};
static void take_go(struct hf_vqp *vqp, const struct message_head *head);
static void take_qp(struct hf_vqp *vqp, const struct message_head *head);
static const struct vqp_kind go_kind = VQP_KIND(MESSAGE_GO, "GO", struct path_message, path_fields, take_go);
static const struct vqp_kind qp_kind = VQP_KIND(MESSAGE_QP, "QP", struct path_message, path_fields, take_qp);

void next_path_register(struct message_kinds *kinds)
{
	message_register(kinds, &go_kind.kind);
	message_register(kinds, &qp_kind.kind);
}

/* The logs start over: on the new qp everything that is not done is posted, from the oldest on. */
static void rewind_logs(struct hf_vqp *vqp)
{
	vqp->sends.next = vqp->sends.head;
	vqp->recvs.next = vqp->recvs.head;
	/* Completions leave from behind `next` only, so what is done at the front stays behind it. */
	while (vqp->sends.next < vqp->sends.tail && request_log_at(&vqp->sends, vqp->sends.next)->done)
		vqp->sends.next++;
	while (vqp->recvs.next < vqp->recvs.tail && request_log_at(&vqp->recvs, vqp->recvs.next)->done)
		vqp->recvs.next++;
	vqp->packets = vqp->unsignaled = 0;
	vqp->probing = false;
	uid_post_lost(vqp);
	home_left(vqp);
}

static void leave_path(struct hf_vqp *vqp)
{
	if (vqp->path->qp != NULL)
		vqp->last_rail = vqp->path->rail;
	vqp_drop_path(vqp);
	rewind_logs(vqp);
}

static enum next_path failed(struct hf_vqp *vqp, unsigned rail, int rc)
{
	struct rail_actions ignored;

	if (rc == -ESTALE) /* no fault of the rail */
		return NEXT_PATH_FAILED;
	log_warn("vqp %u: cannot make a qp on rail %s: %s; trying again", vqp->num, hf_node_rail_name(vqp->node, rail),
		strerror(-rc));
	rail_step(&vqp->peer->rails[rail], RAIL_EVENT_WC_ERROR, hf_loop_now_ns(vqp->node->loop), &ignored);
	vqp->refuses_rail = !vqp->recovery.picks;
	return NEXT_PATH_FAILED;
}

/* A dedicated one if it is there, else one of the pool (R7: unless messages wait, which it cannot carry). */
static enum path_source take_ready(struct hf_vqp *vqp, unsigned rail)
{
	struct standby *standby;

	if (backup_take(vqp, rail))
		return PATH_BACKUP;
	standby = pool_pick(vqp, rail);
	if (standby == NULL)
		return PATH_BUILT;
	pool_join(vqp, standby);
	return PATH_POOL;
}

/* After a failover the other side waits for nothing but this GO, whatever it is to do next: its old qp is fenced, and
 * what was made beforehand is ready there too. After a failback it may still be fencing; should that fail, it would
 * never have been on the new qp, where our wrs execute. So then we wait for its answer; and where a WRITE_WITH_IMM of
 * its may go on in its middle, whose length it tells when it has heard our STATE: the picker has receives by then. */
bool next_path_goes_at_once(const struct hf_vqp *vqp, unsigned cached)
{
	bool resumes = vqp->recovery.picks ? vqp->evidence.resumes : vqp->resumes;

	return cached != PATH_BUILT && vqp->recovery.kind == RECOVERY_FAILOVER && !resumes;
}

static enum next_path go_ready(struct hf_vqp *vqp, enum path_source cached)
{
	int rc;

	path_say(vqp, &go_kind, vqp->path, cached);
	rc = path_post_recvs(vqp, vqp->path);
	if (rc != 0)
		return failed(vqp, vqp->path->rail, rc);
	return next_path_goes_at_once(vqp, cached) ? NEXT_PATH_READY : NEXT_PATH_WAITS;
}

enum next_path next_path_go(struct hf_vqp *vqp)
{
	unsigned rail = (unsigned)vqp->recovery.rail;
	enum path_source cached;
	int rc;

	leave_path(vqp);
	if (access_is_stale(vqp))
		return failed(vqp, rail, -ESTALE);
	cached = take_ready(vqp, rail);
	if (cached != PATH_BUILT)
		return go_ready(vqp, cached);
	path_destroy(vqp->node, &vqp->backup[rail]); /* half made */
	rc = path_create(vqp, &vqp->own_path, rail);
	if (rc != 0)
		return failed(vqp, rail, rc);
	path_activate(vqp->path);
	path_say(vqp, &go_kind, vqp->path, PATH_BUILT);
	return NEXT_PATH_WAITS;
}

static int match_built(struct hf_vqp *vqp, unsigned rail)
{
	int rc;

	path_destroy(vqp->node, &vqp->backup[rail]);
	rc = path_create(vqp, &vqp->own_path, rail);
	if (rc != 0)
		return rc;
	path_activate(vqp->path);
	return path_connect(vqp, vqp->path, &vqp->go);
}

/* What was made beforehand may have broken meanwhile, which the picker could not know: no fault of the rail. */
static bool match_ready(struct hf_vqp *vqp, unsigned rail)
{
	struct standby *standby;

	if (vqp->go.cached == PATH_BACKUP)
		return backup_take(vqp, rail);
	pool_enlist(vqp); /* the picker may be on its second path before this side was ever on its first */
	standby = pool_named(vqp, rail, vqp->go.qp_num);
	if (standby != NULL)
		pool_join(vqp, standby);
	return standby != NULL;
}

enum next_path next_path_match(struct hf_vqp *vqp)
{
	unsigned rail = (unsigned)vqp->recovery.rail;
	int rc = 0;

	vqp->awaits_go = false;
	leave_path(vqp);
	if (vqp->go.cached != PATH_BUILT && (!match_ready(vqp, rail) || vqp->path_broken)) {
		home_took_withdrawn(vqp);
		return NEXT_PATH_FAILED;
	}
	/* The other side may post to what was made beforehand already, so that is taken even if it is of an earlier
	 * grant: the next exchange asks it what executed. */
	if (access_is_stale(vqp))
		rc = -ESTALE;
	else if (vqp->go.cached == PATH_BUILT)
		rc = match_built(vqp, rail);
	else if (!access_is_current(vqp))
		rc = -ESTALE;
	if (rc == 0)
		rc = path_post_recvs(vqp, vqp->path);
	if (rc != 0)
		return failed(vqp, rail, rc);
	if (!next_path_goes_at_once(vqp, vqp->go.cached))
		path_say(vqp, &qp_kind, vqp->path, PATH_BUILT);
	return NEXT_PATH_WAITS;
}

static void take_go(struct hf_vqp *vqp, const struct message_head *head)
{
	const struct path_message *message = (const void *)head;
	struct recovery_event event = {.type = RECOVERY_EVENT_GO,
		.epoch = head->epoch,
		.kind = RECOVERY_FAILOVER,
		.rail = peer_our_rail(vqp->peer, message->offer.rail)};

	if (event.rail < 0)
		return;
	if (head->epoch == vqp->recovery.epoch)
		vqp->go = message->offer;
	event.ready_at_once = next_path_goes_at_once(vqp, message->offer.cached);
	failover_event(vqp, &event);
}

static void take_qp(struct hf_vqp *vqp, const struct message_head *head)
{
	const struct path_message *message = (const void *)head;
	struct recovery_event event = {.type = RECOVERY_EVENT_READY, .epoch = head->epoch};
	int rc = 0;

	if (head->epoch != vqp->recovery.epoch || vqp->recovery.state != RECOVERY_BUILD || !vqp->recovery.picks ||
		vqp->path->qp == NULL)
		return;
	if (access_is_stale(vqp))
		rc = -ESTALE;
	else if (!vqp->path->ready && vqp->path->shared == NULL)
		rc = path_connect(vqp, vqp->path, &message->offer);
	if (rc == 0)
		rc = path_post_recvs(vqp, vqp->path);
	if (rc == 0) {
		failover_event(vqp, &event);
	} else {
		(void)failed(vqp, vqp->path->rail, rc);
		failover_broken(vqp);
	}
}
