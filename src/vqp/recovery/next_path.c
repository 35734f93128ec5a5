/* The path that both ends go on with: what was made beforehand, or a qp made now. The picker takes its end and says GO;
 * the other end takes what matches. */
#include "vqp/path/pool.h"

#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "vqp/atomic/uid_post.h"

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
	if (vqp->path.qp != NULL)
		vqp->last_rail = vqp->path.rail;
	vqp_drop_path(vqp);
	rewind_logs(vqp);
}

void next_path_failed(struct hf_vqp *vqp, unsigned rail, int rc)
{
	struct rail_actions ignored;

	if (rc == -ESTALE) { /* no fault of the rail */
		failover_broken(vqp);
		return;
	}
	log_warn("vqp %u: no qp on rail %s: %s", vqp->num, hf_node_rail_name(vqp->node, rail), strerror(-rc));
	rail_step(&vqp->peer->rails[rail], RAIL_EVENT_WC_ERROR, hf_loop_now_ns(vqp->node->loop), &ignored);
	failover_broken(vqp);
}

/* A dedicated one if it is there, else one of the pool (R7: unless messages wait, which it cannot carry). */
static enum message_path take_ready(struct hf_vqp *vqp, unsigned rail)
{
	struct standby *standby;

	if (backup_take(vqp, rail))
		return MESSAGE_PATH_BACKUP;
	standby = pool_pick(vqp, rail);
	if (standby == NULL)
		return MESSAGE_PATH_BUILT;
	pool_join(vqp, standby);
	return MESSAGE_PATH_POOL;
}

/* After a failover the other side waits for nothing but this GO, whatever it is to do next: its old qp is fenced, and
 * what was made beforehand is ready there too. After a failback it may still be fencing; should that fail, it would
 * never have been on the new qp, where our wrs execute. So then we wait for its answer; and where a WRITE_WITH_IMM of
 * its may go on in its middle, whose length it tells when it has heard our STATE: the picker has receives by then. */
bool next_path_goes_at_once(const struct hf_vqp *vqp, unsigned cached)
{
	bool resumes = vqp->recovery.picks ? vqp->evidence.resumes : vqp->resumes;

	return cached != MESSAGE_PATH_BUILT && vqp->recovery.kind == RECOVERY_FAILOVER && !resumes;
}

static void go_ready(struct hf_vqp *vqp, enum message_path cached)
{
	struct recovery_event ready = {.type = RECOVERY_EVENT_READY, .epoch = vqp->recovery.epoch};
	int rc;

	exchange_say_path(vqp, MESSAGE_GO, &vqp->path, cached);
	rc = path_post_recvs(vqp, &vqp->path);
	if (rc != 0)
		next_path_failed(vqp, vqp->path.rail, rc);
	else if (next_path_goes_at_once(vqp, cached))
		failover_event(vqp, &ready);
}

void next_path_go(struct hf_vqp *vqp)
{
	unsigned rail = (unsigned)vqp->recovery.rail;
	enum message_path cached;
	int rc;

	leave_path(vqp);
	if (access_is_stale(vqp)) {
		next_path_failed(vqp, rail, -ESTALE);
		return;
	}
	cached = take_ready(vqp, rail);
	if (cached != MESSAGE_PATH_BUILT) {
		go_ready(vqp, cached);
		return;
	}
	path_destroy(&vqp->backup[rail]); /* half made */
	rc = path_create(vqp, &vqp->path, rail);
	if (rc != 0) {
		next_path_failed(vqp, rail, rc);
		return;
	}
	path_activate(&vqp->path);
	exchange_say_path(vqp, MESSAGE_GO, &vqp->path, MESSAGE_PATH_BUILT);
}

static int match_built(struct hf_vqp *vqp, unsigned rail)
{
	int rc;

	path_destroy(&vqp->backup[rail]);
	rc = path_create(vqp, &vqp->path, rail);
	if (rc != 0)
		return rc;
	path_activate(&vqp->path);
	return path_connect_offered(vqp, &vqp->path, &vqp->go);
}

/* What was made beforehand may have broken meanwhile, which the picker could not know: no fault of the rail. */
static bool match_ready(struct hf_vqp *vqp, unsigned rail)
{
	struct standby *standby;

	if (vqp->go.cached == MESSAGE_PATH_BACKUP)
		return backup_take(vqp, rail);
	pool_enlist(vqp); /* the picker may be on its second path before this side was ever on its first */
	standby = pool_named(vqp, rail, vqp->go.qp_num);
	if (standby != NULL)
		pool_join(vqp, standby);
	return standby != NULL;
}

void next_path_match(struct hf_vqp *vqp)
{
	unsigned rail = (unsigned)vqp->recovery.rail;
	int rc = 0;

	vqp->awaits_go = false;
	leave_path(vqp);
	if (vqp->go.cached != MESSAGE_PATH_BUILT && (!match_ready(vqp, rail) || vqp->path.broken)) {
		home_took_withdrawn(vqp);
		failover_broken(vqp);
		return;
	}
	/* The other side may post to what was made beforehand already, so that is taken even if it is of an earlier
	 * grant: the next exchange asks it what executed. */
	if (access_is_stale(vqp))
		rc = -ESTALE;
	else if (vqp->go.cached == MESSAGE_PATH_BUILT)
		rc = match_built(vqp, rail);
	else if (!access_is_current(vqp, &vqp->path))
		rc = -ESTALE;
	if (rc == 0)
		rc = path_post_recvs(vqp, &vqp->path);
	if (rc != 0)
		next_path_failed(vqp, rail, rc);
	else if (!next_path_goes_at_once(vqp, vqp->go.cached))
		exchange_say_path(vqp, MESSAGE_QP, &vqp->path, MESSAGE_PATH_BUILT);
}
