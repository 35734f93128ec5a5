/* InitProducerId: an id for an idempotent producer, from blocks that the controller hands out. */
#include "broker/requests/decisions.h"

#define BLOCK    1000
#define LIMIT_NS 5000000000ull

static void take(struct broker *broker, struct kafka_init_producer_id_response *response)
{
	response->error_code = KAFKA_NONE;
	response->producer_id = broker->next_producer_id++;
	response->producer_epoch = 0;
}

static void decided(struct decisions *decisions, int32_t place, const struct controller_result *result)
{
	struct broker *broker = decisions->request->broker;
	struct kafka_init_producer_id_response *response = decisions->response;

	(void)place;
	response->error_code = (int16_t)result->error;
	if (result->error != KAFKA_NONE)
		return;
	broker->next_producer_id = result->first_producer_id;
	broker->producer_ids_end = result->first_producer_id + BLOCK;
	take(broker, response);
}

void producer_id_handle(struct request *request)
{
	const struct kafka_init_producer_id_request *body = request->body;
	struct broker *broker = request->broker;
	struct decisions *decisions =
		decisions_begin(request, sizeof(struct kafka_init_producer_id_response), 1, decided, decisions_answer);
	struct kafka_init_producer_id_response *response = decisions == NULL ? NULL : decisions->response;
	struct kafka_controller_command command;

	if (response == NULL)
		return;
	codec_default(kafka_init_producer_id_response_codec.root, response);
	response->producer_id = -1;
	response->producer_epoch = -1;
	response->error_code = KAFKA_COORDINATOR_NOT_AVAILABLE;
	codec_default(kafka_controller_command_codec.root, &command);
	command.kind = CONTROLLER_TAKE_PRODUCER_IDS;
	command.count = BLOCK;
	if (body->transactional_id.bytes >= 0)
		response->error_code = KAFKA_TRANSACTIONAL_ID_AUTHORIZATION_FAILED;
	else if (broker->next_producer_id < broker->producer_ids_end)
		take(broker, response);
	else
		decisions_propose(decisions, 0, &command);
	decisions_end(decisions, LIMIT_NS);
}
