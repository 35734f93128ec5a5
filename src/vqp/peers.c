/* What becomes of vqps when their peer comes, ends or loses a rail: what the layer registers with the node. */
#include "vqp/path/pool.h"

#include <stdlib.h>

#define SILENT_TOLD 64u /* vqps of one silence that the other side hears of at once */

struct hf_peer *peers_alloc(void)
{
	struct vqp_peer *peer = calloc(1, sizeof(*peer));

	return peer == NULL ? NULL : &peer->peer;
}

void peers_free(struct hf_peer *peer)
{
	pool_free_peer(peer);
	free(vqp_peer_of(peer)->regions);
	free(vqp_peer_of(peer));
}

void peers_up(struct hf_peer *peer)
{
	list_for_each (at, &vqps_of(peer->node)->vqps) {
		struct hf_vqp *vqp = container_of(at, struct hf_vqp, node_link);

		if (vqp_uses(vqp, peer))
			connect_send(vqp);
	}
}

/* Wrs that name a region wait until its keys are told. */
static void post_waiting(struct hf_peer *peer)
{
	vqp_peer_of(peer)->answered = false;
	list_for_each (at, &vqps_of(peer->node)->vqps) {
		struct hf_vqp *vqp = container_of(at, struct hf_vqp, node_link);

		if (vqp_uses(vqp, peer))
			post_pump(vqp);
	}
}

void peers_heard(struct hf_peer *peer)
{
	if (vqp_peer_of(peer)->answered)
		post_waiting(peer);
	(void)failover_drain(peer->node);
}

/* What was made beforehand was made under the lease that is over. The picker may have moved to it without notice, and
 * the device may keep no leases (D9): so it is fenced, and at each tick without contact again until the fence holds. */
static void withdraw_spares(struct hf_peer *peer)
{
	list_for_each (at, &vqps_of(peer->node)->vqps) {
		struct hf_vqp *vqp = container_of(at, struct hf_vqp, node_link);

		if (vqp->peer != peer)
			continue;
		rebuild_end(vqp, false, 0);
		for (unsigned rail = 0; rail < peer->node->rail_count; rail++) {
			backup_withdraw(vqp, rail);
			(void)backup_is_withdrawn(vqp, rail, hf_env_now_ns(peer->node->env));
		}
	}
	pool_break_peer(peer);
}

/* Traffic of a peer that may have been told that we fenced it ends here, also where no wr of ours would notice (R5). */
void peers_lease_over(struct hf_peer *peer)
{
	list_for_each (at, &vqps_of(peer->node)->vqps) {
		struct hf_vqp *vqp = container_of(at, struct hf_vqp, node_link);

		if (!vqp_uses(vqp, peer) || vqp->path->qp == NULL || vqp->path_broken)
			continue;
		if (vqp->lane >= 0 || !policy_recovers(vqp->node->config.policy))
			end_for(vqp, HF_VQP_END_PEER_GONE);
		if (policy_recovers(vqp->node->config.policy))
			failover_broken(vqp);
		else
			vqp_abort(vqp, IBV_WC_RETRY_EXC_ERR, IBV_WC_WR_FLUSH_ERR);
	}
	withdraw_spares(peer);
}

/* ---- its end ---- */

/* The standby qp ends with the peer: wrs in flight on it would never complete. */
static bool loses_wrs(const struct hf_vqp *vqp)
{
	if (vqp->path->shared == NULL)
		return false;
	if (vqp->path->qp != NULL)
		rail_cqs_drain(vqp->path->cqs);
	return !post_quiet(vqp);
}

/* The peer at that address, connected or being dialed. A peer that never answered has no successor: it was closed
 * because its node was connected already under another address. */
static struct hf_peer *successor(struct hf_peer *gone)
{
	struct hf_addr addresses[FRAME_ENDPOINTS_MAX];
	unsigned n = control_peer_addresses(gone->control, addresses);
	struct hf_peer *peer = NULL;

	for (unsigned i = 0; peer == NULL && i < n; i++)
		peer = hf_peer_find(gone->node, &addresses[i]);
	if (peer == NULL && hf_peer_name(gone)[0] != '\0')
		(void)hf_peer_connect(gone->node, addresses, n, &peer, NULL);
	return peer;
}

/* The program means the process that it has heard the number from: that may be the next one already, while we still
 * had the one before for it. False: there is no successor. */
static bool look_for_successor(struct hf_vqp *vqp, struct hf_peer *gone)
{
	struct hf_peer *peer = vqp->peer == gone && connect_waits(vqp) ? successor(gone) : NULL;

	if (peer != NULL)
		connect_move(vqp, peer);
	return peer != NULL;
}

