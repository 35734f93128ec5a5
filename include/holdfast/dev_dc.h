/* dev_dc.h - D6: dynamically connected queue pairs. One initiator sends to many targets, one after the other.
 *
 * Included by dev.h. Both ends are hf_qp, made with hf_qp_init.dc; dev_ops.h has the data path with a destination for
 * wrs that have footers. */
#ifndef HOLDFAST_DEV_DC_H
#define HOLDFAST_DEV_DC_H

#include <infiniband/verbs.h>

struct hf_qp;
struct hf_atomic_result;
struct hf_refusal;

/* The destination of an initiator's wrs. */
struct hf_dc_dest {
	union ibv_gid gid;
	uint32_t dct_num;
	uint64_t dc_key;
};
int hf_qp_post_send_dc(
	struct hf_qp *qp, const struct hf_dc_dest *dest, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr);

/* Evidence of DC (HF_DEV_DC_EVIDENCE, else -EOPNOTSUPP). hf_qp_dc_source identifies one use of an initiator: from
 * its last move to RTS on, also in ERR. The target fences that use and reports what of it executed, while its other
 * initiators continue. After the fence no request of that use executes at the target; the initiator must go through
 * RESET before it reaches that target again. hf_qp_fence_dc returns what hf_qp_fence returns, or -ENOSPC: cannot be
 * fenced. The others return -EOPNOTSUPP without D4 or D4b; -ENOENT: no request of that use executed; -ENODATA: no
 * longer known. */
struct hf_dc_source {
	union ibv_gid gid;
	uint32_t qp_num;
	uint64_t use;
};
int hf_qp_dc_source(struct hf_qp *initiator, struct hf_dc_source *source_out);
int hf_qp_fence_dc(struct hf_qp *target, const struct hf_dc_source *source);
int hf_qp_executed_psn_dc(struct hf_qp *target, const struct hf_dc_source *source, uint32_t *psn_out);
int hf_qp_atomic_results_dc(
	struct hf_qp *target, const struct hf_dc_source *source, struct hf_atomic_result *results_out, unsigned n);
int hf_qp_refusal_dc(struct hf_qp *target, const struct hf_dc_source *source, struct hf_refusal *refusal_out);

#endif
