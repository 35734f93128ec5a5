/* memcached: its text protocol, what it answers, and its keys in snapshots. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "proxy/client.h"
#include "proxy/memcached/inject.h"
#include "proxy/memcached/text.h"
#include "proxy/snapshot.h"

#define SNAPSHOT_KEYS 256u /* that are asked for together */
#define VALUE_HEAD    12u  /* of a value in a snapshot: u64 unique, u32 flags; the data follows */

/* ---- replies ---- */

static bool begins(const uint8_t *text, size_t bytes, const char *word)
{
	return bytes >= strlen(word) && memcmp(text, word, strlen(word)) == 0;
}

/* The proxy asks for keys that are there only, and for nothing that a server refuses for its size. */
static bool take(const struct server_question *question, const uint8_t *reply, size_t bytes, struct resp_out *out)
{
	static const char *const lost[] = {"NOT_FOUND", "SERVER_ERROR", "ERROR"};

	for (size_t i = 0; i < sizeof(lost) / sizeof(*lost); i++)
		if (begins(reply, bytes, lost[i]))
			return false;
	if (out == NULL)
		return true;
	if (question->reply == ENTRY_GETS)
		return proxy_text_put_gets(out, reply, bytes, question->note, question->note_bytes);
	resp_out_raw(out, reply, bytes);
	return true;
}

/* ---- clients ---- */

static bool check_stats(const struct command_args *request, char words[COMMAND_WORDS])
{
	static const char *const taken[] = {"items", "slabs", "settings", "sizes", "conns"};
	bool known = request->count == 1;

	for (size_t i = 0; i < sizeof(taken) / sizeof(*taken); i++)
		known |= request->count == 2 && proxy_text_is_word(request->data, &request->args[1], taken[i]);
	if (!known)
		(void)snprintf(words, COMMAND_WORDS,
			"CLIENT_ERROR of stats a replicating proxy takes only items slabs settings sizes conns");
	return known;
}

static bool check(const struct proxy *proxy, const struct command *command, const struct command_args *request,
	char words[COMMAND_WORDS])
{
	(void)proxy;
	if (command == NULL)
		(void)snprintf(words, COMMAND_WORDS, "ERROR");
	else if (command->kind == COMMAND_REFUSED)
		(void)snprintf(words, COMMAND_WORDS, "%s", command->why);
	else if (command->kind == COMMAND_CHANGE && request->count < 4)
		(void)snprintf(words, COMMAND_WORDS,
			"CLIENT_ERROR say HOLDFAST ADD id name address... or HOLDFAST REMOVE MEMBER id");
	else if (strcmp(command->name, "verbosity") == 0 && request->count < 2)
		(void)snprintf(words, COMMAND_WORDS, "ERROR");
	else
		return strcmp(command->name, "stats") != 0 || check_stats(request, words);
	return false;
}

/* What is not worded for memcached's clients is the server's trouble. */
static void put_error(struct resp_out *out, const char *words)
{
	const uint8_t *text = (const uint8_t *)words;
	size_t bytes = strlen(words);

	if (begins(text, bytes, "ERROR"))
		bytes = strlen("ERROR");
	else if (!begins(text, bytes, "CLIENT_ERROR ") && !begins(text, bytes, "SERVER_ERROR "))
		resp_out_raw(out, "SERVER_ERROR ", strlen("SERVER_ERROR "));
	if (begins(text, bytes, "ERR "))
		words += strlen("ERR ");
	resp_out_raw(out, words, begins(text, bytes, "ERR ") ? bytes - strlen("ERR ") : bytes);
	resp_out_raw(out, "\r\n", 2);
}

static enum client_taken own(struct client *client, const struct command *command, const struct command_args *request)
{
	if (strcmp(command->name, "quit") == 0)
		client->closing = true;
	else if (proxy_text_wants_reply(command, request)) /* verbosity: the servers' stays as it is */
		resp_out_raw(&client->out, "OK\r\n", 4);
	return CLIENT_TAKEN;
}

/* ---- the server ---- */

static void ask(struct proxy *proxy, const struct command *command, const struct command_args *request, uint64_t now_ms,
	struct server_gather *gather)
{
	const struct server_question question = {.reply = ENTRY_PLAIN};
	/* A server ignores what is behind `version`, unless that is too long for it. */
	unsigned words = strcmp(command->name, "version") == 0 ? 1 : request->count;
	struct resp_out line = {0};

	(void)now_ms;
	if (command->kind == COMMAND_READ) {
		proxy_memcached_ask_keys(proxy, request, 1, strcmp(command->name, "gets") == 0, ENTRY_PLAIN, gather);
		return;
	}
	for (unsigned i = 0; i < words; i++) {
		resp_out_raw(&line, " ", i > 0);
		resp_out_raw(&line, request->data + request->args[i].at, request->args[i].bytes);
	}
	resp_out_raw(&line, "\r\n", 2);
	proxy_server_ask_noted(proxy->server, &line, &question, gather);
	resp_out_free(&line);
}

static const char *hear_hello(struct proxy *proxy, const uint8_t *reply, size_t bytes)
{
	(void)proxy;
	return begins(reply, bytes, "VERSION ") ? NULL : "no memcached";
}

/* ---- snapshots ---- */

