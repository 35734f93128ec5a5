/* bed.h - how two ports, their nodes and their world are made: the conformance suite runs once on each bed. */
#ifndef CONFORMANCE_BED_H
#define CONFORMANCE_BED_H

#include "side.h"

struct bed {
	const char *name, *kind;
	const char *address_a, *address_b; /* soft: of the two NICs */
	bool two_processes;                /* b lives in another process */
	bool cpu_threads;                  /* threads of the test run beside the device */
	uint64_t big_bytes;                /* the largest message worth sending here */
	/* A world of its own (the simulator's); NULL: this host. pass() lets `ns` of its time go by. */
	int (*world_open)(struct hf_env **a_out, struct hf_env **b_out);
	void (*world_close)(void);
	void (*pass)(uint64_t ns);
};

extern const struct bed beds[];
extern const unsigned bed_count;
const struct bed *bed_find(const char *name);
/* The fabric of this run. */
const char *bed_fabric(void);

#endif
