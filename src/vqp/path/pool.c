#include "vqp/path/pool.h"

#include <stdlib.h>

#include "base/ensure.h"

#define POOL_MAX       64u /* standby qps of a pool on one rail */
#define OFFER_AGAIN_NS 1000000000ull

/* While no vqp waits, which is nearly always, a turn does not look at the standby qps: their lines are cold. */
bool pool_turn(struct hf_node *node)
{
	bool pumped = false;

	if (!vqps_of(node)->standby_waits)
		return false;
	vqps_of(node)->standby_waits = false;
	list_for_each (at, &vqps_of(node)->pools)
		list_for_each (on, &container_of(at, struct pool, node_link)->qps) {
			struct carrier *carrier = container_of(on, struct standby, link)->carrier;

			pumped |= carrier_pump(carrier);
			vqps_of(node)->standby_waits |= !list_empty(&carrier->waiting);
		}
	return pumped;
}

/* ---- how many ---- */

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

	list_for_each (at, &vqps_of(node)->pools) {
		const struct pool *other = container_of(at, struct pool, node_link);

		vqps += other->pd == pool->pd ? other->vqps : 0;
	}
	return so_many(&node->config, vqps);
}

/* ---- vqps on it ---- */

struct pool_gone_message {
	struct message_head head;
	uint8_t rail; /* of the sender */
	uint32_t about_qp;
};

static const struct field pool_fields[] = {
	FIELD_STRUCT(struct pool_message, offer, &path_offer_layout),
	FIELD_STRUCT(struct pool_message, dc, &dc_told_layout),
};
static const struct field pool_qp_fields[] = {
	FIELD_STRUCT(struct pool_message, offer, &path_offer_layout),
	FIELD_STRUCT(struct pool_message, dc, &dc_told_layout),
	FIELD_MAX(struct pool_message, about_qp, NUM_MASK),
};
static const struct field gone_fields[] = {
	FIELD_MAX(struct pool_gone_message, rail, HF_RAILS_MAX - 1),
	FIELD_MAX(struct pool_gone_message, about_qp, NUM_MASK),
};

static void take_pool(struct hf_vqp *vqp, const struct message_head *head);
static void take_gone(struct hf_vqp *vqp, const struct message_head *head);
static const struct vqp_kind pool_kind = VQP_KIND(MESSAGE_POOL, "POOL", struct pool_message, pool_fields, take_pool);
static const struct vqp_kind pool_qp_kind =
	VQP_KIND(MESSAGE_POOL_QP, "POOL_QP", struct pool_message, pool_qp_fields, take_pool);
static const struct vqp_kind gone_kind =
	VQP_KIND(MESSAGE_POOL_GONE, "POOL_GONE", struct pool_gone_message, gone_fields, take_gone);

/* A message of a pool is sent for one of its vqps. NULL: it has none, or the peer is lost and the pool ends next. */
static const struct hf_vqp *speaker(const struct pool *pool)
{
	const struct hf_vqp *vqp =
		list_empty(&pool->members) ? NULL : container_of(pool->members.next, struct hf_vqp, member_link);

	return vqp == NULL || vqp->peer == NULL ? NULL : vqp;
}

static void say_gone(const struct hf_vqp *vqp, unsigned rail, uint32_t offer)
{
	struct pool_gone_message message = {
		.head = kinds_head(vqp, &gone_kind), .rail = (uint8_t)rail, .about_qp = offer};

	peer_send(vqp->peer, &message.head);
}

/* Of the picker: tells the peer that no further vqp will use this standby qp, once there is a vqp to send it for. */
static void withdraw(struct standby *standby)
{
	const struct hf_vqp *vqp = speaker(standby->pool);

	standby_break(standby);
	if (vqp == NULL)
		return;
	say_gone(vqp, standby->path.rail, standby->offer);
	standby_free(standby);
}

struct standby *pool_pick(struct hf_vqp *vqp, unsigned rail)
{
	struct standby *picked = NULL;
	uint32_t ready = 0;

