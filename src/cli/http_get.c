#include "cli/http_get.h"

#include <holdfast/loop.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"

#define LIMIT_NS     5000000000ull
#define ANSWER_LEAST 4096u
#define ANSWER_MOST  (16u << 20)
#define HEAD_END     "\r\n\r\n"
#define HEAD_BYTES   512

struct asking {
	struct hf_watch watch;
	struct hf_io *io;
	char request[HEAD_BYTES], *answer;
	size_t sent, bytes, room;
	int failed; /* 1: the stream has ended */
};

static void ask(struct asking *asking)
{
	size_t left = strlen(asking->request) - asking->sent;
	ssize_t n = left == 0 ? 0 : hf_stream_write(asking->io, asking->request + asking->sent, left);

	if (n < 0 && n != -EAGAIN)
		asking->failed = (int)n;
	else if (n > 0)
		asking->sent += (size_t)n;
}

static int make_room(struct asking *asking)
{
	size_t room = asking->room == 0 ? ANSWER_LEAST : asking->room * 2;
	char *grown;

	if (asking->room - asking->bytes > 1)
		return 0;
	grown = room > ANSWER_MOST ? NULL : realloc(asking->answer, room);
	if (grown == NULL)
		return -ENOMEM;
	asking->answer = grown;
	asking->room = room;
	return 0;
}

static void hear(struct asking *asking)
{
	ssize_t n;

	do {
		asking->failed = make_room(asking);
		if (asking->failed)
			return;
		n = hf_stream_read(asking->io, asking->answer + asking->bytes, asking->room - asking->bytes - 1);
		if (n > 0)
			asking->bytes += (size_t)n;
	} while (n > 0);
	if (n == 0)
		asking->failed = 1;
	else if (n != -EAGAIN)
		asking->failed = (int)n;
}

static void on_ready(struct hf_watch *watch, unsigned ready)
{
	struct asking *asking = container_of(watch, struct asking, watch);

	if (ready & HF_WRITABLE)
		ask(asking);
	if (!asking->failed && (ready & HF_READABLE))
		hear(asking);
	if (!asking->failed && asking->sent == strlen(asking->request))
		asking->failed = hf_loop_watch(watch->loop, watch, asking->io, HF_READABLE);
}

static int exchange(struct asking *asking, struct hf_loop *loop, const struct hf_addr *address, struct hf_error *error)
{
	struct hf_env *env = hf_loop_env(loop);
	struct hf_addr local = {0};
	uint64_t limit_ns = hf_env_now_ns(env) + LIMIT_NS;
	int failed;

	local.sa.sa_family = address->sa.sa_family;
	failed = hf_stream_connect(env, &local, address, &asking->io, error);
	asking->watch.ready = on_ready;
	if (!failed)
		failed = hf_loop_watch(loop, &asking->watch, asking->io, HF_READABLE | HF_WRITABLE);
	while (!failed && !asking->failed && hf_env_now_ns(env) < limit_ns)
		hf_loop_turn(loop, LIMIT_NS / 100);
	if (asking->watch.io != NULL)
		hf_loop_unwatch(&asking->watch);
	hf_io_close(asking->io);
	if (failed)
		return failed;
	return asking->failed == 0 ? -ETIMEDOUT : asking->failed == 1 ? 0 : asking->failed;
}

/* Moves the body to the front. */
static int take_body(struct asking *asking, const char *path, const char *where, struct hf_error *error)
{
	char *body;
	int status = 0;

	if (asking->bytes == 0)
		return hf_error_set(error, -EPROTO, "%s sent an empty reply", where);
	asking->answer[asking->bytes] = '\0';
	body = strstr(asking->answer, HEAD_END);
	if (body == NULL || sscanf(asking->answer, "HTTP/1.1 %d", &status) != 1)
		return hf_error_set(error, -EPROTO, "%s did not send an HTTP/1.1 reply", where);
	if (status != 200)
		return hf_error_set(error, -ENOENT, "%s has no %s (status %d)", where, path, status);
	body += strlen(HEAD_END);
	memmove(asking->answer, body, asking->bytes - (size_t)(body - asking->answer) + 1);
	return 0;
}

int http_get(
	struct hf_env *env, const struct hf_addr *address, const char *path, char **body_out, struct hf_error *error)
{
	struct asking asking = {0};
	struct hf_loop *loop;
	char text[HF_ADDR_TEXT];
	int failed = hf_loop_create(env, &loop);

	*body_out = NULL;
	hf_addr_format(address, text);
	if (failed)
		return hf_error_set(error, failed, "no loop: %s", strerror(-failed));
	snprintf(asking.request, sizeof(asking.request), "GET %.200s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n",
		path, text);
	failed = exchange(&asking, loop, address, error);
	hf_loop_destroy(loop);
	if (failed)
		hf_error_set(error, failed, "%s does not answer: %s", text, strerror(-failed));
	else
		failed = take_body(&asking, path, text, error);
	if (failed) {
		free(asking.answer);
		return failed;
	}
	*body_out = asking.answer;
	return 0;
}
