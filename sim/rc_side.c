/* One process of the RC scenario: opens its rails' devices, posts work, polls completions. */
#include "sim/rc.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "sim/device.h"

#define END_BYTES   (4 * RC_WINDOW)
#define WORDS_BYTES 4096u
#define RECEIVE_BIT (1ull << 32)
#define POLL_MAX    16
#define BURST_MAX   4u
#define REST_NS_MAX (400 * NS_US)
#define INLINE_MAX  64u

unsigned rc_in_flight(const struct rc_end *end)
{
	return end->flow == NULL ? 0 : end->flow->count - end->flow->next_completed;
}

/* ---- posting ---- */

struct posting {
	struct ibv_send_wr wr;
	struct ibv_sge sge[2];
};

static struct rc_rail *rail_of(struct rc_end *end)
{
	return &end->side->rails[end->lane->rail];
}

static uint32_t pick_bytes(struct world *world)
{
	if (world_chance(world, 400000))
		return (uint32_t)world_range(world, 1, 64);
	return (uint32_t)world_range(world, 8, RC_SLOT_BYTES);
}

static enum op_kind pick_kind(struct world *world)
{
	static const enum op_kind mix[] = {OP_WRITE, OP_WRITE, OP_WRITE, OP_WRITE, OP_WRITE_IMM, OP_SEND, OP_SEND,
		OP_READ, OP_READ, OP_CAS, OP_CAS, OP_FAA};

	return mix[world_range(world, 0, sizeof(mix) / sizeof(mix[0]) - 1)];
}

static void make_atomic(struct rc_end *end, struct op *op)
{
	struct world *world = end->lane->rc->world;
	unsigned word = (unsigned)world_range(world, 0, RC_WORDS - 1);
	struct linear *history = &end->words->history[word];

	op->bytes = 8;
	op->target = (uintptr_t)&end->words->at[word];
	op->argument = rng_next(&world->rng);
	op->compare = op->kind == OP_CAS ? end->seen[word] : 0;
	end->history[end->flow->count % RC_SLOTS] =
		linear_post(history, op->kind == OP_CAS, op->argument, op->compare, world->now_ns);
}

static struct op *make_op(struct rc_end *end)
{
	struct world *world = end->lane->rc->world;
	struct op op = {.kind = pick_kind(world), .bytes = pick_bytes(world)};
	uint32_t number = end->flow->count;

	op.imm = (uint32_t)rng_next(&world->rng);
	op.target = (uintptr_t)rc_other(end)->memory + (number % RC_SLOTS) * RC_SLOT_BYTES;
	if (op.kind == OP_READ) /* of what one of the last wrs may have written */
		op.target = (uintptr_t)rc_other(end)->memory + world_range(world, 0, RC_SLOTS - 1) * RC_SLOT_BYTES;
	if (op_is_atomic(&op))
		make_atomic(end, &op);
	return flow_post(end->flow, &op);
}

static void fill_local(struct rc_end *end, const struct op *op, struct posting *posting)
{
	struct world *world = end->lane->rc->world;
	uint32_t slot = op->number % RC_SLOTS, lkey = rail_of(end)->mr->lkey;
	bool outgoing = op->kind == OP_WRITE || op->kind == OP_WRITE_IMM || op->kind == OP_SEND;
	uint8_t *local = end->memory + (outgoing ? 2 : 3) * RC_WINDOW + slot * RC_SLOT_BYTES;

	if (outgoing)
		flow_payload(end->flow, op->number, 0, op->bytes, local);
	posting->sge[0] = (struct ibv_sge){.addr = (uintptr_t)local, .length = op->bytes, .lkey = lkey};
	posting->wr.sg_list = posting->sge;
	posting->wr.num_sge = 1;
	if (outgoing && op->bytes <= INLINE_MAX && world_chance(world, 500000)) {
		posting->wr.send_flags |= IBV_SEND_INLINE;
	} else if (op->bytes > 8 && op->kind != OP_CAS && op->kind != OP_FAA && world_chance(world, 200000)) {
		uint32_t first = (uint32_t)world_range(world, 1, op->bytes - 1);

		posting->sge[0].length = first;
		posting->sge[1] =
			(struct ibv_sge){.addr = (uintptr_t)local + first, .length = op->bytes - first, .lkey = lkey};
		posting->wr.num_sge = 2;
	}
}

