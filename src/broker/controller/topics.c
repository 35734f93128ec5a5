/* Topics as this broker serves them. */
#include "broker/controller/topics.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc.h"
#include "base/log.h"
#include "base/sorted.h"
#include "broker/log/checkpoint.h"

#define STARTS_MOST    (64u << 20)
#define METADATA_BYTES 96u
#define METADATA_MOST  4096u

static int compare(const void *element, const void *name)
{
	const struct topic *const *topic = element;

	return codec_compare((*topic)->name, *(const struct codec_string *)name);
}

static unsigned place_of(const struct topics *topics, struct codec_string name, bool *there_out)
{
	return sorted_place(topics->at, topics->count, sizeof(struct topic *), compare, &name, there_out);
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

	return topic == NULL || index < 0 || index >= topic->count ? NULL : topic->partitions[index];
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
	topics->unread = checkpoint_read(topics->env, path, STARTS_MOST, &topics->start_offsets, &bytes, &error) != 0 &&
			 error.text[0] != '\0';
	if (topics->unread)
		log_warn("broker: %s; deleted records may reappear", error.text);
}

static int64_t start_now(const struct partition *partition)
{
	return partition == NULL ? 0 : partition->log->start_offset;
}

static unsigned write_open(const struct topics *topics, FILE *out)
{
	unsigned count = 0;

	for (unsigned i = 0; i < topics->count; i++)
		for (int32_t k = 0; k < topics->at[i]->count; k++) {
			int64_t start = start_now(topics->at[i]->partitions[k]);

			if (start > 0)
				fprintf(out, "%s %d %" PRId64 "\n", topics->at[i]->name, k, start);
			count += start > 0;
		}
	return count;
}

/* Each log that this broker has is open. */
static bool all_are_open(const struct topics *topics)
{
	bool all = topics->known;

	for (unsigned i = 0; i < topics->count; i++)
		all &= !topics->at[i]->missing;
	return all;
}

/* Of logs that are not open, as they were read: lines behind the version and the count. */
static unsigned write_others(const struct topics *topics, FILE *out)
{
	const char *version = topics->start_offsets, *line = version == NULL ? NULL : strchr(version, '\n');
	char name[CONTROLLER_TOPIC_BYTES];
	unsigned count = 0;
	int64_t start;
	int32_t index;

	for (line = line == NULL ? NULL : strchr(line + 1, '\n'); line != NULL; line = strchr(line, '\n')) {
		if (sscanf(++line, "%249s %" SCNd32 " %" SCNd64, name, &index, &start) != 3 ||
			topics_partition(topics, (struct codec_string){name, (int32_t)strlen(name)}, index) != NULL)
			continue;
		fprintf(out, "%s %d %" PRId64 "\n", name, index, start);
		count++;
	}
	return count;
}

void topics_write_starts(struct topics *topics)
{
	char path[CHECKPOINT_PATH_BYTES], *lines = NULL, *text = NULL;
	struct hf_error error = {.text = "no memory for log-start-offset-checkpoint"};
	bool all = all_are_open(topics);
	size_t bytes = 0;
	unsigned count;
	int rc = -ENOMEM;
	FILE *out;

	if (topics->unread && !all)
		return; /* it has lines of logs that are not open */
	out = open_memstream(&lines, &bytes);
	snprintf(path, sizeof(path), "%s/log-start-offset-checkpoint", topics->directory);
	if (out != NULL) {
		count = write_open(topics, out);
		if (!all)
			count += write_others(topics, out);
		if (fclose(out) == 0 && asprintf(&text, "0\n%u\n%s", count, lines) >= 0) {
			rc = checkpoint_write(topics->env, path, text, strlen(text), &error);
			free(text);
		}
	}
	if (rc != 0)
		log_warn("broker: %s; deleted records reappear after a restart", error.text);
	free(lines);
}

/* ---- opening ---- */

/* Whose topic the directory is: Kafka's partition.metadata, and a line more, which Kafka does not read. */
static void format_metadata(struct codec_uuid topic, char text[METADATA_BYTES])
{
	char id[CONTROLLER_ID_TEXT];
	int n = snprintf(text, METADATA_BYTES, "version: 0\ntopic_id: %s\n", controller_id_text(topic, id));

	snprintf(text + n, METADATA_BYTES - (size_t)n, "crc32c: %08x\n", crc32c(0, text, (size_t)n));
}

/* By that file, and by the marks. */
enum owner {
	OWNER_UNKNOWN, /* there is no file, or it cannot be read */
	OWNER_TOPIC,
	OWNER_OTHER,
};

