/* What the paper's baselines (Varuna, section 5.1) do, and what they do not. */
#include "vqp/objects.h"

bool policy_recovers(enum hf_policy policy)
{
	return policy != HF_POLICY_NONE;
}

bool policy_caches(enum hf_policy policy)
{
	return policy == HF_POLICY_RESEND_CACHE;
}
