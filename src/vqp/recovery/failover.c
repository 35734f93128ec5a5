/* Carries out what recovery.c decides: messages in exchange.c, the fence in fence_queue.c, the path in next_path.c. */
#include "vqp/path/pool.h"

#include "base/log.h"
#include "vqp/atomic/uid_slots.h"
#include "vqp/recovery/verdict.h"

/* A SEND may wait for its receive for as long as the application pleases. A failback does not wait for that, or new
 * wrs would: it becomes a failover, which judges the last wrs by evidence. */
#define QUIET_PATIENCE_NS    100000000ull
#define FAILBACK_PATIENCE_NS 25000000ull
#define FAILBACK_DOUBLINGS   3u

/* Our qp was ended, since its fence was hopeless; or there never was one; or the device is one that may be wrong. */
static bool answers_unsure(const struct hf_vqp *vqp)
{
	const struct path *path = vqp->path;

	return path_ops(path)->sender_ended(path) ||
	       (vqp->node->rails[path->rail].dev->attr.caps & HF_DEV_SEND_FENCE) == 0;
}

/* Under `none` an exchange is for the first path, for a way back when nothing is in flight, or for a change of grants,
 * which ends what is. But the end that picks may have posted to a path while the other one lost it before it was ready:
 * that may have executed. */
static bool must_not_repeat(const struct hf_vqp *vqp)
{
	return !policy_recovers(vqp->node->config.policy) && vqp->evidence.grant == vqp->grants.theirs;
}

/* Behind a wr that is unknown nothing of the vqp executes (V2), as behind one that failed on a plain qp: a WRITE of a
 * flag must not become visible when the data before it may be missing. */
static void settle(struct hf_vqp *vqp)
{
	struct log_reading reading = verdict_read_log(&vqp->sends, &vqp->evidence);
	enum ibv_wc_status refused;
	uint32_t unknown;

	if (verdict_lost(&vqp->sends, vqp->messages, &vqp->evidence, &reading)) {
		log_error("vqp %u: writes that the peer's NIC had acknowledged were lost with it; the vqp fails",
			vqp->num);
		vqp->doomed = true;
	}
	vqp->evidence.answers_unsure = answers_unsure(vqp);
	vqp->evidence.no_replay = hand_back_is_due(vqp) || must_not_repeat(vqp);
	unknown = verdict_enter(vqp->node->config.policy, &vqp->sends, &vqp->evidence, &reading);
	if (unknown > 0) {
		log_warn("vqp %u: no evidence of %u wrs; they complete as unknown, and the vqp fails", vqp->num,
			unknown);
		vqp->doomed = true;
	}
	if (hand_back_is_due(vqp)) {
		hand_back(vqp);
		return;
	}
	/* The picker may post as soon as it has said GO: then it is on that path that its wrs have to be fenced. */
	if (vqp->doomed && vqp->recovery.picks) {
		end_for(vqp, HF_VQP_END_UNKNOWN);
		vqp_fail(vqp, IBV_WC_WR_FLUSH_ERR, IBV_WC_WR_FLUSH_ERR, true);
		return;
	}
	access_settle(vqp);
	vcq_note(vqp);
	/* Likewise what was refused: the other side waits until it is on a path, and all before it is done. */
	refused = request_log_refused(&vqp->sends);
	if (refused != IBV_WC_SUCCESS && vqp->recovery.picks)
		vqp_fail(vqp, refused, IBV_WC_WR_FLUSH_ERR, true);
	else
		exchange_tell_lengths(vqp);
}

static void begin_fence(struct hf_vqp *vqp)
{
	vqp->path_cut = false;
	if (vqp->path->qp != NULL)
		vqp->path_broken = true;
	if (vqp->recovery.kind == RECOVERY_FAILOVER)
		rebuild_end(vqp, vqp->path->qp != NULL, hf_loop_now_ns(vqp->node->loop));
	if (exchange_suspects_rail(vqp))
		peer_suspect(vqp->peer, vqp->path->rail);
	if (vqp->state == HF_VQP_UP)
		vqp_move(vqp, HF_VQP_RECOVERING);
	marks_fence(vqp);
}