static void fill_remote(struct rc_end *end, const struct op *op, struct ibv_send_wr *wr)
{
	static const enum ibv_wr_opcode opcodes[] = {
		[OP_WRITE] = IBV_WR_RDMA_WRITE,
		[OP_WRITE_IMM] = IBV_WR_RDMA_WRITE_WITH_IMM,
		[OP_SEND] = IBV_WR_SEND_WITH_IMM,
		[OP_READ] = IBV_WR_RDMA_READ,
		[OP_CAS] = IBV_WR_ATOMIC_CMP_AND_SWP,
		[OP_FAA] = IBV_WR_ATOMIC_FETCH_AND_ADD,
	};
	uint32_t rkey = rail_of(rc_other(end))->mr->rkey;

	wr->opcode = opcodes[op->kind];
	wr->imm_data = htobe32(op->imm);
	if (op_is_atomic(op)) {
		wr->wr.atomic.remote_addr = op->target;
		wr->wr.atomic.rkey = rkey;
		wr->wr.atomic.compare_add = op->kind == OP_CAS ? op->compare : op->argument;
		wr->wr.atomic.swap = op->argument;
	} else {
		wr->wr.rdma.remote_addr = op->target;
		wr->wr.rdma.rkey = rkey;
	}
}

static void post_one(struct rc_end *end, bool signaled)
{
	struct posting posting = {0};
	struct ibv_send_wr *bad;
	struct op *op = make_op(end);

	op->unsignaled = !signaled;
	op->psn = hf_qp_next_psn(end->qp);
	posting.wr.wr_id = op->number;
	posting.wr.send_flags = signaled ? IBV_SEND_SIGNALED : 0;
	if (world_chance(end->lane->rc->world, 50000))
		posting.wr.send_flags |= IBV_SEND_FENCE;
	fill_local(end, op, &posting);
	fill_remote(end, op, &posting.wr);
	if (hf_qp_post_send(end->qp, &posting.wr, &bad) != 0) {
		world_violate(end->lane->rc->world, "posting", "a well-formed wr was refused");
		return;
	}
	op->psns = (hf_qp_next_psn(end->qp) - op->psn) & 0xffffff;
}

static bool may_post(const struct rc_end *end)
{
	return end->qp != NULL && !end->failed && end->lane->state == RC_RUNNING && !end->lane->rc->stopping &&
	       end->flow->count < end->budget && rc_other(end)->memory != NULL;
}

static bool post_burst(struct rc_end *end, uint64_t now_ns)
{
	struct world *world = end->lane->rc->world;
	unsigned n;

	if (!may_post(end) || now_ns < end->next_post_ns)
		return false;
	n = (unsigned)world_range(world, 1, BURST_MAX);
	if (rc_in_flight(end) + n > RC_DEPTH)
		return false;
	for (unsigned i = 1; i <= n; i++)
		post_one(end, i == n || world_chance(world, 700000));
	end->next_post_ns = now_ns + (end->hot || world_chance(world, 300000) ? 0 : world_range(world, 0, REST_NS_MAX));
	return true;
}

int rc_post_receives(struct rc_end *end)
{
	while (end->receives_posted < (end->flow == NULL ? 0 : rc_other(end)->flow->received) + RC_SLOTS) {
		uint32_t slot = end->receives_posted % RC_SLOTS;
		struct ibv_sge sge = {.addr = (uintptr_t)end->memory + RC_WINDOW + slot * RC_SLOT_BYTES,
			.length = RC_SLOT_BYTES,
			.lkey = rail_of(end)->mr->lkey};
		struct ibv_recv_wr wr = {.wr_id = RECEIVE_BIT | end->receives_posted, .sg_list = &sge, .num_sge = 1};
		struct ibv_recv_wr *bad;
		int rc = end->srq != NULL ? hf_srq_post_recv(end->srq, &wr, &bad) : hf_qp_post_recv(end->qp, &wr, &bad);

		if (rc != 0)
			return rc;
		end->receives_posted++;
	}
	return 0;
}

/* ---- completions ---- */

static struct rc_end *end_of(struct rc_side *side, unsigned rail, uint32_t qp_num)
{
	struct rc *rc = side->rc;

	for (unsigned i = 0; i < rc->rail_count * rc->lane_count; i++) {
		struct rc_end *end = &rc->lanes[i].ends[side->index];

		if (end->lane->rail == rail && end->qp != NULL && end->qp->qp_num == qp_num)
			return end;
	}
	return NULL;
}

