#include "cli/transfer/sender.h"

#include <holdfast/channel.h>
#include <holdfast/work.h>

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc.h"
#include "base/ensure.h"
#include "base/list.h"

#define NS_A_SECOND     1e9
#define RELEASE_NS      5000000000ull
#define RELEASE_TURN_NS 1000000u
#define BURST_BYTES     (4u * COPY_CHUNK_BYTES)
#define RING_BYTES      ((size_t)COPY_SLOTS * COPY_CHUNK_BYTES)
#define BIT(n)          (1u << (n))

enum slot_state {
	SLOT_FREE,
	SLOT_READING, /* by the helper thread */
	SLOT_WRITING, /* by the engine */
	SLOT_TOLD,    /* the receiver writes it to its disk */
	SLOT_STATES
};

static const unsigned slot_allowed[SLOT_STATES] = {
	[SLOT_FREE] = BIT(SLOT_READING),
	[SLOT_READING] = BIT(SLOT_WRITING) | BIT(SLOT_FREE),
	[SLOT_WRITING] = BIT(SLOT_TOLD) | BIT(SLOT_FREE),
	[SLOT_TOLD] = BIT(SLOT_FREE),
};

enum reading_state {
	READING_NONE,
	READING_ANNOUNCED, /* the receiver opens it */
	READING_READY,     /* its chunks are read and sent */
	READING_READ,      /* all are read, and it is hashed */
	READING_ENDED,     /* the receiver has the hash */
	READING_STATES
};

static const unsigned reading_allowed[READING_STATES] = {
	[READING_NONE] = BIT(READING_ANNOUNCED),
	[READING_ANNOUNCED] = BIT(READING_READY) | BIT(READING_NONE),
	[READING_READY] = BIT(READING_READ) | BIT(READING_NONE),
	[READING_READ] = BIT(READING_ENDED) | BIT(READING_NONE),
	[READING_ENDED] = BIT(READING_NONE),
};

struct slot {
	struct copy_sender *sender;
	enum slot_state state;
	unsigned number;
	struct reading *file;
	uint64_t chunk;
	uint32_t bytes, crc32c;
	struct hf_work work;
	struct hf_transfer_batch *batch;
};

/* A file that the receiver was told of. */
struct reading {
	enum reading_state state;
	uint32_t number;
	const struct copy_source_file *source;
	uint64_t chunks, next_chunk;
	uint64_t kept_bytes;
	uint8_t *have;
	unsigned slots; /* that work for it */
	/* The helper thread's. */
	struct hf_file *file;
	struct digest *digest;
	bool changed;
	char sha256[DIGEST_TEXT];
};

struct copy_sender {
	struct copy_sender_config config;
	struct hf_env *env;
	struct hf_loop *loop;
	struct hf_transfer *transfer;
	struct hf_channel *channel;
	struct hf_peer *peer;
	struct hf_workers *readers; /* one thread: chunks are hashed in their order */
	enum copy_phase phase;
	struct hf_error why;
	uint64_t begun_ns;
	uint8_t *memory;
	struct copy_ring ring;
	struct hf_segment *segment; /* NULL: the slots are not known to the engine yet */
	struct slot slots[COPY_SLOTS];
	struct reading files[COPY_FILES];
	uint32_t next_file, verified, next_read; /* of the source */
	uint64_t read_bytes, sent_bytes, kept_bytes;
	double budget_bytes;
	uint64_t budget_ns;
	bool bursting; /* the budget was full and is being used up */
};

static void move_slot(struct slot *slot, enum slot_state to)
{
	ensure(slot_allowed[slot->state] & BIT(to));
	slot->state = to;
}

static void move_reading(struct reading *file, enum reading_state to)
{
	ensure(reading_allowed[file->state] & BIT(to));
	file->state = to;
}

/* ---- saying ---- */

static void send_message(struct copy_sender *sender, const struct copy_message *message)
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
		send_message(sender, &message);
}

/* ---- files ---- */

