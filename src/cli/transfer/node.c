#include "cli/transfer/node.h"

#include <errno.h>
#include <string.h>

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

int copy_node_open(struct copy_node *node, const struct copy_node_options *options, struct hf_error *error)
{
	struct hf_node_config config = {0};
	struct hf_transfer_config transfer = {.fallback = options->fallback};
	int failed = 0;

	*node = (struct copy_node){.env = hf_env_host()};
	if (options->given != NULL)
		config = *options->given;
	else
		failed = hf_node_config_load(node->env, options->config, &config, error);
	if (failed)
		return failed;
	failed = hf_loop_create(node->env, &node->loop);
	if (failed)
		return hf_error_set(error, failed, "no loop: %s", strerror(-failed));
	failed = hf_node_open(node->loop, &config, &options->node_events, options->context, &node->node, error);
	transfer.listen = tcp_address(options, &config);
	if (!failed)
		failed = hf_transfer_open(
			node->node, &transfer, &options->transfer_events, options->context, &node->transfer, error);
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
