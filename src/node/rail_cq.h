/* rail_cq.h - the completion queues of a rail: few, each shared by the qps of many vqps, so that the cost of polling
 * does not depend on the number of vqps.
 *
 * Only queues of qps with traffic are polled. Spare qps, which wait for a failure, have queues of
 * their own, so that they cost nothing until then.
 *
 * Before a qp is made it reserves room for all its possible completions, so that no queue overflows; when there is no
 * room left another queue is made, twice as large. The reservation of a destroyed qp is released once the queue was
 * read to its end afterwards: it may have held the qp's last completions until then.
 *
 * A completion goes to the owner of the qp, found by the number of the qp. */
#ifndef HOLDFAST_NODE_RAIL_CQ_H
#define HOLDFAST_NODE_RAIL_CQ_H

#include <holdfast/dev.h>

#include "base/list.h"
#include "base/table.h"

#define RAIL_CQS_MAX 24u

/* The receiver of a qp's completions. */
struct wc_sink {
	void (*completed)(struct wc_sink *sink, const struct ibv_wc *wc);
	void (*settled)(struct wc_sink *sink); /* once, after a group of completions */
	void (*fatal)(struct wc_sink *sink);   /* the device reports that the qp is dead */
	void (*room)(struct wc_sink *sink);    /* of those that share a qp: there is room on it again */
	struct list link;                      /* has received some */
};

struct rail_cq {
	struct hf_cq *cq;
	bool spare;                 /* of spare qps */
	unsigned active;            /* qps that traffic is on: without any there is nothing to poll for */
	uint32_t reserved, leaving; /* entries: by qps, destroyed ones included; by destroyed ones */
	uint64_t reads;             /* how often it was read to its end */
};

struct rail_cqs {
	struct hf_dev *dev;
	struct rail_cq cqs[RAIL_CQS_MAX];
	unsigned count;
	struct table sinks; /* by the number of a qp */
	bool reading;       /* sinks are being called */
};

/* Reserves `entries`; -ENOMEM: the device has no more. */
int rail_cq_reserve(struct rail_cqs *cqs, uint32_t entries, bool spare, struct rail_cq **cq_out);
/* `gone`: the qp is destroyed, its completions may still be there. */
void rail_cq_release(struct rail_cq *cq, uint32_t entries, bool gone);

/* Calls the sinks; BUSY when there were completions. */
enum hf_poll rail_cqs_read(struct rail_cqs *cqs);
/* Everything that is there now: after a fence, all that the fenced qp will ever complete. */
void rail_cqs_drain(struct rail_cqs *cqs);
/* Arms every queue; false: there are completions to read. */
bool rail_cqs_arm(struct rail_cqs *cqs);
void rail_cqs_close(struct rail_cqs *cqs);

#endif
