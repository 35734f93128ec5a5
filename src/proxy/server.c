#include "proxy/server.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "base/list.h"
#include "proxy/alive.h"
#include "proxy/redis/rewrite.h"

#define READ_BYTES  65536u
#define WORDS_BYTES 160u
#define UNWELL_PART 10u /* of the time after which the server is broken */

/* A command whose reply is awaited, or a text that waits for the replies before it. */
struct waiting {
	enum entry_reply reply;
	bool deadline; /* the reply is for events.deadline */
	uint64_t now_ms;
	struct server_gather *gather;
	uint64_t place; /* of an entry; 0: it is of none */
	uint8_t *bytes; /* of a text, or a key; for free() */
	size_t byte_count;
};

struct proxy_server {
	struct hf_loop *loop;
	struct hf_io *io;
	struct hf_watch watch;
	struct hf_poller poller;
	struct hf_timer silence;
	uint64_t silence_ns, heard_ns; /* heard_ns: in attended time */
	struct proxy_alive alive;
	const struct server_protocol *protocol;
	const struct server_events *events;
	void *context;
	struct resp_out out, in;
	size_t sent, read; /* of out, of in */
	struct resp_reply reply;
	struct waiting *ring; /* of `room`, a power of two */
	unsigned room, first, count;
	uint64_t asked; /* commands and texts so far */
	uint64_t place; /* of the entry that they are of */
	bool unwell, broken;
};

static void server_break(struct proxy_server *server, const char *format, const char *detail)
{
	char words[WORDS_BYTES];

	if (server->broken)
		return;
	server->broken = true;
	hf_loop_unwatch(&server->watch);
	hf_loop_cancel_timer(server->loop, &server->silence);
	proxy_alive_close(&server->alive);
	(void)snprintf(words, sizeof(words), format, detail);
	server->events->broken(server->context, words);
}

/* ---- what a reply becomes ---- */

static void gathered(struct server_gather *gather)
{
	ensure(gather->left > 0);
	if (--gather->left == 0)
		gather->done(gather);
}

static void deliver(struct proxy_server *server, const struct waiting *waiting, const uint8_t *reply, size_t bytes)
{
	const struct server_question question = {.reply = waiting->reply,
		.now_ms = waiting->now_ms,
		.note = waiting->bytes,
		.note_bytes = waiting->byte_count};
	bool dropped = waiting->gather == NULL || waiting->reply == ENTRY_DROP;

	if (waiting->deadline) {
		struct resp_element element;
		size_t used;

		if (reply[0] == ':' && resp_element_read(reply, bytes, &element, &used) == RESP_WHOLE)
			server->events->deadline(server->context, waiting->bytes, waiting->byte_count, element.number);
		return;
	}
	if (!server->protocol->take(&question, reply, bytes, dropped ? NULL : &waiting->gather->out)) {
		char words[WORDS_BYTES / 2];

		(void)snprintf(
			words, sizeof(words), "%.*s", (int)strcspn((const char *)reply, "\r\n"), (const char *)reply);
		server_break(server, "the server lacks what it was given, or has no memory; it said: %s", words);
		return;
	}
	if (waiting->gather != NULL)
		gathered(waiting->gather);
}

static struct waiting take_first(struct proxy_server *server)
{
	struct waiting first = server->ring[server->first];

	server->first = (server->first + 1) & (server->room - 1);
	server->count--;
	return first;
}

/* Texts that no reply stands before any more. */
static void deliver_texts(struct proxy_server *server)
{
	while (!server->broken && server->count > 0 && server->ring[server->first].reply == ENTRY_TEXT) {
		struct waiting first = take_first(server);

		resp_out_raw(&first.gather->out, first.bytes, first.byte_count);
		free(first.bytes);
		gathered(first.gather);
	}
}

/* ---- the stream ---- */

static void server_want(struct proxy_server *server)
{
	unsigned wanted = HF_READABLE | (server->sent < server->out.bytes ? HF_WRITABLE : 0u);

	if (!server->broken && server->watch.wanted != wanted)
		(void)hf_loop_watch(server->loop, &server->watch, server->io, wanted);
}

static void server_write(struct proxy_server *server)
{
	while (!server->broken && server->sent < server->out.bytes) {
		ssize_t n =
			hf_stream_write(server->io, server->out.data + server->sent, server->out.bytes - server->sent);

		if (n == -EAGAIN)
			break;
		if (n <= 0)
			server_break(
				server, "the connection to the server broke: %s", strerror(n == 0 ? EPIPE : (int)-n));
		else
			server->sent += (size_t)n;
	}
	if (server->sent == server->out.bytes) {
		server->out.bytes = server->sent = 0;
	} else if (server->sent > READ_BYTES && server->sent > server->out.bytes / 2) {
		resp_out_drop(&server->out, server->sent);
		server->sent = 0;
	}
}

