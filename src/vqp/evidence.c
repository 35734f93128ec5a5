#include "vqp/objects.h"

void evidence_gather(const struct hf_vqp *vqp, bool fenced, struct message *state)
{
	uint32_t psn;

	state->fenced = fenced;
	state->consumed = vqp->consumed;
	state->about_rail = (uint8_t)vqp->path.rail;
	state->about_qp = vqp->path.dest_qp_num;
	if (fenced && vqp->path.qp != NULL && hf_qp_executed_psn(vqp->path.qp, &psn) == 0) {
		state->has_psn = 1;
		state->executed_psn = psn;
	}
}

struct evidence evidence_of(const struct message *state, int our_rail)
{
	return (struct evidence){
		.rail = (uint32_t)our_rail,
		.qp_num = our_rail < 0 ? 0 : state->about_qp,
		.fenced = state->fenced != 0,
		.has_psn = state->has_psn != 0,
		.executed_psn = state->executed_psn,
		.consumed = state->consumed,
	};
}
