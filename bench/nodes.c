#include "bench/nodes.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SERVICE      "bench"
#define CONNECT_MAX  30000000000ull /* ns */
#define CONNECT_TURN 64u            /* vqps a turn: on a busy machine a turn in vain costs a slice of others' time */
#define QP_TIMEOUT   11u            /* 8 ms: a busy machine does not look like a cut */
#define INLINE_BYTES 16u
#define SERVE_NS     100000u
#define REMOTE       (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)
#define ACCESS       (REMOTE | IBV_ACCESS_LOCAL_WRITE)
#define READS_A_CAS  3u
#define OFFSET_ALIGN 8u

const struct bench_mode bench_modes[] = {
	{"none", HF_POLICY_NONE, HF_EVIDENCE_PSN},
	{"resend", HF_POLICY_RESEND, HF_EVIDENCE_PSN},
	{"resend-cache", HF_POLICY_RESEND_CACHE, HF_EVIDENCE_PSN},
	{"varuna", HF_POLICY_VARUNA, HF_EVIDENCE_BOTH},
	{"varuna-psn", HF_POLICY_VARUNA, HF_EVIDENCE_PSN},
	{"varuna-log", HF_POLICY_VARUNA, HF_EVIDENCE_LOG},
};
const unsigned bench_mode_count = sizeof(bench_modes) / sizeof(bench_modes[0]);

const struct bench_mode *bench_mode_find(const char *name)
{
	for (unsigned i = 0; i < bench_mode_count; i++)
		if (strcmp(bench_modes[i].name, name) == 0)
			return &bench_modes[i];
	return NULL;
}

static unsigned place_of(const struct bench_nodes *nodes, bool near)
{
	return 2 * nodes->setup->number + (near ? 0 : 1);
}

static void configure(const struct bench_nodes *nodes, struct hf_node_config *config)
{
	const struct bench_setup *setup = nodes->setup;

	bed_configure(&nodes->bed, nodes->bed.near ? "near" : "far", setup->number, setup->kind, BENCH_RAILS,
		place_of(nodes, nodes->bed.near), config);
	config->policy = setup->mode->policy;
	config->evidence = setup->mode->evidence;
	config->failback_ns = setup->failback_ns;
	config->heartbeat_misses = setup->heartbeat_misses;
	config->budget_ns = setup->budget_ns;
	config->timeout = setup->timeout;
	for (unsigned i = 0; i < BENCH_RAILS; i++)
		config->rails[i].mtu = IBV_MTU_4096;
}

/* ---- vqps ---- */

static void on_changed(struct hf_vqp *vqp, void *context)
{
	struct bench_client *client = context;
	enum hf_vqp_state state = hf_vqp_state(vqp);

	if (state == HF_VQP_UP && !client->came_up) {
		client->came_up = true;
		client->nodes->up++;
	}
	if (state == HF_VQP_UP && client->nodes->came_up != NULL)
		client->nodes->came_up(client->nodes->came_up_context, (unsigned)(client - client->nodes->clients));
	if (state == HF_VQP_ERROR && !client->nodes->replaces)
		client->nodes->down++;
}

static int make_vqp(struct bench_nodes *nodes, struct bench_client *client)
{
	struct hf_vqp_init init = {
		.send_cq = nodes->cq,
		.recv_cq = nodes->cq,
		.cap = {.max_send_wr = nodes->setup->depth,
			.max_recv_wr = 1,
			.max_send_sge = 1,
			.max_recv_sge = 1,
			.max_inline_data = INLINE_BYTES},
		.access = ACCESS,
		.context = client,
		.changed = on_changed,
	};

	return hf_vqp_create(nodes->pd, &init, &client->vqp);
}

static struct bench_client *make_client(struct bench_nodes *nodes)
{
	struct bench_client *client = &nodes->clients[nodes->made];

	if (nodes->made == nodes->setup->clients)
		return NULL;
	*client = (struct bench_client){.nodes = nodes};
	if (make_vqp(nodes, client) != 0)
		return NULL;
	client->local = nodes->memory + nodes->made * nodes->setup->client_bytes;
	client->remote = nodes->far_addr + nodes->made * nodes->setup->client_bytes;
	nodes->made++;
	return client;
}

/* The old vqp is destroyed later: this is called in the midst of a turn. */
static struct bench_client *renew_client(struct bench_client *client)
{
	if (client->former != NULL)
		return NULL;
	client->former = client->vqp;
	client->vqp = NULL;
	return make_vqp(client->nodes, client) == 0 ? client : NULL;
}

