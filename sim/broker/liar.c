/* A client that lies. */
#include "sim/broker/liar.h"

#include <stdio.h>
#include <string.h>

#include "base/ensure.h"
#include "broker/rdma/rdma_wire.h"

#define MEMORY_BYTES   8192u
#define RECEIVES       16u
#define RECEIVE_BYTES  512u
#define SENDS          16u
#define BEYOND         8192u /* so far from what it may touch */
#define LIE_BYTES      2000u
#define LIE_NS_MAX     (2 * NS_MS)
#define CONNECTION_NS  (200 * NS_MS) /* at most */
#define REST_NS_MAX    (50 * NS_MS)
#define ACCESS_VERSION 0

static struct rdma_liar *liar_of(struct rdma_sim_end *end)
{
	return container_of(end, struct rdma_liar, end);
}

static struct world *world_of(const struct rdma_liar *liar)
{
	return liar->end.all->world;
}

/* ---- its vqp ---- */

static void changed(struct hf_vqp *vqp, void *context)
{
	(void)vqp, (void)context; /* it looks */
}

static void post_receive(struct rdma_liar *liar, uint32_t number)
{
	struct ibv_sge sge = {.addr = (uintptr_t)liar->memory, .length = RECEIVE_BYTES, .lkey = liar->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = number, .sg_list = &sge, .num_sge = 1}, *bad;

	(void)hf_vqp_post_recv(liar->vqp, &wr, &bad);
}

static void drop_vqp(struct rdma_liar *liar)
{
	hf_vqp_destroy(liar->vqp);
	liar->vqp = NULL;
	wire_rest(&liar->wire, world_range(world_of(liar), 1, REST_NS_MAX));
}

static void connect_with(struct rdma_liar *liar, const uint8_t *token)
{
	const struct hf_vqp_init init = {.send_cq = liar->cq,
		.cap = {.max_send_wr = SENDS, .max_recv_wr = RECEIVES, .max_send_sge = 1, .max_recv_sge = 1},
		.sq_sig_all = true,
		.revocable = liar->kind == ACCESS_PRODUCE,
		.context = liar,
		.changed = changed};
	struct hf_addr address;
	struct hf_peer *peer;
	struct hf_error error;

	ensure(hf_addr_parse("10.0.0.1:7000", &address) == 0);
	peer = hf_peer_find(liar->end.node, &address);
	if (peer == NULL && hf_peer_connect(liar->end.node, &address, 1, &peer, &error) != 0)
		return;
	if (hf_vqp_create(liar->pd, &init, &liar->vqp) != 0) {
		liar->vqp = NULL;
		return;
	}
	for (uint32_t i = 0; i < RECEIVES; i++)
		post_receive(liar, i);
	liar->is_up = false;
	liar->end_ns = hf_loop_now_ns(liar->end.loop) + world_range(world_of(liar), 1, CONNECTION_NS);
	if (hf_vqp_connect(liar->vqp, peer, RDMA_SERVICE, token, RDMA_TOKEN_BYTES) != 0)
		drop_vqp(liar);
}

static void begin(struct rdma_liar *liar)
{
	size_t bytes;
	const uint8_t *at = hf_vqp_reply(liar->vqp, &bytes);

	liar->is_up = true;
	if (liar->kind == ACCESS_PRODUCE && bytes == RDMA_GRANT_BYTES) {
		liar->id = get_le16(at + 2);
		liar->address = get_le64(at + 8);
		liar->key = get_le32(at + 16);
		liar->bytes = get_le32(at + 20);
	} else if (bytes == RDMA_READING_BYTES) {
		liar->key = get_le32(at + 4);
		liar->address = get_le64(at + 8);
		liar->bytes = RDMA_SLOTS * RDMA_SLOT_BYTES;
	}
}

/* ---- lies ---- */

