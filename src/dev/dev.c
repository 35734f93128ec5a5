/* What is the same for every device: kinds, argument checks, dispatch. NULL in a device's ops: it cannot. */
#include "dev/kinds.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/ensure.h"

#define KINDS_MAX 8

static const struct dev_kind *kinds[KINDS_MAX] = {&shm_kind, &soft_kind, &verbs_kind};
static unsigned kind_count = 3;

void dev_kind_add(const struct dev_kind *kind)
{
	ensure(kind_count < KINDS_MAX);
	kinds[kind_count++] = kind;
}

const struct hf_dev_kind *hf_dev_kinds(void)
{
	static struct hf_dev_kind list[KINDS_MAX + 1];
	unsigned n;

	for (n = 0; n < kind_count; n++)
		list[n] = (struct hf_dev_kind){.name = kinds[n]->name, .what = kinds[n]->what};
	list[n] = (struct hf_dev_kind){0};
	return list;
}

static int unknown_kind(const char *kind, struct hf_error *error)
{
	char names[128] = "";

	for (unsigned i = 0; i < kind_count; i++)
		snprintf(names + strlen(names), sizeof(names) - strlen(names), "%s%s", i == 0 ? "" : ", ",
			kinds[i]->name);
	return hf_error_set(error, -ENODEV, "unknown device \"%s\": use one of %s", kind == NULL ? "" : kind, names);
}

static bool name_is_good(const char *name)
{
	size_t length = strlen(name);

	return length > 0 && length < HF_NAME_BYTES &&
	       strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789._-") == length && name[0] != '.';
}

static int check_name(const char *what, const char *name, struct hf_error *error)
{
	if (name == NULL || name_is_good(name))
		return 0;
	return hf_error_set(error, -EINVAL, "%s \"%.40s\": a name has 1 to %d of a-z 0-9 . _ - and no leading dot",
		what, name, HF_NAME_BYTES - 1);
}

int hf_dev_open(struct hf_env *env, const struct hf_dev_config *config, struct hf_dev **dev_out, struct hf_error *error)
{
	int rc;

	*dev_out = NULL;
	if ((rc = check_name("fabric", config->fabric, error)) != 0 ||
		(rc = check_name("node", config->node, error)) != 0 ||
		(rc = check_name("rail", config->rail, error)) != 0)
		return rc;
	for (unsigned i = kind_count; config->kind != NULL && i-- > 0;)
		if (strcmp(kinds[i]->name, config->kind) == 0)
			return kinds[i]->open(env, config, dev_out, error);
	return unknown_kind(config->kind, error);
}

int hf_dev_nics(
	const char *kind, void (*found)(const struct hf_nic *nic, void *context), void *context, struct hf_error *error)
{
	for (unsigned i = kind_count; i-- > 0;)
		if (strcmp(kinds[i]->name, kind) == 0 && kinds[i]->nics != NULL)
			return kinds[i]->nics(found, context, error);
	return hf_error_set(error, -EOPNOTSUPP, "devices of kind \"%.40s\" need no NIC of this host", kind);
}

void hf_dev_close(struct hf_dev *dev)
{
	if (dev != NULL)
		dev->ops->close(dev);
}

int hf_dev_query_port(struct hf_dev *dev, struct ibv_port_attr *attr_out)
{
	return dev->ops->query_port(dev, attr_out);
}

union ibv_gid hf_dev_gid(const struct hf_dev *dev)
{
	return dev->ops->gid(dev);
}

enum hf_poll hf_dev_poll(struct hf_dev *dev, uint64_t now_ns)
{
	return dev->ops->poll(dev, now_ns);
}

struct hf_io *hf_dev_io(struct hf_dev *dev)
{
	return dev->ops->io(dev);
}

bool hf_dev_arm(struct hf_dev *dev)
{
	return dev->ops->arm(dev);
}

int hf_dev_get_event(struct hf_dev *dev, struct hf_dev_event *event_out)
{
	return dev->ops->get_event(dev, event_out);
}

int hf_dev_set_link(struct hf_dev *dev, enum hf_link direction, bool up)
{
	return dev->ops->set_link(dev, direction, up);
}

int hf_dev_set_rate(struct hf_dev *dev, uint32_t mb_per_s)
{
	return dev->ops->set_rate == NULL ? -EOPNOTSUPP : dev->ops->set_rate(dev, mb_per_s);
}

void hf_dev_counters(struct hf_dev *dev, struct hf_dev_counters *counters_out)
{
	dev->ops->counters(dev, counters_out);
}

