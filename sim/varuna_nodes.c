/* A node's program: its rails and memory, the peers and vqps of its links, and their renewal after an error. */
#include "sim/varuna.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/ensure.h"
#include "sim/device.h"
#include "vqp/path/pool.h"

#define CONTROL_PORT       7000u
#define END_BYTES          (4 * (size_t)VR_WINDOW)
#define WORDS_BYTES        4096u
#define POLL_MAX           16
#define LINGER_NS          (60 * NS_MS)
#define RETRY_NS           (5 * NS_MS)
#define QUIT_PPM           1000u /* of turns of a program, while it has wrs in flight on the vqp */
#define QUIT_UNTOLD_PPM    50000u
#define QUIT_STALLED_PPM   20000u /* and while the other end stands still */
#define CLOSE_OF           5u     /* one in so many of those that do not destroy the vqp closes the peer */
#define SERVICE            "links"
#define LAYER_PPM          700000u /* of changes after which a layer wants a lease */
#define LAYER_NS_MIN       (10 * NS_MS)
#define LAYER_NS_MAX       (300 * NS_MS)
#define LAYER_LEASE_NS_MAX (250 * NS_MS)
#define ACCESS             (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)

/* ---- ends of this node ---- */

static struct vr_end *end_of(struct vr_node *node, struct vr_link *link)
{
	if (link->ends[0].node == node)
		return &link->ends[0];
	return link->ends[1].node == node ? &link->ends[1] : NULL;
}

static struct vr_end *end_by_num(struct vr_node *node, uint32_t num)
{
	for (unsigned i = 0; i < node->vr->link_count; i++) {
		struct vr_end *end = end_of(node, &node->vr->links[i]);

		if (end != NULL && end->vqp != NULL && hf_vqp_num(end->vqp) == num)
			return end;
	}
	return NULL;
}

static bool connects(const struct vr_end *end)
{
	return end == &end->link->ends[0];
}

/* ---- peers ---- */

static void peer_up(struct hf_peer *peer, void *context)
{
	struct vr_node *node = context;

	for (unsigned i = 0; i < VR_NODES; i++)
		if (peer == node->peers[i])
			node->peer_is_up[i] = true;
}

static void peer_down(struct hf_peer *peer, void *context)
{
	struct vr_node *node = context;

	for (unsigned i = 0; i < VR_NODES; i++)
		if (peer == node->peers[i])
			node->peers[i] = NULL; /* closed behind us; its vqps are in error */
	node->peers_failed += node->vr->leases;
	if (node->vr->leases && node->vr->faults.count == 0 && !node->vr->closed)
		world_violate(node->vr->world, "calm", "a peer of %s ended without a fault", node->name);
}

static void connect_peer(struct vr_node *node, const struct vr_node *to)
{
	struct hf_addr addresses[VR_RAILS];
	struct hf_error error = {0};

	for (unsigned i = 0; i < node->vr->rail_count; i++) {
		addresses[i] = vr_port(to, i)->address;
		hf_addr_set_port(&addresses[i], CONTROL_PORT);
	}
	node->peer_is_up[to->index] = false;
	if (hf_peer_connect(node->endpoint.node, addresses, node->vr->rail_count, &node->peers[to->index], &error) != 0)
		world_violate(node->vr->world, "connecting", "%s", error.text);
}

/* ---- vqps ---- */

static void changed(struct hf_vqp *vqp, void *context)
{
	struct vr_end *end = context;

	if (end->link->vr->lingers && hf_vqp_state(vqp) == HF_VQP_UP) { /* as if its paths had failed many times */
		vqp->rebuild.backoff_ns = LINGER_NS;
		vqp->rebuild.failed_ns = hf_loop_now_ns(end->node->endpoint.loop);
	}
	world_note(end->link->vr->world, "vqp-state", (uint64_t)hf_vqp_state(vqp));
}

static bool make_vqp(struct vr_end *end)
{
	struct hf_vqp_init init = {
		.send_cq = end->node->endpoint.cq,
		.recv_cq = end->node->endpoint.cq,
		.cap = {.max_send_wr = connects(end) ? VR_DEPTH : VR_DEPTH + end->link->index % 2,
			.max_recv_wr = VR_SLOTS,
			.max_send_sge = 3,
			.max_recv_sge = 2,
			.max_inline_data = 64},
		.access = ACCESS,
		.context = end,
		.changed = changed,
	};

	end->receives_posted = 0;
	end->accepted = false;
	return hf_vqp_create(end->node->endpoint.pd, &init, &end->vqp) == 0;
}

