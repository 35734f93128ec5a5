/* Bytes of a client in, runs of commands out to the leader, replies back in order. */
#include "proxy/client.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/ensure.h"
#include "base/log.h"
#include "proxy/redis/rewrite.h"

#define READ_BYTES     16384u
#define OUT_BYTES_MOST (1u << 20)   /* a client that does not take its replies is not read from */
#define RUN_COMMANDS   128u         /* that go together */
#define FORWARD_MOST   (960u << 10) /* bytes of a run: it fits a message to the leader */
#define DRAWS_MOST     1000u
#define TOO_LARGE      "ERR the command makes an entry that is too large for the log; send less at once"

static void client_turn(struct client *client);

static void count_buffers(struct client *client)
{
	size_t bytes = client->in.room + client->out.room + client->queue.room + client->run.raw.room;

	client->proxy->buffered += bytes - client->buffered;
	client->buffered = bytes;
}

static void client_free(struct client *client)
{
	client->proxy->client_count--;
	client->proxy->buffered -= client->buffered;
	list_remove(&client->node);
	list_remove(&client->run.node);
	list_remove(&client->open.node);
	hf_io_close(client->io);
	resp_out_free(&client->in);
	resp_out_free(&client->out);
	resp_out_free(&client->queue);
	proxy_run_free(&client->run);
	proxy_run_free(&client->open);
	free(client);
}

/* A run that is under way holds the struct until it is back; so long it counts as a client. */
static void client_close(struct client *client)
{
	if (client->io != NULL) {
		hf_io_close(client->io);
		client->io = NULL;
	}
	if (!client->running) {
		client_free(client);
		return;
	}
	resp_out_free(&client->in);
	resp_out_free(&client->out);
	client->read = client->sent = 0;
	count_buffers(client);
}

/* What a run may have: it fits an entry, and a message. */
static uint32_t run_bytes_max(const struct proxy *proxy)
{
	uint32_t most = proxy->smr == NULL ? FORWARD_MOST : hf_smr_request_bytes_max(proxy->smr);

	return (most < FORWARD_MOST ? most : FORWARD_MOST) - ENTRY_HEAD_BYTES;
}

/* ---- runs ---- */

static void put_errors(struct client *client, const char *words)
{
	unsigned n = client->run.kind == RUN_MULTI ? 1 : client->replies;

	for (unsigned i = 0; i < n; i++)
		client->proxy->protocol->put_error(&client->out, words);
}

static void submit(struct client *client);

/* The run is answered; the client goes on. */
static void run_over(struct client *client)
{
	client->proxy->commands_done += client->run.commands;
	client->running = false;
	client->run.commands = 0;
	client->run_bytes = 0;
	resp_out_free(&client->run.raw);
	if (client->submitting) /* client_turn, which submits it, goes on: a pipeline is no recursion */
		return;
	if (client->io == NULL)
		client_free(client);
	else
		client_turn(client);
}

static bool draw_again(struct client *client)
{
	const struct run *run = &client->run;

	return run->kind == RUN_DRAW && run->reply.bytes > sizeof(REWRITE_AGAIN) &&
	       memcmp(run->reply.data, REWRITE_AGAIN, sizeof(REWRITE_AGAIN) - 1) == 0 && ++client->draws < DRAWS_MOST;
}

/* A change of the members that the leader before may have made: the next one finds no such member, or finds it
 * there. */
static bool is_refused_again(const struct run *run)
{
	return run->kind == RUN_CHANGE && run->doubt && run->reply.bytes > 0 && run->reply.data[0] == '-';
}

static void run_routed(struct run *run)
{
	struct client *client = container_of(run, struct client, run);

	switch (run->status) {
	case RUN_ANSWERED:
		if (draw_again(client)) {
			submit(client);
			return;
		}
		if (is_refused_again(run))
			put_errors(client,
				"UNKNOWN the leader was lost; the change may have taken effect: holdfast smr status");
		else
			resp_out_raw(&client->out, run->reply.data, run->reply.bytes);
		break;
	case RUN_SESSION_OVER:
		client->session = 0;
		if (!run->doubt) {
			submit(client);
			return;
		}
		put_errors(client,
			"UNKNOWN the leader changed, and it is not known whether the write took effect: read first");
		break;
	case RUN_UNKNOWN:
		client->session = 0;
		put_errors(client,
			"UNKNOWN no leader answered in 30 s; the write may have taken effect, or may yet: read first");
		break;
	case RUN_NOT_LEADER:
		put_errors(client,
			"CLUSTERDOWN no leader was found in 30 s; nothing was written: a majority of the members "
			"has to run and to reach each other");
		break;
	case RUN_LOST:
		put_errors(client, "UNKNOWN the command took effect once, and its reply is lost: read instead");
		break;
	case RUN_TOO_LARGE:
		put_errors(client, TOO_LARGE);
		break;
	case RUN_ENDED:
		put_errors(client, "ERR the server of the leader ended while it had this command: it was not executed");
		break;
	case RUN_STATUSES:
		ensure(false);
	}
	run_over(client);
}