/* Any bytes, often with a beginning that means something. */
static void make_up(struct rdma_liar *liar, uint8_t *to, uint32_t bytes)
{
	struct world *world = world_of(liar);

	for (uint32_t i = 0; i < bytes; i++)
		to[i] = (uint8_t)world_range(world, 0, 255);
	if (bytes > 0 && world_chance(world, 700000))
		to[0] = (uint8_t)world_range(world, 0, RDMA_RELEASE + 1);
	if (bytes >= 20 && world_chance(world, 500000)) { /* a batch's header */
		put_be32(to + 8, bytes - 12 + (world_chance(world, 500000) ? 0 : (uint32_t)world_range(world, 0, 99)));
		put_be32(to + 12, world_chance(world, 500000) ? UINT32_MAX : 0);
		to[16] = 2;
	}
	if (bytes >= RDMA_ATTACH_BYTES && to[0] == RDMA_ATTACH)
		put_le16(to + 16, (uint16_t)(bytes - RDMA_ATTACH_BYTES));
}

static void lie(struct rdma_liar *liar)
{
	static const enum ibv_wr_opcode opcodes[] = {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM,
		IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND, IBV_WR_RDMA_READ};
	struct world *world = world_of(liar);
	enum ibv_wr_opcode opcode = opcodes[world_range(world, 0, sizeof(opcodes) / sizeof(*opcodes) - 1)];
	uint32_t bytes = (uint32_t)world_range(world, 0, opcode == IBV_WR_SEND ? 40 : LIE_BYTES);
	bool far = world_chance(world, 300000);
	uint64_t from = liar->address - (far ? BEYOND : 0), to = liar->address + (far ? BEYOND + liar->bytes : 64);
	struct ibv_sge sge = {.addr = (uintptr_t)liar->memory + RECEIVE_BYTES, .length = bytes, .lkey = liar->mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &sge,
				   .num_sge = 1,
				   .opcode = opcode,
				   .imm_data = rdma_imm(world_chance(world, 700000)
								? liar->order
								: (uint16_t)world_range(world, 0, 70),
					   world_chance(world, 700000) ? liar->id : (uint16_t)world_range(world, 0, 9)),
				   .wr.rdma = {.remote_addr = world_range(world, from, to), .rkey = liar->key}},
			   *bad;

	if (world_chance(world, 400000))
		wr.wr.rdma.remote_addr = liar->address;
	make_up(liar, liar->memory + RECEIVE_BYTES, bytes);
	if (hf_vqp_post_send(liar->vqp, &wr, &bad) == 0) {
		liar->order = (uint16_t)(liar->order + (opcode == IBV_WR_RDMA_WRITE_WITH_IMM));
		liar->end.all->lies++;
	}
}

static enum hf_poll turn(struct hf_poller *poller, uint64_t now_ns)
{
	struct rdma_liar *liar = liar_of(container_of(poller, struct rdma_sim_end, poller));
	struct ibv_wc wcs[SENDS];
	int n = hf_vcq_poll(liar->cq, SENDS, wcs);

	for (int i = 0; i < n && liar->vqp != NULL; i++)
		if (wcs[i].status == IBV_WC_SUCCESS && (wcs[i].opcode & IBV_WC_RECV) != 0)
			post_receive(liar, (uint32_t)wcs[i].wr_id);
	if (liar->vqp == NULL)
		return HF_IDLE;
	if (hf_vqp_state(liar->vqp) == HF_VQP_ERROR || now_ns >= liar->end_ns) {
		drop_vqp(liar);
		return HF_BUSY;
	}
	if (hf_vqp_state(liar->vqp) != HF_VQP_UP || now_ns < liar->next_ns)
		return HF_IDLE;
	if (!liar->is_up)
		begin(liar);
	lie(liar);
	liar->next_ns = now_ns + world_range(world_of(liar), 1, LIE_NS_MAX);
	return HF_BUSY;
}

static bool arm(struct hf_poller *poller)
{
	struct rdma_sim_end *end = container_of(poller, struct rdma_sim_end, poller);

	hf_loop_set_timer(
		end->loop, &end->timer, hf_loop_now_ns(end->loop) + world_range(end->all->world, 1, LIE_NS_MAX));
	return true;
}

