/* Commands about the connection itself: HELLO, AUTH, CLIENT, MULTI. */
#include <stdio.h>
#include <string.h>

#include "kv/clients.h"

/* ---- AUTH ---- */

/* There are no passwords: as in a Redis without them, the user `default` has any. */
static bool is_default_user(const struct request *request, unsigned i)
{
	return kv_commands_arg_is(request, i, "default");
}

void kv_session_auth(const struct request *request)
{
	struct resp_out *out = kv_commands_out(request->client);

	if (request->count == 2)
		resp_out_error(out, "ERR AUTH <password> called without any password configured for the default user. "
				    "Are you sure your configuration is correct?");
	else if (is_default_user(request, 1))
		resp_out_simple(out, "OK");
	else
		resp_out_error(out, "WRONGPASS invalid username-password pair or user is disabled.");
}

/* ---- CLIENT ---- */

static bool set_name(const struct request *request, unsigned i)
{
	struct client *client = request->client;
	uint32_t bytes;
	const uint8_t *at = kv_commands_arg(request, i, &bytes);

	if (bytes >= CLIENT_NAME_BYTES)
		return false;
	for (uint32_t k = 0; k < bytes; k++)
		if (at[k] < '!' || at[k] > '~')
			return false;
	memcpy(client->name, at, bytes);
	client->name[bytes] = '\0';
	return true;
}

static void refuse_name(struct resp_out *out)
{
	resp_out_error(
		out, "ERR a client's name has at most %u printable characters and no blanks", CLIENT_NAME_BYTES - 1);
}

static void say_name(const struct client *client, struct resp_out *out)
{
	if (client->name[0] != '\0')
		resp_out_text(out, client->name);
	else if (client->resp3)
		resp_out_raw(out, "_\r\n", 3);
	else
		resp_out_null(out);
}

void kv_session_client(const struct request *request)
{
	struct resp_out *out = kv_commands_out(request->client);

	if (kv_commands_arg_is(request, 1, "SETNAME") && request->count == 3) {
		if (set_name(request, 2))
			resp_out_simple(out, "OK");
		else
			refuse_name(out);
	} else if (kv_commands_arg_is(request, 1, "SETINFO") || kv_commands_arg_is(request, 1, "NO-EVICT") ||
		   kv_commands_arg_is(request, 1, "NO-TOUCH")) {
		resp_out_simple(out, "OK");
	} else if (kv_commands_arg_is(request, 1, "GETNAME")) {
		say_name(request->client, out);
	} else if (kv_commands_arg_is(request, 1, "ID")) {
		resp_out_integer(out, (int64_t)request->client->id);
	} else {
		resp_out_error(out, "ERR of CLIENT there are SETNAME name, GETNAME, SETINFO, ID here");
	}
}

/* ---- HELLO ---- */

static void hello_pair(struct resp_out *out, const char *name, const char *value)
{
	resp_out_text(out, name);
	resp_out_text(out, value);
}

/* AUTH user password, SETNAME name. False: refused. */
static bool take_options(const struct request *request, struct resp_out *out)
{
	for (unsigned i = 2; i < request->count;) {
		if (kv_commands_arg_is(request, i, "AUTH") && i + 2 < request->count) {
			if (!is_default_user(request, i + 1)) {
				resp_out_error(out, "WRONGPASS invalid username-password pair or user is disabled.");
				return false;
			}
			i += 3;
		} else if (kv_commands_arg_is(request, i, "SETNAME") && i + 1 < request->count) {
			if (!set_name(request, i + 1)) {
				refuse_name(out);
				return false;
			}
			i += 2;
		} else {
			resp_out_error(out, "ERR syntax error in HELLO");
			return false;
		}
	}
	return true;
}

void kv_session_hello(const struct request *request)
{
	struct client *client = request->client;
	struct resp_out *out = kv_commands_out(client);

	if (request->count > 1 && !kv_commands_arg_is(request, 1, "2") && !kv_commands_arg_is(request, 1, "3")) {
		resp_out_error(out, "NOPROTO unsupported protocol version");
		return;
	}
	if (!take_options(request, out))
		return;
	if (request->count > 1)
		client->resp3 = kv_commands_arg_is(request, 1, "3");
	resp_out_map(out, client->resp3, 6);
	hello_pair(out, "server", "redis"); /* clients look for this name */
	hello_pair(out, "version", "7.0.0");
	resp_out_text(out, "proto");
	resp_out_integer(out, client->resp3 ? 3 : 2);
	resp_out_text(out, "id");
	resp_out_integer(out, (int64_t)client->id);
	hello_pair(out, "mode", "standalone");
	hello_pair(out, "role", "master");
}

/* ---- MULTI ---- */

/* A client that sends a whole transaction at once learns of the refusal when all of it is here. */
void kv_session_multi(const struct request *request)
{
	request->client->refuses = true;
	resp_out_error(kv_commands_out(request->client),
		"ERR MULTI is refused: there are no transactions here; nothing is executed until EXEC or DISCARD");
}

void kv_session_no_multi(const struct request *request)
{
	resp_out_error(kv_commands_out(request->client), "ERR %s without MULTI",
		kv_commands_arg_is(request, 0, "exec") ? "EXEC" : "DISCARD");
}

void kv_session_refuse(const struct request *request)
{
	struct client *client = request->client;
	struct resp_out *out = kv_commands_out(client);
	bool exec = kv_commands_arg_is(request, 0, "exec");

	client->refuses = !exec && !kv_commands_arg_is(request, 0, "discard");
	if (exec)
		resp_out_error(out, "EXECABORT Transaction discarded because MULTI was refused: nothing was executed");
	else if (client->refuses)
		resp_out_error(out, "ERR not executed: MULTI was refused; EXEC or DISCARD ends this");
	else
		resp_out_error(out, "ERR MULTI was refused: nothing is to be discarded");
}
