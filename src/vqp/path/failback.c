/* When traffic returns to a better rail: the first in order that both can use, once it has been up for failback_ns
 * without interruption. The way back is the exchange of recovery.h, which falls quiet first (R1). */
#include "vqp/objects.h"

bool failback_due(const struct hf_vqp *vqp, uint64_t now_ns)
{
	int best;

	if (vqp->state != HF_VQP_UP || vqp->forsaken || vqp->lane >= 0 || vqp->path->qp == NULL ||
		!vqp->recovery.picks || !policy_recovers(vqp->node->config.policy))
		return false;
	best = rail_choose(home_rails(vqp, peer_usable(vqp->peer)));
	if (best > (int)vqp->path->rail)
		return true; /* where atomics are done: not better, but needed */
	/* On a standby qp messages wait for a dedicated one on this rail. A better rail that does not keep what it
	 * promises would have them wait without end, so it has its turn after that. */
	return best >= 0 && best < (int)vqp->path->rail && vqp->path->shared == NULL &&
	       now_ns - vqp->peer->rails[best].up_since_ns >= vqp->node->config.failback_ns;
}
