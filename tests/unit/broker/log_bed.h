/* log_bed.h - the log of a partition in files of its own, for tests. What does not hold fails the test. */
#ifndef HOLDFAST_TESTS_UNIT_BROKER_LOG_BED_H
#define HOLDFAST_TESTS_UNIT_BROKER_LOG_BED_H

#include "broker/log/partition_log.h"

#define LOG_BED_T0 1700000000000ll /* milliseconds: when it is opened */

/* Of segments of so many bytes: nothing is deleted, rolled by time or flushed. */
struct log_config log_bed_config(uint32_t segment_bytes, uint32_t max_message_bytes);
/* `mark` NULL: none is kept. `clean`: it was closed in order. */
struct partition_log *log_bed_open(
	const char *directory, const struct log_config *config, struct log_mark *mark, bool clean);
/* As a killed process leaves its files: nothing is trimmed, no checkpoint written. */
void log_bed_kill(struct partition_log *log);
/* A directory in /tmp; `directory` has 64 bytes. */
void log_bed_make_directory(char *directory);

#endif
