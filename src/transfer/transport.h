/* transport.h - the interface of transports to a peer: rdma, shm and tcp, and the decorators of tests.
 *
 * A job is one task's stay on one transport. The transport cuts the ranges that are not done into slices and reports
 * to the job's events; each transport promises:
 *
 *   X1  A slice's end is final: nothing of it touches memory at either end afterwards.
 *   X2  `submit` returns a result for each job; a job that is not accepted has no effect.
 *   X3  It reports the ranges that are done.
 *   X4  `withdraw` ends the job's slices within a bound: the lease at the most.
 *   X5  An end is a reason of the path, of the program, or of time.
 *
 * No event comes before `submit` has returned. `drained` is the last event of a job; the transport keeps no reference
 * to it afterwards. Owned by one loop. */
#ifndef HOLDFAST_TRANSFER_TRANSPORT_H
#define HOLDFAST_TRANSFER_TRANSPORT_H

#include <stdbool.h>

#include "transfer/ranges.h"
#include "transfer/request.h"

struct transport_job;

struct transport_job_events {
	void (*done)(struct transport_job *job, const struct range *range);
	void (*given_up)(struct transport_job *job);      /* a reason of the path or of time; `drained` follows */
	void (*program_error)(struct transport_job *job); /* likewise; retrying elsewhere is of no use (R-T10) */
	void (*drained)(struct transport_job *job);
};

struct transport_job {
	const struct transport_job_events *events;
	const struct task_request *request; /* both live until `drained` */
	const struct ranges *done;
	bool movable;  /* another transport reaches the peer, and the task may go there */
	void *carried; /* the transport's, between submit and drained */
};

enum transport_answer {
	TRANSPORT_ACCEPTED,
	TRANSPORT_REFUSED, /* by the environment: another transport may take it */
	TRANSPORT_INVALID, /* no transport would: bounds, permission, unknown segment or buffer */
};

struct transport;

struct transport_ops {
	/* Has no effect (R-T15). False: the transport has no open path to the segment's peer now (R-T21). */
	bool (*reaches)(struct transport *transport, const struct task_request *request);
	enum transport_answer (*submit)(struct transport *transport, struct transport_job *job);
	/* No new slices; those that are out end as soon as they can. Legal more than once. */
	void (*withdraw)(struct transport *transport, struct transport_job *job);
};

struct transport {
	const struct transport_ops *ops;
	enum hf_transport kind;
};

#endif
