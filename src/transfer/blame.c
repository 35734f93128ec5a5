#include "transfer/blame.h"

#define LATE_NS 1000000000ull /* an older silence is forgotten */

void blame_waits(struct blame *rail, uint64_t now_ns)
{
	if (!rail->waits)
		rail->waits_ns = now_ns;
	rail->waits = true;
}

void blame_served(struct blame *rail, bool waits, uint64_t now_ns)
{
	if (rail->waits && (now_ns - rail->waits_ns > rail->silence_to_ns - rail->silence_from_ns ||
				   now_ns - rail->silence_to_ns > LATE_NS)) {
		rail->silence_from_ns = rail->waits_ns;
		rail->silence_to_ns = now_ns;
	}
	rail->waits = waits;
	rail->waits_ns = rail->served_ns = now_ns;
}

void blame_idle(struct blame *rail)
{
	rail->waits = false;
}

/* In the silence of the rail that failed, which began at `since_ns`. */
static bool was_silent(const struct blame *other, uint64_t since_ns, uint64_t now_ns)
{
	uint64_t from_ns = other->silence_from_ns > since_ns ? other->silence_from_ns : since_ns;

	if (other->silence_to_ns > from_ns && other->silence_to_ns - from_ns >= (now_ns - since_ns) / 2)
		return true;
	if (other->served_ns > since_ns + (now_ns - since_ns) / 2)
		return false;
	return other->waits || (other->failed_ns != 0 && other->failed_ns >= since_ns);
}

static bool all_were_silent(const struct blame rails[], unsigned count, unsigned failed, uint64_t now_ns)
{
	unsigned others = 0;

	for (unsigned i = 0; i < count; i++) {
		if (i == failed || !rails[i].usable)
			continue;
		if (!was_silent(&rails[i], rails[failed].waits_ns, now_ns))
			return false;
		others++;
	}
	return others > 0;
}

bool blame_peer(struct blame rails[], unsigned count, unsigned failed, uint64_t patience_ns, uint64_t now_ns)
{
	struct blame *rail = &rails[failed];
	bool peer = all_were_silent(rails, count, failed, now_ns);
	uint64_t served_ns = 0;

	rail->failed_ns = now_ns;
	rail->waits = false;
	for (unsigned i = 0; i < count; i++)
		if (rails[i].served_ns > served_ns)
			served_ns = rails[i].served_ns;
	if (!peer)
		return false;
	if (rail->silent_ns <= served_ns)
		rail->silent_ns = now_ns;
	return now_ns - rail->silent_ns <= patience_ns;
}
