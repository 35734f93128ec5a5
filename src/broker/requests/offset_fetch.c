/* OffsetFetch: the offsets that groups have committed; several groups at once from version 8 on. */
#include "broker/requests/handlers.h"

#include <string.h>

#include "broker/groups/groups_log.h"

#define LOOK_NS 1000000ull
#define WAIT_NS 5000000000ull /* as OffsetCommit */

enum { FIRST_WITH_LIST = 8 };

/* The two shapes of the messages have the same content; this is what both are made from. */
struct fetched {
	int32_t partition, leader_epoch;
	int64_t offset;
	struct codec_string metadata;
};

static struct fetched look_up(const struct groups_entry *entry, struct codec_string topic, int32_t partition)
{
	const struct offset_entry *at = entry == NULL ? NULL : offsets_find(&entry->offsets, topic, partition);

	if (at == NULL)
		return (struct fetched){partition, -1, -1, {"", 0}};
	return (struct fetched){partition, at->leader_epoch, at->offset, request_text(at->metadata)};
}

/* How many entries from `first` on have the same topic. */
static int32_t same_topic(const struct offsets *offsets, unsigned first)
{
	int32_t count = 0;

	while (first + (unsigned)count < offsets->count &&
		strcmp(offsets->at[first].topic, offsets->at[first + (unsigned)count].topic) == 0)
		count++;
	return count;
}

/* Without a list of topics: all that the group has. As a list in the shape of the request. */
static bool list_all(struct request *request, const struct groups_entry *entry,
	struct kafka_offset_fetch_request_offset_fetch_request_topics **topics_out, int32_t *count_out)
{
	const struct offsets *offsets = &entry->offsets;
	struct kafka_offset_fetch_request_offset_fetch_request_topics *topics =
		codec_arena_take_array(&request->arena, offsets->count, sizeof(*topics));
	int32_t count = 0, n;

	*topics_out = topics;
	*count_out = 0;
	if (topics == NULL)
		return false;
	for (unsigned i = 0; i < offsets->count; i += (unsigned)n) {
		n = same_topic(offsets, i);
		topics[count].name = request_text(offsets->at[i].topic);
		topics[count].partition_indexes.at =
			codec_arena_take_array(&request->arena, (size_t)n, sizeof(int32_t));
		topics[count].partition_indexes.count = n;
		if (topics[count].partition_indexes.at == NULL)
			return false;
		for (int32_t k = 0; k < n; k++)
			topics[count].partition_indexes.at[k] = offsets->at[i + (unsigned)k].partition;
		count++;
	}
	*count_out = count;
	return true;
}

/* `error`: what is told if this broker coordinates the group. */
static bool answer_group(struct request *request, enum kafka_error error,
	const struct kafka_offset_fetch_request_offset_fetch_request_group *from,
	struct kafka_offset_fetch_response_offset_fetch_response_group *to)
{
	const struct groups_entry *entry = groups_find(&request->broker->groups, from->group_id);
	struct kafka_offset_fetch_request_offset_fetch_request_topics *topics = from->topics.at;
	int32_t count = from->topics.count;

	to->group_id = from->group_id;
	to->error_code = (int16_t)groups_check(&request->broker->groups);
	if (to->error_code == KAFKA_NONE)
		to->error_code = (int16_t)error;
	if (count < 0 && entry == NULL)
		return true;
	if (count < 0 && !list_all(request, entry, &topics, &count))
		return false;
	to->topics.at = codec_arena_take_array(&request->arena, (size_t)count, sizeof(*to->topics.at));
	if (to->topics.at == NULL)
		return false;
	to->topics.count = count;
	for (int32_t i = 0; i < count; i++) {
		struct kafka_offset_fetch_response_offset_fetch_response_topics *topic = &to->topics.at[i];
		int32_t partitions = topics[i].partition_indexes.count;

		topic->name = topics[i].name;
		topic->partitions.at =
			codec_arena_take_array(&request->arena, (size_t)partitions, sizeof(*topic->partitions.at));
		if (topic->partitions.at == NULL)
			return false;
		topic->partitions.count = partitions;
		for (int32_t k = 0; k < partitions; k++) {
			struct fetched at = look_up(entry, topic->name, topics[i].partition_indexes.at[k]);

			topic->partitions.at[k] = (struct kafka_offset_fetch_response_offset_fetch_response_partitions){
				.partition_index = at.partition,
				.committed_offset = at.offset,
				.committed_leader_epoch = at.leader_epoch,
				.metadata = at.metadata,
				.error_code = to->error_code};
		}
	}
	return true;
}

