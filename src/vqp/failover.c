/* Carries out what recovery.c decides: fencing, exchanging, building, resuming. */
#include "vqp/objects.h"

#include <errno.h>
#include <string.h>

#include "base/ensure.h"
#include "base/log.h"
#include "vqp/pool.h"
#include "vqp/uid_post.h"
#include "vqp/uid_slots.h"
#include "vqp/verdict.h"

/* A SEND may wait for its receive for as long as the application pleases. A failback does not wait for that, or new
 * wrs would: it becomes a failover, which judges the last wrs by evidence. */
#define QUIET_PATIENCE_NS 100000000ull

static void send_plain(struct hf_vqp *vqp, enum message_kind kind)
{
	struct message message = {.kind = kind,
		.to = vqp->remote_num,
		.from = vqp->num,
		.epoch = vqp->recovery.epoch,
		.failback = vqp->recovery.kind == RECOVERY_FAILBACK};

	if (kind == MESSAGE_STATE) {
		message.up = detector_up_mask(vqp->peer);
		evidence_gather(vqp, vqp->recovery.fenced, &message);
		access_tell(vqp, &message);
	}
	peer_send(vqp->peer, &message);
}

static void send_path(struct hf_vqp *vqp, enum message_kind kind, const struct path *path, enum message_path cached)
{
	struct message message = {.kind = kind,
		.to = vqp->remote_num,
		.from = vqp->num,
		.epoch = vqp->recovery.epoch,
		.cached = (uint8_t)cached};

	path_attributes(vqp->node, path, &message);
	peer_send(vqp->peer, &message);
}

/* Before the other side has a new path, so that no message that resumes is there sooner (R8). */
static void tell_lengths(struct hf_vqp *vqp)
{
	struct message message = {.kind = MESSAGE_LENGTHS, .to = vqp->remote_num, .from = vqp->num};
	bool told = vqp->told_lengths;

	vqp->told_lengths = false;
	for (uint64_t at = vqp->sends.head; at < vqp->sends.tail; at++) {
		const struct inflight_wr *entry = inflight_at(&vqp->sends, at);

		if (entry->done || entry->message == 0 || entry->landed == 0)
			continue;
		if (message.length_count == MESSAGE_LENGTHS_MAX) {
			message.more = 1;
			peer_send(vqp->peer, &message);
			message.more = message.length_count = 0;
		}
		message.lengths[message.length_count++] =
			(struct message_length){.message = entry->message, .bytes = (uint32_t)entry->bytes};
		vqp->told_lengths = true;
	}
	if (told || vqp->told_lengths)
		peer_send(vqp->peer, &message);
}

/* Its fence was hopeless; or there never was one. */
static bool was_ended(const struct path *path)
{
	return path->shared != NULL ? path->shared->path.qp == NULL : path->qp == NULL;
}

/* Behind a wr that is unknown nothing of the vqp executes (V2), as behind one that failed on a plain qp: a WRITE of a
 * flag must not be seen when nobody knows of the data before it. */
static void settle(struct hf_vqp *vqp)
{
	int refused;
	uint32_t unknown;

	if (verdict_lost(&vqp->sends, &vqp->evidence)) {
		log_error("vqp %u: a NIC of the other side died with writes that it had acknowledged", vqp->num);
		vqp->doomed = true;
	}
	vqp->evidence.ended_here = was_ended(&vqp->path);
	unknown = verdict_enter(vqp->node->config.policy, &vqp->sends, &vqp->evidence);
	if (unknown > 0) {
		log_warn("vqp %u: nobody can say what became of %u wrs", vqp->num, unknown);
		vqp->doomed = true;
	}
	/* The picker may post as soon as it has said GO: then it is on that path that its wrs have to be fenced. */
	if (vqp->doomed && vqp->recovery.picks) {
		vqp_fail(vqp, IBV_WC_WR_FLUSH_ERR, IBV_WC_WR_FLUSH_ERR, true);
		return;
	}
	refused = access_settle(vqp);
	vcq_note(vqp);
	if (refused != 0)
		vqp_fail(vqp, (enum ibv_wc_status)refused, IBV_WC_WR_FLUSH_ERR, true);
	else
		tell_lengths(vqp);
}

