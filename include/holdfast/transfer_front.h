/* transfer_front.h - requests to a transfer engine from any thread.
 *
 * The loop owns the engine, and all of <holdfast/transfer.h> belongs to its thread. A front accepts orders from other
 * threads: a list of requests, queued for the loop, each with a status that any thread may read. Segments are opened
 * on the loop's thread and named by any.
 *
 * Only hf_transfer_order_wait blocks; a lock is held for a few instructions. */
#ifndef HOLDFAST_TRANSFER_FRONT_H
#define HOLDFAST_TRANSFER_FRONT_H

#include <holdfast/transfer.h>

struct hf_transfer_front;
struct hf_transfer_order;

/* On the loop's thread. -ENOMEM. */
int hf_transfer_front_open(struct hf_transfer *transfer, struct hf_transfer_front **front_out, struct hf_error *error);
/* On the loop's thread, before hf_transfer_close; no thread uses the front any more. -EBUSY: an order is pending. NULL
 * is legal. */
int hf_transfer_front_close(struct hf_transfer_front *front);

/* ---- from any thread ---- */

/* Queues n requests, which are copied; each gets one terminal status, as in a batch. A request that the engine
 * refuses is INVALID, independent of the others. -EINVAL: n is 0; -ENOMEM. */
int hf_transfer_order(struct hf_transfer_front *front, const struct hf_transfer_request *requests, unsigned n,
	struct hf_transfer_order **order_out);
/* The status of request i. bytes_out (NULL is legal): the bytes in place. PENDING may be some turns old; a terminal
 * status is final, and the data of a READ may be read after COMPLETED. */
enum hf_transfer_status hf_transfer_order_status(
	const struct hf_transfer_order *order, unsigned i, uint64_t *bytes_out);
bool hf_transfer_order_is_pending(const struct hf_transfer_order *order); /* some request is */
void hf_transfer_order_cancel(struct hf_transfer_order *order);           /* all of its requests */
/* Sleeps until no request is pending; never on the loop's thread. Requests without a deadline may take long. */
void hf_transfer_order_wait(struct hf_transfer_order *order);
int hf_transfer_order_free(struct hf_transfer_order *order); /* -EBUSY while a request is pending; NULL is legal */

#endif
