/* What the two ends of a vqp say to each other, and who takes it. Of the exchange (recovery.h): FENCE, STATE, LENGTHS,
 * GO, QP, READY. */
#include "vqp/path/pool.h"

#include <errno.h>

#include "vqp/atomic/uid_post.h"
#include "vqp/atomic/uid_slots.h"

bool exchange_suspects_rail(const struct hf_vqp *vqp)
{
	return vqp->path.qp != NULL && vqp->recovery.kind == RECOVERY_FAILOVER &&
	       (vqp->rail_suspect || vqp->peer->rails[vqp->path.rail].state != RAIL_UP);
}

/* A WRITE_WITH_IMM that was posted may have executed in part. */
static bool may_resume(const struct hf_vqp *vqp)
{
	const struct request_log *sends = &vqp->sends;

	for (uint64_t at = sends->head; vqp->messages > 0 && at < sends->tail; at++) {
		const struct request_log_wr *entry = request_log_at(sends, at);

		if (!entry->done && entry->wr.opcode == IBV_WR_RDMA_WRITE_WITH_IMM &&
			(entry->qp_num != 0 || entry->landed != 0))
			return true;
	}
	return false;
}

void exchange_say(struct hf_vqp *vqp, enum message_kind kind)
{
	struct message message = {.kind = kind,
		.to = vqp->remote_num,
		.from = vqp->num,
		.epoch = vqp->recovery.epoch,
		.failback = vqp->recovery.kind == RECOVERY_FAILBACK};

	if (kind == MESSAGE_FENCE || kind == MESSAGE_STATE) {
		message.suspect = exchange_suspects_rail(vqp);
		message.wr_failed = vqp->rail_suspect;
		vqp->fence_unsaid = false;
	}
	if (kind == MESSAGE_STATE) {
		vqp->awaits_go = !vqp->recovery.picks;
		message.up = detector_up_mask(vqp->peer);
		message.resumes = vqp->resumes = may_resume(vqp);
		evidence_gather(vqp, vqp->recovery.fenced, &message);
		access_tell(vqp, &message);
	}
	peer_send(vqp->peer, &message);
}

void exchange_say_path(struct hf_vqp *vqp, enum message_kind kind, const struct path *path, enum message_path cached)
{
	struct message message = {.kind = kind,
		.to = vqp->remote_num,
		.from = vqp->num,
		.epoch = vqp->recovery.epoch,
		.about_qp = path->their_key,
		.cached = (uint8_t)cached};

	path_attributes(vqp->node, path, &message);
	if (cached == MESSAGE_PATH_POOL)
		message.qp_num = path->our_key;
	peer_send(vqp->peer, &message);
}

