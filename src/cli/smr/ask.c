#include "cli/smr/ask.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/list.h"
#include "proxy/memcached/text.h"

#define READ_BYTES 16384u
#define LINE_BYTES 512u

struct waiting {
	struct hf_watch watch;
	struct hf_timer timer;
	bool ready, over;
};

static void on_ready(struct hf_watch *watch, unsigned ready)
{
	(void)ready;
	container_of(watch, struct waiting, watch)->ready = true;
}

static void on_time(struct hf_timer *timer, uint64_t now_ns)
{
	(void)now_ns;
	container_of(timer, struct waiting, timer)->over = true;
}

/* Until the io is ready for this; -ETIMEDOUT. */
static int wait_for(struct ask *ask, unsigned wanted, uint64_t end_ns)
{
	struct waiting waiting = {.watch.ready = on_ready, .timer.fire = on_time};
	int rc = hf_loop_watch(ask->loop, &waiting.watch, ask->io, wanted);

	if (rc != 0)
		return rc;
	hf_loop_set_timer(ask->loop, &waiting.timer, end_ns);
	while (!waiting.ready && !waiting.over)
		(void)hf_loop_turn(ask->loop, UINT64_MAX);
	hf_loop_cancel_timer(ask->loop, &waiting.timer);
	hf_loop_unwatch(&waiting.watch);
	return waiting.ready ? 0 : -ETIMEDOUT;
}

int ask_open(struct ask *ask, struct hf_loop *loop, const struct hf_addr *to)
{
	*ask = (struct ask){.loop = loop};
	return hf_stream_connect(hf_loop_env(loop), NULL, to, &ask->io, NULL);
}

void ask_close(struct ask *ask)
{
	hf_io_close(ask->io);
	resp_out_free(&ask->in);
	*ask = (struct ask){0};
}

static int ask_write(struct ask *ask, const char *text, uint64_t end_ns)
{
	size_t bytes = strlen(text);

	while (bytes > 0) {
		int rc = wait_for(ask, HF_WRITABLE, end_ns);
		ssize_t n = rc == 0 ? hf_stream_write(ask->io, text, bytes) : rc;

		if (n == -EAGAIN)
			continue;
		if (n <= 0)
			return n == 0 ? -EPIPE : (int)n;
		text += n;
		bytes -= (size_t)n;
	}
	return 0;
}

/* More bytes: their number, 0 at the end of the stream. */
static ssize_t ask_read(struct ask *ask, uint64_t end_ns)
{
	for (;;) {
		int rc = wait_for(ask, HF_READABLE, end_ns);
		uint8_t *room = resp_out_reserve(&ask->in, READ_BYTES);
		ssize_t n = rc != 0 ? rc : room == NULL ? -ENOMEM : hf_stream_read(ask->io, room, READ_BYTES);

		if (n == -EAGAIN)
			continue;
		ask->in.bytes += n > 0 ? (size_t)n : 0;
		return n;
	}
}

static uint64_t now_ns(const struct ask *ask)
{
	return hf_env_now_ns(hf_loop_env(ask->loop));
}

typedef enum resp_outcome read_reply(struct resp_reply *reply, const uint8_t *data, size_t bytes, size_t *used_out);

/* The whole reply is in ask->in. */
static int ask_line(struct ask *ask, const char *line, uint64_t wait_ns, read_reply *read)
{
	uint64_t end_ns = now_ns(ask) + wait_ns;
	struct resp_reply reply = {0};
	char text[LINE_BYTES];
	size_t used;
	int rc;

	(void)snprintf(text, sizeof(text), "%s\r\n", line);
	ask->in.bytes = 0;
	rc = ask_write(ask, text, end_ns);
	while (rc == 0) {
		enum resp_outcome outcome = read(&reply, ask->in.data, ask->in.bytes, &used);
		ssize_t n;

		if (outcome != RESP_MORE)
			return outcome == RESP_WHOLE ? 0 : -EPROTO;
		n = ask_read(ask, end_ns);
		rc = n > 0 ? 0 : n == 0 ? -EPIPE : (int)n;
	}
	return rc;
}

int ask_redis(struct ask *ask, const char *line, uint64_t wait_ns, struct resp_element *reply_out)
{
	int rc = ask_line(ask, line, wait_ns, resp_reply_read);
	size_t used;

	if (rc != 0)
		return rc;
	return resp_element_read(ask->in.data, ask->in.bytes, reply_out, &used) == RESP_WHOLE ? 0 : -EPROTO;
}

int ask_memcached(struct ask *ask, const char *line, uint64_t wait_ns, struct resp_element *reply_out)
{
	int rc = ask_line(ask, line, wait_ns, proxy_text_reply_read);
	struct text_value value;
	size_t used;

	if (rc != 0)
		return rc;
	*reply_out = (struct resp_element){.type = RESP_SIMPLE, .text = ask->in.data, .bytes = ask->in.bytes - 2};
	if (resp_number(reply_out->text, reply_out->bytes, &reply_out->number))
		reply_out->type = RESP_INTEGER;
	else if (reply_out->bytes == 3 && memcmp(reply_out->text, "END", 3) == 0)
		reply_out->type = RESP_NULL;
	else if (proxy_text_value(ask->in.data, ask->in.bytes, &value, &used))
		*reply_out = (struct resp_element){.type = RESP_BULK, .text = value.data, .bytes = value.data_bytes};
	return 0;
}
