/* This host: a directory below /tmp, and its loopback. */
#include "bed.h"

#include <stdio.h>
#include <stdlib.h>

#define LONG_NS 3600000000000ull

struct bed bed;

static char directory[64];

int bed_open(void **state)
{
	(void)state;
	snprintf(directory, sizeof(directory), "/tmp/holdfast-test-XXXXXX");
	if (mkdtemp(directory) == NULL)
		return -1;
	bed = (struct bed){.env = hf_env_host(), .directory = directory, .address = "127.0.0.1"};
	return hf_loop_create(bed.env, &bed.loop);
}

int bed_close(void **state)
{
	char command[96];

	(void)state;
	hf_loop_destroy(bed.loop);
	snprintf(command, sizeof(command), "rm -rf %s", directory);
	return system(command);
}

void bed_until(bool (*holds)(void))
{
	while (!holds())
		hf_loop_turn(bed.loop, LONG_NS);
}
