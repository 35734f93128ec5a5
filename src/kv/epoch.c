/* Installing an epoch: what the log of the members has decided becomes what this one acts on. */
#include <inttypes.h>
#include <string.h>

#include "base/log.h"
#include "kv/engine.h"

static const char *const state_names[CM_NODE_STATES] = {"absent", "a shadow", "a member"};

/* All that this node had begun is forgotten: the others go on without it. */
static void leave(struct hf_kv *kv)
{
	kv->counters.excluded++;
	if (kv->council.leave == COUNCIL_STAYS)
		log_warn(
			"kv: %s was excluded from its cluster; it joins again", kv->config.members[kv->view.self].name);
	else
		log_info("kv: %s has left its cluster", kv->config.members[kv->view.self].name);
	kv_flows_forget(kv);
	if (!kv_doubts_forget(kv))
		kv->complete = 0;
	kv_copy_forget(kv);
	kv_recovery_stopped(&kv->recovery);
	memset(kv->missed.from, 0, sizeof(kv->missed.from));
}

/* A cold start makes members of those whose stores are whole; others come in as shadows. */
static void enter(struct hf_kv *kv)
{
	if (!kv->member) {
		kv_recovery_admitted(&kv->recovery, kv->epoch, hf_loop_now_ns(kv->loop));
		kv_copy_begin(kv);
	} else if (kv_doubts_replay(kv))
		kv->complete = kv->view.join;
	else
		kv_epoch_fail(kv);
}

/* Members that went after that epoch, the last one that was installed here or in which this node joined: what they may
 * lack begins with what is not known to be everywhere now (R-K11). A shadow notes it too: it has every write of the
 * epoch that they left, and what it is yet to get comes behind. */
static void note_absences(struct hf_kv *kv, uint64_t since)
{
	uint64_t oldest = kv_writes_oldest(kv);

	for (unsigned i = 0; i < kv->config.member_count; i++) {
		const struct cm_node *node = &kv->installed.nodes[i];

		if (node->state == CM_MEMBER) {
			kv->missed.from[i] = 0;
			if (kv->council.reports[i].incarnation == node->incarnation)
				kv->council.reports[i].told = (struct told){0}; /* its earlier log no longer counts */
		} else if (node->absent_since > since)
			kv->missed.from[i] = oldest;
	}
}

static void log_epoch(const struct hf_kv *kv)
{
	log_info("kv: epoch %" PRIu64 ": members 0x%x, shadows 0x%x; %s is %s", kv->epoch, kv_cm_in(&kv->cm, CM_MEMBER),
		kv_cm_in(&kv->cm, CM_SHADOW), kv->config.members[kv->view.self].name,
		state_names[kv->live ? kv->cm.nodes[kv->view.self].state : CM_ABSENT]);
}

bool kv_epoch_install(struct hf_kv *kv)
{
	const struct cm_node *self = &kv->cm.nodes[kv->view.self];
	bool was_live = kv->live, was_member = kv->member, same = self->join == kv->view.join;
	uint64_t before = kv->epoch;

	/* A replica of the membership log that begins anew in this process brings what it has of the past first. */
	if (kv->cm.epoch <= kv->epoch || kv->failed)
		return false;
	kv->installed = kv->cm;
	kv->epoch = kv->cm.epoch;
	kv->live = self->state != CM_ABSENT && self->incarnation == kv->incarnation;
	kv->member = kv->live && self->state == CM_MEMBER;
	kv->view.live = kv_cm_live(&kv->cm);
	if (kv->live || was_live) /* else it reads what the log of the members has of the past */
		log_epoch(kv);
	if (was_live && !(kv->live && same))
		leave(kv);
	if (kv->live)
		kv_durable_begin_anew(kv);
	kv->view.join = self->join;

	if (kv->live && !(was_live && same))
		enter(kv);
	if (kv->live)
		note_absences(kv, was_live && same ? before : kv->view.join);
	kv_durable_epoch(kv);
	if (kv->live && was_live && same)
		kv_writes_install(kv);
	if (kv->member && !was_member)
		kv_copy_promoted(kv);
	kv_copy_installed(kv);
	kv_purge_installed(kv);
	kv_flows_wake(kv, &kv->unleased);
	kv_flows_wake(kv, &kv->stopped);
	kv_link_pool_rehear(&kv->links);
	kv_council_hurry(kv);
	return true;
}

void kv_epoch_fail(struct hf_kv *kv)
{
	if (kv->failed)
		return;
	kv->failed = true;
	kv->live = kv->member = false;
	kv_flows_forget(kv);
	(void)kv_doubts_forget(kv);
	kv_copy_forget(kv);
}
