#include "dev/verbs/verbs.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dev/kinds.h"
#include "dev/verbs/dc.h"
#include "dev/verbs/nics.h"

#define INLINE_MOST   512u
#define RD_ATOMIC_MAX 128

#define MSG_BYTES_MOST (1u << 30)

/* ---- the port ---- */

static int query_port(struct hf_dev *base, struct ibv_port_attr *attr_out)
{
	struct verbs_dev *dev = verbs_of(base);
	int rc;

	memset(attr_out, 0, sizeof(*attr_out));
	rc = dev->lib->query_port(dev->context, dev->port.number, (struct _compat_ibv_port_attr *)(void *)attr_out);
	if (rc == 0 && attr_out->active_mtu > dev->mtu)
		attr_out->active_mtu = dev->mtu;
	return -rc;
}

static union ibv_gid gid(const struct hf_dev *base)
{
	return verbs_of(base)->port.gid;
}

/* The NIC counts for itself; what a program could see of that is in its own files of the kernel. */
static void counters(struct hf_dev *base, struct hf_dev_counters *counters_out)
{
	(void)base;
	*counters_out = (struct hf_dev_counters){0};
}

/* ---- what it can do ---- */

/* Verbs do not say how much a NIC takes inline: it is tried. */
static uint32_t find_inline(struct verbs_dev *dev)
{
	struct ibv_pd *pd = dev->lib->alloc_pd(dev->context);
	struct ibv_cq *cq = pd == NULL ? NULL : dev->lib->create_cq(dev->context, 16, NULL, NULL, 0);
	struct ibv_qp *qp = NULL;
	uint32_t bytes;

	for (bytes = INLINE_MOST; cq != NULL && bytes >= 16; bytes /= 2) {
		struct ibv_qp_init_attr init = {.send_cq = cq,
			.recv_cq = cq,
			.cap = {.max_send_wr = 16,
				.max_recv_wr = 1,
				.max_send_sge = 4,
				.max_recv_sge = 1,
				.max_inline_data = bytes},
			.qp_type = IBV_QPT_RC};

		qp = dev->lib->create_qp(pd, &init);
		if (qp != NULL)
			break;
	}
	if (qp != NULL)
		dev->lib->destroy_qp(qp);
	if (cq != NULL)
		dev->lib->destroy_cq(cq);
	if (pd != NULL)
		dev->lib->dealloc_pd(pd);
	return qp == NULL ? 0 : bytes;
}

static uint32_t at_most(int value, uint32_t most)
{
	return value < 0 || (uint32_t)value > most ? most : (uint32_t)value;
}

static void describe(struct verbs_dev *dev, const struct hf_dev_config *config)
{
	const struct ibv_device_attr *theirs = &dev->port.attr;
	struct hf_dev_attr *attr = &dev->base.attr;
	uint32_t caps = dev->port.model->caps;
	char text[HF_NIC_BYTES];

	if (theirs->max_srq > 0)
		caps |= HF_DEV_SRQ;
	if (theirs->atomic_cap == IBV_ATOMIC_GLOB)
		caps |= HF_DEV_ATOMIC_GLOBAL;
	if (verbs_dc_found(dev))
		caps |= HF_DEV_DC;
	if (!dev->port.model->believes_acks)
		caps |= HF_DEV_SEND_FENCE;
	*attr = (struct hf_dev_attr){.caps = caps & ~config->caps_masked,
		.max_qp_wr = at_most(theirs->max_qp_wr - 1, 16384), /* one is for the fence */
		.max_sge = at_most(theirs->max_sge, 16),
		.max_inline = find_inline(dev),
		.max_cqe = at_most(theirs->max_cqe - (int)VERBS_MARKS_MAX, 1u << 20),
		.max_srq_wr = at_most(theirs->max_srq_wr, 16384),
		.max_qp = at_most(theirs->max_qp, UINT32_MAX),
		.max_cq = at_most(theirs->max_cq, UINT32_MAX),
		.max_mr = at_most(theirs->max_mr, UINT32_MAX),
		.max_pd = at_most(theirs->max_pd, UINT32_MAX),
		.max_srq = at_most(theirs->max_srq, UINT32_MAX),
		.max_rd_atomic = (uint8_t)at_most(theirs->max_qp_init_rd_atom < theirs->max_qp_rd_atom
							  ? theirs->max_qp_init_rd_atom
							  : theirs->max_qp_rd_atom,
			RD_ATOMIC_MAX),
		.max_msg_bytes = dev->port.max_msg_bytes < MSG_BYTES_MOST ? dev->port.max_msg_bytes : MSG_BYTES_MOST};
	snprintf(attr->name, sizeof(attr->name), "verbs:%.25s", verbs_port_format(&dev->port, text));
	dev->mtu = config->mtu != 0 && config->mtu < dev->port.mtu ? config->mtu : dev->port.mtu;
}

