/* A receiver of copies, and a sender that does not keep to the protocol. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>
#include <holdfast/channel.h>

#include "../transfer/engines.h"
#include "base/crc.h"
#include "cli/transfer/journal.h"
#include "cli/transfer/pack.h"
#include "cli/transfer/receiver.h"

#define BYTES 4096u
#define TURNS 20000u

struct fixture {
	struct engines engines;
	char directory[64];
	struct copy_receiver *receiver;
	struct hf_channel *channel; /* of the sender */
	bool heard[COPY_KINDS];
	struct copy_fail fail;
	struct copy_ring ring;
	uint32_t packed;
};

static void on_message(struct hf_channel *channel, struct hf_peer *peer, const void *data, size_t bytes, void *context)
{
	struct fixture *f = context;
	struct copy_message message;

	(void)channel;
	(void)peer;
	assert_true(copy_message_read(data, bytes, &message));
	f->heard[message.kind] = true;
	if (message.kind == COPY_FAIL)
		f->fail = message.fail;
	if (message.kind == COPY_RING)
		f->ring = message.ring;
	if (message.kind == COPY_PACKED)
		f->packed += message.number.number;
}

static const struct hf_channel_events sender_events = {.message = on_message};

static void wait_for(struct fixture *f, enum copy_kind kind)
{
	for (unsigned i = 0; i < TURNS && !f->heard[kind]; i++)
		engines_turn(&f->engines);
	assert_true(f->heard[kind]);
}

static void wait_for_refusal(struct fixture *f, const char *words)
{
	wait_for(f, COPY_FAIL);
	assert_non_null(strstr(f->fail.text, words));
}

static void say(const struct fixture *f, const struct copy_message *message)
{
	uint8_t bytes[COPY_MESSAGE_BYTES];

	assert_int_equal(
		hf_channel_send(f->channel, f->engines.pair.a.peer, bytes, copy_message_write(message, bytes)), 0);
}

static void open_fixture(struct fixture *f)
{
	static const struct copy_receiver_events none;
	struct end *a, *b;

	*f = (struct fixture){.directory = "/tmp/holdfast-receiver-XXXXXX"};
	assert_non_null(mkdtemp(f->directory));
	engines_open(&f->engines, BYTES, NULL, NULL);
	a = &f->engines.pair.a;
	b = &f->engines.pair.b;
	assert_int_equal(copy_receiver_open(b->node, f->engines.b, f->directory, &none, NULL, &f->receiver, NULL), 0);
	assert_int_equal(hf_channel_register(a->node, COPY_CHANNEL, &sender_events, f, &f->channel, NULL), 0);
	for (unsigned i = 0; i < TURNS && !hf_channel_is_open(f->channel, a->peer); i++)
		engines_turn(&f->engines);
}

static void close_fixture(struct fixture *f)
{
	static const char *const left[] = {".holdfast/x.part/a/c", ".holdfast/x.part/a", ".holdfast/x.part/b",
		".holdfast/x.part", ".holdfast/x.journal", ".holdfast", "x"};
	char path[128];

	hf_channel_close(f->channel);
	copy_receiver_close(f->receiver);
	engines_close(&f->engines);
	for (unsigned i = 0; i < sizeof(left) / sizeof(left[0]); i++) {
		snprintf(path, sizeof(path), "%s/%s", f->directory, left[i]);
		(void)remove(path);
	}
	assert_int_equal(remove(f->directory), 0);
}

/* The first of them is not written yet when the second one arrives. */
static void a_chunk_that_is_sent_twice_is_refused(void **state)
{
	static const uint8_t zeros[COPY_CHUNK_BYTES];
	struct copy_message chunk = {
		.kind = COPY_CHUNK, .chunk = {.bytes = COPY_CHUNK_BYTES, .crc32c = crc32c(0, zeros, COPY_CHUNK_BYTES)}};
	struct fixture f;

	(void)state;
	open_fixture(&f);
	say(&f, &(struct copy_message){
			.kind = COPY_BEGIN, .begin = {.version = COPY_VERSION, .name = "x", .name_bytes = 1}});
	wait_for(&f, COPY_RING);
	say(&f, &(struct copy_message){.kind = COPY_FILE, .file = {.mode = 0600, .bytes = COPY_CHUNK_BYTES}});
	wait_for(&f, COPY_READY);
	say(&f, &chunk);
	chunk.chunk.slot = 1;
	say(&f, &chunk);
	wait_for_refusal(&f, "a chunk out of turn");
	close_fixture(&f);
}

