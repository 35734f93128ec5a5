#include "proxy/memcached/inject.h"

#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "proxy/memcached/text.h"

#define MS_PER_S      1000
#define RELATIVE_MOST (60 * 60 * 24 * 30) /* seconds; a larger number is a moment: memcached's own rule */
#define NUMBER_BYTES  24u
#define NUMBERS_BYTES 64u /* that become longer: flags and a deadline */
#define AT_ONCE       (-1)
#define NEVER         0

/* ---- at the leader ---- */

static void put_deadline(struct resp_out *out, const struct command_args *request, unsigned i, uint64_t now_ms)
{
	int64_t at_ms;
	int32_t seconds = 0;

	(void)proxy_text_signed(request->data + request->args[i].at, request->args[i].bytes, &seconds);
	at_ms = (int64_t)seconds * MS_PER_S + (seconds <= RELATIVE_MOST ? (int64_t)now_ms : 0);
	if (seconds == 0)
		resp_out_decimal(out, NEVER);
	else if (at_ms <= (int64_t)now_ms)
		resp_out_decimal(out, AT_ONCE);
	else
		resp_out_decimal(out, at_ms + ENTRY_SHIFT_MS);
}

/* The 32 bits that a server keeps. */
static void put_flags(struct resp_out *out, const struct command_args *request, unsigned i)
{
	uint64_t flags = 0;

	(void)proxy_text_unsigned(request->data + request->args[i].at, request->args[i].bytes, &flags);
	resp_out_decimal(out, (int64_t)(uint32_t)flags);
}

static void put_request(const struct command *command, const struct command_args *request, uint64_t now_ms,
	struct resp_out *entry, unsigned count, unsigned deadline)
{
	resp_out_array(entry, count);
	resp_out_text(entry, command->name);
	for (unsigned i = 1; i < count; i++)
		if (i == deadline)
			put_deadline(entry, request, i, now_ms);
		else if (deadline == 3 && i == 2)
			put_flags(entry, request, i);
		else
			proxy_command_put(entry, request, i);
}

size_t proxy_memcached_bytes(const struct command *command, const struct command_args *request)
{
	(void)command;
	return ENTRY_ROOM_BYTES + NUMBERS_BYTES + proxy_command_bytes(request);
}

void proxy_memcached_rewrite(
	const struct command *command, const struct command_args *request, uint64_t now_ms, struct resp_out *entry)
{
	bool silent = !proxy_text_wants_reply(command, request);
	unsigned count = request->count;
	size_t record = proxy_entry_record(entry, silent ? ENTRY_DROP : ENTRY_PLAIN);

	switch ((enum memcached_form)command->form) {
	case TEXT_STORE:
		put_request(command, request, now_ms, entry, 5, 3);
		break;
	case TEXT_CAS:
		put_request(command, request, now_ms, entry, 6, 3);
		break;
	case TEXT_COUNT:
		put_request(command, request, now_ms, entry, 3, 0);
		break;
	case TEXT_TOUCH:
		put_request(command, request, now_ms, entry, 3, 2);
		break;
	case TEXT_DELETE:
		put_request(command, request, now_ms, entry, 2, 0);
		break;
	case TEXT_GAT:
		put_request(command, request, now_ms, entry, count, 1);
		break;
	case TEXT_FLUSH:
		resp_out_array(entry, 2);
		resp_out_text(entry, command->name);
		if (count - silent > 1)
			put_deadline(entry, request, 1, now_ms);
		else
			resp_out_decimal(entry, AT_ONCE);
		break;
	case TEXT_GET:
	case TEXT_VERBOSITY:
	case TEXT_REST:
		break;
	}
	proxy_entry_record_end(entry, record);
}

void proxy_memcached_rewrite_due(struct resp_out *entry, const uint8_t *key, size_t key_bytes, int64_t shifted_ms)
{
	size_t record = proxy_entry_record(entry, ENTRY_DROP);

	resp_out_array(entry, 3);
	resp_out_text(entry, "due");
	resp_out_bulk(entry, key, key_bytes);
	resp_out_decimal(entry, shifted_ms);
	proxy_entry_record_end(entry, record);
}