static void take_send(struct rc_end *end, const struct ibv_wc *wc)
{
	struct rc *rc = end->lane->rc;
	const struct op *op = &end->flow->ops[wc->wr_id];

	flow_completed(end->flow, wc);
	world_note(rc->world, "wc", wc->wr_id << 8 | wc->status);
	if (wc->status != IBV_WC_SUCCESS) {
		end->failed = true;
		return;
	}
	rc->outcome->operations++;
	if (rc->world->now_ns >= rc->faults.quiet_ns)
		end->lane->completed_since_quiet++;
	if (op_is_atomic(op)) {
		unsigned word = (unsigned)((op->target - (uintptr_t)end->words->at) / 8);
		uint64_t original =
			*(uint64_t *)(void *)(end->memory + 3 * RC_WINDOW + (op->number % RC_SLOTS) * RC_SLOT_BYTES);

		linear_complete(
			&end->words->history[word], end->history[op->number % RC_SLOTS], original, rc->world->now_ns);
		end->seen[word] = op->kind == OP_CAS && original != op->compare ? original
				  : op->kind == OP_CAS                          ? op->argument
										: original + op->argument;
	}
}

static void take_receive(struct rc_end *end, struct ibv_wc *wc)
{
	wc->wr_id &= ~RECEIVE_BIT;
	if (wc->status != IBV_WC_SUCCESS) {
		end->failed = true;
		return;
	}
	flow_received(rc_other(end)->flow, wc);
	if (!end->failed)
		rc_post_receives(end);
}

unsigned rc_poll_cq(struct rc_side *side, unsigned rail)
{
	struct ibv_wc wc[POLL_MAX];
	unsigned taken = 0;

	for (int n; (n = hf_cq_poll(side->rails[rail].cq, POLL_MAX, wc)) > 0; taken += (unsigned)n)
		for (int i = 0; i < n; i++) {
			struct rc_end *end = end_of(side, rail, wc[i].qp_num);

			if (end == NULL || end->flow == NULL)
				continue; /* of a qp that was destroyed unfenced: the cq may still hold some */
			if (wc[i].wr_id & RECEIVE_BIT)
				take_receive(end, &wc[i]);
			else
				take_send(end, &wc[i]);
		}
	return taken;
}

void rc_take_events(struct rc_side *side, unsigned rail)
{
	struct hf_dev_event event;

	while (hf_dev_get_event(side->rails[rail].dev, &event) > 0) {
		struct rc_end *end = event.qp == NULL ? NULL : end_of(side, rail, event.qp->qp_num);

		world_note(side->rc->world, "device-event", (uint64_t)event.type);
		if (end != NULL)
			end->last_wqe |= event.type == IBV_EVENT_QP_LAST_WQE_REACHED;
	}
}

/* ---- the process ---- */

static enum hf_poll poll_side(struct hf_poller *poller, uint64_t now_ns)
{
	struct rc_side *side = container_of(poller, struct rc_side, poller);
	struct rc *rc = side->rc;
	bool busy = false;

	for (unsigned rail = 0; rail < rc->rail_count; rail++) {
		busy |= hf_dev_poll(side->rails[rail].dev, now_ns) == HF_BUSY;
		busy |= rc_poll_cq(side, rail) > 0;
		rc_take_events(side, rail);
	}
	for (unsigned i = 0; i < rc->rail_count * rc->lane_count; i++)
		busy |= post_burst(&rc->lanes[i].ends[side->index], now_ns);
	return busy ? HF_BUSY : HF_IDLE;
}

/* When the next burst of any lane may be posted. */
static void set_burst_timer(struct rc_side *side)
{
	uint64_t due_ns = UINT64_MAX;

	for (unsigned i = 0; i < side->rc->rail_count * side->rc->lane_count; i++) {
		struct rc_end *end = &side->rc->lanes[i].ends[side->index];

		if (may_post(end) && rc_in_flight(end) == 0 && end->next_post_ns < due_ns)
			due_ns = end->next_post_ns;
	}
	if (due_ns != UINT64_MAX)
		hf_loop_set_timer(side->loop, &side->timer, due_ns);
}

static bool arm_side(struct hf_poller *poller)
{
	struct rc_side *side = container_of(poller, struct rc_side, poller);

	for (unsigned rail = 0; rail < side->rc->rail_count; rail++) {
		hf_cq_notified(side->rails[rail].cq); /* whatever it was: it is polled now */
		hf_cq_req_notify(side->rails[rail].cq, false);
		if (rc_poll_cq(side, rail) > 0 || !hf_dev_arm(side->rails[rail].dev))
			return false;
	}
	set_burst_timer(side);
	return true;
}

static void burst_is_due(struct hf_timer *timer, uint64_t now_ns)
{
	(void)timer, (void)now_ns; /* that the loop turns is enough */
}

static void device_is_ready(struct hf_watch *watch, unsigned ready)
{
	(void)watch, (void)ready; /* polling follows */
}

