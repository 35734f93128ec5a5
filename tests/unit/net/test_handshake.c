/* What proves who is at the other end of a control stream, and what does not; and where the secret comes from. */
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

#include "net/handshake.h"

#define SECRET "0123456789abcdef"

/* One end, with what it said last. */
struct end {
	const char *name;
	struct secret secret;
	struct handshake handshake;
	struct frame hello, ready;
	uint8_t hello_body[FRAME_BODY_MAX], ready_body[FRAME_PROOF_BYTES];
};

static uint8_t nonces; /* no two ends have the same */

static void end_init(struct end *end, const char *name, const char *secret, bool dialed, bool trusted)
{
	uint8_t nonce[FRAME_NONCE_BYTES];

	*end = (struct end){.name = name};
	memset(nonce, ++nonces, sizeof(nonce));
	if (secret != NULL)
		assert_int_equal(secret_set(secret, strlen(secret), &end->secret, NULL), 0);
	handshake_init(&end->handshake, &end->secret, dialed, trusted, nonce);
}

static void say_hello(struct end *end)
{
	struct frame_hello hello = {.incarnation = 7, .label = "r0"};

	snprintf(hello.name, sizeof(hello.name), "%s", end->name);
	end->hello = (struct frame){.sequence = 3, .ack = 2};
	handshake_say_hello(&end->handshake, &hello, &end->hello, end->hello_body);
}

static void say_ready(struct end *end)
{
	end->ready = (struct frame){.sequence = 4, .ack = 5};
	handshake_say_ready(&end->handshake, &end->ready, end->ready_body);
}

static enum refusal hear_hello(struct end *end, const struct frame *hello)
{
	const char *fault;
	enum refusal refusal = handshake_hear_hello(&end->handshake, end->name, hello, &fault);

	assert_null(fault);
	return refusal;
}

/* Up to where the dialer says READY. */
static void meet(struct end *dialer, struct end *listener)
{
	end_init(dialer, "a", SECRET, true, false);
	end_init(listener, "b", SECRET, false, false);
	say_hello(dialer);
	assert_int_equal(hear_hello(listener, &dialer->hello), REFUSAL_NONE);
	say_hello(listener);
	assert_int_equal(hear_hello(dialer, &listener->hello), REFUSAL_NONE);
	say_ready(dialer);
}

static void nodes_with_the_same_secret_prove_it_to_each_other(void **state)
{
	struct end a, b;

	(void)state;
	meet(&a, &b);
	assert_int_equal(handshake_hear_ready(&b.handshake, &a.ready), REFUSAL_NONE);
	assert_string_equal(a.handshake.hello.name, "b");
	assert_string_equal(b.handshake.hello.name, "a");
}

static void nodes_of_one_host_need_no_secret(void **state)
{
	struct end a, b;

	(void)state;
	end_init(&a, "a", NULL, true, true);
	end_init(&b, "b", NULL, false, true);
	say_hello(&a);
	assert_int_equal(hear_hello(&b, &a.hello), REFUSAL_NONE);
	say_hello(&b);
	assert_int_equal(hear_hello(&a, &b.hello), REFUSAL_NONE);
	say_ready(&a);
	assert_int_equal(handshake_hear_ready(&b.handshake, &a.ready), REFUSAL_NONE);
}

static void a_node_of_another_host_needs_a_secret(void **state)
{
	struct end a, b;

	(void)state;
	end_init(&a, "a", NULL, true, false);
	end_init(&b, "b", NULL, false, false);
	say_hello(&a);
	assert_int_equal(hear_hello(&b, &a.hello), REFUSAL_OTHER_HOST);
	say_hello(&b);
	assert_int_equal(hear_hello(&a, &b.hello), REFUSAL_OTHER_HOST);
}

static void a_secret_at_one_end_only_is_refused_at_both(void **state)
{
	struct end a, b;

	(void)state;
	end_init(&a, "a", SECRET, true, true);
	end_init(&b, "b", NULL, false, true);
	say_hello(&a);
	assert_int_equal(hear_hello(&b, &a.hello), REFUSAL_SECRET_UNKNOWN);
	say_hello(&b);
	assert_int_equal(hear_hello(&a, &b.hello), REFUSAL_SECRET_MISSING);
}

