/* What the two ends of a vqp say to each other about a failure, and what becomes of it: FENCE, STATE, LENGTHS, READY,
 * LOG, CLOSED. GO and QP are in next_path.c. */
#include "vqp/recovery/exchange.h"

#include "vqp/path/pool.h"

static const struct field reason_fields[] = {
	FIELD_MAX(struct fence_reason, failback, 1),
	FIELD_MAX(struct fence_reason, suspect, 1),
	FIELD_MAX(struct fence_reason, wr_failed, 1),
};
static const struct fields reason_layout = FIELDS(reason_fields);

static const struct field fence_fields[] = {FIELD_STRUCT(struct fence_message, reason, &reason_layout)};

static const struct field atomic_fields[] = {
	FIELD_MAX(struct hf_atomic_result, psn, NUM_MASK),
	FIELD_ANY(struct hf_atomic_result, original),
};
static const struct fields atomic_layout = FIELDS(atomic_fields);

static const struct field state_fields[] = {
	FIELD_STRUCT(struct state_message, reason, &reason_layout),
	FIELD_MAX(struct state_message, fenced, 1),
	FIELD_MAX(struct state_message, has_psn, 1),
	FIELD_MAX(struct state_message, executed_psn, NUM_MASK),
	FIELD_MAX(struct state_message, about_rail, HF_RAILS_MAX - 1),
	FIELD_MAX(struct state_message, about_qp, NUM_MASK),
	FIELD_MAX(struct state_message, ended, 1),
	FIELD_MAX(struct state_message, refused, IBV_WC_GENERAL_ERR),
	FIELD_MAX(struct state_message, refused_psn, NUM_MASK),
	FIELD_MAX(struct state_message, in_doubt, 1),
	FIELD_MAX(struct state_message, atomic_count, EVIDENCE_ATOMICS),
	FIELD_LIST(struct state_message, atomics, atomic_count, &atomic_layout),
	FIELD_MAX(struct state_message, has_log, 1),
	FIELD_MAX(struct state_message, log_number, LOG_ENTRIES_MAX - 1),
	FIELD_ANY(struct state_message, log_entry),
	FIELD_ANY(struct state_message, consumed),
	FIELD_MAX(struct state_message, resumes, 1),
	FIELD_STRUCT(struct state_message, granted, &access_layout),
	FIELD_MAX(struct state_message, up, RAIL_MASK),
};

static const struct field length_fields[] = {
	FIELD_ANY(struct message_length, message),
	FIELD_ANY(struct message_length, bytes),
};
static const struct fields length_layout = FIELDS(length_fields);
static const struct field lengths_fields[] = {
	FIELD_MAX(struct lengths_message, more, 1),
	FIELD_MAX(struct lengths_message, count, LENGTHS_PER_MESSAGE),
	FIELD_LIST(struct lengths_message, lengths, count, &length_layout),
};

static const struct field ready_fields[] = {FIELD_MAX(struct ready_message, zero, HF_RAILS_MAX - 1)};

static const struct field closed_fields[] = {
	FIELD_MAX(struct closed_message, zero, HF_RAILS_MAX - 1),
	FIELD_MAX(struct closed_message, about_qp, NUM_MASK),
};

static const struct field log_fields[] = {
	FIELD_ANY(struct log_message, addr),
	FIELD_RANGE(struct log_message, entries, 1, LOG_ENTRIES_MAX),
	FIELD_MAX(struct log_message, footers, RAIL_MASK),
	FIELD_ARRAY(struct log_message, rkeys),
};

static bool log_valid(const struct message_head *head)
{
	const struct log_message *message = (const void *)head;

	return (message->entries & (message->entries - 1)) == 0;
}

static void take_fence(struct hf_vqp *vqp, const struct message_head *head);
static void take_state(struct hf_vqp *vqp, const struct message_head *head);
static void take_lengths(struct hf_vqp *vqp, const struct message_head *head);
static void take_ready(struct hf_vqp *vqp, const struct message_head *head);
static void take_log(struct hf_vqp *vqp, const struct message_head *head);

