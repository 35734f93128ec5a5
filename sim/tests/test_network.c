/* Datagrams and streams through paths that misbehave. */
#include "sim/tests/fixture.h"

#include <errno.h>

static struct hf_io *open_dgram(struct fixture *f, unsigned i, const char *address)
{
	struct hf_addr local = fixture_addr(address);
	struct hf_io *io;

	assert_int_equal(hf_dgram_open(fixture_env(f, i), &local, 0, &io, NULL), 0);
	return io;
}

static void send_text(struct hf_io *io, const char *to, const char *text)
{
	struct hf_dgram dgram = {.peer = fixture_addr(to), .bytes = (uint32_t)strlen(text)};
	char copy[64];

	memcpy(copy, text, dgram.bytes);
	dgram.data = copy;
	assert_int_equal(hf_dgram_send(io, &dgram, 1), 1);
}

static int receive(struct hf_io *io, char *text)
{
	struct hf_dgram dgram = {.data = text, .bytes = 63};
	int rc = hf_dgram_recv(io, &dgram, 1);

	text[rc == 1 ? dgram.bytes : 0] = '\0';
	return rc;
}

static void a_datagram_arrives_after_its_delay_and_not_before(void **state)
{
	struct fixture f;
	struct hf_io *a, *b;
	char text[64];

	(void)state;
	fixture_open(&f, 5, NULL, NULL);
	a = open_dgram(&f, 0, "10.0.0.1:100");
	b = open_dgram(&f, 1, "10.0.0.2:100");
	send_text(a, "10.0.0.2:100", "hello");
	assert_int_equal(receive(b, text), -EAGAIN);
	fixture_run(&f, 10 * NS_US);
	assert_int_equal(receive(b, text), 1);
	assert_string_equal(text, "hello");
	hf_io_close(a);
	hf_io_close(b);
	fixture_close(&f);
}

static void a_segmented_payload_arrives_as_its_datagrams(void **state)
{
	struct hf_dgram dgram = {.data = (char[]){"aaabbbc"}, .bytes = 7, .segment_bytes = 3};
	unsigned bytes = 0, n = 0;
	struct fixture f;
	struct hf_io *a, *b;
	char text[64];

	(void)state;
	fixture_open(&f, 5, NULL, NULL);
	a = open_dgram(&f, 0, "10.0.0.1:100");
	b = open_dgram(&f, 1, "10.0.0.2:100");
	dgram.peer = fixture_addr("10.0.0.2:100");
	assert_int_equal(hf_dgram_send(a, &dgram, 1), 1);
	fixture_run(&f, 10 * NS_US);
	for (; receive(b, text) == 1; n++)
		bytes += (unsigned)strlen(text);
	assert_int_equal(n, 3);
	assert_int_equal(bytes, 7);
	hf_io_close(a);
	hf_io_close(b);
	fixture_close(&f);
}

static void a_host_knows_its_own_addresses(void **state)
{
	struct hf_addr first = fixture_addr("10.0.0.1:100"), second = fixture_addr("10.0.0.2:100");
	struct fixture f;

	(void)state;
	fixture_open(&f, 5, NULL, NULL);
	assert_true(hf_addr_is_local(fixture_env(&f, 0), &first));
	assert_false(hf_addr_is_local(fixture_env(&f, 0), &second));
	assert_true(hf_addr_is_local(fixture_env(&f, 1), &second));
	fixture_close(&f);
}

static void a_cut_takes_one_direction_only(void **state)
{
	struct fixture f;
	struct hf_io *a, *b;
	char text[64];

	(void)state;
	fixture_open(&f, 5, NULL, NULL);
	a = open_dgram(&f, 0, "10.0.0.1:100");
	b = open_dgram(&f, 1, "10.0.0.2:100");
	f.ports[0]->cut_tx++;
	send_text(a, "10.0.0.2:100", "lost");
	send_text(b, "10.0.0.1:100", "heard");
	fixture_run(&f, NS_MS);
	assert_int_equal(receive(b, text), -EAGAIN);
	assert_int_equal(receive(a, text), 1);
	hf_io_close(a);
	hf_io_close(b);
	fixture_close(&f);
}

static void a_late_packet_survives_a_cut_that_it_outlasts(void **state)
{
	struct fixture f;
	struct hf_io *a, *b;
	char text[64];

	(void)state;
	fixture_open(&f, 5, NULL, NULL);
	a = open_dgram(&f, 0, "10.0.0.1:100");
	b = open_dgram(&f, 1, "10.0.0.2:100");
	network_path(&f.network, f.ports[0], f.ports[1])->late_ppm = 1000000;
	send_text(a, "10.0.0.2:100", "late");
	f.ports[0]->cut_tx++;
	fixture_run(&f, 20 * NS_MS);
	assert_int_equal(receive(b, text), -EAGAIN);
	f.ports[0]->cut_tx--;
	fixture_run(&f, 4 * NS_S);
	assert_int_equal(receive(b, text), 1);
	assert_string_equal(text, "late");
	hf_io_close(a);
	hf_io_close(b);
	fixture_close(&f);
}