static void another_secret_proves_nothing_to_either_end(void **state)
{
	struct end a, b;

	(void)state;
	end_init(&a, "a", SECRET, true, true);
	end_init(&b, "b", SECRET "x", false, true);
	say_hello(&a);
	assert_int_equal(hear_hello(&b, &a.hello), REFUSAL_NONE); /* it has not proved anything yet */
	say_hello(&b);
	assert_int_equal(hear_hello(&a, &b.hello), REFUSAL_SECRET_DIFFERS);
	say_ready(&a); /* as if it did not care */
	assert_int_equal(handshake_hear_ready(&b.handshake, &a.ready), REFUSAL_SECRET_DIFFERS);
}

static void a_recorded_handshake_proves_nothing_to_a_listener(void **state)
{
	struct end a, b, again;

	(void)state;
	meet(&a, &b);
	end_init(&again, "b", SECRET, false, false);
	assert_int_equal(hear_hello(&again, &a.hello), REFUSAL_NONE);
	say_hello(&again);
	assert_int_equal(handshake_hear_ready(&again.handshake, &a.ready), REFUSAL_SECRET_DIFFERS);
}

static void a_recorded_handshake_proves_nothing_to_a_dialer(void **state)
{
	struct end a, b, again;

	(void)state;
	meet(&a, &b);
	end_init(&again, "a", SECRET, true, false);
	say_hello(&again);
	assert_int_equal(hear_hello(&again, &b.hello), REFUSAL_SECRET_DIFFERS);
}

/* A stranger has only what the nodes themselves say. */
static void what_a_node_says_proves_nothing_to_itself(void **state)
{
	struct end a, b, listener;

	(void)state;
	meet(&a, &b);
	assert_int_equal(hear_hello(&a, &a.hello), REFUSAL_SECRET_DIFFERS); /* a HELLO without a proof */
	end_init(&listener, "a", SECRET, false, false);                     /* the same node, listening */
	assert_int_equal(hear_hello(&listener, &a.hello), REFUSAL_NAME);
}

static void the_proof_of_a_listener_is_none_of_a_dialer(void **state)
{
	struct end a, b;

	(void)state;
	meet(&a, &b);
	a.ready.body = a.handshake.hello.proof;
	assert_int_equal(handshake_hear_ready(&b.handshake, &a.ready), REFUSAL_SECRET_DIFFERS);
}