static const struct vqp_kind fence_kind =
	VQP_KIND(MESSAGE_FENCE, "FENCE", struct fence_message, fence_fields, take_fence);
static const struct vqp_kind state_kind =
	VQP_KIND(MESSAGE_STATE, "STATE", struct state_message, state_fields, take_state);
static const struct vqp_kind lengths_kind =
	VQP_KIND(MESSAGE_LENGTHS, "LENGTHS", struct lengths_message, lengths_fields, take_lengths);
static const struct vqp_kind ready_kind =
	VQP_KIND(MESSAGE_READY, "READY", struct ready_message, ready_fields, take_ready);
static const struct vqp_kind closed_kind =
	VQP_KIND(MESSAGE_CLOSED, "CLOSED", struct closed_message, closed_fields, exchange_closed);
static const struct vqp_kind log_kind = {
	.kind = {.number = MESSAGE_LOG,
		.bytes = sizeof(struct log_message),
		.name = "LOG",
		.fields = FIELDS(log_fields),
		.valid = log_valid,
		.take = kinds_to_vqp},
	.take = take_log,
};

void exchange_register(struct message_kinds *kinds)
{
	message_register(kinds, &fence_kind.kind);
	message_register(kinds, &state_kind.kind);
	message_register(kinds, &lengths_kind.kind);
	message_register(kinds, &ready_kind.kind);
	message_register(kinds, &closed_kind.kind);
	message_register(kinds, &log_kind.kind);
}

