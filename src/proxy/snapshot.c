#include "proxy/snapshot.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proxy/stream.h"

#define SCAN_COUNT "512"

/* One at a time: SCAN, then DUMP and PEXPIRETIME of all that it found, then what that gave is read. */
struct proxy_snapshot {
	struct proxy *proxy;
	struct server_gather scan, dump;
	bool asked; /* a question is at the server */
	bool last;  /* SCAN has come to its end */
	bool ended; /* the end of the stream is in `out` */
	bool gone;  /* closed while a question was at the server */
	int failed;
	struct resp_out cursor; /* the next SCAN's */
	struct resp_out out;    /* of the stream */
	size_t read;            /* of out */
	uint32_t keys;
};

static void snapshot_free(struct proxy_snapshot *snapshot)
{
	resp_out_free(&snapshot->scan.out);
	resp_out_free(&snapshot->dump.out);
	resp_out_free(&snapshot->cursor);
	resp_out_free(&snapshot->out);
	free(snapshot);
}

static void give_up(struct proxy_snapshot *snapshot, int rc)
{
	struct proxy *proxy = snapshot->proxy;

	if (snapshot->failed == 0)
		snapshot->failed = rc;
	if (proxy->snapshot == snapshot) {
		proxy->snapshot = NULL;
		proxy_inject_held(proxy);
	}
}

void proxy_snapshot_abort(struct proxy *proxy)
{
	if (proxy->snapshot != NULL)
		give_up(proxy->snapshot, -ECANCELED);
}

void proxy_snapshot_free(struct proxy *proxy)
{
	if (proxy->snapshot != NULL)
		snapshot_free(proxy->snapshot);
	proxy->snapshot = NULL;
	proxy_restore_free(proxy);
}

/* ---- what the server answers ---- */

static bool answered(struct proxy_snapshot *snapshot)
{
	snapshot->asked = false;
	if (snapshot->gone) {
		snapshot_free(snapshot);
		return false;
	}
	return true;
}

static bool next(const struct resp_out *from, size_t *at, struct resp_element *element)
{
	size_t used;

	if (resp_element_read(from->data + *at, from->bytes - *at, element, &used) != RESP_WHOLE)
		return false;
	*at += used;
	return true;
}

