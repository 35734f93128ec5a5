#include "cli/transfer/receiver.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "base/states.h"
#include "cli/transfer/session.h"

#define WORKS_A_SESSION (COPY_SLOTS + 2 * COPY_FILES + 4u)
#define RING_BYTES      ((size_t)COPY_SLOTS * COPY_CHUNK_BYTES)
#define TICK_NS         50000000u /* for commits that are due */
#define RELEASE_NS      5000000000ull

static const struct state session_states[SESSION_STATES] = {
	[SESSION_NEW] = {"new", BIT(SESSION_WAITING) | BIT(SESSION_DRAINING)},
	[SESSION_WAITING] = {"waiting", BIT(SESSION_OPENING) | BIT(SESSION_DRAINING)},
	[SESSION_OPENING] = {"opening", BIT(SESSION_LIVE) | BIT(SESSION_DRAINING)},
	[SESSION_LIVE] = {"live", BIT(SESSION_FINISHING) | BIT(SESSION_DRAINING)},
	[SESSION_FINISHING] = {"finishing", BIT(SESSION_CLOSING) | BIT(SESSION_DRAINING)},
	[SESSION_DRAINING] = {"draining", BIT(SESSION_CLOSING)},
	[SESSION_CLOSING] = {"closing", BIT(SESSION_NEW)},
};

void session_move(struct session *session, enum session_state to)
{
	states_move("copy", session_states, &session->state, to, "of %.*s", (int)session->begin.name_bytes,
		session->begin.name);
}

/* ---- saying ---- */

void session_send(struct session *session, const struct copy_message *message)
{
	uint8_t bytes[COPY_MESSAGE_BYTES];
	int failed;

	if (session->peer == NULL)
		return;
	failed = hf_channel_send(session->receiver->channel, session->peer, bytes, copy_message_write(message, bytes));
	/* A peer that is going ends the session by itself. */
	if (failed != 0 && failed != -ENOTCONN && failed != -EPROTONOSUPPORT && message->kind != COPY_FAIL)
		session_fail(session, "the sender does not take what it is told: %s", strerror(-failed));
}

void session_send_number(struct session *session, enum copy_kind kind, uint32_t number)
{
	session_send(session, &(struct copy_message){.kind = kind, .number.number = number});
}

void session_fail(struct session *session, const char *format, ...)
{
	struct copy_message message = {.kind = COPY_FAIL};
	va_list arguments;

	if (session->state == SESSION_DRAINING || session->state == SESSION_CLOSING)
		return;
	va_start(arguments, format);
	vsnprintf(session->receipt.why.text, sizeof(message.fail.text), format, arguments);
	va_end(arguments);
	message.fail.text_bytes = (uint16_t)strlen(session->receipt.why.text);
	memcpy(message.fail.text, session->receipt.why.text, message.fail.text_bytes);
	session_move(session, SESSION_DRAINING);
	session_send(session, &message);
}

/* ---- works ---- */

void session_work(struct session *session, struct hf_workers *workers, struct hf_work *work)
{
	session->works++;
	ensure(hf_work_submit(workers, work) == 0);
}

void session_work_done(struct session *session)
{
	session->works--;
}

/* ---- beginning ---- */

static int run_open(struct hf_work *work)
{
	struct session *session = container_of(work, struct session, store_work);

	return copy_store_open(&session->store, session->receiver->env, session->receiver->directory, &session->begin,
		&session->error);
}

static void make_ring(struct session *session)
{
	struct copy_receiver *receiver = session->receiver;
	struct hf_error error = {0};
	void *memory = NULL;
	int failed = 0;

	if (session->ring == NULL) {
		failed = hf_mem_alloc(receiver->env, RING_BYTES, &memory, &error);
		if (!failed) /* READ, too: senders with confirm_writes need it */
			failed = hf_transfer_register(receiver->transfer, memory, RING_BYTES,
				HF_TRANSFER_REMOTE_READ | HF_TRANSFER_REMOTE_WRITE, &error);
		if (failed && memory != NULL)
			hf_mem_free(receiver->env, memory);
		if (failed) {
			session_fail(session, "%s", error.text);
			return;
		}
		session->ring = memory;
	}
	session_send(session, &(struct copy_message){.kind = COPY_RING,
				      .ring = {.addr = (uintptr_t)session->ring,
					      .slots = COPY_SLOTS,
					      .slot_bytes = COPY_CHUNK_BYTES,
					      .packs = session->store.takes_packs}});
}