/* ---- at every replica ---- */

struct injection {
	struct proxy *proxy;
	struct command_args request;
	enum entry_reply reply;
	uint64_t unique;
	struct server_gather *gather;
};

static const uint8_t *arg_of(const struct injection *it, unsigned i, size_t *bytes_out)
{
	*bytes_out = it->request.args[i].bytes;
	return it->request.data + it->request.args[i].at;
}

static int64_t number_of(const struct injection *it, unsigned i)
{
	size_t bytes;
	const uint8_t *text = arg_of(it, i, &bytes);
	int64_t number;

	return resp_number(text, bytes, &number) ? number : NEVER;
}

static struct deadline *find(const struct injection *it, unsigned i)
{
	size_t bytes;
	const uint8_t *key = arg_of(it, i, &bytes);

	return proxy_deadlines_get(&it->proxy->deadlines, key, bytes);
}

/* The reply, without asking the server. Nothing of the request may be read behind
 * this, because its client may have sent the next one. */
static void tell(const struct injection *it, const char *line)
{
	proxy_server_ask(
		it->proxy->server, line, it->reply == ENTRY_DROP ? 0 : strlen(line), ENTRY_TEXT, 0, it->gather);
}

static void ask(const struct injection *it, const struct resp_out *out)
{
	const struct server_question question = {.reply = it->reply};

	proxy_server_ask_noted(it->proxy->server, out, &question, it->gather);
}

/* Something that no client waits for. */
static void order(const struct injection *it, const char *verb, unsigned i)
{
	const struct server_question question = {.reply = ENTRY_DROP};
	struct resp_out out = {0};
	size_t bytes;
	const uint8_t *key = arg_of(it, i, &bytes);

	resp_out_raw(&out, verb, strlen(verb));
	resp_out_raw(&out, key, bytes);
	resp_out_raw(&out, "\r\n", 2);
	proxy_server_ask_noted(it->proxy->server, &out, &question, NULL);
	resp_out_free(&out);
}

/* The key as it is from here on. False: no memory, and the replica is over. */
static bool list_key(const struct injection *it, unsigned i, int64_t deadline)
{
	size_t bytes;
	const uint8_t *key = arg_of(it, i, &bytes);
	struct deadline *listed;

	proxy_set_deadline(it->proxy, key, bytes, deadline == NEVER ? DEADLINE_NEVER : deadline);
	listed = proxy_deadlines_get(&it->proxy->deadlines, key, bytes);
	if (listed != NULL)
		listed->unique = it->unique;
	return listed != NULL && !it->proxy->failed;
}

static void forget_key(const struct injection *it, unsigned i)
{
	size_t bytes;
	const uint8_t *key = arg_of(it, i, &bytes);

	proxy_deadlines_drop(&it->proxy->deadlines, key, bytes);
	order(it, "delete ", i);
}

void proxy_memcached_put_set(struct resp_out *out, const char *verb, const uint8_t *key, size_t key_bytes,
	const uint8_t *flags, size_t flags_bytes, const uint8_t *data, size_t data_bytes)
{
	char length[NUMBER_BYTES];

	resp_out_raw(out, verb, strlen(verb));
	resp_out_raw(out, " ", 1);
	resp_out_raw(out, key, key_bytes);
	resp_out_raw(out, " ", 1);
	resp_out_raw(out, flags, flags_bytes);
	(void)snprintf(length, sizeof(length), " 0 %zu\r\n", data_bytes);
	resp_out_raw(out, length, strlen(length));
	resp_out_raw(out, data, data_bytes);
	resp_out_raw(out, "\r\n", 2);
}

static void store(const struct injection *it, const char *verb, unsigned data_at)
{
	size_t key_bytes, flags_bytes, data_bytes;
	const uint8_t *key = arg_of(it, 1, &key_bytes), *flags = arg_of(it, 2, &flags_bytes),
		      *data = arg_of(it, data_at, &data_bytes);
	struct resp_out out = {0};

	proxy_memcached_put_set(&out, verb, key, key_bytes, flags, flags_bytes, data, data_bytes);
	ask(it, &out);
	resp_out_free(&out);
}