static void begin(const struct fixture *f, const char *name, bool directory)
{
	struct copy_message message = {.kind = COPY_BEGIN,
		.begin = {.version = COPY_VERSION, .directory = directory, .name_bytes = (uint16_t)strlen(name)}};

	memcpy(message.begin.name, name, message.begin.name_bytes);
	say(f, &message);
}

/* A copy that the receiver takes. */
static void open_copy(struct fixture *f, const char *title, bool directory)
{
	open_fixture(f);
	begin(f, title, directory);
	wait_for(f, COPY_RING);
}

static struct copy_message file_called(uint32_t number, const char *name, bool directory, uint64_t bytes)
{
	struct copy_message message = {.kind = COPY_FILE,
		.file = {.file = number,
			.entry = directory ? COPY_DIRECTORY : COPY_REGULAR,
			.mode = 0700,
			.bytes = bytes,
			.name_bytes = (uint16_t)strlen(name)}};

	memcpy(message.file.name, name, message.file.name_bytes);
	return message;
}

/* A part and a journal that a sender made would be those of a later copy. */
static void titles_that_are_the_receivers_own_names_are_refused_in_words(void **state)
{
	static const char *const own[] = {".holdfast", ".w.holdfast-part", ".w.holdfast-journal"};

	(void)state;
	for (unsigned i = 0; i < sizeof(own) / sizeof(own[0]); i++) {
		struct fixture f;

		open_fixture(&f);
		begin(&f, own[i], false);
		wait_for_refusal(&f, "a name of the receiver's own files");
		assert_false(f.heard[COPY_RING]);
		close_fixture(&f);
	}
}

static void the_receivers_own_names_in_a_directory_are_refused_in_words(void **state)
{
	static const char *const own[] = {".holdfast", "a/.holdfast", "a/.w.holdfast-part", "a/.w.holdfast-journal"};

	(void)state;
	for (unsigned i = 0; i < sizeof(own) / sizeof(own[0]); i++) {
		struct copy_message root = file_called(0, "", true, 0), dir = file_called(1, "a", true, 0),
				    file = file_called(2, own[i], false, 5);
		struct fixture f;

		open_copy(&f, "x", true);
		say(&f, &root);
		say(&f, &dir);
		say(&f, &file);
		wait_for_refusal(&f, "a name of the receiver's own files");
		close_fixture(&f);
	}
}

static struct copy_message link_called(uint32_t number, const char *name, const char *target)
{
	struct copy_message message = file_called(number, name, false, 0);

	message.file.entry = COPY_LINK;
	message.file.target_bytes = (uint16_t)strlen(target);
	memcpy(message.file.target, target, message.file.target_bytes);
	return message;
}

static void a_link_that_leads_out_of_the_copy_is_refused_in_words(void **state)
{
	const struct copy_message root = file_called(0, "", true, 0), link = link_called(1, "a", "../../precious");
	struct fixture f;

	(void)state;
	open_copy(&f, "x", true);
	say(&f, &root);
	say(&f, &link);
	wait_for_refusal(&f, "a is a link that leads out of the copy");
	close_fixture(&f);
}

/* `a` leads to a place in the copy; still, what is written through it would be two files in one. */
static void nothing_is_written_through_a_link(void **state)
{
	const struct copy_message root = file_called(0, "", true, 0), link = link_called(1, "a", "b"),
				  file = file_called(2, "a/c", false, 5);
	struct fixture f;

	(void)state;
	open_copy(&f, "x", true);
	say(&f, &root);
	say(&f, &link);
	say(&f, &file);
	wait_for_refusal(&f, "a/c comes before the directory that it is in");
	close_fixture(&f);
}

/* A part and a journal that say of chunk 0 what a sender expects, by name, size, time and inode. */
static void forge(const struct fixture *f, const struct copy_message *file, const uint8_t *bytes)
{
	const struct copy_message begun = {.kind = COPY_BEGIN,
					  .begin = {.version = COPY_VERSION, .name = "x", .name_bytes = 1}},
				  have = {.kind = COPY_HAVE, .have = {.end = 1}};
	uint8_t journal[COPY_JOURNAL_HEADER_BYTES + 3 * COPY_JOURNAL_RECORD_BYTES];
	size_t used = COPY_JOURNAL_HEADER_BYTES;
	char path[128];
	FILE *to;

	copy_journal_header(journal);
	used += copy_journal_record(&begun, journal + used);
	used += copy_journal_record(file, journal + used);
	used += copy_journal_record(&have, journal + used);
	(void)snprintf(path, sizeof(path), "%s/.holdfast", f->directory);
	assert_int_equal(mkdir(path, 0700), 0);
	(void)snprintf(path, sizeof(path), "%s/.holdfast/x.journal", f->directory);
	to = fopen(path, "w");
	assert_non_null(to);
	assert_int_equal(fwrite(journal, 1, used, to), used);
	assert_int_equal(fclose(to), 0);
	(void)snprintf(path, sizeof(path), "%s/.holdfast/x.part", f->directory);
	to = fopen(path, "w");
	assert_non_null(to);
	assert_int_equal(fwrite(bytes, 1, file->file.bytes, to), file->file.bytes);
	assert_int_equal(fclose(to), 0);
}