/* ---- opening and closing ---- */

static void close_dev(struct hf_dev *base)
{
	struct verbs_dev *dev = verbs_of(base);

	verbs_bury_all(dev);
	verbs_events_close(dev);
	verbs_link_close(dev);
	if (dev->context != NULL)
		dev->lib->close_device(dev->context);
	table_free(&dev->by_num);
	table_free(&dev->by_lkey);
	free(dev);
}

static const struct hf_dev_ops verbs_ops = {
	.close = close_dev,
	.query_port = query_port,
	.gid = gid,
	.poll = verbs_poll,
	.io = verbs_io,
	.arm = verbs_arm,
	.get_event = verbs_get_event,
	.set_link = verbs_set_link,
	.counters = counters,
	.pd_alloc = verbs_pd_alloc,
	.pd_free = verbs_pd_free,
	.mr_reg = verbs_mr_reg,
	.mr_dereg = verbs_mr_dereg,
	.cq_create = verbs_cq_create,
	.cq_destroy = verbs_cq_destroy,
	.cq_poll = verbs_cq_poll,
	.cq_req_notify = verbs_cq_req_notify,
	.cq_notified = verbs_cq_notified,
	.srq_create = verbs_srq_create,
	.srq_destroy = verbs_srq_destroy,
	.srq_post_recv = verbs_srq_post_recv,
	.qp_create = verbs_qp_create,
	.qp_destroy = verbs_qp_destroy,
	.qp_modify = verbs_qp_modify,
	.qp_query = verbs_qp_query,
	.qp_post_send = verbs_qp_post_send,
	.qp_post_recv = verbs_qp_post_recv,
	.qp_post_send_dc = verbs_qp_post_send_dc,
	.qp_fence = verbs_qp_fence,
	.qp_executed_psn = verbs_qp_executed_psn,
	.qp_next_psn = verbs_qp_next_psn,
};

int verbs_open(struct hf_env *env, const struct hf_dev_config *config, const struct verbs_lib *lib,
	struct hf_dev **dev_out, struct hf_error *error)
{
	struct verbs_dev *dev = calloc(1, sizeof(*dev));
	int rc;

	*dev_out = NULL;
	if (dev == NULL)
		return hf_error_set(error, -ENOMEM, "out of memory");
	dev->lib = lib;
	dev->base = (struct hf_dev){.ops = &verbs_ops, .env = env};
	list_init(&dev->cqs);
	list_init(&dev->qps);
	list_init(&dev->graves);
	list_init(&dev->events);
	hf_env_entropy(env, &dev->sent_mark, sizeof(dev->sent_mark));
	dev->received_mark = ~dev->sent_mark;
	rc = verbs_port_open(lib, config, &dev->context, &dev->port, error);
	if (rc == 0) {
		describe(dev, config);
		rc = verbs_link_open(dev, config, error);
	}
	if (rc == 0) {
		rc = verbs_events_open(dev);
		if (rc != 0)
			hf_error_set(error, rc, "%s: cannot watch its events: %s", dev->base.attr.name, strerror(-rc));
	}
	if (rc != 0) {
		close_dev(&dev->base);
		return rc;
	}
	*dev_out = &dev->base;
	return 0;
}

static int open_verbs(
	struct hf_env *env, const struct hf_dev_config *config, struct hf_dev **dev_out, struct hf_error *error)
{
	const struct verbs_lib *lib;
	int rc = verbs_lib_load(&lib, error);

	*dev_out = NULL;
	return rc == 0 ? verbs_open(env, config, lib, dev_out, error) : rc;
}

const struct dev_kind verbs_kind = {.name = "verbs",
	.what = "an RDMA NIC for RoCEv2, through libibverbs; not run on hardware yet, only over the kernel's soft RoCE",
	.open = open_verbs,
	.nics = verbs_nics};