static void open_done(struct hf_work *work, int result)
{
	struct session *session = container_of(work, struct session, store_work);
	const struct copy_receiver *receiver = session->receiver;

	session_work_done(session);
	if (result != 0) {
		session_fail(session, "%s", session->error.text);
		return;
	}
	if (session->state != SESSION_OPENING)
		return;
	session_move(session, SESSION_LIVE);
	session->receipt.begun_ns = hf_loop_now_ns(receiver->loop);
	if (receiver->events->begun != NULL)
		receiver->events->begun(&session->receipt, receiver->context);
	make_ring(session);
}

/* Another process of the same sender had begun it and is dead: its end is near. */
static bool predecessor_is_there(const struct session *session)
{
	list_for_each (at, &session->receiver->sessions) {
		const struct session *other = container_of(at, struct session, link);

		if (other != session && other->state != SESSION_NEW && other->state != SESSION_WAITING &&
			strcmp(other->begin.name, session->begin.name) == 0 &&
			strcmp(other->receipt.from, session->receipt.from) == 0)
			return true;
	}
	return false;
}

static void open_when_free(struct session *session)
{
	if (predecessor_is_there(session))
		return;
	session_move(session, SESSION_OPENING);
	session->store_work = (struct hf_work){.run = run_open, .done = open_done};
	session_work(session, session->receiver->disk, &session->store_work);
}

static void begin(struct session *session, const struct copy_begin *said)
{
	if (session->state != SESSION_NEW) {
		session_fail(session, "the sender begins twice; the versions of both ends differ");
		return;
	}
	session->begin = *said;
	session->receipt = (struct copy_receipt){0};
	snprintf(session->receipt.name, sizeof(session->receipt.name), "%s", said->name);
	snprintf(session->receipt.from, sizeof(session->receipt.from), "%s", hf_peer_name(session->peer));
	session->next_file = 0;
	session->finish = session->files_begun = false;
	if (said->version != COPY_VERSION) {
		session_fail(session, "the sender speaks version %u of the copy protocol, this receiver %u",
			said->version, COPY_VERSION);
		return;
	}
	if (copy_name_is_own(said->name)) {
		session_fail(session, COPY_OWN_REFUSED, said->name);
		return;
	}
	session_move(session, SESSION_WAITING);
	open_when_free(session);
}

/* ---- ending ---- */

static int run_finish(struct hf_work *work)
{
	struct session *session = container_of(work, struct session, store_work);

	return copy_store_finish(&session->store, &session->error);
}

static void close_store(struct session *session);

static void finish_done(struct hf_work *work, int result)
{
	struct session *session = container_of(work, struct session, store_work);

	session_work_done(session);
	if (result != 0) {
		session_fail(session, "%s", session->error.text);
		return;
	}
	session->receipt.why.text[0] = '\0'; /* the copy is whole, also if its sender has gone meanwhile */
	if (session->state == SESSION_FINISHING)
		close_store(session);
}

static void finish_when_idle(struct session *session)
{
	if (!session->finish || !intake_is_idle(session) || session->works > 0)
		return;
	if (session->finish_files != session->next_file) {
		session_fail(session, "the sender counts %u files, the receiver %u; send it again",
			session->finish_files, session->next_file);
		return;
	}
	session_move(session, SESSION_FINISHING);
	session->store_work = (struct hf_work){.run = run_finish, .done = finish_done};
	session_work(session, session->receiver->disk, &session->store_work);
}

static int run_close(struct hf_work *work)
{
	copy_store_close(&container_of(work, struct session, store_work)->store);
	return 0;
}

static void on_released(struct hf_transfer *transfer, void *addr, void *context)
{
	struct copy_receiver *receiver = context;

	(void)transfer;
	hf_mem_free(receiver->env, addr);
	receiver->rings--;
}

static void session_free(struct session *session)
{
	struct copy_receiver *receiver = session->receiver;

	list_remove(&session->link);
	receiver->count--;
	if (session->ring != NULL &&
		hf_transfer_unregister(receiver->transfer, session->ring, on_released, receiver) == 0)
		receiver->rings++;
	free(session->hash_memory);
	free(session->pack_memory);
	digest_destroy(session->pack_digest);
	free(session);
}

