#include "shm/end.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

void end_open(struct end *end, struct hf_env *env, const char *fabric, const char *node, bool remap_private)
{
	struct hf_dev_config config = {
		.kind = "shm", .fabric = fabric, .node = node, .rail = "r0", .remap_private = remap_private};
	struct hf_qp_init init = {.cap = {16, 16, 1, 1, 64}, .type = IBV_QPT_RC};
	struct hf_error error = {0};

	if (hf_dev_open(env, &config, &end->dev, &error) != 0)
		fail_msg("%s", error.text);
	assert_int_equal(hf_pd_alloc(end->dev, &end->pd), 0);
	assert_int_equal(hf_cq_create(end->dev, 64, NULL, &end->cq), 0);
	init.send_cq = init.recv_cq = end->cq;
	assert_int_equal(hf_qp_create(end->pd, &init, &end->qp), 0);
}

void end_connect(struct end *end, const struct end *peer)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = ALL_ACCESS};
	union ibv_gid gid = hf_dev_gid(peer->dev);

	assert_int_equal(
		hf_qp_modify(end->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), 0);
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_4096,
		.dest_qp_num = peer->qp->qp_num,
		.max_dest_rd_atomic = 4,
		.ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = gid}}};
	assert_int_equal(hf_qp_modify(end->qp, &attr,
				 IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
					 IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
		0);
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 4};
	assert_int_equal(hf_qp_modify(end->qp, &attr,
				 IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
					 IBV_QP_MAX_QP_RD_ATOMIC),
		0);
}

void end_close(struct end *end)
{
	assert_int_equal(hf_qp_destroy(end->qp), 0);
	assert_int_equal(hf_cq_destroy(end->cq), 0);
	assert_int_equal(hf_pd_free(end->pd), 0);
	hf_dev_close(end->dev);
}
