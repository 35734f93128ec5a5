/* The service, its clients, their vqps. */
#include "broker/rdma/rdma.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "base/log.h"
#include "broker/broker.h"
#include "broker/rdma/produce_grant.h"
#include "broker/rdma/reader.h"
#include "node/node.h"

#define LEASE_NS 400000000ull /* a client that is gone costs less than a session (B7) */
#define TICK_NS  100000000ull
#define POLL_MAX 32

static struct log_limit refusals;

/* ---- vqps ---- */

static void changed(struct hf_vqp *vqp, void *context)
{
	struct rdma_end *end = context;

	if (hf_vqp_state(vqp) == HF_VQP_ERROR)
		end->lost = true;
}

struct hf_vqp *rdma_make_vqp(
	struct rdma_client *client, struct rdma_end *end, int access, bool revocable, uint32_t receives, uint32_t sends)
{
	const struct hf_vqp_init init = {.send_cq = client->rdma->cq,
		.recv_cq = client->rdma->cq,
		.cap = {.max_send_wr = sends, .max_recv_wr = receives, .max_send_sge = 1, .max_recv_sge = 1},
		.sq_sig_all = true,
		.access = access,
		.revocable = revocable, /* a qp on every rail */
		.context = end,
		.changed = changed};

	if (hf_vqp_create(client->pd, &init, &end->vqp) != 0) {
		end->vqp = NULL;
	} else if (table_put(&client->rdma->vqps, hf_vqp_num(end->vqp), end) != 0) {
		hf_vqp_destroy(end->vqp);
		end->vqp = NULL;
	}
	return end->vqp;
}

void rdma_drop_vqp(struct rdma *rdma, struct rdma_end *end)
{
	if (end->vqp == NULL)
		return;
	table_remove(&rdma->vqps, hf_vqp_num(end->vqp));
	hf_vqp_destroy(end->vqp);
	end->vqp = NULL;
}

void rdma_harvest(struct rdma *rdma, struct rdma_end *end)
{
	struct ibv_wc wcs[POLL_MAX];
	int n;

	while (end->vqp != NULL && (n = hf_vcq_poll_vqp(rdma->cq, end->vqp, POLL_MAX, wcs)) > 0)
		for (int i = 0; i < n; i++)
			end->completed(end, &wcs[i]);
}

static bool poll_all(struct rdma *rdma)
{
	struct ibv_wc wcs[POLL_MAX];
	bool busy = false;
	int n;

	while ((n = hf_vcq_poll(rdma->cq, POLL_MAX, wcs)) > 0) {
		busy = true;
		for (int i = 0; i < n; i++) {
			struct rdma_end *end = table_get(&rdma->vqps, wcs[i].qp_num);

			if (end != NULL) /* else its owner is gone */
				end->completed(end, &wcs[i]);
		}
	}
	return busy;
}

/* ---- regions ---- */

static void client_look(struct rdma_client *client);

bool rdma_dereg(struct rdma_client *client, struct hf_vmr *mr, struct segment *segment)
{
	struct rdma_stuck *stuck;

	if (hf_vmr_dereg(mr) == 0) {
		segment_unpin(segment);
		return true;
	}
	stuck = malloc(sizeof(*stuck));
	ensure(stuck != NULL); /* what may still be written must not be forgotten */
	*stuck = (struct rdma_stuck){.mr = mr, .segment = segment, .client = client};
	list_push_back(&client->rdma->stuck, &stuck->node);
	log_warn("broker: access of %s to %s cannot be revoked while a stopped process is in a write; the memory stays "
		 "mapped",
		client->peer == NULL ? "a client" : hf_peer_name(client->peer), segment->directory);
	return false;
}

static void try_stuck(struct rdma *rdma)
{
	list_for_each_safe (at, &rdma->stuck) {
		struct rdma_stuck *stuck = container_of(at, struct rdma_stuck, node);

		if (hf_vmr_dereg(stuck->mr) != 0)
			continue;
		segment_unpin(stuck->segment);
		list_remove(&stuck->node);
		client_look(stuck->client);
		free(stuck);
	}
}

