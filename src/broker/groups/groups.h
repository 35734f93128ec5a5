/* groups.h - the groups that this broker coordinates: their members' requests and their committed offsets.
 *
 * Offsets are records of the topic __consumer_offsets in Kafka's formats (messages/OffsetCommitKey.json and -Value): a
 * commit is one batch, which is in the log before the response. The log is read when the broker starts. When it has
 * grown by GROUPS_SNAPSHOT_BYTES, all offsets are written again; the records before them are deleted once they are on
 * the disk and in every log of the isr. Members are not kept: after a restart they join again.
 *
 * Among brokers the leader of __consumer_offsets-0 coordinates all groups: it reads the log when it begins to lead, and
 * drops all when another one leads. When it cannot read all, it serves none, and tries again with its retention checks.
 * A commit is answered and taken over when it is replicated (flights.h).
 *
 * Memory: members share GROUPS_MEMBERS_BYTES. Offsets are at most one for each partition in each of GROUPS_MAX groups,
 * with metadata of at most offset.metadata.max.bytes.
 *
 * Owned by the broker's loop. */
#ifndef HOLDFAST_BROKER_GROUPS_H
#define HOLDFAST_BROKER_GROUPS_H

#include <holdfast/loop.h>

#include "broker/groups/flights.h"
#include "broker/groups/group.h"
#include "broker/groups/offsets.h"
#include "broker/log/partition.h"
#include "broker/request.h"

#define GROUPS_TOPIC          "__consumer_offsets"
#define GROUPS_MAX            100000u
#define GROUPS_SNAPSHOT_BYTES (16 << 20)
#define GROUPS_MEMBERS_BYTES  (256u << 20) /* of all members of all groups */

struct groups_entry {
	struct group *group;
	struct offsets offsets;
	int64_t used_ms; /* the group came to be, or lost its last member */
	bool has_members;
};

struct groups {
	struct broker *broker;
	struct groups_entry **at; /* by id */
	unsigned count, capacity;
	uint64_t ids; /* member ids that were made */
	struct group_budget budget;
	int64_t snapshot_bytes; /* size of the log after the last snapshot */
	struct groups_snapshot {
		struct partition_wait wait;
		int64_t begin, end; /* offsets; end 0: there is none, or what it replaced is given up */
	} snapshot;
	struct flights flights;
	struct hf_timer timer;
	int32_t epoch;        /* of the leader that they were read in; -1: this broker does not coordinate */
	int32_t failed_epoch; /* in which they could not be read; -1: none */
	bool unread;          /* the topic is there, and was not read */
};

/* Reads the offsets, if the topic is there. */
void groups_open(struct groups *groups, struct broker *broker);
/* After the leader of the topic changed: reads, or drops. */
void groups_follow(struct groups *groups);
/* KAFKA_NONE when this broker coordinates groups; NOT_COORDINATOR; COORDINATOR_LOAD_IN_PROGRESS: the offsets could not
 * be read, and none are served. */
enum kafka_error groups_check(const struct groups *groups);
void groups_close(struct groups *groups);

/* Not empty, and without a NUL. */
bool groups_id_is_legal(struct codec_string id);
struct groups_entry *groups_find(const struct groups *groups, struct codec_string id);
/* Makes it when there is none; NULL: no memory, or too many. */
struct groups_entry *groups_find_or_make(struct groups *groups, struct codec_string id);
/* With its offsets, which are gone after a restart too. */
enum kafka_error groups_delete(struct groups *groups, struct groups_entry *entry);

/* Removes offsets that are older than offsets.retention.minutes, of groups that have had no members for that time. */
void groups_expire(struct groups *groups);

/* After each step of a group: sends the answers that are due, and sets the timer. */
void groups_deliver(struct groups *groups, struct groups_entry *entry);
/* `request` waits for the member's answer. */
void groups_wait(
	struct groups *groups, struct groups_entry *entry, struct group_member *member, struct request *request);

#endif
