#include "net/secret.h"

#include <errno.h>
#include <string.h>

#include <openssl/crypto.h>

#include "net/private_file.h"

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

int secret_load(struct hf_env *env, const char *path, struct secret *secret_out, struct hf_error *error)
{
	char text[SECRET_BYTES_MAX + 8];
	struct hf_error why = {0};
	ssize_t n;
	int rc;

	*secret_out = (struct secret){0};
	n = private_file_read(env, path, true, text, sizeof(text), error);
	if (n < 0)
		return (int)n;
	rc = secret_set(text, without_white_space(text, (size_t)n), secret_out, &why);
	OPENSSL_cleanse(text, sizeof(text));
	return rc == 0 ? 0 : hf_error_set(error, rc, "%.100s: %.140s", path, why.text);
}

void secret_forget(struct secret *secret)
{
	OPENSSL_cleanse(secret, sizeof(*secret));
}
