/* Members of a consumer group that are consumers of our library. */
#include "sim/broker/our_members.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/ensure.h"
#include "broker/client/consumer.h"
#include "broker/client/membership.h"
#include "sim/broker/groups.h"

#define MESSAGES    8
#define REST_NS_MAX (5 * NS_MS)
#define END_NS_MAX  (500 * NS_US) /* the same when only the rest is read, which may be long and a byte a fetch */
#define AWAY_NS_MAX (800 * NS_MS)
#define AWAY_PPM    1000u
#define LEAVE_PPM   3000u
#define COMMIT_PPM  100000u
#define TIMEOUT_NS  NS_S
#define RETURN_NS   (30 * NS_MS)
#define FETCH_MAX   4000u
#define NOT_READ    (-1) /* a position; one that is not known yet is HF_OFFSET_BEGIN */

/* ---- generations ---- */

static const struct our_seat *seat_of(const struct sim_group *group, int32_t generation, const char *id)
{
	for (uint32_t i = 0; i < group->seat_count && i < GROUP_GENERATIONS_MAX; i++)
		if (group->seats[i].generation == generation && strcmp(group->seats[i].id, id) == 0)
			return &group->seats[i];
	return NULL;
}

/* Who leads a generation is told its members before it tells anybody what they get: this is where it counts, because a
 * member may have its offsets late, and a later generation others before. */
static void note_seats(struct sim_group *group, const struct membership *membership)
{
	if (membership->state != MEMBERSHIP_COUNTING ||
		seat_of(group, membership->generation, membership->member) != NULL)
		return;
	(void)sim_group_number(group, membership->generation, membership->member);
	for (int32_t i = 0; i < membership->member_count; i++) {
		struct our_seat *seat = &group->seats[group->seat_count++ % GROUP_GENERATIONS_MAX];

		seat->generation = membership->generation;
		snprintf(seat->id, sizeof(seat->id), "%s", membership->members[i]);
		snprintf(seat->leader, sizeof(seat->leader), "%s", membership->member);
	}
}

static void begin(struct our_member *member)
{
	struct sim_group *group = member->all->group;
	const struct membership *membership = member->consumer->membership;
	const struct our_seat *seat = seat_of(group, membership->generation, membership->member);

	if (seat == NULL) {
		world_violate(member->all->world, "owner",
			"member %u is in generation %d, whose leader does not know it", member->index,
			membership->generation);
		return;
	}
	member->begun = true;
	member->number = sim_group_number(group, seat->generation, seat->leader);
	world_note(member->all->world, "begun", member->number);
	for (unsigned i = 0; i < SIM_MEMBER_PARTITIONS; i++) {
		struct group_account *account = &group->accounts[i];
		const struct group_floor floor = group_floor(account);
		struct our_partition *partition = &member->partitions[i];
		int64_t position = hf_consumer_position(member->consumer, SIM_BROKER_TOPIC, (int32_t)i);

		group_assigned(account, member->number);
		partition->owned = position != NOT_READ;
		if (!partition->owned)
			continue;
		partition->next = position < 0 ? 0 : (uint64_t)position;
		partition->committed = floor.offset;
		group_owned(account, member->number, member->index);
		group_begins(account, &floor, member->number, partition->next);
	}
}

/* Whether it reads on in its generation. */
static bool goes_on(const struct membership *membership)
{
	return !membership->lost && (membership->state == MEMBERSHIP_STABLE || membership->state == MEMBERSHIP_FINDING);
}

/* In each turn, also while the program is away: a member that has fetched its offsets may lose its coordinator soon. */
static void look(struct our_member *member)
{
	const struct membership *membership = member->consumer->membership;
	struct sim_group *group = member->all->group;

	note_seats(group, membership);
	member->begun = member->begun && goes_on(membership);
	if (!member->begun && membership->state == MEMBERSHIP_STABLE && !membership->lost)
		begin(member);
	for (unsigned i = 0; member->begun && member->commits_alone && i < SIM_MEMBER_PARTITIONS; i++)
		if (member->partitions[i].owned)
			(void)group_commits(&group->accounts[i], member->number, member->partitions[i].next);
}