/* Without a CRC, as older releases and Kafka write it, another topic's is as good as unreadable. */
static enum owner owner_of(const struct topic *topic, const char *text, size_t bytes)
{
	char expected[METADATA_BYTES], *crc = strstr(text, "crc32c: ");
	size_t head = crc == NULL ? bytes : (size_t)(crc - text);
	unsigned found;

	if (strlen(text) != bytes)
		return OWNER_UNKNOWN;
	if (crc != NULL && (sscanf(crc, "crc32c: %8x", &found) != 1 || found != crc32c(0, text, head)))
		return OWNER_UNKNOWN;
	format_metadata(topic->id, expected);
	if (head == (size_t)(strstr(expected, "crc32c: ") - expected) && memcmp(text, expected, head) == 0)
		return OWNER_TOPIC;
	return crc == NULL ? OWNER_UNKNOWN : OWNER_OTHER;
}

static int read_owner(struct topics *topics, const struct topic *topic, const char *path, enum owner *owner_out,
	struct hf_error *error)
{
	char *text;
	size_t bytes;
	int rc = checkpoint_read(topics->env, path, METADATA_MOST, &text, &bytes, error);

	*owner_out = OWNER_UNKNOWN;
	if (rc != 0)
		return rc == -ENOENT ? 0 : rc;
	*owner_out = owner_of(topic, text, bytes);
	free(text);
	return 0;
}

static void mark_path(const struct topics *topics, char path[CHECKPOINT_PATH_BYTES])
{
	snprintf(path, CHECKPOINT_PATH_BYTES, "%s/.kafka_cleanshutdown", topics->directory);
}

/* Before a log changes. */
static int unmark(struct topics *topics, struct hf_error *error)
{
	char path[CHECKPOINT_PATH_BYTES];
	int rc;

	if (!topics->marked)
		return 0;
	mark_path(topics, path);
	rc = hf_file_remove(topics->env, path);
	if (rc == 0 || rc == -ENOENT) /* as after a sync that failed */
		rc = hf_dir_sync(topics->env, topics->directory);
	if (rc != 0)
		return hf_error_set(error, rc, "cannot remove %s: %s", path, strerror(-rc));
	topics->marked = false;
	return 0;
}

/* What the directory has is this topic's, or is out of the way on return: removed where it is known to be another one's
 * that was deleted, else kept under other names. */
static int claim(struct topics *topics, const struct topic *topic, int32_t index, const char *directory, bool starts,
	bool *old_out, struct hf_error *error)
{
	char path[CHECKPOINT_PATH_BYTES], text[METADATA_BYTES];
	bool marked = topics->marks != NULL && log_marks_have(topics->marks, topic->id.byte, index);
	enum owner owner;
	int rc;

	snprintf(path, sizeof(path), "%s/partition.metadata", directory);
	rc = read_owner(topics, topic, path, &owner, error);
	if (rc != 0)
		return rc; /* whose log it is is not known: it stays as it is */
	if (marked && owner == OWNER_OTHER)
		return hf_error_set(error, -EBADMSG,
			"%s names another topic, and %s had its log in this directory; no file is changed; restore the "
			"directory",
			path, topic->name);
	*old_out = owner == OWNER_TOPIC || (owner == OWNER_UNKNOWN && (starts || marked));
	if (owner == OWNER_OTHER)
		partition_log_clear(topics->env, directory);
	else if (!*old_out)
		rc = partition_log_clear_aside(topics->env, directory, error);
	if (rc != 0 || owner == OWNER_TOPIC)
		return rc;
	if (marked)
		log_warn("broker: %s is missing, or damaged; it is written again", path);
	/* Durable: without it the log is taken for that of another topic. */
	rc = hf_dir_make(topics->env, directory);
	if (rc != 0 && rc != -EEXIST)
		return hf_error_set(error, rc, "cannot make the directory %s: %s", directory, strerror(-rc));
	format_metadata(topic->id, text);
	return checkpoint_write(topics->env, path, text, strlen(text), error);
}

