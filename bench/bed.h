/* bed.h - the test bed: a loop, and nodes on it whose rails are on loopback, in one fabric with other processes' nodes.
 *
 * Every set of figures that opens nodes stands on it: vqps (nodes.h), logs (smr.h, smr_changes.h), engines
 * (transfer_sides.h) and brokers (broker_bench.h). Names and addresses follow from the number of one process. */
#ifndef HOLDFAST_BENCH_BED_H
#define HOLDFAST_BENCH_BED_H

#include <holdfast/node.h>

#include "bench/bench.h"

#define BED_NODES   3u
#define BED_RAILS   5u   /* of a place */
#define BED_PLACES  254u /* of nodes in all processes of a run, one after the other or together */
#define BED_CONTROL 18515u

struct bed {
	struct bench_meeting *meeting; /* NULL: the process met no other one */
	bool near;
	int pid; /* of the process whose number makes names and addresses; the near one's, where two meet */
	struct hf_env *env;
	struct hf_loop *loop;
	struct hf_node *nodes[BED_NODES];
	unsigned node_count;
	struct hf_error error;
};

/* Both processes call it, since they exchange numbers. -errno. */
int bed_open(struct bed *bed, struct bench_meeting *meeting, bool near);
int bed_open_alone(struct bed *bed, int pid);
void bed_close(struct bed *bed); /* with its nodes; zeroed: harmless */

struct hf_addr bed_address(const struct bed *bed, unsigned place, unsigned rail, uint16_t port);
/* The name with the number behind it, the fabric, and rails r0, r1, ... of that kind. The rest is the caller's. */
void bed_configure(const struct bed *bed, const char *name, unsigned number, const char *kind, unsigned rails,
	unsigned place, struct hf_node_config *config_out);
/* -errno with words in bed->error. */
int bed_node(struct bed *bed, const struct hf_node_config *config, const struct hf_node_events *events, void *context,
	struct hf_node **node_out);

/* Turns the loop until the other process has left. */
void bed_serve(struct bed *bed, uint64_t turn_ns);
/* Removes what all left in the fabric; by the process whose number it has, at the end. */
void bed_clean(void);

#endif
