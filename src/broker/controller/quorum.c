/* The controller among brokers. */
#include "broker/controller/quorum.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/ensure.h"
#include "base/log.h"
#include "broker/broker.h"
#include "broker/controller/quorum_sessions.h"
#include "smr/memory_snapshot.h"

#define CHANNEL         "holdfast.broker"
#define CLUSTER         "broker"
#define COMMAND_VERSION 1
#define MESSAGE_VERSION 0
#define COMMAND_BYTES   (8u << 20) /* of memory, decoded */
#define AGAIN_NS        300000000ull
#define SLOTS           4096u
#define SLOT_BYTES      256u
/* Where the stamp stands in a command of COMMAND_VERSION, behind its kind. */
#define BROKER_AT      1u
#define INCARNATION_AT 5u
#define SEQUENCE_AT    13u

struct quorum_entry {
	struct list node;
	struct proposal *proposal; /* NULL: none waits */
	int8_t kind;
	char topic[CONTROLLER_TOPIC_BYTES];
	size_t bytes;
	uint8_t data[];
};

int32_t quorum_leader(const struct quorum *quorum)
{
	int leader = quorum->smr == NULL ? -1 : hf_smr_leader(quorum->smr);

	return leader < 0 || (unsigned)leader >= quorum_voters(quorum)->count ? -1
									      : quorum_voters(quorum)->at[leader].id;
}

/* ---- messages ---- */

static struct hf_peer *peer_of(const struct quorum *quorum, int32_t broker)
{
	int place = quorum_place(quorum, broker);
	struct hf_peer *peer = NULL;

	for (unsigned i = 0; place >= 0 && i < quorum_voters(quorum)->at[place].address_count && peer == NULL; i++)
		peer = hf_peer_find(quorum->broker->node, &quorum_voters(quorum)->at[place].addresses[i]);
	return peer;
}

void quorum_send(struct quorum *quorum, int32_t broker, const struct kafka_quorum_message *message)
{
	struct hf_peer *peer = peer_of(quorum, broker);
	struct codec_arena arena;
	uint8_t *data;
	size_t bytes;

	if (peer == NULL || !hf_channel_is_open(quorum->channel, peer))
		return;
	codec_arena_init(&arena, COMMAND_BYTES);
	bytes = codec_encode(&kafka_quorum_message_codec, MESSAGE_VERSION, message, &arena, 0, &data, NULL);
	if (bytes > 0)
		(void)hf_channel_send(quorum->channel, peer, data, bytes);
	codec_arena_free(&arena);
}

/* ---- proposing ---- */

struct quorum_call {
	struct hf_smr_call call;
	uint8_t data[];
};

static void call_done(struct hf_smr_call *call)
{
	free(container_of(call, struct quorum_call, call)); /* whatever became of it: its broker asks again */
}

static void submit(struct quorum *quorum, const uint8_t *data, size_t bytes)
{
	struct quorum_call *made = quorum->leads ? malloc(sizeof(*made) + bytes) : NULL;

	if (made == NULL)
		return;
	memcpy(made->data, data, bytes);
	made->call = (struct hf_smr_call){.done = call_done, .data = made->data, .bytes = (uint32_t)bytes};
	if (hf_smr_propose(quorum->smr, &made->call) != 0)
		free(made);
}

/* The first of the queue, to the leader. */
static void send_first(struct quorum *quorum, uint64_t now_ns)
{
	struct quorum_entry *entry;
	struct kafka_quorum_message message = {.kind = QUORUM_COMMAND, .broker = quorum_self(quorum)};
	int32_t leader = quorum_leader(quorum);

	if (list_empty(&quorum->entries) || leader < 0 || quorum->refused ||
		(quorum->sent_ns != 0 && now_ns < quorum->sent_ns + AGAIN_NS))
		return;
	entry = container_of(quorum->entries.next, struct quorum_entry, node);
	put_be32(entry->data + BROKER_AT, (uint32_t)quorum_self(quorum));
	put_be64(entry->data + INCARNATION_AT, (uint64_t)quorum->incarnation);
	put_be32(entry->data + SEQUENCE_AT, (uint32_t)quorum->sequence);
	quorum->sent_ns = now_ns;
	if (leader == quorum_self(quorum)) {
		submit(quorum, entry->data, entry->bytes);
		return;
	}
	message.command = (struct codec_bytes){entry->data, (int32_t)entry->bytes};
	quorum_send(quorum, leader, &message);
}