/* ---- clients ---- */

static struct rdma_client *client_of(struct rdma *rdma, struct hf_peer *peer)
{
	struct rdma_client *client;

	list_for_each (at, &rdma->clients)
		if (container_of(at, struct rdma_client, node)->peer == peer)
			return container_of(at, struct rdma_client, node);
	client = calloc(1, sizeof(*client));
	if (client == NULL)
		return NULL;
	*client = (struct rdma_client){.rdma = rdma, .peer = peer};
	if (hf_vpd_alloc(rdma->node, &client->pd) != 0) {
		free(client);
		return NULL;
	}
	list_init(&client->grants);
	list_init(&client->readers);
	list_push_back(&rdma->clients, &client->node);
	return client;
}

/* Nothing of it is left: it goes. */
static void client_look(struct rdma_client *client)
{
	if (!list_empty(&client->grants) || !list_empty(&client->readers) || hf_vpd_free(client->pd) != 0)
		return;
	list_remove(&client->node);
	free(client);
}

static bool client_turn(struct rdma_client *client, uint64_t now_ns)
{
	bool busy = false;

	list_for_each_safe (at, &client->grants)
		busy |= produce_grant_turn(container_of(at, struct produce_grant, node), now_ns);
	list_for_each_safe (at, &client->readers)
		busy |= reader_turn(container_of(at, struct reader, node));
	return busy;
}

static void client_close(struct rdma_client *client)
{
	list_for_each_safe (at, &client->grants)
		produce_grant_close(container_of(at, struct produce_grant, node));
	list_for_each_safe (at, &client->readers)
		reader_close(container_of(at, struct reader, node));
}

static void peer_down(struct hf_peer *peer, void *context)
{
	struct rdma *rdma = context;

	list_for_each_safe (at, &rdma->clients) {
		struct rdma_client *client = container_of(at, struct rdma_client, node);

		if (client->peer != peer)
			continue;
		client->peer = NULL;
		client_close(client);
		client_look(client);
	}
}

static void refuse(struct rdma *rdma, const struct hf_vqp_request *request, const char *why)
{
	uint64_t left_out;

	if (log_limit_allows(&refusals, hf_loop_now_ns(rdma->broker->loop), &left_out))
		log_warn("broker: a vqp of %s is refused: %s (%llu lines suppressed)", hf_peer_name(request->peer), why,
			(unsigned long long)left_out);
}

static struct hf_vqp *on_request(const struct hf_vqp_request *request, void *reply, size_t *reply_bytes, void *context)
{
	struct rdma *rdma = context;
	struct rdma_client *client;
	struct hf_vqp *vqp = NULL;
	struct token token;

	*reply_bytes = 0;
	if (!tokens_take(&rdma->tokens, request->private_data, request->private_bytes,
		    hf_loop_now_ns(rdma->broker->loop), &token)) {
		refuse(rdma, request, "its token is unknown, used or too old; ask for another one");
		return NULL;
	}
	client = client_of(rdma, request->peer);
	if (client == NULL) {
		refuse(rdma, request, "there is no memory for it");
		return NULL;
	}
	switch (token.kind) {
	case ACCESS_PRODUCE:
		vqp = produce_grant_open(client, &token, reply, reply_bytes);
		break;
	case ACCESS_READ:
		vqp = reader_open(client, reply, reply_bytes);
		break;
	case ACCESS_SETTLE:
	case ACCESS_KINDS:
		break;
	}
	if (vqp == NULL)
		client_look(client);
	return vqp;
}

/* ---- turns ---- */

bool rdma_turn(struct rdma *rdma)
{
	uint64_t now_ns = hf_loop_now_ns(rdma->broker->loop);
	bool busy = poll_all(rdma);

	list_for_each_safe (at, &rdma->clients) {
		struct rdma_client *client = container_of(at, struct rdma_client, node);

		busy |= client_turn(client, now_ns);
		client_look(client);
	}
	return busy;
}

