/* A snapshot into an empty server. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "proxy/snapshot.h"
#include "proxy/stream.h"

/* At the server before more is taken. */
#define WAITING_MOST 4096u /* commands */

struct proxy_restore {
	struct proxy *proxy;
	struct resp_out in; /* of the stream: what makes no whole key yet */
	struct stream_reader reader;
	bool failed, gone;
	struct server_gather replies; /* they are looked at as they come */
	unsigned waiting;
};

static void restore_free(struct proxy_restore *restore)
{
	resp_out_free(&restore->in);
	resp_out_free(&restore->replies.out);
	free(restore);
}

void proxy_restore_free(struct proxy *proxy)
{
	if (proxy->restore != NULL)
		restore_free(proxy->restore);
	proxy->restore = NULL;
}

/* All of one write's commands are answered. */
static void answered(struct server_gather *gather)
{
	struct proxy_restore *restore = container_of(gather, struct proxy_restore, replies);

	restore->failed |=
		gather->out.failed || !restore->proxy->protocol->restored(gather->out.data, gather->out.bytes);
	gather->out.bytes = 0;
	restore->waiting = 0;
	if (restore->gone)
		restore_free(restore);
}

static void ask(struct proxy_restore *restore, const struct resp_out *command)
{
	restore->waiting++;
	restore->replies.left++; /* some of those before may be answered */
	proxy_server_ask(restore->proxy->server, command->data, command->bytes, ENTRY_PLAIN, 0, &restore->replies);
}

int proxy_restore_open(void *context)
{
	struct proxy *proxy = context;
	const char *flush = proxy->protocol->flush;
	struct proxy_restore *restore;

	proxy_snapshot_abort(proxy);
	if (proxy_may_give(proxy)) /* those entries go before the flush */
		return -EAGAIN;
	restore = calloc(1, sizeof(*restore));
	if (restore == NULL)
		return -ENOMEM;
	ensure(proxy->restore == NULL);
	restore->proxy = proxy;
	restore->replies.done = answered;
	proxy->restore = restore;
	proxy_drop_held(proxy);
	proxy_answers_forget(&proxy->answers);
	proxy_deadlines_free(&proxy->deadlines);
	proxy_server_forget_deadlines(proxy->server);
	proxy_server_ask(proxy->server, flush, strlen(flush), ENTRY_DROP, 0, NULL);
	return 0;
}

static bool restore_key(struct proxy_restore *restore, const struct stream_key *key, struct resp_out *out)
{
	out->bytes = 0;
	if (key->deadline_ms == STREAM_ENTRY)
		return proxy_take_held(restore->proxy, key);
	if (!restore->proxy->protocol->restore(restore->proxy, key, out) || out->failed)
		return false;
	if (out->bytes > 0)
		ask(restore, out);
	return true;
}

/* Takes the whole keys that are there. False: the stream is damaged, or memory is short. */
static bool take_keys(struct proxy_restore *restore)
{
	enum stream_outcome outcome = STREAM_KEY;
	struct resp_out out = {0};
	struct stream_key key;
	size_t at = 0, used;

	while (outcome == STREAM_KEY && !restore->proxy->failed) {
		outcome =
			proxy_stream_read(&restore->reader, restore->in.data + at, restore->in.bytes - at, &key, &used);
		if (restore->reader.begun && restore->reader.server != restore->proxy->protocol->server) {
			proxy_fail_kind(restore->proxy);
			outcome = STREAM_DAMAGED;
		}
		if (outcome == STREAM_KEY && !restore_key(restore, &key, &out))
			outcome = STREAM_DAMAGED;
		at += used;
	}
	resp_out_drop(&restore->in, at);
	resp_out_free(&out);
	return outcome != STREAM_DAMAGED;
}

int proxy_restore_write(void *context, const void *data, size_t bytes)
{
	struct proxy *proxy = context;
	struct proxy_restore *restore = proxy->restore;

	ensure(restore != NULL);
	if (restore->failed)
		return -EIO;
	if (restore->waiting > WAITING_MOST || proxy_server_unsent(proxy->server) > SERVER_UNSENT_MOST)
		return -EAGAIN;
	resp_out_raw(&restore->in, data, bytes);
	if (restore->in.failed || !take_keys(restore))
		return restore->in.failed ? -ENOMEM : -EBADMSG;
	return 0;
}

int proxy_restore_close(void *context, bool whole)
{
	struct proxy *proxy = context;
	struct proxy_restore *restore = proxy->restore;

	ensure(restore != NULL);
	if (whole && restore->waiting > 0)
		return -EAGAIN;
	if (whole && (restore->failed || !restore->reader.ended))
		return -EBADMSG;
	proxy->restore = NULL;
	if (restore->waiting > 0)
		restore->gone = true;
	else
		restore_free(restore);
	return 0;
}
