/* Queue pairs: their life, their states, and what a fence leaves behind. */
#include <errno.h>
#include <stdlib.h>

#include "dev/qp_base.h"
#include "dev/qp_rules.h"
#include "dev/verbs/dc.h"
#include "env/pause.h"

#define MARKERS        1u    /* of the fence, which need a place of their own */
#define NS_PER_TIMEOUT 4096u /* attr.timeout: so many ns, times 2^timeout */
#define PATIENCE       4u    /* a NIC may take so many times what timeout and retry_cnt say (InfiniBand, 9.7.6.1.3) */

struct grave {
	struct list link;
	struct ibv_qp *qp;
	uint64_t due_ns;
};

static uint64_t now_of(const struct hf_qp *base)
{
	return hf_env_now_ns(base->dev->env);
}

/* ---- states ---- */

static void note(struct verbs_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	if (mask & IBV_QP_PATH_MTU)
		qp->mtu_bytes = 128u << attr->path_mtu;
	if (mask & IBV_QP_SQ_PSN)
		qp->next_psn = attr->sq_psn;
	if ((mask & IBV_QP_TIMEOUT) && (mask & IBV_QP_RETRY_CNT))
		qp->patience_ns = PATIENCE * (uint64_t)(attr->retry_cnt + 1u) * (NS_PER_TIMEOUT << attr->timeout);
	if ((mask & IBV_QP_STATE) == 0)
		return;
	qp->state = attr->qp_state;
	verbs_fence_forget(qp);
	qp->error_ns = attr->qp_state == IBV_QPS_ERR ? now_of(&qp->base) : 0;
	if (attr->qp_state != IBV_QPS_RESET)
		return;
	qp->posted = qp->completed = 0;
	qp->ordered_ns = 0;
	verbs_answers_forget(qp);
	qp->failed_ns = 0;
	qp->last_told = false;
}

int verbs_qp_move(struct verbs_qp *qp, enum ibv_qp_state to)
{
	struct ibv_qp_attr attr = {.qp_state = to};
	int rc = verbs_of(qp->base.dev)->lib->modify_qp(qp->qp, &attr, IBV_QP_STATE);

	if (rc == 0)
		note(qp, &attr, IBV_QP_STATE);
	return -rc;
}

static bool carries(const struct verbs_qp *qp)
{
	return qp->state == IBV_QPS_RTR || qp->state == IBV_QPS_RTS || qp->state == IBV_QPS_SQD ||
	       qp->state == IBV_QPS_SQE || qp->state == IBV_QPS_ERR;
}

/* Until when the NIC wants it left alone. A qp that never received may go at once. */
static uint64_t quiet_until(struct verbs_qp *qp)
{
	const struct verbs_model *model = verbs_of(qp->base.dev)->port.model;

	if (model->quiet_ns == 0 || !carries(qp))
		return 0;
	if (qp->error_ns == 0 && verbs_qp_move(qp, IBV_QPS_ERR) != 0)
		return now_of(&qp->base) + model->quiet_ns;
	return qp->error_ns + model->quiet_ns;
}

static void wait_until(const struct hf_qp *base, uint64_t due_ns)
{
	uint64_t now_ns = now_of(base);

	if (now_ns < due_ns)
		env_pause(base->dev->env, due_ns - now_ns);
}

/* What the caller cannot know: our end of the path. */
static struct ibv_qp_attr complete(const struct verbs_dev *dev, const struct ibv_qp_attr *attr, int mask)
{
	struct ibv_qp_attr full = *attr;

	if (mask & IBV_QP_PORT)
		full.port_num = dev->port.number;
	if (mask & IBV_QP_AV)
		verbs_port_begin_path(&dev->port, &full.ah_attr);
	if ((mask & IBV_QP_RETRY_CNT) && full.retry_cnt > dev->port.model->retry_most)
		full.retry_cnt = dev->port.model->retry_most;
	return full;
}

/* A DC target gets its number with RTR. */
static int take_number(struct verbs_dev *dev, struct verbs_qp *qp)
{
	uint32_t before = qp->base.qp_num, now = qp->qp->qp_num;
	int rc;

	if (now == before)
		return 0;
	rc = table_put(&dev->by_num, now, qp);
	if (rc != 0)
		return rc;
	if (before != 0)
		table_remove(&dev->by_num, before);
	qp->base.qp_num = now;
	return 0;
}