static struct quorum_entry *make_entry(const struct kafka_controller_command *command)
{
	struct quorum_entry *entry = NULL;
	struct codec_arena arena;
	uint8_t *data;
	size_t bytes;

	codec_arena_init(&arena, COMMAND_BYTES);
	bytes = codec_encode(&kafka_controller_command_codec, COMMAND_VERSION, command, &arena, 0, &data, NULL);
	if (bytes > 0)
		entry = malloc(sizeof(*entry) + bytes);
	if (entry != NULL) {
		*entry = (struct quorum_entry){.kind = command->kind, .bytes = bytes};
		snprintf(entry->topic, sizeof(entry->topic), "%.*s",
			command->topic.bytes < 0 ? 0 : command->topic.bytes,
			command->topic.at == NULL ? "" : command->topic.at);
		memcpy(entry->data, data, bytes);
	}
	codec_arena_free(&arena);
	return entry;
}

void quorum_submit(struct quorum *quorum, const struct kafka_controller_command *command)
{
	struct quorum_entry *entry = make_entry(command);

	if (entry != NULL)
		submit(quorum, entry->data, entry->bytes);
	free(entry);
}

static void fail_proposal(struct proposal *proposal, const char *why)
{
	struct controller_result result = {.error = KAFKA_STORAGE_ERROR, .message = why};

	if (proposal != NULL)
		proposal->done(proposal, &result);
}

/* The commands that wait; *same_out: one of them creates this topic already. */
static unsigned count_waiting(
	const struct quorum *quorum, const struct kafka_controller_command *command, bool *same_out)
{
	unsigned waiting = 0;

	*same_out = false;
	for (const struct list *at = quorum->entries.next; at != &quorum->entries; at = at->next, waiting++) {
		const struct quorum_entry *entry = container_of(at, const struct quorum_entry, node);

		*same_out |= command->kind == CONTROLLER_CREATE_TOPIC && entry->kind == CONTROLLER_CREATE_TOPIC &&
			     codec_compare(entry->topic, command->topic) == 0;
	}
	return waiting;
}

void quorum_propose(struct quorum *quorum, const struct kafka_controller_command *command, struct proposal *proposal)
{
	bool is_leaders = command->kind == CONTROLLER_SET_ISR || command->kind == CONTROLLER_RESIGN ||
			  command->kind == CONTROLLER_REPORT,
	     same;
	struct quorum_entry *entry;

	if (quorum->smr == NULL) {
		fail_proposal(proposal, "the controller's log has failed at this broker; it restarts");
		return;
	}
	if (!is_leaders && count_waiting(quorum, command, &same) >= QUORUM_WAITING_MAX) {
		fail_proposal(proposal, "too many commands wait for the controller, which has no majority or is slow");
		return;
	}
	if (!is_leaders && same && proposal == NULL)
		return;
	entry = make_entry(command);
	if (entry == NULL || entry->bytes > hf_smr_request_bytes_max(quorum->smr)) {
		free(entry);
		fail_proposal(proposal, "the command takes more room than the controller's log has for one");
		return;
	}
	entry->proposal = proposal;
	if (proposal != NULL)
		proposal->held = &entry->proposal;
	list_push_back(&quorum->entries, &entry->node);
	send_first(quorum, hf_loop_now_ns(quorum->broker->loop));
}

