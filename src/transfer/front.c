/* Orders of other threads: a queue under a lock, and words that the loop writes and any thread reads.
 *
 *   any thread                                 the loop
 *     order: queued, hf_loop_wake ------------->  a batch of its own; its tasks are looked at in turn
 *     status <---------- words, by publish ------
 *     wait <------------ ended, under the lock --  the batch is freed, and the order is the other thread's alone */
#include <holdfast/transfer_front.h>

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "base/order.h"
#include "transfer/engine.h"

#define LOOKS 64u /* at tasks of an order in a turn */

struct hf_transfer_front {
	struct hf_transfer *engine;
	pthread_mutex_t lock; /* of `queued`, and of the ends of orders */
	pthread_cond_t ended; /* some order has */
	struct list queued;   /* orders that the loop has not seen */
	_Atomic bool waiting; /* for the loop: something is queued, or to be cancelled */
	struct list active;   /* the loop's */
	struct hf_poller poller;
};

struct word {
	_Atomic uint32_t status;
	_Atomic uint64_t bytes;
};

struct hf_transfer_order {
	struct list link;
	struct hf_transfer_front *front;
	struct hf_transfer_batch *batch; /* the loop's, like the next three */
	bool submitting, cancelled;
	unsigned looked; /* the task that is looked at next */
	int *task_of;    /* of each request: its task in the batch; negative: it was refused */
	_Atomic bool cancel;
	_Atomic bool over;
	struct hf_transfer_request *requests;
	unsigned n;
	struct word words[];
};

/* ---- the loop ---- */

static void look_at(struct hf_transfer_order *order, unsigned i)
{
	enum hf_transfer_status status = HF_TRANSFER_INVALID;
	uint64_t bytes = 0;

	if (order->task_of[i] >= 0)
		(void)hf_transfer_task_status(order->batch, (unsigned)order->task_of[i], &status, &bytes);
	publish(&order->words[i].bytes, bytes);
	publish(&order->words[i].status, (uint32_t)status);
}

static void finish(struct hf_transfer_order *order)
{
	struct hf_transfer_front *front = order->front;

	for (unsigned i = 0; i < order->n; i++)
		look_at(order, i);
	(void)hf_transfer_batch_free(order->batch);
	list_remove(&order->link);
	pthread_mutex_lock(&front->lock);
	publish(&order->over, true); /* it may be freed from now on */
	pthread_cond_broadcast(&front->ended);
	pthread_mutex_unlock(&front->lock);
}

static void on_idle(struct hf_transfer_batch *batch, void *context)
{
	struct hf_transfer_order *order = context;

	(void)batch;
	if (!order->submitting)
		finish(order);
}

static void begin(struct hf_transfer_front *front, struct hf_transfer_order *order)
{
	list_push_back(&front->active, &order->link);
	for (unsigned i = 0; i < order->n; i++)
		order->task_of[i] = -1;
	if (hf_transfer_batch_alloc(front->engine, order->n, on_idle, order, &order->batch) != 0) {
		finish(order); /* without memory all are refused */
		return;
	}
	order->submitting = true;
	(void)hf_transfer_submit_each(order->batch, order->requests, order->n, order->task_of, NULL);
	order->submitting = false;
	if (hf_transfer_batch_status(order->batch) != HF_TRANSFER_PENDING)
		finish(order);
}

static void cancel_tasks(struct hf_transfer_order *order)
{
	struct hf_transfer_batch *batch = order->batch;

	if (order->cancelled || !observe(&order->cancel))
		return;
	order->cancelled = order->submitting = true; /* `idle` may come at the last of them */
	for (unsigned i = 0; i < order->n; i++)
		if (order->task_of[i] >= 0)
			(void)hf_transfer_cancel(batch, (unsigned)order->task_of[i]);
	order->submitting = false;
	if (hf_transfer_batch_status(batch) != HF_TRANSFER_PENDING)
		finish(order);
}

static bool take_queued(struct hf_transfer_front *front)
{
	struct list round, *at;

	if (!observe(&front->waiting))
		return false;
	publish(&front->waiting, false);
	list_init(&round);
	pthread_mutex_lock(&front->lock);
	while ((at = list_pop_front(&front->queued)) != NULL)
		list_push_back(&round, at);
	pthread_mutex_unlock(&front->lock);
	while ((at = list_pop_front(&round)) != NULL)
		begin(front, container_of(at, struct hf_transfer_order, link));
	list_for_each_safe (active, &front->active)
		cancel_tasks(container_of(active, struct hf_transfer_order, link));
	return true;
}

