#include "broker/client/membership.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/states.h"
#include "base/log.h"
#include "broker/client/consumer.h"

#define FIND_VERSION      2
#define JOIN_VERSION      5
#define SYNC_VERSION      3
#define HEARTBEAT_VERSION 3
#define LEAVE_VERSION     1
#define AGAIN_NS          100000000ull
#define COUNTING_NS       2000000000ull
#define TICK_NS           50000000ull

static const struct state membership_states[MEMBERSHIP_STATES] = {
	[MEMBERSHIP_FINDING] = {"finding", BIT(MEMBERSHIP_JOINING) | BIT(MEMBERSHIP_STABLE) | BIT(MEMBERSHIP_OVER)},
	[MEMBERSHIP_JOINING] = {"joining",
		BIT(MEMBERSHIP_FINDING) | BIT(MEMBERSHIP_COUNTING) | BIT(MEMBERSHIP_SYNCING) | BIT(MEMBERSHIP_OVER)},
	[MEMBERSHIP_COUNTING] = {"counting",
		BIT(MEMBERSHIP_FINDING) | BIT(MEMBERSHIP_JOINING) | BIT(MEMBERSHIP_SYNCING) | BIT(MEMBERSHIP_OVER)},
	[MEMBERSHIP_SYNCING] = {"syncing",
		BIT(MEMBERSHIP_FINDING) | BIT(MEMBERSHIP_JOINING) | BIT(MEMBERSHIP_FETCHING) | BIT(MEMBERSHIP_OVER)},
	[MEMBERSHIP_FETCHING] = {"fetching",
		BIT(MEMBERSHIP_FINDING) | BIT(MEMBERSHIP_JOINING) | BIT(MEMBERSHIP_STABLE) | BIT(MEMBERSHIP_OVER)},
	[MEMBERSHIP_STABLE] = {"stable", BIT(MEMBERSHIP_FINDING) | BIT(MEMBERSHIP_GIVING_UP) | BIT(MEMBERSHIP_OVER)},
	[MEMBERSHIP_GIVING_UP] = {"giving up",
		BIT(MEMBERSHIP_FINDING) | BIT(MEMBERSHIP_JOINING) | BIT(MEMBERSHIP_LEAVING) | BIT(MEMBERSHIP_OVER)},
	[MEMBERSHIP_LEAVING] = {"leaving", BIT(MEMBERSHIP_OVER)},
	[MEMBERSHIP_OVER] = {"over", 0},
};

void membership_move(struct membership *membership, enum membership_state to)
{
	if (membership->state == to)
		return;
	states_move("membership", membership_states, &membership->state, to, "%s", membership->group);
}

static struct codec_string text_of(const char *text)
{
	return (struct codec_string){text, (int32_t)strlen(text)};
}

static uint64_t now_of(const struct membership *membership)
{
	return hf_loop_now_ns(membership->consumer->loop);
}

static void wait_a_while(struct membership *membership)
{
	membership->again_ns = now_of(membership) + AGAIN_NS;
}

static void set_member(struct membership *membership, struct codec_string id)
{
	char *copy = strndup(id.at == NULL ? "" : id.at, id.bytes < 0 ? 0 : (size_t)id.bytes);

	if (copy == NULL)
		return; /* under the old id the coordinator refuses, and it is asked again */
	free(membership->member);
	membership->member = copy;
}

static void forget_members(struct membership *membership)
{
	assignor_clear(&membership->assignor);
	for (int32_t i = 0; i < membership->member_count; i++)
		free(membership->members[i]);
	free(membership->members);
	membership->members = NULL;
	membership->member_count = 0;
}

/* Not a member any more; in a poll its partitions go. */
static void lose(struct membership *membership, int16_t error)
{
	membership->lost = true;
	membership->generation = -1;
	if (error == KAFKA_UNKNOWN_MEMBER_ID)
		set_member(membership, text_of(""));
}

