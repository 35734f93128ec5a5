/* What is due at every turn: vqps whose path is to be fenced, which is over when the last completions were read; and
 * vqps that wait for quiet, or that end. And what can be done in advance when nothing is. */
#include "vqp/path/pool.h"

#include "base/log.h"
#include "vqp/atomic/uid_slots.h"

/* Vqps a turn that neither side has asked about yet: first one, so that it is through the exchange soon, then
 * twice as many each time; but the other side's messages are read between turns, and the first of thousands of vqps are
 * to be through while the last begin. Until the first is, turns stay short: its answer would wait for a long one. All
 * at once those are fenced that the other side asked about, since it waits for each of them, and those about which it
 * was told, since it fences them meanwhile. */
#define SLICE_FIRST 1u
#define SLICE_ALONE 4u
#define SLICE_MOST  96u

#define WARM_MOST 4u /* vqps a turn: 1 us each, while an answer may come */

static void fenced(struct hf_vqp *vqp)
{
	struct recovery_event event = {.type = RECOVERY_EVENT_FENCED};

	access_check(vqp);
	failover_event(vqp, &event);
	if (vqp->recovery.state == RECOVERY_EXCHANGE && list_empty(&vqp->cold_link))
		list_push_back(&vqps_of(vqp->node)->cold, &vqp->cold_link);
}

/* Its wrs complete. */
static void report(struct hf_vqp *vqp)
{
	const struct request_log_end flushed = {.first = IBV_WC_WR_FLUSH_ERR, .rest = IBV_WC_WR_FLUSH_ERR};
	uint32_t standby = exchange_standby(vqp);

	request_log_fail(&vqp->sends, &vqp->ending.wrs);
	request_log_fail(&vqp->recvs, &flushed);
	vcq_note(vqp);
	vqp_forget_paths(vqp);
	if (vqp->ending.tells)
		exchange_say_closed(vqp, standby);
	region_leave(vqp); /* told behind that: till then the peer may post */
	uid_slots_return(vqp);
	list_remove(&vqp->recovering_link);
	access_check(vqp);
	if (vqp->changed != NULL)
		vqp->changed(vqp, vqp->context);
}

static bool waits_for_quiet(const struct hf_vqp *vqp)
{
	return vqp->recovery.state == RECOVERY_QUIET && vqp->state != HF_VQP_ERROR;
}

static bool waits_for_lease(const struct hf_vqp *vqp)
{
	return vqp->ending.state == ENDING_ANSWER || vqp->ending.state == ENDING_LEASE;
}

/* The peer has not reported its fence. Its lease is over; or it has not heard for a lease that it is to end, and so
 * nothing that extends its lease either, for both are in one stream. So a wr that completes as unknown now does not
 * execute later (R5, V4). */
static bool lease_has_ended(const struct hf_vqp *vqp)
{
	uint64_t now_ns = hf_env_boot_ns(vqp->node->env);

	if (vqp->peer == NULL && vqp->lease_ns == 0)
		return true;
	return (vqp->peer != NULL && lease_is_over(&vqp->peer->lease, now_ns)) ||
	       now_ns - vqp->strays_ns >= lease_with_margin(vqp->lease_ns);
}

/* From the moment at which our path is fenced and the peer is asked. Its lease counts, not ours, and it may change.
 * Where there is no peer any more, from when it was lost: nothing has extended its lease since. */
static void count_lease(struct hf_vqp *vqp, bool anew)
{
	uint64_t lease_ns;

	if (vqp->peer == NULL)
		return;
	lease_ns = lease_longer_ns(&vqp->peer->lease);
	if (anew || vqp->strays_ns == 0) {
		vqp->strays_ns = hf_env_boot_ns(vqp->node->env);
		vqp->lease_ns = 0;
	}
	if (lease_ns > vqp->lease_ns)
		vqp->lease_ns = lease_ns;
}

void fence_queue_lose_peer(struct hf_vqp *vqp, bool over)
{
	count_lease(vqp, !waits_for_lease(vqp));
	if (over || lease_is_over(&vqp->peer->lease, hf_env_boot_ns(vqp->node->env)))
		vqp->lease_ns = 0;
	vqp->peer = NULL;
}

/* Nothing to do for it before a completion comes, or a tick. */
bool fence_queue_waits(const struct hf_vqp *vqp)
{
	uint64_t now_ns = hf_env_now_ns(vqp->node->env);

	if (vqp_is_fencing(vqp) || vqp_is_ending(vqp))
		return fence_sleeps(vqp, now_ns) || (waits_for_lease(vqp) && !lease_has_ended(vqp));
	return !vqp->path_cut && waits_for_quiet(vqp) && !post_quiet(vqp);
}

static bool path_is_fenced(struct hf_vqp *vqp)
{
	struct path *path = vqp->path;

	if (vqp->fence == FENCE_HOPELESS && path_ops(path)->end(path) != 0) {
		fence_put_off(path, hf_env_now_ns(vqp->node->env));
	} else if (vqp->fence == FENCE_HOPELESS) {
		log_warn("vqp %u: its qp on rail %s cannot be fenced and was destroyed; its evidence is lost", vqp->num,
			hf_node_rail_name(vqp->node, path->rail));
		vqp->fence = FENCE_DONE;
	}
	return vqp->fence == FENCE_DONE;
}

