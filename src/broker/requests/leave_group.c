/* LeaveGroup: members go; several at once from version 3 on. */
#include "broker/requests/handlers.h"

enum { FIRST_WITH_LIST = 3 };

static enum kafka_error leave(struct request *request, struct groups_entry *entry, struct codec_string member_id,
	struct codec_string instance_id)
{
	if (entry == NULL)
		return KAFKA_UNKNOWN_MEMBER_ID;
	return group_member_leave(entry->group, member_id, instance_id, hf_loop_now_ns(request->broker->loop));
}

void leave_group_handle(struct request *request)
{
	const struct kafka_leave_group_request *body = request->body;
	struct groups *groups = &request->broker->groups;
	struct groups_entry *entry = groups_find(groups, body->group_id);
	struct kafka_leave_group_response response;
	enum kafka_error error = groups_check(groups);
	int32_t count = request->version >= FIRST_WITH_LIST ? body->members.count : 0;

	codec_default(kafka_leave_group_response_codec.root, &response);
	codec_arena_array(&request->arena, &response.members, count);
	if (error != KAFKA_NONE) {
		response.error_code = (int16_t)error;
		response.members.count = 0;
	} else if (request->version < FIRST_WITH_LIST)
		response.error_code = (int16_t)leave(request, entry, body->member_id, request_text(NULL));
	for (int32_t i = 0; i < response.members.count; i++)
		response.members.at[i] =
			(struct kafka_leave_group_response_member_response){.member_id = body->members.at[i].member_id,
				.group_instance_id = body->members.at[i].group_instance_id,
				.error_code = (int16_t)leave(request, entry, body->members.at[i].member_id,
					body->members.at[i].group_instance_id)};
	request_answer(request, &response);
	if (entry != NULL)
		groups_deliver(groups, entry);
}
