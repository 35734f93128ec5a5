/* A consumer group: members, generations, assignments. */
#include "broker/groups/group.h"

#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "base/states.h"

#define ABSENT_NS 100000000ull /* to the next look for a member that has joined, besides the rebalance time */

static void group_move(struct group *group, enum group_state to)
{
	static const struct state states[GROUP_STATES] = {
		[GROUP_EMPTY] = {"empty", BIT(GROUP_PREPARING)},
		[GROUP_PREPARING] = {"preparing", BIT(GROUP_COMPLETING) | BIT(GROUP_EMPTY)},
		[GROUP_COMPLETING] = {"completing", BIT(GROUP_STABLE) | BIT(GROUP_PREPARING)},
		[GROUP_STABLE] = {"stable", BIT(GROUP_PREPARING)},
	};

	states_move("group", states, &group->state, to, "%s", group->id);
}

const char *group_state_name(enum group_state state)
{
	static const char *const names[GROUP_STATES] = {"Empty", "PreparingRebalance", "CompletingRebalance", "Stable"};

	return names[state];
}

static struct group_member *member_of(struct list *node)
{
	return container_of(node, struct group_member, node);
}

static bool same(const char *text, struct codec_string other)
{
	return text == NULL ? other.bytes < 0 : other.bytes >= 0 && codec_compare(text, other) == 0;
}

static char *copy_text(struct codec_string text)
{
	return text.bytes < 0 ? NULL : strndup(text.bytes == 0 ? "" : text.at, (size_t)text.bytes);
}

/* ---- the budget ---- */

/* What costs `from` bytes is to cost `to`; false: there is no room. */
static bool recharge(struct group_budget *budget, size_t from, size_t to)
{
	ensure(budget->used >= from);
	if (to > from && to - from > budget->most - budget->used)
		return false;
	budget->used = budget->used - from + to;
	return true;
}

static size_t text_bytes(struct codec_string text)
{
	return text.bytes < 0 ? 0 : (size_t)text.bytes;
}

static size_t protocol_bytes(const struct group_join *join)
{
	size_t bytes = 0;

	for (int32_t i = 0; i < join->protocol_count; i++)
		bytes += text_bytes(join->protocols[i].name) + (size_t)join->protocols[i].metadata.bytes;
	return bytes;
}

/* ---- members ---- */

static void clear_assignment(struct group_member *member)
{
	(void)recharge(member->budget, (size_t)member->assignment_bytes, 0);
	free(member->assignment);
	member->assignment = NULL;
	member->assignment_bytes = 0;
}

static void clear_protocols(struct group_member *member)
{
	for (unsigned i = 0; i < member->protocol_count; i++) {
		free(member->protocols[i].name);
		free(member->protocols[i].metadata);
	}
	member->protocol_count = 0;
}

static void member_free(struct group_member *member)
{
	list_remove(&member->node);
	clear_protocols(member);
	clear_assignment(member);
	(void)recharge(member->budget, member->own_bytes + member->protocol_bytes, 0);
	free(member->id);
	free(member->instance_id);
	free(member->client_id);
	free(member->client_host);
	free(member);
}

static bool set_protocols(struct group_member *member, const struct group_join *join)
{
	size_t bytes = protocol_bytes(join);

	if (!recharge(member->budget, member->protocol_bytes, bytes))
		return false;
	member->protocol_bytes = bytes;
	clear_protocols(member);
	for (int32_t i = 0; i < join->protocol_count; i++) {
		struct group_protocol *to = &member->protocols[i];
		struct codec_bytes metadata = join->protocols[i].metadata;

		to->name = copy_text(join->protocols[i].name);
		to->metadata = malloc((size_t)metadata.bytes + 1);
		to->metadata_bytes = metadata.bytes;
		member->protocol_count++;
		if (to->name == NULL || to->metadata == NULL)
			return false;
		memcpy(to->metadata, metadata.at, (size_t)metadata.bytes);
	}
	return true;
}