/* The logs start over: on the new qp everything that is not done is posted, from the oldest on. */
static void rewind_logs(struct hf_vqp *vqp)
{
	vqp->sends.next = vqp->sends.head;
	vqp->recvs.next = vqp->recvs.head;
	/* Completions leave from behind `next` only, so what is done at the front stays behind it. */
	while (vqp->sends.next < vqp->sends.tail && inflight_at(&vqp->sends, vqp->sends.next)->done)
		vqp->sends.next++;
	while (vqp->recvs.next < vqp->recvs.tail && inflight_at(&vqp->recvs, vqp->recvs.next)->done)
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

static void begin_fence(struct hf_vqp *vqp)
{
	vqp->fencing = true;
	if (vqp->path.qp != NULL)
		vqp->path.broken = true;
	if (vqp->recovery.kind == RECOVERY_FAILOVER)
		rebuild_end(vqp, vqp->path.qp != NULL, hf_loop_now_ns(vqp->node->loop));
	/* What broke the data path has probably broken control on that rail, and the exchange is not to wait for
	 * heartbeats to tell. */
	if (vqp->path.qp != NULL && vqp->recovery.kind == RECOVERY_FAILOVER)
		control_path_suspect(vqp->peer->control, vqp->path.rail);
	if (vqp->state == HF_VQP_UP)
		vqp_move(vqp, HF_VQP_RECOVERING);
	vqp_due(vqp);
}

static void build_failed(struct hf_vqp *vqp, unsigned rail, int rc)
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

/* The standby qp of that rail becomes the one in use, when both sides have one. */
static bool take_standby(struct hf_vqp *vqp, unsigned rail)
{
	if (!vqp->standby[rail].ready || (vqp->recovery.picks && vqp->standby[rail].broken))
		return false;
	vqp->path = vqp->standby[rail];
	vqp->standby[rail] = (struct path){0};
	path_carry(&vqp->path);
	return true;
}

/* A dedicated one if it is there, else one of the pool (R7: unless messages wait, which it cannot carry). */
static enum message_path take_ready(struct hf_vqp *vqp, unsigned rail)
{
	struct pool_qp *standby;

	if (take_standby(vqp, rail))
		return MESSAGE_PATH_STANDBY;
	standby = pool_pick(vqp, rail);
	if (standby == NULL)
		return MESSAGE_PATH_BUILT;
	pool_join(vqp, standby);
	return MESSAGE_PATH_POOL;
}

/* After a failover the other side waits for nothing but this GO, whatever it is to do next: its old qp is fenced, and
 * what was made beforehand is ready there too. After a failback it may still be fencing; should that fail, it would
 * never have been on the new qp, where our wrs execute. So then we wait for its answer. */
static bool goes_at_once(const struct hf_vqp *vqp, unsigned cached)
{
	return cached != MESSAGE_PATH_BUILT && vqp->recovery.kind == RECOVERY_FAILOVER;
}

static void go_ready(struct hf_vqp *vqp, enum message_path cached)
{
	struct recovery_event ready = {.type = RECOVERY_EVENT_READY, .epoch = vqp->recovery.epoch};
	int rc;

	send_path(vqp, MESSAGE_GO, &vqp->path, cached);
	rc = path_post_recvs(vqp, &vqp->path);
	if (rc != 0)
		build_failed(vqp, vqp->path.rail, rc);
	else if (goes_at_once(vqp, cached))
		failover_event(vqp, &ready);
}

static void do_go(struct hf_vqp *vqp)
{
	unsigned rail = (unsigned)vqp->recovery.rail;
	enum message_path cached;
	int rc;

	leave_path(vqp);
	if (access_is_stale(vqp)) {
		build_failed(vqp, rail, -ESTALE);
		return;
	}
	cached = take_ready(vqp, rail);
	if (cached != MESSAGE_PATH_BUILT) {
		go_ready(vqp, cached);
		return;
	}
	path_destroy(&vqp->standby[rail]); /* half made */
	rc = path_create(vqp, &vqp->path, rail);
	if (rc != 0) {
		build_failed(vqp, rail, rc);
		return;
	}
	path_carry(&vqp->path);
	send_path(vqp, MESSAGE_GO, &vqp->path, MESSAGE_PATH_BUILT);
}

static int match_built(struct hf_vqp *vqp, unsigned rail)
{
	int rc;

	path_destroy(&vqp->standby[rail]);
	rc = path_create(vqp, &vqp->path, rail);
	if (rc != 0)
		return rc;
	path_carry(&vqp->path);
	return path_connect(vqp, &vqp->path, &vqp->go);
}

/* What was made beforehand may have broken meanwhile, which the picker could not know: no fault of the rail. */
static bool match_ready(struct hf_vqp *vqp, unsigned rail)
{
	struct pool_qp *standby;

	if (vqp->go.cached == MESSAGE_PATH_STANDBY)
		return take_standby(vqp, rail);
	standby = pool_named(vqp, rail, vqp->go.qp_num);
	if (standby != NULL)
		pool_join(vqp, standby);
	return standby != NULL;
}

static void do_build(struct hf_vqp *vqp)
{
	unsigned rail = (unsigned)vqp->recovery.rail;
	int rc = 0;

	leave_path(vqp);
	if (vqp->go.cached != MESSAGE_PATH_BUILT && (!match_ready(vqp, rail) || vqp->path.broken)) {
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
		build_failed(vqp, rail, rc);
	else if (!goes_at_once(vqp, vqp->go.cached))
		send_path(vqp, MESSAGE_QP, &vqp->path, MESSAGE_PATH_BUILT);
}

/* Asked again at ticks, because the rail may have been paused when it was its turn. */
static void want_dedicated(struct hf_vqp *vqp, uint64_t now_ns)
{
	if (vqp->path.shared != NULL && vqp->recovery.picks && vqp->state == HF_VQP_UP)
		rebuild_want(vqp, vqp->path.rail, now_ns);
}

static void do_resume(struct hf_vqp *vqp)
{
	bool first = vqp->state == HF_VQP_CONNECTING;
	uint64_t now_ns = hf_env_now_ns(vqp->node->env);

	if (vqp->path.qp == NULL)
		return;
	if (vqp->doomed) {
		vqp_fail(vqp, IBV_WC_WR_FLUSH_ERR, IBV_WC_WR_FLUSH_ERR, true);
		return;
	}
	vqp->held = vqp->rail_suspect = false;
	if (!first) {
		if (vqp->recovery.kind == RECOVERY_FAILOVER)
			vqp->counters.failovers++;
		else if (vqp->path.rail != vqp->last_rail)
			vqp->counters.failbacks++;
		if (vqp->recovery.kind == RECOVERY_FAILOVER && vqp->detected_ns != 0)
			vqp->counters.last_failover_ns = now_ns - vqp->detected_ns;
	}
	log_debug("vqp %u: on rail %s", vqp->num, hf_node_rail_name(vqp->node, vqp->path.rail));
	vqp->detected_ns = 0;
	(void)path_post_recvs(vqp, &vqp->path);
	vqp_move(vqp, HF_VQP_UP);
	access_check(vqp);
	post_pump(vqp);
	rebuild_end(vqp, false, now_ns);
	want_dedicated(vqp, now_ns);
	pool_enlist(vqp);
	if (first || policy_caches(vqp->node->config.policy))
		node_tick_soon(vqp->node);
}

/* A swap goes to the rail that was prepared and probed for it, should another one have come up meanwhile. */
static uint32_t usable_rails(const struct hf_vqp *vqp)
{
	uint32_t usable = peer_usable(vqp->peer), prepared = 1u << vqp->rebuild.rail;

	if (vqp->recovery.kind == RECOVERY_FAILBACK && vqp->rebuild.state == REBUILD_SWAPPING && (usable & prepared))
		return prepared;
	return home_rails(vqp, usable);
}

void failover_event(struct hf_vqp *vqp, const struct recovery_event *event)
{
	struct recovery_event full = *event;
	enum recovery_state before;
	uint64_t now_ns = hf_env_now_ns(vqp->node->env);
	unsigned actions;

	if (vqp->peer == NULL || vqp->state == HF_VQP_ERROR)
		return;
	full.usable = usable_rails(vqp);
	before = vqp->recovery.state;
	actions = recovery_step(&vqp->recovery, &full, now_ns);
	if (vqp->recovery.state == RECOVERY_IDLE || vqp->recovery.state == RECOVERY_FAILED)
		list_remove(&vqp->recovering_link);
	else if (list_empty(&vqp->recovering_link)) /* it keeps its place: somebody may be walking the list */
		list_push_back(&vqp->node->recovering, &vqp->recovering_link);
	if (actions & RECOVERY_HOLD) {
		vqp->held = true;
		vqp->drained_quiet = false;
		if (vqp->detected_ns == 0)
			vqp->detected_ns = now_ns;
	}
	if (actions & RECOVERY_SEND_FENCE)
		send_plain(vqp, MESSAGE_FENCE);
	if (actions & RECOVERY_DO_QUIET) {
		vqp->drained_quiet = true;
		vqp_due(vqp);
	}
	if (actions & RECOVERY_DO_FENCE)
		begin_fence(vqp);
	if (actions & RECOVERY_SEND_STATE)
		send_plain(vqp, MESSAGE_STATE);
	if (actions & RECOVERY_SETTLE)
		settle(vqp);
	if (vqp->state == HF_VQP_ERROR)
		return;
	if (actions & RECOVERY_DO_GO)
		do_go(vqp);
	if (actions & RECOVERY_DO_BUILD)
		do_build(vqp);
	if (actions & RECOVERY_SEND_READY)
		send_plain(vqp, MESSAGE_READY);
	/* Unless what was to be built failed, which has begun the next epoch. */
	if ((actions & RECOVERY_RESUME) && vqp->recovery.state == RECOVERY_IDLE)
		do_resume(vqp);
	if (actions & RECOVERY_FAIL) {
		log_error("vqp %u: no path within the budget: epoch %u, it waited for %s", vqp->num,
			vqp->recovery.epoch, recovery_state_name(before));
		vqp_fail(vqp, IBV_WC_RETRY_EXC_ERR, IBV_WC_RETRY_EXC_ERR, true);
		vqp->fail_waits = true;
	}
}

void failover_broken(struct hf_vqp *vqp)
{
	struct recovery_event event = {.type = RECOVERY_EVENT_BROKEN};

	if (vqp->forsaken) {
		vqp_fail(vqp, IBV_WC_RETRY_EXC_ERR, IBV_WC_WR_FLUSH_ERR, false);
		return;
	}
	vqp->path.broken = true;
	failover_event(vqp, &event);
}

/* ---- standby qps (resend-cache) ---- */

bool failover_offer(struct hf_vqp *vqp, unsigned rail)
{
	if (path_create(vqp, &vqp->standby[rail], rail) != 0)
		return false;
	send_path(vqp, MESSAGE_STANDBY, &vqp->standby[rail], MESSAGE_PATH_BUILT);
	return true;
}

static void standby_offer(struct hf_vqp *vqp)
{
	uint32_t usable = peer_usable(vqp->peer);

	if (!vqp->recovery.picks || !(vqp->grants.dedicated || policy_caches(vqp->node->config.policy)) ||
		vqp->state != HF_VQP_UP)
		return;
	for (unsigned rail = 0; rail < vqp->node->rail_count; rail++) {
		if (vqp->standby[rail].broken)
			path_destroy(&vqp->standby[rail]);
		if (rail == vqp->path.rail || (usable & 1u << rail) == 0 || vqp->standby[rail].qp != NULL)
			continue;
		(void)failover_offer(vqp, rail);
	}
}

static void standby_message(struct hf_vqp *vqp, const struct message *message, unsigned rail)
{
	struct path *path = &vqp->standby[rail];

	if (message->kind == MESSAGE_STANDBY && !vqp->recovery.picks) {
		path_destroy(path);
		if (path_create(vqp, path, rail) != 0)
			return;
		if (path_connect(vqp, path, message) != 0) {
			path_destroy(path);
			return;
		}
		path->ready = true;
		send_path(vqp, MESSAGE_STANDBY_QP, path, MESSAGE_PATH_BUILT);
	} else if (message->kind == MESSAGE_STANDBY_QP && vqp->recovery.picks && path->qp != NULL && !path->ready) {
		path->ready = path_connect(vqp, path, message) == 0;
		if (path->ready)
			rebuild_ready(vqp, rail);
		else
			path_destroy(path);
	}
}

/* ---- messages ---- */

static int our_rail(const struct hf_peer *peer, uint8_t theirs)
{
	for (unsigned i = 0; i < peer->node->rail_count; i++)
		if (peer->rail_map[i] == (int)theirs)
			return (int)i;
	return -1;
}

static void on_qp(struct hf_vqp *vqp, const struct message *message)
{
	struct recovery_event event = {.type = RECOVERY_EVENT_READY, .epoch = message->epoch};
	int rc = 0;

	if (message->epoch != vqp->recovery.epoch || vqp->recovery.state != RECOVERY_BUILD || !vqp->recovery.picks ||
		vqp->path.qp == NULL)
		return;
	if (access_is_stale(vqp))
		rc = -ESTALE;
	else if (!vqp->path.ready && vqp->path.shared == NULL)
		rc = path_connect(vqp, &vqp->path, message);
	if (rc == 0)
		rc = path_post_recvs(vqp, &vqp->path);
	if (rc != 0)
		build_failed(vqp, vqp->path.rail, rc);
	else
		failover_event(vqp, &event);
}

/* A qp whose other end died of its own program error is not answered either. That end says CLOSED; this one answers
 * the exchange, so it was the path. */
static void blame_rail(struct hf_vqp *vqp)
{
	struct rail_actions ignored;

	if (vqp->rail_suspect)
		rail_step(&vqp->peer->rails[vqp->path.rail], RAIL_EVENT_WC_ERROR, hf_loop_now_ns(vqp->node->loop),
			&ignored);
	vqp->rail_suspect = false;
}

static void learn_log(struct hf_vqp *vqp, const struct message *message)
{
	const struct hf_peer *peer = vqp->peer;

	if (vqp->log.entries != 0 || !policy_logs(&vqp->node->config))
		return;
	vqp->log = (struct log_writer){.addr = message->log_addr, .entries = message->log_entries};
	for (unsigned i = 0; i < peer->node->rail_count; i++)
		vqp->log_rkeys[i] = peer->rail_map[i] < 0 ? 0 : message->rkeys[peer->rail_map[i]];
}

void failover_message(struct hf_vqp *vqp, const struct message *message)
{
	struct recovery_event event = {
		.epoch = message->epoch, .kind = message->failback ? RECOVERY_FAILBACK : RECOVERY_FAILOVER};
	int rail = our_rail(vqp->peer, message->rail);

	if (vqp->state == HF_VQP_ERROR || vqp->state == HF_VQP_INIT || message->from != vqp->remote_num)
		return;
	switch ((unsigned)message->kind) {
	case MESSAGE_FENCE:
		event.type = RECOVERY_EVENT_FENCE;
		failover_event(vqp, &event);
		break;
	case MESSAGE_STATE:
		if (message->epoch == vqp->recovery.epoch)
			blame_rail(vqp);
		if (message->epoch == vqp->recovery.epoch)
			vqp->evidence = evidence_of(message, our_rail(vqp->peer, message->about_rail));
		peer_ports(vqp->peer, message->up);
		event.type = RECOVERY_EVENT_STATE;
		failover_event(vqp, &event);
		break;
	case MESSAGE_LOG:
		learn_log(vqp, message);
		break;
	case MESSAGE_LENGTHS:
		if (lengths_learn(&vqp->lengths, message) != 0)
			vqp_fail(vqp, IBV_WC_GENERAL_ERR, IBV_WC_WR_FLUSH_ERR, true);
		break;
	case MESSAGE_GO:
		if (rail < 0)
			break;
		if (message->epoch == vqp->recovery.epoch)
			vqp->go = *message;
		event.type = RECOVERY_EVENT_GO;
		event.rail = rail;
		event.ready_at_once = goes_at_once(vqp, message->cached);
		failover_event(vqp, &event);
		break;
	case MESSAGE_QP:
		on_qp(vqp, message);
		break;
	case MESSAGE_READY:
		event.type = RECOVERY_EVENT_READY;
		if (!vqp->recovery.picks)
			failover_event(vqp, &event);
		break;
	case MESSAGE_GRANT:
		access_message(vqp, message);
		break;
	case MESSAGE_STANDBY:
	case MESSAGE_STANDBY_QP:
		if (rail >= 0 && vqp->peer->rail_map[rail] >= 0)
			standby_message(vqp, message, (unsigned)rail);
		break;
	case MESSAGE_MOVE:
		home_asked(vqp, rail);
		break;
	case MESSAGE_SLOTS_ASK:
		uid_slots_lend(vqp);
		break;
	case MESSAGE_SLOTS:
		uid_post_slots(vqp, message);
		break;
	case MESSAGE_POOL:
	case MESSAGE_POOL_QP:
		if (rail >= 0)
			pool_message(vqp, message, (unsigned)rail);
		break;
	}
}

/* ---- progress ---- */

static void fenced(struct hf_vqp *vqp)
{
	struct recovery_event event = {.type = RECOVERY_EVENT_FENCED};

	vqp->fencing = false;
	vqp->fenced_ns = hf_env_now_ns(vqp->node->env);
	access_check(vqp);
	failover_event(vqp, &event);
}

/* CLOSED promises the other side that nothing of its wrs happens here any more, so it follows the fence. */
static void say_closed(struct hf_vqp *vqp)
{
	struct message closed = {.kind = MESSAGE_CLOSED, .to = vqp->remote_num, .from = vqp->num};

	if (vqp->fail_tell && vqp->peer != NULL && vqp->remote_num != 0)
		peer_send(vqp->peer, &closed);
}

static void failed(struct hf_vqp *vqp)
{
	const struct inflight_end flushed = {.first = IBV_WC_WR_FLUSH_ERR, .rest = IBV_WC_WR_FLUSH_ERR};

	say_closed(vqp);
	vqp->failing = vqp->fail_tell = false;
	inflight_fail(&vqp->sends, &vqp->end);
	inflight_fail(&vqp->recvs, &flushed);
	vcq_note(vqp);
	vqp_forget_paths(vqp);
	uid_slots_return(vqp);
	list_remove(&vqp->recovering_link);
	access_check(vqp);
	if (vqp->changed != NULL)
		vqp->changed(vqp, vqp->context);
}

static bool waits_for_quiet(const struct hf_vqp *vqp)
{
	return vqp->drained_quiet && vqp->recovery.state == RECOVERY_QUIET && !vqp->failing && !vqp->fencing;
}

/* Nobody has told that the other side fenced. By its lease it has, or nothing that left here is on its way any more, so
 * what is told to be unknown now does not execute later (R5, V4). */
static bool waits_for_lease(const struct hf_vqp *vqp, uint64_t now_ns)
{
	const struct lease *lease;

	if (!vqp->fail_waits || vqp->peer == NULL || (vqp->recovery.heard && vqp->evidence.fenced))
		return false;
	lease = &vqp->peer->lease;
	return !lease_is_over(lease, now_ns) && now_ns - vqp->fenced_ns < lease_with_margin(lease->ours_ns);
}

/* Nothing to do for it before a completion comes, or a tick. */
bool failover_waits(const struct hf_vqp *vqp)
{
	uint64_t now_ns = hf_env_now_ns(vqp->node->env);

	if (vqp->failing || vqp->fencing)
		return fence_sleeps(vqp, now_ns) || (vqp->failing && waits_for_lease(vqp, now_ns));
	return waits_for_quiet(vqp) && !post_quiet(vqp);
}

static int end_qp(struct path *path)
{
	return path->shared != NULL ? pool_end_qp(path->shared) : path_end_qp(path);
}

static bool path_is_fenced(struct hf_vqp *vqp)
{
	struct path *path = &vqp->path;

	if (vqp->fence == FENCE_HOPELESS && end_qp(path) == 0) {
		log_warn("vqp %u: its qp on rail %s was ended instead; what that executed last cannot be asked",
			vqp->num, hf_node_rail_name(vqp->node, path->rail));
		vqp->fence = FENCE_DONE;
	}
	return vqp->fence == FENCE_DONE;
}

static bool progress(struct hf_vqp *vqp)
{
	struct recovery_event quiet = {.type = RECOVERY_EVENT_QUIET};

	if ((vqp->failing || vqp->fencing) && !path_is_fenced(vqp))
		return false;
	if (vqp->failing && waits_for_lease(vqp, hf_env_now_ns(vqp->node->env)))
		return false;
	if (vqp->failing) {
		failed(vqp);
	} else if (vqp->fencing && vqp->state != HF_VQP_ERROR) {
		fenced(vqp);
	} else if (waits_for_quiet(vqp)) {
		if (!post_quiet(vqp)) {
			(void)post_probe(vqp);
			return false;
		}
		vqp->drained_quiet = false;
		failover_event(vqp, &quiet);
		return true;
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
		struct hf_vqp *vqp = container_of(at, struct hf_vqp, due_link);

		if (!vqp->failing && !vqp->fencing)
			continue;
		vqp->fence = fence_path(vqp, &vqp->path, now_ns);
		if (vqp->path.qp != NULL && vqp->fence != FENCE_WAITS)
			drain[vqp->path.rail] = true;
	}
	for (unsigned i = 0; i < node->rail_count; i++)
		if (drain[i])
			rail_cqs_drain(&node->rails[i].cqs);
}

enum hf_poll failover_turn(struct hf_node *node)
{
	enum hf_poll poll = HF_IDLE;
	struct list round, *at;

	if (list_empty(&node->due))
		return HF_IDLE;
	list_init(&round);
	while ((at = list_pop_front(&node->due)) != NULL)
		list_push_back(&round, at);
	fence_all(node, &round);
	while ((at = list_pop_front(&round)) != NULL) {
		struct hf_vqp *vqp = container_of(at, struct hf_vqp, due_link);

		if (progress(vqp))
			poll = HF_BUSY;
		else if (list_empty(&vqp->due_link))
			list_push_back(&node->due, &vqp->due_link);
	}
	return poll;
}

void failover_tick(struct hf_vqp *vqp, uint64_t now_ns)
{
	struct recovery_event event = {.type = RECOVERY_EVENT_RAILS};

	if (vqp->peer == NULL || vqp->state == HF_VQP_ERROR || vqp->state == HF_VQP_INIT)
		return;
	if (vqp->recovery.state == RECOVERY_BUILD && vqp->recovery.rail >= 0 &&
		(peer_usable(vqp->peer) & 1u << vqp->recovery.rail) == 0)
		failover_broken(vqp);
	if (vqp->recovery.state == RECOVERY_QUIET && now_ns - vqp->recovery.since_ns >= QUIET_PATIENCE_NS)
		failover_broken(vqp);
	failover_event(vqp, &event);
	standby_offer(vqp);
	if (vqp->grants.done != NULL)
		access_check(vqp);
	want_dedicated(vqp, now_ns);
	if (failback_due(vqp, now_ns))
		rebuild_want(vqp, (unsigned)rail_choose(home_rails(vqp, peer_usable(vqp->peer))), now_ns);
	if (home_despairs(vqp, now_ns)) {
		log_error("vqp %u: it cannot come to where the region's atomics are done", vqp->num);
		vqp_fail(vqp, IBV_WC_RETRY_EXC_ERR, IBV_WC_RETRY_EXC_ERR, true);
	}
}
