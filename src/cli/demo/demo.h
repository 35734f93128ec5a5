/* demo.h - the interface between the parts of `holdfast demo`: options and results.
 *
 * demo.c reads the command line and judges; run.c drives two nodes of one device; node.c, sender.c and receiver.c are
 * those nodes; input.c makes the input file; schedule.c schedules the cuts; picture.c draws; report.c and html.c write
 * the reports. */
#ifndef HOLDFAST_CLI_DEMO_H
#define HOLDFAST_CLI_DEMO_H

#include <holdfast/env.h>

#include "base/histogram.h"
#include "cli/digest.h"
#include "cli/series.h"

#define DEMO_RAILS       2
#define DEMO_DEVICES_MAX 4
#define DEMO_CUTS_MAX    512u
#define DEMO_PATH_BYTES  4096

struct demo_options {
	const char *devices[DEMO_DEVICES_MAX];
	unsigned device_count;
	const char *input;  /* NULL: the project's tree and random bytes */
	const char *config; /* NULL: the demo's own timers */
	const char *output; /* a directory */
	struct hf_addr base;
	bool base_given;
	bool quick, json;
	uint64_t seconds_ns; /* of moving and cutting, each device */
	uint64_t rate_bytes; /* a second; 0: unlimited */
};

/* What is moved. */
struct demo_input {
	char path[DEMO_PATH_BYTES];
	char what[128]; /* in words */
	uint64_t bytes;
	char sha256[DIGEST_TEXT];
};

struct demo_cut {
	unsigned rail;
	uint64_t at_ns;       /* all times: from the start of traffic */
	uint64_t restored_ns; /* 0: not yet */
	uint64_t failover_ns; /* from the cut to the first completion, on another rail, of a WRITE posted after it */
	bool measured;
};

struct demo_result {
	const char *device;
	struct demo_cut cuts[DEMO_CUTS_MAX];
	unsigned cut_count;
	uint64_t duration_ns;
	uint64_t bytes, operations; /* that completed */
	uint64_t passes;            /* of the whole input */
	uint64_t failed;            /* completed in error, or never */
	uint64_t bytes_differ;      /* in the copy at the end */
	uint64_t passes_wrong;      /* whose hash differed at the receiver */
	uint64_t resent_wrs, resent_bytes, failovers, failbacks;
	bool uncounted;         /* the devices do not count what takes effect: the next two are not known */
	uint64_t doubled_bytes; /* that took effect twice at node b, by the counters of its devices */
	uint64_t doubled;       /* WRITEs, at least */
	char sha256_to[DIGEST_TEXT];
	bool hash_equal;     /* of the copy at the end, and of every pass */
	struct hf_error why; /* the first operation that failed, in words */
	struct series moved;
	struct histogram failover_ns;
};

/* Operations that never completed well, and passes and bytes that arrived wrong: 0 or the demo failed. */
uint64_t demo_lost(const struct demo_result *result);

#endif
