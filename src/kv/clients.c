#include "kv/clients.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "base/log.h"

#define READ_BYTES     (64u << 10)
#define KEPT_OUT_BYTES 4096u /* of an empty buffer of replies */

struct clients {
	struct hf_kv *kv;
	struct hf_io *listener;
	struct hf_watch watch;
	struct list all, dirty, slow; /* slow: dirty ones whose last request was costly */
	uint8_t *spare;               /* a buffer of READ_BYTES; NULL: in use */
	struct clients_counts counts;
	uint64_t ids, turn;
	struct log_limit full_log, evicted_log, http_log;
};

struct hf_kv *kv_clients_kv(const struct clients *clients)
{
	return clients->kv;
}

struct clients_counts kv_clients_count(const struct clients *clients)
{
	return clients->counts;
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
	clients->counts.buffered -= client->buffered;
	clients->counts.now--;
	free(client);
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
	if (client->out.bytes == 0 && client->out.room > KEPT_OUT_BYTES && !client->out.failed)
		resp_out_free(&client->out);
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

/* The client is to take replies before anything goes on. */
static bool is_untaken(const struct client *client)
{
	return client->out.bytes >= CLIENT_OUT_BYTES;
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
	kv_flows_hold(client->flow, is_untaken(client));
	kv_clients_set_dirty(client);
}

/* ---- its requests ---- */

static size_t unparsed_bytes(const struct client *client)
{
	return client->in_bytes - client->in_from;
}

static uint8_t *take_spare(struct clients *clients)
{
	uint8_t *spare = clients->spare == NULL ? malloc(READ_BYTES) : clients->spare;

	clients->spare = NULL;
	return spare;
}

/* A client between two requests has no buffer: there are many. */
static void leave_in(struct client *client)
{
	struct clients *clients = client->clients;

	client->in_from = client->in_bytes = 0;
	if (client->in_room == READ_BYTES && clients->spare == NULL)
		clients->spare = client->in;
	else
		free(client->in);
	client->in = NULL;
	client->in_room = 0;
}

/* Makes room behind what is read. Moving it to the front costs less than what was taken from there. */
static int make_room(struct client *client)
{
	size_t left = unparsed_bytes(client), room = 2 * client->in_room;
	uint8_t *in;

	if (client->in == NULL) {
		client->in = take_spare(client->clients);
		client->in_room = client->in == NULL ? 0 : READ_BYTES;
		return client->in == NULL ? -ENOMEM : 0;
	}
	if (client->in_room - client->in_bytes >= READ_BYTES / 2)
		return 0;
	if (client->in_from >= client->in_room / 2) {
		memmove(client->in, client->in + client->in_from, left);
		client->in_from = 0;
		client->in_bytes = left;
		return 0;
	}
	in = realloc(client->in, room);
	if (in == NULL)
		return -ENOMEM;
	client->in = in;
	client->in_room = room;
	return 0;
}

/* Begins the next request. False: it is not whole, it waits, or there is none after it. */
static bool client_take(struct client *client)
{
	uint8_t *at = client->in + client->in_from;
	size_t used = client->held;
	enum resp_outcome outcome = RESP_WHOLE;

	if (used == 0)
		outcome = resp_request_read(&client->request, at, unparsed_bytes(client), &used);
	client->held = 0;
	if (outcome == RESP_MORE)
		return false;
	if (outcome == RESP_REFUSED) {
		resp_out_error(kv_commands_out(client), "%s", client->request.error);
		client->quitting = true;
		return false;
	}
	if (client->request.arg_count > 0 && !kv_commands_run(client, at)) {
		client->held = used;
		return false;
	}
	client->in_from += used;
	client->clients->counts.commands += client->request.arg_count > 0;
	return true;
}

static void client_parse(struct client *client)
{
	size_t begun_at = client->in_from;

	client->due = false;
	while (!client->quitting && !client->broken && !client_is_full(client) && unparsed_bytes(client) > 0) {
		if (client->in_from - begun_at >= CLIENT_TURN_BYTES || client->costly) {
			client->due = true;
			break;
		}
		if (!client_take(client))
			break;
	}
	client->slow = client->costly;
	client->costly = false;
	if (client->in != NULL && unparsed_bytes(client) == 0)
		leave_in(client);
}

/* 0; -errno: the connection is over. */
static int client_read(struct client *client)
{
	int rc = make_room(client);
	ssize_t n;

	if (rc != 0)
		return rc;
	n = hf_stream_read(client->io, client->in + client->in_bytes, client->in_room - client->in_bytes);
	if (n > 0) {
		client->in_bytes += (size_t)n;
		client->due = true;
	} else if (client->in_bytes == 0) {
		leave_in(client);
	}
	if (n == -EAGAIN)
		return 0;
	return n > 0 ? 0 : n == 0 ? -EPIPE : (int)n;
}

static void count_buffers(struct client *client)
{
	size_t bytes = client->in_room + client->out.room + client->rows.room + client->scan_from.room +
		       client->behind_bytes + client->pending_bytes + client->pending_count * sizeof(struct pending);

	client->clients->counts.buffered += bytes - client->buffered;
	client->buffered = bytes;
}

/* The one whose buffers are the largest is closed, as by Redis with maxmemory-clients. */
static void evict(struct clients *clients)
{
	struct client *largest = NULL;
	char text[HF_ADDR_TEXT];
	uint64_t left_out;

	list_for_each (at, &clients->all) {
		struct client *client = container_of(at, struct client, node);

		if (largest == NULL || client->buffered > largest->buffered)
			largest = client;
	}
	ensure(largest != NULL);
	if (log_limit_allows(&clients->evicted_log, hf_loop_now_ns(clients->kv->loop), &left_out))
		log_warn("kv: the buffers of clients exceed clients_mb, %u MiB; the client from %s is closed, whose "
			 "buffers are the largest with %zu bytes; it sends more than it reads (%llu lines suppressed)",
			clients->kv->config.clients_mb, hf_addr_format(&largest->remote, text), largest->buffered,
			(unsigned long long)left_out);
	client_close(largest);
	clients->counts.evicted++;
}

void kv_clients_refuse_http(struct client *client)
{
	struct clients *clients = client->clients;
	char text[HF_ADDR_TEXT];
	uint64_t left_out;

	if (log_limit_allows(&clients->http_log, hf_loop_now_ns(clients->kv->loop), &left_out))
		log_warn("kv: a client from %s sends HTTP, and is closed; it may be a browser that a web page "
			 "misleads, or a program that is given this port in place of that of `http` (%llu lines "
			 "suppressed)",
			hf_addr_format(&client->remote, text), (unsigned long long)left_out);
	resp_out_error(kv_commands_out(client), "ERR this is no HTTP server");
	client->quitting = true;
}

/* It is read from while its requests can begin, or while replies wait for it: it may be about to read them. */
static bool wants_more(const struct client *client)
{
	if (client->quitting || client->broken)
		return false;
	return is_untaken(client) || (!client_is_full(client) && client->held == 0);
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
	kv_flows_hold(client->flow, is_untaken(client));
	count_buffers(client);
	if (client->out.bytes > 0)
		wanted |= HF_WRITABLE;
	if (wants_more(client))
		wanted |= HF_READABLE;
	if (client->watch.wanted != wanted)
		hf_loop_watch(client->clients->kv->loop, &client->watch, client->io, wanted);
	if ((was_full || client->due || (client->held > 0 && client->pending_count == 0)) &&
		unparsed_bytes(client) > 0 && !client_is_full(client))
		kv_clients_set_dirty(client); /* what was read, and left, is due */
	return true;
}

static void client_ready(struct hf_watch *watch, unsigned ready)
{
	struct client *client = container_of(watch, struct client, watch);

	bool reads = (ready & watch->wanted & HF_READABLE) != 0 && (!client->due || is_untaken(client));

	if (reads && client_read(client) != 0)
		client_close(client);
	else
		kv_clients_set_dirty(client);
}

static void client_stuck(struct hf_timer *timer, uint64_t now_ns)
{
	(void)now_ns;
	client_close(container_of(timer, struct client, timer));
}

static void client_open(struct clients *clients, struct hf_io *io, const struct hf_addr *remote)
{
	struct client *client = calloc(1, sizeof(*client));

	if (client == NULL) {
		hf_io_close(io);
		return;
	}
	client->clients = clients;
	client->io = io;
	client->remote = *remote;
	client->watch.ready = client_ready;
	client->timer.fire = client_stuck;
	client->id = ++clients->ids;
	client->flow = hf_kv_flow_open(clients->kv);
	list_init(&client->pendings);
	list_init(&client->dirty);
	list_push_back(&clients->all, &client->node);
	clients->counts.now++;
	clients->counts.received++;
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
	uint64_t left_out;
	struct hf_io *io;

	(void)ready;
	if (hf_stream_accept(clients->listener, &io, &remote) != 0)
		return;
	if (clients->counts.now >= clients->kv->config.clients) {
		if (log_limit_allows(&clients->full_log, hf_loop_now_ns(clients->kv->loop), &left_out))
			log_warn("kv: %u clients are connected, and another one is refused; raise `clients` "
				 "(%llu lines suppressed)",
				clients->counts.now, (unsigned long long)left_out);
		(void)hf_stream_write(io, full, sizeof(full) - 1);
		hf_io_close(io);
		clients->counts.refused++;
		return;
	}
	client_open(clients, io, &remote);
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
	clients->counts.opened_ns = hf_env_boot_ns(kv->env);
	clients->watch.ready = listener_ready;
	list_init(&clients->all);
	list_init(&clients->dirty);
	list_init(&clients->slow);
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
	free(clients->spare);
	free(clients);
}

static void serve(struct clients *clients, struct list *dirty, uint64_t until_ns)
{
	while (!list_empty(dirty)) {
		struct client *client = container_of(dirty->next, struct client, dirty);

		if (client->turn == clients->turn)
			break; /* it has had its share, and the others too */
		client->turn = clients->turn;
		client_parse(client);
		(void)client_settle(client);
		if (hf_env_now_ns(clients->kv->env) >= until_ns)
			break;
	}
}

bool kv_clients_turn(struct clients *clients)
{
	uint64_t until_ns;

	if (clients == NULL || (list_empty(&clients->dirty) && list_empty(&clients->slow)))
		return false;
	until_ns = hf_env_now_ns(clients->kv->env) + CLIENTS_TURN_NS;
	clients->turn++;
	serve(clients, &clients->dirty, until_ns);
	serve(clients, &clients->slow, until_ns); /* one at least */
	while (clients->counts.buffered > (size_t)clients->kv->config.clients_mb << 20)
		evict(clients);
	return true;
}

int kv_clients_address(const struct clients *clients, struct hf_addr *address_out)
{
	return clients == NULL ? -ENOENT : hf_io_local(clients->listener, address_out);
}

void kv_clients_set_dirty(struct client *client)
{
	if (list_empty(&client->dirty)) /* it keeps its place */
		list_push_back(client->slow ? &client->clients->slow : &client->clients->dirty, &client->dirty);
}
