/* flights.h - commits of offsets that are in the log and not replicated yet, in the order of the log.
 *
 * They belong to the groups: a record in the log will be replicated whether its request waits or not, and the next
 * coordinator reads it there. So a flight is taken over once hw has passed it, also when the connection has ended or
 * the time of the request is over; and all are dropped when the epoch ends in which this broker coordinates.
 *
 * Owned by the broker's loop. */
#ifndef HOLDFAST_BROKER_FLIGHTS_H
#define HOLDFAST_BROKER_FLIGHTS_H

#include <holdfast/loop.h>

#include "broker/codec/codec.h"
#include "broker/log/partition.h"

#define FLIGHTS_BYTES_MAX (64u << 20) /* of all */

struct groups;

/* A null metadata is empty; an offset below 0 removes. */
struct groups_commit {
	struct codec_string topic, metadata;
	int32_t partition, leader_epoch;
	int64_t offset;
	bool removed; /* none is committed any more; not in a flight */
};

struct flight {
	struct list node;
	struct codec_string group;
	struct groups_commit *commits; /* they and their texts lie behind this struct */
	int32_t count;
	size_t bytes; /* of all this */
	int64_t end;  /* of its records: they hold once hw is there */
	bool lost;    /* the partition has ended meanwhile */
	/* Told once, just before the flight is freed: NONE, or why its commits do not hold. NULL: none waits. */
	void (*told)(void *context, enum kafka_error error);
	void *context;
};

struct flights {
	struct list all;
	size_t bytes;
	struct partition_wait wait; /* for hw; linked while there are flights */
	struct hf_timer timer;      /* the partition tells its waits: what follows from it comes in another turn */
};

void flights_init(struct flights *flights);
/* A copy, which is in no list. NULL: no memory, or too many bytes are in flight. */
struct flight *flights_make(
	struct groups *groups, struct codec_string group, const struct groups_commit *commits, int32_t count);
void flights_free(struct groups *groups, struct flight *flight); /* one that was not added */
/* Its records are in the log, up to `end`. */
void flights_add(struct groups *groups, struct flight *flight, int64_t end);
/* Takes over what is replicated, and ends the waits for it. Not while the partition tells its waits. */
void flights_settle(struct groups *groups);
/* All are dropped: NOT_COORDINATOR. */
void flights_stop(struct groups *groups);

/* The end of the newest; 0: there is none. */
int64_t flights_newest(const struct flights *flights);
/* Whether one is there that ends at `end` or before. */
bool flights_wait_below(const struct flights *flights, int64_t end);
/* Whether one commits an offset of that partition. */
bool flights_have(
	const struct flights *flights, struct codec_string group, struct codec_string topic, int32_t partition);

#endif
