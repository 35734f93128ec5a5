/* Members of a consumer group, as stock clients are. */
#include "sim/broker/members.h"

#include <stdio.h>
#include <string.h>

#include "base/ensure.h"
#include "sim/broker/groups.h"

#define REST_NS_MAX              (20 * NS_MS)
#define LATE_NS                  NS_S
#define AGAIN_NS                 (20 * NS_MS)
#define FETCH_WAIT_MS            20
#define FIND_COORDINATOR_VERSION 1
#define JOIN_VERSION             5
#define SYNC_VERSION             3
#define HEARTBEAT_VERSION        3
#define LEAVE_VERSION            1
#define COMMIT_VERSION           7
#define OFFSETS_VERSION          5
#define FETCH_VERSION            11

static const struct codec_string group_name = {SIM_GROUP, sizeof(SIM_GROUP) - 1};
static const struct codec_string topic_name = {SIM_BROKER_TOPIC, sizeof(SIM_BROKER_TOPIC) - 1};
static const struct codec_string nothing = {NULL, -1};

static struct hf_addr address_of(unsigned broker)
{
	struct hf_addr address;
	char text[HF_ADDR_TEXT];

	snprintf(text, sizeof(text), "10.0.0.%u:9092", broker + 1);
	ensure(hf_addr_parse(text, &address) == 0);
	return address;
}

/* What it had in its generation means nothing any more. */
static void give_up(struct sim_member *member, enum member_step step)
{
	for (unsigned i = 0; i < SIM_MEMBER_PARTITIONS; i++)
		member->partitions[i].owned = false;
	member->stale = false;
	member->step = step;
}

static void find_again(struct sim_member *member)
{
	const struct hf_addr next = address_of(member->broker = (member->broker + 1) % member->all->count);

	give_up(member, MEMBER_FINDS);
	wire_move(&member->wire, &next);
}

/* An error of the coordinator: true, and the member does what clients do about it. */
static bool is_refused(struct sim_member *member, int16_t error)
{
	world_note(member->all->world, "member-error", (uint64_t)error);
	switch (error) {
	case KAFKA_NONE:
		return false;
	case KAFKA_REBALANCE_IN_PROGRESS:
		member->stale = true;
		if (member->step != MEMBER_WORKS)
			give_up(member, MEMBER_JOINS);
		break;
	case KAFKA_UNKNOWN_MEMBER_ID:
	case KAFKA_ILLEGAL_GENERATION:
		member->id[0] = '\0';
		give_up(member, MEMBER_JOINS);
		break;
	case KAFKA_NOT_COORDINATOR:
	case KAFKA_COORDINATOR_NOT_AVAILABLE:
	case KAFKA_COORDINATOR_LOAD_IN_PROGRESS:
	case KAFKA_REQUEST_TIMED_OUT:
	case KAFKA_UNKNOWN_TOPIC_OR_PARTITION: /* the topic is not made yet */
		find_again(member);
		break;
	default:
		world_violate(member->all->world, "answer", "member %u got error %d in step %d", member->index, error,
			(int)member->step);
	}
	return true;
}

/* ---- joining ---- */

static void send_find(struct sim_member *member)
{
	struct kafka_find_coordinator_request request = {.key = group_name};

	wire_send(&member->wire, KAFKA_FIND_COORDINATOR, FIND_COORDINATOR_VERSION, &request);
}

static void found(struct sim_member *member, const struct kafka_find_coordinator_response *response)
{
	struct hf_addr address;

	if (response->error_code != KAFKA_NONE || response->node_id < 1) {
		find_again(member);
		return;
	}
	member->broker = (unsigned)response->node_id - 1;
	address = address_of(member->broker);
	member->step = MEMBER_JOINS;
	wire_move(&member->wire, &address);
}

