/* Brokers of the cluster: their sessions, their partitions, and the leaders of these. */
#include "broker/controller/controller.h"

#include <string.h>

#include "base/ensure.h"
#include "broker/log/batch.h"

/* ---- sets ---- */

bool controller_set_has(const struct controller_set *set, int32_t broker)
{
	for (unsigned i = 0; i < set->count; i++)
		if (set->at[i] == broker)
			return true;
	return false;
}

static void set_remove(struct controller_set *set, int32_t broker)
{
	unsigned kept = 0;

	for (unsigned i = 0; i < set->count; i++)
		if (set->at[i] != broker)
			set->at[kept++] = set->at[i];
	set->count = kept;
}

const struct controller_broker *controller_broker(const struct controller *controller, int32_t id)
{
	for (unsigned i = 0; i < controller->broker_count; i++)
		if (controller->brokers[i].id == id)
			return &controller->brokers[i];
	return NULL;
}

static bool is_alive(const struct controller *controller, int32_t id)
{
	const struct controller_broker *broker = controller_broker(controller, id);

	return broker != NULL && broker->alive;
}

/* ---- leaders ---- */

/* The first living one of these in the order of the replicas; -1: none. */
static int32_t first_of(const struct controller *controller, const struct controller_partition *partition,
	const struct controller_set *set)
{
	for (unsigned i = 0; i < partition->replicas.count; i++)
		if (controller_set_has(set, partition->replicas.at[i]) &&
			is_alive(controller, partition->replicas.at[i]))
			return partition->replicas.at[i];
	return -1;
}

/* A member of the isr, in the next epoch. Where the topic allows it any replica, which is the isr then: what others had
 * beyond its log is lost. A member whose log is gone is the last choice. */
static void elect(
	const struct controller *controller, const struct topic_config *config, struct controller_partition *partition)
{
	struct controller_set others = partition->replicas;

	if (partition->emptied)
		for (unsigned i = 0; i < partition->isr.count; i++)
			set_remove(&others, partition->isr.at[i]);
	partition->leader = partition->emptied ? -1 : first_of(controller, partition, &partition->isr);
	if (partition->leader < 0 && topic_config_unclean_election(config, controller->unclean_election)) {
		partition->leader = first_of(controller, partition, &others);
		if (partition->leader < 0)
			partition->leader = first_of(controller, partition, &partition->replicas);
		if (partition->leader >= 0)
			partition->isr = (struct controller_set){.at = {partition->leader}, .count = 1};
	}
	if (partition->leader >= 0)
		partition->doubtful = partition->emptied = false;
	do
		partition->leader_epoch++;
	while (!batch_epoch_is_whole(partition->leader_epoch));
}

typedef void act_on_partition(struct controller *controller, const struct topic_config *config,
	struct controller_partition *partition, int32_t broker);

static void each_partition(struct controller *controller, int32_t broker, act_on_partition *act)
{
	for (unsigned i = 0; i < controller->topic_count; i++)
		for (int32_t k = 0; k < controller->topics[i]->partitions; k++)
			act(controller, &controller->topics[i]->config, &controller->topics[i]->at[k], broker);
}

static void leave(struct controller *controller, const struct topic_config *config,
	struct controller_partition *partition, int32_t broker)
{
	bool led = partition->leader == broker;
	bool was_member = partition->isr.count > 1 && controller_set_has(&partition->isr, broker);

	if (was_member)
		set_remove(&partition->isr, broker);
	if (led)
		elect(controller, config, partition);
	partition->epoch += led || was_member;
}

/* It has everything that it had: it keeps its place in the isr, and leads again what it led. */
static void stay(struct controller *controller, const struct topic_config *config,
	struct controller_partition *partition, int32_t broker)
{
	if (partition->leader != broker)
		return;
	elect(controller, config, partition);
	partition->epoch++;
}

static void come_back(struct controller *controller, const struct topic_config *config,
	struct controller_partition *partition, int32_t broker)
{
	if (partition->leader >= 0 || partition->doubtful || !controller_set_has(&partition->isr, broker))
		return;
	elect(controller, config, partition);
	partition->epoch++;
}

