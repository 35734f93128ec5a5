/* A Kafka client without a library, for scripts/bench_broker.py: what a broker costs, and not its clients.
 *
 *     bench-raw produce HOST PORT TOPIC BYTES ACKS COUNT      one record in flight, waiting by polling its socket
 *     bench-raw empty HOST PORT TOPIC CONNECTIONS DEPTH MS    Fetches that find nothing
 *
 * Prints {"p50_us", "p99_us", "per_s"}. The topic comes by Metadata, its leader is asked. A batch is encoded once: what
 * the broker assigns lies outside of its CRC. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bench_client.h"

#define ANSWER_BYTES    (4u << 20)
#define CONNECTIONS_MAX 64
#define LEADER_NS       20000000000ull

enum key { PRODUCE = 0, FETCH = 1, LIST_OFFSETS = 2, METADATA = 3 };

struct text {
	uint8_t bytes[1u << 17];
	size_t used;
};
struct reader {
	const uint8_t *at, *end;
};
static uint8_t answer[ANSWER_BYTES];

/* ---- Kafka's primitive types ---- */

static void put(struct text *to, int64_t value, unsigned bytes)
{
	if (to->used + bytes > sizeof(to->bytes))
		fail("the request is too long");
	while (bytes-- > 0)
		to->bytes[to->used++] = (uint8_t)((uint64_t)value >> (8 * bytes));
}

static void put_bytes(struct text *to, const void *bytes, size_t n)
{
	if (n > sizeof(to->bytes) - to->used)
		fail("the request is too long");
	memcpy(to->bytes + to->used, bytes, n);
	to->used += n;
}

static void put_string(struct text *to, const char *string)
{
	put(to, (int64_t)strlen(string), 2);
	put_bytes(to, string, strlen(string));
}

static void put_varint(struct text *to, int64_t value)
{
	uint64_t left = (uint64_t)value << 1 ^ (uint64_t)(value >> 63);

	for (; left > 127; left >>= 7)
		put(to, (int64_t)(left | 128), 1);
	put(to, (int64_t)left, 1);
}

static void put_at(struct text *to, size_t at, int64_t value, unsigned bytes)
{
	size_t used = to->used;

	to->used = at;
	put(to, value, bytes);
	to->used = used;
}

static int64_t take(struct reader *from, unsigned bytes)
{
	uint64_t value = 0;

	if ((size_t)(from->end - from->at) < bytes)
		fail("an answer is too short");
	for (unsigned i = 0; i < bytes; i++)
		value = value << 8 | *from->at++;
	return bytes == 8 ? (int64_t)value : bytes == 4 ? (int32_t)value : bytes == 2 ? (int16_t)value : (int64_t)value;
}

static void skip(struct reader *from, int64_t bytes)
{
	if (bytes > from->end - from->at)
		fail("an answer is too short");
	from->at += bytes > 0 ? bytes : 0;
}

static void skip_string(struct reader *from)
{
	skip(from, take(from, 2));
}

static uint32_t crc32c(const uint8_t *bytes, size_t n)
{
	uint32_t crc = UINT32_MAX;

	for (size_t i = 0; i < n; i++) {
		crc ^= bytes[i];
		for (unsigned bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
	}
	return ~crc;
}

/* ---- connections ---- */

static int dial(const char *host, const char *port)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)strtoul(port, NULL, 10))};
	int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;

	if (inet_pton(AF_INET, host, &to.sin_addr) != 1 || connect(fd, (const struct sockaddr *)&to, sizeof(to)) != 0)
		fail("no broker listens there");
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	return fd;
}

static void begin(struct text *request, enum key key, int version)
{
	request->used = 0;
	put(request, 0, 4);
	put(request, key, 2);
	put(request, version, 2);
	put(request, 1, 4);
	put_string(request, "bench-raw");
}

static void end(struct text *request)
{
	put_at(request, 0, (int64_t)request->used - 4, 4);
}

static void send_all(int fd, const struct text *request)
{
	for (size_t sent = 0; sent < request->used;) {
		ssize_t n = send(fd, request->bytes + sent, request->used - sent, MSG_NOSIGNAL);

		if (n <= 0)
			fail("the broker takes no more");
		sent += (size_t)n;
	}
}

static void receive(int fd, uint8_t *to, size_t bytes, bool spins)
{
	while (bytes > 0) {
		ssize_t n = recv(fd, to, bytes, spins ? MSG_DONTWAIT : 0);

		if (n < 0 && errno == EAGAIN && spins)
			continue;
		if (n <= 0)
			fail("the broker has closed the connection");
		to += n;
		bytes -= (size_t)n;
	}
}

/* Behind its header. */
static struct reader await(int fd, bool spins)
{
	struct reader length = {answer, answer + 4};
	int64_t bytes;

