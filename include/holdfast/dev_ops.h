/* dev_ops.h - the operations that a device implements, and the data path that calls them directly.
 *
 * Included by dev.h, whose comments describe each operation. dev.c checks arguments that are the same for every
 * device and dispatches; an operation that is NULL returns -EOPNOTSUPP. */
#ifndef HOLDFAST_DEV_OPS_H
#define HOLDFAST_DEV_OPS_H

#include <errno.h>

#include <holdfast/dev.h>

struct hf_footer;
struct hf_dc_dest;
struct hf_dc_source;
struct hf_ud_dest;
struct hf_refusal;
struct hf_lease;

struct hf_dev_ops {
	void (*close)(struct hf_dev *dev);
	int (*query_port)(struct hf_dev *dev, struct ibv_port_attr *attr_out);
	union ibv_gid (*gid)(const struct hf_dev *dev);
	enum hf_poll (*poll)(struct hf_dev *dev, uint64_t now_ns);
	struct hf_io *(*io)(struct hf_dev *dev);
	bool (*arm)(struct hf_dev *dev);
	int (*get_event)(struct hf_dev *dev, struct hf_dev_event *event_out);
	int (*set_link)(struct hf_dev *dev, enum hf_link direction, bool up);
	int (*set_rate)(struct hf_dev *dev, uint32_t mb_per_s); /* NULL: no limit of the rate */
	void (*counters)(struct hf_dev *dev, struct hf_dev_counters *counters_out);

	int (*pd_alloc)(struct hf_dev *dev, struct hf_pd **pd_out);
	int (*pd_free)(struct hf_pd *pd);
	int (*mr_reg)(struct hf_pd *pd, void *addr, uint64_t bytes, uint64_t iova, int access, struct hf_mr **mr_out,
		struct hf_error *error);
	int (*mr_dereg)(struct hf_mr *mr);

	int (*cq_create)(struct hf_dev *dev, uint32_t cqe, void *context, struct hf_cq **cq_out);
	int (*cq_destroy)(struct hf_cq *cq);
	int (*cq_poll)(struct hf_cq *cq, int n, struct ibv_wc *wc);
	int (*cq_req_notify)(struct hf_cq *cq, bool solicited_only);
	bool (*cq_notified)(struct hf_cq *cq);

	int (*srq_create)(struct hf_pd *pd, uint32_t max_wr, uint32_t max_sge, void *context, struct hf_srq **srq_out);
	int (*srq_destroy)(struct hf_srq *srq);
	int (*srq_post_recv)(struct hf_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr);

	int (*lease_open)(struct hf_dev *dev, struct hf_lease **lease_out);
	int (*lease_extend)(struct hf_lease *lease, uint64_t until_ns);
	void (*lease_close)(struct hf_lease *lease);

	int (*qp_create)(struct hf_pd *pd, const struct hf_qp_init *init, struct hf_qp **qp_out);
	int (*qp_destroy)(struct hf_qp *qp);
	int (*qp_modify)(struct hf_qp *qp, struct ibv_qp_attr *attr, int mask);
	int (*qp_query)(struct hf_qp *qp, struct ibv_qp_attr *attr_out, int mask);
	int (*qp_post_send)(struct hf_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr);
	int (*qp_post_recv)(struct hf_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr);
	int (*qp_fence)(struct hf_qp *qp);
	int (*qp_executed_psn)(struct hf_qp *qp, uint32_t *psn_out);
	int (*qp_atomic_results)(struct hf_qp *qp, struct hf_atomic_result *results_out, unsigned n);
	int (*qp_refusal)(struct hf_qp *qp, struct hf_refusal *refusal_out);
	uint32_t (*qp_next_psn)(struct hf_qp *qp);
	int (*qp_post_send_dc)(
		struct hf_qp *qp, const struct hf_dc_dest *dest, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr);
	int (*qp_post_send_footed)(struct hf_qp *qp, const struct hf_dc_dest *dest, struct ibv_send_wr *wr,
		const struct hf_footer *footers, struct ibv_send_wr **bad_wr);
	int (*qp_post_send_ud)(
		struct hf_qp *qp, const struct hf_ud_dest *dest, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr);
	int (*qp_dc_source)(struct hf_qp *initiator, struct hf_dc_source *source_out);
	int (*qp_fence_dc)(struct hf_qp *target, const struct hf_dc_source *source);
	int (*qp_executed_psn_dc)(struct hf_qp *target, const struct hf_dc_source *source, uint32_t *psn_out);
	int (*qp_atomic_results_dc)(struct hf_qp *target, const struct hf_dc_source *source,
		struct hf_atomic_result *results_out, unsigned n);
	int (*qp_refusal_dc)(struct hf_qp *target, const struct hf_dc_source *source, struct hf_refusal *refusal_out);
};

/* ---- the data path ----
 * As ibv_post_send(3), ibv_post_recv(3), ibv_poll_cq(3); errors are returned as -errno. */
static inline int hf_qp_post_send(struct hf_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr)
{
	return qp->dev->ops->qp_post_send(qp, wr, bad_wr);
}

/* A footer (HF_DEV_FOOTER): eight bytes, in memory order, that the responder writes behind the operation of a
 * WRITE, SEND or atomic to remote_addr, a multiple of 8, like an inline WRITE posted behind it, and with
 * the same permissions. But it is part of the operation: it is in the last packet, and either both execute or
 * neither does; it takes no psn, no place in the queue and no completion. rkey 0: none. */
struct hf_footer {
	uint64_t remote_addr, value;
	uint32_t rkey;
};

/* As hf_qp_post_send, or with a dest as hf_qp_post_send_dc; footers[i] belongs to the i-th wr of the list. */
static inline int hf_qp_post_send_footed(struct hf_qp *qp, const struct hf_dc_dest *dest, struct ibv_send_wr *wr,
	const struct hf_footer *footers, struct ibv_send_wr **bad_wr)
{
	if ((qp->dev->attr.caps & HF_DEV_FOOTER) == 0)
		return -EOPNOTSUPP;
	return qp->dev->ops->qp_post_send_footed(qp, dest, wr, footers, bad_wr);
}

static inline int hf_qp_post_recv(struct hf_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	return qp->dev->ops->qp_post_recv(qp, wr, bad_wr);
}

static inline int hf_srq_post_recv(struct hf_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	return srq->dev->ops->srq_post_recv(srq, wr, bad_wr);
}

static inline int hf_cq_poll(struct hf_cq *cq, int n, struct ibv_wc *wc)
{
	return cq->dev->ops->cq_poll(cq, n, wc);
}

#endif
