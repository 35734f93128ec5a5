/* parent.h - the state of the parent of a demo's two nodes while one device runs.
 *
 * run.c starts and stops the nodes and cuts their rails, hear.c handles their messages, judge.c compares
 * received with sent data. */
#ifndef HOLDFAST_CLI_DEMO_PARENT_H
#define HOLDFAST_CLI_DEMO_PARENT_H

#include <holdfast/fabric.h>

#include "cli/channel.h"
#include "cli/demo/run.h"
#include "cli/demo/schedule.h"
#include "cli/process.h"

enum side { SIDE_A, SIDE_B, SIDES };

enum phase {
	PHASE_STARTING,  /* b makes its file ready, then a connects; until the first completion */
	PHASE_MOVING,    /* until the schedule is over */
	PHASE_FINISHING, /* a finishes its pass, b hashes it */
	PHASE_DONE,
};

struct node_state {
	struct process process;
	struct channel channel;
	bool started;
	char log_path[SCRATCH_PATH_BYTES + 16];
};

struct run {
	const struct demo_task *task;
	struct demo_result *result;
	struct hf_error *error;
	char fabric_name[HF_NAME_BYTES];
	char copy_path[SCRATCH_PATH_BYTES + 16];
	struct hf_fabric *fabric;
	struct node_state nodes[SIDES];
	enum phase phase;
	int failure; /* what a node said it failed of; -errno */

	uint64_t begun_ns;    /* of this run */
	uint64_t start_ns;    /* of traffic */
	uint64_t progress_ns; /* when something moved last */
	uint64_t status_ns;   /* of the last status */
	struct schedule schedule;
	struct schedule_view view;
	bool sender_done;
	uint64_t sender_done_ns;
	uint64_t passes_hashed;
	uint64_t last_failover_ns;
	uint64_t expected_bytes, executed_bytes; /* at node b: by what node a did, by node b's devices */
	uint64_t receiver_resent_wrs, receiver_resent_bytes, receiver_failed;
};

/* Times of the nodes as times of the run; all processes of a host share the clock. */
static inline uint64_t since_start(const struct run *run, uint64_t at_ns)
{
	return at_ns > run->start_ns ? at_ns - run->start_ns : 0;
}

static inline const char *side_name(enum side side)
{
	return side == SIDE_A ? "a" : "b";
}

/* Takes in what the nodes have said; 0, or -errno with words when one failed or ended. */
int demo_hear(struct run *run);

/* Compares the copy, as it is on the file system, with the input; 0, or -errno with words when it cannot. */
int demo_judge(struct run *run);

#endif
