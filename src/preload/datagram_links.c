/* How datagrams travel: from each process to each other by one vqp, which the sender makes at the first of them and
 * the receiver accepts. The sender copies a datagram into a slot of that vqp. A real network is no faster than its
 * receivers for long, and programs rely on it: the receiver leaves datagrams in their slots while its program has many
 * to poll, and a sender without a free slot waits. After PATIENCE_NS the program is taken for one that does not run:
 * then its datagrams are delivered while it has receives, and those without a slot are lost. */
#include "preload/datagram.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "preload/bond.h"
#include "preload/drive.h"

#define SERVICE    "datagrams"
#define SLOTS      128u /* of a link, at each end */
#define SLOTS_KEPT 16u
#define SLOT_BYTES (DATAGRAM_HEAD_BYTES + DATAGRAM_BYTES)
#define POLL_BATCH 16
#define LINKS_MAX  4096u
#define UNPOLLED   256u /* datagrams that a program has to poll: then others wait */

#define PATIENCE_NS 1000000000u
#define FLUSH_NS    100000000u

struct link {
	struct list node;
	struct datagram_links *links;
	struct hf_addr to; /* of one that sends */
	struct hf_vqp *vqp;
	struct hf_vmr *mr;
	uint8_t *slots; /* SLOTS of SLOT_BYTES */
	uint64_t posted, done;
	bool stuck; /* it waited for a slot, and none came free since */
};

struct datagram_links {
	struct bond *bond;
	struct hf_vpd *pd;
	struct hf_vcq *send_cq, *recv_cq;
	struct list sending, receiving;
	struct hf_vqp_service service;
	struct link *chosen;  /* by datagram_links_room */
	struct link *waiting; /* of it, for a slot: it stays */
	size_t chosen_bytes;
	unsigned count;
};

static uint8_t *slot_at(const struct link *link, uint64_t number)
{
	return link->slots + (size_t)(number % SLOTS) * SLOT_BYTES;
}

static void link_free(struct link *link)
{
	if (link == NULL)
		return;
	hf_vqp_destroy(link->vqp);
	if (link->mr != NULL && hf_vmr_dereg(link->mr) != 0)
		link->slots = NULL; /* a peer that is stopped in an operation may still write to it */
	list_remove(&link->node);
	link->links->count--;
	free(link->slots);
	free(link);
}

static struct link *link_make(struct datagram_links *links, bool sends)
{
	struct hf_vqp_init init = {.send_cq = links->send_cq,
		.recv_cq = links->recv_cq,
		.cap = {.max_send_wr = sends ? SLOTS : 1,
			.max_recv_wr = sends ? 1 : SLOTS,
			.max_send_sge = 1,
			.max_recv_sge = 1}};
	struct hf_error error = {0};
	struct link *link;

	if (links->count >= LINKS_MAX || (link = calloc(1, sizeof(*link))) == NULL)
		return NULL;
	init.context = link;
	link->links = links;
	links->count++;
	list_init(&link->node);
	link->slots = calloc(SLOTS, SLOT_BYTES);
	if (link->slots == NULL || hf_vqp_create(links->pd, &init, &link->vqp) != 0 ||
		hf_vmr_reg(links->pd, link->slots, (uint64_t)SLOTS * SLOT_BYTES, IBV_ACCESS_LOCAL_WRITE, &link->mr,
			&error) != 0) {
		link_free(link);
		return NULL;
	}
	return link;
}

static bool ended(const struct link *link)
{
	return hf_vqp_state(link->vqp) == HF_VQP_ERROR;
}

static void reap(struct list *links)
{
	list_for_each_safe (at, links) {
		struct link *link = container_of(at, struct link, node);

		if (ended(link))
			link_free(link);
	}
}

/* ---- receiving ---- */

static void expect(struct link *link, uint64_t slot)
{
	struct ibv_sge sge = {.addr = (uintptr_t)slot_at(link, slot), .length = SLOT_BYTES, .lkey = link->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = slot, .sg_list = &sge, .num_sge = 1}, *bad;

	(void)hf_vqp_post_recv(link->vqp, &wr, &bad); /* refused: the vqp has ended */
}

