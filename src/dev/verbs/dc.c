#include "dev/verbs/dc.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "dev/qp_rules.h"

#define SGES_MAX 16 /* of max_sge */

/* How to reach a port; the most recently used is the first. */
struct way {
	struct list link;
	union ibv_gid gid;
	struct ibv_ah *ah;
};

struct verbs_dc {
	bool target;
	struct ibv_qp_ex *qp;      /* of an initiator */
	struct mlx5dv_qp_ex *mlx5; /* the same */
	struct list ways;
	unsigned way_count;
};

/* ---- making ---- */

static const uint64_t send_ops = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND |
				 IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ |
				 IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;

static struct ibv_qp *make_initiator(
	const struct verbs_lib *lib, struct ibv_context *context, struct ibv_qp_init_attr_ex *attr)
{
	struct mlx5dv_qp_init_attr mlx5 = {
		.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC, .dc_init_attr = {.dc_type = MLX5DV_DCTYPE_DCI}};

	attr->qp_type = IBV_QPT_DRIVER;
	attr->comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	attr->send_ops_flags = send_ops;
	attr->cap.max_recv_wr = attr->cap.max_recv_sge = 0;
	attr->srq = NULL;
	return lib->mlx5.create_qp(context, attr, &mlx5);
}

static struct ibv_qp *make_target(
	const struct verbs_lib *lib, struct ibv_context *context, struct ibv_qp_init_attr_ex *attr, uint64_t key)
{
	struct mlx5dv_qp_init_attr mlx5 = {.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC,
		.dc_init_attr = {.dc_type = MLX5DV_DCTYPE_DCT, .dct_access_key = key}};

	attr->qp_type = IBV_QPT_DRIVER;
	attr->comp_mask = IBV_QP_INIT_ATTR_PD;
	memset(&attr->cap, 0, sizeof(attr->cap));
	return lib->mlx5.create_qp(context, attr, &mlx5);
}

struct ibv_qp *verbs_dc_make(struct verbs_dev *dev, struct verbs_qp *qp, const struct hf_qp_init *init)
{
	struct ibv_qp_init_attr_ex attr = {.qp_context = qp,
		.send_cq = ((struct verbs_cq *)init->send_cq)->cq,
		.recv_cq = ((struct verbs_cq *)init->recv_cq)->cq,
		.srq = init->srq == NULL ? NULL : ((struct verbs_srq *)init->srq)->srq,
		.pd = ((struct verbs_pd *)qp->base.pd)->pd,
		.cap = init->cap,
		.sq_sig_all = init->sq_sig_all};
	struct ibv_qp *made;

	if (init->dc == HF_DC_TARGET && init->srq == NULL) {
		errno = EINVAL;
		return NULL;
	}
	qp->dc = calloc(1, sizeof(*qp->dc));
	if (qp->dc == NULL)
		return NULL;
	list_init(&qp->dc->ways);
	qp->dc->target = init->dc == HF_DC_TARGET;
	made = qp->dc->target ? make_target(dev->lib, dev->context, &attr, init->dc_key)
			      : make_initiator(dev->lib, dev->context, &attr);
	if (made == NULL) {
		verbs_dc_end(qp);
		return NULL;
	}
	qp->base.cap = attr.cap;
	if (!qp->dc->target) {
		qp->dc->qp = dev->lib->qp_to_qp_ex(made);
		qp->dc->mlx5 = dev->lib->mlx5.qp_ex(qp->dc->qp);
	}
	return made;
}

static void end_way(const struct verbs_lib *lib, struct verbs_dc *dc, struct way *way)
{
	list_remove(&way->link);
	dc->way_count--;
	lib->destroy_ah(way->ah);
	free(way);
}

void verbs_dc_end(struct verbs_qp *qp)
{
	const struct verbs_lib *lib = verbs_of(qp->base.dev)->lib;
	int before = errno;

	if (qp->dc == NULL)
		return;
	list_for_each_safe (at, &qp->dc->ways)
		end_way(lib, qp->dc, container_of(at, struct way, link));
	free(qp->dc);
	qp->dc = NULL;
	errno = before;
}

