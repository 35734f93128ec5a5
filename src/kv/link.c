#include "kv/link.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/ensure.h"
#include "base/log.h"
#include "net/control.h"
#include "node/peer.h"

#define SERVICE       "holdfast.kv"
#define RETRY_NS      20000000ull
#define POLL_MAX      32
#define BUFFERS       (LINK_RECEIVES + LINK_SENDS)
#define SEND_BIT      (1ull << 32) /* of a wr_id: a SEND; below it the buffer, above it the link */
#define LINK_SHIFT    40
#define IN_BYTES_MAX  (8u << 20) /* several messages are held back while an epoch is not installed */
#define CREDIT_BEHIND (LINK_RECEIVES / 4)

static const unsigned allowed[LINK_STATES] = {
	[LINK_DOWN] = 1u << LINK_CONNECTING | 1u << LINK_UP,
	[LINK_CONNECTING] = 1u << LINK_UP | 1u << LINK_FAILED,
	[LINK_UP] = 1u << LINK_FAILED,
	[LINK_FAILED] = 1u << LINK_DOWN,
};

static void move(struct link *link, enum link_state to)
{
	ensure((allowed[link->state] & 1u << to) != 0);
	link->state = to;
}

/* ---- a vqp's life ---- */

static void fail(struct link *link)
{
	if (link->state == LINK_UP || link->state == LINK_CONNECTING)
		move(link, LINK_FAILED);
}

static void changed(struct hf_vqp *vqp, void *context)
{
	struct link_pool *pool = context;

	for (unsigned i = 0; i < pool->count; i++) {
		struct link *link = &pool->links[i];

		if (link->vqp == vqp && hf_vqp_state(vqp) == HF_VQP_ERROR)
			fail(link);
	}
}

static struct hf_vqp *make_vqp(struct link_pool *pool)
{
	struct hf_vqp_init init = {
		.send_cq = pool->cq,
		.recv_cq = pool->cq,
		.cap = {.max_send_wr = LINK_SENDS, .max_recv_wr = LINK_RECEIVES, .max_send_sge = 1, .max_recv_sge = 1},
		.sq_sig_all = true,
		.revocable = true, /* a qp on every rail: messages do not wait for a rebuild */
		.context = pool,
		.changed = changed,
	};
	struct hf_vqp *vqp;

	return hf_vqp_create(pool->pd, &init, &vqp) == 0 ? vqp : NULL;
}

static void bury(struct link_pool *pool, struct hf_vqp *vqp)
{
	if (vqp == NULL)
		return;
	hf_vqp_abort(vqp);
	ensure(pool->dead_count < sizeof(pool->dead) / sizeof(*pool->dead));
	pool->dead[pool->dead_count++] = vqp;
}

static uint8_t *buffer_of(const struct link *link, uint32_t number)
{
	return link->buffers + (size_t)number * LINK_BUFFER_BYTES;
}

static int post_receive(struct link *link, struct hf_vqp *vqp, uint32_t number)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)buffer_of(link, number), .length = LINK_BUFFER_BYTES, .lkey = link->pool->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = (uint64_t)link->peer << LINK_SHIFT | number, .sg_list = &sge, .num_sge = 1};
	struct ibv_recv_wr *bad;

	return hf_vqp_post_recv(vqp, &wr, &bad);
}

/* The link begins anew on this vqp. */
static void adopt(struct link *link, struct hf_vqp *vqp)
{
	link->vqp = vqp;
	link->sent = link->taken_there = link->taken = link->told = 0;
	link->out_from = link->out_bytes = link->in_bytes = 0;
	link->free_count = LINK_SENDS;
	for (uint32_t i = 0; i < LINK_SENDS; i++)
		link->free_sends[i] = LINK_RECEIVES + i;
	for (uint32_t i = 0; i < LINK_RECEIVES; i++)
		if (post_receive(link, vqp, i) != 0)
			fail(link);
}

static bool differs(const uint8_t *said, const uint8_t *own, size_t from, size_t to)
{
	return memcmp(said + from, own + from, to - from) != 0;
}

