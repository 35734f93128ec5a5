#include "cli/transfer/demo_input.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/digest.h"
#include "cli/process.h"
#include "cli/random_bytes.h"
#include "cli/tree.h"

#define FILES       8u
#define PIECE_BYTES (1u << 20)
#define PATH_BYTES  4096

static int make_file(struct hf_env *env, const char *path, uint64_t bytes, uint64_t *seed, struct hf_error *error)
{
	uint8_t *piece = malloc(PIECE_BYTES);
	struct hf_file *file = NULL;
	int failed = piece == NULL ? -ENOMEM : hf_file_open(env, path, HF_FILE_WRITE | HF_FILE_CREATE, &file);

	for (uint64_t done = 0; !failed && done < bytes; done += PIECE_BYTES) {
		size_t n = bytes - done < PIECE_BYTES ? (size_t)(bytes - done) : PIECE_BYTES;

		random_bytes_fill(seed, piece, PIECE_BYTES);
		if (hf_file_write_at(file, piece, n, done) != (ssize_t)n)
			failed = -ENOSPC;
		if (process_interrupted())
			failed = -EINTR;
	}
	hf_file_close(file);
	free(piece);
	if (failed == -EINTR)
		return hf_error_set(error, failed, "interrupted");
	return failed ? hf_error_set(error, failed, "%s cannot be written: %s", path, strerror(-failed)) : 0;
}

int demo_input_make(struct hf_env *env, const char *path, uint64_t bytes, struct hf_error *error)
{
	int failed = hf_dir_make(env, path);
	char name[PATH_BYTES];
	uint64_t seed;

	hf_env_entropy(env, &seed, sizeof(seed));
	if (failed)
		return hf_error_set(error, failed, "%s cannot be made: %s", path, strerror(-failed));
	for (unsigned i = 0; !failed && i < FILES; i++) {
		snprintf(name, sizeof(name), "%s/part-%u", path, i);
		failed = make_file(env, name, bytes / FILES + i, &seed, error);
	}
	return failed;
}

struct comparing {
	struct hf_env *env;
	const char *copy;
	struct demo_compared *compared;
	struct hf_error *error;
};

static int compare(const struct tree_file *found, void *context)
{
	struct comparing *comparing = context;
	char here[DIGEST_TEXT], there[DIGEST_TEXT], path[PATH_BYTES];
	int failed = digest_file(comparing->env, found->path, here);

	if (failed)
		return hf_error_set(comparing->error, failed, "%s cannot be read: %s", found->path, strerror(-failed));
	if (process_interrupted())
		return hf_error_set(comparing->error, -EINTR, "interrupted");
	snprintf(path, sizeof(path), "%s%s%s", comparing->copy, found->name[0] != '\0' ? "/" : "", found->name);
	comparing->compared->files++;
	if (digest_file(comparing->env, path, there) != 0 || strcmp(here, there) != 0)
		comparing->compared->differ++;
	return 0;
}

int demo_input_compare(struct hf_env *env, const char *source, const char *copy, struct demo_compared *compared,
	struct hf_error *error)
{
	struct comparing comparing = {.env = env, .copy = copy, .compared = compared, .error = error};
	struct tree_file root;
	int failed = tree_look(source, &root);

	*compared = (struct demo_compared){0};
	if (failed)
		return hf_error_set(error, failed, "%s cannot be read: %s", source, strerror(-failed));
	root.name = "";
	return root.kind == TREE_FILE ? compare(&root, &comparing) : tree_each(source, TREE_FILES, compare, &comparing);
}