bool verbs_dc_found(struct verbs_dev *dev)
{
	const struct verbs_lib *lib = dev->lib;
	struct ibv_qp_init_attr_ex attr = {.cap = {.max_send_wr = 16, .max_send_sge = 1}};
	struct ibv_qp *qp = NULL;

	if (!lib->has_mlx5 || !lib->mlx5.is_supported(dev->context->device))
		return false;
	attr.pd = lib->alloc_pd(dev->context);
	attr.send_cq = attr.recv_cq = attr.pd == NULL ? NULL : lib->create_cq(dev->context, 16, NULL, NULL, 0);
	if (attr.send_cq != NULL)
		qp = make_initiator(lib, dev->context, &attr);
	if (qp != NULL)
		lib->destroy_qp(qp);
	if (attr.send_cq != NULL)
		lib->destroy_cq(attr.send_cq);
	if (attr.pd != NULL)
		lib->dealloc_pd(attr.pd);
	return qp != NULL;
}

/* ---- states ---- */

static int mask_of(const struct verbs_dc *dc, enum ibv_qp_state to)
{
	if (to == IBV_QPS_INIT)
		return IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | (dc->target ? IBV_QP_ACCESS_FLAGS : 0);
	if (to == IBV_QPS_RTR)
		return IBV_QP_STATE | IBV_QP_PATH_MTU | IBV_QP_AV | (dc->target ? IBV_QP_MIN_RNR_TIMER : 0);
	if (to == IBV_QPS_RTS)
		return IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
		       IBV_QP_MAX_QP_RD_ATOMIC;
	return IBV_QP_STATE;
}

int verbs_dc_complete(const struct verbs_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	const struct verbs_dev *dev = verbs_of(qp->base.dev);

	if ((mask & IBV_QP_STATE) == 0)
		return mask;
	if (attr->qp_state == IBV_QPS_RTR) {
		attr->ah_attr = (struct ibv_ah_attr){0};
		verbs_port_begin_path(&dev->port, &attr->ah_attr);
	}
	if (attr->qp_state == IBV_QPS_RTS && (mask & IBV_QP_MAX_QP_RD_ATOMIC) == 0)
		attr->max_rd_atomic = dev->base.attr.max_rd_atomic;
	return mask_of(qp->dc, attr->qp_state);
}

/* ---- the data path ---- */

static struct way *make_way(struct verbs_qp *qp, const union ibv_gid *gid)
{
	struct verbs_dev *dev = verbs_of(qp->base.dev);
	struct ibv_ah_attr attr = {.grh = {.dgid = *gid}};
	struct way *way = calloc(1, sizeof(*way));

	if (way == NULL)
		return NULL;
	way->gid = *gid;
	verbs_port_begin_path(&dev->port, &attr);
	way->ah = dev->lib->create_ah(((struct verbs_pd *)qp->base.pd)->pd, &attr);
	if (way->ah == NULL) {
		free(way);
		return NULL;
	}
	/* What was posted through the oldest has its address in the queue. */
	if (++qp->dc->way_count > DC_WAYS_MAX)
		end_way(dev->lib, qp->dc, container_of(qp->dc->ways.prev, struct way, link));
	list_push_front(&qp->dc->ways, &way->link);
	return way;
}

static struct ibv_ah *way_to(struct verbs_qp *qp, const union ibv_gid *gid)
{
	struct way *way = NULL;

	list_for_each (at, &qp->dc->ways) {
		struct way *one = container_of(at, struct way, link);

		if (memcmp(one->gid.raw, gid->raw, sizeof(gid->raw)) != 0)
			continue;
		way = one;
		break;
	}
	if (way == NULL) {
		way = make_way(qp, gid);
	} else {
		list_remove(&way->link);
		list_push_front(&qp->dc->ways, &way->link);
	}
	return way == NULL ? NULL : way->ah;
}

