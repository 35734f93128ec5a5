#include "vqp/path/rebuild.h"

#include "vqp/objects.h"

#define RUNNING_MAX 32u
#define LOOKS_MAX   16u         /* at waiting ones, a turn */
#define STORM_NS    50000000ull /* so long a failover goes before what is made in the background */
#define PATIENCE_NS 1000000000ull
#define BACKOFF_MIN 10000000ull
#define BACKOFF_MAX 250000000ull  /* messages may be waiting (R7) */
#define CALM_NS     5000000000ull /* without a failure for so long: the next backoff is a short one again */

void rebuild_init(struct hf_vqp *vqp)
{
	list_init(&vqp->rebuild.link);
}

static void leave(struct hf_vqp *vqp)
{
	struct rebuild *rebuild = &vqp->rebuild;

	if (rebuild->state > REBUILD_WAITING)
		vqps_of(vqp->node)->rebuilds.running_count--;
	list_remove(&rebuild->link);
	rebuild->state = REBUILD_NONE;
}

static void back_off(struct rebuild *rebuild, uint64_t now_ns)
{
	bool calm = now_ns - rebuild->failed_ns >= CALM_NS;

	rebuild->failed_ns = now_ns;
	rebuild->backoff_ns = rebuild->backoff_ns == 0 || calm ? BACKOFF_MIN : 2 * rebuild->backoff_ns;
	if (rebuild->backoff_ns > BACKOFF_MAX)
		rebuild->backoff_ns = BACKOFF_MAX;
}

void rebuild_want(struct hf_vqp *vqp, unsigned rail, uint64_t now_ns)
{
	struct rebuild *rebuild = &vqp->rebuild;

	if (rebuild->state == REBUILD_WAITING)
		rebuild->rail = rail;
	if (rebuild->state != REBUILD_NONE)
		return;
	rebuild->state = REBUILD_WAITING;
	rebuild->rail = rail;
	rebuild->at_ns = now_ns + rebuild->backoff_ns;
	list_push_back(&vqps_of(vqp->node)->rebuilds.waiting, &rebuild->link);
}

/* Messages wait for it (R7), so it is made on a rail that may be used; no vqp returns to a paused one. */
void rebuild_want_dedicated(struct hf_vqp *vqp, uint64_t now_ns)
{
	uint32_t usable = peer_usable(vqp->peer);

	rebuild_want(vqp,
		usable == 0 || (usable & 1u << vqp->path->rail) ? vqp->path->rail
								: (unsigned)rail_choose(home_rails(vqp, usable)),
		now_ns);
}

static bool message_waits(const struct hf_vqp *vqp)
{
	const struct request_log *log = &vqp->sends;

	return vqp->state == HF_VQP_UP && !vqp->forsaken && vqp->path->shared != NULL && log->next < log->tail &&
	       request_log_at(log, log->next)->message != 0;
}

bool rebuild_despairs(struct hf_vqp *vqp, uint64_t now_ns)
{
	struct rebuild *rebuild = &vqp->rebuild;
	bool waits = message_waits(vqp);

	/* It waits on during failovers from one standby qp to another. */
	if (rebuild->message != vqp->sends.next || (!waits && vqp->state == HF_VQP_UP))
		rebuild->message_ns = 0;
	if (waits && rebuild->message_ns == 0) {
		rebuild->message = vqp->sends.next;
		rebuild->message_ns = now_ns;
	}
	return waits && now_ns - rebuild->message_ns >= vqp->node->config.budget_ns;
}

/* It is of no use to start over at once. */
static void give_up(struct hf_vqp *vqp, uint64_t now_ns)
{
	struct path *path = &vqp->backup[vqp->rebuild.rail];

	if (!path->ready || vqp->rebuild.state == REBUILD_PROBING)
		path_destroy(vqp->node, path);
	leave(vqp);
	back_off(&vqp->rebuild, now_ns);
	if (vqp->path->shared != NULL)
		rebuild_want_dedicated(vqp, now_ns);
}

static void swap(struct hf_vqp *vqp)
{
	vqp->rebuild.state = REBUILD_SWAPPING;
	vqp->rebuild.at_ns = UINT64_MAX; /* the exchange has a budget of its own */
	marks_rebuild(vqp);
}

static void probe_failed(struct hf_vqp *vqp)
{
	uint64_t now_ns = hf_loop_now_ns(vqp->node->loop);
	bool in_use = vqp->path->qp != NULL && vqp->path->rail == vqp->rebuild.rail;
	struct rail_actions ignored;

	rail_step(&vqp->peer->rails[vqp->rebuild.rail], RAIL_EVENT_WC_ERROR, now_ns, &ignored);
	give_up(vqp, now_ns);
	/* A message waits for this qp, with nothing before it in flight: nothing else finds that the rail is silent. */
	if (in_use && vqp->state == HF_VQP_UP && vqp->recovery.state == RECOVERY_IDLE)
		marks_broken(vqp);
}

