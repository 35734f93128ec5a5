#include "node/listeners.h"

#include <errno.h>

#include "node/node.h"
#include "node/peer.h"

/* A callback may end any listener, the next one included: hf_node_unlisten looks after next_listener. */
static struct hf_node_listener *next(struct hf_node *node)
{
	struct hf_node_listener *listener = node->next_listener;

	if (listener != NULL)
		node->next_listener = listener->next;
	return listener;
}

static struct hf_node_listener *first(struct hf_node *node)
{
	node->next_listener = &node->program;
	return next(node);
}

void listeners_peer_up(struct hf_peer *peer)
{
	for (struct hf_node_listener *at = first(peer->node); at != NULL; at = next(peer->node))
		if (at->events.peer_up != NULL)
			at->events.peer_up(peer, at->context);
}

void listeners_peer_down(struct hf_peer *peer)
{
	for (struct hf_node_listener *at = first(peer->node); at != NULL; at = next(peer->node))
		if (at->events.peer_down != NULL)
			at->events.peer_down(peer, at->context);
}

void listeners_peer_died(struct hf_peer *peer)
{
	for (struct hf_node_listener *at = first(peer->node); at != NULL; at = next(peer->node))
		if (at->events.peer_died != NULL)
			at->events.peer_died(peer, at->context);
}

void listeners_peer_rail(struct hf_peer *peer, unsigned rail, enum hf_rail_cause cause)
{
	for (struct hf_node_listener *at = first(peer->node); at != NULL; at = next(peer->node))
		if (at->events.peer_rail != NULL)
			at->events.peer_rail(peer, rail, cause, at->context);
}

void listeners_rail_changed(struct hf_node *node, unsigned rail, bool up)
{
	for (struct hf_node_listener *at = first(node); at != NULL; at = next(node))
		if (at->events.rail_changed != NULL)
			at->events.rail_changed(node, rail, up, at->context);
}

void listeners_device_died(struct hf_node *node, unsigned rail)
{
	for (struct hf_node_listener *at = first(node); at != NULL; at = next(node))
		if (at->events.device_died != NULL)
			at->events.device_died(node, rail, at->context);
}

uint64_t listeners_lease_ns(const struct hf_node *node)
{
	uint64_t least_ns = 0;

	for (const struct hf_node_listener *at = &node->program; at != NULL; at = at->next)
		if (at->lease_ns != 0 && (least_ns == 0 || at->lease_ns < least_ns))
			least_ns = at->lease_ns;
	return least_ns;
}

uint64_t listeners_least_lease_ns(const struct hf_node *node)
{
	return 2 * node->config.heartbeat_ns * node->config.heartbeat_misses;
}

static void refresh_leases(struct hf_node *node)
{
	list_for_each (at, &node->peers)
		peer_refresh_lease(container_of(at, struct hf_peer, node_link));
	node_tick_soon(node);
}

int hf_node_listen(struct hf_node *node, struct hf_node_listener *listener, struct hf_error *error)
{
	uint64_t least_ns = listeners_least_lease_ns(node);
	struct hf_node_listener **at = &node->program.next;

	if (listener->lease_ns != 0 && listener->lease_ns < least_ns)
		return hf_error_set(error, -EINVAL,
			"a lease of %llu ms is too short: it must be at least 2 x heartbeat_ms x heartbeat_misses, "
			"here %llu ms",
			(unsigned long long)(listener->lease_ns / 1000000), (unsigned long long)(least_ns / 1000000));
	while (*at != NULL)
		at = &(*at)->next;
	listener->next = NULL;
	*at = listener;
	refresh_leases(node);
	return 0;
}

void hf_node_unlisten(struct hf_node *node, struct hf_node_listener *listener)
{
	struct hf_node_listener **at = &node->program.next;

	while (*at != NULL && *at != listener)
		at = &(*at)->next;
	if (*at == NULL)
		return;
	*at = listener->next;
	if (node->next_listener == listener)
		node->next_listener = listener->next;
	refresh_leases(node);
}
