/* Why a vqp ended. The first reason that is noted stays, except that a broken path is said more exactly once a port is
 * known to be down. */
#include "vqp/objects.h"

#include "vqp/data/wc_kind.h"

void end_for(struct hf_vqp *vqp, enum hf_vqp_end why)
{
	if (vqp->ended_for == HF_VQP_END_NONE)
		vqp->ended_for = why;
}

void end_for_program(struct hf_vqp *vqp, enum ibv_wc_status status)
{
	if (vqp->ended_for != HF_VQP_END_NONE)
		return;
	vqp->ended_for = HF_VQP_END_PROGRAM;
	vqp->ended_with = status;
}

static enum hf_vqp_end what_broke(const struct hf_vqp *vqp, unsigned rail)
{
	const struct node_rail *ours = &vqp->node->rails[rail];
	const struct hf_peer *peer = vqp->peer;

	if (ours->fatal)
		return HF_VQP_END_DEVICE;
	if (!ours->up)
		return HF_VQP_END_PORT_HERE;
	if (peer != NULL && peer->rail_map[rail] >= 0 && (peer->remote_up & 1u << peer->rail_map[rail]) == 0)
		return HF_VQP_END_PORT_THERE;
	return HF_VQP_END_PATH;
}

static bool may_be_said_more_exactly(const struct hf_vqp *vqp)
{
	return vqp->ended_for == HF_VQP_END_NONE || vqp->ended_for == HF_VQP_END_PATH;
}

void end_for_path(struct hf_vqp *vqp)
{
	if (may_be_said_more_exactly(vqp))
		vqp->ended_for = what_broke(vqp, vqp->lane >= 0 ? (unsigned)vqp->lane : vqp->path->rail);
}

void end_for_port(struct hf_vqp *vqp)
{
	enum hf_vqp_end what = what_broke(vqp, (unsigned)vqp->lane);

	if (what != HF_VQP_END_PATH && may_be_said_more_exactly(vqp))
		vqp->ended_for = what;
}

void end_for_status(struct hf_vqp *vqp, enum ibv_wc_status status)
{
	switch (wc_kind_of(status, true)) {
	case WC_PROGRAM:
		end_for_program(vqp, status);
		break;
	case WC_PATH:
		if (vqp->ended_for == HF_VQP_END_NONE)
			end_for_path(vqp);
		break;
	case WC_FLUSH:
	case WC_OK:
		end_for(vqp, HF_VQP_END_PEER);
		break;
	}
}

enum hf_vqp_end hf_vqp_end(const struct hf_vqp *vqp, enum ibv_wc_status *status_out)
{
	bool ended = vqp->state == HF_VQP_ERROR;

	if (status_out != NULL)
		*status_out = ended ? vqp->ended_with : IBV_WC_SUCCESS;
	return ended ? vqp->ended_for : HF_VQP_END_NONE;
}
