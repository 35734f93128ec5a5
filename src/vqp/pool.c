#include "vqp/pool.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "base/log.h"

#define POOL_MAX       64u /* standby qps of a pool on one rail */
#define OFFER_AGAIN_NS 1000000000ull

/* ---- its queues ---- */

static uint32_t least(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

/* Of the completion queue: at the last time that it was empty no more than `depth` wrs were unfinished, and `depth`
 * have been posted since at most; so there are never more than twice as many completions in it. Of the qp's own queue:
 * what has not completed takes its place. A list that fits is taken whole, so no wr is posted without its log write. */
static uint32_t room(struct pool_qp *standby)
{
	uint32_t depth = standby->path.cqes / 2;
	uint32_t unfinished = (uint32_t)(standby->posted - standby->completed);

	if (standby->path.cq == NULL)
		return 0;
	if (standby->reads != standby->path.cq->reads) {
		standby->reads = standby->path.cq->reads;
		standby->posted_at_read = standby->posted;
	}
	return least(depth - (uint32_t)(standby->posted - standby->posted_at_read), depth - least(unfinished, depth));
}

static void on_wc(struct wc_sink *sink, const struct ibv_wc *wc)
{
	struct pool_qp *standby = container_of(sink, struct pool_qp, sink);
	const struct pool_wr *wr = &standby->wrs[wc->wr_id % (2 * POOL_DEPTH)];
	struct hf_vqp *vqp = vqp_find(standby->pool->pd->node, wr->num);
	struct ibv_wc own = *wc;

	own.wr_id = wr->wr_id;
	if (wc->status == IBV_WC_SUCCESS)
		standby->completed = wc->wr_id + 1; /* and all before it */
	if (vqp != NULL && vqp->path.shared == standby) {
		if (list_empty(&vqp->sink.link))
			list_push_back(&standby->told, &vqp->sink.link);
		vqp->sink.completed(&vqp->sink, &own);
	}
	/* Whoever was at fault has been told; the others only lost their qp, and the rail is as good as before. */
	if (wc->status != IBV_WC_SUCCESS)
		pool_break(standby);
}

static void pump(struct pool_qp *standby)
{
	struct list *last = standby->waiting.prev, *at = NULL;

	while (at != last && !list_empty(&standby->waiting) && room(standby) > 0) {
		at = list_pop_front(&standby->waiting);
		post_pump(container_of(at, struct hf_vqp, pool_wait_link));
	}
}

static void on_settled(struct wc_sink *sink)
{
	struct pool_qp *standby = container_of(sink, struct pool_qp, sink);
	struct list *at;

	while ((at = list_pop_front(&standby->told)) != NULL)
		container_of(at, struct wc_sink, link)->settled(container_of(at, struct wc_sink, link));
	pump(standby);
}

static void on_fatal(struct wc_sink *sink)
{
	pool_break(container_of(sink, struct pool_qp, sink));
}

int pool_post_send(
	struct hf_vqp *vqp, struct ibv_send_wr *wr, const struct hf_footer *footers, struct ibv_send_wr **bad_wr)
{
	struct pool_qp *standby = vqp->path.shared;
	uint64_t first = standby->posted;
	uint32_t count = 0;
	int rc;

	*bad_wr = wr;
	for (const struct ibv_send_wr *at = wr; at != NULL; at = at->next)
		count++;
	if (count > room(standby)) {
		pool_wait(vqp);
		return -ENOMEM;
	}
	for (struct ibv_send_wr *at = wr; at != NULL; at = at->next) {
		standby->wrs[standby->posted % (2 * POOL_DEPTH)] =
			(struct pool_wr){.wr_id = at->wr_id, .num = vqp->num};
		at->wr_id = standby->posted++;
	}
	rc = footers == NULL ? hf_qp_post_send(standby->path.qp, wr, bad_wr)
			     : hf_qp_post_send_footed(standby->path.qp, NULL, wr, footers, bad_wr);
	if (rc == 0)
		return 0;
	/* Numbers that were not used are given again: notes of wrs in flight would be overwritten otherwise. */
	for (standby->posted = first; wr != *bad_wr; wr = wr->next)
		standby->posted++;
	if (rc == -ENOMEM)
		pool_wait(vqp);
	return rc;
}

void pool_wait(struct hf_vqp *vqp)
{
	if (list_empty(&vqp->pool_wait_link))
		list_push_back(&vqp->path.shared->waiting, &vqp->pool_wait_link);
}

bool pool_turn(struct hf_node *node)
{
	bool pumped = false;

	list_for_each (at, &node->pools)
		list_for_each (on, &container_of(at, struct pool, node_link)->qps) {
			struct pool_qp *standby = container_of(on, struct pool_qp, link);

			if (list_empty(&standby->waiting) || room(standby) == 0)
				continue;
			pump(standby);
			pumped = true;
		}
	return pumped;
}

/* ---- life of a standby qp ---- */

static struct pool_qp *make(struct pool *pool, unsigned rail)
{
	struct pool_qp *standby = calloc(1, sizeof(*standby));
	int rc;

	if (standby == NULL)
		return NULL;
	standby->pool = pool;
	standby->sink = (struct wc_sink){.completed = on_wc, .settled = on_settled, .fatal = on_fatal};
	list_init(&standby->sink.link);
	list_init(&standby->vqps);
	list_init(&standby->told);
	list_init(&standby->waiting);
	rc = path_make(
		pool->pd, rail, &pool->cap, 2 * pool->cap.max_send_wr, pool->access, &standby->sink, &standby->path);
	if (rc != 0) {
		free(standby);
		return NULL;
	}
	standby->offered_ns = hf_loop_now_ns(pool->pd->node->loop);
	list_push_back(&pool->qps, &standby->link);
	return standby;
}

static void unmake(struct pool_qp *standby)
{
	ensure(standby->users == 0);
	list_remove(&standby->sink.link);
	list_remove(&standby->link);
	path_destroy(&standby->path);
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

int pool_end_qp(struct pool_qp *standby)
{
	int rc = standby->path.qp == NULL ? 0 : path_end_qp(&standby->path);

	if (rc != 0)
		return rc;
	pool_break(standby);
	standby->fenced = true;
	list_for_each (at, &standby->vqps)
		container_of(at, struct hf_vqp, pool_link)->path.qp = NULL;
	return 0;
}

/* A swap asks for no fence: both ends have fallen quiet, and others may be using it. */
enum fence pool_fence(struct hf_vqp *vqp, uint64_t now_ns)
{
	struct pool_qp *standby = vqp->path.shared;
	enum fence fence;

	if (!vqp->failing && vqp->recovery.kind == RECOVERY_FAILBACK && standby->state != POOL_BROKEN)
		return FENCE_DONE;
	if (standby->fenced)
		return FENCE_DONE;
	pool_break(standby);
	fence = fence_path(vqp, &standby->path, now_ns);
	standby->fenced = fence == FENCE_DONE;
	return fence;
}

void pool_evict(struct hf_vqp *vqp)
{
	struct pool_qp *standby = vqp->path.shared;

	vqp->path.broken = true; /* it does not settle with the others */
	pool_break(standby);
	if (!standby->fenced && standby->path.qp != NULL)
		standby->fenced = hf_qp_fence(standby->path.qp) == 0;
	if (!standby->fenced)
		(void)pool_end_qp(standby);
}

/* ---- vqps on it ---- */

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

struct pool_qp *pool_named(struct hf_vqp *vqp, unsigned rail, uint32_t their_qp_num)
{
	if (vqp->pool == NULL)
		return NULL;
	list_for_each (at, &vqp->pool->qps) {
		struct pool_qp *standby = container_of(at, struct pool_qp, link);

		if (standby->path.rail == rail && standby->state != POOL_OFFERED &&
			standby->path.dest_qp_num == their_qp_num)
			return standby;
	}
	return NULL;
}

void pool_join(struct hf_vqp *vqp, struct pool_qp *standby)
{
	ensure(vqp->path.qp == NULL && standby->state != POOL_OFFERED);
	path_carry(&standby->path);
	vqp->path = standby->path; /* but its place in the queues is the standby qp's */
	vqp->path.shared = standby;
	vqp->path.cq = NULL;
	vqp->path.cqes = 0;
	vqp->path.carries = false;
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
	standby->packets -= vqp->packets;
	vqp->packets = 0;
	vqp->path = (struct path){0};
	if (--standby->users > 0)
		return;
	path_uncarry(&standby->path);
	if (standby->state == POOL_BROKEN && vqp->recovery.picks)
		unmake(standby);
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
	pool->cap.max_send_wr = POOL_DEPTH;
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

static unsigned wanted(const struct pool *pool)
{
	const struct hf_node_config *config = &pool->pd->node->config;
	unsigned n = config->pool_size;

	if (config->pool_vqps > 0 && pool->vqps / config->pool_vqps + (pool->vqps % config->pool_vqps != 0) > n)
		n = pool->vqps / config->pool_vqps + (pool->vqps % config->pool_vqps != 0);
	return n < POOL_MAX ? n : POOL_MAX;
}

static void say(const struct hf_vqp *vqp, enum message_kind kind, const struct pool_qp *standby)
{
	struct message message = {
		.kind = kind, .to = vqp->remote_num, .from = vqp->num, .about_qp = standby->path.dest_qp_num};

	path_attributes(vqp->node, &standby->path, &message);
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
		if (standby->state == POOL_OFFERED && now_ns - standby->offered_ns >= OFFER_AGAIN_NS)
			unmake(standby);
		else if (standby->state != POOL_BROKEN)
			have++;
	}
	for (; have < wanted(pool); have++) {
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

static void offered(struct hf_vqp *vqp, const struct message *message, unsigned rail)
{
	struct pool_qp *standby;

	pool_enlist(vqp);
	if (vqp->pool == NULL || !make_room(vqp->pool, rail))
		return;
	standby = make(vqp->pool, rail);
	if (standby == NULL)
		return;
	if (path_connect(vqp, &standby->path, message) != 0) {
		unmake(standby);
		return;
	}
	standby->state = POOL_READY;
	say(vqp, MESSAGE_POOL_QP, standby);
}

static void answered(struct hf_vqp *vqp, const struct message *message, unsigned rail)
{
	if (vqp->pool == NULL)
		return;
	list_for_each (at, &vqp->pool->qps) {
		struct pool_qp *standby = container_of(at, struct pool_qp, link);

		if (standby->path.rail != rail || standby->state != POOL_OFFERED ||
			standby->path.qp->qp_num != message->about_qp)
			continue;
		if (path_connect(vqp, &standby->path, message) == 0)
			standby->state = POOL_READY;
		else
			unmake(standby);
		return;
	}
}

void pool_message(struct hf_vqp *vqp, const struct message *message, unsigned rail)
{
	if (message->kind == MESSAGE_POOL && !vqp->recovery.picks)
		offered(vqp, message, rail);
	else if (message->kind == MESSAGE_POOL_QP && vqp->recovery.picks)
		answered(vqp, message, rail);
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
