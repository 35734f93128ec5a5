/* smr_changes.h - the processes of `holdfast bench smr members`, and the page that they share.
 *
 * The program itself starts and kills processes, and asks the leader for changes. A process for each member has a
 * state machine (smr_changes_state.c); one that is no member proposes (both in smr_changes_node.c). */
#ifndef HOLDFAST_BENCH_SMR_CHANGES_H
#define HOLDFAST_BENCH_SMR_CHANGES_H

#include <stdatomic.h>

#include "bench/smr.h"

#define CHANGES_FOUNDERS    3u
#define CHANGES_MEMBERS     5u
#define CHANGES_NUMBERS_MAX (1u << 24) /* of proposals */
#define CHANGES_LIMIT_NS    120000000000ull

/* ---- the state machine ---- */

/* Words, one for each number that can be proposed; it has the word's place, and how often the number was applied. */
struct changes_state {
	uint8_t *memory;
	uint64_t bytes, words;            /* bytes: a head with the number of requests, and the words */
	uint64_t restored;                /* bytes of a snapshot */
	unsigned snapshots;               /* that were taken over */
	struct changes_snapshot *readers; /* of the state as it was */
};
/* A member that does not found takes a snapshot for it. -ENOMEM. */
int changes_state_open(struct changes_state *state, uint64_t bytes, bool founds);
uint64_t changes_state_requests(const struct changes_state *state);

struct changes_sum {
	uint64_t once, other; /* of the numbers below `total`: applied once; words that are not as they should be */
	uint32_t crc;
};
void changes_state_sum(const struct changes_state *state, uint64_t total, struct changes_sum *sum_out);

extern const struct hf_smr_app changes_app; /* but its event */

/* ---- the page ---- */

enum changes_kind { CHANGES_NONE, CHANGES_ADD, CHANGES_REMOVE, CHANGES_REPLACE, CHANGES_REPLACE_LEADER, CHANGES_KINDS };

struct changes_member {
	_Atomic bool leads, in; /* in: a voter, as far as it knows */
	_Atomic unsigned voters, confirmed, snapshots;
	_Atomic bool summed;
	struct changes_sum sum;
};

struct changes_page {
	uint64_t state_bytes;
	unsigned rate;
	int pid; /* of the program: its name and addresses */
	struct changes_member members[CHANGES_MEMBERS];
	/* Asked of the leader, one at a time: asked counts, done follows. */
	_Atomic unsigned asked, done;
	enum changes_kind kind;
	unsigned id;
	/* The client's. */
	_Atomic bool proposes, stops;
	_Atomic uint64_t due, ended; /* numbers that were due, that have ended */
	_Atomic uint64_t refused;    /* that were not decided */
	_Atomic uint64_t total;      /* set in the end: all are to be applied. Members sum up then */
	uint64_t took_ns[CHANGES_NUMBERS_MAX];
	uint64_t late_ns[CHANGES_NUMBERS_MAX]; /* of it, before the client had its core */
};

/* The processes: run until they are killed; -errno when something fails. The client ends when it has stopped. */
int changes_node_member(void *page, unsigned id);
int changes_node_client(void *page, unsigned id);

#endif
