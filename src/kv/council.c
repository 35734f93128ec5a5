#include "kv/council.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/ensure.h"
#include "base/log.h"
#include "kv/engine.h"
#include "smr/memory_snapshot.h"

#define MS_NS     1000000ull
#define KEPT_AT   32u
#define TOLD_AT   (KEPT_AT + TOLD_BYTES)
#define ASK_BYTES (TOLD_AT + TOLD_BYTES * HF_KV_MEMBERS_MAX)

/* ---- the state machine on the log ---- */

/* The time counts from here, also at a member that is not the leader yet. */
static void note_suspicions(struct hf_kv *kv)
{
	struct council *council = &kv->council;

	for (unsigned i = 0; i < kv->config.member_count; i++) {
		if (council->suspicion[i] == kv->cm.nodes[i].suspicion)
			continue;
		council->suspicion[i] = kv->cm.nodes[i].suspicion;
		council->suspected_ns[i] = hf_env_boot_ns(kv->env);
		council->reports[i].returned = false;
		council->look_ns = 0;
	}
}

static uint32_t apply(void *context, const struct hf_smr_applied *request, void *result)
{
	struct hf_kv *kv = context;
	struct cm_entry entry;

	(void)result;
	if (kv_cm_read(request->data, request->bytes, &entry) && kv_cm_step(&kv->cm, &entry))
		kv->council.decided_ns = hf_loop_now_ns(kv->loop);
	note_suspicions(kv);
	return 0;
}

static int snapshot_open(void *context, void **snapshot_out)
{
	const struct hf_kv *kv = context;
	struct smr_memory_snapshot *snapshot = smr_memory_snapshot_new(CM_STATE_BYTES);

	if (snapshot == NULL)
		return -ENOMEM;
	kv_cm_save(&kv->cm, snapshot->data);
	*snapshot_out = snapshot;
	return 0;
}

static int restore_open(void *context)
{
	struct hf_kv *kv = context;

	kv->restored_bytes = 0;
	return 0;
}

static int restore_write(void *context, const void *data, size_t bytes)
{
	struct hf_kv *kv = context;

	if (bytes > CM_STATE_BYTES - kv->restored_bytes)
		return -EPROTO;
	memcpy(kv->restored + kv->restored_bytes, data, bytes);
	kv->restored_bytes += bytes;
	return 0;
}

static int restore_close(void *context, bool whole)
{
	struct hf_kv *kv = context;

	if (!whole)
		return 0;
	if (!kv_cm_load(kv->restored, kv->restored_bytes, &kv->cm))
		return -EPROTO;
	kv->council.decided_ns = hf_loop_now_ns(kv->loop);
	note_suspicions(kv);
	return 0;
}

static void event(void *context, const struct hf_smr_event *happened)
{
	struct hf_kv *kv = context;
	struct council *council = &kv->council;

	if (happened->kind == HF_SMR_LEADING) {
		council->leads = true;
		council->led_ns = happened->granted_ns;
		council->look_ns = 0;
		memset(council->granted_ns, 0, sizeof(council->granted_ns));
		log_info("kv: %s leads the membership log", kv->config.members[kv->view.self].name);
	} else if (happened->kind == HF_SMR_FOLLOWING) {
		council->leads = false;
	} else if (happened->kind == HF_SMR_FAILED || happened->kind == HF_SMR_REMOVED) {
		council->leads = false;
		if (kv->log.env != NULL && happened->kind == HF_SMR_FAILED)
			kv->log.failed = -EIO; /* its disk is this one's */
		log_error("kv: the membership log failed here: %s; restart this member",
			happened->reason == NULL ? "another process took its place" : happened->reason);
	}
}

/* ---- what is known of the others ---- */

static bool is_fresh(const struct hf_kv *kv, unsigned node, uint64_t now_ns)
{
	const struct council_report *report = &kv->council.reports[node];

	return report->heard && now_ns < report->heard_ns + kv->council.suspect_ns;
}

