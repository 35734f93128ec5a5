/* Streams: bytes in pieces, of which a write may take a part. */
#include "bed.h"

#include <errno.h>
#include <string.h>

enum { PIECES = 300, PIECE_BYTES = 1000, ALL_BYTES = PIECES * PIECE_BYTES };

static struct hf_io *listener, *client, *server;
static uint8_t sent[ALL_BYTES], received[ALL_BYTES];
static size_t sent_bytes, received_bytes;
static bool writable;

static bool accepted(void)
{
	struct hf_addr peer;

	return hf_stream_accept(listener, &server, &peer) == 0;
}

static void note_writable(struct hf_watch *watch, unsigned ready)
{
	(void)ready;
	writable = true;
	hf_loop_unwatch(watch);
}

static bool is_writable(void)
{
	return writable;
}

static void connect_streams(void)
{
	struct hf_watch watch = {.ready = note_writable};
	struct hf_addr at, from;

	assert_int_equal(hf_addr_parse(bed.address, &at), 0);
	from = at;
	assert_int_equal(hf_stream_listen(bed.env, &at, &listener, NULL), 0);
	assert_int_equal(hf_io_local(listener, &at), 0);
	assert_int_equal(hf_stream_connect(bed.env, &from, &at, &client, NULL), 0);
	bed_until(accepted);
	writable = false;
	assert_int_equal(hf_loop_watch(bed.loop, &watch, client, HF_WRITABLE), 0);
	bed_until(is_writable);
	for (size_t i = 0; i < ALL_BYTES; i++)
		sent[i] = (uint8_t)(i * 7 + i / 251);
	memset(received, 0, sizeof(received));
	sent_bytes = received_bytes = 0;
}

static void close_streams(void)
{
	hf_io_close(client);
	hf_io_close(server);
	hf_io_close(listener);
}

/* What is left, in pieces of PIECE_BYTES with an empty one after each. */
static unsigned pieces_left(struct iovec pieces[2 * PIECES])
{
	unsigned n = 0;

	for (size_t at = sent_bytes; at < ALL_BYTES;) {
		size_t bytes = PIECE_BYTES - at % PIECE_BYTES;

		pieces[n++] = (struct iovec){.iov_base = sent + at, .iov_len = bytes};
		pieces[n++] = (struct iovec){0};
		at += bytes;
	}
	return n;
}

static bool moved_all(void)
{
	struct iovec pieces[2 * PIECES];
	ssize_t n;

	if (sent_bytes < ALL_BYTES) {
		n = hf_stream_writev(client, pieces, pieces_left(pieces));
		assert_true(n > 0 || n == -EAGAIN);
		sent_bytes += n > 0 ? (size_t)n : 0;
	}
	n = hf_stream_read(server, received + received_bytes, ALL_BYTES - received_bytes);
	assert_true(n > 0 || n == -EAGAIN || received_bytes == ALL_BYTES);
	received_bytes += n > 0 ? (size_t)n : 0;
	return received_bytes == ALL_BYTES;
}

/* A loop that sleeps would not come back to a condition that no event of it changes: so it watches both ends. */
static void nothing(struct hf_watch *watch, unsigned ready)
{
	(void)watch, (void)ready;
}

static void pieces_arrive_as_one_run_of_bytes(void **state)
{
	struct hf_watch writer = {.ready = nothing}, reader = {.ready = nothing};

	(void)state;
	connect_streams();
	assert_int_equal(hf_loop_watch(bed.loop, &writer, client, HF_WRITABLE), 0);
	assert_int_equal(hf_loop_watch(bed.loop, &reader, server, HF_READABLE), 0);
	bed_until(moved_all);
	assert_memory_equal(sent, received, ALL_BYTES);
	close_streams();
}

static void a_full_stream_takes_a_part_and_then_nothing(void **state)
{
	struct iovec pieces[2] = {{sent, PIECE_BYTES}, {sent + PIECE_BYTES, ALL_BYTES - PIECE_BYTES}};
	ssize_t n, last = 0;

	(void)state;
	connect_streams();
	while ((n = hf_stream_writev(client, pieces, 2)) > 0)
		last = n;
	assert_int_equal(n, -EAGAIN);
	assert_true(last > 0 && last < ALL_BYTES);
	close_streams();
}

static void pieces_without_bytes_are_nothing_and_a_listener_takes_none(void **state)
{
	struct iovec empty = {0};

	(void)state;
	connect_streams();
	assert_int_equal(hf_stream_writev(client, &empty, 1), 0);
	assert_int_equal(hf_stream_writev(client, NULL, 0), 0);
	assert_int_equal(hf_stream_writev(listener, &empty, 1), -EOPNOTSUPP);
	close_streams();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		IN_BED(pieces_arrive_as_one_run_of_bytes),
		IN_BED(a_full_stream_takes_a_part_and_then_nothing),
		IN_BED(pieces_without_bytes_are_nothing_and_a_listener_takes_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
