/* What the leader decides next by the latest reports: begin, suspect, exclude, clear, admit, promote. */
#include "kv/council_parts.h"

#include <inttypes.h>

#include "base/log.h"
#include "kv/engine.h"

static bool suspects(const struct hf_kv *kv, unsigned node, unsigned other, uint64_t now_ns)
{
	return kv_council_is_fresh(kv, node, now_ns) && (kv->council.reports[node].note & 1u << other) != 0;
}

/* From how many of the live members it is cut off, in one direction at least. */
static unsigned cut_off(const struct hf_kv *kv, unsigned node, uint64_t now_ns)
{
	uint32_t live = kv_cm_live(&kv->cm);
	unsigned votes = 0;

	for (unsigned i = 0; i < kv->config.member_count; i++)
		if (i != node && (live & 1u << i) != 0 &&
			(suspects(kv, i, node, now_ns) || suspects(kv, node, i, now_ns)))
			votes++;
	return votes;
}

/* It has asked to be excluded. */
static bool leaves(const struct hf_kv *kv, unsigned node, uint64_t now_ns)
{
	const struct council_report *report = &kv->council.reports[node];

	return kv_council_is_fresh(kv, node, now_ns) && report->incarnation == kv->cm.nodes[node].incarnation &&
	       (report->note & WIRE_NOTE_LEAVES) != 0;
}

/* Its process has no lease that counts: it gave it up, or it has ended, because the next one holds the lock. A lock of
 * another boot, or of a copy of the files, proves nothing (R-D10). */
static bool has_no_lease(const struct hf_kv *kv, unsigned node, uint64_t now_ns)
{
	const struct council_report *report = &kv->council.reports[node];

	return leaves(kv, node, now_ns) ||
	       (kv_council_is_fresh(kv, node, now_ns) && report->incarnation != kv->cm.nodes[node].incarnation &&
		       report->kept.incarnation == kv->cm.nodes[node].incarnation &&
		       (report->note & WIRE_NOTE_ENDED) != 0);
}

/* Whether those that stay are enough for the log of the members. If more leave, they remain members, and begin again
 * together. */
static bool enough_stay(const struct hf_kv *kv, uint64_t now_ns)
{
	unsigned stay = 0;

	for (unsigned i = 0; i < kv->config.member_count; i++)
		stay += kv->cm.nodes[i].state == CM_MEMBER && kv_council_is_fresh(kv, i, now_ns) &&
			!leaves(kv, i, now_ns);
	return stay > kv->config.member_count / 2;
}

/* A process that was replaced is given up by all; one that does not follow the log too, for it acknowledges nothing. */
static unsigned votes_against(const struct hf_kv *kv, unsigned node, uint64_t now_ns)
{
	const struct council_report *report = &kv->council.reports[node];

	if (kv_council_is_fresh(kv, node, now_ns) &&
		(report->incarnation != kv->cm.nodes[node].incarnation ||
			(report->epoch < kv->cm.epoch &&
				now_ns > kv->council.decided_ns + COUNCIL_INSTALL_LEASES * kv->council.lease_ns)))
		return HF_KV_MEMBERS_MAX;
	if (leaves(kv, node, now_ns) && enough_stay(kv, now_ns))
		return HF_KV_MEMBERS_MAX;
	return cut_off(kv, node, now_ns);
}

/* Whether a member that the leader hears is left without it: one that is heard is never given up for those that are
 * not. */
static bool is_spare(const struct hf_kv *kv, unsigned node, uint64_t now_ns)
{
	for (unsigned i = 0; i < kv->config.member_count; i++)
		if (i != node && kv->cm.nodes[i].state == CM_MEMBER && kv_council_is_fresh(kv, i, now_ns) &&
			kv->council.reports[i].incarnation == kv->cm.nodes[i].incarnation)
			return true;
	return false;
}