static void close_reading(struct reading *file)
{
	if (file->state == READING_NONE)
		return;
	hf_file_close(file->file);
	digest_destroy(file->digest);
	free(file->have);
	move_reading(file, READING_NONE);
	*file = (struct reading){.state = READING_NONE};
}

static struct reading *free_reading(struct copy_sender *sender)
{
	for (unsigned i = 0; i < COPY_FILES; i++)
		if (sender->files[i].state == READING_NONE)
			return &sender->files[i];
	return NULL;
}

static struct reading *find_reading(struct copy_sender *sender, uint32_t number)
{
	for (unsigned i = 0; i < COPY_FILES; i++)
		if (sender->files[i].state != READING_NONE && sender->files[i].number == number)
			return &sender->files[i];
	return NULL;
}

static void announce(struct copy_sender *sender, struct reading *file)
{
	const struct copy_source_file *source = &sender->config.source->files[sender->next_file];
	struct copy_message message = {.kind = COPY_FILE,
		.file = {.file = sender->next_file,
			.directory = source->directory,
			.mode = source->mode,
			.bytes = source->bytes,
			.mtime_ns = source->mtime_ns,
			.inode = source->inode,
			.name_bytes = (uint16_t)strlen(source->name)}};

	move_reading(file, READING_ANNOUNCED);
	file->number = sender->next_file;
	file->source = source;
	file->chunks = copy_chunks(source->bytes);
	file->have = calloc(1, file->chunks / 8 + 1);
	if (file->have == NULL || digest_create(&file->digest) != 0) {
		copy_sender_fail(sender, "no memory left");
		return;
	}
	memcpy(message.file.name, source->name, message.file.name_bytes);
	sender->next_file++;
	send_message(sender, &message);
}

static void announce_files(struct copy_sender *sender)
{
	struct reading *file;

	while (sender->phase == COPY_MOVING && sender->next_file < sender->config.source->count &&
		(file = free_reading(sender)) != NULL)
		announce(sender, file);
}

static bool receiver_has(const struct reading *file, uint64_t chunk)
{
	return (file->have[chunk / 8] >> chunk % 8 & 1) != 0;
}

static void take_have(struct copy_sender *sender, const struct copy_have *have)
{
	struct reading *file = find_reading(sender, have->file);

	if (file == NULL || file->state != READING_ANNOUNCED || have->end > file->chunks) {
		copy_sender_fail(sender, "the receiver answers out of turn; the versions of both ends differ");
		return;
	}
	for (uint64_t i = have->begin; i < have->end; i++) {
		file->have[i / 8] |= (uint8_t)(1u << i % 8);
		file->kept_bytes += copy_chunk_bytes(file->source->bytes, i);
	}
}

static void take_verified(struct copy_sender *sender, uint32_t number)
{
	struct reading *file = find_reading(sender, number);

	if (file == NULL || file->slots > 0 || (file->state != READING_ANNOUNCED && file->state != READING_ENDED)) {
		copy_sender_fail(sender, "the receiver answers out of turn; the versions of both ends differ");
		return;
	}
	if (file->state == READING_ANNOUNCED) { /* from a copy before this one */
		sender->kept_bytes += file->source->bytes;
		sender->read_bytes += file->source->bytes;
	} else {
		sender->kept_bytes += file->kept_bytes;
	}
	sender->verified++;
	close_reading(file);
}

/* ---- reading ---- */

static int read_chunk(struct slot *slot)
{
	struct reading *file = slot->file;
	uint8_t *at = slot->sender->memory + (size_t)slot->number * COPY_CHUNK_BYTES;
	ssize_t n;

	if (file->file == NULL) {
		int failed = hf_file_open(slot->sender->env, file->source->path, 0, &file->file);

		if (failed)
			return failed;
	}
	n = slot->bytes == 0 ? 0 : hf_file_read_at(file->file, at, slot->bytes, slot->chunk * COPY_CHUNK_BYTES);
	if (n < 0)
		return (int)n;
	file->changed = n != (ssize_t)slot->bytes;
	digest_add(file->digest, at, slot->bytes);
	slot->crc32c = crc32c(0, at, slot->bytes);
	return 0;
}

