#include "certificates.h"

#include <stdlib.h>

#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include "base/ensure.h"

#define YEAR_S 31536000ull

struct authority {
	EVP_PKEY *key;
	X509 *cert;
	long serial;
};

static X509 *make_cert(EVP_PKEY *key, const char *name, long serial, uint64_t from_s, uint64_t to_s)
{
	X509 *cert = X509_new();
	X509_NAME *subject = X509_get_subject_name(cert);

	ensure(X509_set_version(cert, 2) == 1 && ASN1_INTEGER_set(X509_get_serialNumber(cert), serial) == 1);
	ensure(X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, (const unsigned char *)name, -1, -1, 0) == 1);
	ensure(ASN1_TIME_set(X509_getm_notBefore(cert), (time_t)from_s) != NULL);
	ensure(ASN1_TIME_set(X509_getm_notAfter(cert), (time_t)to_s) != NULL);
	ensure(X509_set_pubkey(cert, key) == 1);
	return cert;
}

struct authority *authority_create(const char *name, uint64_t now_s)
{
	struct authority *authority = calloc(1, sizeof(*authority));
	X509_EXTENSION *is_ca;

	ensure(authority != NULL);
	authority->key = EVP_PKEY_Q_keygen(NULL, NULL, "ED25519");
	ensure(authority->key != NULL);
	authority->cert = make_cert(authority->key, name, 1, now_s - YEAR_S, now_s + YEAR_S);
	authority->serial = 1;
	ensure(X509_set_issuer_name(authority->cert, X509_get_subject_name(authority->cert)) == 1);
	is_ca = X509V3_EXT_conf_nid(NULL, NULL, NID_basic_constraints, "critical,CA:TRUE");
	ensure(is_ca != NULL && X509_add_ext(authority->cert, is_ca, -1) == 1);
	X509_EXTENSION_free(is_ca);
	ensure(X509_sign(authority->cert, authority->key, NULL) > 0);
	return authority;
}

void authority_free(struct authority *authority)
{
	if (authority == NULL)
		return;
	EVP_PKEY_free(authority->key);
	X509_free(authority->cert);
	free(authority);
}

/* Takes the BIO. */
static void write_pem(struct hf_env *env, const char *path, unsigned flags, BIO *pem)
{
	struct hf_file *file;
	const void *data;
	long bytes = BIO_get_mem_data(pem, &data);

	ensure(hf_file_open(env, path, HF_FILE_WRITE | HF_FILE_CREATE | HF_FILE_TRUNCATE | flags, &file) == 0);
	ensure(hf_file_write_at(file, data, (size_t)bytes, 0) == bytes);
	hf_file_close(file);
	BIO_free(pem);
}

static void write_cert(struct hf_env *env, const char *path, X509 *cert)
{
	BIO *pem = BIO_new(BIO_s_mem());

	ensure(PEM_write_bio_X509(pem, cert) == 1);
	write_pem(env, path, HF_FILE_PUBLIC, pem);
}

void authority_write(const struct authority *authority, struct hf_env *env, const char *path)
{
	write_cert(env, path, authority->cert);
}

void authority_sign(const struct authority *authority, struct hf_env *env, const char *name, uint64_t from_s,
	uint64_t to_s, const char *cert_path, const char *key_path)
{
	EVP_PKEY *key = EVP_PKEY_Q_keygen(NULL, NULL, "ED25519");
	X509 *cert = make_cert(key, name, authority->serial + 1, from_s, to_s);
	BIO *pem = BIO_new(BIO_s_mem());

	ensure(X509_set_issuer_name(cert, X509_get_subject_name(authority->cert)) == 1);
	ensure(X509_sign(cert, authority->key, NULL) > 0);
	write_cert(env, cert_path, cert);
	ensure(PEM_write_bio_PrivateKey(pem, key, NULL, NULL, 0, NULL, NULL) == 1);
	write_pem(env, key_path, 0, pem);
	X509_free(cert);
	EVP_PKEY_free(key);
}