static void close_done(struct hf_work *work, int result)
{
	struct session *session = container_of(work, struct session, store_work);
	const struct copy_receiver *receiver = session->receiver;

	(void)result;
	session_work_done(session);
	session->receipt.ended_ns = hf_loop_now_ns(receiver->loop);
	if (receiver->events->ended != NULL)
		receiver->events->ended(&session->receipt, receiver->context);
	if (session->receipt.why.text[0] == '\0')
		session_send(session, &(struct copy_message){.kind = COPY_FINISHED});
	session_move(session, SESSION_NEW);
	session->begin = (struct copy_begin){0};
}

/* The name is free for another session once this is done. */
static void close_store(struct session *session)
{
	intake_drop(session);
	session_move(session, SESSION_CLOSING);
	session->store_work = (struct hf_work){.run = run_close, .done = close_done};
	session_work(session, session->receiver->disk, &session->store_work);
}

/* What arrived is in the journal before the store is closed: the next run need not send it again. */
static void drain(struct session *session, uint64_t now_ns)
{
	intake_commit(session, now_ns);
	if (session->works == 0 && intake_is_journaled(session))
		close_store(session);
}

/* ---- the channel ---- */

static void on_open(struct hf_channel *channel, struct hf_peer *peer, void *context)
{
	struct copy_receiver *receiver = context;
	struct session *session = NULL;

	if (receiver->count < COPY_SESSIONS)
		session = calloc(1, sizeof(*session));
	if (session != NULL) {
		session->hash_memory = malloc(COPY_CHUNK_BYTES);
		session->pack_memory = malloc(COPY_CHUNK_BYTES + COPY_PACK_FILE_BYTES);
	}
	if (session == NULL || session->hash_memory == NULL || session->pack_memory == NULL ||
		digest_create(&session->pack_digest) != 0) {
		if (session != NULL) {
			free(session->hash_memory);
			free(session->pack_memory);
		}
		free(session);
		return; /* its messages are answered with that */
	}
	session->receiver = receiver;
	session->peer = peer;
	list_push_back(&receiver->sessions, &session->link);
	receiver->count++;
	hf_channel_set_peer_context(channel, peer, session);
}

static void refuse(struct hf_channel *channel, struct hf_peer *peer)
{
	struct copy_message message = {.kind = COPY_FAIL};
	uint8_t bytes[COPY_MESSAGE_BYTES];

	message.fail.text_bytes = (uint16_t)snprintf(message.fail.text, sizeof(message.fail.text),
		"the receiver has %u senders already; try again later", COPY_SESSIONS);
	(void)hf_channel_send(channel, peer, bytes, copy_message_write(&message, bytes));
}

static void take(struct session *session, const struct copy_message *message)
{
	bool live = session->state == SESSION_LIVE && !session->finish;

	if (message->kind == COPY_BEGIN) {
		begin(session, &message->begin);
	} else if (message->kind == COPY_FAIL) {
		if (session->state != SESSION_NEW) /* else it answers a failure of ours */
			session_fail(session, "the sender ended it: %.200s", message->fail.text);
	} else if (live && message->kind == COPY_FILE) {
		intake_file(session, &message->file);
	} else if (live && message->kind == COPY_CHUNK) {
		intake_chunk(session, &message->chunk);
	} else if (live && message->kind == COPY_PACK) {
		intake_pack(session, &message->pack);
	} else if (live && message->kind == COPY_HOLE) {
		intake_hole(session, &message->have);
	} else if (live && message->kind == COPY_END) {
		intake_end(session, &message->end);
	} else if (live && message->kind == COPY_FINISH) {
		session->finish = true;
		session->finish_files = message->number.number;
	} else {
		session_fail(session, "the sender sent a message out of turn; the versions of both ends differ");
	}
}

static void on_message(struct hf_channel *channel, struct hf_peer *peer, const void *data, size_t bytes, void *context)
{
	struct session *session = hf_channel_peer_context(channel, peer);
	struct copy_message message;

	(void)context;
	if (session == NULL)
		refuse(channel, peer);
	else if (session->state == SESSION_DRAINING || session->state == SESSION_CLOSING)
		return; /* sent before the sender heard of the end */
	else if (copy_message_read(data, bytes, &message))
		take(session, &message);
	else
		session_fail(session, "the sender sent a malformed message; the versions of both ends differ");
}

static void on_end(struct hf_channel *channel, struct hf_peer *peer, void *context)
{
	struct session *session = hf_channel_peer_context(channel, peer);

	(void)context;
	if (session == NULL)
		return;
	session->peer = NULL;
	if (session->state != SESSION_NEW)
		session_fail(session, "the sender is gone");
}

