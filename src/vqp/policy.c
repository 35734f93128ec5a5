/* What the paper's baselines (Varuna, section 5.1) do, and what they do not. */
#include "vqp/policy.h"

#include <stdio.h>

const char *policy_name(enum hf_policy policy)
{
	switch (policy) {
	case HF_POLICY_NONE:
		return "none";
	case HF_POLICY_RESEND:
		return "resend";
	case HF_POLICY_RESEND_CACHE:
		return "resend-cache";
	case HF_POLICY_VARUNA:
		return "varuna";
	}
	return "unknown";
}

void policy_terms(const struct hf_node_config *config, char terms_out[HF_NAME_BYTES])
{
	static const char *const evidence[] = {
		[HF_EVIDENCE_BOTH] = "both", [HF_EVIDENCE_PSN] = "psn", [HF_EVIDENCE_LOG] = "log"};

	if (config->policy == HF_POLICY_VARUNA)
		snprintf(terms_out, HF_NAME_BYTES, "%s by %s", policy_name(config->policy), evidence[config->evidence]);
	else
		snprintf(terms_out, HF_NAME_BYTES, "%s", policy_name(config->policy));
}

bool policy_recovers(enum hf_policy policy)
{
	return policy != HF_POLICY_NONE;
}

bool policy_pools(enum hf_policy policy)
{
	return policy == HF_POLICY_VARUNA;
}

bool policy_caches(enum hf_policy policy)
{
	return policy == HF_POLICY_RESEND_CACHE;
}

bool policy_logs(const struct hf_node_config *config)
{
	return config->policy == HF_POLICY_VARUNA && config->evidence != HF_EVIDENCE_PSN;
}
