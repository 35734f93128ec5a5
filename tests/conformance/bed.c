/* What beds have in common; the table of them is bed_host.c's or bed_sim.c's. */
#include "bed.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

const struct bed *bed_find(const char *name)
{
	for (unsigned i = 0; i < bed_count; i++)
		if (strcmp(beds[i].name, name) == 0)
			return &beds[i];
	return NULL;
}

const char *bed_fabric(void)
{
	static char fabric[ACTOR_TEXT];

	if (fabric[0] == 0)
		snprintf(fabric, sizeof(fabric), "conformance-%d", (int)getpid());
	return fabric;
}

const char *bed_kind(const struct bed *bed, unsigned n)
{
	return n == BED_B && bed->kind_b != NULL ? bed->kind_b : bed->kind;
}

const char *bed_address(const struct bed *bed, unsigned n)
{
	static char address[ACTOR_TEXT];
	unsigned run = (unsigned)getpid();

	address[0] = 0;
	if (bed->addresses != NULL)
		return bed->addresses[n];
	if (bed->has_addresses)
		snprintf(address, sizeof(address), "127.%u.%u.%u", 100 + run / 250 % 100, 1 + run % 250, n);
	return address;
}