static int run_read(struct hf_work *work)
{
	struct slot *slot = container_of(work, struct slot, work);
	struct reading *file = slot->file;
	int failed = read_chunk(slot);

	if (failed || slot->chunk + 1 < file->chunks)
		return failed;
	file->changed = file->changed || !copy_source_is_same(file->source);
	digest_finish(file->digest, file->sha256);
	hf_file_close(file->file);
	file->file = NULL;
	return 0;
}

static void on_idle(struct hf_transfer_batch *batch, void *context);

static void write_slot(struct slot *slot)
{
	struct copy_sender *sender = slot->sender;
	struct hf_transfer_request request = {.opcode = HF_TRANSFER_WRITE,
		.source = sender->memory + (size_t)slot->number * COPY_CHUNK_BYTES,
		.segment = sender->segment,
		.target_offset = sender->ring.addr + (uint64_t)slot->number * COPY_CHUNK_BYTES,
		.length = slot->bytes};
	struct hf_error error = {0};
	unsigned first;
	int failed = hf_transfer_batch_alloc(sender->transfer, 1, on_idle, slot, &slot->batch);

	move_slot(slot, SLOT_WRITING);
	if (!failed)
		failed = hf_transfer_submit(slot->batch, &request, 1, &first, &error);
	if (failed) {
		move_slot(slot, SLOT_FREE);
		slot->file->slots--;
		(void)hf_transfer_batch_free(slot->batch);
		slot->batch = NULL;
		copy_sender_fail(sender, "a chunk cannot be sent: %s", error.text);
	}
}

static void end_file(struct copy_sender *sender, struct reading *file)
{
	struct copy_message message = {.kind = COPY_END, .end.file = file->number};

	if (file->state != READING_READ || file->slots > 0)
		return;
	move_reading(file, READING_ENDED);
	memcpy(message.end.sha256, file->sha256, sizeof(message.end.sha256));
	send_message(sender, &message);
}

static void read_done(struct hf_work *work, int result)
{
	struct slot *slot = container_of(work, struct slot, work);
	struct copy_sender *sender = slot->sender;
	struct reading *file = slot->file;

	if (result != 0 || file->changed) {
		move_slot(slot, SLOT_FREE);
		file->slots--;
		copy_sender_fail(sender,
			result != 0 ? "%s cannot be read: %s" : "%s has changed while it was sent; send it again%s",
			file->source->path, result != 0 ? strerror(-result) : "");
		return;
	}
	sender->read_bytes += slot->bytes;
	if (slot->chunk + 1 >= file->chunks)
		move_reading(file, READING_READ);
	if (sender->phase == COPY_MOVING && slot->bytes > 0 && !receiver_has(file, slot->chunk)) {
		write_slot(slot);
		return;
	}
	move_slot(slot, SLOT_FREE);
	file->slots--;
	if (sender->phase == COPY_MOVING)
		end_file(sender, file);
}

static void on_idle(struct hf_transfer_batch *batch, void *context)
{
	struct slot *slot = context;
	struct copy_sender *sender = slot->sender;
	enum hf_transfer_status status = hf_transfer_batch_status(batch);
	const struct copy_message message = {.kind = COPY_CHUNK,
		.chunk = {.file = slot->file->number,
			.slot = slot->number,
			.bytes = slot->bytes,
			.crc32c = slot->crc32c,
			.chunk = slot->chunk}};

	slot->file->slots--;
	slot->batch = NULL;
	move_slot(slot, status == HF_TRANSFER_COMPLETED ? SLOT_TOLD : SLOT_FREE);
	(void)hf_transfer_batch_free(batch);
	if (sender->phase != COPY_MOVING)
		return;
	if (status != HF_TRANSFER_COMPLETED) {
		copy_sender_fail(sender, "%s",
			hf_channel_is_open(sender->channel, sender->peer)
				? "no transport carries chunks to the receiver any more; send it again when one does"
				: "the receiver is gone");
		return;
	}
	sender->sent_bytes += slot->bytes;
	send_message(sender, &message);
	end_file(sender, slot->file);
}

