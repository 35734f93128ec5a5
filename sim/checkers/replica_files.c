/* Logs of replicas on the disks. */
#include "sim/checkers/replica_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEGMENTS_MAX 512u
#define PATH_BYTES   128u
#define HEADER_BYTES 61u

struct segment_file {
	uint64_t base;
	uint8_t *data;
	size_t bytes; /* of whole batches */
};

struct log_files {
	struct hf_env *env;
	char directory[PATH_BYTES];
	struct segment_file at[SEGMENTS_MAX];
	unsigned count;
};

static uint64_t big(const uint8_t *at, unsigned bytes)
{
	uint64_t value = 0;

	for (unsigned i = 0; i < bytes; i++)
		value = value << 8 | at[i];
	return value;
}

static void found(const char *name, void *context)
{
	struct log_files *files = context;

	if (strlen(name) == 24 && strcmp(name + 20, ".log") == 0 && files->count < SEGMENTS_MAX)
		files->at[files->count++] = (struct segment_file){.base = strtoull(name, NULL, 10)};
}

static int by_base(const void *a, const void *b)
{
	uint64_t left = ((const struct segment_file *)a)->base, right = ((const struct segment_file *)b)->base;

	return left < right ? -1 : left > right;
}

/* Up to the zeros behind the tail; false: offsets have a gap, or an epoch falls. */
static bool read_batches(struct segment_file *segment, size_t size, uint64_t *offset, uint64_t *epoch)
{
	const uint8_t *at = segment->data;

	if (segment->base != *offset)
		return false;
	while (segment->bytes + HEADER_BYTES <= size && big(at + segment->bytes + 8, 4) != 0) {
		const uint8_t *batch = at + segment->bytes;
		size_t length = (size_t)big(batch + 8, 4) + 12;

		if (segment->bytes + length > size || big(batch, 8) != *offset || big(batch + 12, 4) < *epoch ||
			big(batch + 12, 4) > INT32_MAX)
			return false;
		*epoch = big(batch + 12, 4);
		*offset += big(batch + 23, 4) + 1;
		segment->bytes += length;
	}
	return true;
}

static bool read_segment(struct log_files *files, struct segment_file *segment, uint64_t *offset, uint64_t *epoch)
{
	char path[PATH_BYTES + 32];
	struct hf_file *file;
	int64_t size;
	bool right;

	snprintf(path, sizeof(path), "%s/%020llu.log", files->directory, (unsigned long long)segment->base);
	if (hf_file_open(files->env, path, 0, &file) != 0)
		return false;
	size = hf_file_bytes(file);
	segment->data = malloc((size_t)size + 1);
	right = segment->data != NULL && hf_file_read_at(file, segment->data, (size_t)size, 0) == size;
	hf_file_close(file);
	return right && read_batches(segment, (size_t)size, offset, epoch);
}

static bool read_log(
	struct process *process, const char *directory, const char *topic, unsigned partition, struct log_files *files)
{
	uint64_t offset = 0, epoch = 0;

	memset(files, 0, sizeof(*files));
	files->env = &process->env;
	snprintf(files->directory, sizeof(files->directory), "%s/%s-%u", directory, topic, partition);
	if (!process->running || hf_dir_list(files->env, files->directory, found, files) != 0 || files->count == 0)
		return false;
	qsort(files->at, files->count, sizeof(*files->at), by_base);
	for (unsigned i = 0; i < files->count; i++)
		if (!read_segment(files, &files->at[i], &offset, &epoch))
			return false;
	/* A head without a batch is not a part of the log. */
	while (files->count > 0 && files->at[files->count - 1].bytes == 0)
		free(files->at[--files->count].data);
	return true;
}

static void free_log(struct log_files *files)
{
	for (unsigned i = 0; i < files->count; i++)
		free(files->at[i].data);
}

static bool same(const struct log_files *a, const struct log_files *b)
{
	bool equal = a->count == b->count;

	for (unsigned i = 0; equal && i < a->count; i++)
		equal = a->at[i].base == b->at[i].base && a->at[i].bytes == b->at[i].bytes &&
			memcmp(a->at[i].data, b->at[i].data, a->at[i].bytes) == 0;
	return equal;
}

bool replica_files_equal(
	struct process *const *processes, unsigned count, const char *directory, const char *topic, unsigned partitions)
{
	static struct log_files first, other;
	bool equal = true;

	for (unsigned k = 0; equal && k < partitions; k++) {
		equal = read_log(processes[0], directory, topic, k, &first);
		for (unsigned i = 1; equal && i < count; i++) {
			equal = read_log(processes[i], directory, topic, k, &other) && same(&first, &other);
			free_log(&other);
		}
		free_log(&first);
	}
	return equal;
}
