/* A client process: several clients, each posting batches of everything and checking every answer. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "stress.h"

#define BATCH_MAX        16u
#define REST_NS_MAX      1000000u
#define SLOW_REST_NS_MAX 6000000u
#define ANSWERS          32u
#define CELL_BIG_STEP    0x100000001ull

enum op_kind {
	OP_CELL_WRITE,
	OP_CELL_CAS,
	OP_CELL_CAS_FAILS,
	OP_CELL_FAA,
	OP_COUNT,
	OP_CHAIN,
	OP_RECORD,
	OP_RELEASED,
	OP_SEND,
	OP_KINDS
};

struct op {
	enum op_kind kind;
	bool signaled;
	uint64_t expected; /* what it must return */
	uint64_t swap;     /* CHAIN: what it puts there */
};

struct local {
	uint8_t sources[DEPTH][RECORD_BYTES]; /* of the op at that place in the queue; also where answers land */
	uint8_t answers[ANSWERS][8];
};

struct client {
	unsigned number;
	struct process *process;
	struct hf_vqp *vqp;
	struct local *local;
	struct stress_client *shared;
	uint64_t remote;           /* address of struct remote; 0: not connected */
	uint32_t rkey, words_rkey; /* words_rkey: of counter and chain */
	struct op ops[DEPTH];
	uint64_t posted, completed;
	uint64_t cells[CELLS]; /* what they hold once all that was posted has executed */
	uint64_t chain_seen, attempts, counter_seen, released, records, messages, unique;
	uint64_t answers_offered, answers_received;
	bool chaining, reading;
	uint64_t rest_until_ns, random;
};

struct process {
	struct stress_node base;
	struct hf_peer *peer;
	bool peer_up;
	struct client clients[PER_PROCESS]; /* base.stress->per_process of them */
	struct hf_poller poller;
};

static uint64_t draw(struct client *client, uint64_t n)
{
	client->random += 0x9e3779b97f4a7c15ull;
	return mix(client->random) % n;
}

/* ---- what is posted ---- */

static uint64_t at(const struct client *client, size_t offset)
{
	return client->remote + offset;
}

static size_t client_offset(const struct client *client, size_t offset)
{
	return offsetof(struct remote, clients) + client->number * sizeof(struct remote_client) + offset;
}

static bool allowed(const struct client *client, enum op_kind kind)
{
	enum stress_atomics atomics = client->process->base.stress->atomics;
	bool blind = client->process->base.stress->blind;

	if (atomics != ATOMICS_NATIVE && (kind == OP_CELL_CAS || kind == OP_CELL_CAS_FAILS || kind == OP_CELL_FAA))
		return false;
	if (atomics == ATOMICS_NONE && (kind == OP_COUNT || kind == OP_CHAIN))
		return false;
	if (kind == OP_CHAIN)
		return !client->chaining && !blind && client->attempts + 1 < ATTEMPTS_MAX;
	if (kind == OP_RECORD)
		return !blind && client->records < client->released + RECORDS;
	if (kind == OP_RELEASED)
		return !client->reading;
	if (kind == OP_SEND && message_is_write(client->process->base.stress, client->number, client->messages))
		return client->messages <
		       client->answers_received * ANSWER_EVERY + RECEIVES; /* one that was looked at */
	if (kind <= OP_CELL_FAA)
		return !blind;
	return true;
}

static enum op_kind pick(struct client *client)
{
	static const uint8_t weights[OP_KINDS] = {[OP_CELL_WRITE] = 3,
		[OP_CELL_CAS] = 4,
		[OP_CELL_CAS_FAILS] = 2,
		[OP_CELL_FAA] = 4,
		[OP_COUNT] = 3,
		[OP_CHAIN] = 3,
		[OP_RECORD] = 6,
		[OP_RELEASED] = 1,
		[OP_SEND] = 4};

	for (;;) {
		uint64_t r = draw(client, 30);

		for (unsigned kind = 0; kind < OP_KINDS; r -= weights[kind++])
			if (r < weights[kind]) {
				if (allowed(client, (enum op_kind)kind))
					return (enum op_kind)kind;
				break;
			}
	}
}

