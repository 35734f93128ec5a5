#include "net/private_file.h"

#include <errno.h>
#include <string.h>

#define OTHERS 077 /* permission bits of all but the owner */

static ssize_t read_open(
	struct hf_file *file, const char *path, bool secret, void *data, size_t capacity, struct hf_error *error)
{
	int mode = hf_file_mode(file);
	ssize_t n;

	if (secret && mode >= 0 && (mode & OTHERS) != 0)
		return hf_error_set(error, -EACCES,
			"%.120s: other users may read or write this secret (mode %04o); run `chmod 600` on it", path,
			(unsigned)mode);
	n = mode < 0 ? mode : hf_file_read_at(file, data, capacity, 0);
	return n >= 0 ? n : hf_error_set(error, (int)n, "%.120s: %s", path, strerror((int)-n));
}

ssize_t private_file_read(
	struct hf_env *env, const char *path, bool secret, void *data, size_t capacity, struct hf_error *error)
{
	struct hf_file *file;
	int rc = hf_file_open(env, path, 0, &file);
	ssize_t n;

	if (rc != 0)
		return hf_error_set(error, rc, "%.120s: %s", path, strerror(-rc));
	n = read_open(file, path, secret, data, capacity, error);
	hf_file_close(file);
	return n;
}
