#include "datagrams.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define GRH   40
#define QKEY  0x1234
#define ROOM  (GRH + 4096) /* of a receive, at the beginning of the memory; what is sent is behind it */
#define MTU   4096
#define WORDS 1000
#define TURNS 100 /* between two switches */

static void move_to(struct ibv_qp *qp, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = {.qp_state = state, .port_num = 1, .qkey = QKEY};
	int mask = IBV_QP_STATE;

	if (state == IBV_QPS_INIT)
		mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
	else if (state == IBV_QPS_RTS)
		mask |= IBV_QP_SQ_PSN;
	check(ibv_modify_qp(qp, &attr, mask) == 0);
}

static struct ibv_ah *handle_of(struct side *side, const union ibv_gid *gid)
{
	struct ibv_ah_attr attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = *gid, .hop_limit = 1}};
	struct ibv_ah *ah = ibv_create_ah(side->pd, &attr);

	check(ah != NULL);
	return ah;
}

/* Returns the handle of the other side. */
static struct ibv_ah *open_datagrams(struct side *side)
{
	open_device(side);
	side->memory = calloc(1, 2 * BYTES);
	side->mr = ibv_reg_mr(side->pd, side->memory, 2 * BYTES, IBV_ACCESS_LOCAL_WRITE);
	side->channel = ibv_create_comp_channel(side->context);
	side->cq[0] = ibv_create_cq(side->context, 4 * DEPTH, side, side->channel, 0);
	side->qp[0] = make_qp(side, side->cq[0], IBV_QPT_UD);
	check(side->mr != NULL && side->cq[0] != NULL && side->qp[0] != NULL);
	move_to(side->qp[0], IBV_QPS_INIT);
	move_to(side->qp[0], IBV_QPS_RTR);
	move_to(side->qp[0], IBV_QPS_RTS);
	check(ibv_query_gid(side->context, 1, 0, &side->mine.gid) == 0);
	side->mine.qp_num[0] = side->qp[0]->qp_num;
	tell(side->socket, &side->mine);
	hear(side->socket, &side->theirs);
	return handle_of(side, &side->theirs.gid);
}

static void close_datagrams(struct side *side, struct ibv_ah *ah)
{
	meet(side);
	check(ibv_destroy_ah(ah) == 0);
	close_side(side, 1);
}

static void expect(struct side *side, uint64_t wr_id)
{
	struct ibv_sge sge = {.addr = (uintptr_t)side->memory, .length = ROOM, .lkey = side->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = wr_id, .sg_list = &sge, .num_sge = 1}, *bad;

	check(ibv_post_recv(side->qp[0], &wr, &bad) == 0);
}

static int try_send(
	struct side *side, struct ibv_ah *ah, uint32_t number, uint32_t qkey, uint32_t bytes, uint64_t wr_id)
{
	struct ibv_sge sge = {.addr = (uintptr_t)side->memory + ROOM, .length = bytes, .lkey = side->mr->lkey};
	struct ibv_send_wr wr = {.wr_id = wr_id,
				   .sg_list = &sge,
				   .num_sge = 1,
				   .opcode = IBV_WR_SEND_WITH_IMM,
				   .imm_data = (uint32_t)wr_id,
				   .send_flags = IBV_SEND_SIGNALED,
				   .wr.ud = {.ah = ah, .remote_qpn = number, .remote_qkey = qkey}},
			   *bad;

	return ibv_post_send(side->qp[0], &wr, &bad);
}

/* The sends and receives of a queue complete in any order to each other. */
static struct ibv_wc take(struct side *side, enum ibv_wc_opcode opcode)
{
	struct ibv_wc wc = poll_one(side->cq[0]);

	check(wc.status == IBV_WC_SUCCESS && wc.opcode == opcode && wc.qp_num == side->qp[0]->qp_num);
	return wc;
}

static void send_to(
	struct side *side, struct ibv_ah *ah, uint32_t number, uint32_t qkey, uint32_t bytes, uint64_t wr_id)
{
	check(try_send(side, ah, number, qkey, bytes, wr_id) == 0);
	check(take(side, IBV_WC_SEND).wr_id == wr_id);
}

static void fill(struct side *side, unsigned seed)
{
	for (unsigned i = 0; i < MTU; i++)
		side->memory[ROOM + i] = (char)(i * 7 + seed);
}

static void check_filled(struct side *side, unsigned bytes, unsigned seed)
{
	for (unsigned i = 0; i < bytes; i++)
		check(side->memory[GRH + i] == (char)(i * 7 + seed));
}

/* Bytes 20 to 39 are an IPv4 header: the device's gids are such addresses. */
static void check_header(struct side *side)
{
	const char *ip = side->memory + GRH / 2;

	check(ip[0] == 0x45 && memcmp(ip + 12, side->theirs.gid.raw + 12, 4) == 0);
	check(memcmp(ip + 16, side->mine.gid.raw + 12, 4) == 0);
}

static void check_received(struct side *side, const struct ibv_wc *wc, unsigned bytes)
{
	check(wc->byte_len == GRH + bytes && wc->src_qp == side->theirs.qp_num[0]);
	check(wc->wc_flags == (IBV_WC_GRH | IBV_WC_WITH_IMM));
	check_header(side);
	check_filled(side, bytes, bytes);
}

