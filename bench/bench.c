/* The program holdfast-bench, which `holdfast bench` becomes: finds the set of figures that was asked for. */
#include "bench/bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/fabric_sweep.h"
#include "cli/installed.h"
#include "cli/process.h"
#include "cli/version.h"

#define FABRIC_PREFIX "bench-"

static const struct {
	const char *name;
	int (*run)(int argc, char **argv);
} sets[] = {{"ground", bench_ground}, {"verbs", bench_verbs}, {"failover", bench_failover}, {"smr", bench_smr},
	{"transfer", bench_transfer}, {"broker", bench_broker}, {"kv", bench_kv}};

int bench_refuse(const char *words, const char *argument)
{
	return cli_refuse("bench", "%s '%s'; `holdfast help bench` shows the options", words, argument);
}

void bench_fabric_name(char name[HF_NAME_BYTES], int near_pid)
{
	snprintf(name, HF_NAME_BYTES, FABRIC_PREFIX "%d", near_pid);
}

int main(int argc, char **argv)
{
	static char holdfast[PATH_MAX]; /* what is measured as a process of its own, is that program */

	for (int i = 1; i < argc; i++)
		if (strcmp(argv[i], "--help") == 0) {
			bench_help();
			return cli_flush("bench");
		}
	if (!installed_find(HOLDFAST_BIN_FROM_BENCH, "holdfast", holdfast))
		return cli_refuse("bench",
			"the program holdfast is neither beside holdfast-bench nor in %s from there; "
			"install both again",
			HOLDFAST_BIN_FROM_BENCH);
	process_set_program(holdfast);
	process_raise_descriptors();
	fabric_sweep(FABRIC_PREFIX);
	if (argc < 2 || argv[1][0] == '-')
		return bench_ground(argc, argv);
	for (size_t i = 0; i < sizeof(sets) / sizeof(sets[0]); i++)
		if (strcmp(argv[1], sets[i].name) == 0)
			return sets[i].run(argc - 1, argv + 1);
	return bench_refuse("there is no set of figures called", argv[1]);
}
