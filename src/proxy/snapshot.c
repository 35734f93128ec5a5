#include "proxy/snapshot.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proxy/stream.h"

static void snapshot_free(struct proxy_snapshot *snapshot)
{
	resp_out_free(&snapshot->found.out);
	resp_out_free(&snapshot->values.out);
	resp_out_free(&snapshot->cursor);
	resp_out_free(&snapshot->tail);
	resp_out_free(&snapshot->out);
	free(snapshot);
}

void proxy_snapshot_fail(struct proxy_snapshot *snapshot, int rc)
{
	struct proxy *proxy = snapshot->proxy;

	if (snapshot->failed == 0)
		snapshot->failed = rc;
	if (proxy->snapshot == snapshot) {
		proxy->snapshot = NULL;
		proxy_give_held(proxy);
	}
}

void proxy_snapshot_abort(struct proxy *proxy)
{
	if (proxy->snapshot != NULL)
		proxy_snapshot_fail(proxy->snapshot, -ECANCELED);
}

void proxy_snapshot_free(struct proxy *proxy)
{
	if (proxy->snapshot != NULL)
		snapshot_free(proxy->snapshot);
	proxy->snapshot = NULL;
	proxy_restore_free(proxy);
}

/* ---- what the server answers ---- */

bool proxy_snapshot_answered(struct proxy_snapshot *snapshot)
{
	snapshot->asked = false;
	if (snapshot->gone) {
		snapshot_free(snapshot);
		return false;
	}
	return true;
}

/* ---- struct hf_smr_app ---- */

int proxy_snapshot_open(void *context, void **snapshot_out)
{
	struct proxy *proxy = context;
	struct proxy_snapshot *snapshot;

	if (proxy->snapshot != NULL || proxy_may_give(proxy) || proxy->restore != NULL)
		return -EBUSY;
	snapshot = calloc(1, sizeof(*snapshot));
	if (snapshot == NULL)
		return -ENOMEM;
	proxy_stream_begin(&snapshot->out, proxy->protocol->server);
	snapshot->entries = proxy_put_held(proxy, &snapshot->tail);
	snapshot->proxy = proxy;
	proxy->snapshot = snapshot;
	*snapshot_out = snapshot;
	return 0;
}

ssize_t proxy_snapshot_read(void *context, void *handle, void *data, size_t bytes)
{
	struct proxy_snapshot *snapshot = handle;
	struct proxy *proxy = context;
	size_t left = snapshot->out.bytes - snapshot->read;

	if (snapshot->failed != 0)
		return snapshot->failed;
	if (left == 0) {
		snapshot->out.bytes = snapshot->read = 0;
		if (snapshot->asked)
			return -EAGAIN;
		if (snapshot->ended)
			return 0;
		if (!snapshot->last) {
			proxy->protocol->snapshot_more(snapshot);
			return -EAGAIN;
		}
		resp_out_raw(&snapshot->out, snapshot->tail.data, snapshot->tail.bytes);
		snapshot->out.failed |= snapshot->tail.failed;
		proxy_stream_end(&snapshot->out, snapshot->keys + snapshot->entries);
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
	proxy_snapshot_fail(snapshot, -ECANCELED);
	if (snapshot->asked)
		snapshot->gone = true;
	else
		snapshot_free(snapshot);
}
