/* Messages, the journal and the source of a copy. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "cli/transfer/journal.h"
#include "cli/transfer/pack.h"
#include "cli/transfer/source.h"
#include "cli/transfer/store.h"

static struct copy_message file_called(const char *name)
{
	struct copy_message message = {
		.kind = COPY_FILE, .file = {.file = 7, .mode = 0644, .bytes = 5, .mtime_ns = 1, .inode = 2}};

	message.file.name_bytes = (uint16_t)strlen(name);
	memcpy(message.file.name, name, message.file.name_bytes);
	return message;
}

static bool is_read(const struct copy_message *message, struct copy_message *read)
{
	uint8_t bytes[COPY_MESSAGE_BYTES];

	return copy_message_read(bytes, copy_message_write(message, bytes), read);
}

static void a_message_is_read_as_it_was_written(void **state)
{
	struct copy_message message = file_called("a/b c/d"), read;

	(void)state;
	assert_true(is_read(&message, &read));
	assert_int_equal(read.file.bytes, 5);
	assert_int_equal(read.file.mode, 0644);
	assert_string_equal(read.file.name, "a/b c/d");
}

static void a_name_that_leads_elsewhere_is_refused(void **state)
{
	static const char *const bad[] = {"/etc/passwd", "..", "../x", "a/../../x", "a//b", "a/", "./a", "a/."};
	struct copy_message read;

	(void)state;
	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct copy_message message = file_called(bad[i]);

		assert_false(is_read(&message, &read));
	}
}

static void what_is_copied_has_a_name_without_directories(void **state)
{
	struct copy_message message = {.kind = COPY_BEGIN, .begin = {.version = 1, .name_bytes = 3, .name = "a/b"}},
			    read;

	(void)state;
	assert_false(is_read(&message, &read));
	message.begin.name[1] = '.';
	assert_true(is_read(&message, &read));
}

static void names_of_the_receivers_own_files_are_known_in_every_directory(void **state)
{
	static const char *const own[] = {".holdfast", "a/.holdfast", ".holdfast/x", "a/.HoldFast/b",
		".w.holdfast-part", "a/b/.w.holdfast-journal", ".w.Holdfast-Part", ".holdfast-journal/x"};
	static const char *const others[] = {
		"holdfast", ".holdfast2", "w.holdfast-part", ".w.holdfast-parts", "a/b", ""};

	(void)state;
	for (unsigned i = 0; i < sizeof(own) / sizeof(own[0]); i++)
		assert_true(copy_name_is_own(own[i]));
	for (unsigned i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		assert_false(copy_name_is_own(others[i]));
}

static void a_link_stays_in_the_copy_or_is_known_to_leave_it(void **state)
{
	static const char *const stay[][2] = {{"l", "a"}, {"l", "a/b"}, {"s/x/l", "../../blobs/1"},
		{"s/l", ".././b//c/"}, {"l", "l"}, {"l", "..a/b.."}, {"s/l", ".."}};
	static const char *const leave[][2] = {{"l", "/etc"}, {"l", ".."}, {"l", "../x"}, {"s/l", "../../x"},
		{"s/l", "./../../x"}, {"s/l", "a/../.."}, {"s/x/l", "d/.."}, {"l", ""}};

	(void)state;
	for (unsigned i = 0; i < sizeof(stay) / sizeof(stay[0]); i++)
		assert_true(copy_link_stays(stay[i][0], stay[i][1]));
	for (unsigned i = 0; i < sizeof(leave) / sizeof(leave[0]); i++)
		assert_false(copy_link_stays(leave[i][0], leave[i][1]));
}

static void a_link_has_a_target_and_nothing_else_has(void **state)
{
	struct copy_message message = file_called("x"), read;

	(void)state;
	message.file.entry = COPY_LINK;
	message.file.bytes = 0;
	assert_false(is_read(&message, &read));
	message.file.target_bytes = 1;
	message.file.target[0] = 'y';
	assert_true(is_read(&message, &read));
	assert_string_equal(read.file.target, "y");
	message.file.entry = COPY_DIRECTORY;
	assert_false(is_read(&message, &read));
}

static void words_of_a_peer_cannot_move_the_cursor(void **state)
{
	struct copy_message message = {.kind = COPY_FAIL, .fail = {.text_bytes = 5, .text = "a\033[2J"}}, read;

	(void)state;
	assert_true(is_read(&message, &read));
	assert_string_equal(read.fail.text, "a?[2J");
}

struct seen {
	unsigned records;
	enum copy_kind last;
};

static void see(const struct copy_message *message, void *context)
{
	struct seen *seen = context;

	seen->records++;
	seen->last = message->kind;
}

static size_t make_journal(uint8_t *at)
{
	struct copy_message file = file_called("x"), have = {.kind = COPY_HAVE, .have = {.file = 0, .end = 1}};
	size_t bytes = COPY_JOURNAL_HEADER_BYTES;

	copy_journal_header(at);
	bytes += copy_journal_record(&file, at + bytes);
	return bytes + copy_journal_record(&have, at + bytes);
}

static void a_journal_is_read_to_its_last_whole_record(void **state)
{
	uint8_t journal[COPY_JOURNAL_HEADER_BYTES + 2 * COPY_JOURNAL_RECORD_BYTES];
	size_t bytes = make_journal(journal), first = 0;

	(void)state;
	for (size_t cut = bytes; cut >= COPY_JOURNAL_HEADER_BYTES; cut--) {
		struct seen seen = {0};
		size_t used = copy_journal_read(journal, cut, see, &seen);

		if (cut == bytes) {
			assert_int_equal(used, bytes);
			assert_int_equal(seen.records, 2);
			assert_int_equal(seen.last, COPY_HAVE);
			continue;
		}
		if (first == 0)
			first = used;
		assert_int_equal(used, cut >= first ? first : COPY_JOURNAL_HEADER_BYTES);
		assert_int_equal(seen.records, cut >= first ? 1 : 0);
	}
}

static void a_journal_ends_where_a_byte_is_wrong(void **state)
{
	uint8_t journal[COPY_JOURNAL_HEADER_BYTES + 2 * COPY_JOURNAL_RECORD_BYTES];
	size_t bytes = make_journal(journal);

	(void)state;
	for (size_t i = 0; i < bytes; i++) {
		struct seen seen = {0};

		journal[i] ^= 0x10;
		assert_true(copy_journal_read(journal, bytes, see, &seen) <= i);
		assert_true(seen.records < 2);
		journal[i] ^= 0x10;
	}
}

static void a_pack_is_read_as_it_was_written_and_nothing_behind_it(void **state)
{
	static uint8_t memory[COPY_CHUNK_BYTES];
	struct copy_message first = file_called("a"), second = file_called("b/c");
	struct copy_pack pack = {.at = memory};
	struct copy_packed entry;
	char hash[DIGEST_TEXT] = "";
	size_t used = 0;

	(void)state;
	memcpy(copy_pack_add(&pack, &first.file), "12345", 5);
	(void)snprintf(hash, sizeof(hash), "first");
	copy_pack_seal(&pack, hash);
	memcpy(copy_pack_add(&pack, &second.file), "67890", 5);
	(void)snprintf(hash, sizeof(hash), "second");
	copy_pack_seal(&pack, hash);
	assert_true(copy_pack_next(memory, pack.bytes, &used, &entry));
	assert_string_equal(entry.file.name, "a");
	assert_string_equal(entry.sha256, "first");
	assert_memory_equal(entry.content, "12345", 5);
	for (size_t cut = used; cut < pack.bytes; cut++) {
		size_t at = used;

		assert_false(copy_pack_next(memory, cut, &at, &entry));
	}
	assert_true(copy_pack_next(memory, pack.bytes, &used, &entry));
	assert_string_equal(entry.file.name, "b/c");
	assert_string_equal(entry.sha256, "second");
	assert_memory_equal(entry.content, "67890", 5);
	assert_int_equal(used, pack.bytes);
}

static void a_pack_takes_no_more_than_a_slot_has(void **state)
{
	static uint8_t memory[COPY_CHUNK_BYTES];
	struct copy_message file = file_called("a");
	struct copy_pack pack = {.at = memory};
	unsigned files = 0;

	(void)state;
	file.file.bytes = COPY_PACK_FILE_BYTES + 1;
	assert_null(copy_pack_add(&pack, &file.file));
	file.file.bytes = COPY_PACK_FILE_BYTES;
	while (copy_pack_add(&pack, &file.file) != NULL)
		files++;
	assert_int_equal(files, 3); /* and their heads */
	assert_true(pack.bytes <= COPY_CHUNK_BYTES);
}

