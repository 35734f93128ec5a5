/* partition.h - one partition that this broker leads: its log, its high watermark, and what waits for it to grow.
 *
 * Owned by the broker's loop. */
#ifndef HOLDFAST_BROKER_PARTITION_H
#define HOLDFAST_BROKER_PARTITION_H

#include "broker/log/partition_log.h"

struct partition {
	int32_t index, leader_epoch;
	struct partition_log *log;
	int64_t hw; /* the high watermark: records below it may be read */
	struct list waits;
};

/* Something that waits for records. It is told of each growth, and of the end of the partition, until it is removed. */
struct partition_wait {
	struct list node;
	/* `bytes` more can be read; UINT32_MAX: the partition ends. Must not free other waits; may remove itself. */
	void (*grown)(struct partition_wait *wait, uint32_t bytes);
};

void partition_init(struct partition *partition, int32_t index, struct partition_log *log);
/* Tells the waits; the log is the caller's. */
void partition_end(struct partition *partition);

/* partition_log_append in the current epoch; the high watermark follows. */
enum kafka_error partition_append(
	struct partition *partition, const uint8_t *data, size_t bytes, int64_t now_ms, struct append_result *result);

void partition_add_wait(struct partition *partition, struct partition_wait *wait);
void partition_remove_wait(struct partition_wait *wait);

/* KAFKA_NONE when a client that knows this epoch is right; -1: it knows none. */
enum kafka_error partition_check_epoch(const struct partition *partition, int32_t epoch);

#endif