/* The first command was applied: its caller is told, and the next one goes. */
static void complete_first(struct quorum *quorum, const struct controller_result *result)
{
	struct quorum_entry *entry = container_of(quorum->entries.next, struct quorum_entry, node);
	struct proposal *proposal = entry->proposal;

	list_remove(&entry->node);
	quorum->sequence++;
	quorum->sent_ns = 0;
	if (proposal != NULL) {
		proposal->held = NULL;
		proposal->done(proposal, result);
	}
	free(entry);
	send_first(quorum, hf_loop_now_ns(quorum->broker->loop));
}

/* ---- registering ---- */

/* As another incarnation, before everything else that waits. */
static void register_anew(struct quorum *quorum)
{
	struct kafka_controller_command_command_endpoint endpoints[BROKER_LISTENERS_MAX];
	struct kafka_controller_command command;
	struct quorum_entry *entry;

	quorum->registered = false;
	hf_env_entropy(quorum->broker->env, &quorum->incarnation, sizeof(quorum->incarnation));
	quorum->incarnation = (quorum->incarnation & INT64_MAX) | 1;
	quorum->sequence = 1;
	quorum->sent_ns = 0;
	if (!list_empty(&quorum->entries)) {
		entry = container_of(quorum->entries.next, struct quorum_entry, node);
		if (entry->kind == CONTROLLER_REGISTER_BROKER) {
			list_remove(&entry->node);
			free(entry);
		}
	}
	quorum->owner->fill(quorum->broker, endpoints, &command);
	command.whole = quorum->whole;
	command.ended = quorum->ended;
	command.life = log_marks_begin_life(quorum->broker->marks, quorum->incarnation);
	entry = make_entry(&command);
	ensure(entry != NULL);
	list_push_front(&quorum->entries, &entry->node);
}

/* Its process before may live, and have a lease (R-D10): the command is sent again until that session has ended. */
static void wait_for_session(struct quorum *quorum)
{
	if (!quorum->waits)
		log_warn("broker: another process of broker %d has a session, and this host has no proof that it has "
			 "ended; this one joins when that session is over; if both are to run, give this one another "
			 "node.id",
			quorum_self(quorum));
	quorum->waits = true;
	quorum->sequence++;
}

static void look_at_self(struct quorum *quorum)
{
	const struct controller_broker *self = controller_broker(&quorum->broker->controller, quorum_self(quorum));
	bool registered = self != NULL && self->alive && self->incarnation == quorum->incarnation;

	if (quorum->registered && !registered) {
		log_warn("broker: the controller ended the session of broker %d, which registers again",
			quorum_self(quorum));
		register_anew(quorum);
	} else if (registered && !quorum->registered) {
		log_info("broker: broker %d has joined the cluster %s", quorum_self(quorum),
			quorum->broker->controller.cluster_id);
		quorum->registered = true;
		quorum->whole = true;                /* from here on, while this process lives */
		quorum->ended = quorum->incarnation; /* before another one of this process registers, it has no lease */
		quorum->waits = false;
		quorum->owner->joined(quorum->broker);
		quorum->owner->restored(quorum->broker);
	}
}

/* ---- the state machine on the log ---- */

static uint32_t apply(void *context, const struct hf_smr_applied *request, void *unused)
{
	struct quorum *quorum = context;
	struct broker *broker = quorum->broker;
	struct kafka_controller_command command;
	struct controller_result result;
	struct codec_arena arena;
	bool own;

	(void)unused;
	codec_arena_init(&arena, COMMAND_BYTES);
	if (codec_decode(&kafka_controller_command_codec, COMMAND_VERSION, request->data, request->bytes, &arena,
		    &command, NULL) != CODEC_OK) {
		log_error("broker: a command of the controller is malformed and is skipped");
		codec_arena_free(&arena);
		return 0;
	}
	controller_apply(&broker->controller, &command, &result);
	own = command.sequence > 0 && command.broker == quorum_self(quorum) &&
	      command.incarnation == quorum->incarnation && command.sequence == quorum->sequence &&
	      !list_empty(&quorum->entries);
	if (command.kind == CONTROLLER_REGISTER_BROKER && result.error == KAFKA_NONE)
		quorum_sessions_begin(quorum, command.broker);
	if (own && result.error == KAFKA_DUPLICATE_BROKER_REGISTRATION) {
		wait_for_session(quorum);
		own = false;
	}
	if (own && command.kind == CONTROLLER_REGISTER_BROKER && result.error != KAFKA_NONE && !quorum->refused) {
		quorum->refused = true;
		log_error("broker: the controller refuses broker %d: %s", quorum_self(quorum),
			result.message == NULL ? "" : result.message);
	}
	if (quorum->registered)
		quorum->owner->applied(broker, &command, &result);
	look_at_self(quorum);
	if (own)
		complete_first(quorum, &result);
	codec_arena_free(&arena);
	return 0;
}