static void send_join(struct sim_member *member)
{
	struct kafka_join_group_request_join_group_request_protocol protocol = {
		.name = {"range", 5}, .metadata = {(const uint8_t *)"", 0}};
	struct kafka_join_group_request request = {.group_id = group_name,
		.session_timeout_ms = SIM_GROUP_SESSION_MS,
		.rebalance_timeout_ms = SIM_GROUP_REBALANCE_MS,
		.member_id = {member->id, (int32_t)strlen(member->id)},
		.group_instance_id = nothing,
		.protocol_type = {"consumer", 8},
		.protocols = {&protocol, 1}};

	wire_send(&member->wire, KAFKA_JOIN_GROUP, JOIN_VERSION, &request);
}

static void copy(char to[SIM_MEMBER_ID_BYTES], struct codec_string from)
{
	ensure(from.bytes >= 0 && from.bytes < (int32_t)SIM_MEMBER_ID_BYTES);
	memcpy(to, from.at, (size_t)from.bytes);
	to[from.bytes] = '\0';
}

static void note_id(struct sim_member *member)
{
	struct sim_group *group = member->all->group;

	for (unsigned i = 0; i < group->id_count; i++)
		if (strcmp(group->ids[i], member->id) == 0)
			world_violate(member->all->world, "ids", "the id %s is given away twice", member->id);
	if (group->id_count < GROUP_GENERATIONS_MAX)
		memcpy(group->ids[group->id_count++], member->id, SIM_MEMBER_ID_BYTES);
}

static void joined(struct sim_member *member, const struct kafka_join_group_response *response)
{
	if (response->error_code == KAFKA_MEMBER_ID_REQUIRED) {
		copy(member->id, response->member_id);
		note_id(member);
		return;
	}
	if (is_refused(member, response->error_code))
		return;
	member->generation = response->generation_id;
	copy(member->leader, response->leader);
	member->joined_count = 0;
	for (int32_t i = 0; i < response->members.count && member->joined_count <= SIM_MEMBERS; i++)
		copy(member->joined[member->joined_count++], response->members.at[i].member_id);
	member->leads = strcmp(member->leader, member->id) == 0;
	member->step = MEMBER_SYNCS;
}

/* The leader gives partition i to member i, of those that there are. */
static void send_sync(struct sim_member *member)
{
	struct kafka_sync_group_request_sync_group_request_assignment assignments[SIM_MEMBERS + 1];
	uint8_t parts[SIM_MEMBERS + 1][SIM_MEMBER_PARTITIONS] = {{0}};
	struct kafka_sync_group_request request = {.group_id = group_name,
		.generation_id = member->generation,
		.member_id = {member->id, (int32_t)strlen(member->id)},
		.group_instance_id = nothing,
		.assignments = {assignments, 0}};

	for (unsigned i = 0; member->leads && i < member->joined_count; i++) {
		for (unsigned k = 0; k < SIM_MEMBER_PARTITIONS; k++)
			parts[i][k] = k % member->joined_count == i;
		assignments[request.assignments.count++] =
			(struct kafka_sync_group_request_sync_group_request_assignment){
				.member_id = {member->joined[i], (int32_t)strlen(member->joined[i])},
				.assignment = {parts[i], SIM_MEMBER_PARTITIONS}};
	}
	wire_send(&member->wire, KAFKA_SYNC_GROUP, SYNC_VERSION, &request);
}

static void synced(struct sim_member *member, const struct kafka_sync_group_response *response)
{
	struct sim_group *group = member->all->group;

	if (is_refused(member, response->error_code))
		return;
	member->number = sim_group_number(group, member->generation, member->leader);
	member->step = MEMBER_BEGINS;
	for (unsigned i = 0; i < SIM_MEMBER_PARTITIONS; i++) {
		bool owned =
			response->assignment.bytes == (int32_t)SIM_MEMBER_PARTITIONS && response->assignment.at[i] != 0;

		member->partitions[i].owned = owned;
		member->partitions[i].asking = false; /* what was asked before is not read from the new position */
		group_assigned(&group->accounts[i], member->number);
		if (owned)
			group_owned(&group->accounts[i], member->number, member->index);
	}
}