static void a_hello_that_was_changed_on_its_way_fits_no_proof(void **state)
{
	struct end a, b;
	const char *fault;

	(void)state;
	meet(&a, &b);
	for (uint32_t bit = 0; bit < b.hello.body_bytes * 8; bit++) {
		b.hello_body[bit / 8] ^= (uint8_t)(1u << bit % 8);
		assert_true(
			handshake_hear_hello(&a.handshake, a.name, &b.hello, &fault) != REFUSAL_NONE || fault != NULL);
		b.hello_body[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
	b.hello.sequence++;
	assert_int_equal(hear_hello(&a, &b.hello), REFUSAL_SECRET_DIFFERS);
	b.hello.sequence--;
	b.hello.ack++;
	assert_int_equal(hear_hello(&a, &b.hello), REFUSAL_SECRET_DIFFERS);
	b.hello.ack--;
	assert_int_equal(hear_hello(&a, &b.hello), REFUSAL_NONE);
}

static void a_ready_that_was_changed_on_its_way_fits_no_proof(void **state)
{
	struct end a, b;

	(void)state;
	meet(&a, &b);
	for (uint32_t bit = 0; bit < FRAME_PROOF_BYTES * 8; bit++) {
		a.ready_body[bit / 8] ^= (uint8_t)(1u << bit % 8);
		assert_int_equal(handshake_hear_ready(&b.handshake, &a.ready), REFUSAL_SECRET_DIFFERS);
		a.ready_body[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
	a.ready.sequence++;
	assert_int_equal(handshake_hear_ready(&b.handshake, &a.ready), REFUSAL_SECRET_DIFFERS);
	a.ready.sequence--;
	a.ready.ack++;
	assert_int_equal(handshake_hear_ready(&b.handshake, &a.ready), REFUSAL_SECRET_DIFFERS);
}

static void every_refusal_has_words_at_both_ends(void **state)
{
	(void)state;
	for (unsigned i = 0; i < REFUSALS; i++) {
		assert_non_null(refusal_here((enum refusal)i));
		assert_non_null(refusal_there(i));
	}
	assert_non_null(refusal_there(UINT32_MAX)); /* of a later version, or of a liar */
}

/* ---- the file with the secret ---- */

static char path[64];

static int make_file(void **state)
{
	int fd;

	(void)state;
	snprintf(path, sizeof(path), "/tmp/holdfast-secret-XXXXXX");
	fd = mkstemp(path);
	return fd < 0 ? -1 : close(fd);
}

static int remove_file(void **state)
{
	(void)state;
	return unlink(path);
}

static void write_secret(const char *text)
{
	FILE *file = fopen(path, "w");

	assert_non_null(file);
	assert_true(fputs(text, file) >= 0);
	assert_int_equal(fclose(file), 0);
}

static void refused(int rc, const char *words)
{
	struct hf_error error = {0};
	struct secret secret;

	assert_int_equal(secret_load(hf_env_host(), path, &secret, &error), rc);
	assert_int_equal(secret.bytes, 0);
	if (strstr(error.text, words) == NULL || strstr(error.text, path) == NULL)
		fail_msg("\"%s\" does not say \"%s\"", error.text, words);
}

static void a_secret_is_read_without_the_newline_at_its_end(void **state)
{
	struct secret secret;

	(void)state;
	write_secret(SECRET "\r\n\n");
	assert_int_equal(secret_load(hf_env_host(), path, &secret, NULL), 0);
	assert_int_equal(secret.bytes, strlen(SECRET));
	assert_memory_equal(secret.data, SECRET, strlen(SECRET));
}

static void a_secret_that_others_may_read_is_refused(void **state)
{
	static const mode_t modes[] = {0640, 0604, 0660, 0620, 0602};

	(void)state;
	write_secret(SECRET);
	for (unsigned i = 0; i < sizeof(modes) / sizeof(*modes); i++) {
		assert_int_equal(chmod(path, modes[i]), 0);
		refused(-EACCES, "chmod 600");
	}
	assert_int_equal(chmod(path, 0400), 0);
	assert_int_equal(secret_load(hf_env_host(), path, &(struct secret){0}, NULL), 0);
}

static void a_secret_that_is_too_short_or_too_long_is_refused(void **state)
{
	char text[SECRET_BYTES_MAX + 2];

	(void)state;
	write_secret("short\n");
	refused(-EINVAL, "this one has 5");
	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	write_secret(text);
	refused(-EINVAL, "16 to 256 bytes");
}

static void a_secret_that_is_not_there_is_named(void **state)
{
	char there[sizeof(path)];

	(void)state;
	memcpy(there, path, sizeof(path));
	snprintf(path, sizeof(path), "/tmp/holdfast-no-such-secret");
	refused(-ENOENT, "No such file");
	memcpy(path, there, sizeof(path));
}

#define WITH_FILE(test) cmocka_unit_test_setup_teardown(test, make_file, remove_file)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nodes_with_the_same_secret_prove_it_to_each_other),
		cmocka_unit_test(nodes_of_one_host_need_no_secret),
		cmocka_unit_test(a_node_of_another_host_needs_a_secret),
		cmocka_unit_test(a_secret_at_one_end_only_is_refused_at_both),
		cmocka_unit_test(another_secret_proves_nothing_to_either_end),
		cmocka_unit_test(a_recorded_handshake_proves_nothing_to_a_listener),
		cmocka_unit_test(a_recorded_handshake_proves_nothing_to_a_dialer),
		cmocka_unit_test(what_a_node_says_proves_nothing_to_itself),
		cmocka_unit_test(the_proof_of_a_listener_is_none_of_a_dialer),
		cmocka_unit_test(a_hello_that_was_changed_on_its_way_fits_no_proof),
		cmocka_unit_test(a_ready_that_was_changed_on_its_way_fits_no_proof),
		cmocka_unit_test(every_refusal_has_words_at_both_ends),
		WITH_FILE(a_secret_is_read_without_the_newline_at_its_end),
		WITH_FILE(a_secret_that_others_may_read_is_refused),
		WITH_FILE(a_secret_that_is_too_short_or_too_long_is_refused),
		WITH_FILE(a_secret_that_is_not_there_is_named),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