/* With its log, and with the pages of its first records where it is new. */
static int open_claimed(struct topics *topics, struct topic *topic, int32_t index, const struct topic_config *config,
	const char *directory, bool old, int64_t now_ms, struct partition_log **log_out, struct hf_error *error)
{
	struct log_mark *mark = NULL;
	int rc = topics->marks == NULL ? 0 : log_marks_take(topics->marks, topic->id.byte, index, &mark, error);

	if (rc != 0)
		return rc;
	rc = partition_log_open(topics->env, directory, &config->log, mark, !old || topics->was_clean,
		old ? start_of(topics, topic->name, index) : 0, now_ms, log_out, error);
	if (rc == 0 && partition_log_is_damaged(*log_out) &&
		topic_config_unclean_election(config, topics->unclean_election))
		rc = partition_log_cut_damage(*log_out, now_ms, error);
	if (rc == 0)
		rc = flusher_add(topics->flusher, *log_out, error);
	if (rc == 0 && !old)
		rc = partition_log_probe(*log_out, error);
	if (rc != 0)
		partition_log_close(*log_out);
	return rc;
}

static int open_log(struct topics *topics, struct topic *topic, int32_t index, const struct topic_config *config,
	bool starts, int64_t now_ms, struct partition_log **log_out, struct hf_error *error)
{
	char directory[CHECKPOINT_PATH_BYTES - 32];
	struct hf_error unused;
	bool old = true;
	int rc;

	*log_out = NULL;
	if ((size_t)snprintf(directory, sizeof(directory), "%s/%s-%d", topics->directory, topic->name, index) >=
		sizeof(directory))
		return hf_error_set(error, -ENAMETOOLONG, "%.100s: the path is too long; choose a shorter log.dirs",
			topics->directory);
	rc = unmark(topics, error);
	if (rc == 0)
		rc = claim(topics, topic, index, directory, starts, &old, error);
	if (rc == 0)
		rc = open_claimed(topics, topic, index, config, directory, old, now_ms, log_out, error);
	/* A log for which there is no room leaves nothing. */
	if (rc != 0 && !old && partition_log_clear_aside(topics->env, directory, &unused) == 0)
		(void)hf_dir_remove(topics->env, directory);
	return rc;
}

static int open_partition(struct topics *topics, struct topic *topic, int32_t index, const struct topic_config *config,
	bool starts, int64_t now_ms, struct hf_error *error)
{
	struct partition_log *log;
	int rc = open_log(topics, topic, index, config, starts, now_ms, &log, error);

	if (rc != 0)
		return rc;
	topic->partitions[index] = malloc(sizeof(struct partition));
	if (topic->partitions[index] == NULL) {
		partition_log_close(log);
		return hf_error_set(error, -ENOMEM, "no memory for a partition of %s", topic->name);
	}
	partition_init(topic->partitions[index], index, log);
	return 0;
}

static int grow_partitions(struct topic *topic, int32_t count)
{
	struct partition **partitions = realloc(topic->partitions, (size_t)count * sizeof(struct partition *));

	if (partitions == NULL)
		return -ENOMEM;
	for (int32_t i = topic->count; i < count; i++)
		partitions[i] = NULL;
	topic->partitions = partitions;
	topic->count = count;
	return 0;
}

static struct topic *add_topic(struct topics *topics, const struct controller_topic *from)
{
	struct codec_string name = {from->name, (int32_t)strlen(from->name)};
	struct topic *topic, **at;
	unsigned place;
	bool there;

	at = sorted_grow(topics->at, topics->count, &topics->capacity, sizeof(struct topic *));
	if (at == NULL)
		return NULL;
	topics->at = at;
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

static int follow(
	struct topics *topics, const struct controller_topic *from, bool starts, int64_t now_ms, struct hf_error *error)
{
	struct codec_string name = {from->name, (int32_t)strlen(from->name)};
	struct topic *topic = topics_find(topics, name);
	int first = 0;

	if (topic == NULL)
		topic = add_topic(topics, from);
	if (topic != NULL)
		topic->missing = true;
	if (topic == NULL || (from->partitions > topic->count && grow_partitions(topic, from->partitions) != 0))
		return hf_error_set(error, -ENOMEM, "no memory for the topic %s", from->name);
	for (int32_t i = 0; i < topic->count; i++) {
		struct hf_error why;
		int rc = 0;

		if (topic->partitions[i] == NULL && controller_set_has(&from->at[i].replicas, topics->self))
			rc = open_partition(topics, topic, i, &from->config, starts, now_ms, &why);
		if (rc != 0 && first == 0)
			first = hf_error_set(error, rc, "partition %d: %s", i, why.text);
		if (topic->partitions[i] != NULL) {
			topic->partitions[i]->log->config = from->config.log;
			flusher_look(topic->partitions[i]->log);
		}
	}
	topic->missing = first != 0;
	return first;
}

int topics_follow(struct topics *topics, const struct controller_topic *from, int64_t now_ms, struct hf_error *error)
{
	return follow(topics, from, false, now_ms, error);
}

void topics_drop_unknown(struct topics *topics, const struct controller *controller)
{
	for (unsigned i = topics->count; i > 0; i--) {
		struct topic *topic = topics->at[i - 1];
		struct codec_string name = {topic->name, (int32_t)strlen(topic->name)};
		const struct controller_topic *known = controller_find(controller, name);

		if (known == NULL || memcmp(&known->id, &topic->id, sizeof(topic->id)) != 0)
			topics_delete(topics, name);
	}
}

int topics_open(struct topics *topics, struct hf_env *env, const char *directory, int32_t self,
	const struct controller *controller, struct flusher *flusher, struct log_marks *marks, int64_t now_ms,
	struct hf_error *error)
{
	char path[CHECKPOINT_PATH_BYTES], *mark;
	size_t bytes;
	int rc;

