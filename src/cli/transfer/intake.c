/* Files of a session: opened, written, hashed behind the writes, and made durable before the journal has them. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc.h"
#include "base/ensure.h"
#include "base/states.h"
#include "cli/transfer/journal.h"
#include "cli/transfer/session.h"

#define COMMIT_EVERY_NS 200000000u
#define RECORDS_LEAST   65536u

static const struct state file_states[SESSION_FILE_STATES] = {
	[SESSION_FILE_FREE] = {"free", BIT(SESSION_FILE_OPENING)},
	[SESSION_FILE_OPENING] = {"opening", BIT(SESSION_FILE_READY) | BIT(SESSION_FILE_FREE)},
	[SESSION_FILE_READY] = {"ready", BIT(SESSION_FILE_READ) | BIT(SESSION_FILE_FREE)},
	[SESSION_FILE_READ] = {"read", BIT(SESSION_FILE_WHOLE) | BIT(SESSION_FILE_FREE)},
	[SESSION_FILE_WHOLE] = {"whole", BIT(SESSION_FILE_FREE)},
};

static void session_file_move(struct session_file *file, enum session_file_state to)
{
	states_move_often("file", file_states, &file->state, to, "%u", file->number);
}

/* ---- records of the next commit ---- */

static int add_record(struct session *session, const struct copy_message *message)
{
	struct session_records *records = &session->records;

	if (records->room - records->bytes < COPY_JOURNAL_RECORD_BYTES) {
		size_t room = records->room == 0 ? RECORDS_LEAST : records->room * 2;
		uint8_t *grown = realloc(records->at, room);

		if (grown == NULL)
			return -ENOMEM;
		*records = (struct session_records){.at = grown, .bytes = records->bytes, .room = room};
	}
	records->bytes += copy_journal_record(message, records->at + records->bytes);
	return 0;
}

static int flush_have(struct session *session)
{
	const struct copy_message message = {.kind = COPY_HAVE, .have = session->have};

	if (session->have.begin == session->have.end)
		return 0;
	session->have = (struct copy_have){0};
	return add_record(session, &message);
}

static int note_have(struct session *session, const struct copy_stored *stored, uint64_t chunk)
{
	int failed = 0;

	if (session->have.begin == session->have.end || session->have.file != stored->number ||
		session->have.end != chunk) {
		failed = flush_have(session);
		session->have = (struct copy_have){.file = stored->number, .begin = chunk, .end = chunk};
	}
	session->have.end++;
	return failed;
}

static int note(struct session *session, const struct copy_message *message)
{
	int failed = flush_have(session);

	return failed ? failed : add_record(session, message);
}

static void note_file(struct session *session, const struct copy_stored *stored)
{
	struct copy_message message = {.kind = COPY_FILE};

	copy_store_describe(stored, &message.file);
	if (note(session, &message) != 0)
		session_fail(session, "the receiver has no memory left");
}

/* ---- the end of a file ---- */

static void close_file(struct session_file *file)
{
	if (file->state == SESSION_FILE_FREE)
		return;
	hf_file_close(file->file);
	digest_destroy(file->digest);
	session_file_move(file, SESSION_FILE_FREE);
	*file = (struct session_file){.state = SESSION_FILE_FREE};
}

static void verified(struct session_file *file)
{
	struct session *session = file->session;

	session->receipt.files++;
	session_send_number(session, COPY_VERIFIED, file->number);
	close_file(file);
}

static void judge(struct session_file *file)
{
	struct session *session = file->session;

	if (file->state != SESSION_FILE_READ || file->hashing || file->hash_next < copy_chunks(file->stored->bytes))
		return;
	digest_finish(file->digest, file->sha256);
	if (strcmp(file->sha256, file->theirs) != 0) {
		const char *name = file->stored->name[0] != '\0' ? file->stored->name : session->begin.name;

		session_fail(session,
			file->kept ? "%.100s: what an earlier copy left here has another SHA-256; send it again"
				   : "%.100s arrived with another SHA-256 than it was sent with; send it again",
			name);
		file->stored = copy_store_renew(&session->store, file->stored);
		if (file->stored != NULL)
			note_file(session, file->stored);
		return;
	}
	session_file_move(file, SESSION_FILE_WHOLE);
	file->dirty = true;
	session->commit_urgent = true;
}

