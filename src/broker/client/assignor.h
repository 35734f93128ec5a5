/* assignor.h - the metadata of members of a group, and the assignor `range`, which assigns partitions to members.
 *
 *   subscription: i16 version, i32 n, n {i16 bytes, topic}, i32 bytes (-1: none), user data; more in later versions
 *   assignment:   i16 version, i32 n, n {i16 bytes, topic, i32 m, m i32 partition}, i32 bytes (-1: none), user data
 *
 * Big-endian, as Kafka's clients write them. For each topic, its subscribers, in the order of their ids, read ranges of
 * partitions; where the ranges do not divide evenly, the first members read one more. Pure but for memory. */
#ifndef HOLDFAST_BROKER_ASSIGNOR_H
#define HOLDFAST_BROKER_ASSIGNOR_H

#include "broker/codec/codec.h"

#define ASSIGNOR_NAME "range"

/* A member wants a topic. */
struct assignor_wish {
	char *member, *topic;
	int32_t first, count; /* partitions that it gets */
};
struct assignor {
	struct assignor_wish *wishes; /* by topic, then by member, once they are sorted */
	size_t count, room;
};

/* Bytes of a subscription to these topics, from malloc; .at NULL: no memory. */
struct codec_bytes assignor_subscribe(char *const *topics, unsigned count);
/* Takes up what a member wants. 0; -EBADMSG; -ENOMEM. */
int assignor_take(struct assignor *assignor, struct codec_string member, struct codec_bytes subscription);
void assignor_sort(struct assignor *assignor);
/* Gives the partitions of the topic of wishes[first]; returns where the wishes of the next topic begin. */
size_t assignor_spread(struct assignor *assignor, size_t first, int32_t partitions);
/* The assignment of a member, from malloc; .at NULL: no memory. */
struct codec_bytes assignor_assignment(const struct assignor *assignor, struct codec_string member);
void assignor_clear(struct assignor *assignor);

/* Reads an assignment, zeroed before: 1: *topic and *partition are the next ones; 0: there are no more; -EBADMSG. */
struct assignor_reader {
	struct codec_bytes from;
	size_t at;
	struct codec_string topic;
	int32_t topics_left, partitions_left;
	bool begun;
};
int assignor_next(struct assignor_reader *reader, struct codec_string *topic, int32_t *partition);

#endif
