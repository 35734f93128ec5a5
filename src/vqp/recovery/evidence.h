/* evidence.h - one side's evidence of the other side's wrs after its fence; STATE of the exchange carries it.
 *
 * It belongs to one qp of the device, or one destination of a DC initiator, not to the vqp: it is no evidence about wrs
 * that were posted to another one. */
#ifndef HOLDFAST_VQP_RECOVERY_EVIDENCE_H
#define HOLDFAST_VQP_RECOVERY_EVIDENCE_H

#include <holdfast/dev.h>

#define EVIDENCE_ATOMICS 16u /* what qps are made with: max_dest_rd_atomic */

struct evidence {
	uint32_t rail, qp_num; /* of the path on which the wrs were posted, by its our_key; 0: about none */
	bool fenced;           /* nothing executes any more; without it only what did execute is sure */
	bool has_psn;
	uint32_t executed_psn;     /* of the first request packet that did not execute */
	bool in_doubt;             /* whether that one did is not known, only what is behind it did not */
	struct hf_refusal refusal; /* the request that the responder refused; status 0: none recorded */
	unsigned atomic_count;
	struct hf_atomic_result atomics[EVIDENCE_ATOMICS]; /* newest first */
	bool has_log;
	uint32_t log_number; /* the newest entry of the completion log, and where it is; log_entry 0: there is none */
	uint64_t log_entry;
	bool ended_there;       /* theirs could not: of a wr, bytes may be in memory and its footer not */
	bool no_replay;         /* what did not execute, or may have, is not sent again (hand_back.c; policy `none`) */
	bool answers_unsure;    /* what our own device took to be an answer may never have landed */
	uint32_t grant, access; /* what that side grants now (R13) */
	bool resumes;           /* a WRITE_WITH_IMM of that side may go on in its middle */
	uint64_t consumed;      /* messages with a polled receive completion, since the vqp was made */
};

#endif
