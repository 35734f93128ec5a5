/* A receiver of copies, and a sender that does not keep to the protocol. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <holdfast/channel.h>

#include "../transfer/engines.h"
#include "base/crc.h"
#include "cli/transfer/receiver.h"

#define BYTES 4096u
#define TURNS 20000u

struct fixture {
	struct engines engines;
	char directory[64];
	struct copy_receiver *receiver;
	struct hf_channel *channel; /* of the sender */
	bool heard[COPY_KINDS];
	struct copy_fail fail;
};

static void on_message(struct hf_channel *channel, struct hf_peer *peer, const void *data, size_t bytes, void *context)
{
	struct fixture *f = context;
	struct copy_message message;

	(void)channel;
	(void)peer;
	assert_true(copy_message_read(data, bytes, &message));
	f->heard[message.kind] = true;
	if (message.kind == COPY_FAIL)
		f->fail = message.fail;
}

static const struct hf_channel_events sender_events = {.message = on_message};

static void wait_for(struct fixture *f, enum copy_kind kind)
{
	for (unsigned i = 0; i < TURNS && !f->heard[kind]; i++)
		engines_turn(&f->engines);
	assert_true(f->heard[kind]);
}

static void say(struct fixture *f, const struct copy_message *message)
{
	uint8_t bytes[COPY_MESSAGE_BYTES];

	assert_int_equal(
		hf_channel_send(f->channel, f->engines.pair.a.peer, bytes, copy_message_write(message, bytes)), 0);
}

static void open_fixture(struct fixture *f)
{
	static const struct copy_receiver_events none;
	struct end *a, *b;

	*f = (struct fixture){.directory = "/tmp/holdfast-receiver-XXXXXX"};
	assert_non_null(mkdtemp(f->directory));
	engines_open(&f->engines, BYTES, NULL, NULL);
	a = &f->engines.pair.a;
	b = &f->engines.pair.b;
	assert_int_equal(copy_receiver_open(b->node, f->engines.b, f->directory, &none, NULL, &f->receiver, NULL), 0);
	assert_int_equal(hf_channel_register(a->node, COPY_CHANNEL, &sender_events, f, &f->channel, NULL), 0);
	for (unsigned i = 0; i < TURNS && !hf_channel_is_open(f->channel, a->peer); i++)
		engines_turn(&f->engines);
}

static void close_fixture(struct fixture *f)
{
	static const char *const left[] = {".x.holdfast-part", ".x.holdfast-journal", "x"};
	char path[128];

	hf_channel_close(f->channel);
	copy_receiver_close(f->receiver);
	engines_close(&f->engines);
	for (unsigned i = 0; i < sizeof(left) / sizeof(left[0]); i++) {
		snprintf(path, sizeof(path), "%s/%s", f->directory, left[i]);
		(void)remove(path);
	}
	assert_int_equal(remove(f->directory), 0);
}

/* The first of them is not written yet when the second one arrives. */
static void a_chunk_that_is_sent_twice_is_refused(void **state)
{
	static const uint8_t zeros[COPY_CHUNK_BYTES];
	struct copy_message chunk = {
		.kind = COPY_CHUNK, .chunk = {.bytes = COPY_CHUNK_BYTES, .crc32c = crc32c(0, zeros, COPY_CHUNK_BYTES)}};
	struct fixture f;

	(void)state;
	open_fixture(&f);
	say(&f, &(struct copy_message){
			.kind = COPY_BEGIN, .begin = {.version = COPY_VERSION, .name = "x", .name_bytes = 1}});
	wait_for(&f, COPY_RING);
	say(&f, &(struct copy_message){.kind = COPY_FILE, .file = {.mode = 0600, .bytes = COPY_CHUNK_BYTES}});
	wait_for(&f, COPY_READY);
	say(&f, &chunk);
	chunk.chunk.slot = 1;
	say(&f, &chunk);
	wait_for(&f, COPY_FAIL);
	assert_non_null(strstr(f.fail.text, "a chunk out of turn"));
	close_fixture(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(a_chunk_that_is_sent_twice_is_refused)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
