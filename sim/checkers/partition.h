/* partition.h - whether readers of a partition see one log, and whether producers were told the truth about it. Knows
 * nothing of the broker: it reads record batches byte by byte, with a CRC of its own.
 *
 * Claims:
 *   batch    only whole batches with a right CRC and an assigned epoch are given to readers (B5)
 *   dense    offsets have no gaps (B2)
 *   one-log  an offset means the same record for all and for ever (B2)
 *   order    a producer's records are in its order (B3); a batch that it gave up may come later, or never
 *   once     and there once (B4)
 *   kept     what was acknowledged is there, at the offset that was told (B1)
 *
 * A loss of power takes what the page cache had, so partition_lost begins a new account.
 *
 * A record's value is {u32 producer, u64 number}, little-endian; numbers of a producer rise. */
#ifndef HOLDFAST_SIM_CHECKERS_PARTITION_H
#define HOLDFAST_SIM_CHECKERS_PARTITION_H

#include "sim/world.h"

#define PARTITION_RECORDS_MAX   65536u
#define PARTITION_VALUE_BYTES   12u
#define PARTITION_PRODUCERS_MAX 8u

struct partition_record {
	bool seen, acked;
	uint32_t producer, acked_producer;
	uint64_t number, acked_number;
};

struct partition_account {
	struct world *world;
	const char *name;
	struct partition_record records[PARTITION_RECORDS_MAX];        /* by offset */
	uint64_t end;                                                  /* behind the last that was seen */
	bool given_up[PARTITION_PRODUCERS_MAX][PARTITION_RECORDS_MAX]; /* by number */
	bool lossy; /* power was lost once: numbers may be missing or repeated */
};

void partition_account_init(struct partition_account *account, struct world *world, const char *name);
/* Batches that a reader got when it asked for `offset`; returns the offset behind them. */
uint64_t partition_read(struct partition_account *account, uint64_t offset, const uint8_t *data, size_t bytes);
/* A record that a reader got, whose library had checked its batch. */
void partition_given(struct partition_account *account, uint64_t offset, const uint8_t *value, size_t bytes);
/* A producer was told that its records from `number` on begin at `offset`. */
void partition_acked(
	struct partition_account *account, uint64_t offset, uint32_t producer, uint64_t number, uint32_t count);
/* A producer goes on behind these records, though the request that has them may be under way. */
void partition_given_up(struct partition_account *account, uint32_t producer, uint64_t number, uint32_t count);
/* The host lost its power: what was seen or told before need not be there any more. */
void partition_lost(struct partition_account *account);
/* A reader has read everything. */
void partition_settled(struct partition_account *account);

#endif
