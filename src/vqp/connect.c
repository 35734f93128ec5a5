/* Connecting two vqps: CONNECT names a service and brings private data, ACCEPT the other number, REFUSE ends it.
 * After that both sides are in the exchange of recovery.h, which finds the first path like every later one.
 *
 * Where both sides know both numbers already, each says JOIN once it was called. A JOIN that finds the other side not
 * yet called is dropped there, since that side's own will be answered:
 *
 *   called first                        called later
 *     | JOIN ----------------------------> |   dropped
 *     | <---------------------------- JOIN |   joined
 *     | JOIN, answer --------------------> |   joined */
#include "vqp/objects.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "vqp/recovery/exchange.h"

#define SAME_REFUSAL_NS  60000000000ull /* a peer's refusal of a service is logged once in this time, */
#define OTHER_REFUSAL_NS 1000000000ull  /* and of another service once in this */

/* What each side tells of its end. */
struct end_told {
	struct access_told granted;
	uint32_t pd;    /* by a number of the sender's own */
	uint32_t depth; /* of the sender's request log */
	uint8_t lane;   /* the sender's rail that it is pinned to, plus one; 0: it is not */
};

/* CONNECT, ACCEPT; an ACCEPT has neither service nor terms. */
struct connect_message {
	struct message_head head;
	char service[HF_NAME_BYTES];
	char terms[HF_NAME_BYTES]; /* what the other side must agree with; policy.c */
	struct end_told end;
	uint16_t private_bytes;
	uint8_t private_data[HF_PRIVATE_BYTES];
};

struct refuse_message {
	struct message_head head;
	char terms[HF_NAME_BYTES];
};

struct join_message {
	struct message_head head;
	char terms[HF_NAME_BYTES];
	struct end_told end;
	uint8_t answer; /* 1: to the other side's JOIN, not answered itself */
};

static const struct field end_fields[] = {
	FIELD_STRUCT(struct end_told, granted, &access_layout),
	FIELD_ANY(struct end_told, pd),
	FIELD_MAX(struct end_told, depth, LOG_ENTRIES_MAX),
	FIELD_MAX(struct end_told, lane, HF_RAILS_MAX),
};
static const struct fields end_layout = FIELDS(end_fields);

static const struct field connect_fields[] = {
	FIELD_NAME(struct connect_message, service),
	FIELD_NAME(struct connect_message, terms),
	FIELD_STRUCT(struct connect_message, end, &end_layout),
	FIELD_MAX(struct connect_message, private_bytes, HF_PRIVATE_BYTES),
	FIELD_COUNTED(struct connect_message, private_data, private_bytes),
};
static const struct field accept_fields[] = {
	FIELD_STRUCT(struct connect_message, end, &end_layout),
	FIELD_MAX(struct connect_message, private_bytes, HF_PRIVATE_BYTES),
	FIELD_COUNTED(struct connect_message, private_data, private_bytes),
};
static const struct field refuse_fields[] = {FIELD_NAME(struct refuse_message, terms)};
static const struct field join_fields[] = {
	FIELD_NAME(struct join_message, terms),
	FIELD_STRUCT(struct join_message, end, &end_layout),
	FIELD_MAX(struct join_message, answer, 1),
};

static void take_connect(struct hf_peer *peer, const struct message_head *head);
static void take_accept(struct hf_peer *peer, const struct message_head *head);
static void take_refuse(struct hf_peer *peer, const struct message_head *head);
static void take_join(struct hf_peer *peer, const struct message_head *head);

static const struct message_kind connect_kind =
	MESSAGE_KIND(MESSAGE_CONNECT, "CONNECT", struct connect_message, connect_fields, take_connect);
static const struct message_kind accept_kind =
	MESSAGE_KIND(MESSAGE_ACCEPT, "ACCEPT", struct connect_message, accept_fields, take_accept);
static const struct message_kind refuse_kind =
	MESSAGE_KIND(MESSAGE_REFUSE, "REFUSE", struct refuse_message, refuse_fields, take_refuse);
static const struct message_kind join_kind =
	MESSAGE_KIND(MESSAGE_JOIN, "JOIN", struct join_message, join_fields, take_join);

void connect_register(struct message_kinds *kinds)
{
	message_register(kinds, &connect_kind);
	message_register(kinds, &accept_kind);
	message_register(kinds, &refuse_kind);
	message_register(kinds, &join_kind);
}

