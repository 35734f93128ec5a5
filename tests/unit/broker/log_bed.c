#include "log_bed.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>

#define DIRECTORY_BYTES 64

struct log_config log_bed_config(uint32_t segment_bytes, uint32_t max_message_bytes)
{
	return (struct log_config){.segment_bytes = segment_bytes,
		.index_interval_bytes = 1000,
		.max_message_bytes = max_message_bytes,
		.segment_ms = -1,
		.retention_ms = -1,
		.retention_bytes = -1,
		.timestamp_after_ms = 3600000,
		.flush_messages = FLUSH_NEVER,
		.flush_ms = FLUSH_NEVER,
		.min_insync_replicas = 1};
}

struct partition_log *log_bed_open(
	const char *directory, const struct log_config *config, struct log_mark *mark, bool clean)
{
	struct partition_log *log = NULL;
	struct hf_error error = {0};

	if (partition_log_open(hf_env_host(), directory, config, mark, clean, 0, LOG_BED_T0, &log, &error) != 0)
		fail_msg("%s", error.text);
	return log;
}

void log_bed_kill(struct partition_log *log)
{
	log->failed = true;
	list_for_each_safe (at, &log->segments) {
		struct segment *segment = container_of(at, struct segment, node);

		list_remove(&segment->node);
		segment_release(segment);
	}
	partition_log_close(log);
}

void log_bed_make_directory(char *directory)
{
	snprintf(directory, DIRECTORY_BYTES, "/tmp/holdfast-test-XXXXXX");
	assert_non_null(mkdtemp(directory));
}