static bool changes_access_in_rts(const struct verbs_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	return (mask & IBV_QP_ACCESS_FLAGS) != 0 && qp->state == IBV_QPS_RTS &&
	       ((mask & IBV_QP_STATE) == 0 || attr->qp_state == IBV_QPS_RTS);
}

int verbs_qp_modify(struct hf_qp *base, struct ibv_qp_attr *attr, int mask)
{
	struct verbs_qp *qp = (struct verbs_qp *)base;
	struct verbs_dev *dev = verbs_of(base->dev);
	struct ibv_qp_attr full = complete(dev, attr, mask);
	int rc, needed = qp->dc == NULL ? mask : verbs_dc_complete(qp, &full, mask);

	if ((base->dev->attr.caps & HF_DEV_ACCESS_IN_RTS) == 0 && changes_access_in_rts(qp, attr, mask))
		return -EOPNOTSUPP;
	if ((mask & IBV_QP_STATE) && attr->qp_state == IBV_QPS_RESET)
		wait_until(base, quiet_until(qp));
	rc = -dev->lib->modify_qp(qp->qp, &full, needed);
	if (rc == 0)
		rc = take_number(dev, qp);
	if (rc != 0)
		return rc;
	if ((mask & IBV_QP_STATE) && attr->qp_state == IBV_QPS_RESET) { /* not all drivers do that */
		verbs_cq_forget((struct verbs_cq *)base->send_cq, base->qp_num);
		verbs_cq_forget((struct verbs_cq *)base->recv_cq, base->qp_num);
	}
	note(qp, &full, mask);
	return 0;
}

int verbs_qp_query(struct hf_qp *base, struct ibv_qp_attr *attr_out, int mask)
{
	struct verbs_qp *qp = (struct verbs_qp *)base;
	struct ibv_qp_init_attr init;

	return -verbs_of(base->dev)->lib->query_qp(qp->qp, attr_out, mask, &init);
}

/* ---- when it failed ---- */

int verbs_qp_executed_psn(struct hf_qp *base, uint32_t *psn_out)
{
	struct ibv_qp_attr attr = {0};
	int rc = verbs_qp_query(base, &attr, IBV_QP_RQ_PSN);

	*psn_out = attr.rq_psn & 0xffffffu;
	return rc;
}

void verbs_qps_lose_patience(struct verbs_dev *dev, uint64_t now_ns)
{
	list_for_each (at, &dev->qps) {
		struct verbs_qp *qp = container_of(at, struct verbs_qp, link);

		if (qp->state == IBV_QPS_RTS && qp->posted != qp->completed &&
			verbs_passed(now_ns, dev->down_ns, qp->patience_ns))
			(void)verbs_qp_move(qp, IBV_QPS_ERR);
	}
}

static bool waits(const struct verbs_qp *qp)
{
	bool failed = qp->error_ns != 0 || qp->failed_ns != 0;

	return (qp->state == IBV_QPS_RTS && (qp->posted != qp->completed || qp->ordered_ns != 0)) ||
	       (failed && qp->base.srq != NULL && !qp->last_told);
}

bool verbs_qps_wait(const struct verbs_dev *dev)
{
	list_for_each (at, &dev->qps)
		if (waits(container_of(at, struct verbs_qp, link)))
			return true;
	return !list_empty(&dev->graves);
}

void verbs_qp_failed(struct verbs_qp *qp)
{
	if (qp->failed_ns == 0)
		qp->failed_ns = now_of(&qp->base);
}

void verbs_qps_tell_last(struct verbs_dev *dev, uint64_t now_ns)
{
	list_for_each (at, &dev->qps) {
		struct verbs_qp *qp = container_of(at, struct verbs_qp, link);
		uint64_t since_ns = qp->error_ns != 0 ? qp->error_ns : qp->failed_ns;

		if (qp->base.srq == NULL || qp->last_told || since_ns == 0 ||
			!verbs_passed(now_ns, since_ns, dev->port.model->settle_ns))
			continue;
		qp->last_told = true;
		verbs_tell(dev, &(struct hf_dev_event){.type = IBV_EVENT_QP_LAST_WQE_REACHED, .qp = &qp->base});
	}
}

/* ---- life ---- */

static void use_queues(struct verbs_qp *qp, int users)
{
	((struct verbs_cq *)qp->base.send_cq)->users += (unsigned)users;
	((struct verbs_cq *)qp->base.recv_cq)->users += (unsigned)users;
	if (qp->base.srq != NULL)
		((struct verbs_srq *)qp->base.srq)->users += (unsigned)users;
}