	if (vqp->pool == NULL)
		return NULL;
	list_for_each (at, &vqp->pool->qps) {
		struct standby *standby = container_of(at, struct standby, link);

		/* Each of those that are ready with the same chance, in one walk. */
		if (standby->path.rail == rail && standby->state == STANDBY_READY &&
			node_random(vqp->node) % ++ready == 0)
			picked = standby;
	}
	return picked;
}

struct standby *pool_named(struct hf_vqp *vqp, unsigned rail, uint32_t their_key)
{
	if (vqp->pool == NULL)
		return NULL;
	list_for_each (at, &vqp->pool->qps) {
		struct standby *standby = container_of(at, struct standby, link);

		if (standby->path.rail == rail && standby->state != STANDBY_OFFERED &&
			standby->path.their_key == their_key)
			return standby;
	}
	return NULL;
}

static void part(struct hf_vqp *vqp)
{
	vqp->path->shared->users--;
	list_remove(&vqp->pool_link);
	list_remove(&vqp->pool_wait_link);
	path_join(vqp, &vqp->own_path, false);
}

static void leave(struct hf_vqp *vqp)
{
	struct standby *standby = vqp->path->shared;

	standby->carrier->packets -= vqp->packets;
	vqp->packets = 0;
	part(vqp);
	if (standby->users > 0)
		return;
	path_deactivate(&standby->path);
	if (standby->withdrawn)
		standby_free(standby);
	else if (standby->state == STANDBY_BROKEN && vqp->recovery.picks)
		withdraw(standby);
}

/* ---- the share of a vqp as its path ---- */

static enum fence share_fence(struct hf_vqp *vqp, struct path *path, uint64_t now_ns)
{
	(void)path;
	return standby_fence(vqp, now_ns);
}

static uint64_t share_fence_retry_ns(const struct path *path)
{
	return standby_fence_retry_ns(path->shared);
}

static int share_end(struct path *path)
{
	return standby_end(path->shared);
}

static bool share_sender_ended(const struct path *path)
{
	return standby_is_ended(path->shared);
}

static bool share_tells(const struct path *path)
{
	return standby_tells(path->shared);
}

static int share_executed_psn(const struct path *path, uint32_t *psn_out)
{
	return standby_executed_psn(path->shared, psn_out);
}

static int share_refusal(const struct path *path, struct hf_refusal *refusal_out)
{
	return standby_refusal(path->shared, refusal_out);
}

static int share_atomic_results(const struct path *path, struct hf_atomic_result *results_out, unsigned n)
{
	return standby_atomic_results(path->shared, results_out, n);
}

static const struct path_ops pool_ops = {.fence = share_fence,
	.fence_retry_ns = share_fence_retry_ns,
	.end = share_end,
	.sender_ended = share_sender_ended,
	.tells = share_tells,
	.executed_psn = share_executed_psn,
	.refusal = share_refusal,
	.atomic_results = share_atomic_results,
	.stop = standby_evict,
	.leave = leave};

void pool_join(struct hf_vqp *vqp, struct standby *standby)
{
	ensure(vqp->path == &vqp->own_path && vqp->own_path.qp == NULL && standby->state != STANDBY_OFFERED);
	path_activate(&standby->path);
	path_join(vqp, &standby->path, standby->state == STANDBY_BROKEN);
	list_push_back(&standby->vqps, &vqp->pool_link);
	standby->users++;
}

/* ---- making them beforehand ---- */

static struct standby *add(struct pool *pool, unsigned rail)
{
	struct standby *standby = standby_make(pool, rail, dc_end_suits(pool->peer, rail), initiators_wanted(pool));

	if (standby != NULL)
		standby->path.ops = &pool_ops;
	return standby;
}

static bool fits(const struct pool *pool, const struct hf_vqp *vqp)
{
	return pool->peer == vqp->peer && pool->pd == vqp->pd && pool->remote_pd == vqp->remote_pd &&
	       pool->access == vqp->access && pool->remote_access == vqp->remote_access;
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
	list_init(&pool->qps);
	list_init(&pool->members);
	list_push_back(&vqps_of(vqp->node)->pools, &pool->node_link);
	return pool;
}

