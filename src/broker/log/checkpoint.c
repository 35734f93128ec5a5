/* Small files, replaced as a whole. */
#include "broker/log/checkpoint.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int put(struct hf_env *env, const char *path, const void *data, size_t bytes, bool sync, struct hf_error *error)
{
	struct hf_file *file;
	ssize_t n;
	int rc = hf_file_open(env, path, HF_FILE_WRITE | HF_FILE_CREATE | HF_FILE_TRUNCATE, &file);

	if (rc != 0)
		return hf_error_set(error, rc, "cannot open %s: %s", path, strerror(-rc));
	n = hf_file_write_at(file, data, bytes, 0);
	rc = n < 0 ? (int)n : (size_t)n < bytes ? -ENOSPC : 0;
	if (rc == 0 && sync)
		rc = hf_file_sync(file);
	hf_file_close(file);
	return rc == 0 ? 0 : hf_error_set(error, rc, "cannot write %s: %s", path, strerror(-rc));
}

int checkpoint_put(struct hf_env *env, const char *path, const void *data, size_t bytes, struct hf_error *error)
{
	return put(env, path, data, bytes, false, error);
}

int checkpoint_write(struct hf_env *env, const char *path, const void *data, size_t bytes, struct hf_error *error)
{
	char next[CHECKPOINT_PATH_BYTES + 8];
	int rc;

	if ((size_t)snprintf(next, sizeof(next), "%s.tmp", path) >= sizeof(next))
		return hf_error_set(error, -ENAMETOOLONG, "%.100s...: the path is too long", path);
	rc = put(env, next, data, bytes, true, error);
	if (rc == 0 && (rc = hf_file_rename(env, next, path)) != 0)
		hf_error_set(error, rc, "cannot write %s: %s", path, strerror(-rc));
	return rc;
}

int checkpoint_read(
	struct hf_env *env, const char *path, size_t most, char **data_out, size_t *bytes_out, struct hf_error *error)
{
	struct hf_file *file;
	int64_t size;
	ssize_t n;
	int rc = hf_file_open(env, path, 0, &file);

	*data_out = NULL;
	if (rc == -ENOENT)
		return rc;
	if (rc != 0)
		return hf_error_set(error, rc, "cannot open %s: %s", path, strerror(-rc));
	size = hf_file_bytes(file);
	rc = size < 0 ? (int)size : (uint64_t)size > most ? -EFBIG : 0;
	if (rc == 0 && (*data_out = malloc((size_t)size + 1)) == NULL)
		rc = -ENOMEM;
	if (rc == 0) {
		n = hf_file_read_at(file, *data_out, (size_t)size, 0);
		rc = n < 0 ? (int)n : 0;
		*bytes_out = n < 0 ? 0 : (size_t)n;
	}
	hf_file_close(file);
	if (rc != 0) {
		free(*data_out);
		*data_out = NULL;
		return hf_error_set(error, rc, "cannot read %s: %s", path, strerror(-rc));
	}
	(*data_out)[*bytes_out] = '\0';
	return 0;
}
