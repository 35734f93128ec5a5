/* Commands of the controller in a file. */
#include "broker/controller/journal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/crc.h"
#include "base/log.h"

#define HEAD_BYTES   8u
#define COMMAND_MOST (1u << 20)
#define JOURNAL_MOST (1u << 30)
#define VERSION      0

struct journal {
	struct hf_file *file;
	struct controller *controller;
	uint64_t end;
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

static int replay(struct journal *journal, const char *path, struct hf_error *error)
{
	int64_t size = hf_file_bytes(journal->file);
	uint8_t *data;
	ssize_t n;
	int rc = 0;

	if (size < 0 || size > JOURNAL_MOST)
		return hf_error_set(error, size < 0 ? (int)size : -EFBIG, "cannot read %s", path);
	data = malloc((size_t)size + 1);
	n = data == NULL ? -ENOMEM : hf_file_read_at(journal->file, data, (size_t)size, 0);
	if (n < 0) {
		free(data);
		return hf_error_set(error, (int)n, "cannot read %s: %s", path, strerror((int)-n));
	}
	while (rc == 0 && (uint64_t)n - journal->end >= HEAD_BYTES) {
		const uint8_t *at = data + journal->end;
		uint64_t bytes = get_le32(at);

		if (bytes > (uint64_t)n - journal->end - HEAD_BYTES ||
			crc32c(0, at + HEAD_BYTES, bytes) != get_le32(at + 4))
			break;
		rc = apply_record(journal, at + HEAD_BYTES, bytes);
		journal->end += HEAD_BYTES + bytes;
	}
	free(data);
	if (rc != 0)
		return hf_error_set(error, rc, "%s has a command of a newer release; use that release", path);
	if (journal->end < (uint64_t)n) {
		log_warn("broker: %s: the last %llu bytes are an incomplete command and are cut off", path,
			(unsigned long long)((uint64_t)n - journal->end));
		rc = hf_file_resize(journal->file, journal->end);
	}
	return rc == 0 ? 0 : hf_error_set(error, rc, "cannot shorten %s: %s", path, strerror(-rc));
}

int journal_open(struct hf_env *env, const char *path, struct controller *controller, struct journal **journal_out,
	struct hf_error *error)
{
	struct journal *journal = calloc(1, sizeof(*journal));
	int rc;

	*journal_out = NULL;
	if (journal == NULL)
		return hf_error_set(error, -ENOMEM, "no memory for the journal %s", path);
	journal->controller = controller;
	rc = hf_file_open(env, path, HF_FILE_WRITE | HF_FILE_CREATE, &journal->file);
	if (rc != 0)
		hf_error_set(error, rc, "cannot open %s: %s", path, strerror(-rc));
	else
		rc = replay(journal, path, error);
	if (rc != 0) {
		journal_close(journal);
		return rc;
	}
	*journal_out = journal;
	return 0;
}

void journal_close(struct journal *journal)
{
	if (journal == NULL)
		return;
	if (journal->file != NULL)
		hf_file_close(journal->file);
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
	if (rc == 0)
		journal->end += bytes;
	codec_arena_free(&arena);
	return rc;
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
