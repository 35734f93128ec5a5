/* certificates.h - authorities, and certificates that they sign, for tests: Ed25519, in PEM files of an env. */
#ifndef HOLDFAST_TESTS_CERTIFICATES_H
#define HOLDFAST_TESTS_CERTIFICATES_H

#include <stdint.h>

#include <holdfast/env.h>

struct authority; /* its key and its own certificate */

struct authority *authority_create(const char *name, uint64_t now_s);
void authority_free(struct authority *authority);

/* Writes the authority's certificate. */
void authority_write(const struct authority *authority, struct hf_env *env, const char *path);
/* Writes a certificate and its key (mode 0600), valid for the seconds `from_s` to `to_s`. */
void authority_sign(const struct authority *authority, struct hf_env *env, const char *name, uint64_t from_s,
	uint64_t to_s, const char *cert_path, const char *key_path);

#endif
