/* How a vqp moves between the states that its program sees, and how it fails. */
#include "base/ensure.h"
#include "vqp/atomic/uid_post.h"
#include "vqp/objects.h"

#define BIT(n) (1u << (n))

static const unsigned vqp_allowed[HF_VQP_STATES] = {
	[HF_VQP_INIT] = BIT(HF_VQP_CONNECTING) | BIT(HF_VQP_ERROR),
	[HF_VQP_CONNECTING] = BIT(HF_VQP_UP) | BIT(HF_VQP_ERROR),
	[HF_VQP_UP] = BIT(HF_VQP_UP) | BIT(HF_VQP_RECOVERING) | BIT(HF_VQP_ERROR),
	[HF_VQP_RECOVERING] = BIT(HF_VQP_UP) | BIT(HF_VQP_ERROR),
	[HF_VQP_ERROR] = BIT(HF_VQP_INIT), /* hf_vqp_reset */
};

void vqp_move(struct hf_vqp *vqp, enum hf_vqp_state to)
{
	ensure(vqp_allowed[vqp->state] & BIT(to));
	vqp->state = to;
	vqp->begun = vqp->begun || to == HF_VQP_CONNECTING;
	if (to == HF_VQP_UP && vqp->changed != NULL)
		vqp->changed(vqp, vqp->context);
}

/* What only the responder says. */
static bool is_refusal(enum ibv_wc_status status)
{
	return status == IBV_WC_REM_ACCESS_ERR || status == IBV_WC_REM_INV_REQ_ERR || status == IBV_WC_REM_OP_ERR ||
	       status == IBV_WC_RNR_RETRY_EXC_ERR;
}

/* Its wrs complete once the qp is fenced (V4); `changed` is called then, and the other side told. */
void vqp_fail(struct hf_vqp *vqp, enum ibv_wc_status first, enum ibv_wc_status rest, bool tell)
{
	if (vqp->state == HF_VQP_ERROR)
		return;
	end_for_status(vqp, first);
	vqp_move(vqp, HF_VQP_ERROR);
	region_leave(vqp);
	vqp->fail_tell = tell;
	vqp->end = (struct request_log_end){.first = first, .rest = rest, .refused = is_refusal(first)};
	vqp->failing = true;
	vqp->path.broken = true;
	marks_fence(vqp);
}

void vqp_abort(struct hf_vqp *vqp, enum ibv_wc_status first, enum ibv_wc_status rest)
{
	if (vqp->state == HF_VQP_ERROR)
		return;
	vqp->fail_asks = vqp->peer != NULL && !post_quiet(vqp);
	vqp_fail(vqp, first, rest, true);
}
