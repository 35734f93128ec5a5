/* log_verdict.h - what the start of a log, or the later check of its segments, found out about it (R-D2, R-D8).
 *
 *   0          start         synced            written          what was allocated
 *   | deleted  | proven, always | proven in the  | nothing is     |
 *   |          |                | same boot      | proven here    |
 *
 * A log is read from its start up to the first batch that is not right. What is proven and was not read is damage: the
 * log takes no records, is not served, and keeps every byte, until it is cut to the damage (partition_log_cut_damage).
 * What is not proven is a torn tail: it is cut, and kept beside. Pure. */
#ifndef HOLDFAST_BROKER_LOG_VERDICT_H
#define HOLDFAST_BROKER_LOG_VERDICT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum log_state {
	LOG_WHOLE,   /* everything that is proven is there */
	LOG_TORN,    /* the same; what lay behind it was cut, and is kept beside */
	LOG_DAMAGED, /* of what is proven something cannot be read: it does not lead (R-D7) */
};

/* Of a log, as its mark has it from the life before. */
struct log_proof {
	bool known;     /* false: there is no mark of it; nothing is proven */
	bool same_boot; /* memory that the life before wrote to files is there: the process ended, not the host */
	bool closed;    /* in order: all of it was synced */
	bool damaged;   /* it was judged so, and nothing has been cut since */
	int64_t start;  /* records below it were deleted */
	int64_t synced, written; /* records below them are on the disk; were in the file */
};

/* Of a log, as it was read. */
struct log_found {
	int64_t start, end; /* from the first offset of the first file up to the first batch that is not right */
	bool more;          /* whole batches, or files, lie behind the one that is not right */
};

struct log_verdict {
	enum log_state state;
	int64_t end;    /* the first offset that cannot be read, or the end of the log */
	int64_t proven; /* records below it were there */
	/* DAMAGED: where it cannot be read. */
	int64_t file;      /* the base offset of its segment */
	uint32_t place;    /* in that file */
	const char *fault; /* words about it, a constant */
};

/* The end of what is proven; 0: nothing is. */
int64_t log_verdict_proven(const struct log_proof *proof);
/* State, end, proven and fault; file and place are the caller's. `more` bytes are no batch, or no right one. */
struct log_verdict log_verdict_of(const struct log_proof *proof, const struct log_found *found, bool more_bytes);

#endif
