/* topics.h - the topics of the controller at this broker: open logs.
 *
 * LOG_DIRS/TOPIC-N for each partition of which this broker has a replica, with partition.metadata: Kafka's text with
 * the id of the topic, and its CRC; LOG_DIRS/.kafka_cleanshutdown exists while each log there was closed in order; it
 * goes when the first one is opened. LOG_DIRS/log-start-offset-checkpoint is Kafka's text: version 0, a count, and
 * "TOPIC N OFFSET" for each log whose beginning was deleted.
 *
 * Owned by the broker's loop; opening and closing block for the file system. */
#ifndef HOLDFAST_BROKER_TOPICS_H
#define HOLDFAST_BROKER_TOPICS_H

#include "broker/controller/controller.h"
#include "broker/log/partition.h"

struct topic {
	char name[CONTROLLER_TOPIC_BYTES];
	struct codec_uuid id;
	struct partition **partitions; /* NULL: it is not here */
	int32_t count;
	bool missing; /* a log of it that is to be here could not be opened */
};

struct topics {
	struct hf_env *env;
	const char *directory;
	struct topic **at; /* by name */
	unsigned count, capacity;
	char *start_offsets; /* the text of the checkpoint, as it was read */
	int32_t self;        /* this broker */
	struct flusher *flusher;
	struct log_marks *marks; /* NULL: none are kept */
	bool known;              /* the controller has named all topics of this broker */
	bool was_clean;          /* the directory was closed in order before */
	bool marked;             /* and says so still */
	bool unread;             /* start_offsets could not be read */
	bool unclean_election;   /* of topics without one of their own */
};

/* Opens the logs of every topic that the controller has, of which broker `self` is a replica; without a quorum it has
 * all. A log that cannot be opened is reported, and missing. */
int topics_open(struct topics *topics, struct hf_env *env, const char *directory, int32_t self,
	const struct controller *controller, struct flusher *flusher, struct log_marks *marks, int64_t now_ms,
	struct hf_error *error);
/* The controller has all topics of this broker: what is not opened next has no owner, nor have marks of others. */
void topics_known(struct topics *topics, const struct controller *controller);
/* Closes every log in order. */
void topics_close(struct topics *topics);

/* After a command on this topic was applied: makes logs that are missing, takes configuration over. -errno: one cannot
 * be opened; the others are. */
int topics_follow(struct topics *topics, const struct controller_topic *from, int64_t now_ms, struct hf_error *error);
/* After the whole state was replaced: deletes topics that it lacks. */
void topics_drop_unknown(struct topics *topics, const struct controller *controller);
/* After it was deleted. */
void topics_delete(struct topics *topics, struct codec_string name);

struct topic *topics_find(const struct topics *topics, struct codec_string name);
struct partition *topics_partition(const struct topics *topics, struct codec_string name, int32_t index); /* or NULL */

/* Writes down the high watermark of each partition (R-D7). */
void topics_note_hws(struct topics *topics);
/* Applies retention to all logs. */
void topics_retain(struct topics *topics, int64_t now_ms);
/* After start offsets moved: writes the checkpoint. */
void topics_write_starts(struct topics *topics);

#endif
