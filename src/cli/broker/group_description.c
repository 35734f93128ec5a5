#include "cli/broker/group_description.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "broker/client/assignor.h"
#include "cli/broker/admin_json.h"

#define DESCRIBE_NEWEST 6
#define FETCH_NEWEST    7 /* later versions have several groups, or topics by ids */
#define OFFSETS_NEWEST  7
#define LATEST          (-1)
#define ENDS_NS         2000000000ull /* how long a partition may have no leader that answers */
#define KEY_BYTES       300u

/* What is known so far. */
struct description {
	struct admin *admin;
	json_t *group, *partitions, *index; /* index: the partitions by "TOPIC/NUMBER" */
};

/* ---- partitions ---- */

static const char *key_of(const char *topic, int32_t partition, char key[KEY_BYTES])
{
	snprintf(key, KEY_BYTES, "%.260s/%d", topic, partition);
	return key;
}

/* The entry of a partition, which is made if there is none and `adds`; borrowed; NULL: none, or no memory. */
static json_t *entry_of(struct description *description, struct codec_string topic, int32_t partition, bool adds)
{
	json_t *name = admin_json_text(topic), *entry = NULL;
	char key[KEY_BYTES];

	if (json_is_string(name))
		entry = json_object_get(description->index, key_of(json_string_value(name), partition, key));
	if (json_is_string(name) && entry == NULL && adds) {
		entry = json_pack("{s:O, s:i, s:n, s:n, s:n, s:n, s:n}", "topic", name, "partition", partition,
			"committed", "end", "lag", "member", "error");
		json_array_append(description->partitions, entry);
		json_object_set_new(description->index, key, entry);
	}
	json_decref(name);
	return entry;
}

/* ---- members ---- */

static json_t *read_assignment(
	struct description *description, const struct kafka_describe_groups_response_described_group_member *member)
{
	struct assignor_reader reader = {.from = member->member_assignment};
	json_t *assignment = json_array();
	struct codec_string topic;
	int32_t partition;

	while (assignor_next(&reader, &topic, &partition) == 1) {
		json_t *entry = entry_of(description, topic, partition, true);

		json_object_set_new(entry, "member", admin_json_text(member->member_id));
		json_array_append_new(
			assignment, json_pack("{s:o, s:i}", "topic", admin_json_text(topic), "partition", partition));
	}
	admin_json_sort(assignment, "topic", "partition");
	return assignment;
}

static int16_t described(void *context, const void *response, struct codec_string *words_out)
{
	const struct kafka_describe_groups_response *answer = response;
	const struct kafka_describe_groups_response_described_group *from = answer->groups.at;
	struct description *description = context;
	json_t *members = json_array();
	bool is_consumers;

	if (answer->groups.count != 1 || from->error_code != KAFKA_NONE) {
		json_decref(members);
		*words_out = answer->groups.count == 1 ? from->error_message : *words_out;
		return answer->groups.count == 1 ? from->error_code : KAFKA_UNKNOWN_SERVER_ERROR;
	}
	json_array_clear(description->partitions);
	json_object_clear(description->index);
	is_consumers = codec_compare("consumer", from->protocol_type) == 0;
	for (int32_t i = 0; i < from->members.count; i++) {
		const struct kafka_describe_groups_response_described_group_member *member = &from->members.at[i];

		json_array_append_new(members,
			json_pack("{s:o, s:o, s:o, s:o, s:o}", "member", admin_json_text(member->member_id), "instance",
				admin_json_text(member->group_instance_id), "client",
				admin_json_text(member->client_id), "host", admin_json_text(member->client_host),
				"assignment", is_consumers ? read_assignment(description, member) : json_array()));
	}
	admin_json_sort(members, "member", NULL);
	json_decref(description->group);
	description->group = json_pack("{s:s, s:o, s:o, s:o, s:o}", "group", description->admin->options->name, "state",
		admin_json_text(from->group_state), "protocol_type", admin_json_text(from->protocol_type), "assignor",
		admin_json_text(from->protocol_data), "members", members);
	/* For an unknown group a broker returns an error, or the state Dead. */
	return codec_compare("Dead", from->group_state) == 0 ? KAFKA_GROUP_ID_NOT_FOUND : KAFKA_NONE;
}