/* A peer that may write gets a completion log for its wrs (R14: access is never widened for it). */
static void offer_log(struct hf_vqp *vqp, uint32_t depth)
{
	struct log_message message = {0};
	int rc;

	if (!policy_logs(&vqp->node->config) || (vqp->access & IBV_ACCESS_REMOTE_WRITE) == 0 || depth == 0)
		return;
	message.entries = completion_log_entries_for(depth);
	rc = log_slab_take(vqp->pd, message.entries, &vqp->log_ring);
	if (rc != 0) {
		log_warn("vqp %u: no memory for a completion log: %s; the peer's wrs have the PSN as their only "
			 "evidence",
			vqp->num, strerror(-rc));
		return;
	}
	message.addr = (uintptr_t)vqp->log_ring.entries;
	for (unsigned i = 0; i < vqp->node->rail_count; i++) {
		message.rkeys[i] = vqp->log_ring.slab->mrs[i]->rkey;
		message.footers |= path_has_footers(vqp->node, i) ? 1u << i : 0;
	}
	exchange_say_log(vqp, &message);
}

static void begin(struct hf_vqp *vqp, uint32_t remote_num, const struct end_told *theirs)
{
	struct recovery_event event = {.type = RECOVERY_EVENT_CONNECTED};
	int rc;

	vqp->remote_num = remote_num;
	access_connected(vqp, &theirs->granted);
	vqp->remote_pd = theirs->pd;
	rc = region_join(vqp);
	if (rc != 0) {
		log_error("vqp %u ends: its peer cannot be told the keys of regions: %s", vqp->num, strerror(-rc));
		end_for(vqp, HF_VQP_END_NO_MEMORY);
		vqp_fail(vqp, IBV_WC_GENERAL_ERR, IBV_WC_WR_FLUSH_ERR, true);
		return;
	}
	offer_log(vqp, theirs->depth);
	failover_event(vqp, &event);
}

static void join(struct hf_vqp *vqp, struct hf_peer *peer)
{
	recovery_init(
		&vqp->recovery, vqp->num, peer_comes_first(peer), hand_back_budget_ns(vqp), node_silence_ns(vqp->node));
	vqp->peer = peer;
}

int hf_vqp_serve(struct hf_node *node, const struct hf_vqp_service *service)
{
	if (service->name[0] == '\0' || strlen(service->name) >= HF_NAME_BYTES)
		return -EINVAL;
	if (vqps_of(node)->service_count == NODE_SERVICES_MAX)
		return -ENOSPC;
	for (unsigned i = 0; i < vqps_of(node)->service_count; i++)
		if (strcmp(vqps_of(node)->services[i]->name, service->name) == 0)
			return -EEXIST;
	vqps_of(node)->services[vqps_of(node)->service_count++] = service;
	return 0;
}

void hf_vqp_unserve(struct hf_node *node, const struct hf_vqp_service *service)
{
	struct vqps *vqps = vqps_of(node);

	for (unsigned i = 0; i < vqps->service_count; i++)
		if (vqps->services[i] == service)
			vqps->services[i--] = vqps->services[--vqps->service_count];
}

/* In place of what was kept; false: no memory. */
static bool keep_private(struct hf_vqp *vqp, const void *data, size_t bytes)
{
	uint8_t *copy = bytes == 0 ? NULL : malloc(bytes);

	if (bytes > 0 && copy == NULL)
		return false;
	if (bytes > 0)
		memcpy(copy, data, bytes);
	free(vqp->private_data);
	vqp->private_data = copy;
	vqp->private_bytes = (uint16_t)bytes;
	return true;
}

int hf_vqp_connect(
	struct hf_vqp *vqp, struct hf_peer *peer, const char *service, const void *private_data, size_t private_bytes)
{
	if (vqp->state != HF_VQP_INIT)
		return -EISCONN;
	if (service[0] == '\0' || strlen(service) >= HF_NAME_BYTES || private_bytes > HF_PRIVATE_BYTES)
		return -EINVAL;
	memcpy(vqp->service, service, strlen(service) + 1);
	if (!keep_private(vqp, private_data, private_bytes))
		return -ENOMEM;
	vqp->peer = peer;
	vqp_move(vqp, HF_VQP_CONNECTING);
	if (peer->up)
		connect_send(vqp);
	return 0;
}

