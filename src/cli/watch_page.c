#include "cli/watch_page.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "cli/ask_page.h"
#include "cli/cli.h"
#include "cli/process.h"

#define WAIT_NS  2000000000ull
#define AGAIN_NS 1000000000ull

double watch_number(const json_t *json, const char *key)
{
	return json_number_value(json_object_get(json, key));
}

const char *watch_text(const json_t *json, const char *key)
{
	const char *value = json_string_value(json_object_get(json, key));

	return value == NULL ? "?" : value;
}

/* Every second until it is told to end. */
static int follow(const struct watch_page *watch, struct hf_loop *loop, const struct hf_addr *address)
{
	struct hf_error error = {0};
	json_t *json;

	while (!process_interrupted()) {
		uint64_t end_ns = hf_env_now_ns(hf_loop_env(loop)) + AGAIN_NS;

		json = ask_page(loop, address, watch->path, WAIT_NS, &error);
		if (json == NULL)
			printf("%s\n", error.text);
		else
			watch->print(json);
		json_decref(json);
		if (cli_flush(watch->command) != EXIT_DONE)
			return EXIT_FOUND;
		while (!process_interrupted() && hf_env_now_ns(hf_loop_env(loop)) < end_ns)
			(void)hf_loop_turn(loop, AGAIN_NS / 10);
	}
	return EXIT_DONE;
}

static int show(const struct watch_page *watch, struct hf_loop *loop, const struct hf_addr *address, bool as_json)
{
	struct hf_error error = {0};
	json_t *json = ask_page(loop, address, watch->path, WAIT_NS, &error);

	if (json == NULL)
		return cli_refuse(watch->command, "%s", error.text);
	if (as_json)
		return cli_print_json(json);
	watch->print(json);
	json_decref(json);
	return cli_flush(watch->command);
}

int watch_page(const struct watch_page *watch, int argc, char **argv)
{
	static const struct option longs[] = {
		{"json", no_argument, NULL, 'j'}, {"follow", no_argument, NULL, 'f'}, {0}};
	bool as_json = false, live = false;
	struct hf_addr address;
	struct hf_loop *loop;
	int c, status;

	opterr = 0;
	while ((c = getopt_long(argc, argv, ":", longs, NULL)) != -1) {
		if (c != 'j' && c != 'f')
			return cli_refuse_option(watch->command, argv, c);
		as_json |= c == 'j';
		live |= c == 'f';
	}
	if (optind + 1 != argc || hf_addr_parse(argv[optind], &address) != 0 || hf_addr_port(&address) == 0)
		return cli_refuse(watch->command,
			"give the address of a member's \"http\" with its port, such as 127.0.0.1:8080");
	if (hf_loop_create(hf_env_host(), &loop) != 0)
		return cli_refuse(watch->command, "cannot make a loop");
	process_catch_signals();
	status = live ? follow(watch, loop, &address) : show(watch, loop, &address, as_json);
	hf_loop_destroy(loop);
	return status;
}