static struct hf_vqp *on_request(const struct hf_vqp_request *request, void *reply, size_t *reply_bytes, void *context)
{
	struct bench_nodes *nodes = context;
	struct bench_client *client;
	uint32_t number;

	(void)reply;
	*reply_bytes = 0;
	if (request->private_bytes != sizeof(number))
		return NULL;
	memcpy(&number, request->private_data, sizeof(number));
	client = number < nodes->made ? renew_client(&nodes->clients[number]) : make_client(nodes);
	return client == NULL ? NULL : client->vqp;
}

/* It says whose it is. */
static int connect_client(struct bench_client *client)
{
	uint32_t number = (uint32_t)(client - client->nodes->clients);

	return hf_vqp_connect(client->vqp, client->nodes->peer, SERVICE, &number, sizeof(number));
}

int bench_nodes_replace(struct bench_nodes *nodes, unsigned client)
{
	struct bench_client *of = &nodes->clients[client];
	int rc;

	hf_vqp_destroy(of->vqp);
	of->vqp = NULL;
	rc = make_vqp(nodes, of);
	return rc != 0 ? rc : connect_client(of);
}

void bench_nodes_bury(struct bench_nodes *nodes)
{
	for (unsigned i = 0; i < nodes->made; i++) {
		hf_vqp_destroy(nodes->clients[i].former);
		nodes->clients[i].former = NULL;
	}
}

static void on_peer_down(struct hf_peer *peer, void *context)
{
	struct bench_nodes *nodes = context;

	(void)peer;
	nodes->broken = true;
}

static int connect_some(struct bench_nodes *nodes)
{
	int rc = 0;

	if (*hf_peer_name(nodes->peer) == '\0')
		return 0;
	for (unsigned i = 0; i < CONNECT_TURN && nodes->made < nodes->setup->clients && rc == 0; i++) {
		struct bench_client *client = make_client(nodes);

		rc = client == NULL ? -ENOMEM : connect_client(client);
	}
	return rc;
}

static int connect_clients(struct bench_nodes *nodes)
{
	uint64_t start_ns = hf_env_now_ns(nodes->bed.env), end_ns = start_ns + CONNECT_MAX;
	struct hf_addr addresses[BENCH_RAILS];
	int rc;

	for (unsigned i = 0; i < BENCH_RAILS; i++)
		addresses[i] = bed_address(&nodes->bed, place_of(nodes, false), i, BED_CONTROL);
	rc = hf_peer_connect(nodes->node, addresses, BENCH_RAILS, &nodes->peer, &nodes->bed.error);
	if (rc != 0)
		return rc;
	while (nodes->up < nodes->setup->clients) {
		if ((rc = connect_some(nodes)) != 0)
			return hf_error_set(&nodes->bed.error, rc, "a vqp cannot be connected: %s", strerror(-rc));
		hf_loop_turn(nodes->bed.loop, 0);
		if (nodes->broken || nodes->down > 0 || hf_env_now_ns(nodes->bed.env) > end_ns)
			return hf_error_set(&nodes->bed.error, -ETIMEDOUT, "%u of %u vqps came up, then %s", nodes->up,
				nodes->setup->clients,
				nodes->broken     ? "the other process was gone"
				: nodes->down > 0 ? "one failed for good"
						  : "the time was over");
	}
	nodes->connect_ns = hf_env_now_ns(nodes->bed.env) - start_ns;
	return 0;
}

/* ---- opening and closing ---- */

static int open_node(struct bench_nodes *nodes)
{
	const struct hf_node_events events = {.peer_down = on_peer_down};
	uint64_t bytes = nodes->setup->clients * nodes->setup->client_bytes;
	struct hf_node_config config;
	void *memory = nodes->bed.near ? nodes->setup->near_memory : nodes->setup->far_memory;
	int rc;

	configure(nodes, &config);
	nodes->clients = calloc(nodes->setup->clients, sizeof(*nodes->clients));
	if (nodes->clients == NULL)
		return -ENOMEM;
	if ((rc = bed_node(&nodes->bed, &config, &events, nodes, &nodes->node)) != 0)
		return rc;
	if (memory == NULL) {
		if ((rc = hf_mem_alloc(nodes->bed.env, bytes, &memory, &nodes->bed.error)) != 0)
			return rc;
		nodes->own_memory = memory;
		memset(memory, 0, bytes);
	}
	nodes->memory = memory;
	if ((rc = hf_vpd_alloc(nodes->node, &nodes->pd)) != 0 ||
		(rc = hf_vmr_reg(nodes->pd, memory, bytes, ACCESS, &nodes->mr, &nodes->bed.error)) != 0 ||
		(rc = hf_vcq_create(nodes->node, 2 * nodes->setup->depth, NULL, &nodes->cq)) != 0)
		return rc;
	nodes->service = (struct hf_vqp_service){.name = SERVICE, .on_request = on_request, .context = nodes};
	return nodes->bed.near ? 0 : hf_vqp_serve(nodes->node, &nodes->service);
}

