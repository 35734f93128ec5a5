/* Completion queues and shared receive queues. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "dev/verbs/verbs.h"

#define ACK_BATCH  64u /* of notifications: an acknowledgement takes a lock */
#define KEEP_BATCH 32

/* ---- completion queues ---- */

int verbs_cq_create(struct hf_dev *base, uint32_t cqe, void *context, struct hf_cq **cq_out)
{
	struct verbs_dev *dev = verbs_of(base);
	struct verbs_cq *cq = calloc(1, sizeof(*cq));

	if (cq == NULL)
		return -ENOMEM;
	cq->cq = dev->lib->create_cq(dev->context, (int)(cqe + VERBS_MARKS_MAX), cq, dev->channel, 0);
	if (cq->cq == NULL) {
		free(cq);
		return errno == 0 ? -ENOMEM : -errno;
	}
	cq->base = (struct hf_cq){.dev = base, .cqe = (uint32_t)cq->cq->cqe - VERBS_MARKS_MAX, .context = context};
	list_push_back(&dev->cqs, &cq->link);
	*cq_out = &cq->base;
	return 0;
}

static void disarm(struct verbs_dev *dev, struct verbs_cq *cq)
{
	dev->armed -= cq->armed;
	cq->armed = false;
}

int verbs_cq_destroy(struct hf_cq *base)
{
	struct verbs_cq *cq = (struct verbs_cq *)base;
	struct verbs_dev *dev = verbs_of(base->dev);
	int rc;

	if (cq->users > 0)
		return -EBUSY;
	verbs_bury_all(dev);
	dev->lib->ack_cq_events(cq->cq, cq->unacked);
	cq->unacked = 0;
	rc = dev->lib->destroy_cq(cq->cq);
	if (rc != 0)
		return -rc;
	disarm(dev, cq);
	free(cq->kept);
	list_remove(&cq->link);
	verbs_forget_events(dev, base);
	free(cq);
	return 0;
}

/* A signaled wr, or one that failed. Receives are not counted, but cannot be told from sends by a completion in error;
 * those are of a qp that is in ERR, whose count does not matter any more. */
static void count(struct verbs_dev *dev, struct ibv_wc *wc)
{
	struct verbs_qp *qp;

	if (wc->status == IBV_WC_SUCCESS && (wc->opcode & IBV_WC_RECV) != 0)
		return;
	qp = table_get(&dev->by_num, wc->qp_num);
	if (qp == NULL)
		return;
	qp->completed++;
	if (wc->status == IBV_WC_SUCCESS)
		wc->status = verbs_answers_judge(qp);
	if (wc->status == IBV_WC_SUCCESS)
		return;
	if (wc->status == IBV_WC_WR_FLUSH_ERR && qp->failed_ns == 0 && qp->error_ns == 0 &&
		verbs_answers_refused(qp, wc->wr_id))
		wc->status = IBV_WC_LOC_PROT_ERR; /* some NICs flush the wr that was the reason, too */
	verbs_answers_restore(qp);
	if (wc->status == IBV_WC_LOC_QP_OP_ERR && verbs_port_failed(dev))
		wc->status = IBV_WC_RETRY_EXC_ERR; /* what some NICs say of what they could not send */
	if (qp->failed_ns == 0)
		log_debug("%s: qp %u: a wr completed with status %d (vendor error 0x%x)", dev->base.attr.name,
			wc->qp_num, (int)wc->status, wc->vendor_err);
	verbs_qp_failed(qp);
}

static void keep_only(struct verbs_cq *cq, unsigned count)
{
	cq->kept_count = count;
	if (count > 0)
		return;
	free(cq->kept);
	cq->kept = NULL;
}

static int take_kept(struct verbs_cq *cq, int n, struct ibv_wc *wc)
{
	int taken = n < (int)cq->kept_count ? n : (int)cq->kept_count;

	memcpy(wc, cq->kept, (size_t)taken * sizeof(*wc));
	memmove(cq->kept, cq->kept + taken, (cq->kept_count - (unsigned)taken) * sizeof(*wc));
	keep_only(cq, cq->kept_count - (unsigned)taken);
	return taken;
}

/* Markers are taken out: they are ours. */
static int sift(struct verbs_cq *cq, int n, struct ibv_wc *wc)
{
	struct verbs_dev *dev = verbs_of(cq->base.dev);
	int left = 0;

	dev->resent_fresh = false;
	for (int i = 0; i < n; i++) {
		if (verbs_fence_took(dev, &wc[i]))
			continue;
		wc[left] = wc[i];
		count(dev, &wc[left++]);
	}
	return left;
}

