#include "cli/transfer/node.h"

#include <errno.h>
#include <string.h>

#include "base/log.h"

/* A control address is one that the peer reaches; the port is any. */
static struct hf_addr tcp_address(const struct copy_node_options *options, const struct hf_node_config *config)
{
	struct hf_addr address = options->listen;

	if (address.sa.sa_family != AF_UNSPEC)
		return address;
	if (config->management_count > 0)
		address = config->management[0];
	else if (config->rail_count > 0)
		address = config->rails[0].control;
	hf_addr_set_port(&address, 0);
	return address;
}

static int configure(const struct copy_node_options *options, struct hf_transfer_file *file, struct hf_env *env,
	struct hf_error *error)
{
	int failed = 0;

	memset(file, 0, sizeof(*file));
	if (options->engine != NULL)
		failed = hf_transfer_config_load(env, options->engine, file, error);
	else if (options->given != NULL)
		file->node = *options->given;
	else {
		failed = hf_node_config_load(env, options->config, &file->node, error);
		file->node.cores = HF_CORES_SHARED; /* as by default in an engine's file */
	}
	if (failed)
		return failed;
	if (options->fallback_given)
		file->engine.fallback = options->fallback;
	if (options->engine == NULL || options->listen.sa.sa_family != AF_UNSPEC)
		file->engine.listen = tcp_address(options, &file->node);
	return 0;
}

int copy_node_open(struct copy_node *node, const struct copy_node_options *options, struct hf_error *error)
{
	struct hf_transfer_file file;
	int failed;

	*node = (struct copy_node){.env = hf_env_host()};
	failed = configure(options, &file, node->env, error);
	if (failed)
		return failed;
	failed = hf_loop_create(node->env, &node->loop);
	if (failed)
		return hf_error_set(error, failed, "no loop: %s", strerror(-failed));
	log_set_service("transfer", file.node.name);
	failed = hf_node_open(node->loop, &file.node, &options->node_events, options->context, &node->node, error);
	if (!failed)
		failed = hf_transfer_open(
			node->node, &file.engine, &options->transfer_events, options->context, &node->transfer, error);
	if (failed)
		copy_node_close(node);
	return failed;
}

void copy_node_close(struct copy_node *node)
{
	(void)hf_transfer_close(node->transfer);
	hf_node_close(node->node);
	hf_loop_destroy(node->loop);
	*node = (struct copy_node){0};
}
