/* The replica of the membership log in this member, and the turns of the council. */
#include "kv/council_parts.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "kv/engine.h"
#include "smr/memory_snapshot.h"

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
		council->smr_lost = happened->device_died;
		if (council->smr_lost)
			return;
		if (kv->log.env != NULL && happened->kind == HF_SMR_FAILED)
			kv->log.failed = -EIO; /* its disk is this one's */
		log_error("kv: the membership log%s%s%s failed here: %s; restart this member",
			kv->log.env == NULL ? "" : " in ", kv->config.log, kv->log.env == NULL ? "" : "/members",
			happened->reason == NULL ? "another process took its place" : happened->reason);
	}
}

/* ---- a replica that does not follow ---- */

static int start_replica(struct hf_kv *kv, struct hf_error *error);

static bool is_behind(const struct hf_kv *kv, uint64_t now_ns)
{
	for (unsigned i = 0; i < kv->config.member_count; i++)
		if (kv_council_is_fresh(kv, i, now_ns) && kv->council.reports[i].epoch > kv->cm.epoch)
			return true;
	return false;
}

/* Another replica takes the place of this one. */
static void replace_replica(struct hf_kv *kv, uint64_t now_ns)
{
	struct council *council = &kv->council;
	bool again = council->smr == NULL;
	struct hf_error error = {0};

	if (!again)
		log_warn("kv: the membership log makes no progress here; its replica restarts");
	council->followed_ns = now_ns;
	council->smr_lost = council->leads = false;
	hf_smr_stop(council->smr);
	council->smr = NULL;
	if (start_replica(kv, &error) != 0 && !again)
		log_error("kv: the membership log does not start here: %s; it is tried again", error.text);
}

/* Others have installed an epoch that the log never brings here, or the last replica did not start. */
static bool replace_if_behind(struct hf_kv *kv, uint64_t now_ns)
{
	struct council *council = &kv->council;

	/* While the disk hangs, hf_smr_stop would wait for it. */
	if (council->silent || (council->smr != NULL && !is_behind(kv, now_ns)))
		council->followed_ns = now_ns;
	if (now_ns - council->followed_ns < COUNCIL_BEHIND_LEASES * council->lease_ns)
		return false;
	replace_replica(kv, now_ns);
	return true;
}

/* ---- turns ---- */

/* Members that this one hears. */
static unsigned count_others(const struct hf_kv *kv, uint64_t now_ns)
{
	unsigned others = 0;

	for (unsigned i = 0; i < kv->config.member_count; i++)
		others += i != kv->view.self && kv_council_is_fresh(kv, i, now_ns);
	return others;
}

/* Each write waits for the log of each member. One whose disk hangs falls silent until the flush ends, so that the
 * others exclude it; then it joins again. Where they could not decide that without it, it stays, and reads go on. */
static void fall_silent_if_disk_hangs(struct hf_kv *kv, uint64_t now_ns)
{
	struct council *council = &kv->council;
	uint64_t patience_ns = COUNCIL_HANGS_LEASES * council->lease_ns;

	if (patience_ns < COUNCIL_HANGS_MIN_NS)
		patience_ns = COUNCIL_HANGS_MIN_NS;
	if (!kv_log_hangs(&kv->log, patience_ns)) {
		if (council->silent)
			log_info("kv: the log in %s is written again", kv->config.log);
		council->silent = false;
	} else if (!council->silent && count_others(kv, now_ns) > kv->config.member_count / 2) {
		log_error("kv: a flush of the log in %s does not end; the others exclude this member until it does; "
			  "look at the disk",
			kv->config.log);
		council->silent = true;
	}
}

static enum council_wait find_wait(const struct hf_kv *kv, unsigned heard)
{
	const struct copy *copy = &kv->copy;

	if (2 * heard <= kv->config.member_count)
		return COUNCIL_WAITS_FOR_MAJORITY;
	if (kv->member)
		return COUNCIL_SERVES;
	if (kv->cm.epoch == 0 && heard < kv->config.member_count)
		return COUNCIL_WAITS_FOR_ALL;
	if (kv->installed.nodes[kv->view.self].state != CM_SHADOW)
		return COUNCIL_WAITS_FOR_ADMISSION;
	return copy->active || copy->taken || copy->revokes ? COUNCIL_WAITS_FOR_COPY : COUNCIL_WAITS_FOR_BUDDY;
}