static void probe(struct hf_vqp *vqp)
{
	struct path *path = &vqp->backup[vqp->rebuild.rail];

	vqp->rebuild.state = REBUILD_PROBING;
	vqp->rebuild.answered = false;
	path_activate(path);
	if (!post_may_probe(vqp))
		swap(vqp);
	else if (!post_probe_on(vqp, path))
		probe_failed(vqp);
}

static void start(struct hf_vqp *vqp, uint64_t now_ns)
{
	struct rebuild *rebuild = &vqp->rebuild;
	struct path *path = &vqp->backup[rebuild->rail];

	rebuild->state = REBUILD_OFFERED;
	rebuild->at_ns = now_ns + PATIENCE_NS;
	list_push_back(&vqps_of(vqp->node)->rebuilds.running, &rebuild->link);
	vqps_of(vqp->node)->rebuilds.running_count++;
	if (vqp->state != HF_VQP_UP || vqp->recovery.state != RECOVERY_IDLE ||
		(peer_usable(vqp->peer) & 1u << rebuild->rail) == 0)
		leave(vqp);
	else if (path->ready)
		probe(vqp);
	else if (path->qp == NULL && !backup_offer(vqp, rebuild->rail))
		give_up(vqp, now_ns);
}

bool rebuild_drain(struct hf_vqp *vqp)
{
	struct rebuild *rebuild = &vqp->rebuild;

	if (rebuild->state == REBUILD_OFFERED && vqp->backup[rebuild->rail].ready)
		probe(vqp);
	if (rebuild->state == REBUILD_PROBING && rebuild->answered) {
		if (!rebuild->came_through)
			probe_failed(vqp);
		else if (vqp->recovery.state == RECOVERY_IDLE)
			swap(vqp);
		else
			give_up(vqp, hf_loop_now_ns(vqp->node->loop));
	}
	return rebuild->state == REBUILD_SWAPPING && vqp->recovery.state == RECOVERY_IDLE;
}

void rebuild_end(struct hf_vqp *vqp, bool path_failed, uint64_t now_ns)
{
	struct rebuild *rebuild = &vqp->rebuild;

	if (path_failed)
		back_off(rebuild, now_ns);
	if (rebuild->state == REBUILD_NONE)
		return;
	if (!vqp->backup[rebuild->rail].ready || rebuild->state == REBUILD_PROBING)
		path_destroy(vqp->node, &vqp->backup[rebuild->rail]);
	leave(vqp);
}

/* Others stand still and need the core. Those that begin to recover join the end of the list, and of what is there a
 * running swap is the only kind that is no failover. */
static bool failovers_go_on(const struct hf_node *node, uint64_t now_ns)
{
	unsigned looks = 0;

	for (struct list *at = vqps_of(node)->recovering.prev; at != &vqps_of(node)->recovering && looks <= RUNNING_MAX;
		at = at->prev) {
		const struct hf_vqp *vqp = container_of(at, struct hf_vqp, recovering_link);

		looks++;
		if (vqp->state == HF_VQP_RECOVERING && vqp->recovery.kind == RECOVERY_FAILOVER &&
			now_ns < vqp->recovery.since_ns + STORM_NS)
			return true;
	}
	return false;
}

bool rebuild_turn(struct hf_node *node, uint64_t now_ns)
{
	struct rebuilds *rebuilds = &vqps_of(node)->rebuilds;
	bool started = false;

	if (list_empty(&rebuilds->waiting) || failovers_go_on(node, now_ns))
		return false;
	for (unsigned i = 0; i < LOOKS_MAX && rebuilds->running_count < RUNNING_MAX; i++) {
		struct list *at = list_pop_front(&rebuilds->waiting);
		struct hf_vqp *vqp = at == NULL ? NULL : container_of(at, struct hf_vqp, rebuild.link);

		if (vqp == NULL)
			break;
		if (now_ns < vqp->rebuild.at_ns) {
			list_push_back(&rebuilds->waiting, at);
			continue;
		}
		start(vqp, now_ns);
		started = true;
	}
	return started;
}

void rebuild_tick(struct hf_node *node, uint64_t now_ns)
{
	list_for_each_safe (at, &vqps_of(node)->rebuilds.running) {
		struct hf_vqp *vqp = container_of(at, struct hf_vqp, rebuild.link);

		if (now_ns >= vqp->rebuild.at_ns && vqp->rebuild.state != REBUILD_SWAPPING)
			give_up(vqp, now_ns);
	}
}
