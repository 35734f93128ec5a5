/* Heartbeat: a member is alive, and learns whether it must join again. */
#include "broker/requests/handlers.h"

void heartbeat_handle(struct request *request)
{
	const struct kafka_heartbeat_request *body = request->body;
	struct groups_entry *entry = groups_find(&request->broker->groups, body->group_id);
	struct kafka_heartbeat_response response;
	enum kafka_error error = groups_check(&request->broker->groups);

	codec_default(kafka_heartbeat_response_codec.root, &response);
	if (error != KAFKA_NONE)
		response.error_code = (int16_t)error;
	else
		response.error_code =
			entry == NULL ? KAFKA_UNKNOWN_MEMBER_ID
				      : (int16_t)group_heartbeat(entry->group, body->member_id, body->group_instance_id,
						body->generation_id, hf_loop_now_ns(request->broker->loop));
	request_answer(request, &response);
}
