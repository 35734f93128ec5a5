/* The vqp to one other broker. */
#include "broker/replication/replica_link.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/ensure.h"
#include "base/log.h"

#define SERVICE       "holdfast.broker.replica"
#define VERSION       1u
#define PRIVATE_BYTES 8u /* u32 version, u32 id of the broker that connects */
#define RETRY_NS      20000000ull
#define POLL_MAX      32
#define SEND_BIT      (1ull << 32) /* of a wr_id: what was sent; below it the receive, above it the link */
#define LINK_SHIFT    40
#define CREDIT_BEHIND (REPLICA_LINK_RECEIVES / 4)
#define RECEIVE_BYTES (REPLICA_LINK_RECEIVES * REPLICA_LINK_MESSAGE_BYTES)
#define LINK_BYTES    (RECEIVE_BYTES + REPLICA_LINK_RING_BYTES)
#define LARGE_BYTES   (REPLICA_LINK_RING_BYTES / 4) /* what is larger gets memory of its own */

static const unsigned allowed[REPLICA_LINK_STATES] = {
	[REPLICA_LINK_DOWN] = 1u << REPLICA_LINK_CONNECTING,
	[REPLICA_LINK_CONNECTING] = 1u << REPLICA_LINK_UP | 1u << REPLICA_LINK_FAILED,
	[REPLICA_LINK_UP] = 1u << REPLICA_LINK_FAILED,
	[REPLICA_LINK_FAILED] = 1u << REPLICA_LINK_DOWN,
};

static void move(struct replica_link *link, enum replica_link_state to)
{
	ensure((allowed[link->state] & 1u << to) != 0);
	link->state = to;
}

void replica_link_fail(struct replica_link *link)
{
	if (link->state == REPLICA_LINK_UP || link->state == REPLICA_LINK_CONNECTING)
		move(link, REPLICA_LINK_FAILED);
}

/* ---- a vqp's life ---- */

static void changed(struct hf_vqp *vqp, void *context)
{
	struct replica_links *links = context;

	for (unsigned i = 0; i < links->count; i++)
		if (links->links[i].vqp == vqp && hf_vqp_state(vqp) == HF_VQP_ERROR)
			replica_link_fail(&links->links[i]);
}

static struct hf_vqp *make_vqp(struct replica_links *links)
{
	struct hf_vqp_init init = {
		.send_cq = links->cq,
		.recv_cq = links->cq,
		.cap = {.max_send_wr = REPLICA_LINK_SENDS,
			.max_recv_wr = REPLICA_LINK_RECEIVES,
			.max_send_sge = 1,
			.max_recv_sge = 1},
		.sq_sig_all = true,
		.access = IBV_ACCESS_REMOTE_WRITE,
		.revocable = true, /* a qp on every rail: batches do not wait for a rebuild */
		.context = links,
		.changed = changed,
	};
	struct hf_vqp *vqp;

	return hf_vqp_create(links->pd, &init, &vqp) == 0 ? vqp : NULL;
}

static void free_posted(struct replica_link *link, struct replica_link_posted *posted)
{
	if (posted->large_mr != NULL)
		(void)hf_vmr_dereg(posted->large_mr);
	hf_mem_free(hf_loop_env(link->all->loop), posted->large);
	*posted = (struct replica_link_posted){0};
}

/* Its vqp is gone, or all of its wrs have completed. */
static void free_all_posted(struct replica_link *link)
{
	for (unsigned i = 0; i < REPLICA_LINK_SENDS; i++)
		free_posted(link, &link->posted[i]);
}

static void post_receive(struct replica_link *link, uint32_t number)
{
	struct ibv_sge sge = {.addr = (uintptr_t)(link->receives + (size_t)number * REPLICA_LINK_MESSAGE_BYTES),
		.length = REPLICA_LINK_MESSAGE_BYTES,
		.lkey = link->all->mr->lkey};
	struct ibv_recv_wr wr = {
		.wr_id = (uint64_t)(link - link->all->links) << LINK_SHIFT | number, .sg_list = &sge, .num_sge = 1};
	struct ibv_recv_wr *bad;

	if (hf_vqp_post_recv(link->vqp, &wr, &bad) != 0)
		replica_link_fail(link);
}

