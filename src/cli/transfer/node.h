/* node.h - the node and the engine of a `holdfast transfer`, from a configuration file. */
#ifndef HOLDFAST_CLI_TRANSFER_NODE_H
#define HOLDFAST_CLI_TRANSFER_NODE_H

#include <holdfast/transfer.h>

struct copy_node_options {
	const char *config;                 /* a file of a node */
	const char *engine;                 /* transfer-engine.json, which names that of the node; NULL: config */
	const struct hf_node_config *given; /* instead of `config`; NULL: the file */
	struct hf_addr listen; /* of tcp; no family: the first address of `management`, else of `control` */
	enum hf_transfer_fallback fallback;
	bool fallback_given; /* goes before what the engine's file says */
	struct hf_node_events node_events;
	struct hf_transfer_events transfer_events;
	void *context;
};

struct copy_node {
	struct hf_env *env;
	struct hf_loop *loop;
	struct hf_node *node;
	struct hf_transfer *transfer;
};

/* -errno with words. */
int copy_node_open(struct copy_node *node, const struct copy_node_options *options, struct hf_error *error);
/* What was not opened is harmless. No batch is left. */
void copy_node_close(struct copy_node *node);

#endif
