/* tx.h - the queue of outgoing packets, in runs that one system call can send.
 *
 * A run is packets of one size to one peer, the last of which may be shorter, as UDP_SEGMENT needs. Packets are sent
 * in the order in which they were reserved. Memory is fixed; a full queue returns NULL.
 *
 * A packet is in the run's memory, but its payload may stay in the application's: then the run has pieces, own and
 * foreign memory in turn. The owner may free or change foreign memory as soon as the engine continues, so unsent
 * payload is copied (tx_settle). */
#ifndef HOLDFAST_DEV_SOFT_TX_H
#define HOLDFAST_DEV_SOFT_TX_H

#include <holdfast/env.h>

#define TX_RUNS      16u
#define TX_RUN_BYTES 65000u /* under the limit of IPv4 and IPv6 */
#define TX_PIECES    (2u * HF_DGRAM_MAX_SEGMENTS + 1u)
_Static_assert(TX_PIECES <= HF_DGRAM_MAX_PIECES, "a run can be sent");

struct tx {
	struct hf_dgram runs[TX_RUNS];
	uint32_t packets[TX_RUNS];
	uint32_t own_bytes[TX_RUNS]; /* of its memory in use */
	bool closed[TX_RUNS];        /* its last packet was shorter than the others */
	unsigned first, count;       /* runs [first, count) wait to be sent */
	unsigned runs_most;          /* that wait at the same time; 0: TX_RUNS */
	uint32_t bytes_most;         /* of a run, but for one packet; 0: TX_RUN_BYTES */
	uint8_t *memory;             /* TX_RUNS * TX_RUN_BYTES */
	struct iovec pieces[TX_RUNS][TX_PIECES];
};

/* Room for a packet of exactly `bytes`, of which `foreign` will be referred to; or NULL. */
uint8_t *tx_reserve(struct tx *tx, const struct hf_addr *peer, uint32_t bytes, uint32_t foreign);
/* Of the packet reserved last in its run: 0, 1, ... */
uint16_t tx_place(const struct tx *tx);
/* In the packet reserved last, the foreign bytes are these, and `trailer` bytes of its own come behind them. */
void tx_refer(struct tx *tx, const void *data, uint32_t bytes, uint32_t trailer);
/* Takes back the packet reserved last, all of which is its own. */
void tx_cancel(struct tx *tx, uint32_t bytes);
/* The next n runs were sent. */
void tx_sent(struct tx *tx, unsigned n);
/* What still waits refers to nothing any more. */
void tx_settle(struct tx *tx);

static inline bool tx_empty(const struct tx *tx)
{
	return tx->first == tx->count;
}

#endif