void datagrams_arrive_with_their_header_and_can_be_answered(struct side *side)
{
	static const unsigned sizes[] = {0, 1, 100, MTU - 1, MTU};
	struct ibv_ah *ah = open_datagrams(side), *back;

	for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct ibv_wc wc;

		fill(side, sizes[i]);
		expect(side, i);
		meet(side);
		if (side->number == 0)
			send_to(side, ah, side->theirs.qp_num[0], QKEY, sizes[i], 50 + i);
		wc = take(side, IBV_WC_RECV);
		check(wc.wr_id == i && wc.imm_data == 50 + i);
		check_received(side, &wc, sizes[i]);
		if (side->number == 1) {
			back = ibv_create_ah_from_wc(side->pd, &wc, (struct ibv_grh *)(void *)side->memory, 1);
			check(back != NULL);
			send_to(side, back, wc.src_qp, QKEY, sizes[i], 50 + i);
			check(ibv_destroy_ah(back) == 0);
		}
	}
	close_datagrams(side, ah);
}

void datagrams_need_a_receive_and_the_qkey(struct side *side)
{
	struct ibv_ah *ah = open_datagrams(side), *own = handle_of(side, &side->mine.gid);
	uint32_t number = side->mine.qp_num[0];
	struct ibv_wc wc;

	send_to(side, own, number, QKEY, 8, 1); /* lost */
	expect(side, 2);
	send_to(side, own, number, QKEY + 1, 8, 3);
	send_to(side, own, number + 1, QKEY, 8, 4);
	check(ibv_poll_cq(side->cq[0], 1, &wc) == 0);
	check(try_send(side, own, number, QKEY, 8, 5) == 0);
	for (unsigned i = 0; i < 2; i++) {
		wc = poll_one(side->cq[0]);
		check(wc.status == IBV_WC_SUCCESS && wc.wr_id == (wc.opcode == IBV_WC_RECV ? 2 : 5));
	}
	expect(side, 6);
	meet(side);
	send_to(side, ah, side->theirs.qp_num[0], QKEY, 8, 7);
	check(take(side, IBV_WC_RECV).wr_id == 6);
	check(ibv_destroy_ah(own) == 0);
	close_datagrams(side, ah);
}

void datagram_queue_pairs_follow_the_rules(struct side *side)
{
	struct ibv_ah *ah = open_datagrams(side), *own = handle_of(side, &side->mine.gid);
	struct ibv_ah_attr multicast = {.is_global = 1, .port_num = 1, .grh.dgid.raw = {0xff}};
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct ibv_cq *cq;
	void *context;

	check(ibv_create_ah(side->pd, &multicast) == NULL && errno == EOPNOTSUPP);
	check(ibv_query_qp(side->qp[0], &attr, IBV_QP_QKEY, &init) == 0 && attr.qkey == QKEY);
	check(init.qp_type == IBV_QPT_UD && attr.qp_state == IBV_QPS_RTS);
	check(try_send(side, own, side->mine.qp_num[0], QKEY, MTU + 1, 0) == EINVAL);
	check(ibv_req_notify_cq(side->cq[0], 0) == 0);
	expect(side, 1);
	check(try_send(side, own, side->mine.qp_num[0], QKEY, 8, 2) == 0);
	check(ibv_get_cq_event(side->channel, &cq, &context) == 0 && cq == side->cq[0]);
	ibv_ack_cq_events(cq, 1);
	check(poll_one(cq).status == IBV_WC_SUCCESS && poll_one(cq).status == IBV_WC_SUCCESS);
	for (unsigned i = 0; i < DEPTH; i++)
		check(try_send(side, own, side->mine.qp_num[0], QKEY, 8, i) == 0);
	check(try_send(side, own, side->mine.qp_num[0], QKEY, 8, DEPTH) == ENOMEM); /* none was polled */
	for (unsigned i = 0; i < DEPTH; i++)
		check(take(side, IBV_WC_SEND).wr_id == i);
	expect(side, 3);
	move_to(side->qp[0], IBV_QPS_ERR);
	expect(side, 4);
	check(try_send(side, own, side->mine.qp_num[0], QKEY, 8, 5) == 0);
	for (uint64_t i = 3; i <= 5; i++) {
		struct ibv_wc wc = poll_one(cq);

		check(wc.status == IBV_WC_WR_FLUSH_ERR && wc.wr_id == i);
	}
	check(ibv_destroy_ah(own) == 0);
	close_datagrams(side, ah);
}

/* Each is answered; one that is lost would not be, but this device loses none while a rail is left. */
static void go_back_and_forth(struct side *side, struct ibv_ah *ah)
{
	for (unsigned i = 0; i < TURNS; i++) {
		struct ibv_wc wc;

		fill(side, i);
		if (side->number == 0)
			send_to(side, ah, side->theirs.qp_num[0], QKEY, WORDS, i);
		wc = take(side, IBV_WC_RECV);
		check(wc.imm_data == i && wc.byte_len == GRH + WORDS);
		check_filled(side, WORDS, i);
		expect(side, i);
		if (side->number == 1)
			send_to(side, ah, side->theirs.qp_num[0], QKEY, WORDS, i);
	}
}

void datagrams_flow_on_through_cuts(struct side *side)
{
	struct ibv_ah *ah = open_datagrams(side);

	expect(side, 0);
	meet(side);
	for (int cut = 0; cut < CUTS; cut++) {
		go_back_and_forth(side, ah);
		if (side->number == 0)
			switch_link(side, "down", cut % 2);
		go_back_and_forth(side, ah);
		if (side->number == 0)
			switch_link(side, "up", cut % 2);
	}
	close_datagrams(side, ah);
}