static void open_routed(struct run *run)
{
	struct client *client = container_of(run, struct client, open);

	if (run->status == RUN_ANSWERED && run->reply.bytes == sizeof(uint64_t)) {
		client->session = get_le64(run->reply.data);
		client->sequence = 0;
		submit(client);
		return;
	}
	client->run.status = RUN_NOT_LEADER;
	run_routed(&client->run);
}

static void submit(struct client *client)
{
	struct run *run = &client->run;

	client->running = true;
	if (run->raw.failed) {
		put_errors(client, "ERR the proxy has no memory for the command");
		run_over(client);
		return;
	}
	run->reply.bytes = 0;
	run->routed = run_routed;
	if (client->sequence == UINT32_MAX) /* the next one would close the session */
		client->session = 0;
	if (proxy_run_writes(run) && client->session == 0) {
		proxy_run_init(&client->open, client->proxy, RUN_OPEN);
		client->open.routed = open_routed;
		proxy_route(&client->open);
		return;
	}
	run->session = proxy_run_writes(run) ? client->session : 0;
	run->sequence = proxy_run_writes(run) ? ++client->sequence : 0;
	proxy_route(run);
}

void client_exec(struct client *client)
{
	struct resp_out raw = client->run.raw;

	proxy_run_init(&client->run, client->proxy, RUN_MULTI);
	client->run.raw = client->queue;
	client->run.commands = client->queued;
	client->queue = raw;
	client_discard(client);
}

/* Its own server answers. */
static void asked(struct server_gather *gather)
{
	struct run *run = container_of(gather, struct run, gather);
	struct client *client = container_of(run, struct client, run);

	resp_out_raw(&client->out, gather->out.data, gather->out.bytes);
	resp_out_free(&gather->out);
	run_over(client);
}

static void ask(struct client *client, const struct command *command, const struct command_args *request)
{
	struct run *run = &client->run;

	proxy_run_init(run, client->proxy, RUN_READ);
	run->commands = client->replies = 1;
	run->gather = (struct server_gather){.left = 1, .done = asked};
	client->running = true;
	client->proxy->protocol->ask(client->proxy, command, request, 0, &run->gather);
}

/* ---- requests ---- */

/* "METHOD /path HTTP/1.1", from a browser that a web page misleads: the lines behind it would be executed. */
static bool is_http(const struct command_args *request)
{
	const struct resp_arg *args = request->args;

	return request->data[0] != '*' && request->count == 3 && args[1].bytes > 0 && args[2].bytes > 5 &&
	       request->data[args[1].at] == '/' && memcmp(request->data + args[2].at, "HTTP/", 5) == 0;
}

static void refuse_http(struct client *client)
{
	struct proxy *proxy = client->proxy;
	char text[HF_ADDR_TEXT];
	uint64_t left_out;

	if (log_limit_allows(&proxy->http_log, hf_loop_now_ns(proxy->loop), &left_out))
		log_warn("proxy: a client from %s sends HTTP, and is closed; it may be a browser that a web page "
			 "misleads, or a program that is given this port in place of that of `http` (%llu lines "
			 "suppressed)",
			hf_addr_format(&client->remote, text), (unsigned long long)left_out);
	(void)snprintf(client->refusal, sizeof(client->refusal), "ERR this is no HTTP server");
}

/* A refusal, in its turn. */
static enum client_taken refuse(struct client *client, const char *words)
{
	if (client->run.commands > 0)
		return CLIENT_LATER;
	client->proxy->protocol->put_error(&client->out, words);
	client->multi_bad |= client->multi;
	return CLIENT_TAKEN;
}

