/* fleet.h - nodes of several modes at once, in the same two processes, so that modes are compared within
 * milliseconds: the cores, their distance and their other load are then the same for all.
 *
 * The modes share the regions of their clients, so that none has better pages or a warmer cache. One of them is in use
 * at a time; the others' loops only get the turns that their heartbeats need. The regions are mapped in both processes,
 * so the near side can read the data that has arrived at the far one. */
#ifndef HOLDFAST_BENCH_FLEET_H
#define HOLDFAST_BENCH_FLEET_H

#include "bench/nodes.h"

#define BENCH_FLEET_MAX 8u

struct bench_fleet {
	const struct bench_mode *modes[BENCH_FLEET_MAX]; /* one may occur twice */
	unsigned n;
	struct bench_setup setup; /* of all; the mode aside */
	struct bench_setup setups[BENCH_FLEET_MAX];
	struct bench_nodes nodes[BENCH_FLEET_MAX];
	unsigned order[BENCH_FLEET_MAX]; /* of opening: another one in every run */
	uint32_t opened;                 /* bit per node */
	struct bench_meeting *meeting;
	struct bench_watch *watch;
	uint64_t others_due_ns;
	int (*run)(struct bench_fleet *fleet, void *context);
	void *context;
	struct hf_error error;
};

/* Opens what modes, n and setup say in two processes and calls run(fleet, context) in this one. -errno with words. */
int bench_fleet_run(struct bench_fleet *fleet, int (*run)(struct bench_fleet *fleet, void *context), void *context);

/* What run() may call. From now on the far side serves that one. */
void bench_fleet_use(struct bench_fleet *fleet, unsigned at);
/* A turn of the one in use, and of the others when theirs are due; -EIO: one of them is broken. */
int bench_fleet_turn(struct bench_fleet *fleet, unsigned at, uint64_t now_ns);
/* Bytes that the far side's devices of that one have executed. */
int bench_fleet_executed(struct bench_fleet *fleet, unsigned at, uint64_t *bytes_out);

#endif
