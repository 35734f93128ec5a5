/* What each command of Redis means here. A request becomes one operation for each of its keys, or is answered at once
 * when it needs no record. Operations of a flow end in order, so replies are written as they end. */
#include <holdfast/metrics.h>

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/ensure.h"
#include "kv/clients.h"

#define DIGEST_TURN_BYTES (256u << 10)

const uint8_t *kv_commands_arg(const struct request *request, unsigned i, uint32_t *bytes_out)
{
	*bytes_out = request->client->args[i].bytes;
	return request->data + request->client->args[i].at;
}

bool kv_commands_arg_is(const struct request *request, unsigned i, const char *word)
{
	uint32_t bytes;
	const uint8_t *at = kv_commands_arg(request, i, &bytes);

	return strlen(word) == bytes && strncasecmp((const char *)at, word, bytes) == 0;
}

struct resp_out *kv_commands_out(struct client *client)
{
	if (list_empty(&client->pendings))
		return &client->out;
	return &container_of(client->pendings.prev, struct pending, node)->after;
}

/* ---- replies ---- */

static void reply_null(const struct client *client, struct resp_out *out)
{
	if (client->resp3)
		resp_out_raw(out, "_\r\n", 3);
	else
		resp_out_null(out);
}

static void reply_error(struct resp_out *out, enum hf_kv_result result)
{
	static const char *const words[HF_KV_RESULTS] = {
		[HF_KV_LOADING] = "LOADING this node is not yet a member; ask another one",
		[HF_KV_NO_LEASE] = "CLUSTERDOWN this node is cut off from the cluster; ask another one",
		[HF_KV_NO_REPLICAS] = "NOREPLICAS too few members are connected to write",
		[HF_KV_NO_MEMORY] =
			"OOM a member has no room for this record: its memory is full, or the disk of its log, "
			"as its log says; delete records or raise store_mb, or make room on the disk",
		[HF_KV_TRY_AGAIN] = "TRYAGAIN the record was not free in time; nothing was done",
		[HF_KV_NO_NUMBER] = "ERR value is not an integer or out of range",
		[HF_KV_OVERFLOW] = "ERR increment or decrement would overflow",
		[HF_KV_TOO_LARGE] = "ERR a value has at most 1048576 bytes here",
	};

	ensure(words[result] != NULL);
	resp_out_error(out, "%s", words[result]);
}

static void reply_value(struct pending *pending, struct resp_out *out)
{
	if (pending->op.returned == NULL)
		reply_null(pending->client, out);
	else
		resp_out_bulk(out, pending->op.returned, pending->op.returned_bytes);
}

/* Of SET: with GET the value before it, else whether it was set. */
static void reply_set(struct pending *pending, struct resp_out *out)
{
	if ((pending->op.flags & HF_KV_RETURN) != 0)
		reply_value(pending, out);
	else if (pending->op.applied)
		resp_out_simple(out, "OK");
	else
		reply_null(pending->client, out);
}

static void reply_applied(struct pending *pending, struct resp_out *out)
{
	resp_out_integer(out, pending->op.applied);
}

static void reply_number(struct pending *pending, struct resp_out *out)
{
	resp_out_integer(out, pending->op.number);
}

static void reply_length(struct pending *pending, struct resp_out *out)
{
	resp_out_integer(out, pending->op.returned_bytes);
}

static void reply_type(struct pending *pending, struct resp_out *out)
{
	resp_out_simple(out, pending->op.returned == NULL ? "none" : "string");
}

/* Of commands with several keys: the last key's end has the answer, or the first error. */
static void reply_ok(struct pending *pending, struct resp_out *out)
{
	if (pending->index == pending->count - 1)
		resp_out_simple(out, "OK");
}

static void reply_sum(struct pending *pending, struct resp_out *out)
{
	pending->client->sum += pending->op.kind == HF_KV_GET ? pending->op.returned != NULL : pending->op.applied;
	if (pending->index == pending->count - 1)
		resp_out_integer(out, pending->client->sum);
}

static void reply_element(struct pending *pending, struct resp_out *out)
{
	if (pending->index == 0)
		resp_out_array(out, pending->count);
	reply_value(pending, out);
}

static bool is_error(enum hf_kv_result result)
{
	return result != HF_KV_OK && result != HF_KV_ABSENT;
}

