/* `holdfast transfer status`: the rails, streams and failovers of an engine, from its node's status server. */
#include <errno.h>
#include <getopt.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <holdfast/node.h>

#include "cli/ask_page.h"
#include "cli/cli.h"
#include "cli/draw.h"
#include "cli/process.h"
#include "cli/screen.h"
#include "cli/transfer/copy.h"

#define PAGE        "/transfer"
#define EVERY_MS    500u
#define WAIT_NS     2000000000ull
#define LINE_BYTES  256
#define MEGABYTE    1e6
#define STATE_BYTES 64

static double number(const json_t *object, const char *key)
{
	return json_number_value(json_object_get(object, key));
}

static const char *word(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text != NULL ? text : "?";
}

static void put(FILE *to, unsigned columns, const char *line)
{
	fprintf(to, "%.*s\n", (int)columns - 1, line);
}

static void draw_rail(FILE *to, unsigned columns, const json_t *rail)
{
	char line[LINE_BYTES], state[STATE_BYTES];

	if (number(rail, "pause_ms") > 0)
		snprintf(state, sizeof(state), "%.16s, %.1f s left", word(rail, "state"),
			number(rail, "pause_ms") / 1e3);
	else
		snprintf(state, sizeof(state), "%.16s%s", word(rail, "state"),
			json_is_true(json_object_get(rail, "open"))        ? ", open"
			: json_is_true(json_object_get(rail, "reachable")) ? ""
									   : ", unreachable");
	snprintf(line, sizeof(line), "    %-8.32s %-5.8s %-24s %9s  %9s/s  %.0f trips", word(rail, "rail"),
		word(rail, "transport"), state, draw_bytes(number(rail, "bytes")),
		draw_bytes(number(rail, "mb_per_s") * MEGABYTE), number(rail, "trips"));
	put(to, columns, line);
}

static void draw_peer(FILE *to, unsigned columns, const json_t *peer)
{
	const json_t *tcp = json_object_get(peer, "tcp"), *segment = json_object_get(peer, "segment");
	bool up = json_is_true(json_object_get(peer, "up"));
	char line[LINE_BYTES];
	size_t i;
	json_t *rail;

	snprintf(line, sizeof(line), "  peer %.32s: %s, %.0f buffers, %s", up ? word(peer, "peer") : "(gone)",
		up ? "up" : "down", number(segment, "buffers"), draw_bytes(number(segment, "bytes")));
	put(to, columns, line);
	json_array_foreach(json_object_get(peer, "rails"), i, rail) draw_rail(to, columns, rail);
	snprintf(line, sizeof(line), "    %-8s %-5s %.0f streams%-15s %9s", "", "TCP", number(tcp, "streams"), "",
		draw_bytes(number(tcp, "bytes")));
	put(to, columns, line);
}

struct status_page {
	const json_t *root;
	unsigned columns;
};

static void draw(FILE *to, const void *what)
{
	const struct status_page *page = what;
	char line[LINE_BYTES];
	size_t i;
	json_t *at;

	snprintf(line, sizeof(line), "node %.32s: %.0f batches, %.0f buffers of its own", word(page->root, "node"),
		number(page->root, "batches"), number(json_object_get(page->root, "segment"), "buffers"));
	put(to, page->columns, line);
	json_array_foreach(json_object_get(page->root, "peers"), i, at) draw_peer(to, page->columns, at);
	json_array_foreach(json_object_get(page->root, "failovers"), i, at)
	{
		snprintf(line, sizeof(line), "  Transport failover: %.8s -> %.8s: %.0f tasks", word(at, "from"),
			word(at, "to"), number(at, "count"));
		put(to, page->columns, line);
	}
}

static int ask(const struct hf_addr *address, json_t **root_out)
{
	struct hf_error error = {0};
	struct hf_loop *loop;

	*root_out = NULL;
	if (hf_loop_create(hf_env_host(), &loop) != 0)
		return cli_refuse("transfer status", "cannot make a loop");
	*root_out = ask_page(loop, address, PAGE, WAIT_NS, &error);
	hf_loop_destroy(loop);
	return *root_out == NULL ? cli_refuse("transfer status", "%s", error.text) : 0;
}

/* In place on a terminal until it is interrupted or the node is gone; otherwise once. */
static int show(const struct hf_addr *address, bool once)
{
	struct screen screen;
	struct status_page page = {.columns = process_terminal_columns()};
	json_t *root;
	int status = EXIT_DONE;

	screen_open(&screen, false);
	do {
		if (ask(address, &root) != 0)
			status = EXIT_FOUND;
		page.root = root;
		if (status == EXIT_DONE && (once || screen.mode != SCREEN_PICTURE))
			draw(stdout, &page);
		else if (status == EXIT_DONE)
			screen_draw(&screen, draw, &page, 0);
		json_decref(root);
		if (!once && status == EXIT_DONE && screen.mode == SCREEN_PICTURE)
			process_wait_readable(NULL, 0, EVERY_MS);
	} while (!once && screen.mode == SCREEN_PICTURE && status == EXIT_DONE && !process_interrupted());
	screen_close(&screen);
	return status == EXIT_DONE ? cli_flush("transfer") : status;
}

static int find_address(const char *config_path, struct hf_addr *address)
{
	static struct hf_node_config config;
	struct hf_error error = {0};

	if (hf_node_config_load(hf_env_host(), config_path, &config, &error) != 0)
		return cli_refuse("transfer", "%s", error.text);
	*address = config.http;
	if (address->sa.sa_family == AF_UNSPEC)
		return cli_refuse("transfer", "%s has no `http` address to ask", config_path);
	return 0;
}

int copy_status_command(int argc, char **argv)
{
	static const struct option known[] = {{"config", required_argument, NULL, 'c'},
		{"once", no_argument, NULL, 'o'}, {"json", no_argument, NULL, 'j'}, {0}};
	struct hf_addr address = {0};
	const char *config = NULL;
	bool once = false, json = false;
	json_t *root;
	int answer;

	opterr = 0;
	optind = 1;
	while ((answer = getopt_long(argc, argv, ":", known, NULL)) != -1) {
		if (answer == '?' || answer == ':')
			return cli_refuse_option("transfer", argv, answer);
		if (answer == 'c')
			config = optarg;
		once = once || answer == 'o';
		json = json || answer == 'j';
	}
	if (argc - optind != (config == NULL ? 1 : 0))
		return cli_refuse("transfer", "give the `http` address of a node, or its --config FILE");
	if (config != NULL && find_address(config, &address) != 0)
		return EXIT_WRONG_INPUT;
	if (config == NULL && (hf_addr_parse(argv[optind], &address) != 0 || hf_addr_port(&address) == 0))
		return cli_refuse("transfer", "'%s' is not an address and port, such as 127.0.0.1:9400", argv[optind]);
	process_catch_signals();
	if (!json)
		return show(&address, once);
	if (ask(&address, &root) != 0)
		return EXIT_FOUND;
	return cli_print_json(root);
}
