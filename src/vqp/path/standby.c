#include "vqp/path/standby.h"

#include <errno.h>
#include <stdlib.h>

#include "base/ensure.h"
#include "vqp/path/pool.h"

/* ---- its life ---- */

static void on_target_fatal(struct wc_sink *sink)
{
	standby_break(container_of(sink, struct standby, dc_sink));
}

/* A target has no wrs. */
static void on_target_wc(struct wc_sink *sink, const struct ibv_wc *wc)
{
	(void)sink, (void)wc;
}

static void on_target_settled(struct wc_sink *sink)
{
	(void)sink;
}

static struct carrier *find_carrier(struct pool *pool, unsigned rail, bool dc, unsigned initiators)
{
	return dc ? carrier_share(pool->pd, rail, initiators)
		  : carrier_make(pool->pd, rail, pool->access, pool->peer->leases[rail]);
}

struct standby *standby_make(struct pool *pool, unsigned rail, bool dc, unsigned initiators)
{
	struct standby *standby = calloc(1, sizeof(*standby));

	if (standby == NULL)
		return NULL;
	standby->pool = pool;
	list_init(&standby->vqps);
	standby->dc_sink =
		(struct wc_sink){.completed = on_target_wc, .settled = on_target_settled, .fatal = on_target_fatal};
	list_init(&standby->dc_sink.link);
	if (dc)
		standby->dc = dc_end_make(pool->pd, rail, pool->access, pool->peer->leases[rail], &standby->dc_sink);
	standby->carrier = dc && standby->dc == NULL ? NULL : find_carrier(pool, rail, dc, initiators);
	if (standby->carrier == NULL) {
		dc_end_free(pool->pd->node, standby->dc);
		free(standby);
		return NULL;
	}
	carrier_add(standby->carrier, &standby->carrier_link);
	standby->path = standby->carrier->path;
	standby->path.shared = standby;
	standby->path.cq = NULL; /* its place in the queues is the carrier's */
	standby->path.cqes = 0;
	standby->path.active = false;
	standby->offer = dc ? standby->dc->path.qp->qp_num : standby->path.qp->qp_num;
	standby->offered_ns = hf_loop_now_ns(pool->pd->node->loop);
	list_push_back(&pool->qps, &standby->link);
	return standby;
}

/* Wrs of a standby qp that have not completed hold up all others on its initiator, and may land here late. */
static bool needs_carrier(const struct standby *standby)
{
	return standby->dc == NULL || standby->posted_end > standby->carrier->completed;
}

void standby_free(struct standby *standby)
{
	ensure(standby->users == 0);
	list_remove(&standby->link);
	list_remove(&standby->dc_sink.link);
	path_deactivate(&standby->path);
	if (standby->dc != NULL && needs_carrier(standby))
		carrier_stop(standby->carrier);
	dc_end_free(standby->pool->pd->node, standby->dc);
	carrier_drop(standby->carrier, &standby->carrier_link);
	free(standby);
}

int standby_connect(struct hf_vqp *vqp, struct standby *standby, const struct pool_message *theirs)
{
	struct path *path = &standby->path;
	int rc;

	(void)access_at_rtr(vqp, path); /* as for each vqp of the pool */
	if (standby->dc == NULL) {
		rc = path_connect(vqp, &standby->carrier->path, &theirs->offer);
		path->footers = standby->carrier->path.footers;
		path->mtu_bytes = standby->carrier->path.mtu_bytes;
		path->their_key = standby->carrier->path.their_key;
		return rc;
	}
	dc_end_hear(standby->dc, vqp->peer->remote[vqp->peer->rail_map[path->rail]].gid, &theirs->offer, &theirs->dc);
	path->footers = theirs->offer.footers && path_has_footers(vqp->node, path->rail);
	path->our_key = theirs->dc.dct_num;
	path->their_key = standby->dc->path.qp->qp_num;
	return 0;
}

void standby_break(struct standby *standby)
{
	if (standby->state == STANDBY_BROKEN)
		return;
	standby->state = STANDBY_BROKEN;
	list_for_each_safe (at, &standby->vqps) {
		struct hf_vqp *vqp = container_of(at, struct hf_vqp, pool_link);

		if (!vqp->path_broken)
			marks_broken(vqp);
	}
}

/* ---- its fence ---- */

bool standby_is_ended(const struct standby *standby)
{
	return standby->carrier->path.qp == NULL;
}