static void done(struct hf_kv_op *op)
{
	struct pending *pending = container_of(op, struct pending, op);
	struct client *client = pending->client;
	struct resp_out *out = &client->out;

	if (pending->index == 0) {
		client->sum = 0;
		client->failed = HF_KV_OK;
	}
	if (client->broken || op->result == HF_KV_UNKNOWN || client->pendings.next != &pending->node) {
		client->broken = true; /* not knowing closes the connection without a reply; nor is one out of order */
	} else if (pending->reply == reply_element && is_error(op->result)) {
		if (pending->index == 0)
			resp_out_array(out, pending->count);
		reply_error(out, op->result);
	} else {
		if (is_error(op->result) && client->failed == HF_KV_OK)
			client->failed = op->result;
		if (client->failed == HF_KV_OK)
			pending->reply(pending, out);
		else if (pending->index == pending->count - 1)
			reply_error(out, client->failed);
	}
	if (!client->broken && pending->after.bytes > 0)
		resp_out_raw(out, pending->after.data, pending->after.bytes);
	client->out.failed |= pending->after.failed;
	kv_clients_remove(client, pending);
}

/* ---- operations ---- */

static struct pending *make_of(struct client *client, enum hf_kv_kind kind, unsigned flags, const void *key,
	uint32_t key_bytes, const void *value, uint32_t value_bytes)
{
	struct pending *pending = malloc(sizeof(*pending) + key_bytes + value_bytes);

	if (pending == NULL)
		return NULL;
	*pending = (struct pending){.op = {.kind = kind,
					    .flags = flags,
					    .key = pending->bytes,
					    .key_bytes = key_bytes,
					    .value = pending->bytes + key_bytes,
					    .value_bytes = value_bytes,
					    .done = done},
		.client = client,
		.count = 1};
	memcpy(pending->bytes, key, key_bytes);
	if (value_bytes > 0)
		memcpy(pending->bytes + key_bytes, value, value_bytes);
	return pending;
}

/* Null arguments have index 0: there is none. */
static struct pending *make(
	const struct request *request, enum hf_kv_kind kind, unsigned flags, unsigned key, unsigned value)
{
	uint32_t key_bytes, value_bytes = 0;
	const uint8_t *key_at = kv_commands_arg(request, key, &key_bytes), *value_at = NULL;

	if (value != 0)
		value_at = kv_commands_arg(request, value, &value_bytes);
	return make_of(request->client, kind, flags, key_at, key_bytes, value_at, value_bytes);
}

static void post(struct pending *pending, void (*reply)(struct pending *pending, struct resp_out *out))
{
	struct client *client = pending->client;

	pending->reply = reply;
	kv_clients_add(client, pending);
	hf_kv_post(client->flow, &pending->op);
}

static void no_memory(struct client *client)
{
	client->broken = true; /* its replies would no longer match its requests */
	kv_clients_set_dirty(client);
}

void kv_commands_get(struct client *client, const void *key, uint32_t key_bytes, unsigned index, unsigned count,
	void (*reply)(struct pending *pending, struct resp_out *out))
{
	struct pending *pending = make_of(client, HF_KV_GET, 0, key, key_bytes, NULL, 0);

	if (pending == NULL) {
		no_memory(client);
		return;
	}
	pending->index = index;
	pending->count = count;
	post(pending, reply);
}

static bool keys_are_right(const struct request *request, unsigned from, unsigned step)
{
	for (unsigned i = from; i < request->count; i += step)
		if (request->client->args[i].bytes == 0 || request->client->args[i].bytes > HF_KV_KEY_BYTES_MAX) {
			resp_out_error(kv_commands_out(request->client), "ERR a key has 1 to %u bytes here",
				HF_KV_KEY_BYTES_MAX);
			return false;
		}
	return true;
}

/* One operation for each key; values lie behind their keys when step is 2. */
static void each(const struct request *request, enum hf_kv_kind kind, unsigned step,
	void (*reply)(struct pending *pending, struct resp_out *out))
{
	unsigned n = (request->count - 1) / step;

	if (!keys_are_right(request, 1, step))
		return;
	for (unsigned i = 0; i < n; i++) {
		struct pending *pending = make(request, kind, 0, 1 + i * step, step == 2 ? 2 + i * step : 0);

		if (pending == NULL) {
			no_memory(request->client);
			return;
		}
		pending->index = i;
		pending->count = n;
		post(pending, reply);
	}
}