static void read_replies(struct proxy_server *server)
{
	while (!server->broken) {
		const uint8_t *at = server->in.data + server->read;
		struct waiting first;
		size_t used;
		enum resp_outcome outcome =
			server->protocol->read(&server->reply, at, server->in.bytes - server->read, &used);

		if (outcome == RESP_MORE)
			break;
		if (outcome == RESP_REFUSED || server->count == 0) {
			server_break(server, "what came is no reply of %s", server->protocol->name);
			return;
		}
		first = take_first(server);
		deliver(server, &first, at, used);
		free(first.bytes);
		server->read += used;
		deliver_texts(server);
	}
	resp_out_drop(&server->in, server->read);
	server->read = 0;
}

static void await_reply(struct proxy_server *server)
{
	uint64_t since_ns = server->unwell ? hf_loop_attended_ns(server->loop) : server->heard_ns;

	hf_loop_set_timer(server->loop, &server->silence,
		since_ns + server->silence_ns / UNWELL_PART + hf_loop_gaps_ns(server->loop));
}

static void set_unwell(struct proxy_server *server, bool unwell)
{
	server->unwell = unwell;
	server->events->unwell(server->context, unwell);
}

static void server_read(struct proxy_server *server)
{
	uint8_t *room = resp_out_reserve(&server->in, READ_BYTES);
	ssize_t n = room == NULL ? -ENOMEM : hf_stream_read(server->io, room, READ_BYTES);

	if (n == -EAGAIN)
		return;
	if (n <= 0) {
		server_break(server, "the server ended the connection: %s",
			n == 0 ? "end of the stream" : strerror((int)-n));
		return;
	}
	server->in.bytes += (size_t)n;
	server->heard_ns = hf_loop_attended_ns(server->loop);
	if (server->unwell) {
		set_unwell(server, false);
		await_reply(server);
	}
	read_replies(server);
}

static void server_ready(struct hf_watch *watch, unsigned ready)
{
	struct proxy_server *server = container_of(watch, struct proxy_server, watch);

	if ((ready & HF_READABLE) != 0)
		server_read(server);
	if (!server->broken)
		server_write(server);
	server_want(server);
}

static void silence_over(struct hf_timer *timer, uint64_t now_ns)
{
	struct proxy_server *server = container_of(timer, struct proxy_server, silence);
	uint64_t ns;

	(void)now_ns;
	if (server->count > 0)
		server_read(server); /* timers come before sockets */
	if (server->broken || server->count == 0)
		return;
	ns = hf_loop_attended_ns(server->loop) - server->heard_ns;
	if (ns >= server->silence_ns) {
		server_break(server, "the server did not answer for too long%s", "");
		return;
	}
	if (server->unwell || ns >= server->silence_ns / UNWELL_PART)
		set_unwell(server, true);
	if (server->unwell)
		proxy_alive_ask(&server->alive);
	await_reply(server);
}

/* It works at a command that takes long. */
static void is_alive(struct proxy_alive *alive)
{
	struct proxy_server *server = container_of(alive, struct proxy_server, alive);

	server->heard_ns = hf_loop_attended_ns(server->loop);
}

/* ---- asking ---- */

static bool push(struct proxy_server *server, const struct waiting *waiting)
{
	if (server->count == server->room) {
		unsigned room = server->room == 0 ? 256 : server->room * 2;
		struct waiting *ring = calloc(room, sizeof(*ring));

		if (ring == NULL)
			return false;
		for (unsigned i = 0; i < server->count; i++)
			ring[i] = server->ring[(server->first + i) & (server->room - 1)];
		free(server->ring);
		server->ring = ring;
		server->room = room;
		server->first = 0;
	}
	server->ring[(server->first + server->count) & (server->room - 1)] = *waiting;
	server->ring[(server->first + server->count++) & (server->room - 1)].place = server->place;
	server->asked++;
	return true;
}

static uint8_t *copy_bytes(const void *from, size_t bytes)
{
	uint8_t *to = malloc(bytes == 0 ? 1 : bytes);

	if (to != NULL && bytes > 0)
		memcpy(to, from, bytes);
	return to;
}

/* Commands of one turn leave together: server_poll writes them. */
static void server_note(struct proxy_server *server)
{
	if (proxy_server_unsent(server) > SERVER_QUEUE_BYTES || server->out.failed)
		server_break(server, "the server is too slow: more than %s of commands wait", "256 MiB");
	else if (server->count == 1 || server->silence.heap_slot == 0) {
		server->heard_ns = hf_loop_attended_ns(server->loop);
		await_reply(server);
	}
}

static enum hf_poll server_poll(struct hf_poller *poller, uint64_t now_ns)
{
	struct proxy_server *server = container_of(poller, struct proxy_server, poller);

	(void)now_ns;
	if (server->broken || server->sent == server->out.bytes || (server->watch.wanted & HF_WRITABLE) != 0)
		return HF_IDLE;
	server_write(server);
	server_want(server);
	return HF_BUSY;
}