static enum client_taken join(
	struct client *client, enum run_kind kind, const struct command *command, const struct command_args *request)
{
	struct run *run = &client->run;
	size_t bytes = client->proxy->protocol->entry_bytes(command, request);

	if (run->commands > 0 &&
		(run->kind != kind || kind == RUN_DRAW || kind == RUN_CHANGE || run->commands == RUN_COMMANDS ||
			client->run_bytes + bytes > run_bytes_max(client->proxy)))
		return CLIENT_LATER;
	if (run->commands == 0) {
		if (bytes > run_bytes_max(client->proxy)) /* nor would the key fit when it is due */
			return client->proxy->protocol->wants_reply(command, request) ? refuse(client, TOO_LARGE)
										      : CLIENT_TAKEN;
		proxy_run_init(run, client->proxy, kind);
		client->draws = client->replies = 0;
	}
	proxy_command_append(&run->raw, request);
	client->run_bytes += bytes;
	run->commands++;
	client->replies += client->proxy->protocol->wants_reply(command, request);
	return CLIENT_TAKEN;
}

static void queue(struct client *client, const struct command *command, const struct command_args *request)
{
	static const char *const taken[] = {"PING", "ECHO", "SELECT"};
	bool fits = command->kind != COMMAND_OWN && command->kind != COMMAND_CHANGE;

	for (unsigned i = 0; i < sizeof(taken) / sizeof(*taken); i++)
		fits |= proxy_command_word(request->data, &request->args[0], taken[i]);
	if (!fits) {
		resp_out_error(
			&client->out, "ERR %s within MULTI is refused behind a replicating proxy", command->name);
		client->multi_bad = true;
		return;
	}
	client->run_bytes += client->proxy->protocol->entry_bytes(command, request);
	if (client->run_bytes > run_bytes_max(client->proxy)) {
		resp_out_error(&client->out, "ERR the transaction is too large for an entry of the log");
		client->multi_bad = true;
		return;
	}
	proxy_command_append(&client->queue, request);
	client->queued++;
	resp_out_simple(&client->out, "QUEUED");
}

static bool ends_multi(const struct command_args *request)
{
	static const char *const words[] = {"EXEC", "DISCARD", "MULTI", "QUIT", "RESET"};

	for (unsigned i = 0; i < sizeof(words) / sizeof(*words); i++)
		if (proxy_command_word(request->data, &request->args[0], words[i]))
			return true;
	return false;
}

static enum client_taken take(struct client *client, const struct command_args *request)
{
	const struct protocol *protocol = client->proxy->protocol;
	const struct command *command = protocol->find(request->data + request->args[0].at, request->args[0].bytes);
	char words[COMMAND_WORDS];

	if ((command != NULL && command->kind == COMMAND_HTTP) || is_http(request)) {
		refuse_http(client);
		return CLIENT_TAKEN;
	}
	if (!protocol->check(client->proxy, command, request, words))
		return refuse(client, words);
	if (client->multi && !ends_multi(request)) {
		queue(client, command, request);
		return CLIENT_TAKEN;
	}
	switch (command->kind) {
	case COMMAND_READ:
		return join(client, RUN_READ, command, request);
	case COMMAND_WRITE:
	case COMMAND_SCRIPT:
		return join(client, RUN_WRITE, command, request);
	case COMMAND_DRAW:
		return join(client, RUN_DRAW, command, request);
	case COMMAND_CHANGE:
		return join(client, RUN_CHANGE, command, request);
	case COMMAND_ASK:
		if (client->run.commands > 0)
			return CLIENT_LATER;
		ask(client, command, request);
		return CLIENT_TAKEN;
	case COMMAND_OWN:
	case COMMAND_HTTP:
	case COMMAND_REFUSED:
		break;
	}
	return client->run.commands > 0 ? CLIENT_LATER : protocol->own(client, command, request);
}

/* A line was changed by reading it: what was read takes its place, to be read again. */
static void put_back(struct client *client, const struct command_args *args, size_t used)
{
	struct resp_out in = {0};

	proxy_command_append(&in, args);
	resp_out_raw(&in, client->in.data + client->read + used, client->in.bytes - client->read - used);
	resp_out_free(&client->in);
	client->in = in;
	client->read = 0;
	client->out.failed |= in.failed;
}

/* Bytes behind a request that was refused for its size. */
static void skip(struct client *client)
{
	size_t n = client->in.bytes - client->read;

	n = n < client->skip ? n : client->skip;
	client->read += n;
	client->skip -= n;
}

