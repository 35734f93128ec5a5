/* InitProducerId: an id for an idempotent producer. */
#include "broker/requests/handlers.h"

void producer_id_handle(struct request *request)
{
	const struct kafka_init_producer_id_request *body = request->body;
	struct kafka_init_producer_id_response response;
	enum kafka_error error = KAFKA_NONE;

	codec_default(kafka_init_producer_id_response_codec.root, &response);
	response.producer_id = -1;
	response.producer_epoch = -1;
	if (body->transactional_id.bytes >= 0)
		error = KAFKA_TRANSACTIONAL_ID_AUTHORIZATION_FAILED;
	else
		response.producer_id = broker_take_producer_id(request->broker, &error);
	if (error == KAFKA_NONE)
		response.producer_epoch = 0;
	response.error_code = (int16_t)error;
	request_answer(request, &response);
}
