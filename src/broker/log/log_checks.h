/* log_checks.h - looks for damage in what a start has not verified: segments of a log that was closed in order, and
 * those below its mark. A helper thread reads one segment at a time, the newest of a log first, at a bounded rate.
 *
 * A log in which damage is found fails, with its verdict, and log_flush.told reports that (R-D7).
 * Owned by the broker's loop; a flusher has them. */
#ifndef HOLDFAST_BROKER_LOG_CHECKS_H
#define HOLDFAST_BROKER_LOG_CHECKS_H

#include <holdfast/loop.h>

struct flusher;
struct partition_log;
struct log_check;

struct log_checks {
	struct hf_timer timer;
	struct log_check *under_way; /* NULL: none */
	bool due;
};

void log_checks_init(struct log_checks *checks);
void log_checks_close(struct log_checks *checks, struct hf_loop *loop); /* none is under way */
/* There may be segments to check. */
void log_checks_go(struct flusher *flusher);
/* The log is closed. */
void log_checks_forget(struct log_checks *checks, const struct partition_log *log);

#endif