/* The keys stand in scan.out; dump.out has DUMP and PEXPIRETIME of each, in their order. */
static bool write_keys(struct proxy_snapshot *snapshot)
{
	struct resp_element cursor, keys, key, value, deadline;
	size_t at = 0, from = 0;

	if (!next(&snapshot->scan.out, &at, &keys) || !next(&snapshot->scan.out, &at, &cursor) ||
		!next(&snapshot->scan.out, &at, &keys))
		return false;
	for (int64_t i = 0; i < keys.number; i++) {
		if (!next(&snapshot->scan.out, &at, &key) || !next(&snapshot->dump.out, &from, &value) ||
			!next(&snapshot->dump.out, &from, &deadline) || value.type != RESP_BULK ||
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
	struct proxy_snapshot *snapshot = container_of(gather, struct proxy_snapshot, dump);

	if (!answered(snapshot))
		return;
	if (snapshot->failed == 0 && (gather->out.failed || !write_keys(snapshot)))
		give_up(snapshot, -EIO);
	gather->out.bytes = snapshot->scan.out.bytes = 0;
}

static void ask_dump(struct proxy_snapshot *snapshot, const struct resp_element *key, struct resp_out *out)
{
	struct proxy_server *server = snapshot->proxy->server;

	out->bytes = 0;
	resp_out_array(out, 2);
	resp_out_text(out, "DUMP");
	resp_out_bulk(out, key->text, key->bytes);
	proxy_server_ask(server, out->data, out->failed ? 0 : out->bytes, ENTRY_PLAIN, 0, &snapshot->dump);
	out->bytes = 0;
	proxy_rewrite_ask_deadline(out, key->text, key->bytes);
	proxy_server_ask(server, out->data, out->failed ? 0 : out->bytes, ENTRY_PLAIN, 0, &snapshot->dump);
}

static void scanned(struct server_gather *gather)
{
	struct proxy_snapshot *snapshot = container_of(gather, struct proxy_snapshot, scan);
	struct resp_element all, cursor, keys, key;
	struct resp_out out = {0};
	size_t at = 0;

	if (!answered(snapshot) || snapshot->failed != 0)
		return;
	if (gather->out.failed || !next(&gather->out, &at, &all) || all.type != RESP_ARRAY ||
		!next(&gather->out, &at, &cursor) || !next(&gather->out, &at, &keys) || keys.type != RESP_ARRAY) {
		give_up(snapshot, -EIO);
		return;
	}
	snapshot->last = cursor.bytes == 1 && cursor.text[0] == '0';
	snapshot->cursor.bytes = 0;
	resp_out_raw(&snapshot->cursor, cursor.text, cursor.bytes);
	if (keys.number == 0)
		return;
	snapshot->dump.left = (unsigned)keys.number * 2;
	snapshot->dump.done = dumped;
	snapshot->asked = true;
	while (next(&gather->out, &at, &key))
		ask_dump(snapshot, &key, &out);
	resp_out_free(&out);
}

static void ask_scan(struct proxy_snapshot *snapshot)
{
	struct resp_out out = {0};

	resp_out_array(&out, 4);
	resp_out_text(&out, "SCAN");
	resp_out_bulk(&out, snapshot->cursor.data, snapshot->cursor.bytes);
	resp_out_text(&out, "COUNT");
	resp_out_text(&out, SCAN_COUNT);
	snapshot->scan.out.bytes = 0;
	snapshot->scan.left = 1;
	snapshot->scan.done = scanned;
	snapshot->asked = true;
	proxy_server_ask(
		snapshot->proxy->server, out.data, out.failed ? 0 : out.bytes, ENTRY_PLAIN, 0, &snapshot->scan);
	resp_out_free(&out);
}

/* ---- struct hf_smr_app ---- */

int proxy_snapshot_open(void *context, void **snapshot_out)
{
	struct proxy *proxy = context;
	struct proxy_snapshot *snapshot;

	if (proxy->snapshot != NULL || proxy->restore != NULL)
		return -EBUSY;
	snapshot = calloc(1, sizeof(*snapshot));
	if (snapshot == NULL)
		return -ENOMEM;
	proxy_stream_begin(&snapshot->out);
	resp_out_raw(&snapshot->cursor, "0", 1);
	snapshot->proxy = proxy;
	proxy->snapshot = snapshot;
	*snapshot_out = snapshot;
	return 0;
}

ssize_t proxy_snapshot_read(void *context, void *handle, void *data, size_t bytes)
{
	struct proxy_snapshot *snapshot = handle;
	size_t left = snapshot->out.bytes - snapshot->read;

	(void)context;
	if (snapshot->failed != 0)
		return snapshot->failed;
	if (left == 0) {
		snapshot->out.bytes = snapshot->read = 0;
		if (snapshot->asked)
			return -EAGAIN;
		if (snapshot->ended)
			return 0;
		if (!snapshot->last) {
			ask_scan(snapshot);
			return -EAGAIN;
		}
		proxy_stream_end(&snapshot->out, snapshot->keys);
		snapshot->ended = true;
		left = snapshot->out.bytes;
	}
	if (snapshot->out.failed)
		return -ENOMEM;
	if (bytes > left)
		bytes = left;
	memcpy(data, snapshot->out.data + snapshot->read, bytes);
	snapshot->read += bytes;
	return (ssize_t)bytes;
}

void proxy_snapshot_close(void *context, void *handle)
{
	struct proxy_snapshot *snapshot = handle;

	(void)context;
	give_up(snapshot, -ECANCELED);
	if (snapshot->asked)
		snapshot->gone = true;
	else
		snapshot_free(snapshot);
}
