/* Groups of this broker: their waits, and how long these last. Their offsets in the log: groups_log.c. */
#include "broker/groups/groups.h"

#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "base/log.h"
#include "base/sorted.h"
#include "broker/broker.h"
#include "broker/groups/groups_log.h"

#define NS_PER_MS        1000000ull
#define REQUEST_LIMIT_NS 86400000000000ull /* the group's own time ends a wait long before */

static int compare(const void *element, const void *id)
{
	const struct groups_entry *const *entry = element;

	return codec_compare((*entry)->group->id, *(const struct codec_string *)id);
}

static unsigned place_of(const struct groups *groups, struct codec_string id, bool *there_out)
{
	return sorted_place(groups->at, groups->count, sizeof(struct groups_entry *), compare, &id, there_out);
}

bool groups_id_is_legal(struct codec_string id)
{
	return id.bytes > 0 && memchr(id.at, 0, (size_t)id.bytes) == NULL;
}

struct groups_entry *groups_find(const struct groups *groups, struct codec_string id)
{
	bool there = false;
	unsigned place = id.bytes < 0 ? 0 : place_of(groups, id, &there);

	return there ? groups->at[place] : NULL;
}

static bool grow(struct groups *groups)
{
	struct groups_entry **at =
		sorted_grow(groups->at, groups->count, &groups->capacity, sizeof(struct groups_entry *));

	if (at != NULL)
		groups->at = at;
	return at != NULL;
}

static void entry_free(struct groups_entry *entry)
{
	group_free(entry->group);
	offsets_free(&entry->offsets);
	free(entry);
}

/* Groups without members and offsets give their room back. */
static void drop_unused(struct groups *groups)
{
	unsigned kept = 0;

	for (unsigned i = 0; i < groups->count; i++) {
		struct groups_entry *entry = groups->at[i];

		if (entry->group->state == GROUP_EMPTY && list_empty(&entry->group->members) &&
			entry->offsets.count == 0)
			entry_free(entry);
		else
			groups->at[kept++] = entry;
	}
	groups->count = kept;
}

struct groups_entry *groups_find_or_make(struct groups *groups, struct codec_string id)
{
	struct groups_entry *entry = groups_find(groups, id);
	unsigned place;
	bool there;

	if (entry != NULL)
		return entry;
	if (groups->count == GROUPS_MAX)
		drop_unused(groups);
	if (groups->count == GROUPS_MAX || !grow(groups))
		return NULL;
	entry = calloc(1, sizeof(*entry));
	if (entry == NULL)
		return NULL;
	entry->group = group_new(id, (uint64_t)groups->broker->config.rebalance_delay_ms * NS_PER_MS, &groups->budget);
	if (entry->group == NULL) {
		free(entry);
		return NULL;
	}
	entry->used_ms = broker_now_ms(groups->broker);
	place = place_of(groups, id, &there);
	memmove(groups->at + place + 1, groups->at + place, (groups->count - place) * sizeof(struct groups_entry *));
	groups->at[place] = entry;
	groups->count++;
	return entry;
}

enum kafka_error groups_delete(struct groups *groups, struct groups_entry *entry)
{
	struct codec_string id = {entry->group->id, (int32_t)strlen(entry->group->id)};
	enum kafka_error error = groups_log_forget(groups, entry);
	unsigned place;
	bool there;

	if (error != KAFKA_NONE)
		return error;
	place = place_of(groups, id, &there);
	ensure(there);
	entry_free(entry);
	groups->count--;
	memmove(groups->at + place, groups->at + place + 1, (groups->count - place) * sizeof(struct groups_entry *));
	return KAFKA_NONE;
}

/* ---- members that wait ---- */