/* Asked again at ticks, because the rail may have been paused when it was its turn. */
static void want_dedicated(struct hf_vqp *vqp, uint64_t now_ns)
{
	if (vqp->path->shared != NULL && vqp->recovery.picks && vqp->state == HF_VQP_UP && !vqp->forsaken)
		rebuild_want_dedicated(vqp, now_ns);
}

/* What is settled has completions, and the program has its turn for them before the rest is posted: where a CPU does
 * the NIC's work, to post is to execute. */
static void post_rest(struct hf_vqp *vqp)
{
	if (!vcq_ready(vqp->send_cq))
		post_pump(vqp);
	else if (list_empty(&vqp->resumed_link))
		list_push_back(&vqps_of(vqp->node)->resumed, &vqp->resumed_link);
}

static void count_resumed(struct hf_vqp *vqp, uint64_t now_ns)
{
	struct vqp_metrics *metrics = &vqps_of(vqp->node)->metrics;

	if (vqp->recovery.kind == RECOVERY_FAILOVER) {
		vqp->counters.failovers++;
		hf_metric_add(metrics->failovers, 1);
		if (vqp->detected_ns == 0)
			return;
		vqp->counters.last_failover_ns = now_ns - vqp->detected_ns;
		hf_metric_observe(metrics->failover_ns, vqp->counters.last_failover_ns);
	} else if (vqp->path->rail != vqp->last_rail) {
		vqp->counters.failbacks++;
		hf_metric_add(metrics->failbacks, 1);
	}
}

static void do_resume(struct hf_vqp *vqp)
{
	bool first = vqp->state == HF_VQP_CONNECTING;
	uint64_t now_ns = hf_env_now_ns(vqp->node->env);

	if (vqp->path->qp == NULL)
		return;
	if (vqp->doomed) {
		end_for(vqp, HF_VQP_END_UNKNOWN);
		vqp_fail(vqp, IBV_WC_WR_FLUSH_ERR, IBV_WC_WR_FLUSH_ERR, true);
		return;
	}
	vqp->held = vqp->rail_suspect = vqp->refuses_rail = false;
	vqps_of(vqp->node)->fence_answered = vqps_of(vqp->node)->fence_slice != 0;
	if (!first)
		count_resumed(vqp, now_ns);
	if (vqp->recovery.kind == RECOVERY_FAILBACK)
		vqp->recovery.stalls = 0;
	log_debug("vqp %u: traffic is on rail %s", vqp->num, hf_node_rail_name(vqp->node, vqp->path->rail));
	vqp->detected_ns = 0;
	(void)path_post_recvs(vqp, vqp->path);
	vqp_move(vqp, HF_VQP_UP);
	access_check(vqp);
	post_rest(vqp);
	rebuild_end(vqp, false, now_ns);
	want_dedicated(vqp, now_ns);
	pool_enlist(vqp);
	if (first || policy_caches(vqp->node->config.policy))
		node_tick_soon(vqp->node);
}

/* A swap goes to the rail that was prepared and probed for it, should another one have come up meanwhile. */
static uint32_t usable_rails(const struct hf_vqp *vqp)
{
	uint32_t usable = hand_back_usable(vqp), prepared = 1u << vqp->rebuild.rail;

	if (vqp->recovery.kind == RECOVERY_FAILBACK && vqp->rebuild.state == REBUILD_SWAPPING && (usable & prepared))
		return prepared;
	return home_rails(vqp, usable);
}

/* FENCE is not said where the STATE is as soon. But where ports say nothing, only this end knows: the other one may
 * sleep, and is told at once, so that it wakes and fences while this end reads its queues. */
static void say_fence(struct hf_vqp *vqp)
{
	const struct path *path = vqp->path;

	if (vqp->recovery.kind == RECOVERY_FAILBACK || (path->qp != NULL && peer_ports_up(vqp->peer, path->rail)))
		exchange_say_fence(vqp);
	else
		vqp->fence_unsaid = true;
}

/* Holds new posts until the exchange is over. */
static void hold(struct hf_vqp *vqp, uint64_t now_ns)
{
	vqp->held = true;
	if (vqp->detected_ns == 0)
		vqp->detected_ns = now_ns;
	vqp->fence_unsaid = false;
}