/* Nothing more can be read: what failed to be read may be changed. */
static void refuse_rest(struct client *client, const char *error)
{
	(void)snprintf(client->refusal, sizeof(client->refusal),
		"%s; here a request has at most %u bytes and %u arguments", error, run_bytes_max(client->proxy),
		PROXY_ARGS_MAX);
}

/* Takes the next request, if one is whole and its turn has come. */
static bool take_next(struct client *client)
{
	struct proxy *proxy = client->proxy;
	struct resp_request request;
	struct command_args args;
	enum client_taken taken = CLIENT_TAKEN;
	size_t used, after = 0;
	bool is_line;

	if (client->refusal[0] != '\0') {
		client->closing = refuse(client, client->refusal) == CLIENT_TAKEN; /* after what came before */
		return false;
	}
	skip(client);
	if (client->in.bytes - client->read < client->wanted)
		return false;
	is_line = client->in.data[client->read] != '*';
	resp_request_init(&request, proxy->args, PROXY_ARGS_MAX, run_bytes_max(proxy));
	switch (proxy->protocol->read(
		&request, client->in.data + client->read, client->in.bytes - client->read, &used, &after)) {
	case RESP_MORE:
		client->wanted = request.wanted;
		return false;
	case RESP_REFUSED:
		refuse_rest(client, request.error);
		return true;
	case RESP_WHOLE:
		break;
	}
	client->wanted = 1;
	args = (struct command_args){
		.data = client->in.data + client->read, .args = proxy->args, .count = request.arg_count};
	if (request.error[0] != '\0')
		taken = refuse(client, request.error);
	else if (args.count > 0)
		taken = take(client, &args);
	if (taken == CLIENT_LATER) {
		if (proxy->protocol->read_changes && is_line)
			put_back(client, &args, used);
		return false;
	}
	client->read += used;
	client->skip = after;
	return true;
}

/* ---- the stream ---- */

static bool has_room(const struct client *client)
{
	return client->out.bytes - client->sent < OUT_BYTES_MOST;
}

static void client_want(struct client *client)
{
	unsigned wanted = client->sent < client->out.bytes ? HF_WRITABLE : 0u;

	count_buffers(client);
	if (!client->closing && !client->ended &&
		(!has_room(client) || client->in.bytes - client->read < run_bytes_max(client->proxy) + RESP_LINE_MAX))
		wanted |= HF_READABLE;
	if (client->watch.wanted != wanted)
		(void)hf_loop_watch(client->proxy->loop, &client->watch, client->io, wanted);
}

/* False: the client is gone. */
static bool client_write(struct client *client)
{
	while (client->sent < client->out.bytes) {
		ssize_t n =
			hf_stream_write(client->io, client->out.data + client->sent, client->out.bytes - client->sent);

		if (n == -EAGAIN)
			return true;
		if (n <= 0)
			return false;
		client->sent += (size_t)n;
	}
	client->out.bytes = client->sent = 0;
	if (client->out.room > OUT_BYTES_MOST)
		resp_out_free(&client->out);
	return !client->closing || client->running;
}

static void take_requests(struct client *client)
{
	while (!client->running && !client->closing && has_room(client) && take_next(client))
		continue;
	if (client->read == client->in.bytes && client->in.room > 2 * READ_BYTES)
		resp_out_free(&client->in);
	else if (client->read > client->in.bytes / 2) /* what moves is less than what was read */
		resp_out_drop(&client->in, client->read);
	else
		return;
	client->read = 0;
}

/* False: it is under way, and run_over follows. */
static bool is_answered_at_once(struct client *client)
{
	client->submitting = true;
	submit(client);
	client->submitting = false;
	return !client->running;
}

static void client_turn(struct client *client)
{
	do {
		take_requests(client);
		while (!client->running && client->run.commands > 0) {
			if (!is_answered_at_once(client))
				return;
			take_requests(client);
		}
		client->closing |= client->ended && has_room(client); /* no request is left */
		if (client->out.failed || !client_write(client)) {
			client_close(client);
			return;
		}
	} while (!client->running && !client->closing && has_room(client) &&
		 client->in.bytes - client->read >= client->wanted && client->wanted > 0 &&
		 client->in.bytes > client->read);
	client_want(client);
}