static int ask_members(struct description *description, struct hf_error *error)
{
	struct codec_string group = admin_string(description->admin->options->name);
	const struct kafka_describe_groups_request body = {.groups = {&group, 1}};
	const struct admin_request request = {.key = KAFKA_DESCRIBE_GROUPS,
		.newest = DESCRIBE_NEWEST,
		.body = &body,
		.answered = described,
		.context = description};

	return admin_ask_coordinator(description->admin, description->admin->options->name, &request, error);
}

/* ---- where the group is ---- */

static int16_t fetched(void *context, const void *response, struct codec_string *words_out)
{
	const struct kafka_offset_fetch_response *answer = response;
	struct description *description = context;
	int16_t code = answer->error_code;

	(void)words_out;
	for (int32_t i = 0; i < answer->topics.count; i++)
		for (int32_t k = 0; k < answer->topics.at[i].partitions.count; k++) {
			const struct kafka_offset_fetch_response_offset_fetch_response_partition *at =
				&answer->topics.at[i].partitions.at[k];

			code = code == KAFKA_NONE ? at->error_code : code;
			if (at->committed_offset >= 0)
				json_object_set_new(
					entry_of(description, answer->topics.at[i].name, at->partition_index, true),
					"committed", json_integer(at->committed_offset));
		}
	return code;
}

static int ask_committed(struct description *description, struct hf_error *error)
{
	const struct kafka_offset_fetch_request body = {
		.group_id = admin_string(description->admin->options->name), .topics = {NULL, -1}};
	const struct admin_request request = {.key = KAFKA_OFFSET_FETCH,
		.newest = FETCH_NEWEST,
		.body = &body,
		.answered = fetched,
		.context = description};

	return admin_ask_coordinator(description->admin, description->admin->options->name, &request, error);
}

/* ---- the ends of partitions ---- */

static void note(json_t *entry, int16_t code)
{
	const char *refusal = admin_refusal(code);

	json_object_set_new(
		entry, "error", json_string(refusal == NULL ? "its leader does not tell its end" : refusal));
}

static void note_end(json_t *entry, int64_t end)
{
	const json_t *committed = json_object_get(entry, "committed");
	json_int_t lag = end - json_integer_value(committed);

	json_object_set_new(entry, "end", json_integer(end));
	json_object_set_new(entry, "error", json_null());
	if (json_is_integer(committed))
		json_object_set_new(entry, "lag", json_integer(lag < 0 ? 0 : lag));
}

static int16_t ends_known(void *context, const void *response, struct codec_string *words_out)
{
	const struct kafka_list_offsets_response *answer = response;
	struct description *description = context;

	(void)words_out;
	for (int32_t i = 0; i < answer->topics.count; i++)
		for (int32_t k = 0; k < answer->topics.at[i].partitions.count; k++) {
			const struct kafka_list_offsets_response_list_offsets_partition_response *at =
				&answer->topics.at[i].partitions.at[k];
			json_t *entry = entry_of(description, answer->topics.at[i].name, at->partition_index, false);

			if (at->error_code == KAFKA_NONE)
				note_end(entry, at->offset);
			else
				note(entry, at->error_code);
		}
	return KAFKA_NONE;
}

/* Requests the missing ends of the partitions that a broker leads; leaders[i] leads the i-th partition. */
static int ask_ends(struct description *description, json_int_t id, const json_int_t *leaders, struct hf_error *error)
{
	size_t count = json_array_size(description->partitions), used = 0;
	struct kafka_list_offsets_request_list_offsets_partition *partitions = calloc(count, sizeof(*partitions));
	struct kafka_list_offsets_request body = {
		.replica_id = -1, .topics.at = calloc(count, sizeof(*body.topics.at))};
	const struct admin_request request = {.key = KAFKA_LIST_OFFSETS,
		.newest = OFFSETS_NEWEST,
		.body = &body,
		.answered = ends_known,
		.context = description};
	const char *last = NULL;
	int rc = partitions == NULL || body.topics.at == NULL
			 ? hf_error_set(error, -ENOMEM, "no memory for the names of partitions")
			 : 0;

	for (size_t i = 0; rc == 0 && i < count; i++) {
		const json_t *entry = json_array_get(description->partitions, i);
		const char *topic = json_string_value(json_object_get(entry, "topic"));

		if (leaders[i] != id || json_is_integer(json_object_get(entry, "end")))
			continue;
		if (last == NULL || strcmp(last, topic) != 0) {
			body.topics.at[body.topics.count].partitions.at = &partitions[used];
			body.topics.at[body.topics.count++].name = admin_string(topic);
			last = topic;
		}
		partitions[used++] = (struct kafka_list_offsets_request_list_offsets_partition){
			.partition_index = (int32_t)json_integer_value(json_object_get(entry, "partition")),
			.current_leader_epoch = -1,
			.timestamp = LATEST};
		body.topics.at[body.topics.count - 1].partitions.count++;
	}
	if (rc == 0 && used > 0)
		rc = admin_ask_id(description->admin, (int32_t)id, &request, error);
	free(partitions);
	free(body.topics.at);
	return rc;
}