static enum fence fence_carrier(struct hf_vqp *vqp, struct carrier *carrier, uint64_t now_ns)
{
	enum fence fence = FENCE_DONE;

	carrier_break(carrier);
	if (!carrier->fenced)
		fence = fence_path(vqp, &carrier->path, now_ns);
	carrier->fenced |= fence == FENCE_DONE;
	return fence;
}

/* The target's path keeps the time of its own tries. */
static enum fence fence_target(struct hf_vqp *vqp, struct dc_end *end, uint64_t now_ns)
{
	if (end == NULL || end->fenced)
		return FENCE_DONE;
	if (fence_path_sleeps(&end->path, now_ns))
		return FENCE_WAITS;
	return fence_judge(vqp, &end->path, dc_end_fence(end), now_ns);
}

/* A swap asks for no fence: both ends have fallen quiet, and others may be using it. */
enum fence standby_fence(struct hf_vqp *vqp, uint64_t now_ns)
{
	struct standby *standby = vqp->path->shared;
	enum fence own = FENCE_DONE, theirs;

	if (!vqp_is_ending(vqp) && vqp->recovery.kind == RECOVERY_FAILBACK && standby->state != STANDBY_BROKEN)
		return FENCE_DONE;
	if (standby->fenced)
		return FENCE_DONE;
	standby_break(standby);
	if (needs_carrier(standby))
		own = fence_carrier(vqp, standby->carrier, now_ns);
	theirs = fence_target(vqp, standby->dc, now_ns);
	standby->fenced = own == FENCE_DONE && theirs == FENCE_DONE;
	if (own == FENCE_WAITS || theirs == FENCE_WAITS)
		return FENCE_WAITS;
	return standby->fenced ? FENCE_DONE : FENCE_HOPELESS;
}

uint64_t standby_fence_retry_ns(const struct standby *standby)
{
	uint64_t own = needs_carrier(standby) && !standby->carrier->fenced ? standby->carrier->path.fence_retry_ns : 0;
	uint64_t theirs = standby->dc != NULL && !standby->dc->fenced ? standby->dc->path.fence_retry_ns : 0;

	return own > theirs ? own : theirs;
}

int standby_end(struct standby *standby)
{
	int rc = 0;

	if (needs_carrier(standby) && !standby->carrier->fenced)
		rc = carrier_end(standby->carrier);
	if (rc == 0 && standby->dc != NULL && !standby->dc->fenced)
		rc = dc_end_end(standby->dc);
	if (rc != 0)
		return rc;
	standby_break(standby);
	standby->fenced = true;
	return 0;
}

void standby_retire(struct standby *standby)
{
	int rc;

	standby_break(standby);
	if (standby->users > 0)
		return;
	rc = standby->dc != NULL ? dc_end_fence(standby->dc) : carrier_fence(standby->carrier);
	if (rc != 0 && rc != -EINPROGRESS)
		(void)(standby->dc != NULL ? dc_end_end(standby->dc) : carrier_end(standby->carrier));
}

void standby_evict(struct hf_vqp *vqp)
{
	struct standby *standby = vqp->path->shared;

	vqp->path_broken = true; /* it does not settle with the others */
	standby_break(standby);
	if (needs_carrier(standby))
		carrier_stop(standby->carrier);
	if (standby->dc != NULL)
		dc_end_stop(standby->dc);
	standby->fenced =
		(!needs_carrier(standby) || standby->carrier->fenced) && (standby->dc == NULL || standby->dc->fenced);
	vqp->qp_remains |= !standby->fenced;
}

/* ---- what it tells ---- */

bool standby_tells(const struct standby *standby)
{
	return standby->dc != NULL ? standby->dc->path.qp != NULL : standby->carrier->path.qp != NULL;
}

int standby_executed_psn(const struct standby *standby, uint32_t *psn_out)
{
	return standby->dc != NULL ? dc_end_executed_psn(standby->dc, psn_out)
				   : hf_qp_executed_psn(standby->carrier->path.qp, psn_out);
}

int standby_atomic_results(const struct standby *standby, struct hf_atomic_result *results_out, unsigned n)
{
	return standby->dc != NULL ? dc_end_atomic_results(standby->dc, results_out, n)
				   : hf_qp_atomic_results(standby->carrier->path.qp, results_out, n);
}

int standby_refusal(const struct standby *standby, struct hf_refusal *refusal_out)
{
	return standby->dc != NULL ? dc_end_refusal(standby->dc, refusal_out)
				   : hf_qp_refusal(standby->carrier->path.qp, refusal_out);
}