static void answer_join(const struct group *group, const struct group_member *member, struct request *request)
{
	struct kafka_join_group_response response;

	codec_default(kafka_join_group_response_codec.root, &response);
	response.error_code = (int16_t)member->error;
	response.member_id = request_text(member->id);
	response.protocol_type = request_text(NULL);
	response.protocol_name = request_text(member->error == KAFKA_NONE ? group->protocol : NULL);
	if (member->error != KAFKA_NONE) {
		request_answer(request, &response);
		return;
	}
	response.generation_id = group->generation;
	response.protocol_type = request_text(group->protocol_type);
	response.leader = request_text(group->leader_id);
	/* Only the leader is told of the members; in a generation that stands it has nothing to assign. */
	response.skip_assignment = group_is_leader(group, member) && group->state == GROUP_STABLE;
	if (group_is_leader(group, member)) {
		response.members.at =
			codec_arena_take_array(&request->arena, group->member_count, sizeof(*response.members.at));
		list_for_each (at, &group->members) {
			const struct group_member *other = container_of(at, struct group_member, node);

			if (other->removed || other->named || response.members.at == NULL)
				continue;
			response.members.at[response.members.count++] =
				(struct kafka_join_group_response_join_group_response_member){
					.member_id = request_text(other->id),
					.group_instance_id = request_text(other->instance_id),
					.metadata = group_metadata(group, other)};
		}
	}
	request_answer(request, &response);
}

static void answer_sync(const struct group *group, const struct group_member *member, struct request *request)
{
	struct kafka_sync_group_response response;

	codec_default(kafka_sync_group_response_codec.root, &response);
	response.error_code = (int16_t)member->error;
	response.protocol_type = request_text(group->protocol_type);
	response.protocol_name = request_text(group->protocol);
	if (member->error == KAFKA_NONE)
		response.assignment = (struct codec_bytes){member->assignment, member->assignment_bytes};
	request_answer(request, &response);
}

static void set_timer(struct groups *groups, uint64_t next_ns)
{
	if (next_ns != UINT64_MAX && (groups->timer.heap_slot == 0 || next_ns < groups->timer.due_ns))
		hf_loop_set_timer(groups->broker->loop, &groups->timer, next_ns);
}

void groups_deliver(struct groups *groups, struct groups_entry *entry)
{
	if (entry->has_members || entry->group->state != GROUP_EMPTY)
		entry->used_ms = broker_now_ms(groups->broker);
	entry->has_members = entry->group->state != GROUP_EMPTY;
	list_for_each_safe (at, &entry->group->members) {
		struct group_member *member = container_of(at, struct group_member, node);
		struct request *request = member->request;

		if (!member->due || request == NULL)
			continue;
		if (member->wait == GROUP_WAITS_FOR_JOIN)
			answer_join(entry->group, member, request);
		else
			answer_sync(entry->group, member, request);
		group_answered(member);
	}
	set_timer(groups, group_next_ns(entry->group));
}

static void request_over(struct request *request)
{
	group_abandon(request->state);
}

void groups_wait(
	struct groups *groups, struct groups_entry *entry, struct group_member *member, struct request *request)
{
	member->request = request;
	request->state = member;
	request_wait(request, REQUEST_LIMIT_NS, request_over, request_over);
	groups_deliver(groups, entry);
}

static void groups_due(struct hf_timer *timer, uint64_t now_ns)
{
	struct groups *groups = container_of(timer, struct groups, timer);
	uint64_t next_ns = UINT64_MAX;

	for (unsigned i = 0; i < groups->count; i++) {
		struct groups_entry *entry = groups->at[i];
		uint64_t due_ns = group_next_ns(entry->group);

		if (due_ns <= now_ns) {
			group_tick(entry->group, now_ns);
			groups_deliver(groups, entry);
			due_ns = group_next_ns(entry->group);
		}
		if (due_ns < next_ns)
			next_ns = due_ns;
	}
	set_timer(groups, next_ns);
}