static void put_opcode(struct ibv_qp_ex *qp, const struct ibv_send_wr *wr)
{
	switch (wr->opcode) {
	case IBV_WR_RDMA_WRITE:
		ibv_wr_rdma_write(qp, wr->wr.rdma.rkey, wr->wr.rdma.remote_addr);
		break;
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		ibv_wr_rdma_write_imm(qp, wr->wr.rdma.rkey, wr->wr.rdma.remote_addr, wr->imm_data);
		break;
	case IBV_WR_RDMA_READ:
		ibv_wr_rdma_read(qp, wr->wr.rdma.rkey, wr->wr.rdma.remote_addr);
		break;
	case IBV_WR_SEND:
		ibv_wr_send(qp);
		break;
	case IBV_WR_SEND_WITH_IMM:
		ibv_wr_send_imm(qp, wr->imm_data);
		break;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		ibv_wr_atomic_cmp_swp(qp, wr->wr.atomic.rkey, wr->wr.atomic.remote_addr, wr->wr.atomic.compare_add,
			wr->wr.atomic.swap);
		break;
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		ibv_wr_atomic_fetch_add(qp, wr->wr.atomic.rkey, wr->wr.atomic.remote_addr, wr->wr.atomic.compare_add);
		break;
	case IBV_WR_LOCAL_INV:
	case IBV_WR_BIND_MW:
	case IBV_WR_SEND_WITH_INV:
	case IBV_WR_TSO:
	case IBV_WR_DRIVER1:
	case IBV_WR_ATOMIC_WRITE:
		break; /* qp_rules_check_send lets none of these in */
	}
}

static void put_data(struct ibv_qp_ex *qp, const struct ibv_send_wr *wr)
{
	struct ibv_data_buf buffers[SGES_MAX];

	if ((wr->send_flags & IBV_SEND_INLINE) == 0) {
		ibv_wr_set_sge_list(qp, (size_t)wr->num_sge, wr->sg_list);
		return;
	}
	for (int i = 0; i < wr->num_sge; i++)
		buffers[i] = (struct ibv_data_buf){
			.addr = (void *)(uintptr_t)wr->sg_list[i].addr, .length = wr->sg_list[i].length};
	ibv_wr_set_inline_data_list(qp, (size_t)wr->num_sge, buffers);
}

/* All of them or none: the provider takes back a list that does not fit. */
static int post_list(struct verbs_qp *qp, struct ibv_ah *ah, const struct hf_dc_dest *dest,
	const struct ibv_send_wr *wr, const struct ibv_send_wr *end)
{
	struct verbs_dc *dc = qp->dc;
	int rc;

	ibv_wr_start(dc->qp);
	for (const struct ibv_send_wr *one = wr; one != end; one = one->next) {
		dc->qp->wr_id = one->wr_id;
		dc->qp->wr_flags = one->send_flags & ~(unsigned)IBV_SEND_INLINE;
		put_opcode(dc->qp, one);
		mlx5dv_wr_set_dc_addr(dc->mlx5, ah, dest->dct_num, dest->dc_key);
		put_data(dc->qp, one);
	}
	rc = ibv_wr_complete(dc->qp);
	if (rc == 0)
		verbs_qp_count_posted(qp, wr, end);
	return -rc;
}

int verbs_qp_post_send_dc(
	struct hf_qp *base, const struct hf_dc_dest *dest, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr)
{
	struct verbs_qp *qp = (struct verbs_qp *)base;
	struct ibv_send_wr *bad = wr;
	struct ibv_ah *ah;
	int rc = 0;

	*bad_wr = wr;
	if (qp->dc == NULL || qp->dc->target)
		return -EINVAL;
	while (bad != NULL && verbs_qp_takes(qp, bad))
		bad = bad->next;
	if (bad != wr) {
		ah = way_to(qp, &dest->gid);
		rc = ah == NULL ? -ENOMEM : post_list(qp, ah, dest, wr, bad);
	}
	if (rc != 0)
		return rc;
	*bad_wr = bad;
	return bad == NULL ? 0 : -EINVAL;
}
