/* Topic configuration: keys, ranges, text. */
#include "broker/controller/topic_config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"

enum key {
	SEGMENT_BYTES,
	INDEX_INTERVAL_BYTES,
	MAX_MESSAGE_BYTES,
	SEGMENT_MS,
	RETENTION_MS,
	RETENTION_BYTES,
	MIN_INSYNC_REPLICAS,
	CLEANUP_POLICY,
	MESSAGE_TIMESTAMP_TYPE,
	UNCLEAN_ELECTION,
	FLUSH_MESSAGES,
	FLUSH_MS,
	TIMESTAMP_AFTER_MS,
};
_Static_assert(TIMESTAMP_AFTER_MS + 1 == TOPIC_CONFIG_KEYS, "every key has a row");

static const struct {
	const char *name;
	int64_t least, most;
	int8_t type;
} keys[TOPIC_CONFIG_KEYS] = {
	[SEGMENT_BYTES] = {"segment.bytes", 4096, INT32_MAX, 3},
	[INDEX_INTERVAL_BYTES] = {"index.interval.bytes", 0, INT32_MAX, 3},
	[MAX_MESSAGE_BYTES] = {"max.message.bytes", 0, INT32_MAX, 3},
	[SEGMENT_MS] = {"segment.ms", 1, INT64_MAX, 5},
	[RETENTION_MS] = {"retention.ms", -1, INT64_MAX, 5},
	[RETENTION_BYTES] = {"retention.bytes", -1, INT64_MAX, 5},
	[MIN_INSYNC_REPLICAS] = {"min.insync.replicas", 1, INT32_MAX, 3},
	[CLEANUP_POLICY] = {"cleanup.policy", 0, 0, 7},
	[MESSAGE_TIMESTAMP_TYPE] = {"message.timestamp.type", 0, 1, 2},
	[UNCLEAN_ELECTION] = {"unclean.leader.election.enable", 0, 1, 1},
	[FLUSH_MESSAGES] = {"flush.messages", 1, INT64_MAX, 5},
	[FLUSH_MS] = {"flush.ms", 0, INT64_MAX, 5},
	[TIMESTAMP_AFTER_MS] = {"message.timestamp.after.max.ms", 0, INT64_MAX, 5},
};

void topic_config_default(struct topic_config *config)
{
	*config = (struct topic_config){.log = {.segment_bytes = 1u << 30,
						.index_interval_bytes = 4096,
						.max_message_bytes = 1048588,
						.segment_ms = 604800000,
						.retention_ms = 604800000,
						.retention_bytes = -1,
						.timestamp_after_ms = 3600000,
						.flush_messages = FLUSH_NEVER,
						.flush_ms = FLUSH_NEVER,
						.min_insync_replicas = 1}};
}

static int64_t get(const struct log_config *log, unsigned key)
{
	switch ((enum key)key) {
	case SEGMENT_BYTES:
		return log->segment_bytes;
	case INDEX_INTERVAL_BYTES:
		return log->index_interval_bytes;
	case MAX_MESSAGE_BYTES:
		return log->max_message_bytes;
	case SEGMENT_MS:
		return log->segment_ms;
	case RETENTION_MS:
		return log->retention_ms;
	case RETENTION_BYTES:
		return log->retention_bytes;
	case MIN_INSYNC_REPLICAS:
		return log->min_insync_replicas;
	case CLEANUP_POLICY:
		return 0;
	case MESSAGE_TIMESTAMP_TYPE:
		return log->log_append_time;
	case UNCLEAN_ELECTION:
		return log->unclean_election;
	case FLUSH_MESSAGES:
		return log->flush_messages;
	case FLUSH_MS:
		return log->flush_ms;
	case TIMESTAMP_AFTER_MS:
		return log->timestamp_after_ms;
	}
	ensure(false);
	return 0;
}

