/* partition_log_parts.h - shared by partition_log.c, partition_log_open.c and replica_log.c only. */
#ifndef HOLDFAST_BROKER_PARTITION_LOG_PARTS_H
#define HOLDFAST_BROKER_PARTITION_LOG_PARTS_H

#include "broker/log/partition_log.h"

/* Another head. */
int partition_log_add(struct partition_log *log, int64_t base_offset, uint32_t capacity, struct hf_error *error);
/* Seals the head; another one begins. */
int partition_log_roll(struct partition_log *log, uint32_t capacity, struct hf_error *error);
/* After batches were taken: from three quarters of the head on a helper thread makes the next one (R-B26). */
void partition_log_look_ahead(struct partition_log *log);
/* Of producers, at the end of the log; a failure is logged. */
void partition_log_write_snapshot(struct partition_log *log);
/* From the snapshot of that offset (-1: none), and the batches behind it. */
int partition_log_load_producers(struct partition_log *log, int64_t snapshot, int64_t now_ms);
/* Files of a log's directory. */
struct log_files {
	int64_t *offsets; /* of segments, sorted; memory of malloc */
	unsigned count, capacity;
	int64_t snapshot; /* the newest; -1: none */
	bool failed;
};
int partition_log_list(const struct partition_log *log, struct log_files *files, struct hf_error *error);

/* replica_log.c: that segment is the head, with its tail at `place`; those behind it are removed. -EBUSY: it is still
 * registered. */
int partition_log_make_head(
	struct partition_log *log, struct segment *segment, uint32_t place, uint32_t capacity, struct hf_error *error);
/* Epochs, producers and snapshots behind the end. */
int partition_log_forget_behind(struct partition_log *log, int64_t now_ms, struct hf_error *error);

/* damage.c: a file of a segment gets a name with this ending more. */
int partition_log_set_aside(
	const struct partition_log *log, int64_t base_offset, const char *ending, struct hf_error *error);
/* Takes the verdict DAMAGED over: reports file, place, remedies; the log fails, and its mark says so. */
void partition_log_damage(struct partition_log *log);
/* "%020d" and an ending. */
bool partition_log_parse_name(const char *name, const char *ending, int64_t *offset_out);

#endif
