#include "smr/elect.h"

static void judge(struct smr_elect *elect)
{
	if (elect->score < SMR_ELECT_FAILED)
		elect->alive = false;
	else if (elect->score > SMR_ELECT_ALIVE)
		elect->alive = true;
}

void smr_elect_answered(struct smr_elect *elect, uint64_t heartbeat, uint64_t now_ns)
{
	bool changed = !elect->counted || elect->heartbeat != heartbeat;

	elect->counted = true;
	elect->heartbeat = heartbeat;
	if (changed)
		elect->seen_ns = now_ns;
	if (!changed && elect->score > 0)
		elect->score--;
	else if (changed && (elect->alive || ++elect->score > SMR_ELECT_ALIVE))
		elect->score = SMR_ELECT_SCORE_MAX;
	judge(elect);
}

void smr_elect_silent(struct smr_elect *elect)
{
	elect->score = 0;
	judge(elect);
}

int smr_elect_choose(const struct smr_elect_candidate *candidates, unsigned count)
{
	const struct smr_elect_candidate *best = 0;

	for (unsigned i = 0; i < count; i++) {
		const struct smr_elect_candidate *at = &candidates[i];

		if (!at->alive || !(at->leading || at->ready))
			continue;
		if (best == 0 || (at->leading && (!best->leading || at->number > best->number)) ||
			(!at->leading && !best->leading && at->id < best->id))
			best = at;
	}
	return best == 0 ? -1 : best->id;
}
