/* Topics as this broker serves them. */
#include "broker/controller/topics.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "broker/log/checkpoint.h"

#define STARTS_MOST (64u << 20)

/* What may be in the directory of a partition that is opened. */
enum topics_age {
	TOPICS_NEW,    /* nothing of it */
	TOPICS_CLEAN,  /* its log, closed in order */
	TOPICS_KILLED, /* its log, to be verified */
};

static unsigned place_of(const struct topics *topics, struct codec_string name, bool *there_out)
{
	unsigned low = 0, high = topics->count;

	*there_out = false;
	while (low < high) {
		unsigned middle = low + (high - low) / 2;
		int order = codec_compare(topics->at[middle]->name, name);

		if (order == 0) {
			*there_out = true;
			return middle;
		}
		if (order < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

struct topic *topics_find(const struct topics *topics, struct codec_string name)
{
	bool there = false;
	unsigned place = name.bytes < 0 ? 0 : place_of(topics, name, &there);

	return there ? topics->at[place] : NULL;
}

struct partition *topics_partition(const struct topics *topics, struct codec_string name, int32_t index)
{
	struct topic *topic = topics_find(topics, name);

	return topic == NULL || index < 0 || index >= topic->opened ? NULL : &topic->partitions[index];
}

/* ---- start offsets ---- */

static int64_t start_of(const struct topics *topics, const char *name, int32_t index)
{
	char line[CONTROLLER_TOPIC_BYTES + 16];
	const char *at;

	if (topics->start_offsets == NULL)
		return 0;
	snprintf(line, sizeof(line), "\n%s %d ", name, index);
	at = strstr(topics->start_offsets, line);
	return at == NULL ? 0 : strtoll(at + strlen(line), NULL, 10);
}

static void read_starts(struct topics *topics)
{
	char path[CHECKPOINT_PATH_BYTES];
	struct hf_error error = {0};
	size_t bytes;

	snprintf(path, sizeof(path), "%s/log-start-offset-checkpoint", topics->directory);
	if (checkpoint_read(topics->env, path, STARTS_MOST, &topics->start_offsets, &bytes, &error) != 0 &&
		error.text[0] != '\0')
		log_warn("broker: %s; records that were deleted may be there again", error.text);
}

void topics_write_starts(struct topics *topics)
{
	char path[CHECKPOINT_PATH_BYTES], *text = NULL;
	size_t bytes = 0;
	unsigned count = 0;
	struct hf_error error = {.text = "no memory for log-start-offset-checkpoint"};
	FILE *out = open_memstream(&text, &bytes);
	int rc = -ENOMEM;

	snprintf(path, sizeof(path), "%s/log-start-offset-checkpoint", topics->directory);
	if (out != NULL) {
		for (unsigned i = 0; i < topics->count; i++)
			for (int32_t k = 0; k < topics->at[i]->opened; k++)
				count += topics->at[i]->partitions[k].log->start_offset > 0;
		fprintf(out, "0\n%u\n", count);
		for (unsigned i = 0; i < topics->count; i++)
			for (int32_t k = 0; k < topics->at[i]->opened; k++)
				if (topics->at[i]->partitions[k].log->start_offset > 0)
					fprintf(out, "%s %d %lld\n", topics->at[i]->name, k,
						(long long)topics->at[i]->partitions[k].log->start_offset);
		if (fclose(out) == 0)
			rc = checkpoint_write(topics->env, path, text, bytes, &error);
	}
	if (rc != 0)
		log_warn("broker: %s; records that were deleted are there again after a restart", error.text);
	free(text);
}

/* ---- opening ---- */

static int open_partition(struct topics *topics, struct topic *topic, const struct topic_config *config,
	enum topics_age age, int64_t now_ms, struct hf_error *error)
{
	char directory[CHECKPOINT_PATH_BYTES];
	struct partition_log *log;
	int32_t index = topic->opened;
	int rc;

	if ((size_t)snprintf(directory, sizeof(directory), "%s/%s-%d", topics->directory, topic->name, index) >=
		sizeof(directory))
		return hf_error_set(error, -ENAMETOOLONG, "%.100s: the path is too long; choose a shorter log.dirs",
			topics->directory);
	if (age == TOPICS_NEW)
		partition_log_clear(topics->env, directory);
	rc = partition_log_open(topics->env, directory, &config->log, age != TOPICS_KILLED,
		age == TOPICS_NEW ? 0 : start_of(topics, topic->name, index), now_ms, &log, error);
	if (rc != 0)
		return rc;
	partition_init(&topic->partitions[index], index, log);
	topic->opened++;
	return 0;
}

/* Waits point into the array of partitions, so they end when it moves: those that wait look again. */
static int grow_partitions(struct topic *topic, int32_t count)
{
	struct partition *partitions = calloc((size_t)count, sizeof(*partitions));

	if (partitions == NULL)
		return -ENOMEM;
	for (int32_t i = 0; i < topic->opened; i++) {
		partition_end(&topic->partitions[i]);
		partitions[i] = topic->partitions[i];
		list_init(&partitions[i].waits);
	}
	free(topic->partitions);
	topic->partitions = partitions;
	topic->count = count;
	return 0;
}

static struct topic *add_topic(struct topics *topics, const struct controller_topic *from)
{
	struct codec_string name = {from->name, (int32_t)strlen(from->name)};
	struct topic *topic;
	unsigned place;
	bool there;

	if (topics->count == topics->capacity) {
		unsigned capacity = topics->capacity == 0 ? 16 : topics->capacity * 2;
		struct topic **at = realloc(topics->at, capacity * sizeof(struct topic *));

		if (at == NULL)
			return NULL;
		topics->at = at;
		topics->capacity = capacity;
	}
	topic = calloc(1, sizeof(*topic));
	if (topic == NULL)
		return NULL;
	memcpy(topic->name, from->name, sizeof(topic->name));
	topic->id = from->id;
	place = place_of(topics, name, &there);
	memmove(topics->at + place + 1, topics->at + place, (topics->count - place) * sizeof(struct topic *));
	topics->at[place] = topic;
	topics->count++;
	return topic;
}

static int follow(struct topics *topics, const struct controller_topic *from, enum topics_age age, int64_t now_ms,
	struct hf_error *error)
{
	struct codec_string name = {from->name, (int32_t)strlen(from->name)};
	struct topic *topic = topics_find(topics, name);

	if (topic == NULL)
		topic = add_topic(topics, from);
	if (topic == NULL || (from->partitions > topic->count && grow_partitions(topic, from->partitions) != 0))
		return hf_error_set(error, -ENOMEM, "no memory for the topic %s", from->name);
	for (int32_t i = 0; i < topic->opened; i++)
		topic->partitions[i].log->config = from->config.log;
	while (topic->opened < topic->count) {
		int rc = open_partition(topics, topic, &from->config, age, now_ms, error);

		if (rc != 0)
			return rc;
	}
	return 0;
}

int topics_follow(struct topics *topics, const struct controller_topic *from, int64_t now_ms, struct hf_error *error)
{
	return follow(topics, from, TOPICS_NEW, now_ms, error);
}

static void mark_path(const struct topics *topics, char path[CHECKPOINT_PATH_BYTES])
{
	snprintf(path, CHECKPOINT_PATH_BYTES, "%s/.kafka_cleanshutdown", topics->directory);
}

int topics_open(struct topics *topics, struct hf_env *env, const char *directory, const struct controller *controller,
	int64_t now_ms, struct hf_error *error)
{
	char path[CHECKPOINT_PATH_BYTES], *mark;
	bool clean;
	size_t bytes;
	int rc;

	*topics = (struct topics){.env = env, .directory = directory};
	mark_path(topics, path);
	clean = checkpoint_read(env, path, 4096, &mark, &bytes, NULL) == 0;
	if (clean) {
		free(mark);
		rc = hf_file_remove(env, path);
		if (rc == 0)
			rc = hf_dir_sync(env, directory);
		if (rc != 0)
			return hf_error_set(error, rc, "cannot remove %s: %s", path, strerror(-rc));
	} else if (controller->topic_count > 0) {
		log_warn("broker: %s was not closed in order; every record batch is verified", directory);
	}
	read_starts(topics);
	for (unsigned i = 0; i < controller->topic_count; i++) {
		rc = follow(topics, controller->topics[i], clean ? TOPICS_CLEAN : TOPICS_KILLED, now_ms, error);
		if (rc != 0)
			return rc;
	}
	topics->clean = true;
	return 0;
}

static void topic_free(struct topic *topic, bool files)
{
	for (int32_t i = 0; i < topic->opened; i++) {
		partition_end(&topic->partitions[i]);
		if (files)
			partition_log_remove(topic->partitions[i].log);
		else
			partition_log_close(topic->partitions[i].log);
	}
	free(topic->partitions);
	free(topic);
}

void topics_close(struct topics *topics)
{
	char path[CHECKPOINT_PATH_BYTES];
	struct hf_error error;

	if (topics->clean)
		topics_write_starts(topics);
	for (unsigned i = 0; i < topics->count; i++)
		topic_free(topics->at[i], false);
	free(topics->at);
	free(topics->start_offsets);
	if (topics->clean) {
		mark_path(topics, path);
		if (checkpoint_write(topics->env, path, "{\"version\":0}", 13, &error) != 0)
			log_warn("broker: %s; the next start verifies every record batch", error.text);
	}
	*topics = (struct topics){0};
}

void topics_delete(struct topics *topics, struct codec_string name)
{
	unsigned place;
	bool there;

	place = place_of(topics, name, &there);
	if (!there)
		return;
	topic_free(topics->at[place], true);
	topics->count--;
	memmove(topics->at + place, topics->at + place + 1, (topics->count - place) * sizeof(struct topic *));
}

void topics_retain(struct topics *topics, int64_t now_ms)
{
	bool moved = false;

	for (unsigned i = 0; i < topics->count; i++)
		for (int32_t k = 0; k < topics->at[i]->opened; k++) {
			struct partition *partition = &topics->at[i]->partitions[k];

			moved |= partition_log_retain(partition->log, now_ms);
			producer_state_expire(&partition->log->producers, now_ms - PRODUCER_STATE_EXPIRY_MS);
		}
	if (moved)
		topics_write_starts(topics);
}
