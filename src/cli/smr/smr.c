/* `holdfast smr`: finds the subcommand. */
#include "cli/smr/smr.h"

#include <string.h>

#include "cli/cli.h"

int smr_command(int argc, char **argv)
{
	if (argc > 1 && strcmp(argv[1], "status") == 0)
		return smr_status(argc - 1, argv + 1);
	if (argc > 1 && strcmp(argv[1], "members") == 0)
		return smr_members_change(argc - 1, argv + 1);
	if (argc > 1 && strcmp(argv[1], "demo") == 0)
		return smr_demo(argc - 1, argv + 1);
	if (argc > 1)
		return cli_refuse("smr", "there is no 'smr %s'; `holdfast help smr` shows what there is", argv[1]);
	return cli_refuse("smr", "say what to do: `holdfast help smr` shows what there is");
}