void proxy_server_ask_noted(struct proxy_server *server, const struct resp_out *command,
	const struct server_question *question, struct server_gather *gather)
{
	struct waiting waiting = {.reply = question->reply, .now_ms = question->now_ms, .gather = gather};

	if (server->broken)
		return;
	if (question->note != NULL) {
		waiting.bytes = copy_bytes(question->note, question->note_bytes);
		waiting.byte_count = question->note_bytes;
	}
	if (command->failed || (question->note != NULL && waiting.bytes == NULL) || !push(server, &waiting)) {
		free(waiting.bytes);
		server_break(server, "no memory for a command of %s", "the server");
		return;
	}
	if (question->reply == ENTRY_TEXT) {
		deliver_texts(server);
		return;
	}
	resp_out_raw(&server->out, command->data, command->bytes);
	server_note(server);
}

void proxy_server_ask(struct proxy_server *server, const void *command, size_t bytes, enum entry_reply reply,
	uint64_t now_ms, struct server_gather *gather)
{
	const struct resp_out out = {.data = (uint8_t *)(uintptr_t)command, .bytes = bytes};
	struct server_question question = {.reply = reply, .now_ms = now_ms};

	if (reply == ENTRY_TEXT) {
		question.note = command;
		question.note_bytes = bytes;
		if (gather == NULL)
			return;
	}
	proxy_server_ask_noted(server, &out, &question, gather);
}

void proxy_server_ask_deadline(struct proxy_server *server, const uint8_t *key, size_t key_bytes)
{
	struct waiting waiting = {.deadline = true, .bytes = copy_bytes(key, key_bytes), .byte_count = key_bytes};

	if (server->broken || waiting.bytes == NULL || !push(server, &waiting)) {
		free(waiting.bytes);
		server_break(server, "no memory for a command of %s", "the server");
		return;
	}
	proxy_rewrite_ask_deadline(&server->out, key, key_bytes);
	server_note(server);
}

void proxy_server_forget_deadlines(struct proxy_server *server)
{
	for (unsigned i = 0; i < server->count; i++)
		server->ring[(server->first + i) & (server->room - 1)].deadline = false;
}

void proxy_server_at(struct proxy_server *server, uint64_t place)
{
	server->place = place;
}

uint64_t proxy_server_unanswered(const struct proxy_server *server)
{
	for (unsigned i = 0; i < server->count; i++) {
		uint64_t place = server->ring[(server->first + i) & (server->room - 1)].place;

		if (place != 0)
			return place;
	}
	return 0;
}

void proxy_server_lose(struct proxy_server *server)
{
	ensure(server->broken);
	for (unsigned i = 0; i < server->count; i++) {
		struct server_gather *gather = server->ring[(server->first + i) & (server->room - 1)].gather;
		/* the next ones of the ring may be of the same gather, which is gone then */
		for (unsigned k = i; gather != NULL && k < server->count; k++) {
			struct waiting *waiting = &server->ring[(server->first + k) & (server->room - 1)];

			if (waiting->gather == gather)
				waiting->gather = NULL;
		}
		if (gather != NULL && gather->lost != NULL)
			gather->lost(gather);
	}
}

unsigned proxy_server_waiting(const struct proxy_server *server)
{
	return server->count;
}

uint64_t proxy_server_mark(const struct proxy_server *server)
{
	return server->asked;
}

bool proxy_server_passed(const struct proxy_server *server, uint64_t mark)
{
	return server->asked - server->count >= mark;
}

size_t proxy_server_unsent(const struct proxy_server *server)
{
	return server->out.bytes - server->sent;
}

int proxy_server_open(struct hf_loop *loop, const char *path, uint64_t silence_ns,
	const struct server_protocol *protocol, const struct server_events *events, void *context,
	struct proxy_server **server_out, struct hf_error *error)
{
	struct proxy_server *server = calloc(1, sizeof(*server));
	int rc;

	*server_out = NULL;
	if (server == NULL)
		return hf_error_set(error, -ENOMEM, "no memory for the connection to the server");
	server->loop = loop;
	server->protocol = protocol;
	server->events = events;
	server->context = context;
	server->silence_ns = silence_ns;
	server->silence.fire = silence_over;
	server->silence.quiet = true;
	server->watch.ready = server_ready;
	proxy_alive_init(&server->alive, loop, path, protocol->alive, is_alive);
	rc = hf_stream_connect_path(hf_loop_env(loop), path, &server->io, error);
	if (rc == 0) {
		rc = hf_loop_watch(loop, &server->watch, server->io, HF_READABLE);
		if (rc != 0)
			hf_error_set(error, rc, "%s: cannot be watched: %s", path, strerror(-rc));
	}
	if (rc != 0) {
		proxy_server_close(server);
		return rc;
	}
	server->poller.poll = server_poll;
	hf_loop_add_poller(loop, &server->poller);
	*server_out = server;
	return 0;
}

void proxy_server_close(struct proxy_server *server)
{
	if (server == NULL)
		return;
	if (server->poller.poll != NULL)
		hf_loop_remove_poller(server->loop, &server->poller);
	hf_loop_cancel_timer(server->loop, &server->silence);
	proxy_alive_close(&server->alive);
	hf_io_close(server->io);
	while (server->count > 0)
		free(take_first(server).bytes);
	free(server->ring);
	resp_out_free(&server->out);
	resp_out_free(&server->in);
	free(server);
}