/* ---- hashing, behind the writes ---- */

static int run_hash(struct hf_work *work)
{
	struct session_file *file = container_of(work, struct session_file, hash_work);
	uint8_t *memory = file->session->hash_memory;

	for (uint64_t i = file->hash_next; i < file->hash_end; i++) {
		uint32_t bytes = copy_chunk_bytes(file->stored->bytes, i);
		ssize_t n = hf_file_read_at(file->file, memory, bytes, i * COPY_CHUNK_BYTES);

		if (n != (ssize_t)bytes)
			return n < 0 ? (int)n : -EIO;
		digest_add(file->digest, memory, bytes);
	}
	return 0;
}

static void hash_on(struct session_file *file);

static void hash_done(struct hf_work *work, int result)
{
	struct session_file *file = container_of(work, struct session_file, hash_work);
	struct session *session = file->session;

	file->hashing = false;
	file->hash_next = file->hash_end;
	session_work_done(session);
	if (result != 0)
		session_fail(session, "%.100s cannot be read back: %s", file->stored->name, strerror(-result));
	else
		hash_on(file);
}

static void hash_on(struct session_file *file)
{
	const struct copy_stored *stored = file->stored;
	uint64_t end = file->hash_next, chunks = copy_chunks(stored->bytes);

	if (file->hashing || file->session->state != SESSION_LIVE)
		return;
	while (end < chunks && end < file->hash_next + COPY_SLOTS && copy_stored_has(stored, end))
		end++;
	if (end == file->hash_next) {
		judge(file);
		return;
	}
	file->hash_end = end;
	file->hashing = true;
	file->hash_work = (struct hf_work){.run = run_hash, .done = hash_done};
	session_work(file->session, file->session->receiver->sync, &file->hash_work);
}

/* ---- opening ---- */

static int run_open(struct hf_work *work)
{
	struct session_file *file = container_of(work, struct session_file, open_work);

	return copy_store_open_file(&file->session->store, file->stored, &file->file, &file->intact, &file->error);
}

/* The chunks that the journal has, and that the rest may come. */
static void tell_ready(struct session_file *file)
{
	const struct copy_stored *stored = file->stored;
	struct copy_message message = {.kind = COPY_HAVE};
	uint64_t chunks = copy_chunks(stored->bytes), at = 0;

	while (at < chunks) {
		uint64_t begin = at;

		while (at < chunks && copy_stored_has(stored, at))
			at++;
		if (at > begin) {
			file->kept = true;
			message.have = (struct copy_have){.file = file->number, .begin = begin, .end = at};
			session_send(file->session, &message);
		}
		while (at < chunks && !copy_stored_has(stored, at))
			at++;
	}
	session_file_move(file, SESSION_FILE_READY);
	session_send_number(file->session, COPY_READY, file->number);
}

static void open_done(struct hf_work *work, int result)
{
	struct session_file *file = container_of(work, struct session_file, open_work);
	struct session *session = file->session;

	session_work_done(session);
	if (result != 0) {
		session_fail(session, "%s", file->error.text[0] != '\0' ? file->error.text : strerror(-result));
		return;
	}
	if (session->state != SESSION_LIVE)
		return;
	if (file->stored->entry != COPY_REGULAR) {
		verified(file);
		return;
	}
	if (!file->intact && !file->fresh) {
		file->stored = copy_store_renew(&session->store, file->stored);
		if (file->stored != NULL)
			note_file(session, file->stored);
	}
	if (file->stored == NULL || digest_create(&file->digest) != 0) {
		session_fail(session, "the receiver has no memory left");
		return;
	}
	tell_ready(file);
	hash_on(file);
}

static struct session_file *free_file(struct session *session)
{
	for (unsigned i = 0; i < COPY_FILES; i++)
		if (session->files[i].state == SESSION_FILE_FREE)
			return &session->files[i];
	return NULL;
}

