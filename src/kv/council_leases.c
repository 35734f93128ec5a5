/* Leases: the leader grants them, and knows when one is over by any clock (R-K21, R-K22). */
#include "kv/council_parts.h"

#include <string.h>

#include "kv/engine.h"

bool kv_council_has_lease(const struct hf_kv *kv)
{
	return hf_env_boot_ns(kv->env) < kv->council.lease_until_ns;
}

uint64_t kv_council_lease_left_ns(const struct hf_kv *kv)
{
	uint64_t now_ns = hf_env_boot_ns(kv->env), until_ns = kv->council.lease_until_ns;

	return now_ns < until_ns ? until_ns - now_ns : 0;
}

void kv_council_take_grant(struct hf_kv *kv, uint64_t asked_ns)
{
	uint64_t until_ns = asked_ns + kv->council.lease_ns;

	if (kv->council.leave != COUNCIL_STAYS)
		return;
	if (asked_ns > hf_env_boot_ns(kv->env))
		return; /* a process asked before this one, in another boot */
	if (until_ns > kv->council.lease_until_ns)
		kv->council.lease_until_ns = until_ns;
	kv_flows_wake(kv, &kv->unleased);
}

void kv_council_leave(struct hf_kv *kv)
{
	struct council *council = &kv->council;

	if (council->leave != COUNCIL_STAYS)
		return;
	council->leave = COUNCIL_DRAINS;
	council->lease_until_ns = 0;
	council->leave_until_ns = hf_loop_now_ns(kv->loop) + council->lease_ns;
}

/* If this member leads the log, the others may not know yet what is decided: the next leader would tell them late. */
static bool all_know(const struct hf_kv *kv, uint64_t now_ns)
{
	for (unsigned i = 0; i < kv->config.member_count; i++)
		if (kv->cm.nodes[i].state == CM_MEMBER && kv_council_is_fresh(kv, i, now_ns) &&
			kv->council.reports[i].epoch < kv->cm.epoch)
			return false;
	return true;
}

/* After a lease at most: that would be over by then as well. */
bool kv_council_has_left(const struct hf_kv *kv)
{
	const struct cm_node *self = &kv->cm.nodes[kv->view.self];
	uint64_t now_ns = hf_loop_now_ns(kv->loop);

	if (kv->council.leave == COUNCIL_STAYS)
		return false;
	return now_ns >= kv->council.leave_until_ns ||
	       ((self->state == CM_ABSENT || self->incarnation != kv->incarnation) && all_know(kv, now_ns));
}

static void grant(struct hf_kv *kv, unsigned node, uint64_t asked_ns)
{
	struct wire_message message = {.kind = WIRE_GRANT, .epoch = kv->epoch, .write = asked_ns};
	const struct council_report *report = &kv->council.reports[node];
	const struct cm_node *known = &kv->cm.nodes[node];

	if (known->state == CM_ABSENT || known->incarnation != report->incarnation || known->suspicion != 0)
		return;
	kv->council.granted_ns[node] = hf_env_boot_ns(kv->env);
	if (node == kv->view.self)
		kv_council_take_grant(kv, asked_ns);
	else
		kv_writes_say(kv, node, &message);
}

static void confirmed(struct hf_smr_call *call)
{
	struct hf_kv *kv = container_of(call, struct hf_kv, council.confirm);
	struct council *council = &kv->council;

	council->confirming = false;
	for (unsigned i = 0; i < kv->config.member_count; i++) {
		uint64_t asked_ns = council->granting_ns[i];

		council->granting_ns[i] = 0;
		if (asked_ns != 0 && call->outcome == HF_SMR_DECIDED && council->leads)
			grant(kv, i, asked_ns);
	}
}

/* The read begins now, after the requests that it stands for came. */
bool kv_council_confirm(struct hf_kv *kv)
{
	struct council *council = &kv->council;
	bool some = false;

	if (council->smr == NULL || !council->leads || council->confirming)
		return false;
	for (unsigned i = 0; i < kv->config.member_count; i++)
		some |= council->asked_ns[i] != 0;
	if (!some)
		return false;
	council->confirm.done = confirmed;
	if (hf_smr_read(council->smr, &council->confirm) != 0)
		return false;
	memcpy(council->granting_ns, council->asked_ns, sizeof(council->granting_ns));
	memset(council->asked_ns, 0, sizeof(council->asked_ns));
	council->confirming = true;
	return true;
}

uint64_t kv_council_lease_over_ns(const struct hf_kv *kv, unsigned node)
{
	const struct council *council = &kv->council;
	uint64_t since_ns = council->granted_ns[node];
	uint64_t wait_ns = council->lease_ns + council->lease_ns * 2 * COUNCIL_CLOCKS_PPM / 1000000 + MS_NS;

	if (since_ns < council->led_ns)
		since_ns = council->led_ns;
	if (council->suspicion[node] != 0 && council->suspected_ns[node] < since_ns)
		since_ns = council->suspected_ns[node];
	return since_ns + wait_ns;
}

bool kv_council_lease_is_over(const struct hf_kv *kv, unsigned node)
{
	return hf_env_boot_ns(kv->env) > kv_council_lease_over_ns(kv, node);
}
