#include "cli/demo/input.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/process.h"
#include "cli/random_bytes.h"
#include "cli/tar.h"
#include "cli/tree.h"

#define PIECE_BYTES        (1u << 20)
#define RANDOM_BYTES       (1ull << 30)
#define RANDOM_BYTES_QUICK (256ull << 20)
#define NS_A_SECOND        1000000000u
#define MEGABYTE           1e6

/* An archive in the making. */
struct staging {
	struct hf_env *env;
	struct hf_file *file;
	struct digest *digest;
	char *piece; /* PIECE_BYTES */
	uint64_t bytes;
	unsigned files;
	struct hf_error *error;
};

static int put(struct staging *staging, const void *data, size_t bytes)
{
	ssize_t n = hf_file_write_at(staging->file, data, bytes, staging->bytes);

	if (process_interrupted())
		return hf_error_set(staging->error, -EINTR, "interrupted");
	if (n < 0 || (size_t)n < bytes)
		return hf_error_set(staging->error, n < 0 ? (int)n : -ENOSPC,
			"the archive cannot be written (%s); set TMPDIR to a directory with more room",
			n < 0 ? strerror((int)-n) : "the disk is full");
	digest_add(staging->digest, data, bytes);
	staging->bytes += bytes;
	return 0;
}

static int put_zeros(struct staging *staging, uint64_t bytes)
{
	int failed = 0;

	memset(staging->piece, 0, PIECE_BYTES);
	while (!failed && bytes > 0) {
		size_t n = bytes < PIECE_BYTES ? (size_t)bytes : PIECE_BYTES;

		failed = put(staging, staging->piece, n);
		bytes -= n;
	}
	return failed;
}

static int put_header(struct staging *staging, const char *name, uint64_t bytes, uint64_t mtime_s)
{
	char header[TAR_HEADER_MAX];
	size_t n = tar_header(header, name, bytes, mtime_s);

	if (n == 0)
		return hf_error_set(staging->error, -ENAMETOOLONG, "a name is too long: %.64s...", name);
	staging->files++;
	return put(staging, header, n);
}

/* As many bytes as the header said, whatever has become of the file meanwhile. */
static int put_content(struct staging *staging, const struct tree_file *found, struct hf_file *file)
{
	uint64_t offset = 0;

	while (offset < found->bytes) {
		uint64_t left = found->bytes - offset;
		ssize_t n =
			hf_file_read_at(file, staging->piece, left < PIECE_BYTES ? (size_t)left : PIECE_BYTES, offset);
		int failed;

		if (n < 0)
			return hf_error_set(
				staging->error, (int)n, "%s cannot be read: %s", found->path, strerror((int)-n));
		if (n == 0)
			break;
		failed = put(staging, staging->piece, (size_t)n);
		if (failed)
			return failed;
		offset += (uint64_t)n;
	}
	return put_zeros(staging, found->bytes - offset + tar_padding(found->bytes));
}

static int put_file(const struct tree_file *found, void *context)
{
	struct staging *staging = context;
	struct hf_file *file;
	int failed = hf_file_open(staging->env, found->path, 0, &file);

	if (failed)
		return hf_error_set(staging->error, failed, "%s cannot be opened: %s", found->path, strerror(-failed));
	failed = put_header(staging, found->name, found->bytes, found->mtime_ns / NS_A_SECOND);
	if (!failed)
		failed = put_content(staging, found, file);
	hf_file_close(file);
	return failed;
}

static int put_random(struct staging *staging, uint64_t bytes)
{
	uint64_t state;
	int failed = put_header(staging, "random.bin", bytes, 0);

	hf_env_entropy(staging->env, &state, sizeof(state));
	for (uint64_t done = 0; !failed && done < bytes; done += PIECE_BYTES) {
		random_bytes_fill(&state, staging->piece, PIECE_BYTES);
		failed = put(staging, staging->piece, PIECE_BYTES);
	}
	return failed;
}

static bool in_project_tree(void)
{
	uint64_t bytes;

	return tree_kind("meson.build", &bytes) == TREE_FILE && tree_kind("src/cli/demo/demo.c", &bytes) == TREE_FILE;
}

