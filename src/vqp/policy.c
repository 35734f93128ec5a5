/* What becomes of a wr in flight when its path is lost: the paper's baselines (Varuna, section 5.1).
 *
 * `resend` is blind: what executed while its acknowledgement was lost executes again. Only messages that a receive
 * took are known to have arrived, since the receiver's log counts them (R8); sending those again would put every
 * later message into the wrong receive. */
#include "vqp/objects.h"

bool policy_recovers(enum hf_policy policy)
{
	return policy != HF_POLICY_NONE;
}

bool policy_caches(enum hf_policy policy)
{
	return policy == HF_POLICY_RESEND_CACHE;
}

enum verdict policy_verdict(enum hf_policy policy, const struct inflight_wr *entry, const struct message *evidence)
{
	switch (policy) {
	case HF_POLICY_NONE:
	case HF_POLICY_RESEND:
	case HF_POLICY_RESEND_CACHE:
		break;
	}
	return entry->message != 0 && entry->message <= evidence->consumed ? VERDICT_COMPLETE : VERDICT_RESEND;
}
