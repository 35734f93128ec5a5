/* The program: finds the command that was asked for and runs it. */
#include "cli/cli.h"

#include <holdfast/error.h>

#include <stdio.h>
#include <string.h>

#include "cli/help.h"
#include "cli/process.h"
#include "cli/version.h"

static const struct command commands[] = {
	{"demo", demo_command, "move files between two nodes while their rails are cut, and show that all arrived"},
	{"dev", dev_command, "start the members of a service on this host, until Ctrl-C"},
	{"init", init_command, "write the configurations of a service's members"},
	{"transfer", transfer_command, "copy files to another node over all rails, and over tcp when none is left"},
	{"run", run_command, "run an unmodified program written for libibverbs on several rails"},
	{"kv", kv_command, "run a member of the replicated store, for clients of Redis"},
	{"broker", broker_command, "serve Kafka's protocol to stock clients"},
	{"produce", produce_command, "write lines into a topic of a broker, as records"},
	{"consume", consume_command, "read the records of topics, as lines"},
	{"topics", topics_command, "list, describe, create and delete topics of brokers"},
	{"groups", groups_command, "list, describe and delete groups of consumers"},
	{"smr", smr_command, "show and change the members of a replicated log; a demo"},
	{"smr-proxy", smr_proxy_command, "run a member of a replicated Redis or memcached"},
	{"link", link_command, "switch a link down or up"},
	{"links", links_command, "list the links and their states"},
	{"devices", devices_command, "list the kinds of device and the RDMA NICs there are"},
	{"bench", bench_command,
		"measure devices, vqps, failovers, transfers, the replicated log, the store and the broker"},
	{"version", version_command, "print the version"},
	{"help", help_command, "show the usage of a command"},
	{"demo-node", demo_node_command, NULL},
	{"transfer-node", pair_node_command, NULL},
};

#define COMMANDS (sizeof(commands) / sizeof(commands[0]))

static const struct command *command_find(const char *name)
{
	for (unsigned i = 0; i < COMMANDS; i++)
		if (strcmp(commands[i].name, name) == 0)
			return &commands[i];
	return NULL;
}

static void usage(FILE *to)
{
	fputs("usage: holdfast COMMAND [OPTION]... [ARGUMENT]...\n\ncommands:\n", to);
	for (unsigned i = 0; i < COMMANDS; i++)
		if (commands[i].what != NULL)
			fprintf(to, "  %-9s %s\n", commands[i].name, commands[i].what);
	fputs("\n`holdfast help COMMAND` shows its options.\n"
	      "Exit status: 0 done; 1 a fault was found while it ran; 2 wrong input, nothing was done.\n",
		to);
}

int help_command(int argc, char **argv)
{
	const struct command *command;

	if (argc < 2) {
		usage(stdout);
		return cli_flush("help");
	}
	command = command_find(argv[1]);
	if (command == NULL || command->what == NULL)
		return cli_refuse("help", "there is no command '%s'; `holdfast help` lists them", argv[1]);
	if (command->run == bench_command)
		return bench_command(2, (char *[]){"bench", "--help", NULL});
	help_print(command->name, command->what, stdout);
	return cli_flush("help");
}

int version_command(int argc, char **argv)
{
	bool json = argc == 2 && strcmp(argv[1], "--json") == 0;

	if (argc > 1 && !json)
		return cli_refuse("version", "unknown argument '%s'; only --json is known", argv[1]);
	if (json)
		return cli_print_json(json_pack("{s:s, s:s}", "name", "holdfast", "version", HOLDFAST_VERSION));
	printf("holdfast %s\n", HOLDFAST_VERSION);
	return cli_flush("version");
}

int main(int argc, char **argv)
{
	const struct command *command;
	const char *name;

	if (argc < 2) {
		usage(stderr);
		return EXIT_WRONG_INPUT;
	}
	name = argv[1];
	if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
		name = "help";
	if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0)
		name = "version";
	command = command_find(name);
	if (command == NULL) {
		fprintf(stderr, "holdfast: there is no command '%s'; `holdfast help` lists them\n", name);
		return EXIT_WRONG_INPUT;
	}
	for (int i = 2;
		command->what != NULL && command->run != bench_command && i < argc && strcmp(argv[i], "--") != 0; i++)
		if (strcmp(argv[i], "--help") == 0) {
			help_print(command->name, command->what, stdout);
			return cli_flush("help");
		}
	if (command->run != run_command) /* it starts another program */
		process_raise_descriptors();
	return command->run(argc - 1, argv + 1);
}
