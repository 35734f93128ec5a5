/* TLS over a stream that a test holds in its hands: what passes, what does not, and in which pieces. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <openssl/ssl.h>

#include "certificates.h"
#include "net/tls.h"

#define DAY_S      86400ull
#define PIPE_BYTES 65536u
#define TURNS      100000u
#define MANY_BYTES 300000u

/* ---- a stream in memory ---- */

struct end {
	struct stream stream;
	struct end *other;
	size_t piece; /* at most so many bytes in one call */
	size_t from, to;
	bool closed;
	uint8_t data[PIPE_BYTES]; /* to be read here */
};

static struct end ends[2];

static ssize_t end_read(struct stream *stream, void *data, size_t bytes)
{
	struct end *end = (struct end *)(void *)stream;
	size_t n = end->to - end->from;

	if (n == 0)
		return end->other->closed ? 0 : -EAGAIN;
	n = n < bytes ? n : bytes;
	n = n < end->piece ? n : end->piece;
	memcpy(data, end->data + end->from, n);
	end->from += n;
	return (ssize_t)n;
}

static ssize_t end_write(struct stream *stream, const void *data, size_t bytes)
{
	struct end *other = ((struct end *)(void *)stream)->other;
	size_t n;

	if (other->from == other->to)
		other->from = other->to = 0;
	n = PIPE_BYTES - other->to;
	n = n < bytes ? n : bytes;
	n = n < other->piece ? n : other->piece;
	if (n == 0)
		return -EAGAIN;
	memcpy(other->data + other->to, data, n);
	other->to += n;
	return (ssize_t)n;
}

static void end_close(struct stream *stream)
{
	((struct end *)(void *)stream)->closed = true;
}

static const struct stream_ops end_ops = {.read = end_read, .write = end_write, .close = end_close};

static void open_ends(size_t piece)
{
	for (unsigned i = 0; i < 2; i++) {
		memset(&ends[i], 0, sizeof(ends[i]));
		ends[i].stream.ops = &end_ops;
		ends[i].other = &ends[1 - i];
		ends[i].piece = piece;
	}
}

/* ---- files ---- */

static char directory[64];
static uint64_t now_s;

static const char *path(const char *name)
{
	static char paths[4][96];
	static unsigned turn;
	char *at = paths[turn++ % 4];

	snprintf(at, sizeof(paths[0]), "%s/%s", directory, name);
	return at;
}

static void sign(const struct authority *authority, const char *name, uint64_t from_s, uint64_t to_s)
{
	char cert[32], key[32];

	snprintf(cert, sizeof(cert), "%s.crt", name);
	snprintf(key, sizeof(key), "%s.key", name);
	authority_sign(authority, hf_env_host(), name, from_s, to_s, path(cert), path(key));
}

/* "ours" signed good, late and early; "theirs" signed other. */
static int set_up(void **state)
{
	struct authority *ours, *theirs;

	(void)state;
	now_s = hf_env_wall_ns(hf_env_host()) / 1000000000;
	snprintf(directory, sizeof(directory), "/tmp/holdfast-tls-XXXXXX");
	if (mkdtemp(directory) == NULL)
		return -1;
	ours = authority_create("ours", now_s);
	theirs = authority_create("theirs", now_s);
	authority_write(ours, hf_env_host(), path("ours.crt"));
	authority_write(theirs, hf_env_host(), path("theirs.crt"));
	sign(ours, "good", now_s - DAY_S, now_s + DAY_S);
	sign(ours, "late", now_s - 2 * DAY_S, now_s - DAY_S);
	sign(ours, "early", now_s + DAY_S, now_s + 2 * DAY_S);
	sign(theirs, "other", now_s - DAY_S, now_s + DAY_S);
	authority_free(ours);
	authority_free(theirs);
	return 0;
}

static int tear_down(void **state)
{
	static const char *const names[] = {"ours.crt", "theirs.crt", "good.crt", "good.key", "late.crt", "late.key",
		"early.crt", "early.key", "other.crt", "other.key", "text"};

	(void)state;
	for (unsigned i = 0; i < sizeof(names) / sizeof(*names); i++)
		unlink(path(names[i]));
	return rmdir(directory);
}

