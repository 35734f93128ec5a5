/* qp_rules.h - the state table of ibv_modify_qp(3): the legal moves of a qp and their attributes.
 *
 * Shared by every device that is not a real NIC (InfiniBand specification, 10.3.1 and 11.2.5). */
#ifndef HOLDFAST_DEV_QP_RULES_H
#define HOLDFAST_DEV_QP_RULES_H

#include <holdfast/dev.h>

/* 0, or -EINVAL: the move from `from` with this mask is illegal, lacks an attribute, or has one that does not belong.
 * Without IBV_QP_STATE in the mask the state stays. The attributes' values are checked for range as well. */
int qp_rules_check(enum ibv_qp_type type, enum ibv_qp_state from, const struct ibv_qp_attr *attr, int mask);

/* 0, or -EINVAL: wr is malformed for this qp (opcode, number of sges, inline length, message length). */
int qp_rules_check_send(const struct hf_qp *qp, const struct ibv_send_wr *wr);

/* The psns that a wr takes: max(1, ceil(bytes / mtu)); a READ its response packets, an atomic 1. */
uint32_t qp_rules_psns(enum ibv_wr_opcode opcode, uint64_t bytes, uint32_t mtu_bytes);
uint64_t qp_rules_wr_bytes(const struct ibv_send_wr *wr);

/* Until the first retry (InfiniBand specification, 11.6.2.4): 4.096 us * 2^timeout, of at most 31; 0 means for ever. */
static inline uint64_t qp_rules_timeout_ns(uint8_t timeout)
{
	return 4096ull << timeout;
}

/* The time without an answer after which a wr fails. */
static inline uint64_t qp_rules_budget_ns(uint8_t timeout, uint8_t retry_cnt)
{
	return qp_rules_timeout_ns(timeout) * (retry_cnt + 1u);
}

static inline bool qp_rules_is_atomic(enum ibv_wr_opcode opcode)
{
	return opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

/* What it finds is put into its sges. */
static inline bool qp_rules_has_answer(enum ibv_wr_opcode opcode)
{
	return opcode == IBV_WR_RDMA_READ || qp_rules_is_atomic(opcode);
}

/* 24-bit psn arithmetic: the signed distance from b to a. */
static inline int32_t psn_diff(uint32_t a, uint32_t b)
{
	return (int32_t)((a - b) << 8) >> 8;
}

static inline uint32_t psn_add(uint32_t psn, uint32_t n)
{
	return (psn + n) & 0xffffffu;
}

#endif