/* Size and time are right, the journal has all of it, and the bytes are another's. */
static void a_forged_part_and_journal_are_not_verified(void **state)
{
	static const uint8_t foreign[BYTES] = {1}, sent[BYTES];
	const struct copy_message file = file_called(0, "", false, BYTES);
	struct copy_message end = {.kind = COPY_END};
	struct digest *digest;
	struct fixture f;

	(void)state;
	open_fixture(&f);
	forge(&f, &file, foreign);
	begin(&f, "x", false);
	wait_for(&f, COPY_RING);
	say(&f, &file);
	wait_for(&f, COPY_READY);
	assert_true(f.heard[COPY_HAVE]);
	assert_int_equal(digest_create(&digest), 0);
	digest_add(digest, sent, sizeof(sent));
	digest_finish(digest, end.end.sha256);
	digest_destroy(digest);
	say(&f, &end);
	for (unsigned i = 0; i < TURNS && !f.heard[COPY_FAIL] && !f.heard[COPY_VERIFIED]; i++)
		engines_turn(&f.engines);
	assert_false(f.heard[COPY_VERIFIED]);
	assert_non_null(strstr(f.fail.text, "what an earlier copy left here has another SHA-256"));
	close_fixture(&f);
}

/* A part of an earlier copy has other bytes where the source of this one has a hole. */
static void a_hole_is_zeros_whatever_lay_there(void **state)
{
	static const uint8_t foreign[BYTES] = {1}, sent[BYTES];
	struct copy_message file = file_called(0, "", false, BYTES), end = {.kind = COPY_END};
	const struct copy_message hole = {.kind = COPY_HOLE, .have = {.end = 1}};
	struct digest *digest;
	char path[128];
	struct fixture f;

	(void)state;
	open_fixture(&f);
	forge(&f, &file, foreign);
	(void)snprintf(path, sizeof(path), "%s/.holdfast/x.journal", f.directory);
	assert_int_equal(remove(path), 0);
	file.file.sparse = 1;
	begin(&f, "x", false);
	wait_for(&f, COPY_RING);
	say(&f, &file);
	wait_for(&f, COPY_READY);
	assert_false(f.heard[COPY_HAVE]);
	say(&f, &hole);
	assert_int_equal(digest_create(&digest), 0);
	digest_add(digest, sent, sizeof(sent));
	digest_finish(digest, end.end.sha256);
	digest_destroy(digest);
	say(&f, &end);
	for (unsigned i = 0; i < TURNS && !f.heard[COPY_FAIL] && !f.heard[COPY_VERIFIED]; i++)
		engines_turn(&f.engines);
	assert_true(f.heard[COPY_VERIFIED]);
	close_fixture(&f);
}

static void a_hole_in_a_file_that_is_not_sparse_is_refused(void **state)
{
	const struct copy_message file = file_called(0, "", false, BYTES),
				  hole = {.kind = COPY_HOLE, .have = {.end = 1}};
	struct fixture f;

	(void)state;
	open_copy(&f, "x", false);
	say(&f, &file);
	wait_for(&f, COPY_READY);
	say(&f, &hole);
	wait_for_refusal(&f, "a hole out of turn");
	close_fixture(&f);
}

static void add_file(struct copy_pack *pack, uint32_t number, const char *name, const char *content, const char *hashed)
{
	const struct copy_message file = file_called(number, name, false, strlen(content));
	uint8_t *at = copy_pack_add(pack, &file.file);
	char sha256[DIGEST_TEXT];
	struct digest *digest;

	assert_non_null(at);
	memcpy(at, content, strlen(content));
	assert_int_equal(digest_create(&digest), 0);
	digest_add(digest, hashed, strlen(hashed));
	digest_finish(digest, sha256);
	digest_destroy(digest);
	copy_pack_seal(pack, sha256);
}