static void the_last_chunk_has_the_rest_of_the_file(void **state)
{
	(void)state;
	assert_int_equal(copy_chunks(0), 0);
	assert_int_equal(copy_chunks(1), 1);
	assert_int_equal(copy_chunks(COPY_CHUNK_BYTES), 1);
	assert_int_equal(copy_chunks(COPY_CHUNK_BYTES + 1), 2);
	assert_int_equal(copy_chunk_bytes(COPY_CHUNK_BYTES + 1, 0), COPY_CHUNK_BYTES);
	assert_int_equal(copy_chunk_bytes(COPY_CHUNK_BYTES + 1, 1), 1);
}

static void write_to(const char *path, const char *text)
{
	FILE *file = fopen(path, "w");

	assert_non_null(file);
	assert_true(fputs(text, file) >= 0);
	assert_int_equal(fclose(file), 0);
}

/* Another user of the directory may have put it there: what it leads to must not become the journal. */
static void a_journal_that_is_a_link_is_refused_and_what_it_leads_to_stays(void **state)
{
	const struct copy_begin begin = {.name_bytes = 4, .name = "file"};
	char directory[] = "/tmp/holdfast-copy-XXXXXX", own[128], journal[160], precious[128], text[16] = "";
	struct copy_store *store = calloc(1, sizeof(*store));
	struct hf_error error = {0};
	FILE *file;

	(void)state;
	assert_non_null(store);
	assert_non_null(mkdtemp(directory));
	(void)snprintf(own, sizeof(own), "%s/.holdfast", directory);
	(void)snprintf(journal, sizeof(journal), "%s/file.journal", own);
	assert_int_equal(mkdir(own, 0700), 0);
	(void)snprintf(precious, sizeof(precious), "%s/precious", directory);
	write_to(precious, "precious");
	assert_int_equal(symlink(precious, journal), 0);
	assert_int_equal(copy_store_open(store, hf_env_host(), directory, &begin, &error), -EEXIST);
	assert_non_null(strstr(error.text, ".holdfast/file.journal is no regular file; remove it"));
	copy_store_close(store);
	file = fopen(precious, "r");
	assert_non_null(file);
	assert_non_null(fgets(text, sizeof(text), file));
	assert_string_equal(text, "precious");
	assert_int_equal(fclose(file), 0);
	assert_int_equal(unlink(journal), 0);
	assert_int_equal(copy_store_open(store, hf_env_host(), directory, &begin, &error), 0);
	copy_store_close(store);
	assert_int_equal(unlink(journal), 0);
	assert_int_equal(unlink(precious), 0);
	assert_int_equal(rmdir(own), 0);
	assert_int_equal(rmdir(directory), 0);
	free(store);
}

