/* dev_lease.h - D9: a time after which queue pairs execute no request, even while their process stands still.
 *
 * A peer without contact for a lease and a margin reports work as unknown; from then on none of it may execute. The
 * owner of a qp fences it when the lease is over, but the owner may be stopped itself: its process by a signal, its
 * thread by other work. Requests that arrived meanwhile are in the NIC's socket, or the NIC executes them without the
 * owner. So the device checks the time.
 *
 * Included by dev.h. Devices without HF_DEV_LEASE return -EOPNOTSUPP, and ignore hf_qp_init.lease. */
#ifndef HOLDFAST_DEV_LEASE_H
#define HOLDFAST_DEV_LEASE_H

#include <stdint.h>

struct hf_dev;

struct hf_lease {
	struct hf_dev *dev;
};

/* The lease has not begun: qps that are made with it execute no request before its first extension. */
int hf_lease_open(struct hf_dev *dev, struct hf_lease **lease_out);

/* Requests execute until this time of hf_env_boot_ns of the device's env; later ones are dropped, like lost packets.
 * An earlier time than before changes nothing. -ETIMEDOUT: the lease was over already, and stays over, because a
 * request of that time may still arrive: fence and replace the qps, with another lease. */
int hf_lease_extend(struct hf_lease *lease, uint64_t until_ns);

/* Ends the lease. Its qps may outlive it. NULL is legal. */
void hf_lease_close(struct hf_lease *lease);

#endif