static bool may_read(struct copy_sender *sender, uint32_t bytes)
{
	uint64_t now_ns = hf_loop_now_ns(sender->loop);
	double most;

	if (sender->config.rate_bytes == 0)
		return true;
	most = (double)(sender->config.burst_bytes != 0 ? sender->config.burst_bytes : BURST_BYTES);
	sender->budget_bytes += (double)(now_ns - sender->budget_ns) * (double)sender->config.rate_bytes / NS_A_SECOND;
	sender->budget_ns = now_ns;
	if (sender->budget_bytes >= most) {
		sender->budget_bytes = most;
		sender->bursting = true;
	}
	sender->bursting = sender->bursting && sender->budget_bytes >= bytes;
	if (!sender->bursting)
		return false;
	sender->budget_bytes -= bytes;
	return true;
}

/* False: nothing can be read now. */
static bool read_one(struct copy_sender *sender)
{
	struct reading *file = find_reading(sender, sender->next_read);
	struct slot *slot = NULL;
	uint32_t bytes;

	if (file == NULL && sender->next_read < sender->next_file) { /* verified before it was read */
		sender->next_read++;
		return true;
	}
	for (unsigned i = 0; slot == NULL && i < COPY_SLOTS; i++)
		if (sender->slots[i].state == SLOT_FREE)
			slot = &sender->slots[i];
	if (file == NULL || file->state == READING_ANNOUNCED || slot == NULL)
		return false;
	bytes = file->chunks == 0 ? 0 : copy_chunk_bytes(file->source->bytes, file->next_chunk);
	if (!may_read(sender, bytes))
		return false;
	move_slot(slot, SLOT_READING);
	*slot = (struct slot){.sender = sender,
		.state = SLOT_READING,
		.number = (unsigned)(slot - sender->slots),
		.file = file,
		.chunk = file->next_chunk,
		.bytes = bytes,
		.work = {.run = run_read, .done = read_done}};
	file->slots++;
	if (++file->next_chunk >= file->chunks)
		sender->next_read++;
	ensure(hf_work_submit(sender->readers, &slot->work) == 0);
	return true;
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
	send_message(sender, &message);
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
	struct reading *file;

	if (message->kind == COPY_FAIL) {
		fail(sender, "the receiver: %s", message->fail.text);
	} else if (message->kind == COPY_RING && sender->phase == COPY_BEGINNING && message->ring.slots == COPY_SLOTS) {
		sender->ring = message->ring;
		find_ring(sender);
	} else if (message->kind == COPY_HAVE && sender->phase == COPY_MOVING) {
		take_have(sender, &message->have);
	} else if (message->kind == COPY_READY && sender->phase == COPY_MOVING) {
		file = find_reading(sender, message->number.number);
		if (file != NULL && file->state == READING_ANNOUNCED)
			move_reading(file, READING_READY);
	} else if (message->kind == COPY_TAKEN && message->number.number < COPY_SLOTS) {
		if (sender->slots[message->number.number].state == SLOT_TOLD)
			move_slot(&sender->slots[message->number.number], SLOT_FREE);
	} else if (message->kind == COPY_VERIFIED && sender->phase == COPY_MOVING) {
		take_verified(sender, message->number.number);
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
	announce_files(sender);
	while (sender->phase == COPY_MOVING && read_one(sender))
		continue;
	if (sender->phase == COPY_MOVING && sender->verified == sender->config.source->count) {
		sender->phase = COPY_FINISHING;
		send_message(sender,
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
		close_reading(&sender->files[i]);
	if (sender->memory != NULL &&
		hf_transfer_unregister(sender->transfer, sender->memory, on_released, sender) == 0)
		while (sender->memory != NULL && hf_env_now_ns(sender->env) < limit_ns) /* a turn or two */
			hf_loop_turn(sender->loop, RELEASE_TURN_NS);
	free(sender);
}