static void put_write(struct client *client, struct ibv_send_wr *wr, uint64_t remote, uint32_t bytes)
{
	wr->opcode = IBV_WR_RDMA_WRITE;
	wr->wr.rdma.remote_addr = remote;
	wr->wr.rdma.rkey = client->rkey;
	wr->sg_list->length = bytes;
}

static void put_atomic(struct client *client, struct ibv_send_wr *wr, enum ibv_wr_opcode opcode, uint64_t remote,
	uint64_t a, uint64_t b)
{
	wr->opcode = opcode;
	wr->wr.atomic.remote_addr = remote;
	wr->wr.atomic.rkey = remote < at(client, offsetof(struct remote, clients)) ? client->words_rkey : client->rkey;
	wr->wr.atomic.compare_add = a;
	wr->wr.atomic.swap = b;
	wr->send_flags = IBV_SEND_SIGNALED; /* its answer is looked at */
}

/* The words of a cell are values that no other operation of the run leaves there. */
static void put_cell(struct client *client, struct op *op, struct ibv_send_wr *wr, uint64_t *source)
{
	unsigned i = (unsigned)draw(client, CELLS);
	uint64_t remote = at(client, client_offset(client, offsetof(struct remote_client, cells) + i * 8));
	uint64_t value = (uint64_t)(client->number + 1) << 56 | ++client->unique << 24;
	uint64_t addend = client->unique * CELL_BIG_STEP;

	op->expected = client->cells[i];
	if (op->kind == OP_CELL_WRITE) {
		*source = value;
		put_write(client, wr, remote, 8);
		if (draw(client, 2) == 0)
			wr->send_flags |= IBV_SEND_INLINE;
		client->cells[i] = value;
	} else if (op->kind == OP_CELL_CAS) {
		put_atomic(client, wr, IBV_WR_ATOMIC_CMP_AND_SWP, remote, client->cells[i], value);
		client->cells[i] = value;
	} else if (op->kind == OP_CELL_CAS_FAILS) {
		put_atomic(client, wr, IBV_WR_ATOMIC_CMP_AND_SWP, remote, client->cells[i] ^ 1, value);
	} else {
		put_atomic(client, wr, IBV_WR_ATOMIC_FETCH_AND_ADD, remote, addend, 0);
		client->cells[i] += addend;
	}
}

static void put_record(struct client *client, struct ibv_send_wr *wr, uint64_t *source)
{
	uint64_t k = client->records++;
	uint32_t words = record_words(client->number, k);

	for (uint32_t i = 0; i < words; i++)
		source[i] = record_word(client->number, k, i);
	put_write(client, wr,
		at(client, client_offset(client,
				   offsetof(struct remote_client, records) + k % RECORDS * (size_t)RECORD_BYTES)),
		words * 8);
}

static void put_message(struct client *client, struct ibv_send_wr *wr, uint64_t *source)
{
	uint64_t k = client->messages++;
	uint32_t words = message_words(client->number, k);

	for (uint32_t i = 0; i < words; i++)
		source[i] = message_word(client->number, k, i);
	if (message_is_write(client->process->base.stress, client->number, k)) {
		put_write(client, wr,
			at(client, client_offset(client, offsetof(struct remote_client, written) +
								 k % RECEIVES * (size_t)MESSAGE_BYTES)),
			words * 8);
		wr->opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
		wr->imm_data = (uint32_t)k;
		return;
	}
	wr->opcode = IBV_WR_SEND;
	wr->sg_list->length = words * 8;
}