/* ---- where to begin ---- */

static void send_offsets(struct sim_member *member)
{
	int32_t indexes[SIM_MEMBER_PARTITIONS];
	struct kafka_offset_fetch_request_offset_fetch_request_topic topic = {
		.name = topic_name, .partition_indexes = {indexes, SIM_MEMBER_PARTITIONS}};
	struct kafka_offset_fetch_request request = {.group_id = group_name, .topics = {&topic, 1}};

	for (unsigned i = 0; i < SIM_MEMBER_PARTITIONS; i++) {
		indexes[i] = (int32_t)i;
		member->partitions[i].floor = group_floor(&member->all->group->accounts[i]);
	}
	wire_send(&member->wire, KAFKA_OFFSET_FETCH, OFFSETS_VERSION, &request);
}

static void offsets_known(struct sim_member *member, const struct kafka_offset_fetch_response *response)
{
	if (is_refused(member, response->error_code))
		return;
	ensure(response->topics.count == 1 && response->topics.at[0].partitions.count == SIM_MEMBER_PARTITIONS);
	for (unsigned i = 0; i < SIM_MEMBER_PARTITIONS; i++) {
		const struct kafka_offset_fetch_response_offset_fetch_response_partition *at =
			&response->topics.at[0].partitions.at[i];
		struct member_partition *partition = &member->partitions[i];
		uint64_t offset = at->committed_offset < 0 ? 0 : (uint64_t)at->committed_offset;

		ensure(at->partition_index == (int32_t)i);
		if (is_refused(member, at->error_code))
			return;
		if (!partition->owned)
			continue;
		group_begins(&member->all->group->accounts[i], &partition->floor, member->number, offset);
		partition->position = partition->committed = offset;
	}
	member->step = MEMBER_WORKS;
}

/* ---- work ---- */

static bool send_commit(struct sim_member *member)
{
	struct kafka_offset_commit_request_offset_commit_request_partition partitions[SIM_MEMBER_PARTITIONS];
	struct kafka_offset_commit_request_offset_commit_request_topic topic = {
		.name = topic_name, .partitions = {partitions, 0}};
	struct kafka_offset_commit_request request = {.group_id = group_name,
		.generation_id_or_member_epoch = member->generation,
		.member_id = {member->id, (int32_t)strlen(member->id)},
		.group_instance_id = nothing,
		.topics = {&topic, 1}};

	for (unsigned i = 0; i < SIM_MEMBER_PARTITIONS; i++) {
		struct member_partition *partition = &member->partitions[i];

		if (!partition->owned || partition->position == partition->committed)
			continue;
		partitions[topic.partitions.count++] =
			(struct kafka_offset_commit_request_offset_commit_request_partition){
				.partition_index = (int32_t)i,
				.committed_offset = (int64_t)partition->position,
				.committed_leader_epoch = -1,
				.committed_metadata = nothing};
		partition->committing = partition->position;
		partition->assigned =
			group_commits(&member->all->group->accounts[i], member->number, partition->position);
	}
	if (topic.partitions.count > 0)
		wire_send(&member->wire, KAFKA_OFFSET_COMMIT, COMMIT_VERSION, &request);
	return topic.partitions.count > 0;
}

static void committed(struct sim_member *member, const struct kafka_offset_commit_response *response)
{
	ensure(response->topics.count == 1);
	for (int32_t i = 0; i < response->topics.at[0].partitions.count; i++) {
		int32_t index = response->topics.at[0].partitions.at[i].partition_index;
		struct member_partition *partition = &member->partitions[index];

		if (is_refused(member, response->topics.at[0].partitions.at[i].error_code))
			return;
		group_committed(&member->all->group->accounts[index], partition->assigned, member->number,
			partition->committing);
		partition->committed = partition->committing;
		member->all->group->commits++;
	}
}