/* ---- commits ---- */

static void told(void *context, int error)
{
	struct our_member *member = context;
	struct sim_group *group = member->all->group;

	world_note(member->all->world, "commit-told", (uint64_t)-error);
	if (!member->committing || (error != 0 && error != -EAGAIN && error != -ESTALE))
		world_violate(member->all->world, "told", "member %u is told %d of a commit", member->index, error);
	member->committing = false;
	for (unsigned i = 0; error == 0 && i < SIM_MEMBER_PARTITIONS; i++) {
		struct our_partition *partition = &member->partitions[i];

		if (!partition->in_commit)
			continue;
		group_committed(&group->accounts[i], partition->assigned, member->commit_number, partition->committing);
		if (member->number == member->commit_number)
			partition->committed = partition->committing;
		group->commits++;
	}
}

static bool has_more_to_commit(const struct our_member *member)
{
	for (unsigned i = 0; i < SIM_MEMBER_PARTITIONS; i++)
		if (member->partitions[i].owned && member->partitions[i].next != member->partitions[i].committed)
			return true;
	return false;
}

static void commit(struct our_member *member)
{
	struct group_account *accounts = member->all->group->accounts;

	if (!member->begun || member->committing || !has_more_to_commit(member))
		return;
	for (unsigned i = 0; i < SIM_MEMBER_PARTITIONS; i++) {
		struct our_partition *partition = &member->partitions[i];

		partition->in_commit = partition->owned;
		partition->committing = partition->next;
		if (partition->owned)
			partition->assigned = group_commits(&accounts[i], member->number, partition->next);
	}
	member->commit_number = member->number;
	member->committing = hf_consumer_commit(member->consumer, told, member) == 0;
}

/* ---- the consumer ---- */

static int open_consumer(struct our_member *member, struct hf_error *error)
{
	static const char *const topics[] = {SIM_BROKER_TOPIC};
	struct world *world = member->all->world;
	struct hf_consumer_config config = {
		.brokers = member->all->count == 1 ? "10.0.0.1:9092" : "10.0.0.1:9092,10.0.0.2:9092,10.0.0.3:9092",
		.rdma = member->index == 0 ? HF_RDMA_OFF : HF_RDMA_AUTO,
		.fetch_bytes = (uint32_t)world_range(world, 1, FETCH_MAX),
		.request_timeout_ns = TIMEOUT_NS,
		.return_ns = RETURN_NS};
	struct hf_group_config group = {.group = SIM_GROUP,
		.topics = topics,
		.topic_count = 1,
		.session_ns = SIM_GROUP_SESSION_MS * NS_MS,
		.rebalance_ns = SIM_GROUP_REBALANCE_MS * NS_MS,
		.commit_ns = UINT64_MAX};
	char text[HF_ADDR_TEXT];
	int rc;

	snprintf(text, sizeof(text), "10.0.0.%u", member->index + SIM_MEMBERS_FROM);
	ensure(hf_addr_parse(text, &config.local) == 0);
	member->commits_alone = world_chance(world, 500000);
	if (member->commits_alone)
		group.commit_ns = world_range(world, 20 * NS_MS, 300 * NS_MS);
	member->begun = member->committing = false;
	rc = hf_consumer_open(member->loop, member->node, &config, &member->consumer, error);
	return rc == 0 ? hf_consumer_join(member->consumer, &group) : rc;
}

static void join_anew(struct our_member *member)
{
	struct hf_error error = {0};

	if (member->committing)
		world_violate(
			member->all->world, "told", "member %u has left and is not told of its commit", member->index);
	hf_consumer_close(member->consumer);
	if (open_consumer(member, &error) != 0)
		world_violate(member->all->world, "start", "%s", error.text);
}

/* ---- the program ---- */