static void inject_store(const struct injection *it, unsigned data_at)
{
	int64_t deadline = number_of(it, 3);

	if (deadline != AT_ONCE) {
		if (list_key(it, 1, deadline))
			store(it, "set", data_at);
		return;
	}
	if (find(it, 1) != NULL)
		forget_key(it, 1);
	tell(it, "STORED\r\n");
}

static void inject_cas(const struct injection *it)
{
	const struct deadline *listed = find(it, 1);
	uint64_t unique = 0;
	size_t bytes;
	const uint8_t *text = arg_of(it, 4, &bytes);

	if (listed == NULL)
		tell(it, "NOT_FOUND\r\n");
	else if (!proxy_text_unsigned(text, bytes, &unique) || unique != listed->unique)
		tell(it, "EXISTS\r\n");
	else
		inject_store(it, 5);
}

/* What there is gets more: the deadline stays. */
static void inject_append(const struct injection *it, const char *verb)
{
	struct deadline *listed = find(it, 1);

	if (listed == NULL) {
		tell(it, "NOT_STORED\r\n");
		return;
	}
	listed->unique = it->unique;
	store(it, verb, 4);
}

/* A number that becomes shorter gets blanks behind it, unless something else holds its item: a reply to a read, which
 * only one server has. An append of nothing makes an item that nothing holds, at every server. */
static void inject_count(const struct injection *it, const char *verb)
{
	const struct server_question unheard = {.reply = ENTRY_DROP};
	struct deadline *listed = find(it, 1);
	struct resp_out out = {0};
	size_t key_bytes, delta_bytes;
	const uint8_t *key = arg_of(it, 1, &key_bytes), *delta = arg_of(it, 2, &delta_bytes);

	if (listed == NULL) {
		tell(it, "NOT_FOUND\r\n");
		return;
	}
	listed->unique = it->unique;
	proxy_memcached_put_set(&out, "append", key, key_bytes, (const uint8_t *)"0", 1, (const uint8_t *)"", 0);
	proxy_server_ask_noted(it->proxy->server, &out, &unheard, NULL);
	out.bytes = 0;
	resp_out_raw(&out, verb, strlen(verb));
	resp_out_raw(&out, " ", 1);
	resp_out_raw(&out, key, key_bytes);
	resp_out_raw(&out, " ", 1);
	resp_out_raw(&out, delta, delta_bytes);
	resp_out_raw(&out, "\r\n", 2);
	ask(it, &out);
	resp_out_free(&out);
}

/* The key is there: it ends then. Its unique stays. */
static void touch(const struct injection *it, unsigned i, int64_t deadline)
{
	size_t bytes;
	const uint8_t *key = arg_of(it, i, &bytes);

	if (deadline == AT_ONCE)
		forget_key(it, i);
	else
		proxy_set_deadline(it->proxy, key, bytes, deadline == NEVER ? DEADLINE_NEVER : deadline);
}

static void inject_touch(const struct injection *it)
{
	if (find(it, 1) == NULL) {
		tell(it, "NOT_FOUND\r\n");
		return;
	}
	touch(it, 1, number_of(it, 2));
	tell(it, "TOUCHED\r\n");
}

static void inject_gat(const struct injection *it, bool uniques)
{
	if (it->request.count == 2)
		tell(it, "END\r\n");
	else
		proxy_memcached_ask_keys(it->proxy, &it->request, 2, uniques, it->reply, it->gather);
	for (unsigned i = 2; i < it->request.count; i++)
		if (find(it, i) != NULL)
			touch(it, i, number_of(it, 1));
}

static void flush(const struct injection *it)
{
	const char *line = it->proxy->protocol->flush;
	const struct resp_out out = {.data = (uint8_t *)(uintptr_t)line, .bytes = strlen(line)};

	proxy_deadlines_free(&it->proxy->deadlines);
	ask(it, &out);
}

/* One that is delayed is a key without a name: a later one takes its place. */
static void inject_flush(const struct injection *it)
{
	int64_t deadline = number_of(it, 1);

	if (deadline == AT_ONCE || deadline == NEVER) {
		flush(it);
		return;
	}
	proxy_set_deadline(it->proxy, it->request.data, 0, deadline);
	tell(it, "OK\r\n");
}

