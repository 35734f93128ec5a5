/* `holdfast transfer`: reads what is wanted of its two ends. */
#include <errno.h>
#include <getopt.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/process.h"
#include "cli/transfer/copy.h"
#include "cli/tree.h"

#define NS_A_SECOND     1e9
#define MEGABYTE        1e6
#define RATE_MOST       1e6
#define TIMEOUT_DEFAULT 10.0
#define TIMEOUT_MOST    3600.0

static const struct option known[] = {{"config", required_argument, NULL, 'c'},
	{"engine", required_argument, NULL, 'e'}, {"listen", required_argument, NULL, 'l'},
	{"fallback", required_argument, NULL, 'f'}, {"rate", required_argument, NULL, 'r'},
	{"timeout", required_argument, NULL, 't'}, {"copy-links", no_argument, NULL, 'L'},
	{"once", no_argument, NULL, 'o'}, {"json", no_argument, NULL, 'j'}, {0}};

struct asked {
	struct copy_node_options node;
	uint64_t rate_bytes, timeout_ns;
	bool once, json, copy_links;
	const char *only_send, *only_receive; /* an option that the other end alone has */
};

static int parse_fallback(const char *text, struct asked *asked)
{
	asked->node.fallback_given = true;
	if (strcmp(text, "auto") == 0)
		asked->node.fallback = HF_FALLBACK_AUTO;
	else if (strcmp(text, "off") == 0)
		asked->node.fallback = HF_FALLBACK_OFF;
	else if (strcmp(text, "required") == 0)
		asked->node.fallback = HF_FALLBACK_REQUIRED;
	else
		return cli_refuse("transfer", "--fallback '%s' is none of auto, off, required", text);
	return 0;
}

static int parse_option(int answer, const char *value, struct asked *asked)
{
	switch (answer) {
	case 'c':
		asked->node.config = value;
		return 0;
	case 'e':
		asked->node.engine = value;
		return 0;
	case 'l':
		if (hf_addr_parse(value, &asked->node.listen) != 0)
			return cli_refuse("transfer", "--listen '%s' is not an address, such as 10.0.0.1", value);
		return 0;
	case 'f':
		return parse_fallback(value, asked);
	case 'r':
		asked->only_send = "rate";
		return cli_take_number("transfer", "rate", value, 0, RATE_MOST, MEGABYTE, &asked->rate_bytes);
	case 't':
		asked->only_send = "timeout";
		return cli_take_number("transfer", "timeout", value, 1, TIMEOUT_MOST, NS_A_SECOND, &asked->timeout_ns);
	case 'L':
		asked->only_send = "copy-links";
		asked->copy_links = true;
		return 0;
	case 'o':
		asked->only_receive = "once";
		asked->once = true;
		return 0;
	default:
		asked->json = true;
		return 0;
	}
}

static int parse(int argc, char **argv, struct asked *asked)
{
	int answer, refused;

	*asked = (struct asked){.timeout_ns = (uint64_t)(TIMEOUT_DEFAULT * NS_A_SECOND)};
	opterr = 0;
	optind = 1;
	while ((answer = getopt_long(argc, argv, ":L", known, NULL)) != -1) {
		if (answer == '?' || answer == ':')
			return cli_refuse_option("transfer", argv, answer);
		refused = parse_option(answer, optarg, asked);
		if (refused)
			return refused;
	}
	if ((asked->node.config == NULL) == (asked->node.engine == NULL))
		return cli_refuse("transfer",
			"give the rails and addresses of this node with --config FILE, or a transfer-engine.json with "
			"--engine FILE");
	return 0;
}

static int receive_command(int argc, char **argv)
{
	struct asked asked;
	struct copy_receive_options options;
	uint64_t bytes;
	int refused = parse(argc, argv, &asked);

	if (refused)
		return refused;
	if (asked.only_send != NULL)
		return cli_refuse("transfer", "--%s is an option of the sender", asked.only_send);
	if (argc - optind != 1)
		return cli_refuse("transfer", "give one directory: holdfast transfer receive DIRECTORY --config FILE");
	if (tree_kind(argv[optind], &bytes) != TREE_DIRECTORY)
		return cli_refuse("transfer", "there is no directory '%s' to receive into", argv[optind]);
	options = (struct copy_receive_options){
		.directory = argv[optind], .once = asked.once, .json = asked.json, .node = asked.node};
	process_catch_signals();
	return copy_receive(&options);
}

/* ADDRESS[,ADDRESS]... */
static int parse_to(const char *text, struct copy_send_options *options)
{
	char part[HF_ADDR_TEXT];

	for (const char *at = text;; at++) {
		size_t length = strcspn(at, ",");

		if (options->to_count == COPY_ADDRESSES)
			return cli_refuse("transfer", "'%s' has more than %u addresses", text, COPY_ADDRESSES);
		if (length >= sizeof(part))
			return cli_refuse("transfer", "'%.80s' is not an address and port, such as 10.0.0.2:18515", at);
		memcpy(part, at, length);
		part[length] = '\0';
		if (hf_addr_parse(part, &options->to[options->to_count]) != 0 ||
			hf_addr_port(&options->to[options->to_count]) == 0)
			return cli_refuse("transfer", "'%s' is not an address and port, such as 10.0.0.2:18515", part);
		options->to_count++;
		at += length;
		if (*at == '\0')
			return 0;
	}
}

static int send_command(int argc, char **argv)
{
	static struct copy_send_options options;
	struct asked asked;
	int refused = parse(argc, argv, &asked);

	if (refused)
		return refused;
	if (asked.only_receive != NULL)
		return cli_refuse("transfer", "--%s is an option of the receiver", asked.only_receive);
	if (argc - optind != 2)
		return cli_refuse("transfer",
			"give what is sent and to which receiver: holdfast transfer send PATH ADDRESS --config FILE");
	options = (struct copy_send_options){.path = argv[optind],
		.rate_bytes = asked.rate_bytes,
		.connect_timeout_ns = asked.timeout_ns,
		.json = asked.json,
		.copy_links = asked.copy_links,
		.node = asked.node};
	refused = parse_to(argv[optind + 1], &options);
	if (refused)
		return refused;
	process_catch_signals();
	return copy_send(&options);
}

int transfer_command(int argc, char **argv)
{
	if (argc > 1 && strcmp(argv[1], "receive") == 0)
		return receive_command(argc - 1, argv + 1);
	if (argc > 1 && strcmp(argv[1], "send") == 0)
		return send_command(argc - 1, argv + 1);
	if (argc > 1 && strcmp(argv[1], "status") == 0)
		return copy_status_command(argc - 1, argv + 1);
	if (argc > 1)
		return cli_refuse("transfer", "'%s' is none of send, receive, status", argv[1]);
	return cli_refuse("transfer", "say send, receive or status; `holdfast help transfer` shows how");
}