/* The one with the largest buffers. */
static struct client *evict(struct proxy *proxy)
{
	struct client *largest = NULL;
	char text[HF_ADDR_TEXT];
	uint64_t left_out;

	list_for_each (at, &proxy->clients) {
		struct client *client = container_of(at, struct client, node);

		if (client->io != NULL && (largest == NULL || client->buffered > largest->buffered))
			largest = client;
	}
	if (largest == NULL)
		return NULL;
	if (log_limit_allows(&proxy->evicted_log, hf_loop_now_ns(proxy->loop), &left_out))
		log_warn(
			"proxy: the buffers of clients exceed clients_mb, %zu MiB; the client from %s is closed, whose "
			"buffers are the largest with %zu bytes; it sends more than it reads (%llu lines suppressed)",
			proxy->clients_bytes_max >> 20, hf_addr_format(&largest->remote, text), largest->buffered,
			(unsigned long long)left_out);
	proxy->evicted++;
	client_close(largest);
	return largest;
}

static void client_ready(struct hf_watch *watch, unsigned ready)
{
	struct client *client = container_of(watch, struct client, watch);

	if (client->proxy->buffered > client->proxy->clients_bytes_max && evict(client->proxy) == client)
		return;
	if ((ready & HF_READABLE) != 0 && !client->ended) {
		uint8_t *room = resp_out_reserve(&client->in, READ_BYTES);
		ssize_t n = room == NULL ? -ENOMEM : hf_stream_read(client->io, room, READ_BYTES);

		if (n < 0 && n != -EAGAIN) {
			client_close(client);
			return;
		}
		client->ended = n == 0;
		client->in.bytes += n > 0 ? (size_t)n : 0;
	}
	if (client->running) {
		if (!client_write(client))
			client_close(client);
		else
			client_want(client);
		return;
	}
	client_turn(client);
}

/* ---- the listener ---- */

static void client_open(struct proxy *proxy, struct hf_io *io, const struct hf_addr *remote)
{
	struct client *client = calloc(1, sizeof(*client));

	if (client == NULL) {
		hf_io_close(io);
		return;
	}
	client->proxy = proxy;
	client->io = io;
	client->remote = *remote;
	client->id = ++proxy->next_client;
	client->wanted = 1;
	client->watch.ready = client_ready;
	proxy_run_init(&client->run, proxy, RUN_READ);
	proxy_run_init(&client->open, proxy, RUN_OPEN);
	list_push_back(&proxy->clients, &client->node);
	proxy->client_count++;
	proxy->accepted++;
	if (hf_loop_watch(proxy->loop, &client->watch, io, HF_READABLE) != 0)
		client_close(client);
}

static void listener_ready(struct hf_watch *watch, unsigned ready)
{
	struct proxy *proxy = container_of(watch, struct proxy, listener_watch);
	struct resp_out full = {0};
	struct hf_addr remote;
	uint64_t left_out;
	struct hf_io *io;

	(void)ready;
	if (hf_stream_accept(proxy->listener, &io, &remote) != 0)
		return;
	if (proxy->client_count < proxy->clients_max) {
		client_open(proxy, io, &remote);
		return;
	}
	if (log_limit_allows(&proxy->full_log, hf_loop_now_ns(proxy->loop), &left_out))
		log_warn("proxy: %u clients are connected, and another one is refused; raise `clients` (%llu lines "
			 "suppressed)",
			proxy->client_count, (unsigned long long)left_out);
	proxy->protocol->put_error(&full, "ERR max number of clients reached");
	(void)hf_stream_write(io, full.data, full.bytes);
	resp_out_free(&full);
	hf_io_close(io);
}

int proxy_client_listen(struct proxy *proxy, struct hf_error *error)
{
	int rc = hf_stream_listen(hf_loop_env(proxy->loop), &proxy->listen, &proxy->listener, error);

	if (rc != 0)
		return rc;
	proxy->listener_watch.ready = listener_ready;
	rc = hf_loop_watch(proxy->loop, &proxy->listener_watch, proxy->listener, HF_READABLE);
	return rc == 0 ? 0 : hf_error_set(error, rc, "the listener for clients cannot be watched: %s", strerror(-rc));
}

void proxy_client_close_all(struct proxy *proxy)
{
	hf_io_close(proxy->listener);
	proxy->listener = NULL;
	while (!list_empty(&proxy->clients))
		client_free(container_of(proxy->clients.next, struct client, node));
}
