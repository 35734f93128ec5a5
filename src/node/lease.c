#include "node/lease.h"

#define STAMPS_PER_LEASE 8u
#define SILENT_STAMPS    2u
#define MARGIN_NS        50000000ull /* for a tick, and for a loop that is late */
#define INTERVAL_NS_MIN  1000000u    /* whatever the other side promises */

static uint64_t longer(uint64_t a_ns, uint64_t b_ns)
{
	return a_ns > b_ns ? a_ns : b_ns;
}

void lease_init(struct lease *lease, uint64_t ours_ns, uint64_t now_ns)
{
	*lease = (struct lease){
		.ours_ns = ours_ns, .told_ns = ours_ns, .contact_ns = now_ns, .heard_ns = now_ns, .looked_ns = now_ns};
}

void lease_want(struct lease *lease, uint64_t ours_ns)
{
	if (ours_ns == lease->told_ns)
		return;
	lease->told_ns = ours_ns;
	lease->changed_ns = 0;
	lease->urgent = true;
}

uint64_t lease_interval_ns(const struct lease *lease)
{
	bool theirs = lease->theirs_ns != 0 && lease->theirs_ns < lease->ours_ns;

	return longer((theirs ? lease->theirs_ns : lease->ours_ns) / STAMPS_PER_LEASE, INTERVAL_NS_MIN);
}

bool lease_must_send(const struct lease *lease, uint64_t now_ns)
{
	return lease->urgent || lease->sent_ns == 0 || now_ns >= lease->sent_ns + lease_interval_ns(lease);
}

void lease_sent(struct lease *lease, uint64_t now_ns)
{
	lease->urgent = false;
	lease->sent_ns = now_ns;
	if (lease->told_ns != lease->ours_ns && lease->changed_ns == 0)
		lease->changed_ns = now_ns;
}

uint64_t lease_extended(struct lease *lease)
{
	if (lease->contact_ns + lease->ours_ns > lease->until_ns)
		lease->until_ns = lease->contact_ns + lease->ours_ns;
	return lease->contact_ns + lease->ours_ns;
}

uint64_t lease_promise(const struct lease *lease, uint64_t now_ns)
{
	uint64_t left_ns = lease->until_ns > now_ns ? lease->until_ns - now_ns : 0;

	return longer(left_ns, longer(lease->told_ns, lease->ours_ns));
}

uint64_t lease_longer_ns(const struct lease *lease)
{
	return longer(lease->theirs_ns, longer(lease->told_ns, lease->ours_ns));
}

bool lease_was_silent(const struct lease *lease, uint64_t now_ns)
{
	return lease->theirs_ns != 0 && now_ns - lease->heard_ns > SILENT_STAMPS * lease->theirs_ns / STAMPS_PER_LEASE;
}

void lease_hear(struct lease *lease, uint64_t stamp, uint64_t echo, uint64_t theirs_ns, uint64_t now_ns)
{
	if (stamp > lease->stamp) {
		lease->stamp = stamp;
		lease->heard_ns = now_ns;
		lease->theirs_ns = theirs_ns;
		lease->silent_ns = 0;
	}
	/* An echo of what was never sent says nothing. */
	if (echo > lease->contact_ns && echo <= lease->sent_ns)
		lease->contact_ns = echo;
	if (lease->changed_ns == 0 || lease->contact_ns < lease->changed_ns || lease->ours_ns == lease->told_ns)
		return;
	lease->ours_ns = lease->told_ns;
	lease->urgent = true; /* a shorter promise, or an echo for a lease that is still the shorter one over there */
}

bool lease_expired(const struct lease *lease, uint64_t now_ns)
{
	return now_ns - lease->contact_ns >= lease->ours_ns;
}

uint64_t lease_with_margin(uint64_t lease_ns)
{
	return lease_ns + lease_ns / 8 + MARGIN_NS;
}

bool lease_is_silent(struct lease *lease, uint64_t now_ns)
{
	uint64_t since_ns = now_ns - lease->looked_ns;

	lease->looked_ns = now_ns;
	lease->silent_ns += since_ns < MARGIN_NS ? since_ns : MARGIN_NS;
	return lease->theirs_ns != 0 && lease->silent_ns >= lease_with_margin(lease->theirs_ns);
}

bool lease_is_over(const struct lease *lease, uint64_t now_ns)
{
	return lease->theirs_ns != 0 && now_ns - lease->heard_ns >= lease_with_margin(lease->theirs_ns);
}
