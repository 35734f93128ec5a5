/* flusher.h - makes records durable, on helper threads, by flush.messages and flush.ms of each topic.
 *
 *   flush.messages   when this many records are not on the disk, the last append is acknowledged, and readable,
 *                    only once all of them are (due); records that arrive meanwhile share the next flush
 *   flush.ms         this long after the last flush all records are flushed, and no request waits
 *
 * A log has one flush in progress. It holds its segments, so logs may be truncated and closed meanwhile.
 * Owned by the broker's loop; flusher_add, flusher_flush and flusher_close block. */
#ifndef HOLDFAST_BROKER_FLUSHER_H
#define HOLDFAST_BROKER_FLUSHER_H

#include <holdfast/loop.h>
#include <holdfast/work.h>

#include "base/list.h"
#include "broker/log/log_checks.h"

#define FLUSH_NEVER INT64_MAX /* of both */

struct flush;
struct partition_log;

struct flusher {
	struct hf_loop *loop;
	struct hf_workers *workers; /* NULL: none was needed yet */
	struct hf_timer timer;      /* of flush.ms */
	uint64_t interval_ns;
	int error;        /* of a flush whose log was closed meanwhile */
	struct list logs; /* by log_flush.node */
	bool ticks;
	struct log_checks checks;
};

/* Of a log. Records below `done` are durable; those below `due` must be before more is acknowledged. */
struct log_flush {
	struct list node;
	struct flusher *flusher; /* NULL: nothing is flushed */
	struct flush *under_way; /* NULL: none */
	int64_t done, due;
	uint64_t since_ns; /* of the last flush */
	bool names;        /* files were made or removed since the directory was synced */
	/* Called after a flush; if that failed, the log has failed. May be NULL. */
	void (*told)(struct partition_log *log, void *owner);
	void *owner;
};

/* interval_ns: how often flush.ms is looked at. */
void flusher_open(struct flusher *flusher, struct hf_loop *loop, uint64_t interval_ns);
/* After its logs. -errno: a flush that one of them left under way failed. */
int flusher_close(struct flusher *flusher);

/* Of a log that was opened: where records must be durable, all that it has is synced first. */
int flusher_add(struct flusher *flusher, struct partition_log *log, struct hf_error *error);
void flusher_remove(struct partition_log *log);
/* All that the log has is durable on return; also of a log that was not added. */
int flusher_flush(struct partition_log *log);

/* Its helper threads, for what else a log has to wait for; NULL: there are none. */
struct hf_workers *flusher_workers(struct flusher *flusher);

/* Makes everything in the log durable, without a waiting request; log_flush.told reports the end. */
void flusher_start(struct partition_log *log);
/* After records were appended, or another policy holds. */
void flusher_look(struct partition_log *log);
/* After the log was cut: what is under way counts no more. */
void flusher_cut(struct partition_log *log);

#endif