void membership_failed(struct membership *membership, int16_t error)
{
	switch (error) {
	case KAFKA_NOT_COORDINATOR:
	case KAFKA_COORDINATOR_NOT_AVAILABLE:
		if (membership->state != MEMBERSHIP_STABLE)
			lose(membership, error);
		membership_move(membership, MEMBERSHIP_FINDING);
		break;
	case KAFKA_COORDINATOR_LOAD_IN_PROGRESS:
	case KAFKA_REQUEST_TIMED_OUT:
	case KAFKA_UNKNOWN_TOPIC_OR_PARTITION:
	case KAFKA_STORAGE_ERROR:
		if (membership->state == MEMBERSHIP_SYNCING)
			membership_move(membership, MEMBERSHIP_JOINING);
		break; /* it is asked again */
	case KAFKA_REBALANCE_IN_PROGRESS:
		membership->rejoin = true;
		if (membership->state != MEMBERSHIP_STABLE)
			membership_move(membership, MEMBERSHIP_JOINING);
		break;
	case KAFKA_UNKNOWN_MEMBER_ID:
	case KAFKA_ILLEGAL_GENERATION:
		lose(membership, error);
		membership->rejoin = true;
		if (membership->state != MEMBERSHIP_STABLE)
			membership_move(membership, MEMBERSHIP_JOINING);
		break;
	default:
		log_error("client: the group %s refused this consumer with Kafka's error code %d", membership->group,
			error);
		lose(membership, error);
		membership->refusal = error;
		membership_move(membership, MEMBERSHIP_OVER);
		break;
	}
	wait_a_while(membership);
}

static struct membership *of_call(struct kafka_call *call)
{
	return container_of(call, struct membership, call);
}

bool membership_call(struct membership *membership, void (*done)(struct kafka_call *call, const void *response),
	int16_t key, int16_t version, const void *request)
{
	membership->call.done = done;
	if (kafka_link_call(&membership->link, &membership->call, key, version, request))
		return true;
	membership_failed(membership, KAFKA_NOT_COORDINATOR);
	return false;
}

/* ---- the coordinator ---- */

static void link_to(struct membership *membership, const struct hf_addr *addr)
{
	struct hf_consumer *consumer = membership->consumer;

	if (membership->linked && hf_addr_equal(&membership->link.remote, addr))
		return;
	if (membership->linked) {
		kafka_link_break(&membership->link);
		kafka_link_close(&membership->link);
	}
	kafka_link_open(&membership->link, consumer->loop, &consumer->leaders.local, addr,
		membership->rebalance_ns + consumer->config.request_timeout_ns);
	membership->linked = true;
}

static void found(struct kafka_call *call, const void *response)
{
	struct membership *membership = of_call(call);
	const struct kafka_find_coordinator_response *answer = response;
	struct hf_addr addr;

	if (membership->state != MEMBERSHIP_FINDING)
		return; /* it does not want to join any more */
	wait_a_while(membership);
	if (answer == NULL || answer->error_code == KAFKA_COORDINATOR_NOT_AVAILABLE)
		return;
	if (answer->error_code != KAFKA_NONE) {
		membership_failed(membership, answer->error_code);
		return;
	}
	if (!leaders_parse(answer->host, answer->port, &addr))
		return;
	link_to(membership, &addr);
	membership->again_ns = 0;
	membership_move(membership, membership->lost ? MEMBERSHIP_JOINING : MEMBERSHIP_STABLE);
}

static void find(struct membership *membership)
{
	const struct kafka_find_coordinator_request request = {.key = text_of(membership->group)};
	struct leaders_broker *broker = leaders_any(&membership->consumer->leaders);

	membership->call.done = found;
	if (broker == NULL ||
		!kafka_link_call(&broker->link, &membership->call, KAFKA_FIND_COORDINATOR, FIND_VERSION, &request))
		wait_a_while(membership);
}

/* ---- joining ---- */

static void synced(struct kafka_call *call, const void *response)
{
	struct membership *membership = of_call(call);
	const struct kafka_sync_group_response *answer = response;
	uint8_t *copy;

	if (answer == NULL || answer->error_code != KAFKA_NONE) {
		membership_failed(membership, answer == NULL ? KAFKA_NOT_COORDINATOR : answer->error_code);
		return;
	}
	copy = malloc((size_t)(answer->assignment.bytes > 0 ? answer->assignment.bytes : 1));
	if (copy == NULL) {
		membership_failed(membership, KAFKA_ILLEGAL_GENERATION);
		return;
	}
	if (answer->assignment.bytes > 0)
		memcpy(copy, answer->assignment.at, (size_t)answer->assignment.bytes);
	free((void *)(uintptr_t)membership->assigned.at);
	membership->assigned = (struct codec_bytes){copy, answer->assignment.bytes};
	membership->heard_ns = now_of(membership);
	membership->again_ns = 0;
	membership_move(membership, MEMBERSHIP_FETCHING);
}