void intake_file(struct session *session, const struct copy_file *said)
{
	struct session_file *file = free_file(session);
	struct copy_stored *stored;
	struct hf_error error = {0};
	bool record;

	if (file == NULL || session->packs > 0 || said->file != session->next_file) {
		session_fail(session, "the sender begins a file out of turn; the versions of both ends differ");
		return;
	}
	session->files_begun = true;
	if (copy_store_allows(&session->store, said, &error) != 0) {
		session_fail(session, "%s", error.text);
		return;
	}
	stored = copy_store_find(&session->store, said, &record);
	if (stored == NULL) {
		session_fail(session, "the receiver has no memory left");
		return;
	}
	stored->named = true;
	if (record)
		note_file(session, stored);
	session->next_file++;
	session->receipt.bytes += said->bytes;
	session_file_move(file, SESSION_FILE_OPENING);
	*file = (struct session_file){.state = SESSION_FILE_OPENING,
		.number = said->file,
		.session = session,
		.stored = stored,
		.fresh = record,
		.open_work = {.run = run_open, .done = open_done}};
	session_work(session, session->receiver->disk, &file->open_work);
}

static struct session_file *find_file(struct session *session, uint32_t number)
{
	for (unsigned i = 0; i < COPY_FILES; i++)
		if (session->files[i].state >= SESSION_FILE_READY && session->files[i].number == number)
			return &session->files[i];
	return NULL;
}

/* ---- chunks ---- */

static int run_write(struct hf_work *work)
{
	struct session_slot *slot = container_of(work, struct session_slot, work);
	const struct session *session = slot->session;
	const uint8_t *bytes = session->ring + (size_t)slot->chunk.slot * COPY_CHUNK_BYTES;
	ssize_t n;

	if (crc32c(0, bytes, slot->chunk.bytes) != slot->chunk.crc32c)
		return -EBADMSG;
	n = copy_store_write(
		slot->file->stored, slot->file->file, bytes, slot->chunk.bytes, slot->chunk.chunk * COPY_CHUNK_BYTES);
	if (n < 0)
		return (int)n;
	return n == (ssize_t)slot->chunk.bytes ? 0 : -ENOSPC;
}

static void take_chunk(struct session_file *file, uint64_t chunk, uint32_t bytes)
{
	struct session *session = file->session;

	file->stored->have[chunk / 8] |= (uint8_t)(1u << chunk % 8);
	file->dirty = true;
	session->receipt.new_bytes += bytes;
	if (note_have(session, file->stored, chunk) != 0)
		session_fail(session, "the receiver has no memory left");
}

static void write_done(struct hf_work *work, int result)
{
	struct session_slot *slot = container_of(work, struct session_slot, work);
	struct session *session = slot->session;
	struct session_file *file = slot->file;
	uint64_t chunk = slot->chunk.chunk;

	slot->file = NULL;
	file->writing--;
	session_work_done(session);
	if (result == -EBADMSG) {
		session_fail(session, "chunk %llu of %.100s arrived with other bytes than were sent",
			(unsigned long long)chunk, file->stored->name);
		return;
	}
	if (result != 0) {
		session_fail(session, "%s cannot be written: %s", session->store.part, strerror(-result));
		return;
	}
	take_chunk(file, chunk, slot->chunk.bytes);
	session_send_number(session, COPY_TAKEN, slot->chunk.slot);
	hash_on(file);
}

static bool is_being_written(const struct session *session, const struct session_file *file, uint64_t chunk)
{
	for (unsigned i = 0; i < COPY_SLOTS; i++)
		if (session->slots[i].file == file && session->slots[i].chunk.chunk == chunk)
			return true;
	return false;
}

