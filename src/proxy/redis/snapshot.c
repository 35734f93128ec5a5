#include "proxy/redis/snapshot.h"

#include <errno.h>

#include "proxy/redis/rewrite.h"

#define SCAN_COUNT "512"

static bool next(const struct resp_out *from, size_t *at, struct resp_element *element)
{
	size_t used;

	if (resp_element_read(from->data + *at, from->bytes - *at, element, &used) != RESP_WHOLE)
		return false;
	*at += used;
	return true;
}

/* The keys stand in found.out; values.out has DUMP and PEXPIRETIME of each, in their order. */
static bool write_keys(struct proxy_snapshot *snapshot)
{
	struct resp_element cursor, keys, key, value, deadline;
	size_t at = 0, from = 0;

	if (!next(&snapshot->found.out, &at, &keys) || !next(&snapshot->found.out, &at, &cursor) ||
		!next(&snapshot->found.out, &at, &keys))
		return false;
	for (int64_t i = 0; i < keys.number; i++) {
		if (!next(&snapshot->found.out, &at, &key) || !next(&snapshot->values.out, &from, &value) ||
			!next(&snapshot->values.out, &from, &deadline) || value.type != RESP_BULK ||
			deadline.type != RESP_INTEGER)
			return false;
		proxy_stream_put(&snapshot->out, &(struct stream_key){.key = key.text,
							 .key_bytes = (uint32_t)key.bytes,
							 .value = value.text,
							 .value_bytes = (uint32_t)value.bytes,
							 .deadline_ms = deadline.number});
		snapshot->keys++;
	}
	return !snapshot->out.failed;
}

static void dumped(struct server_gather *gather)
{
	struct proxy_snapshot *snapshot = container_of(gather, struct proxy_snapshot, values);

	if (!proxy_snapshot_answered(snapshot))
		return;
	if (snapshot->failed == 0 && (gather->out.failed || !write_keys(snapshot)))
		proxy_snapshot_fail(snapshot, -EIO);
	gather->out.bytes = snapshot->found.out.bytes = 0;
}

static void ask_dump(struct proxy_snapshot *snapshot, const struct resp_element *key, struct resp_out *out)
{
	struct proxy_server *server = snapshot->proxy->server;

	out->bytes = 0;
	resp_out_array(out, 2);
	resp_out_text(out, "DUMP");
	resp_out_bulk(out, key->text, key->bytes);
	proxy_server_ask(server, out->data, out->failed ? 0 : out->bytes, ENTRY_PLAIN, 0, &snapshot->values);
	out->bytes = 0;
	proxy_rewrite_ask_deadline(out, key->text, key->bytes);
	proxy_server_ask(server, out->data, out->failed ? 0 : out->bytes, ENTRY_PLAIN, 0, &snapshot->values);
}

static void scanned(struct server_gather *gather)
{
	struct proxy_snapshot *snapshot = container_of(gather, struct proxy_snapshot, found);
	struct resp_element all, cursor, keys, key;
	struct resp_out out = {0};
	size_t at = 0;

	if (!proxy_snapshot_answered(snapshot) || snapshot->failed != 0)
		return;
	if (gather->out.failed || !next(&gather->out, &at, &all) || all.type != RESP_ARRAY ||
		!next(&gather->out, &at, &cursor) || !next(&gather->out, &at, &keys) || keys.type != RESP_ARRAY) {
		proxy_snapshot_fail(snapshot, -EIO);
		return;
	}
	snapshot->last = cursor.bytes == 1 && cursor.text[0] == '0';
	snapshot->cursor.bytes = 0;
	resp_out_raw(&snapshot->cursor, cursor.text, cursor.bytes);
	if (keys.number == 0)
		return;
	snapshot->values.left = (unsigned)keys.number * 2;
	snapshot->values.done = dumped;
	snapshot->asked = true;
	while (next(&gather->out, &at, &key))
		ask_dump(snapshot, &key, &out);
	resp_out_free(&out);
}

void proxy_redis_snapshot_more(struct proxy_snapshot *snapshot)
{
	struct resp_out out = {0};

	resp_out_array(&out, 4);
	resp_out_text(&out, "SCAN");
	if (snapshot->cursor.bytes == 0)
		resp_out_text(&out, "0");
	else
		resp_out_bulk(&out, snapshot->cursor.data, snapshot->cursor.bytes);
	resp_out_text(&out, "COUNT");
	resp_out_text(&out, SCAN_COUNT);
	snapshot->found.out.bytes = 0;
	snapshot->found.left = 1;
	snapshot->found.done = scanned;
	snapshot->asked = true;
	proxy_server_ask(
		snapshot->proxy->server, out.data, out.failed ? 0 : out.bytes, ENTRY_PLAIN, 0, &snapshot->found);
	resp_out_free(&out);
}

/* ---- back ---- */

bool proxy_redis_restore(struct proxy *proxy, const struct stream_key *key, struct resp_out *command)
{
	resp_out_array(command, 6);
	resp_out_text(command, "RESTORE");
	resp_out_bulk(command, key->key, key->key_bytes);
	resp_out_decimal(command, key->deadline_ms < 0 ? 0 : key->deadline_ms);
	resp_out_bulk(command, key->value, key->value_bytes);
	resp_out_text(command, "ABSTTL");
	resp_out_text(command, "REPLACE"); /* SCAN may return a key twice */
	return key->deadline_ms < 0 ||
	       proxy_deadlines_set(&proxy->deadlines, key->key, key->key_bytes, key->deadline_ms) == 0;
}

/* +OK each, or an error somewhere. */
bool proxy_redis_restored(const uint8_t *replies, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		if (replies[i] == '-')
			return false;
	return true;
}