/* The older shape of the request as the newer one: the lists have the same members. */
static bool widen(struct request *request, const struct kafka_offset_fetch_request *body,
	struct kafka_offset_fetch_request_offset_fetch_request_group *group)
{
	codec_default(kafka_offset_fetch_request_codec.root->fields[2].of, group);
	group->group_id = body->group_id;
	group->topics.count = body->topics.count;
	if (body->topics.count < 0)
		return true;
	group->topics.at =
		codec_arena_take_array(&request->arena, (size_t)body->topics.count, sizeof(*group->topics.at));
	for (int32_t i = 0; group->topics.at != NULL && i < body->topics.count; i++) {
		group->topics.at[i].name = body->topics.at[i].name;
		group->topics.at[i].partition_indexes.at = body->topics.at[i].partition_indexes.at;
		group->topics.at[i].partition_indexes.count = body->topics.at[i].partition_indexes.count;
	}
	return group->topics.at != NULL;
}

static bool narrow(struct request *request, const struct kafka_offset_fetch_response_offset_fetch_response_group *from,
	struct kafka_offset_fetch_response *to)
{
	to->error_code = from->error_code;
	to->topics.at = codec_arena_take_array(&request->arena, (size_t)from->topics.count, sizeof(*to->topics.at));
	if (to->topics.at == NULL)
		return false;
	to->topics.count = from->topics.count;
	for (int32_t i = 0; i < from->topics.count; i++) {
		int32_t count = from->topics.at[i].partitions.count;

		to->topics.at[i].name = from->topics.at[i].name;
		to->topics.at[i].partitions.at =
			codec_arena_take_array(&request->arena, (size_t)count, sizeof(*to->topics.at[i].partitions.at));
		if (to->topics.at[i].partitions.at == NULL)
			return false;
		to->topics.at[i].partitions.count = count;
		for (int32_t k = 0; k < count; k++)
			to->topics.at[i].partitions.at[k] =
				(struct kafka_offset_fetch_response_offset_fetch_response_partition){
					.partition_index = from->topics.at[i].partitions.at[k].partition_index,
					.committed_offset = from->topics.at[i].partitions.at[k].committed_offset,
					.committed_leader_epoch =
						from->topics.at[i].partitions.at[k].committed_leader_epoch,
					.metadata = from->topics.at[i].partitions.at[k].metadata,
					.error_code = from->topics.at[i].partitions.at[k].error_code};
	}
	return true;
}

static void answer(struct request *request, enum kafka_error error)
{
	const struct kafka_offset_fetch_request *body = request->body;
	struct kafka_offset_fetch_request_offset_fetch_request_group one;
	struct kafka_offset_fetch_response_offset_fetch_response_group answer = {0};
	struct kafka_offset_fetch_response response;
	bool done = true;

	codec_default(kafka_offset_fetch_response_codec.root, &response);
	if (request->version < FIRST_WITH_LIST) {
		done = widen(request, body, &one) && answer_group(request, error, &one, &answer) &&
		       narrow(request, &answer, &response);
	} else {
		response.groups.at = codec_arena_take_array(
			&request->arena, (size_t)body->groups.count, sizeof(*response.groups.at));
		done = response.groups.at != NULL;
		for (int32_t i = 0; done && i < body->groups.count; i++) {
			done = answer_group(request, error, &body->groups.at[i], &response.groups.at[i]);
			response.groups.count = i + 1;
		}
	}
	if (!done) {
		response.topics.count = response.groups.count = 0;
		response.error_code = KAFKA_COORDINATOR_NOT_AVAILABLE;
	}
	request_answer(request, &response);
}

/*
 * A commit of an earlier generation may be in the log and not replicated yet. Its owner may be told that it is done
 * after the next owner has begun before it, against B9. So the answer waits for all commits that came before the
 * request, for the time that OffsetCommit has; after it no answer has an older one.
 */
struct looking {
	int64_t newest;
	uint64_t until_ns;
};

static void look(struct request *request)
{
	const struct looking *looking = request->state;
	const struct groups *groups = &request->broker->groups;

	if (groups_check(groups) != KAFKA_NONE || !flights_wait_below(&groups->flights, looking->newest))
		answer(request, KAFKA_NONE);
	else if (hf_loop_now_ns(request->broker->loop) >= looking->until_ns)
		answer(request, KAFKA_COORDINATOR_NOT_AVAILABLE);
	else
		request_wait(request, LOOK_NS, look, NULL);
}

void offset_fetch_handle(struct request *request)
{
	struct looking *looking = codec_arena_take(&request->arena, sizeof(*looking));

	if (looking == NULL) {
		request_give_up(request);
		return;
	}
	*looking = (struct looking){.newest = flights_newest(&request->broker->groups.flights),
		.until_ns = hf_loop_now_ns(request->broker->loop) + WAIT_NS};
	request->state = looking;
	look(request);
}
