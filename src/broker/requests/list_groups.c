/* ListGroups. */
#include "broker/requests/handlers.h"

static bool is_wanted(const struct kafka_list_groups_request *body, const struct group *group)
{
	for (int32_t i = 0; i < body->states_filter.count; i++)
		if (codec_compare(group_state_name(group->state), body->states_filter.at[i]) == 0)
			return true;
	return body->states_filter.count <= 0;
}

void list_groups_handle(struct request *request)
{
	const struct kafka_list_groups_request *body = request->body;
	const struct groups *groups = &request->broker->groups;
	struct kafka_list_groups_response response;

	codec_default(kafka_list_groups_response_codec.root, &response);
	response.groups.at = codec_arena_take_array(&request->arena, groups->count, sizeof(*response.groups.at));
	for (unsigned i = 0; response.groups.at != NULL && i < groups->count; i++) {
		const struct group *group = groups->at[i]->group;

		if (!is_wanted(body, group))
			continue;
		response.groups.at[response.groups.count++] =
			(struct kafka_list_groups_response_listed_group){.group_id = request_text(group->id),
				.protocol_type = request_text(group->protocol_type == NULL ? "" : group->protocol_type),
				.group_state = request_text(group_state_name(group->state)),
				.group_type = request_text("classic")};
	}
	if (response.groups.at == NULL)
		response.error_code = KAFKA_COORDINATOR_NOT_AVAILABLE;
	else if (groups->failed_epoch >= 0)
		response.error_code = KAFKA_COORDINATOR_LOAD_IN_PROGRESS;
	request_answer(request, &response);
}
