/* What this side knows after its fence of what the other side's wrs did here: STATE of the exchange. */
#include "vqp/objects.h"

void evidence_gather(struct hf_vqp *vqp, bool fenced, struct message *state)
{
	uint32_t psn;

	state->fenced = fenced;
	state->consumed = vqp->consumed;
	if (vqp->path.qp != NULL && fenced && hf_qp_executed_psn(vqp->path.qp, &psn) == 0) {
		state->has_psn = 1;
		state->executed_psn = psn;
	}
}
