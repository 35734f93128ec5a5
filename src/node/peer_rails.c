/* The rails to a peer: which of them can be used. */
#include "node/peer.h"

#include "node/listeners.h"
#include "node/node.h"

/* Pauses are for choosing among rails. Where every rail is paused each has its turn: the one that failed longest ago is
 * the best, not that whose pause ends first, which is the one that failed just now for the first time. */
static uint32_t failed_longest_ago(const struct hf_peer *peer)
{
	const struct rail *best = NULL;

	for (unsigned i = 0; i < peer->node->rail_count; i++) {
		const struct rail *rail = &peer->rails[i];

		if (rail->state == RAIL_PAUSED && (best == NULL || rail->failed_ns < best->failed_ns))
			best = rail;
	}
	return best == NULL ? 0 : 1u << (best - peer->rails);
}

uint32_t peer_usable(const struct hf_peer *peer)
{
	uint32_t usable = 0;

	for (unsigned i = 0; i < peer->node->rail_count; i++)
		if (peer->rails[i].state == RAIL_UP)
			usable |= 1u << i;
	return usable != 0 ? usable : failed_longest_ago(peer);
}

bool peer_ports_up(const struct hf_peer *peer, unsigned rail)
{
	return (detector_up_mask(peer) & 1u << rail) != 0 && peer->rail_map[rail] >= 0 &&
	       (peer->remote_up & 1u << peer->rail_map[rail]) != 0;
}

void peer_refresh_rails(struct hf_peer *peer)
{
	uint64_t now_ns = hf_loop_now_ns(peer->node->loop);
	struct rail_actions actions;
	bool soon = peer->node->layer->waits_for_rails(peer->node);

	peer->rails_changed = false;
	for (unsigned i = 0; peer->up && i < peer->node->rail_count; i++) {
		bool up = peer_ports_up(peer, i);

		rail_step(&peer->rails[i], up && !peer->control_lost[i] ? RAIL_EVENT_LINK_UP : RAIL_EVENT_LINK_DOWN,
			now_ns, &actions);
		soon = soon || actions.became_up;
		if (actions.became_unusable)
			peer->node->layer->rail_lost(peer, i, up);
		else if (!up)
			peer->node->layer->rail_lost(peer, i, false);
	}
	peer->node->rails_untold = true;
	if (soon) /* the others wait for nothing but the exchange, which begins now */
		node_tick_soon(peer->node);
}

enum hf_rail_cause hf_peer_rail(const struct hf_peer *peer, unsigned rail)
{
	if (rail >= peer->node->rail_count || !peer->up || peer->rail_map[rail] < 0)
		return HF_RAIL_PEER;
	if (!peer->node->rails[rail].up)
		return HF_RAIL_PORT_HERE;
	if ((peer->remote_up & 1u << peer->rail_map[rail]) == 0)
		return HF_RAIL_PORT_THERE;
	if (peer->reported & 1u << rail)
		return HF_RAIL_ASKED;
	return peer->rails[rail].state == RAIL_UP ? HF_RAIL_UP : HF_RAIL_PATH;
}

const char *hf_rail_cause_name(enum hf_rail_cause cause)
{
	static const char *const names[] = {[HF_RAIL_UP] = "up",
		[HF_RAIL_PEER] = "peer",
		[HF_RAIL_PORT_HERE] = "port here",
		[HF_RAIL_PORT_THERE] = "port there",
		[HF_RAIL_ASKED] = "asked",
		[HF_RAIL_PATH] = "path"};

	return names[cause];
}

bool hf_peer_reached(const struct hf_peer *peer)
{
	for (unsigned i = 0; peer->control != NULL && i < FRAME_ENDPOINTS_MAX; i++)
		if (control_path_up(peer->control, i))
			return true;
	return false;
}

bool hf_peer_died(const struct hf_peer *peer)
{
	return peer->control != NULL && control_peer_died(peer->control);
}