void pool_enlist(struct hf_vqp *vqp)
{
	struct pool *pool = NULL;

	if (vqp->pool != NULL || vqp->grants.dedicated || vqp->lane >= 0 || home_binds(vqp) ||
		vqp->node->rail_count < 2 || !policy_pools(vqp->node->config.policy))
		return;
	list_for_each (at, &vqps_of(vqp->node)->pools)
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

static void say(const struct hf_vqp *vqp, const struct vqp_kind *kind, const struct standby *standby)
{
	struct pool_message message = {.head = kinds_head(vqp, kind),
		.offer = path_attributes(vqp->node, &standby->path),
		.about_qp = standby->offer};

	if (standby->dc != NULL)
		message.dc = dc_end_say(standby->dc, standby->path.qp);
	peer_send(vqp->peer, &message.head);
}

static void keep_ready(struct pool *pool, unsigned rail, uint64_t now_ns)
{
	unsigned have = 0;

	list_for_each_safe (at, &pool->qps) {
		struct standby *standby = container_of(at, struct standby, link);

		if (standby->path.rail != rail)
			continue;
		if ((standby->state == STANDBY_OFFERED && now_ns - standby->offered_ns >= OFFER_AGAIN_NS) ||
			(standby->state == STANDBY_BROKEN && standby->users == 0))
			withdraw(standby);
		else if (standby->state != STANDBY_BROKEN)
			have++;
	}
	for (; have < so_many(&pool->pd->node->config, pool->vqps); have++) {
		struct standby *standby = add(pool, rail);

		if (standby == NULL)
			return; /* the device has no room; the next tick tries again */
		say(speaker(pool), &pool_kind, standby);
	}
}

/* Of the side that does not pick, on whose end something else may have ended it: the picker would send vqps there. It
 * is kept until the picker says that it is gone, since it may have sent one before it heard so (POOL-3). */
static void tell_broken(struct pool *pool)
{
	list_for_each (at, &pool->qps) {
		struct standby *standby = container_of(at, struct standby, link);

		if (standby->state == STANDBY_BROKEN && !standby->told && !standby->withdrawn)
			say_gone(speaker(pool), standby->path.rail, standby->offer);
		standby->told = standby->state == STANDBY_BROKEN;
	}
}

void pool_tick(struct hf_node *node, uint64_t now_ns)
{
	list_for_each (at, &vqps_of(node)->pools) {
		struct pool *pool = container_of(at, struct pool, node_link);
		const struct hf_vqp *vqp = speaker(pool);
		bool picks = vqp != NULL && vqp->recovery.picks;

		if (vqp != NULL && !picks)
			tell_broken(pool);
		for (unsigned rail = 0; rail < node->rail_count; rail++)
			if (picks && (peer_usable(pool->peer) & 1u << rail) != 0)
				keep_ready(pool, rail, now_ns);
	}
}

/* Whether the picker offers no more than it may have. None that is there makes room: it may send a vqp to any of them,
 * and offers this one again when it has no answer. */
static bool has_room(const struct pool *pool, unsigned rail)
{
	unsigned have = 0;

	list_for_each (at, &pool->qps) {
		const struct standby *standby = container_of(at, struct standby, link);

		have += standby->path.rail == rail && standby->state != STANDBY_BROKEN;
	}
	return have < POOL_MAX;
}

static void offered(struct hf_vqp *vqp, const struct pool_message *message, unsigned rail)
{
	struct standby *standby;

	pool_enlist(vqp);
	if (vqp->pool == NULL || !has_room(vqp->pool, rail) || dc_end_suits(vqp->peer, rail) != (message->dc.used != 0))
		return;
	standby = add(vqp->pool, rail);
	if (standby == NULL)
		return;
	standby->offer = message->dc.used ? message->dc.dct_num : message->offer.qp_num;
	if (standby_connect(vqp, standby, message) != 0) {
		standby_free(standby);
		return;
	}
	standby->state = STANDBY_READY;
	say(vqp, &pool_qp_kind, standby);
}

static struct standby *find_offer(struct hf_vqp *vqp, uint32_t offer, unsigned rail)
{
	if (vqp->pool == NULL)
		return NULL;
	list_for_each (at, &vqp->pool->qps) {
		struct standby *standby = container_of(at, struct standby, link);

		if (standby->path.rail == rail && standby->offer == offer)
			return standby;
	}
	return NULL;
}

static void answered(struct hf_vqp *vqp, const struct pool_message *message, unsigned rail)
{
	struct standby *standby = find_offer(vqp, message->about_qp, rail);

	if (standby == NULL || standby->state != STANDBY_OFFERED || (standby->dc != NULL) != (message->dc.used != 0))
		return;
	if (standby_connect(vqp, standby, message) == 0)
		standby->state = STANDBY_READY;
	else
		withdraw(standby);
}

/* To the picker: the other end is broken; the standby qp is withdrawn as soon as no vqp is on it. To the other end: no
 * further vqp will use it. */
static void gone(struct hf_vqp *vqp, uint32_t offer, unsigned rail)
{
	struct standby *standby = find_offer(vqp, offer, rail);
	bool picks = vqp->recovery.picks;

	if (standby == NULL && picks)
		say_gone(vqp, rail, offer);
	if (standby == NULL)
		return;
	standby_break(standby);
	standby->withdrawn = !picks;
	if (standby->users > 0)
		return;
	if (picks)
		withdraw(standby);
	else
		standby_free(standby);
}

static void take_pool(struct hf_vqp *vqp, const struct message_head *head)
{
	const struct pool_message *message = (const void *)head;
	int rail = peer_our_rail(vqp->peer, message->offer.rail);

	if (rail >= 0 && head->kind == &pool_kind.kind && !vqp->recovery.picks)
		offered(vqp, message, (unsigned)rail);
	else if (rail >= 0 && head->kind == &pool_qp_kind.kind && vqp->recovery.picks)
		answered(vqp, message, (unsigned)rail);
}

static void take_gone(struct hf_vqp *vqp, const struct message_head *head)
{
	const struct pool_gone_message *message = (const void *)head;
	int rail = peer_our_rail(vqp->peer, message->rail);

	if (rail >= 0)
		gone(vqp, message->about_qp, (unsigned)rail);
}

void pool_register(struct message_kinds *kinds)
{
	message_register(kinds, &pool_kind.kind);
	message_register(kinds, &pool_qp_kind.kind);
	message_register(kinds, &gone_kind.kind);
}

void pool_break_peer(struct hf_peer *peer)
{
	list_for_each (at, &vqps_of(peer->node)->pools) {
		struct pool *pool = container_of(at, struct pool, node_link);

		if (pool->peer != peer)
			continue;
		list_for_each (on, &pool->qps)
			standby_retire(container_of(on, struct standby, link));
	}
}

/* ---- the end ---- */

static void pool_close(struct pool *pool)
{
	struct list *at;

	while (!list_empty(&pool->members))
		pool_forget(container_of(pool->members.next, struct hf_vqp, member_link));
	while ((at = list_pop_front(&pool->qps)) != NULL) {
		struct standby *standby = container_of(at, struct standby, link);

		while (!list_empty(&standby->vqps)) /* they end with the peer */
			part(container_of(standby->vqps.next, struct hf_vqp, pool_link));
		standby_free(standby);
	}
	list_remove(&pool->node_link);
	free(pool);
}

void pool_free_peer(struct hf_peer *peer)
{
	list_for_each_safe (at, &vqps_of(peer->node)->pools)
		if (container_of(at, struct pool, node_link)->peer == peer)
			pool_close(container_of(at, struct pool, node_link));
}

void pool_free_pd(struct hf_vpd *pd)
{
	list_for_each_safe (at, &vqps_of(pd->node)->pools)
		if (container_of(at, struct pool, node_link)->pd == pd)
			pool_close(container_of(at, struct pool, node_link));
}
