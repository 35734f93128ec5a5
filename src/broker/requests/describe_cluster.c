/* DescribeCluster: the brokers there are. */
#include "broker/requests/handlers.h"

enum { ENDPOINTS_BROKERS = 1, MISMATCHED_ENDPOINT_TYPE = 114 };

void describe_cluster_handle(struct request *request)
{
	const struct kafka_describe_cluster_request *body = request->body;
	struct broker *broker = request->broker;
	const struct broker_endpoint *endpoint = broker_endpoint(broker, request->connection->listener);
	struct kafka_describe_cluster_response_describe_cluster_broker self = {.broker_id = broker->config.node_id,
		.host = request_text(endpoint->host),
		.port = endpoint->port,
		.rack = {NULL, -1}};
	struct kafka_describe_cluster_response response;

	codec_default(kafka_describe_cluster_response_codec.root, &response);
	response.cluster_id = request_text(broker->cluster_id);
	response.controller_id = broker->config.node_id;
	if (body->endpoint_type != ENDPOINTS_BROKERS) {
		response.error_code = MISMATCHED_ENDPOINT_TYPE;
		response.error_message = request_text("this is a broker; the controller has no endpoint of its own");
	} else {
		response.brokers.at = &self;
		response.brokers.count = 1;
	}
	request_answer(request, &response);
}
