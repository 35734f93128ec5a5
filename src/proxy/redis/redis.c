/* Redis: RESP2, its COMMAND table, and what becomes of its replies. */
#include <stdio.h>
#include <string.h>

#include "proxy/client.h"
#include "proxy/redis/commands.h"
#include "proxy/redis/rewrite.h"
#include "proxy/redis/snapshot.h"

#define MS_PER_S 1000

/* ---- replies ---- */

static void put_left(struct resp_out *out, int64_t shifted_ms, const struct server_question *question)
{
	int64_t at = shifted_ms - ENTRY_SHIFT_MS, left = at - (int64_t)question->now_ms;

	if (left < 0)
		left = 0;
	if (shifted_ms < 0)
		resp_out_integer(out, shifted_ms);
	else if (question->reply == ENTRY_TTL)
		resp_out_integer(out, (left + MS_PER_S / 2) / MS_PER_S);
	else if (question->reply == ENTRY_PTTL)
		resp_out_integer(out, left);
	else if (question->reply == ENTRY_AT)
		resp_out_integer(out, (at + MS_PER_S / 2) / MS_PER_S);
	else
		resp_out_integer(out, at);
}

static bool take(const struct server_question *question, const uint8_t *reply, size_t bytes, struct resp_out *out)
{
	struct resp_element element;
	size_t used;

	if (out == NULL)
		return true;
	if (question->reply >= ENTRY_TTL && question->reply < ENTRY_TEXT && reply[0] == ':' &&
		resp_element_read(reply, bytes, &element, &used) == RESP_WHOLE)
		put_left(out, element.number, question);
	else
		resp_out_raw(out, reply, bytes);
	return true;
}

/* ---- clients ---- */

static enum resp_outcome read_request(
	struct resp_request *request, uint8_t *data, size_t bytes, size_t *used_out, size_t *skip_out)
{
	*skip_out = 0;
	return resp_request_read(request, data, bytes, used_out);
}

static bool check(const struct proxy *proxy, const struct command *command, const struct command_args *request,
	char words[COMMAND_WORDS])
{
	return proxy_command_check(&proxy->commands, command, request->data, request->args, request->count, words);
}

static bool wants_reply(const struct command *command, const struct command_args *request)
{
	(void)command;
	(void)request;
	return true;
}

static void put_error(struct resp_out *out, const char *words)
{
	resp_out_error(out, "%s", words);
}

/* ---- the server ---- */

static void ask(struct proxy *proxy, const struct command *command, const struct command_args *request, uint64_t now_ms,
	struct server_gather *gather)
{
	struct resp_out out = {0};
	struct server_question question = {.now_ms = now_ms};

	question.reply = proxy_rewrite_read(command, request, &out);
	proxy_server_ask_noted(proxy->server, &out, &question, gather);
	resp_out_free(&out);
}

static void inject(struct proxy *proxy, const struct entry_record *record, uint64_t time_ms, uint64_t unique,
	struct server_gather *gather)
{
	(void)unique;
	proxy_server_ask(proxy->server, record->data, record->bytes, record->reply, time_ms, gather);
	if (record->key != NULL)
		proxy_server_ask_deadline(proxy->server, record->key, record->key_bytes);
}

static const char *hear_hello(struct proxy *proxy, const uint8_t *reply, size_t bytes)
{
	if (!proxy_command_learn(&proxy->commands, reply, bytes))
		return "no Redis";
	/* Snapshots and the deadlines of keys need it. */
	return proxy_command_is_there(&proxy->commands, "pexpiretime") ? NULL : "older than Redis 7.0";
}

const struct protocol proxy_redis = {
	.replies = {.name = "Redis", .alive = "PING\r\n", .read = resp_reply_read, .take = take},
	.server = ENTRY_OF_REDIS,
	.read = read_request,
	.read_changes = true,
	.find = proxy_command_find,
	.check = check,
	.wants_reply = wants_reply,
	.put_error = put_error,
	.own = client_own,
	.entry_bytes = proxy_rewrite_bytes,
	.rewrite = proxy_rewrite,
	.rewrite_due = proxy_rewrite_due,
	.ask = ask,
	.inject = inject,
	.hello = "*1\r\n$7\r\nCOMMAND\r\n",
	.hear_hello = hear_hello,
	.snapshot_more = proxy_redis_snapshot_more,
	.flush = "*1\r\n$8\r\nFLUSHALL\r\n",
	.restore = proxy_redis_restore,
	.restored = proxy_redis_restored,
};
