#include "kv/recovery.h"

void kv_recovery_admitted(struct recovery *recovery, uint64_t epoch, uint64_t now_ns)
{
	recovery->running = true;
	recovery->epoch = epoch;
	recovery->admitted_ns = now_ns;
	recovery->asked_ns = recovery->answered_ns = 0;
}

void kv_recovery_asked(struct recovery *recovery, uint64_t now_ns)
{
	recovery->asked_ns = now_ns;
	recovery->answered_ns = 0;
}

void kv_recovery_answered(struct recovery *recovery, uint64_t now_ns)
{
	if (recovery->answered_ns == 0)
		recovery->answered_ns = now_ns;
}

void kv_recovery_stopped(struct recovery *recovery)
{
	recovery->running = false;
}

void kv_recovery_ended(struct recovery *recovery, const struct hf_kv_recovery_status *how, uint64_t now_ns)
{
	struct hf_kv_recovery_status *ended = &recovery->ended[recovery->count % HF_KV_RECOVERIES_KEPT];

	if (!recovery->running || recovery->answered_ns == 0)
		return; /* this process was not admitted: it founded the cluster */
	*ended = *how;
	ended->epoch = recovery->epoch;
	ended->start_to_ack_ns = recovery->asked_ns - recovery->admitted_ns;
	ended->catch_up_to_resp_ns = recovery->answered_ns - recovery->asked_ns;
	ended->apply_to_end_ns = now_ns - recovery->answered_ns;
	recovery->count++;
	recovery->running = false;
}

unsigned kv_recovery_list(const struct recovery *recovery, struct hf_kv_recovery_status list_out[HF_KV_RECOVERIES_KEPT])
{
	unsigned n = recovery->count < HF_KV_RECOVERIES_KEPT ? recovery->count : HF_KV_RECOVERIES_KEPT;

	for (unsigned i = 0; i < n; i++)
		list_out[i] = recovery->ended[(recovery->count - 1 - i) % HF_KV_RECOVERIES_KEPT];
	return n;
}
