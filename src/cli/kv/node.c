/* `holdfast kv`: one member of a store, until it is told to end. It leaves its cluster then. */
#include "cli/cli.h"

#include <holdfast/kv.h>

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "cli/client_limit.h"
#include "cli/kv/kv.h"
#include "cli/process.h"

#define SLEEP_NS 200000000ull /* between two looks at whether it was told to end */
#define LEAVE_NS 1000000ull   /* and at whether it has left */
/* Descriptors for anything but clients, and for each so many MiB of the store. */
#define OTHER_FILES 400u
#define FILE_MB     4u

struct options {
	const char *config;
};

static int parse(int argc, char **argv, struct options *options)
{
	static const struct option longs[] = {{"config", required_argument, NULL, 'c'}, {0}};
	int c;

	opterr = 0;
	while ((c = getopt_long(argc, argv, ":", longs, NULL)) != -1) {
		if (c != 'c')
			return cli_refuse_option("kv", argv, c);
		options->config = optarg;
	}
	if (optind < argc)
		return cli_refuse("kv", "unknown argument '%s'; `holdfast help kv` shows what there is", argv[optind]);
	if (options->config == NULL)
		return cli_refuse("kv", "no configuration; give one with --config FILE (docs/kv.md has an example)");
	return EXIT_DONE;
}

static void announce(const struct hf_node_config *node, struct hf_kv *kv)
{
	struct hf_addr address;
	char text[HF_ADDR_TEXT];

	if (hf_kv_address(kv, &address) == 0)
		printf("kv: %s takes clients of Redis at %s\n", node->name, hf_addr_format(&address, text));
	else
		printf("kv: %s runs\n", node->name);
	fflush(stdout);
}

static int serve(const struct hf_node_config *node_config, const struct hf_kv_config *config)
{
	struct hf_error error = {0};
	struct hf_loop *loop;
	struct hf_node *node = NULL;
	struct hf_kv *kv = NULL;
	struct hf_kv_status status = {0};
	int rc = hf_loop_create(hf_env_host(), &loop);

	if (rc != 0)
		return cli_refuse("kv", "cannot make a loop: %s", strerror(-rc));
	log_set_service("kv", node_config->name);
	rc = hf_node_open(loop, node_config, NULL, NULL, &node, &error);
	if (rc == 0)
		rc = hf_kv_open(node, config, &kv, &error);
	if (rc == 0) {
		announce(node_config, kv);
		while (!process_interrupted() && !status.failed) {
			(void)hf_loop_turn(loop, SLEEP_NS);
			hf_kv_status(kv, &status);
		}
		hf_kv_leave(kv);
		while (!status.failed && !hf_kv_has_left(kv))
			(void)hf_loop_turn(loop, LEAVE_NS);
	}
	hf_kv_close(kv);
	hf_node_close(node);
	hf_loop_destroy(loop);
	if (status.failed)
		return cli_fail("kv",
			"%s has left its cluster, because its log failed: the errors before have the reason",
			node_config->name);
	return rc == 0 ? cli_flush("kv") : cli_refuse("kv", "%s", error.text);
}

int kv_command(int argc, char **argv)
{
	struct options options = {0};
	struct hf_node_config node;
	struct hf_kv_config kv;
	struct hf_config_section sections[] = {hf_node_config_section(&node), hf_kv_config_section(&kv)};
	struct hf_error error = {0};
	int rc;

	if (argc > 1 && strcmp(argv[1], "status") == 0)
		return kv_status(argc - 1, argv + 1);
	rc = parse(argc, argv, &options);
	if (rc != EXIT_DONE)
		return rc;
	rc = hf_config_load(hf_env_host(), options.config, sections, 2, &error);
	if (rc != 0)
		return cli_refuse("kv", "%s", error.text);
	rc = client_limit_fit("kv", HF_KV_CLIENTS, OTHER_FILES + kv.store_mb / FILE_MB, &kv.clients);
	if (rc != EXIT_DONE)
		return rc;
	node.cores = kv.cores;
	process_catch_signals();
	return serve(&node, &kv);
}