/* The leader of each partition; -1: it has none, which its entry notes. */
static void find_leaders(struct description *description, const json_t *metadata, json_int_t *leaders)
{
	json_t *topics = json_object(), *topic, *entry;
	size_t i;

	json_array_foreach(json_object_get(metadata, "topics"), i, topic)
	{
		json_object_set(topics, json_string_value(json_object_get(topic, "topic")), topic);
	}
	json_array_foreach(description->partitions, i, entry)
	{
		const json_t *of = json_object_get(topics, json_string_value(json_object_get(entry, "topic")));
		const json_t *partition = json_array_get(json_object_get(of, "partitions"),
			(size_t)json_integer_value(json_object_get(entry, "partition")));
		int16_t code = (int16_t)json_integer_value(json_object_get(of, "error"));

		leaders[i] = partition == NULL ? -1 : json_integer_value(json_object_get(partition, "leader"));
		if (partition == NULL && (of == NULL || code == KAFKA_NONE))
			code = KAFKA_UNKNOWN_TOPIC_OR_PARTITION;
		if (leaders[i] < 0)
			note(entry, code == KAFKA_NONE ? KAFKA_LEADER_NOT_AVAILABLE : code);
	}
	json_decref(topics);
}

/* How many ends may be known later. */
static size_t count_missing(const struct description *description)
{
	size_t missing = 0, i;
	json_t *entry;

	json_array_foreach(description->partitions, i, entry)
	{
		const char *error = json_string_value(json_object_get(entry, "error"));

		missing += !json_is_integer(json_object_get(entry, "end")) &&
			   (error == NULL || strcmp(error, admin_refusal(KAFKA_UNKNOWN_TOPIC_OR_PARTITION)) != 0);
	}
	return missing;
}

/* One try: from all leaders. 0; -errno and a sentence when one of them, or all brokers, do not answer. */
static int read_ends(struct description *description, const json_t *names, json_int_t *leaders, struct hf_error *error)
{
	json_t *metadata = NULL, *id;
	struct hf_error last;
	size_t i;
	int rc = admin_metadata(description->admin, names, &metadata, error), failed = 0;

	if (rc == 0)
		find_leaders(description, metadata, leaders);
	json_array_foreach(json_object_get(metadata, "brokers"), i, id)
	{
		failed = ask_ends(description, json_integer_value(id), leaders, &last);
		if (failed != 0) {
			rc = failed;
			*error = last;
		}
	}
	json_decref(metadata);
	return rc;
}

static json_t *names_of(const struct description *description)
{
	json_t *names = json_array(), *entry;
	const char *last = NULL;
	size_t i;

	json_array_foreach(description->partitions, i, entry)
	{
		json_t *topic = json_object_get(entry, "topic");

		if (last == NULL || strcmp(last, json_string_value(topic)) != 0)
			json_array_append(names, topic);
		last = json_string_value(topic);
	}
	return names;
}