static int snapshot_open(void *context, void **snapshot_out)
{
	struct quorum *quorum = context;
	struct smr_memory_snapshot *snapshot = NULL;
	struct codec_arena arena;
	uint8_t *data;
	size_t bytes;

	codec_arena_init(&arena, 1u << 30);
	bytes = controller_save(&quorum->broker->controller, &arena, &data);
	if (bytes > 0)
		snapshot = smr_memory_snapshot_new(bytes);
	if (snapshot != NULL)
		memcpy(snapshot->data, data, bytes);
	codec_arena_free(&arena);
	*snapshot_out = snapshot;
	return snapshot == NULL ? -ENOMEM : 0;
}

static int restore_open(void *context)
{
	((struct quorum *)context)->restored_bytes = 0;
	return 0;
}

static int restore_write(void *context, const void *data, size_t bytes)
{
	struct quorum *quorum = context;

	if (quorum->restored_bytes + bytes > quorum->restored_room) {
		size_t room = (quorum->restored_bytes + bytes) * 2;
		uint8_t *restored = realloc(quorum->restored, room);

		if (restored == NULL)
			return -ENOMEM;
		quorum->restored = restored;
		quorum->restored_room = room;
	}
	memcpy(quorum->restored + quorum->restored_bytes, data, bytes);
	quorum->restored_bytes += bytes;
	return 0;
}

/* The first command may have been applied in what was restored. */
static void complete_restored(struct quorum *quorum)
{
	const struct controller_broker *self = controller_broker(&quorum->broker->controller, quorum_self(quorum));
	struct controller_result result = {.repeated = true};
	const struct quorum_entry *entry;

	if (self == NULL || self->incarnation != quorum->incarnation || self->sequence < quorum->sequence ||
		list_empty(&quorum->entries))
		return;
	entry = container_of(quorum->entries.next, struct quorum_entry, node);
	result.error = self->error;
	result.first_producer_id = self->first_producer_id;
	result.topic = controller_find(&quorum->broker->controller, request_text(entry->topic));
	complete_first(quorum, &result);
}

static int restore_close(void *context, bool whole)
{
	struct quorum *quorum = context;
	struct broker *broker = quorum->broker;

	if (!whole)
		return 0;
	controller_free(&broker->controller);
	controller_init(&broker->controller, &broker->defaults);
	if (!controller_load(&broker->controller, quorum->restored, quorum->restored_bytes))
		return -EPROTO;
	look_at_self(quorum);
	if (quorum->registered)
		quorum->owner->restored(broker);
	complete_restored(quorum);
	return 0;
}