static void one(const struct request *request, enum hf_kv_kind kind, unsigned flags, unsigned value, int64_t delta,
	void (*reply)(struct pending *pending, struct resp_out *out))
{
	struct pending *pending;

	if (!keys_are_right(request, 1, request->count))
		return;
	pending = make(request, kind, flags, 1, value);
	if (pending == NULL) {
		no_memory(request->client);
		return;
	}
	pending->op.delta = delta;
	post(pending, reply);
}

static void run_get(const struct request *request)
{
	one(request, HF_KV_GET, 0, 0, 0, reply_value);
}

static void run_set(const struct request *request)
{
	unsigned flags = 0;

	for (unsigned i = 3; i < request->count; i++) {
		if (kv_commands_arg_is(request, i, "NX"))
			flags |= HF_KV_IF_ABSENT;
		else if (kv_commands_arg_is(request, i, "XX"))
			flags |= HF_KV_IF_PRESENT;
		else if (kv_commands_arg_is(request, i, "GET"))
			flags |= HF_KV_RETURN;
		else if (kv_commands_arg_is(request, i, "KEEPTTL"))
			continue;
		else if (kv_commands_arg_is(request, i, "EX") || kv_commands_arg_is(request, i, "PX") ||
			 kv_commands_arg_is(request, i, "EXAT") || kv_commands_arg_is(request, i, "PXAT")) {
			resp_out_error(kv_commands_out(request->client),
				"ERR records do not expire here; delete them instead");
			return;
		} else {
			resp_out_error(kv_commands_out(request->client), "ERR syntax error");
			return;
		}
	}
	if ((flags & HF_KV_IF_ABSENT) != 0 && (flags & HF_KV_IF_PRESENT) != 0)
		resp_out_error(kv_commands_out(request->client), "ERR syntax error");
	else
		one(request, HF_KV_SET, flags, 2, 0, reply_set);
}

static void run_setnx(const struct request *request)
{
	one(request, HF_KV_SET, HF_KV_IF_ABSENT, 2, 0, reply_applied);
}

static void run_getset(const struct request *request)
{
	one(request, HF_KV_SET, HF_KV_RETURN, 2, 0, reply_value);
}

static void run_getdel(const struct request *request)
{
	one(request, HF_KV_DELETE, HF_KV_RETURN, 0, 0, reply_value);
}

static void run_mget(const struct request *request)
{
	each(request, HF_KV_GET, 1, reply_element);
}

static void run_mset(const struct request *request)
{
	if (request->count % 2 == 0)
		resp_out_error(kv_commands_out(request->client), "ERR wrong number of arguments for 'mset' command");
	else
		each(request, HF_KV_SET, 2, reply_ok);
}

static void run_del(const struct request *request)
{
	each(request, HF_KV_DELETE, 1, reply_sum);
}

static void run_exists(const struct request *request)
{
	each(request, HF_KV_GET, 1, reply_sum);
}

static void run_append(const struct request *request)
{
	one(request, HF_KV_APPEND, 0, 2, 0, reply_number);
}

static void run_strlen(const struct request *request)
{
	one(request, HF_KV_GET, 0, 0, 0, reply_length);
}

static void run_type(const struct request *request)
{
	one(request, HF_KV_GET, 0, 0, 0, reply_type);
}

static void run_incr(const struct request *request)
{
	one(request, HF_KV_ADD, 0, 0, 1, reply_number);
}

static void run_decr(const struct request *request)
{
	one(request, HF_KV_ADD, 0, 0, -1, reply_number);
}

static void add(const struct request *request, bool negative)
{
	uint32_t bytes;
	const uint8_t *at = kv_commands_arg(request, 2, &bytes);
	int64_t delta;

	if (!resp_number(at, bytes, &delta) || (negative && delta == INT64_MIN))
		resp_out_error(kv_commands_out(request->client), "ERR value is not an integer or out of range");
	else
		one(request, HF_KV_ADD, 0, 0, negative ? -delta : delta, reply_number);
}

static void run_incrby(const struct request *request)
{
	add(request, false);
}

static void run_decrby(const struct request *request)
{
	add(request, true);
}

/* ---- the session, and the store as a whole ---- */

