/* lane.h - a session of a client and its requests under way. Pure; the client's loop.
 *
 * Requests take the numbers 1, 2, ... of the session, and at most SMR_LANE_FLIGHTS are under way. Number 0 would close
 * it, so the last one is UINT32_MAX: once all have landed another session takes its place. */
#ifndef HOLDFAST_SMR_LANE_H
#define HOLDFAST_SMR_LANE_H

#include <holdfast/smr_client.h>

#define SMR_LANE_FLIGHTS 8u /* unanswered numbers of a session: as many as members remember */

struct smr_lane {
	uint64_t session; /* 0: none yet */
	uint32_t sequence;
	struct hf_smr_request open; /* that opens the session */
	uint8_t opened[8];
	bool opening;
	struct hf_smr_request *flight[SMR_LANE_FLIGHTS]; /* by number */
};

static inline bool smr_lane_has_room(const struct smr_lane *lane)
{
	return lane->session != 0 && lane->sequence < UINT32_MAX &&
	       lane->flight[(lane->sequence + 1) % SMR_LANE_FLIGHTS] == NULL;
}

/* There is room. */
static inline void smr_lane_take(struct smr_lane *lane, struct hf_smr_request *request)
{
	request->call.session = lane->session;
	request->call.sequence = ++lane->sequence;
	lane->flight[lane->sequence % SMR_LANE_FLIGHTS] = request;
}

/* It has none, or has used up its numbers and nothing is under way. */
static inline bool smr_lane_needs_session(const struct smr_lane *lane)
{
	bool flies = false;

	for (unsigned i = 0; i < SMR_LANE_FLIGHTS; i++)
		flies |= lane->flight[i] != NULL;
	return !lane->opening && (lane->session == 0 || (lane->sequence == UINT32_MAX && !flies));
}

#endif