static bool same_protocols(const struct group_member *member, const struct group_join *join)
{
	if (member->protocol_count != (unsigned)join->protocol_count)
		return false;
	for (unsigned i = 0; i < member->protocol_count; i++) {
		const struct group_protocol *a = &member->protocols[i];
		struct codec_bytes metadata = join->protocols[i].metadata;

		if (!same(a->name, join->protocols[i].name) || a->metadata_bytes != metadata.bytes ||
			memcmp(a->metadata, metadata.at, (size_t)metadata.bytes) != 0)
			return false;
	}
	return true;
}

static bool has_protocol(const struct group_member *member, const char *name)
{
	for (unsigned i = 0; i < member->protocol_count; i++)
		if (strcmp(member->protocols[i].name, name) == 0)
			return true;
	return false;
}

static struct group_member *find_member(const struct group *group, struct codec_string id)
{
	for (struct list *at = group->members.next; at != &group->members; at = at->next)
		if (!member_of(at)->removed && same(member_of(at)->id, id))
			return member_of(at);
	return NULL;
}

static struct group_member *find_instance(const struct group *group, struct codec_string instance_id)
{
	if (instance_id.bytes < 0)
		return NULL;
	for (struct list *at = group->members.next; at != &group->members; at = at->next)
		if (!member_of(at)->removed && same(member_of(at)->instance_id, instance_id))
			return member_of(at);
	return NULL;
}

static void make_due(struct group_member *member, enum kafka_error error)
{
	if (member->wait == GROUP_WAITS_NOT)
		return;
	member->due = true;
	member->error = error;
}

void group_answered(struct group_member *member)
{
	ensure(member->due);
	member->due = false;
	member->wait = GROUP_WAITS_NOT;
	member->request = NULL;
	if (member->removed)
		member_free(member);
}

void group_abandon(struct group_member *member)
{
	member->request = NULL;
	member->wait = GROUP_WAITS_NOT;
	member->due = false;
	if (member->removed)
		member_free(member);
}

/* Its wait, if it has one, ends with this error. */
static void remove_member(struct group *group, struct group_member *member, enum kafka_error error)
{
	group->member_count -= !member->named;
	group->named_count -= member->named;
	if (group->leader_id != NULL && strcmp(group->leader_id, member->id) == 0) {
		free(group->leader_id);
		group->leader_id = NULL;
	}
	member->removed = true;
	make_due(member, error);
	if (!member->due)
		member_free(member);
}

static struct group_member *add_member(struct group *group, const struct group_join *join)
{
	size_t bytes = sizeof(struct group_member) + strlen(join->fresh) + text_bytes(join->instance_id) +
		       text_bytes(join->client_id) + strlen(join->client_host);
	struct group_member *member;

	if (!recharge(group->budget, 0, bytes))
		return NULL;
	member = calloc(1, sizeof(*member));
	if (member == NULL) {
		(void)recharge(group->budget, bytes, 0);
		return NULL;
	}
	member->budget = group->budget;
	member->own_bytes = bytes;
	list_init(&member->node);
	member->id = strdup(join->fresh);
	member->instance_id = copy_text(join->instance_id);
	member->client_id = copy_text(join->client_id.bytes < 0 ? (struct codec_string){"", 0} : join->client_id);
	member->client_host = strdup(join->client_host);
	if (member->id == NULL || (member->instance_id == NULL && join->instance_id.bytes >= 0) ||
		member->client_id == NULL || member->client_host == NULL) {
		member_free(member);
		return NULL;
	}
	list_push_back(&group->members, &member->node);
	return member;
}

/* ---- generations ---- */

static uint64_t longest_rebalance(const struct group *group)
{
	uint64_t longest = 0;

	for (struct list *at = group->members.next; at != &group->members; at = at->next)
		if (!member_of(at)->removed && !member_of(at)->named && member_of(at)->rebalance_ns > longest)
			longest = member_of(at)->rebalance_ns;
	return longest;
}