	receive(fd, answer, 4, spins);
	bytes = take(&length, 4);
	if (bytes < 4 || bytes > (int64_t)sizeof(answer))
		fail("an answer has a length that cannot be");
	receive(fd, answer, (size_t)bytes, spins);
	return (struct reader){answer + 4, answer + bytes};
}

/* ---- who leads ---- */

/* A connection to the leader of partition 0, or -1: there is none yet. */
static int find_leader(int fd, struct text *request, const char *topic)
{
	struct {
		char host[64], port[16];
		int64_t id;
	} brokers[8];
	struct reader from;
	int64_t count, leader;

	begin(request, METADATA, 1);
	put(request, 1, 4);
	put_string(request, topic);
	end(request);
	send_all(fd, request);
	from = await(fd, false);
	count = take(&from, 4);
	if (count < 1 || count > 8)
		return -1;
	for (int64_t i = 0; i < count; i++) {
		int64_t bytes;

		brokers[i].id = take(&from, 4);
		bytes = take(&from, 2);
		snprintf(brokers[i].host, sizeof(brokers[i].host), "%.*s", (int)bytes, (const char *)from.at);
		skip(&from, bytes);
		snprintf(brokers[i].port, sizeof(brokers[i].port), "%d", (int)take(&from, 4));
		skip_string(&from);
	}
	(void)take(&from, 4);
	if (take(&from, 4) != 1 || take(&from, 2) != 0)
		return -1;
	skip_string(&from);
	(void)take(&from, 1);
	if (take(&from, 4) < 1 || take(&from, 2) != 0)
		return -1;
	(void)take(&from, 4);
	leader = take(&from, 4);
	for (int64_t i = 0; i < count; i++)
		if (brokers[i].id == leader)
			return dial(brokers[i].host, brokers[i].port);
	return -1;
}

static int dial_leader(const char *host, const char *port, struct text *request, const char *topic)
{
	uint64_t end_ns = now_ns() + LEADER_NS;
	int first = dial(host, port), fd;

	while ((fd = find_leader(first, request, topic)) < 0) {
		if (now_ns() > end_ns)
			fail("the topic has no leader");
		poll(NULL, 0, 20);
	}
	close(first);
	return fd;
}

/* ---- producing ---- */

static void put_batch(struct text *to, size_t value_bytes)
{
	int64_t now_ms = (int64_t)time(NULL) * 1000;
	size_t length, batch, crc, record;
	struct text body = {.used = 0};

	put(&body, 0, 1);
	put_varint(&body, 0);
	put_varint(&body, 0);
	put_varint(&body, -1);
	put_varint(&body, (int64_t)value_bytes);
	for (record = 0; record < value_bytes; record++)
		put(&body, 'x', 1);
	put_varint(&body, 0);
	length = to->used;
	put(to, 0, 4);
	batch = to->used;
	put(to, 0, 8);
	put(to, 0, 4);
	put(to, -1, 4);
	put(to, 2, 1);
	crc = to->used;
	put(to, 0, 4);
	put(to, 0, 2);
	put(to, 0, 4);
	put(to, now_ms, 8);
	put(to, now_ms, 8);
	put(to, -1, 8);
	put(to, -1, 2);
	put(to, -1, 4);
	put(to, 1, 4);
	put_varint(to, (int64_t)body.used);
	put_bytes(to, body.bytes, body.used);
	put_at(to, length, (int64_t)(to->used - batch), 4);
	put_at(to, batch + 8, (int64_t)(to->used - batch - 12), 4);
	put_at(to, crc, crc32c(to->bytes + crc + 4, to->used - crc - 4), 4);
}

static void produce_once(int fd, const struct text *request)
{
	struct reader from;

	send_all(fd, request);
	from = await(fd, true);
	(void)take(&from, 4);
	skip_string(&from);
	(void)take(&from, 4);
	(void)take(&from, 4);
	if (take(&from, 2) != 0)
		fail("a record was refused");
}

static void report(size_t n, uint64_t count, uint64_t took_ns)
{
	sort_times(n);
	if (n > 0)
		printf("{\"p50_us\": %.3f, \"p99_us\": %.3f, \"per_s\": %.1f}\n", times[n / 2], times[n * 99 / 100],
			(double)count * 1e9 / (double)took_ns);
	else
		printf("{\"per_s\": %.1f}\n", (double)count * 1e9 / (double)took_ns);
}

