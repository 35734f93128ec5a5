/* The caller's requests: checked, resolved to buffers, and handed to a batch. */
#include "transfer/engine.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int hf_transfer_open_segment(
	struct hf_transfer *engine, struct hf_peer *node_peer, struct hf_segment **segment_out, struct hf_error *error)
{
	struct peer *peer = hf_channel_peer_context(engine->channel, node_peer);

	*segment_out = NULL;
	if (peer == NULL || peer->node_peer == NULL || peer->segment.view->incarnation == 0)
		return hf_error_set(
			error, -EAGAIN, "peer %s has not sent its registered buffers yet", hf_peer_name(node_peer));
	if (engine->fallback == HF_FALLBACK_REQUIRED && peer_transports(peer) < 2)
		return hf_error_set(error, -ENETUNREACH,
			"%u transports lead to peer %s and fallback is required, which needs two: give both ends "
			"another rail kind in common, or an address for tcp",
			peer_transports(peer), hf_peer_name(node_peer));
	peer->segment.opened = true;
	*segment_out = &peer->segment;
	return 0;
}

struct hf_segment *hf_transfer_segment(struct hf_transfer *engine, struct hf_peer *node_peer)
{
	struct hf_segment *segment;

	(void)hf_transfer_open_segment(engine, node_peer, &segment, NULL);
	return segment;
}

void hf_transfer_close_segment(struct hf_segment *segment)
{
	if (segment != &segment->peer->engine->own.self.segment)
		peer_close_segment(segment->peer);
}

struct hf_segment *hf_transfer_own_segment(struct hf_transfer *engine)
{
	return &engine->own.self.segment;
}

bool hf_segment_buffer(const struct hf_segment *segment, unsigned i, uint64_t *addr_out, uint64_t *bytes_out)
{
	if (i >= segment->view->count)
		return false;
	*addr_out = segment->view->buffers[i].addr;
	*bytes_out = segment->view->buffers[i].bytes;
	return true;
}

int hf_transfer_register(
	struct hf_transfer *engine, void *addr, uint64_t bytes, unsigned permission, struct hf_error *error)
{
	int rc = buffers_add(&engine->buffers, addr, bytes, permission, error);

	if (rc == 0)
		peers_tell_segment(engine);
	return rc;
}

int hf_transfer_unregister(struct hf_transfer *engine, void *addr,
	void (*done)(struct hf_transfer *engine, void *addr, void *context), void *context)
{
	struct buffer *buffer = buffers_at(&engine->buffers, addr);

	if (buffer == NULL)
		return -ENOENT;
	if (buffer->leaving)
		return -EALREADY;
	buffer->done = done;
	buffer->context = context;
	buffers_leave(&engine->buffers, buffer, hf_loop_now_ns(engine->loop));
	peers_tell_segment(engine);
	return 0;
}

static struct hf_transfer *engine_of(const struct hf_transfer_batch *batch)
{
	return container_of(batch_context(batch), struct hf_transfer, owners);
}

/* Slices are copied in any order: what one writes must not be another's source. */
static bool overlaps(const struct hf_transfer *engine, const struct hf_transfer_request *request)
{
	uintptr_t source = (uintptr_t)request->source;
	uint64_t apart =
		source < request->target_offset ? request->target_offset - source : source - request->target_offset;

	return request->segment == &engine->own.self.segment && apart < request->length;
}

static int resolve(const struct hf_transfer *engine, const struct hf_transfer_request *request, unsigned i,
	struct task_request *resolved_out, struct hf_error *error)
{
	struct buffer *local = buffers_holding(&engine->buffers, request->source, request->length);
	unsigned needed = request->opcode == HF_TRANSFER_WRITE ? HF_TRANSFER_REMOTE_WRITE : HF_TRANSFER_REMOTE_READ;
	unsigned permission;
	int remote = segment_buffer(request->segment, request->target_offset, request->length);

	if (request->length == 0)
		return hf_error_set(error, -EINVAL, "request %u: it has no bytes", i);
	if (local == NULL)
		return hf_error_set(error, -EINVAL,
			"request %u: no registered buffer holds its %llu bytes at %p; register it first", i,
			(unsigned long long)request->length, request->source);
	if (remote < 0)
		return hf_error_set(error, -EINVAL, "request %u: no buffer of the segment holds its target", i);
	if (overlaps(engine, request))
		return hf_error_set(error, -EINVAL, "request %u: its source and its target overlap", i);
	permission = request->segment->view->buffers[remote].permission;
	if ((permission & needed) == 0)
		return hf_error_set(
			error, -EINVAL, "request %u: the peer does not permit this access to that buffer", i);
	if (engine->rdma.lanes.confirm_writes && (permission & HF_TRANSFER_REMOTE_READ) == 0)
		return hf_error_set(error, -EINVAL,
			"request %u: confirm_writes reads WRITEs back, which the peer does not permit for that buffer",
			i);
	*resolved_out = (struct task_request){.opcode = request->opcode,
		.hint = request->hinted ? (uint8_t)request->hint : HF_TRANSPORTS,
		.source = request->source,
		.segment = request->segment,
		.offset = request->target_offset,
		.length = request->length,
		.deadline_ns = request->deadline_ns == 0 ? UINT64_MAX : request->deadline_ns,
		.local = local,
		.target = request->segment == &engine->own.self.segment
				  ? buffers_at(&engine->buffers,
					    (void *)(uintptr_t)request->segment->view->buffers[remote].addr)
				  : NULL,
		.remote = (uint32_t)remote};
	return 0;
}

