/* `holdfast topics`: lists, describes, creates and deletes topics. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cli/broker/admin.h"
#include "cli/broker/admin_json.h"
#include "cli/cli.h"

#define CREATE_NEWEST 7
#define DELETE_NEWEST 5 /* later versions name topics by ids */

/* ---- list ---- */

/* A broker that names no controller reaches no majority, and has what it had when it last did. */
static void note_old(const struct admin *admin, const json_t *metadata)
{
	if (json_integer_value(json_object_get(metadata, "controller")) < 0)
		fprintf(stderr,
			"holdfast topics: NOT CURRENT: no majority of the controller answers the broker (of %s); this "
			"is "
			"the last state that it has. Start the other brokers\n",
			admin->options->brokers);
}

/* Of the first partition, as Kafka's own tools count. */
static size_t replicas_of(const json_t *topic)
{
	return json_array_size(json_object_get(json_array_get(json_object_get(topic, "partitions"), 0), "replicas"));
}

static int list(struct admin *admin, json_t **out_json, struct hf_error *error)
{
	json_t *metadata = NULL, *topics = json_array(), *topic;
	size_t i;
	int rc = admin_metadata(admin, NULL, &metadata, error);

	note_old(admin, metadata);
	json_array_foreach(json_object_get(metadata, "topics"), i, topic)
	{
		json_array_append_new(topics,
			json_pack("{s:O, s:I, s:I, s:O}", "topic", json_object_get(topic, "topic"), "partitions",
				(json_int_t)json_array_size(json_object_get(topic, "partitions")), "replicas",
				(json_int_t)replicas_of(topic), "internal", json_object_get(topic, "internal")));
	}
	json_decref(metadata);
	*out_json = json_pack("{s:o}", "topics", topics);
	return rc;
}

static void print_counts(size_t partitions, size_t replicas)
{
	fputs(": ", stdout);
	admin_json_print_count(partitions, "partition");
	fputs(", ", stdout);
	admin_json_print_count(replicas, "replica");
}

static void print_list(const json_t *json)
{
	json_t *topic;
	size_t i;

	json_array_foreach(json_object_get(json, "topics"), i, topic)
	{
		admin_json_print(topic, "topic");
		print_counts((size_t)json_integer_value(json_object_get(topic, "partitions")),
			(size_t)json_integer_value(json_object_get(topic, "replicas")));
		puts(json_is_true(json_object_get(topic, "internal")) ? ", internal" : "");
	}
}

/* ---- describe ---- */

static int describe(struct admin *admin, json_t **out_json, struct hf_error *error)
{
	json_t *names = json_pack("[s]", admin->options->name), *metadata = NULL, *topic;
	int16_t code;
	int rc;

	if (names == NULL)
		return hf_error_set(
			error, -EINVAL, "'%s': %s", admin->options->name, admin_refusal(KAFKA_INVALID_TOPIC));
	rc = admin_metadata(admin, names, &metadata, error);
	note_old(admin, metadata);
	topic = json_incref(json_array_get(json_object_get(metadata, "topics"), 0));
	code = topic == NULL ? KAFKA_UNKNOWN_TOPIC_OR_PARTITION
			     : (int16_t)json_integer_value(json_object_get(topic, "error"));
	json_decref(names);
	json_decref(metadata);
	if (rc == 0 && code != KAFKA_NONE && json_array_size(json_object_get(topic, "partitions")) == 0) {
		const char *refusal = admin_refusal(code);

		rc = refusal == NULL ? hf_error_set(error, -EREMOTEIO,
					       "'%.60s': the broker refused with error %d of Kafka's protocol",
					       admin->options->name, code)
				     : hf_error_set(error, -EREMOTEIO, "'%.60s': %s", admin->options->name, refusal);
	}
	json_object_del(topic, "error");
	*out_json = topic;
	return rc;
}

static void print_description(const json_t *topic)
{
	const json_t *partitions = json_object_get(topic, "partitions");
	json_t *partition;
	size_t i;

	fputs("topic ", stdout);
	admin_json_print(topic, "topic");
	print_counts(json_array_size(partitions), replicas_of(topic));
	puts(json_is_true(json_object_get(topic, "internal")) ? ", internal" : "");
	json_array_foreach((json_t *)partitions, i, partition)
	{
		json_int_t leader = json_integer_value(json_object_get(partition, "leader"));

		printf("  partition %" JSON_INTEGER_FORMAT ": ",
			json_integer_value(json_object_get(partition, "partition")));
		if (leader < 0)
			fputs("no leader", stdout);
		else
			printf("broker %" JSON_INTEGER_FORMAT " leads in epoch %" JSON_INTEGER_FORMAT, leader,
				json_integer_value(json_object_get(partition, "epoch")));
		fputs(", replicas ", stdout);
		admin_json_print_ids(partition, "replicas");
		fputs(", in sync ", stdout);
		admin_json_print_ids(partition, "isr");
		if (json_array_size(json_object_get(partition, "offline")) > 0) {
			fputs(", offline ", stdout);
			admin_json_print_ids(partition, "offline");
		}
		putchar('\n');
	}
}