int hf_vqp_connect_num(struct hf_vqp *vqp, struct hf_peer *peer, uint32_t num, int access)
{
	if (vqp->state != HF_VQP_INIT)
		return -EISCONN;
	if (num == 0 || num > NUM_MASK || vqp->lane >= 0)
		return -EINVAL;
	vqp->access = access;
	vqp->wanted_num = num;
	vqp->peer = peer;
	vqp_move(vqp, HF_VQP_CONNECTING);
	if (peer->up)
		connect_send(vqp);
	return 0;
}

static struct end_told our_end(const struct hf_vqp *vqp)
{
	return (struct end_told){.granted = access_tell(vqp),
		.pd = vqp->pd->num,
		.depth = vqp->sends.capacity,
		.lane = (uint8_t)(vqp->lane + 1)};
}

static void say_join(struct hf_vqp *vqp, bool answer)
{
	struct join_message message = {.head = {.kind = &join_kind, .to = vqp->wanted_num, .from = vqp->num},
		.end = our_end(vqp),
		.answer = answer};

	policy_terms(&vqp->node->config, message.terms);
	peer_send(vqp->peer, &message.head);
}

void connect_send(struct hf_vqp *vqp)
{
	struct connect_message message = {.head = {.kind = &connect_kind, .from = vqp->num},
		.end = our_end(vqp),
		.private_bytes = vqp->private_bytes};

	if (vqp->asked)
		return;
	vqp->asked = true;
	join(vqp, vqp->peer);
	if (vqp->wanted_num != 0) {
		say_join(vqp, false);
		return;
	}
	memcpy(message.service, vqp->service, sizeof(message.service));
	policy_terms(&vqp->node->config, message.terms);
	if (vqp->private_bytes > 0)
		memcpy(message.private_data, vqp->private_data, vqp->private_bytes);
	peer_send(vqp->peer, &message.head);
	(void)keep_private(vqp, NULL, 0);
}

/* ---- why it was not connected ---- */

static void terms_of(const struct hf_node *node, int lane, char terms_out[HF_NAME_BYTES])
{
	size_t used;

	policy_terms(&node->config, terms_out);
	used = strlen(terms_out);
	if (lane >= 0)
		snprintf(terms_out + used, HF_NAME_BYTES - used, " on %s", node->rails[lane].config.name);
}

/* NULL, which hf_error_set takes: no memory for it. */
static struct hf_error *reason_of(struct hf_vqp *vqp)
{
	if (vqp->reason == NULL)
		vqp->reason = calloc(1, sizeof(*vqp->reason));
	return vqp->reason;
}

/* A layer above may ask a service again and again: the same refusal is logged once a minute. */
static enum log_level level_of_refusal(const struct hf_vqp *vqp)
{
	struct hf_peer *peer = vqp->peer;
	uint64_t now_ns = hf_loop_now_ns(peer->node->loop);
	uint64_t quiet_ns = strcmp(peer->refused, vqp->service) == 0 ? SAME_REFUSAL_NS : OTHER_REFUSAL_NS;

	if (peer->refused_ns != 0 && now_ns < peer->refused_ns + quiet_ns)
		return LOG_DEBUG;
	memcpy(peer->refused, vqp->service, sizeof(peer->refused));
	peer->refused_ns = now_ns;
	return LOG_WARN; /* perhaps for now: the caller asks again */
}

/* `terms`: of the other side's REFUSE; NULL: its ACCEPT makes no sense. */
static void explain_refusal(struct hf_vqp *vqp, const char *terms)
{
	struct hf_error *reason = reason_of(vqp);
	const char *who = hf_peer_name(vqp->peer);
	enum log_level level = LOG_ERROR;
	char ours[HF_NAME_BYTES];

	terms_of(vqp->node, vqp->lane, ours);
	if (terms != NULL && strcmp(ours, terms) != 0)
		hf_error_set(reason, 0,
			"node %s refused: its policy is '%s', that of this node %s is '%s'; both must have the same",
			who, terms, vqp->node->config.name, ours);
	else if (vqp->wanted_num != 0)
		hf_error_set(
			reason, 0, "node %s refused: it has no vqp %u that connects to this one", who, vqp->wanted_num);
	else {
		hf_error_set(reason, 0,
			"node %s refused: its service '%s' returned no vqp, or does not exist; its log may have the "
			"reason",
			who, vqp->service);
		level = level_of_refusal(vqp);
	}
	log_line(level, "vqp %u: %s", vqp->num, hf_vqp_reason(vqp));
}

