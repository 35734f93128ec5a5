/* The clients' and the owner's program. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <holdfast/grant.h>

#include "base/bytes.h"
#include "base/ensure.h"
#include "sim/atomics.h"

#define CONTROL_PORT 7000u
#define MEMORY_BYTES 4096u
#define POLL_MAX     16
#define REST_NS_MAX  (2 * NS_MS)
#define OWN_NS_MAX   (20 * NS_MS)
#define GRANT_NS_MAX (40 * NS_MS)
#define RETRY_NS     (5 * NS_MS)
#define BUDGET_NS    (2 * NS_S)
#define STALLED      6u /* times as seldom where a process stands still for long: there is work at the end of that */
#define ACCESS       (IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)

_Static_assert(ATOMICS_OPS * 8 <= MEMORY_BYTES, "a client has a result for each op");

/* ---- a client ---- */

static void peer_up(struct hf_peer *peer, void *context)
{
	struct atomics_side *side = context;

	side->peer_is_up |= peer == side->peer;
}

static void peer_down(struct hf_peer *peer, void *context)
{
	struct atomics_side *side = context;

	if (peer == side->peer)
		side->peer = NULL;
}

static struct hf_addr address_of(const struct atomics_side *side, unsigned rail, uint16_t port)
{
	struct hf_addr addr = side->run->network.ports[rail * (ATOMICS_CLIENTS + 1) + side->number].address;

	hf_addr_set_port(&addr, port);
	return addr;
}

static void connect_peer(struct atomics_side *side)
{
	struct hf_addr addresses[ATOMICS_RAILS];
	struct hf_error error = {0};

	for (unsigned i = 0; i < ATOMICS_RAILS; i++)
		addresses[i] = address_of(&side->run->sides[0], i, CONTROL_PORT);
	side->peer_is_up = false;
	if (hf_peer_connect(side->endpoint.node, addresses, ATOMICS_RAILS, &side->peer, &error) != 0)
		world_violate(side->run->world, "connecting", "%s", error.text);
}

static void changed(struct hf_vqp *vqp, void *context)
{
	struct atomics_side *side = context;
	size_t bytes;
	const uint8_t *reply = hf_vqp_reply(vqp, &bytes);

	if (hf_vqp_state(vqp) != HF_VQP_UP || bytes != 12 || vqp != side->vqp)
		return;
	side->remote_addr = get_le64(reply);
	side->remote_rkey = get_le32(reply + 8);
}

static void connect_vqp(struct atomics_side *side)
{
	struct hf_vqp_init init = {
		.send_cq = side->endpoint.cq,
		.recv_cq = side->endpoint.cq,
		.cap = {.max_send_wr = 2 * ATOMICS_DEPTH, .max_send_sge = 1, .max_recv_sge = 1, .max_recv_wr = 1},
		.context = side,
		.changed = changed,
	};

	side->remote_addr = 0;
	if (hf_vqp_create(side->endpoint.pd, &init, &side->vqp) != 0 ||
		hf_vqp_connect(side->vqp, side->peer, "words", "", 0) != 0)
		world_violate(side->run->world, "connecting", "a vqp cannot be made");
}

static bool renew(struct atomics_side *side, uint64_t now_ns)
{
	if (side->vqp != NULL && hf_vqp_state(side->vqp) == HF_VQP_ERROR && side->completed == side->posted) {
		hf_vqp_destroy(side->vqp);
		side->vqp = NULL;
		side->retry_ns = now_ns + RETRY_NS;
		return true;
	}
	if (now_ns < side->retry_ns || side->run->stopping)
		return false;
	if (side->peer == NULL && side->vqp == NULL)
		connect_peer(side);
	else if (side->peer != NULL && side->peer_is_up && side->vqp == NULL)
		connect_vqp(side);
	else
		return false;
	return true;
}

/* Armed again once it is told of a grant that is worth it. */
static bool may_post(struct atomics_side *side)
{
	if (!hf_vqp_armed(side->vqp) && side->completed == side->posted && hf_vqp_remote_access(side->vqp) == ACCESS)
		(void)hf_vqp_rearm(side->vqp);
	return hf_vqp_armed(side->vqp);
}

