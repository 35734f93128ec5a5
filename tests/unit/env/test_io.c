/* Addresses, datagrams and streams of a Linux host, over loopback. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <ifaddrs.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <holdfast/env.h>
#include <holdfast/loop.h>

#include "env/linux/linux.h"

static struct hf_env *env;
static struct hf_loop *loop;

static int set_up(void **state)
{
	(void)state;
	env = hf_env_host();
	return hf_loop_create(env, &loop);
}

static int tear_down(void **state)
{
	(void)state;
	hf_loop_destroy(loop);
	return 0;
}

static struct hf_addr address(const char *text)
{
	struct hf_addr addr;

	assert_int_equal(hf_addr_parse(text, &addr), 0);
	return addr;
}

/* ---- addresses ---- */

static void addresses_are_formatted_as_they_are_parsed(void **state)
{
	const char *const texts[] = {
		"127.0.0.2", "127.0.0.2:18515", "[::1]", "[::1]:18515", "[2001:db8::7]:1", "0.0.0.0:65535"};
	char text[HF_ADDR_TEXT];
	struct hf_addr addr, bare;

	(void)state;
	for (unsigned i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		addr = address(texts[i]);
		assert_string_equal(hf_addr_format(&addr, text), texts[i]);
	}
	addr = address("[::1]");
	bare = address("::1");
	assert_true(hf_addr_equal(&addr, &bare));
	hf_addr_set_port(&bare, 7);
	assert_int_equal(hf_addr_port(&bare), 7);
	assert_false(hf_addr_equal(&addr, &bare));
	addr = address("127.0.0.1:7");
	assert_false(hf_addr_equal(&addr, &bare));
	bare = address("127.0.0.1:7");
	assert_true(hf_addr_equal(&addr, &bare));
}

