#include "cli/fabric_sweep.h"

#include <holdfast/fabric.h>
#include <stdlib.h>
#include <string.h>

#include "cli/process.h"

static void sweep(const char *name, void *context)
{
	const char *prefix = context;
	long pid;

	if (strncmp(name, prefix, strlen(prefix)) != 0)
		return;
	pid = strtol(name + strlen(prefix), NULL, 10);
	if (pid > 0 && !process_alive((pid_t)pid))
		hf_fabric_remove(name); /* refuses one with a live process after all */
}

void fabric_sweep(const char *prefix)
{
	hf_fabric_each(sweep, (void *)(uintptr_t)prefix);
}