static bool post(struct atomics_side *side, uint64_t now_ns)
{
	struct world *world = side->run->world;
	struct atomics_op *op;
	struct ibv_send_wr wr = {.wr_id = side->posted, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED}, *bad;
	struct ibv_sge sge = {.addr = (uintptr_t)&side->memory[side->posted], .length = 8};

	if (side->vqp == NULL || side->remote_addr == 0 || now_ns < side->next_ns || side->run->stopping ||
		side->posted == ATOMICS_OPS || side->posted - side->completed >= ATOMICS_DEPTH ||
		hf_vqp_state(side->vqp) == HF_VQP_ERROR || !may_post(side))
		return false;
	op = atomics_choose(side);
	sge.lkey = side->endpoint.mr->lkey;
	wr.sg_list = &sge;
	if (op->kind == ATOMICS_READ) {
		wr.opcode = IBV_WR_RDMA_READ;
		wr.wr.rdma.remote_addr = side->remote_addr + op->word * 8;
		wr.wr.rdma.rkey = side->remote_rkey;
	} else {
		wr.opcode = op->kind == ATOMICS_CAS ? IBV_WR_ATOMIC_CMP_AND_SWP : IBV_WR_ATOMIC_FETCH_AND_ADD;
		wr.wr.atomic.remote_addr = side->remote_addr + op->word * 8;
		wr.wr.atomic.rkey = side->remote_rkey;
		wr.wr.atomic.compare_add = op->kind == ATOMICS_CAS ? op->compare : op->argument;
		wr.wr.atomic.swap = op->argument;
	}
	if (hf_vqp_post_send(side->vqp, &wr, &bad) != 0)
		world_violate(world, "posting", "a well-formed wr was refused");
	side->next_ns = now_ns + (world_chance(world, 500000) ? 0 : world_range(world, 0, REST_NS_MAX)) *
					 (side->run->stalls ? STALLED : 1);
	return true;
}

/* ---- the owner ---- */

static struct hf_vqp *on_request(const struct hf_vqp_request *request, void *reply, size_t *reply_bytes, void *context)
{
	struct atomics_side *side = context;
	struct hf_vqp_init init = {
		.send_cq = side->endpoint.cq,
		.recv_cq = side->endpoint.cq,
		.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
		.access = ACCESS,
		.revocable = side->run->revokes,
	};

	(void)request;
	if (side->served_count == ATOMICS_SERVED ||
		hf_vqp_create(side->endpoint.pd, &init, &side->served[side->served_count]) != 0)
		return NULL;
	put_le64(reply, (uintptr_t)side->memory);
	put_le32((uint8_t *)reply + 8, side->endpoint.mr->rkey);
	*reply_bytes = 12;
	return side->served[side->served_count++];
}

static void drop_dead_vqps(struct atomics_side *side)
{
	for (unsigned i = 0; i < side->served_count; i++)
		if (side->served[i] != NULL && hf_vqp_state(side->served[i]) == HF_VQP_ERROR) {
			hf_vqp_destroy(side->served[i]);
			side->served[i] = NULL;
		}
}

/* Off, and on again at any moment after that: at once, too, and while the exchange about it is under way. READs may
 * stay. */
static void change_grants(struct atomics_side *side, uint64_t now_ns)
{
	struct world *world = side->run->world;
	bool off = !side->withdrawn && world->now_ns < side->run->faults.quiet_ns;
	int access = !off ? ACCESS : world_chance(world, 500000) ? IBV_ACCESS_REMOTE_READ : 0;

	for (unsigned i = 0; (side->withdrawn || off) && i < side->served_count; i++)
		if (side->served[i] != NULL)
			(void)hf_vqp_set_access(side->served[i], access, NULL, NULL);
	side->withdrawn = off;
	side->next_grant_ns = now_ns + (world_range(world, 0, GRANT_NS_MAX) >> (off ? world_range(world, 0, 12) : 0));
}

static void own_done(struct hf_vmr_atomic *atomic, int rc)
{
	struct atomics_side *side = atomic->context;
	struct atomics_op *op = side->own_op;

	side->own_op = NULL;
	if (rc == 0)
		atomics_answered(side, op, atomic->original);
	else if (rc != -ECANCELED && !side->run->may_be_unknown)
		world_violate(side->run->world, "owner", "an atomic of the owner failed: %s", strerror(-rc));
}

static bool own_atomic(struct atomics_side *side, uint64_t now_ns)
{
	static const enum ibv_wr_opcode opcodes[] = {[ATOMICS_CAS] = IBV_WR_ATOMIC_CMP_AND_SWP,
		[ATOMICS_FAA] = IBV_WR_ATOMIC_FETCH_AND_ADD,
		[ATOMICS_READ] = IBV_WR_RDMA_READ};
	struct atomics_op *op;

	if (now_ns < side->next_ns || side->run->stopping || side->posted == ATOMICS_OPS || side->own_op != NULL)
		return false;
	side->next_ns = now_ns + world_range(side->run->world, 0, OWN_NS_MAX);
	op = side->own_op = atomics_choose(side);
	side->completed++;
	side->own = (struct hf_vmr_atomic){.mr = side->endpoint.mr,
		.at = &side->memory[op->word],
		.opcode = opcodes[op->kind],
		.compare_add = op->kind == ATOMICS_CAS ? op->compare : op->argument,
		.swap = op->argument,
		.done = own_done,
		.context = side};
	if (hf_vmr_atomic_post(&side->own) != 0)
		world_violate(side->run->world, "owner", "a well-formed atomic of the owner was refused");
	return true;
}

