/* ASK: the heartbeat of a member, which reports its state to all others. */
#include "kv/council_parts.h"

#include "base/bytes.h"
#include "kv/engine.h"

#define KEPT_AT   32u
#define TOLD_AT   (KEPT_AT + TOLD_BYTES)
#define ASK_BYTES (TOLD_AT + TOLD_BYTES * HF_KV_MEMBERS_MAX)

bool kv_council_is_fresh(const struct hf_kv *kv, unsigned node, uint64_t now_ns)
{
	const struct council_report *report = &kv->council.reports[node];

	if (report->died)
		return false;
	return report->heard && now_ns - hf_loop_gaps_ns(kv->loop) < report->heard_ns + kv->council.suspect_ns;
}

bool kv_council_hears(const struct hf_kv *kv, unsigned node)
{
	return node == kv->view.self || kv_council_is_fresh(kv, node, hf_loop_now_ns(kv->loop));
}

static bool is_at(const struct hf_kv *kv, unsigned node, const struct hf_peer *peer)
{
	const struct hf_kv_member *member = &kv->config.members[node];

	for (unsigned i = 0; i < member->control_count; i++)
		if (hf_peer_find(kv->node, &member->control[i]) == peer)
			return true;
	return false;
}

void kv_council_peer_died(struct hf_peer *peer, void *context)
{
	struct hf_kv *kv = context;

	for (unsigned i = 0; i < kv->config.member_count; i++)
		if (i != kv->view.self && is_at(kv, i, peer)) {
			kv->council.reports[i].died = true;
			kv->council.look_ns = 0;
			kv_council_hurry(kv);
		}
}

/* What the process said before its end may be read after it. */
static bool is_reached(const struct hf_kv *kv, unsigned node)
{
	const struct hf_kv_member *member = &kv->config.members[node];

	for (unsigned i = 0; i < member->control_count; i++) {
		const struct hf_peer *peer = hf_peer_find(kv->node, &member->control[i]);

		if (peer != NULL && hf_peer_reached(peer))
			return true;
	}
	return false;
}

static uint32_t unheard(const struct hf_kv *kv, uint64_t now_ns)
{
	uint32_t bits = 0;

	for (unsigned i = 0; i < kv->config.member_count; i++)
		if (i != kv->view.self && !kv_council_is_fresh(kv, i, now_ns))
			bits |= 1u << i;
	return bits;
}

void kv_council_excuse_log(struct hf_kv *kv, uint64_t now_ns)
{
	struct council *council = &kv->council;
	uint64_t stood_ns = now_ns - council->turn_ns;

	council->turn_ns = now_ns;
	if (stood_ns > council->suspect_ns / 2)
		kv_log_excuse(&kv->log, stood_ns);
}

bool kv_council_others_serve(const struct hf_kv *kv, uint64_t now_ns)
{
	if (kv->installed.nodes[kv->view.self].state == CM_MEMBER)
		return false;
	for (unsigned i = 0; i < kv->config.member_count; i++)
		if (kv->installed.nodes[i].state == CM_MEMBER && kv_council_is_fresh(kv, i, now_ns) &&
			kv->council.reports[i].incarnation == kv->installed.nodes[i].incarnation)
			return true;
	return false;
}

void kv_council_ask(struct hf_kv *kv, uint64_t now_ns)
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
	log_look(&kv->log);
	if (kv->log.env != NULL && kv->complete == 0 && !kv->wiped)
		message.note |= WIRE_NOTE_NEW;
	if (kv_log_has_ended(&kv->log, kept.incarnation))
		message.note |= WIRE_NOTE_ENDED;
	if (kv->council.leave == COUNCIL_LEAVES)
		message.note |= WIRE_NOTE_LEAVES;
	for (unsigned i = 0; i < kv->config.member_count; i++)
		if (i != kv->view.self)
			kv_writes_say(kv, i, &message);
	(void)kv_council_hear(kv, kv->view.self, &message);
}

void kv_council_hurry(struct hf_kv *kv)
{
	kv->council.next_ask_ns = 0;
}

void kv_council_heard(struct hf_kv *kv, unsigned from, uint64_t epoch)
{
	struct council_report *report = &kv->council.reports[from];

	report->heard_ns = hf_loop_attended_ns(kv->loop);
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
		kv_council_take_grant(kv, message->write);
		return true;
	}
	if (message->value_bytes != ASK_BYTES)
		return false;
	if (report->died && !is_reached(kv, from))
		return true;
	report->died = false;
	if (report->epoch != message->epoch || report->note != message->note)
		council->look_ns = 0; /* it may be admitted now, or promoted */
	if (!kv_council_is_fresh(kv, from, hf_loop_now_ns(kv->loop)))
		kv_council_hurry(kv); /* it is admitted once this node reports that it is heard */
	if (report->incarnation != message->ts.version && report->durable > 0 && report->told.incarnation == 0)
		kv_told_note(&report->told, report->incarnation, report->durable);
	if (report->incarnation != message->ts.version)
		council->asked_ns[from] = council->granting_ns[from] = 0; /* by the clock of another boot, it may be */
	report->heard = true;
	report->heard_ns = hf_loop_attended_ns(kv->loop);
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
