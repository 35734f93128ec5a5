#include "vqp/pool.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "base/log.h"

#define POOL_MAX       64u /* standby qps of a pool on one rail */
#define OFFER_AGAIN_NS 1000000000ull

bool pool_turn(struct hf_node *node)
{
	bool pumped = false;

	list_for_each (at, &node->pools)
		list_for_each (on, &container_of(at, struct pool, node_link)->qps)
			pumped |= carrier_pump(container_of(on, struct pool_qp, link)->carrier);
	return pumped;
}

/* ---- life of a standby qp ---- */

static void on_target_fatal(struct wc_sink *sink)
{
	pool_break(container_of(sink, struct pool_qp, dc_sink));
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

static unsigned so_many(const struct hf_node_config *config, unsigned vqps)
{
	unsigned n = config->pool_size;

	if (config->pool_vqps > 0 && vqps / config->pool_vqps + (vqps % config->pool_vqps != 0) > n)
		n = vqps / config->pool_vqps + (vqps % config->pool_vqps != 0);
	return n < POOL_MAX ? n : POOL_MAX;
}

/* Of a rail and protection domain, for all peers. */
static unsigned initiators_wanted(const struct pool *pool)
{
	const struct hf_node *node = pool->pd->node;
	unsigned vqps = 0;

	list_for_each (at, &node->pools) {
		const struct pool *other = container_of(at, struct pool, node_link);

		vqps += other->pd == pool->pd ? other->vqps : 0;
	}
	return so_many(&node->config, vqps);
}

static struct carrier *find_carrier(struct pool *pool, unsigned rail, bool dc)
{
	return dc ? carrier_share(pool->pd, rail, &pool->cap, initiators_wanted(pool))
		  : carrier_make(pool->pd, rail, &pool->cap, pool->access);
}

static struct pool_qp *make(struct pool *pool, unsigned rail)
{
	struct pool_qp *standby = calloc(1, sizeof(*standby));
	bool dc = dc_suits(pool->peer, rail);

	if (standby == NULL)
		return NULL;
	standby->pool = pool;
	list_init(&standby->vqps);
	standby->dc_sink =
		(struct wc_sink){.completed = on_target_wc, .settled = on_target_settled, .fatal = on_target_fatal};
	list_init(&standby->dc_sink.link);
	if (dc)
		standby->dc = dc_end_make(pool->pd, rail, pool->access, &standby->dc_sink);
	standby->carrier = dc && standby->dc == NULL ? NULL : find_carrier(pool, rail, dc);
	if (standby->carrier == NULL) {
		dc_end_free(standby->dc);
		free(standby);
		return NULL;
	}
	carrier_add(standby->carrier, &standby->carrier_link);
	standby->path = standby->carrier->path;
	standby->path.cq = NULL; /* its place in the queues is the carrier's */
	standby->path.cqes = 0;
	standby->path.carries = false;
	standby->offer = dc ? standby->dc->path.qp->qp_num : standby->path.qp->qp_num;
	standby->offered_ns = hf_loop_now_ns(pool->pd->node->loop);
	list_push_back(&pool->qps, &standby->link);
	return standby;
}

/* Wrs of a standby qp that have not completed hold up all others on its initiator, and may land here late. */
static bool needs_carrier(const struct pool_qp *standby)
{
	return standby->dc == NULL || standby->posted_end > standby->carrier->completed;
}

static void unmake(struct pool_qp *standby)
{
	ensure(standby->users == 0);
	list_remove(&standby->link);
	list_remove(&standby->dc_sink.link);
	path_uncarry(&standby->path);
	if (standby->dc != NULL && needs_carrier(standby))
		carrier_stop(standby->carrier);
	dc_end_free(standby->dc);
	carrier_drop(standby->carrier, &standby->carrier_link);
	free(standby);
}

void pool_break(struct pool_qp *standby)
{
	if (standby->state == POOL_BROKEN)
		return;
	standby->state = POOL_BROKEN;
	standby->broken_ns = hf_loop_now_ns(standby->pool->pd->node->loop);
	list_for_each_safe (at, &standby->vqps) {
		struct hf_vqp *vqp = container_of(at, struct hf_vqp, pool_link);

		if (!vqp->path.broken)
			failover_broken(vqp);
	}
}

/* ---- its fence ---- */

bool pool_is_ended(const struct pool_qp *standby)
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
enum fence pool_fence(struct hf_vqp *vqp, uint64_t now_ns)
{
	struct pool_qp *standby = vqp->path.shared;
	enum fence own = FENCE_DONE, theirs;

	if (!vqp->failing && vqp->recovery.kind == RECOVERY_FAILBACK && standby->state != POOL_BROKEN)
		return FENCE_DONE;
	if (standby->fenced)
		return FENCE_DONE;
	pool_break(standby);
	if (needs_carrier(standby))
		own = fence_carrier(vqp, standby->carrier, now_ns);
	theirs = fence_target(vqp, standby->dc, now_ns);
	standby->fenced = own == FENCE_DONE && theirs == FENCE_DONE;
	if (own == FENCE_WAITS || theirs == FENCE_WAITS)
		return FENCE_WAITS;
	return standby->fenced ? FENCE_DONE : FENCE_HOPELESS;
}

uint64_t pool_fence_retry_ns(const struct pool_qp *standby)
{
	uint64_t own = needs_carrier(standby) && !standby->carrier->fenced ? standby->carrier->path.fence_retry_ns : 0;
	uint64_t theirs = standby->dc != NULL && !standby->dc->fenced ? standby->dc->path.fence_retry_ns : 0;

	return own > theirs ? own : theirs;
}

int pool_end_qp(struct pool_qp *standby)
{
	int rc = 0;

	if (needs_carrier(standby) && !standby->carrier->fenced)
		rc = carrier_end(standby->carrier);
	if (rc == 0 && standby->dc != NULL && !standby->dc->fenced)
		rc = dc_end_end(standby->dc);
	if (rc != 0)
		return rc;
	pool_break(standby);
	standby->fenced = true;
	return 0;
}

void pool_evict(struct hf_vqp *vqp)
{
	struct pool_qp *standby = vqp->path.shared;

	vqp->path.broken = true; /* it does not settle with the others */
	pool_break(standby);
	if (needs_carrier(standby))
		carrier_stop(standby->carrier);
	if (standby->dc != NULL)
		dc_end_stop(standby->dc, hf_loop_now_ns(vqp->node->loop));
	standby->fenced =
		(!needs_carrier(standby) || standby->carrier->fenced) && (standby->dc == NULL || standby->dc->fenced);
}

/* ---- what it tells ---- */

bool pool_tells(const struct pool_qp *standby)
{
	return standby->dc != NULL ? standby->dc->path.qp != NULL : standby->carrier->path.qp != NULL;
}

int pool_executed_psn(const struct pool_qp *standby, uint32_t *psn_out)
{
	return standby->dc != NULL ? dc_end_executed_psn(standby->dc, psn_out)
				   : hf_qp_executed_psn(standby->carrier->path.qp, psn_out);
}

int pool_atomic_results(const struct pool_qp *standby, struct hf_atomic_result *results_out, unsigned n)
{
	return standby->dc != NULL ? dc_end_atomic_results(standby->dc, results_out, n)
				   : hf_qp_atomic_results(standby->carrier->path.qp, results_out, n);
}

int pool_refusal(const struct pool_qp *standby, struct hf_refusal *refusal_out)
{
	return standby->dc != NULL ? dc_end_refusal(standby->dc, refusal_out)
				   : hf_qp_refusal(standby->carrier->path.qp, refusal_out);
}

/* ---- vqps on it ---- */

/* Of the picker: the other side is told that nobody will be sent there any more. */
static void withdraw(struct pool_qp *standby)
{
	struct pool *pool = standby->pool;

	if (!list_empty(&pool->members)) {
		const struct hf_vqp *vqp = container_of(pool->members.next, struct hf_vqp, member_link);
		struct message message = {.kind = MESSAGE_POOL_GONE,
			.to = vqp->remote_num,
			.from = vqp->num,
			.rail = (uint8_t)standby->path.rail,
			.about_qp = standby->offer};

		peer_send(pool->peer, &message);
	}
	unmake(standby);
}

struct pool_qp *pool_pick(struct hf_vqp *vqp, unsigned rail)
{
	struct pool_qp *picked = NULL;
	uint32_t ready = 0;

	if (vqp->pool == NULL)
		return NULL;
	list_for_each (at, &vqp->pool->qps) {
		struct pool_qp *standby = container_of(at, struct pool_qp, link);

		/* Each of those that are ready with the same chance, in one walk. */
		if (standby->path.rail == rail && standby->state == POOL_READY && node_random(vqp->node) % ++ready == 0)
			picked = standby;
	}
	return picked;
}

struct pool_qp *pool_named(struct hf_vqp *vqp, unsigned rail, uint32_t their_key)
{
	if (vqp->pool == NULL)
		return NULL;
	list_for_each (at, &vqp->pool->qps) {
		struct pool_qp *standby = container_of(at, struct pool_qp, link);

		if (standby->path.rail == rail && standby->state != POOL_OFFERED &&
			standby->path.their_key == their_key)
			return standby;
	}
	return NULL;
}

void pool_join(struct hf_vqp *vqp, struct pool_qp *standby)
{
	ensure(vqp->path.qp == NULL && standby->state != POOL_OFFERED);
	path_carry(&standby->path);
	vqp->path = standby->path;
	vqp->path.shared = standby;
	vqp->path.carries = false; /* the standby qp does, for all of them */
	vqp->path.grant = vqp->grants.ours;
	vqp->path.access = vqp->access;
	vqp->path.broken = standby->state == POOL_BROKEN;
	list_push_back(&standby->vqps, &vqp->pool_link);
	standby->users++;
}

void pool_leave(struct hf_vqp *vqp)
{
	struct pool_qp *standby = vqp->path.shared;

	list_remove(&vqp->pool_link);
	list_remove(&vqp->pool_wait_link);
	standby->carrier->packets -= vqp->packets;
	vqp->packets = 0;
	vqp->path = (struct path){0};
	if (--standby->users > 0)
		return;
	path_uncarry(&standby->path);
	if (standby->state == POOL_BROKEN && vqp->recovery.picks)
		withdraw(standby);
}

/* ---- making them beforehand ---- */

static bool fits(const struct pool *pool, const struct hf_vqp *vqp)
{
	return pool->peer == vqp->peer && pool->pd == vqp->pd && pool->remote_pd == vqp->remote_pd &&
	       pool->access == vqp->access && pool->remote_access == vqp->remote_access &&
	       pool->cap.max_send_sge >= vqp->cap.max_send_sge && pool->cap.max_inline_data >= vqp->cap.max_inline_data;
}

static struct pool *pool_open(struct hf_vqp *vqp)
{
	struct pool *pool = calloc(1, sizeof(*pool));

	if (pool == NULL)
		return NULL;
	pool->peer = vqp->peer;
	pool->pd = vqp->pd;
	pool->remote_pd = vqp->remote_pd;
	pool->access = vqp->access;
	pool->remote_access = vqp->remote_access;
	pool->cap = vqp->cap;
	pool->cap.max_send_wr = CARRIER_DEPTH;
	pool->cap.max_recv_wr = pool->cap.max_recv_sge = 1;
	if (pool->cap.max_inline_data < LOG_ENTRY_BYTES)
		pool->cap.max_inline_data = LOG_ENTRY_BYTES;
	list_init(&pool->qps);
	list_init(&pool->members);
	list_push_back(&vqp->node->pools, &pool->node_link);
	return pool;
}

void pool_enlist(struct hf_vqp *vqp)
{
	struct pool *pool = NULL;

	if (vqp->pool != NULL || vqp->grants.dedicated || home_binds(vqp) || vqp->node->rail_count < 2 ||
		!policy_pools(vqp->node->config.policy))
		return;
	list_for_each (at, &vqp->node->pools)
		if (fits(container_of(at, struct pool, node_link), vqp))
			pool = container_of(at, struct pool, node_link);
	if (pool == NULL)
		pool = pool_open(vqp);
	if (pool == NULL)
		return;
	vqp->pool = pool;
	list_push_back(&pool->members, &vqp->member_link);
	pool->vqps++;
}

void pool_forget(struct hf_vqp *vqp)
{
	if (vqp->pool == NULL)
		return;
	list_remove(&vqp->member_link);
	vqp->pool->vqps--;
	vqp->pool = NULL;
}

static void say(const struct hf_vqp *vqp, enum message_kind kind, const struct pool_qp *standby)
{
	struct message message = {.kind = kind, .to = vqp->remote_num, .from = vqp->num, .about_qp = standby->offer};

	path_attributes(vqp->node, &standby->path, &message);
	if (standby->dc != NULL)
		dc_end_say(standby->dc, standby->path.qp, &message);
	peer_send(vqp->peer, &message);
}

static void keep_ready(struct pool *pool, unsigned rail, uint64_t now_ns)
{
	const struct hf_vqp *vqp = container_of(pool->members.next, struct hf_vqp, member_link);
	unsigned have = 0;

	list_for_each_safe (at, &pool->qps) {
		struct pool_qp *standby = container_of(at, struct pool_qp, link);

		if (standby->path.rail != rail)
			continue;
		if ((standby->state == POOL_OFFERED && now_ns - standby->offered_ns >= OFFER_AGAIN_NS) ||
			(standby->state == POOL_BROKEN && standby->users == 0))
			withdraw(standby);
		else if (standby->state != POOL_BROKEN)
			have++;
	}
	for (; have < so_many(&pool->pd->node->config, pool->vqps); have++) {
		struct pool_qp *standby = make(pool, rail);

		if (standby == NULL)
			return; /* the device has no room; the next tick tries again */
		say(vqp, MESSAGE_POOL, standby);
	}
}

/* The picker may have sent a vqp there before it heard that the qp is broken, and asks what executed (POOL-3). */
static void drop_broken(struct pool *pool, uint64_t now_ns)
{
	list_for_each_safe (at, &pool->qps) {
		struct pool_qp *standby = container_of(at, struct pool_qp, link);

		if (standby->state == POOL_BROKEN && standby->users == 0 &&
			now_ns - standby->broken_ns >= pool->pd->node->config.budget_ns)
			unmake(standby);
	}
}

void pool_tick(struct hf_node *node, uint64_t now_ns)
{
	list_for_each (at, &node->pools) {
		struct pool *pool = container_of(at, struct pool, node_link);

		drop_broken(pool, now_ns);
		if (list_empty(&pool->members) ||
			!container_of(pool->members.next, struct hf_vqp, member_link)->recovery.picks)
			continue;
		for (unsigned rail = 0; rail < node->rail_count; rail++)
			if (peer_usable(pool->peer) & 1u << rail)
				keep_ready(pool, rail, now_ns);
	}
}

/* Of those that no vqp is on one makes room, should the picker offer more than it may have. */
static bool make_room(struct pool *pool, unsigned rail)
{
	struct pool_qp *idle = NULL;
	unsigned have = 0;

	list_for_each (at, &pool->qps) {
		struct pool_qp *standby = container_of(at, struct pool_qp, link);

		if (standby->path.rail != rail)
			continue;
		have++;
		if (standby->users == 0 && idle == NULL)
			idle = standby;
	}
	if (have < POOL_MAX)
		return true;
	if (idle != NULL)
		unmake(idle);
	return idle != NULL;
}

static int connect_standby(struct hf_vqp *vqp, struct pool_qp *standby, const struct message *theirs)
{
	struct path *path = &standby->path;
	int rc;

	if (standby->dc == NULL) {
		rc = path_connect(vqp, &standby->carrier->path, theirs);
		path->footers = standby->carrier->path.footers;
		path->mtu_bytes = standby->carrier->path.mtu_bytes;
		path->their_key = standby->carrier->path.their_key;
		return rc;
	}
	dc_end_hear(standby->dc, vqp->peer->remote[vqp->peer->rail_map[path->rail]].gid, theirs);
	path->footers = theirs->footers && path_has_footers(vqp->node, path->rail);
	path->our_key = theirs->dct_num;
	path->their_key = standby->dc->path.qp->qp_num;
	return 0;
}

static void offered(struct hf_vqp *vqp, const struct message *message, unsigned rail)
{
	struct pool_qp *standby;

	pool_enlist(vqp);
	if (vqp->pool == NULL || !make_room(vqp->pool, rail) || dc_suits(vqp->peer, rail) != (message->dc != 0))
		return;
	standby = make(vqp->pool, rail);
	if (standby == NULL)
		return;
	standby->offer = message->dc ? message->dct_num : message->qp_num;
	if (connect_standby(vqp, standby, message) != 0) {
		unmake(standby);
		return;
	}
	standby->state = POOL_READY;
	say(vqp, MESSAGE_POOL_QP, standby);
}

static struct pool_qp *find_offer(struct hf_vqp *vqp, const struct message *message, unsigned rail)
{
	if (vqp->pool == NULL)
		return NULL;
	list_for_each (at, &vqp->pool->qps) {
		struct pool_qp *standby = container_of(at, struct pool_qp, link);

		if (standby->path.rail == rail && standby->offer == message->about_qp)
			return standby;
	}
	return NULL;
}

static void answered(struct hf_vqp *vqp, const struct message *message, unsigned rail)
{
	struct pool_qp *standby = find_offer(vqp, message, rail);

	if (standby == NULL || standby->state != POOL_OFFERED || (standby->dc != NULL) != (message->dc != 0))
		return;
	if (connect_standby(vqp, standby, message) == 0)
		standby->state = POOL_READY;
	else
		withdraw(standby);
}

static void withdrawn(struct hf_vqp *vqp, const struct message *message, unsigned rail)
{
	struct pool_qp *standby = find_offer(vqp, message, rail);

	if (standby == NULL)
		return;
	pool_break(standby);
	if (standby->users == 0)
		unmake(standby);
}

void pool_message(struct hf_vqp *vqp, const struct message *message, unsigned rail)
{
	if (message->kind == MESSAGE_POOL && !vqp->recovery.picks)
		offered(vqp, message, rail);
	else if (message->kind == MESSAGE_POOL_QP && vqp->recovery.picks)
		answered(vqp, message, rail);
	else if (message->kind == MESSAGE_POOL_GONE && !vqp->recovery.picks)
		withdrawn(vqp, message, rail);
}

/* ---- the end ---- */

static void pool_close(struct pool *pool)
{
	struct list *at;

	while (!list_empty(&pool->members))
		pool_forget(container_of(pool->members.next, struct hf_vqp, member_link));
	while ((at = list_pop_front(&pool->qps)) != NULL) {
		struct pool_qp *standby = container_of(at, struct pool_qp, link);

		while (!list_empty(&standby->vqps)) { /* they end with the peer */
			struct hf_vqp *vqp = container_of(standby->vqps.next, struct hf_vqp, pool_link);

			list_remove(&vqp->pool_link);
			list_remove(&vqp->pool_wait_link);
			vqp->path = (struct path){0};
			standby->users--;
		}
		unmake(standby);
	}
	list_remove(&pool->node_link);
	free(pool);
}

void pool_free_peer(struct hf_peer *peer)
{
	list_for_each_safe (at, &peer->node->pools)
		if (container_of(at, struct pool, node_link)->peer == peer)
			pool_close(container_of(at, struct pool, node_link));
}

void pool_free_pd(struct hf_vpd *pd)
{
	list_for_each_safe (at, &pd->node->pools)
		if (container_of(at, struct pool, node_link)->pd == pd)
			pool_close(container_of(at, struct pool, node_link));
}
