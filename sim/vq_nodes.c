/* The client's and the server's program. */
#include "sim/vq.h"

#include <holdfast/grant.h>

#include <stdio.h>

#include "base/bytes.h"
#include "base/ensure.h"

#define CONTROL_PORT    7000u
#define MEMORY_BYTES    ((VQ_OPS_MAX + VQ_RECEIVES + 1) * (size_t)VQ_SLOT_BYTES)
#define POLL_MAX        16
#define OPS_KEPT        40u /* of VQ_OPS_MAX, until all has healed */
#define REST_NS_MAX     (2 * NS_MS)
#define RETRY_NS        (5 * NS_MS)
#define HEARTBEAT_NS    (5 * NS_MS)
#define FAILBACK_NS     (20 * NS_MS)
#define QP_TIMEOUT      8 /* 1 ms */
#define QP_RETRY_CNT    2
#define GRANTED         (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)
#define GRANT_NS_MAX    (20 * NS_MS)
#define WITHDRAW_NS_MAX (200 * NS_MS)
#define SERVICE         "slots"

/* ---- the client: connecting ---- */

static void peer_up(struct hf_peer *peer, void *context)
{
	struct vq_side *side = context;

	if (peer == side->client.peer)
		side->client.peer_is_up = true;
}

static void peer_down(struct hf_peer *peer, void *context)
{
	struct vq_side *side = context;

	if (peer == side->client.peer)
		side->client.peer = NULL; /* closed behind us; its vqp is in error */
}

static struct hf_addr address_of(const struct vq_side *side, unsigned rail, uint16_t port)
{
	struct hf_addr addr = side->vq->network.ports[rail * 2 + side->is_server].address;

	hf_addr_set_port(&addr, port);
	return addr;
}

static void connect_peer(struct vq_side *side)
{
	struct hf_addr addresses[VQ_RAILS];
	struct hf_error error = {0};

	for (unsigned i = 0; i < VQ_RAILS; i++)
		addresses[i] = address_of(&side->vq->server, i, CONTROL_PORT);
	side->client.peer_is_up = false;
	if (hf_peer_connect(side->endpoint.node, addresses, VQ_RAILS, &side->client.peer, &error) != 0)
		world_violate(side->vq->world, "connecting", "%s", error.text);
}

static void changed(struct hf_vqp *vqp, void *context)
{
	struct vq_side *side = context;
	struct vq_client *client = &side->client;
	size_t bytes;
	const uint8_t *reply = hf_vqp_reply(vqp, &bytes);

	world_note(side->vq->world, "vqp-state", (uint64_t)hf_vqp_state(vqp));
	if (hf_vqp_state(vqp) != HF_VQP_UP || client->remote_addr != 0 || vqp != client->vqp)
		return;
	if (bytes != 12) {
		world_violate(side->vq->world, "connecting", "the server's answer has %zu bytes", bytes);
		return;
	}
	client->remote_addr = get_le64(reply);
	client->remote_rkey = get_le32(reply + 8);
}

