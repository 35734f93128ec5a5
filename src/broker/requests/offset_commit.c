/* OffsetCommit: a group's offsets go into the log. */
#include "broker/groups/groups_log.h"
#include "broker/requests/handlers.h"

#define COMMIT_NS 5000000000ull /* as offsets.commit.timeout.ms of Kafka */

/* What is wrong with one partition of the request; the others are committed without it. */
static enum kafka_error check(struct request *request, struct codec_string topic,
	const struct kafka_offset_commit_request_offset_commit_request_partition *from)
{
	const struct controller_topic *known = controller_find(&request->broker->controller, topic);

	if (known == NULL || from->partition_index < 0 || from->partition_index >= known->partitions)
		return KAFKA_UNKNOWN_TOPIC_OR_PARTITION;
	if (from->committed_metadata.bytes > (int32_t)request->broker->config.offset_metadata_max_bytes)
		return KAFKA_OFFSET_METADATA_TOO_LARGE;
	return KAFKA_NONE; /* any offset: -1 and -2 are those of KafkaJS for a reset, and Kafka takes all (R-B41) */
}

/* The response in the shape of the request, and what is right of it as commits; -1: no memory. */
static int32_t collect(struct request *request, const struct kafka_offset_commit_request *body,
	struct kafka_offset_commit_response *response, struct groups_commit **commits_out)
{
	int32_t all = 0, count = 0;
	struct groups_commit *commits;

	for (int32_t i = 0; i < body->topics.count; i++)
		all += body->topics.at[i].partitions.count;
	commits = codec_arena_take_array(&request->arena, (size_t)all, sizeof(*commits));
	response->topics.at =
		codec_arena_take_array(&request->arena, (size_t)body->topics.count, sizeof(*response->topics.at));
	if (commits == NULL || response->topics.at == NULL)
		return -1;
	response->topics.count = body->topics.count;
	for (int32_t i = 0; i < body->topics.count; i++) {
		struct kafka_offset_commit_response_offset_commit_response_topic *topic = &response->topics.at[i];
		int32_t partitions = body->topics.at[i].partitions.count;

		topic->name = body->topics.at[i].name;
		topic->partitions.at =
			codec_arena_take_array(&request->arena, (size_t)partitions, sizeof(*topic->partitions.at));
		if (topic->partitions.at == NULL)
			return -1;
		topic->partitions.count = partitions;
		for (int32_t k = 0; k < partitions; k++) {
			const struct kafka_offset_commit_request_offset_commit_request_partition *from =
				&body->topics.at[i].partitions.at[k];

			topic->partitions.at[k].partition_index = from->partition_index;
			topic->partitions.at[k].error_code = (int16_t)check(request, topic->name, from);
			if (topic->partitions.at[k].error_code == KAFKA_NONE)
				commits[count++] = (struct groups_commit){.topic = topic->name,
					.metadata = from->committed_metadata,
					.partition = from->partition_index,
					.leader_epoch = from->committed_leader_epoch,
					.offset = from->committed_offset};
		}
	}
	*commits_out = commits;
	return count;
}

static void fail_all(struct kafka_offset_commit_response *response, enum kafka_error error)
{
	for (int32_t i = 0; i < response->topics.count; i++)
		for (int32_t k = 0; k < response->topics.at[i].partitions.count; k++)
			response->topics.at[i].partitions.at[k].error_code = (int16_t)error;
}

/* What is told when the commit is replicated, or that it is not in time: then it may be later. */
struct commit {
	struct request *request;
	struct kafka_offset_commit_response response;
	struct flight *flight; /* NULL: none is waited for */
};

static void answer(struct commit *commit, enum kafka_error error)
{
	if (error != KAFKA_NONE)
		fail_all(&commit->response, error);
	request_answer(commit->request, &commit->response);
}

static void told(void *context, enum kafka_error error)
{
	struct commit *commit = context;

	commit->flight = NULL;
	answer(commit, error);
}

static void leave(struct request *request)
{
	struct commit *commit = request->state;

	if (commit->flight != NULL)
		commit->flight->told = NULL;
	commit->flight = NULL;
}

static void late(struct request *request)
{
	leave(request);
	answer(request->state, KAFKA_COORDINATOR_NOT_AVAILABLE);
}

static void wait_until_replicated(struct commit *commit)
{
	struct request *request = commit->request;

	request->state = commit;
	commit->flight->told = told;
	commit->flight->context = commit;
	request_wait(request, COMMIT_NS, late, leave);
	flights_settle(&request->broker->groups);
}

void offset_commit_handle(struct request *request)
{
	const struct kafka_offset_commit_request *body = request->body;
	struct groups *groups = &request->broker->groups;
	struct commit *commit = codec_arena_take(&request->arena, sizeof(*commit));
	struct groups_commit *commits;
	struct groups_entry *entry = NULL;
	int32_t count;
	enum kafka_error error = groups_id_is_legal(body->group_id) ? groups_check(groups) : KAFKA_INVALID_GROUP_ID;

	if (commit == NULL) {
		request_give_up(request);
		return;
	}
	*commit = (struct commit){.request = request};
	codec_default(kafka_offset_commit_response_codec.root, &commit->response);
	count = collect(request, body, &commit->response, &commits);
	if (count < 0) {
		request_give_up(request);
		return;
	}
	if (error == KAFKA_NONE) {
		entry = groups_find_or_make(groups, body->group_id);
		error = entry == NULL
				? KAFKA_COORDINATOR_NOT_AVAILABLE
				: group_may_commit(entry->group, body->member_id, body->group_instance_id,
					  body->generation_id_or_member_epoch, hf_loop_now_ns(request->broker->loop));
	}
	if (error == KAFKA_NONE && count > 0)
		error = groups_log_commit(groups, body->group_id, commits, count, &commit->flight);
	if (error == KAFKA_NONE && count > 0)
		wait_until_replicated(commit);
	else
		answer(commit, error);
}