bool kv_council_hears(const struct hf_kv *kv, unsigned node)
{
	return node == kv->view.self || is_fresh(kv, node, hf_loop_now_ns(kv->loop));
}

static uint32_t unheard(const struct hf_kv *kv, uint64_t now_ns)
{
	uint32_t bits = 0;

	for (unsigned i = 0; i < kv->config.member_count; i++)
		if (i != kv->view.self && !is_fresh(kv, i, now_ns))
			bits |= 1u << i;
	return bits;
}

static bool suspects(const struct hf_kv *kv, unsigned node, unsigned other, uint64_t now_ns)
{
	return is_fresh(kv, node, now_ns) && (kv->council.reports[node].note & 1u << other) != 0;
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

/* A process that was replaced is given up by all; one that does not follow the log too, for it acknowledges nothing. */
static unsigned votes_against(const struct hf_kv *kv, unsigned node, uint64_t now_ns)
{
	const struct council_report *report = &kv->council.reports[node];

	if (is_fresh(kv, node, now_ns) &&
		(report->incarnation != kv->cm.nodes[node].incarnation ||
			(report->epoch < kv->cm.epoch &&
				now_ns > kv->council.decided_ns + COUNCIL_INSTALL_LEASES * kv->council.lease_ns)))
		return HF_KV_MEMBERS_MAX;
	return cut_off(kv, node, now_ns);
}

/* Whether a member that the leader hears is left without it: one that is heard is never given up for those that are
 * not. */
static bool is_spare(const struct hf_kv *kv, unsigned node, uint64_t now_ns)
{
	for (unsigned i = 0; i < kv->config.member_count; i++)
		if (i != node && kv->cm.nodes[i].state == CM_MEMBER && is_fresh(kv, i, now_ns) &&
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
		votes = 2 * votes + !is_fresh(kv, i, now_ns);
		if (votes >= most) {
			most = votes;
			lost = (int)i;
		}
	}
	return lost;
}

/* ---- leases ---- */

bool kv_council_has_lease(const struct hf_kv *kv)
{
	return hf_env_boot_ns(kv->env) < kv->council.lease_until_ns;
}

uint64_t kv_council_lease_left_ns(const struct hf_kv *kv)
{
	uint64_t now_ns = hf_env_boot_ns(kv->env), until_ns = kv->council.lease_until_ns;

	return now_ns < until_ns ? until_ns - now_ns : 0;
}

static void take_grant(struct hf_kv *kv, uint64_t asked_ns)
{
	uint64_t until_ns = asked_ns + kv->council.lease_ns;

	if (until_ns > kv->council.lease_until_ns)
		kv->council.lease_until_ns = until_ns;
	kv_flows_wake(kv, &kv->unleased);
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
		take_grant(kv, asked_ns);
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
static bool confirm(struct hf_kv *kv)
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

static void ask(struct hf_kv *kv, uint64_t now_ns)
{
	uint8_t value[ASK_BYTES];
	struct told kept = {.incarnation = kv->cm.nodes[kv->view.self].incarnation};
	struct wire_message message = {.kind = WIRE_ASK,
		.value = value,
		.value_bytes = ASK_BYTES,
		.epoch = kv->epoch,
		.write = hf_env_boot_ns(kv->env),
		.note = unheard(kv, now_ns),
		.ts = {.version = kv->incarnation, .node = kv->view.self}};

	put_le64(value, kv->log.durable);
	put_le64(value + 8, kv->complete);
	put_le64(value + 16, kv->purge.round);
	put_le64(value + 24, kv->purge.highest);
	kept.durable = kv_log_end_of(&kv->log, kept.incarnation);
	kv_told_write(&kept, 1, value + KEPT_AT);
	kv_told_write(kv->told, HF_KV_MEMBERS_MAX, value + TOLD_AT);
	if (kv->copy.done)
		message.note |= WIRE_NOTE_COPIED;
	if (!kv_store_has_room(&kv->store, kv->reserve) || kv->log.low)
		message.note |= WIRE_NOTE_NO_ROOM;
	if (kv->log.env != NULL && kv->complete == 0 && !kv->wiped)
		message.note |= WIRE_NOTE_NEW;
	for (unsigned i = 0; i < kv->config.member_count; i++)
		if (i != kv->view.self)
			kv_writes_say(kv, i, &message);
	(void)kv_council_hear(kv, kv->view.self, &message);
}

void kv_council_heard(struct hf_kv *kv, unsigned from, uint64_t epoch)
{
	struct council_report *report = &kv->council.reports[from];

	report->heard_ns = hf_loop_now_ns(kv->loop);
	if (epoch > report->epoch) {
		report->epoch = epoch;
		report->note &= ~WIRE_NOTE_COPIED; /* that was in an epoch before */
		report->round = report->highest = 0;
	}
}

bool kv_council_hear(struct hf_kv *kv, unsigned from, const struct wire_message *message)
{
	struct council *council = &kv->council;
	struct council_report *report = &council->reports[from];

	if (message->kind == WIRE_GRANT) {
		take_grant(kv, message->write);
		return true;
	}
	if (message->value_bytes != ASK_BYTES)
		return false;
	if (report->epoch != message->epoch || report->note != message->note)
		council->look_ns = 0; /* it may be admitted now, or promoted */
	if (!is_fresh(kv, from, hf_loop_now_ns(kv->loop)))
		kv_council_hurry(kv); /* it is admitted once this node reports that it is heard */
	if (report->heard && report->incarnation != message->ts.version && report->durable > report->told)
		report->told = report->durable;
	report->heard = true;
	report->heard_ns = hf_loop_now_ns(kv->loop);
	report->incarnation = message->ts.version;
	report->epoch = message->epoch;
	report->note = message->note;
	report->durable = get_le64(message->value);
	report->complete = get_le64(message->value + 8);
	report->round = get_le64(message->value + 16);
	report->highest = get_le64(message->value + 24);
	kv_told_read(&report->kept, 1, message->value + KEPT_AT, TOLD_BYTES);
	kv_told_read(report->told_by, HF_KV_MEMBERS_MAX, message->value + TOLD_AT, ASK_BYTES - TOLD_AT);
	if (report->incarnation == kv->cm.nodes[from].incarnation)
		kv_told_note(&kv->told[from], report->incarnation, report->durable);
	if (council->suspicion[from] != 0 && report->incarnation == kv->cm.nodes[from].incarnation) {
		report->returned = true;
		council->look_ns = 0;
	}
	if (council->leads)
		council->asked_ns[from] = message->write;
	return true;
}

/* ---- deciding ---- */

/* Until when a lease may last that any leader granted. */
static uint64_t lease_over_ns(const struct hf_kv *kv, unsigned node)
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

static bool lease_is_over(const struct hf_kv *kv, unsigned node)
{
	return hf_env_boot_ns(kv->env) > lease_over_ns(kv, node);
}

/* An exclusion is due when the lease is over, and waits for no heartbeat. */
static void look_again(struct hf_kv *kv, unsigned node, uint64_t now_ns)
{
	uint64_t boot_ns = hf_env_boot_ns(kv->env), over_ns = lease_over_ns(kv, node);

	kv->council.look_ns = now_ns + 1 + (over_ns > boot_ns ? over_ns - boot_ns : 0);
}

/* All members of the last epoch founded the cluster, and ended before their logs said so. A write is answered when it
 * is in the log of each, behind that: none was. */
static bool all_are_new(const struct hf_kv *kv, uint64_t now_ns)
{
	for (unsigned i = 0; i < kv->config.member_count; i++)
		if (kv->cm.nodes[i].state == CM_MEMBER &&
			(!is_fresh(kv, i, now_ns) || (kv->council.reports[i].note & WIRE_NOTE_NEW) == 0))
			return false;
	return true;
}

/* Its log lacks its last process that was a member, or a part of it that the process had reported (R-K25). */
static bool is_older(const struct hf_kv *kv, unsigned node, uint64_t now_ns)
{
	const struct told *kept = &kv->council.reports[node].kept;

	if (kept->incarnation != kv->cm.nodes[node].incarnation || kept->durable == 0)
		return true;
	for (unsigned i = 0; i < kv->config.member_count; i++)
		if (is_fresh(kv, i, now_ns) && kv_told_is_behind(kept, &kv->council.reports[i].told_by[node]))
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
	log_older(kv, node);
	return false;
}

static bool make_present(struct hf_kv *kv, uint64_t now_ns, struct cm_entry *entry)
{
	bool again = all_are_new(kv, now_ns);

	for (unsigned i = 0; i < kv->config.member_count; i++) {
		entry->incarnation[i] = kv->council.reports[i].incarnation;
		if (is_fresh(kv, i, now_ns) && may_begin(kv, i, again, now_ns))
			entry->present |= (uint8_t)(1u << i);
	}
	entry->kind = CM_COLD;
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
		if (!is_fresh(kv, i, now_ns))
			return false;
		begun |= kv->council.reports[i].complete != 0;
	}
	if (!begun)
		return make_present(kv, now_ns, entry);
	if (!kv->council.hopeless)
		log_error("kv: members have records, but no list of the last members; restore the directories "
			  "`members` in their logs, or stop all members, remove their logs, and start empty");
	kv->council.hopeless = true;
	return false;
}

/* Every member ended, and the list of members is still known: those that come back are members again. The others are
 * waited for, because what they have in doubt may be newer; not for ever. */
static bool make_anew(struct hf_kv *kv, uint64_t now_ns, struct cm_entry *entry)
{
	const struct council *council = &kv->council;
	bool all = true;

	for (unsigned i = 0; i < kv->config.member_count; i++) {
		const struct cm_node *node = &kv->cm.nodes[i];

		if (node->state != CM_MEMBER)
			continue;
		if (!lease_is_over(kv, i) ||
			(is_fresh(kv, i, now_ns) && council->reports[i].incarnation == node->incarnation))
			return false;
		/* Before it follows the log of the members, it cannot report what its last process had. */
		all &= is_fresh(kv, i, now_ns) && council->reports[i].epoch == kv->cm.epoch;
	}
	return (all || (now_ns > council->decided_ns + COUNCIL_COLD_LEASES * council->lease_ns &&
			       hf_env_boot_ns(kv->env) > council->led_ns + COUNCIL_COLD_LEASES * council->lease_ns)) &&
	       make_present(kv, now_ns, entry);
}

static bool is_reached(const struct hf_kv *kv, unsigned node, uint64_t now_ns)
{
	return is_fresh(kv, node, now_ns) && cut_off(kv, node, now_ns) == 0;
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
	if (lost >= 0 && (kv->cm.nodes[lost].suspicion == 0 || lease_is_over(kv, (unsigned)lost))) {
		fill_node(kv, (unsigned)lost, kv->cm.nodes[lost].suspicion == 0 ? CM_SUSPECT : CM_EXCLUDE, entry);
		return true;
	}
	if (lost >= 0)
		look_again(kv, (unsigned)lost, now_ns);
	for (unsigned i = 0; i < kv->config.member_count; i++)
		if ((int)i != lost && kv->cm.nodes[i].suspicion != 0 && kv->council.reports[i].returned &&
			is_fresh(kv, i, now_ns)) {
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

		if (!is_reached(kv, i, now_ns) || node->state == CM_MEMBER)
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

static bool propose(struct hf_kv *kv, uint64_t now_ns)
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

/* ---- a replica that does not follow ---- */

static int start_replica(struct hf_kv *kv, struct hf_error *error);

static bool is_behind(const struct hf_kv *kv, uint64_t now_ns)
{
	for (unsigned i = 0; i < kv->config.member_count; i++)
		if (is_fresh(kv, i, now_ns) && kv->council.reports[i].epoch > kv->cm.epoch)
			return true;
	return false;
}

/* Others have installed an epoch that the log never brings here: another replica takes the place of this one. */
static bool replace_replica(struct hf_kv *kv, uint64_t now_ns)
{
	struct council *council = &kv->council;
	struct hf_error error = {0};

	if (!is_behind(kv, now_ns))
		council->followed_ns = now_ns;
	if (now_ns - council->followed_ns < COUNCIL_BEHIND_LEASES * council->lease_ns)
		return false;
	log_warn("kv: the membership log makes no progress here; its replica restarts");
	council->followed_ns = now_ns;
	hf_smr_stop(council->smr);
	council->smr = NULL;
	council->leads = false;
	if (start_replica(kv, &error) != 0)
		log_error("kv: the membership log failed here: %s; restart this member", error.text);
	return true;
}

/* ---- turns ---- */

/* A process that stood still judges nobody by the time in which it did. */
static void excuse_all(struct hf_kv *kv, uint64_t now_ns)
{
	struct council *council = &kv->council;

	if (now_ns > council->turn_ns + council->suspect_ns / 2)
		for (unsigned i = 0; i < HF_KV_MEMBERS_MAX; i++)
			council->reports[i].heard_ns = now_ns;
	council->turn_ns = now_ns;
}

bool kv_council_turn(struct hf_kv *kv, uint64_t now_ns)
{
	struct council *council = &kv->council;
	bool some = false;

	excuse_all(kv, now_ns);
	if (now_ns >= council->next_ask_ns) {
		if (!kv->failed)
			ask(kv, now_ns);
		council->next_ask_ns = now_ns + council->lease_ns / COUNCIL_ASKS;
		some = propose(kv, now_ns) || replace_replica(kv, now_ns);
	} else if (now_ns >= council->look_ns) {
		some = propose(kv, now_ns);
	}
	return confirm(kv) || some;
}

void kv_council_hurry(struct hf_kv *kv)
{
	kv->council.next_ask_ns = 0;
}

uint64_t kv_council_wake_ns(const struct hf_kv *kv)
{
	const struct council *council = &kv->council;

	return council->look_ns < council->next_ask_ns ? council->look_ns : council->next_ask_ns;
}

/* ---- opening ---- */

static int start_replica(struct hf_kv *kv, struct hf_error *error)
{
	static const struct hf_smr_app app = {.apply = apply,
		.snapshot_open = snapshot_open,
		.snapshot_read = smr_memory_snapshot_read,
		.snapshot_close = smr_memory_snapshot_close,
		.restore_open = restore_open,
		.restore_write = restore_write,
		.restore_close = restore_close,
		.event = event};
	struct hf_smr_member members[HF_KV_MEMBERS_MAX] = {0};
	char directory[HF_KV_PATH_BYTES + 8];
	struct hf_smr_config config = {.cluster = kv->config.cluster,
		.directory = kv->config.log[0] == '\0' ? NULL : directory,
		.id = (uint8_t)kv->view.self,
		.members = members,
		.member_count = kv->config.member_count,
		.preset = HF_SMR_CALM};

	snprintf(directory, sizeof(directory), "%s/members", kv->config.log);
	for (unsigned i = 0; i < kv->config.member_count; i++) {
		const struct hf_kv_member *member = &kv->config.members[i];

		members[i].id = (uint8_t)i;
		memcpy(members[i].name, member->name, sizeof(members[i].name));
		members[i].address_count =
			member->control_count < HF_SMR_ADDRESSES_MAX ? member->control_count : HF_SMR_ADDRESSES_MAX;
		memcpy(members[i].addresses, member->control, members[i].address_count * sizeof(struct hf_addr));
	}
	return hf_smr_start(kv->node, &config, &app, kv, &kv->council.smr, error);
}

int kv_council_open(struct hf_kv *kv, struct hf_error *error)
{
	kv->council.lease_ns = kv->config.lease_ns;
	kv->council.suspect_ns = kv->config.lease_ns / COUNCIL_SUSPECT_PART;
	kv->council.followed_ns = hf_loop_now_ns(kv->loop);
	kv->council.look_ns = UINT64_MAX;
	return start_replica(kv, error);
}

void kv_council_close(struct hf_kv *kv)
{
	hf_smr_stop(kv->council.smr);
	kv->council.smr = NULL;
}
