#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/transfer/sender_parts.h"

#define NS_A_SECOND     1e9
#define RELEASE_NS      5000000000ull
#define RELEASE_TURN_NS 1000000u
#define RING_BYTES      ((size_t)COPY_SLOTS * COPY_CHUNK_BYTES)

/* ---- saying ---- */

void sender_send(struct copy_sender *sender, const struct copy_message *message)
{
	uint8_t bytes[COPY_MESSAGE_BYTES];
	int failed = hf_channel_send(sender->channel, sender->peer, bytes, copy_message_write(message, bytes));

	if (failed == 0 || failed == -ENOTCONN || failed == -EPROTONOSUPPORT || message->kind == COPY_FAIL)
		return; /* a receiver that is gone is told of by its node */
	copy_sender_fail(sender, "the receiver does not take what it is told: %s", strerror(-failed));
}

static void fail(struct copy_sender *sender, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void vfail(struct copy_sender *sender, const char *format, va_list arguments)
{
	vsnprintf(sender->why.text, sizeof(sender->why.text), format, arguments);
	sender->phase = COPY_FAILED;
	for (unsigned i = 0; i < COPY_SLOTS; i++)
		if (sender->slots[i].state == SLOT_WRITING)
			(void)hf_transfer_cancel(sender->slots[i].batch, 0);
}

static void fail(struct copy_sender *sender, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vfail(sender, format, arguments);
	va_end(arguments);
}

void copy_sender_fail(struct copy_sender *sender, const char *format, ...)
{
	struct copy_message message = {.kind = COPY_FAIL};
	va_list arguments;

	if (sender->phase == COPY_DONE || sender->phase == COPY_FAILED)
		return;
	va_start(arguments, format);
	vfail(sender, format, arguments);
	va_end(arguments);
	message.fail.text_bytes =
		(uint16_t)snprintf(message.fail.text, sizeof(message.fail.text), "%.240s", sender->why.text);
	if (sender->peer != NULL)
		sender_send(sender, &message);
}

/* ---- the receiver ---- */

static void begin(struct copy_sender *sender)
{
	const struct copy_source *source = sender->config.source;
	struct copy_message message = {.kind = COPY_BEGIN,
		.begin = {.version = COPY_VERSION,
			.directory = source->directory,
			.name_bytes = (uint16_t)strlen(source->title)}};

	memcpy(message.begin.name, source->title, message.begin.name_bytes);
	sender->phase = COPY_BEGINNING;
	sender_send(sender, &message);
}

/* The channel and the engine tell of the slots in no order. */
static void find_ring(struct copy_sender *sender)
{
	struct hf_segment *segment;
	struct hf_error error = {0};
	uint64_t addr, bytes;
	int failed;

	if (sender->phase != COPY_BEGINNING || sender->ring.slots == 0)
		return;
	failed = hf_transfer_open_segment(sender->transfer, sender->peer, &segment, &error);
	if (failed == -EAGAIN)
		return;
	if (failed) {
		copy_sender_fail(sender, "%s", error.text);
		return;
	}
	for (unsigned i = 0; hf_segment_buffer(segment, i, &addr, &bytes); i++)
		if (addr == sender->ring.addr && bytes >= (uint64_t)sender->ring.slots * COPY_CHUNK_BYTES) {
			sender->segment = segment;
			sender->phase = COPY_MOVING;
			sender->budget_ns = hf_loop_now_ns(sender->loop);
		}
}

static void take(struct copy_sender *sender, const struct copy_message *message)
{
	if (message->kind == COPY_FAIL) {
		fail(sender, "the receiver: %s", message->fail.text);
	} else if (message->kind == COPY_RING && sender->phase == COPY_BEGINNING && message->ring.slots == COPY_SLOTS) {
		sender->ring = message->ring;
		find_ring(sender);
	} else if (message->kind == COPY_HAVE && sender->phase == COPY_MOVING) {
		reading_have(sender, &message->have);
	} else if (message->kind == COPY_READY && sender->phase == COPY_MOVING) {
		reading_ready(sender, message->number.number);
	} else if (message->kind == COPY_TAKEN && message->number.number < COPY_SLOTS) {
		reading_taken(sender, message->number.number);
	} else if (message->kind == COPY_PACKED && sender->phase == COPY_MOVING) {
		packing_whole(sender, message->number.number);
	} else if (message->kind == COPY_VERIFIED && sender->phase == COPY_MOVING) {
		reading_verified(sender, message->number.number);
	} else if (message->kind == COPY_FINISHED && sender->phase == COPY_FINISHING) {
		sender->phase = COPY_DONE;
	} else {
		copy_sender_fail(sender, "the receiver answers out of turn; the versions of both ends differ");
	}
}

static void on_message(struct hf_channel *channel, struct hf_peer *peer, const void *data, size_t bytes, void *context)
{
	struct copy_sender *sender = context;
	struct copy_message message;

	(void)channel;
	if (peer != sender->peer || sender->phase == COPY_FAILED)
		return;
	if (copy_message_read(data, bytes, &message))
		take(sender, &message);
	else
		copy_sender_fail(sender, "the receiver sent a malformed message; the versions of both ends differ");
}

static void on_end(struct hf_channel *channel, struct hf_peer *peer, void *context)
{
	struct copy_sender *sender = context;

	(void)channel;
	if (peer == sender->peer)
		copy_sender_fail(
			sender, "the receiver has ended; start it and send again: it goes on where this ended");
}

static const struct hf_channel_events channel_events = {.message = on_message, .end = on_end};

void copy_sender_peer_down(struct copy_sender *sender, const struct hf_peer *peer)
{
	if (peer != sender->peer)
		return;
	sender->peer = NULL;
	copy_sender_fail(sender, "the receiver is gone; start it and send again: it goes on where this ended");
}

void copy_sender_segment(struct copy_sender *sender, struct hf_peer *peer)
{
	if (peer == sender->peer)
		find_ring(sender);
}

static void check_answer(struct copy_sender *sender)
{
	char text[HF_ADDR_TEXT];
	uint64_t waited_ns = hf_loop_now_ns(sender->loop) - sender->begun_ns;

	if ((sender->phase != COPY_CONNECTING && sender->phase != COPY_BEGINNING) ||
		waited_ns < sender->config.connect_timeout_ns)
		return;
	if (sender->phase == COPY_BEGINNING)
		copy_sender_fail(sender, "the receiver does not answer");
	else if (hf_peer_name(sender->peer)[0] != '\0')
		copy_sender_fail(sender, "%s runs at %s, but no `holdfast transfer receive`",
			hf_peer_name(sender->peer), hf_addr_format(&sender->config.to[0], text));
	else
		copy_sender_fail(sender,
			"no receiver answers at %s within %.0f s; does `holdfast transfer receive` run there?",
			hf_addr_format(&sender->config.to[0], text),
			(double)sender->config.connect_timeout_ns / NS_A_SECOND);
}

void copy_sender_pump(struct copy_sender *sender)
{
	if (sender->phase == COPY_CONNECTING && sender->peer != NULL &&
		hf_channel_is_open(sender->channel, sender->peer))
		begin(sender);
	check_answer(sender);
	if (sender->phase != COPY_MOVING)
		return;
	while (sender->phase == COPY_MOVING && packing_next(sender))
		continue;
	reading_announce(sender);
	while (sender->phase == COPY_MOVING && reading_next(sender))
		continue;
	if (sender->phase == COPY_MOVING && sender->verified == sender->config.source->count) {
		sender->phase = COPY_FINISHING;
		sender_send(sender,
			&(struct copy_message){.kind = COPY_FINISH, .number.number = sender->config.source->count});
	}
}

void copy_sender_look(const struct copy_sender *sender, struct copy_progress *progress)
{
	*progress = (struct copy_progress){.phase = sender->phase,
		.files = sender->verified,
		.read_bytes = sender->read_bytes,
		.sent_bytes = sender->sent_bytes,
		.kept_bytes = sender->kept_bytes,
		.why = sender->why.text};
	for (unsigned i = 0; i < COPY_SLOTS; i++)
		progress->in_flight += sender->slots[i].state == SLOT_WRITING;
	if (sender->next_read < sender->config.source->count)
		progress->now = &sender->config.source->files[sender->next_read];
}

struct hf_peer *copy_sender_peer(const struct copy_sender *sender)
{
	return sender->peer;
}

/* ---- life ---- */

int copy_sender_open(struct hf_node *node, struct hf_transfer *transfer, const struct copy_sender_config *config,
	struct copy_sender **sender_out, struct hf_error *error)
{
	struct copy_sender *sender = calloc(1, sizeof(*sender));
	void *memory = NULL;
	int failed;

	if (sender == NULL)
		return hf_error_set(error, -ENOMEM, "no memory for a sender");
	sender->config = *config;
	sender->loop = hf_node_loop(node);
	sender->env = hf_loop_env(sender->loop);
	sender->transfer = transfer;
	sender->begun_ns = hf_env_now_ns(sender->env);
	failed = hf_workers_open(sender->loop, "copy-read", 1, COPY_SLOTS, &sender->readers, error);
	if (!failed)
		failed = hf_mem_alloc(sender->env, RING_BYTES, &memory, error);
	sender->memory = memory;
	if (!failed && digest_create(&sender->packs.digest) != 0)
		failed = hf_error_set(error, -ENOMEM, "no memory for a sender");
	if (!failed)
		failed = hf_transfer_register(transfer, memory, RING_BYTES, 0, error);
	if (!failed)
		failed = hf_channel_register(node, COPY_CHANNEL, &channel_events, sender, &sender->channel, error);
	if (!failed)
		failed = hf_peer_connect(node, config->to, config->to_count, &sender->peer, error);
	if (failed) {
		copy_sender_close(sender);
		return failed;
	}
	*sender_out = sender;
	return 0;
}

bool copy_sender_is_idle(const struct copy_sender *sender)
{
	for (unsigned i = 0; i < COPY_SLOTS; i++)
		if (sender->slots[i].state == SLOT_READING || sender->slots[i].state == SLOT_WRITING)
			return false;
	return true;
}

static void on_released(struct hf_transfer *transfer, void *addr, void *context)
{
	struct copy_sender *sender = context;

	(void)transfer;
	hf_mem_free(sender->env, addr);
	sender->memory = NULL;
}

void copy_sender_close(struct copy_sender *sender)
{
	uint64_t limit_ns;

	if (sender == NULL)
		return;
	limit_ns = hf_env_now_ns(sender->env) + RELEASE_NS;
	hf_channel_close(sender->channel);
	hf_workers_close(sender->readers);
	for (unsigned i = 0; i < COPY_FILES; i++)
		reading_close(&sender->files[i]);
	digest_destroy(sender->packs.digest);
	if (sender->memory != NULL &&
		hf_transfer_unregister(sender->transfer, sender->memory, on_released, sender) == 0)
		while (sender->memory != NULL && hf_env_now_ns(sender->env) < limit_ns) /* a turn or two */
			hf_loop_turn(sender->loop, RELEASE_TURN_NS);
	free(sender);
}