/* The leader tells what each member gets. */
static void sync_group(struct membership *membership)
{
	struct kafka_sync_group_request request = {.group_id = text_of(membership->group),
		.generation_id = membership->generation,
		.member_id = text_of(membership->member),
		.group_instance_id = {NULL, -1}};
	size_t count = (size_t)membership->member_count;
	bool whole = true;

	request.assignments.at = count == 0 ? NULL : calloc(count, sizeof(*request.assignments.at));
	for (size_t i = 0; i < count && request.assignments.at != NULL; i++) {
		struct codec_string member = text_of(membership->members[i]);
		struct codec_bytes bytes = assignor_assignment(&membership->assignor, member);

		whole &= bytes.at != NULL;
		request.assignments.at[request.assignments.count++] =
			(struct kafka_sync_group_request_sync_group_request_assignment){member, bytes};
	}
	membership_move(membership, MEMBERSHIP_SYNCING);
	if (whole && request.assignments.count == membership->member_count)
		(void)membership_call(membership, synced, KAFKA_SYNC_GROUP, SYNC_VERSION, &request);
	else
		membership_failed(membership, KAFKA_ILLEGAL_GENERATION);
	for (int32_t i = 0; i < request.assignments.count; i++)
		free((void *)(uintptr_t)request.assignments.at[i].assignment.at);
	free(request.assignments.at);
}

/* Until it is known how many partitions the topics have, for a while. One that is not there has none, for now. */
static void count_partitions(struct membership *membership, uint64_t now_ns)
{
	struct assignor *assignor = &membership->assignor;
	struct leaders *leaders = &membership->consumer->leaders;
	bool known = true;

	for (size_t at = 0; at < assignor->count;) {
		struct leaders_topic *topic = leaders_topic(leaders, assignor->wishes[at].topic);
		int32_t count = topic == NULL ? 0 : leaders_partitions(leaders, topic);

		known &= count > 0 || topic == NULL || topic->fatal;
		at = assignor_spread(assignor, at, count);
	}
	if (known || now_ns >= membership->counting_end_ns)
		sync_group(membership);
}

/* Whether a topic that had no partitions when its leader gave them out has some by now. */
static bool has_more_to_give(const struct membership *membership)
{
	const struct assignor_wish *wishes = membership->assignor.wishes;
	struct leaders *leaders = &membership->consumer->leaders;

	for (size_t i = 0; i < membership->assignor.count; i++) {
		bool is_first = i == 0 || strcmp(wishes[i].topic, wishes[i - 1].topic) != 0;
		struct leaders_topic *topic = is_first ? leaders_topic(leaders, wishes[i].topic) : NULL;

		if (topic != NULL && wishes[i].count == 0 && leaders_partitions(leaders, topic) > 0)
			return true;
	}
	return false;
}

static bool take_members(struct membership *membership, const struct kafka_join_group_response *answer)
{
	membership->members = calloc((size_t)answer->members.count, sizeof(*membership->members));
	for (int32_t i = 0; i < answer->members.count && membership->members != NULL; i++) {
		const struct kafka_join_group_response_join_group_response_member *at = &answer->members.at[i];
		char *id = strndup(at->member_id.at, (size_t)at->member_id.bytes);

		if (id == NULL)
			return false;
		membership->members[membership->member_count++] = id;
		if (assignor_take(&membership->assignor, at->member_id, at->metadata) == -ENOMEM)
			return false;
	}
	assignor_sort(&membership->assignor);
	return membership->member_count > 0;
}

