/* holdfast bench: finds the set of figures that was asked for. */
#include "cli/bench/bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/fabric_sweep.h"

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

int bench_command(int argc, char **argv)
{
	fabric_sweep(FABRIC_PREFIX);
	if (argc < 2 || argv[1][0] == '-')
		return bench_ground(argc, argv);
	for (size_t i = 0; i < sizeof(sets) / sizeof(sets[0]); i++)
		if (strcmp(argv[1], sets[i].name) == 0)
			return sets[i].run(argc - 1, argv + 1);
	return bench_refuse("there is no set of figures called", argv[1]);
}
