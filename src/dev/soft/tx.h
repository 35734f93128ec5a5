/* tx.h - packets on their way out, gathered into runs that one system call can send.
 *
 * A run is packets of one size to one peer, the last of which may be shorter: what UDP_SEGMENT can cut. Packets leave
 * in the order in which they were reserved. Memory is fixed; a full queue is answered with NULL. */
#ifndef HOLDFAST_DEV_SOFT_TX_H
#define HOLDFAST_DEV_SOFT_TX_H

#include <holdfast/env.h>

#define TX_RUNS      16u
#define TX_RUN_BYTES 65000u /* under the limit of IPv4 and IPv6 */

struct tx {
	struct hf_dgram runs[TX_RUNS];
	uint32_t packets[TX_RUNS];
	bool closed[TX_RUNS];  /* its last packet was shorter than the others */
	unsigned first, count; /* runs [first, count) wait to be sent */
	uint8_t *memory;       /* TX_RUNS * TX_RUN_BYTES */
};

/* Room for a packet of exactly `bytes`, or NULL. */
uint8_t *tx_reserve(struct tx *tx, const struct hf_addr *peer, uint32_t bytes);
/* Of the packet reserved last in its run: 0, 1, ... */
uint16_t tx_place(const struct tx *tx);
/* Takes back the packet reserved last. */
void tx_cancel(struct tx *tx, uint32_t bytes);
/* The next n runs were sent. */
void tx_sent(struct tx *tx, unsigned n);

static inline bool tx_empty(const struct tx *tx)
{
	return tx->first == tx->count;
}

#endif