static void connect_vqp(struct vr_end *end)
{
	uint8_t request[8];

	put_le32(request, end->link->index);
	put_le32(request + 4, ++end->link->attempt);
	if (!make_vqp(end) || hf_vqp_connect(end->vqp, end->node->peers[vr_other(end)->node->index], SERVICE, request,
				      sizeof(request)) != 0)
		world_violate(end->link->vr->world, "connecting", "a vqp cannot be made");
}

/* Refused as long as our former vqp of that link is there: its qps still serve the former flow. */
static struct hf_vqp *on_request(const struct hf_vqp_request *request, void *reply, size_t *reply_bytes, void *context)
{
	struct vr_node *node = context;
	const uint8_t *asked = request->private_data;
	struct vr_link *link;
	struct vr_end *end;

	(void)reply;
	*reply_bytes = 0;
	if (request->private_bytes != 8 || get_le32(asked) >= node->vr->link_count)
		return NULL;
	link = &node->vr->links[get_le32(asked)];
	end = end_of(node, link);
	if (end != &link->ends[1] || end->vqp != NULL || link->ends[0].vqp == NULL ||
		get_le32(asked + 4) != link->attempt || !make_vqp(end))
		return NULL;
	link->incidents = vr_incidents(link->ends[0].node) + vr_incidents(link->ends[1].node);
	vr_begin_flows(link);
	for (unsigned i = 0; i < 2; i++)
		vr_post_receives(&link->ends[i]);
	return end->vqp;
}

static void drop_vqp(struct vr_end *end)
{
	struct hf_vqp_counters counters;

	if (end->vqp == NULL)
		return;
	hf_vqp_counters(end->vqp, &counters);
	end->link->vr->failovers += counters.failovers;
	end->link->vr->unprovoked += end->link->culprits == 0 ? counters.failovers : 0;
	hf_vqp_destroy(end->vqp);
	end->vqp = NULL;
}

/* An error is for good: when every wr has completed, another vqp is made, and first another peer when that is what
 * was lost. */
static bool renew(struct vr_end *end, uint64_t now_ns)
{
	struct vr_node *node = end->node;
	unsigned other = vr_other(end)->node->index;

	if (end->vqp != NULL && hf_vqp_state(end->vqp) == HF_VQP_ERROR && vr_in_flight(end) == 0) {
		drop_vqp(end);
		end->retry_at_ns = now_ns + RETRY_NS;
		return true;
	}
	if (!connects(end) || end->vqp != NULL || now_ns < end->retry_at_ns || node->vr->stopping)
		return false;
	if (node->peers[other] == NULL)
		connect_peer(node, vr_other(end)->node);
	else if (node->peer_is_up[other])
		connect_vqp(end);
	else
		return false;
	return true;
}

static bool stands_still(const struct vr_node *node)
{
	return node->endpoint.process->paused || node->endpoint.host.suspended;
}

/* What is in flight is mostly in doubt when the other end stands still, or posts on a standby qp untold. */
static uint32_t quit_ppm(struct vr_end *end)
{
	if (end->vqp->awaits_go)
		return QUIT_UNTOLD_PPM;
	return stands_still(vr_other(end)->node) ? QUIT_STALLED_PPM : QUIT_PPM;
}

/* All vqps that the node has with that peer end; once hf_peer_close has returned, nothing happens here any more. */
static void close_peer(struct vr_node *node, struct hf_peer *peer)
{
	struct vr_end *ended[VR_LINKS];
	unsigned n = 0;

	for (unsigned i = 0; i < node->vr->link_count; i++) {
		struct vr_end *end = end_of(node, &node->vr->links[i]);

		if (end != NULL && end->vqp != NULL && end->vqp->peer == peer && end->accepted)
			ended[n++] = end;
	}
	for (unsigned i = 0; i < VR_NODES; i++)
		if (node->peers[i] == peer)
			node->peers[i] = NULL;
	node->vr->closed = true;
	hf_peer_close(peer);
	for (unsigned i = 0; i < n; i++) {
		ended[i]->link->quit = true;
		ended[i]->flow->requester_fenced = true;
		vr_other(ended[i])->flow->responder_fenced = true;
	}
}

