/* How a vqp moves between the states that its program sees, and how it fails. */
#include "base/states.h"
#include "vqp/atomic/uid_post.h"
#include "vqp/data/wc_kind.h"
#include "vqp/objects.h"

static const struct state vqp_states[HF_VQP_STATES] = {
	[HF_VQP_INIT] = {"init", BIT(HF_VQP_CONNECTING) | BIT(HF_VQP_ERROR)},
	[HF_VQP_CONNECTING] = {"connecting", BIT(HF_VQP_UP) | BIT(HF_VQP_ERROR)},
	[HF_VQP_UP] = {"up", BIT(HF_VQP_UP) | BIT(HF_VQP_RECOVERING) | BIT(HF_VQP_ERROR)},
	[HF_VQP_RECOVERING] = {"recovering", BIT(HF_VQP_UP) | BIT(HF_VQP_ERROR)},
	[HF_VQP_ERROR] = {"error", BIT(HF_VQP_INIT)}, /* hf_vqp_reset */
};

void vqp_move(struct hf_vqp *vqp, enum hf_vqp_state to)
{
	states_move("vqp", vqp_states, &vqp->state, to, "%u", vqp->num);
	vqp->begun = vqp->begun || to == HF_VQP_CONNECTING;
	if (to == HF_VQP_UP && vqp->changed != NULL)
		vqp->changed(vqp, vqp->context);
}

/* Its wrs complete once the qp is fenced (V4); `changed` is called then, and the other side told. */
static void fail(struct hf_vqp *vqp, struct request_log_end wrs, enum ending_state next, bool tell)
{
	if (vqp->state == HF_VQP_ERROR)
		return;
	end_for_status(vqp, wrs.first);
	vqp_move(vqp, HF_VQP_ERROR);
	wrs.refused = wc_kind_is_refusal(wrs.first);
	vqp->ending.wrs = wrs;
	ending_begin(&vqp->ending, next, tell);
	vqp->path_broken = true;
	marks_fence(vqp);
}

void vqp_fail(struct hf_vqp *vqp, enum ibv_wc_status first, enum ibv_wc_status rest, bool tell)
{
	fail(vqp, (struct request_log_end){.first = first, .rest = rest}, ENDING_OVER, tell);
}

void vqp_fail_with_lease(struct hf_vqp *vqp, enum ibv_wc_status first, enum ibv_wc_status rest)
{
	fail(vqp, (struct request_log_end){.first = first, .rest = rest}, ENDING_LEASE, true);
}

void vqp_fail_alone(struct hf_vqp *vqp, enum ibv_wc_status first, enum ibv_wc_status rest, bool lease)
{
	fail(vqp, (struct request_log_end){.first = first, .rest = rest}, lease ? ENDING_LEASE : ENDING_OVER, false);
}

/* READs end here: what is read for them over there changes nothing, and its answers do not land. */
void vqp_abort(struct hf_vqp *vqp, enum ibv_wc_status first, enum ibv_wc_status rest)
{
	bool waits = post_may_execute(vqp);

	if (waits && vqp->peer == NULL)
		vqp_fail_alone(vqp, first, rest, true);
	else
		fail(vqp, (struct request_log_end){.first = first, .rest = rest}, waits ? ENDING_ANSWER : ENDING_OVER,
			true);
}