static void inject_due(const struct injection *it)
{
	const struct deadline *listed = find(it, 1);

	if (listed == NULL || listed->ms != number_of(it, 2))
		return;
	if (it->request.args[1].bytes == 0)
		flush(it);
	else
		forget_key(it, 1);
}

static bool is(const struct injection *it, const char *word, unsigned count)
{
	return it->request.count >= count && proxy_text_is_word(it->request.data, &it->request.args[0], word);
}

void proxy_memcached_inject(struct proxy *proxy, const struct entry_record *record, uint64_t time_ms, uint64_t unique,
	struct server_gather *gather)
{
	struct injection it = {.proxy = proxy, .reply = record->reply, .unique = unique, .gather = gather};
	struct resp_request request;
	size_t used;

	(void)time_ms;
	resp_request_init(&request, proxy->args, PROXY_ARGS_MAX, UINT32_MAX);
	if (record->bytes == 0 || record->data[0] != '*' ||
		resp_request_read(&request, (uint8_t *)(uintptr_t)record->data, record->bytes, &used) != RESP_WHOLE) {
		proxy_fail(proxy, "an entry of the log is damaged; run the same version at all members");
		return;
	}
	it.request = (struct command_args){.data = record->data, .args = proxy->args, .count = request.arg_count};
	if (is(&it, "set", 5) || (is(&it, "add", 5) && find(&it, 1) == NULL) ||
		(is(&it, "replace", 5) && find(&it, 1) != NULL))
		inject_store(&it, 4);
	else if (is(&it, "add", 5) || is(&it, "replace", 5))
		tell(&it, "NOT_STORED\r\n");
	else if (is(&it, "cas", 6))
		inject_cas(&it);
	else if (is(&it, "append", 5))
		inject_append(&it, "append");
	else if (is(&it, "prepend", 5))
		inject_append(&it, "prepend");
	else if (is(&it, "incr", 3))
		inject_count(&it, "incr");
	else if (is(&it, "decr", 3))
		inject_count(&it, "decr");
	else if (is(&it, "touch", 3))
		inject_touch(&it);
	else if (is(&it, "delete", 2) && find(&it, 1) == NULL)
		tell(&it, "NOT_FOUND\r\n");
	else if (is(&it, "delete", 2)) {
		forget_key(&it, 1);
		tell(&it, "DELETED\r\n"); /* last: a client that is answered is read from, into the same args */
	} else if (is(&it, "gat", 2))
		inject_gat(&it, false);
	else if (is(&it, "gats", 2))
		inject_gat(&it, true);
	else if (is(&it, "flush_all", 2))
		inject_flush(&it);
	else if (is(&it, "due", 3))
		inject_due(&it);
	else
		proxy_fail(proxy, "an entry of the log is damaged; run the same version at all members");
}

/* ---- reads ---- */

void proxy_memcached_ask_keys(struct proxy *proxy, const struct command_args *request, unsigned first, bool uniques,
	enum entry_reply reply, struct server_gather *gather)
{
	struct resp_out line = {0}, found = {0};
	struct server_question question = {.reply = reply};

	resp_out_raw(&line, uniques ? "gets" : "get", uniques ? 4 : 3);
	for (unsigned i = first; i < request->count; i++) {
		const uint8_t *key = request->data + request->args[i].at;
		size_t bytes = request->args[i].bytes;
		const struct deadline *listed = uniques ? proxy_deadlines_get(&proxy->deadlines, key, bytes) : NULL;

		resp_out_raw(&line, " ", 1);
		resp_out_raw(&line, key, bytes);
		if (listed != NULL)
			proxy_text_put_unique(&found, listed->unique, key, bytes);
	}
	resp_out_raw(&line, "\r\n", 2);
	line.failed |= found.failed;
	if (uniques && reply != ENTRY_DROP) {
		question.reply = ENTRY_GETS;
		question.note = found.data == NULL ? line.data : found.data;
		question.note_bytes = found.bytes;
	}
	proxy_server_ask_noted(proxy->server, &line, &question, gather);
	resp_out_free(&line);
	resp_out_free(&found);
}
