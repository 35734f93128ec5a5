/* The owner moves the home of a domain (home.h): when, whereto, and in which order. */
#include "base/log.h"
#include "vqp/atomic/home.h"
#include "vqp/atomic/owner.h"

/* Its peer may do atomics on what is ours. */
static bool concerns(const struct hf_vpd *pd, const struct hf_vqp *vqp)
{
	return vqp->pd == pd && (vqp->access & IBV_ACCESS_REMOTE_ATOMIC) != 0 && vqp->peer != NULL &&
	       vqp_uses(vqp, vqp->peer);
}

struct move_message {
	struct message_head head;
	uint8_t rail; /* of the sender */
};
static const struct field move_fields[] = {FIELD_MAX(struct move_message, rail, HF_RAILS_MAX - 1)};

static void take_move(struct hf_vqp *vqp, const struct message_head *head)
{
	const struct move_message *move = (const void *)head;

	vqp->home_rail = peer_our_rail(vqp->peer, move->rail);
	node_tick_soon(vqp->node);
}

static const struct vqp_kind move_kind = VQP_KIND(MESSAGE_MOVE, "MOVE", struct move_message, move_fields, take_move);

struct homes_message {
	struct message_head head;
	uint32_t rails; /* of the sender, as bits */
};
static const struct field homes_fields[] = {FIELD_MAX(struct homes_message, rails, HOMES_ALL)};

static void take_homes(struct hf_vqp *vqp, const struct message_head *head)
{
	const struct homes_message *homes = (const void *)head;

	vqp->homes_theirs = 0;
	for (unsigned rail = 0; rail < vqp->node->rail_count; rail++)
		if (vqp->peer->rail_map[rail] >= 0 && (homes->rails & 1u << vqp->peer->rail_map[rail]) != 0)
			vqp->homes_theirs |= 1u << rail;
	node_tick_soon(vqp->node);
}

static const struct vqp_kind homes_kind =
	VQP_KIND(MESSAGE_HOMES, "HOMES", struct homes_message, homes_fields, take_homes);

void home_register(struct message_kinds *kinds)
{
	message_register(kinds, &move_kind.kind);
	message_register(kinds, &homes_kind.kind);
}

/* ---- leaving ---- */

/* Nothing arrives through the qp that it had when the move began. */
static bool has_left(const struct hf_vqp *vqp)
{
	return !vqp->home_leaves || vqp->path->qp == NULL ||
	       (vqp->path_broken && !vqp_is_fencing(vqp) && !vqp_is_ending(vqp));
}

static void ask_to_leave(struct hf_vqp *vqp, int rail)
{
	struct move_message message = {.head = kinds_head(vqp, &move_kind), .rail = (uint8_t)rail};

	if (!vqp->recovery.picks)
		peer_send(vqp->peer, &message.head);
}

static void begin(struct hf_vpd *pd, int rail, uint64_t now_ns)
{
	log_info("node %s: atomics move from rail %s to %s", pd->node->config.name,
		hf_node_rail_name(pd->node, (unsigned)pd->home.rail), hf_node_rail_name(pd->node, (unsigned)rail));
	pd->home.next = rail;
	pd->home.since_ns = now_ns;
	region_announce_home(pd);
	list_for_each (at, &vqps_of(pd->node)->vqps) {
		struct hf_vqp *vqp = container_of(at, struct hf_vqp, node_link);

		if (vqp->pd != pd || !home_binds(vqp))
			continue;
		/* The other side may take it without having heard of the move; one made from now on, it has. */
		backup_withdraw(vqp, (unsigned)pd->home.rail);
		vqp->home_leaves = vqp->path->qp != NULL && (int)vqp->path->rail == pd->home.rail;
		if (vqp->home_leaves && concerns(pd, vqp))
			ask_to_leave(vqp, rail);
	}
}

static uint64_t patience_ns(const struct hf_node *node)
{
	return node->config.heartbeat_ns * (node->config.heartbeat_misses + 1);
}

