/* told.h - where the log of each member was durable by its last report, and which log is an older copy (R-K25).
 *
 * A member reports in each ASK where its log is durable. The others log the last reports with each MARK, because a cold
 * start comes after the end of all processes. A process is named by its incarnation, which its log has too (LIFE). At a
 * cold start the log of a member is an older copy, for instance yesterday's from a backup, if it lacks the process that
 * was the last member, or if that process's entries end before a position that it had reported.
 *
 * A record is lost with such a log only if it lies before the MARKs of all members that begin, because records behind
 * them are replayed. Before its MARK each record is VALID, so it was durable at all live members, and the reports that
 * are logged with the MARK are at most the time between two ASKs older. So a copy that is older than that is found.
 *
 *   bytes of a report   0 u64 incarnation   8 u64 durable
 *
 * Pure. */
#ifndef HOLDFAST_KV_TOLD_H
#define HOLDFAST_KV_TOLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TOLD_BYTES 16u

struct told {
	uint64_t incarnation; /* of the process; 0: there is no report */
	uint64_t durable;     /* a position of its log */
};

/* Another process takes the place of the one before; of one process the highest position remains. */
void kv_told_note(struct told *told, uint64_t incarnation, uint64_t durable);
/* A log whose last process is `kept` lacks the one that was a member last, or whatever that one wrote. */
bool kv_told_lacks(const struct told *kept, uint64_t incarnation);
/* A log whose entries of the member's last process end at `kept` is older than one that this report is of. */
bool kv_told_is_behind(const struct told *kept, const struct told *told);

void kv_told_write(const struct told *told, unsigned count, uint8_t *at); /* TOLD_BYTES each */
/* Up to `count` of them, as far as there are bytes. */
void kv_told_read(struct told *told_out, unsigned count, const uint8_t *at, size_t bytes);

#endif