/* What lies in it would be another user's part and journal. */
static void an_own_directory_that_others_write_in_is_refused(void **state)
{
	const struct copy_begin begin = {.name_bytes = 4, .name = "file"};
	char directory[] = "/tmp/holdfast-copy-XXXXXX", own[128];
	struct copy_store *store = calloc(1, sizeof(*store));
	struct hf_error error = {0};

	(void)state;
	assert_non_null(store);
	assert_non_null(mkdtemp(directory));
	(void)snprintf(own, sizeof(own), "%s/.holdfast", directory);
	assert_int_equal(mkdir(own, 0700), 0);
	assert_int_equal(chmod(own, 0770), 0);
	assert_int_equal(copy_store_open(store, hf_env_host(), directory, &begin, &error), -EEXIST);
	assert_non_null(strstr(error.text, ".holdfast is not a directory that this receiver's user alone writes in"));
	copy_store_close(store);
	assert_int_equal(rmdir(own), 0);
	assert_int_equal(symlink("/", own), 0);
	assert_int_equal(copy_store_open(store, hf_env_host(), directory, &begin, &error), -EEXIST);
	copy_store_close(store);
	assert_int_equal(unlink(own), 0);
	assert_int_equal(rmdir(directory), 0);
	free(store);
}

/* R-T30. */
static void what_is_no_file_is_left_out_by_name(void **state)
{
	char directory[] = "/tmp/holdfast-copy-XXXXXX", file[128], fifo[128];
	struct copy_source source;
	struct hf_error error = {0};

	(void)state;
	assert_non_null(mkdtemp(directory));
	(void)snprintf(file, sizeof(file), "%s/file", directory);
	(void)snprintf(fifo, sizeof(fifo), "%s/fifo", directory);
	write_to(file, "text");
	assert_int_equal(mkfifo(fifo, 0600), 0);
	assert_int_equal(copy_source_open(&source, directory, false, &error), 0);
	assert_int_equal(source.count, 2); /* the directory, and the file */
	assert_int_equal(source.left_out_count, 1);
	assert_string_equal(source.left_out[0].path, fifo);
	copy_source_close(&source);
	assert_int_equal(unlink(fifo), 0);
	assert_int_equal(unlink(file), 0);
	assert_int_equal(rmdir(directory), 0);
}

