/* Lanes: vqps that are pinned to one rail, and hand back what they have when that is lost (docs/transfer.md).
 *
 *   either end                          the other
 *     | FENCE(e) -------------------------> |   the path broke, or hf_vqp_withdraw
 *     |  fence, drain                       |  fence, drain
 *     | STATE(e) ------------------------>  |
 *     | <------------------------ STATE(e)  |
 *     verdicts: what executed is completed, the rest ends as not executed; both vqps are in error
 *
 * It is the exchange of recovery.h up to the verdicts, and no GO follows. So neither end may have a standby qp, a
 * backup on another rail, or a fail-back; and pauses of the rail, which are for choosing among rails, do not count.
 * A peer that does not answer has fenced itself when its lease is over (R5): that is the budget of the exchange. */
#include "vqp/objects.h"

#include <errno.h>

#include "base/log.h"

uint32_t hand_back_usable(const struct hf_vqp *vqp)
{
	if (vqp->lane < 0)
		return peer_usable(vqp->peer);
	return peer_ports_up(vqp->peer, (unsigned)vqp->lane) ? 1u << vqp->lane : 0;
}

uint64_t hand_back_budget_ns(const struct hf_vqp *vqp)
{
	const struct hf_node_config *config = &vqp->node->config;

	return vqp->lane < 0 ? config->budget_ns : lease_with_margin(config->lease_ns);
}

bool hand_back_agrees(const struct hf_vqp *vqp, const struct hf_peer *peer, uint8_t theirs)
{
	return theirs == 0 ? vqp->lane < 0 : vqp->lane >= 0 && vqp->lane == peer_our_rail(peer, (uint8_t)(theirs - 1));
}

bool hand_back_is_due(const struct hf_vqp *vqp)
{
	return vqp->lane >= 0 && vqp->recovery.epoch > 1; /* the first exchange finds the path */
}

void hand_back(struct hf_vqp *vqp)
{
	enum ibv_wc_status refused = request_log_refused(&vqp->sends);

	if (refused != IBV_WC_SUCCESS)
		end_for_program(vqp, refused);
	end_for_port(vqp);
	end_for(vqp, HF_VQP_END_PEER); /* this side knows of nothing */
	log_debug("vqp %u: rail %s is lost; wrs that did not execute are handed back", vqp->num,
		hf_node_rail_name(vqp->node, (unsigned)vqp->lane));
	vqp_fail(vqp, refused != IBV_WC_SUCCESS ? refused : IBV_WC_RETRY_EXC_ERR, IBV_WC_WR_FLUSH_ERR, true);
}

int hf_vqp_withdraw(struct hf_vqp *vqp)
{
	if (vqp->lane < 0)
		return -EINVAL;
	if (vqp->state == HF_VQP_ERROR)
		return 0;
	end_for(vqp, HF_VQP_END_ASKED);
	if (vqp->state == HF_VQP_INIT || vqp->state == HF_VQP_CONNECTING)
		vqp_abort(vqp, IBV_WC_WR_FLUSH_ERR, IBV_WC_WR_FLUSH_ERR);
	else
		marks_broken(vqp);
	return 0;
}
