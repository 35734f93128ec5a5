/* Metadata: brokers, topics, the leaders of partitions. Topics come to be on first use if that is configured. */
#include "broker/requests/decisions.h"

#include <string.h>

#include "broker/status.h"

#define CREATE_NS 2000000000ull /* a client that gets no answer by then asks again */

/* A set's ids, and those of them that are not alive. */
static bool fill_ids(struct request *request, const struct controller_set *set, int32_t **at_out, int32_t *count_out)
{
	int32_t *at = codec_arena_take_array(&request->arena, set->count, sizeof(*at));

	if (at == NULL)
		return false;
	for (unsigned i = 0; i < set->count; i++)
		at[i] = set->at[i];
	*at_out = at;
	*count_out = (int32_t)set->count;
	return true;
}

static void find_offline(const struct broker *broker, const struct controller_set *replicas, struct controller_set *out)
{
	*out = (struct controller_set){0};
	for (unsigned i = 0; i < replicas->count; i++) {
		const struct controller_broker *at = controller_broker(&broker->controller, replicas->at[i]);

		if (at == NULL || !at->alive)
			out->at[out->count++] = replicas->at[i];
	}
}

static bool fill_partitions(struct request *request, const struct controller_topic *from,
	struct kafka_metadata_response_metadata_response_topic *to)
{
	struct broker *broker = request->broker;

	to->partitions.at =
		codec_arena_take_array(&request->arena, (size_t)from->partitions, sizeof(*to->partitions.at));
	if (to->partitions.at == NULL)
		return false;
	to->partitions.count = from->partitions;
	for (int32_t i = 0; i < from->partitions; i++) {
		const struct controller_partition *known = &from->at[i];
		struct kafka_metadata_response_metadata_response_partition *at = &to->partitions.at[i];
		const struct partition *here = topics_partition(&broker->topics, request_text(from->name), i);
		bool failed = known->leader == broker->config.node_id && broker_is_member(broker) &&
			      (here == NULL || partition_log_is_damaged(here->log));
		struct controller_set offline;

		find_offline(broker, &known->replicas, &offline);
		*at = (struct kafka_metadata_response_metadata_response_partition){
			.error_code = failed              ? KAFKA_STORAGE_ERROR
				      : known->leader < 0 ? KAFKA_LEADER_NOT_AVAILABLE
							  : KAFKA_NONE,
			.partition_index = i,
			.leader_id = failed ? -1 : known->leader,
			.leader_epoch = failed ? -1 : known->leader_epoch};
		if (!fill_ids(request, &known->replicas, &at->replica_nodes.at, &at->replica_nodes.count) ||
			!fill_ids(request, &known->isr, &at->isr_nodes.at, &at->isr_nodes.count) ||
			!fill_ids(request, &offline, &at->offline_replicas.at, &at->offline_replicas.count))
			return false;
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

static bool answer_topic(
	struct request *request, struct codec_string name, struct kafka_metadata_response_metadata_response_topic *to)
{
	const struct controller_topic *topic = controller_find(&request->broker->controller, name);

	to->name = name;
	to->error_code = controller_topic_name_is_legal(name) ? KAFKA_UNKNOWN_TOPIC_OR_PARTITION : KAFKA_INVALID_TOPIC;
	return topic == NULL || fill_topic(request, topic, to);
}

/* No list is all topics; in version 0 so is an empty one. */
static bool is_all(const struct request *request)
{
	const struct kafka_metadata_request *body = request->body;

	return body->topics.count < 0 || (request->version == 0 && body->topics.count == 0);
}

static bool fill_topics(struct request *request, struct kafka_metadata_response *response)
{
	const struct kafka_metadata_request *body = request->body;
	const struct controller *controller = &request->broker->controller;
	bool all = is_all(request);
	int32_t count = all ? (int32_t)controller->topic_count : body->topics.count;

	response->topics.at = codec_arena_take_array(&request->arena, (size_t)count, sizeof(*response->topics.at));
	if (response->topics.at == NULL)
		return false;
	response->topics.count = count;
	for (int32_t i = 0; i < count; i++) {
		response->topics.at[i].topic_authorized_operations = INT32_MIN;
		if (!(all ? fill_topic(request, controller->topics[i], &response->topics.at[i])
			  : answer_topic(request, body->topics.at[i].name, &response->topics.at[i])))
			return false;
	}
	return true;
}

static bool fill_brokers(struct request *request, struct kafka_metadata_response *response)
{
	const struct broker *broker = request->broker;
	const struct controller *controller = &broker->controller;

	response->brokers.at =
		codec_arena_take_array(&request->arena, controller->broker_count, sizeof(*response->brokers.at));
	if (response->brokers.at == NULL)
		return false;
	for (unsigned i = 0; i < controller->broker_count; i++) {
		const struct controller_endpoint *endpoint =
			broker_endpoint_of(broker, controller->brokers[i].id, request->connection->listener);

		if (endpoint != NULL)
			response->brokers.at[response->brokers.count++] =
				(struct kafka_metadata_response_metadata_response_broker){
					.node_id = controller->brokers[i].id,
					.host = request_text(endpoint->host),
					.port = endpoint->port,
					.rack = {NULL, -1}};
	}
	return true;
}

static void finish(struct decisions *decisions)
{
	struct request *request = decisions->request;
	struct kafka_metadata_response *response = decisions->response;

	codec_default(kafka_metadata_response_codec.root, response);
	response->cluster_id = request_text(request->broker->cluster_id);
	response->controller_id = broker_controller(request->broker);
	if (!fill_brokers(request, response) || !fill_topics(request, response))
		request_give_up(request);
	else
		request_answer(request, response);
}

void metadata_handle(struct request *request)
{
	const struct kafka_metadata_request *body = request->body;
	struct broker *broker = request->broker;
	bool may_create = !is_all(request) && body->allow_auto_topic_creation && broker->config.auto_create_topics;
	int32_t count = may_create ? body->topics.count : 0;
	struct decisions *decisions =
		decisions_begin(request, sizeof(struct kafka_metadata_response), count, NULL, finish);

	if (decisions == NULL)
		return;
	for (int32_t i = 0; i < count; i++) {
		struct codec_string name = body->topics.at[i].name;

		if (controller_find(&broker->controller, name) != NULL || !controller_topic_name_is_legal(name))
			continue;
		if (codec_compare(GROUPS_TOPIC, name) == 0)
			broker_create_offsets(broker, decisions_expect(decisions, i));
		else
			broker_create_topic(
				broker, name, broker->config.num_partitions, decisions_expect(decisions, i));
	}
	decisions_end(decisions, CREATE_NS);
}
