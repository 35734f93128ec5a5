/* lease.h - the time until which the qps of a peer execute requests (D9). Everything here runs under the NIC's lock. */
#ifndef HOLDFAST_DEV_SOFT_LEASE_H
#define HOLDFAST_DEV_SOFT_LEASE_H

#include <holdfast/dev.h>

struct soft_lease {
	struct hf_lease base;
	uint64_t until_ns; /* 0: it has not begun */
	bool over;         /* for good */
	bool closed;       /* freed with its last qp */
	unsigned qps;
};

/* Of a qp that is made or destroyed; NULL is legal. */
void lease_hold(struct soft_lease *lease);
void lease_release(struct soft_lease *lease);

/* NULL: there is none, and so it holds. */
static inline bool lease_holds(const struct soft_lease *lease, uint64_t boot_ns)
{
	return lease == NULL || (!lease->over && boot_ns < lease->until_ns);
}

#endif