/* The link begins anew on this vqp. */
static void adopt(struct replica_link *link, struct hf_vqp *vqp)
{
	move(link, REPLICA_LINK_CONNECTING);
	link->vqp = vqp;
	link->sent = link->taken_there = link->taken = link->told = 0;
	link->ring_at = link->ring_used = link->posted_first = link->posted_count = 0;
	link->said_count = 0;
	for (uint32_t i = 0; i < REPLICA_LINK_RECEIVES; i++)
		post_receive(link, i);
}

static struct replica_link *link_of(struct replica_links *links, const struct hf_vqp_request *request)
{
	const uint8_t *said = request->private_data;

	if (request->private_bytes != PRIVATE_BYTES || get_le32(said) != VERSION)
		return NULL;
	for (unsigned i = links->self + 1; i < links->count; i++)
		if ((uint32_t)links->links[i].peer->id == get_le32(said + 4))
			return &links->links[i];
	return NULL;
}

/* A peer that asks again has lost its vqp: the old one ends first, and the peer asks once more. */
static struct hf_vqp *on_request(const struct hf_vqp_request *request, void *reply, size_t *reply_bytes, void *context)
{
	struct replica_links *links = context;
	struct replica_link *link = link_of(links, request);
	struct hf_vqp *vqp;

	(void)reply;
	*reply_bytes = 0;
	if (link == NULL) {
		if (links->refusals++ == 0)
			log_error("broker: %s is refused: it is no other broker of controller.quorum.voters; give all "
				  "brokers the same list",
				hf_peer_name(request->peer));
		return NULL;
	}
	if (link->state != REPLICA_LINK_DOWN || links->dead_count > 0) {
		replica_link_fail(link);
		return NULL;
	}
	vqp = make_vqp(links);
	if (vqp != NULL)
		adopt(link, vqp);
	return vqp;
}

static bool start_connecting(struct replica_link *link, uint64_t now_ns)
{
	struct replica_links *links = link->all;
	uint8_t said[PRIVATE_BYTES];
	struct hf_error error = {0};
	struct hf_peer *peer = NULL;
	struct hf_vqp *vqp;

	if (!link->connects || now_ns < link->retry_at_ns)
		return false;
	link->retry_at_ns = now_ns + RETRY_NS;
	for (unsigned i = 0; i < link->peer->address_count && peer == NULL; i++)
		peer = hf_peer_find(links->node, &link->peer->addresses[i]);
	if (peer == NULL) {
		if (hf_peer_connect(links->node, link->peer->addresses, link->peer->address_count, &peer, &error) != 0)
			log_warn("broker: no connection to broker %d: %s", link->peer->id, error.text);
		return true;
	}
	if (hf_peer_name(peer)[0] == '\0' || (vqp = make_vqp(links)) == NULL)
		return true; /* not up yet */
	adopt(link, vqp);
	put_le32(said, VERSION);
	put_le32(said + 4, (uint32_t)links->links[links->self].peer->id);
	if (hf_vqp_connect(vqp, peer, SERVICE, said, sizeof(said)) != 0)
		replica_link_fail(link);
	return true;
}

static void come_up(struct replica_link *link)
{
	move(link, REPLICA_LINK_UP);
	link->all->owner.up(link->all->owner.context, link);
}

static void bury(struct replica_link *link, uint64_t now_ns)
{
	struct replica_links *links = link->all;

	hf_vqp_abort(link->vqp);
	ensure(links->dead_count < sizeof(links->dead) / sizeof(*links->dead));
	links->dead[links->dead_count++] = link->vqp;
	link->vqp = NULL;
	link->retry_at_ns = now_ns + RETRY_NS;
	move(link, REPLICA_LINK_DOWN);
	links->owner.down(links->owner.context, link);
}

static bool turn_link(struct replica_link *link, uint64_t now_ns)
{
	if (link->state == REPLICA_LINK_CONNECTING && hf_vqp_state(link->vqp) == HF_VQP_UP) {
		come_up(link);
		return true;
	}
	if (link->state == REPLICA_LINK_FAILED) {
		bury(link, now_ns);
		return true;
	}
	return link->state == REPLICA_LINK_DOWN && start_connecting(link, now_ns);
}

