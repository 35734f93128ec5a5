/* A broker and its controller: what commands of the cluster change here. */
#include "base/log.h"
#include "broker/broker.h"
#include "broker/groups/groups_log.h"

static void follow(struct broker *broker, const struct controller_topic *topic)
{
	struct hf_error error;

	if (topics_follow(&broker->topics, topic, broker_now_ms(broker), &error) != 0)
		log_error("broker: topic %s is not served: %s", topic->name, error.text);
	for (int32_t i = 0; broker->journal == NULL && i < topic->partitions; i++) {
		struct partition *partition = topics_partition(&broker->topics, request_text(topic->name), i);

		if (partition != NULL)
			replication_follow(&broker->replication, partition, topic, i);
	}
}

static void follow_all(struct broker *broker)
{
	for (unsigned i = 0; i < broker->controller.topic_count; i++)
		follow(broker, broker->controller.topics[i]);
}

const char *broker_check_made(struct broker *broker, struct codec_string name, bool is_new)
{
	const struct topic *topic = topics_find(&broker->topics, name);
	struct kafka_controller_command command;

	if (topic != NULL && !topic->missing)
		return NULL;
	if (!is_new)
		return "there is no room, or no descriptor, for the logs of the new partitions; the broker's log has "
		       "the "
		       "reason";
	codec_default(kafka_controller_command_codec.root, &command);
	command.kind = CONTROLLER_DELETE_TOPIC;
	command.topic = name;
	if (broker->journal != NULL)
		broker_propose(broker, &command, NULL);
	return "there is no room, or no descriptor, for the logs of the topic; the broker's log has the reason";
}

void broker_retry_missing(struct broker *broker)
{
	for (unsigned i = 0; i < broker->controller.topic_count; i++) {
		const struct topic *topic =
			topics_find(&broker->topics, request_text(broker->controller.topics[i]->name));

		if (topic != NULL && topic->missing && broker_is_member(broker))
			follow(broker, broker->controller.topics[i]);
	}
}

void broker_roles_changed(struct broker *broker)
{
	groups_follow(&broker->groups);
}

void broker_applied(
	struct broker *broker, const struct kafka_controller_command *command, const struct controller_result *result)
{
	if (result->error != KAFKA_NONE || result->repeated)
		return;
	if (command->kind == CONTROLLER_DELETE_TOPIC) {
		topics_delete(&broker->topics, command->topic);
		groups_log_forget_topic(&broker->groups, command->topic);
	} else if (command->kind == CONTROLLER_REGISTER_BROKER || command->kind == CONTROLLER_END_SESSION) {
		follow_all(broker);
	} else if (result->topic != NULL) {
		follow(broker, result->topic);
	}
	groups_follow(&broker->groups);
}

/* All commands before the own registration are applied. */
void broker_joined(struct broker *broker)
{
	broker_name_cluster(broker);
	log_marks_go_on(broker->marks, controller_broker(&broker->controller, broker->config.node_id)->life);
	topics_known(&broker->topics, &broker->controller);
}

void broker_restored(struct broker *broker)
{
	topics_drop_unknown(&broker->topics, &broker->controller);
	follow_all(broker);
	groups_follow(&broker->groups);
}

void broker_propose(struct broker *broker, const struct kafka_controller_command *command, struct proposal *proposal)
{
	struct controller_result result;

	if (broker->journal == NULL) {
		quorum_propose(&broker->quorum, command, proposal);
		return;
	}
	journal_propose(broker->journal, command, &result);
	broker_applied(broker, command, &result);
	if (proposal != NULL)
		proposal->done(proposal, &result);
}

void broker_registration(const struct broker *broker, struct kafka_controller_command_command_endpoint *endpoints,
	struct kafka_controller_command *command)
{
	codec_default(kafka_controller_command_codec.root, command);
	for (unsigned i = 0; i < broker->config.listeners.count; i++) {
		const struct broker_endpoint *from = broker_endpoint(broker, i);

		endpoints[i] = (struct kafka_controller_command_command_endpoint){
			.name = request_text(from->name), .host = request_text(from->host), .port = from->port};
	}
	command->kind = CONTROLLER_REGISTER_BROKER;
	command->broker = broker->config.node_id;
	command->endpoints.at = endpoints;
	command->endpoints.count = (int32_t)broker->config.listeners.count;
	command->cluster_id = request_text(broker->cluster_id);
	command->unclean_election = broker->defaults.log.unclean_election;
	command->flushes_each = broker->defaults.log.flush_messages == 1;
	hf_env_entropy(broker->env, command->topic_id.byte, sizeof(command->topic_id.byte));
}

