/* FindCoordinator: which broker coordinates a group. */
#include "broker/requests/handlers.h"

enum { KEY_GROUP = 0, KEY_TRANSACTION = 1, FIRST_WITH_LIST = 4 };

static const char *find_fault(int8_t type, int16_t *error_out)
{
	switch (type) {
	case KEY_GROUP:
		*error_out = KAFKA_NONE;
		return NULL;
	case KEY_TRANSACTION: /* fatal to clients at once, with these words */
		*error_out = KAFKA_TRANSACTIONAL_ID_AUTHORIZATION_FAILED;
		return "this broker has no transactions";
	default:
		*error_out = KAFKA_INVALID_REQUEST;
		return "only groups have a coordinator";
	}
}

struct coordinator {
	int16_t error;
	const char *message;
	int32_t node;
	const struct controller_endpoint *endpoint;
};

/* The leader of the topic of offsets, which comes to be at the first request. */
static void find_leader(struct request *request, struct coordinator *found)
{
	struct broker *broker = request->broker;
	const struct controller_topic *topic;

	if (controller_find(&broker->controller, request_text(GROUPS_TOPIC)) == NULL)
		broker_create_offsets(broker, NULL);
	topic = controller_find(&broker->controller, request_text(GROUPS_TOPIC));
	if (topic != NULL)
		found->endpoint = broker_endpoint_of(broker, topic->at[0].leader, request->connection->listener);
	if (found->endpoint == NULL)
		found->error = KAFKA_COORDINATOR_NOT_AVAILABLE;
	else
		found->node = topic->at[0].leader;
}

void find_coordinator_handle(struct request *request)
{
	const struct kafka_find_coordinator_request *body = request->body;
	struct kafka_find_coordinator_response response;
	int32_t count = request->version >= FIRST_WITH_LIST ? body->coordinator_keys.count : 0;
	struct coordinator found = {.node = -1};
	struct codec_string host;
	int32_t port;

	found.message = find_fault(body->key_type, &found.error);
	if (found.error == KAFKA_NONE)
		find_leader(request, &found);
	host = request_text(found.endpoint != NULL ? found.endpoint->host : "");
	port = found.endpoint != NULL ? found.endpoint->port : -1;
	codec_default(kafka_find_coordinator_response_codec.root, &response);
	response.error_code = found.error;
	response.error_message = request_text(found.message);
	response.node_id = found.node;
	response.host = host;
	response.port = port;
	codec_arena_array(&request->arena, &response.coordinators, count);
	for (int32_t i = 0; i < response.coordinators.count; i++)
		response.coordinators.at[i] =
			(struct kafka_find_coordinator_response_coordinator){.key = body->coordinator_keys.at[i],
				.node_id = found.node,
				.host = host,
				.port = port,
				.error_code = found.error,
				.error_message = request_text(found.message)};
	request_answer(request, &response);
}