/* ---- hearing ---- */

static bool hear(struct replica_link *link, const uint8_t *at, uint32_t bytes)
{
	struct replica_links *links = link->all;
	uint32_t count = bytes < REPLICA_LINK_HEAD_BYTES ? UINT32_MAX : get_le32(at + 4);

	if (count > REPLICA_LINK_RECORDS || bytes != REPLICA_LINK_HEAD_BYTES + count * REPLICA_LINK_RECORD_BYTES ||
		get_le32(at) - link->taken_there > REPLICA_LINK_RECEIVES)
		return false;
	link->taken_there = get_le32(at);
	for (uint32_t i = 0; i < count && link->state == REPLICA_LINK_UP; i++) {
		const uint8_t *from = at + REPLICA_LINK_HEAD_BYTES + i * REPLICA_LINK_RECORD_BYTES;
		struct replica_record record = {
			.kind = from[0], .grant = get_le32(from + 4), .value = get_le64(from + 8)};

		links->owner.heard(links->owner.context, link, &record);
	}
	return true;
}

static void received(struct replica_link *link, const struct ibv_wc *wc)
{
	struct replica_links *links = link->all;

	if (wc->status != IBV_WC_SUCCESS) {
		replica_link_fail(link);
		return;
	}
	if (link->state == REPLICA_LINK_CONNECTING)
		come_up(link); /* the peer knows it sooner */
	link->taken++;
	if (wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
		links->owner.wrote(links->owner.context, link, ntohl(wc->imm_data), wc->byte_len);
	} else if (!hear(link, link->receives + (size_t)(uint32_t)wc->wr_id * REPLICA_LINK_MESSAGE_BYTES,
			   wc->byte_len)) {
		log_error("broker: broker %d sends messages that make no sense; its link ends", link->peer->id);
		replica_link_fail(link);
	}
	if (link->state == REPLICA_LINK_UP)
		post_receive(link, (uint32_t)wc->wr_id);
}

static void sent(struct replica_link *link, const struct ibv_wc *wc)
{
	struct replica_link_posted *first = &link->posted[link->posted_first];

	if (wc->status != IBV_WC_SUCCESS) {
		replica_link_fail(link);
		return;
	}
	ensure(link->posted_count > 0);
	link->ring_used -= first->ring_bytes;
	free_posted(link, first);
	link->posted_first = (link->posted_first + 1) % REPLICA_LINK_SENDS;
	link->posted_count--;
}

static void completed(struct replica_links *links, const struct ibv_wc *wc)
{
	struct replica_link *link = &links->links[wc->wr_id >> LINK_SHIFT];

	if (link->vqp == NULL || hf_vqp_num(link->vqp) != wc->qp_num ||
		(link->state != REPLICA_LINK_UP && link->state != REPLICA_LINK_CONNECTING))
		return; /* of a vqp that was replaced */
	if ((wc->wr_id & SEND_BIT) == 0)
		received(link, wc);
	else
		sent(link, wc);
}

bool replica_links_turn(struct replica_links *links, uint64_t now_ns)
{
	struct ibv_wc wc[POLL_MAX];
	bool busy = false;

	for (unsigned i = 0; i < links->dead_count; i++)
		hf_vqp_destroy(links->dead[i]);
	links->dead_count = 0;
	for (unsigned i = 0; i < links->count; i++) {
		struct replica_link *link = &links->links[i];

		if (link->state == REPLICA_LINK_DOWN && link->vqp == NULL)
			free_all_posted(link);
		busy |= i != links->self && turn_link(link, now_ns);
	}
	for (int n; (n = hf_vcq_poll(links->cq, POLL_MAX, wc)) > 0; busy = true)
		for (int i = 0; i < n; i++)
			completed(links, &wc[i]);
	return busy;
}

/* ---- sending ---- */