static void prepare(struct group *group, uint64_t now_ns)
{
	if (group->state == GROUP_PREPARING)
		return;
	list_for_each_safe (at, &group->members)
		if (member_of(at)->wait == GROUP_WAITS_FOR_SYNC)
			make_due(member_of(at), KAFKA_REBALANCE_IN_PROGRESS);
	group->first = group->state == GROUP_EMPTY;
	group->begun_ns = now_ns;
	group->deadline_ns = now_ns + (group->first ? group->initial_delay_ns : longest_rebalance(group));
	group_move(group, GROUP_PREPARING);
}

/* The protocol that every member has; of several, the one that most members name first. */
static const char *choose_protocol(const struct group *group, const struct group_member *first)
{
	const char *best = NULL;
	unsigned best_votes = 0;

	/* What every member has, the first one has too. */
	for (unsigned i = 0; i < first->protocol_count; i++) {
		const char *name = first->protocols[i].name;
		unsigned votes = 0, have = 0;

		for (struct list *at = group->members.next; at != &group->members; at = at->next) {
			const struct group_member *voter = member_of(at);

			if (voter->removed || voter->named)
				continue;
			have += has_protocol(voter, name);
			votes += voter->protocol_count > 0 && strcmp(voter->protocols[0].name, name) == 0;
		}
		if (have == group->member_count && (best == NULL || votes > best_votes)) {
			best = name;
			best_votes = votes;
		}
	}
	return best;
}

static void set_text(char **text, const char *to)
{
	char *copy = to == NULL ? NULL : strdup(to);

	free(*text);
	*text = copy;
}

static void become_empty(struct group *group)
{
	group->generation++;
	set_text(&group->protocol, NULL);
	set_text(&group->leader_id, NULL);
	set_text(&group->protocol_type, NULL);
	group_move(group, GROUP_EMPTY);
}

/* The leader of the next generation has joined: the one before if it has, else the first that has. NULL: none has. */
static struct group_member *choose_leader(const struct group *group)
{
	struct group_member *first = NULL;

	for (struct list *at = group->members.next; at != &group->members; at = at->next) {
		struct group_member *member = member_of(at);

		if (member->removed || member->wait != GROUP_WAITS_FOR_JOIN)
			continue;
		if (group_is_leader(group, member))
			return member;
		if (first == NULL)
			first = member;
	}
	return first;
}

/* Present members begin a generation; absent dynamic ones are out. */
static void complete(struct group *group, uint64_t now_ns)
{
	struct group_member *leader;

	list_for_each_safe (at, &group->members) {
		struct group_member *member = member_of(at);

		if (!member->removed && !member->named && member->wait != GROUP_WAITS_FOR_JOIN &&
			member->instance_id == NULL)
			remove_member(group, member, KAFKA_UNKNOWN_MEMBER_ID);
	}
	if (group->member_count == 0) {
		become_empty(group);
		return;
	}
	leader = choose_leader(group);
	if (leader == NULL) { /* static members that are absent: one joins, or their sessions end */
		group->deadline_ns = now_ns + longest_rebalance(group) + ABSENT_NS;
		return;
	}
	set_text(&group->leader_id, leader->id);
	group->generation++;
	list_for_each (at, &group->members) {
		struct group_member *member = member_of(at);

		if (member->removed || member->named)
			continue;
		clear_assignment(member);
		member->deadline_ns = now_ns + member->session_ns;
		make_due(member, KAFKA_NONE);
	}
	set_text(&group->protocol, choose_protocol(group, leader));
	group->deadline_ns = now_ns + longest_rebalance(group);
	group_move(group, GROUP_COMPLETING);
}

/* Everyone is here, whose id was handed out too. */
static void complete_if_all(struct group *group, uint64_t now_ns)
{
	if (group->state != GROUP_PREPARING || (group->first && group->member_count > 0 && now_ns < group->deadline_ns))
		return;
	for (struct list *at = group->members.next; at != &group->members; at = at->next)
		if (!member_of(at)->removed && member_of(at)->wait != GROUP_WAITS_FOR_JOIN)
			return;
	complete(group, now_ns);
}

static void rebalance(struct group *group, uint64_t now_ns)
{
	prepare(group, now_ns);
	complete_if_all(group, now_ns);
}

