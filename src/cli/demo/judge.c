/* What arrived, compared with what was sent. */
#include "cli/demo/parent.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static uint64_t count_differing(const uint8_t *a, const uint8_t *b, uint64_t bytes)
{
	uint64_t differ = 0;

	for (uint64_t i = 0; i < bytes; i++)
		differ += a[i] != b[i];
	return differ;
}

static int compare_files(struct run *run, struct hf_file *from, struct hf_file *to)
{
	enum { PIECE = 1 << 18 };
	uint8_t *pieces = malloc(2 * (size_t)PIECE);
	ssize_t n = 0;

	if (pieces == NULL)
		return -ENOMEM;
	for (uint64_t offset = 0; offset < run->task->input->bytes; offset += (uint64_t)n) {
		ssize_t m;

		n = hf_file_read_at(from, pieces, PIECE, offset);
		m = hf_file_read_at(to, pieces + PIECE, PIECE, offset);
		if (n <= 0 || m < n)
			break;
		run->result->bytes_differ += count_differing(pieces, pieces + PIECE, (uint64_t)n);
	}
	free(pieces);
	return 0;
}

/* No node has a say in the file any more. */
int demo_judge(struct run *run)
{
	struct demo_result *result = run->result;
	struct hf_env *env = run->task->env;
	struct hf_file *from = NULL, *to = NULL;
	int failed = digest_file(env, run->copy_path, result->sha256_to);

	if (failed)
		return hf_error_set(run->error, failed, "the copy cannot be read: %s", strerror(-failed));
	result->hash_equal = strcmp(result->sha256_to, run->task->input->sha256) == 0 && result->passes_wrong == 0;
	if (result->hash_equal)
		return 0;
	failed = hf_file_open(env, run->task->input->path, 0, &from);
	if (!failed)
		failed = hf_file_open(env, run->copy_path, 0, &to);
	if (!failed)
		failed = compare_files(run, from, to);
	hf_file_close(from);
	hf_file_close(to);
	return failed;
}
