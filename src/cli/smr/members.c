/* `holdfast smr members`: adds or removes a member, through any proxy. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/process.h"
#include "cli/smr/ask.h"
#include "cli/smr/smr.h"

#define COMMAND    "smr members"
#define WAIT_NS    60000000000ull /* a snapshot takes its time */
#define LINE_BYTES 400u

static bool is_word(const char *text)
{
	return text[0] != '\0' && strpbrk(text, " \t\r\n\"'") == NULL;
}

static int send_change(const struct hf_addr *proxy, const char *line)
{
	struct resp_element reply = {0};
	struct hf_loop *loop;
	struct ask ask = {0};
	char text[HF_ADDR_TEXT];
	int rc = hf_loop_create(hf_env_host(), &loop), status = EXIT_DONE;

	if (rc != 0)
		return cli_refuse(COMMAND, "cannot make a loop: %s", strerror(-rc));
	rc = ask_open(&ask, loop, proxy);
	if (rc == 0)
		rc = ask_redis(&ask, line, WAIT_NS, &reply);
	if (rc == -ETIMEDOUT)
		status = cli_refuse(COMMAND, "no answer in 60 s: a member that is added has to run and to reach the "
					     "others; the change goes on until it does, or its id is removed");
	else if (rc != 0)
		status = cli_refuse(COMMAND,
			"%s does not answer as a proxy: %s; give the address under `listen` of a "
			"member that runs",
			hf_addr_format(proxy, text), strerror(-rc));
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
