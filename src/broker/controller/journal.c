/* Commands of the controller in a file. */
#include "broker/controller/journal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/crc.h"
#include "base/log.h"
#include "broker/log/checkpoint.h"

#define HEAD_BYTES   8u
#define COMMAND_MOST (1u << 20)
#define JOURNAL_MOST (1u << 30)
#define VERSION      0
#define PATH_BYTES   (CHECKPOINT_PATH_BYTES + 8)

struct journal {
	struct hf_file *file;
	struct log_mark *mark; /* NULL: none is kept */
	struct controller *controller;
	uint64_t end;
	uint32_t crc; /* of all up to there */
	bool failed;
};

static int apply_record(struct journal *journal, const uint8_t *at, size_t bytes)
{
	struct kafka_controller_command command;
	struct controller_result result;
	struct codec_arena arena;
	int rc = 0;

	codec_arena_init(&arena, COMMAND_MOST * 16);
	if (codec_decode(&kafka_controller_command_codec, VERSION, at, bytes, &arena, &command, NULL) == CODEC_OK)
		controller_apply(journal->controller, &command, &result);
	else
		rc = -EBADMSG;
	codec_arena_free(&arena);
	return rc;
}

/* The command at the front of `bytes` bytes; 0: there is none. Zeros have the CRC of an empty command, and are no
 * record (R-D6). */
static uint64_t whole_at(const uint8_t *at, uint64_t bytes)
{
	uint64_t command = bytes < HEAD_BYTES ? 0 : get_le32(at);

	if (command == 0 || command > bytes - HEAD_BYTES || crc32c(0, at + HEAD_BYTES, command) != get_le32(at + 4))
		return 0;
	return HEAD_BYTES + command;
}

/* The place of a whole command behind the one that is not; 0: there is none. */
static uint64_t find_later(const uint8_t *data, uint64_t from, uint64_t bytes)
{
	for (uint64_t at = from; at < bytes; at++)
		if (whole_at(data + at, bytes - at) > 0)
			return at;
	return 0;
}

/* Where the journal ends although it is proven, or later commands are evidence, that it went on (R-D2). */
static int judge(struct journal *journal, const char *path, const uint8_t *data, uint64_t bytes, uint64_t proven,
	struct hf_error *error)
{
	unsigned long long end = journal->end;
	uint64_t later = end < bytes ? find_later(data, end + 1, bytes) : 0;

	if (later > 0)
		return hf_error_set(error, -EBADMSG,
			"%s is damaged: the command at byte %llu cannot be read, and a later one, at byte %llu, can; "
			"no file was changed; restore it from a backup, or shorten it to %llu bytes and remove the "
			"file 'synced' beside it to lose the commands from there on",
			path, end, (unsigned long long)later, end);
	if (end < proven)
		return hf_error_set(error, -EBADMSG,
			"%s is damaged: it has %llu bytes of commands that can be read, and %llu bytes were on the "
			"disk; no file was changed; restore it from a backup, or shorten it to %llu bytes and "
			"remove the file 'synced' beside it to lose the commands from there on",
			path, end, (unsigned long long)proven, end);
	if (proven > 0 && crc32c(0, data, proven) != (uint32_t)journal->mark->before.start)
		return hf_error_set(error, -EBADMSG,
			"%s, or the file 'synced' beside it, is damaged, or of another broker: its first %llu bytes "
			"are not those that this broker has written; no file was changed; restore them",
			path, (unsigned long long)proven);
	journal->crc = crc32c(0, data, end);
	return 0;
}

/* A torn command, and what lies behind it, is kept beside. */
static int cut(struct journal *journal, struct hf_env *env, const char *path, const uint8_t *data, uint64_t bytes,
	struct hf_error *error)
{
	char beside[PATH_BYTES];
	int rc;

	if ((size_t)snprintf(beside, sizeof(beside), "%s.cut", path) >= sizeof(beside))
		return hf_error_set(error, -ENAMETOOLONG, "%.100s...: the path is too long", path);
	rc = checkpoint_write(env, beside, data + journal->end, bytes - journal->end, error);
	if (rc != 0)
		return rc;
	log_warn("broker: %s: the last %llu bytes are an incomplete command; they are cut off, and kept in %s", path,
		(unsigned long long)(bytes - journal->end), beside);
	rc = hf_file_resize(journal->file, journal->end);
	return rc == 0 ? 0 : hf_error_set(error, rc, "cannot shorten %s: %s", path, strerror(-rc));
}

static int apply_all(
	struct journal *journal, const char *path, const uint8_t *data, uint64_t bytes, struct hf_error *error)
{
	uint64_t n = 0;

	for (; (n = whole_at(data + journal->end, bytes - journal->end)) > 0; journal->end += n) {
		int rc = apply_record(journal, data + journal->end + HEAD_BYTES, n - HEAD_BYTES);

		if (rc != 0)
			return hf_error_set(error, rc, "%s has a command of a newer release; use that release", path);
	}
	return 0;
}

