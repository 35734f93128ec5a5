#include "cli/report_file.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define PATH_BYTES 4096

int report_write(struct hf_env *env, const char *directory, const char *name, const char *text)
{
	char path[PATH_BYTES], half[PATH_BYTES];
	struct hf_file *file;
	size_t bytes = strlen(text);
	ssize_t n;
	int failed;

	if (snprintf(path, sizeof(path), "%s%s%s", directory != NULL ? directory : "", directory != NULL ? "/" : "",
		    name) >= (int)sizeof(path) ||
		snprintf(half, sizeof(half), "%s.new", path) >= (int)sizeof(half))
		return -ENAMETOOLONG;
	failed = hf_file_open(env, half, HF_FILE_WRITE | HF_FILE_CREATE | HF_FILE_TRUNCATE | HF_FILE_PUBLIC, &file);
	if (failed)
		return failed;
	n = hf_file_write_at(file, text, bytes, 0);
	hf_file_close(file);
	if (n == (ssize_t)bytes)
		failed = hf_file_rename(env, half, path);
	else
		failed = n < 0 ? (int)n : -ENOSPC;
	if (failed)
		hf_file_remove(env, half);
	return failed;
}
