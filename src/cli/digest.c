#include "cli/digest.h"

#include "base/ensure.h"

#include <errno.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>

#define FILE_PIECE_BYTES (1u << 20)

struct digest {
	EVP_MD_CTX *context;
};

int digest_create(struct digest **digest_out)
{
	struct digest *digest = calloc(1, sizeof(*digest));

	*digest_out = NULL;
	if (digest == NULL)
		return -ENOMEM;
	digest->context = EVP_MD_CTX_new();
	if (digest->context == NULL || EVP_DigestInit_ex(digest->context, EVP_sha256(), NULL) != 1) {
		digest_destroy(digest);
		return -ENOMEM;
	}
	*digest_out = digest;
	return 0;
}

void digest_destroy(struct digest *digest)
{
	if (digest == NULL)
		return;
	EVP_MD_CTX_free(digest->context);
	free(digest);
}

void digest_add(struct digest *digest, const void *data, size_t bytes)
{
	ensure(EVP_DigestUpdate(digest->context, data, bytes) == 1);
}

void digest_finish(struct digest *digest, char text[DIGEST_TEXT])
{
	unsigned char value[EVP_MAX_MD_SIZE];
	unsigned bytes = 0;

	ensure(EVP_DigestFinal_ex(digest->context, value, &bytes) == 1 && bytes * 2 + 1 == DIGEST_TEXT);
	for (unsigned i = 0; i < bytes; i++)
		snprintf(text + 2 * (size_t)i, 3, "%02x", value[i]);
	ensure(EVP_DigestInit_ex(digest->context, EVP_sha256(), NULL) == 1);
}

int digest_file(struct hf_env *env, const char *path, char text[DIGEST_TEXT])
{
	struct hf_file *file = NULL;
	struct digest *digest = NULL;
	char *piece = malloc(FILE_PIECE_BYTES);
	uint64_t offset = 0;
	ssize_t n = -ENOMEM;
	int failed = piece != NULL ? digest_create(&digest) : -ENOMEM;

	if (!failed)
		failed = hf_file_open(env, path, 0, &file);
	while (!failed && (n = hf_file_read_at(file, piece, FILE_PIECE_BYTES, offset)) > 0) {
		digest_add(digest, piece, (size_t)n);
		offset += (uint64_t)n;
	}
	if (!failed && n < 0)
		failed = (int)n;
	if (!failed)
		digest_finish(digest, text);
	hf_file_close(file);
	digest_destroy(digest);
	free(piece);
	return failed;
}
