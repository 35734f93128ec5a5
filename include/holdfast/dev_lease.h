/* dev_lease.h - D9: a time after which queue pairs execute no request, whoever runs or stands still.
 *
 * A peer that heard nothing for a lease and a margin reports work as unknown; from then on none of it may execute. The
 * owner of a qp fences it when the lease is over, but the owner may be stopped itself: its process by a signal, its
 * thread by work of its own. What arrived meanwhile lies in the NIC's socket, or the NIC executes it without the owner.
 * So the device counts the time.
 *
 * Included by dev.h. Devices without HF_DEV_LEASE answer -EOPNOTSUPP, and ignore hf_qp_init.lease. */
#ifndef HOLDFAST_DEV_LEASE_H
#define HOLDFAST_DEV_LEASE_H

#include <stdint.h>

struct hf_dev;

struct hf_lease {
	struct hf_dev *dev;
};

/* Has not begun: the qps that are made with it execute no request before it is extended for the first time. */
int hf_lease_open(struct hf_dev *dev, struct hf_lease **lease_out);

/* Until then, by hf_env_boot_ns of the device's env, requests execute; later ones are dropped as if they had been lost.
 * An earlier time than before changes nothing. -ETIMEDOUT: it was over already. What is over stays over, because a
 * request of that time may still arrive: the qps are fenced and replaced, with another lease. */
int hf_lease_extend(struct hf_lease *lease, uint64_t until_ns);

/* It is over, if it was not. Its qps may outlive it. NULL is legal. */
void hf_lease_close(struct hf_lease *lease);

#endif
