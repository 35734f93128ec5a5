/* A snapshot into an empty server: the layout is in snapshot.h. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/bytes.h"
#include "base/ensure.h"
#include "proxy/snapshot.h"

#define WAITING_MOST 4096u         /* commands at the server before more is taken */
#define VALUE_MOST   (1024u << 20) /* bytes of a key, or of its value */
#define NUMBER_BYTES 24u

struct proxy_restore {
	struct proxy *proxy;
	struct resp_out in; /* of the stream: what makes no whole key yet */
	bool begun, ended, failed, gone;
	uint32_t keys;
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

static bool restore_key(struct proxy_restore *restore, const uint8_t *at, struct resp_out *out)
{
	uint32_t key_bytes = get_le32(at), value_bytes = get_le32(at + 4);
	int64_t deadline = (int64_t)get_le64(at + 8);
	char number[NUMBER_BYTES];

	(void)snprintf(number, sizeof(number), "%" PRId64, deadline < 0 ? 0 : deadline);
	at += SNAPSHOT_HEAD_BYTES;
	out->bytes = 0;
	resp_out_array(out, 5);
	resp_out_text(out, "RESTORE");
	resp_out_bulk(out, at, key_bytes);
	resp_out_text(out, number);
	resp_out_bulk(out, at + key_bytes, value_bytes);
	resp_out_text(out, "ABSTTL");
	restore->keys++;
	if (out->failed ||
		(deadline >= 0 && proxy_deadlines_set(&restore->proxy->deadlines, at, key_bytes, deadline) != 0))
		return false;
	ask(restore, out);
	return true;
}

/* Takes the whole keys that are there. False: the stream is damaged, or memory is short. */
static bool take_keys(struct proxy_restore *restore)
{
	struct resp_out out = {0};
	size_t at = 0;
	bool fine = true;

	if (!restore->begun && restore->in.bytes >= 4) {
		fine = get_le32(restore->in.data) == SNAPSHOT_MAGIC;
		restore->begun = true;
		at = 4;
	}
	while (fine && restore->begun && restore->in.bytes - at >= 8) {
		const uint8_t *head = restore->in.data + at;
		uint64_t whole = SNAPSHOT_HEAD_BYTES + (uint64_t)get_le32(head) + get_le32(head + 4);

		if (get_le32(head) == SNAPSHOT_END) {
			restore->ended = true;
			fine = get_le32(head + 4) == restore->keys && restore->in.bytes - at == 8;
			at += 8;
			break;
		}
		fine = !restore->ended && get_le32(head) <= VALUE_MOST && get_le32(head + 4) <= VALUE_MOST;
		if (!fine || restore->in.bytes - at < whole)
			break;
		fine = restore_key(restore, head, &out);
		at += whole;
	}
	if (fine)
		resp_out_drop(&restore->in, at);
	resp_out_free(&out);
	return fine;
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
	if (whole && (restore->failed || !restore->ended))
		return -EBADMSG;
	proxy->restore = NULL;
	if (restore->waiting > 0)
		restore->gone = true;
	else
		restore_free(restore);
	return 0;
}
