/* The vqps of a node: what they do in its turn and at its tick, and the node itself, which carries them. */
#include "vqp/vqps.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>

#include "vqp/atomic/owner.h"
#include "vqp/atomic/uid_slots.h"
#include "vqp/path/pool.h"

#define DIG_MOST  4u
#define DIG_TICK  256u
#define TICK_VQPS 256u

static enum hf_poll notify_vcqs(struct hf_node *node)
{
	enum hf_poll poll = HF_IDLE;

	list_for_each (at, &vqps_of(node)->vcqs) {
		struct hf_vcq *cq = container_of(at, struct hf_vcq, node_link);
		void (*notify)(struct hf_vcq *, void *) = cq->notify;

		if (notify == NULL || !cq->fresh)
			continue;
		cq->notify = NULL;
		notify(cq, cq->context);
		return HF_BUSY; /* it may have destroyed anything; the others have their turn at the next poll */
	}
	return poll;
}

static bool post_resumed(struct hf_node *node)
{
	struct list *at;
	bool any = false;

	for (; (at = list_pop_front(&vqps_of(node)->resumed)) != NULL; any = true)
		post_pump(container_of(at, struct hf_vqp, resumed_link));
	return any;
}

/* Mostly there are none. */
static bool act_on_marks(struct hf_node *node)
{
	return !list_empty(&vqps_of(node)->marked) && failover_drain(node);
}

static enum hf_poll begin_turn(struct hf_node *node, uint64_t now_ns)
{
	struct vqps *vqps = vqps_of(node);
	bool answered = vqps->fence_answered;
	bool resumed = post_resumed(node), acted = act_on_marks(node);
	enum hf_poll poll = resumed || acted ? HF_BUSY : HF_IDLE;

	(void)now_ns;
	if (!list_empty(&vqps->fence_queue))
		node_flush(node); /* what was said since the last turn: the other side wakes while we fence */
	if (fence_queue_turn(node) == HF_IDLE)
		return poll;
	(void)failover_drain(node);
	node_hear(node);
	node_flush(node);
	/* A peer that asked meanwhile waits for us; what else the others have said is read in the next turn. */
	if (!list_empty(&vqps->fence_asked))
		(void)fence_queue_turn(node);
	/* Some vqp goes on, for the first time since the cut: what it posts may complete in this turn. */
	if (!answered && vqps->fence_answered)
		hf_loop_hurry(node->loop);
	return HF_BUSY;
}

static enum hf_poll turn(struct hf_node *node, uint64_t now_ns, enum hf_poll so_far)
{
	enum hf_poll poll = so_far;

	if (completions_turn(node) == HF_BUSY)
		poll = HF_BUSY;
	if (act_on_marks(node))
		poll = HF_BUSY;
	/* Old qps are destroyed when nothing better is to do. */
	if (poll == HF_IDLE && list_empty(&vqps_of(node)->recovering) && path_dig(node, DIG_MOST))
		poll = HF_BUSY;
	if (poll == HF_IDLE && fence_queue_warm(node))
		poll = HF_BUSY;
	if (rebuild_turn(node, now_ns) || pool_turn(node))
		poll = HF_BUSY;
	if (owner_turn(node) == HF_BUSY)
		poll = HF_BUSY;
	(void)act_on_marks(node);
	if (notify_vcqs(node) == HF_BUSY)
		poll = HF_BUSY;
	return poll;
}

/* False: some vqp has something to do now. */
static bool fence_queue_sleeps(struct hf_node *node)
{
	uint64_t retry_ns = UINT64_MAX;

	if (!list_empty(&vqps_of(node)->fence_asked))
		return false;
	list_for_each (at, &vqps_of(node)->fence_queue) {
		const struct hf_vqp *vqp = container_of(at, struct hf_vqp, fence_link);
		uint64_t its_ns = fence_retry_ns(vqp);

		if (!fence_queue_waits(vqp))
			return false;
		if (its_ns > hf_loop_now_ns(node->loop) && its_ns < retry_ns)
			retry_ns = its_ns;
	}
	if (retry_ns != UINT64_MAX)
		hf_loop_set_timer(node->loop, &vqps_of(node)->fence_timer, retry_ns);
	return true;
}

static void fence_retry(struct hf_timer *timer, uint64_t now_ns)
{
	(void)timer, (void)now_ns; /* that the loop turns is enough */
}

static bool may_sleep(struct hf_node *node)
{
	const struct vqps *vqps = vqps_of(node);

	if (!list_empty(&vqps->resumed) || !list_empty(&vqps->marked) || !list_empty(&vqps->owner_ended) ||
		!fence_queue_sleeps(node))
		return false;
	for (unsigned i = 0; i < node->rail_count; i++)
		if (!rail_cqs_arm(&node->rails[i].cqs))
			return false;
	list_for_each (at, &vqps->vcqs) {
		const struct hf_vcq *cq = container_of(at, struct hf_vcq, node_link);

		if (cq->notify != NULL && cq->fresh)
			return false;
	}
	return true;
}

