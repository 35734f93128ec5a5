#include "mesh/mesh.h"

#include <errno.h>
#include <string.h>

#include "base/bytes.h"
#include "base/ensure.h"
#include "base/states.h"
#include "base/log.h"

#define RETRY_NS     2000000ull /* after an attempt to connect; twice as long after each in vain, up to */
#define RETRY_MAX_NS 20000000ull
#define POLL_MAX     32
#define SEND_BIT     (1ull << 32) /* of a wr_id: what was posted to be sent; below it the number, above it the place */
#define LINK_SHIFT   40

static const struct state link_states[MESH_STATES] = {
	[MESH_DOWN] = {"down", BIT(MESH_CONNECTING)},
	[MESH_CONNECTING] = {"connecting", BIT(MESH_UP) | BIT(MESH_FAILED)},
	[MESH_UP] = {"up", BIT(MESH_FAILED)},
	[MESH_FAILED] = {"failed", BIT(MESH_DOWN)},
};

static void link_move(struct mesh_link *link, enum mesh_state to)
{
	states_move("link", link_states, &link->state, to, "%s", link->name);
}

void mesh_link_fail(struct mesh_link *link)
{
	if (link->state == MESH_UP || link->state == MESH_CONNECTING)
		link_move(link, MESH_FAILED);
}

static bool connects(const struct mesh_link *link)
{
	return link->place < link->mesh->config.self;
}

/* ---- a vqp's life ---- */

static void changed(struct hf_vqp *vqp, void *context)
{
	struct mesh *mesh = context;

	for (unsigned i = 0; i < mesh->config.count; i++)
		if (mesh->links[i]->vqp == vqp && hf_vqp_state(vqp) == HF_VQP_ERROR)
			mesh_link_fail(mesh->links[i]);
}

static struct hf_vqp *make_vqp(struct mesh *mesh)
{
	struct hf_vqp_init init = {
		.send_cq = mesh->cq,
		.recv_cq = mesh->cq,
		.cap = {.max_send_wr = mesh->config.sends,
			.max_recv_wr = mesh->config.receives,
			.max_send_sge = 1,
			.max_recv_sge = 1},
		.sq_sig_all = true,
		.access = mesh->config.access,
		.revocable = true, /* a qp on every rail: messages do not wait for a rebuild */
		.context = mesh,
		.changed = changed,
	};
	struct hf_vqp *vqp;

	return hf_vqp_create(mesh->pd, &init, &vqp) == 0 ? vqp : NULL;
}

static uint8_t *receive_at(const struct mesh_link *link, uint32_t number)
{
	return link->receives + (size_t)number * link->mesh->config.message_bytes;
}

static void post_receive(struct mesh_link *link, uint32_t number)
{
	struct ibv_sge sge = {.addr = (uintptr_t)receive_at(link, number),
		.length = link->mesh->config.message_bytes,
		.lkey = link->mesh->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = (uint64_t)link->place << LINK_SHIFT | number, .sg_list = &sge, .num_sge = 1};
	struct ibv_recv_wr *bad;

	if (hf_vqp_post_recv(link->vqp, &wr, &bad) != 0)
		mesh_link_fail(link);
}

/* The link begins anew on this vqp. */
static void adopt(struct mesh_link *link, struct hf_vqp *vqp)
{
	link_move(link, MESH_CONNECTING);
	link->vqp = vqp;
	link->sent = link->taken_there = link->taken = link->told = 0;
	for (uint32_t i = 0; i < link->mesh->config.receives; i++)
		post_receive(link, i);
}

/* A peer that asks again has lost its vqp: the old one ends first, and the peer asks once more. */
static struct hf_vqp *on_request(const struct hf_vqp_request *request, void *reply, size_t *reply_bytes, void *context)
{
	struct mesh *mesh = context;
	struct mesh_link *link = mesh->owner.admit(mesh->owner.context, request);
	struct hf_vqp *vqp;

