/* batch_contents.h - the records inside a batch, packed or not: checking them, and finding one by its time.
 *
 * Packed records are unpacked piece by piece and nothing of them is kept, so the memory does not grow with the bytes
 * that come out (compression.h). Each call has a limit on those. What a record looks like: records.h.
 *
 * Any thread; the batch does not change meanwhile. */
#ifndef HOLDFAST_BROKER_BATCH_CONTENTS_H
#define HOLDFAST_BROKER_BATCH_CONTENTS_H

#include "broker/log/batch.h"

/* No more than this may come out of one batch: a client that unpacks it at once has to have the memory. */
#define BATCH_CONTENTS_MOST (256u << 20)

enum batch_contents_result {
	BATCH_CONTENTS_RIGHT,
	BATCH_CONTENTS_WRONG, /* it does not unpack, or its count, deltas or sizes contradict the records */
	BATCH_CONTENTS_LARGE, /* it unpacks to more than was allowed */
	BATCH_CONTENTS_NO_MEMORY,
};

struct batch_contents {
	enum batch_contents_result result;
	int64_t latest_ms; /* the largest timestamp of its records */
	size_t bytes;      /* that came out */
};

/* `batch` is a header that was read right from `at`. */
void batch_contents_check(
	const uint8_t *at, const struct batch *batch, size_t most, struct batch_contents *contents_out);

struct batch_contents_place {
	int64_t offset, timestamp_ms;
	size_t bytes; /* that came out */
};
/* The first record from `from` on whose timestamp is at least this; RIGHT with the offset -1: there is none. */
enum batch_contents_result batch_contents_find_time(const uint8_t *at, const struct batch *batch, int64_t timestamp_ms,
	int64_t from, size_t most, struct batch_contents_place *place_out);

#endif