static int put_default(struct staging *staging, const struct demo_options *options, struct demo_input *input)
{
	uint64_t random_bytes = options->quick ? RANDOM_BYTES_QUICK : RANDOM_BYTES, program_bytes = 0;
	struct tree_file program = {.path = "/proc/self/exe", .name = "holdfast"};
	int failed;

	if (in_project_tree()) {
		failed = tree_each(".", TREE_SOURCES, put_file, staging);
		snprintf(input->what, sizeof(input->what), "the project's tree (%u files) and %llu MiB of random bytes",
			staging->files, (unsigned long long)(random_bytes >> 20));
	} else {
		tree_kind(program.path, &program_bytes);
		program.bytes = program_bytes;
		failed = put_file(&program, staging);
		snprintf(input->what, sizeof(input->what), "this program and %llu MiB of random bytes",
			(unsigned long long)(random_bytes >> 20));
	}
	return failed ? failed : put_random(staging, random_bytes);
}

static int put_directory(struct staging *staging, const struct demo_options *options, struct demo_input *input)
{
	int failed = tree_each(options->input, TREE_FILES, put_file, staging);

	if (failed && staging->error->text[0] == '\0')
		return hf_error_set(staging->error, failed, "%s cannot be read: %s", options->input, strerror(-failed));
	if (!failed && staging->files == 0)
		return hf_error_set(staging->error, -ENOENT, "%s has no files in it", options->input);
	snprintf(input->what, sizeof(input->what), "%u files of %.80s", staging->files, options->input);
	return failed;
}

static int stage(struct hf_env *env, const struct demo_options *options, const struct scratch *scratch,
	struct demo_input *input, struct hf_error *error)
{
	struct staging staging = {.env = env, .piece = malloc(PIECE_BYTES), .error = error};
	int failed = staging.piece != NULL ? digest_create(&staging.digest) : -ENOMEM;

	snprintf(input->path, sizeof(input->path), "%s/input.tar", scratch->path);
	if (!failed)
		failed = hf_file_open(env, input->path, HF_FILE_WRITE | HF_FILE_CREATE, &staging.file);
	if (!failed)
		failed = options->input != NULL ? put_directory(&staging, options, input)
						: put_default(&staging, options, input);
	if (!failed)
		failed = put_zeros(&staging, 2 * (uint64_t)TAR_BLOCK_BYTES);
	if (!failed) {
		digest_finish(staging.digest, input->sha256);
		input->bytes = staging.bytes;
	}
	hf_file_close(staging.file);
	digest_destroy(staging.digest);
	free(staging.piece);
	return failed;
}

static int use_file(
	struct hf_env *env, const char *path, uint64_t bytes, struct demo_input *input, struct hf_error *error)
{
	int failed;

	if (bytes == 0)
		return hf_error_set(error, -EINVAL, "%s is empty; give a file with something to move", path);
	if (strlen(path) >= sizeof(input->path))
		return hf_error_set(error, -ENAMETOOLONG, "the path of the input is too long");
	memcpy(input->path, path, strlen(path) + 1);
	snprintf(input->what, sizeof(input->what), "%.100s", path);
	input->bytes = bytes;
	failed = digest_file(env, path, input->sha256);
	if (failed)
		return hf_error_set(error, failed, "%s cannot be read: %s", path, strerror(-failed));
	return 0;
}

static int check_room(const struct scratch *scratch, const struct demo_input *input, struct hf_error *error)
{
	uint64_t room = scratch_room_bytes(scratch);

	if (room > input->bytes)
		return 0;
	return hf_error_set(error, -ENOSPC,
		"the copy needs %.0f MB, and %s has room for %.0f MB; set TMPDIR to a directory with more",
		(double)input->bytes / MEGABYTE, scratch->path, (double)room / MEGABYTE);
}

int demo_input_prepare(struct hf_env *env, const struct demo_options *options, const struct scratch *scratch,
	struct demo_input *input, struct hf_error *error)
{
	uint64_t bytes = 0;
	enum tree_kind kind = options->input != NULL ? tree_kind(options->input, &bytes) : TREE_DIRECTORY;
	int failed = 0;

	memset(input, 0, sizeof(*input));
	switch (kind) {
	case TREE_MISSING:
		return hf_error_set(error, -ENOENT, "there is no file or directory '%s'", options->input);
	case TREE_LINK:
	case TREE_OTHER:
		return hf_error_set(error, -EINVAL, "'%s' is neither a file nor a directory", options->input);
	case TREE_FILE:
		failed = use_file(env, options->input, bytes, input, error);
		break;
	case TREE_DIRECTORY:
		failed = stage(env, options, scratch, input, error);
		break;
	}
	if (failed && error->text[0] == '\0')
		hf_error_set(error, failed, "the input cannot be prepared: %s", strerror(-failed));
	return failed ? failed : check_room(scratch, input, error);
}
