/* DescribeGroups: states and members. */
#include "broker/requests/handlers.h"

static bool fill_members(
	struct request *request, const struct group *group, struct kafka_describe_groups_response_described_group *to)
{
	to->members.at = codec_arena_take_array(&request->arena, group->member_count, sizeof(*to->members.at));
	if (to->members.at == NULL)
		return false;
	for (const struct list *at = group->members.next; at != &group->members; at = at->next) {
		const struct group_member *member = container_of(at, struct group_member, node);

		if (member->removed || member->named)
			continue;
		to->members.at[to->members.count++] = (struct kafka_describe_groups_response_described_group_member){
			.member_id = request_text(member->id),
			.group_instance_id = request_text(member->instance_id),
			.client_id = request_text(member->client_id),
			.client_host = request_text(member->client_host),
			.member_metadata = group_metadata(group, member),
			.member_assignment = {member->assignment, member->assignment_bytes}};
	}
	return true;
}

static void describe(
	struct request *request, struct codec_string id, struct kafka_describe_groups_response_described_group *to)
{
	const struct groups_entry *entry = groups_find(&request->broker->groups, id);
	const struct group *group = entry == NULL ? NULL : entry->group;

	*to = (struct kafka_describe_groups_response_described_group){.group_id = id,
		.error_message = {NULL, -1},
		.group_state = request_text(group == NULL ? "Dead" : group_state_name(group->state)),
		.protocol_type =
			request_text(group == NULL || group->protocol_type == NULL ? "" : group->protocol_type),
		.protocol_data = request_text(group == NULL || group->protocol == NULL ? "" : group->protocol),
		.authorized_operations = INT32_MIN};
	to->error_code = (int16_t)groups_check(&request->broker->groups);
	if (group != NULL && !fill_members(request, group, to))
		to->error_code = KAFKA_COORDINATOR_NOT_AVAILABLE;
}

void describe_groups_handle(struct request *request)
{
	const struct kafka_describe_groups_request *body = request->body;
	struct kafka_describe_groups_response response;

	codec_default(kafka_describe_groups_response_codec.root, &response);
	codec_arena_array(&request->arena, &response.groups, body->groups.count);
	for (int32_t i = 0; i < response.groups.count; i++)
		describe(request, body->groups.at[i], &response.groups.at[i]);
	request_answer(request, &response);
}