static void explain_silence(struct hf_vqp *vqp)
{
	struct hf_error *reason = reason_of(vqp);

	if (vqp->wanted_num != 0)
		hf_error_set(reason, 0, "no answer from vqp %u within the budget", vqp->wanted_num);
	else
		hf_error_set(reason, 0, "no answer from service '%s' within the budget", vqp->service);
	log_error("vqp %u: %s", vqp->num, hf_vqp_reason(vqp));
}

/* ---- waiting for an answer ---- */

static bool is_unanswered(const struct hf_vqp *vqp)
{
	return vqp->state == HF_VQP_CONNECTING && vqp->remote_num == 0;
}

bool connect_waits(const struct hf_vqp *vqp)
{
	return is_unanswered(vqp) && vqp->wanted_num != 0;
}

void connect_move(struct hf_vqp *vqp, struct hf_peer *successor)
{
	vqp->peer = successor;
	vqp->asked = false;
	if (successor->up)
		connect_send(vqp);
}

/* As on a plain qp: without a wr it waits for as long as the other program pleases. The budget of recovery.h runs only
 * from the exchange on. */
void connect_tick(struct hf_vqp *vqp, uint64_t now_ns)
{
	if (!is_unanswered(vqp) || vqp->sends.head == vqp->sends.tail)
		return;
	if (vqp->unanswered_ns == 0)
		vqp->unanswered_ns = now_ns;
	if (now_ns - vqp->unanswered_ns < vqp->node->config.budget_ns)
		return;
	explain_silence(vqp);
	end_for(vqp, HF_VQP_END_UNANSWERED);
	vqp_fail(vqp, IBV_WC_RETRY_EXC_ERR, IBV_WC_WR_FLUSH_ERR, false);
}

static int lane_asked_for(const struct hf_peer *peer, const struct connect_message *message)
{
	return message->end.lane == 0 ? -1 : peer_our_rail(peer, (uint8_t)(message->end.lane - 1));
}

static struct hf_vqp *ask_service(
	struct hf_peer *peer, const struct connect_message *message, struct connect_message *answer)
{
	struct hf_vqp_request request = {.peer = peer,
		.private_data = message->private_data,
		.private_bytes = message->private_bytes,
		.lane = lane_asked_for(peer, message)};
	struct hf_node *node = peer->node;
	size_t reply_bytes = 0;
	struct hf_vqp *vqp = NULL;

	for (unsigned i = 0; i < vqps_of(node)->service_count; i++)
		if (strcmp(vqps_of(node)->services[i]->name, message->service) == 0)
			vqp = vqps_of(node)->services[i]->on_request(
				&request, answer->private_data, &reply_bytes, vqps_of(node)->services[i]->context);
	answer->private_bytes = (uint16_t)(reply_bytes <= HF_PRIVATE_BYTES ? reply_bytes : HF_PRIVATE_BYTES);
	return vqp != NULL && vqp->state == HF_VQP_INIT ? vqp : NULL;
}

/* Sides that do not settle a failure in the same way must not settle one together. */
static bool agrees(const struct hf_peer *peer, const char *ours, const char *theirs)
{
	if (strcmp(ours, theirs) == 0)
		return true;
	log_error("a vqp of peer %s is refused: its policy is '%s', that of this node %s is '%s'", hf_peer_name(peer),
		theirs, peer->node->config.name, ours);
	return false;
}

/* It is gone then, which control is about to tell: we say JOIN to this one as soon as it has. */
static bool waits_for_another_incarnation(const struct hf_vqp *vqp, const struct hf_peer *peer)
{
	return connect_waits(vqp) && vqp->peer != peer && strcmp(hf_peer_name(vqp->peer), hf_peer_name(peer)) == 0;
}

static void take_join(struct hf_peer *peer, const struct message_head *head)
{
	const struct join_message *message = (const void *)head;
	struct hf_vqp *vqp = vqp_find(peer->node, head->to);
	struct refuse_message refuse = {.head = {.kind = &refuse_kind, .to = head->from}};

	if (head->from == 0)
		return;
	policy_terms(&peer->node->config, refuse.terms);
	if (vqp != NULL && (vqp->state == HF_VQP_INIT || waits_for_another_incarnation(vqp, peer)))
		return;
	if (vqp == NULL || vqp->peer != peer || vqp->wanted_num != head->from || vqp->state == HF_VQP_ERROR ||
		!agrees(peer, refuse.terms, message->terms)) {
		peer_send(peer, &refuse.head);
		return;
	}
	if (!message->answer)
		say_join(vqp, true);
	if (vqp->state == HF_VQP_CONNECTING && vqp->remote_num == 0)
		begin(vqp, head->from, &message->end);
}

