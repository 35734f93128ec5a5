/* pair.h - a sender and a receiver as child processes on rails of one host, for demos and benchmarks.
 *
 * Node a sends, node b receives. Each has two rails and a management network, on loopback addresses drawn at random.
 * The parent receives the progress of the copy several hundred times a second, and cuts and restores the rails. */
#ifndef HOLDFAST_CLI_TRANSFER_PAIR_H
#define HOLDFAST_CLI_TRANSFER_PAIR_H

#include <holdfast/fabric.h>

#include "cli/channel.h"
#include "cli/process.h"
#include "cli/transfer/picture.h"

#define PAIR_RAILS         2u
#define PAIR_FABRIC_PREFIX "transfer-demo-"

struct pair_options {
	const char *device;  /* of the rails */
	const char *source;  /* a path */
	const char *into;    /* a directory */
	const char *scratch; /* a directory for logs; removed by the children when the parent is killed */
	uint64_t rate_bytes, burst_bytes;
	bool fallback_off;
};

/* What the sender said last. */
struct pair_status {
	uint64_t at_ns; /* 0: nothing yet */
	uint64_t rail_bytes[PAIR_RAILS], tcp_bytes;
	char rail_states[PAIR_RAILS][16];
	uint64_t bytes, read_bytes, sent_bytes, kept_bytes;
	unsigned files, files_verified, in_flight, switches;
	char phase[16], last[160], why[HF_ERROR_BYTES];
	bool done, failed;
};

struct pair_end {
	struct process process;
	struct channel channel;
	bool started, ready;
	char log_path[512];
};

struct pair {
	struct hf_env *env;
	struct pair_options options;
	char fabric_name[HF_NAME_BYTES];
	struct hf_addr base;
	struct hf_fabric *fabric;
	struct pair_end a, b;
	struct pair_status status;
};

/* Starts b; a follows in pair_step once b listens. */
int pair_start(struct pair *pair, struct hf_env *env, const struct pair_options *options, struct hf_error *error);
/* Waits a moment and takes in what was said. 0, or -errno with words: a child failed or ended. */
int pair_step(struct pair *pair, struct hf_error *error);
/* Of these rails (a bit each), at both ends. */
int pair_switch(struct pair *pair, unsigned rails, bool up, struct hf_error *error);
void pair_stop(struct pair *pair); /* also what was not started */

#endif