static void tick(struct hf_timer *timer, uint64_t now_ns)
{
	struct rdma *rdma = container_of(timer, struct rdma, timer);

	try_stuck(rdma);
	list_for_each (at, &rdma->clients)
		list_for_each (reader, &container_of(at, struct rdma_client, node)->readers)
			reader_tick(container_of(reader, struct reader, node), now_ns);
	hf_loop_set_timer(rdma->broker->loop, timer, now_ns + TICK_NS);
}

/* ---- opening ---- */

static int listen_for_deaths(struct rdma *rdma, struct hf_error *error)
{
	const struct hf_node_config *config = &rdma->node->config;
	uint64_t least_ns = 2 * config->heartbeat_ns * config->heartbeat_misses;

	rdma->listener = (struct hf_node_listener){.events = {.peer_down = peer_down},
		.context = rdma,
		.lease_ns = least_ns > LEASE_NS ? least_ns : LEASE_NS};
	if (least_ns > LEASE_NS && rdma->broker->config.cores == HF_CORES_OWNED)
		log_warn("broker: a lost client may block a partition for more than 550 ms; lower heartbeat_ms x "
			 "heartbeat_misses to 200 or less");
	return hf_node_listen(rdma->node, &rdma->listener, error);
}

int rdma_open(struct broker *broker, struct hf_node *node, struct rdma **rdma_out, struct hf_error *error)
{
	struct rdma *rdma = calloc(1, sizeof(*rdma));
	int rc;

	*rdma_out = NULL;
	if (rdma == NULL)
		return hf_error_set(error, -ENOMEM, "no memory for RDMA");
	rdma->broker = broker;
	rdma->node = node;
	list_init(&rdma->clients);
	list_init(&rdma->stuck);
	rdma->service = (struct hf_vqp_service){.name = RDMA_SERVICE, .on_request = on_request, .context = rdma};
	rdma->timer = (struct hf_timer){.fire = tick, .quiet = true};
	rc = hf_vcq_create(node, RDMA_CQE, rdma, &rdma->cq);
	if (rc != 0)
		hf_error_set(error, rc, "cannot create the broker's completion queue: %s", strerror(-rc));
	if (rc == 0)
		rc = listen_for_deaths(rdma, error);
	rdma->listening = rc == 0;
	if (rc == 0 && (rc = hf_vqp_serve(node, &rdma->service)) != 0)
		hf_error_set(error, rc, "the node has a broker already: %s", strerror(-rc));
	rdma->serving = rc == 0;
	if (rc != 0) {
		rdma_close(rdma);
		return rc;
	}
	hf_loop_set_timer(broker->loop, &rdma->timer, hf_loop_now_ns(broker->loop) + TICK_NS);
	*rdma_out = rdma;
	return 0;
}

void rdma_close(struct rdma *rdma)
{
	if (rdma == NULL)
		return;
	hf_loop_cancel_timer(rdma->broker->loop, &rdma->timer);
	if (rdma->serving)
		hf_vqp_unserve(rdma->node, &rdma->service);
	if (rdma->listening)
		hf_node_unlisten(rdma->node, &rdma->listener);
	list_for_each_safe (at, &rdma->clients) {
		struct rdma_client *client = container_of(at, struct rdma_client, node);

		client_close(client);
		client_look(client);
	}
	/* What is stuck stays registered until the node is closed, and mapped until the process ends. */
	list_for_each_safe (at, &rdma->stuck)
		free(container_of(at, struct rdma_stuck, node));
	list_for_each_safe (at, &rdma->clients)
		free(container_of(at, struct rdma_client, node));
	if (rdma->cq != NULL)
		(void)hf_vcq_destroy(rdma->cq);
	table_free(&rdma->vqps);
	free(rdma);
}

bool rdma_is_idle(const struct rdma *rdma)
{
	list_for_each (at, &rdma->clients) {
		const struct rdma_client *client = container_of(at, struct rdma_client, node);

		list_for_each (grant, &client->grants)
			if (container_of(grant, struct produce_grant, node)->end.lost)
				return false;
		list_for_each (reader, &client->readers)
			if (container_of(reader, struct reader, node)->end.lost)
				return false;
	}
	return true;
}