/* ---- join ---- */

static enum kafka_error check_join(const struct group *group, const struct group_join *join)
{
	bool common = group->member_count == 0;

	if (join->protocol_count < 1 || join->protocol_count > (int32_t)GROUP_PROTOCOLS_MAX ||
		join->protocol_type.bytes < 1)
		return KAFKA_INCONSISTENT_GROUP_PROTOCOL;
	if (group->member_count > 0 && !same(group->protocol_type, join->protocol_type))
		return KAFKA_INCONSISTENT_GROUP_PROTOCOL;
	for (int32_t i = 0; !common && i < join->protocol_count; i++) {
		common = true;
		for (struct list *at = group->members.next; at != &group->members; at = at->next) {
			const struct group_member *member = member_of(at);
			bool has = member->removed || member->named || same(member->id, join->member_id) ||
				   (join->instance_id.bytes >= 0 && same(member->instance_id, join->instance_id));

			for (unsigned k = 0; !has && k < member->protocol_count; k++)
				has = same(member->protocols[k].name, join->protocols[i].name);
			common &= has;
		}
	}
	return common ? KAFKA_NONE : KAFKA_INCONSISTENT_GROUP_PROTOCOL;
}

/* Whether there is room for what this join adds: a member, or an id that is handed out. */
static bool has_room(const struct group *group, const struct group_join *join, const struct group_member *member,
	const struct group_member *instance)
{
	bool gets_id = join->member_id.bytes == 0 && join->must_name && join->instance_id.bytes < 0;

	if (gets_id && group->named_count >= join->most_members)
		return false;
	if (join->member_id.bytes == 0 ? instance != NULL : member == NULL || !member->named)
		return true; /* it has its place already, or is refused for another reason */
	return group->member_count < join->most_members;
}

/* Takes what the member says now over, and makes it wait. */
static enum kafka_error take_in(
	struct group *group, struct group_member *member, const struct group_join *join, uint64_t now_ns)
{
	if (group->protocol_type == NULL)
		group->protocol_type = copy_text(join->protocol_type);
	if (group->protocol_type == NULL || !set_protocols(member, join))
		return KAFKA_COORDINATOR_NOT_AVAILABLE;
	if (member->named) {
		group->member_count++;
		group->named_count--;
	}
	member->named = false;
	member->session_ns = join->session_ns;
	member->rebalance_ns = join->rebalance_ns;
	member->deadline_ns = now_ns + join->session_ns;
	member->wait = GROUP_WAITS_FOR_JOIN;
	member->due = false;
	return KAFKA_NONE;
}

/* The initial delay begins again with each new member, within the rebalance time. */
static void extend_first(struct group *group, uint64_t now_ns)
{
	uint64_t last = group->begun_ns + longest_rebalance(group), next = now_ns + group->initial_delay_ns;

	if (group->state == GROUP_PREPARING && group->first)
		group->deadline_ns = next < last ? next : last;
}

static enum kafka_error join_new(
	struct group *group, const struct group_join *join, uint64_t now_ns, struct group_member **member_out)
{
	struct group_member *member = add_member(group, join);
	enum kafka_error error;

	if (member == NULL)
		return KAFKA_COORDINATOR_NOT_AVAILABLE;
	*member_out = member;
	member->named = true;
	group->named_count++;
	member->session_ns = join->session_ns;
	member->deadline_ns = now_ns + join->session_ns;
	if (join->must_name && join->instance_id.bytes < 0)
		return KAFKA_MEMBER_ID_REQUIRED;
	error = take_in(group, member, join, now_ns);
	if (error != KAFKA_NONE) {
		remove_member(group, member, error);
		return error;
	}
	extend_first(group, now_ns);
	rebalance(group, now_ns);
	return KAFKA_NONE;
}

/* Answered with the generation there is, whose assignment comes with the sync. */
static enum kafka_error join_again_as_is(struct group_member *member, uint64_t now_ns)
{
	member->deadline_ns = now_ns + member->session_ns;
	member->wait = GROUP_WAITS_FOR_JOIN;
	make_due(member, KAFKA_NONE);
	return KAFKA_NONE;
}

