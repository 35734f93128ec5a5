/* holdfast bench: becomes the program holdfast-bench, which is not installed by default. */
#include "cli/cli.h"

#include <string.h>

#include "cli/installed.h"
#include "cli/process.h"
#include "cli/version.h"

#define BENCH_PROGRAM "holdfast-bench"

int bench_command(int argc, char **argv)
{
	char path[PATH_MAX];

	(void)argc;
	if (!installed_find(HOLDFAST_BENCH_FROM_BIN, BENCH_PROGRAM, path))
		return cli_refuse("bench",
			"the program %s is neither beside this one nor in %s from there; `make` builds it in a "
			"checkout of Holdfast, and `meson setup -Dbench=true` lets `meson install` install it",
			BENCH_PROGRAM, HOLDFAST_BENCH_FROM_BIN);
	argv[0] = path;
	return cli_refuse("bench", "%s: %s", path, strerror(-process_become(argv)));
}