bool exchange_suspects_rail(const struct hf_vqp *vqp)
{
	return vqp->path->qp != NULL && vqp->recovery.kind == RECOVERY_FAILOVER &&
	       (vqp->rail_suspect || vqp->peer->rails[vqp->path->rail].state != RAIL_UP);
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

/* Of the epoch that it is in. */
static struct message_head head_now(const struct hf_vqp *vqp, const struct vqp_kind *kind)
{
	struct message_head head = kinds_head(vqp, kind);

	head.epoch = vqp->recovery.epoch;
	return head;
}

static struct fence_reason reason_now(struct hf_vqp *vqp)
{
	vqp->fence_unsaid = false;
	return (struct fence_reason){.failback = vqp->recovery.kind == RECOVERY_FAILBACK,
		.suspect = exchange_suspects_rail(vqp),
		.wr_failed = vqp->rail_suspect || vqp->refuses_rail};
}

void exchange_say_fence(struct hf_vqp *vqp)
{
	struct fence_message message = {.head = head_now(vqp, &fence_kind), .reason = reason_now(vqp)};

	peer_send(vqp->peer, &message.head);
}

void exchange_say_state(struct hf_vqp *vqp)
{
	struct state_message message = {.head = head_now(vqp, &state_kind), .reason = reason_now(vqp)};

	vqp->awaits_go = !vqp->recovery.picks;
	message.up = detector_up_mask(vqp->peer);
	message.resumes = vqp->resumes = may_resume(vqp);
	evidence_gather(vqp, vqp->recovery.fenced, &message);
	message.granted = access_tell(vqp);
	vqp->grants.told = vqp->grants.ours;
	vqp->refuses_rail = false;
	peer_send(vqp->peer, &message.head);
}

void exchange_say_ready(struct hf_vqp *vqp)
{
	struct ready_message message = {.head = head_now(vqp, &ready_kind)};

	peer_send(vqp->peer, &message.head);
}

void exchange_say_log(struct hf_vqp *vqp, struct log_message *message)
{
	message->head = kinds_head(vqp, &log_kind);
	peer_send(vqp->peer, &message->head);
}

/* Before the other side has receives on a new path, so that no message that resumes is there sooner (R8). */
void exchange_tell_lengths(struct hf_vqp *vqp)
{
	struct lengths_message message = {.head = kinds_head(vqp, &lengths_kind)};
	bool told = vqp->told_lengths;

	vqp->told_lengths = false;
	for (uint64_t at = vqp->sends.head; vqp->messages > 0 && at < vqp->sends.tail; at++) {
		const struct request_log_wr *entry = request_log_at(&vqp->sends, at);

		if (entry->done || entry->message == 0 || entry->landed == 0)
			continue;
		if (message.count == LENGTHS_PER_MESSAGE) {
			message.more = 1;
			peer_send(vqp->peer, &message.head);
			message.more = message.count = 0;
		}
		message.lengths[message.count++] =
			(struct message_length){.message = entry->message, .bytes = (uint32_t)entry->bytes};
		vqp->told_lengths = true;
	}
	if (told || vqp->told_lengths)
		peer_send(vqp->peer, &message.head);
}

uint32_t exchange_standby(const struct hf_vqp *vqp)
{
	return vqp->path->shared != NULL ? vqp->path->their_key : 0;
}

void exchange_say_closed(struct hf_vqp *vqp, uint32_t standby)
{
	struct closed_message closed = {.head = kinds_head(vqp, &closed_kind), .about_qp = standby};

	if (vqp->peer != NULL && vqp->remote_num != 0)
		peer_send(vqp->peer, &closed.head);
}

void exchange_answer_closed(struct hf_peer *peer, const struct message_head *message)
{
	const struct closed_message closed = {
		.head = {.kind = &closed_kind.kind, .to = message->from, .from = message->to}};

	peer_send(peer, &closed.head);
}

/* A picker posts to a standby qp as soon as it has said GO. A vqp that ends before it hears that fences another path,
 * and its end of the standby qp serves others: what is on its way may execute there. Qps of its own it has
 * destroyed. */
static bool leaves_strays(const struct hf_vqp *vqp, const struct message_head *head)
{
	const struct closed_message *closed = (const void *)head;

	return vqp->path->shared != NULL && closed->about_qp != vqp->path->our_key;
}

void exchange_closed(struct hf_vqp *vqp, const struct message_head *message)
{
	bool strays = leaves_strays(vqp, message);

	if (vqp_forsake(vqp))
		return;
	end_for(vqp, HF_VQP_END_PEER);
	if (strays) {
		vqp->strays_ns = 0; /* as soon as our end is fenced */
		vqp_fail_with_lease(vqp, IBV_WC_WR_FLUSH_ERR, IBV_WC_WR_FLUSH_ERR);
	} else
		vqp_fail(vqp, IBV_WC_WR_FLUSH_ERR, IBV_WC_WR_FLUSH_ERR, true); /* it may wait for our fence */
}

void exchange_ask_end(struct hf_vqp *vqp)
{
	exchange_say_closed(vqp, exchange_standby(vqp));
	exchange_say_fence(vqp);
}

void exchange_ended(struct hf_vqp *vqp, const struct message_head *message)
{
	bool strays = leaves_strays(vqp, message);

	if (strays && ending_asks(&vqp->ending) && vqp->ending.state == ENDING_FENCE)
		vqp->strays_ns = 0; /* else the lease counts since our fence, as before: nothing has left since then */
	(void)ending_step(&vqp->ending, strays ? ENDING_EVENT_STRAYS : ENDING_EVENT_CLOSED);
	marks_fence(vqp);
}

/* A qp whose other end died of its own program error is not answered either. That end says CLOSED; this one answers
 * the exchange, so it was the path. */
static void blame_rail(struct hf_vqp *vqp)
{
	struct rail_actions ignored;

	if (vqp->rail_suspect)
		rail_step(&vqp->peer->rails[vqp->path->rail], RAIL_EVENT_WC_ERROR, hf_loop_now_ns(vqp->node->loop),
			&ignored);
	vqp->rail_suspect = false;
}

/* The sender's end of the path in use, unless it is of an exchange that is over. The side that picks has to know of a
 * failed wr of the other's, or it picks that rail again. */
static void hear_suspicion(struct hf_vqp *vqp, uint32_t epoch, const struct fence_reason *reason)
{
	if (vqp->path->qp == NULL || (int32_t)(epoch - vqp->recovery.epoch) < 0)
		return;
	vqp->rail_suspect = vqp->rail_suspect || reason->wr_failed;
	if (vqp->lane >= 0 && reason->wr_failed)
		end_for_path(vqp);
	if (epoch == vqp->recovery.epoch)
		return;
	if (reason->wr_failed)
		peers_silent(vqp->peer, vqp->path->rail);
	if (reason->suspect)
		peer_suspect(vqp->peer, vqp->path->rail);
}

static enum recovery_kind kind_of(const struct fence_reason *reason)
{
	return reason->failback ? RECOVERY_FAILBACK : RECOVERY_FAILOVER;
}

/* FENCE, or STATE, which is that too when it is the first of its epoch. The other side waits for us to answer, so it
 * is fenced before those that the peer did not ask about; but not before the first path, which is none to be fenced. */
static void asked_to_fence(struct hf_vqp *vqp, uint32_t epoch, const struct fence_reason *reason)
{
	struct recovery_event fence = {.type = RECOVERY_EVENT_FENCE, .epoch = epoch, .kind = kind_of(reason)};

	if (vqp->recovery.epoch == 0)
		return;
	hear_suspicion(vqp, epoch, reason);
	failover_event(vqp, &fence);
	if (vqp_is_fencing(vqp) && !list_empty(&vqp->fence_link)) {
		list_remove(&vqp->fence_link);
		list_push_back(&vqps_of(vqp->node)->fence_asked, &vqp->fence_link);
	}
}

static void take_fence(struct hf_vqp *vqp, const struct message_head *head)
{
	const struct fence_message *message = (const void *)head;

	asked_to_fence(vqp, head->epoch, &message->reason);
}

static void take_state(struct hf_vqp *vqp, const struct message_head *head)
{
	const struct state_message *message = (const void *)head;
	struct recovery_event event = {
		.type = RECOVERY_EVENT_STATE, .epoch = head->epoch, .kind = kind_of(&message->reason)};

	asked_to_fence(vqp, head->epoch, &message->reason);
	if (head->epoch == vqp->recovery.epoch) {
		blame_rail(vqp);
		vqp->evidence = evidence_of(message, peer_our_rail(vqp->peer, message->about_rail));
	}
	peer_ports(vqp->peer, message->up);
	failover_event(vqp, &event);
}

static void take_lengths(struct hf_vqp *vqp, const struct message_head *head)
{
	if (imm_lengths_learn(&vqp->lengths, (const void *)head) == 0)
		return;
	end_for(vqp, HF_VQP_END_NO_MEMORY);
	vqp_fail(vqp, IBV_WC_GENERAL_ERR, IBV_WC_WR_FLUSH_ERR, true);
}

static void take_ready(struct hf_vqp *vqp, const struct message_head *head)
{
	struct recovery_event event = {.type = RECOVERY_EVENT_READY, .epoch = head->epoch, .kind = RECOVERY_FAILOVER};

	if (!vqp->recovery.picks)
		failover_event(vqp, &event);
}

static void take_log(struct hf_vqp *vqp, const struct message_head *head)
{
	const struct log_message *message = (const void *)head;
	const struct hf_peer *peer = vqp->peer;

	if (vqp->log.entries != 0 || !policy_logs(&vqp->node->config))
		return;
	vqp->log = (struct log_writer){.addr = message->addr, .entries = message->entries};
	for (unsigned i = 0; i < peer->node->rail_count; i++)
		if (peer->rail_map[i] >= 0) {
			bool footers =
				(message->footers & 1u << peer->rail_map[i]) != 0 && path_has_footers(peer->node, i);

			vqp->log_rkeys[i] = message->rkeys[peer->rail_map[i]];
			vqp->log_footers |= footers ? 1u << i : 0;
		}
}

void exchange_message(struct hf_vqp *vqp, const struct message_head *message)
{
	const struct vqp_kind *kind = container_of(message->kind, const struct vqp_kind, kind);

	if (vqp->state != HF_VQP_ERROR && vqp->state != HF_VQP_INIT && message->from == vqp->remote_num)
		kind->take(vqp, message);
}