static void what_is_no_address_is_refused(void **state)
{
	const char *const wrong[] = {"", ":", ":1", "localhost", "127.0.0", "127.0.0.1:", "127.0.0.1:65536",
		"127.0.0.1:-1", "127.0.0.1:1x", "127.0.0.1 ", " 127.0.0.1", "[::1", "::1]", "[127.0.0.1]:1", "[]:1",
		"[::1]1", "[::1]:", "256.0.0.1", "1:2", "[::1]:99999999999999999999",
		"1111111111111111111111111111111111111111111111111111111111111111111111111111111111111111:1"};
	struct hf_addr addr;

	(void)state;
	for (unsigned i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		assert_int_equal(hf_addr_parse(wrong[i], &addr), -EINVAL);
}

/* ---- datagrams ---- */

static struct hf_io *open_dgram(const char *local, unsigned flags, struct hf_addr *addr_out)
{
	struct hf_addr addr = address(local);
	struct hf_error error = {""};
	struct hf_io *io;

	if (hf_dgram_open(env, &addr, flags, &io, &error) != 0)
		fail_msg("%s", error.text);
	assert_int_equal(hf_io_local(io, addr_out), 0);
	assert_int_not_equal(hf_addr_port(addr_out), 0);
	return io;
}

/* Loopback delivers within the sender's system call, so what was sent is there. */
static uint32_t drain(struct hf_io *io, uint8_t *into, uint32_t capacity, uint32_t *datagrams_out)
{
	static uint8_t payload[4][HF_DGRAM_MAX_BYTES];
	uint32_t total = 0;

	*datagrams_out = 0;
	for (;;) {
		struct hf_dgram dgrams[4];
		int got;

		for (unsigned i = 0; i < 4; i++)
			dgrams[i] = (struct hf_dgram){.data = payload[i], .bytes = HF_DGRAM_MAX_BYTES};
		got = hf_dgram_recv(io, dgrams, 4);
		if (got == -EAGAIN)
			return total;
		assert_in_range(got, 1, 4);
		for (int i = 0; i < got; i++) {
			uint32_t piece = dgrams[i].segment_bytes != 0 ? dgrams[i].segment_bytes : dgrams[i].bytes;

			assert_true(total + dgrams[i].bytes <= capacity);
			memcpy(into + total, dgrams[i].data, dgrams[i].bytes);
			total += dgrams[i].bytes;
			*datagrams_out += piece == 0 ? 1 : (dgrams[i].bytes + piece - 1) / piece;
		}
	}
}

static void fill(uint8_t *data, uint32_t bytes)
{
	for (uint32_t i = 0; i < bytes; i++)
		data[i] = (uint8_t)(i * 31 + i / 251);
}

static void a_datagram_arrives_with_its_senders_address(void **state)
{
	struct hf_addr a_addr, b_addr;
	struct hf_io *a = open_dgram("127.0.0.1:0", 0, &a_addr), *b = open_dgram("127.0.0.2:0", 0, &b_addr);
	char text[16] = "";
	struct hf_dgram out = {.peer = b_addr, .data = (void *)"hello", .bytes = 5};
	struct hf_dgram in = {.data = text, .bytes = sizeof(text)};

	(void)state;
	assert_int_equal(hf_dgram_recv(b, &in, 1), -EAGAIN);
	assert_int_equal(hf_dgram_send(a, &out, 1), 1);
	assert_int_equal(hf_dgram_recv(b, &in, 1), 1);
	assert_int_equal(in.bytes, 5);
	assert_int_equal(in.segment_bytes, 0);
	assert_string_equal(text, "hello");
	assert_true(hf_addr_equal(&in.peer, &a_addr));
	hf_io_close(a);
	hf_io_close(b);
}

/* In halves, which the cuts know nothing of. */
static void in_pieces(struct hf_dgram *dgram, struct iovec pieces[2])
{
	uint32_t half = dgram->bytes / 2;

	pieces[0] = (struct iovec){.iov_base = dgram->data, .iov_len = half};
	pieces[1] = (struct iovec){.iov_base = (uint8_t *)dgram->data + half, .iov_len = dgram->bytes - half};
	dgram->data = NULL;
	dgram->pieces = pieces;
	dgram->piece_count = 2;
}

/* Every combination of who cuts and who joins, and of where the payload lies, carries the same datagrams. */
static void runs_of_datagrams_arrive_whole_whoever_cuts_them(void **state)
{
	static const struct {
		uint32_t bytes, segment_bytes, datagrams;
	} cases[] = {{60000, 1000, 60}, {60001, 1000, 61}, {64 * 1000, 1000, 64}, {1000, 1000, 1}, {999, 1000, 1},
		{40000, 4096, 10}, {1, 1, 1}, {64, 1, 64}, {65507, 0, 1}, {0, 0, 1}};
	static uint8_t sent[HF_DGRAM_MAX_BYTES], got[HF_DGRAM_MAX_BYTES];

	(void)state;
	fill(sent, sizeof(sent));
	for (unsigned flags = 0; flags < 16; flags++) {
		struct hf_addr a_addr, b_addr;
		struct hf_io *a = open_dgram("127.0.0.1:0", (flags & 1) != 0 ? HF_DGRAM_ROCE : 0, &a_addr);
		struct hf_io *b = open_dgram("127.0.0.1:0", (flags & 2) != 0 ? HF_DGRAM_GRO : 0, &b_addr);
		int off = 1;

		/* UDP_SEGMENT is refused without checksums: env has to cut by itself. */
		if ((flags & 4) != 0)
			assert_int_equal(setsockopt(io_fd(a), SOL_SOCKET, SO_NO_CHECK, &off, sizeof(off)), 0);
		for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
			struct hf_dgram out = {.peer = b_addr,
				.data = sent,
				.bytes = cases[i].bytes,
				.segment_bytes = cases[i].segment_bytes};
			struct iovec pieces[2];
			uint32_t datagrams;

			if ((flags & 8) != 0)
				in_pieces(&out, pieces);

			assert_int_equal(hf_dgram_send(a, &out, 1), 1);
			assert_int_equal(drain(b, got, sizeof(got), &datagrams), cases[i].bytes);
			assert_int_equal(datagrams, cases[i].datagrams);
			assert_memory_equal(got, sent, cases[i].bytes);
		}
		hf_io_close(a);
		hf_io_close(b);
	}
}