static void put_key(struct proxy_snapshot *snapshot, const struct deadline *key, const struct text_value *value)
{
	uint8_t head[VALUE_HEAD] = {0};
	struct resp_out whole = {0};
	uint64_t flags = 0;

	if (value != NULL) {
		(void)proxy_text_unsigned(value->flags, value->flags_bytes, &flags);
		put_le64(head, key->unique);
		put_le32(head + 8, (uint32_t)flags);
		resp_out_raw(&whole, head, sizeof(head));
		resp_out_raw(&whole, value->data, value->data_bytes);
	}
	proxy_stream_put(&snapshot->out, &(struct stream_key){.key = key->key,
						 .key_bytes = key->bytes,
						 .value = whole.data,
						 .value_bytes = (uint32_t)whole.bytes,
						 .deadline_ms = key->ms == DEADLINE_NEVER ? -1 : key->ms});
	snapshot->out.failed |= whole.failed;
	snapshot->keys++;
	resp_out_free(&whole);
}

/* Keys from `place` on, of which nothing has changed meanwhile, and what the server has of them. */
static bool put_keys(struct proxy_snapshot *snapshot)
{
	const struct deadlines *keys = &snapshot->proxy->deadlines;
	const struct resp_out *reply = &snapshot->values.out;
	struct text_value value;
	size_t at = 0, used;

	for (unsigned n = 0; n < SNAPSHOT_KEYS && snapshot->place < keys->count; n++) {
		const struct deadline *key = keys->heap[snapshot->place++];

		if (key->bytes == 0) { /* of flush_all */
			put_key(snapshot, key, NULL);
			continue;
		}
		if (!proxy_text_value(reply->data + at, reply->bytes - at, &value, &used) ||
			value.key_bytes != key->bytes || memcmp(value.key, key->key, key->bytes) != 0)
			return false;
		put_key(snapshot, key, &value);
		at += used;
	}
	snapshot->last = snapshot->place == keys->count;
	return !snapshot->out.failed;
}

static void heard_keys(struct server_gather *gather)
{
	struct proxy_snapshot *snapshot = container_of(gather, struct proxy_snapshot, values);

	if (!proxy_snapshot_answered(snapshot) || snapshot->failed != 0)
		return;
	if (gather->out.failed || !put_keys(snapshot))
		proxy_snapshot_fail(snapshot, -EIO);
	gather->out.bytes = 0;
}

static void snapshot_more(struct proxy_snapshot *snapshot)
{
	const struct deadlines *keys = &snapshot->proxy->deadlines;
	const struct server_question question = {.reply = ENTRY_PLAIN};
	struct resp_out line = {0};

	resp_out_raw(&line, "get", 3);
	for (size_t n = 0; n < SNAPSHOT_KEYS && snapshot->place + n < keys->count; n++) {
		const struct deadline *key = keys->heap[snapshot->place + n];

		resp_out_raw(&line, " ", key->bytes > 0);
		resp_out_raw(&line, key->key, key->bytes);
	}
	resp_out_raw(&line, "\r\n", 2);
	snapshot->values.left = 1;
	snapshot->values.done = heard_keys;
	snapshot->asked = true;
	if (line.bytes == strlen("get\r\n")) {
		snapshot->values.left = 0;
		heard_keys(&snapshot->values);
	} else {
		proxy_server_ask_noted(snapshot->proxy->server, &line, &question, &snapshot->values);
	}
	resp_out_free(&line);
}

static bool restore(struct proxy *proxy, const struct stream_key *key, struct resp_out *command)
{
	struct deadline *listed;
	char flags[16];

	if (key->key_bytes > TEXT_KEY_MOST || (key->key_bytes > 0 && key->value_bytes < VALUE_HEAD) ||
		memchr(key->key, '\n', key->key_bytes) != NULL || memchr(key->key, ' ', key->key_bytes) != NULL ||
		proxy_deadlines_set(&proxy->deadlines, key->key, key->key_bytes,
			key->deadline_ms < 0 ? DEADLINE_NEVER : key->deadline_ms) != 0)
		return false;
	if (key->key_bytes == 0)
		return true;
	listed = proxy_deadlines_get(&proxy->deadlines, key->key, key->key_bytes);
	listed->unique = get_le64(key->value);
	(void)snprintf(flags, sizeof(flags), "%u", get_le32(key->value + 8));
	proxy_memcached_put_set(command, "set", key->key, key->key_bytes, (const uint8_t *)flags, strlen(flags),
		key->value + VALUE_HEAD, key->value_bytes - VALUE_HEAD);
	return true;
}

/* STORED each. */
static bool restored(const uint8_t *replies, size_t bytes)
{
	size_t at = 0;

	while (begins(replies + at, bytes - at, "STORED\r\n"))
		at += strlen("STORED\r\n");
	return at == bytes;
}

const struct protocol proxy_memcached = {
	.replies = {.name = "memcached", .alive = "version\r\n", .read = proxy_text_reply_read, .take = take},
	.server = ENTRY_OF_MEMCACHED,
	.read = proxy_text_read,
	.find = proxy_text_find,
	.check = check,
	.wants_reply = proxy_text_wants_reply,
	.put_error = put_error,
	.own = own,
	.entry_bytes = proxy_memcached_bytes,
	.rewrite = proxy_memcached_rewrite,
	.rewrite_due = proxy_memcached_rewrite_due,
	.ask = ask,
	.inject = proxy_memcached_inject,
	.hello = "version\r\n",
	.hear_hello = hear_hello,
	.snapshot_more = snapshot_more,
	.flush = "flush_all\r\n",
	.restore = restore,
	.restored = restored,
};