static void fill(struct client *client, uint64_t position, struct ibv_send_wr *wr, struct ibv_sge *sge)
{
	struct op *op = &client->ops[position % DEPTH];
	uint64_t *source = (uint64_t *)(void *)client->local->sources[position % DEPTH];

	*op = (struct op){.kind = pick(client)};
	*sge = (struct ibv_sge){.addr = (uintptr_t)source, .length = 8, .lkey = client->process->base.mr->lkey};
	*wr = (struct ibv_send_wr){.wr_id = position, .sg_list = sge, .num_sge = 1};
	if (draw(client, 3) > 0)
		wr->send_flags = IBV_SEND_SIGNALED;
	if (op->kind <= OP_CELL_FAA) {
		put_cell(client, op, wr, source);
	} else if (op->kind == OP_COUNT) {
		put_atomic(client, wr, IBV_WR_ATOMIC_FETCH_AND_ADD, at(client, offsetof(struct remote, counter)), 1, 0);
		atomic_fetch_add(&client->shared->additions, 1);
	} else if (op->kind == OP_CHAIN) {
		op->expected = client->chain_seen;
		op->swap = (uint64_t)(client->number + 1) << 48 | ++client->attempts;
		put_atomic(client, wr, IBV_WR_ATOMIC_CMP_AND_SWP, at(client, offsetof(struct remote, chain)),
			op->expected, op->swap);
		client->chaining = true;
	} else if (op->kind == OP_RECORD) {
		put_record(client, wr, source);
	} else if (op->kind == OP_RELEASED) {
		wr->opcode = IBV_WR_RDMA_READ;
		wr->wr.rdma.remote_addr = at(client, client_offset(client, offsetof(struct remote_client, released)));
		wr->wr.rdma.rkey = client->rkey;
		wr->send_flags = IBV_SEND_SIGNALED;
		client->reading = true;
	} else {
		put_message(client, wr, source);
	}
	op->signaled = (wr->send_flags & IBV_SEND_SIGNALED) != 0;
}

static bool post_batch(struct client *client, uint64_t now_ns)
{
	struct ibv_send_wr wrs[BATCH_MAX], *bad;
	struct ibv_sge sges[BATCH_MAX];
	unsigned n = 1 + (unsigned)draw(client, BATCH_MAX);

	if (now_ns < client->rest_until_ns || client->posted - client->completed + n > DEPTH)
		return false;
	for (unsigned i = 0; i < n; i++) {
		fill(client, client->posted + i, &wrs[i], &sges[i]);
		wrs[i].next = i + 1 < n ? &wrs[i + 1] : NULL;
	}
	wrs[n - 1].send_flags |= IBV_SEND_SIGNALED; /* so that every wr is known to be over in the end */
	client->ops[(client->posted + n - 1) % DEPTH].signaled = true;
	if (hf_vqp_post_send(client->vqp, wrs, &bad) != 0) {
		stress_violate(client->process->base.stress, "client %u: a post was refused", client->number);
		return false;
	}
	client->posted += n;
	atomic_store(&client->shared->posted, client->posted);
	atomic_store(&client->shared->records, client->records);
	atomic_store(&client->shared->messages, client->messages);
	client->rest_until_ns = now_ns;
	if (stress_is_real(client->process->base.stress)) /* others need the cores too */
		client->rest_until_ns += draw(client, SLOW_REST_NS_MAX);
	else if (draw(client, 4) == 0)
		client->rest_until_ns += draw(client, REST_NS_MAX);
	return true;
}

/* ---- what comes back ---- */

static void counted(struct client *client, uint64_t value)
{
	struct stress *stress = client->process->base.stress;
	uint8_t bit = (uint8_t)(1u << value % 8);

	if (stress->blind)
		return;
	if (value >= COUNTER_MAX || (client->counter_seen != 0 && value + 1 <= client->counter_seen) ||
		(atomic_fetch_or(&stress->answered[value / 8], bit) & bit) != 0)
		stress_violate(stress, "counter: client %u was answered %" PRIu64 " again, after %" PRIu64,
			client->number, value, client->counter_seen - 1);
	client->counter_seen = value + 1;
}

static void chained(struct client *client, const struct op *op, uint64_t value)
{
	client->chaining = false;
	client->chain_seen = value == op->expected ? op->swap : value;
	if (value == op->expected)
		client->shared->links[op->swap & (ATTEMPTS_MAX - 1)] = value + 1;
	else if (value == op->swap)
		stress_violate(client->process->base.stress,
			"chain: client %u: CAS to %012" PRIx64 " found that value there: it had been executed before",
			client->number, op->swap);
}

