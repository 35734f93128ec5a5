/* Completion queues, and the channels that a program waits at for their events. */
#include "preload/objects.h"

#include <errno.h>
#include <stdlib.h>

#include "env/tally.h"
#include "preload/datagram.h"
#include "preload/drive.h"
#include "preload/real.h"

#define IDLE_POLLS 8u  /* without a completion: then it is time to turn the loop */
#define BUSY_POLLS 64u /* the same, of those that found completions */

static struct cq *cq_of(struct ibv_cq *cq)
{
	return container_of(cq, struct cq, cq);
}

static struct channel *channel_of(struct ibv_comp_channel *channel)
{
	return container_of(channel, struct channel, channel);
}

/* ---- channels ---- */

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
	struct channel *channel;
	int rc;

	if (!context_is_ours(context))
		return REAL(ibv_create_comp_channel)(context);
	channel = calloc(1, sizeof(*channel));
	rc = channel == NULL ? -ENOMEM : tally_open(&channel->channel.fd);
	if (rc != 0) {
		free(channel);
		errno = -rc;
		return NULL;
	}
	channel->channel.context = context;
	list_init(&channel->waiting);
	return &channel->channel;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
	int users;

	if (!context_is_ours(channel->context))
		return REAL(ibv_destroy_comp_channel)(channel);
	drive_lock();
	users = channel->refcnt;
	drive_unlock();
	if (users > 0)
		return result(EBUSY);
	tally_close(channel->fd);
	free(channel_of(channel));
	return 0;
}

void completion_ready(struct cq *cq)
{
	struct channel *channel;

	if (!cq->armed)
		return;
	cq->armed = false;
	channel = channel_of(cq->cq.channel);
	if (cq->queued++ == 0)
		list_push_back(&channel->waiting, &cq->channel_link);
	tally_add(channel->channel.fd);
}

/* Of the loop: completions of vqps are there. */
static void notify(struct hf_vcq *vcq, void *context)
{
	(void)vcq;
	completion_ready(context);
}

/* The next event's cq; NULL when its cq was destroyed meanwhile. */
static struct cq *take_event(struct channel *channel)
{
	struct list *at = list_pop_front(&channel->waiting);
	struct cq *cq = at == NULL ? NULL : container_of(at, struct cq, channel_link);

	if (cq == NULL)
		return NULL;
	cq->given++;
	if (--cq->queued > 0)
		list_push_back(&channel->waiting, &cq->channel_link);
	return cq;
}

int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq_out, void **context_out)
{
	struct cq *cq = NULL;
	int rc = 0;

	if (!context_is_ours(channel->context))
		return REAL(ibv_get_cq_event)(channel, cq_out, context_out);
	while (cq == NULL && rc == 0) {
		drive_wait_begin();
		pthread_cleanup_push(drive_wait_end, NULL);
		rc = tally_take(channel->fd);
		pthread_cleanup_pop(1);
		if (rc != 0)
			break;
		drive_lock();
		cq = take_event(channel_of(channel));
		drive_unlock();
	}
	if (rc != 0) {
		errno = -rc;
		return -1;
	}
	*cq_out = &cq->cq;
	*context_out = cq->cq.cq_context;
	return 0;
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int n)
{
	if (!context_is_ours(cq->context)) {
		REAL(ibv_ack_cq_events)(cq, n);
		return;
	}
	pthread_mutex_lock(&cq->mutex);
	cq->comp_events_completed += n;
	pthread_cond_signal(&cq->cond);
	pthread_mutex_unlock(&cq->mutex);
}

/* ---- queues ---- */

static bool entries_fit(struct ibv_context *context, int cqe)
{
	struct ibv_device_attr attr;

	return cqe > 0 && ibv_query_device(context, &attr) == 0 && cqe <= attr.max_cqe;
}

struct ibv_cq *ibv_create_cq(
	struct ibv_context *context, int cqe, void *cq_context, struct ibv_comp_channel *channel, int vector)
{
	struct cq *cq;
	int rc;