/* What it had acknowledged is on its disk only where each record was flushed. Elsewhere its log may be short, and stays
 * so when it comes back again. */
static void come_back_short(struct controller *controller, const struct topic_config *config,
	struct controller_partition *partition, int32_t broker)
{
	if (topic_config_flushes_each(config, controller_broker(controller, broker)->flushes_each))
		come_back(controller, config, partition, broker);
	partition->doubtful |= partition->leader < 0 && controller_set_has(&partition->isr, broker);
}

/* Its disk is another one: it has nothing of what it had acknowledged. */
static void come_back_empty(struct controller *controller, const struct topic_config *config,
	struct controller_partition *partition, int32_t broker)
{
	(void)controller, (void)config;
	if (partition->leader < 0 && controller_set_has(&partition->isr, broker))
		partition->doubtful = partition->emptied = true;
}

/* Where the topic allows it, whatever it has will do. */
static void come_back_unclean(struct controller *controller, const struct topic_config *config,
	struct controller_partition *partition, int32_t broker)
{
	if (partition->leader >= 0 || !topic_config_unclean_election(config, controller->unclean_election) ||
		!controller_set_has(&partition->replicas, broker))
		return;
	elect(controller, config, partition);
	partition->epoch++;
}

void controller_allow_unclean(struct controller *controller, struct controller_topic *topic)
{
	for (int32_t i = 0; i < topic->partitions; i++)
		for (unsigned k = 0; k < topic->at[i].replicas.count; k++)
			if (is_alive(controller, topic->at[i].replicas.at[k]))
				come_back_unclean(
					controller, &topic->config, &topic->at[i], topic->at[i].replicas.at[k]);
}

/* ---- commands ---- */

static void refuse(struct controller_result *result, enum kafka_error error, const char *message)
{
	result->error = error;
	result->message = message;
}

static struct controller_broker *find_or_add(struct controller *controller, int32_t id)
{
	unsigned place = 0;

	while (place < controller->broker_count && controller->brokers[place].id < id)
		place++;
	if (place < controller->broker_count && controller->brokers[place].id == id)
		return &controller->brokers[place];
	if (controller->broker_count == CONTROLLER_BROKERS_MAX)
		return NULL;
	memmove(controller->brokers + place + 1, controller->brokers + place,
		(controller->broker_count - place) * sizeof(*controller->brokers));
	controller->broker_count++;
	controller->brokers[place] = (struct controller_broker){.id = id};
	return &controller->brokers[place];
}

static void copy_text(char *to, size_t room, struct codec_string from)
{
	size_t bytes = from.bytes < 0 ? 0 : (size_t)from.bytes < room ? (size_t)from.bytes : room - 1;

	if (bytes > 0)
		memcpy(to, from.at, bytes);
	to[bytes] = '\0';
}

static void register_broker(
	struct controller *controller, const struct kafka_controller_command *command, struct controller_result *result)
{
	struct controller_broker *broker;
	bool empty, anew, whole; /* empty: its directory names no cluster yet */

