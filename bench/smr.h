/* smr.h - three members of a replicated log in two processes, for `holdfast bench smr`: one has the member that leads,
 * the other one turns the loop of both followers, or of one. */
#ifndef HOLDFAST_BENCH_SMR_H
#define HOLDFAST_BENCH_SMR_H

#include <holdfast/smr.h>

#include <jansson.h>
#include <stdio.h>

#include "bench/bed.h"

#define SMR_MEMBERS  3u
#define SMR_LIMIT_NS 5000000000ull
#define SMR_BYTES    64u

#define SMR_ROUNDS_MAX    99u
#define SMR_FAILOVERS_MAX 1000u

/* Where the members are. */
struct smr_bed {
	const char *kind;                    /* of the devices of all members: shm, soft or verbs */
	struct hf_addr devices[SMR_MEMBERS]; /* verbs: of each member's device; else not used */
	unsigned generation;                 /* tells the members of one measurement from those before */
};

struct smr_task {
	const struct smr_bed *bed;
	bool patient;     /* no other one leads, though this process does not run for a while */
	bool killed;      /* the far process is, when all goes well */
	uint32_t slots;   /* of the log; 0: the default */
	unsigned rails;   /* 0: one */
	uint64_t look_ns; /* followers that sleep look at their logs so often; 0: every ms */
	bool two_near;    /* the process of the leader has a follower, too */
	/* Durable: each member has a directory of its own below it. NULL: memory is the storage. */
	const char *directory;
	void *result; /* of the near process */
};

/* What is replicated: how many entries, and a sum of them. */
struct smr_counter {
	struct smr_side *side;
	uint64_t entries, sum;
	unsigned snapshots; /* taken from others */
};

struct smr_side {
	struct bed bed;
	struct hf_node *nodes[SMR_MEMBERS];
	struct hf_smr *members[SMR_MEMBERS];
	struct hf_smr_member who[SMR_MEMBERS];
	struct smr_counter counters[SMR_MEMBERS];
	uint64_t led_ns; /* when a member of this side began to lead */
	unsigned led;    /* how often one did */
};

/* The member that is to lead, until both others are confirmed. -EAGAIN: another one leads. */
int smr_side_lead(struct smr_side *side, struct bench_meeting *meeting, bool near, const struct smr_task *task);
/* The two others; they run when the loop is turned. */
int smr_side_follow(struct smr_side *side, struct bench_meeting *meeting, bool near, const struct smr_task *task);
/* The far process, for smr_side_together: both follow until the near one leaves. */
int smr_side_only_follow(struct bench_meeting *meeting, void *task);
/* The leader's followers are all confirmed. */
bool smr_side_all_follow(const struct smr_side *side);
void smr_side_close(struct smr_side *side);

/* The done() of a call whose data become NULL by it. */
void smr_side_answered(struct hf_smr_call *call);
/* One proposal, from the call to its end; false: it was not decided. */
bool smr_side_propose(struct smr_side *side, const void *data, uint32_t *ns_out);

/* Runs both sides. On a busy machine another member may come to lead first: others are made, and at last it gives
 * up. */
int smr_side_together(int (*near)(struct bench_meeting *, void *), int (*far)(struct bench_meeting *, void *),
	struct smr_task *task, struct smr_bed *bed);

/* ---- the parts of the benchmark: each adds arrays of rows to `all`, by name; false: it failed ---- */

/* `holdfast bench smr members`: argv[0] is "members"; an exit status. */
int smr_changes(int argc, char **argv);
bool smr_durable(const char *directory, struct smr_bed *bed, json_t *all, FILE *log);
bool smr_propose(unsigned rounds, struct smr_bed *bed, json_t *all, FILE *log);
bool smr_failovers(unsigned count, struct smr_bed *bed, json_t *all, FILE *log);
/* Rails are cut `cuts` times; a follower is stopped, then killed, for at least `seconds` and `entries`. */
bool smr_steady(unsigned cuts, unsigned seconds, unsigned entries, struct smr_bed *bed, json_t *all, FILE *log);

#endif