/* The rail of some peer whose cause was not told; NULL: there is none. */
static struct hf_peer *find_untold(struct hf_node *node, unsigned *rail_out)
{
	list_for_each (at, &node->peers) {
		struct hf_peer *peer = container_of(at, struct hf_peer, node_link);

		for (unsigned i = 0; peer->up && i < node->rail_count; i++)
			if (peer->told[i] != hf_peer_rail(peer, i)) {
				*rail_out = i;
				return peer;
			}
	}
	return NULL;
}

/* A callback may close other peers, so the list is read from its start after each. */
void peer_rails_tell(struct hf_node *node)
{
	struct hf_peer *peer;
	unsigned rail;

	if (!node->rails_untold)
		return;
	node->rails_untold = false;
	while ((peer = find_untold(node, &rail)) != NULL) {
		peer->told[rail] = hf_peer_rail(peer, rail);
		listeners_peer_rail(peer, rail, peer->told[rail]);
	}
}

/* What control says of its paths meanwhile is looked at when all is known. */
static void leave_control_path(struct hf_peer *peer, unsigned rail)
{
	peer->node->switching = true;
	control_path_suspect(peer->control, rail);
	peer->node->switching = false;
}

struct rails_message {
	struct message_head head;
	uint32_t up; /* bit per rail of the sender */
};
static const struct field rails_fields[] = {FIELD_MAX(struct rails_message, up, (1u << HF_RAILS_MAX) - 1)};

static void take_rails(struct hf_peer *peer, const struct message_head *head)
{
	const struct rails_message *message = (const void *)head;

	peer_ports(peer, message->up);
}

static const struct message_kind rails_kind =
	MESSAGE_KIND(MESSAGE_RAILS, "RAILS", struct rails_message, rails_fields, take_rails);

void peer_rails_register(struct message_kinds *kinds)
{
	message_register(kinds, &rails_kind);
}

void peer_say_ports(struct hf_peer *peer)
{
	const struct rails_message message = {.head = {.kind = &rails_kind}, .up = detector_up_mask(peer)};

	if (peer->introduced)
		peer_send(peer, &message.head);
}

int peer_our_rail(const struct hf_peer *peer, uint8_t theirs)
{
	for (unsigned i = 0; i < peer->node->rail_count; i++)
		if (peer->rail_map[i] == (int)theirs)
			return (int)i;
	return -1;
}

/* A port of theirs that is down carries no control either, which they know before we miss heartbeats. */
void peer_ports(struct hf_peer *peer, uint32_t up)
{
	if (up == peer->remote_up)
		return;
	peer->remote_up = up;
	for (unsigned i = 0; i < peer->node->rail_count; i++)
		if (peer->rail_map[i] >= 0 && (up & 1u << peer->rail_map[i]) == 0)
			leave_control_path(peer, i);
	peer_refresh_rails(peer);
}

/* What is said next is not to go there. What else that means, for others on that rail, is seen when the exchange that
 * begins now is on its way: at the end of the turn. */
void peer_suspect(struct hf_peer *peer, unsigned rail)
{
	bool lost = peer->control_lost[rail];

	leave_control_path(peer, rail);
	if (peer->control_lost[rail] == lost)
		return;
	peer->rails_changed = true;
	node_tick_soon(peer->node);
}

int peer_control_rail(const struct hf_peer *peer)
{
	int path = peer->control == NULL ? -1 : control_path_used(peer->control);

	return path < (int)peer->node->rail_count ? path : -1;
}

void peer_rails_tick(struct hf_peer *peer, uint64_t now_ns)
{
	struct rail_actions actions;

	if (peer->rails_changed)
		peer_refresh_rails(peer);
	for (unsigned i = 0; i < peer->node->rail_count; i++)
		rail_step(&peer->rails[i], RAIL_EVENT_TICK, now_ns, &actions);
	peer->node->rails_untold = true; /* wrs and time change them as well */
}