static enum hf_poll front_poll(struct hf_poller *poller, uint64_t now_ns)
{
	struct hf_transfer_front *front = container_of(poller, struct hf_transfer_front, poller);
	bool any = take_queued(front);

	(void)now_ns;
	list_for_each (at, &front->active) {
		struct hf_transfer_order *order = container_of(at, struct hf_transfer_order, link);

		for (unsigned i = 0; i < LOOKS && i < order->n; i++, order->looked++)
			look_at(order, order->looked % order->n);
	}
	return any ? HF_BUSY : HF_IDLE;
}

static bool front_arm(struct hf_poller *poller)
{
	return !observe(&container_of(poller, struct hf_transfer_front, poller)->waiting);
}

int hf_transfer_front_open(struct hf_transfer *engine, struct hf_transfer_front **front_out, struct hf_error *error)
{
	struct hf_transfer_front *front = calloc(1, sizeof(*front));

	*front_out = front;
	if (front == NULL)
		return hf_error_set(error, -ENOMEM, "no memory for a front of the transfer engine");
	front->engine = engine;
	front->poller = (struct hf_poller){.poll = front_poll, .arm = front_arm};
	list_init(&front->queued);
	list_init(&front->active);
	pthread_mutex_init(&front->lock, NULL);
	pthread_cond_init(&front->ended, NULL);
	hf_loop_add_poller(engine->loop, &front->poller);
	return 0;
}

int hf_transfer_front_close(struct hf_transfer_front *front)
{
	bool busy;

	if (front == NULL)
		return 0;
	pthread_mutex_lock(&front->lock);
	busy = !list_empty(&front->active) || !list_empty(&front->queued);
	pthread_mutex_unlock(&front->lock);
	if (busy)
		return -EBUSY;
	hf_loop_remove_poller(front->engine->loop, &front->poller);
	pthread_mutex_destroy(&front->lock);
	pthread_cond_destroy(&front->ended);
	free(front);
	return 0;
}

/* ---- any thread ---- */

static struct hf_transfer_order *order_new(
	struct hf_transfer_front *front, const struct hf_transfer_request *requests, unsigned n)
{
	struct hf_transfer_order *order = calloc(1, sizeof(*order) + n * sizeof(order->words[0]));

	if (order == NULL)
		return NULL;
	order->front = front;
	order->n = n;
	order->requests = malloc(n * sizeof(*order->requests));
	order->task_of = malloc(n * sizeof(*order->task_of));
	if (order->requests == NULL || order->task_of == NULL) {
		free(order->requests);
		free(order->task_of);
		free(order);
		return NULL;
	}
	memcpy(order->requests, requests, n * sizeof(*requests));
	for (unsigned i = 0; i < n; i++)
		atomic_init(&order->words[i].status, HF_TRANSFER_PENDING);
	return order;
}

static void call_loop(struct hf_transfer_front *front)
{
	publish(&front->waiting, true);
	announce();
	hf_loop_wake(front->engine->loop);
}

int hf_transfer_order(struct hf_transfer_front *front, const struct hf_transfer_request *requests, unsigned n,
	struct hf_transfer_order **order_out)
{
	struct hf_transfer_order *order = n == 0 ? NULL : order_new(front, requests, n);

	*order_out = order;
	if (order == NULL)
		return n == 0 ? -EINVAL : -ENOMEM;
	pthread_mutex_lock(&front->lock);
	list_push_back(&front->queued, &order->link);
	pthread_mutex_unlock(&front->lock);
	call_loop(front);
	return 0;
}

enum hf_transfer_status hf_transfer_order_status(const struct hf_transfer_order *order, unsigned i, uint64_t *bytes_out)
{
	enum hf_transfer_status status = (enum hf_transfer_status)observe(&order->words[i].status);

	if (bytes_out != NULL)
		*bytes_out = observe(&order->words[i].bytes);
	return status;
}

bool hf_transfer_order_is_pending(const struct hf_transfer_order *order)
{
	return !observe(&order->over);
}

void hf_transfer_order_cancel(struct hf_transfer_order *order)
{
	publish(&order->cancel, true);
	call_loop(order->front);
}

void hf_transfer_order_wait(struct hf_transfer_order *order)
{
	struct hf_transfer_front *front = order->front;

	pthread_mutex_lock(&front->lock);
	while (!observe(&order->over))
		pthread_cond_wait(&front->ended, &front->lock);
	pthread_mutex_unlock(&front->lock);
}

int hf_transfer_order_free(struct hf_transfer_order *order)
{
	if (order == NULL)
		return 0;
	if (hf_transfer_order_is_pending(order))
		return -EBUSY;
	free(order->requests);
	free(order->task_of);
	free(order);
	return 0;
}