static void timer_fired(struct hf_timer *timer, uint64_t now_ns)
{
	(void)timer, (void)now_ns;
}

/* ---- tokens ---- */

static struct rdma_liar *owner(struct wire *wire)
{
	return container_of(wire, struct rdma_liar, wire);
}

static void ask(struct wire *wire)
{
	struct rdma_liar *liar = owner(wire);
	struct world *world = world_of(liar);
	struct kafka_access_request request = {.topic = {RDMA_SIM_TOPIC, sizeof(RDMA_SIM_TOPIC) - 1},
		.partition = (int32_t)world_range(world, 0, RDMA_SIM_PARTITIONS),
		.producer_id = (int64_t)world_range(world, 1000000, 1000010), /* nobody else's */
		.acks = 1};

	if (liar->vqp != NULL || liar->end.all->stopping) {
		wire_rest(wire, REST_NS_MAX);
		return;
	}
	liar->kind = world_chance(world, 700000) ? ACCESS_PRODUCE : ACCESS_READ;
	request.kind = (int8_t)liar->kind;
	wire_send(wire, KAFKA_ACCESS, ACCESS_VERSION, &request);
}

static void told(struct wire *wire, const void *answer)
{
	struct rdma_liar *liar = owner(wire);
	const struct kafka_access_response *response = answer;

	liar->order = 0;
	if (response->error_code == KAFKA_NONE)
		connect_with(liar, response->token.byte);
	wire_rest(wire, world_range(world_of(liar), 1, REST_NS_MAX));
}

static void broken(struct wire *wire)
{
	(void)wire;
}

static int start(struct process *process, void *context)
{
	struct rdma_sim_end *end = context;
	struct rdma_liar *liar = liar_of(end);
	struct hf_error error;
	struct hf_addr local, remote;
	void *memory = NULL;
	char text[HF_ADDR_TEXT];
	int rc = rdma_sim_open_node(end);

	if (rc != 0)
		return rc;
	ensure(hf_mem_alloc(&process->env, MEMORY_BYTES, &memory, &error) == 0);
	liar->memory = memory;
	ensure(hf_vpd_alloc(end->node, &liar->pd) == 0);
	ensure(hf_vmr_reg(liar->pd, memory, MEMORY_BYTES, IBV_ACCESS_LOCAL_WRITE, &liar->mr, &error) == 0);
	ensure(hf_vcq_create(end->node, 4 * (SENDS + RECEIVES), liar, &liar->cq) == 0);
	snprintf(text, sizeof(text), "10.0.0.%u", end->index + 1);
	ensure(hf_addr_parse(text, &local) == 0 && hf_addr_parse("10.0.0.1:9092", &remote) == 0);
	liar->wire.ready = ask;
	liar->wire.answer = told;
	liar->wire.broken = broken;
	liar->wire.late_ns = liar->wire.again_ns = 100 * NS_MS;
	wire_open(&liar->wire, end->loop, &local, &remote);
	end->poller = (struct hf_poller){.poll = turn, .arm = arm};
	end->timer = (struct hf_timer){.fire = timer_fired};
	hf_loop_add_poller(end->loop, &end->poller);
	return 0;
}

static void stop(struct process *process, void *context)
{
	struct rdma_sim_end *end = context;
	struct rdma_liar *liar = liar_of(end);

	if (liar->vqp != NULL)
		hf_vqp_destroy(liar->vqp);
	liar->vqp = NULL;
	wire_close(&liar->wire);
	hf_loop_cancel_timer(end->loop, &end->timer);
	hf_loop_remove_poller(end->loop, &end->poller);
	(void)hf_vcq_destroy(liar->cq);
	(void)hf_vmr_dereg(liar->mr);
	(void)hf_vpd_free(liar->pd);
	hf_mem_free(&process->env, liar->memory);
	rdma_sim_close_node(end);
}

const struct program rdma_liar_program = {.name = "liar", .start = start, .stop = stop};