static void joined(struct kafka_call *call, const void *response)
{
	struct membership *membership = of_call(call);
	const struct kafka_join_group_response *answer = response;

	if (answer != NULL && answer->error_code == KAFKA_MEMBER_ID_REQUIRED) {
		set_member(membership, answer->member_id);
		return;
	}
	if (answer == NULL || answer->error_code != KAFKA_NONE) {
		membership_failed(membership, answer == NULL ? KAFKA_NOT_COORDINATOR : answer->error_code);
		return;
	}
	set_member(membership, answer->member_id);
	membership->generation = answer->generation_id;
	membership->rejoin = false;
	forget_members(membership);
	membership_move(membership, MEMBERSHIP_COUNTING);
	membership->counting_end_ns = now_of(membership) + COUNTING_NS;
	if (codec_compare(membership->member, answer->leader) != 0)
		sync_group(membership);
	else if (!take_members(membership, answer))
		membership_failed(membership, KAFKA_ILLEGAL_GENERATION);
}

static void join(struct membership *membership)
{
	struct kafka_join_group_request_join_group_request_protocol protocol = {.name = text_of(ASSIGNOR_NAME),
		.metadata = assignor_subscribe(membership->topics, membership->topic_count)};
	struct kafka_join_group_request request = {.group_id = text_of(membership->group),
		.session_timeout_ms = (int32_t)(membership->session_ns / 1000000),
		.rebalance_timeout_ms = (int32_t)(membership->rebalance_ns / 1000000),
		.member_id = text_of(membership->member),
		.group_instance_id = {NULL, -1},
		.protocol_type = text_of("consumer"),
		.protocols = {&protocol, 1}};

	membership->lost = false;
	if (protocol.metadata.at == NULL)
		wait_a_while(membership);
	else
		(void)membership_call(membership, joined, KAFKA_JOIN_GROUP, JOIN_VERSION, &request);
	free((void *)(uintptr_t)protocol.metadata.at);
}

/* ---- leaving ---- */

static void left(struct kafka_call *call, const void *response)
{
	(void)response; /* else it is out when its session is over */
	membership_move(of_call(call), MEMBERSHIP_OVER);
}

static void leave(struct membership *membership)
{
	const struct kafka_leave_group_request request = {
		.group_id = text_of(membership->group), .member_id = text_of(membership->member)};

	membership_move(membership, MEMBERSHIP_LEAVING);
	membership->call.done = left;
	if (!kafka_link_call(&membership->link, &membership->call, KAFKA_LEAVE_GROUP, LEAVE_VERSION, &request))
		membership_move(membership, MEMBERSHIP_OVER);
}

/* ---- heartbeats ---- */

static void heard(struct kafka_call *call, const void *response)
{
	struct membership *membership = container_of(call, struct membership, heartbeat);
	const struct kafka_heartbeat_response *answer = response;

	/* In other states the call that is under way decides. */
	if (membership->state == MEMBERSHIP_STABLE && (answer == NULL || answer->error_code != KAFKA_NONE))
		membership_failed(membership, answer == NULL ? KAFKA_NOT_COORDINATOR : answer->error_code);
}

static void tick(struct hf_timer *timer, uint64_t now_ns)
{
	struct membership *membership = container_of(timer, struct membership, timer);
	const struct kafka_heartbeat_request request = {.group_id = text_of(membership->group),
		.generation_id = membership->generation,
		.member_id = text_of(membership->member),
		.group_instance_id = {NULL, -1}};
	bool is_member = membership->state == MEMBERSHIP_STABLE || membership->state == MEMBERSHIP_FETCHING;

	if (membership->linked && membership->heartbeat.waiting &&
		now_ns - membership->heartbeat.sent_ns >= membership->session_ns) {
		kafka_link_break(&membership->link);
	} else if (is_member && !membership->lost && !membership->heartbeat.waiting &&
		   now_ns - membership->heard_ns >= membership->heartbeat_ns) {
		membership->heard_ns = now_ns;
		membership->heartbeat.done = heard;
		(void)kafka_link_call(
			&membership->link, &membership->heartbeat, KAFKA_HEARTBEAT, HEARTBEAT_VERSION, &request);
	}
	hf_loop_set_timer(membership->consumer->loop, timer, now_ns + TICK_NS);
}

/* ---- turns ---- */

