/* partition.h - one partition of this broker: its log, its high watermark, and the requests that wait for both.
 *
 * Owned by the broker's loop. */
#ifndef HOLDFAST_BROKER_PARTITION_H
#define HOLDFAST_BROKER_PARTITION_H

#include "broker/log/partition_log.h"

struct partition {
	int32_t index, leader_epoch;
	int32_t recovered_epoch; /* high watermarks of earlier epochs are void (R-D7) */
	struct partition_log *log;
	int64_t hw;          /* the high watermark: records below it may be read */
	bool leads;          /* in leader_epoch; false: another broker leads, or none */
	int64_t epoch_start; /* where the log ended when it began to lead */
	unsigned in_sync;    /* members of its isr, itself among them */
	unsigned replicas;   /* that it has */
	struct list waits;
	struct partition_holder *holder; /* NULL: none */
	/* Of its replication (replication.h). NULL: there is one replica, and hw is where the log ends. */
	void (*appended)(struct partition *partition);
	void (*gone)(struct partition *partition); /* the log is closed or removed next */
	void *replication;
};

/* The holder that writes into the head. Any other append revokes the grant first (R-B3). */
struct partition_holder {
	/* Afterwards nothing of it can be written or committed, and partition->holder is NULL. */
	void (*take_back)(struct partition_holder *holder);
};

/* A wait for records. It is called at each growth, and at the end of the partition, until it is removed. */
struct partition_wait {
	struct list node;
	/* `bytes` more can be read, or more is durable; UINT32_MAX: the partition ends. Must not free other waits; may
	 * remove itself. */
	void (*grown)(struct partition_wait *wait, uint32_t bytes);
};

void partition_init(struct partition *partition, int32_t index, struct partition_log *log);
/* Revokes a grant and calls the waits; the log is the caller's. */
void partition_end(struct partition *partition);

/* Records below it may be read now: calls the waits. It never decreases. */
void partition_set_hw(struct partition *partition, int64_t hw);

/* Whether what is below `end` may be acknowledged: it is as durable as the topic wants it, and `all`: every member of
 * the isr has it. */
bool partition_has_settled(const struct partition *partition, int64_t end, bool all);

/* partition_log_append_inspected in the current epoch; the high watermark follows. */
enum kafka_error partition_append_inspected(struct partition *partition, const uint8_t *data, size_t bytes,
	int64_t now_ms, const struct batch_contents *contents, struct append_result *result);
static inline enum kafka_error partition_append(
	struct partition *partition, const uint8_t *data, size_t bytes, int64_t now_ms, struct append_result *result)
{
	return partition_append_inspected(partition, data, bytes, now_ms, NULL, result);
}

/* partition_log_commit, for the holder; the high watermark follows. */
enum kafka_error partition_commit(struct partition *partition, const struct log_extent *extent, uint32_t bytes,
	int64_t now_ms, const struct batch_contents *contents, struct append_result *result);
void partition_take_back(struct partition *partition); /* what its holder has, if there is one */

void partition_add_wait(struct partition *partition, struct partition_wait *wait);
void partition_remove_wait(struct partition_wait *wait);

/* Whether min.insync.replicas are in sync; of fewer replicas, all of them. */
bool partition_has_enough(const struct partition *partition);

/* KAFKA_NONE when the epoch of a client is the current one; -1: it has none. */
enum kafka_error partition_check_epoch(const struct partition *partition, int32_t epoch);

#endif