/* Why the hello cannot be this store's; NULL: it can. */
static const char *find_difference(const struct link_pool *pool, const uint8_t *said, size_t bytes)
{
	if (bytes != LINK_PRIVATE_BYTES + 1 || differs(said, pool->hello, LINK_VERSION_AT, LINK_MEMBERS_AT))
		return "its version is another; run one version at all members";
	if (differs(said, pool->hello, LINK_MEMBERS_AT, LINK_KEEPS_AT) || said[LINK_PRIVATE_BYTES] >= pool->count ||
		said[LINK_PRIVATE_BYTES] <= pool->self)
		return "its `cluster` or its list of members is another; give all members the same ones";
	if (differs(said, pool->hello, LINK_KEEPS_AT, LINK_LEASE_AT))
		return "it has a `log` where this one has none, or another `medium`; give all members the same";
	if (differs(said, pool->hello, LINK_LEASE_AT, LINK_PRIVATE_BYTES))
		return "its lease_ms is another; give all members the same"; /* leases count at both ends */
	return NULL;
}

static bool lives_at(const struct hf_peer *peer, const struct hf_kv_member *member)
{
	struct hf_addr addresses[FRAME_ENDPOINTS_MAX];
	unsigned n = control_peer_addresses(peer->control, addresses);

	for (unsigned i = 0; i < n; i++)
		for (unsigned k = 0; k < member->control_count; k++)
			if (hf_addr_equal(&addresses[i], &member->control[k]))
				return true;
	return false;
}

static bool is_admitted(struct link_pool *pool, const struct hf_vqp_request *request)
{
	const char *wrong = find_difference(pool, request->private_data, request->private_bytes);
	const struct hf_kv_member *member;

	if (wrong == NULL) {
		member = pool->links[((const uint8_t *)request->private_data)[LINK_PRIVATE_BYTES]].member;
		if (strcmp(hf_peer_name(request->peer), member->name) != 0)
			wrong = "it says that it is another member; give all members the same list";
		else if (!lives_at(request->peer, member))
			wrong = "that member has another address in the list; give each process a name and a `log` of "
				"its own";
	}
	if (wrong != NULL && pool->refusals++ == 0)
		log_error("kv: %s is refused: %s", hf_peer_name(request->peer), wrong);
	return wrong == NULL;
}

/* A peer that asks again has lost its vqp: the old one ends first, and the peer asks once more. */
static struct hf_vqp *on_request(const struct hf_vqp_request *request, void *reply, size_t *reply_bytes, void *context)
{
	struct link_pool *pool = context;
	struct hf_vqp *vqp;
	struct link *link;

	(void)reply;
	*reply_bytes = 0;
	if (!is_admitted(pool, request))
		return NULL;
	link = &pool->links[((const uint8_t *)request->private_data)[LINK_PRIVATE_BYTES]];
	if (link->state != LINK_DOWN || pool->dead_count > 0) {
		fail(link);
		return NULL;
	}
	vqp = make_vqp(pool);
	if (vqp == NULL)
		return NULL;
	move(link, LINK_CONNECTING);
	adopt(link, vqp);
	return vqp;
}

static struct hf_peer *find_peer(const struct link *link)
{
	struct hf_peer *peer = NULL;

	for (unsigned i = 0; i < link->member->control_count && peer == NULL; i++)
		peer = hf_peer_find(link->pool->node, &link->member->control[i]);
	return peer;
}

