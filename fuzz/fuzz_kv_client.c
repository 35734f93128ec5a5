/* What a client of Redis sends to a member of a store: requests of any kind, in pieces whose size the first byte
 * chooses. A store of one member runs in this process; what it answers is RESP, and it goes on serving others. */
#include <holdfast/kv.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "net/resp.h"

#define INPUT_MAX 65536u
#define TURNS_MAX 200000u
#define TURN_NS   1000000u
#define END       "\r\n*2\r\n$4\r\nECHO\r\n$8\r\nfuzz-end\r\n"
#define END_REPLY "$8\r\nfuzz-end\r\n"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static struct {
	struct hf_loop *loop;
	struct hf_node *node;
	struct hf_kv *kv;
	struct hf_addr address;
} bed;

static void open_bed(void)
{
	struct hf_node_config node = {.rail_count = 1};
	struct hf_kv_config kv = {.member_count = 1, .store_mb = 8, .missed_mb = 1, .lease_ns = 1000000000ull};
	struct hf_kv_status status = {0};
	struct hf_error error = {0};
	uint64_t own;

	ensure(hf_loop_create(hf_env_host(), &bed.loop) == 0);
	hf_env_entropy(hf_env_host(), &own, sizeof(own));
	snprintf(node.name, sizeof(node.name), "n");
	snprintf(node.fabric, sizeof(node.fabric), "fuzz-%08x", (unsigned)own);
	snprintf(node.rails[0].name, sizeof(node.rails[0].name), "r0");
	snprintf(node.rails[0].kind, sizeof(node.rails[0].kind), "shm");
	ensure(hf_addr_parse("127.0.0.1:0", &node.rails[0].control) == 0);
	node.rails[0].address = node.rails[0].control;
	snprintf(kv.cluster, sizeof(kv.cluster), "fuzz");
	snprintf(kv.members[0].name, sizeof(kv.members[0].name), "n");
	ensure(hf_addr_parse("127.0.0.1:1", &kv.members[0].control[0]) == 0);
	kv.members[0].control_count = 1;
	kv.listen = node.rails[0].control;
	if (hf_node_open(bed.loop, &node, NULL, NULL, &bed.node, &error) != 0 ||
		hf_kv_open(bed.node, &kv, &bed.kv, &error) != 0) {
		fprintf(stderr, "%s\n", error.text);
		ensure(false);
	}
	ensure(hf_kv_address(bed.kv, &bed.address) == 0);
	for (unsigned i = 0; !status.serving; i++) {
		ensure(i < TURNS_MAX);
		(void)hf_loop_turn(bed.loop, TURN_NS);
		hf_kv_status(bed.kv, &status);
	}
}

/* Reads whole replies; false: what came is none. */
static bool take_replies(uint8_t *in, size_t *bytes, bool *end)
{
	struct resp_reply reply = {0};
	size_t used, from = 0;
	enum resp_outcome outcome = RESP_MORE;

	while (from < *bytes && in[from] != '%' && in[from] != '_' &&
		(outcome = resp_reply_read(&reply, in + from, *bytes - from, &used)) == RESP_WHOLE) {
		*end |= used == sizeof(END_REPLY) - 1 && memcmp(in + from, END_REPLY, used) == 0;
		from += used;
		reply = (struct resp_reply){0};
	}
	if (from < *bytes && (in[from] == '%' || in[from] == '_'))
		*end = true; /* RESP3 from here on: no reader of that is here */
	memmove(in, in + from, *bytes - from);
	*bytes -= from;
	return outcome != RESP_REFUSED || *end;
}

/* Sends the bytes and what is to be echoed behind them, and reads until that came or the connection ended. */
static void talk(const uint8_t *data, size_t bytes, size_t piece)
{
	static uint8_t in[4u << 20];
	size_t sent = 0, got = 0;
	bool end = false;
	struct hf_io *io;
	uint8_t *all = malloc(bytes + sizeof(END));

	ensure(all != NULL);
	memcpy(all, data, bytes);
	memcpy(all + bytes, END, sizeof(END) - 1);
	bytes += sizeof(END) - 1;
	ensure(hf_stream_connect(hf_env_host(), NULL, &bed.address, &io, NULL) == 0);
	for (unsigned i = 0; !end; i++) {
		ssize_t n = 0;

		ensure(i < TURNS_MAX);
		if (sent < bytes) {
			n = hf_stream_write(io, all + sent, bytes - sent < piece ? bytes - sent : piece);
			sent += n > 0 ? (size_t)n : 0;
		}
		(void)hf_loop_turn(bed.loop, 0);
		if (got == sizeof(in))
			break;
		n = hf_stream_read(io, in + got, sizeof(in) - got);
		if (n == 0 || (n < 0 && n != -EAGAIN && n != -ENOTCONN))
			break; /* it was refused, and closed */
		got += n > 0 ? (size_t)n : 0;
		ensure(take_replies(in, &got, &end));
		if (sent == bytes && i > 200 && n < 0)
			break; /* it waits for the rest of a request */
	}
	hf_io_close(io);
	free(all);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	static const uint8_t ping[] = "PING\r\n";

	if (bytes < 1 || bytes > INPUT_MAX)
		return 0;
	if (bed.loop == NULL)
		open_bed();
	talk(data + 1, bytes - 1, 1 + (size_t)data[0] * 64);
	talk(ping, sizeof(ping) - 1, sizeof(ping));
	return 0;
}
