/* One stream: OpenSSL between two memory BIOs, and the stream below, which bytes are carried to and from.
 *
 *   read                          write
 *     ^                             |
 *     | SSL_read          SSL_write v
 *    [in BIO]                   [out BIO]
 *     ^                             | held[]
 *     | stream_read    stream_write v
 *
 * Memory: the in BIO has what one call read, and the rest of a record; no write is taken while the out BIO has more
 * than OUT_BYTES_MAX. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/err.h>

#include "base/ensure.h"
#include "net/tls_context.h"

#define READ_BYTES     16384u
#define READS_MAX      4u /* of the stream below, in one call */
#define OUT_BYTES_MAX  65536
#define HELD_BYTES     4096u
#define FAULT_BYTES    192u
#define RECORD_ALERT   21u /* the first byte of a record */
#define RECORD_SHAKING 22u
#define RECORD_HEADER  5 /* type, version[2], length[2] */
#define NS_PER_S       1000000000ull

struct tls_stream {
	struct stream stream;
	struct stream *below;
	SSL *ssl;
	BIO *in, *out; /* the SSL's */
	bool begun;    /* something came from the other end */
	bool foreign;  /* and it was no TLS */
	uint32_t held_from, held_to;
	uint8_t held[HELD_BYTES]; /* taken from the out BIO, not yet from us */
	char fault[FAULT_BYTES];  /* empty: none */
};

static struct tls_stream *of(struct stream *stream)
{
	return (struct tls_stream *)(void *)stream;
}

static const struct tls_stream *of_const(const struct stream *stream)
{
	return (const struct tls_stream *)(const void *)stream;
}

static int tls_flush(struct stream *stream)
{
	struct tls_stream *tls = of(stream);

	for (;;) {
		ssize_t n;

		if (tls->held_from == tls->held_to) {
			n = BIO_read(tls->out, tls->held, (int)HELD_BYTES);
			if (n <= 0)
				return 0;
			tls->held_from = 0;
			tls->held_to = (uint32_t)n;
		}
		n = stream_write(tls->below, tls->held + tls->held_from, tls->held_to - tls->held_from);
		if (n == -EAGAIN || n == -ENOTCONN)
			return 0;
		if (n < 0)
			return (int)n;
		tls->held_from += (uint32_t)n;
	}
}

static const char *reason(const struct tls_stream *tls)
{
	long verdict = SSL_get_verify_result(tls->ssl);
	unsigned long code = ERR_peek_last_error();
	const char *words = code == 0 ? NULL : ERR_reason_error_string(code);

	if (tls->foreign)
		return "it does not speak TLS";
	if (verdict != X509_V_OK)
		return X509_verify_cert_error_string(verdict);
	return words == NULL ? "protocol error" : words;
}

/* Words for what SSL_read or SSL_write found, and the alert to the other end. */
static ssize_t tls_fail(struct tls_stream *tls)
{
	/* OpenSSL has no alert for what is no TLS; from this one a plain node knows what is spoken here. */
	static const uint8_t protocol_version[] = {RECORD_ALERT, 3, 3, 0, 2, 2, 70};

	if (tls->foreign && tls->fault[0] == '\0')
		(void)stream_write(tls->below, protocol_version, sizeof(protocol_version));
	if (tls->fault[0] == '\0')
		snprintf(tls->fault, sizeof(tls->fault),
			"TLS: %.80s; check that both nodes have \"tls\" with a cert that the other's ca signed",
			reason(tls));
	ERR_clear_error();
	(void)tls_flush(&tls->stream);
	return -EPROTO;
}

/* Bytes from below to the in BIO: how many, 0 at the end, -errno. */
static ssize_t tls_fill(struct tls_stream *tls)
{
	uint8_t data[READ_BYTES];
	ssize_t n = stream_read(tls->below, data, sizeof(data));

	if (n <= 0)
		return n;
	if (!tls->begun)
		tls->foreign = data[0] != RECORD_SHAKING && data[0] != RECORD_ALERT;
	tls->begun = true;
	return BIO_write(tls->in, data, (int)n) == n ? n : -ENOMEM;
}

static ssize_t tls_read(struct stream *stream, void *data, size_t bytes)
{
	struct tls_stream *tls = of(stream);

	if (tls->fault[0] != '\0')
		return -EPROTO;
	for (unsigned reads = 0;; reads++) {
		ssize_t n;
		size_t got = 0;
		int rc, why;

		ERR_clear_error();
		rc = SSL_read_ex(tls->ssl, data, bytes, &got);
		why = SSL_get_error(tls->ssl, rc);
		if (why == SSL_ERROR_ZERO_RETURN)
			return 0;
		if (rc != 1 && why != SSL_ERROR_WANT_READ)
			return tls_fail(tls);
		n = tls_flush(stream); /* what the handshake or a change of keys has to say */
		if (rc == 1)
			return (ssize_t)got;
		if (n == 0)
			n = reads == READS_MAX ? -EAGAIN : tls_fill(tls);
		if (n <= 0)
			return n;
	}
}

