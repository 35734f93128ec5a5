/* Brokers, topics and partitions as JSON. */
#include <errno.h>
#include <stdlib.h>

#include "cli/broker/admin.h"
#include "cli/broker/admin_json.h"

#define NEWEST 9 /* later versions name topics by ids */

struct reading {
	struct admin *admin;
	json_t *json;
};

static json_t *take_partition(const struct kafka_metadata_response_metadata_response_partition *from)
{
	return json_pack("{s:i, s:i, s:i, s:o, s:o, s:o}", "partition", from->partition_index, "leader",
		from->leader_id, "epoch", from->leader_epoch, "replicas",
		admin_json_ids(from->replica_nodes.at, from->replica_nodes.count), "isr",
		admin_json_ids(from->isr_nodes.at, from->isr_nodes.count), "offline",
		admin_json_ids(from->offline_replicas.at, from->offline_replicas.count));
}

static json_t *take_topic(const struct kafka_metadata_response_metadata_response_topic *from)
{
	json_t *partitions = json_array();

	for (int32_t i = 0; i < from->partitions.count; i++)
		json_array_append_new(partitions, take_partition(&from->partitions.at[i]));
	admin_json_sort(partitions, "", "partition");
	return json_pack("{s:o, s:i, s:b, s:o}", "topic", admin_json_text(from->name), "error", from->error_code,
		"internal", (int)from->is_internal, "partitions", partitions);
}

static int16_t metadata_known(void *context, const void *response, struct codec_string *words_out)
{
	const struct kafka_metadata_response *from = response;
	struct reading *reading = context;
	json_t *brokers = json_array(), *topics = json_array();

	(void)words_out;
	for (int32_t i = 0; i < from->brokers.count; i++) {
		const struct kafka_metadata_response_metadata_response_broker *broker = &from->brokers.at[i];

		(void)leaders_know(&reading->admin->leaders, broker->node_id, broker->host, broker->port);
		json_array_append_new(brokers, json_integer(broker->node_id));
	}
	for (int32_t i = 0; i < from->topics.count; i++)
		json_array_append_new(topics, take_topic(&from->topics.at[i]));
	admin_json_sort(topics, "topic", NULL);
	json_decref(reading->json);
	reading->json =
		json_pack("{s:i, s:o, s:o}", "controller", from->controller_id, "brokers", brokers, "topics", topics);
	return KAFKA_NONE;
}

int admin_metadata(struct admin *admin, const json_t *names, json_t **out_json, struct hf_error *error)
{
	size_t count = json_array_size(names);
	struct kafka_metadata_request body = {.topics = {NULL, names == NULL ? -1 : (int32_t)count}};
	struct reading reading = {.admin = admin};
	const struct admin_request request = {.key = KAFKA_METADATA,
		.newest = NEWEST,
		.body = &body,
		.answered = metadata_known,
		.context = &reading};
	int rc;

	body.topics.at = calloc(count + 1, sizeof(*body.topics.at));
	if (body.topics.at == NULL)
		return hf_error_set(error, -ENOMEM, "no memory for the names of topics");
	for (size_t i = 0; i < count; i++)
		body.topics.at[i].name = admin_string(json_string_value(json_array_get(names, i)));
	rc = admin_ask_any(admin, &request, error);
	free(body.topics.at);
	if (rc == 0 && reading.json == NULL)
		rc = hf_error_set(error, -ENOMEM, "no memory for the answer of the broker");
	*out_json = reading.json;
	return rc;
}
