/* dev_dc.h - D6: dynamically connected queue pairs. One initiator speaks to many targets, one after the other.
 *
 * Included by dev.h. Both ends are hf_qp, made with hf_qp_init.dc; dev_ops.h has the data path with a destination for
 * wrs that have footers. */
#ifndef HOLDFAST_DEV_DC_H
#define HOLDFAST_DEV_DC_H

#include <infiniband/verbs.h>

struct hf_qp;
struct hf_atomic_result;
struct hf_refusal;

/* Where the wrs of an initiator go. */
struct hf_dc_dest {
	union ibv_gid gid;
	uint32_t dct_num;
	uint64_t dc_key;
};
int hf_qp_post_send_dc(
	struct hf_qp *qp, const struct hf_dc_dest *dest, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr);

/* Evidence of DC (HF_DEV_DC_EVIDENCE, else -EOPNOTSUPP): the initiator says who it is since it last came to RTS, in ERR
 * too; the target then fences and tells of that one, while its other initiators go on. After the fence nothing of that
 * use executes there any more; the initiator may speak to the target again once it was moved through RESET.
 * The fence answers as hf_qp_fence, or -ENOSPC: cannot be fenced. Then, -EOPNOTSUPP without D4 or D4b. -ENOENT: nothing
 * of that use executed. -ENODATA: not known any more. */
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