void intake_chunk(struct session *session, const struct copy_chunk *chunk)
{
	struct session_file *file = find_file(session, chunk->file);
	struct session_slot *slot = &session->slots[chunk->slot];

	if (file == NULL || slot->file != NULL || slot->pack.bytes > 0 ||
		chunk->chunk >= copy_chunks(file->stored->bytes) ||
		chunk->bytes != copy_chunk_bytes(file->stored->bytes, chunk->chunk) ||
		copy_stored_has(file->stored, chunk->chunk) || is_being_written(session, file, chunk->chunk)) {
		session_fail(session, "the sender sends a chunk out of turn; the versions of both ends differ");
		return;
	}
	*slot = (struct session_slot){
		.session = session, .file = file, .chunk = *chunk, .work = {.run = run_write, .done = write_done}};
	file->writing++;
	session_work(session, session->receiver->disk, &slot->work);
}

/* It is a hole already: the file was made so, and chunks that are not there were not written. */
void intake_hole(struct session *session, const struct copy_have *hole)
{
	struct session_file *file = find_file(session, hole->file);

	if (file == NULL || !file->stored->sparse || hole->end > copy_chunks(file->stored->bytes)) {
		session_fail(session, "the sender sends a hole out of turn; the versions of both ends differ");
		return;
	}
	for (uint64_t i = hole->begin; i < hole->end; i++) {
		if (copy_stored_has(file->stored, i) || is_being_written(session, file, i)) {
			session_fail(session, "the sender sends a hole out of turn; the versions of both ends differ");
			return;
		}
		take_chunk(file, i, copy_chunk_bytes(file->stored->bytes, i));
	}
	hash_on(file);
}

void intake_end(struct session *session, const struct copy_end *end)
{
	struct session_file *file = find_file(session, end->file);

	if (file == NULL || file->state != SESSION_FILE_READY) {
		session_fail(session, "the sender ends a file out of turn; the versions of both ends differ");
		return;
	}
	memcpy(file->theirs, end->sha256, sizeof(file->theirs));
	session_file_move(file, SESSION_FILE_READ);
	hash_on(file);
}

/* ---- packs ---- */

static int take_entry(struct session_slot *slot, const struct copy_packed *entry)
{
	struct session *session = slot->session;
	int failed;

	if (entry->file.file != session->next_file)
		return -EPROTO;
	failed = copy_store_put(
		&session->store, entry, session->pack_digest, session->pack_memory + COPY_CHUNK_BYTES, &slot->error);
	if (failed)
		return failed;
	session->next_file++;
	slot->files++;
	slot->bytes += entry->file.bytes;
	return 0;
}

/* On a copy: the sender can write into the slot meanwhile. */
static int run_pack(struct hf_work *work)
{
	struct session_slot *slot = container_of(work, struct session_slot, work);
	const struct session *session = slot->session;
	struct copy_packed entry;
	size_t used = 0;
	int failed = 0;

	memcpy(session->pack_memory, session->ring + (size_t)slot->pack.slot * COPY_CHUNK_BYTES, slot->pack.bytes);
	if (crc32c(0, session->pack_memory, slot->pack.bytes) != slot->pack.crc32c)
		return hf_error_set(&slot->error, -EBADMSG, "a pack of files arrived with other bytes than were sent");
	while (!failed && used < slot->pack.bytes)
		failed = copy_pack_next(session->pack_memory, slot->pack.bytes, &used, &entry)
				 ? take_entry(slot, &entry)
				 : -EPROTO;
	return failed;
}

static void pack_done(struct hf_work *work, int result)
{
	struct session_slot *slot = container_of(work, struct session_slot, work);
	struct session *session = slot->session;

	slot->pack.bytes = 0;
	session->packs--;
	session_work_done(session);
	session->packed += slot->files;
	session->receipt.bytes += slot->bytes;
	session->receipt.new_bytes += slot->bytes;
	if (result != 0) {
		session_fail(session, "%s",
			slot->error.text[0] != '\0'
				? slot->error.text
				: "the sender sent a malformed pack; the versions of both ends differ");
		return;
	}
	session->commit_urgent = session->commit_urgent || session->packs == 0;
	session_send_number(session, COPY_TAKEN, slot->pack.slot);
}