	*topics = (struct topics){.env = env,
		.directory = directory,
		.self = self,
		.flusher = flusher,
		.marks = marks,
		.unclean_election = controller->unclean_election};
	mark_path(topics, path);
	rc = checkpoint_read(env, path, 4096, &mark, &bytes, NULL);
	free(mark);
	topics->was_clean = rc == 0;
	topics->marked = rc != -ENOENT;
	if (!topics->was_clean && controller->topic_count > 0)
		log_warn("broker: %s was not closed cleanly; what is newer than the marks of its logs is verified now, "
			 "the rest "
			 "later",
			directory);
	read_starts(topics);
	for (unsigned i = 0; i < controller->topic_count; i++) {
		rc = follow(topics, controller->topics[i], true, now_ms, error);
		if (rc == -ENOMEM)
			return rc;
		if (rc != 0)
			log_error("broker: topic %s is not served whole: %s", controller->topics[i]->name, error->text);
	}
	return 0;
}

static bool is_known(const uint8_t owner[LOG_OWNER_BYTES], const void *context)
{
	static const uint8_t journal[LOG_OWNER_BYTES];
	struct codec_uuid id;

	memcpy(id.byte, owner, sizeof(id.byte));
	return memcmp(owner, journal, sizeof(journal)) == 0 || controller_find_id(context, id) != NULL;
}

void topics_known(struct topics *topics, const struct controller *controller)
{
	topics->known = true;
	if (topics->marks != NULL)
		log_marks_keep(topics->marks, is_known, controller);
}

/* False: of a log it is not known what is on the disk. */
static bool topic_free(struct topic *topic, bool files)
{
	bool known = true;

	for (int32_t i = 0; i < topic->count; i++) {
		struct partition *partition = topic->partitions[i];

		if (partition == NULL)
			continue;
		if (partition->gone != NULL)
			partition->gone(partition);
		partition_end(partition);
		if (files)
			partition_log_remove(partition->log);
		else
			known &= partition_log_close(partition->log) == 0;
		free(partition);
	}
	free(topic->partitions);
	free(topic);
	return known;
}

void topics_close(struct topics *topics)
{
	char path[CHECKPOINT_PATH_BYTES];
	struct hf_error error;
	bool known = all_are_open(topics) || (!topics->known && topics->was_clean); /* others are as they were */

	if (!topics->marked)
		topics_write_starts(topics);
	for (unsigned i = 0; i < topics->count; i++)
		known &= topic_free(topics->at[i], false);
	known &= flusher_close(topics->flusher) == 0;
	free(topics->at);
	free(topics->start_offsets);
	if (known && !topics->marked) {
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
	(void)topic_free(topics->at[place], true);
	topics->count--;
	memmove(topics->at + place, topics->at + place + 1, (topics->count - place) * sizeof(struct topic *));
}

void topics_note_hws(struct topics *topics)
{
	for (unsigned i = 0; i < topics->count; i++)
		for (int32_t k = 0; k < topics->at[i]->count; k++) {
			const struct partition *partition = topics->at[i]->partitions[k];

			if (partition != NULL)
				log_mark_knows(partition->log->mark, partition->leader_epoch, partition->hw,
					partition->recovered_epoch);
		}
}

void topics_retain(struct topics *topics, int64_t now_ms)
{
	bool moved = false;

	for (unsigned i = 0; i < topics->count; i++)
		for (int32_t k = 0; k < topics->at[i]->count; k++) {
			struct partition *partition = topics->at[i]->partitions[k];

			if (partition == NULL)
				continue;
			moved |= partition_log_retain(partition->log, partition->hw, now_ms, partition->leads);
			producer_state_expire(&partition->log->producers, now_ms - PRODUCER_STATE_EXPIRY_MS);
		}
	if (moved)
		topics_write_starts(topics);
}
