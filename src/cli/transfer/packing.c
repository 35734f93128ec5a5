/* Packs of a sender: directories, links and small files, read into slots on the helper thread. */
#include <errno.h>
#include <string.h>

#include "base/crc.h"
#include "base/ensure.h"
#include "base/list.h"
#include "cli/transfer/pack.h"
#include "cli/transfer/sender_parts.h"

/* A receiver that takes no packs is told of each as a file. */
static uint32_t files_to_pack(const struct copy_sender *sender)
{
	return sender->ring.packs ? sender->config.source->packed : 0;
}

bool packing_is_over(const struct copy_sender *sender)
{
	return sender->packs.read == files_to_pack(sender) && sender->packs.slots == 0;
}

/* ---- on the helper thread ---- */

static int read_content(struct copy_sender *sender, const struct copy_source_file *source, struct copy_pack *pack,
	uint8_t *content, bool *changed)
{
	uint64_t ctime_ns = 0;
	char sha256[DIGEST_TEXT];
	struct hf_file *file;
	ssize_t n;
	int failed = hf_file_open(sender->env, source->path, 0, &file);

	if (failed)
		return failed;
	*changed = !copy_source_is_same(source, &ctime_ns);
	n = hf_file_read_at(file, content, (size_t)source->bytes, 0);
	hf_file_close(file);
	if (n < 0)
		return (int)n;
	*changed = *changed || n != (ssize_t)source->bytes || !copy_source_is_same(source, &ctime_ns);
	digest_add(sender->packs.digest, content, (size_t)n);
	digest_finish(sender->packs.digest, sha256);
	copy_pack_seal(pack, sha256);
	return 0;
}

/* As many files as have room; -ESTALE: one has changed. */
static int run_pack(struct hf_work *work)
{
	struct slot *slot = container_of(work, struct slot, work);
	struct copy_sender *sender = slot->sender;
	const struct copy_source *source = sender->config.source;
	struct copy_pack pack = {.at = sender->memory + (size_t)slot->number * COPY_CHUNK_BYTES};
	int failed = 0;

	while (!failed && sender->packs.next < files_to_pack(sender)) {
		const struct copy_source_file *at = &source->files[sender->packs.next];
		struct copy_file file;
		uint8_t *content;
		bool changed = false;

		copy_source_describe(source, sender->packs.next, &file);
		content = copy_pack_add(&pack, &file);
		if (content == NULL)
			break;
		if (at->entry == COPY_REGULAR)
			failed = read_content(sender, at, &pack, content, &changed);
		if (changed && !failed)
			failed = -ESTALE;
		if (failed)
			slot->pack.wrong = at;
		sender->packs.next++;
		slot->pack.files++;
		slot->pack.bytes += at->bytes;
	}
	slot->bytes = (uint32_t)pack.bytes;
	slot->crc32c = crc32c(0, pack.at, pack.bytes);
	return failed;
}

/* ---- on the loop ---- */

static void give_up(struct slot *slot)
{
	slot_move(slot, SLOT_FREE);
	slot->sender->packs.slots--;
}

static void pack_done(struct hf_work *work, int result)
{
	struct slot *slot = container_of(work, struct slot, work);
	struct copy_sender *sender = slot->sender;

	sender->packs.read += slot->pack.files;
	sender->read_bytes += slot->pack.bytes;
	sender->budget_bytes += (double)(COPY_CHUNK_BYTES - slot->bytes); /* reading_may was asked for all of a slot */
	if (sender->packs.read == files_to_pack(sender))
		sender->next_file = sender->packs.read;
	sender->next_read = sender->packs.read;
	if (result != 0)
		give_up(slot);
	if (result == -ESTALE)
		copy_sender_fail(sender, "%s has changed while it was sent; send it again", slot->pack.wrong->path);
	else if (result != 0)
		copy_sender_fail(sender, "%s cannot be read: %s",
			slot->pack.wrong != NULL ? slot->pack.wrong->path : "a file", strerror(-result));
	else if (slot->pack.files == 0 || sender->phase != COPY_MOVING)
		give_up(slot);
	else
		slot_write(slot);
}

bool packing_next(struct copy_sender *sender)
{
	struct slot *slot = slot_free(sender);

	if (sender->packs.read == files_to_pack(sender) || slot == NULL || !reading_may(sender, COPY_CHUNK_BYTES))
		return false;
	slot_move(slot, SLOT_READING);
	*slot = (struct slot){.sender = sender,
		.state = SLOT_READING,
		.number = (unsigned)(slot - sender->slots),
		.pack.number = sender->packs.begun++,
		.work = {.run = run_pack, .done = pack_done}};
	sender->packs.slots++;
	ensure(hf_work_submit(sender->readers, &slot->work) == 0);
	return true;
}

/* The pack that the receiver is told of next, once it is written; NULL. */
static struct slot *find_next_told(struct copy_sender *sender)
{
	for (unsigned i = 0; i < COPY_SLOTS; i++)
		if (sender->slots[i].state == SLOT_WRITTEN && sender->slots[i].pack.number == sender->packs.told)
			return &sender->slots[i];
	return NULL;
}

/* In their order: a directory comes before its entries. */
void packing_written(struct copy_sender *sender)
{
	struct slot *slot;

	while ((slot = find_next_told(sender)) != NULL) {
		slot_move(slot, SLOT_TOLD);
		sender->packs.told++;
		sender->packs.sent += slot->pack.files;
		sender->sent_bytes += slot->pack.bytes;
		sender_send(
			sender, &(struct copy_message){.kind = COPY_PACK,
					.pack = {.slot = slot->number, .bytes = slot->bytes, .crc32c = slot->crc32c}});
	}
}

void packing_whole(struct copy_sender *sender, uint32_t files)
{
	if (files > sender->packs.sent - sender->packs.whole) {
		copy_sender_fail(sender, "the receiver answers out of turn; the versions of both ends differ");
		return;
	}
	sender->packs.whole += files;
	sender->verified += files;
}
