/* JoinGroup: a member comes, or joins the next generation. */
#include "broker/requests/handlers.h"

#include <stdio.h>

#define NS_PER_MS        1000000ull
#define FIRST_WITH_NAMES 4 /* clients that know MEMBER_ID_REQUIRED */
#define CLIENT_ID_MOST   64

static void refuse(struct request *request, enum kafka_error error, struct codec_string member_id)
{
	struct kafka_join_group_response response;

	codec_default(kafka_join_group_response_codec.root, &response);
	response.error_code = (int16_t)error;
	response.member_id = member_id;
	response.protocol_type = response.protocol_name = request_text(NULL);
	request_answer(request, &response);
}

/* "CLIENT-N-ENTROPY": unlike any other, also of an earlier run. */
static const char *make_member_id(struct request *request)
{
	struct codec_string client = request->client_id;
	uint64_t entropy[2];

	hf_env_entropy(request->broker->env, entropy, sizeof(entropy));
	return codec_arena_format(&request->arena, "%.*s-%llu-%016llx%016llx",
		client.bytes < CLIENT_ID_MOST ? client.bytes < 0 ? 0 : client.bytes : CLIENT_ID_MOST,
		client.bytes < 0 ? "" : client.at, (unsigned long long)request->broker->groups.ids++,
		(unsigned long long)entropy[0], (unsigned long long)entropy[1]);
}

static enum kafka_error check(struct request *request, const struct kafka_join_group_request *body)
{
	const struct broker_config *config = &request->broker->config;
	uint64_t session_ns = body->session_timeout_ms < 0 ? 0 : (uint32_t)body->session_timeout_ms * NS_PER_MS;

	if (!groups_id_is_legal(body->group_id))
		return KAFKA_INVALID_GROUP_ID;
	if (groups_check(&request->broker->groups) != KAFKA_NONE)
		return groups_check(&request->broker->groups);
	if (session_ns < config->session_min_ns || session_ns > config->session_max_ns)
		return KAFKA_INVALID_SESSION_TIMEOUT;
	return KAFKA_NONE;
}

void join_group_handle(struct request *request)
{
	const struct kafka_join_group_request *body = request->body;
	struct groups *groups = &request->broker->groups;
	uint64_t now_ns = hf_loop_now_ns(request->broker->loop);
	int32_t rebalance_ms = body->rebalance_timeout_ms < 0 ? body->session_timeout_ms : body->rebalance_timeout_ms;
	char host[HF_ADDR_TEXT];
	struct group_join join = {.member_id = body->member_id,
		.instance_id = body->group_instance_id,
		.client_id = request->client_id,
		.client_host =
			codec_arena_format(&request->arena, "/%s", hf_addr_format(&request->connection->remote, host)),
		.protocol_type = body->protocol_type,
		.protocols = body->protocols.at,
		.protocol_count = body->protocols.count,
		.session_ns = (uint32_t)body->session_timeout_ms * NS_PER_MS,
		.rebalance_ns = (uint32_t)rebalance_ms * NS_PER_MS,
		.most_members = request->broker->config.group_max_size,
		.must_name = request->version >= FIRST_WITH_NAMES,
		.fresh = make_member_id(request)};
	enum kafka_error error = check(request, body);
	struct groups_entry *entry = error == KAFKA_NONE ? groups_find_or_make(groups, body->group_id) : NULL;
	struct group_member *member;

	if (error == KAFKA_NONE && (entry == NULL || join.fresh == NULL || join.client_host == NULL))
		error = KAFKA_COORDINATOR_NOT_AVAILABLE;
	if (error != KAFKA_NONE) {
		refuse(request, error, body->member_id);
		return;
	}
	group_supersede(entry->group, join.member_id);
	groups_deliver(groups, entry);
	error = group_join(entry->group, &join, now_ns, &member);
	if (error == KAFKA_NONE) {
		groups_wait(groups, entry, member, request);
		return;
	}
	refuse(request, error, error == KAFKA_MEMBER_ID_REQUIRED ? request_text(join.fresh) : body->member_id);
	groups_deliver(groups, entry);
}