static void many_datagrams_of_one_call_arrive_in_order(void **state)
{
	enum { MANY = 100 };
	struct hf_addr a_addr, b_addr;
	struct hf_io *a = open_dgram("[::1]:0", 0, &a_addr), *b = open_dgram("[::1]:0", HF_DGRAM_GRO, &b_addr);
	struct hf_dgram out[MANY];
	uint8_t sent[MANY], got[MANY];
	uint32_t datagrams;

	(void)state;
	for (unsigned i = 0; i < MANY; i++) {
		sent[i] = (uint8_t)i;
		out[i] = (struct hf_dgram){.peer = b_addr, .data = &sent[i], .bytes = 1};
	}
	assert_int_equal(hf_dgram_send(a, out, MANY), MANY);
	assert_int_equal(drain(b, got, sizeof(got), &datagrams), MANY);
	assert_memory_equal(got, sent, MANY);
	hf_io_close(a);
	hf_io_close(b);
}

static void a_peer_that_is_gone_or_cannot_be_reached_does_not_stop_the_others(void **state)
{
	struct hf_addr a_addr, b_addr, gone_addr;
	struct hf_io *a = open_dgram("127.0.0.1:0", HF_DGRAM_ROCE, &a_addr), *b = open_dgram("127.0.0.1:0", 0, &b_addr);
	struct hf_io *gone = open_dgram("127.0.0.1:0", 0, &gone_addr);
	static uint8_t run[2000];
	struct hf_dgram out[5];
	uint8_t got[64];
	uint32_t datagrams;

	(void)state;
	hf_io_close(gone);
	out[0] = (struct hf_dgram){.peer = gone_addr, .data = (void *)"1", .bytes = 1};
	out[1] = (struct hf_dgram){.peer = address("240.0.0.1:9"), .data = (void *)"2", .bytes = 1}; /* no route */
	out[2] = (struct hf_dgram){.peer = b_addr, .data = (void *)"3", .bytes = 1};
	out[3] = (struct hf_dgram){
		.peer = address("240.0.0.1:9"), .data = run, .bytes = sizeof(run), .segment_bytes = 100};
	out[4] = (struct hf_dgram){.peer = b_addr, .data = (void *)"5", .bytes = 1};
	for (unsigned round = 0; round < 10; round++) { /* refusals come back and must not fail a later call */
		assert_int_equal(hf_dgram_send(a, out, 5), 5);
		assert_int_equal(drain(b, got, sizeof(got), &datagrams), 2);
		assert_memory_equal(got, "35", 2);
		assert_int_equal(drain(a, got, sizeof(got), &datagrams), 0);
	}
	hf_io_close(a);
	hf_io_close(b);
}

static void a_udp_port_in_use_is_refused_in_words(void **state)
{
	struct hf_addr addr;
	struct hf_io *io = open_dgram("127.0.0.1:0", 0, &addr), *second;
	struct hf_error error = {""};
	char text[HF_ADDR_TEXT];

	(void)state;
	assert_int_equal(hf_dgram_open(env, &addr, 0, &second, &error), -EADDRINUSE);
	assert_null(second);
	assert_non_null(strstr(error.text, hf_addr_format(&addr, text)));
	assert_non_null(strstr(error.text, "in use"));
	addr = address("192.0.2.1:4791");
	assert_int_equal(hf_dgram_open(env, &addr, 0, &second, &error), -EADDRNOTAVAIL);
	assert_non_null(strstr(error.text, "192.0.2.1"));
	hf_io_close(io);
	hf_io_close(NULL);
}

static void a_socket_of_roce_forbids_fragmenting_and_stays_unconnected(void **state)
{
	struct hf_addr addr, peer;
	struct hf_io *io = open_dgram("127.0.0.1:0", HF_DGRAM_ROCE, &addr);
	socklen_t bytes = sizeof(int), peer_bytes = sizeof(peer);
	int value = 0;
	struct hf_dgram out = {.peer = addr, .data = (void *)"x", .bytes = 1};

	(void)state;
	assert_int_equal(getsockopt(io_fd(io), IPPROTO_IP, IP_MTU_DISCOVER, &value, &bytes), 0);
	assert_int_equal(value, IP_PMTUDISC_PROBE);
	assert_int_equal(hf_dgram_send(io, &out, 1), 1);
	assert_int_equal(getpeername(io_fd(io), &peer.sa, &peer_bytes), -1);
	assert_int_equal(errno, ENOTCONN);
	hf_io_close(io);
}