static const struct hf_channel_events channel_events = {.open = on_open, .message = on_message, .end = on_end};

/* ---- turns ---- */

static void step(struct session *session, uint64_t now_ns)
{
	switch (session->state) {
	case SESSION_WAITING:
		open_when_free(session);
		break;
	case SESSION_LIVE:
		intake_commit(session, now_ns);
		if (session->state == SESSION_LIVE)
			finish_when_idle(session);
		break;
	case SESSION_DRAINING:
		drain(session, now_ns);
		break;
	case SESSION_NEW:
		if (session->peer == NULL)
			session_free(session);
		break;
	case SESSION_OPENING:
	case SESSION_FINISHING:
	case SESSION_CLOSING:
	case SESSION_STATES:
		break;
	}
}

static enum hf_poll poll_sessions(struct hf_poller *poller, uint64_t now_ns)
{
	struct copy_receiver *receiver = container_of(poller, struct copy_receiver, poller);

	list_for_each_safe (at, &receiver->sessions)
		step(container_of(at, struct session, link), now_ns);
	return HF_IDLE;
}

static void on_timer(struct hf_timer *timer, uint64_t now_ns)
{
	hf_loop_set_timer(container_of(timer, struct copy_receiver, timer)->loop, timer, now_ns + TICK_NS);
}

int copy_receiver_open(struct hf_node *node, struct hf_transfer *transfer, const char *directory,
	const struct copy_receiver_events *events, void *context, struct copy_receiver **receiver_out,
	struct hf_error *error)
{
	const unsigned works = COPY_SESSIONS * WORKS_A_SESSION;
	struct copy_receiver *receiver = calloc(1, sizeof(*receiver));
	int failed;

	if (receiver == NULL)
		return hf_error_set(error, -ENOMEM, "no memory for a receiver");
	receiver->loop = hf_node_loop(node);
	receiver->env = hf_loop_env(receiver->loop);
	receiver->node = node;
	receiver->transfer = transfer;
	receiver->directory = directory;
	receiver->events = events;
	receiver->context = context;
	list_init(&receiver->sessions);
	receiver->poller.poll = poll_sessions;
	receiver->timer = (struct hf_timer){.fire = on_timer, .quiet = true};
	failed = hf_workers_open(receiver->loop, "copy-disk", 1, works, &receiver->disk, error);
	if (!failed)
		failed = hf_workers_open(receiver->loop, "copy-sync", 1, works, &receiver->sync, error);
	hf_loop_add_poller(receiver->loop, &receiver->poller);
	hf_loop_set_timer(receiver->loop, &receiver->timer, hf_loop_now_ns(receiver->loop) + TICK_NS);
	if (!failed)
		failed = hf_channel_register(node, COPY_CHANNEL, &channel_events, receiver, &receiver->channel, error);
	if (failed) {
		copy_receiver_close(receiver);
		return failed;
	}
	*receiver_out = receiver;
	return 0;
}

void copy_receiver_close(struct copy_receiver *receiver)
{
	uint64_t limit_ns;

	if (receiver == NULL)
		return;
	hf_loop_remove_poller(receiver->loop, &receiver->poller);
	hf_loop_cancel_timer(receiver->loop, &receiver->timer);
	hf_channel_close(receiver->channel);
	list_for_each (at, &receiver->sessions) {
		struct session *session = container_of(at, struct session, link);

		session->peer = NULL;
		if (session->state != SESSION_NEW)
			session_fail(session, "the receiver was ended");
	}
	hf_workers_close(receiver->sync);
	hf_workers_close(receiver->disk);
	while (!list_empty(&receiver->sessions)) {
		struct session *session = container_of(receiver->sessions.next, struct session, link);

		intake_drop(session);
		copy_store_close(&session->store);
		session_free(session);
	}
	limit_ns = hf_env_now_ns(receiver->env) + RELEASE_NS;
	while (receiver->rings > 0 && hf_env_now_ns(receiver->env) < limit_ns) /* a second, or none */
		hf_loop_turn(receiver->loop, TICK_NS);
	free(receiver);
}

const struct copy_receipt *copy_receiver_look(const struct copy_receiver *receiver, unsigned i)
{
	list_for_each (at, &receiver->sessions) {
		const struct session *session = container_of(at, struct session, link);

		if ((session->state == SESSION_LIVE || session->state == SESSION_FINISHING) && i-- == 0)
			return &session->receipt;
	}
	return NULL;
}