static int try_context(const char *cert, const char *key, const char *ca, struct tls **tls_out, struct hf_error *error)
{
	struct tls_files files = {.cert = path(cert), .key = path(key), .ca = path(ca)};

	return tls_load(hf_env_host(), &files, tls_out, error);
}

static struct tls *context(const char *cert, const char *key, const char *ca)
{
	struct hf_error error = {0};
	struct tls *tls;

	if (try_context(cert, key, ca, &tls, &error) != 0)
		fail_msg("%s", error.text);
	return tls;
}

/* ---- two ends of TLS ---- */

static struct stream *open_tls(struct tls *tls, unsigned i)
{
	struct stream *stream;

	assert_int_equal(tls_stream(tls, &ends[i].stream, i == 0, &stream), 0);
	return stream;
}

/* Each says a word, and both go on until they have heard the other's or failed. */
static void exchange(struct stream *const streams[2], char heard[2][8])
{
	bool said[2] = {false, false};
	size_t n[2] = {0, 0};

	memset(heard, 0, 16);
	for (unsigned turn = 0; turn < TURNS; turn++) {
		unsigned i = turn % 2;
		ssize_t rc;

		if (!said[i])
			said[i] = stream_write(streams[i], i == 0 ? "dialer" : "listen", 6) == 6;
		rc = stream_read(streams[i], heard[i] + n[i], 7 - n[i]);
		if (rc > 0)
			n[i] += (size_t)rc;
		(void)stream_flush(streams[i]);
	}
}

static void check_words(struct stream *const streams[2])
{
	char heard[2][8];

	exchange(streams, heard);
	assert_null(stream_fault(streams[0]));
	assert_null(stream_fault(streams[1]));
	assert_string_equal(heard[0], "listen");
	assert_string_equal(heard[1], "dialer");
}

static ssize_t read_on(struct stream *stream)
{
	ssize_t n = -EAGAIN;

	for (unsigned i = 0; i < TURNS && n == -EAGAIN; i++)
		n = stream_read(stream, (char[8]){0}, 8);
	return n;
}

static void ends_with_certificates_of_one_authority_talk(void **state)
{
	static const size_t pieces[] = {1, 2, 7, 1000, PIPE_BYTES};
	struct tls *tls = context("good.crt", "good.key", "ours.crt");

	(void)state;
	for (unsigned i = 0; i < sizeof(pieces) / sizeof(*pieces); i++) {
		struct stream *streams[2];

		open_ends(pieces[i]);
		streams[0] = open_tls(tls, 0);
		streams[1] = open_tls(tls, 1);
		check_words(streams);
		stream_close(streams[0]);
		assert_true(ends[0].closed);
		assert_int_equal(read_on(streams[1]), 0); /* it was told */
		stream_close(streams[1]);
	}
	tls_free(tls);
}

static void what_travels_is_not_what_was_said(void **state)
{
	struct tls *tls = context("good.crt", "good.key", "ours.crt");
	struct stream *streams[2];

	(void)state;
	open_ends(PIPE_BYTES);
	streams[0] = open_tls(tls, 0);
	streams[1] = open_tls(tls, 1);
	check_words(streams);
	assert_int_equal(stream_write(streams[0], "do not read this", 16), 16);
	assert_true(ends[1].to - ends[1].from > 16);
	assert_null(memmem(ends[1].data, ends[1].to, "do not read this", 16));
	ends[1].data[ends[1].from + 10] ^= 1; /* and it cannot be changed */
	assert_int_equal(stream_read(streams[1], (char[16]){0}, 16), -EPROTO);
	assert_non_null(stream_fault(streams[1]));
	stream_close(streams[0]);
	stream_close(streams[1]);
	tls_free(tls);
}