const char *kv_commands_refusal(const struct hf_kv *kv)
{
	if (!kv->member)
		return "LOADING this node is not yet a member; ask another one";
	return kv_council_has_lease(kv) ? NULL : "CLUSTERDOWN this node is cut off from the cluster; ask another one";
}

/* As Redis while it loads: a balancer that sends PING turns to a member that serves. */
static void run_ping(const struct request *request)
{
	struct resp_out *out = kv_commands_out(request->client);
	const char *wrong = kv_commands_refusal(kv_clients_kv(request->client->clients));
	uint32_t bytes;
	const uint8_t *at;

	if (wrong != NULL) {
		resp_out_error(out, "%s", wrong);
	} else if (request->count == 1) {
		resp_out_simple(out, "PONG");
	} else {
		at = kv_commands_arg(request, 1, &bytes);
		resp_out_bulk(out, at, bytes);
	}
}

static void run_echo(const struct request *request)
{
	uint32_t bytes;
	const uint8_t *at = kv_commands_arg(request, 1, &bytes);

	resp_out_bulk(kv_commands_out(request->client), at, bytes);
}

static void run_quit(const struct request *request)
{
	resp_out_simple(kv_commands_out(request->client), "OK");
	request->client->quitting = true;
}

static void run_select(const struct request *request)
{
	if (kv_commands_arg_is(request, 1, "0"))
		resp_out_simple(kv_commands_out(request->client), "OK");
	else
		resp_out_error(kv_commands_out(request->client), "ERR DB index is out of range");
}

/* Only a member with a lease knows of all records. */
static bool may_answer(const struct request *request, struct hf_kv_status *status)
{
	const struct hf_kv *kv = kv_clients_kv(request->client->clients);
	const char *wrong = kv_commands_refusal(kv);

	hf_kv_status(kv, status);
	if (wrong != NULL)
		resp_out_error(kv_commands_out(request->client), "%s", wrong);
	return wrong == NULL;
}

static void run_dbsize(const struct request *request)
{
	struct hf_kv_status status;

	if (may_answer(request, &status))
		resp_out_integer(kv_commands_out(request->client), (int64_t)status.keys);
}

/* A part of the records; the request is held until it comes to the end of them. */
static void run_digest(const struct request *request)
{
	struct client *client = request->client;
	const struct store *store = &kv_clients_kv(client->clients)->store;
	char text[20];

	client->digest += kv_store_digest(store, &client->digest_at, DIGEST_TURN_BYTES);
	if (client->digest_at <= store->mask)
		return;
	snprintf(text, sizeof(text), "%016" PRIx64, client->digest);
	resp_out_text(kv_commands_out(client), text);
	client->digest = client->digest_at = 0;
}

/* Every member has what was answered. */
static void run_wait(const struct request *request)
{
	struct hf_kv_status status;

	if (may_answer(request, &status))
		resp_out_integer(kv_commands_out(request->client), __builtin_popcount(status.live) - 1);
}

/* ---- the table ---- */

static const struct command {
	const char *name;
	unsigned least, most; /* arguments, the name among them; 0: any number */
	void (*run)(const struct request *request);
	bool alone; /* about all records: it waits until what is under way has ended (R-K8) */
} commands[] = {
	{"get", 2, 2, run_get},
	{"set", 3, 0, run_set},
	{"setnx", 3, 3, run_setnx},
	{"getset", 3, 3, run_getset},
	{"getdel", 2, 2, run_getdel},
	{"mget", 2, 0, run_mget},
	{"mset", 3, 0, run_mset},
	{"del", 2, 0, run_del},
	{"unlink", 2, 0, run_del},
	{"exists", 2, 0, run_exists},
	{"append", 3, 3, run_append},
	{"strlen", 2, 2, run_strlen},
	{"type", 2, 2, run_type},
	{"incr", 2, 2, run_incr},
	{"decr", 2, 2, run_decr},
	{"incrby", 3, 3, run_incrby},
	{"decrby", 3, 3, run_decrby},
	{"ping", 1, 2, run_ping},
	{"echo", 2, 2, run_echo},
	{"quit", 1, 0, run_quit},
	{"select", 2, 2, run_select},
	{"client", 2, 0, kv_session_client},
	{"multi", 1, 1, kv_session_multi},
	{"exec", 1, 1, kv_session_no_multi},
	{"discard", 1, 1, kv_session_no_multi},
	{"command", 1, 0, kv_info_command},
	{"config", 2, 0, kv_info_config},
	{"hello", 1, 0, kv_session_hello},
	{"auth", 2, 3, kv_session_auth},
	{"info", 1, 0, kv_info, .alone = true},
	{"dbsize", 1, 1, run_dbsize, .alone = true},
	{"scan", 2, 0, kv_scan, .alone = true},
	{"hfscan", 3, 3, kv_ordered_scan, .alone = true},
	{"wait", 3, 3, run_wait, .alone = true},
	{"hfdigest", 1, 1, run_digest, .alone = true},
};