/* Where `bytes` bytes fit behind those in use, and what is left out at the end of the ring for that. */
static bool find_room(const struct replica_link *link, uint32_t bytes, uint32_t *at_out, uint32_t *skipped_out)
{
	uint32_t rest = REPLICA_LINK_RING_BYTES - link->ring_at;

	*skipped_out = bytes > rest ? rest : 0;
	*at_out = bytes > rest ? 0 : link->ring_at;
	return link->ring_used + *skipped_out + bytes <= REPLICA_LINK_RING_BYTES;
}

static bool has_place(const struct replica_link *link, uint32_t bytes)
{
	uint32_t at, skipped;

	return link->state == REPLICA_LINK_UP && link->posted_count < REPLICA_LINK_SENDS &&
	       (bytes > LARGE_BYTES || find_room(link, bytes, &at, &skipped));
}

bool replica_link_has_room(const struct replica_link *link, uint32_t bytes)
{
	return has_place(link, bytes) && link->sent - link->taken_there < REPLICA_LINK_RECEIVES - REPLICA_LINK_RESERVE;
}

/* Registered memory for the next wr; NULL: there is none, and the link begins anew. */
static uint8_t *take(struct replica_link *link, uint32_t bytes, uint32_t *lkey_out)
{
	struct replica_link_posted *posted =
		&link->posted[(link->posted_first + link->posted_count) % REPLICA_LINK_SENDS];
	struct hf_error error = {0};
	uint32_t at, skipped;

	*posted = (struct replica_link_posted){0};
	if (bytes <= LARGE_BYTES) {
		ensure(find_room(link, bytes, &at, &skipped));
		posted->ring_bytes = skipped + bytes;
		link->ring_used += posted->ring_bytes;
		link->ring_at = at + bytes;
		*lkey_out = link->all->mr->lkey;
		return link->ring + at;
	}
	if (hf_mem_alloc(hf_loop_env(link->all->loop), bytes, &posted->large, &error) != 0 ||
		hf_vmr_reg(link->all->pd, posted->large, bytes, 0, &posted->large_mr, &error) != 0) {
		log_warn("broker: a batch of %u bytes cannot be sent to broker %d: %s", bytes, link->peer->id,
			error.text);
		free_posted(link, posted);
		replica_link_fail(link);
		return NULL;
	}
	*lkey_out = posted->large_mr->lkey;
	return posted->large;
}

static void post(struct replica_link *link, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;

	wr->wr_id = (uint64_t)(link - link->all->links) << LINK_SHIFT | SEND_BIT;
	link->posted_count++;
	link->sent++;
	if (hf_vqp_post_send(link->vqp, wr, &bad) != 0)
		replica_link_fail(link);
}

void replica_link_write(
	struct replica_link *link, const void *data, uint32_t bytes, uint64_t address, uint32_t key, uint32_t grant)
{
	struct ibv_sge sge = {.length = bytes};
	struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .sg_list = &sge, .num_sge = 1};
	uint8_t *at = take(link, bytes, &sge.lkey);

	if (at == NULL)
		return;
	memcpy(at, data, bytes);
	sge.addr = (uintptr_t)at;
	wr.imm_data = htonl(grant);
	wr.wr.rdma.remote_addr = address;
	wr.wr.rdma.rkey = key;
	post(link, &wr);
}

static void send_said(struct replica_link *link)
{
	uint32_t bytes = REPLICA_LINK_HEAD_BYTES + link->said_count * REPLICA_LINK_RECORD_BYTES;
	struct ibv_sge sge = {.length = bytes};
	struct ibv_send_wr wr = {.opcode = IBV_WR_SEND, .sg_list = &sge, .num_sge = 1};
	uint8_t *at = take(link, bytes, &sge.lkey);

	put_le32(at, link->taken);
	put_le32(at + 4, link->said_count);
	for (unsigned i = 0; i < link->said_count; i++) {
		uint8_t *to = at + REPLICA_LINK_HEAD_BYTES + i * REPLICA_LINK_RECORD_BYTES;

		put_le32(to, link->said[i].kind);
		put_le32(to + 4, link->said[i].grant);
		put_le64(to + 8, link->said[i].value);
	}
	sge.addr = (uintptr_t)at;
	link->told = link->taken;
	link->said_count = 0;
	post(link, &wr);
}