static enum kafka_error join_known(
	struct group *group, const struct group_join *join, struct group_member *member, uint64_t now_ns)
{
	bool changed = member->named || !same_protocols(member, join);
	enum kafka_error error;

	if (group->state == GROUP_COMPLETING && !changed)
		return join_again_as_is(member, now_ns);
	if (group->state == GROUP_STABLE && !changed && !group_is_leader(group, member))
		return join_again_as_is(member, now_ns);
	if (member->named && group->state == GROUP_PREPARING)
		extend_first(group, now_ns);
	error = take_in(group, member, join, now_ns);
	if (error != KAFKA_NONE)
		return error;
	rebalance(group, now_ns);
	return KAFKA_NONE;
}

/* A static member that came back without its id gets another one; a client with the old id is fenced. */
static enum kafka_error join_instance(struct group *group, const struct group_join *join, struct group_member *old,
	uint64_t now_ns, struct group_member **member_out)
{
	bool was_leader = group_is_leader(group, old), as_is = same_protocols(old, join);
	struct group_member *member = add_member(group, join);

	if (member == NULL)
		return KAFKA_COORDINATOR_NOT_AVAILABLE;
	*member_out = member;
	member->named = true;
	group->named_count++;
	if (take_in(group, member, join, now_ns) != KAFKA_NONE) {
		remove_member(group, member, KAFKA_COORDINATOR_NOT_AVAILABLE);
		return KAFKA_COORDINATOR_NOT_AVAILABLE;
	}
	member->assignment = old->assignment;
	member->assignment_bytes = old->assignment_bytes; /* and what it costs */
	old->assignment = NULL;
	old->assignment_bytes = 0;
	remove_member(group, old, KAFKA_FENCED_INSTANCE_ID);
	if (was_leader)
		set_text(&group->leader_id, member->id);
	if (group->state == GROUP_STABLE && as_is) {
		make_due(member, KAFKA_NONE);
		return KAFKA_NONE;
	}
	rebalance(group, now_ns);
	return KAFKA_NONE;
}

enum kafka_error group_join(
	struct group *group, const struct group_join *join, uint64_t now_ns, struct group_member **member_out)
{
	struct group_member *member = find_member(group, join->member_id);
	struct group_member *instance = find_instance(group, join->instance_id);
	enum kafka_error error = check_join(group, join);

	if (error != KAFKA_NONE)
		return error;
	if (!has_room(group, join, member, instance))
		return KAFKA_GROUP_MAX_SIZE_REACHED;
	if (join->member_id.bytes == 0)
		return instance != NULL ? join_instance(group, join, instance, now_ns, member_out)
					: join_new(group, join, now_ns, member_out);
	if (instance != NULL && instance != member)
		return KAFKA_FENCED_INSTANCE_ID;
	if (member == NULL)
		return KAFKA_UNKNOWN_MEMBER_ID;
	*member_out = member;
	return join_known(group, join, member, now_ns);
}

void group_supersede(struct group *group, struct codec_string member_id)
{
	struct group_member *member = find_member(group, member_id);

	if (member != NULL)
		make_due(member, KAFKA_REBALANCE_IN_PROGRESS);
}

/* ---- sync, heartbeat, leave ---- */

/* The member that asks, in its generation. */
static enum kafka_error find_asking(struct group *group, struct codec_string member_id, struct codec_string instance_id,
	int32_t generation, struct group_member **member_out)
{
	struct group_member *member = find_member(group, member_id), *instance = find_instance(group, instance_id);

	if (instance != NULL && instance != member)
		return KAFKA_FENCED_INSTANCE_ID;
	if (member == NULL || member->named || (instance_id.bytes >= 0 && instance == NULL))
		return KAFKA_UNKNOWN_MEMBER_ID;
	*member_out = member;
	return generation == group->generation ? KAFKA_NONE : KAFKA_ILLEGAL_GENERATION;
}