/* The ICRC covers the identification, which receivers of UDP cannot see. */
static void datagrams_of_roce_have_identification_0(void **state)
{
	int raw = socket(AF_INET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_UDP);
	struct hf_addr addr;
	struct hf_io *io;
	uint8_t packet[256];
	unsigned seen = 0;

	(void)state;
	if (raw < 0)
		skip(); /* raw sockets need privilege */
	io = open_dgram("127.0.0.77:0", HF_DGRAM_ROCE, &addr);
	for (unsigned i = 0; i < 3; i++) {
		struct hf_dgram out = {.peer = addr, .data = (void *)"x", .bytes = 1};

		assert_int_equal(hf_dgram_send(io, &out, 1), 1);
	}
	while (recv(raw, packet, sizeof(packet), 0) >= 28) {
		if (memcmp(packet + 16, &addr.in.sin_addr, 4) != 0)
			continue; /* somebody else's */
		assert_int_equal(packet[4] << 8 | packet[5], 0);
		assert_int_equal(packet[6], 0x40); /* don't fragment */
		seen++;
	}
	assert_int_equal(seen, 3);
	close(raw);
	hf_io_close(io);
}

/* ---- streams ---- */

static struct hf_io *listen_at(const char *local, struct hf_addr *addr_out)
{
	struct hf_addr addr = address(local);
	struct hf_io *io;

	assert_int_equal(hf_stream_listen(env, &addr, &io, NULL), 0);
	assert_int_equal(hf_io_local(io, addr_out), 0);
	return io;
}

static void stop_loop(struct hf_watch *watch, unsigned ready)
{
	(void)watch, (void)ready;
	hf_loop_stop(loop);
}

static void wait_for(struct hf_io *io, unsigned wanted)
{
	struct hf_watch watch = {.ready = stop_loop};

	assert_int_equal(hf_loop_watch(loop, &watch, io, wanted), 0);
	hf_loop_run(loop);
	hf_loop_unwatch(&watch);
}

static void connect_pair(const char *local, struct hf_io **a_out, struct hf_io **b_out)
{
	struct hf_addr addr, local_addr = address(local), peer;
	struct hf_io *listener = listen_at("127.0.0.1:0", &addr);

	assert_int_equal(hf_stream_accept(listener, b_out, &peer), -EAGAIN);
	assert_null(*b_out);
	assert_int_equal(hf_stream_connect(env, &local_addr, &addr, a_out, NULL), 0);
	wait_for(listener, HF_READABLE);
	assert_int_equal(hf_stream_accept(listener, b_out, &peer), 0);
	hf_addr_set_port(&peer, 0);
	assert_true(hf_addr_equal(&peer, &local_addr));
	wait_for(*a_out, HF_WRITABLE);
	hf_io_close(listener);
}

static void a_stream_carries_bytes_and_its_end_from_a_chosen_address(void **state)
{
	struct hf_io *a, *b;
	char text[16] = "";

	(void)state;
	connect_pair("127.0.0.3", &a, &b);
	assert_int_equal(hf_stream_read(b, text, sizeof(text)), -EAGAIN);
	assert_int_equal(hf_stream_write(a, "hello", 5), 5);
	wait_for(b, HF_READABLE);
	assert_int_equal(hf_stream_read(b, text, sizeof(text)), 5);
	assert_string_equal(text, "hello");
	hf_io_close(a);
	wait_for(b, HF_READABLE);
	assert_int_equal(hf_stream_read(b, text, sizeof(text)), 0);
	hf_io_close(b);
}

static int option_of(const struct hf_io *io, int level, int option)
{
	int value = -1;
	socklen_t bytes = sizeof(value);

	assert_int_equal(getsockopt(io_fd(io), level, option, &value, &bytes), 0);
	return value;
}