	(void)reply;
	*reply_bytes = 0;
	if (link == NULL)
		return NULL;
	ensure(link->place > mesh->config.self);
	if (link->state != MESH_DOWN || mesh->dead_count > 0) {
		mesh_link_fail(link);
		return NULL;
	}
	vqp = make_vqp(mesh);
	if (vqp != NULL)
		adopt(link, vqp);
	return vqp;
}

static struct hf_peer *find_peer(const struct mesh_link *link)
{
	struct hf_peer *peer = NULL;

	for (unsigned i = 0; i < link->address_count && peer == NULL; i++)
		peer = hf_peer_find(link->mesh->node, &link->addresses[i]);
	return peer;
}

static void retry_later(struct mesh_link *link, uint64_t now_ns)
{
	link->retry_ns = link->retry_ns == 0 ? RETRY_NS : 2 * link->retry_ns;
	if (link->retry_ns > RETRY_MAX_NS)
		link->retry_ns = RETRY_MAX_NS;
	link->retry_at_ns = now_ns + link->retry_ns;
}

static bool start_connecting(struct mesh_link *link, uint64_t now_ns)
{
	struct mesh *mesh = link->mesh;
	const struct mesh_config *config = &mesh->config;
	struct hf_error error = {0};
	struct hf_peer *peer;
	struct hf_vqp *vqp;
	uint64_t left_out;

	if (!connects(link) || now_ns < link->retry_at_ns)
		return false;
	retry_later(link, now_ns);
	peer = find_peer(link);
	if (peer == NULL) {
		if (hf_peer_connect(mesh->node, link->addresses, link->address_count, &peer, &error) != 0 &&
			log_limit_allows(&mesh->unconnected, now_ns, &left_out))
			log_warn("%s: no connection to %s: %s (%llu lines suppressed)", config->layer, link->name,
				error.text, (unsigned long long)left_out);
		return true;
	}
	if (hf_peer_name(peer)[0] == '\0') {
		link->retry_ns = 0; /* not up yet, which is no attempt in vain */
		return true;
	}
	if (mesh->owner.recognizes != NULL && !mesh->owner.recognizes(mesh->owner.context, link, peer))
		return true;
	vqp = make_vqp(mesh);
	if (vqp == NULL)
		return true;
	adopt(link, vqp);
	if (hf_vqp_connect(vqp, peer, config->service, config->hello, config->hello_bytes) != 0)
		mesh_link_fail(link);
	return true;
}

static void come_up(struct mesh_link *link)
{
	link_move(link, MESH_UP);
	link->retry_ns = 0;
	link->mesh->owner.up(link->mesh->owner.context, link);
}

static void bury(struct mesh_link *link, uint64_t now_ns)
{
	struct mesh *mesh = link->mesh;

	hf_vqp_abort(link->vqp);
	ensure(mesh->dead_count < sizeof(mesh->dead) / sizeof(*mesh->dead));
	mesh->dead[mesh->dead_count++] = (struct mesh_dead){.link = link, .vqp = link->vqp};
	link->vqp = NULL;
	retry_later(link, now_ns);
	link_move(link, MESH_DOWN);
	mesh->owner.down(mesh->owner.context, link);
}

static void destroy_dead(struct mesh *mesh)
{
	for (unsigned i = 0; i < mesh->dead_count; i++) {
		hf_vqp_destroy(mesh->dead[i].vqp);
		if (mesh->owner.ended != NULL)
			mesh->owner.ended(mesh->owner.context, mesh->dead[i].link);
	}
	mesh->dead_count = 0;
}

static bool turn_link(struct mesh_link *link, uint64_t now_ns)
{
	if (link->state == MESH_CONNECTING && hf_vqp_state(link->vqp) == HF_VQP_UP) {
		come_up(link);
		return true;
	}
	if (link->state == MESH_FAILED) {
		bury(link, now_ns);
		return true;
	}
	return link->state == MESH_DOWN && start_connecting(link, now_ns);
}

/* ---- hearing ---- */

static bool hear(struct mesh_link *link, const uint8_t *at, uint32_t bytes)
{
	if (bytes < MESH_HEAD_BYTES || get_le32(at) != bytes - MESH_HEAD_BYTES ||
		get_le32(at + 4) - link->taken_there > link->mesh->config.receives)
		return false;
	link->taken_there = get_le32(at + 4);
	return link->mesh->owner.heard(link->mesh->owner.context, link, at + MESH_HEAD_BYTES, bytes - MESH_HEAD_BYTES);
}