/* The live member to be excluded next; -1: none. Of two the one that is not heard, then the later in the list. */
static int find_lost(const struct hf_kv *kv, uint64_t now_ns)
{
	uint32_t live = kv_cm_live(&kv->cm);
	unsigned most = 0;
	int lost = -1;

	for (unsigned i = 0; i < kv->config.member_count; i++) {
		unsigned votes = (live & 1u << i) == 0 ? 0 : votes_against(kv, i, now_ns);

		if (votes == 0 || !is_spare(kv, i, now_ns))
			continue;
		votes = 2 * votes + !kv_council_is_fresh(kv, i, now_ns);
		if (votes >= most) {
			most = votes;
			lost = (int)i;
		}
	}
	return lost;
}

/* An exclusion is due when the lease is over, and waits for no heartbeat. */
static void look_again(struct hf_kv *kv, unsigned node, uint64_t now_ns)
{
	uint64_t boot_ns = hf_env_boot_ns(kv->env), over_ns = kv_council_lease_over_ns(kv, node);

	kv->council.look_ns = now_ns + 1 + (over_ns > boot_ns ? over_ns - boot_ns : 0);
}

/* All members of the last epoch founded the cluster, and ended before their logs said so. A write is answered when it
 * is in the log of each, behind that: none was. */
static bool all_are_new(const struct hf_kv *kv, uint64_t now_ns)
{
	for (unsigned i = 0; i < kv->config.member_count; i++)
		if (kv->cm.nodes[i].state == CM_MEMBER &&
			(!kv_council_is_fresh(kv, i, now_ns) || (kv->council.reports[i].note & WIRE_NOTE_NEW) == 0))
			return false;
	return true;
}

/* Its log lacks its last process that was a member, or a part of it that the process had reported (R-K25). */
static bool is_older(const struct hf_kv *kv, unsigned node, uint64_t now_ns)
{
	const struct told *kept = &kv->council.reports[node].kept;

	if (kv_told_lacks(kept, kv->cm.nodes[node].incarnation))
		return true;
	for (unsigned i = 0; i < kv->config.member_count; i++)
		if (kv_council_is_fresh(kv, i, now_ns) &&
			kv_told_is_behind(kept, &kv->council.reports[i].told_by[node]))
			return true;
	return false;
}

static void log_older(struct hf_kv *kv, unsigned node)
{
	const char *name = kv->config.members[node].name;

	if ((kv->council.older & 1u << node) == 0)
		log_error("kv: the log of %s is an older copy: it ends before a state that %s had reported; it copies "
			  "all records from the members that begin. If none begins, restore the last log of %s",
			name, name, name);
	kv->council.older |= 1u << node;
}

/* Its report names the process of an epoch before: it may have the last one, and reports that when it has caught up. */
static bool lags(const struct hf_kv *kv, unsigned node)
{
	const struct council_report *report = &kv->council.reports[node];

	return report->epoch < kv->cm.epoch && report->kept.incarnation != kv->cm.nodes[node].incarnation;
}

static uint32_t lagging_now(const struct hf_kv *kv, uint64_t now_ns)
{
	uint32_t bits = 0;

	for (unsigned i = 0; i < kv->config.member_count; i++)
		if (kv_council_is_fresh(kv, i, now_ns) && lags(kv, i))
			bits |= 1u << i;
	return bits;
}

static void log_lagging(struct hf_kv *kv, unsigned node)
{
	const char *name = kv->config.members[node].name;

	if ((kv->council.lagging & 1u << node) == 0)
		log_warn("kv: the membership log of %s lags: it has epoch %" PRIu64 " of %" PRIu64 "; %s joins when it "
			 "has caught up. If it does not, restart %s",
			name, kv->council.reports[node].epoch, kv->cm.epoch, name, name);
	kv->council.lagging |= 1u << node;
}

/* A member of the last epoch has all that was answered, if its store is whole, and its log is no older copy. */
static bool may_begin(struct hf_kv *kv, unsigned node, bool again, uint64_t now_ns)
{
	const struct cm_node *last = &kv->cm.nodes[node];

	if (kv->cm.epoch == 0)
		return true;
	if (last->state != CM_MEMBER || (!again && kv->council.reports[node].complete < last->member_join))
		return false;
	if (again || !is_older(kv, node, now_ns))
		return true;
	if (lags(kv, node))
		log_lagging(kv, node);
	else
		log_older(kv, node);
	return false;
}