const struct controller_endpoint *broker_endpoint_of(const struct broker *broker, int32_t node, unsigned index)
{
	const struct controller_broker *at = controller_broker(&broker->controller, node);

	return at == NULL || !at->alive || index >= at->endpoint_count ? NULL : &at->endpoints[index];
}

enum kafka_error broker_range_error(const struct broker *broker, enum kafka_error error)
{
	return error == KAFKA_OFFSET_OUT_OF_RANGE && !broker_has_lease(broker) ? KAFKA_NOT_LEADER_OR_FOLLOWER : error;
}

struct partition *broker_find_led(
	const struct broker *broker, struct codec_string topic, int32_t index, enum kafka_error *error_out)
{
	const struct controller_topic *known = controller_find(&broker->controller, topic);
	struct partition *partition = topics_partition(&broker->topics, topic, index);

	if (known == NULL || index < 0 || index >= known->partitions)
		*error_out = KAFKA_UNKNOWN_TOPIC_OR_PARTITION;
	else if (known->at[index].leader != broker->config.node_id || !broker_is_member(broker))
		*error_out = KAFKA_NOT_LEADER_OR_FOLLOWER;
	else if (partition == NULL || partition_log_is_damaged(partition->log))
		*error_out = KAFKA_STORAGE_ERROR;
	else
		*error_out = partition->leads ? KAFKA_NONE : KAFKA_NOT_LEADER_OR_FOLLOWER;
	return *error_out == KAFKA_NONE ? partition : NULL;
}

static void create(struct broker *broker, struct kafka_controller_command *command, struct proposal *proposal)
{
	struct controller_result result;

	/* What would be refused does not get into the journal. */
	controller_check(&broker->controller, command, &result);
	if (result.error == KAFKA_NONE)
		broker_propose(broker, command, proposal);
	else if (proposal != NULL)
		proposal->done(proposal, &result);
}

void broker_create_topic(struct broker *broker, struct codec_string name, int32_t partitions, struct proposal *proposal)
{
	struct kafka_controller_command command;

	codec_default(kafka_controller_command_codec.root, &command);
	command.kind = CONTROLLER_CREATE_TOPIC;
	command.topic = name;
	command.partitions = partitions;
	command.replication_factor = broker->config.replication_factor;
	hf_env_entropy(broker->env, command.topic_id.byte, sizeof(command.topic_id.byte));
	create(broker, &command, proposal);
}

void broker_create_offsets(struct broker *broker, struct proposal *proposal)
{
	/* What is not needed any more is given up by snapshots, not by time. */
	static struct kafka_controller_command_command_config configs[] = {
		{{"retention.ms", 12}, {"-1", 2}},
		{{"retention.bytes", 15}, {"-1", 2}},
		{{"segment.bytes", 13}, {"16777216", 8}},
		{{"max.message.bytes", 17}, {"1048588", 7}},
	};
	struct kafka_controller_command command;
	/* Of all that are to be, not of those that have come: until then there is no coordinator. */
	unsigned brokers = broker->config.voters.count > 0 ? broker->config.voters.count : 1;

	codec_default(kafka_controller_command_codec.root, &command);
	command.kind = CONTROLLER_CREATE_TOPIC;
	command.topic = request_text(GROUPS_TOPIC);
	command.partitions = 1;
	command.replication_factor = broker->config.offsets_replication_factor;
	if (command.replication_factor > (int16_t)brokers)
		command.replication_factor = (int16_t)brokers;
	command.configs.at = configs;
	command.configs.count = sizeof(configs) / sizeof(*configs);
	hf_env_entropy(broker->env, command.topic_id.byte, sizeof(command.topic_id.byte));
	create(broker, &command, proposal);
}