static void tick_vqp(struct hf_vqp *vqp, uint64_t now_ns)
{
	if (vqp->peer == NULL)
		return;
	connect_tick(vqp, now_ns);
	failover_tick(vqp, now_ns);
}

static void tick(struct hf_node *node, uint64_t now_ns)
{
	struct vqps *vqps = vqps_of(node);

	list_for_each_safe (at, &vqps->recovering)
		tick_vqp(container_of(at, struct hf_vqp, recovering_link), now_ns);
	/* The others want little: a backup, a way back. A few of them at a time, each in its turn. */
	for (unsigned i = 0; i < vqps->vqp_count && i < TICK_VQPS; i++) {
		struct list *at = list_pop_front(&vqps->vqps);

		list_push_back(&vqps->vqps, at);
		tick_vqp(container_of(at, struct hf_vqp, node_link), now_ns);
	}
	uid_slots_tick(node, now_ns);
	home_tick(node, now_ns);
	/* Also under load, and some while a fence hangs. */
	(void)path_dig(node, list_empty(&vqps->fence_queue) && list_empty(&vqps->fence_asked) ? DIG_TICK : DIG_MOST);
	rebuild_tick(node, now_ns);
	pool_tick(node, now_ns);
	(void)failover_drain(node);
}

static const struct node_layer layer = {.begin_turn = begin_turn,
	.turn = turn,
	.may_sleep = may_sleep,
	.tick = tick,
	.peer_alloc = peers_alloc,
	.peer_free = peers_free,
	.peer_up = peers_up,
	.peer_down = peers_down,
	.peer_closing = peers_closing,
	.peer_in_use = peers_in_use,
	.heard = peers_heard,
	.lease_over = peers_lease_over,
	.rail_lost = peers_rail_lost,
	.waits_for_rails = peers_wait_for_rails,
	.peer_tick = peers_tick};

/* ---- the node ---- */

static void init_lists(struct vqps *vqps)
{
	struct list *lists[] = {&vqps->vpds, &vqps->vcqs, &vqps->vqps, &vqps->pools, &vqps->graves, &vqps->initiators,
		&vqps->rebuilds.waiting, &vqps->rebuilds.running, &vqps->fence_queue, &vqps->fence_asked, &vqps->marked,
		&vqps->cold, &vqps->resumed, &vqps->owner_ended, &vqps->recovering};

	for (unsigned i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)
		list_init(lists[i]);
}

int hf_node_open(struct hf_loop *loop, const struct hf_node_config *config, const struct hf_node_events *events,
	void *context, struct hf_node **node_out, struct hf_error *error)
{
	struct vqps *vqps = calloc(1, sizeof(*vqps));
	int rc;

	*node_out = NULL;
	if (vqps == NULL)
		return hf_error_set(error, -ENOMEM, "no memory for a node");
	init_lists(vqps);
	vqps->fence_timer.fire = fence_retry;
	kinds_register(&vqps->node.kinds);
	hf_env_entropy(hf_loop_env(loop), &vqps->next_num, sizeof(vqps->next_num));
	rc = node_open(&vqps->node, loop, config, events, context, &layer, error);
	if (rc != 0) {
		hf_node_close(&vqps->node);
		return rc;
	}
	vqp_metrics_register(&vqps->metrics, config->name);
	*node_out = &vqps->node;
	return 0;
}

static void close_objects(struct hf_node *node)
{
	struct vqps *vqps = vqps_of(node);

	(void)path_dig(node, UINT_MAX);
	while (!list_empty(&vqps->vqps))
		hf_vqp_destroy(container_of(vqps->vqps.next, struct hf_vqp, node_link));
	while (!list_empty(&node->peers))
		hf_peer_close(container_of(node->peers.next, struct hf_peer, node_link));
	while (!list_empty(&vqps->vcqs))
		(void)hf_vcq_destroy(container_of(vqps->vcqs.next, struct hf_vcq, node_link));
	while (!list_empty(&vqps->vpds)) {
		struct hf_vpd *pd = container_of(vqps->vpds.next, struct hf_vpd, node_link);

		uid_arena_close(pd);
		while (!list_empty(&pd->regions))
			region_free(container_of(pd->regions.next, struct region, pd_link));
		(void)hf_vpd_free(pd);
	}
	path_forget_graves(node);
}

void hf_node_close(struct hf_node *node)
{
	if (node == NULL)
		return;
	close_objects(node);
	if (node->attached)
		hf_loop_cancel_timer(node->loop, &vqps_of(node)->fence_timer);
	node_close(node);
	table_free(&vqps_of(node)->nums);
	free(vqps_of(node)->regions);
	free(vqps_of(node));
}
