/* evidence.h - what one side knows of the other side's wrs after its fence; STATE of the exchange carries it.
 *
 * It speaks about one qp of the device, not about the vqp: of wrs that were posted to another one it says nothing. */
#ifndef HOLDFAST_VQP_EVIDENCE_H
#define HOLDFAST_VQP_EVIDENCE_H

#include <stdbool.h>
#include <stdint.h>

struct evidence {
	uint32_t rail, qp_num; /* of the qp to which the wrs were posted; qp_num 0: about none */
	bool fenced;           /* nothing executes any more; without it only what did execute is sure */
	bool has_psn;
	uint32_t executed_psn; /* of the first request packet that did not execute */
	uint64_t consumed;     /* messages whose receive completions were harvested, since the vqp was made */
};

#endif