static bool assign(struct group_member *member, struct codec_bytes assignment)
{
	size_t bytes = assignment.bytes < 0 ? 0 : (size_t)assignment.bytes;
	bool fits = recharge(member->budget, (size_t)member->assignment_bytes, bytes);
	uint8_t *copy = fits ? malloc(bytes + 1) : NULL;

	if (copy == NULL) {
		if (fits)
			(void)recharge(member->budget, bytes, (size_t)member->assignment_bytes);
		return false;
	}
	if (bytes > 0)
		memcpy(copy, assignment.at, bytes);
	free(member->assignment);
	member->assignment = copy;
	member->assignment_bytes = (int32_t)bytes;
	return true;
}

static void take_assignments(struct group *group, const struct kafka_sync_group_request *request, uint64_t now_ns)
{
	for (int32_t i = 0; i < request->assignments.count; i++) {
		struct group_member *member = find_member(group, request->assignments.at[i].member_id);

		if (member != NULL && !assign(member, request->assignments.at[i].assignment))
			return; /* COMPLETING goes on, and the leader's next sync tries again */
	}
	group_move(group, GROUP_STABLE);
	list_for_each (at, &group->members) {
		member_of(at)->deadline_ns = now_ns + member_of(at)->session_ns;
		if (member_of(at)->wait == GROUP_WAITS_FOR_SYNC)
			make_due(member_of(at), KAFKA_NONE);
	}
}

enum kafka_error group_sync(struct group *group, struct codec_string member_id, struct codec_string instance_id,
	int32_t generation, const struct kafka_sync_group_request *request, uint64_t now_ns,
	struct group_member **member_out)
{
	enum kafka_error error = find_asking(group, member_id, instance_id, generation, member_out);
	struct group_member *member = *member_out;

	if (error != KAFKA_NONE)
		return error;
	if ((request->protocol_type.bytes >= 0 && !same(group->protocol_type, request->protocol_type)) ||
		(request->protocol_name.bytes >= 0 && !same(group->protocol, request->protocol_name)))
		return KAFKA_INCONSISTENT_GROUP_PROTOCOL;
	if (group->state == GROUP_PREPARING || group->state == GROUP_EMPTY || member->wait != GROUP_WAITS_NOT)
		return KAFKA_REBALANCE_IN_PROGRESS;
	member->wait = GROUP_WAITS_FOR_SYNC;
	member->deadline_ns = now_ns + member->session_ns;
	if (group->state == GROUP_STABLE)
		make_due(member, KAFKA_NONE);
	else if (group_is_leader(group, member))
		take_assignments(group, request, now_ns);
	return KAFKA_NONE;
}

enum kafka_error group_heartbeat(struct group *group, struct codec_string member_id, struct codec_string instance_id,
	int32_t generation, uint64_t now_ns)
{
	struct group_member *member;
	enum kafka_error error = find_asking(group, member_id, instance_id, generation, &member);

	if (error != KAFKA_NONE)
		return error;
	member->deadline_ns = now_ns + member->session_ns;
	return group->state == GROUP_PREPARING ? KAFKA_REBALANCE_IN_PROGRESS : KAFKA_NONE;
}

static void lose_member(struct group *group, struct group_member *member, enum kafka_error error, uint64_t now_ns)
{
	bool was_named = member->named;

	remove_member(group, member, error);
	if (group->state == GROUP_STABLE || group->state == GROUP_COMPLETING) {
		if (!was_named)
			rebalance(group, now_ns);
	} else {
		complete_if_all(group, now_ns);
	}
}

enum kafka_error group_member_leave(
	struct group *group, struct codec_string member_id, struct codec_string instance_id, uint64_t now_ns)
{
	struct group_member *member = find_member(group, member_id), *instance = find_instance(group, instance_id);

	if (instance_id.bytes >= 0 && member_id.bytes == 0)
		member = instance; /* an administrator names the instance alone */
	if (instance != NULL && instance != member)
		return KAFKA_FENCED_INSTANCE_ID;
	if (member == NULL)
		return KAFKA_UNKNOWN_MEMBER_ID;
	lose_member(group, member, KAFKA_UNKNOWN_MEMBER_ID, now_ns);
	return KAFKA_NONE;
}

