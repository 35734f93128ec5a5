#include "net/secret.h"

#include <errno.h>
#include <string.h>

#include <openssl/crypto.h>

#define OTHERS 077 /* permission bits of anybody but the owner */

int secret_set(const void *data, size_t bytes, struct secret *secret_out, struct hf_error *error)
{
	*secret_out = (struct secret){0};
	if (bytes < SECRET_BYTES_MIN || bytes > SECRET_BYTES_MAX)
		return hf_error_set(error, -EINVAL,
			"a secret has %u to %u bytes and this one has %zu; `openssl rand -hex 32` makes one",
			SECRET_BYTES_MIN, SECRET_BYTES_MAX, bytes);
	memcpy(secret_out->data, data, bytes);
	secret_out->bytes = (uint32_t)bytes;
	return 0;
}

static size_t without_white_space(const char *text, size_t bytes)
{
	while (bytes > 0 && strchr(" \t\r\n", text[bytes - 1]) != NULL)
		bytes--;
	return bytes;
}

static int read_secret(struct hf_file *file, const char *path, struct secret *secret_out, struct hf_error *error)
{
	char text[SECRET_BYTES_MAX + 8];
	struct hf_error why = {0};
	int mode = hf_file_mode(file), rc;
	ssize_t n;

	if (mode >= 0 && (mode & OTHERS) != 0)
		return hf_error_set(error, -EACCES,
			"%.120s: other users may read or write this secret (mode %04o); run `chmod 600` on it", path,
			(unsigned)mode);
	n = mode < 0 ? mode : hf_file_read_at(file, text, sizeof(text), 0);
	if (n < 0)
		return hf_error_set(error, (int)n, "%.120s: %s", path, strerror((int)-n));
	rc = secret_set(text, without_white_space(text, (size_t)n), secret_out, &why);
	OPENSSL_cleanse(text, sizeof(text));
	return rc == 0 ? 0 : hf_error_set(error, rc, "%.100s: %.140s", path, why.text);
}

int secret_load(struct hf_env *env, const char *path, struct secret *secret_out, struct hf_error *error)
{
	struct hf_file *file;
	int rc = hf_file_open(env, path, 0, &file);

	*secret_out = (struct secret){0};
	if (rc != 0)
		return hf_error_set(error, rc, "%.120s: %s", path, strerror(-rc));
	rc = read_secret(file, path, secret_out, error);
	hf_file_close(file);
	return rc;
}

void secret_forget(struct secret *secret)
{
	OPENSSL_cleanse(secret, sizeof(*secret));
}