/* Else a server keeps the place of every client whose host has vanished. */
static void an_accepted_stream_ends_when_the_host_of_its_peer_has_vanished(void **state)
{
	struct hf_io *a, *b;

	(void)state;
	connect_pair("127.0.0.1", &a, &b);
	assert_int_equal(option_of(b, SOL_SOCKET, SO_KEEPALIVE), 1);
	assert_int_equal(option_of(b, IPPROTO_TCP, TCP_KEEPIDLE), 300);
	assert_int_equal(option_of(b, IPPROTO_TCP, TCP_KEEPINTVL), 100);
	assert_int_equal(option_of(b, IPPROTO_TCP, TCP_KEEPCNT), 3);
	hf_io_close(a);
	hf_io_close(b);
}

static void a_full_stream_says_so_and_is_writable_again_later(void **state)
{
	static char block[65536];
	struct hf_io *a, *b;
	size_t written = 0, read = 0;
	ssize_t moved;

	(void)state;
	connect_pair("127.0.0.1", &a, &b);
	while ((moved = hf_stream_write(a, block, sizeof(block))) > 0)
		written += (size_t)moved;
	assert_int_equal(moved, -EAGAIN);
	while (read < written) {
		moved = hf_stream_read(b, block, sizeof(block));
		if (moved == -EAGAIN) {
			wait_for(b, HF_READABLE);
			continue;
		}
		assert_true(moved > 0);
		read += (size_t)moved;
	}
	wait_for(a, HF_WRITABLE);
	assert_true(hf_stream_write(a, block, 1) == 1);
	hf_io_close(b);
	hf_io_close(a);
}

/* What the kernel has not sent yet lies in the memory of the writer, which is free again when the stream is closed. */
static void a_stream_that_is_closed_sends_no_memory_that_it_kept(void **state)
{
	const uint32_t bytes = 16u << 20;
	uint8_t *memory = malloc(bytes), *read = malloc(bytes);
	struct iovec piece = {.iov_base = memory, .iov_len = bytes};
	struct hf_io *a, *b;
	uint64_t kept = 0;
	bool copied;
	ssize_t n;

	(void)state;
	assert_true(memory != NULL && read != NULL);
	memset(memory, 0x11, bytes);
	connect_pair("127.0.0.1", &a, &b);
	while ((n = hf_stream_writev_kept(a, &piece, 1)) > 0)
		kept += (uint64_t)n;
	assert_true(n == -EAGAIN || n == -ENOBUFS);
	assert_true(kept > 0);
	(void)hf_stream_let_go(a, &copied);
	hf_io_close(a);
	memset(memory, 0xee, bytes);
	while ((n = hf_stream_read(b, read, bytes)) > 0 || n == -EAGAIN) {
		if (n == -EAGAIN)
			wait_for(b, HF_READABLE);
		else
			assert_null(memchr(read, 0xee, (size_t)n));
	}
	assert_true(n == 0 || n == -ECONNRESET);
	hf_io_close(b);
	free(memory);
	free(read);
}

static void writing_to_a_stream_whose_peer_is_gone_is_an_error_not_a_signal(void **state)
{
	struct hf_io *a, *b;
	ssize_t moved;

	(void)state;
	connect_pair("127.0.0.1", &a, &b);
	assert_int_equal(hf_stream_write(a, "x", 1), 1);
	wait_for(b, HF_READABLE);
	hf_io_close(b); /* with a byte unread: a reset */
	wait_for(a, HF_READABLE);
	while ((moved = hf_stream_write(a, "x", 1)) == 1)
		;
	assert_true(moved == -EPIPE || moved == -ECONNRESET);
	hf_io_close(a);
}

