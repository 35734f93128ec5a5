#include "kv/clients.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "base/log.h"

#define READ_BYTES (64u << 10)

struct clients {
	struct hf_kv *kv;
	struct hf_io *listener;
	struct hf_watch watch;
	struct list all, dirty;
	unsigned count;
	uint64_t ids;
};

struct hf_kv *kv_clients_kv(const struct clients *clients)
{
	return clients->kv;
}

unsigned kv_clients_count(const struct clients *clients)
{
	return clients->count;
}

/* ---- one client ---- */

static void client_close(struct client *client)
{
	struct clients *clients = client->clients;

	hf_kv_flow_close(client->flow);
	hf_loop_cancel_timer(clients->kv->loop, &client->timer);
	if (client->watch.loop != NULL)
		hf_loop_unwatch(&client->watch);
	hf_io_close(client->io);
	for (struct list *at; (at = list_pop_front(&client->pendings)) != NULL;) {
		struct pending *pending = container_of(at, struct pending, node);

		resp_out_free(&pending->after);
		free(pending);
	}
	list_remove(&client->node);
	list_remove(&client->dirty);
	resp_out_free(&client->out);
	resp_out_free(&client->rows);
	resp_out_free(&client->scan_from);
	free(client->in);
	free(client);
	clients->count--;
}

/* 0, or -errno: the connection is over. */
static int client_write(struct client *client)
{
	size_t sent = 0;

	while (sent < client->out.bytes) {
		ssize_t n = hf_stream_write(client->io, client->out.data + sent, client->out.bytes - sent);

		if (n == -EAGAIN)
			break;
		if (n <= 0)
			return n == 0 ? -EPIPE : (int)n;
		sent += (size_t)n;
	}
	resp_out_drop(&client->out, sent);
	if (client->out.bytes == 0)
		hf_loop_cancel_timer(client->clients->kv->loop, &client->timer);
	else if (sent > 0 || client->timer.heap_slot == 0)
		hf_loop_set_timer(client->clients->kv->loop, &client->timer,
			hf_loop_now_ns(client->clients->kv->loop) + CLIENT_STUCK_NS);
	return client->out.failed ? -ENOMEM : 0;
}

static size_t unsent_bytes(const struct client *client)
{
	size_t bytes = client->out.bytes + client->behind_bytes;

	if (!list_empty(&client->pendings))
		bytes += container_of(client->pendings.prev, struct pending, node)->after.bytes;
	return bytes;
}

static bool client_is_full(const struct client *client)
{
	return client->pending_count >= CLIENT_PENDING_MAX || client->pending_bytes >= CLIENT_REQUEST_BYTES ||
	       unsent_bytes(client) >= CLIENT_OUT_BYTES;
}

static size_t pending_bytes(const struct pending *pending)
{
	return (size_t)pending->op.key_bytes + pending->op.value_bytes;
}

void kv_clients_add(struct client *client, struct pending *pending)
{
	if (!list_empty(&client->pendings))
		client->behind_bytes += container_of(client->pendings.prev, struct pending, node)->after.bytes;
	list_push_back(&client->pendings, &pending->node);
	client->pending_count++;
	client->pending_bytes += pending_bytes(pending);
}

void kv_clients_remove(struct client *client, struct pending *pending)
{
	bool last = client->pendings.prev == &pending->node;

	list_remove(&pending->node);
	if (!last)
		client->behind_bytes -= pending->after.bytes;
	else if (!list_empty(&client->pendings))
		client->behind_bytes -= container_of(client->pendings.prev, struct pending, node)->after.bytes;
	client->pending_count--;
	client->pending_bytes -= pending_bytes(pending);
	resp_out_free(&pending->after);
	free(pending);
	kv_flows_hold(client->flow, client->out.bytes >= CLIENT_OUT_BYTES);
	kv_clients_set_dirty(client);
}

/* What a large request took is given back. */
static void shrink_in(struct client *client)
{
	if (client->in_bytes > 0 || client->in_room <= READ_BYTES)
		return;
	free(client->in);
	client->in = NULL;
	client->in_room = 0;
}

static void client_parse(struct client *client)
{
	size_t from = 0, used;

	while (!client->quitting && !client->broken && !client_is_full(client) && from < client->in_bytes) {
		enum resp_outcome outcome = RESP_WHOLE;

		used = client->held;
		if (used == 0)
			outcome =
				resp_request_read(&client->request, client->in + from, client->in_bytes - from, &used);
		client->held = 0;
		if (outcome == RESP_MORE)
			break;
		if (outcome == RESP_REFUSED) {
			resp_out_error(kv_commands_out(client), "%s", client->request.error);
			client->quitting = true;
			break;
		}
		if (client->request.arg_count > 0 && !kv_commands_run(client, client->in + from)) {
			client->held = used;
			break;
		}
		from += used;
	}
	if (from > 0)
		memmove(client->in, client->in + from, client->in_bytes - from);
	client->in_bytes -= from;
	shrink_in(client);
}

/* 0; -errno: the connection is over. */
static int client_read(struct client *client)
{
	ssize_t n;

	if (client->in_room - client->in_bytes < READ_BYTES / 2) {
		size_t room = client->in_room == 0 ? READ_BYTES : 2 * client->in_room;
		uint8_t *in = realloc(client->in, room);

		if (in == NULL)
			return -ENOMEM;
		client->in = in;
		client->in_room = room;
	}
	n = hf_stream_read(client->io, client->in + client->in_bytes, client->in_room - client->in_bytes);
	if (n == -EAGAIN)
		return 0;
	if (n <= 0)
		return n == 0 ? -EPIPE : (int)n;
	client->in_bytes += (size_t)n;
	client_parse(client);
	return 0;
}

