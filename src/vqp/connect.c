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
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

#define NUM_MAX 0xffffffu

/* A peer that may write gets a completion log for its wrs (R14: access is never widened for it). */
static void offer_log(struct hf_vqp *vqp, uint32_t depth)
{
	struct message message = {.kind = MESSAGE_LOG, .to = vqp->remote_num, .from = vqp->num};
	int rc;

	if (!policy_logs(&vqp->node->config) || (vqp->access & IBV_ACCESS_REMOTE_WRITE) == 0 || depth == 0)
		return;
	message.log_entries = log_entries_for(depth);
	rc = log_ring_take(vqp->pd, message.log_entries, &vqp->log_ring);
	if (rc != 0) {
		log_warn("vqp %u: no memory for a completion log: %s", vqp->num, strerror(-rc));
		return;
	}
	message.log_addr = (uintptr_t)vqp->log_ring.entries;
	for (unsigned i = 0; i < vqp->node->rail_count; i++) {
		message.rkeys[i] = vqp->log_ring.slab->mrs[i]->rkey;
		message.up |= path_has_footers(vqp->node, i) ? 1u << i : 0;
	}
	peer_send(vqp->peer, &message);
}

static void begin(struct hf_vqp *vqp, const struct message *message)
{
	struct recovery_event event = {.type = RECOVERY_EVENT_CONNECTED};
	int rc;

	vqp->remote_num = message->from;
	access_connected(vqp, message);
	vqp->remote_pd = message->pd;
	rc = region_join(vqp);
	if (rc != 0) {
		log_error("vqp %u: %s", vqp->num, strerror(-rc));
		vqp_fail(vqp, IBV_WC_GENERAL_ERR, IBV_WC_WR_FLUSH_ERR, true);
		return;
	}
	offer_log(vqp, message->depth);
	failover_event(vqp, &event);
}

static void join(struct hf_vqp *vqp, struct hf_peer *peer)
{
	bool picks = strcmp(vqp->node->config.name, hf_peer_name(peer)) < 0;

	recovery_init(&vqp->recovery, picks, vqp->node->config.budget_ns);
	vqp->peer = peer;
}

int hf_vqp_serve(struct hf_node *node, const struct hf_vqp_service *service)
{
	if (service->name[0] == '\0' || strlen(service->name) >= HF_NAME_BYTES)
		return -EINVAL;
	if (node->service_count == NODE_SERVICES_MAX)
		return -ENOSPC;
	for (unsigned i = 0; i < node->service_count; i++)
		if (strcmp(node->services[i]->name, service->name) == 0)
			return -EEXIST;
	node->services[node->service_count++] = service;
	return 0;
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
	if (num == 0 || num > NUM_MAX)
		return -EINVAL;
	vqp->access = access;
	vqp->wanted_num = num;
	vqp->peer = peer;
	vqp_move(vqp, HF_VQP_CONNECTING);
	if (peer->up)
		connect_send(vqp);
	return 0;
}

static void introduce(struct hf_vqp *vqp, struct message *message)
{
	message->from = vqp->num;
	access_tell(vqp, message);
	message->pd = vqp->pd->num;
	message->depth = vqp->sends.capacity;
}

static void say_join(struct hf_vqp *vqp, bool answer)
{
	struct message message = {.kind = MESSAGE_JOIN, .to = vqp->wanted_num, .answer = answer};

	introduce(vqp, &message);
	policy_terms(&vqp->node->config, message.terms);
	peer_send(vqp->peer, &message);
}

void connect_send(struct hf_vqp *vqp)
{
	struct message message = {.kind = MESSAGE_CONNECT, .private_bytes = vqp->private_bytes};

	if (vqp->asked)
		return;
	vqp->asked = true;
	join(vqp, vqp->peer);
	if (vqp->wanted_num != 0) {
		say_join(vqp, false);
		return;
	}
	introduce(vqp, &message);
	memcpy(message.service, vqp->service, sizeof(message.service));
	policy_terms(&vqp->node->config, message.terms);
	if (vqp->private_bytes > 0)
		memcpy(message.private_data, vqp->private_data, vqp->private_bytes);
	peer_send(vqp->peer, &message);
	(void)keep_private(vqp, NULL, 0);
}

/* ---- why it was not connected ---- */

/* NULL, which hf_error_set takes: no memory for it. */
static struct hf_error *reason_of(struct hf_vqp *vqp)
{
	if (vqp->reason == NULL)
		vqp->reason = calloc(1, sizeof(*vqp->reason));
	return vqp->reason;
}

