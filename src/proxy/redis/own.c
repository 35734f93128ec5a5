/* Commands that the proxy answers itself. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "proxy/client.h"

#define is(request, i, word) proxy_command_word((request)->data, &(request)->args[i], word)

static void own_select(struct client *client, const struct command_args *request)
{
	int64_t number;

	if (!resp_number(request->data + request->args[1].at, request->args[1].bytes, &number))
		resp_out_error(&client->out, "ERR value is not an integer or out of range");
	else if (number != 0)
		resp_out_error(&client->out, "ERR DB index is out of range: there is one database, 0");
	else
		resp_out_simple(&client->out, "OK");
}

static void own_hello(struct client *client, const struct command_args *request)
{
	struct resp_out *out = &client->out;

	if (request->count > 1 && !is(request, 1, "2")) {
		resp_out_error(out, "NOPROTO unsupported protocol version: a replicating proxy speaks RESP2");
		return;
	}
	if (request->count > 2) {
		resp_out_error(out, "ERR a replicating proxy takes HELLO without options");
		return;
	}
	resp_out_array(out, 14);
	resp_out_text(out, "server");
	resp_out_text(out, "redis");
	resp_out_text(out, "version");
	resp_out_text(out, "7.0.0");
	resp_out_text(out, "proto");
	resp_out_integer(out, 2);
	resp_out_text(out, "id");
	resp_out_integer(out, (int64_t)client->id);
	resp_out_text(out, "mode");
	resp_out_text(out, "standalone");
	resp_out_text(out, "role");
	resp_out_text(out, "master");
	resp_out_text(out, "modules");
	resp_out_array(out, 0);
}

static bool name_is_clean(const uint8_t *name, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		if (name[i] < '!' || name[i] > '~')
			return false;
	return true;
}

static void own_client(struct client *client, const struct command_args *request)
{
	struct resp_out *out = &client->out;
	char text[CLIENT_NAME_BYTES + 64];

	if (is(request, 1, "ID")) {
		resp_out_integer(out, (int64_t)client->id);
	} else if (is(request, 1, "GETNAME")) {
		if (client->name[0] == '\0')
			resp_out_null(out);
		else
			resp_out_text(out, client->name);
	} else if (is(request, 1, "INFO")) {
		(void)snprintf(text, sizeof(text), "id=%" PRIu64 " name=%s db=0\n", client->id, client->name);
		resp_out_text(out, text);
	} else if (request->count != 3) {
		resp_out_error(out, "ERR wrong number of arguments for 'client|setname' command");
	} else if (request->args[2].bytes >= CLIENT_NAME_BYTES ||
		   !name_is_clean(request->data + request->args[2].at, request->args[2].bytes)) {
		resp_out_error(out,
			"ERR Client names cannot contain spaces, newlines or special characters, and have at "
			"most 63 of others");
	} else {
		memset(client->name, 0, sizeof(client->name));
		memcpy(client->name, request->data + request->args[2].at, request->args[2].bytes);
		resp_out_simple(out, "OK");
	}
}

void client_discard(struct client *client)
{
	client->multi = client->multi_bad = false;
	client->queued = 0;
	client->run_bytes = 0;
	resp_out_free(&client->queue);
}

static void own_exec(struct client *client)
{
	if (!client->multi) {
		resp_out_error(&client->out, "ERR EXEC without MULTI");
	} else if (client->multi_bad || client->queue.failed) {
		resp_out_error(&client->out, "EXECABORT Transaction discarded because of previous errors.");
		client_discard(client);
	} else if (client->queued == 0) {
		resp_out_array(&client->out, 0);
		client_discard(client);
	} else {
		client_exec(client);
	}
}

static void own_multi(struct client *client, const struct command_args *request)
{
	if (is(request, 0, "EXEC")) {
		own_exec(client);
	} else if (is(request, 0, "DISCARD")) {
		if (client->multi)
			resp_out_simple(&client->out, "OK");
		else
			resp_out_error(&client->out, "ERR DISCARD without MULTI");
		client_discard(client);
	} else if (client->multi) {
		resp_out_error(&client->out, "ERR MULTI calls can not be nested");
	} else {
		client->multi = true;
		resp_out_simple(&client->out, "OK");
	}
}

enum client_taken client_own(struct client *client, const struct command *command, const struct command_args *request)
{
	struct resp_out *out = &client->out;

	if (client->run.commands > 0)
		return CLIENT_LATER;
	if (is(request, 0, "PING") || is(request, 0, "ECHO")) {
		if (request->count == 1)
			resp_out_simple(out, "PONG");
		else if (request->count == 2)
			proxy_command_put(out, request, 1);
		else
			resp_out_error(out, "ERR wrong number of arguments for '%s' command", command->name);
	} else if (is(request, 0, "MULTI") || is(request, 0, "EXEC") || is(request, 0, "DISCARD")) {
		own_multi(client, request);
	} else if (is(request, 0, "SELECT")) {
		own_select(client, request);
	} else if (is(request, 0, "HELLO")) {
		own_hello(client, request);
	} else if (is(request, 0, "CLIENT")) {
		own_client(client, request);
	} else if (is(request, 0, "QUIT")) {
		resp_out_simple(out, "OK");
		client->closing = true;
	} else if (is(request, 0, "RESET")) {
		client_discard(client);
		memset(client->name, 0, sizeof(client->name));
		resp_out_simple(out, "RESET");
	} else if (is(request, 0, "AUTH")) {
		resp_out_error(
			out, "ERR AUTH is called, and the proxy has no password: it trusts all that reach its address");
	} else if (is(request, 0, "EVALSHA") || is(request, 0, "EVALSHA_RO")) {
		resp_out_error(out, "NOSCRIPT No matching script. Please use EVAL.");
	} else { /* UNWATCH, READONLY, READWRITE: nothing to undo */
		resp_out_simple(out, "OK");
	}
	return CLIENT_TAKEN;
}
