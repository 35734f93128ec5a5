/* DescribeCluster. */
#include "broker/requests/handlers.h"
#include "broker/status.h"

enum { ENDPOINTS_BROKERS = 1, MISMATCHED_ENDPOINT_TYPE = 114 };

void describe_cluster_handle(struct request *request)
{
	const struct kafka_describe_cluster_request *body = request->body;
	struct broker *broker = request->broker;
	const struct controller *controller = &broker->controller;
	struct kafka_describe_cluster_response response;

	codec_default(kafka_describe_cluster_response_codec.root, &response);
	response.cluster_id = request_text(broker->cluster_id);
	response.controller_id = broker_controller(broker);
	response.brokers.at =
		codec_arena_take_array(&request->arena, controller->broker_count, sizeof(*response.brokers.at));
	if (body->endpoint_type != ENDPOINTS_BROKERS) {
		response.error_code = MISMATCHED_ENDPOINT_TYPE;
		response.error_message = request_text("this is a broker; the controller has no endpoint of its own");
	}
	for (unsigned i = 0; response.error_code == 0 && response.brokers.at != NULL && i < controller->broker_count;
		i++) {
		const struct controller_endpoint *endpoint =
			broker_endpoint_of(broker, controller->brokers[i].id, request->connection->listener);

		if (endpoint != NULL)
			response.brokers.at[response.brokers.count++] =
				(struct kafka_describe_cluster_response_describe_cluster_broker){
					.broker_id = controller->brokers[i].id,
					.host = request_text(endpoint->host),
					.port = endpoint->port,
					.rack = {NULL, -1}};
	}
	request_answer(request, &response);
}
