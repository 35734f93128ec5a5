/* Committed offsets of a group, in order. */
#include "broker/groups/offsets.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/sorted.h"

struct place {
	struct codec_string topic;
	int32_t partition;
};

static int compare(const void *element, const void *key)
{
	const struct offset_entry *entry = element;
	const struct place *place = key;
	int order = codec_compare(entry->topic, place->topic);

	return order != 0 ? order : (entry->partition > place->partition) - (entry->partition < place->partition);
}

static unsigned place_of(const struct offsets *offsets, struct codec_string topic, int32_t partition, bool *there_out)
{
	return sorted_place(offsets->at, offsets->count, sizeof(*offsets->at), compare,
		&(struct place){.topic = topic, .partition = partition}, there_out);
}

static bool grow(struct offsets *offsets)
{
	struct offset_entry *at = sorted_grow(offsets->at, offsets->count, &offsets->capacity, sizeof(*at));

	if (at != NULL)
		offsets->at = at;
	return at != NULL;
}

int offsets_set(struct offsets *offsets, struct codec_string topic, int32_t partition, int64_t offset,
	int32_t leader_epoch, struct codec_string metadata, int64_t committed_ms)
{
	char *name = NULL,
	     *words = strndup(metadata.bytes > 0 ? metadata.at : "", metadata.bytes > 0 ? (size_t)metadata.bytes : 0);
	struct offset_entry *entry;
	unsigned place;
	bool there;

	place = place_of(offsets, topic, partition, &there);
	if (!there)
		name = strndup(topic.at, (size_t)topic.bytes);
	if (words == NULL || (!there && (name == NULL || !grow(offsets)))) {
		free(name);
		free(words);
		return -ENOMEM;
	}
	entry = &offsets->at[place];
	if (there) {
		free(entry->metadata);
	} else {
		memmove(entry + 1, entry, (offsets->count - place) * sizeof(*entry));
		offsets->count++;
		*entry = (struct offset_entry){.topic = name, .partition = partition};
	}
	entry->offset = offset;
	entry->leader_epoch = leader_epoch;
	entry->metadata = words;
	entry->committed_ms = committed_ms;
	return 0;
}

const struct offset_entry *offsets_find(const struct offsets *offsets, struct codec_string topic, int32_t partition)
{
	bool there;
	unsigned place = place_of(offsets, topic, partition, &there);

	return there ? &offsets->at[place] : NULL;
}

void offsets_remove(struct offsets *offsets, struct codec_string topic, int32_t partition)
{
	bool there;
	unsigned place = place_of(offsets, topic, partition, &there);

	if (!there)
		return;
	free(offsets->at[place].topic);
	free(offsets->at[place].metadata);
	offsets->count--;
	memmove(offsets->at + place, offsets->at + place + 1, (offsets->count - place) * sizeof(*offsets->at));
}

void offsets_free(struct offsets *offsets)
{
	for (unsigned i = 0; i < offsets->count; i++) {
		free(offsets->at[i].topic);
		free(offsets->at[i].metadata);
	}
	free(offsets->at);
	*offsets = (struct offsets){0};
}