static void a_refused_connection_is_told_by_readiness_and_the_first_read(void **state)
{
	struct hf_addr addr;
	struct hf_io *listener = listen_at("127.0.0.1:0", &addr), *io;
	char byte;

	(void)state;
	hf_io_close(listener);
	assert_int_equal(hf_stream_connect(env, NULL, &addr, &io, NULL), 0);
	wait_for(io, HF_READABLE | HF_WRITABLE);
	assert_int_equal(hf_stream_read(io, &byte, 1), -ECONNREFUSED);
	assert_true(hf_stream_read(io, &byte, 1) <= 0);
	hf_io_close(io);
	assert_int_equal(hf_stream_connect(env, NULL, &addr, &io, NULL), 0);
	wait_for(io, HF_WRITABLE);
	assert_int_equal(hf_stream_write(io, "x", 1), -ECONNREFUSED);
	hf_io_close(io);
}

static void a_tcp_port_in_use_is_refused_in_words(void **state)
{
	struct hf_addr addr;
	struct hf_io *listener = listen_at("127.0.0.1:0", &addr), *second;
	struct hf_error error = {""};

	(void)state;
	assert_int_equal(hf_stream_listen(env, &addr, &second, &error), -EADDRINUSE);
	assert_non_null(strstr(error.text, "in use"));
	addr = address("192.0.2.1");
	assert_int_equal(hf_stream_connect(env, &addr, &addr, &second, &error), -EADDRNOTAVAIL);
	assert_non_null(strstr(error.text, "192.0.2.1"));
	hf_io_close(listener);
}

/* Else its listener would stay readable, and the loop would never sleep. */
static void without_descriptors_a_connection_is_refused(void **state)
{
	struct hf_addr addr, local = address("127.0.0.1");
	struct hf_io *listener = listen_at("127.0.0.1:0", &addr), *client, *accepted;
	struct rlimit before, none;
	char byte;

	(void)state;
	assert_int_equal(hf_stream_connect(env, &local, &addr, &client, NULL), 0);
	wait_for(listener, HF_READABLE);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	none = before;
	none.rlim_cur = (rlim_t)io_fd(client) + 1; /* the lowest free one */
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	assert_int_equal(hf_stream_accept(listener, &accepted, NULL), -EMFILE);
	assert_int_equal(hf_stream_accept(listener, &accepted, NULL), -EAGAIN);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
	wait_for(client, HF_READABLE);
	assert_int_equal(hf_stream_read(client, &byte, 1), 0);
	hf_io_close(client);
	hf_io_close(listener);
}

static void a_stream_to_a_path_carries_bytes_and_a_missing_one_is_refused_in_words(void **state)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	int listener = socket(AF_UNIX, SOCK_STREAM, 0), end;
	struct hf_error error;
	struct hf_io *io;
	char path[64], data[4];

	(void)state;
	snprintf(path, sizeof(path), "/tmp/holdfast-test-io-%d", (int)getpid());
	snprintf(at.sun_path, sizeof(at.sun_path), "%s", path);
	assert_int_equal(hf_stream_connect_path(env, path, &io, &error), -ENOENT);
	assert_non_null(strstr(error.text, path));
	memset(data, 'x', sizeof(data));
	assert_int_equal(bind(listener, (struct sockaddr *)&at, sizeof(at)), 0);
	assert_int_equal(listen(listener, 1), 0);
	assert_int_equal(hf_stream_connect_path(env, path, &io, &error), 0);
	end = accept(listener, NULL, NULL);
	assert_int_equal(hf_stream_write(io, "abcd", 4), 4);
	assert_int_equal(read(end, data, 4), 4);
	assert_memory_equal(data, "abcd", 4);
	assert_int_equal(write(end, "ef", 2), 2);
	assert_int_equal(hf_stream_read(io, data, 4), 2);
	assert_memory_equal(data, "ef", 2);
	hf_io_close(io);
	close(end);
	close(listener);
	unlink(path);
}

