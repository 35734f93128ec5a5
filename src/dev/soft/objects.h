/* objects.h - the functions in hf_dev_ops of a soft NIC; dev.h describes each. */
#ifndef HOLDFAST_DEV_SOFT_OBJECTS_H
#define HOLDFAST_DEV_SOFT_OBJECTS_H

#include "dev/soft/nic.h"

/* memory.c */
int objects_pd_alloc(struct hf_dev *dev, struct hf_pd **pd_out);
int objects_pd_free(struct hf_pd *pd);
void objects_pd_use(struct hf_pd *pd, int users); /* objects of it that came or went */
int objects_mr_reg(struct hf_pd *pd, void *addr, uint64_t bytes, uint64_t iova, int access, struct hf_mr **mr_out,
	struct hf_error *error);
int objects_mr_dereg(struct hf_mr *mr);

/* queues.c */
int objects_cq_create(struct hf_dev *dev, uint32_t cqe, void *context, struct hf_cq **cq_out);
int objects_cq_destroy(struct hf_cq *cq);
int objects_cq_poll(struct hf_cq *cq, int n, struct ibv_wc *wc);
int objects_cq_req_notify(struct hf_cq *cq, bool solicited_only);
bool objects_cq_notified(struct hf_cq *cq);
int objects_srq_create(struct hf_pd *pd, uint32_t max_wr, uint32_t max_sge, void *context, struct hf_srq **srq_out);
int objects_srq_destroy(struct hf_srq *srq);
int objects_srq_post_recv(struct hf_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr);
int objects_qp_create(struct hf_pd *pd, const struct hf_qp_init *init, struct hf_qp **qp_out);
int objects_qp_destroy(struct hf_qp *qp);
int objects_qp_modify(struct hf_qp *qp, struct ibv_qp_attr *attr, int mask);
int objects_qp_query(struct hf_qp *qp, struct ibv_qp_attr *attr_out, int mask);
int objects_qp_post_send(struct hf_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr);
int objects_qp_post_send_dc(
	struct hf_qp *qp, const struct hf_dc_dest *dest, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr);
int objects_qp_post_send_footed(struct hf_qp *qp, const struct hf_dc_dest *dest, struct ibv_send_wr *wr,
	const struct hf_footer *footers, struct ibv_send_wr **bad_wr);
int objects_qp_post_send_ud(
	struct hf_qp *qp, const struct hf_ud_dest *dest, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr);
int objects_qp_post_recv(struct hf_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr);
int objects_qp_fence(struct hf_qp *qp);
int objects_qp_executed_psn(struct hf_qp *qp, uint32_t *psn_out);
int objects_qp_atomic_results(struct hf_qp *qp, struct hf_atomic_result *results_out, unsigned n);
int objects_qp_refusal(struct hf_qp *qp, struct hf_refusal *refusal_out);
uint32_t objects_qp_next_psn(struct hf_qp *qp);
int objects_qp_dc_source(struct hf_qp *initiator, struct hf_dc_source *source_out);
int objects_qp_fence_dc(struct hf_qp *target, const struct hf_dc_source *source);
int objects_qp_executed_psn_dc(struct hf_qp *target, const struct hf_dc_source *source, uint32_t *psn_out);
int objects_qp_refusal_dc(struct hf_qp *target, const struct hf_dc_source *source, struct hf_refusal *refusal_out);
int objects_qp_atomic_results_dc(
	struct hf_qp *target, const struct hf_dc_source *source, struct hf_atomic_result *results_out, unsigned n);

/* lease.c */
int objects_lease_open(struct hf_dev *dev, struct hf_lease **lease_out);
int objects_lease_extend(struct hf_lease *lease, uint64_t until_ns);
void objects_lease_close(struct hf_lease *lease);

#endif