static bool start_connecting(struct link *link, uint64_t now_ns)
{
	struct link_pool *pool = link->pool;
	uint8_t said[LINK_PRIVATE_BYTES + 1];
	struct hf_error error = {0};
	struct hf_peer *peer;

	if (!link->connects || now_ns < link->retry_at_ns)
		return false;
	link->retry_at_ns = now_ns + RETRY_NS;
	peer = find_peer(link);
	if (peer == NULL) {
		if (hf_peer_connect(pool->node, link->member->control, link->member->control_count, &peer, &error) != 0)
			log_warn("kv: no connection to %s: %s", link->member->name, error.text);
		return true;
	}
	if (hf_peer_name(peer)[0] == '\0')
		return true; /* not up yet */
	if (strcmp(hf_peer_name(peer), link->member->name) != 0) {
		if (pool->refusals++ == 0)
			log_error("kv: the node at the address of %s is %s; mend the list of members",
				link->member->name, hf_peer_name(peer));
		return true;
	}
	link->vqp = make_vqp(pool);
	if (link->vqp == NULL)
		return true;
	move(link, LINK_CONNECTING);
	memcpy(said, pool->hello, LINK_PRIVATE_BYTES);
	said[LINK_PRIVATE_BYTES] = (uint8_t)pool->self;
	adopt(link, link->vqp);
	if (hf_vqp_connect(link->vqp, peer, SERVICE, said, sizeof(said)) != 0)
		fail(link);
	return true;
}

static void come_up(struct link *link)
{
	move(link, LINK_UP);
	link->pool->owner.up(link->pool->owner.context, link->peer);
}

static bool turn_link(struct link *link, uint64_t now_ns)
{
	struct link_pool *pool = link->pool;

	if (link->state == LINK_CONNECTING && hf_vqp_state(link->vqp) == HF_VQP_UP) {
		come_up(link);
		return true;
	}
	if (link->state == LINK_FAILED) {
		bury(pool, link->vqp);
		link->vqp = NULL;
		move(link, LINK_DOWN);
		link->out_from = link->out_bytes = link->in_bytes = 0;
		link->retry_at_ns = now_ns + RETRY_NS;
		pool->owner.down(pool->owner.context, link->peer);
		return true;
	}
	return link->state == LINK_DOWN && start_connecting(link, now_ns);
}

/* ---- hearing ---- */

static int keep_rest(struct link *link, const uint8_t *at, size_t bytes)
{
	if (link->in_bytes + bytes > link->in_room) {
		size_t room = link->in_room == 0 ? 4 * LINK_BUFFER_BYTES : link->in_room;
		uint8_t *in;

		while (room < link->in_bytes + bytes)
			room *= 2;
		if (link->in_bytes + bytes > IN_BYTES_MAX || (in = realloc(link->in, room)) == NULL)
			return -ENOMEM;
		link->in = in;
		link->in_room = room;
	}
	if (bytes > 0)
		memcpy(link->in + link->in_bytes, at, bytes);
	link->in_bytes += bytes;
	return 0;
}

/* Messages within one SEND are read where they lie. */
static int hear(struct link *link, const uint8_t *at, size_t bytes)
{
	struct link_pool *pool = link->pool;
	bool gathers = link->in_bytes > 0;
	size_t used;

	if (gathers) {
		if (keep_rest(link, at, bytes) != 0)
			return -ENOMEM;
		at = link->in;
		bytes = link->in_bytes;
	}
	used = pool->owner.hear(pool->owner.context, link->peer, at, bytes);
	if (used == SIZE_MAX)
		return -EPROTO;
	if (!gathers)
		return used < bytes ? keep_rest(link, at + used, bytes - used) : 0;
	memmove(link->in, link->in + used, bytes - used);
	link->in_bytes = bytes - used;
	return 0;
}

static void received(struct link *link, const struct ibv_wc *wc)
{
	const uint8_t *at = buffer_of(link, (uint32_t)wc->wr_id);
	uint32_t bytes;

	if (wc->status != IBV_WC_SUCCESS) {
		fail(link);
		return;
	}
	bytes = wc->byte_len >= LINK_HEAD_BYTES ? get_le32(at) : UINT32_MAX;
	if (bytes != wc->byte_len - LINK_HEAD_BYTES || get_le32(at + 4) - link->taken_there > LINK_RECEIVES) {
		log_error("kv: %s sends no messages of this version; its link ends", link->member->name);
		fail(link);
		return;
	}
	if (link->state == LINK_CONNECTING)
		come_up(link); /* the peer knows it sooner */
	link->taken_there = get_le32(at + 4);
	link->taken++;
	if (hear(link, at + LINK_HEAD_BYTES, bytes) != 0) {
		log_error("kv: %s sends messages that make no sense; its link ends", link->member->name);
		fail(link);
		return;
	}
	if (post_receive(link, link->vqp, (uint32_t)wc->wr_id) != 0)
		fail(link);
}