	if (controller->cluster_id[0] != '\0' && command->cluster_id.bytes > 0 &&
		codec_compare(controller->cluster_id, command->cluster_id) != 0) {
		refuse(result, KAFKA_INCONSISTENT_CLUSTER_ID, "log.dirs belongs to another cluster");
		return;
	}
	broker = find_or_add(controller, command->broker);
	if (broker == NULL) {
		refuse(result, KAFKA_INVALID_REQUEST, "a cluster has at most 7 brokers");
		return;
	}
	if (broker->alive && broker->incarnation != command->incarnation && command->ended >= 0 &&
		broker->incarnation != command->ended) {
		refuse(result, KAFKA_DUPLICATE_BROKER_REGISTRATION, "another process of this broker has a session");
		return;
	}
	if (controller->cluster_id[0] == '\0' && command->cluster_id.bytes > 0)
		copy_text(controller->cluster_id, sizeof(controller->cluster_id), command->cluster_id);
	else if (controller->cluster_id[0] == '\0')
		(void)controller_id_text(command->topic_id, controller->cluster_id);
	anew = broker->incarnation != command->incarnation || !broker->alive;
	empty = command->cluster_id.bytes <= 0 && broker->incarnation != command->incarnation;
	/* An older copy of its directory tells the truth about another time. */
	whole = command->whole && (broker->life == 0 || command->life > broker->life);
	if (anew && (empty || !whole)) {
		broker->alive = false;
		each_partition(controller, broker->id, leave);
	}
	*broker = (struct controller_broker){.id = command->broker,
		.incarnation = command->incarnation,
		.alive = true,
		.flushes_each = broker->flushes_each,
		.life = command->life > broker->life ? command->life : broker->life};
	for (int32_t i = 0; i < command->endpoints.count && i < (int32_t)CONTROLLER_LISTENERS_MAX; i++) {
		struct controller_endpoint *endpoint = &broker->endpoints[broker->endpoint_count++];

		copy_text(endpoint->name, sizeof(endpoint->name), command->endpoints.at[i].name);
		copy_text(endpoint->host, sizeof(endpoint->host), command->endpoints.at[i].host);
		endpoint->port = command->endpoints.at[i].port;
	}
	if (anew && !empty && whole)
		each_partition(controller, broker->id, stay);
	each_partition(controller, broker->id, empty ? come_back_empty : whole ? come_back : come_back_short);
	broker->flushes_each = command->flushes_each; /* what its log has was written under the value before */
	controller->unclean_election = command->unclean_election;
	for (unsigned i = 0; i < controller->topic_count; i++)
		controller_allow_unclean(controller, controller->topics[i]);
}

static void end_session(
	struct controller *controller, const struct kafka_controller_command *command, struct controller_result *result)
{
	const struct controller_broker *known = controller_broker(controller, command->target);

	if (known == NULL || !known->alive || known->incarnation != command->target_incarnation) {
		refuse(result, KAFKA_INVALID_REQUEST, "this session is over already");
		return;
	}
	find_or_add(controller, command->target)->alive = false;
	each_partition(controller, command->target, leave);
}

/* All members are replicas that live, in the incarnation that was meant. */
static const char *read_isr(const struct controller *controller, const struct kafka_controller_command *command,
	const struct controller_partition *partition, struct controller_set *isr)
{
	*isr = (struct controller_set){0};
	for (int32_t i = 0; i < command->isr.count; i++) {
		int32_t id = command->isr.at[i].broker;
		const struct controller_broker *broker = controller_broker(controller, id);

		if (controller_set_has(isr, id) || !controller_set_has(&partition->replicas, id) || broker == NULL ||
			!broker->alive)
			return "a member of the isr is a living replica";
		if (!controller_set_has(&partition->isr, id) && broker->incarnation != command->isr.at[i].incarnation)
			return "another incarnation of the broker has caught up";
		isr->at[isr->count++] = id;
	}
	return controller_set_has(isr, partition->leader) ? NULL : "the leader is a member of the isr";
}

/* The partition, if its leader says so and knows it; NULL: refused. */
static struct controller_partition *led_by(const struct kafka_controller_command *command,
	const struct controller_topic *topic, struct controller_result *result)
{
	struct controller_partition *partition;

	if (topic == NULL || command->partition < 0 || command->partition >= topic->partitions) {
		refuse(result, KAFKA_UNKNOWN_TOPIC_OR_PARTITION, "there is no such partition");
		return NULL;
	}
	partition = &topic->at[command->partition];
	if (partition->leader != command->broker || partition->leader_epoch != command->leader_epoch) {
		refuse(result, KAFKA_FENCED_LEADER_EPOCH, "another broker leads");
		return NULL;
	}
	if (partition->epoch != command->partition_epoch) {
		refuse(result, KAFKA_INVALID_UPDATE_VERSION, "the partition has changed");
		return NULL;
	}
	return partition;
}