void groups_expire(struct groups *groups)
{
	int64_t limit_ms = broker_now_ms(groups->broker) - groups->broker->config.offsets_retention_minutes * 60000;

	if (groups->failed_epoch >= 0) { /* there may be memory now */
		groups->failed_epoch = -1;
		groups_follow(groups);
	}
	if (groups->epoch < 0)
		return;
	for (unsigned i = 0; i < groups->count; i++)
		if (groups->at[i]->group->state == GROUP_EMPTY && groups->at[i]->used_ms <= limit_ms)
			groups_log_expire(groups, groups->at[i], limit_ms);
}

/* ---- coordinators ---- */

static struct partition *offsets_of(const struct groups *groups)
{
	return topics_partition(&groups->broker->topics, request_text(GROUPS_TOPIC), 0);
}

enum kafka_error groups_check(const struct groups *groups)
{
	/* One broker makes the topic with the first commit. */
	bool none = groups->broker->journal != NULL &&
		    controller_find(&groups->broker->controller, request_text(GROUPS_TOPIC)) == NULL;

	if (groups->failed_epoch >= 0 && broker_has_lease(groups->broker))
		return KAFKA_COORDINATOR_LOAD_IN_PROGRESS;
	/* Without a lease another broker may coordinate already: what is in memory here is not the newest then (B9). */
	return (groups->epoch >= 0 || none) && broker_has_lease(groups->broker) ? KAFKA_NONE : KAFKA_NOT_COORDINATOR;
}

static void drop_all(struct groups *groups)
{
	groups_log_stop(groups);
	flights_stop(groups);
	for (unsigned i = 0; i < groups->count; i++) {
		list_for_each (at, &groups->at[i]->group->members) {
			struct group_member *member = container_of(at, struct group_member, node);

			if (member->request == NULL)
				continue;
			member->due = true;
			member->error = KAFKA_NOT_COORDINATOR;
		}
		groups_deliver(groups, groups->at[i]);
		entry_free(groups->at[i]);
	}
	hf_loop_cancel_timer(groups->broker->loop, &groups->timer);
	groups->count = 0;
	groups->snapshot_bytes = 0;
	groups->epoch = groups->failed_epoch = -1;
}

void groups_follow(struct groups *groups)
{
	struct partition *partition = offsets_of(groups);
	int32_t epoch = partition != NULL && partition->leads ? partition->leader_epoch : -1;
	struct hf_error error;

	if (epoch == groups->epoch && groups->failed_epoch < 0)
		return;
	if (epoch >= 0 && epoch == groups->failed_epoch)
		return;
	if (groups->broker->journal != NULL && !groups->unread) { /* the topic was made by the first commit */
		groups->epoch = epoch;
		return;
	}
	drop_all(groups);
	if (epoch < 0)
		return;
	groups->unread = groups_log_load(groups, &error) != 0;
	if (!groups->unread) {
		groups->epoch = epoch;
		return;
	}
	drop_all(groups); /* half of the offsets would send consumers back to the beginning */
	groups->failed_epoch = epoch;
	log_error("broker: %s. This broker leads it and serves no group: clients get COORDINATOR_LOAD_IN_PROGRESS. It "
		  "reads the topic again at the next check of retention",
		error.text);
}

void groups_open(struct groups *groups, struct broker *broker)
{
	*groups = (struct groups){.broker = broker,
		.timer = {.fire = groups_due},
		.budget = {.most = GROUPS_MEMBERS_BYTES},
		.epoch = -1,
		.failed_epoch = -1,
		.unread = true};
	list_init(&groups->snapshot.wait.node);
	flights_init(&groups->flights);
	groups_follow(groups);
	groups->unread &= controller_find(&broker->controller, request_text(GROUPS_TOPIC)) != NULL;
}

void groups_close(struct groups *groups)
{
	if (groups->broker == NULL)
		return;
	hf_loop_cancel_timer(groups->broker->loop, &groups->timer);
	groups_log_stop(groups);
	flights_stop(groups);
	for (unsigned i = 0; i < groups->count; i++)
		entry_free(groups->at[i]);
	free(groups->at);
	*groups = (struct groups){0};
}
