/* A member: its table, and the slots of its clients. */
#include "kv_store.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CLIENTS 64u
#define KEYS    4096u

struct entry {
	char key[KV_KEY_BYTES]; /* empty: free */
	char value[KV_VALUE_BYTES];
};

/* A client's place: its slot, what is under way for it, and where it is answered. */
struct place {
	struct member *member;
	struct hf_vqp *vqp; /* NULL: free */
	struct kv_place to;
	struct hf_smr_call call;
	struct kv_command command; /* a copy: the client may write its slot again */
	uint64_t seen;             /* stamp of the latest request that was taken */
	bool busy;
};

/* What clients write to, and what they are answered from. */
struct slots {
	struct kv_request requests[CLIENTS];
	struct kv_answer answers[CLIENTS];
};

struct member {
	struct kv_node at;
	struct slots *slots;
	struct hf_smr *smr;
	struct hf_poller poller;
	struct place places[CLIENTS];
	struct entry *table;
	size_t restored;
};

/* ---- the state machine ---- */

static struct entry *find(struct member *member, const char *key)
{
	uint64_t hash = 1469598103934665603u;

	for (const char *at = key; *at != '\0'; at++)
		hash = (hash ^ (uint64_t)(unsigned char)*at) * 1099511628211u;
	for (uint64_t i = 0; i < KEYS; i++) {
		struct entry *entry = &member->table[(hash + i) % KEYS];

		if (entry->key[0] == '\0' || strcmp(entry->key, key) == 0)
			return entry;
	}
	return NULL;
}

/* The result is the value. */
static uint32_t apply(void *context, const struct hf_smr_applied *request, void *result)
{
	struct member *member = context;
	struct kv_command command;
	struct entry *entry;

	if (request->bytes != sizeof(command))
		return 0;
	memcpy(&command, request->data, sizeof(command));
	command.key[KV_KEY_BYTES - 1] = command.value[KV_VALUE_BYTES - 1] = '\0';
	entry = command.key[0] == '\0' ? NULL : find(member, command.key);
	if (entry == NULL) /* the table is full */
		return 0;
	memcpy(entry->key, command.key, KV_KEY_BYTES);
	if (command.op == KV_SET)
		memcpy(entry->value, command.value, KV_VALUE_BYTES);
	else if (command.op == KV_ADD)
		(void)snprintf(entry->value, KV_VALUE_BYTES, "%lld",
			strtoll(entry->value, NULL, 10) + strtoll(command.value, NULL, 10));
	memcpy(result, entry->value, KV_VALUE_BYTES);
	return KV_VALUE_BYTES;
}

struct snapshot {
	size_t at;
	struct entry table[KEYS];
};

static int snapshot_open(void *context, void **snapshot_out)
{
	struct snapshot *snapshot = malloc(sizeof(*snapshot));

	*snapshot_out = snapshot;
	if (snapshot == NULL)
		return -ENOMEM;
	snapshot->at = 0;
	memcpy(snapshot->table, ((struct member *)context)->table, sizeof(snapshot->table));
	return 0;
}

static ssize_t snapshot_read(void *context, void *handle, void *data, size_t bytes)
{
	struct snapshot *snapshot = handle;
	size_t left = sizeof(snapshot->table) - snapshot->at;

	bytes = bytes < left ? bytes : left;
	memcpy(data, (const char *)snapshot->table + snapshot->at, bytes);
	snapshot->at += bytes;
	return (ssize_t)bytes;
}

static void snapshot_close(void *context, void *snapshot)
{
	free(snapshot);
}

static int restore_open(void *context)
{
	((struct member *)context)->restored = 0;
	return 0;
}

static int restore_write(void *context, const void *data, size_t bytes)
{
	struct member *member = context;

	if (bytes > KEYS * sizeof(*member->table) - member->restored)
		return -EBADMSG;
	memcpy((char *)member->table + member->restored, data, bytes);
	member->restored += bytes;
	return 0;
}

static int restore_close(void *context, bool whole)
{
	const struct member *member = context;

	return whole && member->restored != KEYS * sizeof(*member->table) ? -EBADMSG : 0;
}

/* A member that leads polls for requests, which nothing wakes it for; one that follows sleeps. */
static void on_event(void *context, const struct hf_smr_event *event)
{
	struct member *member = context;

	if (event->kind == HF_SMR_LEADING || event->kind == HF_SMR_FOLLOWING) {
		hf_loop_set_spin(member->at.loop, event->kind == HF_SMR_LEADING ? UINT64_MAX : 20000);
		printf(event->kind == HF_SMR_LEADING ? "leads\n" : "follows %d\n", event->leader);
	} else if (event->kind == HF_SMR_MEMBERS) {
		puts("members change");
	}
	fflush(stdout);
	if (event->kind == HF_SMR_REMOVED || event->kind == HF_SMR_FAILED) {
		fprintf(stderr, "kv-store: the replica steps out: %s\n", event->reason == NULL ? "" : event->reason);
		exit(1);
	}
}

/* ---- requests ---- */

static void answer(struct place *place, enum kv_status status, uint64_t session, const void *value, size_t bytes)
{
	struct member *member = place->member;
	struct kv_answer *out = &member->slots->answers[place - member->places];

	place->busy = false;
	*out = (struct kv_answer){.stamp = place->seen,
		.status = (uint32_t)status,
		.leader = hf_smr_leader(member->smr),
		.session = session};
	if (bytes > 0)
		memcpy(out->value, value, bytes < KV_VALUE_BYTES ? bytes : KV_VALUE_BYTES);
	out->check = kv_check(out, offsetof(struct kv_answer, check));
	if (place->vqp != NULL)
		(void)kv_write(&member->at, place->vqp, out, sizeof(*out), &place->to);
}