static void send_heartbeat(struct sim_member *member)
{
	struct kafka_heartbeat_request request = {.group_id = group_name,
		.generation_id = member->generation,
		.member_id = {member->id, (int32_t)strlen(member->id)},
		.group_instance_id = nothing};

	wire_send(&member->wire, KAFKA_HEARTBEAT, HEARTBEAT_VERSION, &request);
}

static void send_leave(struct sim_member *member)
{
	struct kafka_leave_group_request request = {
		.group_id = group_name, .member_id = {member->id, (int32_t)strlen(member->id)}};

	wire_send(&member->wire, KAFKA_LEAVE_GROUP, LEAVE_VERSION, &request);
}

static void work(struct sim_member *member)
{
	struct world *world = member->all->world;

	if (member->stale) {
		member->stale = false;
		if (world_chance(world, 500000) && send_commit(member)) {
			member->stale = true; /* and then it joins */
			return;
		}
		give_up(member, MEMBER_JOINS);
		send_join(member);
	} else if (!member->all->settling && world_chance(world, 5000)) {
		send_leave(member);
	} else if (!world_chance(world, 600000) || !send_commit(member)) {
		send_heartbeat(member);
	}
}

static struct sim_member *member_of(struct wire *wire)
{
	return container_of(wire, struct sim_member, wire);
}

static void ready(struct wire *wire)
{
	struct sim_member *member = member_of(wire);

	switch (member->step) {
	case MEMBER_FINDS:
		send_find(member);
		break;
	case MEMBER_JOINS:
		send_join(member);
		break;
	case MEMBER_SYNCS:
		send_sync(member);
		break;
	case MEMBER_BEGINS:
		send_offsets(member);
		break;
	case MEMBER_WORKS:
		work(member);
		break;
	}
}

static void answered(struct wire *wire, const void *response)
{
	struct sim_member *member = member_of(wire);

	switch (wire->api->key) {
	case KAFKA_FIND_COORDINATOR:
		found(member, response);
		break;
	case KAFKA_JOIN_GROUP:
		joined(member, response);
		break;
	case KAFKA_SYNC_GROUP:
		synced(member, response);
		break;
	case KAFKA_OFFSET_FETCH:
		offsets_known(member, response);
		break;
	case KAFKA_OFFSET_COMMIT:
		committed(member, response);
		break;
	case KAFKA_HEARTBEAT:
		(void)is_refused(member, ((const struct kafka_heartbeat_response *)response)->error_code);
		break;
	case KAFKA_LEAVE_GROUP: /* and comes back as another one */
		member->id[0] = '\0';
		give_up(member, MEMBER_JOINS);
		break;
	default:
		ensure(false);
	}
	wire_rest(wire, world_range(member->all->world, NS_US, REST_NS_MAX));
}

/* The same again, at the coordinator or at whoever is it now. A commit that is in doubt is sent again with the next. */
static void broken(struct wire *wire)
{
	struct sim_member *member = member_of(wire);

	member->broker = (member->broker + 1) % member->all->count;
	wire->remote = address_of(member->broker);
	if (member->step != MEMBER_WORKS)
		give_up(member, MEMBER_FINDS);
}

/* ---- reading ---- */

static struct sim_member *reader_of(struct wire *wire)
{
	return container_of(wire, struct sim_member, data);
}

static void read_next(struct wire *wire)
{
	struct sim_member *member = reader_of(wire);
	unsigned index = member->turn++ % SIM_MEMBER_PARTITIONS;
	struct member_partition *at = &member->partitions[index];
	struct kafka_fetch_request_fetch_partition partition = {.partition = (int32_t)index,
		.current_leader_epoch = -1,
		.fetch_offset = (int64_t)at->position,
		.log_start_offset = -1,
		.partition_max_bytes = 1000};
	struct kafka_fetch_request_fetch_topic topic = {.topic = topic_name, .partitions = {&partition, 1}};
	struct kafka_fetch_request request = {.replica_id = -1,
		.max_wait_ms = FETCH_WAIT_MS,
		.min_bytes = 1,
		.max_bytes = 1 << 20,
		.session_epoch = -1,
		.topics = {&topic, 1},
		.rack_id = {"", 0}};

	at->asking = member->step == MEMBER_WORKS && at->owned;
	if (at->asking)
		wire_send(wire, KAFKA_FETCH, FETCH_VERSION, &request);
	else
		wire_rest(wire, world_range(member->all->world, NS_US, REST_NS_MAX));
}