int hf_pd_alloc(struct hf_dev *dev, struct hf_pd **pd_out)
{
	return dev->ops->pd_alloc(dev, pd_out);
}

int hf_pd_free(struct hf_pd *pd)
{
	return pd == NULL ? 0 : pd->dev->ops->pd_free(pd);
}

static bool access_is_sound(int access)
{
	const int known = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
			  IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_RELAXED_ORDERING;
	const int writes = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;

	return (access & ~known) == 0 && ((access & writes) == 0 || (access & IBV_ACCESS_LOCAL_WRITE) != 0);
}

int hf_mr_reg(struct hf_pd *pd, void *addr, uint64_t bytes, uint64_t iova, int access, struct hf_mr **mr_out,
	struct hf_error *error)
{
	*mr_out = NULL;
	if (!access_is_sound(access))
		return hf_error_set(error, -EINVAL,
			"access 0x%x: unknown flag, or remote write or atomic without IBV_ACCESS_LOCAL_WRITE",
			(unsigned)access);
	if (bytes == 0 || (uintptr_t)addr + bytes < (uintptr_t)addr || iova + bytes < iova)
		return hf_error_set(error, -EINVAL, "a region must have at least one byte and not wrap around");
	return pd->dev->ops->mr_reg(pd, addr, bytes, iova, access, mr_out, error);
}

int hf_mr_dereg(struct hf_mr *mr)
{
	return mr == NULL ? 0 : mr->dev->ops->mr_dereg(mr);
}

int hf_cq_create(struct hf_dev *dev, uint32_t cqe, void *context, struct hf_cq **cq_out)
{
	if (cqe == 0 || cqe > dev->attr.max_cqe)
		return -EINVAL;
	return dev->ops->cq_create(dev, cqe, context, cq_out);
}

int hf_cq_destroy(struct hf_cq *cq)
{
	return cq == NULL ? 0 : cq->dev->ops->cq_destroy(cq);
}

int hf_cq_req_notify(struct hf_cq *cq, bool solicited_only)
{
	return cq->dev->ops->cq_req_notify(cq, solicited_only);
}

bool hf_cq_notified(struct hf_cq *cq)
{
	return cq->dev->ops->cq_notified(cq);
}

int hf_srq_create(struct hf_pd *pd, uint32_t max_wr, uint32_t max_sge, void *context, struct hf_srq **srq_out)
{
	const struct hf_dev_attr *attr = &pd->dev->attr;

	if (pd->dev->ops->srq_create == NULL)
		return -EOPNOTSUPP;
	if (max_wr == 0 || max_wr > attr->max_srq_wr || max_sge > attr->max_sge)
		return -EINVAL;
	return pd->dev->ops->srq_create(pd, max_wr, max_sge, context, srq_out);
}

int hf_srq_destroy(struct hf_srq *srq)
{
	return srq == NULL ? 0 : srq->dev->ops->srq_destroy(srq);
}

int hf_lease_open(struct hf_dev *dev, struct hf_lease **lease_out)
{
	*lease_out = NULL;
	if ((dev->attr.caps & HF_DEV_LEASE) == 0)
		return -EOPNOTSUPP;
	return dev->ops->lease_open(dev, lease_out);
}

int hf_lease_extend(struct hf_lease *lease, uint64_t until_ns)
{
	return lease->dev->ops->lease_extend(lease, until_ns);
}

void hf_lease_close(struct hf_lease *lease)
{
	if (lease != NULL)
		lease->dev->ops->lease_close(lease);
}

int hf_qp_create(struct hf_pd *pd, const struct hf_qp_init *init, struct hf_qp **qp_out)
{
	const struct hf_dev_attr *attr = &pd->dev->attr;
	bool dc = init->type == IBV_QPT_DRIVER && init->dc != HF_DC_NONE;

	if (dc && (attr->caps & HF_DEV_DC) == 0)
		return -EOPNOTSUPP;
	if (init->type == IBV_QPT_UD && (attr->caps & HF_DEV_UD) == 0)
		return -EOPNOTSUPP;
	if (!dc && ((init->type != IBV_QPT_RC && init->type != IBV_QPT_UD) || init->dc != HF_DC_NONE))
		return -EOPNOTSUPP;
	if (init->send_cq == NULL || init->recv_cq == NULL || init->send_cq->dev != pd->dev ||
		init->recv_cq->dev != pd->dev || (init->srq != NULL && init->srq->dev != pd->dev) ||
		(init->lease != NULL && init->lease->dev != pd->dev))
		return -EINVAL;
	if (init->cap.max_send_wr > attr->max_qp_wr || init->cap.max_recv_wr > attr->max_qp_wr ||
		init->cap.max_send_sge > attr->max_sge || init->cap.max_recv_sge > attr->max_sge ||
		init->cap.max_inline_data > attr->max_inline)
		return -EINVAL;
	return pd->dev->ops->qp_create(pd, init, qp_out);
}