/* Before the other side has receives on a new path, so that no message that resumes is there sooner (R8). */
void exchange_tell_lengths(struct hf_vqp *vqp)
{
	struct message message = {.kind = MESSAGE_LENGTHS, .to = vqp->remote_num, .from = vqp->num};
	bool told = vqp->told_lengths;

	vqp->told_lengths = false;
	for (uint64_t at = vqp->sends.head; vqp->messages > 0 && at < vqp->sends.tail; at++) {
		const struct request_log_wr *entry = request_log_at(&vqp->sends, at);

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

uint32_t exchange_standby(const struct hf_vqp *vqp)
{
	return vqp->path.shared != NULL ? vqp->path.their_key : 0;
}

void exchange_say_closed(struct hf_vqp *vqp, uint32_t standby)
{
	struct message closed = {.kind = MESSAGE_CLOSED, .to = vqp->remote_num, .from = vqp->num, .about_qp = standby};

	if (vqp->peer != NULL && vqp->remote_num != 0)
		peer_send(vqp->peer, &closed);
}

/* A picker posts to a standby qp as soon as it has said GO. Who ends before it hears that fences another path, and its
 * end of the standby qp serves others: what is on its way may execute there. Qps of its own it has destroyed. */
static void look_for_strays(struct hf_vqp *vqp, const struct message *closed)
{
	vqp->strays = vqp->path.shared != NULL && closed->about_qp != vqp->path.our_key;
	if (vqp->strays)
		vqp->fenced_ns = 0; /* as soon as our end is fenced */
}

void exchange_closed(struct hf_vqp *vqp, const struct message *message)
{
	if (vqp_forsake(vqp))
		return;
	look_for_strays(vqp, message);
	vqp_fail(vqp, IBV_WC_WR_FLUSH_ERR, IBV_WC_WR_FLUSH_ERR, true); /* it may wait for our fence */
}

void exchange_ask_end(struct hf_vqp *vqp)
{
	exchange_say_closed(vqp, exchange_standby(vqp));
	exchange_say(vqp, MESSAGE_FENCE);
}

void exchange_ended(struct hf_vqp *vqp, const struct message *message)
{
	if (vqp->fail_asks || vqp->fail_awaits) /* it may end before we have asked */
		look_for_strays(vqp, message);
	vqp->fail_awaits = vqp->fail_asks = false;
	fence_queue_add(vqp);
}

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
		next_path_failed(vqp, vqp->path.rail, rc);
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

static void hear_state(struct hf_vqp *vqp, const struct message *message)
{
	if (message->epoch != vqp->recovery.epoch)
		return;
	blame_rail(vqp);
	vqp->evidence = evidence_of(message, our_rail(vqp->peer, message->about_rail));
}

/* The sender's end of the path in use, unless it is of an exchange that is over. The side that picks has to know of a
 * failed wr of the other's, or it picks that rail again. */
static void hear_suspicion(struct hf_vqp *vqp, const struct message *message)
{
	if (vqp->path.qp == NULL || (int32_t)(message->epoch - vqp->recovery.epoch) < 0)
		return;
	vqp->rail_suspect = vqp->rail_suspect || message->wr_failed;
	if (message->epoch == vqp->recovery.epoch)
		return;
	if (message->wr_failed)
		peer_silent(vqp->peer, vqp->path.rail);
	if (message->suspect)
		peer_suspect(vqp->peer, vqp->path.rail);
}

static void learn_log(struct hf_vqp *vqp, const struct message *message)
{
	const struct hf_peer *peer = vqp->peer;

	if (vqp->log.entries != 0 || !policy_logs(&vqp->node->config))
		return;
	vqp->log = (struct log_writer){.addr = message->log_addr, .entries = message->log_entries};
	for (unsigned i = 0; i < peer->node->rail_count; i++)
		if (peer->rail_map[i] >= 0) {
			bool footers = (message->up & 1u << peer->rail_map[i]) != 0 && path_has_footers(peer->node, i);

			vqp->log_rkeys[i] = message->rkeys[peer->rail_map[i]];
			vqp->log_footers |= footers ? 1u << i : 0;
		}
}

/* FENCE, or STATE, which is that too when it is the first of its epoch. The other side waits for us to answer, so it
 * is fenced before those that nobody asked about; but not before the first path, which is none to be fenced. */
static void asked_to_fence(struct hf_vqp *vqp, const struct message *message, enum recovery_kind kind)
{
	struct recovery_event fence = {.type = RECOVERY_EVENT_FENCE, .epoch = message->epoch, .kind = kind};

	if (vqp->recovery.epoch == 0)
		return;
	hear_suspicion(vqp, message);
	failover_event(vqp, &fence);
	if (vqp->fencing && !list_empty(&vqp->fence_link)) {
		list_remove(&vqp->fence_link);
		list_push_back(&vqp->node->fence_asked, &vqp->fence_link);
	}
}

void exchange_message(struct hf_vqp *vqp, const struct message *message)
{
	struct recovery_event event = {
		.epoch = message->epoch, .kind = message->failback ? RECOVERY_FAILBACK : RECOVERY_FAILOVER};
	int rail = our_rail(vqp->peer, message->rail);

	if (vqp->state == HF_VQP_ERROR || vqp->state == HF_VQP_INIT || message->from != vqp->remote_num)
		return;
	switch ((unsigned)message->kind) {
	case MESSAGE_FENCE:
		asked_to_fence(vqp, message, event.kind);
		break;
	case MESSAGE_STATE:
		asked_to_fence(vqp, message, event.kind);
		hear_state(vqp, message);
		peer_ports(vqp->peer, message->up);
		event.type = RECOVERY_EVENT_STATE;
		failover_event(vqp, &event);
		break;
	case MESSAGE_LOG:
		learn_log(vqp, message);
		break;
	case MESSAGE_LENGTHS:
		if (imm_lengths_learn(&vqp->lengths, message) != 0)
			vqp_fail(vqp, IBV_WC_GENERAL_ERR, IBV_WC_WR_FLUSH_ERR, true);
		break;
	case MESSAGE_GO:
		if (rail < 0)
			break;
		if (message->epoch == vqp->recovery.epoch)
			vqp->go = path_offered(message);
		event.type = RECOVERY_EVENT_GO;
		event.rail = rail;
		event.ready_at_once = next_path_goes_at_once(vqp, message->cached);
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
	case MESSAGE_BACKUP:
	case MESSAGE_BACKUP_QP:
		if (rail >= 0 && vqp->peer->rail_map[rail] >= 0)
			backup_message(vqp, message, (unsigned)rail);
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
	case MESSAGE_POOL_GONE:
		if (rail >= 0)
			pool_message(vqp, message, (unsigned)rail);
		break;
	}
}