/* Once hf_vqp_destroy has returned, nothing is told of what is in flight, and neither answers nor messages land. */
static bool quit(struct vr_end *end, uint64_t now_ns)
{
	struct vr *vr = end->link->vr;

	if (!vr->quits || vr->world->now_ns >= vr->faults.quiet_ns || end->vqp == NULL || vr_in_flight(end) == 0 ||
		hf_vqp_state(end->vqp) == HF_VQP_ERROR || !world_chance(vr->world, quit_ppm(end)))
		return false;
	end->link->quit = true;
	if (world_chance(vr->world, 500000)) {
		if (vr->short_budget && end->flow->count % CLOSE_OF == 0 && end->vqp->peer != NULL)
			close_peer(end->node, end->vqp->peer);
		else
			hf_vqp_abort(end->vqp);
		return true;
	}
	drop_vqp(end);
	end->flow->requester_fenced = true;
	vr_other(end)->flow->receives_closed = true;
	end->retry_at_ns = now_ns + RETRY_NS;
	return true;
}

/* ---- leases ---- */

/* A layer comes, goes, or wants another lease, under load; the worlds are calm at the end. */
static bool change_lease(struct vr_node *node, uint64_t now_ns)
{
	struct vr *vr = node->vr;
	struct hf_error error;

	if (!vr->leases || now_ns < node->layer_at_ns || node->vr->stopping)
		return false;
	if (node->listens)
		hf_node_unlisten(node->endpoint.node, &node->layer);
	node->listens = world_chance(vr->world, LAYER_PPM) && vr->world->now_ns < vr->faults.quiet_ns;
	node->layer =
		(struct hf_node_listener){.lease_ns = world_range(vr->world, VR_LEASE_MIN_NS, LAYER_LEASE_NS_MAX) >>
						      world_range(vr->world, 0, 3)};
	if (node->layer.lease_ns < VR_LEASE_MIN_NS)
		node->layer.lease_ns = VR_LEASE_MIN_NS;
	if (node->listens && hf_node_listen(node->endpoint.node, &node->layer, &error) != 0)
		world_violate(vr->world, "start", "node %s: %s", node->name, error.text);
	node->layer_at_ns = now_ns + world_range(vr->world, LAYER_NS_MIN, LAYER_NS_MAX);
	return true;
}

/* ---- the loop ---- */

static unsigned poll_cq(struct vr_node *node)
{
	struct ibv_wc wc[POLL_MAX];
	unsigned taken = 0;

	for (int n; (n = hf_vcq_poll(node->endpoint.cq, POLL_MAX, wc)) > 0; taken += (unsigned)n)
		for (int i = 0; i < n; i++) {
			struct vr_end *end = end_by_num(node, wc[i].qp_num);

			if (end != NULL)
				vr_take(end, &wc[i]);
		}
	return taken;
}

/* Brings many vqps onto a standby qp at once, without a fault that could be blamed for anything. */
static void trigger(struct vr_node *node)
{
	struct vr *vr = node->vr;

	if (vr->triggered || !vr->triggers)
		return;
	for (unsigned i = 0; i < vr->link_count; i++) {
		const struct vr_end *end = end_of(node, &vr->links[i]);

		if (end != NULL && (end->vqp == NULL || end->vqp->pool == NULL || list_empty(&end->vqp->pool->qps)))
			return;
	}
	for (unsigned i = 0; i < vr->node_count; i++)
		if (node->peers[i] != NULL && node->peer_is_up[i])
			vr->triggered |= hf_peer_trigger(node->peers[i], 0) == 0;
}

static enum hf_poll poll_node(struct hf_poller *poller, uint64_t now_ns)
{
	struct vr_node *node = container_of(poller, struct vr_node, endpoint.poller);
	bool busy = poll_cq(node) > 0;

	trigger(node);
	busy |= change_lease(node, now_ns);
	for (unsigned i = 0; i < node->vr->link_count; i++) {
		struct vr_end *end = end_of(node, &node->vr->links[i]);

		if (end == NULL)
			continue;
		busy |= renew(end, now_ns);
		busy |= quit(end, now_ns);
		busy |= vr_post(end, now_ns);
	}
	return busy ? HF_BUSY : HF_IDLE;
}

