/* copy.h - the two commands of a copy, for `holdfast transfer`, demos and benchmarks. */
#ifndef HOLDFAST_CLI_TRANSFER_COPY_H
#define HOLDFAST_CLI_TRANSFER_COPY_H

#include "cli/transfer/node.h"
#include "cli/transfer/watch.h"

#define COPY_ADDRESSES 8u

struct copy_send_options {
	const char *path;
	struct hf_addr to[COPY_ADDRESSES];
	unsigned to_count;
	uint64_t rate_bytes, burst_bytes, connect_timeout_ns;
	bool json, copy_links; /* copy_links: in the place of a link what it leads to */
	struct copy_node_options node;
	/* Instead of a terminal: called after each look, every look_every_ns; false ends the copy. NULL: the
	 * terminal. */
	bool (*look)(const struct copy_watch *watch, void *context);
	void *look_context;
	uint64_t look_every_ns;
};
/* Runs to the end; an exit status, with words on standard error. */
int copy_send(struct copy_send_options *options);

struct copy_receive_options {
	const char *directory;
	bool once, json;
	struct copy_node_options node;
	void (*ready)(void *context); /* once it listens; NULL: not told */
	bool (*ended)(void *context); /* asked each turn; NULL: until a signal */
	void *context;                /* of these two */
};
int copy_receive(struct copy_receive_options *options);

/* argv as a command gets it; an exit status. */
int copy_status_command(int argc, char **argv);

#endif
