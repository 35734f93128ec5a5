/* elect.h - the preferred leader, from the heartbeats of the members (Mu, section 5.1). Pure.
 *
 * A heartbeat that changed since the last READ raises a member's score, an unchanged one lowers it. One that is alive
 * has its full score again with each change: it fails when SMR_ELECT_STILL READs on end find the same heartbeat, and
 * not when it is late again and again by less (R-G4). Only a completed READ counts, so a cut rail is not a missed
 * heartbeat.
 * A member that leads is preferred to a lower id. */
#ifndef HOLDFAST_SMR_ELECT_H
#define HOLDFAST_SMR_ELECT_H

#include <stdbool.h>
#include <stdint.h>

#define SMR_ELECT_SCORE_MAX 15u
#define SMR_ELECT_FAILED    2u /* below it, a member has failed */
#define SMR_ELECT_ALIVE     6u /* above it, one that had failed is alive */
/* READs without a change, of one that is alive. */
#define SMR_ELECT_STILL (SMR_ELECT_SCORE_MAX - SMR_ELECT_FAILED + 1)

struct smr_elect {
	uint8_t score;
	bool alive, counted; /* counted: a heartbeat was seen */
	uint64_t heartbeat;
	uint64_t seen_ns; /* when it last changed */
};

void smr_elect_answered(struct smr_elect *elect, uint64_t heartbeat, uint64_t now_ns);
void smr_elect_silent(struct smr_elect *elect); /* unanswered for as long as is allowed */

struct smr_elect_candidate {
	uint8_t id;
	bool alive, ready, leading; /* ready: it could lead */
	uint64_t number;            /* of one that leads */
};
/* Among voters. -1: none. */
int smr_elect_choose(const struct smr_elect_candidate *candidates, unsigned count);

#endif