static int open_rail(struct rc_side *side, unsigned index)
{
	struct rc *rc = side->rc;
	struct rc_rail *rail = &side->rails[index];
	struct port *port = &rc->network.ports[index * RC_SIDES + side->index];
	struct hf_dev_config config = {.kind = "soft", .node = side->host.name, .rail = index == 0 ? "r0" : "r1"};
	size_t bytes = rc->lane_count * (size_t)END_BYTES + WORDS_BYTES;
	struct hf_error error = {0};
	int rc_code;

	config.address = port->address;
	config.mtu = rc->mtu;
	if ((rc_code = hf_dev_open(&side->process->env, &config, &rail->dev, &error)) != 0 ||
		(rc_code = hf_pd_alloc(rail->dev, &rail->pd)) != 0 ||
		(rc_code = hf_cq_create(rail->dev, 1024, NULL, &rail->cq)) != 0 ||
		(rc_code = hf_mem_alloc(&side->process->env, bytes, (void **)&rail->memory, &error)) != 0 ||
		(rc_code = hf_mr_reg(rail->pd, rail->memory, bytes, (uintptr_t)rail->memory,
			 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
				 IBV_ACCESS_REMOTE_ATOMIC,
			 &rail->mr, &error)) != 0)
		return rc_code;
	execution_watch(&rc->execution, &nic_of(rail->dev)->bus);
	rail->words = calloc(1, sizeof(*rail->words));
	ensure(rail->words != NULL);
	rail->words->at = (uint64_t *)(void *)(rail->memory + rc->lane_count * (size_t)END_BYTES);
	rail->words->area = execution_add_area(&rc->execution, rail->words->at, RC_WORDS * sizeof(uint64_t));
	list_push_back(&rc->words, &rail->words->node);
	for (unsigned i = 0; i < rc->lane_count; i++) {
		struct rc_end *end = &rc->lanes[index * rc->lane_count + i].ends[side->index];

		end->memory = rail->memory + i * (size_t)END_BYTES;
		end->target = execution_add_area(&rc->execution, end->memory, RC_WINDOW);
	}
	rail->watch.ready = device_is_ready;
	return hf_loop_watch(side->loop, &rail->watch, hf_dev_io(rail->dev), HF_READABLE);
}

static int start_side(struct process *process, void *context)
{
	struct rc_side *side = context;
	int rc;

	if ((rc = hf_loop_create(&process->env, &side->loop)) != 0)
		return rc;
	for (unsigned rail = 0; rail < side->rc->rail_count; rail++)
		if ((rc = open_rail(side, rail)) != 0) {
			world_violate(side->rc->world, "start", "a device cannot be opened: %s", strerror(-rc));
			return rc;
		}
	side->poller = (struct hf_poller){.poll = poll_side, .arm = arm_side};
	side->timer = (struct hf_timer){.fire = burst_is_due};
	hf_loop_add_poller(side->loop, &side->poller);
	return 0;
}

static void must(struct rc_side *side, int rc, const char *what)
{
	if (rc != 0)
		world_violate(side->rc->world, "closing frees everything", "%s: %s", what, strerror(-rc));
}

void rc_destroy_qp(struct rc_end *end)
{
	if (end->qp != NULL)
		must(end->side, hf_qp_destroy(end->qp), "qp destroy");
	if (end->srq != NULL)
		must(end->side, hf_srq_destroy(end->srq), "srq destroy");
	end->qp = NULL;
	end->srq = NULL;
}

static void close_rail(struct rc_side *side, struct rc_rail *rail)
{
	hf_loop_unwatch(&rail->watch);
	if (rail->mr != NULL)
		must(side, hf_mr_dereg(rail->mr), "dereg");
	hf_mem_free(&side->process->env, rail->memory);
	if (rail->cq != NULL)
		must(side, hf_cq_destroy(rail->cq), "cq destroy");
	if (rail->pd != NULL)
		must(side, hf_pd_free(rail->pd), "pd free");
	hf_dev_close(rail->dev);
	*rail = (struct rc_rail){0};
}

static void stop_side(struct process *process, void *context)
{
	struct rc_side *side = context;
	struct rc *rc = side->rc;

	(void)process;
	for (unsigned i = 0; i < rc->rail_count * rc->lane_count; i++) {
		struct rc_end *end = &rc->lanes[i].ends[side->index];

		rc_destroy_qp(end);
		end->memory = NULL;
	}
	for (unsigned rail = 0; rail < RC_RAILS; rail++)
		close_rail(side, &side->rails[rail]);
	if (side->loop != NULL) {
		hf_loop_cancel_timer(side->loop, &side->timer);
		hf_loop_destroy(side->loop);
	}
	side->loop = NULL;
}

const struct program rc_program = {.name = "rc", .start = start_side, .stop = stop_side};