/* False: it is closed. */
static bool client_settle(struct client *client)
{
	bool was_full = client_is_full(client);
	unsigned wanted = 0;

	list_remove(&client->dirty);
	if (client_write(client) != 0 || ((client->quitting || client->broken) && client->out.bytes == 0 &&
						 (client->broken || client->pending_count == 0))) {
		client_close(client);
		return false;
	}
	kv_flows_hold(client->flow, client->out.bytes >= CLIENT_OUT_BYTES);
	if (client->out.bytes > 0)
		wanted |= HF_WRITABLE;
	if (!client->quitting && !client->broken && !client_is_full(client) && client->held == 0)
		wanted |= HF_READABLE;
	if (client->watch.wanted != wanted)
		hf_loop_watch(client->clients->kv->loop, &client->watch, client->io, wanted);
	if ((was_full || (client->held > 0 && client->pending_count == 0)) && client->in_bytes > 0 &&
		!client_is_full(client))
		kv_clients_set_dirty(client); /* what was read, and left, is due */
	return true;
}

static void client_ready(struct hf_watch *watch, unsigned ready)
{
	struct client *client = container_of(watch, struct client, watch);

	if ((ready & HF_READABLE) != 0 && (watch->wanted & HF_READABLE) != 0 && client_read(client) != 0) {
		client_close(client);
		return;
	}
	(void)client_settle(client);
}

static void client_stuck(struct hf_timer *timer, uint64_t now_ns)
{
	(void)now_ns;
	client_close(container_of(timer, struct client, timer));
}

static void client_open(struct clients *clients, struct hf_io *io)
{
	struct client *client = calloc(1, sizeof(*client));

	if (client == NULL) {
		hf_io_close(io);
		return;
	}
	*client = (struct client){.clients = clients,
		.io = io,
		.watch = {.ready = client_ready},
		.timer = {.fire = client_stuck},
		.id = ++clients->ids,
		.flow = hf_kv_flow_open(clients->kv)};
	list_init(&client->pendings);
	list_init(&client->dirty);
	list_push_back(&clients->all, &client->node);
	clients->count++;
	resp_request_init(&client->request, client->args, CLIENT_ARGS_MAX, CLIENT_REQUEST_BYTES);
	if (client->flow == NULL || hf_loop_watch(clients->kv->loop, &client->watch, io, HF_READABLE) != 0)
		client_close(client);
}

/* ---- all of them ---- */

static void listener_ready(struct hf_watch *watch, unsigned ready)
{
	static const char full[] = "-ERR max number of clients reached\r\n";
	struct clients *clients = container_of(watch, struct clients, watch);
	struct hf_addr remote;
	struct hf_io *io;

	(void)ready;
	if (hf_stream_accept(clients->listener, &io, &remote) != 0)
		return;
	if (clients->count == CLIENTS_MAX) {
		(void)hf_stream_write(io, full, sizeof(full) - 1);
		hf_io_close(io);
		return;
	}
	client_open(clients, io);
}

int kv_clients_open(
	struct hf_kv *kv, const struct hf_addr *address, struct clients **clients_out, struct hf_error *error)
{
	struct clients *clients = calloc(1, sizeof(*clients));
	int rc;

	*clients_out = NULL;
	if (clients == NULL)
		return hf_error_set(error, -ENOMEM, "no memory for clients");
	clients->kv = kv;
	clients->watch.ready = listener_ready;
	list_init(&clients->all);
	list_init(&clients->dirty);
	rc = hf_stream_listen(kv->env, address, &clients->listener, error);
	if (rc == 0) {
		rc = hf_loop_watch(kv->loop, &clients->watch, clients->listener, HF_READABLE);
		if (rc != 0)
			(void)hf_error_set(error, rc, "kv: cannot watch the listener: %s", strerror(-rc));
	}
	if (rc != 0) {
		kv_clients_close(clients);
		return rc;
	}
	*clients_out = clients;
	return 0;
}

void kv_clients_close(struct clients *clients)
{
	if (clients == NULL)
		return;
	while (!list_empty(&clients->all))
		client_close(container_of(clients->all.next, struct client, node));
	if (clients->watch.loop != NULL)
		hf_loop_unwatch(&clients->watch);
	hf_io_close(clients->listener);
	free(clients);
}

bool kv_clients_turn(struct clients *clients)
{
	struct list now;
	bool some = false;

	if (clients == NULL)
		return false;
	list_init(&now);
	for (struct list *at; (at = list_pop_front(&clients->dirty)) != NULL;)
		list_push_back(&now, at);
	for (struct list *at; (at = list_pop_front(&now)) != NULL; some = true) {
		struct client *client = container_of(at, struct client, dirty);

		client_parse(client); /* what was left because too much was under way */
		(void)client_settle(client);
	}
	return some;
}

int kv_clients_address(const struct clients *clients, struct hf_addr *address_out)
{
	return clients == NULL ? -ENOENT : hf_io_local(clients->listener, address_out);
}

void kv_clients_set_dirty(struct client *client)
{
	list_remove(&client->dirty);
	list_push_back(&client->clients->dirty, &client->dirty);
}