/* ---- create and delete ---- */

struct changed {
	int32_t partitions, replicas; /* of a new topic; -1: the broker does not say */
};

static int16_t created(void *context, const void *response, struct codec_string *words_out)
{
	const struct kafka_create_topics_response *answer = response;
	struct changed *changed = context;

	if (answer->topics.count != 1)
		return KAFKA_UNKNOWN_SERVER_ERROR;
	*words_out = answer->topics.at[0].error_message;
	changed->partitions = answer->topics.at[0].num_partitions;
	changed->replicas = answer->topics.at[0].replication_factor;
	return answer->topics.at[0].error_code;
}

static json_t *known(int32_t count)
{
	return count < 0 ? json_null() : json_integer(count);
}

static int create(struct admin *admin, json_t **out_json, struct hf_error *error)
{
	const struct admin_options *options = admin->options;
	struct kafka_create_topics_request_creatable_topic_config configs[ADMIN_CONFIGS_MAX];
	struct kafka_create_topics_request_creatable_topic topic = {.name = admin_string(options->name),
		.num_partitions = options->partitions,
		.replication_factor = options->replicas,
		.configs = {configs, (int32_t)options->config_count}};
	const struct kafka_create_topics_request body = {.topics = {&topic, 1}, .timeout_ms = admin_change_ms(admin)};
	struct changed changed = {.partitions = -1, .replicas = -1};
	const struct admin_request request = {.key = KAFKA_CREATE_TOPICS,
		.newest = CREATE_NEWEST,
		.changes = true,
		.body = &body,
		.answered = created,
		.context = &changed};
	int rc;

	for (unsigned i = 0; i < options->config_count; i++) {
		const char *value = strchr(options->configs[i], '=');

		configs[i].name = (struct codec_string){options->configs[i], (int32_t)(value - options->configs[i])};
		configs[i].value = admin_string(value + 1);
	}
	rc = admin_ask_controller(admin, &request, error);
	*out_json = json_pack("{s:s, s:b, s:o, s:o}", "topic", options->name, "created", 1, "partitions",
		known(changed.partitions), "replicas", known(changed.replicas));
	return rc;
}

static void print_created(const json_t *json)
{
	json_int_t partitions = json_integer_value(json_object_get(json, "partitions"));

	fputs("created topic ", stdout);
	admin_json_print(json, "topic");
	if (partitions > 0)
		print_counts((size_t)partitions, (size_t)json_integer_value(json_object_get(json, "replicas")));
	putchar('\n');
}

static int16_t deleted(void *context, const void *response, struct codec_string *words_out)
{
	const struct kafka_delete_topics_response *answer = response;

	(void)context;
	if (answer->responses.count != 1)
		return KAFKA_UNKNOWN_SERVER_ERROR;
	*words_out = answer->responses.at[0].error_message;
	return answer->responses.at[0].error_code;
}

static int delete (struct admin *admin, json_t **out_json, struct hf_error *error)
{
	struct codec_string name = admin_string(admin->options->name);
	const struct kafka_delete_topics_request body = {
		.topic_names = {&name, 1}, .timeout_ms = admin_change_ms(admin)};
	const struct admin_request request = {.key = KAFKA_DELETE_TOPICS,
		.newest = DELETE_NEWEST,
		.changes = true,
		.body = &body,
		.answered = deleted};
	int rc = admin_ask_controller(admin, &request, error);

	*out_json = json_pack("{s:s, s:b}", "topic", admin->options->name, "deleted", 1);
	return rc;
}

static void print_deleted(const json_t *json)
{
	fputs("deleted topic ", stdout);
	admin_json_print(json, "topic");
	putchar('\n');
}

int topics_command(int argc, char **argv)
{
	static const struct admin_action actions[] = {{"list", false, false, list, print_list},
		{"describe", true, false, describe, print_description}, {"create", true, true, create, print_created},
		{"delete", true, false, delete, print_deleted}, {0}};

	return admin_run(argc, argv, actions);
}