static void set_isr(
	struct controller *controller, const struct kafka_controller_command *command, struct controller_result *result)
{
	const struct controller_topic *topic = controller_find_id(controller, command->topic_id);
	struct controller_partition *partition = led_by(command, topic, result);
	struct controller_set isr;
	const char *wrong;

	if (partition == NULL)
		return;
	wrong = read_isr(controller, command, partition, &isr);
	if (wrong != NULL) {
		refuse(result, KAFKA_INVALID_REQUEST, wrong);
		return;
	}
	partition->isr = isr;
	partition->epoch++;
	result->topic = topic;
}

/* Its log is damaged, and no other one is in sync: it leads again once it has come back whole. */
static void give_up(struct controller_partition *partition)
{
	partition->leader = -1;
	do
		partition->leader_epoch++;
	while (!batch_epoch_is_whole(partition->leader_epoch));
	partition->epoch++;
}

/* Of partitions that have no leader; others are not wanted any more. */
static void take_reports(
	struct controller *controller, const struct kafka_controller_command *command, struct controller_result *result)
{
	for (int32_t i = 0; i < command->reports.count; i++) {
		const struct kafka_controller_command_command_report *from = &command->reports.at[i];
		const struct controller_topic *topic = controller_find_id(controller, from->topic_id);
		const struct controller_report report = {.topic = from->topic_id,
			.partition = from->partition,
			.broker = command->broker,
			.leader_epoch = from->leader_epoch,
			.incarnation = command->incarnation,
			.damaged = from->damaged,
			.kept = from->kept,
			.last_epoch = from->last_epoch,
			.start = from->start,
			.end = from->end,
			.synced = from->synced,
			.hw_epoch = from->hw_epoch,
			.hw = from->hw};

		if (topic == NULL || from->partition < 0 || from->partition >= topic->partitions ||
			topic->at[from->partition].leader >= 0 ||
			!controller_set_has(&topic->at[from->partition].replicas, command->broker))
			continue;
		if (!controller_report(controller, &report))
			refuse(result, KAFKA_STORAGE_ERROR, "there is no room for another report");
	}
}

/* NULL; or why the choice is not that of now. */
static const char *check_choice(const struct controller *controller, const struct kafka_controller_command *command,
	const struct controller_topic *topic)
{
	const struct controller_partition *partition;
	const struct controller_report *report;

	if (topic == NULL || command->partition < 0 || command->partition >= topic->partitions)
		return "there is no such partition";
	partition = &topic->at[command->partition];
	if (partition->leader >= 0)
		return "the partition has a leader";
	if (partition->epoch != command->partition_epoch)
		return "the partition has changed since; look again";
	report = controller_reported(controller, topic, command->partition, command->target);
	return report == NULL || report->incarnation != command->target_incarnation
		       ? "that replica has ended, or started again, since; look again"
		       : NULL;
}

/* An operator accepts what is lost: the chosen replica is the isr. */
static void recover(
	struct controller *controller, const struct kafka_controller_command *command, struct controller_result *result)
{
	const struct controller_topic *topic = controller_find_id(controller, command->topic_id);
	const char *wrong = check_choice(controller, command, topic);
	struct controller_partition *partition;

	if (wrong != NULL) {
		refuse(result, KAFKA_INVALID_REQUEST, wrong);
		return;
	}
	partition = &topic->at[command->partition];
	partition->isr = (struct controller_set){.at = {command->target}, .count = 1};
	partition->emptied = false;
	elect(controller, &topic->config, partition);
	partition->recovered_epoch = partition->leader_epoch;
	partition->epoch++;
	result->topic = topic;
}

static void resign(
	struct controller *controller, const struct kafka_controller_command *command, struct controller_result *result)
{
	const struct controller_topic *topic = controller_find_id(controller, command->topic_id);
	struct controller_partition *partition = led_by(command, topic, result);

	if (partition == NULL)
		return;
	if (partition->isr.count < 2 && !command->damaged) {
		refuse(result, KAFKA_INVALID_REQUEST, "no other replica is in sync");
		return;
	}
	if (partition->isr.count < 2)
		give_up(partition);
	else
		leave(controller, &topic->config, partition, command->broker);
	result->topic = topic;
}