static void flush(struct replica_link *link)
{
	uint32_t on_the_way = link->sent - link->taken_there;
	bool has_words = link->said_count > 0 && on_the_way < REPLICA_LINK_RECEIVES - REPLICA_LINK_RESERVE;
	bool owes = link->taken - link->told >= CREDIT_BEHIND && on_the_way < REPLICA_LINK_RECEIVES;

	if ((has_words || owes) && has_place(link, REPLICA_LINK_MESSAGE_BYTES))
		send_said(link);
}

void replica_links_flush(struct replica_links *links)
{
	for (unsigned i = 0; i < links->count; i++)
		flush(&links->links[i]);
}

void replica_link_say(struct replica_link *link, const struct replica_record *record)
{
	if (link->state != REPLICA_LINK_UP)
		return;
	for (unsigned i = 0; i < link->said_count; i++)
		if (link->said[i].kind == record->kind && link->said[i].grant == record->grant) {
			link->said[i].value = record->value;
			return;
		}
	if (link->said_count == REPLICA_LINK_RECORDS)
		flush(link);
	if (link->said_count == REPLICA_LINK_RECORDS) { /* no credits for so many: a link that stands still */
		replica_link_fail(link);
		return;
	}
	link->said[link->said_count++] = *record;
}

/* ---- opening ---- */

static int open_memory(struct replica_links *links, struct hf_error *error)
{
	void *memory = NULL;
	int rc = hf_vpd_alloc(links->node, &links->pd);

	if (rc == 0)
		rc = hf_vcq_create(
			links->node, links->count * (REPLICA_LINK_RECEIVES + REPLICA_LINK_SENDS), links, &links->cq);
	if (rc != 0)
		return hf_error_set(error, rc, "broker: replication needs a node with rails: %s", strerror(-rc));
	rc = hf_mem_alloc(hf_loop_env(links->loop), (size_t)links->count * LINK_BYTES, &memory, error);
	if (rc != 0)
		return rc;
	links->memory = memory;
	for (unsigned i = 0; i < links->count; i++) {
		links->links[i].receives = links->memory + (size_t)i * LINK_BYTES;
		links->links[i].ring = links->links[i].receives + RECEIVE_BYTES;
	}
	return hf_vmr_reg(
		links->pd, memory, (size_t)links->count * LINK_BYTES, IBV_ACCESS_LOCAL_WRITE, &links->mr, error);
}

int replica_links_open(struct replica_links *links, struct hf_node *node, const struct broker_voters *voters,
	unsigned self, const struct replica_link_owner *owner, struct hf_error *error)
{
	int rc;

	*links = (struct replica_links){.node = node,
		.loop = hf_node_loop(node),
		.owner = *owner,
		.self = self,
		.count = voters->count,
		.service = {.name = SERVICE, .on_request = on_request, .context = links}};
	for (unsigned i = 0; i < links->count; i++)
		links->links[i] = (struct replica_link){.all = links, .peer = &voters->at[i], .connects = i < self};
	rc = open_memory(links, error);
	if (rc != 0)
		return rc;
	rc = hf_vqp_serve(node, &links->service);
	links->serving = rc == 0;
	return rc == 0 ? 0 : hf_error_set(error, rc, "broker: the node cannot serve replicas: %s", strerror(-rc));
}

void replica_links_close(struct replica_links *links)
{
	if (links->node == NULL)
		return;
	if (links->serving)
		hf_vqp_unserve(links->node, &links->service);
	for (unsigned i = 0; i < links->count; i++)
		hf_vqp_destroy(links->links[i].vqp);
	for (unsigned i = 0; i < links->dead_count; i++)
		hf_vqp_destroy(links->dead[i]);
	for (unsigned i = 0; i < links->count; i++)
		free_all_posted(&links->links[i]);
	if (links->mr != NULL)
		(void)hf_vmr_dereg(links->mr);
	if (links->cq != NULL)
		(void)hf_vcq_destroy(links->cq);
	if (links->pd != NULL)
		(void)hf_vpd_free(links->pd);
	if (links->memory != NULL)
		hf_mem_free(hf_loop_env(links->loop), links->memory);
	*links = (struct replica_links){0};
}