enum kafka_error group_may_commit(struct group *group, struct codec_string member_id, struct codec_string instance_id,
	int32_t generation, uint64_t now_ns)
{
	struct group_member *member;
	enum kafka_error error;

	if (generation < 0 && member_id.bytes == 0)
		return group->state == GROUP_EMPTY ? KAFKA_NONE : KAFKA_UNKNOWN_MEMBER_ID;
	error = find_asking(group, member_id, instance_id, generation, &member);
	if (error != KAFKA_NONE)
		return error;
	member->deadline_ns = now_ns + member->session_ns;
	/* In PREPARING a member commits before it joins again. */
	return group->state == GROUP_COMPLETING ? KAFKA_REBALANCE_IN_PROGRESS : KAFKA_NONE;
}

/* ---- time ---- */

static struct group_member *find_expired(const struct group *group, uint64_t now_ns)
{
	for (struct list *at = group->members.next; at != &group->members; at = at->next)
		if (!member_of(at)->removed && member_of(at)->wait == GROUP_WAITS_NOT &&
			now_ns >= member_of(at)->deadline_ns)
			return member_of(at);
	return NULL;
}

void group_tick(struct group *group, uint64_t now_ns)
{
	struct group_member *member;

	/* To lose one may end a generation, in which others go too: look again from the beginning. */
	while ((member = find_expired(group, now_ns)) != NULL)
		lose_member(group, member, KAFKA_UNKNOWN_MEMBER_ID, now_ns);
	if (group->state == GROUP_PREPARING && now_ns >= group->deadline_ns)
		complete(group, now_ns);
	if (group->state != GROUP_COMPLETING || now_ns < group->deadline_ns)
		return;
	/* The leader sent no assignment in time: members that have not even asked for it are out. */
	list_for_each_safe (at, &group->members)
		if (!member_of(at)->removed && !member_of(at)->named && member_of(at)->wait == GROUP_WAITS_NOT)
			remove_member(group, member_of(at), KAFKA_UNKNOWN_MEMBER_ID);
	rebalance(group, now_ns);
}

uint64_t group_next_ns(const struct group *group)
{
	uint64_t next = UINT64_MAX;

	for (struct list *at = group->members.next; at != &group->members; at = at->next)
		if (!member_of(at)->removed && member_of(at)->wait == GROUP_WAITS_NOT &&
			member_of(at)->deadline_ns < next)
			next = member_of(at)->deadline_ns;
	if ((group->state == GROUP_PREPARING || group->state == GROUP_COMPLETING) && group->deadline_ns < next)
		next = group->deadline_ns;
	return next;
}

/* ---- the group ---- */

bool group_is_leader(const struct group *group, const struct group_member *member)
{
	return group->leader_id != NULL && strcmp(group->leader_id, member->id) == 0;
}

struct codec_bytes group_metadata(const struct group *group, const struct group_member *member)
{
	for (unsigned i = 0; group->protocol != NULL && i < member->protocol_count; i++)
		if (strcmp(member->protocols[i].name, group->protocol) == 0)
			return (struct codec_bytes){member->protocols[i].metadata, member->protocols[i].metadata_bytes};
	return (struct codec_bytes){NULL, 0};
}

struct group *group_new(struct codec_string id, uint64_t initial_delay_ns, struct group_budget *budget)
{
	struct group *group = calloc(1, sizeof(*group));

	if (group == NULL)
		return NULL;
	list_init(&group->members);
	list_init(&group->node);
	group->initial_delay_ns = initial_delay_ns;
	group->budget = budget;
	group->id = copy_text(id);
	if (group->id == NULL) {
		free(group);
		return NULL;
	}
	return group;
}

void group_free(struct group *group)
{
	list_for_each_safe (at, &group->members)
		member_free(member_of(at));
	free(group->id);
	free(group->protocol_type);
	free(group->leader_id);
	free(group->protocol);
	free(group);
}
