/* A context: certificate, key and authorities of a node. */
#include "net/tls_context.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/err.h>
#include <openssl/pem.h>

#include "net/private_file.h"

#define PEM_BYTES_MAX (256u << 10)

static int fault(struct hf_error *error, const char *path, const char *what)
{
	unsigned long code = ERR_peek_last_error();
	const char *why = code == 0 ? NULL : ERR_reason_error_string(code);
	int rc = hf_error_set(
		error, -EINVAL, "%.120s: %s%s%s", path, what, why == NULL ? "" : ": ", why == NULL ? "" : why);

	ERR_clear_error();
	return rc;
}

static int load_pem(struct hf_env *env, const char *path, bool secret, BIO **pem_out, struct hf_error *error)
{
	char *text = malloc(PEM_BYTES_MAX);
	ssize_t n = text == NULL ? -ENOMEM : private_file_read(env, path, secret, text, PEM_BYTES_MAX, error);
	int rc = n < 0 ? (int)n : 0;

	*pem_out = BIO_new(BIO_s_mem());
	if (rc == 0 && (*pem_out == NULL || BIO_write(*pem_out, text, (int)n) != n))
		rc = hf_error_set(error, -ENOMEM, "%.120s: no memory", path);
	if (text != NULL)
		OPENSSL_cleanse(text, PEM_BYTES_MAX);
	free(text);
	return rc;
}

/* The node's own first, then those between it and the authority. */
static int use_certificates(SSL_CTX *context, BIO *pem, const char *path, struct hf_error *error)
{
	X509 *cert = PEM_read_bio_X509(pem, NULL, NULL, NULL);
	bool good = cert != NULL && SSL_CTX_use_certificate(context, cert) == 1;

	X509_free(cert);
	if (!good)
		return fault(error, path, "expected a certificate in PEM");
	while ((cert = PEM_read_bio_X509(pem, NULL, NULL, NULL)) != NULL) {
		if (SSL_CTX_add0_chain_cert(context, cert) != 1) {
			X509_free(cert);
			return fault(error, path, "cannot use a certificate of the chain");
		}
	}
	ERR_clear_error(); /* the end of the file is one */
	return 0;
}

static int use_key(SSL_CTX *context, BIO *pem, const char *path, struct hf_error *error)
{
	EVP_PKEY *key = PEM_read_bio_PrivateKey(pem, NULL, NULL, (void *)""); /* no passphrase is asked for */
	bool good = key != NULL && SSL_CTX_use_PrivateKey(context, key) == 1 && SSL_CTX_check_private_key(context) == 1;

	EVP_PKEY_free(key);
	return good ? 0
		    : fault(error, path, "expected the private key of the certificate, in PEM without a passphrase");
}

static int use_authorities(SSL_CTX *context, BIO *pem, const char *path, struct hf_error *error)
{
	X509_STORE *store = SSL_CTX_get_cert_store(context);
	unsigned n = 0;
	X509 *cert;

	for (; (cert = PEM_read_bio_X509(pem, NULL, NULL, NULL)) != NULL; n++) {
		bool good = X509_STORE_add_cert(store, cert) == 1;

		X509_free(cert);
		if (!good)
			return fault(error, path, "cannot use a certificate");
	}
	if (n == 0)
		return fault(error, path, "expected certificates of authorities in PEM");
	ERR_clear_error();
	return 0;
}

static int use_file(struct tls *tls, const char *path, bool secret,
	int (*use)(SSL_CTX *context, BIO *pem, const char *path, struct hf_error *error), struct hf_error *error)
{
	BIO *pem;
	int rc = load_pem(tls->env, path, secret, &pem, error);

	if (rc == 0)
		rc = use(tls->context, pem, path, error);
	BIO_free(pem);
	return rc;
}

static int set_up(struct tls *tls, struct hf_error *error)
{
	(void)OPENSSL_init_ssl(OPENSSL_INIT_NO_ATEXIT, NULL); /* as in handshake.c */
	tls->context = SSL_CTX_new(TLS_method());
	if (tls->context == NULL || SSL_CTX_set_min_proto_version(tls->context, TLS1_3_VERSION) != 1 ||
		SSL_CTX_set_num_tickets(tls->context, 0) != 1) {
		ERR_clear_error();
		return hf_error_set(error, -ENOMEM, "TLS 1.3 cannot be set up: no memory, or OpenSSL without it");
	}
	SSL_CTX_set_session_cache_mode(tls->context, SSL_SESS_CACHE_OFF);
	SSL_CTX_set_mode(tls->context,
		SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS);
	SSL_CTX_set_verify(tls->context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
	return 0;
}

int tls_load(struct hf_env *env, const struct tls_files *files, struct tls **tls_out, struct hf_error *error)
{
	struct tls *tls = calloc(1, sizeof(*tls));
	int rc;

	*tls_out = NULL;
	if (tls == NULL)
		return hf_error_set(error, -ENOMEM, "no memory for TLS");
	tls->env = env;
	rc = set_up(tls, error);
	if (rc == 0)
		rc = use_file(tls, files->cert, false, use_certificates, error);
	if (rc == 0)
		rc = use_file(tls, files->key, true, use_key, error);
	if (rc == 0)
		rc = use_file(tls, files->ca, false, use_authorities, error);
	if (rc != 0) {
		tls_free(tls);
		return rc;
	}
	*tls_out = tls;
	return 0;
}

void tls_free(struct tls *tls)
{
	if (tls == NULL)
		return;
	SSL_CTX_free(tls->context);
	free(tls);
}
