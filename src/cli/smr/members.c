/* `holdfast smr members`: adds or removes a member, through any proxy. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/other_port.h"
#include "cli/process.h"
#include "cli/smr/ask.h"
#include "cli/smr/smr.h"

#define COMMAND    "smr members"
#define WAIT_NS    60000000000ull /* a snapshot takes its time */
#define LINE_BYTES 400u
#define UNKNOWN    "ERR unknown command"

static bool is_word(const char *text)
{
	return text[0] != '\0' && strpbrk(text, " \t\r\n\"'") == NULL;
}

/* A server that has no proxy before it knows no such command. */
static bool is_unknown(const struct resp_element *reply)
{
	return reply->type == RESP_ERROR && reply->bytes >= strlen(UNKNOWN) &&
	       memcmp(reply->text, UNKNOWN, strlen(UNKNOWN)) == 0;
}

/* A proxy that ends its connection may be one of Redis; rc 0: the command is unknown there. */
static int tell_no_proxy(struct hf_loop *loop, const struct hf_addr *at, int rc)
{
	const char *wanted = rc == 0 ? NULL : "Redis";
	const char *found = rc == -ECONNREFUSED ? NULL : other_port_find(loop, at, wanted, OTHER_PORT_NS);
	char text[HF_ADDR_TEXT];

	hf_addr_format(at, text);
	if (found != NULL)
		return cli_refuse(COMMAND,
			"%s serves clients of %s, and is no proxy of a Redis; give the address under `listen` of an "
			"smr-proxy that runs",
			text, found);
	return cli_refuse(COMMAND,
		"%s does not answer as a proxy: %s; give the address under `listen` of a member that runs", text,
		rc == 0 ? "the command is unknown there" : strerror(-rc));
}

static int send_change(const struct hf_addr *proxy, const char *line)
{
	struct resp_element reply = {0};
	struct hf_loop *loop;
	struct ask ask = {0};
	int rc = hf_loop_create(hf_env_host(), &loop), status = EXIT_DONE;

	if (rc != 0)
		return cli_refuse(COMMAND, "cannot make a loop: %s", strerror(-rc));
	rc = ask_open(&ask, loop, proxy);
	if (rc == 0)
		rc = ask_redis(&ask, line, WAIT_NS, &reply);
	if (rc == -ETIMEDOUT)
		status = cli_refuse(COMMAND, "no answer in 60 s: a member that is added has to run and to reach the "
					     "others; the change goes on until it does, or its id is removed");
	else if (rc != 0 || is_unknown(&reply))
		status = tell_no_proxy(loop, proxy, rc);
	else if (reply.type == RESP_ERROR)
		status = cli_refuse(COMMAND, "%.*s", (int)reply.bytes, (const char *)reply.text);
	else
		printf("done\n");
	ask_close(&ask);
	hf_loop_destroy(loop);
	return status == EXIT_DONE ? cli_flush(COMMAND) : status;
}

int smr_members_change(int argc, char **argv)
{
	bool add = argc > 1 && strcmp(argv[1], "add") == 0, drop = argc > 1 && strcmp(argv[1], "remove") == 0;
	struct hf_addr proxy;
	char line[LINE_BYTES];
	size_t n;

	if ((!add || argc < 6) && (!drop || argc != 4))
		return cli_refuse(COMMAND, "say add PROXY ID NAME CONTROL... or remove PROXY ID");
	if (hf_addr_parse(argv[2], &proxy) != 0 || hf_addr_port(&proxy) == 0)
		return cli_refuse(
			COMMAND, "'%s' is no address of a proxy with its port, such as 127.0.0.1:6379", argv[2]);
	n = (size_t)snprintf(line, sizeof(line), "HOLDFAST %s", add ? "ADD" : "REMOVE MEMBER");
	for (int i = 3; i < argc && n < sizeof(line); i++) {
		if (!is_word(argv[i]))
			return cli_refuse(COMMAND, "'%s' is no id, name or address", argv[i]);
		n += (size_t)snprintf(line + n, sizeof(line) - n, " %s", argv[i]);
	}
	if (n >= sizeof(line))
		return cli_refuse(COMMAND, "too many addresses");
	process_catch_signals();
	return send_change(&proxy, line);
}
