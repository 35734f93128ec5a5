/* DeleteGroups: those without members, with their offsets. */
#include "broker/requests/handlers.h"

static enum kafka_error delete_group(struct groups *groups, struct codec_string id)
{
	struct groups_entry *entry = groups_find(groups, id);
	enum kafka_error error = groups_check(groups);

	if (error != KAFKA_NONE)
		return error;
	if (entry == NULL)
		return KAFKA_GROUP_ID_NOT_FOUND;
	if (entry->group->state != GROUP_EMPTY || !list_empty(&entry->group->members))
		return KAFKA_NON_EMPTY_GROUP;
	return groups_delete(groups, entry);
}

void delete_groups_handle(struct request *request)
{
	const struct kafka_delete_groups_request *body = request->body;
	struct kafka_delete_groups_response response;
	int32_t count = body->groups_names.count;

	codec_default(kafka_delete_groups_response_codec.root, &response);
	codec_arena_array(&request->arena, &response.results, count);
	for (int32_t i = 0; i < response.results.count; i++)
		response.results.at[i] = (struct kafka_delete_groups_response_deletable_group_result){
			.group_id = body->groups_names.at[i],
			.error_code = (int16_t)delete_group(&request->broker->groups, body->groups_names.at[i])};
	request_answer(request, &response);
}