static bool make_present(struct hf_kv *kv, uint64_t now_ns, struct cm_entry *entry)
{
	bool again = all_are_new(kv, now_ns);

	for (unsigned i = 0; i < kv->config.member_count; i++) {
		entry->incarnation[i] = kv->council.reports[i].incarnation;
		if (kv_council_is_fresh(kv, i, now_ns) && may_begin(kv, i, again, now_ns))
			entry->present |= (uint8_t)(1u << i);
	}
	entry->kind = CM_COLD;
	kv->council.lagging &= lagging_now(kv, now_ns);
	if (entry->present == 0 && kv->council.lagging != 0)
		return false;
	if (entry->present == 0 && !kv->council.hopeless)
		log_error("kv: no connected member has all records; restore one of the last members with its log, or "
			  "stop all members, remove their logs, and start empty");
	kv->council.hopeless = entry->present == 0;
	return entry->present != 0;
}

/* All are there, and none has been a member before. */
static bool make_cold(struct hf_kv *kv, uint64_t now_ns, struct cm_entry *entry)
{
	bool begun = false;

	for (unsigned i = 0; i < kv->config.member_count; i++) {
		if (!kv_council_is_fresh(kv, i, now_ns))
			return false;
		/* What was lost is no new store (R-D5). */
		begun |= kv->council.reports[i].complete != 0 ||
			 (kv->log.env != NULL && (kv->council.reports[i].note & WIRE_NOTE_NEW) == 0);
	}
	if (!begun)
		return make_present(kv, now_ns, entry);
	if (!kv->council.hopeless)
		log_error("kv: members have records, or had them, but no list of the last members; restore the "
			  "directories "
			  "`members` in their logs, or stop all members, remove their logs, and start empty");
	kv->council.hopeless = true;
	return false;
}

/* Every member ended, and the list of members is still known: those that come back are members again. The others are
 * waited for, because what they have in doubt may be newer; not for ever. One that is silent for its disk lives. */
static bool make_anew(struct hf_kv *kv, uint64_t now_ns, struct cm_entry *entry)
{
	const struct council *council = &kv->council;
	bool all = true;

	if (council->silent)
		return false;
	for (unsigned i = 0; i < kv->config.member_count; i++) {
		const struct cm_node *node = &kv->cm.nodes[i];

		if (node->state != CM_MEMBER)
			continue;
		if (!kv_council_lease_is_over(kv, i) ||
			(kv_council_is_fresh(kv, i, now_ns) && council->reports[i].incarnation == node->incarnation))
			return false;
		/* Before it follows the log of the members, it cannot report what its last process had. */
		all &= kv_council_is_fresh(kv, i, now_ns) && council->reports[i].epoch == kv->cm.epoch;
	}
	return (all || (now_ns > council->decided_ns + council->cold_wait_ns &&
			       hf_env_boot_ns(kv->env) > council->led_ns + council->cold_wait_ns)) &&
	       make_present(kv, now_ns, entry);
}

static bool is_reached(const struct hf_kv *kv, unsigned node, uint64_t now_ns)
{
	return kv_council_is_fresh(kv, node, now_ns) && cut_off(kv, node, now_ns) == 0;
}

/* Whether its process is the one that counts in the log of the members. Until then the log lacks it: if another member
 * died, that could be too many. */
static bool is_voter(const struct hf_kv *kv, unsigned node)
{
	struct hf_smr_status status;

	hf_smr_status(kv->council.smr, &status);
	for (unsigned i = 0; i < status.member_count; i++)
		if (status.members[i].id == node)
			return status.members[i].voter && status.members[i].alive;
	return false;
}

