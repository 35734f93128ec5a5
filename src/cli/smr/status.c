/* `holdfast smr status`: leader, members and past changes of leader, as one member sees them. */
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/process.h"
#include "cli/smr/ask.h"
#include "cli/smr/smr.h"

#define COMMAND  "smr status"
#define WAIT_NS  2000000000ull
#define AGAIN_NS 1000000000ull

static double number(const json_t *json, const char *key)
{
	return json_number_value(json_object_get(json, key));
}

static const char *text(const json_t *json, const char *key)
{
	const char *value = json_string_value(json_object_get(json, key));

	return value == NULL ? "?" : value;
}

static void print_members(const json_t *json)
{
	double leader = number(json, "leader"), applied = number(json, "applied");
	json_t *member;
	size_t i;

	json_array_foreach(json_object_get(json, "members"), i, member)
		printf("  %2.0f  %-16s %-8s %-8s applied %.0f%s%s\n", number(member, "id"), text(member, "name"),
			json_is_true(json_object_get(member, "voter")) ? "voter" : "learner",
			json_is_true(json_object_get(member, "alive")) ? "alive" : "silent", number(member, "applied"),
			number(member, "applied") + 64 < applied ? ", behind" : "",
			number(member, "id") == leader ? ", leads" : "");
}

static void print_status(const json_t *json)
{
	json_t *failover;
	size_t i;

	if (number(json, "leader") >= 0)
		printf("member %.0f (%s): member %.0f leads", number(json, "id"), text(json, "role"),
			number(json, "leader"));
	else
		printf("member %.0f (%s): no leader is known", number(json, "id"), text(json, "role"));
	printf("; decided below %.0f, applied below %.0f, floor %.0f\n", number(json, "commit"),
		number(json, "applied"), number(json, "floor"));
	print_members(json);
	json_array_foreach(json_object_get(json, "failovers"), i, failover) printf(
		"  began to lead: detection %.0f us, grants %.0f us, catch-up %.0f us\n",
		number(failover, "detection_us"), number(failover, "grant_us"), number(failover, "catch_up_us"));
}

/* Every second until it is told to end. */
static int follow(struct hf_loop *loop, const struct hf_addr *address)
{
	struct hf_error error = {0};
	json_t *json;

	while (!process_interrupted()) {
		uint64_t end_ns = hf_env_now_ns(hf_loop_env(loop)) + AGAIN_NS;

		json = ask_page(loop, address, "/smr.json", WAIT_NS, &error);
		if (json == NULL)
			printf("%s\n", error.text);
		else
			print_status(json);
		json_decref(json);
		if (cli_flush(COMMAND) != EXIT_DONE)
			return EXIT_FOUND;
		while (!process_interrupted() && hf_env_now_ns(hf_loop_env(loop)) < end_ns)
			(void)hf_loop_turn(loop, AGAIN_NS / 10);
	}
	return EXIT_DONE;
}

static int show(struct hf_loop *loop, const struct hf_addr *address, bool as_json)
{
	struct hf_error error = {0};
	json_t *json = ask_page(loop, address, "/smr.json", WAIT_NS, &error);

	if (json == NULL)
		return cli_refuse(COMMAND, "%s", error.text);
	if (as_json)
		return cli_print_json(json);
	print_status(json);
	json_decref(json);
	return cli_flush(COMMAND);
}

int smr_status(int argc, char **argv)
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
			return cli_refuse_option(COMMAND, argv, c);
		as_json |= c == 'j';
		live |= c == 'f';
	}
	if (optind + 1 != argc || hf_addr_parse(argv[optind], &address) != 0 || hf_addr_port(&address) == 0)
		return cli_refuse(
			COMMAND, "give the address of a member's \"http\" with its port, such as 127.0.0.1:8080");
	if (hf_loop_create(hf_env_host(), &loop) != 0)
		return cli_refuse(COMMAND, "cannot make a loop");
	process_catch_signals();
	status = live ? follow(loop, &address) : show(loop, &address, as_json);
	hf_loop_destroy(loop);
	return status;
}