static void connect_vqp(struct vq_side *side)
{
	struct vq_client *client = &side->client;
	struct hf_vqp_init init = {
		.send_cq = side->endpoint.cq,
		.recv_cq = side->endpoint.cq,
		.cap = {.max_send_wr = 2 * VQ_DEPTH, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
		.context = side,
		.changed = changed,
		.hand_back = side->vq->lanes,
	};
	uint8_t generation[4];

	if (side->vq->lanes) {
		init.rail = (unsigned)world_range(side->vq->world, 0, VQ_RAILS - 1);
		client->withdraw_at_ns = side->vq->world->now_ns + world_range(side->vq->world, 0, WITHDRAW_NS_MAX);
	}

	put_le32(generation, ++client->generation);
	client->first = client->next_completed = side->vq->count;
	client->refused = VQ_OPS_MAX;
	client->unknown = false;
	client->remote_addr = 0;
	if (hf_vqp_create(side->endpoint.pd, &init, &client->vqp) != 0 ||
		hf_vqp_connect(client->vqp, client->peer, SERVICE, generation, sizeof(generation)) != 0)
		world_violate(side->vq->world, "connecting", "a vqp cannot be made");
}

/* An error is for good: another vqp is made, and first another peer when that is what was lost. */
static bool renew(struct vq_side *side, uint64_t now_ns)
{
	struct vq_client *client = &side->client;
	struct vq *vq = side->vq;

	/* in error, its wrs complete once it is fenced */
	if (client->vqp != NULL && hf_vqp_state(client->vqp) == HF_VQP_ERROR && client->next_completed == vq->count) {
		vq_ended(vq);
		hf_vqp_destroy(client->vqp);
		client->vqp = NULL;
		client->retry_at_ns = now_ns + RETRY_NS;
		return true;
	}
	if (now_ns < client->retry_at_ns || vq->stopping)
		return false;
	if (client->peer == NULL && client->vqp == NULL)
		connect_peer(side);
	else if (client->peer != NULL && client->peer_is_up && client->vqp == NULL)
		connect_vqp(side);
	else
		return false;
	return true;
}

/* ---- the client: posting ---- */

static void fill(struct vq_side *side, uint32_t number, struct vq_op *op, struct ibv_send_wr *wr, struct ibv_sge *sge)
{
	struct vq_client *client = &side->client;
	uint8_t *local = side->memory + (size_t)number * VQ_SLOT_BYTES;

	for (uint32_t i = 0; i < op->bytes / 8 && op->kind != VQ_FAA; i++)
		put_le64(local + i * 8, vq_word(number, i));
	*sge = (struct ibv_sge){.addr = (uintptr_t)local, .length = op->bytes, .lkey = side->endpoint.mr->lkey};
	*wr = (struct ibv_send_wr){.wr_id = number, .sg_list = sge, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED};
	if (op->kind == VQ_WRITE) {
		wr->opcode = IBV_WR_RDMA_WRITE;
		wr->send_flags |= op->idempotent ? HF_SEND_IDEMPOTENT : 0;
		wr->wr.rdma.remote_addr = client->remote_addr + (uint64_t)number * VQ_SLOT_BYTES;
		wr->wr.rdma.rkey = client->remote_rkey;
	} else if (op->kind == VQ_FAA) {
		wr->opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
		wr->wr.atomic.remote_addr = client->remote_addr + (VQ_OPS_MAX + VQ_RECEIVES) * (uint64_t)VQ_SLOT_BYTES;
		wr->wr.atomic.rkey = client->remote_rkey;
		wr->wr.atomic.compare_add = op->argument;
	} else {
		wr->opcode = IBV_WR_SEND;
	}
}

/* Armed again once it is told of a grant that is worth it. All that the last one left has been polled. */
static bool may_post(const struct vq *vq, const struct vq_client *client)
{
	if (!hf_vqp_armed(client->vqp) && client->next_completed == vq->count &&
		(hf_vqp_remote_access(client->vqp) & IBV_ACCESS_REMOTE_ATOMIC) != 0)
		(void)hf_vqp_rearm(client->vqp);
	return hf_vqp_armed(client->vqp);
}

static bool post(struct vq_side *side, uint64_t now_ns)
{
	static const enum vq_kind mix[] = {VQ_WRITE, VQ_WRITE, VQ_WRITE, VQ_WRITE, VQ_FAA, VQ_FAA, VQ_SEND};
	struct vq *vq = side->vq;
	struct vq_client *client = &side->client;
	struct hf_vqp_counters counters;
	struct ibv_send_wr wr, *bad;
	struct ibv_sge sge;
	struct vq_op *op = &vq->ops[vq->count];
	uint64_t wait_ns;

	if (client->vqp == NULL || client->remote_addr == 0 || now_ns < client->next_post_ns || vq->stopping ||
		vq->count == VQ_OPS_MAX || vq->count - client->next_completed >= VQ_DEPTH ||
		hf_vqp_state(client->vqp) == HF_VQP_ERROR || !may_post(vq, client))
		return false;
	wait_ns = faults_wait_ns(&vq->faults, vq->count, VQ_OPS_MAX - OPS_KEPT);
	if (wait_ns > 0) {
		client->next_post_ns = now_ns + wait_ns;
		return false;
	}
	*op = (struct vq_op){.kind = mix[world_range(vq->world, 0, sizeof(mix) / sizeof(mix[0]) - 1)]};
	if (op->kind == VQ_WRITE && (hf_vqp_remote_access(client->vqp) & IBV_ACCESS_REMOTE_WRITE) == 0)
		op->kind = VQ_FAA;
	op->bytes = op->kind == VQ_FAA ? 8 : 8 * (uint32_t)world_range(vq->world, 1, VQ_SLOT_BYTES / 8);
	op->argument = rng_next(&vq->world->rng);
	op->generation = client->generation;
	op->server_memory = client->remote_addr;
	op->idempotent = op->kind == VQ_WRITE &&
			 ((vq->lanes && world_chance(vq->world, 500000)) || (vq->repeats && vq->count % 2 == 0));
	hf_vqp_counters(client->vqp, &counters);
	op->failovers = counters.failovers;
	op->posted_ns = vq->world->now_ns;
	fill(side, vq->count, op, &wr, &sge);
	vq->count++;
	if (hf_vqp_post_send(client->vqp, &wr, &bad) != 0)
		world_violate(vq->world, "posting", "a well-formed wr was refused");
	client->next_post_ns = now_ns + (world_chance(vq->world, 600000) ? 0 : world_range(vq->world, 0, REST_NS_MAX));
	return true;
}

/* ---- the server ---- */

static void post_receives(struct vq_side *side, struct vq_served *served)
{
	while (served->posted < served->received + VQ_RECEIVES) {
		struct ibv_sge sge = {.addr = (uintptr_t)vq_receive(side->vq, served->posted),
			.length = VQ_SLOT_BYTES,
			.lkey = side->endpoint.mr->lkey};
		struct ibv_recv_wr wr = {.wr_id = served->posted, .sg_list = &sge, .num_sge = 1}, *bad;

		if (hf_vqp_post_recv(served->vqp, &wr, &bad) != 0)
			return;
		served->posted++;
	}
}

static struct hf_vqp *on_request(const struct hf_vqp_request *request, void *reply, size_t *reply_bytes, void *context)
{
	struct vq_side *side = context;
	struct vq_served *served = &side->server.served[side->server.count];
	struct hf_vqp_init init = {
		.send_cq = side->endpoint.cq,
		.recv_cq = side->endpoint.cq,
		.cap = {.max_send_wr = 1, .max_recv_wr = VQ_RECEIVES, .max_send_sge = 1, .max_recv_sge = 1},
		.access = GRANTED,
		.revocable = side->vq->revokes,
		.hand_back = side->vq->lanes,
		.rail = request->lane > 0 ? (unsigned)request->lane : 0,
	};

	ensure(side->server.count < VQ_VQPS_MAX);
	if (request->private_bytes != 4 || hf_vqp_create(side->endpoint.pd, &init, &served->vqp) != 0)
		return NULL;
	side->server.count++;
	*served = (struct vq_served){
		.vqp = served->vqp, .generation = get_le32(request->private_data), .access = GRANTED};
	post_receives(side, served);
	put_le64(reply, (uintptr_t)side->memory);
	put_le32((uint8_t *)reply + 8, side->endpoint.mr->rkey);
	*reply_bytes = 12;
	return served->vqp;
}

static void drop_dead_vqps(struct vq_side *side)
{
	for (unsigned i = 0; i < side->server.count; i++) {
		struct vq_served *served = &side->server.served[i];

		if (served->vqp != NULL && hf_vqp_state(served->vqp) == HF_VQP_ERROR) {
			hf_vqp_destroy(served->vqp);
			served->vqp = NULL;
		}
	}
}

static struct vq_served *served_by(struct vq_side *side, uint32_t num)
{
	for (unsigned i = 0; i < side->server.count; i++)
		if (side->server.served[i].vqp != NULL && hf_vqp_num(side->server.served[i].vqp) == num)
			return &side->server.served[i];
	return NULL;
}

/* ---- both ---- */

static unsigned poll_cq(struct vq_side *side)
{
	struct ibv_wc wc[POLL_MAX];
	unsigned taken = 0;

	for (int n; (n = hf_vcq_poll(side->endpoint.cq, POLL_MAX, wc)) > 0; taken += (unsigned)n)
		for (int i = 0; i < n; i++) {
			struct vq_served *served = side->is_server ? served_by(side, wc[i].qp_num) : NULL;

			if (!side->is_server)
				vq_completed(side->vq, &wc[i]);
			else if (served != NULL) {
				vq_received(side->vq, served, &wc[i]);
				post_receives(side, served);
			}
		}
	return taken;
}

/* What has to be granted for it. */
static int needs(enum vq_kind kind)
{
	return kind == VQ_WRITE ? IBV_ACCESS_REMOTE_WRITE : kind == VQ_FAA ? IBV_ACCESS_REMOTE_ATOMIC : 0;
}

/* From now on nothing that was posted before and needs what is off takes effect. */
static void revoked(struct hf_vqp *vqp, void *context)
{
	struct vq_side *side = context;
	struct vq_served *served = served_by(side, hf_vqp_num(vqp));

	world_note(side->vq->world, "revoked", hf_vqp_num(vqp));
	for (unsigned kind = 0; kind < VQ_KINDS; kind++)
		if ((needs((enum vq_kind)kind) & ~served->access) != 0)
			served->revoked_ns[kind] = side->vq->world->now_ns;
}

/* What that grant took is in the queue, and is taken from there now. */
static void over(struct hf_vqp *vqp, void *context)
{
	struct vq_side *side = context;
	struct vq_served *served = served_by(side, hf_vqp_num(vqp));

	(void)poll_cq(side);
	served->over_ns = served->ended_ns;
}

static void change_grant(struct vq_side *side, struct vq_served *served, int access)
{
	bool takes = (served->access & ~access) != 0;

	served->access = access;
	if (hf_vqp_set_access(served->vqp, access, takes ? revoked : NULL, side) == 0 && takes)
		revoked(served->vqp, side);
	if (!takes)
		return;
	served->ended_ns = side->vq->world->now_ns;
	if (hf_vqp_grant_over(served->vqp, over, side) == 0)
		over(served->vqp, side);
}

/* Off, and on again at any moment after that: at once, too, and while the exchange about it is under way. Now and then
 * writing stays off: the log of a peer that could write once stands idle then (R14). */
static void change_grants(struct vq_side *side, uint64_t now_ns)
{
	struct vq *vq = side->vq;
	bool off = !side->server.withdrawn && vq->world->now_ns < vq->faults.quiet_ns;
	int access = off ? 0 : world_chance(vq->world, 300000) ? IBV_ACCESS_REMOTE_ATOMIC : GRANTED;

	if (side->server.withdrawn || off)
		for (unsigned i = 0; i < side->server.count; i++)
			if (side->server.served[i].vqp != NULL)
				change_grant(side, &side->server.served[i], access);
	side->server.withdrawn = off;
	side->server.next_grant_ns =
		now_ns + (off ? world_range(vq->world, 0, GRANT_NS_MAX) >> world_range(vq->world, 0, 12)
			      : world_range(vq->world, 0, GRANT_NS_MAX));
}

/* With wrs in flight, mostly; and while the loss of the rail is being settled already. */
static void withdraw(struct vq_side *side)
{
	struct vq_client *client = &side->client;

	if (!side->vq->lanes || client->vqp == NULL || side->vq->world->now_ns < client->withdraw_at_ns ||
		side->vq->world->now_ns >= side->vq->faults.quiet_ns)
		return;
	client->withdraw_at_ns = UINT64_MAX;
	(void)hf_vqp_withdraw(client->vqp);
}

static enum hf_poll poll_side(struct hf_poller *poller, uint64_t now_ns)
{
	struct vq_side *side = container_of(poller, struct vq_side, endpoint.poller);
	bool busy = poll_cq(side) > 0;

	if (side->is_server) {
		drop_dead_vqps(side);
		if (side->vq->revokes && now_ns >= side->server.next_grant_ns)
			change_grants(side, now_ns);
		return busy ? HF_BUSY : HF_IDLE;
	}
	withdraw(side);
	busy |= renew(side, now_ns);
	busy |= post(side, now_ns);
	return busy ? HF_BUSY : HF_IDLE;
}

static bool arm_side(struct hf_poller *poller)
{
	struct vq_side *side = container_of(poller, struct vq_side, endpoint.poller);
	uint64_t now_ns = hf_loop_now_ns(side->endpoint.loop);

	endpoint_arm(&side->endpoint);
	if (poll_cq(side) > 0)
		return false;
	if (side->is_server && side->vq->revokes)
		hf_loop_set_timer(side->endpoint.loop, &side->endpoint.timer, side->server.next_grant_ns);
	else if (!side->is_server && side->client.next_post_ns > now_ns)
		hf_loop_set_timer(side->endpoint.loop, &side->endpoint.timer, side->client.next_post_ns);
	else if (!side->is_server && side->client.retry_at_ns > now_ns)
		hf_loop_set_timer(side->endpoint.loop, &side->endpoint.timer, side->client.retry_at_ns);
	return true;
}

static void configure(struct vq_side *side, struct hf_node_config *config)
{
	*config = (struct hf_node_config){.rail_count = VQ_RAILS,
		.policy = side->vq->policy,
		.evidence = side->vq->evidence,
		.caps_masked = side->vq->caps_masked};
	snprintf(config->name, sizeof(config->name), "%s", side->endpoint.host.name);
	for (unsigned i = 0; i < VQ_RAILS; i++) {
		struct hf_addr address = address_of(side, i, 0);

		endpoint_set_rail(config, i, &address, side->is_server ? CONTROL_PORT : 0);
	}
	config->heartbeat_ns = HEARTBEAT_NS;
	config->heartbeat_misses = 4;
	config->failback_ns = FAILBACK_NS;
	config->budget_ns = side->vq->budget_ns;
	config->timeout = QP_TIMEOUT;
	config->retry_cnt = QP_RETRY_CNT;
}

static int start_side(struct process *process, void *context)
{
	static const struct hf_node_events events = {.peer_up = peer_up, .peer_down = peer_down};
	struct vq_side *side = context;
	struct hf_node_config config;
	int rc;

	(void)process;
	configure(side, &config);
	if ((rc = endpoint_open(&side->endpoint, &config, &events, side, 1024)) != 0 ||
		(rc = endpoint_register(
			 &side->endpoint, MEMORY_BYTES, IBV_ACCESS_LOCAL_WRITE | GRANTED, HF_ATOMIC_NATIVE)) != 0)
		return rc;
	side->memory = side->endpoint.memory;
	vq_watch(side);
	if (side->is_server) {
		side->vq->shadow_word = 0;
		side->server.service =
			(struct hf_vqp_service){.name = SERVICE, .on_request = on_request, .context = side};
		if ((rc = hf_vqp_serve(side->endpoint.node, &side->server.service)) != 0)
			return rc;
	}
	endpoint_run(&side->endpoint, poll_side, arm_side);
	return 0;
}

static void stop_side(struct process *process, void *context)
{
	struct vq_side *side = context;

	(void)process;
	side->vq->crashed = true;
	if (side->endpoint.loop == NULL)
		return;
	hf_vqp_destroy(side->client.vqp);
	for (unsigned i = 0; i < side->server.count; i++)
		hf_vqp_destroy(side->server.served[i].vqp);
	endpoint_close(&side->endpoint);
	side->client = (struct vq_client){.generation = side->client.generation};
	side->server.count = 0;
	side->server.withdrawn = false;
	side->memory = NULL;
}

const struct program vq_program = {.name = "vq", .start = start_side, .stop = stop_side};
