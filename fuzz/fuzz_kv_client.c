/* What a client of Redis sends to a member of a store: requests of any kind, in pieces whose size the first byte
 * chooses. A store of one member runs in this process; what it answers is RESP, and it goes on serving others. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "net/resp.h"
#include "store_bed.h"

#define INPUT_MAX 65536u
#define TURNS_MAX 200000u
#define TURN_NS   1000000u
#define END       "\r\n*2\r\n$4\r\nECHO\r\n$8\r\nfuzz-end\r\n"
#define END_REPLY "$8\r\nfuzz-end\r\n"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static struct store_bed bed;
static struct hf_addr address;

static void open_bed(void)
{
	struct hf_kv_config kv = {
		.member_count = 1, .min_members = 1, .store_mb = 8, .missed_mb = 1, .lease_ns = 1000000000ull};
	struct hf_kv_status status = {0};

	ensure(hf_addr_parse("127.0.0.1:0", &kv.listen) == 0);
	store_bed_open(&bed, &kv);
	ensure(hf_kv_address(bed.kv, &address) == 0);
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
	ensure(hf_stream_connect(hf_env_host(), NULL, &address, &io, NULL) == 0);
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
