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

void find_coordinator_handle(struct request *request)
{
	const struct kafka_find_coordinator_request *body = request->body;
	struct broker *broker = request->broker;
	const struct broker_endpoint *endpoint = broker_endpoint(broker, request->connection->listener);
	struct kafka_find_coordinator_response response;
	int32_t count = request->version >= FIRST_WITH_LIST ? body->coordinator_keys.count : 0;
	int16_t error;
	const char *message = find_fault(body->key_type, &error);
	int32_t node = error == KAFKA_NONE ? broker->config.node_id : -1;
	struct codec_string host = request_text(error == KAFKA_NONE ? endpoint->host : "");
	int32_t port = error == KAFKA_NONE ? endpoint->port : -1;

	codec_default(kafka_find_coordinator_response_codec.root, &response);
	response.error_code = error;
	response.error_message = request_text(message);
	response.node_id = node;
	response.host = host;
	response.port = port;
	response.coordinators.at =
		codec_arena_take_array(&request->arena, (size_t)count, sizeof(*response.coordinators.at));
	response.coordinators.count = response.coordinators.at == NULL ? 0 : count;
	for (int32_t i = 0; i < response.coordinators.count; i++)
		response.coordinators.at[i] =
			(struct kafka_find_coordinator_response_coordinator){.key = body->coordinator_keys.at[i],
				.node_id = node,
				.host = host,
				.port = port,
				.error_code = error,
				.error_message = request_text(message)};
	request_answer(request, &response);
}
