/* What a user's own detectors say (Varuna, section 4): a rail to a peer is of no use, whatever its ports and heartbeats
 * say; or traffic is to leave it for once. The other side is told as of a port that is down, because either
 * side may pick the next rail. */
#include "node/node.h"
#include "node/peer.h"

#include <errno.h>

#include "base/log.h"

#define TRIGGER_NS 100000000ull /* as long as a rail is paused when a wr failed on it for the first time */

uint32_t detector_up_mask(const struct hf_peer *peer)
{
	return node_up_mask(peer->node) & ~peer->reported;
}

static void changed(struct hf_peer *peer)
{
	peer_say_ports(peer);
	peer_flush(peer);
	peer_refresh_rails(peer);
}

static int report(struct hf_peer *peer, unsigned rail, uint64_t until_ns, const char *what)
{
	if (rail >= peer->node->rail_count)
		return -EINVAL;
	peer->reported_until_ns[rail] = until_ns;
	if (peer->reported & 1u << rail)
		return 0;
	peer->reported |= 1u << rail;
	log_info("peer %s: rail %s is %s", hf_peer_name(peer), hf_node_rail_name(peer->node, rail), what);
	changed(peer);
	return 0;
}

int hf_peer_report(struct hf_peer *peer, unsigned rail)
{
	return report(peer, rail, UINT64_MAX, "reported bad");
}

int hf_peer_trigger(struct hf_peer *peer, unsigned rail)
{
	if (rail < peer->node->rail_count && (peer->reported & 1u << rail))
		return 0; /* traffic has left it already, and a report outlives a trigger */
	return report(peer, rail, hf_env_now_ns(peer->node->env) + TRIGGER_NS, "to be left for now");
}

int hf_peer_revoke(struct hf_peer *peer, unsigned rail)
{
	if (rail >= peer->node->rail_count)
		return -EINVAL;
	if ((peer->reported & 1u << rail) == 0)
		return 0;
	peer->reported &= ~(1u << rail);
	log_info("peer %s: rail %s may be used again", hf_peer_name(peer), hf_node_rail_name(peer->node, rail));
	changed(peer);
	return 0;
}

void detector_tick(struct hf_peer *peer, uint64_t now_ns)
{
	for (unsigned rail = 0; rail < peer->node->rail_count; rail++)
		if ((peer->reported & 1u << rail) && now_ns >= peer->reported_until_ns[rail])
			(void)hf_peer_revoke(peer, rail);
}