/* Ends that stay unknown are missing in the output. */
static int find_ends(struct description *description, struct hf_error *error)
{
	struct admin *admin = description->admin;
	uint64_t begun_ns = hf_env_now_ns(hf_loop_env(admin->leaders.loop));
	json_int_t *leaders = calloc(json_array_size(description->partitions) + 1, sizeof(*leaders));
	json_t *names = names_of(description);
	size_t missing;

	if (leaders == NULL || names == NULL) {
		free(leaders);
		json_decref(names);
		return hf_error_set(error, -ENOMEM, "no memory for the partitions of the group");
	}
	do {
		*error = (struct hf_error){0};
		(void)read_ends(description, names, leaders, error);
		missing = count_missing(description);
	} while (missing > 0 && admin_pause(admin, begun_ns, ENDS_NS));
	if (missing > 0)
		hf_error_set(&admin->incomplete, 0, "the ends of %zu partitions are unknown: %.200s", missing,
			error->text[0] == '\0' ? admin_refusal(KAFKA_LEADER_NOT_AVAILABLE) : error->text);
	free(leaders);
	json_decref(names);
	return 0;
}

int group_describe(struct admin *admin, json_t **out_json, struct hf_error *error)
{
	struct description description = {.admin = admin, .partitions = json_array(), .index = json_object()};
	int rc = ask_members(&description, error);

	if (rc == 0)
		rc = ask_committed(&description, error);
	admin_json_sort(description.partitions, "topic", "partition");
	if (rc == 0 && json_array_size(description.partitions) > 0)
		rc = find_ends(&description, error);
	json_object_set(description.group, "partitions", description.partitions);
	json_decref(description.partitions);
	json_decref(description.index);
	*out_json = description.group;
	return rc;
}

/* ---- in words ---- */

static void print_assignment(const json_t *assignment)
{
	json_t *one;
	size_t i;

	if (json_array_size(assignment) == 0)
		fputs(", reads nothing", stdout);
	json_array_foreach((json_t *)assignment, i, one)
	{
		fputs(i == 0 ? ", reads " : ", ", stdout);
		admin_json_print(one, "topic");
		printf("-%" JSON_INTEGER_FORMAT, json_integer_value(json_object_get(one, "partition")));
	}
}

static void print_member(const json_t *member)
{
	fputs("  member ", stdout);
	admin_json_print(member, "member");
	if (json_is_string(json_object_get(member, "instance"))) {
		fputs(", instance ", stdout);
		admin_json_print(member, "instance");
	}
	fputs(": ", stdout);
	if (json_string_length(json_object_get(member, "client")) > 0) {
		fputs("client ", stdout);
		admin_json_print(member, "client");
		putchar(' ');
	}
	fputs("at ", stdout);
	admin_json_print(member, "host");
	print_assignment(json_object_get(member, "assignment"));
	putchar('\n');
}

static void print_number(const json_t *entry, const char *key)
{
	const json_t *number = json_object_get(entry, key);

	if (json_is_integer(number))
		printf("%s %" JSON_INTEGER_FORMAT, key, json_integer_value(number));
	else
		printf("%s unknown", key);
}

static void print_partition(const json_t *entry)
{
	fputs("  ", stdout);
	admin_json_print(entry, "topic");
	printf("-%" JSON_INTEGER_FORMAT ": ", json_integer_value(json_object_get(entry, "partition")));
	if (json_is_integer(json_object_get(entry, "committed"))) {
		print_number(entry, "committed");
		fputs(", ", stdout);
		print_number(entry, "end");
		fputs(", ", stdout);
		print_number(entry, "lag");
	} else {
		fputs("nothing committed, ", stdout);
		print_number(entry, "end");
	}
	if (json_is_string(json_object_get(entry, "member"))) {
		fputs(", member ", stdout);
		admin_json_print(entry, "member");
	}
	if (json_is_string(json_object_get(entry, "error"))) {
		fputs(": ", stdout);
		admin_json_print(entry, "error");
	}
	putchar('\n');
}

void group_print(const json_t *group)
{
	const json_t *members = json_object_get(group, "members"), *assignor = json_object_get(group, "assignor");
	json_t *one;
	size_t i;

	fputs("group ", stdout);
	admin_json_print(group, "group");
	fputs(": ", stdout);
	admin_json_print(group, "state");
	fputs(", ", stdout);
	admin_json_print_count(json_array_size(members), "member");
	if (json_string_length(assignor) > 0) {
		fputs(", assignor ", stdout);
		admin_json_print(group, "assignor");
	}
	putchar('\n');
	json_array_foreach((json_t *)members, i, one)
	{
		print_member(one);
	}
	json_array_foreach(json_object_get(group, "partitions"), i, one)
	{
		print_partition(one);
	}
}