static struct ibv_qp *make(struct verbs_dev *dev, struct verbs_qp *qp)
{
	struct ibv_qp_init_attr init = {.qp_context = qp,
		.send_cq = ((struct verbs_cq *)qp->base.send_cq)->cq,
		.recv_cq = ((struct verbs_cq *)qp->base.recv_cq)->cq,
		.srq = qp->base.srq == NULL ? NULL : ((struct verbs_srq *)qp->base.srq)->srq,
		.cap = qp->base.cap,
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = qp->base.sq_sig_all};
	struct ibv_qp *made;

	if (init.cap.max_send_sge == 0)
		init.cap.max_send_sge = 1;
	if (init.cap.max_recv_sge == 0)
		init.cap.max_recv_sge = 1;
	init.cap.max_send_wr += MARKERS;
	init.cap.max_recv_wr += init.srq == NULL ? MARKERS : 0;
	made = dev->lib->create_qp(((struct verbs_pd *)qp->base.pd)->pd, &init);
	init.cap.max_send_wr -= MARKERS;
	init.cap.max_recv_wr -= init.srq == NULL ? MARKERS : 0;
	qp->base.cap = init.cap;
	return made;
}

int verbs_qp_create(struct hf_pd *base, const struct hf_qp_init *init, struct hf_qp **qp_out)
{
	struct verbs_dev *dev = verbs_of(base->dev);
	struct verbs_qp *qp = calloc(1, sizeof(*qp));
	int rc;

	if (qp == NULL)
		return -ENOMEM;
	qp->base = qp_from_init(base, init);
	qp->state = IBV_QPS_RESET;
	errno = 0;
	qp->qp = init->dc == HF_DC_NONE ? make(dev, qp) : verbs_dc_make(dev, qp, init);
	if (qp->qp == NULL) {
		rc = errno == 0 ? -ENOMEM : -errno;
		free(qp);
		return rc;
	}
	rc = verbs_answers_init(qp);
	if (rc == 0)
		rc = take_number(dev, qp);
	if (rc != 0) {
		verbs_answers_free(qp);
		dev->lib->destroy_qp(qp->qp);
		verbs_dc_end(qp);
		free(qp);
		return rc;
	}
	list_push_back(&dev->qps, &qp->link);
	use_queues(qp, 1);
	*qp_out = &qp->base;
	return 0;
}

int verbs_qp_destroy(struct hf_qp *base)
{
	struct verbs_qp *qp = (struct verbs_qp *)base;
	struct verbs_dev *dev = verbs_of(base->dev);
	uint64_t due_ns = quiet_until(qp);
	struct grave *grave = due_ns <= now_of(base) ? NULL : malloc(sizeof(*grave));

	if (grave == NULL) {
		int rc;

		wait_until(base, due_ns);
		rc = dev->lib->destroy_qp(qp->qp);
		if (rc != 0)
			return -rc;
	} else {
		*grave = (struct grave){.qp = qp->qp, .due_ns = due_ns};
		list_push_back(&dev->graves, &grave->link);
	}
	if (base->qp_num != 0)
		table_remove(&dev->by_num, base->qp_num);
	verbs_dc_end(qp);
	verbs_fence_forget(qp);
	list_remove(&qp->link);
	use_queues(qp, -1);
	verbs_forget_events(dev, base);
	verbs_answers_free(qp);
	free(qp);
	return 0;
}

void verbs_bury(struct verbs_dev *dev, uint64_t now_ns)
{
	list_for_each_safe (at, &dev->graves) {
		struct grave *grave = container_of(at, struct grave, link);

		if (grave->due_ns > now_ns)
			continue;
		list_remove(&grave->link);
		(void)dev->lib->destroy_qp(grave->qp); /* the kernel keeps what it cannot destroy until we close it */
		free(grave);
	}
}

void verbs_bury_all(struct verbs_dev *dev)
{
	while (!list_empty(&dev->graves)) {
		uint64_t now_ns = hf_env_now_ns(dev->base.env);
		uint64_t due_ns = container_of(dev->graves.next, struct grave, link)->due_ns;

		if (due_ns > now_ns)
			env_pause(dev->base.env, due_ns - now_ns);
		verbs_bury(dev, hf_env_now_ns(dev->base.env));
	}
}
