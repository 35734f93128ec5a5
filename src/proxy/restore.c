/* A snapshot into an empty server. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/ensure.h"
#include "proxy/snapshot.h"
#include "proxy/stream.h"

#define WAITING_MOST 4096u /* commands at the server before more is taken */
#define NUMBER_BYTES 24u

struct proxy_restore {
	struct proxy *proxy;
	struct resp_out in; /* of the stream: what makes no whole key yet */
	struct stream_reader reader;
	bool failed, gone;
	struct server_gather replies; /* of RESTORE; they are looked at as they come */
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

	for (size_t i = 0; i < gather->out.bytes; i++) /* +OK\r\n each, or an error somewhere */
		restore->failed |= gather->out.data[i] == '-';
	restore->failed |= gather->out.failed;
	gather->out.bytes = 0;
	restore->waiting = 0;
	if (restore->gone)
		restore_free(restore);
}

static void ask(struct proxy_restore *restore, const struct resp_out *command)
{
	restore->waiting++;
	restore->replies.left = restore->waiting;
	proxy_server_ask(restore->proxy->server, command->data, command->bytes, ENTRY_PLAIN, 0, &restore->replies);
}

int proxy_restore_open(void *context)
{
	static const char flush[] = "*1\r\n$8\r\nFLUSHALL\r\n";
	struct proxy *proxy = context;
	struct proxy_restore *restore = calloc(1, sizeof(*restore));

	if (restore == NULL)
		return -ENOMEM;
	ensure(proxy->restore == NULL);
	restore->proxy = proxy;
	restore->replies.done = answered;
	proxy->restore = restore;
	proxy_answers_forget(&proxy->answers);
	proxy_deadlines_free(&proxy->deadlines);
	proxy_server_ask(proxy->server, flush, sizeof(flush) - 1, ENTRY_DROP, 0, NULL);
	return 0;
}

static bool restore_key(struct proxy_restore *restore, const struct stream_key *key, struct resp_out *out)
{
	char number[NUMBER_BYTES];

	(void)snprintf(number, sizeof(number), "%" PRId64, key->deadline_ms < 0 ? 0 : key->deadline_ms);
	out->bytes = 0;
	resp_out_array(out, 5);
	resp_out_text(out, "RESTORE");
	resp_out_bulk(out, key->key, key->key_bytes);
	resp_out_text(out, number);
	resp_out_bulk(out, key->value, key->value_bytes);
	resp_out_text(out, "ABSTTL");
	if (out->failed || (key->deadline_ms >= 0 && proxy_deadlines_set(&restore->proxy->deadlines, key->key,
							     key->key_bytes, key->deadline_ms) != 0))
		return false;
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

	while (outcome == STREAM_KEY) {
		outcome =
			proxy_stream_read(&restore->reader, restore->in.data + at, restore->in.bytes - at, &key, &used);
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
	if (restore->waiting > WAITING_MOST)
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
