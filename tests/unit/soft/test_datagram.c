/* UD queue pairs of two NICs of the host. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <holdfast/dev.h>

#define GRH     40u
#define MTU     4096u
#define QKEY    0x11223344u
#define WAIT_NS 30000000000ull
#define DEPTH   16u

struct end {
	struct hf_dev *dev;
	struct hf_pd *pd;
	struct hf_cq *cq;
	struct hf_qp *qp;
	struct hf_mr *mr;
	uint8_t memory[2 * (GRH + MTU)]; /* received, and to be sent */
};

static struct end ends[2];
static uint8_t *const sent = ends[0].memory + GRH + MTU;

static void to(struct hf_qp *qp, enum ibv_qp_state state, int mask)
{
	struct ibv_qp_attr attr = {.qp_state = state, .port_num = 1, .qkey = QKEY};

	assert_int_equal(hf_qp_modify(qp, &attr, IBV_QP_STATE | mask), 0);
}

static void open_end(struct end *end, int host)
{
	struct hf_dev_config config = {.kind = "soft"};
	struct hf_qp_init init = {.type = IBV_QPT_UD, .cap = {DEPTH, DEPTH, 2, 2, 64}};
	struct hf_error error;
	char address[HF_ADDR_TEXT];

	snprintf(address, sizeof(address), "127.%d.%d.%d", 92 + host, (int)getpid() / 250 % 250,
		1 + (int)getpid() % 250);
	assert_int_equal(hf_addr_parse(address, &config.address), 0);
	assert_int_equal(hf_dev_open(hf_env_host(), &config, &end->dev, &error), 0);
	assert_int_equal(hf_pd_alloc(end->dev, &end->pd), 0);
	assert_int_equal(hf_cq_create(end->dev, 4 * DEPTH, NULL, &end->cq), 0);
	assert_int_equal(hf_mr_reg(end->pd, end->memory, sizeof(end->memory), (uintptr_t)end->memory,
				 IBV_ACCESS_LOCAL_WRITE, &end->mr, &error),
		0);
	init.send_cq = init.recv_cq = end->cq;
	assert_int_equal(hf_qp_create(end->pd, &init, &end->qp), 0);
	to(end->qp, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
	to(end->qp, IBV_QPS_RTR, 0);
	to(end->qp, IBV_QPS_RTS, IBV_QP_SQ_PSN);
}

static void close_end(struct end *end)
{
	assert_int_equal(hf_qp_destroy(end->qp), 0);
	assert_int_equal(hf_mr_dereg(end->mr), 0);
	assert_int_equal(hf_cq_destroy(end->cq), 0);
	assert_int_equal(hf_pd_free(end->pd), 0);
	hf_dev_close(end->dev);
}

static int set_up(void **state)
{
	(void)state;
	for (int i = 0; i < 2; i++)
		open_end(&ends[i], i);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	for (int i = 0; i < 2; i++)
		close_end(&ends[i]);
	return 0;
}

static void post_receive(uint64_t wr_id, uint32_t bytes)
{
	struct ibv_sge sge = {.addr = (uintptr_t)ends[1].memory, .length = bytes, .lkey = ends[1].mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = wr_id, .sg_list = &sge, .num_sge = 1}, *bad;

	assert_int_equal(hf_qp_post_recv(ends[1].qp, &wr, &bad), 0);
}

static int send_with(uint32_t bytes, uint32_t qkey, uint32_t imm)
{
	struct ibv_sge sge = {.addr = (uintptr_t)sent, .length = bytes, .lkey = ends[0].mr->lkey};
	struct ibv_send_wr wr = {.wr_id = imm,
				   .sg_list = &sge,
				   .num_sge = 1,
				   .opcode = IBV_WR_SEND_WITH_IMM,
				   .imm_data = imm,
				   .send_flags = IBV_SEND_SIGNALED},
			   *bad;
	struct hf_ud_dest dest = {.gid = hf_dev_gid(ends[1].dev), .qp_num = ends[1].qp->qp_num, .qkey = qkey};

	return hf_qp_post_send_ud(ends[0].qp, &dest, &wr, &bad);
}

static struct ibv_wc poll_one(struct hf_cq *cq)
{
	uint64_t end_ns = hf_env_now_ns(hf_env_host()) + WAIT_NS;
	struct ibv_wc wc;

	while (hf_cq_poll(cq, 1, &wc) == 0) {
		assert_true(hf_env_now_ns(hf_env_host()) < end_ns);
		sched_yield();
	}
	return wc;
}

static void send_one(uint32_t bytes, uint32_t qkey, uint32_t imm)
{
	struct ibv_wc wc;

	assert_int_equal(send_with(bytes, qkey, imm), 0);
	wc = poll_one(ends[0].cq);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.wr_id, imm);
}