static bool has_moved(int file, const struct stat *before)
{
	struct stat now;

	assert_int_equal(fstat(file, &now), 0);
	return now.st_ctim.tv_sec != before->st_ctim.tv_sec || now.st_ctim.tv_nsec != before->st_ctim.tv_nsec;
}

/* R-T31: the time of the change of the inode moves with each change, whatever a program does to the other one. */
static void a_change_is_seen_though_its_time_was_put_back(void **state)
{
	char path[] = "/tmp/holdfast-copy-XXXXXX";
	int file = mkstemp(path);
	uint64_t ctime_ns = 0;
	struct copy_source source;
	struct hf_error error = {0};
	struct stat before;

	(void)state;
	assert_int_equal(write(file, "before", 6), 6);
	assert_int_equal(copy_source_open(&source, path, false, &error), 0);
	assert_true(copy_source_is_same(&source.files[0], &ctime_ns));
	assert_true(copy_source_is_same(&source.files[0], &ctime_ns));
	assert_int_equal(fstat(file, &before), 0);
	do {
		assert_int_equal(pwrite(file, "behind", 6, 0), 6);
		assert_int_equal(futimens(file, (struct timespec[]){before.st_atim, before.st_mtim}), 0);
	} while (!has_moved(file, &before)); /* the clock of a file system has steps */
	assert_false(copy_source_is_same(&source.files[0], &ctime_ns));
	copy_source_close(&source);
	assert_int_equal(close(file), 0);
	assert_int_equal(unlink(path), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_message_is_read_as_it_was_written),
		cmocka_unit_test(what_is_no_file_is_left_out_by_name),
		cmocka_unit_test(a_change_is_seen_though_its_time_was_put_back),
		cmocka_unit_test(a_name_that_leads_elsewhere_is_refused),
		cmocka_unit_test(what_is_copied_has_a_name_without_directories),
		cmocka_unit_test(names_of_the_receivers_own_files_are_known_in_every_directory),
		cmocka_unit_test(a_link_stays_in_the_copy_or_is_known_to_leave_it),
		cmocka_unit_test(a_link_has_a_target_and_nothing_else_has),
		cmocka_unit_test(words_of_a_peer_cannot_move_the_cursor),
		cmocka_unit_test(a_journal_is_read_to_its_last_whole_record),
		cmocka_unit_test(a_journal_ends_where_a_byte_is_wrong),
		cmocka_unit_test(a_pack_is_read_as_it_was_written_and_nothing_behind_it),
		cmocka_unit_test(a_pack_takes_no_more_than_a_slot_has),
		cmocka_unit_test(the_last_chunk_has_the_rest_of_the_file),
		cmocka_unit_test(a_journal_that_is_a_link_is_refused_and_what_it_leads_to_stays),
		cmocka_unit_test(an_own_directory_that_others_write_in_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
