/* groups_log.h - committed offsets as records of __consumer_offsets (groups.h). */
#ifndef HOLDFAST_BROKER_GROUPS_LOG_H
#define HOLDFAST_BROKER_GROUPS_LOG_H

#include "broker/groups/groups.h"

/* Reads all records into the groups. */
int groups_log_load(struct groups *groups, struct hf_error *error);
/* Writes that the group has no offsets any more. */
enum kafka_error groups_log_forget(struct groups *groups, struct groups_entry *entry);

/* A null metadata is empty; an offset below 0 removes. */
struct groups_commit {
	struct codec_string topic, metadata;
	int32_t partition, leader_epoch;
	int64_t offset;
};
/* What a group commits: from groups_log_commit on it is the groups', until it is taken over or its node removed. */
struct groups_flight {
	struct list node;
	struct codec_string group;
	const struct groups_commit *commits;
	int32_t count;
	int64_t end; /* of its records: they hold once hw is there */
	bool taken;
	enum kafka_error error; /* taken: what it came to */
};
/* Writes them. */
enum kafka_error groups_log_commit(struct groups *groups, struct groups_flight *flight);
/* It is replicated: takes it over, and before it those that are in the log before it. */
enum kafka_error groups_log_take(struct groups *groups, struct groups_flight *flight);
/* The end of the newest commit that is in the log and not taken over yet; 0: there is none. */
int64_t groups_log_newest(const struct groups *groups);
/* Whether a commit that ends at `end` or before is in the log and not taken over yet. */
bool groups_log_waits(const struct groups *groups, int64_t end);
/* No snapshot is waited for any more, and no flight is known. */
void groups_log_stop(struct groups *groups);
/* The partition that has them; NULL: there is none yet. */
struct partition *groups_log_partition(const struct groups *groups);

/* The offsets that this group committed at `limit_ms` or before are gone. */
void groups_log_expire(struct groups *groups, struct groups_entry *entry, int64_t limit_ms);

/* A topic is gone: no group has an offset in it any more. */
void groups_log_forget_topic(struct groups *groups, struct codec_string topic);

#endif
