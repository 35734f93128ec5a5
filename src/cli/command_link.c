/* `holdfast link up|down NODE/RAIL`, the operator's switch, and `holdfast link rate NODE/RAIL MB/S`. */
#include "cli/cli.h"

#include <holdfast/fabric.h>

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAMES_BYTES 512
#define RATE_MOST   1000000u

struct order {
	const char *fabric, *way;
	char node[HF_NAME_BYTES], rail[HF_NAME_BYTES];
	enum hf_link direction;
	bool up, json;
	bool rates; /* `rate`, not a switch: */
	uint32_t mb_per_s;
};

struct found {
	unsigned n;
	char first[HF_NAME_BYTES * 4];
	char names[NAMES_BYTES];
};

static void note_fabric(const char *name, void *context)
{
	struct found *found = context;
	size_t used = strlen(found->names);

	if (found->n++ == 0)
		snprintf(found->first, sizeof(found->first), "%s", name);
	snprintf(found->names + used, sizeof(found->names) - used, "%s%s", used > 0 ? ", " : "", name);
}

static bool parse_target(const char *text, struct order *order)
{
	const char *slash = strchr(text, '/');
	size_t node_bytes = slash != NULL ? (size_t)(slash - text) : 0;

	if (node_bytes == 0 || node_bytes >= HF_NAME_BYTES || slash[1] == '\0' || strlen(slash + 1) >= HF_NAME_BYTES)
		return false;
	memcpy(order->node, text, node_bytes);
	order->node[node_bytes] = '\0';
	memcpy(order->rail, slash + 1, strlen(slash + 1) + 1);
	return true;
}

static int print_rate(const struct order *order)
{
	if (order->json)
		return cli_print_json(json_pack("{s:s, s:s, s:s, s:i}", "fabric", order->fabric, "node", order->node,
			"rail", order->rail, "mb_per_s", (int)order->mb_per_s));
	if (order->mb_per_s == 0)
		printf("%s/%s of fabric %s: no bound of its rate\n", order->node, order->rail, order->fabric);
	else
		printf("%s/%s of fabric %s: sends at most %u MB/s\n", order->node, order->rail, order->fabric,
			order->mb_per_s);
	return cli_flush("link");
}

static int switch_link(const struct order *order)
{
	struct hf_error error = {0};
	struct hf_fabric *fabric;
	int failed = hf_fabric_open(order->fabric, false, &fabric, &error);

	if (!failed) {
		failed = order->rates ? hf_fabric_set_rate(fabric, order->node, order->rail, order->mb_per_s, &error)
				      : hf_fabric_set_link(
						fabric, order->node, order->rail, order->direction, order->up, &error);
		hf_fabric_close(fabric);
	}
	if (failed)
		return cli_refuse("link", "%s", error.text[0] != '\0' ? error.text : strerror(-failed));
	if (order->rates)
		return print_rate(order);
	if (order->json)
		return cli_print_json(json_pack("{s:s, s:s, s:s, s:s, s:b}", "fabric", order->fabric, "node",
			order->node, "rail", order->rail, "direction", order->way, "up", order->up));
	printf("%s/%s of fabric %s: %s %s\n", order->node, order->rail, order->fabric, order->way,
		order->up ? "up" : "down");
	return cli_flush("link");
}

static int find_fabric(struct order *order)
{
	struct found found = {0};
	int failed, status;

	if (order->fabric != NULL)
		return switch_link(order);
	failed = hf_fabric_each(note_fabric, &found);
	if (failed)
		return cli_refuse("link", "the fabrics in /dev/shm cannot be listed: %s", strerror(-failed));
	if (found.n == 0)
		return cli_refuse("link", "there is no fabric: start a program that opens a port on one first");
	if (found.n > 1)
		return cli_refuse(
			"link", "there are %u fabrics (%s); say which with --fabric NAME", found.n, found.names);
	order->fabric = found.first;
	status = switch_link(order);
	order->fabric = NULL;
	return status;
}

static bool parse_direction(const char *text, struct order *order)
{
	order->way = text;
	if (strcmp(text, "both") == 0)
		order->direction = HF_LINK_BOTH;
	else if (strcmp(text, "tx") == 0)
		order->direction = HF_LINK_TX;
	else if (strcmp(text, "rx") == 0)
		order->direction = HF_LINK_RX;
	else
		return false;
	return true;
}

static bool parse_rate(const char *text, uint32_t *mb_per_s)
{
	char *end;
	unsigned long number = strtoul(text, &end, 10);

	*mb_per_s = (uint32_t)number;
	if (strcmp(text, "off") == 0)
		return true;
	return text[0] >= '0' && text[0] <= '9' && *end == '\0' && number >= 1 && number <= RATE_MOST;
}

int link_command(int argc, char **argv)
{
	static const struct option options[] = {{"fabric", required_argument, NULL, 'f'},
		{"direction", required_argument, NULL, 'd'}, {"json", no_argument, NULL, 'j'}, {0}};
	struct order order = {.way = "both", .direction = HF_LINK_BOTH};
	int answer;

	opterr = 0;
	while ((answer = getopt_long(argc, argv, ":", options, NULL)) != -1) {
		if (answer == 'f')
			order.fabric = optarg;
		else if (answer == 'j')
			order.json = true;
		else if (answer == 'd') {
			if (!parse_direction(optarg, &order))
				return cli_refuse("link", "direction '%s' is none of tx, rx, both", optarg);
		} else
			return cli_refuse_option("link", argv, answer);
	}
	order.rates = argc - optind == 3 && strcmp(argv[optind], "rate") == 0;
	if (order.rates && !parse_rate(argv[optind + 2], &order.mb_per_s))
		return cli_refuse("link",
			"'%s' is no rate: give MB/s from 1 to %u, or off: holdfast link rate NODE/RAIL 50",
			argv[optind + 2], RATE_MOST);
	if (argc - optind != 2 && !order.rates)
		return cli_refuse("link", "give up or down and one link: holdfast link down NODE/RAIL");
	order.up = strcmp(argv[optind], "up") == 0;
	if (!order.up && !order.rates && strcmp(argv[optind], "down") != 0)
		return cli_refuse("link", "'%s' is neither up nor down: holdfast link down NODE/RAIL", argv[optind]);
	if (!parse_target(argv[optind + 1], &order))
		return cli_refuse("link", "'%s' is not NODE/RAIL, such as a/r0; `holdfast links` lists the links",
			argv[optind + 1]);
	return find_fabric(&order);
}