/* ---- both ---- */

static unsigned poll_cq(struct atomics_side *side)
{
	struct ibv_wc wc[POLL_MAX];
	unsigned taken = 0;

	for (int n; (n = hf_vcq_poll(side->endpoint.cq, POLL_MAX, wc)) > 0; taken += (unsigned)n)
		for (int i = 0; i < n && side->number > 0; i++)
			atomics_completed(side, &wc[i]);
	return taken;
}

static enum hf_poll poll_side(struct hf_poller *poller, uint64_t now_ns)
{
	struct atomics_side *side = container_of(poller, struct atomics_side, endpoint.poller);
	bool busy = poll_cq(side) > 0;

	if (side->number == 0) {
		drop_dead_vqps(side);
		if (side->run->revokes && now_ns >= side->next_grant_ns)
			change_grants(side, now_ns);
		busy |= own_atomic(side, now_ns);
	} else {
		busy |= renew(side, now_ns);
		busy |= post(side, now_ns);
	}
	return busy ? HF_BUSY : HF_IDLE;
}

static bool arm_side(struct hf_poller *poller)
{
	struct atomics_side *side = container_of(poller, struct atomics_side, endpoint.poller);
	uint64_t now_ns = hf_loop_now_ns(side->endpoint.loop);

	endpoint_arm(&side->endpoint);
	if (poll_cq(side) > 0)
		return false;
	if (side->number == 0 && side->run->revokes)
		hf_loop_set_timer(side->endpoint.loop, &side->endpoint.timer,
			side->next_ns > now_ns && side->next_ns < side->next_grant_ns ? side->next_ns
										      : side->next_grant_ns);
	else if (side->next_ns > now_ns)
		hf_loop_set_timer(side->endpoint.loop, &side->endpoint.timer, side->next_ns);
	else if (side->retry_ns > now_ns)
		hf_loop_set_timer(side->endpoint.loop, &side->endpoint.timer, side->retry_ns);
	return true;
}

static void configure(struct atomics_side *side, struct hf_node_config *config)
{
	*config = (struct hf_node_config){.rail_count = ATOMICS_RAILS, .policy = side->run->policy};
	snprintf(config->name, sizeof(config->name), "%s", side->endpoint.host.name);
	for (unsigned i = 0; i < ATOMICS_RAILS; i++) {
		struct hf_addr address = address_of(side, i, 0);

		endpoint_set_rail(config, i, &address, side->number == 0 ? CONTROL_PORT : 0);
	}
	config->heartbeat_ns = 5 * NS_MS;
	config->heartbeat_misses = 4;
	config->failback_ns = 20 * NS_MS;
	config->budget_ns = side->run->stalls ? ATOMICS_LEASE_NS : BUDGET_NS;
	config->timeout = 8;
	config->retry_cnt = 2;
}

static int start_side(struct process *process, void *context)
{
	static const struct hf_node_events events = {.peer_up = peer_up, .peer_down = peer_down};
	struct atomics_side *side = context;
	bool owns = side->number == 0;
	struct hf_node_config config;
	int rc;

	(void)process;
	configure(side, &config);
	if ((rc = endpoint_open(&side->endpoint, &config, &events, side, 64)) != 0 ||
		(rc = endpoint_register(&side->endpoint, MEMORY_BYTES,
			 owns ? IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC
			      : IBV_ACCESS_LOCAL_WRITE,
			 owns ? side->run->mode : HF_ATOMIC_PLAIN)) != 0)
		return rc;
	side->memory = side->endpoint.memory;
	side->service = (struct hf_vqp_service){.name = "words", .on_request = on_request, .context = side};
	if (owns && (rc = hf_vqp_serve(side->endpoint.node, &side->service)) != 0)
		return rc;
	endpoint_run(&side->endpoint, poll_side, arm_side);
	return 0;
}

static void stop_side(struct process *process, void *context)
{
	struct atomics_side *side = context;

	(void)process;
	side->run->crashed = true;
	if (side->endpoint.loop == NULL)
		return;
	hf_vqp_destroy(side->vqp);
	for (unsigned i = 0; i < side->served_count; i++)
		hf_vqp_destroy(side->served[i]);
	endpoint_close(&side->endpoint);
	side->peer = NULL;
	side->vqp = NULL;
	side->peer_is_up = false;
	side->completed = side->posted; /* what was under way has no answer */
	side->served_count = 0;
	side->memory = NULL;
}

const struct program atomics_program = {.name = "atomics", .start = start_side, .stop = stop_side};