static void completed(struct link_pool *pool, const struct ibv_wc *wc)
{
	struct link *link = &pool->links[wc->wr_id >> LINK_SHIFT];

	if (link->vqp == NULL || hf_vqp_num(link->vqp) != wc->qp_num ||
		(link->state != LINK_UP && link->state != LINK_CONNECTING))
		return; /* of a vqp that was replaced */
	if ((wc->wr_id & SEND_BIT) == 0)
		received(link, wc);
	else if (wc->status != IBV_WC_SUCCESS)
		fail(link);
	else
		link->free_sends[link->free_count++] = (uint32_t)wc->wr_id;
}

void kv_link_pool_rehear(struct link_pool *pool)
{
	for (unsigned i = 0; i < pool->count; i++) {
		struct link *link = &pool->links[i];

		if (link->state == LINK_UP && link->in_bytes > 0 && hear(link, NULL, 0) != 0)
			fail(link);
	}
}

bool kv_link_pool_turn(struct link_pool *pool, uint64_t now_ns)
{
	struct ibv_wc wc[POLL_MAX];
	bool busy = false;

	for (unsigned i = 0; i < pool->dead_count; i++)
		hf_vqp_destroy(pool->dead[i]);
	pool->dead_count = 0;
	for (unsigned i = 0; i < pool->count; i++)
		busy |= i != pool->self && turn_link(&pool->links[i], now_ns);
	for (int n; (n = hf_vcq_poll(pool->cq, POLL_MAX, wc)) > 0; busy = true)
		for (int i = 0; i < n; i++)
			completed(pool, &wc[i]);
	return busy;
}

/* ---- saying ---- */

uint8_t *kv_link_reserve(struct link *link, size_t bytes)
{
	uint8_t *at;

	if (link->state != LINK_UP)
		return NULL;
	if (link->out_from > 0 && (link->out_from == link->out_bytes || link->out_bytes + bytes > link->out_room)) {
		memmove(link->out, link->out + link->out_from, link->out_bytes - link->out_from);
		link->out_bytes -= link->out_from;
		link->out_from = 0;
	}
	if (link->out_bytes + bytes > link->out_room) {
		size_t room = link->out_room == 0 ? 4 * LINK_BUFFER_BYTES : link->out_room;
		uint8_t *out;

		while (room < link->out_bytes + bytes)
			room *= 2;
		out = realloc(link->out, room);
		if (out == NULL) {
			log_error("kv: no memory for messages to %s; its link ends", link->member->name);
			fail(link);
			return NULL;
		}
		link->out = out;
		link->out_room = room;
	}
	at = link->out + link->out_bytes;
	link->out_bytes += bytes;
	return at;
}

static void send_one(struct link *link)
{
	uint32_t number = link->free_sends[--link->free_count];
	uint8_t *at = buffer_of(link, number);
	size_t bytes = kv_link_waiting(link);
	struct ibv_sge sge = {.addr = (uintptr_t)at, .lkey = link->pool->mr->lkey};
	struct ibv_send_wr wr = {.wr_id = (uint64_t)link->peer << LINK_SHIFT | SEND_BIT | number,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND};
	struct ibv_send_wr *bad;

	if (bytes > LINK_BUFFER_BYTES - LINK_HEAD_BYTES)
		bytes = LINK_BUFFER_BYTES - LINK_HEAD_BYTES;
	put_le32(at, (uint32_t)bytes);
	put_le32(at + 4, link->taken);
	if (bytes > 0)
		memcpy(at + LINK_HEAD_BYTES, link->out + link->out_from, bytes);
	link->out_from += bytes;
	link->told = link->taken;
	link->sent++;
	sge.length = (uint32_t)bytes + LINK_HEAD_BYTES;
	if (hf_vqp_post_send(link->vqp, &wr, &bad) != 0)
		fail(link);
}