static ssize_t tls_write(struct stream *stream, const void *data, size_t bytes)
{
	struct tls_stream *tls = of(stream);
	size_t put = 0;
	int rc;

	if (tls->fault[0] != '\0')
		return -EPROTO;
	if (BIO_pending(tls->out) > OUT_BYTES_MAX)
		return -EAGAIN;
	ERR_clear_error();
	rc = SSL_write_ex(tls->ssl, data, bytes, &put);
	if (rc != 1 && SSL_get_error(tls->ssl, rc) != SSL_ERROR_WANT_READ)
		return tls_fail(tls);
	(void)tls_flush(stream); /* an error stays, and the next flush or read has it */
	return rc == 1 ? (ssize_t)put : -EAGAIN;
}

/* The rest of a record that was read in part, or another whole one. The in BIO begins with a record, because OpenSSL
 * takes what there is of one that is not whole. A part of one is not waited for here: the io becomes readable. */
static bool tls_pending(const struct stream *stream)
{
	const struct tls_stream *tls = of_const(stream);
	const uint8_t *at;
	long bytes = BIO_get_mem_data(tls->in, &at);

	if (tls->fault[0] != '\0')
		return false;
	return SSL_pending(tls->ssl) > 0 || (bytes >= RECORD_HEADER && bytes >= RECORD_HEADER + (at[3] << 8 | at[4]));
}

/* Before the handshake is over, output waits for what the other end says. */
static unsigned tls_wanted(const struct stream *stream, bool output)
{
	const struct tls_stream *tls = of_const(stream);
	bool unsent = tls->held_from < tls->held_to || BIO_pending(tls->out) > 0;

	return unsent || (output && SSL_is_init_finished(tls->ssl)) ? HF_READABLE | HF_WRITABLE : HF_READABLE;
}

static const char *tls_fault(const struct stream *stream)
{
	return of_const(stream)->fault[0] == '\0' ? NULL : of_const(stream)->fault;
}

static void tls_close(struct stream *stream)
{
	struct tls_stream *tls = of(stream);

	if (tls->ssl != NULL && SSL_is_init_finished(tls->ssl) && tls->fault[0] == '\0') {
		(void)SSL_shutdown(tls->ssl);
		(void)tls_flush(stream);
	}
	ERR_clear_error();
	SSL_free(tls->ssl);
	stream_close(tls->below);
	free(tls);
}

static const struct stream_ops tls_ops = {
	.read = tls_read,
	.write = tls_write,
	.flush = tls_flush,
	.pending = tls_pending,
	.wanted = tls_wanted,
	.fault = tls_fault,
	.close = tls_close,
};

/* Certificates are judged by the time of this env. */
static bool tls_begin(struct tls_stream *stream, const struct tls *tls, bool dialed)
{
	stream->ssl = SSL_new(tls->context);
	stream->in = BIO_new(BIO_s_mem());
	stream->out = BIO_new(BIO_s_mem());
	if (stream->ssl == NULL || stream->in == NULL || stream->out == NULL) {
		BIO_free(stream->in);
		BIO_free(stream->out);
		return false;
	}
	BIO_set_mem_eof_return(stream->in, -1); /* empty means: more will come */
	BIO_set_mem_eof_return(stream->out, -1);
	SSL_set_bio(stream->ssl, stream->in, stream->out);
	X509_VERIFY_PARAM_set_time(SSL_get0_param(stream->ssl), (time_t)(hf_env_wall_ns(tls->env) / NS_PER_S));
	if (dialed)
		SSL_set_connect_state(stream->ssl);
	else
		SSL_set_accept_state(stream->ssl);
	return true;
}

int tls_stream(struct tls *tls, struct stream *below, bool dialed, struct stream **stream_out)
{
	struct tls_stream *stream = calloc(1, sizeof(*stream));

	*stream_out = NULL;
	if (stream == NULL) {
		stream_close(below);
		return -ENOMEM;
	}
	stream->stream = (struct stream){.ops = &tls_ops, .io = below->io};
	stream->below = below;
	if (!tls_begin(stream, tls, dialed)) {
		tls_close(&stream->stream);
		return -ENOMEM;
	}
	*stream_out = &stream->stream;
	return 0;
}