void intake_pack(struct session *session, const struct copy_pack_sent *pack)
{
	struct session_slot *slot = &session->slots[pack->slot];

	if (session->files_begun || !session->store.takes_packs || slot->file != NULL || slot->pack.bytes > 0) {
		session_fail(session, "the sender sends a pack out of turn; the versions of both ends differ");
		return;
	}
	*slot = (struct session_slot){.session = session, .pack = *pack, .work = {.run = run_pack, .done = pack_done}};
	session->packs++;
	session_work(session, session->receiver->disk, &slot->work);
}

/* ---- commits ---- */

static int run_commit(struct hf_work *work)
{
	struct session *session = container_of(work, struct session, commit_work);
	int failed = 0;

	for (unsigned i = 0; !failed && i < session->commit_count; i++) {
		struct session_file *file = session->commit_files[i];

		if (file->told)
			failed = copy_store_settle(&session->store, file->stored, &session->commit_error);
		if (!failed)
			failed = file->told ? hf_file_sync(file->file) : hf_file_sync_data(file->file);
	}
	if (!failed && session->packed_told > 0)
		failed = copy_store_sync(&session->store, &session->commit_error);
	if (failed || session->committed.bytes == 0)
		return failed;
	return copy_store_commit(
		&session->store, session->committed.at, session->committed.bytes, &session->commit_error);
}

static void commit_done(struct hf_work *work, int result)
{
	struct session *session = container_of(work, struct session, commit_work);
	const char *words = session->commit_error.text;

	session->committing = false;
	session_work_done(session);
	if (result != 0) {
		session->commit_broken = true;
		session_fail(session, "%s", words[0] != '\0' ? words : strerror(-result));
		return;
	}
	if (session->packed_told > 0) {
		session->receipt.files += session->packed_told;
		session_send_number(session, COPY_PACKED, session->packed_told);
		session->packed_told = 0;
	}
	for (unsigned i = 0; i < session->commit_count; i++)
		if (session->commit_files[i]->told)
			verified(session->commit_files[i]);
}

static bool has_nothing_to_commit(const struct session *session)
{
	return session->records.bytes == 0 && session->have.begin == session->have.end && !session->commit_urgent &&
	       session->packed == 0;
}

void intake_commit(struct session *session, uint64_t now_ns)
{
	const struct session_records free_records = session->committed;

	if (session->committing || session->commit_broken || has_nothing_to_commit(session))
		return;
	if (!session->commit_urgent && now_ns < session->commit_due_ns && session->state == SESSION_LIVE)
		return;
	if (flush_have(session) != 0) {
		session_fail(session, "the receiver has no memory left");
		return;
	}
	session->commit_urgent = false;
	session->commit_due_ns = now_ns + COMMIT_EVERY_NS;
	session->committed = session->records;
	session->records = (struct session_records){.at = free_records.at, .room = free_records.room};
	session->commit_count = 0;
	session->packed_told = session->packed;
	session->packed = 0;
	for (unsigned i = 0; i < COPY_FILES; i++) {
		struct session_file *file = &session->files[i];

		if (!file->dirty)
			continue;
		file->dirty = false;
		file->told = file->state == SESSION_FILE_WHOLE;
		session->commit_files[session->commit_count++] = file;
	}
	session->committing = true;
	session->commit_error = (struct hf_error){0};
	session->commit_work = (struct hf_work){.run = run_commit, .done = commit_done};
	session_work(session, session->receiver->sync, &session->commit_work);
}

bool intake_is_journaled(const struct session *session)
{
	return session->commit_broken || (has_nothing_to_commit(session) && !session->committing);
}

bool intake_is_idle(const struct session *session)
{
	for (unsigned i = 0; i < COPY_FILES; i++)
		if (session->files[i].state != SESSION_FILE_FREE)
			return false;
	return intake_is_journaled(session);
}

void intake_drop(struct session *session)
{
	ensure(session->works == 0);
	for (unsigned i = 0; i < COPY_FILES; i++)
		close_file(&session->files[i]);
	free(session->records.at);
	free(session->committed.at);
	session->records = session->committed = (struct session_records){0};
	session->have = (struct copy_have){0};
	session->commit_broken = session->commit_urgent = false;
	session->packed = session->packed_told = 0;
}
