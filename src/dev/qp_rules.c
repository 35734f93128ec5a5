#include "dev/qp_rules.h"

#include <errno.h>

#define PSN_MASK    0xffffffu
#define TIMEOUT_MAX 31
#define RETRY_MAX   7

/* What a move needs, and what it may bring besides (InfiniBand specification, table 91 ff.). */
struct move {
	enum ibv_qp_state from, to;
	int required, optional;
};

static const struct move rc_moves[] = {
	{IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, 0},
	{IBV_QPS_INIT, IBV_QPS_INIT, 0, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS},
	{IBV_QPS_INIT, IBV_QPS_RTR,
		IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
			IBV_QP_MIN_RNR_TIMER,
		IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS | IBV_QP_ALT_PATH},
	{IBV_QPS_RTR, IBV_QPS_RTS,
		IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC,
		IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER | IBV_QP_ALT_PATH |
			IBV_QP_PATH_MIG_STATE},
	/* The RNR retries are more than verbs has: a vqp may be connected before the program says how many it wants. */
	{IBV_QPS_RTS, IBV_QPS_RTS, 0,
		IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER | IBV_QP_RNR_RETRY | IBV_QP_ALT_PATH |
			IBV_QP_PATH_MIG_STATE},
};

/* A DC initiator and target need less: no peer, and a target no send side. */
static const struct move dc_moves[] = {
	{IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_PORT, IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS},
	{IBV_QPS_INIT, IBV_QPS_RTR, IBV_QP_PATH_MTU,
		IBV_QP_AV | IBV_QP_MIN_RNR_TIMER | IBV_QP_ACCESS_FLAGS | IBV_QP_MAX_DEST_RD_ATOMIC},
	{IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY,
		IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_ACCESS_FLAGS},
	{IBV_QPS_RTS, IBV_QPS_RTS, 0, IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER},
};

/* A UD qp has no peer. */
static const struct move ud_moves[] = {
	{IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY, 0},
	{IBV_QPS_INIT, IBV_QPS_INIT, 0, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY},
	{IBV_QPS_INIT, IBV_QPS_RTR, 0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY},
	{IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_SQ_PSN, IBV_QP_CUR_STATE | IBV_QP_QKEY},
	{IBV_QPS_RTS, IBV_QPS_RTS, 0, IBV_QP_CUR_STATE | IBV_QP_QKEY},
};

static bool values_in_range(const struct ibv_qp_attr *attr, int mask)
{
	if ((mask & IBV_QP_PATH_MTU) && (attr->path_mtu < IBV_MTU_256 || attr->path_mtu > IBV_MTU_4096))
		return false;
	if ((mask & IBV_QP_PORT) && attr->port_num != 1)
		return false;
	if ((mask & IBV_QP_PKEY_INDEX) && attr->pkey_index != 0)
		return false;
	if ((mask & IBV_QP_TIMEOUT) && attr->timeout > TIMEOUT_MAX)
		return false;
	if ((mask & IBV_QP_RETRY_CNT) && attr->retry_cnt > RETRY_MAX)
		return false;
	if ((mask & IBV_QP_RNR_RETRY) && attr->rnr_retry > RETRY_MAX)
		return false;
	if ((mask & IBV_QP_MIN_RNR_TIMER) && attr->min_rnr_timer > TIMEOUT_MAX)
		return false;
	if ((mask & IBV_QP_SQ_PSN) && attr->sq_psn > PSN_MASK)
		return false;
	if ((mask & IBV_QP_RQ_PSN) && attr->rq_psn > PSN_MASK)
		return false;
	return !(mask & IBV_QP_DEST_QPN) || attr->dest_qp_num <= PSN_MASK;
}

#define FIND(moves) find_in(moves, sizeof(moves) / sizeof((moves)[0]), from, to)

static const struct move *find_in(const struct move *moves, size_t n, enum ibv_qp_state from, enum ibv_qp_state to)
{
	for (size_t i = 0; i < n; i++)
		if (moves[i].from == from && moves[i].to == to)
			return &moves[i];
	return NULL;
}

static const struct move *find_move(enum ibv_qp_type type, enum ibv_qp_state from, enum ibv_qp_state to)
{
	if (type == IBV_QPT_UD)
		return FIND(ud_moves);
	return type == IBV_QPT_RC ? FIND(rc_moves) : FIND(dc_moves);
}

int qp_rules_check(enum ibv_qp_type type, enum ibv_qp_state from, const struct ibv_qp_attr *attr, int mask)
{
	enum ibv_qp_state to = mask & IBV_QP_STATE ? attr->qp_state : from;
	int rest = mask & ~IBV_QP_STATE;
	const struct move *move;

	if ((mask & IBV_QP_CUR_STATE) && attr->cur_qp_state != from)
		return -EINVAL;
	if (to == IBV_QPS_RESET || to == IBV_QPS_ERR)
		return (mask & IBV_QP_STATE) != 0 && rest == 0 ? 0 : -EINVAL;
	move = find_move(type, from, to);
	if (move == NULL || (rest & move->required) != move->required ||
		(rest & ~(move->required | move->optional)) != 0)
		return -EINVAL;
	return values_in_range(attr, mask) ? 0 : -EINVAL;
}

uint64_t qp_rules_wr_bytes(const struct ibv_send_wr *wr)
{
	uint64_t bytes = 0;

	for (int i = 0; i < wr->num_sge; i++)
		bytes += wr->sg_list[i].length;
	return bytes;
}

static bool opcode_may_be_inline(enum ibv_wr_opcode opcode)
{
	return opcode == IBV_WR_RDMA_WRITE || opcode == IBV_WR_RDMA_WRITE_WITH_IMM || opcode == IBV_WR_SEND ||
	       opcode == IBV_WR_SEND_WITH_IMM;
}

int qp_rules_check_send(const struct hf_qp *qp, const struct ibv_send_wr *wr)
{
	uint64_t bytes;

	if (wr->num_sge < 0 || (uint32_t)wr->num_sge > qp->cap.max_send_sge)
		return -EINVAL;
	bytes = qp_rules_wr_bytes(wr);
	if (bytes > qp->dev->attr.max_msg_bytes)
		return -EINVAL;
	if (wr->send_flags & IBV_SEND_INLINE)
		return opcode_may_be_inline(wr->opcode) && bytes <= qp->cap.max_inline_data ? 0 : -EINVAL;
	if (qp_rules_is_atomic(wr->opcode))
		return bytes == sizeof(uint64_t) && (wr->wr.atomic.remote_addr & 7) == 0 ? 0 : -EINVAL;
	return opcode_may_be_inline(wr->opcode) || wr->opcode == IBV_WR_RDMA_READ ? 0 : -EINVAL;
}

uint32_t qp_rules_psns(enum ibv_wr_opcode opcode, uint64_t bytes, uint32_t mtu_bytes)
{
	if (qp_rules_is_atomic(opcode) || bytes <= mtu_bytes) /* most are: no division */
		return 1;
	return (uint32_t)((bytes + mtu_bytes - 1) / mtu_bytes);
}
