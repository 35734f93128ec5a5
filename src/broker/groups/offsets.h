/* offsets.h - the offsets that one group has committed, by topic and partition. */
#ifndef HOLDFAST_BROKER_OFFSETS_H
#define HOLDFAST_BROKER_OFFSETS_H

#include "broker/codec/codec.h"

struct offset_entry {
	char *topic;
	int32_t partition, leader_epoch;
	int64_t offset, committed_ms;
	char *metadata;
};

struct offsets {
	struct offset_entry *at; /* by topic, then partition */
	unsigned count, capacity;
};

/* -ENOMEM: nothing changed. */
int offsets_set(struct offsets *offsets, struct codec_string topic, int32_t partition, int64_t offset,
	int32_t leader_epoch, struct codec_string metadata, int64_t committed_ms);
const struct offset_entry *offsets_find(const struct offsets *offsets, struct codec_string topic, int32_t partition);
void offsets_remove(struct offsets *offsets, struct codec_string topic, int32_t partition);
void offsets_free(struct offsets *offsets);

#endif