/* Vqps in the exchange are looked at at every tick. One keeps its place: the list may be being walked. */
static void list_recovering(struct hf_vqp *vqp)
{
	if (vqp->recovery.state == RECOVERY_IDLE || vqp->recovery.state == RECOVERY_FAILED)
		list_remove(&vqp->recovering_link);
	else if (list_empty(&vqp->recovering_link))
		list_push_back(&vqps_of(vqp->node)->recovering, &vqp->recovering_link);
}

static void fail_of_budget(struct hf_vqp *vqp, enum recovery_state waited_in)
{
	log_error("vqp %u: no path within the budget (epoch %u, waiting for %s); its wrs complete in error", vqp->num,
		vqp->recovery.epoch, recovery_state_name(waited_in));
	if (vqp->recovery.heard)
		log_error("vqp %u: messages of control arrived meanwhile: if a switch drops large packets, set the "
			  "`mtu` of the rails on both nodes to what it carries (1024 for 1500 bytes)",
			vqp->num);
	end_for(vqp, hand_back_is_due(vqp) ? HF_VQP_END_PEER_GONE : HF_VQP_END_NO_PATH);
	if (vqp->recovery.heard && vqp->evidence.fenced)
		vqp_fail(vqp, IBV_WC_RETRY_EXC_ERR, IBV_WC_RETRY_EXC_ERR, true);
	else
		vqp_abort(vqp, IBV_WC_RETRY_EXC_ERR, IBV_WC_RETRY_EXC_ERR); /* where control works it answers at once */
}

/* False: the vqp has failed. */
static bool settle_old_path(struct hf_vqp *vqp, unsigned actions)
{
	if (actions & RECOVERY_SEND_FENCE)
		say_fence(vqp);
	if (actions & RECOVERY_DO_QUIET)
		marks_fence(vqp);
	if (actions & RECOVERY_DO_FENCE)
		begin_fence(vqp);
	if (actions & RECOVERY_SEND_STATE)
		exchange_say_state(vqp);
	if (actions & RECOVERY_SETTLE)
		settle(vqp);
	return vqp->state != HF_VQP_ERROR;
}

static enum next_path find_next_path(struct hf_vqp *vqp, unsigned actions)
{
	if (actions & RECOVERY_DO_GO)
		return next_path_go(vqp);
	return actions & RECOVERY_DO_BUILD ? next_path_match(vqp) : NEXT_PATH_WAITS;
}

/* True: *event is what follows from it. */
static bool step(struct hf_vqp *vqp, struct recovery_event *event)
{
	enum recovery_state before = vqp->recovery.state;
	uint64_t now_ns = hf_env_now_ns(vqp->node->env);
	enum next_path next;
	unsigned actions;

	if (vqp->peer == NULL || vqp->state == HF_VQP_ERROR)
		return false;
	event->usable = usable_rails(vqp);
	event->idle = vqp->sends.head == vqp->sends.tail;
	actions = recovery_step(&vqp->recovery, event, now_ns);
	list_recovering(vqp);
	if (actions & RECOVERY_HOLD)
		hold(vqp, now_ns);
	if (!settle_old_path(vqp, actions))
		return false;
	next = find_next_path(vqp, actions);
	if (next != NEXT_PATH_WAITS) {
		vqp->path_broken |= next == NEXT_PATH_FAILED;
		*event = (struct recovery_event){
			.type = next == NEXT_PATH_READY ? RECOVERY_EVENT_READY : RECOVERY_EVENT_BROKEN,
			.epoch = vqp->recovery.epoch};
		return true;
	}
	if (actions & RECOVERY_SEND_READY)
		exchange_say_ready(vqp);
	if (actions & RECOVERY_RESUME)
		do_resume(vqp);
	if (actions & RECOVERY_FAIL)
		fail_of_budget(vqp, before);
	return false;
}

void failover_event(struct hf_vqp *vqp, const struct recovery_event *event)
{
	struct recovery_event next = *event;

	while (step(vqp, &next))
		;
}