/* Fewer than were asked for mean that there are no more: a caller that drains a queue relies on it, and may sleep
 * then. */
int verbs_cq_poll(struct hf_cq *base, int n, struct ibv_wc *wc)
{
	struct verbs_cq *cq = (struct verbs_cq *)base;
	int got = cq->kept != NULL ? take_kept(cq, n, wc) : 0;

	while (got < n) {
		int taken = ibv_poll_cq(cq->cq, n - got, wc + got);

		if (taken <= 0)
			return got > 0 ? got : taken;
		got += sift(cq, taken, wc + got);
	}
	return got;
}

/* Behind what is kept already. Without memory all of it stays where it is. */
void verbs_cq_keep(struct verbs_cq *cq)
{
	struct ibv_wc some[KEEP_BATCH];
	int n;

	do {
		struct ibv_wc *more = realloc(cq->kept, (cq->kept_count + KEEP_BATCH) * sizeof(*more));

		if (more == NULL)
			return;
		cq->kept = more;
		n = ibv_poll_cq(cq->cq, KEEP_BATCH, some);
		n = n > 0 ? sift(cq, n, some) : 0;
		memcpy(more + cq->kept_count, some, (size_t)n * sizeof(*more));
		cq->kept_count += (unsigned)n;
	} while (n > 0);
	keep_only(cq, cq->kept_count);
}

void verbs_cq_forget(struct verbs_cq *cq, uint32_t qp_num)
{
	unsigned left = 0;

	verbs_cq_keep(cq);
	for (unsigned i = 0; i < cq->kept_count; i++)
		if (cq->kept[i].qp_num != qp_num)
			cq->kept[left++] = cq->kept[i];
	keep_only(cq, left);
}

int verbs_cq_req_notify(struct hf_cq *base, bool solicited_only)
{
	struct verbs_cq *cq = (struct verbs_cq *)base;
	struct verbs_dev *dev = verbs_of(base->dev);

	dev->armed += !cq->armed;
	cq->armed = true;
	return -ibv_req_notify_cq(cq->cq, solicited_only);
}

bool verbs_cq_notified(struct hf_cq *base)
{
	struct verbs_cq *cq = (struct verbs_cq *)base;
	bool notified;

	if (cq->armed)
		verbs_take_notifications(verbs_of(base->dev));
	notified = cq->notified;
	cq->notified = false;
	return notified;
}

void verbs_cq_notify(struct verbs_cq *cq)
{
	struct verbs_dev *dev = verbs_of(cq->base.dev);

	disarm(dev, cq);
	cq->notified = true;
	if (++cq->unacked < ACK_BATCH)
		return;
	dev->lib->ack_cq_events(cq->cq, cq->unacked);
	cq->unacked = 0;
}

/* ---- shared receive queues ---- */

int verbs_srq_create(struct hf_pd *base, uint32_t max_wr, uint32_t max_sge, void *context, struct hf_srq **srq_out)
{
	struct verbs_dev *dev = verbs_of(base->dev);
	struct verbs_srq *srq = calloc(1, sizeof(*srq));
	struct ibv_srq_init_attr init = {.attr = {.max_wr = max_wr, .max_sge = max_sge}};

	if (srq == NULL)
		return -ENOMEM;
	init.srq_context = srq;
	srq->srq = dev->lib->create_srq(((struct verbs_pd *)base)->pd, &init);
	if (srq->srq == NULL) {
		free(srq);
		return errno == 0 ? -ENOMEM : -errno;
	}
	srq->base = (struct hf_srq){.dev = base->dev,
		.pd = base,
		.max_wr = init.attr.max_wr,
		.max_sge = init.attr.max_sge,
		.context = context};
	*srq_out = &srq->base;
	return 0;
}

int verbs_srq_destroy(struct hf_srq *base)
{
	struct verbs_srq *srq = (struct verbs_srq *)base;
	struct verbs_dev *dev = verbs_of(base->dev);
	int rc;

	if (srq->users > 0)
		return -EBUSY;
	verbs_bury_all(dev);
	rc = dev->lib->destroy_srq(srq->srq);
	if (rc != 0)
		return -rc;
	verbs_forget_events(dev, base);
	free(srq);
	return 0;
}

int verbs_srq_post_recv(struct hf_srq *base, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	return -ibv_post_srq_recv(((struct verbs_srq *)base)->srq, wr, bad_wr);
}