static void a_datagram_arrives_behind_its_header(void **state)
{
	static const uint32_t sizes[] = {0, 1, 2, 3, 100, MTU - 1, MTU};

	(void)state;
	for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		union ibv_gid from = hf_dev_gid(ends[0].dev), here = hf_dev_gid(ends[1].dev);
		struct ibv_wc wc;

		memset(sent, (int)i + 1, MTU);
		post_receive(i, GRH + MTU);
		send_one(sizes[i], QKEY, 100 + i);
		wc = poll_one(ends[1].cq);
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		assert_int_equal(wc.wr_id, i);
		assert_int_equal(wc.byte_len, GRH + sizes[i]);
		assert_int_equal(wc.src_qp, ends[0].qp->qp_num);
		assert_int_equal(wc.qp_num, ends[1].qp->qp_num);
		assert_int_equal(wc.wc_flags, IBV_WC_GRH | IBV_WC_WITH_IMM);
		assert_int_equal(wc.imm_data, 100 + i);
		assert_memory_equal(ends[1].memory + GRH, sent, sizes[i]);
		assert_memory_equal(ends[1].memory + 32, from.raw + 12, 4);
		assert_memory_equal(ends[1].memory + 36, here.raw + 12, 4);
	}
}

static void without_a_receive_or_the_qkey_it_is_lost(void **state)
{
	struct ibv_wc wc;

	(void)state;
	post_receive(6, GRH + MTU);
	send_one(8, QKEY + 1, 8);
	send_one(8, QKEY, 9);
	wc = poll_one(ends[1].cq);
	assert_int_equal(wc.wr_id, 6);
	assert_int_equal(wc.imm_data, 9);
	send_one(
		8, QKEY, 1); /* the NIC of the other end may look at it after the receive was posted: then it arrives */
	post_receive(7, GRH + MTU);
	send_one(8, QKEY + 1, 2);
	send_one(8, QKEY, 3);
	wc = poll_one(ends[1].cq);
	assert_int_equal(wc.wr_id, 7);
	assert_int_not_equal(wc.imm_data, 2);
	assert_int_equal(send_with(MTU + 1, QKEY, 4), -EINVAL);
	post_receive(8, GRH + 4); /* too short for it */
	send_one(8, QKEY, 5);
	wc = poll_one(ends[1].cq);
	assert_int_equal(wc.wr_id, 8);
	assert_int_equal(wc.status, IBV_WC_LOC_LEN_ERR);
}

static void what_is_sent_while_the_link_is_down_is_lost_and_nothing_else(void **state)
{
	struct ibv_wc wc;

	(void)state;
	for (uint32_t cut = 0; cut < 3; cut++) {
		assert_int_equal(hf_dev_set_link(ends[0].dev, HF_LINK_BOTH, false), 0);
		send_one(8, QKEY, 1);
		assert_int_equal(hf_dev_set_link(ends[0].dev, HF_LINK_BOTH, true), 0);
		post_receive(cut, GRH + MTU);
		send_one(8, QKEY, 2);
		wc = poll_one(ends[1].cq);
		assert_int_equal(wc.imm_data, 2);
		assert_int_equal(wc.wr_id, cut);
	}
}

static void a_qp_in_error_flushes_and_one_of_rc_takes_none(void **state)
{
	(void)state;
	post_receive(1, GRH + MTU);
	to(ends[1].qp, IBV_QPS_ERR, 0);
	assert_int_equal(poll_one(ends[1].cq).status, IBV_WC_WR_FLUSH_ERR);
	to(ends[0].qp, IBV_QPS_ERR, 0);
	assert_int_equal(send_with(8, QKEY, 1), 0);
	assert_int_equal(poll_one(ends[0].cq).status, IBV_WC_WR_FLUSH_ERR);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_datagram_arrives_behind_its_header, set_up, tear_down),
		cmocka_unit_test_setup_teardown(without_a_receive_or_the_qkey_it_is_lost, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			what_is_sent_while_the_link_is_down_is_lost_and_nothing_else, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_qp_in_error_flushes_and_one_of_rc_takes_none, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