static void put(struct log_config *log, unsigned key, int64_t value)
{
	switch ((enum key)key) {
	case SEGMENT_BYTES:
		log->segment_bytes = (uint32_t)value;
		break;
	case INDEX_INTERVAL_BYTES:
		log->index_interval_bytes = (uint32_t)value;
		break;
	case MAX_MESSAGE_BYTES:
		log->max_message_bytes = (uint32_t)value;
		break;
	case SEGMENT_MS:
		log->segment_ms = value;
		break;
	case RETENTION_MS:
		log->retention_ms = value;
		break;
	case RETENTION_BYTES:
		log->retention_bytes = value;
		break;
	case MIN_INSYNC_REPLICAS:
		log->min_insync_replicas = value;
		break;
	case CLEANUP_POLICY:
		break;
	case MESSAGE_TIMESTAMP_TYPE:
		log->log_append_time = value != 0;
		break;
	case UNCLEAN_ELECTION:
		log->unclean_election = value != 0;
		break;
	case FLUSH_MESSAGES:
		log->flush_messages = value;
		break;
	case FLUSH_MS:
		log->flush_ms = value;
		break;
	case TIMESTAMP_AFTER_MS:
		log->timestamp_after_ms = value;
		break;
	}
}

static const char *parse(unsigned key, struct codec_string value, int64_t *out)
{
	char text[TOPIC_CONFIG_TEXT_BYTES], *end;

	if (value.bytes <= 0 || (size_t)value.bytes >= sizeof(text))
		return "the value is empty or too long";
	memcpy(text, value.at, (size_t)value.bytes);
	text[value.bytes] = '\0';
	if (key == CLEANUP_POLICY) {
		*out = 0;
		return strcmp(text, "delete") == 0 ? NULL : "cleanup.policy can only be delete: there is no compaction";
	}
	if (key == MESSAGE_TIMESTAMP_TYPE) {
		*out = strcmp(text, "LogAppendTime") == 0;
		return *out || strcmp(text, "CreateTime") == 0 ? NULL : "it is CreateTime or LogAppendTime";
	}
	if (key == UNCLEAN_ELECTION) {
		*out = strcmp(text, "true") == 0;
		return *out || strcmp(text, "false") == 0 ? NULL : "it is true or false";
	}
	errno = 0;
	*out = strtoll(text, &end, 10);
	if (end == text || *end != '\0' || errno != 0)
		return "the value is not a whole number";
	return *out >= keys[key].least && *out <= keys[key].most ? NULL : "the value is out of range";
}

const char *topic_config_set(struct topic_config *config, const struct topic_config *defaults, struct codec_string key,
	struct codec_string value)
{
	for (unsigned i = 0; i < TOPIC_CONFIG_KEYS; i++) {
		const char *wrong;
		int64_t number;

		if ((size_t)key.bytes != strlen(keys[i].name) || memcmp(key.at, keys[i].name, (size_t)key.bytes) != 0)
			continue;
		if (value.bytes < 0) {
			put(&config->log, i, get(&defaults->log, i));
			config->set &= ~(1u << i);
			return NULL;
		}
		wrong = parse(i, value, &number);
		if (wrong == NULL) {
			put(&config->log, i, number);
			config->set |= 1u << i;
		}
		return wrong;
	}
	return "this broker has no such topic configuration";
}

static bool is_set(const struct topic_config *config, enum key key)
{
	return (config->set & 1u << key) != 0;
}

bool topic_config_unclean_election(const struct topic_config *config, bool standard)
{
	return is_set(config, UNCLEAN_ELECTION) ? config->log.unclean_election : standard;
}

bool topic_config_flushes_each(const struct topic_config *config, bool standard)
{
	return is_set(config, FLUSH_MESSAGES) ? config->log.flush_messages == 1 : standard;
}

const char *topic_config_name(unsigned i)
{
	return keys[i].name;
}

int8_t topic_config_type(unsigned i)
{
	return keys[i].type;
}

const char *topic_config_text(const struct topic_config *config, unsigned i, char text[TOPIC_CONFIG_TEXT_BYTES])
{
	if (i == CLEANUP_POLICY)
		snprintf(text, TOPIC_CONFIG_TEXT_BYTES, "delete");
	else if (i == MESSAGE_TIMESTAMP_TYPE)
		snprintf(text, TOPIC_CONFIG_TEXT_BYTES, "%s",
			config->log.log_append_time ? "LogAppendTime" : "CreateTime");
	else if (i == UNCLEAN_ELECTION)
		snprintf(text, TOPIC_CONFIG_TEXT_BYTES, "%s", config->log.unclean_election ? "true" : "false");
	else
		snprintf(text, TOPIC_CONFIG_TEXT_BYTES, "%lld", (long long)get(&config->log, i));
	return text;
}
