/* SyncGroup: the leader brings the assignment, the others wait for theirs. */
#include "broker/requests/handlers.h"

void sync_group_handle(struct request *request)
{
	const struct kafka_sync_group_request *body = request->body;
	struct groups *groups = &request->broker->groups;
	struct groups_entry *entry = groups_find(groups, body->group_id);
	struct kafka_sync_group_response response;
	enum kafka_error error = groups_check(groups);
	struct group_member *member;

	if (error == KAFKA_NONE && entry == NULL) {
		error = KAFKA_UNKNOWN_MEMBER_ID;
	} else if (error == KAFKA_NONE) {
		group_supersede(entry->group, body->member_id);
		groups_deliver(groups, entry);
		error = group_sync(entry->group, body->member_id, body->group_instance_id, body->generation_id, body,
			hf_loop_now_ns(request->broker->loop), &member);
	}
	if (error == KAFKA_NONE) {
		groups_wait(groups, entry, member, request);
		return;
	}
	codec_default(kafka_sync_group_response_codec.root, &response);
	response.error_code = (int16_t)error;
	response.protocol_type = response.protocol_name = request_text(NULL);
	request_answer(request, &response);
}
