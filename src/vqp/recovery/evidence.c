#include "vqp/path/pool.h"

#include <errno.h>
#include <string.h>

#include "vqp/recovery/exchange.h"

/* Of the wrs of a peer that may not write: it has a ring only from the time when it could (R14). */
static bool log_speaks(const struct hf_vqp *vqp, const struct state_message *state)
{
	return state->has_log && (vqp->access & IBV_ACCESS_REMOTE_WRITE) != 0;
}

void evidence_gather(const struct hf_vqp *vqp, bool fenced, struct state_message *state)
{
	const struct path *path = vqp->path;
	struct hf_refusal refusal;
	uint32_t psn;
	int rc;

	state->fenced = fenced;
	state->consumed = vqp->consumed;
	if (fenced && vqp->log_ring.slab != NULL) {
		state->has_log = 1;
		(void)completion_log_newest(
			vqp->log_ring.entries, vqp->log_ring.slab->ring_entries, &state->log_number, &state->log_entry);
	}
	state->about_rail = (uint8_t)path->rail;
	state->about_qp = path->their_key;
	state->ended = !path_ops(path)->tells(path);
	if (!fenced || state->ended)
		return;
	rc = path_ops(path)->executed_psn(path, &psn);
	state->in_doubt = rc == -ENODATA;
	if ((rc == 0 || rc == -ENODATA) && (!log_speaks(vqp, state) || vqp->node->config.evidence != HF_EVIDENCE_LOG)) {
		state->has_psn = 1;
		state->executed_psn = psn;
	}
	rc = path_ops(path)->refusal(path, &refusal);
	if (rc == 1) {
		state->refused = (uint8_t)refusal.status;
		state->refused_psn = refusal.psn;
	}
	rc = path_ops(path)->atomic_results(path, state->atomics, EVIDENCE_ATOMICS);
	state->atomic_count = (uint8_t)(rc > 0 ? rc : 0);
}

struct evidence evidence_of(const struct state_message *state, int our_rail)
{
	struct evidence evidence = {
		.rail = (uint32_t)our_rail,
		.qp_num = our_rail < 0 ? 0 : state->about_qp,
		.fenced = state->fenced != 0,
		.has_psn = state->has_psn != 0,
		.executed_psn = state->executed_psn,
		.in_doubt = state->in_doubt != 0,
		.has_log = state->has_log != 0,
		.log_number = state->log_number,
		.log_entry = state->log_entry,
		.grant = state->granted.grant,
		.access = state->granted.access,
		.consumed = state->consumed,
		.resumes = state->resumes != 0,
		.refusal = {.psn = state->refused_psn, .status = (enum ibv_wc_status)state->refused},
		.ended_there = state->ended != 0,
		.atomic_count = state->atomic_count,
	};

	memcpy(evidence.atomics, state->atomics, sizeof(evidence.atomics));
	return evidence;
}
