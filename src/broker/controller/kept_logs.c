/* Logs of the life before. */
#include "broker/controller/kept_logs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "broker/controller/controller.h"
#include "broker/log/checkpoint.h"
#include "broker/log/partition_log.h"

#define METADATA_MOST 4096u
#define TOPIC_ID      "topic_id: "

struct directories {
	char (*names)[CONTROLLER_TOPIC_BYTES + 16];
	unsigned count, room;
	bool failed;
};

/* TOPIC-N; -1: it is no directory of a log. */
static int32_t index_of(const char *name)
{
	const char *dash = strrchr(name, '-');
	char *end;
	long index;

	if (dash == NULL || dash == name || dash[1] < '0' || dash[1] > '9')
		return -1;
	index = strtol(dash + 1, &end, 10);
	return *end != '\0' || index >= CONTROLLER_PARTITIONS_MAX ? -1 : (int32_t)index;
}

static void name_found(const char *name, void *context)
{
	struct directories *found = context;

	if (index_of(name) < 0 || strlen(name) >= sizeof(*found->names))
		return;
	if (found->count == found->room) {
		unsigned room = found->room == 0 ? 64 : found->room * 2;
		void *names = realloc(found->names, room * sizeof(*found->names));

		found->failed |= names == NULL;
		if (names == NULL)
			return;
		found->names = names;
		found->room = room;
	}
	snprintf(found->names[found->count++], sizeof(*found->names), "%s", name);
}

/* That partition.metadata names. */
static bool read_owner(struct hf_env *env, const char *directory, struct codec_uuid *owner_out)
{
	char path[CHECKPOINT_PATH_BYTES + 32], *text, *id;
	size_t bytes;
	bool known;

	snprintf(path, sizeof(path), "%s/partition.metadata", directory);
	if (checkpoint_read(env, path, METADATA_MOST, &text, &bytes, NULL) != 0)
		return false;
	id = strstr(text, TOPIC_ID);
	known = id != NULL && controller_id_parse(id + strlen(TOPIC_ID), owner_out);
	free(text);
	return known;
}

static bool is_proven(struct hf_env *env, const char *directory, int32_t index, const struct log_marks *marks)
{
	struct codec_uuid owner;

	return !partition_log_has_files(env, directory) ||
	       (read_owner(env, directory, &owner) && log_marks_have(marks, owner.byte, index));
}

bool kept_logs_are_proven(struct hf_env *env, const char *directory, const struct log_marks *marks)
{
	struct directories found = {0};
	bool proven = marks != NULL && log_marks_prove_all(marks);

	if (proven && (hf_dir_list(env, directory, name_found, &found) != 0 || found.failed))
		proven = false;
	for (unsigned i = 0; i < found.count && proven; i++) {
		char path[CHECKPOINT_PATH_BYTES];

		if ((size_t)snprintf(path, sizeof(path), "%s/%s", directory, found.names[i]) < sizeof(path) &&
			is_proven(env, path, index_of(found.names[i]), marks))
			continue;
		log_warn("broker: %s/%s has a log without a mark: the logs of this broker count as short; it leaves "
			 "the isrs and fetches from others, and where it is the last member the partition waits",
			directory, found.names[i]);
		proven = false;
	}
	free(found.names);
	return proven;
}
