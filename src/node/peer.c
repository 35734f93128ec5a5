/* A peer: its life, what is sent to it, and which layer its messages are for. */
#include "node/peer.h"

#include <errno.h>
#include <string.h>

#include "base/ensure.h"
#include "base/log.h"
#include "node/listeners.h"
#include "node/node.h"
#include "node/rail_describe.h"

/* First: our rails. */
struct node_message {
	struct message_head head;
	uint8_t rail_count;
	struct remote_rail rails[HF_RAILS_MAX];
	uint32_t up;      /* bit per rail of the sender */
	uint64_t wish_ns; /* the shortest lease of its layers; 0: none */
};

static const struct field remote_rail_fields[] = {
	FIELD_NAME(struct remote_rail, name),
	FIELD_NAME(struct remote_rail, kind),
	FIELD_BYTES(struct remote_rail, gid),
	FIELD_MAX(struct remote_rail, dc_mtu, IBV_MTU_4096),
	FIELD_ANY(struct remote_rail, dc_rd_atomic),
};
static const struct fields remote_rail_layout = FIELDS(remote_rail_fields);
static const struct field node_fields[] = {
	FIELD_MAX(struct node_message, rail_count, HF_RAILS_MAX),
	FIELD_LIST(struct node_message, rails, rail_count, &remote_rail_layout),
	FIELD_MAX(struct node_message, up, (1u << HF_RAILS_MAX) - 1),
	FIELD_ANY(struct node_message, wish_ns),
};

static void take_node(struct hf_peer *peer, const struct message_head *head);
static const struct message_kind node_kind =
	MESSAGE_KIND(MESSAGE_NODE, "NODE", struct node_message, node_fields, take_node);

void peer_register(struct message_kinds *kinds)
{
	message_register(kinds, &node_kind);
	peer_lease_register(kinds);
	peer_rails_register(kinds);
	channels_register(kinds);
}

struct hf_peer *peer_open(struct hf_node *node, struct control_peer *control)
{
	struct hf_peer *peer = node->layer->peer_alloc();

	if (peer == NULL)
		return NULL;
	peer->node = node;
	peer->control = control;
	for (unsigned i = 0; i < HF_RAILS_MAX; i++) {
		rail_init(&peer->rails[i]);
		peer->rail_map[i] = -1;
	}
	channels_peer_init(&peer->channels);
	for (unsigned i = 0; i < HF_RAILS_MAX; i++)
		peer->told[i] = RAIL_UNTOLD;
	list_push_back(&node->peers, &peer->node_link);
	return peer;
}

void peer_free_memory(struct hf_peer *peer)
{
	peer_lease_end(peer);
	for (unsigned i = 0; i < 2; i++)
		if (peer->node->own[i] == peer)
			peer->node->own[i] = NULL;
	list_remove(&peer->node_link);
	node_status_peers(peer->node);
	peer->node->layer->peer_free(peer);
}

void peer_flush(struct hf_peer *peer)
{
	if (peer->outbox.used == 0 || peer->control == NULL)
		return;
	(void)control_send(peer->control, peer->outbox.bytes, peer->outbox.used); /* or it goes down */
	peer->outbox.used = 0;
}

void peer_fail(struct hf_peer *peer, const char *why)
{
	peer->failed = true;
	control_peer_fail(peer->control, why);
}

void peer_send(struct hf_peer *peer, const struct message_head *message)
{
	if (peer->control == NULL || outbox_add(&peer->outbox, message))
		return;
	peer_flush(peer);
	ensure(outbox_add(&peer->outbox, message));
}

void peer_tick(struct hf_peer *peer, uint64_t now_ns)
{
	peer->node->layer->peer_tick(peer, now_ns);
	peer_rails_tick(peer, now_ns);
	detector_tick(peer, now_ns);
	peer_lease_tick(peer);
}

/* ---- what the control channel says ---- */

static void send_node(struct hf_peer *peer)
{
	struct hf_node *node = peer->node;
	struct node_message message = {.head = {.kind = &node_kind},
		.rail_count = (uint8_t)node->rail_count,
		.up = detector_up_mask(peer),
		.wish_ns = listeners_lease_ns(node)};

	for (unsigned i = 0; i < node->rail_count; i++) {
		union ibv_gid gid = hf_dev_gid(node->rails[i].dev);

		memcpy(message.rails[i].name, node->rails[i].config.name, HF_NAME_BYTES);
		memcpy(message.rails[i].kind, node->rails[i].config.kind, HF_NAME_BYTES);
		memcpy(message.rails[i].gid, gid.raw, sizeof(message.rails[i].gid));
		rail_describe(node->rails[i].dev, &message.rails[i]);
	}
	peer_send(peer, &message.head);
	peer->introduced = true;
}

static void on_up(struct control_peer *control, void *context)
{
	struct hf_node *node = context;
	struct hf_peer *peer = control_peer_context(control);

	if (peer == NULL) {
		peer = peer_open(node, control);
		if (peer == NULL) {
			control_peer_fail(control, "no memory for it");
			return;
		}
		control_peer_set_context(control, peer);
	}
	send_node(peer);
	channels_introduce(peer);
}

static void on_down(struct control_peer *control, void *context)
{
	struct hf_node *node = context;
	struct hf_peer *peer = control_peer_context(control);

	if (peer == NULL)
		return;
	node->layer->peer_down(peer);
	channels_peer_end(peer);
	listeners_peer_down(peer);
	peer_free_memory(peer);
}

static void on_died(struct control_peer *control, void *context)
{
	struct hf_peer *peer = control_peer_context(control);

	(void)context;
	if (peer != NULL && peer->up)
		listeners_peer_died(peer);
}