static void event(void *context, const struct hf_smr_event *happened)
{
	struct quorum *quorum = context;

	if (happened->kind == HF_SMR_LEADING) {
		quorum->leads = true;
		for (unsigned i = 0; i < CONTROLLER_BROKERS_MAX; i++) {
			quorum->heard_ns[i] = hf_loop_attended_ns(quorum->broker->loop);
			quorum->heard_boot_ns[i] = hf_env_boot_ns(quorum->broker->env);
		}
		memset(quorum->asked, 0, sizeof(quorum->asked));
		log_info("broker: broker %d leads the controller", quorum_self(quorum));
	} else if (happened->kind == HF_SMR_FOLLOWING) {
		quorum->leads = false;
	} else if (happened->kind == HF_SMR_FAILED || happened->kind == HF_SMR_REMOVED) {
		quorum->leads = false;
		quorum->failed = true;
		log_warn("broker: the replica of the controller's log failed: %s; it restarts",
			happened->reason == NULL ? "another process took its place" : happened->reason);
	}
	quorum->sent_ns = 0; /* another leader may not know the command under way */
}

/* ---- hearing ---- */

static void heard(struct hf_channel *channel, struct hf_peer *peer, const void *data, size_t bytes, void *context)
{
	struct quorum *quorum = context;
	struct kafka_quorum_message message;
	struct codec_arena arena;

	(void)channel, (void)peer;
	codec_arena_init(&arena, COMMAND_BYTES);
	if (codec_decode(&kafka_quorum_message_codec, MESSAGE_VERSION, data, bytes, &arena, &message, NULL) ==
		CODEC_OK) {
		if (message.kind == QUORUM_HEARTBEAT)
			quorum_sessions_heartbeat(quorum, &message);
		else if (message.kind == QUORUM_LEASE)
			quorum_sessions_lease(quorum, message.incarnation, message.sent_ns);
		else if (message.kind == QUORUM_COMMAND && message.command.bytes > (int32_t)SEQUENCE_AT)
			submit(quorum, message.command.at, (size_t)message.command.bytes);
	}
	codec_arena_free(&arena);
}

/* ---- running ---- */

static int start_replica(struct quorum *quorum, struct hf_error *error)
{
	static const struct hf_smr_app app = {.apply = apply,
		.snapshot_open = snapshot_open,
		.snapshot_read = smr_memory_snapshot_read,
		.snapshot_close = smr_memory_snapshot_close,
		.restore_open = restore_open,
		.restore_write = restore_write,
		.restore_close = restore_close,
		.event = event};
	struct hf_smr_member members[CONTROLLER_BROKERS_MAX] = {0};
	const struct broker_voters *voters = quorum_voters(quorum);
	struct hf_smr_config config = {.cluster = CLUSTER,
		.id = (uint8_t)quorum_place(quorum, quorum_self(quorum)),
		.members = members,
		.member_count = voters->count,
		.preset = HF_SMR_CALM,
		.cores = quorum->broker->config.cores,
		.slots = SLOTS,
		.slot_bytes = SLOT_BYTES,
		.directory = quorum->directory};

	for (unsigned i = 0; i < voters->count; i++) {
		members[i].id = (uint8_t)i;
		snprintf(members[i].name, sizeof(members[i].name), "broker-%d", voters->at[i].id);
		members[i].address_count = voters->at[i].address_count;
		memcpy(members[i].addresses, voters->at[i].addresses, sizeof(voters->at[i].addresses));
	}
	/* The state comes from the log, from its beginning. */
	controller_free(&quorum->broker->controller);
	controller_init(&quorum->broker->controller, &quorum->broker->defaults);
	quorum->failed = false;
	return hf_smr_start(quorum->broker->node, &config, &app, quorum, &quorum->smr, error);
}

static void start_again(struct quorum *quorum)
{
	struct hf_error error = {0};

	hf_smr_stop(quorum->smr);
	quorum->smr = NULL;
	register_anew(quorum);
	if (start_replica(quorum, &error) != 0) {
		log_error("broker: the replica of the controller's log failed: %s; restart the broker", error.text);
		quorum->failed = true;
	}
}