void kv_link_pool_flush(struct link_pool *pool)
{
	for (unsigned i = 0; i < pool->count; i++) {
		struct link *link = &pool->links[i];

		while (link->state == LINK_UP && link->free_count > 0 && kv_link_waiting(link) > 0 &&
			link->sent - link->taken_there < LINK_RECEIVES - LINK_RESERVE)
			send_one(link);
		if (link->state == LINK_UP && link->free_count > 0 && link->taken - link->told >= CREDIT_BEHIND &&
			link->sent - link->taken_there < LINK_RECEIVES)
			send_one(link);
	}
}

/* ---- when to look again ---- */

uint64_t kv_link_pool_wake_ns(const struct link_pool *pool)
{
	uint64_t wake_ns = UINT64_MAX;

	for (unsigned i = 0; i < pool->count; i++) {
		const struct link *link = &pool->links[i];

		if (i != pool->self && link->connects && link->state == LINK_DOWN && link->retry_at_ns < wake_ns)
			wake_ns = link->retry_at_ns;
	}
	return wake_ns;
}

/* ---- opening ---- */

static int open_memory(struct link_pool *pool, struct hf_error *error)
{
	size_t each = (size_t)BUFFERS * LINK_BUFFER_BYTES;
	void *memory = NULL;
	int rc = hf_vpd_alloc(pool->node, &pool->pd);

	if (rc == 0)
		rc = hf_vcq_create(pool->node, pool->count * BUFFERS, pool, &pool->cq);
	if (rc != 0)
		return hf_error_set(error, rc, "kv: the node cannot have a protection domain: %s", strerror(-rc));
	if (pool->count == 1)
		return 0; /* there is nobody to talk to */
	rc = hf_mem_alloc(hf_loop_env(pool->loop), (pool->count - 1) * each, &memory, error);
	if (rc != 0)
		return rc;
	pool->memory = memory;
	for (unsigned i = 0; i < pool->count; i++)
		pool->links[i].buffers = pool->memory + (i - (i > pool->self)) * each;
	return hf_vmr_reg(pool->pd, memory, (pool->count - 1) * each, IBV_ACCESS_LOCAL_WRITE, &pool->mr, error);
}

int kv_link_pool_open(struct link_pool *pool, struct hf_node *node, const struct hf_kv_config *config, unsigned self,
	const uint8_t hello[LINK_PRIVATE_BYTES], const struct link_owner *owner, struct hf_error *error)
{
	int rc;

	*pool = (struct link_pool){.node = node,
		.loop = hf_node_loop(node),
		.owner = *owner,
		.self = self,
		.count = config->member_count,
		.service = {.name = SERVICE, .on_request = on_request, .context = pool}};
	memcpy(pool->hello, hello, LINK_PRIVATE_BYTES);
	for (unsigned i = 0; i < pool->count; i++)
		pool->links[i] =
			(struct link){.pool = pool, .peer = i, .member = &config->members[i], .connects = i < self};
	rc = open_memory(pool, error);
	if (rc != 0)
		return rc;
	rc = hf_vqp_serve(node, &pool->service);
	pool->serving = rc == 0;
	return rc == 0 ? 0
		       : hf_error_set(
				 error, rc, "kv: the node has a store already, or cannot serve one: %s", strerror(-rc));
}

void kv_link_pool_close(struct link_pool *pool)
{
	if (pool->serving)
		hf_vqp_unserve(pool->node, &pool->service);
	for (unsigned i = 0; i < pool->count; i++) {
		struct link *link = &pool->links[i];

		hf_vqp_destroy(link->vqp);
		free(link->out);
		free(link->in);
	}
	for (unsigned i = 0; i < pool->dead_count; i++)
		hf_vqp_destroy(pool->dead[i]);
	if (pool->mr != NULL)
		(void)hf_vmr_dereg(pool->mr);
	if (pool->cq != NULL)
		(void)hf_vcq_destroy(pool->cq);
	if (pool->pd != NULL)
		(void)hf_vpd_free(pool->pd);
	if (pool->memory != NULL)
		hf_mem_free(hf_loop_env(pool->loop), pool->memory);
	*pool = (struct link_pool){0};
}
