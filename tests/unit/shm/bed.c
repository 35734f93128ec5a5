#include "bed.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/order.h"

#define PATIENCE 14 /* 67 ms, once */

char fabric[HF_NAME_BYTES];
uint64_t revoke_ns;

void open_end(struct end *end, const char *node, size_t bytes, bool shared_receives)
{
	struct hf_dev_config config = {.kind = "shm", .fabric = fabric, .node = node, .rail = "r0"};
	struct hf_qp_init init = {.cap = {16, 16, 4, 4, 64}, .type = IBV_QPT_RC, .revoke_ns = revoke_ns};
	struct hf_error error = {0};
	void *mem;

	*end = (struct end){0};
	if (hf_dev_open(hf_env_host(), &config, &end->dev, &error) != 0)
		fail_msg("%s", error.text);
	assert_int_equal(hf_pd_alloc(end->dev, &end->pd), 0);
	assert_int_equal(hf_cq_create(end->dev, 64, NULL, &end->cq), 0);
	if (shared_receives)
		assert_int_equal(hf_srq_create(end->pd, 4, 1, NULL, &end->srq), 0);
	init.send_cq = init.recv_cq = end->cq;
	init.srq = end->srq;
	assert_int_equal(hf_qp_create(end->pd, &init, &end->qp), 0);
	assert_int_equal(hf_mem_alloc(hf_env_host(), bytes, &mem, &error), 0);
	end->mem = mem;
	assert_int_equal(hf_mr_reg(end->pd, mem, bytes, (uintptr_t)mem, ALL_ACCESS, &end->mr, &error), 0);
}

void close_end(struct end *end)
{
	assert_int_equal(hf_qp_destroy(end->qp), 0);
	assert_int_equal(hf_srq_destroy(end->srq), 0);
	assert_int_equal(hf_mr_dereg(end->mr), 0);
	assert_int_equal(hf_cq_destroy(end->cq), 0);
	assert_int_equal(hf_pd_free(end->pd), 0);
	hf_mem_free(hf_env_host(), end->mem);
	hf_dev_close(end->dev);
}

struct card card_of(const struct end *end)
{
	return (struct card){.gid = hf_dev_gid(end->dev),
		.qp_num = end->qp->qp_num,
		.rkey = end->mr->rkey,
		.addr = (uintptr_t)end->mem};
}

void to_rtr(struct end *end, const struct card *peer)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = ALL_ACCESS};

	assert_int_equal(
		hf_qp_modify(end->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), 0);
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_4096,
		.dest_qp_num = peer->qp_num,
		.max_dest_rd_atomic = 4,
		.min_rnr_timer = 1};
	attr.ah_attr.is_global = 1;
	attr.ah_attr.grh.dgid = peer->gid;
	assert_int_equal(hf_qp_modify(end->qp, &attr,
				 IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
					 IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
		0);
}

void to_rts(struct end *end)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS, .timeout = PATIENCE, .retry_cnt = 0, .rnr_retry = 7, .max_rd_atomic = 4};

	assert_int_equal(hf_qp_modify(end->qp, &attr,
				 IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
					 IBV_QP_MAX_QP_RD_ATOMIC),
		0);
}

void connect_end(struct end *end, const struct card *peer)
{
	to_rtr(end, peer);
	to_rts(end);
}

void open_pair(struct end pair[2])
{
	open_end(&pair[0], "a", SMALL, false);
	open_end(&pair[1], "b", SMALL, false);
	to_rtr(&pair[0], &(struct card){.gid = hf_dev_gid(pair[1].dev), .qp_num = pair[1].qp->qp_num});
	to_rtr(&pair[1], &(struct card){.gid = hf_dev_gid(pair[0].dev), .qp_num = pair[0].qp->qp_num});
}

void close_pair(struct end pair[2])
{
	close_end(&pair[0]);
	close_end(&pair[1]);
}

int post(struct end *end, enum ibv_wr_opcode opcode, const struct ibv_sge *sge, uint64_t addr, uint32_t rkey)
{
	struct ibv_sge local = *sge;
	struct ibv_send_wr wr = {.wr_id = 7,
		.sg_list = &local,
		.num_sge = 1,
		.opcode = opcode,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = {.remote_addr = addr, .rkey = rkey}};
	struct ibv_send_wr *bad;

	return hf_qp_post_send(end->qp, &wr, &bad);
}

struct ibv_sge sge_of(const struct end *end, uint32_t bytes)
{
	return (struct ibv_sge){.addr = (uintptr_t)end->mem, .length = bytes, .lkey = end->mr->lkey};
}

struct ibv_wc next_wc(struct end *end)
{
	struct ibv_wc wc;

	while (hf_cq_poll(end->cq, 1, &wc) == 0)
		cpu_relax();
	return wc;
}

enum ibv_wc_status write_status(struct end *from, const struct end *to, uint32_t rkey)
{
	struct ibv_sge sge = sge_of(from, 8);

	assert_int_equal(post(from, IBV_WR_RDMA_WRITE, &sge, (uintptr_t)to->mem, rkey), 0);
	return next_wc(from).status;
}

struct segment *segment_of(const struct end *end, struct share_segment *mapped)
{
	union ibv_gid gid = hf_dev_gid(end->dev);
	struct share_dir *dir;
	char name[40];

	for (int i = 0; i < 16; i++)
		snprintf(name + 2 * i, 3, "%02x", gid.raw[i]);
	snprintf(name + 32, sizeof(name) - 32, ".port");
	assert_int_equal(share_dir_open(fabric, &dir, NULL), 0);
	assert_int_equal(share_segment_open(dir, name, mapped, NULL), 0);
	share_dir_close(dir);
	return mapped->addr;
}