static void judge(struct client *client, uint64_t position)
{
	struct op *op = &client->ops[position % DEPTH];
	uint64_t value = *(uint64_t *)(void *)client->local->sources[position % DEPTH];

	switch (op->kind) {
	case OP_CELL_CAS:
	case OP_CELL_CAS_FAILS:
	case OP_CELL_FAA:
		if (value != op->expected)
			stress_violate(client->process->base.stress,
				"cells: client %u: wr %" PRIu64 " (%s) returned %016" PRIx64
				" and should have %016" PRIx64,
				client->number, position, op->kind == OP_CELL_FAA ? "FAA" : "CAS", value, op->expected);
		break;
	case OP_COUNT:
		counted(client, value);
		break;
	case OP_CHAIN:
		chained(client, op, value);
		break;
	case OP_RELEASED:
		client->reading = false;
		if (value < client->released)
			stress_violate(
				client->process->base.stress, "read: client %u read an old value", client->number);
		client->released = value;
		break;
	case OP_CELL_WRITE:
	case OP_RECORD:
	case OP_SEND:
	case OP_KINDS:
		break;
	}
}

static void answer_received(struct client *client, const struct ibv_wc *wc)
{
	uint64_t k = client->answers_received++;

	if (wc->wr_id != k || wc->byte_len != 8 ||
		*(uint64_t *)(void *)client->local->answers[k % ANSWERS] != message_word(client->number, k, 0))
		stress_violate(client->process->base.stress, "messages: client %u: answer %" PRIu64 " is not that one",
			client->number, k);
}

static void completed(struct client *client, const struct ibv_wc *wc)
{
	struct stress *stress = client->process->base.stress;

	if (wc->status != IBV_WC_SUCCESS) {
		stress_violate(stress, "client %u: %s %" PRIu64 " completed with status %d (%u)", client->number,
			wc->opcode & IBV_WC_RECV ? "receive" : "wr", wc->wr_id, (int)wc->status, wc->vendor_err);
		return;
	}
	if (wc->opcode & IBV_WC_RECV) {
		answer_received(client, wc);
		return;
	}
	while (client->completed < wc->wr_id && !client->ops[client->completed % DEPTH].signaled)
		client->completed++;
	if (wc->wr_id != client->completed) {
		stress_violate(stress, "client %u: wr %" PRIu64 " completed where %" PRIu64 " was due", client->number,
			wc->wr_id, client->completed);
		return;
	}
	judge(client, wc->wr_id);
	client->completed++;
	atomic_store(&client->shared->completed, client->completed);
}

static void offer_answers(struct client *client)
{
	while (client->answers_offered < client->answers_received + ANSWERS) {
		struct ibv_sge sge = {.addr = (uintptr_t)client->local->answers[client->answers_offered % ANSWERS],
			.length = 8,
			.lkey = client->process->base.mr->lkey};
		struct ibv_recv_wr wr = {.wr_id = client->answers_offered, .sg_list = &sge, .num_sge = 1}, *bad;

		if (hf_vqp_post_recv(client->vqp, &wr, &bad) != 0)
			return;
		client->answers_offered++;
	}
}

/* ---- the program ---- */

static void peer_up(struct hf_peer *peer, void *context)
{
	struct process *process = context;

	if (peer == process->peer)
		process->peer_up = true;
}

static void changed(struct hf_vqp *vqp, void *context)
{
	struct client *client = context;
	size_t bytes;
	const uint8_t *reply = hf_vqp_reply(vqp, &bytes);

	atomic_store(&client->shared->rail, hf_vqp_rail(vqp));
	if (hf_vqp_state(vqp) == HF_VQP_ERROR && atomic_load(&client->process->base.stress->phase) < PHASE_CHECK)
		stress_violate(client->process->base.stress, "client %u: its vqp failed: %s", client->number,
			hf_vqp_reason(vqp));
	if (hf_vqp_state(vqp) != HF_VQP_UP || client->remote != 0 || bytes != 16)
		return;
	memcpy(&client->remote, reply, 8);
	memcpy(&client->rkey, reply + 8, 4);
	memcpy(&client->words_rkey, reply + 12, 4);
	atomic_fetch_add(&client->process->base.stress->ready, 1);
}