static void fill_node(const struct hf_kv *kv, unsigned node, enum cm_kind kind, struct cm_entry *entry)
{
	const struct cm_node *known = &kv->cm.nodes[node];

	entry->kind = kind;
	entry->node = (uint8_t)node;
	entry->incarnation[node] = known->incarnation;
	entry->suspicion = kind == CM_SUSPECT ? kv->cm.suspicions + 1 : known->suspicion;
}

/* Of the one that is lost, and of those that are so no more. */
static bool make_suspicion(struct hf_kv *kv, int lost, uint64_t now_ns, struct cm_entry *entry)
{
	if (lost >= 0 && (kv->cm.nodes[lost].suspicion == 0 || kv_council_lease_is_over(kv, (unsigned)lost) ||
				 has_no_lease(kv, (unsigned)lost, now_ns))) {
		fill_node(kv, (unsigned)lost, kv->cm.nodes[lost].suspicion == 0 ? CM_SUSPECT : CM_EXCLUDE, entry);
		return true;
	}
	if (lost >= 0)
		look_again(kv, (unsigned)lost, now_ns);
	for (unsigned i = 0; i < kv->config.member_count; i++)
		if ((int)i != lost && kv->cm.nodes[i].suspicion != 0 && kv->council.reports[i].returned &&
			kv_council_is_fresh(kv, i, now_ns)) {
			fill_node(kv, i, CM_CLEAR, entry);
			return true;
		}
	return false;
}

/* What is to be decided next; false: nothing. */
static bool make_entry(struct hf_kv *kv, uint64_t now_ns, struct cm_entry *entry)
{
	int lost = find_lost(kv, now_ns);

	*entry = (struct cm_entry){.epoch = kv->cm.epoch};
	if (kv->cm.epoch == 0)
		return make_cold(kv, now_ns, entry);
	if (make_anew(kv, now_ns, entry))
		return true;
	*entry = (struct cm_entry){.epoch = kv->cm.epoch};
	if (make_suspicion(kv, lost, now_ns, entry))
		return true;
	for (unsigned i = 0; i < kv->config.member_count; i++) {
		const struct council_report *report = &kv->council.reports[i];
		const struct cm_node *node = &kv->cm.nodes[i];

		if (!is_reached(kv, i, now_ns) || node->state == CM_MEMBER || (report->note & WIRE_NOTE_LEAVES) != 0)
			continue;
		/* Until it follows the log it would acknowledge nothing. */
		if (node->state == CM_ABSENT && report->epoch != kv->cm.epoch)
			continue;
		if (node->state == CM_ABSENT && !is_voter(kv, i)) {
			kv->council.look_ns = now_ns + MS_NS; /* no message comes with the vote */
			continue;
		}
		if (node->state == CM_SHADOW && ((report->note & WIRE_NOTE_COPIED) == 0 || report->epoch < node->join))
			continue;
		entry->kind = node->state == CM_ABSENT ? CM_ADMIT : CM_PROMOTE;
		entry->node = (uint8_t)i;
		entry->incarnation[i] = report->incarnation;
		return true;
	}
	return false;
}

static void proposed(struct hf_smr_call *call)
{
	struct hf_kv *kv = container_of(call, struct hf_kv, council.propose);

	kv->council.proposing = false; /* whatever became of it: the next one is conditional on what is decided */
}

bool kv_council_propose(struct hf_kv *kv, uint64_t now_ns)
{
	struct council *council = &kv->council;
	struct cm_entry entry;

	council->look_ns = UINT64_MAX;
	if (council->smr == NULL || !council->leads || council->proposing || !make_entry(kv, now_ns, &entry))
		return false;
	kv_cm_write(&entry, council->entry);
	council->propose =
		(struct hf_smr_call){.done = proposed, .data = council->entry, .bytes = sizeof(council->entry)};
	council->proposing = hf_smr_propose(council->smr, &council->propose) == 0;
	if (council->proposing)
		kv_council_hurry(kv); /* a WRITE wakes no follower, and a message does */
	return council->proposing;
}
