/* Shared receive queues. A vqp has a receive queue of its own, so each receive is given to a queue pair in advance:
 *
 *   posted by the program -> waiting -> given to a queue pair -> completed, and free
 *                               ^______________|   when the queue pair fails, is reset or destroyed
 *
 * Each queue pair has a small share of the receives, and gets another one whenever a completion of one is polled. When
 * it consumes receives it has more, so that a sender can go on while the program does not run: at most seven times
 * as many as are left of the three quarters that are not for such shares, so that each of several finds some. A queue
 * needs several receives for each of its queue pairs. With fewer, a message may wait until the program posts
 * more, although receives are left with queue pairs to which nothing is sent. */
#include "preload/objects.h"

#include <errno.h>
#include <stdlib.h>

#include "preload/drive.h"
#include "preload/real.h"

#define SHARE_DIVISOR 32u /* of what each queue pair could get: later ones must find some too */
#define KEPT_DIVISOR  4u  /* the part that is for such shares */
#define MORE_OF_LEFT  7u  /* times what is left of the rest: what one that consumes may have */

struct shared_wr {
	struct list link; /* of the queue's free or waiting ones, or of those with a queue pair */
	struct ibv_recv_wr wr;
};

static struct shared_receive *queue_of(struct ibv_srq *srq)
{
	return container_of(srq, struct shared_receive, srq);
}

static void *fail(int error)
{
	errno = error;
	return NULL;
}

/* ---- handing out ---- */

static unsigned share_of(const struct shared_receive *queue)
{
	unsigned share = queue->posted / (queue->users * SHARE_DIVISOR);

	return share == 0 ? 1 : share > SHARED_GIVEN_MAX ? SHARED_GIVEN_MAX : share;
}

/* Of a queue pair whose receives are used. */
static unsigned most_of(const struct shared_receive *queue)
{
	unsigned waiting = queue->posted - queue->given, kept = queue->posted / KEPT_DIVISOR;
	unsigned most = waiting > kept ? (waiting - kept) * MORE_OF_LEFT : 0;

	return most > SHARED_GIVEN_MAX ? SHARED_GIVEN_MAX : most;
}

static bool may_have_more(const struct queue_pair *qp, unsigned share)
{
	return qp->given_count < share && qp->qp.state != IBV_QPS_RESET && qp->qp.state != IBV_QPS_ERR &&
	       hf_vqp_state(qp->vqp) != HF_VQP_ERROR;
}

/* False: nothing is waiting, or the vqp did not take it. */
static bool give_one(struct shared_receive *queue, struct queue_pair *qp)
{
	struct list *at = list_pop_front(&queue->waiting);
	struct shared_wr *shared = at == NULL ? NULL : container_of(at, struct shared_wr, link);
	struct ibv_recv_wr wr, *bad;

	if (shared == NULL)
		return false;
	wr = shared->wr;
	wr.wr_id = (uintptr_t)shared;
	if (hf_vqp_post_recv(qp->vqp, &wr, &bad) != 0) {
		list_push_front(&queue->waiting, at);
		return false;
	}
	list_push_back(&qp->given, at);
	qp->given_count++;
	queue->given++;
	return true;
}

/* Queue pairs take turns at being first. */
static void hand_out(struct shared_receive *queue)
{
	unsigned share = queue->users == 0 ? 0 : share_of(queue);

	for (unsigned i = 0; i < queue->users && !list_empty(&queue->waiting); i++) {
		struct list *at = list_pop_front(&queue->queue_pairs);
		struct queue_pair *qp = container_of(at, struct queue_pair, shared_link);

		list_push_back(&queue->queue_pairs, at);
		while (may_have_more(qp, share) && give_one(queue, qp))
			;
	}
}

void shared_receive_return(struct queue_pair *qp)
{
	struct list *at;

	while ((at = list_pop_front(&qp->given)) != NULL)
		list_push_back(&qp->shared->waiting, at);
	qp->shared->given -= qp->given_count;
	qp->given_count = 0;
}

/* ---- what queue_pair.c and completion.c tell ---- */

int shared_receive_join(struct queue_pair *qp, struct ibv_srq *srq)
{
	struct cq *cq = container_of(qp->init.recv_cq, struct cq, cq);
	int rc = table_put(&cq->shared, hf_vqp_num(qp->vqp), qp);

	if (rc != 0)
		return rc;
	qp->shared = queue_of(srq);
	list_push_back(&qp->shared->queue_pairs, &qp->shared_link);
	qp->shared->users++;
	return 0;
}

void shared_receive_leave(struct queue_pair *qp)
{
	shared_receive_return(qp);
	table_remove(&container_of(qp->init.recv_cq, struct cq, cq)->shared, qp->qp.qp_num);
	list_remove(&qp->shared_link);
	qp->shared->users--;
	hand_out(qp->shared);
}

void shared_receive_moved(struct queue_pair *qp)
{
	hand_out(qp->shared);
}

