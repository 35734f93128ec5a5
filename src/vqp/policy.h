/* policy.h - the differences between the policies, apart from their verdicts. Pure. */
#ifndef HOLDFAST_VQP_POLICY_H
#define HOLDFAST_VQP_POLICY_H

#include <holdfast/node.h>

const char *policy_name(enum hf_policy policy);
/* What two nodes must have in common to settle anything, in words. */
void policy_terms(const struct hf_node_config *config, char terms_out[HF_NAME_BYTES]);
bool policy_recovers(enum hf_policy policy);
bool policy_caches(enum hf_policy policy);             /* a qp of each vqp on every rail */
bool policy_pools(enum hf_policy policy);              /* standby qps that vqps share */
bool policy_logs(const struct hf_node_config *config); /* completion logs are written */

#endif