void failover_cut(struct hf_vqp *vqp)
{
	vqp->path_cut = true;
	marks_fence(vqp);
}

void failover_broken(struct hf_vqp *vqp)
{
	struct recovery_event event = {.type = RECOVERY_EVENT_BROKEN};

	if (vqp->forsaken) {
		end_for(vqp, HF_VQP_END_PEER);
		vqp_fail_alone(
			vqp, IBV_WC_RETRY_EXC_ERR, IBV_WC_WR_FLUSH_ERR, vqp->peer == NULL && post_may_execute(vqp));
		return;
	}
	vqp->path_broken = true;
	if (vqp->lane >= 0)
		end_for_port(vqp);
	failover_event(vqp, &event);
}

static void act_on_marks(struct hf_vqp *vqp)
{
	struct recovery_event back = {.type = RECOVERY_EVENT_RETURN};

	if (rebuild_drain(vqp))
		failover_event(vqp, &back);
	if (vqp->path_broken)
		failover_broken(vqp);
}

/* What comes about meanwhile has its turn as well. */
bool failover_drain(struct hf_node *node)
{
	struct list *at;
	bool any = false;

	for (; (at = list_pop_front(&vqps_of(node)->marked)) != NULL; any = true)
		act_on_marks(container_of(at, struct hf_vqp, mark_link));
	return any;
}

/* A failback holds posts, and its messages leave on the first control path that is up: perhaps that of the rail to
 * which it returns. If that rail falls silent again now, no data show it, and heartbeats show it late. The rail that
 * the vqp leaves has carried its last wr. The other end may only be slow: in the next one it has twice the time. */
static void suspect_return(struct hf_vqp *vqp, uint64_t now_ns)
{
	struct recovery *recovery = &vqp->recovery;
	bool leaves = recovery->state == RECOVERY_EXCHANGE || recovery->state == RECOVERY_PATH;
	int rail = peer_control_rail(vqp->peer);

	if (recovery->kind != RECOVERY_FAILBACK ||
		now_ns < recovery->since_ns + (FAILBACK_PATIENCE_NS << recovery->stalls))
		return;
	if ((leaves && rail >= 0 && rail != (int)vqp->path->rail) ||
		(recovery->state == RECOVERY_BUILD && rail == recovery->rail)) {
		recovery->stalls += recovery->stalls < FAILBACK_DOUBLINGS;
		peer_suspect(vqp->peer, (unsigned)rail);
	}
}

static void despair(struct hf_vqp *vqp, const char *why)
{
	log_error("vqp %u: %s; the vqp fails", vqp->num, why);
	end_for(vqp, HF_VQP_END_NO_PATH);
	vqp_abort(vqp, IBV_WC_RETRY_EXC_ERR, IBV_WC_RETRY_EXC_ERR);
}

void failover_tick(struct hf_vqp *vqp, uint64_t now_ns)
{
	struct recovery_event event = {.type = RECOVERY_EVENT_RAILS};

	if (vqp->peer == NULL || vqp->state == HF_VQP_ERROR || vqp->state == HF_VQP_INIT)
		return;
	if (vqp->recovery.state == RECOVERY_BUILD && vqp->recovery.rail >= 0 &&
		(hand_back_usable(vqp) & 1u << vqp->recovery.rail) == 0)
		failover_broken(vqp);
	if (vqp->recovery.state == RECOVERY_QUIET && now_ns >= vqp->recovery.since_ns + QUIET_PATIENCE_NS)
		failover_broken(vqp);
	suspect_return(vqp, now_ns);
	failover_event(vqp, &event);
	backup_offer_all(vqp);
	if (vqp->grants.done != NULL || vqp->grants.over != NULL)
		access_check(vqp);
	want_dedicated(vqp, now_ns);
	if (failback_due(vqp, now_ns))
		rebuild_want(vqp, (unsigned)rail_choose(home_rails(vqp, peer_usable(vqp->peer))), now_ns);
	if (home_despairs(vqp, now_ns))
		despair(vqp, "the home rail of the peer's atomics was out of reach for the budget");
	else if (rebuild_despairs(vqp, now_ns))
		despair(vqp, "no dedicated qp could be made within the budget, and a message waits for one");
}