/* Commands of Redis that clients may expect here, and the reason why there are none. */
static const struct {
	const char *names, *words;
} refused[] = {
	{"expire expireat expiretime pexpire pexpireat pexpiretime persist ttl pttl setex psetex getex",
		"ERR records do not expire here: delete them instead"},
	{"watch unwatch eval evalsha eval_ro evalsha_ro script fcall fcall_ro function",
		"ERR there are no transactions and scripts here: the unit of atomicity is one key, SET with NX, XX or "
		"GET, "
		"GETDEL, INCRBY and APPEND are atomic"},
	{"subscribe psubscribe ssubscribe unsubscribe publish pubsub monitor",
		"ERR there is no publish and subscribe here"},
	{"cluster readonly readwrite asking", "ERR This instance has cluster support disabled"},
	{"replicaof slaveof psync sync failover", "ERR the members replicate by themselves: use any of them"},
};

static bool has_word(const char *names, const char *word)
{
	size_t bytes = strlen(word);

	for (const char *at = names; (at = strcasestr(at, word)) != NULL; at++)
		if ((at == names || at[-1] == ' ') && (at[bytes] == ' ' || at[bytes] == '\0'))
			return bytes > 0;
	return false;
}

static void refuse_unknown(const struct request *request)
{
	struct resp_out *out = kv_commands_out(request->client);
	uint32_t bytes;
	const uint8_t *at = kv_commands_arg(request, 0, &bytes);
	char name[32];

	snprintf(name, sizeof(name), "%.*s", (int)(bytes < sizeof(name) - 1 ? bytes : sizeof(name) - 1),
		(const char *)at);
	for (char *c = name; *c != '\0'; c++)
		if (!isprint((unsigned char)*c))
			*c = '?';
	for (size_t i = 0; i < sizeof(refused) / sizeof(*refused); i++)
		if (has_word(refused[i].names, name)) {
			resp_out_error(out, "%s", refused[i].words);
			return;
		}
	resp_out_error(out,
		"ERR unknown command '%s'; this store has strings only, docs/kv.md lists "
		"the commands",
		name);
}

/* A line that ends as the first line of HTTP, or begins as one of its headers, and POST: Redis closes at these two. */
static bool is_http(const struct request *request)
{
	uint32_t bytes;
	const uint8_t *last = kv_commands_arg(request, request->count - 1, &bytes);

	if (kv_commands_arg_is(request, 0, "post") || kv_commands_arg_is(request, 0, "host:"))
		return true;
	return request->data[0] != '*' && request->count == 3 && bytes >= 5 && memcmp(last, "HTTP/", 5) == 0;
}

static const struct command *find(const struct request *request)
{
	for (size_t i = 0; i < sizeof(commands) / sizeof(*commands); i++)
		if (kv_commands_arg_is(request, 0, commands[i].name))
			return &commands[i];
	return NULL;
}

bool kv_commands_run(struct client *client, const uint8_t *data)
{
	struct request request = {.client = client, .data = data, .count = client->request.arg_count};
	const struct command *command = find(&request);

	if (is_http(&request)) {
		kv_clients_refuse_http(client);
		return true;
	}
	if (client->refuses && (command == NULL || command->run != run_quit)) {
		kv_session_refuse(&request);
		return true;
	}
	if (command == NULL) {
		refuse_unknown(&request);
		return true;
	}
	if (command->alone && client->pending_count > 0)
		return false;
	client->costly = command->alone;
	if (request.count < command->least || (command->most != 0 && request.count > command->most))
		resp_out_error(
			kv_commands_out(client), "ERR wrong number of arguments for '%s' command", command->name);
	else
		command->run(&request);
	return client->digest_at == 0 && client->scan_from.bytes == 0;
}