static void decided(struct hf_smr_call *call)
{
	struct place *place = (struct place *)(void *)((char *)call - offsetof(struct place, call));
	uint64_t session = 0;

	switch (call->outcome) {
	case HF_SMR_NOT_LEADER:
		answer(place, KV_NOT_LEADER, 0, NULL, 0);
		return;
	case HF_SMR_UNKNOWN:
		answer(place, KV_UNKNOWN, 0, NULL, 0);
		return;
	case HF_SMR_SESSION_OVER:
		answer(place, KV_SESSION_OVER, 0, NULL, 0);
		return;
	case HF_SMR_DECIDED:
		break;
	}
	if (place->command.op == KV_OPEN && call->result_bytes == sizeof(session))
		memcpy(&session, call->result, sizeof(session));
	if (place->command.op == KV_GET) { /* a read barrier, and the table as it is behind it */
		const struct entry *entry = find(place->member, place->command.key);

		if (entry == NULL || entry->key[0] == '\0')
			answer(place, KV_NONE, 0, NULL, 0);
		else
			answer(place, KV_DONE, 0, entry->value, KV_VALUE_BYTES);
		return;
	}
	answer(place, place->command.op != KV_OPEN && call->result_bytes == 0 ? KV_NONE : KV_DONE, session,
		call->result, call->result_bytes);
}

static void take(struct place *place, const struct kv_request *request)
{
	struct hf_smr *smr = place->member->smr;
	int rc;

	place->seen = request->stamp;
	place->busy = true;
	place->command = request->command;
	place->command.key[KV_KEY_BYTES - 1] = '\0';
	place->call = (struct hf_smr_call){.done = decided,
		.data = &place->command,
		.bytes = sizeof(place->command),
		.session = request->session,
		.sequence = request->sequence};
	if (place->command.op == KV_OPEN)
		rc = hf_smr_session_open(smr, &place->call);
	else if (place->command.op == KV_GET)
		rc = hf_smr_read(smr, &place->call);
	else
		rc = hf_smr_propose(smr, &place->call);
	if (rc != 0)
		answer(place, KV_NOT_LEADER, 0, NULL, 0);
}

static enum hf_poll look(struct hf_poller *poller, uint64_t now_ns)
{
	struct member *member = (struct member *)(void *)((char *)poller - offsetof(struct member, poller));
	bool any = false;

	for (unsigned i = 0; i < CLIENTS; i++) {
		struct place *place = &member->places[i];
		struct kv_request request;

		if (place->vqp != NULL && hf_vqp_state(place->vqp) == HF_VQP_ERROR && !place->busy) {
			hf_vqp_destroy(place->vqp); /* the client has gone */
			place->vqp = NULL;
		}
		if (place->vqp == NULL || place->busy ||
			*(volatile uint64_t *)&member->slots->requests[i].stamp == place->seen)
			continue;
		request = member->slots->requests[i]; /* a copy is checked, and then used */
		if (request.check != kv_check(&request, offsetof(struct kv_request, check)))
			continue;
		take(place, &request);
		any = true;
	}
	while (any) { /* the proposal leaves now, and is often decided before anything else is to be done */
		any = false;
		hf_smr_flush(member->smr);
		for (unsigned i = 0; i < CLIENTS && hf_smr_is_leader(member->smr); i++)
			any |= member->places[i].busy && member->places[i].command.op != KV_GET;
		if (any && hf_env_now_ns(hf_env_host()) - now_ns > 20000)
			break;
	}
	return HF_IDLE;
}

static struct hf_vqp *on_request(const struct hf_vqp_request *request, void *reply, size_t *reply_bytes, void *context)
{
	struct member *member = context;
	struct kv_place ours = {.rkey = member->at.mr->rkey};

	for (unsigned i = 0; i < CLIENTS && request->private_bytes == sizeof(struct kv_place); i++) {
		struct place *place = &member->places[i];

		if (place->vqp != NULL || place->busy)
			continue;
		memset(&member->slots->requests[i], 0, sizeof(member->slots->requests[i]));
		*place = (struct place){.member = member, .vqp = kv_vqp(&member->at, place)};
		memcpy(&place->to, request->private_data, sizeof(place->to));
		ours.addr = (uintptr_t)&member->slots->requests[i];
		memcpy(reply, &ours, sizeof(ours));
		*reply_bytes = sizeof(ours);
		return place->vqp;
	}
	return NULL; /* no place is left */
}

int kv_member(unsigned id, const char *fabric, const struct hf_smr_member *members, unsigned count)
{
	static const struct hf_smr_app app = {apply, snapshot_open, snapshot_read, snapshot_close, restore_open,
		restore_write, restore_close, on_event};
	static const struct hf_node_events events = {0};
	static struct member member;
	const struct hf_vqp_service service = {.name = KV_SERVICE, .on_request = on_request, .context = &member};
	const struct hf_smr_config config = {
		.cluster = "kv-store", .id = (uint8_t)id, .members = members, .member_count = count};
	char name[HF_NAME_BYTES];

	(void)snprintf(name, sizeof(name), "member-%u", id);
	member.table = calloc(KEYS, sizeof(*member.table));
	kv_must(member.table == NULL ? -ENOMEM : 0, "table");
	kv_node_open(&member.at, name, fabric, kv_addresses[id], sizeof(struct slots), &events, &member);
	member.slots = member.at.memory;
	kv_must(hf_smr_start(member.at.node, &config, &app, &member, &member.smr, &kv_error), "replica");
	kv_must(hf_vqp_serve(member.at.node, &service), "service");
	member.poller.poll = look;
	hf_loop_add_poller(member.at.loop, &member.poller);
	hf_loop_run(member.at.loop); /* until it is killed */
	return 0;
}
