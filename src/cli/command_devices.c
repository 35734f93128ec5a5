/* `holdfast devices`: the kinds of device this program can open. */
#include "cli/cli.h"

#include <holdfast/dev.h>

#include <getopt.h>
#include <stdio.h>

/* Said because its absence from the list would be read as "not found on this machine". */
static const char verbs_note[] = "RDMA NICs (libibverbs) are not opened by this version";

int devices_command(int argc, char **argv)
{
	static const struct option options[] = {{"json", no_argument, NULL, 'j'}, {0}};
	const struct hf_dev_kind *kinds = hf_dev_kinds();
	bool json = false;
	json_t *list;
	int answer;

	opterr = 0;
	while ((answer = getopt_long(argc, argv, ":", options, NULL)) != -1) {
		if (answer != 'j')
			return cli_refuse_option("devices", argv, answer);
		json = true;
	}
	if (optind < argc)
		return cli_refuse_option("devices", argv, answer);
	if (!json) {
		for (; kinds->name != NULL; kinds++)
			printf("%-6s %s\n", kinds->name, kinds->what);
		printf("\n%s.\n", verbs_note);
		return cli_flush("devices");
	}
	list = json_array();
	for (; kinds->name != NULL; kinds++)
		json_array_append_new(list, json_pack("{s:s, s:s}", "device", kinds->name, "what", kinds->what));
	return cli_print_json(list);
}
