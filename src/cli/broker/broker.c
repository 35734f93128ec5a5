/* `holdfast broker --config FILE`: a Kafka broker until SIGINT or SIGTERM. */
#include "broker/broker.h"

#include <getopt.h>
#include <stdio.h>

#include "cli/cli.h"
#include "cli/process.h"

#define TURN_NS 100000000ull /* how late a signal may be seen */

static int serve(struct hf_loop *loop, const struct broker_config *config)
{
	struct broker *broker;
	struct hf_error error;
	int rc = broker_open(loop, config, &broker, &error);

	if (rc != 0)
		return cli_refuse("broker", "%s", error.text);
	for (unsigned i = 0; i < broker->config.listeners.count; i++) {
		const struct broker_endpoint *endpoint = &broker->config.listeners.at[i];

		printf("broker %d listens on %s://%s:%u, logs in %s\n", config->node_id, endpoint->name, endpoint->host,
			endpoint->port, config->log_dirs);
	}
	fflush(stdout);
	while (!process_interrupted())
		hf_loop_turn(loop, TURN_NS);
	broker_close(broker);
	printf("broker %d has closed its logs\n", config->node_id);
	return cli_flush("broker");
}

int broker_command(int argc, char **argv)
{
	static const struct option options[] = {{"config", required_argument, NULL, 'c'}, {0}};
	struct hf_env *env = hf_env_host();
	struct broker_config config;
	struct hf_config_section section;
	const char *path = NULL;
	struct hf_error error;
	struct hf_loop *loop;
	int answer, status;

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
	section = broker_config_section(&config);
	if (hf_config_load(env, path, &section, 1, &error) != 0)
		return cli_refuse("broker", "%s", error.text);
	process_catch_signals();
	if (hf_loop_create(env, &loop) != 0)
		return cli_refuse("broker", "no memory for a loop");
	status = serve(loop, &config);
	hf_loop_destroy(loop);
	return status;
}