int hf_qp_destroy(struct hf_qp *qp)
{
	return qp == NULL ? 0 : qp->dev->ops->qp_destroy(qp);
}

int hf_qp_modify(struct hf_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	return qp->dev->ops->qp_modify(qp, attr, mask);
}

int hf_qp_query(struct hf_qp *qp, struct ibv_qp_attr *attr_out, int mask)
{
	return qp->dev->ops->qp_query(qp, attr_out, mask);
}

int hf_qp_fence(struct hf_qp *qp)
{
	return qp->dev->ops->qp_fence(qp);
}

int hf_qp_executed_psn(struct hf_qp *qp, uint32_t *psn_out)
{
	if ((qp->dev->attr.caps & HF_DEV_EXECUTED_PSN) == 0)
		return -EOPNOTSUPP;
	return qp->dev->ops->qp_executed_psn(qp, psn_out);
}

int hf_qp_atomic_results(struct hf_qp *qp, struct hf_atomic_result *results_out, unsigned n)
{
	if ((qp->dev->attr.caps & HF_DEV_ATOMIC_RESULTS) == 0)
		return -EOPNOTSUPP;
	return qp->dev->ops->qp_atomic_results(qp, results_out, n);
}

int hf_qp_refusal(struct hf_qp *qp, struct hf_refusal *refusal_out)
{
	return qp->dev->ops->qp_refusal == NULL ? -EOPNOTSUPP : qp->dev->ops->qp_refusal(qp, refusal_out);
}

uint32_t hf_qp_next_psn(struct hf_qp *qp)
{
	return qp->dev->ops->qp_next_psn(qp);
}

int hf_qp_post_send_dc(
	struct hf_qp *qp, const struct hf_dc_dest *dest, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr)
{
	if ((qp->dev->attr.caps & HF_DEV_DC) == 0)
		return -EOPNOTSUPP;
	return qp->dev->ops->qp_post_send_dc(qp, dest, wr, bad_wr);
}

int hf_qp_post_send_ud(
	struct hf_qp *qp, const struct hf_ud_dest *dest, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr)
{
	if (qp->type != IBV_QPT_UD)
		return -EOPNOTSUPP;
	return qp->dev->ops->qp_post_send_ud(qp, dest, wr, bad_wr);
}

static bool tells_of_dc(const struct hf_qp *qp, uint32_t what)
{
	return (qp->dev->attr.caps & HF_DEV_DC_EVIDENCE) != 0 && (qp->dev->attr.caps & what) == what;
}

int hf_qp_dc_source(struct hf_qp *initiator, struct hf_dc_source *source_out)
{
	return tells_of_dc(initiator, 0) ? initiator->dev->ops->qp_dc_source(initiator, source_out) : -EOPNOTSUPP;
}

int hf_qp_fence_dc(struct hf_qp *target, const struct hf_dc_source *source)
{
	return tells_of_dc(target, 0) ? target->dev->ops->qp_fence_dc(target, source) : -EOPNOTSUPP;
}

int hf_qp_executed_psn_dc(struct hf_qp *target, const struct hf_dc_source *source, uint32_t *psn_out)
{
	return tells_of_dc(target, HF_DEV_EXECUTED_PSN) ? target->dev->ops->qp_executed_psn_dc(target, source, psn_out)
							: -EOPNOTSUPP;
}

int hf_qp_atomic_results_dc(
	struct hf_qp *target, const struct hf_dc_source *source, struct hf_atomic_result *results_out, unsigned n)
{
	return tells_of_dc(target, HF_DEV_ATOMIC_RESULTS)
		       ? target->dev->ops->qp_atomic_results_dc(target, source, results_out, n)
		       : -EOPNOTSUPP;
}

int hf_qp_refusal_dc(struct hf_qp *target, const struct hf_dc_source *source, struct hf_refusal *refusal_out)
{
	return tells_of_dc(target, 0) && target->dev->ops->qp_refusal_dc != NULL
		       ? target->dev->ops->qp_refusal_dc(target, source, refusal_out)
		       : -EOPNOTSUPP;
}