/* More than every buffer: writes are refused until the other end reads, and nothing is lost. */
static void a_full_stream_takes_no_more(void **state)
{
	static uint8_t sent[MANY_BYTES], received[MANY_BYTES];
	struct tls *tls = context("good.crt", "good.key", "ours.crt");
	struct stream *streams[2];
	size_t put = 0, got = 0;
	ssize_t n;

	(void)state;
	for (size_t i = 0; i < MANY_BYTES; i++)
		sent[i] = (uint8_t)(i * 7 + i / 256);
	open_ends(PIPE_BYTES);
	streams[0] = open_tls(tls, 0);
	streams[1] = open_tls(tls, 1);
	check_words(streams);
	while ((n = stream_write(streams[0], sent + put, MANY_BYTES - put)) > 0)
		put += (size_t)n;
	assert_int_equal(n, -EAGAIN);
	assert_true(put < MANY_BYTES);
	assert_int_equal(stream_wanted(streams[0], false), HF_READABLE | HF_WRITABLE); /* what it holds has to leave */
	for (unsigned i = 0; i < TURNS && got < MANY_BYTES; i++) {
		do {
			n = stream_read(streams[1], received + got, MANY_BYTES - got);
			got += n > 0 ? (size_t)n : 0;
		} while (stream_pending(streams[1]));
		assert_int_equal(stream_flush(streams[0]), 0);
		n = put < MANY_BYTES ? stream_write(streams[0], sent + put, MANY_BYTES - put) : 0;
		put += n > 0 ? (size_t)n : 0;
	}
	assert_memory_equal(sent, received, MANY_BYTES);
	stream_close(streams[0]);
	stream_close(streams[1]);
	tls_free(tls);
}

/* Output waits for the other end's part of the handshake, not for room: a loop must not spin meanwhile. */
static void output_does_not_make_a_loop_spin_during_the_handshake(void **state)
{
	struct tls *tls = context("good.crt", "good.key", "ours.crt");
	struct stream *streams[2];

	(void)state;
	open_ends(PIPE_BYTES);
	streams[0] = open_tls(tls, 0);
	streams[1] = open_tls(tls, 1);
	assert_int_equal(stream_write(streams[0], "dialer", 6), -EAGAIN);
	assert_int_equal(stream_wanted(streams[0], true), HF_READABLE);
	check_words(streams);
	assert_int_equal(stream_wanted(streams[0], true), HF_READABLE | HF_WRITABLE);
	assert_int_equal(stream_wanted(streams[0], false), HF_READABLE);
	stream_close(streams[0]);
	stream_close(streams[1]);
	tls_free(tls);
}

/* One of the ends says these words, and the other end hears of it. */
static void refused(struct tls *dialer, struct tls *listener, unsigned who, const char *words)
{
	struct stream *streams[2];
	char heard[2][8];

	open_ends(PIPE_BYTES);
	streams[0] = open_tls(dialer, 0);
	streams[1] = open_tls(listener, 1);
	exchange(streams, heard);
	for (unsigned i = 0; i < 2; i++) {
		assert_string_equal(heard[i], "");
		assert_non_null(stream_fault(streams[i]));
		assert_non_null(strstr(stream_fault(streams[i]), "signed"));
	}
	if (strstr(stream_fault(streams[who]), words) == NULL)
		fail_msg("\"%s\" does not say \"%s\"", stream_fault(streams[who]), words);
	stream_close(streams[0]);
	stream_close(streams[1]);
}

static void a_certificate_of_another_authority_is_refused_by_either_end(void **state)
{
	struct tls *good = context("good.crt", "good.key", "ours.crt");
	struct tls *other = context("other.crt", "other.key", "ours.crt");

	(void)state;
	refused(other, good, 1, "unable to get local issuer certificate");
	refused(good, other, 0, "unable to get local issuer certificate");
	tls_free(good);
	tls_free(other);
}

static void a_certificate_outside_its_time_is_refused(void **state)
{
	struct tls *good = context("good.crt", "good.key", "ours.crt");
	struct tls *late = context("late.crt", "late.key", "ours.crt");
	struct tls *early = context("early.crt", "early.key", "ours.crt");

	(void)state;
	refused(late, good, 1, "expired");
	refused(good, late, 0, "expired");
	refused(early, good, 1, "not yet valid");
	tls_free(good);
	tls_free(late);
	tls_free(early);
}