static bool take(struct mesh_link *link, const struct ibv_wc *wc)
{
	const struct mesh_owner *owner = &link->mesh->owner;

	if (wc->opcode != IBV_WC_RECV_RDMA_WITH_IMM)
		return hear(link, receive_at(link, (uint32_t)wc->wr_id), wc->byte_len);
	if (owner->wrote == NULL)
		return false;
	owner->wrote(owner->context, link, ntohl(wc->imm_data), wc->byte_len);
	return true;
}

static void received(struct mesh_link *link, const struct ibv_wc *wc)
{
	if (wc->status != IBV_WC_SUCCESS) {
		mesh_link_fail(link);
		return;
	}
	if (link->state == MESH_CONNECTING)
		come_up(link); /* the peer knows it sooner */
	link->taken++;
	if (!take(link, wc)) {
		log_error("%s: %s sent a malformed message; its link ends", link->mesh->config.layer, link->name);
		mesh_link_fail(link);
	}
	if (link->state == MESH_UP)
		post_receive(link, (uint32_t)wc->wr_id);
}

static void completed(struct mesh *mesh, const struct ibv_wc *wc)
{
	struct mesh_link *link = mesh->links[wc->wr_id >> LINK_SHIFT];

	if (link->vqp == NULL || hf_vqp_num(link->vqp) != wc->qp_num ||
		(link->state != MESH_UP && link->state != MESH_CONNECTING))
		return; /* of a vqp that was replaced */
	if ((wc->wr_id & SEND_BIT) == 0)
		received(link, wc);
	else if (wc->status != IBV_WC_SUCCESS)
		mesh_link_fail(link);
	else
		mesh->owner.sent(mesh->owner.context, link, (uint32_t)wc->wr_id);
}

bool mesh_turn(struct mesh *mesh, uint64_t now_ns)
{
	struct ibv_wc wc[POLL_MAX];
	bool busy = false;

	destroy_dead(mesh);
	for (unsigned i = 0; i < mesh->config.count; i++)
		busy |= i != mesh->config.self && turn_link(mesh->links[i], now_ns);
	for (int n; (n = hf_vcq_poll(mesh->cq, POLL_MAX, wc)) > 0; busy = true)
		for (int i = 0; i < n; i++)
			completed(mesh, &wc[i]);
	return busy;
}

/* ---- sending ---- */

static uint32_t on_the_way(const struct mesh_link *link)
{
	return link->sent - link->taken_there;
}

bool mesh_link_has_credit(const struct mesh_link *link)
{
	const struct mesh_config *config = &link->mesh->config;

	return link->state == MESH_UP && on_the_way(link) < config->receives - config->reserve;
}

bool mesh_link_owes(const struct mesh_link *link)
{
	uint32_t receives = link->mesh->config.receives;

	return link->state == MESH_UP && link->taken - link->told >= receives / 4 && on_the_way(link) < receives;
}

void mesh_link_write(struct mesh_link *link, struct ibv_send_wr *wr, uint32_t number)
{
	struct ibv_send_wr *bad;

	wr->wr_id = (uint64_t)link->place << LINK_SHIFT | SEND_BIT | number;
	link->sent++;
	if (hf_vqp_post_send(link->vqp, wr, &bad) != 0)
		mesh_link_fail(link);
}

void mesh_link_send(struct mesh_link *link, uint8_t *at, uint32_t bytes, uint32_t number)
{
	struct ibv_sge sge = {.addr = (uintptr_t)at, .length = MESH_HEAD_BYTES + bytes, .lkey = link->mesh->mr->lkey};
	struct ibv_send_wr wr = {.opcode = IBV_WR_SEND, .sg_list = &sge, .num_sge = 1};

	put_le32(at, bytes);
	put_le32(at + 4, link->taken);
	link->told = link->taken;
	mesh_link_write(link, &wr, number);
}

/* ---- when to look again ---- */

