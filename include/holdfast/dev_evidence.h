/* dev_evidence.h - D3, D4, D4b: the fence of a queue pair, and evidence of its executed operations.
 *
 * Included by dev.h, whose first comment has the promises. */
#ifndef HOLDFAST_DEV_EVIDENCE_H
#define HOLDFAST_DEV_EVIDENCE_H

#include <stdint.h>

#include <infiniband/verbs.h>

struct hf_qp;

/* D3. Moves the qp to ERR, flushes its wrs and fences it. 0: fenced, now or before. -EINPROGRESS: poll and call again.
 * Another errno: the qp cannot be fenced, and requests may still execute. */
int hf_qp_fence(struct hf_qp *qp);

/* D4, after the fence: the psn of the first request packet that did not execute here. -EOPNOTSUPP without D4.
 * -ENODATA: filled, but that one packet may have executed; the packets behind it did not. */
int hf_qp_executed_psn(struct hf_qp *qp, uint32_t *psn_out);

/* D4b, after the fence: newest first; returns how many were filled. -EOPNOTSUPP without D4b. */
struct hf_atomic_result {
	uint32_t psn;
	uint64_t original;
};
int hf_qp_atomic_results(struct hf_qp *qp, struct hf_atomic_result *results_out, unsigned n);

/* After the fence: the request that the responder refused, and its status. The fence may be faster than the NAK, so
 * the requester may not have received it. 1: filled; 0: no request was refused; -EOPNOTSUPP: the device does not
 * report it. */
struct hf_refusal {
	uint32_t psn; /* of its first packet that did not execute */
	enum ibv_wc_status status;
};
int hf_qp_refusal(struct hf_qp *qp, struct hf_refusal *refusal_out);

/* The psn at which the next posted wr starts. With D4, a wr executed when the next psn after it is at or before the
 * executed psn. */
uint32_t hf_qp_next_psn(struct hf_qp *qp);

#endif