enum hf_transport hf_transfer_resolve(
	const struct hf_transfer *engine, const struct hf_transfer_request *request, unsigned priority)
{
	const struct task_request resolved = {
		.hint = request->hinted ? (uint8_t)request->hint : HF_TRANSPORTS, .segment = request->segment};

	return owner_resolve(&engine->owners, &resolved, priority);
}

static int submit(struct hf_transfer_batch *batch, const struct task_request *resolved, unsigned n, unsigned *first_out,
	struct hf_error *error)
{
	int rc = batch_submit(batch, resolved, n, first_out);

	if (rc != 0)
		(void)hf_error_set(error, rc,
			rc == -ENOSPC ? "the batch has no room for %u tasks more" : "no memory for %u requests", n);
	return rc;
}

int hf_transfer_submit(struct hf_transfer_batch *batch, const struct hf_transfer_request *requests, unsigned n,
	unsigned *first_out, struct hf_error *error)
{
	const struct hf_transfer *engine = engine_of(batch);
	struct task_request *resolved = calloc(n, sizeof(*resolved));
	int rc = resolved == NULL ? hf_error_set(error, -ENOMEM, "no memory for %u requests", n) : 0;

	for (unsigned i = 0; rc == 0 && i < n; i++)
		rc = resolve(engine, &requests[i], i, &resolved[i], error);
	if (rc == 0)
		rc = submit(batch, resolved, n, first_out, error);
	batch_note_refusal(batch, rc != 0);
	free(resolved);
	return rc;
}

/* Fills `resolved` with those that are good, whose tasks have numbers from 0; returns how many. */
static unsigned resolve_each(const struct hf_transfer *engine, const struct hf_transfer_request *requests, unsigned n,
	struct task_request *resolved, int *tasks_out, struct hf_error *error)
{
	unsigned good = 0;

	for (unsigned i = 0; i < n; i++) {
		tasks_out[i] = resolve(engine, &requests[i], i, &resolved[good], good == i ? error : NULL);
		if (tasks_out[i] == 0)
			tasks_out[i] = (int)good++;
	}
	return good;
}

int hf_transfer_submit_each(struct hf_transfer_batch *batch, const struct hf_transfer_request *requests, unsigned n,
	int *tasks_out, struct hf_error *error)
{
	struct task_request *resolved = calloc(n, sizeof(*resolved));
	unsigned first = 0, good = 0;
	int rc = 0;

	if (resolved == NULL)
		rc = hf_error_set(error, -ENOMEM, "no memory for %u requests", n);
	else if ((good = resolve_each(engine_of(batch), requests, n, resolved, tasks_out, error)) > 0)
		rc = submit(batch, resolved, good, &first, error);
	batch_note_refusal(batch, rc != 0 || good < n);
	for (unsigned i = 0; i < n; i++)
		if (rc != 0)
			tasks_out[i] = rc;
		else if (tasks_out[i] >= 0)
			tasks_out[i] += (int)first;
	free(resolved);
	return rc;
}

int hf_transfer_batch_alloc(struct hf_transfer *engine, unsigned tasks,
	void (*idle)(struct hf_transfer_batch *batch, void *context), void *context,
	struct hf_transfer_batch **batch_out)
{
	int rc = batch_alloc(&engine->owners, tasks, engine->merge_requests, idle, context, batch_out);

	if (rc == 0)
		engine->batches++;
	return rc;
}

int hf_transfer_batch_free(struct hf_transfer_batch *batch)
{
	struct hf_transfer *engine = batch == NULL ? NULL : engine_of(batch);
	int rc = batch_free(batch);

	if (rc == 0 && engine != NULL)
		engine->batches--;
	return rc;
}

int hf_transfer_batch_notify(
	struct hf_transfer_batch *batch, struct hf_segment *segment, const void *data, size_t bytes)
{
	return batch_notify(batch, segment, data, bytes);
}

int hf_transfer_cancel(struct hf_transfer_batch *batch, unsigned task)
{
	return batch_cancel(batch, task);
}

int hf_transfer_task_status(
	const struct hf_transfer_batch *batch, unsigned task, enum hf_transfer_status *status_out, uint64_t *bytes_out)
{
	struct batch_task_status status;
	int rc = batch_task_status(batch, task, &status);

	if (rc != 0)
		return rc;
	*status_out = status.status;
	if (bytes_out != NULL)
		*bytes_out = status.bytes;
	return 0;
}

enum hf_transfer_status hf_transfer_batch_status(const struct hf_transfer_batch *batch)
{
	return batch_status(batch);
}

void hf_transfer_counters(const struct hf_transfer *engine, struct hf_transfer_counters *counters_out)
{
	*counters_out = (struct hf_transfer_counters){0};
	memcpy(counters_out->failovers, engine->owners.failovers, sizeof(counters_out->failovers));
	list_for_each (at, &engine->peers) {
		const struct peer *peer = container_of(at, struct peer, link);

		counters_out->tcp_bytes += peer->tcp.bytes;
		for (unsigned i = 0; i < HF_RAILS_MAX; i++)
			counters_out->rail_bytes[i] += peer->rails[0].lanes[i].bytes + peer->rails[1].lanes[i].bytes;
	}
}