/* Both ends are in this process: the slot is where the receiver says. */
static struct copy_pack pack_in(const struct fixture *f)
{
	uint8_t *ring = NULL;

	assert_true(f->ring.packs);
	return (struct copy_pack){.at = ring + f->ring.addr};
}

static void say_pack(const struct fixture *f, const struct copy_pack *pack)
{
	say(f, &(struct copy_message){.kind = COPY_PACK,
		       .pack = {.bytes = (uint32_t)pack->bytes, .crc32c = crc32c(0, pack->at, pack->bytes)}});
}

static void entries_of_a_pack_are_made_and_told_when_they_are_durable(void **state)
{
	const struct copy_message root = file_called(0, "", true, 0), dir = file_called(1, "a", true, 0),
				  link = link_called(2, "b", "a/c");
	struct copy_pack pack;
	char path[128], text[16] = "";
	struct fixture f;
	FILE *file;

	(void)state;
	open_copy(&f, "x", true);
	pack = pack_in(&f);
	assert_non_null(copy_pack_add(&pack, &root.file));
	assert_non_null(copy_pack_add(&pack, &dir.file));
	assert_non_null(copy_pack_add(&pack, &link.file));
	add_file(&pack, 3, "a/c", "hello", "hello");
	say_pack(&f, &pack);
	wait_for(&f, COPY_PACKED);
	assert_true(f.heard[COPY_TAKEN]);
	assert_int_equal(f.packed, 4);
	(void)snprintf(path, sizeof(path), "%s/.holdfast/x.part/b", f.directory);
	file = fopen(path, "r");
	assert_non_null(file);
	assert_non_null(fgets(text, sizeof(text), file));
	assert_string_equal(text, "hello");
	assert_int_equal(fclose(file), 0);
	close_fixture(&f);
}

static void a_file_of_a_pack_with_another_hash_is_not_verified(void **state)
{
	struct copy_pack pack;
	struct fixture f;

	(void)state;
	open_copy(&f, "x", false);
	pack = pack_in(&f);
	add_file(&pack, 0, "", "hello", "hullo");
	say_pack(&f, &pack);
	wait_for_refusal(&f, "arrived with another SHA-256 than it was sent with");
	assert_int_equal(f.packed, 0);
	close_fixture(&f);
}

/* What a pack makes is known to one thread at a time. */
static void a_pack_behind_a_file_is_refused(void **state)
{
	const struct copy_message root = file_called(0, "", true, 0);
	struct copy_pack pack;
	struct fixture f;

	(void)state;
	open_copy(&f, "x", true);
	say(&f, &root);
	wait_for(&f, COPY_VERIFIED);
	pack = pack_in(&f);
	add_file(&pack, 1, "a", "hello", "hello");
	say_pack(&f, &pack);
	wait_for_refusal(&f, "a pack out of turn");
	close_fixture(&f);
}

static void a_pack_is_judged_as_files_are(void **state)
{
	static const char *const names[] = {".w.holdfast-part", "a/b", "/etc/x"};
	static const char *const words[] = {
		"a name of the receiver's own files", "comes before the directory", "a malformed pack"};

	(void)state;
	for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		const struct copy_message root = file_called(0, "", true, 0);
		struct copy_pack pack;
		struct fixture f;

		open_copy(&f, "x", true);
		pack = pack_in(&f);
		assert_non_null(copy_pack_add(&pack, &root.file));
		add_file(&pack, 1, names[i], "hello", "hello");
		say_pack(&f, &pack);
		wait_for_refusal(&f, words[i]);
		close_fixture(&f);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_chunk_that_is_sent_twice_is_refused),
		cmocka_unit_test(titles_that_are_the_receivers_own_names_are_refused_in_words),
		cmocka_unit_test(a_link_that_leads_out_of_the_copy_is_refused_in_words),
		cmocka_unit_test(nothing_is_written_through_a_link),
		cmocka_unit_test(entries_of_a_pack_are_made_and_told_when_they_are_durable),
		cmocka_unit_test(a_file_of_a_pack_with_another_hash_is_not_verified),
		cmocka_unit_test(a_pack_behind_a_file_is_refused),
		cmocka_unit_test(a_pack_is_judged_as_files_are),
		cmocka_unit_test(a_hole_is_zeros_whatever_lay_there),
		cmocka_unit_test(a_hole_in_a_file_that_is_not_sparse_is_refused),
		cmocka_unit_test(a_forged_part_and_journal_are_not_verified),
		cmocka_unit_test(the_receivers_own_names_in_a_directory_are_refused_in_words),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
