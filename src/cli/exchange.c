#include "cli/exchange.h"

#include <errno.h>
#include <stdlib.h>

#include "base/list.h"

#define ANSWER_LEAST 4096u
#define ANSWER_MOST  (16u << 20)

struct asking {
	struct hf_watch watch;
	struct hf_io *io;
	const char *request;
	char *answer;
	size_t left, bytes, room;
	enum exchange_until until;
	int failed; /* 1: the answer is there */
};

static void ask(struct asking *asking)
{
	ssize_t n = asking->left == 0 ? 0 : hf_stream_write(asking->io, asking->request, asking->left);

	if (n < 0 && n != -EAGAIN)
		asking->failed = (int)n;
	else if (n > 0) {
		asking->request += n;
		asking->left -= (size_t)n;
	}
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
	if (n == 0 || (asking->until == EXCHANGE_FIRST && asking->bytes > 0))
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
	if (!asking->failed && asking->left == 0)
		asking->failed = hf_loop_watch(watch->loop, watch, asking->io, HF_READABLE);
}

int exchange(struct hf_loop *loop, const struct hf_addr *to, const void *request, size_t request_bytes,
	enum exchange_until until, uint64_t wait_ns, char **answer_out, size_t *bytes_out)
{
	struct asking asking = {.request = request, .left = request_bytes, .until = until, .watch.ready = on_ready};
	struct hf_env *env = hf_loop_env(loop);
	struct hf_addr local = {.sa.sa_family = to->sa.sa_family};
	uint64_t end_ns = hf_env_now_ns(env) + wait_ns;
	int rc = hf_stream_connect(env, &local, to, &asking.io, NULL);

	if (rc == 0)
		rc = make_room(&asking);
	if (rc == 0)
		rc = hf_loop_watch(loop, &asking.watch, asking.io, HF_READABLE | HF_WRITABLE);
	while (rc == 0 && !asking.failed && hf_env_now_ns(env) < end_ns)
		hf_loop_turn(loop, wait_ns / 100);
	if (asking.watch.io != NULL)
		hf_loop_unwatch(&asking.watch);
	hf_io_close(asking.io);
	if (rc == 0)
		rc = asking.failed == 0 ? -ETIMEDOUT : asking.failed == 1 ? 0 : asking.failed;
	if (rc != 0) {
		free(asking.answer);
		return rc;
	}
	asking.answer[asking.bytes] = '\0';
	*answer_out = asking.answer;
	*bytes_out = asking.bytes;
	return 0;
}