static void notified(struct hf_vcq *cq, void *context)
{
	(void)cq, (void)context; /* that the loop turns is enough */
}

void mesh_arm(struct mesh *mesh)
{
	hf_vcq_req_notify(mesh->cq, notified);
}

uint64_t mesh_wake_ns(const struct mesh *mesh)
{
	uint64_t wake_ns = UINT64_MAX;

	for (unsigned i = 0; i < mesh->config.self; i++)
		if (mesh->links[i]->state == MESH_DOWN && mesh->links[i]->retry_at_ns < wake_ns)
			wake_ns = mesh->links[i]->retry_at_ns;
	return wake_ns;
}

/* ---- opening ---- */

static int open_memory(struct mesh *mesh, struct hf_error *error)
{
	const struct mesh_config *config = &mesh->config;
	size_t receive_bytes = (size_t)config->receives * config->message_bytes,
	       each = receive_bytes + config->send_bytes;
	void *memory = NULL;
	int rc = hf_vpd_alloc(mesh->node, &mesh->pd);

	if (rc == 0)
		rc = hf_vcq_create(mesh->node, config->count * (config->receives + config->sends), mesh, &mesh->cq);
	if (rc != 0)
		return hf_error_set(error, rc, "%s: cannot create a protection domain and its queues: %s",
			config->layer, strerror(-rc));
	if (config->count == 1)
		return 0; /* there is no peer */
	rc = hf_mem_alloc(hf_loop_env(mesh->loop), (config->count - 1) * each, &memory, error);
	if (rc != 0)
		return rc;
	mesh->memory = memory;
	for (unsigned i = 0; i < config->count; i++) {
		struct mesh_link *link = mesh->links[i];

		if (i == config->self)
			continue;
		link->receives = mesh->memory + (i - (i > config->self)) * each;
		link->sends = link->receives + receive_bytes;
	}
	return hf_vmr_reg(mesh->pd, memory, (config->count - 1) * each, IBV_ACCESS_LOCAL_WRITE, &mesh->mr, error);
}

int mesh_open(struct mesh *mesh, struct hf_node *node, const struct mesh_config *config,
	struct mesh_link *const links[], const struct mesh_owner *owner, struct hf_error *error)
{
	int rc;

	ensure(config->count <= MESH_MEMBERS_MAX && config->self < config->count);
	*mesh = (struct mesh){.node = node,
		.loop = hf_node_loop(node),
		.config = *config,
		.owner = *owner,
		.service = {.name = config->service, .on_request = on_request, .context = mesh}};
	for (unsigned i = 0; i < config->count; i++) {
		mesh->links[i] = links[i];
		links[i]->mesh = mesh;
		links[i]->place = i;
	}
	rc = open_memory(mesh, error);
	if (rc != 0)
		return rc;
	rc = hf_vqp_serve(node, &mesh->service);
	mesh->serving = rc == 0;
	return rc == 0 ? 0
		       : hf_error_set(error, rc, "%s: the node serves %s already, or cannot serve it: %s",
				 config->layer, config->service, strerror(-rc));
}

void mesh_close(struct mesh *mesh)
{
	if (mesh->serving)
		hf_vqp_unserve(mesh->node, &mesh->service);
	for (unsigned i = 0; i < mesh->config.count; i++)
		hf_vqp_destroy(mesh->links[i]->vqp);
	for (unsigned i = 0; i < mesh->dead_count; i++)
		hf_vqp_destroy(mesh->dead[i].vqp);
	for (unsigned i = 0; i < mesh->config.count && mesh->owner.ended != NULL; i++)
		mesh->owner.ended(mesh->owner.context, mesh->links[i]);
	/* A process that is stopped in an operation may still store there. */
	if (hf_vmr_dereg(mesh->mr) == 0 && mesh->memory != NULL)
		hf_mem_free(hf_loop_env(mesh->loop), mesh->memory);
	if (mesh->cq != NULL)
		(void)hf_vcq_destroy(mesh->cq);
	if (mesh->pd != NULL)
		(void)hf_vpd_free(mesh->pd);
	*mesh = (struct mesh){0};
}