void controller_apply_broker(
	struct controller *controller, const struct kafka_controller_command *command, struct controller_result *result)
{
	if (command->kind == CONTROLLER_REGISTER_BROKER)
		register_broker(controller, command, result);
	else if (command->kind == CONTROLLER_END_SESSION)
		end_session(controller, command, result);
	else if (command->kind == CONTROLLER_RESIGN)
		resign(controller, command, result);
	else if (command->kind == CONTROLLER_REPORT)
		take_reports(controller, command, result);
	else if (command->kind == CONTROLLER_RECOVER)
		recover(controller, command, result);
	else
		set_isr(controller, command, result);
}

/* ---- placing ---- */

/* The isr is those that live; when none does, all wait for the first one. */
static void begin(const struct controller *controller, struct controller_partition *partition)
{
	partition->isr.count = 0;
	for (unsigned i = 0; i < partition->replicas.count; i++)
		if (is_alive(controller, partition->replicas.at[i]))
			partition->isr.at[partition->isr.count++] = partition->replicas.at[i];
	if (partition->isr.count == 0)
		partition->isr = partition->replicas;
	partition->leader = first_of(controller, partition, &partition->isr);
	partition->leader_epoch = 0;
}

static const char *assign(const struct controller *controller, const struct kafka_controller_command *command,
	int32_t i, struct controller_partition *partition)
{
	for (int32_t k = 0; k < command->assignments.at[i].brokers.count; k++) {
		int32_t id = command->assignments.at[i].brokers.at[k];

		/* Different ones that are registered are no more than there is room for. */
		if (controller_broker(controller, id) == NULL || controller_set_has(&partition->replicas, id))
			return "the replicas of a partition are different brokers that are registered";
		partition->replicas.at[partition->replicas.count++] = id;
	}
	return partition->replicas.count > 0 ? NULL : "a partition has a replica at least";
}

/* Living brokers first, each partition beginning at the next one. */
static void spread(const struct controller *controller, unsigned factor, unsigned turn, struct controller_set *replicas)
{
	int32_t order[CONTROLLER_BROKERS_MAX];
	unsigned living = 0, count = 0;

	for (unsigned i = 0; i < controller->broker_count; i++)
		if (controller->brokers[i].alive)
			order[count++] = controller->brokers[i].id;
	living = count;
	for (unsigned i = 0; i < controller->broker_count; i++)
		if (!controller->brokers[i].alive)
			order[count++] = controller->brokers[i].id;
	for (unsigned i = 0; i < factor; i++)
		replicas->at[replicas->count++] = i < living ? order[(turn + i) % living] : order[i];
}

const char *controller_place(const struct controller *controller, const struct kafka_controller_command *command,
	struct controller_partition *partitions, int32_t from, int32_t to, enum kafka_error *error_out)
{
	unsigned factor = command->replication_factor < 1 ? 1u : (unsigned)command->replication_factor;
	unsigned turn = command->kind == CONTROLLER_CREATE_TOPIC ? command->topic_id.byte[0] : 0;
	const char *wrong = NULL;

	if (command->assignments.count > 0 && command->assignments.count != to - from) {
		*error_out = KAFKA_INVALID_REPLICA_ASSIGNMENT;
		return "every new partition is assigned, or none";
	}
	if (command->assignments.count <= 0 && controller->broker_count > 0 && factor > controller->broker_count) {
		*error_out = KAFKA_INVALID_REPLICATION_FACTOR;
		return "there are not as many brokers";
	}
	for (int32_t i = from; i < to && wrong == NULL; i++) {
		struct controller_partition made = {.leader = -1};

		if (command->assignments.count > 0)
			wrong = assign(controller, command, i - from, &made);
		else if (controller->broker_count > 0)
			spread(controller, factor, turn + (unsigned)i, &made.replicas);
		begin(controller, &made);
		if (partitions != NULL && wrong == NULL)
			partitions[i] = made;
	}
	if (wrong != NULL)
		*error_out = KAFKA_INVALID_REPLICA_ASSIGNMENT;
	return wrong;
}