static void due(struct hf_timer *timer, uint64_t now_ns)
{
	struct quorum *quorum = container_of(timer, struct quorum, timer);
	uint64_t wait_ns = quorum->broker->config.heartbeat_ns, boot_ns = hf_env_boot_ns(quorum->broker->env);
	uint64_t again_ns = UINT64_MAX;
	struct kafka_quorum_message heartbeat = {.kind = QUORUM_HEARTBEAT,
		.broker = quorum_self(quorum),
		.incarnation = quorum->incarnation,
		.sent_ns = (int64_t)boot_ns};

	if (quorum->failed)
		start_again(quorum);
	if (quorum->smr != NULL) {
		if (quorum->leads)
			quorum_sessions_heartbeat(quorum, &heartbeat);
		else if (quorum_leader(quorum) >= 0)
			quorum_send(quorum, quorum_leader(quorum), &heartbeat);
		if (quorum->leads)
			again_ns = quorum_sessions_judge(quorum);
		quorum_sessions_confirm(quorum);
		send_first(quorum, now_ns);
	}
	if (again_ns < boot_ns + wait_ns)
		wait_ns = again_ns > boot_ns ? again_ns - boot_ns : 1;
	hf_loop_set_timer(quorum->broker->loop, timer, now_ns + wait_ns);
}

/* ---- the end of another process ---- */

bool quorum_has_died(struct quorum *quorum, unsigned place)
{
	const struct broker_voter *voter = &quorum_voters(quorum)->at[place];

	for (unsigned i = 0; quorum->died[place] && i < voter->address_count; i++) {
		const struct hf_peer *peer = hf_peer_find(quorum->broker->node, &voter->addresses[i]);

		if (peer != NULL && hf_peer_reached(peer))
			quorum->died[place] = false;
	}
	return quorum->died[place];
}

static void peer_died(struct hf_peer *peer, void *context)
{
	struct quorum *quorum = context;

	for (unsigned i = 0; i < quorum_voters(quorum)->count; i++) {
		const struct broker_voter *voter = &quorum_voters(quorum)->at[i];

		for (unsigned k = 0; voter->id != quorum_self(quorum) && k < voter->address_count; k++)
			quorum->died[i] |= hf_peer_find(quorum->broker->node, &voter->addresses[k]) == peer;
	}
	hf_loop_set_timer(quorum->broker->loop, &quorum->timer, hf_loop_now_ns(quorum->broker->loop));
}

int quorum_open(struct quorum *quorum, struct broker *broker, const struct quorum_owner *owner, bool whole,
	int64_t ended, struct hf_error *error)
{
	static const struct hf_channel_events events = {.message = heard};
	int rc;

	*quorum = (struct quorum){
		.broker = broker, .owner = owner, .timer = {.fire = due}, .whole = whole, .ended = ended};
	list_init(&quorum->entries);
	snprintf(quorum->directory, sizeof(quorum->directory), "%s/controller", broker->config.log_dirs);
	rc = hf_channel_register(broker->node, CHANNEL, &events, quorum, &quorum->channel, error);
	if (rc != 0)
		return rc;
	quorum->listener = (struct hf_node_listener){.events = {.peer_died = peer_died}, .context = quorum};
	rc = hf_node_listen(broker->node, &quorum->listener, error);
	if (rc != 0)
		return rc;
	quorum->listening = true;
	register_anew(quorum);
	rc = start_replica(quorum, error);
	if (rc == 0)
		hf_loop_set_timer(broker->loop, &quorum->timer, hf_loop_now_ns(broker->loop) + 1);
	return rc;
}

void quorum_close(struct quorum *quorum)
{
	struct list *node;

	if (quorum->broker == NULL)
		return;
	hf_loop_cancel_timer(quorum->broker->loop, &quorum->timer);
	if (quorum->listening)
		hf_node_unlisten(quorum->broker->node, &quorum->listener);
	hf_smr_stop(quorum->smr);
	hf_channel_close(quorum->channel);
	while ((node = list_pop_front(&quorum->entries)) != NULL) {
		struct quorum_entry *entry = container_of(node, struct quorum_entry, node);

		if (entry->proposal != NULL)
			entry->proposal->held = NULL;
		free(entry);
	}
	free(quorum->restored);
	*quorum = (struct quorum){0};
}
