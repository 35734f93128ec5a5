#include "proxy/alive.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/list.h"

void proxy_alive_close(struct proxy_alive *alive)
{
	if (alive->io == NULL)
		return;
	hf_loop_unwatch(&alive->watch);
	hf_io_close(alive->io);
	alive->io = NULL;
	alive->asked = false;
}

static void alive_ready(struct hf_watch *watch, unsigned ready)
{
	struct proxy_alive *alive = container_of(watch, struct proxy_alive, watch);
	uint8_t answer[512];
	ssize_t n = hf_stream_read(alive->io, answer, sizeof(answer));

	(void)ready;
	if (n == -EAGAIN)
		return;
	if (n <= 0) {
		proxy_alive_close(alive);
		return;
	}
	alive->asked = false;
	alive->answered(alive);
}

void proxy_alive_init(struct proxy_alive *alive, struct hf_loop *loop, const char *path, const char *question,
	void (*answered)(struct proxy_alive *alive))
{
	*alive = (struct proxy_alive){
		.loop = loop, .question = question, .answered = answered, .watch = {.ready = alive_ready}};
	snprintf(alive->path, sizeof(alive->path), "%s", path);
}

static bool connect_again(struct proxy_alive *alive)
{
	struct hf_error error;

	if (hf_stream_connect_path(hf_loop_env(alive->loop), alive->path, &alive->io, &error) != 0) {
		alive->io = NULL;
		return false;
	}
	if (hf_loop_watch(alive->loop, &alive->watch, alive->io, HF_READABLE) == 0)
		return true;
	proxy_alive_close(alive);
	return false;
}

void proxy_alive_ask(struct proxy_alive *alive)
{
	size_t bytes = strlen(alive->question);
	ssize_t n;

	if (alive->asked || (alive->io == NULL && !connect_again(alive)))
		return;
	n = hf_stream_write(alive->io, alive->question, bytes);
	alive->asked = n == (ssize_t)bytes;
	if (n != -EAGAIN && !alive->asked)
		proxy_alive_close(alive);
}
