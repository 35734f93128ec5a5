/* Files of a sender: announced, read and hashed on a helper thread, and carried in slots. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc.h"
#include "base/ensure.h"
#include "base/states.h"
#include "base/list.h"
#include "cli/transfer/sender_parts.h"

#define NS_A_SECOND 1e9
#define BURST_BYTES (4u * COPY_CHUNK_BYTES)

static const struct state slot_states[SLOT_STATES] = {
	[SLOT_FREE] = {"free", BIT(SLOT_READING)},
	[SLOT_READING] = {"reading", BIT(SLOT_WRITING) | BIT(SLOT_FREE)},
	[SLOT_WRITING] = {"writing", BIT(SLOT_TOLD) | BIT(SLOT_WRITTEN) | BIT(SLOT_FREE)},
	[SLOT_WRITTEN] = {"written", BIT(SLOT_TOLD) | BIT(SLOT_FREE)},
	[SLOT_TOLD] = {"told", BIT(SLOT_FREE)},
};

static const struct state reading_states[READING_STATES] = {
	[READING_NONE] = {"none", BIT(READING_ANNOUNCED)},
	[READING_ANNOUNCED] = {"announced", BIT(READING_READY) | BIT(READING_NONE)},
	[READING_READY] = {"ready", BIT(READING_READ) | BIT(READING_NONE)},
	[READING_READ] = {"read", BIT(READING_ENDED) | BIT(READING_NONE)},
	[READING_ENDED] = {"ended", BIT(READING_NONE)},
};

void slot_move(struct slot *slot, enum slot_state to)
{
	states_move_often("slot", slot_states, &slot->state, to, "%u", slot->number);
}

static void reading_move(struct reading *file, enum reading_state to)
{
	states_move_often("file", reading_states, &file->state, to, "%u", file->number);
}

/* ---- files ---- */

void reading_close(struct reading *file)
{
	if (file->state == READING_NONE)
		return;
	hf_file_close(file->file);
	digest_destroy(file->digest);
	free(file->have);
	reading_move(file, READING_NONE);
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
	struct copy_message message = {.kind = COPY_FILE};

	copy_source_describe(sender->config.source, sender->next_file, &message.file);
	reading_move(file, READING_ANNOUNCED);
	file->number = sender->next_file;
	file->source = source;
	file->chunks = copy_chunks(source->bytes);
	file->have = calloc(1, file->chunks / 8 + 1);
	if (file->have == NULL || digest_create(&file->digest) != 0) {
		copy_sender_fail(sender, "no memory left");
		return;
	}
	sender->next_file++;
	sender_send(sender, &message);
}

void reading_announce(struct copy_sender *sender)
{
	struct reading *file;

	while (sender->phase == COPY_MOVING && packing_is_over(sender) &&
		sender->next_file < sender->config.source->count && (file = free_reading(sender)) != NULL)
		announce(sender, file);
}

static bool receiver_has(const struct reading *file, uint64_t chunk)
{
	return (file->have[chunk / 8] >> chunk % 8 & 1) != 0;
}

void reading_have(struct copy_sender *sender, const struct copy_have *have)
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

void reading_ready(struct copy_sender *sender, uint32_t number)
{
	struct reading *file = find_reading(sender, number);

	if (file != NULL && file->state == READING_ANNOUNCED)
		reading_move(file, READING_READY);
}

void reading_verified(struct copy_sender *sender, uint32_t number)
{
	struct reading *file = find_reading(sender, number);

	if (file == NULL || file->slots > 0 ||
		file->state != (file->source->entry == COPY_REGULAR ? READING_ENDED : READING_ANNOUNCED)) {
		copy_sender_fail(sender, "the receiver answers out of turn; the versions of both ends differ");
		return;
	}
	sender->kept_bytes += file->kept_bytes;
	sender->verified++;
	reading_close(file);
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
		file->changed = !copy_source_is_same(file->source, &file->ctime_ns);
	}
	n = slot->bytes == 0 ? 0 : hf_file_read_at(file->file, at, slot->bytes, slot->chunk * COPY_CHUNK_BYTES);
	if (n < 0)
		return (int)n;
	file->changed = file->changed || n != (ssize_t)slot->bytes;
	digest_add(file->digest, at, slot->bytes);
	slot->zeros = file->source->sparse && slot->bytes > 0 && copy_is_zeros(at, slot->bytes);
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
	file->changed = file->changed || !copy_source_is_same(file->source, &file->ctime_ns);
	digest_finish(file->digest, file->sha256);
	hf_file_close(file->file);
	file->file = NULL;
	return 0;
}