/* It may have ended for itself only: then it executes what is under way until its lease is over. */
void peers_down(struct hf_peer *peer)
{
	bool over = control_peer_ended(peer->control);

	list_for_each (at, &vqps_of(peer->node)->vqps) {
		struct hf_vqp *vqp = container_of(at, struct hf_vqp, node_link);

		if (look_for_successor(vqp, peer))
			continue;
		if (vqp_uses(vqp, peer) && (loses_wrs(vqp) || !vqp_forsake(vqp))) {
			end_for(vqp, HF_VQP_END_PEER_GONE);
			vqp_fail_alone(vqp, IBV_WC_RETRY_EXC_ERR, IBV_WC_RETRY_EXC_ERR, !over && post_may_execute(vqp));
		}
		if (vqp->peer == peer) {
			/* Its turn or its probe's completion may come before the vqp is fenced. */
			rebuild_end(vqp, false, 0);
			region_leave(vqp);
			fence_queue_lose_peer(vqp, over);
		}
	}
}

void peers_closing(struct hf_peer *peer)
{
	list_for_each (at, &vqps_of(peer->node)->vqps) {
		struct hf_vqp *vqp = container_of(at, struct hf_vqp, node_link);

		if (vqp_uses(vqp, peer)) {
			end_for(vqp, HF_VQP_END_ASKED);
			vqp_fail_alone(vqp, IBV_WC_WR_FLUSH_ERR, IBV_WC_WR_FLUSH_ERR, post_may_execute(vqp));
		}
		if (vqp->peer == peer) {
			vqp_end_paths(vqp, true); /* BYE lets the peer report: nothing of it happens here any more */
			region_leave(vqp);
			fence_queue_lose_peer(vqp, !post_may_execute(vqp));
		}
	}
	pool_free_peer(peer);
}

bool peers_in_use(const struct hf_peer *peer)
{
	list_for_each (at, &vqps_of(peer->node)->vqps)
		if (container_of(at, struct hf_vqp, node_link)->peer == peer)
			return true;
	return false;
}

/* ---- its rails ---- */

/* What peers_rail_lost looks at, of a vqp that may not be in the cache. The end of the list is none, whose address does
 * no harm. */
static void fetch(const struct hf_vqp *vqp)
{
	__builtin_prefetch(&vqp->node_link);
	__builtin_prefetch(&vqp->peer);
	__builtin_prefetch(&vqp->state);
	__builtin_prefetch(&vqp->path);
	__builtin_prefetch(&vqp->own_path.rail);
	__builtin_prefetch(&vqp->fence_link, 1);
}

static bool is_there(const struct hf_vqp *vqp, const struct hf_peer *peer, unsigned rail)
{
	return vqp_uses(vqp, peer) && vqp->path->qp != NULL && vqp->path->rail == rail && !vqp->path_broken &&
	       !vqp->path_cut && policy_recovers(vqp->node->config.policy);
}

/* Every vqp on that rail: it is over when a port is down, and worth a look when only heartbeats are missing. */
void peers_rail_lost(struct hf_peer *peer, unsigned rail, bool ports_up)
{
	list_for_each (at, &vqps_of(peer->node)->vqps) {
		struct hf_vqp *vqp = container_of(at, struct hf_vqp, node_link);

		fetch(container_of(at->next, struct hf_vqp, node_link));
		if (!is_there(vqp, peer, rail))
			continue;
		if (ports_up)
			(void)post_probe(vqp);
		else
			failover_cut(vqp);
	}
}

/* Vqps in the exchange wait for nothing else, and atomics may have to move. */
bool peers_wait_for_rails(const struct hf_node *node)
{
	return !list_empty(&vqps_of(node)->recovering) || home_needed(node);
}

/* Its oldest wr has had no answer for half of the time after which the device gives up. */
static bool waits_for_long(const struct hf_vqp *vqp, uint64_t now_ns)
{
	const struct node_rail *rail = &vqp->node->rails[vqp->path->rail];

	return vqp->state == HF_VQP_UP && vqp->packets > 0 && now_ns - vqp->moved_ns >= node_rail_silence_ns(rail) / 2;
}

/* One wr was given up, and these were posted not much later: the other side hears of all of them at once. Where there
 * are thousands, of the others when their turn comes. */
static void end_silence(struct hf_peer *peer, unsigned rail, uint64_t now_ns)
{
	unsigned ended = 0;

	list_for_each (at, &vqps_of(peer->node)->vqps) {
		struct hf_vqp *vqp = container_of(at, struct hf_vqp, node_link);

		fetch(container_of(at->next, struct hf_vqp, node_link));
		if (!is_there(vqp, peer, rail) || !waits_for_long(vqp, now_ns))
			continue;
		if (ended++ < SILENT_TOLD)
			failover_broken(vqp);
		else
			failover_cut(vqp);
	}
	peer_flush(peer); /* the rest of the tick can wait: the other side may have to wake */
}

void peers_tick(struct hf_peer *peer, uint64_t now_ns)
{
	uint32_t silent = vqp_peer_of(peer)->silent;

	vqp_peer_of(peer)->silent = 0;
	for (; silent != 0; silent &= silent - 1)
		end_silence(peer, (unsigned)__builtin_ctz(silent), now_ns);
}