static void stable(struct membership *membership, uint64_t now_ns)
{
	bool commits = membership->commit_ns != UINT64_MAX;

	if (now_ns >= membership->counting_end_ns) {
		membership->counting_end_ns = now_ns + COUNTING_NS;
		membership->rejoin |= has_more_to_give(membership);
	}
	if (!membership->rejoin && !membership->leave) {
		if (commits && now_ns - membership->committed_ns >= membership->commit_ns &&
			!membership->commit.waiting)
			(void)membership_commit(membership);
		return;
	}
	if (membership->commit.waiting)
		return; /* an earlier one: first its answer */
	if (commits && !membership->lost)
		(void)membership_commit(membership);
	consumer_stop_all(membership->consumer);
	membership_move(membership, MEMBERSHIP_GIVING_UP);
}

static void given_up(struct membership *membership)
{
	if (membership->commit.waiting)
		return;
	if (membership->leave)
		leave(membership);
	else
		membership_move(membership, MEMBERSHIP_JOINING);
}

void membership_turn(struct membership *membership, uint64_t now_ns)
{
	bool free_to_ask = !membership->call.waiting && now_ns >= membership->again_ns;

	if (membership->lost)
		consumer_stop_all(membership->consumer);
	if (membership->leave && membership->state < MEMBERSHIP_STABLE && membership->state != MEMBERSHIP_FETCHING) {
		/* The coordinator does not know it as a member, or not for long. */
		consumer_stop_all(membership->consumer);
		if (membership->linked) {
			kafka_link_break(&membership->link); /* a commit is told of */
			kafka_link_close(&membership->link);
		}
		membership->linked = false;
		membership_move(membership, MEMBERSHIP_OVER);
	}
	switch (membership->state) {
	case MEMBERSHIP_FINDING:
		if (free_to_ask)
			find(membership);
		break;
	case MEMBERSHIP_JOINING:
		if (free_to_ask)
			join(membership);
		break;
	case MEMBERSHIP_COUNTING:
		count_partitions(membership, now_ns);
		break;
	case MEMBERSHIP_FETCHING:
		if (free_to_ask)
			membership_fetch(membership);
		break;
	case MEMBERSHIP_STABLE:
		stable(membership, now_ns);
		break;
	case MEMBERSHIP_GIVING_UP:
		given_up(membership);
		break;
	case MEMBERSHIP_SYNCING:
	case MEMBERSHIP_LEAVING:
	case MEMBERSHIP_OVER:
	case MEMBERSHIP_STATES:
		break;
	}
}

/* ---- opening ---- */

struct membership *membership_open(struct hf_consumer *consumer, const struct hf_group_config *config)
{
	struct membership *membership = calloc(1, sizeof(*membership));
	bool whole;

	if (membership == NULL)
		return NULL;
	*membership = (struct membership){.consumer = consumer,
		.group = strdup(config->group),
		.member = strdup(""),
		.topics = calloc(config->topic_count, sizeof(*membership->topics)),
		.session_ns = config->session_ns,
		.rebalance_ns = config->rebalance_ns,
		.heartbeat_ns = config->heartbeat_ns,
		.commit_ns = config->commit_ns,
		.generation = -1,
		.lost = true,
		.assigned = {NULL, -1},
		.timer = {.fire = tick, .quiet = true}};
	hf_loop_set_timer(consumer->loop, &membership->timer, now_of(membership) + TICK_NS);
	whole = membership->group != NULL && membership->member != NULL && membership->topics != NULL;
	for (unsigned i = 0; whole && i < config->topic_count; i++) {
		membership->topics[i] = strdup(config->topics[i]);
		whole = membership->topics[i] != NULL;
		membership->topic_count += whole;
	}
	if (whole)
		return membership;
	membership_close(membership);
	return NULL;
}

void membership_close(struct membership *membership)
{
	if (membership == NULL)
		return;
	hf_loop_cancel_timer(membership->consumer->loop, &membership->timer);
	if (membership->linked)
		kafka_link_close(&membership->link);
	forget_members(membership);
	for (unsigned i = 0; i < membership->topic_count; i++)
		free(membership->topics[i]);
	free(membership->topics);
	free((void *)(uintptr_t)membership->assigned.at);
	free(membership->group);
	free(membership->member);
	free(membership);
}
