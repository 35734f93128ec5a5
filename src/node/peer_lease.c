/* The lease of a peer (docs/protocol.md, R5): the work here of a peer without contact for so long ends, and its qps
 * execute nothing from then on. The devices that can (HF_DEV_LEASE) keep it by themselves, also while this process or
 * this loop stands still. */
#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "node/listeners.h"
#include "node/node.h"
#include "node/peer.h"

struct lease_message { /* lease.h */
	struct message_head head;
	uint64_t stamp, echo, lease_ns;
	uint64_t wish_ns; /* the shortest lease of the sender's layers; 0: none */
};

static const struct field lease_fields[] = {
	FIELD_ANY(struct lease_message, stamp),
	FIELD_ANY(struct lease_message, echo),
	FIELD_MAX(struct lease_message, lease_ns, LEASE_NS_MAX),
	FIELD_ANY(struct lease_message, wish_ns),
};

static void take_lease(struct hf_peer *peer, const struct message_head *head);
static const struct message_kind lease_kind =
	MESSAGE_KIND(MESSAGE_LEASE, "LEASE", struct lease_message, lease_fields, take_lease);

void peer_lease_register(struct message_kinds *kinds)
{
	message_register(kinds, &lease_kind);
}

static uint64_t clock_now(const struct hf_peer *peer)
{
	return hf_env_boot_ns(peer->node->env);
}

static void say(struct hf_peer *peer, uint64_t now_ns)
{
	const struct lease_message message = {.head = {.kind = &lease_kind},
		.stamp = now_ns,
		.echo = peer->lease.stamp,
		.lease_ns = lease_promise(&peer->lease, now_ns),
		.wish_ns = listeners_lease_ns(peer->node)};

	lease_sent(&peer->lease, now_ns);
	peer_send(peer, &message.head);
}

/* The devices' leases begin with the next contact. */
static void open_leases(struct hf_peer *peer)
{
	struct hf_node *node = peer->node;

	for (unsigned i = 0; i < node->rail_count; i++) {
		int rc = hf_lease_open(node->rails[i].dev, &peer->leases[i]);

		if (rc != 0 && rc != -EOPNOTSUPP)
			log_warn("peer %s: no lease on rail %s: %s; its requests may execute late here",
				hf_peer_name(peer), hf_node_rail_name(node, i), strerror(-rc));
	}
}

static void close_leases(struct hf_peer *peer)
{
	for (unsigned i = 0; i < peer->node->rail_count; i++) {
		hf_lease_close(peer->leases[i]);
		peer->leases[i] = NULL;
	}
}

static void lapse(struct hf_peer *peer)
{
	log_warn("peer %s: no contact for %llu ms: its queue pairs are fenced, and replaced when it returns",
		hf_peer_name(peer), (unsigned long long)(peer->lease.ours_ns / 1000000));
	close_leases(peer);
	open_leases(peer);
	peer->lease_begun = false;
	peer->lease.until_ns = 0;
	peer->node->layer->lease_over(peer);
	say(peer, clock_now(peer));
}

static void extend(struct hf_peer *peer)
{
	uint64_t until_ns = lease_extended(&peer->lease);
	bool over = false;

	for (unsigned i = 0; i < peer->node->rail_count; i++)
		over |= peer->leases[i] != NULL && hf_lease_extend(peer->leases[i], until_ns) != 0;
	if (over)
		lapse(peer);
	peer->lease_begun = !over;
}

static uint64_t shorter_ns(uint64_t lease_ns, uint64_t wish_ns)
{
	return wish_ns != 0 && wish_ns < lease_ns ? wish_ns : lease_ns;
}

/* The shortest of the configuration, of layers here, and of layers there as long as heartbeats fit into it. */
static uint64_t wanted_ns(const struct hf_peer *peer)
{
	uint64_t lease_ns = shorter_ns(peer->node->config.lease_ns, listeners_lease_ns(peer->node));
	uint64_t least_ns = listeners_least_lease_ns(peer->node);

	return shorter_ns(lease_ns, peer->wish_ns != 0 && peer->wish_ns < least_ns ? least_ns : peer->wish_ns);
}

void peer_refresh_lease(struct hf_peer *peer)
{
	if (peer->up)
		lease_want(&peer->lease, wanted_ns(peer));
}

void peer_lease_begin(struct hf_peer *peer)
{
	lease_init(&peer->lease, wanted_ns(peer), clock_now(peer));
	open_leases(peer);
	extend(peer);
	say(peer, clock_now(peer)); /* before anything that the other side may answer with traffic */
}

void peer_lease_end(struct hf_peer *peer)
{
	close_leases(peer);
}

/* By the clock, not by the turn, which may have begun before the message was sent. Where contact was lost the other
 * side's lease may be over, and its traffic waits for our answer; and when ours begins, so may its. A change is
 * answered at once: stamps may be too rare for it. */
static void take_lease(struct hf_peer *peer, const struct message_head *head)
{
	const struct lease_message *message = (const void *)head;
	uint64_t contact_ns = peer->lease.contact_ns, now_ns = clock_now(peer);
	bool answer = lease_was_silent(&peer->lease, now_ns), begun = peer->lease_begun;

	lease_hear(&peer->lease, message->stamp, message->echo, message->lease_ns, now_ns);
	if (message->wish_ns != peer->wish_ns) {
		peer->wish_ns = message->wish_ns;
		peer_refresh_lease(peer);
	}
	if (peer->lease.contact_ns != contact_ns && !lease_expired(&peer->lease, now_ns))
		extend(peer);
	if (peer->lease.urgent)
		node_tick_soon(peer->node); /* ticks go by the shortest lease */
	if (answer || (peer->lease_begun && !begun) || peer->lease.urgent)
		say(peer, now_ns);
}

uint64_t peer_lease_until_ns(const struct hf_peer *peer)
{
	return peer->lease.contact_ns + peer->lease.ours_ns;
}

/* Of a peer that stays, the layer alone has ended. One that is closed here, or failed, may run on. */
uint64_t peer_lease_over_ns(const struct hf_peer *peer)
{
	if (peer->channels.introduced || control_peer_ended(peer->control) || peer->lease.theirs_ns == 0)
		return 0;
	return peer->lease.heard_ns + lease_with_margin(peer->lease.theirs_ns);
}

void peer_lease_tick(struct hf_peer *peer)
{
	uint64_t now_ns = clock_now(peer);

	if (!peer->up)
		return;
	if (lease_expired(&peer->lease, now_ns) && peer->lease_begun)
		lapse(peer);
	else if (lease_expired(&peer->lease, now_ns))
		peer->node->layer->lease_over(peer);
	if (lease_must_send(&peer->lease, now_ns))
		say(peer, now_ns);
	if (lease_is_silent(&peer->lease, now_ns) && listeners_lease_ns(peer->node) != 0 && !peer->failed)
		peer_fail(peer, "no message arrived for the length of its lease");
}
