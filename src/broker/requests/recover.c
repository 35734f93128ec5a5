/* Recover: what the replicas of partitions without a leader have, and an operator's choice among them (R-D11). */
#include "broker/requests/decisions.h"

static void refuse(struct kafka_recover_response *response, enum kafka_error error, const char *message)
{
	if (response->error_code != KAFKA_NONE && response->error_code != (int16_t)DECISIONS_LATE)
		return;
	response->error_code = (int16_t)error;
	response->error_message = request_text(message);
}

/* ---- showing ---- */

static void show_replica(const struct controller *controller, const struct controller_topic *topic, int32_t partition,
	int32_t broker, struct kafka_recover_response_recover_replica *out)
{
	const struct controller_report *report = controller_reported(controller, topic, partition, broker);

	*out = (struct kafka_recover_response_recover_replica){
		.broker = broker, .in_sync = controller_set_has(&topic->at[partition].isr, broker)};
	if (report == NULL)
		return;
	out->incarnation = report->incarnation;
	out->damaged = report->damaged;
	out->kept = report->kept;
	out->last_epoch = report->last_epoch;
	out->start = report->start;
	out->end = report->end;
	out->synced = report->synced;
	out->hw_epoch = report->hw_epoch;
	out->hw = report->hw;
}

static void show_partition(struct request *request, const struct controller_topic *topic, int32_t index,
	struct kafka_recover_response_recover_partition *out)
{
	const struct controller *controller = &request->broker->controller;
	const struct controller_partition *partition = &topic->at[index];
	const struct controller_report *choice = controller_choose(controller, topic, index);

	*out = (struct kafka_recover_response_recover_partition){.partition = index,
		.partition_epoch = partition->epoch,
		.leader_epoch = partition->leader_epoch,
		.choice = choice == NULL ? -1 : choice->broker,
		.known_hw = controller_known_hw(controller, topic, index)};
	codec_arena_array(&request->arena, &out->replicas, (int32_t)partition->replicas.count);
	for (int32_t i = 0; i < out->replicas.count; i++)
		show_replica(controller, topic, index, partition->replicas.at[i], &out->replicas.at[i]);
}

static void show(struct request *request, const struct controller_topic *topic, struct kafka_recover_response *response)
{
	int32_t count = 0;

	for (int32_t i = 0; i < topic->partitions; i++)
		count += topic->at[i].leader < 0;
	codec_arena_array(&request->arena, &response->partitions, count);
	count = 0;
	for (int32_t i = 0; i < topic->partitions && count < response->partitions.count; i++)
		if (topic->at[i].leader < 0)
			show_partition(request, topic, i, &response->partitions.at[count++]);
}

/* ---- choosing ---- */

static void decided(struct decisions *decisions, int32_t place, const struct controller_result *result)
{
	(void)place;
	if (result->error != KAFKA_NONE)
		refuse(decisions->response, result->error, result->message);
}

static void finish(struct decisions *decisions)
{
	struct kafka_recover_response *response = decisions->response;

	if (decisions->left == 0 && response->error_code == (int16_t)DECISIONS_LATE)
		response->error_code = KAFKA_NONE;
	request_answer(decisions->request, response);
}

static void choose(struct decisions *decisions, int32_t place, const struct controller_topic *topic,
	const struct kafka_recover_request_recover_choice *choice)
{
	struct kafka_controller_command command;

	codec_default(kafka_controller_command_codec.root, &command);
	command.kind = CONTROLLER_RECOVER;
	command.topic_id = topic->id;
	command.partition = choice->partition;
	command.partition_epoch = choice->partition_epoch;
	command.target = choice->broker;
	command.target_incarnation = choice->incarnation;
	decisions_propose(decisions, place, &command);
}

void recover_handle(struct request *request)
{
	const struct kafka_recover_request *body = request->body;
	const struct broker *broker = request->broker;
	const struct controller_topic *topic = controller_find(&broker->controller, body->topic);
	int32_t count = topic == NULL || !broker_is_member(broker) ? 0 : body->choices.count;
	struct decisions *decisions =
		decisions_begin(request, sizeof(struct kafka_recover_response), count, decided, finish);
	struct kafka_recover_response *response = decisions == NULL ? NULL : decisions->response;

	if (response == NULL)
		return;
	codec_default(kafka_recover_response_codec.root, response);
	response->error_message = request_text(NULL);
	if (!broker_is_member(broker))
		refuse(response, KAFKA_NOT_CONTROLLER, "this broker has not joined the cluster");
	else if (topic == NULL)
		refuse(response, KAFKA_UNKNOWN_TOPIC_OR_PARTITION, NULL);
	else if (count == 0)
		show(request, topic, response);
	else
		response->error_code = (int16_t)DECISIONS_LATE;
	for (int32_t i = 0; i < count; i++)
		choose(decisions, i, topic, &body->choices.at[i]);
	decisions_end(decisions, request_timeout_ns(body->timeout_ms));
}
