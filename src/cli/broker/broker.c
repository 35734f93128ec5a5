/* `holdfast broker --config FILE`: a Kafka broker until SIGINT or SIGTERM. */
#include "broker/broker.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "cli/broker/broker.h"
#include "cli/cli.h"
#include "cli/process.h"

#define TURN_NS 100000000ull /* how late a signal may be seen */

static void announce(const struct broker *broker, const struct hf_node_config *node)
{
	for (unsigned i = 0; i < broker->config.listeners.count; i++) {
		const struct broker_endpoint *endpoint = &broker->config.listeners.at[i];

		printf("broker %d listens on %s://%s:%u, logs in %s\n", broker->config.node_id, endpoint->name,
			endpoint->host, endpoint->port, broker->config.log_dirs);
	}
	if (broker->node != NULL)
		printf("broker %d is node %s, with %u rails\n", broker->config.node_id, node->name, node->rail_count);
	fflush(stdout);
}

static int serve(struct hf_loop *loop, const struct hf_node_config *node_config, const struct broker_config *config)
{
	struct hf_node *node = NULL;
	struct broker *broker = NULL;
	struct hf_error error;
	char id[16];
	int rc;

	snprintf(id, sizeof(id), "%d", config->node_id);
	log_set_service("broker", id);
	rc = node_config == NULL ? 0 : hf_node_open(loop, node_config, NULL, NULL, &node, &error);
	if (rc == 0)
		rc = broker_open(loop, node, config, &broker, &error);
	if (rc == 0)
		announce(broker, node_config);
	while (rc == 0 && !process_interrupted())
		hf_loop_turn(loop, TURN_NS);
	broker_close(broker);
	hf_node_close(node);
	if (rc != 0)
		return cli_refuse("broker", "%s", error.text);
	printf("broker %d has closed its logs\n", config->node_id);
	return cli_flush("broker");
}

int broker_command(int argc, char **argv)
{
	static const struct option options[] = {{"config", required_argument, NULL, 'c'}, {0}};
	struct hf_env *env = hf_env_host();
	struct hf_node_config node;
	struct broker_config config;
	struct hf_config_section sections[] = {hf_node_config_section(&node), broker_config_section(&config)};
	const char *path = NULL;
	struct hf_error error;
	struct hf_loop *loop;
	int answer, status;

	if (argc > 1 && strcmp(argv[1], "status") == 0)
		return broker_status_command(argc - 1, argv + 1);
	if (argc > 1 && strcmp(argv[1], "recover") == 0)
		return broker_recover_command(argc, argv);
	opterr = 0;
	while ((answer = getopt_long(argc, argv, "+:", options, NULL)) != -1) {
		if (answer != 'c')
			return cli_refuse_option("broker", argv, answer);
		path = optarg;
	}
	if (optind < argc)
		return cli_refuse_option("broker", argv, answer);
	if (path == NULL)
		return cli_refuse("broker", "--config FILE is missing; `holdfast help broker` shows one");
	broker_config_default(&config);
	sections[0].optional = true;
	if (hf_config_load(env, path, sections, 2, &error) != 0)
		return cli_refuse("broker", "%s", error.text);
	node.cores = config.cores;
	process_catch_signals();
	if (hf_loop_create(env, &loop) != 0)
		return cli_refuse("broker", "no memory for a loop");
	status = serve(loop, sections[0].present ? &node : NULL, &config);
	hf_loop_destroy(loop);
	return status;
}
