#include "sim/checkers/store_log.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/crc.h"
#include "base/ensure.h"

#define SEGMENTS_MAX 4096u
#define PATH_BYTES   64u
#define HEAD_BYTES   256u
#define ENTRY_UNIT   64u
#define KIND_LIFE    0u
#define KIND_AT      20u

struct segments {
	uint64_t positions[SEGMENTS_MAX];
	unsigned count;
};

static void found(const char *name, void *context)
{
	struct segments *segments = context;
	uint64_t position;

	if (sscanf(name, "log-%" SCNx64, &position) != 1)
		return;
	ensure(segments->count < SEGMENTS_MAX);
	segments->positions[segments->count++] = position;
}

static int by_position(const void *a, const void *b)
{
	uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;

	return left < right ? -1 : left > right;
}

static void list(struct hf_env *env, const char *directory, struct segments *segments)
{
	segments->count = 0;
	if (hf_dir_list(env, directory, found, segments) == 0)
		qsort(segments->positions, segments->count, sizeof(*segments->positions), by_position);
}

/* NULL: it cannot be read. For free(). */
static uint8_t *load(struct hf_env *env, const char *directory, uint64_t position, size_t *bytes_out)
{
	char path[PATH_BYTES];
	struct hf_file *file;
	uint8_t *data;
	ssize_t n;

	snprintf(path, sizeof(path), "%s/log-%016" PRIx64, directory, position);
	if (hf_file_open(env, path, 0, &file) != 0)
		return NULL;
	*bytes_out = (size_t)hf_file_bytes(file);
	data = malloc(*bytes_out + 1);
	ensure(data != NULL);
	n = hf_file_read_at(file, data, *bytes_out, 0);
	ensure(n >= 0 && (size_t)n == *bytes_out);
	hf_file_close(file);
	return data;
}

/* The bytes of a whole entry; 0: there is none. */
static uint32_t entry_bytes(const uint8_t *at, size_t bytes)
{
	uint32_t length = bytes < ENTRY_UNIT ? 0 : get_le32(at + 4);

	if (length < ENTRY_UNIT || length > bytes || crc32c(0, at + 4, length - 4) != get_le32(at))
		return 0;
	return length;
}

static bool begins(const uint8_t *data, size_t bytes, uint64_t position, const struct store_log_end *end, bool first)
{
	if (bytes < HEAD_BYTES || memcmp(data, "HFKVLOG", 7) != 0 ||
		crc32c(0, data + 12, HEAD_BYTES - 12) != get_le32(data + 8) || get_le64(data + 16) != position)
		return false;
	return first ||
	       (position == end->position && get_le64(data + 24) == end->sequence && get_le32(data + 32) >= end->life);
}

static void read_entries(const uint8_t *data, size_t bytes, struct store_log_end *end)
{
	uint32_t length;

	for (size_t at = HEAD_BYTES; (length = entry_bytes(data + at, bytes - at)) != 0; at += length) {
		uint32_t life = get_le32(data + at + 16);
		bool next = data[at + KIND_AT] == KIND_LIFE && life > end->life;

		if (get_le64(data + at + 8) != end->sequence || (life != end->life && !next))
			return;
		end->sequence++;
		end->life = life;
		end->position += length;
	}
}

struct store_log_end store_log_find_end(struct hf_env *env, const char *directory)
{
	struct store_log_end end = {0};
	struct segments segments;
	bool follows = true;

	list(env, directory, &segments);
	for (unsigned i = 0; follows && i < segments.count; i++) {
		size_t bytes = 0;
		uint8_t *data = load(env, directory, segments.positions[i], &bytes);

		follows = data != NULL && begins(data, bytes, segments.positions[i], &end, i == 0);
		if (follows && i == 0)
			end = (struct store_log_end){.position = segments.positions[0],
				.sequence = get_le64(data + 24),
				.life = get_le32(data + 32)};
		if (follows)
			read_entries(data, bytes, &end);
		free(data);
	}
	return end;
}

const char *store_log_check(struct hf_env *env, const char *directory, const struct store_log_end *end)
{
	struct segments segments;
	const char *wrong = "the log has no segment where it ended";

	list(env, directory, &segments);
	for (unsigned i = segments.count; i > 0; i--) {
		uint64_t position = segments.positions[i - 1];
		size_t bytes = 0, at = (size_t)(HEAD_BYTES + end->position - position);
		uint8_t *data;

		if (position > end->position)
			continue;
		data = load(env, directory, position, &bytes);
		wrong = NULL;
		if (data == NULL || at > bytes || entry_bytes(data + at, bytes - at) == 0 ||
			data[at + KIND_AT] != KIND_LIFE || get_le64(data + at + 8) != end->sequence ||
			get_le32(data + at + 16) != end->life + 1)
			wrong = "a process read entries behind the end of the log that it found";
		free(data);
		break;
	}
	return wrong;
}