static void read_elsewhere(struct sim_member *member)
{
	const struct hf_addr next = address_of(member->data_broker = (member->data_broker + 1) % member->all->count);

	wire_move(&member->data, &next);
}

static void read_done(struct wire *wire, const void *answer)
{
	struct sim_member *member = reader_of(wire);
	const struct kafka_fetch_response *response = answer;
	const struct kafka_fetch_response_partition_data *data = &response->responses.at[0].partitions.at[0];
	struct member_partition *partition = &member->partitions[data->partition_index];
	uint64_t next;

	wire_rest(wire, world_range(member->all->world, NS_US, REST_NS_MAX));
	if (data->error_code != KAFKA_NONE) {
		read_elsewhere(member);
		wire_rest(wire, world_range(member->all->world, NS_US, REST_NS_MAX));
	} else if (partition->asking && partition->owned && data->records.bytes > 0) {
		next = partition_read(&member->all->accounts[data->partition_index], partition->position,
			data->records.at, (size_t)data->records.bytes);
		group_gives(&member->all->group->accounts[data->partition_index], partition->position, next);
		partition->position = next;
	}
	partition->asking = false;
}

static void read_broken(struct wire *wire)
{
	struct sim_member *member = reader_of(wire);

	member->data_broker = (member->data_broker + 1) % member->all->count;
	wire->remote = address_of(member->data_broker);
}

/* ---- the program ---- */

static void open_wire(struct sim_member *member, struct hf_loop *loop, struct wire *wire, unsigned broker)
{
	const struct hf_addr remote = address_of(broker);
	struct hf_addr local;
	char text[HF_ADDR_TEXT];

	snprintf(text, sizeof(text), "10.0.0.%u", member->index + SIM_MEMBERS_FROM);
	ensure(hf_addr_parse(text, &local) == 0);
	wire->late_ns = LATE_NS;
	wire->again_ns = AGAIN_NS;
	wire_open(wire, loop, &local, &remote);
}

static int start(struct process *process, void *context)
{
	struct sim_member *member = context;
	struct hf_loop *loop;
	int rc = hf_loop_create(&process->env, &loop);

	if (rc != 0)
		return rc;
	member->id[0] = '\0';
	give_up(member, MEMBER_FINDS);
	member->wire.ready = ready;
	member->wire.answer = answered;
	member->wire.broken = broken;
	member->data.ready = read_next;
	member->data.answer = read_done;
	member->data.broken = read_broken;
	open_wire(member, loop, &member->wire, member->broker);
	open_wire(member, loop, &member->data, member->data_broker);
	return 0;
}

static void stop(struct process *process, void *context)
{
	struct sim_member *member = context;
	struct hf_loop *loop = member->wire.loop;

	(void)process;
	wire_close(&member->data);
	wire_close(&member->wire);
	hf_loop_destroy(loop);
}

static const struct program member_program = {.name = "member", .start = start, .stop = stop};

void sim_member_set_up(struct sim_member *member, struct broker_sim *all, unsigned index)
{
	static const char *const names[SIM_MEMBERS] = {"member0", "member1", "member2"};

	*member = (struct sim_member){.all = all, .index = index};
	host_init(&member->host, all->world, &all->network, names[index]);
	member->process = process_create(&member->host, names[index], &member_program, member);
	sim_rails_add_port(&member->host, index + SIM_MEMBERS_FROM, 0);
}