static int replay(
	struct journal *journal, struct hf_env *env, const char *path, uint64_t proven, struct hf_error *error)
{
	int64_t size = hf_file_bytes(journal->file);
	uint8_t *data;
	ssize_t n;
	int rc;

	if (size < 0 || size > JOURNAL_MOST)
		return hf_error_set(error, size < 0 ? (int)size : -EFBIG, "cannot read %s", path);
	data = malloc((size_t)size + 1);
	n = data == NULL ? -ENOMEM : hf_file_read_at(journal->file, data, (size_t)size, 0);
	if (n < 0) {
		free(data);
		return hf_error_set(error, (int)n, "cannot read %s: %s", path, strerror((int)-n));
	}
	rc = apply_all(journal, path, data, (uint64_t)n, error);
	if (rc == 0)
		rc = judge(journal, path, data, (uint64_t)n, proven, error);
	if (rc == 0 && journal->end < (uint64_t)n)
		rc = cut(journal, env, path, data, (uint64_t)n, error);
	free(data);
	return rc;
}

/* What is proven must be there: then no file is made. */
static int open_file(
	struct journal *journal, struct hf_env *env, const char *path, uint64_t *proven_out, struct hf_error *error)
{
	uint64_t proven = journal->mark == NULL ? 0 : (uint64_t)log_verdict_proven(&journal->mark->before);
	int rc = hf_file_open(env, path, HF_FILE_WRITE | (proven > 0 ? 0 : HF_FILE_CREATE), &journal->file);

	*proven_out = proven;
	if (rc == -ENOENT)
		return hf_error_set(error, -EBADMSG,
			"%s is missing, and it had %llu bytes of commands; no file was changed; restore it from a "
			"backup, or remove the file 'synced' beside it to begin without topics",
			path, (unsigned long long)proven);
	return rc == 0 ? 0 : hf_error_set(error, rc, "cannot open %s: %s", path, strerror(-rc));
}

int journal_open(struct hf_env *env, const char *path, struct log_marks *marks, struct controller *controller,
	struct journal **journal_out, struct hf_error *error)
{
	static const uint8_t owner[LOG_OWNER_BYTES];
	struct journal *journal = calloc(1, sizeof(*journal));
	uint64_t proven;
	int rc = 0;

	*journal_out = NULL;
	if (journal == NULL)
		return hf_error_set(error, -ENOMEM, "no memory for the journal %s", path);
	journal->controller = controller;
	if (marks != NULL)
		rc = log_marks_take(marks, owner, -1, &journal->mark, error);
	if (rc == 0)
		rc = open_file(journal, env, path, &proven, error);
	if (rc == 0)
		rc = replay(journal, env, path, proven, error);
	if (rc != 0) {
		journal_close(journal);
		return rc;
	}
	log_mark_journaled(journal->mark, (int64_t)journal->end, journal->crc);
	*journal_out = journal;
	return 0;
}

void journal_close(struct journal *journal)
{
	if (journal == NULL)
		return;
	if (journal->file != NULL)
		hf_file_close(journal->file);
	log_mark_release(journal->mark);
	free(journal);
}

/* -errno: it is not known what is in the file, and nothing more is written. */
static int append(struct journal *journal, const struct kafka_controller_command *command)
{
	struct codec_arena arena;
	uint8_t *data;
	size_t bytes;
	ssize_t n;
	int rc;

	codec_arena_init(&arena, COMMAND_MOST);
	bytes = codec_encode(&kafka_controller_command_codec, VERSION, command, &arena, HEAD_BYTES, &data, NULL);
	if (bytes == 0) {
		codec_arena_free(&arena);
		return -ENOMEM;
	}
	put_le32(data, (uint32_t)(bytes - HEAD_BYTES));
	put_le32(data + 4, crc32c(0, data + HEAD_BYTES, bytes - HEAD_BYTES));
	n = hf_file_write_at(journal->file, data, bytes, journal->end);
	rc = n < 0 ? (int)n : (size_t)n < bytes ? -ENOSPC : hf_file_sync(journal->file);
	journal->failed = rc != 0;
	if (rc == 0) {
		journal->end += bytes;
		journal->crc = crc32c(journal->crc, data, bytes);
		log_mark_journaled(journal->mark, (int64_t)journal->end, journal->crc);
	}
	codec_arena_free(&arena);
	return rc;
}

bool journal_failed(const struct journal *journal)
{
	return journal->failed;
}

void journal_propose(
	struct journal *journal, const struct kafka_controller_command *command, struct controller_result *result)
{
	int rc = journal->failed ? -EIO : append(journal, command);

	if (rc != 0) {
		log_error("broker: the controller cannot write its journal: %s; make room and restart the broker",
			strerror(-rc));
		*result = (struct controller_result){
			.error = KAFKA_STORAGE_ERROR, .message = "the controller cannot write its journal"};
		return;
	}
	controller_apply(journal->controller, command, result);
}