/* True: its wrs complete now. */
static bool progress_ending(struct hf_vqp *vqp)
{
	unsigned actions = ending_step(&vqp->ending, ENDING_EVENT_FENCED);

	if (waits_for_lease(vqp))
		count_lease(vqp, (actions & ENDING_ASK) != 0);
	if (actions & ENDING_ASK)
		vqp_drop_backups(vqp); /* the picker may have moved to one: the request says CLOSED */
	if ((actions & ENDING_ASK) && vqp->peer != NULL)
		exchange_ask_end(vqp);
	if (waits_for_lease(vqp) && lease_has_ended(vqp))
		actions |= ending_step(&vqp->ending, ENDING_EVENT_LEASE);
	return (actions & ENDING_REPORT) != 0;
}

/* False: it has another turn in the queue. */
static bool progress(struct hf_vqp *vqp)
{
	struct recovery_event quiet = {.type = RECOVERY_EVENT_QUIET};

	if ((vqp_is_fencing(vqp) || vqp_is_ending(vqp)) && !path_is_fenced(vqp)) {
		if (vqp->fence_unsaid && vqp->peer != NULL)
			exchange_say_fence(vqp);
		return false;
	}
	if (vqp_is_ending(vqp)) {
		if (!progress_ending(vqp))
			return false;
		report(vqp);
	} else if (vqp->recovery.state == RECOVERY_FENCE && vqp->state != HF_VQP_ERROR) {
		fenced(vqp);
	} else if (waits_for_quiet(vqp)) {
		if (!post_quiet(vqp)) {
			(void)post_probe(vqp);
			return false;
		}
		failover_event(vqp, &quiet);
	}
	return true;
}

/* Fences all that wait for it, then reads the queues once for all of them: what comes out of a queue after the fence
 * are the last completions of the fenced qps, and of others, which are told as ever. */
static void fence_all(struct hf_node *node, struct list *round)
{
	uint64_t now_ns = hf_env_now_ns(node->env);
	bool drain[HF_RAILS_MAX] = {0};

	list_for_each (at, round) {
		struct hf_vqp *vqp = container_of(at, struct hf_vqp, fence_link);

		if (vqp->path_cut) {
			vqp->path_cut = false;
			failover_broken(vqp);
		}
		if (!vqp_is_fencing(vqp) && !vqp_is_ending(vqp))
			continue;
		vqp->fence = fence_path(vqp, vqp->path, now_ns);
		if (vqp->path->qp != NULL && vqp->fence != FENCE_WAITS)
			drain[vqp->path->rail] = true;
	}
	for (unsigned i = 0; i < node->rail_count; i++)
		if (drain[i])
			rail_cqs_drain(&node->rails[i].cqs);
}

static unsigned least(unsigned a, unsigned b)
{
	return a < b ? a : b;
}

/* The other side fences it already. */
static bool was_told(const struct hf_vqp *vqp)
{
	return vqp_is_fencing(vqp) && !vqp->fence_unsaid && !vqp->path_cut;
}

static unsigned next_slice(const struct hf_node *node)
{
	if (vqps_of(node)->fence_slice == 0)
		return SLICE_FIRST;
	return least(2 * vqps_of(node)->fence_slice, vqps_of(node)->fence_answered ? SLICE_MOST : SLICE_ALONE);
}

static void take_slice(struct hf_node *node, struct list *round, unsigned n)
{
	for (unsigned alone = 0; n < SLICE_MOST && !list_empty(&vqps_of(node)->fence_queue); n++) {
		struct hf_vqp *vqp = container_of(vqps_of(node)->fence_queue.next, struct hf_vqp, fence_link);

		if (!was_told(vqp) && ++alone > vqps_of(node)->fence_slice)
			return;
		list_remove(&vqp->fence_link);
		list_push_back(round, &vqp->fence_link);
	}
}

enum hf_poll fence_queue_turn(struct hf_node *node)
{
	enum hf_poll poll = HF_IDLE;
	struct list round, *at;
	unsigned n = 0;

	if (list_empty(&vqps_of(node)->fence_queue) && list_empty(&vqps_of(node)->fence_asked)) {
		vqps_of(node)->fence_slice = 0;
		vqps_of(node)->fence_answered = false;
		return HF_IDLE;
	}
	vqps_of(node)->fence_slice = next_slice(node);
	list_init(&round);
	for (; n < SLICE_MOST && (at = list_pop_front(&vqps_of(node)->fence_asked)) != NULL; n++)
		list_push_back(&round, at);
	take_slice(node, &round, n);
	fence_all(node, &round);
	while ((at = list_pop_front(&round)) != NULL) {
		struct hf_vqp *vqp = container_of(at, struct hf_vqp, fence_link);

		if (progress(vqp))
			poll = HF_BUSY;
		else if (list_empty(&vqp->fence_link))
			list_push_back(&vqps_of(node)->fence_queue, &vqp->fence_link);
	}
	return poll;
}

bool fence_queue_warm(struct hf_node *node)
{
	struct list *at;
	unsigned n = 0;

	for (; n < WARM_MOST && (at = list_pop_front(&vqps_of(node)->cold)) != NULL; n++) {
		const struct hf_vqp *vqp = container_of(at, struct hf_vqp, cold_link);

		if (vqp->recovery.state == RECOVERY_EXCHANGE)
			request_log_fetch(&vqp->sends);
	}
	return n > 0;
}