static void a_path_takes_no_more_than_its_bandwidth(void **state)
{
	struct hf_io *a, *b;
	struct fixture f;
	char text[64];
	unsigned n = 0;

	(void)state;
	fixture_open(&f, 5, NULL, NULL);
	a = open_dgram(&f, 0, "10.0.0.1:100");
	b = open_dgram(&f, 1, "10.0.0.2:100");
	network_path(&f.network, f.ports[0], f.ports[1])->bits_per_s = 40000; /* a ms for 5 bytes */
	for (unsigned i = 0; i < 100; i++)
		send_text(a, "10.0.0.2:100", "slow!");
	send_text(b, "10.0.0.1:100", "the other way is not");
	fixture_run(&f, NS_MS / 2);
	assert_int_equal(receive(a, text), 1);
	assert_int_equal(receive(b, text), -EAGAIN);
	fixture_run(&f, 10 * NS_MS);
	while (receive(b, text) == 1)
		n++;
	assert_int_equal(n, 10);
	network_path(&f.network, f.ports[0], f.ports[1])->bits_per_s = 0;
	send_text(a, "10.0.0.2:100", "last"); /* does not overtake */
	fixture_run(&f, 90 * NS_MS);
	for (; receive(b, text) == 1; n++)
		assert_string_equal(text, n == 100 ? "last" : "slow!");
	assert_int_equal(n, 101);
	hf_io_close(a);
	hf_io_close(b);
	fixture_close(&f);
}

static void what_finds_no_room_before_a_slow_path_is_lost(void **state)
{
	static char block[50000];
	struct hf_dgram dgram = {.peer = fixture_addr("10.0.0.2:100"), .data = block, .bytes = sizeof(block)};
	struct hf_io *a, *b;
	struct fixture f;
	unsigned n = 0;

	(void)state;
	fixture_open(&f, 5, NULL, NULL);
	a = open_dgram(&f, 0, "10.0.0.1:100");
	b = open_dgram(&f, 1, "10.0.0.2:100");
	network_path(&f.network, f.ports[0], f.ports[1])->bits_per_s = 10000000;
	for (unsigned i = 0; i < 40; i++)
		assert_int_equal(hf_dgram_send(a, &dgram, 1), 1);
	fixture_run(&f, 2 * NS_S);
	while (hf_dgram_recv(b, &dgram, 1) == 1)
		n++;
	assert_int_equal(n, 11); /* 512 KiB and one more */
	hf_io_close(a);
	hf_io_close(b);
	fixture_close(&f);
}

/* ---- streams ---- */

struct streams {
	struct fixture f;
	struct hf_io *listener, *client, *server;
};

static void streams_open(struct streams *s, uint64_t seed)
{
	struct hf_addr at = fixture_addr("10.0.0.2:200"), from = fixture_addr("10.0.0.1");
	struct hf_addr peer;

	fixture_open(&s->f, seed, NULL, NULL);
	assert_int_equal(hf_stream_listen(fixture_env(&s->f, 1), &at, &s->listener, NULL), 0);
	assert_int_equal(hf_stream_connect(fixture_env(&s->f, 0), &from, &at, &s->client, NULL), 0);
	assert_int_equal(hf_stream_accept(s->listener, &s->server, &peer), -EAGAIN);
	fixture_run(&s->f, NS_MS);
	assert_int_equal(hf_stream_accept(s->listener, &s->server, &peer), 0);
}

static void streams_close(struct streams *s)
{
	hf_io_close(s->client);
	hf_io_close(s->server);
	hf_io_close(s->listener);
	fixture_run(&s->f, NS_S);
	fixture_close(&s->f);
}

static void a_stream_keeps_bytes_in_order_through_loss_and_ends(void **state)
{
	struct streams s;
	uint8_t out[4096], in[4096];
	size_t sent = 0, got = 0;

	(void)state;
	streams_open(&s, 9);
	for (size_t i = 0; i < sizeof(out); i++)
		out[i] = (uint8_t)(i * 7);
	network_path(&s.f.network, s.f.ports[0], s.f.ports[1])->loss_ppm = 300000;
	for (unsigned turn = 0; turn < 10000 && got < sizeof(out); turn++) {
		ssize_t n = sent < sizeof(out) ? hf_stream_write(s.client, out + sent,
							 sizeof(out) - sent > 97 ? 97 : sizeof(out) - sent)
					       : 0;

		sent += n > 0 ? (size_t)n : 0;
		fixture_run(&s.f, NS_MS);
		n = hf_stream_read(s.server, in + got, sizeof(in) - got);
		got += n > 0 ? (size_t)n : 0;
	}
	assert_int_equal(got, sizeof(out));
	assert_memory_equal(in, out, sizeof(out));
	hf_io_close(s.client);
	s.client = NULL;
	fixture_run(&s.f, 30 * NS_S);
	assert_int_equal(hf_stream_read(s.server, in, sizeof(in)), 0);
	streams_close(&s);
}

