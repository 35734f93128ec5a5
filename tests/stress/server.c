/* The server: serves vqps, consumes journals and messages, and answers some. */
#include <inttypes.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>

#include "stress.h"

#define HOLD_RECORDS (RECORDS / 2) /* consumed records are watched for so long before their slots are given back */

struct served {
	struct hf_vqp *vqp;
	uint64_t consumed; /* records */
	uint64_t released;
	uint64_t offered, received; /* receives */
	uint64_t answers, answered; /* posted, completed */
};

struct server {
	struct stress_node base;
	struct remote *memory;
	struct hf_vmr *words; /* counter and chain by uid; NULL: they are of the region */
	struct served served[CLIENTS];
	struct hf_poller poller;
};

/* ---- journals ---- */

static uint64_t load(const uint64_t *word)
{
	return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

/* Soft-RoCE copies bytes, so of a word that is just being written some may be there and others not yet. */
static bool is_torn(uint64_t word, uint64_t expected)
{
	for (unsigned shift = 0; shift < 64; shift += 8) {
		uint8_t byte = (uint8_t)(word >> shift);

		if (byte != 0 && byte != (uint8_t)(expected >> shift))
			return false;
	}
	return word != expected;
}

/* What is there of record k: nothing, all of it, or something between; what is not of it is reported. */
enum arrival { ARRIVAL_NONE, ARRIVAL_PART, ARRIVAL_ALL };

static enum arrival look(struct server *server, unsigned client, uint64_t k)
{
	const uint64_t *slot = (const uint64_t *)(void *)server->memory->clients[client].records[k % RECORDS];
	uint32_t words = record_words(client, k), there = 0;
	bool real = stress_is_real(server->base.stress);

	for (uint32_t i = 0; i < RECORD_BYTES / 8; i++) {
		uint64_t word = load(&slot[i]);

		if (word == 0 || (real && i < words && is_torn(word, record_word(client, k, i))))
			continue;
		if (i >= words || word != record_word(client, k, i)) {
			stress_violate(server->base.stress,
				"journal: client %u: word %u of record %" PRIu64 " is %016" PRIx64
				", which is of record %" PRIu64,
				client, i, k, word, (word >> 16 & 0xffffffffff) - 1);
			return ARRIVAL_NONE;
		}
		there++;
	}
	return there == words ? ARRIVAL_ALL : there == 0 ? ARRIVAL_NONE : ARRIVAL_PART;
}

static bool began(struct server *server, unsigned client, uint64_t k)
{
	const uint64_t *slot = (const uint64_t *)(void *)server->memory->clients[client].records[k % RECORDS];

	return load(slot) != 0;
}

static void release(struct server *server, unsigned client)
{
	struct served *served = &server->served[client];
	struct remote_client *remote = &server->memory->clients[client];
	static const uint8_t zeros[RECORD_BYTES];

	for (; served->released + HOLD_RECORDS < served->consumed; served->released++)
		if (memcmp(remote->records[served->released % RECORDS], zeros, RECORD_BYTES) != 0)
			stress_violate(server->base.stress,
				"journal: client %u: record %" PRIu64 " came back after it was consumed", client,
				served->released);
	__atomic_store_n(&remote->released, served->released, __ATOMIC_RELEASE);
}

static bool consume(struct server *server, unsigned client)
{
	struct served *served = &server->served[client];
	struct remote_client *remote = &server->memory->clients[client];
	uint64_t k = served->consumed;
	bool next_began;

	if (server->base.stress->blind)
		return false;
	/* Looked at first: when it has begun, what is before it must have ended. */
	next_began = k + 1 < served->released + RECORDS && began(server, client, k + 1);
	if (!next_began && !began(server, client, k))
		return false;
	switch (look(server, client, k)) {
	case ARRIVAL_ALL:
		memset(remote->records[k % RECORDS], 0, RECORD_BYTES);
		served->consumed++;
		release(server, client);
		return true;
	case ARRIVAL_NONE:
	case ARRIVAL_PART:
		if (next_began)
			stress_violate(server->base.stress,
				"journal: client %u: record %" PRIu64 " began before record %" PRIu64 " had ended",
				client, k + 1, k);
		return false;
	}
	return false;
}

/* ---- messages ---- */

static void offer(struct server *server, unsigned client)
{
	struct served *served = &server->served[client];

	while (served->offered < served->received + RECEIVES) {
		struct ibv_sge sge = {
			.addr = (uintptr_t)server->memory->clients[client].messages[served->offered % RECEIVES],
			.length = MESSAGE_BYTES,
			.lkey = server->base.mr->lkey};
		struct ibv_recv_wr wr = {.wr_id = served->offered, .sg_list = &sge, .num_sge = 1}, *bad;

		if (hf_vqp_post_recv(served->vqp, &wr, &bad) != 0)
			return;
		served->offered++;
	}
}

static void answer(struct server *server, unsigned client)
{
	struct served *served = &server->served[client];
	uint64_t *at = (uint64_t *)(void *)server->memory->clients[client].answer;
	struct ibv_sge sge = {.addr = (uintptr_t)at, .length = 8, .lkey = server->base.mr->lkey};
	struct ibv_send_wr wr = {.wr_id = served->answers,
				   .sg_list = &sge,
				   .num_sge = 1,
				   .opcode = IBV_WR_SEND,
				   .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE},
			   *bad;

	*at = message_word(client, served->answers, 0);
	if (hf_vqp_post_send(served->vqp, &wr, &bad) == 0)
		served->answers++;
}

static void answer_due(struct server *server, unsigned client)
{
	struct served *served = &server->served[client];

	while (served->answers < served->received / ANSWER_EVERY && served->answers - served->answered < RECEIVES / 2) {
		uint64_t before = served->answers;

		answer(server, client);
		if (served->answers == before)
			return;
	}
}

static void received(struct server *server, unsigned client, const struct ibv_wc *wc)
{
	const struct remote_client *remote = &server->memory->clients[client];
	uint64_t k = server->served[client].received++;
	bool is_write = message_is_write(server->base.stress, client, k);
	const uint64_t *at =
		(const uint64_t *)(const void *)(is_write ? remote->written : remote->messages)[k % RECEIVES];
	uint32_t words = message_words(client, k);

	if ((wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM) != is_write || (is_write && wc->imm_data != (uint32_t)k))
		stress_violate(server->base.stress,
			"messages: client %u: receive %" PRIu64 " has the opcode %d and the immediate %u", client, k,
			(int)wc->opcode, wc->imm_data);
	if (wc->wr_id != k || wc->byte_len != words * 8 || at[0] != message_word(client, k, 0) ||
		at[words - 1] != message_word(client, k, words - 1))
		stress_violate(server->base.stress,
			"messages: client %u: receive %" PRIu64 " (where %" PRIu64
			" was due) has %u bytes that begin with %016" PRIx64,
			client, wc->wr_id, k, wc->byte_len, at[0]);
}

static void completed(struct server *server, const struct ibv_wc *wc)
{
	for (unsigned i = 0; i < server->base.stress->client_count; i++) {
		struct served *served = &server->served[i];

		if (served->vqp == NULL || hf_vqp_num(served->vqp) != wc->qp_num)
			continue;
		if (wc->status != IBV_WC_SUCCESS) {
			if (atomic_load(&server->base.stress->phase) < PHASE_END)
				stress_violate(server->base.stress, "server: client %u: a completion with status %d", i,
					(int)wc->status);
		} else if (wc->opcode & IBV_WC_RECV) {
			received(server, i, wc);
			offer(server, i);
		} else if (wc->wr_id != served->answered++) {
			stress_violate(server->base.stress, "server: client %u: answers complete out of order", i);
		}
		answer_due(server, i);
		return;
	}
}

/* ---- the program ---- */

static struct hf_vqp *on_request(const struct hf_vqp_request *request, void *reply, size_t *reply_bytes, void *context)
{
	struct server *server = context;
	struct hf_vqp_init init = {.send_cq = server->base.cq,
		.recv_cq = server->base.cq,
		.cap = {.max_send_wr = RECEIVES,
			.max_recv_wr = RECEIVES,
			.max_send_sge = 1,
			.max_recv_sge = 1,
			.max_inline_data = 8},
		.access = stress_access(server->base.stress)};
	uint64_t address = (uintptr_t)server->memory;
	uint8_t client;

	if (request->private_bytes != 1)
		return NULL;
	memcpy(&client, request->private_data, 1);
	if (client >= server->base.stress->client_count || server->served[client].vqp != NULL ||
		hf_vqp_create(server->base.pd, &init, &server->served[client].vqp) != 0)
		return NULL;
	offer(server, client);
	memcpy(reply, &address, 8);
	memcpy((uint8_t *)reply + 8, &server->base.mr->rkey, 4);
	memcpy((uint8_t *)reply + 12, server->words != NULL ? &server->words->rkey : &server->base.mr->rkey, 4);
	*reply_bytes = 16;
	return server->served[client].vqp;
}

static enum hf_poll poll_server(struct hf_poller *poller, uint64_t now_ns)
{
	struct server *server = (struct server *)((char *)poller - offsetof(struct server, poller));
	struct ibv_wc wc[POLL_BATCH];
	bool busy = false;
	int n;

	(void)now_ns;
	for (unsigned k = 0; k < POLLS_A_TURN && (n = hf_vcq_poll(server->base.cq, POLL_BATCH, wc)) > 0; k++) {
		for (int i = 0; i < n; i++)
			completed(server, &wc[i]);
		busy = true;
	}
	for (unsigned i = 0; i < server->base.stress->client_count; i++)
		if (server->served[i].vqp != NULL && consume(server, i))
			busy = true;
	return busy ? HF_BUSY : HF_IDLE;
}

static void check_totals(struct server *server)
{
	struct stress *stress = server->base.stress;

	if (server->words != NULL && hf_vmr_dereg(server->words) != 0) /* then they hold values only */
		stress_violate(stress, "the words cannot be deregistered");
	server->words = NULL;
	atomic_store(&stress->final_counter, load(&server->memory->counter));
	atomic_store(&stress->final_chain, load(&server->memory->chain));
	for (unsigned i = 0; i < stress->client_count && !stress->blind; i++) {
		struct stress_client *client = &stress->clients[i];
		struct served *served = &server->served[i];

		if (served->consumed != atomic_load(&client->records))
			stress_violate(stress, "journal: client %u wrote %" PRIu64 " records, %" PRIu64 " arrived", i,
				atomic_load(&client->records), served->consumed);
		if (served->received != atomic_load(&client->messages))
			stress_violate(stress, "messages: client %u sent %" PRIu64 ", %" PRIu64 " were received", i,
				atomic_load(&client->messages), served->received);
		for (unsigned k = 0; k < CELLS; k++)
			if (load(&server->memory->clients[i].cells[k]) != client->cells[k])
				stress_violate(stress,
					"cells: client %u: cell %u holds %016" PRIx64 " and should %016" PRIx64, i, k,
					load(&server->memory->clients[i].cells[k]), client->cells[k]);
	}
}

static bool register_words(struct server *server)
{
	struct hf_error error = {0};
	bool fine;

	if (server->base.stress->atomics != ATOMICS_UID)
		return true;
	fine = hf_vmr_reg_atomic(server->base.pd, server->memory, offsetof(struct remote, clients),
		       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC, HF_ATOMIC_UID,
		       &server->words, &error) == 0;
	if (!fine)
		fprintf(stderr, "stress: %s\n", error.text);
	return fine;
}

int stress_server(struct stress *stress)
{
	static struct server server;
	struct hf_vqp_service service = {.name = SERVICE, .on_request = on_request, .context = &server};

	server.base = (struct stress_node){.stress = stress, .process = 0};
	stress_node_open(&server.base, NULL, NULL, sizeof(struct remote));
	server.memory = server.base.memory;
	if (!register_words(&server))
		return 2;
	if (hf_vqp_serve(server.base.node, &service) != 0)
		return 2;
	server.poller = (struct hf_poller){.poll = poll_server};
	hf_loop_add_poller(server.base.loop, &server.poller);
	atomic_store(&stress->server_ready, true);
	while (atomic_load(&stress->phase) < PHASE_CHECK)
		stress_turn(&server.base, 200000);
	for (unsigned i = 0; i < 100; i++) /* what completed is in memory; it only has to be consumed */
		hf_loop_turn(server.base.loop, 1000);
	if (atomic_load(&stress->phase) == PHASE_CHECK)
		check_totals(&server);
	atomic_store(&stress->server_done, true);
	while (atomic_load(&stress->phase) < PHASE_END)
		hf_loop_turn(server.base.loop, 1000000);
	hf_loop_remove_poller(server.base.loop, &server.poller);
	for (unsigned i = 0; i < stress->client_count; i++)
		hf_vqp_destroy(server.served[i].vqp);
	if (server.words != NULL)
		(void)hf_vmr_dereg(server.words);
	stress_node_close(&server.base);
	return 0;
}