static void connect_client(struct client *client)
{
	struct process *process = client->process;
	struct hf_vqp_init init = {.send_cq = process->base.cq,
		.recv_cq = process->base.cq,
		.cap = {.max_send_wr = DEPTH,
			.max_recv_wr = ANSWERS,
			.max_send_sge = 1,
			.max_recv_sge = 1,
			.max_inline_data = 8},
		.context = client,
		.changed = changed};
	uint8_t number = (uint8_t)client->number;

	if (hf_vqp_create(process->base.pd, &init, &client->vqp) != 0 ||
		hf_vqp_connect(client->vqp, process->peer, SERVICE, &number, 1) != 0)
		stress_violate(process->base.stress, "client %u cannot connect", client->number);
	offer_answers(client);
}

static void completed_by(struct process *process, const struct ibv_wc *wc)
{
	for (unsigned i = 0; i < process->base.stress->per_process; i++)
		if (hf_vqp_num(process->clients[i].vqp) == wc->qp_num) {
			completed(&process->clients[i], wc);
			offer_answers(&process->clients[i]);
		}
}

/* All that was posted is over and answered: what the server must hold now is said. */
static void drain(struct client *client)
{
	struct hf_vqp_counters counters;

	if (atomic_load(&client->shared->drained) || client->completed != client->posted ||
		client->answers_received != client->messages / ANSWER_EVERY)
		return;
	memcpy(client->shared->cells, client->cells, sizeof(client->cells));
	hf_vqp_counters(client->vqp, &counters);
	atomic_store(&client->shared->failovers, counters.failovers);
	atomic_store(&client->shared->resent_wrs, counters.resent_wrs);
	atomic_store(&client->shared->drained, true);
}

static enum hf_poll poll_clients(struct hf_poller *poller, uint64_t now_ns)
{
	struct process *process = (struct process *)((char *)poller - offsetof(struct process, poller));
	int phase = atomic_load(&process->base.stress->phase);
	struct ibv_wc wc[POLL_BATCH];
	bool busy = false;
	int n;

	for (unsigned k = 0; k < POLLS_A_TURN && (n = hf_vcq_poll(process->base.cq, POLL_BATCH, wc)) > 0; k++) {
		for (int i = 0; i < n; i++)
			completed_by(process, &wc[i]);
		busy = true;
	}
	for (unsigned i = 0; i < process->base.stress->per_process; i++) {
		struct client *client = &process->clients[i];

		if (client->remote != 0 && phase == PHASE_RUN && post_batch(client, now_ns))
			busy = true;
		if (phase >= PHASE_DRAIN)
			drain(client);
	}
	return busy ? HF_BUSY : HF_IDLE;
}

int stress_client(struct stress *stress, unsigned number)
{
	static struct process process;
	const struct hf_node_events events = {.peer_up = peer_up};
	struct hf_addr server[RAILS];

	process.base = (struct stress_node){.stress = stress, .process = number};
	stress_node_open(&process.base, &events, &process, PER_PROCESS * sizeof(struct local));
	stress_addresses(stress, 0, server);
	if (hf_peer_connect(process.base.node, server, RAILS, &process.peer, NULL) != 0)
		return 2;
	while (!process.peer_up)
		hf_loop_turn(process.base.loop, 1000000);
	for (unsigned i = 0; i < stress->per_process; i++) {
		struct client *client = &process.clients[i];

		client->number = (number - 1) * stress->per_process + i;
		client->process = &process;
		client->local = (struct local *)process.base.memory + i;
		client->shared = &stress->clients[client->number];
		client->random = stress->seed * CLIENTS + client->number;
		connect_client(client);
	}
	process.poller = (struct hf_poller){.poll = poll_clients};
	hf_loop_add_poller(process.base.loop, &process.poller);
	while (atomic_load(&stress->phase) < PHASE_END)
		stress_turn(&process.base, 200000);
	hf_loop_remove_poller(process.base.loop, &process.poller);
	for (unsigned i = 0; i < stress->per_process; i++)
		hf_vqp_destroy(process.clients[i].vqp);
	stress_node_close(&process.base);
	return 0;
}