/* An end that is no end of TLS: a plain node, or garbage. */
static void what_is_no_tls_is_named(void **state)
{
	struct tls *tls = context("good.crt", "good.key", "ours.crt");
	struct stream *stream;

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		open_ends(PIPE_BYTES);
		stream = open_tls(tls, i);
		assert_int_equal(stream_write(&ends[1 - i].stream, "HFC1 is no record of TLS", 24), 24);
		assert_int_equal(stream_read(stream, (char[8]){0}, 8), -EPROTO);
		assert_non_null(strstr(stream_fault(stream), "does not speak TLS"));
		assert_int_equal(stream_read(stream, (char[8]){0}, 8), -EPROTO); /* and again */
		assert_int_equal(stream_write(stream, "x", 1), -EPROTO);
		stream_close(stream);
	}
	tls_free(tls);
}

/* Any other program that speaks TLS, and has no certificate. */
static void an_end_without_a_certificate_is_refused(void **state)
{
	struct tls *tls = context("good.crt", "good.key", "ours.crt");
	SSL_CTX *anybody = SSL_CTX_new(TLS_client_method());
	BIO *in = BIO_new(BIO_s_mem()), *out = BIO_new(BIO_s_mem());
	SSL *ssl = SSL_new(anybody);
	struct stream *stream;
	char data[4096];

	(void)state;
	open_ends(PIPE_BYTES);
	stream = open_tls(tls, 1);
	SSL_set_bio(ssl, in, out);
	for (unsigned i = 0; i < 8; i++) {
		int n;
		ssize_t got;

		(void)SSL_connect(ssl);
		if ((n = BIO_read(out, data, sizeof(data))) > 0)
			assert_int_equal(stream_write(&ends[0].stream, data, (size_t)n), n);
		(void)stream_read(stream, data, 8);
		if ((got = stream_read(&ends[0].stream, data, sizeof(data))) > 0)
			assert_int_equal(BIO_write(in, data, (int)got), got);
	}
	assert_non_null(stream_fault(stream));
	assert_non_null(strstr(stream_fault(stream), "peer did not return a certificate"));
	stream_close(stream);
	SSL_free(ssl);
	SSL_CTX_free(anybody);
	tls_free(tls);
}

/* ---- files that do not fit ---- */

static void load_refused(const char *cert, const char *key, const char *ca, const char *file, const char *words)
{
	struct hf_error error = {0};
	struct tls *tls;

	assert_true(try_context(cert, key, ca, &tls, &error) < 0);
	assert_null(tls);
	if (strstr(error.text, words) == NULL || strstr(error.text, file) == NULL)
		fail_msg("\"%s\" does not say \"%s\" of %s", error.text, words, file);
}

static void files_that_do_not_fit_are_named(void **state)
{
	FILE *text = fopen(path("text"), "w");

	(void)state;
	assert_non_null(text);
	assert_true(fputs("this is no PEM\n", text) >= 0);
	assert_int_equal(fclose(text), 0);
	assert_int_equal(chmod(path("text"), 0600), 0);
	load_refused("none.crt", "good.key", "ours.crt", "none.crt", "No such file");
	load_refused("text", "good.key", "ours.crt", "text", "expected a certificate in PEM");
	load_refused("good.crt", "text", "ours.crt", "text", "expected the private key");
	load_refused("good.crt", "other.key", "ours.crt", "other.key", "expected the private key of the certificate");
	load_refused("good.crt", "good.key", "text", "text", "expected certificates of authorities");
	assert_int_equal(chmod(path("good.key"), 0644), 0);
	load_refused("good.crt", "good.key", "ours.crt", "good.key", "chmod 600");
	tls_free(NULL);
}

#define WITH_FILES(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_FILES(ends_with_certificates_of_one_authority_talk),
		WITH_FILES(what_travels_is_not_what_was_said),
		WITH_FILES(a_full_stream_takes_no_more),
		WITH_FILES(output_does_not_make_a_loop_spin_during_the_handshake),
		WITH_FILES(a_certificate_of_another_authority_is_refused_by_either_end),
		WITH_FILES(a_certificate_outside_its_time_is_refused),
		WITH_FILES(what_is_no_tls_is_named),
		WITH_FILES(an_end_without_a_certificate_is_refused),
		WITH_FILES(files_that_do_not_fit_are_named),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