static struct hf_vqp *accept_link(const struct hf_vqp_request *request, void *reply, size_t *reply_bytes, void *context)
{
	struct datagram_links *links = context;
	struct link *link;

	(void)request, (void)reply;
	*reply_bytes = 0;
	reap(&links->receiving);
	link = link_make(links, false);
	if (link == NULL)
		return NULL;
	list_push_back(&links->receiving, &link->node);
	for (uint64_t slot = 0; slot < SLOTS; slot++)
		expect(link, slot);
	return link->vqp;
}

static struct link *receiver_of(struct datagram_links *links, uint32_t vqp_num)
{
	list_for_each (at, &links->receiving) {
		struct link *link = container_of(at, struct link, node);

		if (hf_vqp_num(link->vqp) == vqp_num)
			return link;
	}
	return NULL;
}

static bool may_take(const struct bond *bond)
{
	return bond->datagrams_unpolled < UNPOLLED ||
	       hf_loop_now_ns(drive_loop()) - bond->datagrams_polled_ns > PATIENCE_NS;
}

static void take(struct datagram_links *links)
{
	struct ibv_wc wc[POLL_BATCH];
	int n;

	do {
		n = may_take(links->bond) ? hf_vcq_poll(links->recv_cq, POLL_BATCH, wc) : 0;
		for (int i = 0; i < n; i++) {
			struct link *link = wc[i].status == IBV_WC_SUCCESS ? receiver_of(links, wc[i].qp_num) : NULL;

			if (link == NULL)
				continue;
			datagram_arrived(links->bond, slot_at(link, wc[i].wr_id), wc[i].byte_len);
			expect(link, wc[i].wr_id);
		}
	} while (n == POLL_BATCH);
}

/* Of the loop, also while the program does not poll: a sender does not find its slots in use. */
static void arrived(struct hf_vcq *cq, void *context)
{
	struct datagram_links *links = ((struct bond *)context)->datagrams;

	take(links);
	hf_vcq_req_notify(cq, arrived);
	take(links);
}

void datagram_links_poll(struct bond *bond)
{
	if (!list_empty(&bond->datagrams->receiving))
		take(bond->datagrams);
}

/* ---- sending ---- */

static struct link *connect_link(struct datagram_links *links, const struct hf_addr *to)
{
	struct hf_peer *peer = bond_peer(links->bond, to);
	struct link *link = peer == NULL ? NULL : link_make(links, true);

	if (link == NULL)
		return NULL;
	link->to = *to;
	if (hf_vqp_connect(link->vqp, peer, SERVICE, NULL, 0) != 0) {
		link_free(link);
		return NULL;
	}
	list_push_front(&links->sending, &link->node);
	return link;
}

/* Used ones come first. */
static struct link *find_link(struct datagram_links *links, const struct hf_addr *to)
{
	list_for_each (at, &links->sending) {
		struct link *link = container_of(at, struct link, node);

		if (!hf_addr_equal(&link->to, to))
			continue;
		if (ended(link) && link == links->waiting)
			return NULL;
		if (ended(link)) {
			link_free(link);
			break;
		}
		if (links->sending.next != at) {
			list_remove(at);
			list_push_front(&links->sending, at);
		}
		return link;
	}
	return connect_link(links, to);
}

static void take_sent(struct datagram_links *links)
{
	struct ibv_wc wc[POLL_BATCH];
	int n;

	while ((n = hf_vcq_poll(links->send_cq, POLL_BATCH, wc)) > 0)
		for (int i = 0; i < n; i++) {
			struct link *link = (struct link *)(uintptr_t)wc[i].wr_id;

			link->done++;
			link->stuck = false;
		}
}

/* The program's datagrams leave some slots to the messages of connection managers. */
static bool is_full(const struct link *link)
{
	return link->posted - link->done >= SLOTS - SLOTS_KEPT;
}

static void wait_for_slot(struct datagram_links *links, struct link *link)
{
	uint64_t since_ns = hf_loop_now_ns(drive_loop());

	links->waiting = link;
	while (is_full(link) && !link->stuck) {
		drive_turn();
		take_sent(links);
		link->stuck = is_full(link) && hf_loop_now_ns(drive_loop()) - since_ns > PATIENCE_NS;
	}
	links->waiting = NULL;
}