static void take(struct our_member *member, const struct hf_message *message)
{
	struct broker_sim *all = member->all;
	struct our_partition *partition = &member->partitions[message->partition];
	uint64_t offset = (uint64_t)message->offset;

	if (!member->begun || !partition->owned || offset != partition->next)
		world_violate(all->world, "gap", "member %u is given record %llu of partition %d, and %llu was due",
			member->index, (unsigned long long)offset, message->partition,
			member->begun && partition->owned ? (unsigned long long)partition->next : 0);
	partition_given(&all->accounts[message->partition], offset, message->value, message->value_bytes);
	group_gives(&all->group->accounts[message->partition], offset, offset + 1);
	partition->next = offset + 1;
}

static int read_some(struct our_member *member)
{
	struct hf_message messages[MESSAGES];
	int n = hf_consumer_poll(member->consumer, messages, MESSAGES);

	for (int i = 0; i < n; i++)
		take(member, &messages[i]);
	if (n < 0)
		world_violate(member->all->world, "answer", "member %u got %d", member->index, n);
	member->begun = member->begun && goes_on(member->consumer->membership);
	return n;
}

static enum hf_poll poll_member(struct hf_poller *poller, uint64_t now_ns)
{
	struct our_member *member = container_of(poller, struct our_member, poller);
	struct world *world = member->all->world;
	bool settling = member->all->settling;
	struct hf_consumer_group group;

	look(member);
	if (now_ns < member->next_ns)
		return HF_IDLE;
	member->next_ns = now_ns + world_range(world, 1, settling ? END_NS_MAX : REST_NS_MAX);
	if (read_some(member) > 0)
		member->next_ns = now_ns;
	hf_consumer_group(member->consumer, &group);
	if (group.is_over)
		join_anew(member);
	else if (settling || world_chance(world, COMMIT_PPM))
		commit(member);
	if (!settling && world_chance(world, LEAVE_PPM))
		hf_consumer_leave(member->consumer);
	if (!settling && world_chance(world, AWAY_PPM))
		member->next_ns = now_ns + world_range(world, 1, AWAY_NS_MAX);
	return HF_BUSY;
}

static bool arm(struct hf_poller *poller)
{
	struct our_member *member = container_of(poller, struct our_member, poller);

	hf_loop_set_timer(member->loop, &member->timer, member->next_ns);
	return true;
}

static void timer_fired(struct hf_timer *timer, uint64_t now_ns)
{
	(void)timer, (void)now_ns;
}

static int start(struct process *process, void *context)
{
	struct our_member *member = context;
	struct hf_node_config config;
	struct hf_error error = {0};
	int rc = hf_loop_create(&process->env, &member->loop);

	sim_rails_configure(&member->host, member->index + SIM_MEMBERS_FROM, &config);
	if (rc == 0)
		rc = hf_node_open(member->loop, &config, NULL, NULL, &member->node, &error);
	if (rc == 0)
		rc = open_consumer(member, &error);
	if (rc != 0) {
		if (!process->muted)
			world_violate(member->all->world, "start", "%s", error.text);
		return rc;
	}
	member->next_ns = 0;
	member->poller = (struct hf_poller){.poll = poll_member, .arm = arm};
	member->timer = (struct hf_timer){.fire = timer_fired};
	hf_loop_add_poller(member->loop, &member->poller);
	return 0;
}

static void stop(struct process *process, void *context)
{
	struct our_member *member = context;

	(void)process;
	hf_consumer_close(member->consumer);
	hf_loop_cancel_timer(member->loop, &member->timer);
	hf_node_close(member->node);
	hf_loop_destroy(member->loop);
	member->consumer = NULL;
	member->node = NULL;
	member->loop = NULL;
}

static const struct program our_member_program = {.name = "member", .start = start, .stop = stop};

void our_member_set_up(struct our_member *member, struct broker_sim *all, unsigned index)
{
	char name[SIM_NAME_BYTES];

	*member = (struct our_member){.all = all, .index = index};
	snprintf(name, sizeof(name), "member%u", index);
	host_init(&member->host, all->world, &all->network, name);
	member->process = process_create(&member->host, name, &our_member_program, member);
	for (unsigned rail = 0; rail < SIM_BROKER_RAILS; rail++)
		sim_rails_add_port(&member->host, index + SIM_MEMBERS_FROM, rail);
}