static void what_an_io_cannot_do_is_answered_and_not_done(void **state)
{
	struct hf_addr addr;
	struct hf_io *dgram = open_dgram("127.0.0.1:0", 0, &addr), *notifier, *none;
	char byte;

	(void)state;
	assert_int_equal(hf_notifier_open(env, &notifier), 0);
	assert_int_equal(hf_stream_read(dgram, &byte, 1), -EOPNOTSUPP);
	assert_int_equal(hf_stream_write(dgram, &byte, 1), -EOPNOTSUPP);
	assert_int_equal(hf_stream_accept(dgram, &none, NULL), -EOPNOTSUPP);
	assert_int_equal(hf_dgram_send(notifier, NULL, 0), -EOPNOTSUPP);
	assert_int_equal(hf_dgram_recv(notifier, NULL, 0), -EOPNOTSUPP);
	assert_int_equal(hf_io_local(notifier, &addr), -EOPNOTSUPP);
	hf_io_close(dgram);
	hf_io_close(notifier);
}

/* 192.0.2.0/24 and 2001:db8::/32 are for documentation: no host has them. */
static void loopback_addresses_and_those_of_interfaces_are_local(void **state)
{
	static const char *const local[] = {"127.0.0.1", "127.9.8.7:1", "[::1]:80", "::ffff:127.0.0.1"};
	static const char *const remote[] = {"192.0.2.1", "2001:db8::1", "::ffff:192.0.2.1", "0.0.0.0", "fe80::1"};
	struct hf_addr addr;

	(void)state;
	for (unsigned i = 0; i < sizeof(local) / sizeof(*local); i++) {
		assert_int_equal(hf_addr_parse(local[i], &addr), 0);
		assert_true(hf_addr_is_local(env, &addr));
	}
	for (unsigned i = 0; i < sizeof(remote) / sizeof(*remote); i++) {
		assert_int_equal(hf_addr_parse(remote[i], &addr), 0);
		assert_false(hf_addr_is_local(env, &addr));
	}
}

static void every_address_of_an_interface_is_local(void **state)
{
	struct ifaddrs *interfaces;

	(void)state;
	assert_int_equal(getifaddrs(&interfaces), 0);
	for (const struct ifaddrs *at = interfaces; at != NULL; at = at->ifa_next) {
		struct hf_addr addr = {0};

		if (at->ifa_addr == NULL || at->ifa_addr->sa_family != AF_INET)
			continue;
		memcpy(&addr.in, at->ifa_addr, sizeof(addr.in));
		hf_addr_set_port(&addr, 18515);
		assert_true(hf_addr_is_local(env, &addr));
	}
	freeifaddrs(interfaces);
}

int main(void)
{
#define WITH_LOOP(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(addresses_are_formatted_as_they_are_parsed),
		cmocka_unit_test(what_is_no_address_is_refused),
		WITH_LOOP(loopback_addresses_and_those_of_interfaces_are_local),
		WITH_LOOP(every_address_of_an_interface_is_local),
		WITH_LOOP(a_datagram_arrives_with_its_senders_address),
		WITH_LOOP(runs_of_datagrams_arrive_whole_whoever_cuts_them),
		WITH_LOOP(many_datagrams_of_one_call_arrive_in_order),
		WITH_LOOP(a_peer_that_is_gone_or_cannot_be_reached_does_not_stop_the_others),
		WITH_LOOP(a_udp_port_in_use_is_refused_in_words),
		WITH_LOOP(a_socket_of_roce_forbids_fragmenting_and_stays_unconnected),
		WITH_LOOP(datagrams_of_roce_have_identification_0),
		WITH_LOOP(a_stream_carries_bytes_and_its_end_from_a_chosen_address),
		WITH_LOOP(an_accepted_stream_ends_when_the_host_of_its_peer_has_vanished),
		WITH_LOOP(a_full_stream_says_so_and_is_writable_again_later),
		WITH_LOOP(a_stream_that_is_closed_sends_no_memory_that_it_kept),
		WITH_LOOP(writing_to_a_stream_whose_peer_is_gone_is_an_error_not_a_signal),
		WITH_LOOP(a_refused_connection_is_told_by_readiness_and_the_first_read),
		WITH_LOOP(a_tcp_port_in_use_is_refused_in_words),
		WITH_LOOP(without_descriptors_a_connection_is_refused),
		WITH_LOOP(a_stream_to_a_path_carries_bytes_and_a_missing_one_is_refused_in_words),
		WITH_LOOP(what_an_io_cannot_do_is_answered_and_not_done),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