/* A wait of COUNCIL_WAIT_TOLD_NS is logged once, with what ends it. */
static void log_wait(struct hf_kv *kv, uint64_t now_ns)
{
	const char *name = kv->config.members[kv->view.self].name;
	struct council *council = &kv->council;
	unsigned count = kv->config.member_count, heard = 1 + count_others(kv, now_ns);
	enum council_wait wait = find_wait(kv, heard);

	if (wait != council->wait)
		council->wait_ns = now_ns;
	council->wait = wait;
	if (council->wait_ns == UINT64_MAX || now_ns < council->wait_ns + COUNCIL_WAIT_TOLD_NS)
		return;
	council->wait_ns = UINT64_MAX;
	switch (wait) {
	case COUNCIL_SERVES:
		break;
	case COUNCIL_WAITS_FOR_MAJORITY:
		log_warn("kv: %s serves nothing: it waits for a majority of the members, and hears %u of %u, itself "
			 "included; start the others, or repair the network; members that refuse this one log the "
			 "reason",
			name, heard, count);
		break;
	case COUNCIL_WAITS_FOR_ALL:
		log_warn("kv: %s serves nothing: a new cluster begins with all its members, and %s hears %u of %u, "
			 "itself included; start the others, or correct the list of members",
			name, name, heard, count);
		break;
	case COUNCIL_WAITS_FOR_ADMISSION:
		log_warn("kv: %s serves nothing: it waits until the leader of the membership log admits it; if that "
			 "takes long, the log of the leader has the reason",
			name);
		break;
	case COUNCIL_WAITS_FOR_BUDDY:
		log_warn("kv: %s serves nothing: it waits for a connected member to copy records from; start one of "
			 "the last members, or repair the network",
			name);
		break;
	case COUNCIL_WAITS_FOR_COPY:
		log_info("kv: %s serves nothing yet: it copies records from %s", name,
			kv->config.members[kv->copy.buddy].name);
		break;
	}
}

bool kv_council_turn(struct hf_kv *kv, uint64_t now_ns)
{
	struct council *council = &kv->council;
	bool some = false;

	kv_council_excuse_log(kv, now_ns);
	if (council->smr_lost && !council->silent)
		replace_replica(kv, now_ns);
	if (council->leave == COUNCIL_DRAINS && list_empty(&kv->flights)) {
		council->leave = COUNCIL_LEAVES;
		kv_council_hurry(kv);
	}
	if (now_ns >= council->next_ask_ns) {
		fall_silent_if_disk_hangs(kv, now_ns);
		if (kv_council_others_serve(kv, now_ns))
			kv_durable_begin_anew(kv);
		if (!kv->failed && !council->silent)
			kv_council_ask(kv, now_ns);
		council->next_ask_ns = now_ns + council->lease_ns / COUNCIL_ASKS;
		some = kv_council_propose(kv, now_ns) || replace_if_behind(kv, now_ns);
		log_wait(kv, now_ns);
	} else if (now_ns >= council->look_ns) {
		some = kv_council_propose(kv, now_ns);
	}
	return kv_council_confirm(kv) || some;
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
		.preset = HF_SMR_CALM,
		.cores = kv->config.cores};

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
	int rc;

	kv->council.lease_ns = kv->config.lease_ns;
	kv->council.suspect_ns = kv->config.suspect_ns;
	kv->council.cold_wait_ns = kv->config.cold_wait_ns;
	kv->council.followed_ns = kv->council.wait_ns = hf_loop_now_ns(kv->loop);
	kv->council.look_ns = UINT64_MAX;
	kv->council.listener = (struct hf_node_listener){.events = {.peer_died = kv_council_peer_died}, .context = kv};
	rc = hf_node_listen(kv->node, &kv->council.listener, error);
	if (rc != 0)
		return rc;
	kv->council.listening = true;
	return start_replica(kv, error);
}

void kv_council_close(struct hf_kv *kv)
{
	if (kv->council.listening)
		hf_node_unlisten(kv->node, &kv->council.listener);
	hf_smr_stop(kv->council.smr);
	kv->council.smr = NULL;
}
