/* groups_log.h - committed offsets as records of __consumer_offsets (groups.h). */
#ifndef HOLDFAST_BROKER_GROUPS_LOG_H
#define HOLDFAST_BROKER_GROUPS_LOG_H

#include "broker/groups/groups.h"

/* Reads all records into the groups. */
int groups_log_load(struct groups *groups, struct hf_error *error);
/* Writes that the group has no offsets any more, those in flight neither. */
enum kafka_error groups_log_forget(struct groups *groups, struct groups_entry *entry);

/* Writes what a group commits. From then on it is one of the groups' flights, which flights_settle takes over: the
 * caller names the one that is told. */
enum kafka_error groups_log_commit(struct groups *groups, struct codec_string group,
	const struct groups_commit *commits, int32_t count, struct flight **flight_out);
/* All offsets are written anew if the log has grown enough, and behind them what is in flight. */
void groups_log_snapshot(struct groups *groups);
/* No snapshot is waited for any more. */
void groups_log_stop(struct groups *groups);
/* The partition that has them; NULL: there is none yet. */
struct partition *groups_log_partition(const struct groups *groups);

/* The offsets that this group committed at `limit_ms` or before, and does not commit now, are gone. */
void groups_log_expire(struct groups *groups, struct groups_entry *entry, int64_t limit_ms);

/* A topic is gone: no group has an offset in it any more, or in flight. */
void groups_log_forget_topic(struct groups *groups, struct codec_string topic);

#endif
