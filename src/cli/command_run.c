/* `holdfast run -- PROGRAM`: a program written for libibverbs, unmodified, on a bond of rails.
 *
 * Becomes the program, with the libraries of src/preload loaded before libibverbs. What was asked for travels in the
 * environment, HOLDFAST_VERBS_..., so that the program's children have it too. */
#include "cli/cli.h"

#include <holdfast/dev.h>
#include <holdfast/node.h>

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/installed.h"
#include "cli/process.h"
#include "cli/version.h"
#include "env/share.h"

#define LIBRARY       "libholdfast-verbs.so"
#define PATHS_LIBRARY "libholdfast-paths.so" /* beside it */
#define PRELOAD_BYTES (3 * PATH_MAX)

struct request {
	const char *config, *device, *node, *fabric;
};

static int preload(void)
{
	const char *others = getenv("LD_PRELOAD");
	char library[PATH_MAX], list[PRELOAD_BYTES];
	int folder, length;

	if (!installed_find(HOLDFAST_VERBS_FROM_BIN, LIBRARY, library))
		return cli_refuse("run", "%s is neither beside this program nor in %s from there; install it again",
			LIBRARY, HOLDFAST_VERBS_FROM_BIN);
	if (strpbrk(library, " :") != NULL)
		return cli_refuse(
			"run", "'%s' cannot be preloaded: install it where the path has no blank or colon", library);
	folder = (int)(strrchr(library, '/') - library);
	length = snprintf(list, sizeof(list), "%s:%.*s/%s%s%s", library, folder, library, PATHS_LIBRARY,
		others != NULL ? ":" : "", others != NULL ? others : "");
	if (length < 0 || (size_t)length >= sizeof(list))
		return cli_refuse("run", "LD_PRELOAD is too long");
	return setenv("LD_PRELOAD", list, 1) == 0 ? EXIT_DONE : cli_refuse("run", "%s", strerror(errno));
}

static bool known_kind(const char *name)
{
	for (const struct hf_dev_kind *kind = hf_dev_kinds(); kind->name != NULL; kind++)
		if (strcmp(kind->name, name) == 0)
			return true;
	return false;
}

static int ask(const char *variable, const char *value)
{
	if (value == NULL)
		return EXIT_DONE;
	return setenv(variable, value, 1) == 0 ? EXIT_DONE : cli_refuse("run", "%s", strerror(errno));
}

/* The file is read here only to complain in time; the program reads it where it opens the device. */
static int ask_config(const char *file)
{
	struct hf_node_config config;
	struct hf_error error = {0};
	char path[PATH_MAX];

	if (file == NULL)
		return EXIT_DONE;
	if (hf_node_config_load(hf_env_host(), file, &config, &error) != 0)
		return cli_refuse("run", "%s", error.text);
	for (unsigned i = 0; i < config.rail_count; i++)
		if (!known_kind(config.rails[i].kind))
			return cli_refuse("run", "%s: rail %s: there is no device '%s'; `holdfast devices` lists them",
				file, config.rails[i].name, config.rails[i].kind);
	if (realpath(file, path) == NULL)
		return cli_refuse("run", "%s: %s", file, strerror(errno));
	return ask("HOLDFAST_VERBS_CONFIG", path);
}

static int check_name(const char *option, const char *name)
{
	if (name == NULL || (share_name_valid(name) && strlen(name) < HF_NAME_BYTES))
		return EXIT_DONE;
	return cli_refuse("run", "%s '%s' is no name: 1 to %d of a-z 0-9 . _ - and no leading dot", option, name,
		HF_NAME_BYTES - 1);
}

static int prepare(const struct request *request)
{
	int status = EXIT_DONE;

	if (request->config != NULL && (request->device != NULL || request->node != NULL || request->fabric != NULL))
		return cli_refuse("run", "--config says all that --device, --node and --fabric would");
	if (request->device != NULL && !known_kind(request->device))
		return cli_refuse("run", "there is no device '%s'; `holdfast devices` lists them", request->device);
	status = check_name("--node", request->node);
	if (status == EXIT_DONE)
		status = check_name("--fabric", request->fabric);
	if (status == EXIT_DONE)
		status = ask_config(request->config);
	if (status == EXIT_DONE)
		status = ask("HOLDFAST_VERBS_DEVICE", request->device);
	if (status == EXIT_DONE)
		status = ask("HOLDFAST_VERBS_NODE", request->node);
	if (status == EXIT_DONE)
		status = ask("HOLDFAST_VERBS_FABRIC", request->fabric);
	return status == EXIT_DONE ? preload() : status;
}

int run_command(int argc, char **argv)
{
	static const struct option options[] = {{"config", required_argument, NULL, 'c'},
		{"device", required_argument, NULL, 'd'}, {"node", required_argument, NULL, 'n'},
		{"fabric", required_argument, NULL, 'f'}, {0}};
	struct request request = {0};
	int answer, status;

	opterr = 0;
	while ((answer = getopt_long(argc, argv, "+:", options, NULL)) != -1) {
		if (answer == 'c')
			request.config = optarg;
		else if (answer == 'd')
			request.device = optarg;
		else if (answer == 'n')
			request.node = optarg;
		else if (answer == 'f')
			request.fabric = optarg;
		else
			return cli_refuse_option("run", argv, answer);
	}
	if (optind == argc)
		return cli_refuse("run", "name a program: holdfast run -- ib_write_bw");
	status = prepare(&request);
	if (status != EXIT_DONE)
		return status;
	return cli_refuse("run", "%s: %s", argv[optind], strerror(-process_become(argv + optind)));
}