static void on_path(struct control_peer *control, unsigned endpoint, bool up, void *context)
{
	struct hf_node *node = context;
	struct hf_peer *peer = control_peer_context(control);

	if (peer == NULL || endpoint >= node->rail_count)
		return;
	peer->control_lost[endpoint] = !up;
	if (!node->switching)
		peer_refresh_rails(peer);
}

static void take_node(struct hf_peer *peer, const struct message_head *head)
{
	const struct node_message *message = (const void *)head;
	struct hf_node *node = peer->node;

	if (peer->up)
		return;
	peer->rail_count = message->rail_count;
	memcpy(peer->remote, message->rails, sizeof(peer->remote));
	peer->remote_up = message->up;
	for (unsigned i = 0; i < node->rail_count; i++) {
		rail_set_name(&peer->rails[i], node->rails[i].config.name, hf_peer_name(peer));
		for (unsigned k = 0; k < peer->rail_count; k++)
			if (strcmp(node->rails[i].config.name, peer->remote[k].name) == 0 &&
				strcmp(node->rails[i].config.kind, peer->remote[k].kind) == 0)
				peer->rail_map[i] = (int)k;
	}
	peer->up = true;
	node_status_peers(node);
	peer->wish_ns = message->wish_ns;
	peer_lease_begin(peer);
	peer_refresh_rails(peer);
	log_info("peer %s is up", hf_peer_name(peer));
	node->layer->peer_up(peer);
	listeners_peer_up(peer);
	node->rails_untold = true;
}

static void on_message(struct control_peer *control, const void *data, uint32_t bytes, void *context)
{
	const uint8_t *at = data, *end = at + bytes;
	struct hf_peer *peer = control_peer_context(control);
	union message message;

	(void)context;
	while (peer != NULL && !peer->failed && at != end) {
		if (!outbox_next(&peer->node->kinds, &at, end, &message) ||
			(!peer->up && message.head.kind != &node_kind)) {
			log_warn("peer %s sent malformed messages; they were dropped", hf_peer_name(peer));
			return;
		}
		message.head.kind->take(peer, &message.head);
	}
	if (peer != NULL)
		peer->node->layer->heard(peer);
	if (peer != NULL && !peer->node->hearing)
		peer_flush(peer); /* the other side may be waiting for these answers */
}

const struct control_events peer_control_events = {
	.up = on_up, .down = on_down, .message = on_message, .path = on_path, .died = on_died};

/* ---- the application's calls ---- */

static int connect_error(int rc, const struct hf_addr *first, struct hf_error *error)
{
	char text[HF_ADDR_TEXT];

	if (rc == -EINVAL)
		return hf_error_set(error, rc, "give at least one control address of the peer, and at most 16");
	if (rc == -EACCES)
		return hf_error_set(error, rc,
			"%s is not on this host and this node has neither secret nor TLS; "
			"give both nodes the same secret_file, or \"tls\"",
			hf_addr_format(first, text));
	return hf_error_set(error, rc, "no memory for another peer");
}

int hf_peer_connect(struct hf_node *node, const struct hf_addr *addresses, unsigned n, struct hf_peer **peer_out,
	struct hf_error *error)
{
	struct hf_peer *peer = peer_open(node, NULL);
	int rc = peer == NULL ? -ENOMEM : control_connect(node->control, addresses, n, peer, &peer->control);

	*peer_out = NULL;
	if (rc != 0) {
		if (peer != NULL)
			peer_free_memory(peer);
		return connect_error(rc, &addresses[0], error);
	}
	*peer_out = peer;
	return 0;
}

static int open_own(struct hf_node *node)
{
	struct control_peer *ends[2];
	int rc;

	for (unsigned i = 0; i < 2; i++)
		node->own[i] = peer_open(node, NULL);
	rc = node->own[0] == NULL || node->own[1] == NULL ? -ENOMEM : control_loop_back(node->control, ends);
	for (unsigned i = 0; i < 2; i++) {
		if (rc == 0) {
			node->own[i]->control = ends[i];
			control_peer_set_context(ends[i], node->own[i]);
		} else if (node->own[i] != NULL) {
			peer_free_memory(node->own[i]);
		}
	}
	return rc;
}

struct hf_peer *hf_peer_own(struct hf_node *node, unsigned end)
{
	if (end > 1 || (node->own[end] == NULL && open_own(node) != 0))
		return NULL;
	return node->own[end];
}

bool peer_comes_first(const struct hf_peer *peer)
{
	int order = strcmp(peer->node->config.name, hf_peer_name(peer));

	return order != 0 ? order < 0 : peer == peer->node->own[0];
}

struct hf_peer *hf_peer_find(struct hf_node *node, const struct hf_addr *address)
{
	struct control_peer *control = control_find(node->control, address);

	return control == NULL ? NULL : control_peer_context(control);
}

void hf_peer_close(struct hf_peer *peer)
{
	if (peer == NULL)
		return;
	channels_peer_end(peer);
	peer->node->layer->peer_closing(peer);
	peer_flush(peer);
	control_peer_close(peer->control);
	peer_free_memory(peer);
}

void hf_peer_close_unanswered(struct hf_node *node)
{
	list_for_each_safe (at, &node->peers) {
		struct hf_peer *peer = container_of(at, struct hf_peer, node_link);

		if (hf_peer_name(peer)[0] == '\0' && !node->layer->peer_in_use(peer))
			hf_peer_close(peer);
	}
}

const char *hf_peer_name(const struct hf_peer *peer)
{
	return control_peer_name(peer->control);
}

void hf_peer_set_context(struct hf_peer *peer, void *context)
{
	peer->context = context;
}

void *hf_peer_context(const struct hf_peer *peer)
{
	return peer->context;
}