	if (!context_is_ours(context))
		return REAL(ibv_create_cq)(context, cqe, cq_context, channel, vector);
	if (!entries_fit(context, cqe) || vector < 0 || vector >= context->num_comp_vectors) {
		errno = EINVAL;
		return NULL;
	}
	cq = calloc(1, sizeof(*cq));
	if (cq == NULL) {
		errno = ENOMEM;
		return NULL;
	}
	cq->cq = (struct ibv_cq){.context = context, .channel = channel, .cq_context = cq_context, .cqe = cqe};
	pthread_mutex_init(&cq->cq.mutex, NULL);
	pthread_cond_init(&cq->cq.cond, NULL);
	list_init(&cq->channel_link);
	list_init(&cq->datagrams);
	drive_lock();
	rc = hf_vcq_create(node_of(context), (uint32_t)cqe, cq, &cq->vcq);
	if (rc == 0 && channel != NULL)
		channel->refcnt++;
	drive_unlock();
	if (rc == 0)
		return &cq->cq;
	free(cq);
	errno = -rc;
	return NULL;
}

static int datagrams_in(struct cq *cq)
{
	int n = 0;

	drive_lock();
	list_for_each (at, &cq->datagrams)
		n++;
	drive_unlock();
	return n;
}

/* A vcq holds no entries of its own and cannot overflow, so every size that is allowed is at hand, unless more
 * completions of datagrams are there. */
int ibv_resize_cq(struct ibv_cq *cq, int cqe)
{
	if (!context_is_ours(cq->context))
		return REAL(ibv_resize_cq)(cq, cqe);
	if (!entries_fit(cq->context, cqe) || datagrams_in(cq_of(cq)) > cqe)
		return result(EINVAL);
	cq->cqe = cqe;
	return 0;
}

static void drop_events(struct cq *cq)
{
	list_remove(&cq->channel_link);
	for (; cq->queued > 0; cq->queued--)
		(void)tally_drop(cq->cq.channel->fd);
}

int ibv_destroy_cq(struct ibv_cq *base)
{
	struct cq *cq = cq_of(base);
	int rc;

	if (!context_is_ours(base->context))
		return REAL(ibv_destroy_cq)(base);
	drive_lock();
	rc = hf_vcq_destroy(cq->vcq);
	if (rc == 0) {
		drop_events(cq);
		if (base->channel != NULL)
			base->channel->refcnt--;
	}
	drive_unlock();
	if (rc != 0)
		return result(-rc);
	pthread_mutex_lock(&base->mutex);
	while (base->comp_events_completed != cq->given)
		pthread_cond_wait(&base->cond, &base->mutex);
	pthread_mutex_unlock(&base->mutex);
	table_free(&cq->shared);
	table_free(&cq->own);
	free(cq);
	return 0;
}

int completion_req_notify(struct ibv_cq *base, int solicited_only)
{
	struct cq *cq = cq_of(base);

	(void)solicited_only; /* an event for every completion is one for the solicited ones too */
	if (base->channel == NULL)
		return result(EINVAL);
	drive_lock();
	cq->armed = true;
	hf_vcq_req_notify(cq->vcq, notify);
	drive_again();
	drive_unlock();
	return 0;
}

/* Programs that wait for events may poll once after each (perftest -e), so their polls find what is there. The others
 * poll again, and do not queue up for the lock. */
static bool lock_to_poll(const struct ibv_cq *cq)
{
	if (cq->channel == NULL)
		return drive_try_lock();
	drive_lock();
	return true;
}

/* A program that connected a queue pair to itself has one number for it, and an error ends both of its queues. */
static void name_own(const struct cq *cq, struct ibv_wc *wc, int n)
{
	for (int i = 0; i < n; i++) {
		const struct queue_pair *qp = table_get(&cq->own, wc[i].qp_num);

		if (qp == NULL)
			continue;
		wc[i].qp_num = qp->qp.qp_num;
		if (wc[i].status != IBV_WC_SUCCESS && hf_vqp_state(qp->vqp) != HF_VQP_ERROR)
			hf_vqp_abort(qp->vqp);
	}
}

int completion_poll(struct ibv_cq *base, int n, struct ibv_wc *wc)
{
	static _Thread_local unsigned idle, busy;
	struct cq *cq = cq_of(base);
	int datagrams, got;

	if (n <= 0 || !lock_to_poll(base))
		return 0;
	datagrams = cq->datagram_users > 0 ? datagram_poll(cq, n, wc) : 0;
	wc += datagrams;
	got = n > datagrams ? hf_vcq_poll(cq->vcq, n - datagrams, wc) : 0;
	if (got + datagrams > 0 ? ++busy >= BUSY_POLLS : ++idle >= IDLE_POLLS) {
		idle = busy = 0;
		drive_turn();
	}
	if (cq->own.used > 0)
		name_own(cq, wc, got);
	if (cq->shared.used > 0)
		got = shared_receive_polled(cq, wc, got);
	drive_unlock();
	return datagrams + got;
}