static void produce(char **words)
{
	static struct text request;
	int fd = dial_leader(words[0], words[1], &request, words[2]);
	size_t count = strtoul(words[5], NULL, 10), warm = count / 2;
	uint64_t start_ns = 0;

	if (count == 0 || count > TIMES_MAX)
		fail("so many cannot be measured");
	begin(&request, PRODUCE, 7);
	put(&request, -1, 2);
	put(&request, strtol(words[4], NULL, 10), 2);
	put(&request, 10000, 4);
	put(&request, 1, 4);
	put_string(&request, words[2]);
	put(&request, 1, 4);
	put(&request, 0, 4);
	put_batch(&request, strtoul(words[3], NULL, 10));
	end(&request);
	for (size_t i = 0; i < warm + count; i++) {
		uint64_t sent_ns = now_ns();

		if (i == warm)
			start_ns = sent_ns;
		produce_once(fd, &request);
		if (i >= warm)
			times[i - warm] = (double)(now_ns() - sent_ns) / 1e3;
	}
	report(count, count, now_ns() - start_ns);
}

/* ---- Fetches that find nothing ---- */

static int64_t last_offset(int fd, struct text *request, const char *topic)
{
	struct reader from;

	begin(request, LIST_OFFSETS, 1);
	put(request, -1, 4);
	put(request, 1, 4);
	put_string(request, topic);
	put(request, 1, 4);
	put(request, 0, 4);
	put(request, -1, 8);
	end(request);
	send_all(fd, request);
	from = await(fd, false);
	(void)take(&from, 4);
	skip_string(&from);
	(void)take(&from, 8);
	if (take(&from, 2) != 0)
		fail("the end of the log is not told");
	(void)take(&from, 8);
	return take(&from, 8);
}

static void put_fetch(struct text *request, const char *topic, int64_t offset)
{
	begin(request, FETCH, 11);
	put(request, -1, 4);
	put(request, 0, 4); /* do not wait */
	put(request, 1, 4);
	put(request, 1 << 20, 4);
	put(request, 0, 1);
	put(request, 0, 4);
	put(request, -1, 4);
	put(request, 1, 4);
	put_string(request, topic);
	put(request, 1, 4);
	put(request, 0, 4);
	put(request, -1, 4);
	put(request, offset, 8);
	put(request, -1, 8);
	put(request, 1 << 20, 4);
	put(request, 0, 4);
	put_string(request, "");
	end(request);
}

static void check_empty(struct reader from)
{
	(void)take(&from, 4);
	if (take(&from, 2) != 0)
		fail("a Fetch was refused");
	(void)take(&from, 4);
	if (take(&from, 4) != 1)
		fail("a Fetch has not its topic");
	skip_string(&from);
	(void)take(&from, 4);
	(void)take(&from, 4);
	if (take(&from, 2) != 0)
		fail("a Fetch was refused");
	skip(&from, 24);
	if (take(&from, 4) > 0)
		fail("there are transactions");
	(void)take(&from, 4);
	if (take(&from, 4) > 0)
		fail("a Fetch found records");
}

static void empty(char **words)
{
	static struct text request;
	int connections = (int)strtol(words[3], NULL, 10), depth = (int)strtol(words[4], NULL, 10);
	bool alone = connections == 1 && depth == 1;
	struct pollfd fds[CONNECTIONS_MAX];
	uint64_t start_ns, sent_ns, end_ns, count = 0;
	size_t n = 0;

	if (connections < 1 || connections > CONNECTIONS_MAX)
		fail("1 to 64 connections");
	for (int i = 0; i < connections; i++)
		fds[i] = (struct pollfd){.fd = dial_leader(words[0], words[1], &request, words[2]), .events = POLLIN};
	put_fetch(&request, words[2], last_offset(fds[0].fd, &request, words[2]));
	start_ns = now_ns();
	end_ns = start_ns + strtoul(words[5], NULL, 10) * 1000000u;
	for (int i = 0; i < connections; i++)
		for (int k = 0; k < depth; k++)
			send_all(fds[i].fd, &request);
	for (sent_ns = start_ns; now_ns() < end_ns;) {
		if (!alone)
			poll(fds, (nfds_t)connections, 100);
		for (int i = 0; i < connections; i++) {
			if (!alone && (fds[i].revents & POLLIN) == 0)
				continue;
			check_empty(await(fds[i].fd, alone));
			count++;
			if (alone && n < TIMES_MAX)
				times[n++] = (double)(now_ns() - sent_ns) / 1e3;
			sent_ns = now_ns();
			send_all(fds[i].fd, &request);
		}
	}
	report(n, count, now_ns() - start_ns);
}

int main(int argc, char **argv)
{
	if (argc == 8 && strcmp(argv[1], "produce") == 0)
		produce(argv + 2);
	else if (argc == 8 && strcmp(argv[1], "empty") == 0)
		empty(argv + 2);
	else
		fail("produce HOST PORT TOPIC BYTES ACKS COUNT, or empty HOST PORT TOPIC CONNECTIONS DEPTH MS");
	return 0;
}