static void on_idle(struct hf_transfer_batch *batch, void *context);

void slot_write(struct slot *slot)
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

	slot_move(slot, SLOT_WRITING);
	if (!failed)
		failed = hf_transfer_submit(slot->batch, &request, 1, &first, &error);
	if (failed) {
		slot_move(slot, SLOT_FREE);
		if (slot->file != NULL)
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
	reading_move(file, READING_ENDED);
	memcpy(message.end.sha256, file->sha256, sizeof(message.end.sha256));
	sender_send(sender, &message);
}

static void read_done(struct hf_work *work, int result)
{
	struct slot *slot = container_of(work, struct slot, work);
	struct copy_sender *sender = slot->sender;
	struct reading *file = slot->file;

	if (result != 0 || file->changed) {
		slot_move(slot, SLOT_FREE);
		file->slots--;
		copy_sender_fail(sender,
			result != 0 ? "%s cannot be read: %s" : "%s has changed while it was sent; send it again%s",
			file->source->path, result != 0 ? strerror(-result) : "");
		return;
	}
	sender->read_bytes += slot->bytes;
	if (slot->chunk + 1 >= file->chunks)
		reading_move(file, READING_READ);
	if (sender->phase == COPY_MOVING && slot->bytes > 0 && !receiver_has(file, slot->chunk)) {
		if (!slot->zeros) {
			slot_write(slot);
			return;
		}
		sender->sent_bytes += slot->bytes;
		sender_send(
			sender, &(struct copy_message){.kind = COPY_HOLE,
					.have = {.file = file->number, .begin = slot->chunk, .end = slot->chunk + 1}});
	}
	slot_move(slot, SLOT_FREE);
	file->slots--;
	if (sender->phase == COPY_MOVING)
		end_file(sender, file);
}

static void chunk_written(struct slot *slot)
{
	struct copy_sender *sender = slot->sender;

	sender->sent_bytes += slot->bytes;
	sender_send(sender, &(struct copy_message){.kind = COPY_CHUNK,
				    .chunk = {.file = slot->file->number,
					    .slot = slot->number,
					    .bytes = slot->bytes,
					    .crc32c = slot->crc32c,
					    .chunk = slot->chunk}});
	end_file(sender, slot->file);
}

static void on_idle(struct hf_transfer_batch *batch, void *context)
{
	struct slot *slot = context;
	struct copy_sender *sender = slot->sender;
	enum hf_transfer_status status = hf_transfer_batch_status(batch);
	enum slot_state then = slot->file != NULL ? SLOT_TOLD : SLOT_WRITTEN;

	if (slot->file != NULL)
		slot->file->slots--;
	slot->batch = NULL;
	slot_move(slot, status == HF_TRANSFER_COMPLETED ? then : SLOT_FREE);
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
	if (slot->file != NULL)
		chunk_written(slot);
	else
		packing_written(sender);
}

bool reading_may(struct copy_sender *sender, uint32_t bytes)
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

struct slot *slot_free(struct copy_sender *sender)
{
	for (unsigned i = 0; i < COPY_SLOTS; i++)
		if (sender->slots[i].state == SLOT_FREE)
			return &sender->slots[i];
	return NULL;
}

bool reading_next(struct copy_sender *sender)
{
	struct reading *file = find_reading(sender, sender->next_read);
	struct slot *slot = slot_free(sender);
	uint32_t bytes;

	if (file == NULL && sender->next_read < sender->next_file) { /* verified before it was read */
		sender->next_read++;
		return true;
	}
	if (file == NULL || file->state == READING_ANNOUNCED || slot == NULL)
		return false;
	bytes = file->chunks == 0 ? 0 : copy_chunk_bytes(file->source->bytes, file->next_chunk);
	if (!reading_may(sender, bytes))
		return false;
	slot_move(slot, SLOT_READING);
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

void reading_taken(struct copy_sender *sender, uint32_t slot)
{
	if (sender->slots[slot].state != SLOT_TOLD)
		return;
	slot_move(&sender->slots[slot], SLOT_FREE);
	if (sender->slots[slot].file == NULL)
		sender->packs.slots--;
}