/* False: its message never came, and it waits for that of another queue pair. */
static bool completed(struct queue_pair *qp, struct ibv_wc *wc)
{
	struct shared_receive *queue = qp->shared;
	struct shared_wr *shared = (struct shared_wr *)(uintptr_t)wc->wr_id;
	bool flushed = wc->status == IBV_WC_WR_FLUSH_ERR;

	list_remove(&shared->link);
	qp->given_count--;
	queue->given--;
	wc->wr_id = shared->wr.wr_id;
	queue->posted -= !flushed;
	list_push_back(flushed ? &queue->waiting : &queue->free, &shared->link);
	hand_out(queue);
	while (may_have_more(qp, most_of(queue)) && give_one(queue, qp))
		;
	return !flushed;
}

int shared_receive_polled(struct cq *cq, struct ibv_wc *wc, int n)
{
	int kept = 0;

	for (int i = 0; i < n; i++) {
		struct queue_pair *qp = wc[i].opcode & IBV_WC_RECV ? table_get(&cq->shared, wc[i].qp_num) : NULL;

		if (qp == NULL || completed(qp, &wc[i]))
			wc[kept++] = wc[i];
	}
	return kept;
}

/* ---- the verbs ---- */

static bool fits(struct ibv_context *context, const struct ibv_srq_attr *attr)
{
	struct ibv_device_attr device;

	return ibv_query_device(context, &device) == 0 && attr->max_wr > 0 &&
	       attr->max_sge <= (uint32_t)device.max_srq_sge && attr->max_wr <= (uint32_t)device.max_srq_wr;
}

/* In one piece: the queue, its receives and their sges. */
static struct shared_receive *allocate(const struct ibv_srq_attr *attr)
{
	struct shared_receive *queue = calloc(1, sizeof(*queue));
	struct ibv_sge *sges;

	if (queue == NULL)
		return NULL;
	queue->receives = calloc(attr->max_wr, sizeof(*queue->receives) + attr->max_sge * sizeof(*sges));
	if (queue->receives == NULL) {
		free(queue);
		return NULL;
	}
	sges = (struct ibv_sge *)(queue->receives + attr->max_wr);
	list_init(&queue->free);
	list_init(&queue->waiting);
	list_init(&queue->queue_pairs);
	for (uint32_t i = 0; i < attr->max_wr; i++) {
		queue->receives[i].wr.sg_list = sges + (size_t)i * attr->max_sge;
		list_push_back(&queue->free, &queue->receives[i].link);
	}
	return queue;
}

struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *init)
{
	struct shared_receive *queue;

	if (!context_is_ours(pd->context))
		return REAL(ibv_create_srq)(pd, init);
	init->attr.max_sge += init->attr.max_sge == 0;
	if (!fits(pd->context, &init->attr))
		return fail(EINVAL);
	queue = allocate(&init->attr);
	if (queue == NULL)
		return fail(ENOMEM);
	queue->attr = init->attr;
	queue->srq = (struct ibv_srq){.context = pd->context, .srq_context = init->srq_context, .pd = pd};
	pthread_mutex_init(&queue->srq.mutex, NULL);
	pthread_cond_init(&queue->srq.cond, NULL);
	return &queue->srq;
}

/* The queue keeps its size, and there is no event when few receives are left. */
int ibv_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask)
{
	return context_is_ours(srq->context) ? result(EOPNOTSUPP) : REAL(ibv_modify_srq)(srq, attr, mask);
}

int ibv_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr)
{
	if (!context_is_ours(srq->context))
		return REAL(ibv_query_srq)(srq, attr);
	*attr = queue_of(srq)->attr;
	return 0;
}

int ibv_destroy_srq(struct ibv_srq *srq)
{
	struct shared_receive *queue = queue_of(srq);
	unsigned users;

	if (!context_is_ours(srq->context))
		return REAL(ibv_destroy_srq)(srq);
	drive_lock();
	users = queue->users;
	drive_unlock();
	if (users > 0)
		return result(EBUSY);
	free(queue->receives);
	free(queue);
	return 0;
}

static int take(struct shared_receive *queue, const struct ibv_recv_wr *wr)
{
	struct list *at;
	struct shared_wr *shared;

	if (wr->num_sge < 0 || (uint32_t)wr->num_sge > queue->attr.max_sge)
		return EINVAL;
	at = list_pop_front(&queue->free);
	if (at == NULL)
		return ENOMEM;
	shared = container_of(at, struct shared_wr, link);
	shared->wr.wr_id = wr->wr_id;
	shared->wr.num_sge = wr->num_sge;
	for (int i = 0; i < wr->num_sge; i++)
		shared->wr.sg_list[i] = wr->sg_list[i];
	list_push_back(&queue->waiting, at);
	queue->posted++;
	return 0;
}

int shared_receive_post(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct shared_receive *queue = queue_of(srq);
	int rc = 0;

	drive_lock();
	for (; wr != NULL && rc == 0; wr = rc == 0 ? wr->next : wr)
		rc = take(queue, wr);
	if (rc != 0)
		*bad = wr;
	hand_out(queue);
	drive_unlock();
	return result(rc);
}
