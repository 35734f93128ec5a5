/* Metadata: brokers, topics, who leads which partition. Topics come to be on first use if that is configured. */
#include "broker/requests/handlers.h"

#include <string.h>

static bool fill_partitions(struct request *request, const struct controller_topic *from,
	struct kafka_metadata_response_metadata_response_topic *to)
{
	struct codec_arena *arena = &request->arena;
	int32_t *node = codec_arena_take(arena, sizeof(*node));

	to->partitions.count = from->partitions;
	to->partitions.at = codec_arena_take_array(arena, (size_t)from->partitions, sizeof(*to->partitions.at));
	if (node == NULL || to->partitions.at == NULL)
		return false;
	*node = request->broker->config.node_id;
	for (int32_t i = 0; i < from->partitions; i++) {
		struct codec_string name = request_text(from->name);
		const struct partition *partition = topics_partition(&request->broker->topics, name, i);
		struct kafka_metadata_response_metadata_response_partition *at = &to->partitions.at[i];

		*at = (struct kafka_metadata_response_metadata_response_partition){
			.error_code = partition == NULL ? KAFKA_STORAGE_ERROR : KAFKA_NONE,
			.partition_index = i,
			.leader_id = partition == NULL ? -1 : *node,
			.leader_epoch = partition == NULL ? -1 : partition->leader_epoch,
			.replica_nodes = {node, 1},
			.isr_nodes = {node, partition == NULL ? 0 : 1},
			.offline_replicas = {node, partition == NULL ? 1 : 0}};
	}
	return true;
}

static bool fill_topic(struct request *request, const struct controller_topic *from,
	struct kafka_metadata_response_metadata_response_topic *to)
{
	to->error_code = KAFKA_NONE;
	to->name = request_text(from->name);
	to->topic_id = from->id;
	to->is_internal = strcmp(from->name, GROUPS_TOPIC) == 0;
	return fill_partitions(request, from, to);
}

/* One topic that was asked for: made if it may be. */
static bool answer_topic(struct request *request, struct codec_string name, bool may_create,
	struct kafka_metadata_response_metadata_response_topic *to)
{
	const struct controller_topic *topic = controller_find(&request->broker->controller, name);
	struct controller_result result;

	to->name = name;
	if (topic == NULL && may_create && request->broker->config.auto_create_topics) {
		broker_create_topic(request->broker, name, request->broker->config.num_partitions, NULL, 0, &result);
		to->error_code = (int16_t)result.error;
		topic = result.topic;
	} else if (topic == NULL) {
		to->error_code =
			controller_topic_name_is_legal(name) ? KAFKA_UNKNOWN_TOPIC_OR_PARTITION : KAFKA_INVALID_TOPIC;
	}
	return topic == NULL || fill_topic(request, topic, to);
}

static bool fill_topics(
	struct request *request, const struct kafka_metadata_request *body, struct kafka_metadata_response *response)
{
	const struct controller *controller = &request->broker->controller;
	/* No list is all topics; in version 0 so is an empty one. */
	bool all = body->topics.count < 0 || (request->version == 0 && body->topics.count == 0);
	int32_t count = all ? (int32_t)controller->topic_count : body->topics.count;

	response->topics.at = codec_arena_take_array(&request->arena, (size_t)count, sizeof(*response->topics.at));
	if (response->topics.at == NULL)
		return false;
	response->topics.count = count;
	for (int32_t i = 0; i < count; i++) {
		response->topics.at[i].topic_authorized_operations = INT32_MIN;
		if (!(all ? fill_topic(request, controller->topics[i], &response->topics.at[i])
			  : answer_topic(request, body->topics.at[i].name, body->allow_auto_topic_creation,
				    &response->topics.at[i])))
			return false;
	}
	return true;
}

void metadata_handle(struct request *request)
{
	struct broker *broker = request->broker;
	const struct broker_endpoint *endpoint = broker_endpoint(broker, request->connection->listener);
	struct kafka_metadata_response_metadata_response_broker self = {.node_id = broker->config.node_id,
		.host = request_text(endpoint->host),
		.port = endpoint->port,
		.rack = {NULL, -1}};
	struct kafka_metadata_response response;

	codec_default(kafka_metadata_response_codec.root, &response);
	response.brokers.at = &self;
	response.brokers.count = 1;
	response.cluster_id = request_text(broker->cluster_id);
	response.controller_id = broker->config.node_id;
	if (!fill_topics(request, request->body, &response))
		response.topics.count = 0;
	request_answer(request, &response);
}