/* What one side tells the other. */
struct card {
	uint64_t addr;
	uint32_t rkey;
	int rc;
};

int bench_nodes_open(
	struct bench_nodes *nodes, const struct bench_setup *setup, struct bench_meeting *meeting, bool near)
{
	struct card mine = {0}, theirs;
	int rc;

	*nodes = (struct bench_nodes){.setup = setup};
	rc = bed_open(&nodes->bed, meeting, near);
	if (rc != 0)
		return rc;
	mine.rc = open_node(nodes);
	if (mine.rc == 0)
		mine = (struct card){.addr = (uintptr_t)nodes->memory, .rkey = nodes->mr->rkey};
	if (!bench_swap(meeting, near, &mine, &theirs, sizeof(mine)))
		return -EPIPE;
	rc = mine.rc != 0 ? mine.rc : theirs.rc;
	if (rc != 0)
		return rc;
	nodes->far_addr = theirs.addr;
	nodes->far_rkey = theirs.rkey;
	return near ? connect_clients(nodes) : 0;
}

void bench_nodes_close(struct bench_nodes *nodes)
{
	bench_nodes_bury(nodes);
	for (unsigned i = 0; i < nodes->made; i++)
		hf_vqp_destroy(nodes->clients[i].vqp);
	if (nodes->cq != NULL)
		hf_vcq_destroy(nodes->cq);
	if (nodes->mr != NULL)
		hf_vmr_dereg(nodes->mr);
	if (nodes->pd != NULL)
		hf_vpd_free(nodes->pd);
	bed_close(&nodes->bed);
	if (nodes->own_memory != NULL)
		hf_mem_free(nodes->bed.env, nodes->own_memory);
	free(nodes->clients);
}

void bench_nodes_serve(struct bench_nodes *nodes)
{
	while (!bench_other_left(nodes->bed.meeting, nodes->bed.near) && !nodes->broken)
		hf_loop_turn(nodes->bed.loop, SERVE_NS);
}

void bench_nodes_turn(struct bench_nodes *nodes)
{
	hf_loop_turn(nodes->bed.loop, 0);
}

/* ---- work ---- */

static void fill_atomic(const struct bench_client *client, uint64_t offset, struct ibv_send_wr *wr)
{
	wr->opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
	wr->wr.atomic.remote_addr = client->remote + offset;
	wr->wr.atomic.rkey = client->nodes->far_rkey;
	wr->wr.atomic.compare_add = 0;
	wr->wr.atomic.swap = 0;
}

static void fill_rdma(const struct bench_client *client, uint64_t offset, bool read, struct ibv_send_wr *wr)
{
	wr->opcode = read ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE;
	wr->wr.rdma.remote_addr = client->remote + offset;
	wr->wr.rdma.rkey = client->nodes->far_rkey;
}

void bench_list(const struct bench_client *client, enum bench_op op, uint32_t bytes, unsigned n, unsigned signal_every,
	uint64_t wr_id, struct ibv_send_wr *wrs, struct ibv_sge *sges)
{
	uint64_t room = client->nodes->setup->client_bytes,
		 step = (bytes + OFFSET_ALIGN - 1) / OFFSET_ALIGN * OFFSET_ALIGN;

	for (unsigned i = 0; i < n; i++) {
		uint64_t offset = (i + 1) * step <= room ? i * step : 0;
		bool cas = op == BENCH_CAS || (op == BENCH_CAS_READS && i % (READS_A_CAS + 1) == 0);
		bool signaled = i + 1 == n || (signal_every != 0 && (i + 1) % signal_every == 0);

		sges[i] = (struct ibv_sge){
			.addr = (uintptr_t)client->local + offset, .length = bytes, .lkey = client->nodes->mr->lkey};
		wrs[i] = (struct ibv_send_wr){.wr_id = wr_id,
			.next = i + 1 < n ? &wrs[i + 1] : NULL,
			.sg_list = &sges[i],
			.num_sge = 1,
			.send_flags = signaled ? IBV_SEND_SIGNALED : 0};
		if (cas)
			fill_atomic(client, offset, &wrs[i]);
		else
			fill_rdma(client, offset, op == BENCH_CAS_READS, &wrs[i]);
		if (!cas && op == BENCH_WRITE && bytes <= INLINE_BYTES)
			wrs[i].send_flags |= IBV_SEND_INLINE;
	}
}