/* One end would hand back what the other sends again. */
static void refuse_lane(struct hf_vqp *vqp, const struct hf_peer *peer, char terms[HF_NAME_BYTES])
{
	struct hf_error *reason = reason_of(vqp);
	char theirs[HF_NAME_BYTES];

	memcpy(theirs, terms, sizeof(theirs));
	terms_of(vqp->node, vqp->lane, terms);
	hf_error_set(reason, 0, "node %s asked for a vqp with '%s', and this one has '%s'", hf_peer_name(peer), theirs,
		terms);
	log_error("vqp %u: %s", vqp->num, hf_vqp_reason(vqp));
	end_for(vqp, HF_VQP_END_REFUSED);
	vqp_fail(vqp, IBV_WC_WR_FLUSH_ERR, IBV_WC_WR_FLUSH_ERR, false);
}

static void take_connect(struct hf_peer *peer, const struct message_head *head)
{
	const struct connect_message *message = (const void *)head;
	struct connect_message answer = {.head = {.kind = &accept_kind, .to = head->from}};
	struct refuse_message refuse = {.head = {.kind = &refuse_kind, .to = head->from}};
	struct hf_vqp *vqp = NULL;

	if (head->from == 0)
		return;
	policy_terms(&peer->node->config, refuse.terms);
	if (agrees(peer, refuse.terms, message->terms)) {
		terms_of(peer->node, lane_asked_for(peer, message), refuse.terms);
		vqp = ask_service(peer, message, &answer);
	}
	if (vqp != NULL && !hand_back_agrees(vqp, peer, message->end.lane)) {
		refuse_lane(vqp, peer, refuse.terms);
		vqp = NULL;
	}
	if (vqp == NULL) {
		peer_send(peer, &refuse.head);
		return;
	}
	answer.head.from = vqp->num;
	answer.end = our_end(vqp);
	join(vqp, peer);
	vqp_move(vqp, HF_VQP_CONNECTING);
	peer_send(peer, &answer.head);
	begin(vqp, head->from, &message->end);
}

/* NULL: it does not wait for an answer. */
static struct hf_vqp *waiting_for(struct hf_peer *peer, const struct message_head *head)
{
	struct hf_vqp *vqp = vqp_find(peer->node, head->to);

	return vqp != NULL && vqp->peer == peer && is_unanswered(vqp) ? vqp : NULL;
}

static void refused(struct hf_vqp *vqp, const char *terms)
{
	explain_refusal(vqp, terms);
	end_for(vqp, HF_VQP_END_REFUSED);
	vqp_fail(vqp, IBV_WC_WR_FLUSH_ERR, IBV_WC_WR_FLUSH_ERR, false);
}

static void take_refuse(struct hf_peer *peer, const struct message_head *head)
{
	const struct refuse_message *message = (const void *)head;
	struct hf_vqp *vqp = waiting_for(peer, head);

	if (vqp != NULL)
		refused(vqp, message->terms);
}

/* By this side; the other one is told. */
static void end_unconnected(struct hf_vqp *vqp, uint32_t remote_num, enum hf_vqp_end why)
{
	vqp->remote_num = remote_num;
	end_for(vqp, why);
	vqp_fail(vqp, IBV_WC_GENERAL_ERR, IBV_WC_WR_FLUSH_ERR, true);
}

static void take_accept(struct hf_peer *peer, const struct message_head *head)
{
	const struct connect_message *message = (const void *)head;
	struct hf_vqp *vqp = waiting_for(peer, head);

	if (vqp == NULL)
		return;
	if (head->from == 0)
		refused(vqp, NULL);
	else if (!hand_back_agrees(vqp, peer, message->end.lane))
		end_unconnected(vqp, head->from, HF_VQP_END_REFUSED);
	else if (keep_private(vqp, message->private_data, message->private_bytes))
		begin(vqp, head->from, &message->end);
	else
		end_unconnected(vqp, head->from, HF_VQP_END_NO_MEMORY);
}