static void advance(struct hf_vpd *pd, uint64_t now_ns)
{
	bool late = now_ns - pd->home.since_ns > patience_ns(pd->node), all_left = true;

	list_for_each (at, &vqps_of(pd->node)->vqps) {
		struct hf_vqp *vqp = container_of(at, struct hf_vqp, node_link);

		if (vqp->pd != pd)
			continue;
		all_left = backup_is_withdrawn(vqp, (unsigned)pd->home.rail, now_ns) && all_left;
		if (has_left(vqp))
			continue;
		all_left = false;
		if (late && vqp->state == HF_VQP_UP && !vqp->path_broken)
			marks_broken(vqp);
	}
	if (!owner_left(pd) || !all_left)
		return;
	pd->home.rail = pd->home.next;
	pd->home.next = -1;
	pd->home.since_ns = now_ns;
	region_move_home(pd);
}

/* ---- whereto ---- */

struct votes {
	unsigned can[HF_RAILS_MAX];    /* vqps that can come */
	unsigned stable[HF_RAILS_MAX]; /* of them, for so long that they may as well return */
	unsigned named[HF_RAILS_MAX];  /* of them, those whose own home may be there */
};

static void count(const struct hf_vpd *pd, uint64_t now_ns, struct votes *votes)
{
	*votes = (struct votes){0};
	list_for_each (at, &vqps_of(pd->node)->vqps) {
		const struct hf_vqp *vqp = container_of(at, struct hf_vqp, node_link);
		uint32_t usable = concerns(pd, vqp) ? peer_usable(vqp->peer) : 0;

		for (unsigned rail = 0; rail < pd->node->rail_count; rail++) {
			if ((usable & 1u << rail) == 0)
				continue;
			votes->can[rail]++;
			votes->named[rail] += (vqp->homes_theirs & 1u << rail) != 0;
			votes->stable[rail] +=
				now_ns - vqp->peer->rails[rail].up_since_ns >= pd->node->config.failback_ns;
		}
	}
}

static bool is_better(const struct votes *votes, unsigned rail, unsigned than)
{
	return votes->can[rail] > votes->can[than] ||
	       (votes->can[rail] == votes->can[than] && votes->named[rail] > votes->named[than]);
}

/* The rails on which most peers can reach it. */
static void tell_homes(struct hf_vpd *pd, const struct votes *votes)
{
	struct homes_message message = {0};
	unsigned most = 0;

	for (unsigned rail = 0; rail < pd->node->rail_count; rail++)
		most = votes->can[rail] > most ? votes->can[rail] : most;
	for (unsigned rail = 0; rail < pd->node->rail_count; rail++)
		message.rails |= votes->can[rail] == most ? 1u << rail : 0;
	if (message.rails == (1u << pd->node->rail_count) - 1)
		message.rails = HOMES_ALL;
	list_for_each (at, &vqps_of(pd->node)->vqps) {
		struct hf_vqp *vqp = container_of(at, struct hf_vqp, node_link);

		if (!concerns(pd, vqp) || vqp->state != HF_VQP_UP || vqp->homes_told == message.rails)
			continue;
		vqp->homes_told = message.rails;
		message.head = kinds_head(vqp, &homes_kind);
		peer_send(vqp->peer, &message.head);
	}
}

static void decide(struct hf_vpd *pd, uint64_t now_ns)
{
	struct votes votes;
	unsigned most = 0, home = (unsigned)pd->home.rail;
	uint32_t up = node_up_mask(pd->node);

	count(pd, now_ns, &votes);
	tell_homes(pd, &votes);
	for (unsigned rail = 1; rail < pd->node->rail_count; rail++)
		if (is_better(&votes, rail, most))
			most = rail;
	if (votes.can[most] == 0) /* no peer has a say: for the owner's own */
		most = pd->node->rails[home].up || up == 0 ? home : (unsigned)rail_choose(up);
	if (is_better(&votes, most, home) || (votes.can[most] == 0 && most != home))
		begin(pd, (int)most, now_ns);
	else if (most < home && votes.stable[most] == votes.can[home] && votes.can[home] > 0 &&
		 now_ns - pd->home.since_ns >= pd->node->config.failback_ns)
		begin(pd, (int)most, now_ns);
}

void home_tick(struct hf_node *node, uint64_t now_ns)
{
	list_for_each (at, &vqps_of(node)->vpds) {
		struct hf_vpd *pd = container_of(at, struct hf_vpd, node_link);

		if (pd->home.rail < 0 || !policy_recovers(node->config.policy))
			continue;
		if (pd->home.next >= 0)
			advance(pd, now_ns);
		else
			decide(pd, now_ns);
		owner_tick(pd);
	}
}