static void a_stream_stalls_during_a_cut_and_goes_on_after_it(void **state)
{
	struct streams s;
	char in[8];

	(void)state;
	streams_open(&s, 9);
	s.f.ports[1]->cut_rx++;
	assert_int_equal(hf_stream_write(s.client, "x", 1), 1);
	fixture_run(&s.f, 200 * NS_MS);
	assert_int_equal(hf_stream_read(s.server, in, sizeof(in)), -EAGAIN);
	s.f.ports[1]->cut_rx--;
	network_healed(&s.f.network);
	fixture_run(&s.f, NS_S);
	assert_int_equal(hf_stream_read(s.server, in, sizeof(in)), 1);
	streams_close(&s);
}

static void a_stream_that_is_cut_for_too_long_breaks_on_the_side_that_sent(void **state)
{
	struct streams s;
	char in[8];

	(void)state;
	streams_open(&s, 9);
	s.f.ports[1]->cut_rx++;
	assert_int_equal(hf_stream_write(s.client, "x", 1), 1);
	fixture_run(&s.f, s.f.network.stream_limit_ns + 3 * NS_S);
	assert_int_equal(hf_stream_read(s.client, in, sizeof(in)), -ETIMEDOUT);
	assert_int_equal(hf_stream_read(s.server, in, sizeof(in)), -EAGAIN);
	s.f.ports[1]->cut_rx--;
	assert_int_equal(hf_stream_write(s.server, "y", 1), 1);
	fixture_run(&s.f, NS_S);
	assert_int_equal(hf_stream_read(s.server, in, sizeof(in)), -ECONNRESET);
	streams_close(&s);
}

static void a_crash_resets_streams_and_a_power_loss_says_nothing(void **state)
{
	struct streams s;
	char in[8];

	(void)state;
	streams_open(&s, 9);
	s.f.hosts[0].stopped = true; /* as host_stop begins: no kernel says good-bye */
	process_crash(s.f.processes[0]);
	assert_int_equal(s.f.world.violations, 1); /* the test's own stream was left open */
	fixture_run(&s.f, NS_S);
	assert_int_equal(hf_stream_read(s.server, in, sizeof(in)), -EAGAIN);
	streams_close(&s);

	streams_open(&s, 9);
	process_crash(s.f.processes[0]);
	assert_int_equal(hf_stream_read(s.server, in, sizeof(in)), -ECONNRESET);
	streams_close(&s);
}

static void connecting_to_nobody_is_refused(void **state)
{
	struct hf_addr to = fixture_addr("10.0.0.2:201"), from = fixture_addr("10.0.0.1");
	struct fixture f;
	struct hf_io *io;
	char in[8];

	(void)state;
	fixture_open(&f, 5, NULL, NULL);
	assert_int_equal(hf_stream_connect(fixture_env(&f, 0), &from, &to, &io, NULL), 0);
	fixture_run(&f, NS_MS);
	assert_int_equal(hf_stream_read(io, in, sizeof(in)), -ECONNREFUSED);
	hf_io_close(io);
	fixture_close(&f);
}

static void a_stream_takes_its_time_on_a_slow_path(void **state)
{
	static char block[100000];
	struct streams s;
	size_t sent = 0, received = 0;
	uint64_t begin_ns;

	(void)state;
	streams_open(&s, 5);
	network_path(&s.f.network, s.f.ports[0], s.f.ports[1])->bits_per_s = 8000000; /* a ms for 1000 bytes */
	begin_ns = s.f.world.now_ns;
	while (received < sizeof(block)) {
		size_t most = sizeof(block) - sent < 1000 ? sizeof(block) - sent : 1000;
		ssize_t n = most == 0 ? 0 : hf_stream_write(s.client, block, most);

		sent += n > 0 ? (size_t)n : 0;
		fixture_run(&s.f, 100 * NS_US);
		n = hf_stream_read(s.server, block, sizeof(block));
		received += n > 0 ? (size_t)n : 0;
	}
	assert_in_range(s.f.world.now_ns - begin_ns, 100 * NS_MS, 140 * NS_MS);
	streams_close(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_datagram_arrives_after_its_delay_and_not_before),
		cmocka_unit_test(a_segmented_payload_arrives_as_its_datagrams),
		cmocka_unit_test(a_host_knows_its_own_addresses),
		cmocka_unit_test(a_cut_takes_one_direction_only),
		cmocka_unit_test(a_path_takes_no_more_than_its_bandwidth),
		cmocka_unit_test(what_finds_no_room_before_a_slow_path_is_lost),
		cmocka_unit_test(a_stream_takes_its_time_on_a_slow_path),
		cmocka_unit_test(a_late_packet_survives_a_cut_that_it_outlasts),
		cmocka_unit_test(a_stream_keeps_bytes_in_order_through_loss_and_ends),
		cmocka_unit_test(a_stream_stalls_during_a_cut_and_goes_on_after_it),
		cmocka_unit_test(a_stream_that_is_cut_for_too_long_breaks_on_the_side_that_sent),
		cmocka_unit_test(a_crash_resets_streams_and_a_power_loss_says_nothing),
		cmocka_unit_test(connecting_to_nobody_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