static struct link *choose_link(struct datagram_links *links, const struct hf_addr *to)
{
	struct link *link = find_link(links, to);

	if (link != NULL && link->posted - link->done > SLOTS / 2)
		take_sent(links);
	return link;
}

static void *room_of(struct datagram_links *links, struct link *link, size_t bytes)
{
	links->chosen = link;
	links->chosen_bytes = bytes;
	return slot_at(link, link->posted);
}

void *datagram_links_room(struct bond *bond, const struct hf_addr *to, size_t bytes)
{
	struct link *link = choose_link(bond->datagrams, to);

	if (link == NULL)
		return NULL;
	wait_for_slot(bond->datagrams, link);
	return is_full(link) ? NULL : room_of(bond->datagrams, link, bytes);
}

void *datagram_links_room_now(struct bond *bond, const struct hf_addr *to, size_t bytes)
{
	struct link *link = choose_link(bond->datagrams, to);

	return link == NULL || link->posted - link->done == SLOTS ? NULL : room_of(bond->datagrams, link, bytes);
}

void datagram_links_send(struct bond *bond)
{
	struct datagram_links *links = bond->datagrams;
	struct link *link = links->chosen;
	struct ibv_sge sge = {.addr = (uintptr_t)slot_at(link, link->posted),
		.length = (uint32_t)links->chosen_bytes,
		.lkey = link->mr->lkey};
	struct ibv_send_wr wr = {.wr_id = (uintptr_t)link,
				   .sg_list = &sge,
				   .num_sge = 1,
				   .opcode = IBV_WR_SEND,
				   .send_flags = IBV_SEND_SIGNALED},
			   *bad;

	if (hf_vqp_post_send(link->vqp, &wr, &bad) == 0)
		link->posted++;
}

/* ---- life ---- */

int datagram_links_open(struct bond *bond)
{
	struct datagram_links *links = calloc(1, sizeof(*links));
	int rc;

	if (links == NULL)
		return -ENOMEM;
	bond->datagrams = links;
	links->bond = bond;
	list_init(&links->sending);
	list_init(&links->receiving);
	links->service = (struct hf_vqp_service){.name = SERVICE, .on_request = accept_link, .context = links};
	if ((rc = hf_vpd_alloc(bond->node, &links->pd)) != 0 ||
		(rc = hf_vcq_create(bond->node, 2 * SLOTS, bond, &links->send_cq)) != 0 ||
		(rc = hf_vcq_create(bond->node, 2 * SLOTS, bond, &links->recv_cq)) != 0 ||
		(rc = hf_vqp_serve(bond->node, &links->service)) != 0) {
		datagram_links_close(bond);
		return rc;
	}
	hf_vcq_req_notify(links->recv_cq, arrived);
	return 0;
}

static bool is_sending(struct datagram_links *links)
{
	take_sent(links);
	list_for_each (at, &links->sending) {
		const struct link *link = container_of(at, struct link, node);

		if (!ended(link) && link->posted != link->done)
			return true;
	}
	return false;
}

void datagram_links_flush(struct bond *bond)
{
	uint64_t end_ns = hf_env_now_ns(hf_env_host()) + FLUSH_NS;

	while (is_sending(bond->datagrams) && hf_env_now_ns(hf_env_host()) < end_ns)
		drive_turn();
}

static void free_all(struct list *links)
{
	list_for_each_safe (at, links)
		link_free(container_of(at, struct link, node));
}

void datagram_links_close(struct bond *bond)
{
	struct datagram_links *links = bond->datagrams;

	if (links == NULL)
		return;
	hf_vqp_unserve(bond->node, &links->service);
	free_all(&links->sending);
	free_all(&links->receiving);
	if (links->recv_cq != NULL)
		(void)hf_vcq_destroy(links->recv_cq);
	if (links->send_cq != NULL)
		(void)hf_vcq_destroy(links->send_cq);
	if (links->pd != NULL)
		(void)hf_vpd_free(links->pd);
	free(links);
	bond->datagrams = NULL;
}