static void explain_refusal(struct hf_vqp *vqp, const struct message *message)
{
	struct hf_error *reason = reason_of(vqp);
	const char *who = hf_peer_name(vqp->peer);
	char ours[HF_NAME_BYTES];

	policy_terms(&vqp->node->config, ours);
	if (message->kind == MESSAGE_REFUSE && strcmp(ours, message->terms) != 0)
		hf_error_set(reason, 0,
			"node %s refused: its policy is '%s', that of this node %s is '%s'; both must have the same",
			who, message->terms, vqp->node->config.name, ours);
	else if (vqp->wanted_num != 0)
		hf_error_set(reason, 0, "node %s has no vqp %u for this one", who, vqp->wanted_num);
	else
		hf_error_set(reason, 0, "service '%s' of node %s refused", vqp->service, who);
	log_error("vqp %u: %s", vqp->num, hf_vqp_reason(vqp));
}

static void explain_silence(struct hf_vqp *vqp)
{
	struct hf_error *reason = reason_of(vqp);

	if (vqp->wanted_num != 0)
		hf_error_set(reason, 0, "nobody answered for vqp %u within the budget", vqp->wanted_num);
	else
		hf_error_set(reason, 0, "nobody answered for service '%s' within the budget", vqp->service);
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
	vqp_fail(vqp, IBV_WC_RETRY_EXC_ERR, IBV_WC_WR_FLUSH_ERR, false);
}

static struct hf_vqp *ask_service(struct hf_peer *peer, const struct message *message, struct message *answer)
{
	struct hf_vqp_request request = {
		.peer = peer, .private_data = message->private_data, .private_bytes = message->private_bytes};
	struct hf_node *node = peer->node;
	size_t reply_bytes = 0;
	struct hf_vqp *vqp = NULL;

	for (unsigned i = 0; i < node->service_count; i++)
		if (strcmp(node->services[i]->name, message->service) == 0)
			vqp = node->services[i]->on_request(
				&request, answer->private_data, &reply_bytes, node->services[i]->context);
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

static void on_join(struct hf_peer *peer, const struct message *message)
{
	struct hf_vqp *vqp = vqp_find(peer->node, message->to);
	struct message refuse = {.kind = MESSAGE_REFUSE, .to = message->from};

	policy_terms(&peer->node->config, refuse.terms);
	if (vqp != NULL && (vqp->state == HF_VQP_INIT || waits_for_another_incarnation(vqp, peer)))
		return;
	if (vqp == NULL || vqp->peer != peer || vqp->wanted_num != message->from || vqp->state == HF_VQP_ERROR ||
		!agrees(peer, refuse.terms, message->terms)) {
		peer_send(peer, &refuse);
		return;
	}
	if (!message->answer)
		say_join(vqp, true);
	if (vqp->state == HF_VQP_CONNECTING && vqp->remote_num == 0)
		begin(vqp, message);
}

static void on_connect(struct hf_peer *peer, const struct message *message)
{
	struct message answer = {.kind = MESSAGE_ACCEPT, .to = message->from};
	struct message refuse = {.kind = MESSAGE_REFUSE, .to = message->from};
	struct hf_vqp *vqp = NULL;

	policy_terms(&peer->node->config, refuse.terms);
	if (agrees(peer, refuse.terms, message->terms))
		vqp = ask_service(peer, message, &answer);
	if (vqp == NULL) {
		peer_send(peer, &refuse);
		return;
	}
	introduce(vqp, &answer);
	join(vqp, peer);
	vqp_move(vqp, HF_VQP_CONNECTING);
	peer_send(peer, &answer);
	begin(vqp, message);
}

void connect_message(struct hf_peer *peer, const struct message *message)
{
	struct hf_vqp *vqp;

	if (message->kind == MESSAGE_CONNECT) {
		if (message->from != 0)
			on_connect(peer, message);
		return;
	}
	if (message->kind == MESSAGE_JOIN) {
		if (message->from != 0)
			on_join(peer, message);
		return;
	}
	vqp = vqp_find(peer->node, message->to);
	if (vqp == NULL || vqp->peer != peer || !is_unanswered(vqp))
		return;
	if (message->kind == MESSAGE_REFUSE || message->from == 0) {
		explain_refusal(vqp, message);
		vqp_fail(vqp, IBV_WC_WR_FLUSH_ERR, IBV_WC_WR_FLUSH_ERR, false);
		return;
	}
	if (keep_private(vqp, message->private_data, message->private_bytes))
		begin(vqp, message);
	else
		vqp_fail(vqp, IBV_WC_GENERAL_ERR, IBV_WC_WR_FLUSH_ERR, true);
}