static void set_timer(struct vr_node *node, uint64_t now_ns)
{
	uint64_t due_ns = node->vr->leases && !node->vr->stopping ? node->layer_at_ns : UINT64_MAX;

	for (unsigned i = 0; i < node->vr->link_count; i++) {
		const struct vr_end *end = end_of(node, &node->vr->links[i]);

		if (end == NULL)
			continue;
		if (end->next_post_ns > now_ns && end->next_post_ns < due_ns)
			due_ns = end->next_post_ns;
		if (end->retry_at_ns > now_ns && end->retry_at_ns < due_ns)
			due_ns = end->retry_at_ns;
	}
	if (due_ns != UINT64_MAX)
		hf_loop_set_timer(node->endpoint.loop, &node->endpoint.timer, due_ns);
}

static bool arm_node(struct hf_poller *poller)
{
	struct vr_node *node = container_of(poller, struct vr_node, endpoint.poller);

	endpoint_arm(&node->endpoint);
	if (poll_cq(node) > 0)
		return false;
	set_timer(node, hf_loop_now_ns(node->endpoint.loop));
	return true;
}

/* ---- start and stop ---- */

static void configure(struct vr_node *node, struct hf_node_config *config)
{
	*config = node->vr->config;
	config->rail_count = node->vr->rail_count;
	config->lease_ns = node->lease_ns;
	snprintf(config->name, sizeof(config->name), "%s", node->name);
	for (unsigned i = 0; i < config->rail_count; i++) {
		struct hf_rail_config *rail = &config->rails[i];

		snprintf(rail->name, sizeof(rail->name), "r%u", i);
		snprintf(rail->kind, sizeof(rail->kind), "soft");
		rail->address = rail->control = vr_port(node, i)->address;
		hf_addr_set_port(&rail->control, CONTROL_PORT);
	}
}

static void lay_out(struct vr_node *node, size_t bytes)
{
	struct vr *vr = node->vr;
	uint8_t *at = node->memory + WORDS_BYTES;

	execution_own(&vr->execution, node->memory, bytes);
	node->words = calloc(1, sizeof(*node->words));
	ensure(node->words != NULL);
	node->words->at = (uint64_t *)(void *)node->memory;
	node->words->area = execution_add_area(&vr->execution, node->words->at, VR_WORDS * sizeof(uint64_t));
	list_push_back(&vr->words, &node->words->node);
	for (unsigned i = 0; i < vr->link_count; i++) {
		struct vr_end *end = end_of(node, &vr->links[i]);

		if (end == NULL)
			continue;
		end->memory = at;
		end->target = execution_add_area(&vr->execution, at, VR_WINDOW);
		at += END_BYTES;
	}
}

static int start_node(struct process *process, void *context)
{
	static const struct hf_node_events events = {.peer_up = peer_up, .peer_down = peer_down};
	struct vr_node *node = context;
	size_t bytes = WORDS_BYTES + node->vr->link_count * END_BYTES;
	struct hf_node_config config;
	int rc;

	(void)process;
	configure(node, &config);
	if ((rc = endpoint_open(&node->endpoint, &config, &events, node, 1024)) != 0 ||
		(rc = endpoint_register(&node->endpoint, bytes, IBV_ACCESS_LOCAL_WRITE | ACCESS, HF_ATOMIC_NATIVE)) !=
			0)
		return rc;
	node->memory = node->endpoint.memory;
	lay_out(node, bytes);
	for (unsigned i = 0; i < node->vr->rail_count; i++)
		execution_watch(&node->vr->execution, &nic_of(hf_node_dev(node->endpoint.node, i))->bus);
	node->service = (struct hf_vqp_service){.name = SERVICE, .on_request = on_request, .context = node};
	if ((rc = hf_vqp_serve(node->endpoint.node, &node->service)) != 0)
		return rc;
	endpoint_run(&node->endpoint, poll_node, arm_node);
	return 0;
}

static void stop_node(struct process *process, void *context)
{
	struct vr_node *node = context;

	(void)process;
	if (node->endpoint.loop == NULL)
		return;
	for (unsigned i = 0; i < node->vr->link_count; i++) {
		struct vr_end *end = end_of(node, &node->vr->links[i]);

		if (end == NULL)
			continue;
		drop_vqp(end);
		end->memory = NULL;
	}
	if (node->listens)
		hf_node_unlisten(node->endpoint.node, &node->layer);
	node->listens = false;
	endpoint_close(&node->endpoint);
	memset(node->peers, 0, sizeof(node->peers));
	node->memory = NULL;
}

const struct program vr_program = {.name = "varuna", .start = start_node, .stop = stop_node};
