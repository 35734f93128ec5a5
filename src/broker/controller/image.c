/* The controller's state as bytes (commands/ControllerImage.json). */
#include <stdio.h>
#include <string.h>

#include "broker/controller/controller.h"

#define VERSION     0
#define IMAGE_BYTES (1u << 30)

static struct codec_string text_of(const char *text)
{
	return (struct codec_string){text, (int32_t)strlen(text)};
}

/* ---- saving ---- */

static bool save_broker(
	const struct controller_broker *from, struct codec_arena *arena, struct kafka_controller_image_image_broker *to)
{
	*to = (struct kafka_controller_image_image_broker){.id = from->id,
		.incarnation = from->incarnation,
		.alive = from->alive,
		.sequence = from->sequence,
		.error = (int16_t)from->error,
		.first_producer_id = from->first_producer_id,
		.flushes_each = from->flushes_each,
		.life = from->life};
	to->endpoints.at = codec_arena_take_array(arena, from->endpoint_count, sizeof(*to->endpoints.at));
	if (to->endpoints.at == NULL)
		return false;
	to->endpoints.count = (int32_t)from->endpoint_count;
	for (unsigned i = 0; i < from->endpoint_count; i++)
		to->endpoints.at[i] =
			(struct kafka_controller_image_image_endpoint){.name = text_of(from->endpoints[i].name),
				.host = text_of(from->endpoints[i].host),
				.port = from->endpoints[i].port};
	return true;
}

static bool save_topic(
	const struct controller_topic *from, struct codec_arena *arena, struct kafka_controller_image_image_topic *to)
{
	*to = (struct kafka_controller_image_image_topic){.name = text_of(from->name), .id = from->id};
	to->configs.at = codec_arena_take_array(arena, TOPIC_CONFIG_KEYS, sizeof(*to->configs.at));
	to->partitions.at = codec_arena_take_array(arena, (size_t)from->partitions, sizeof(*to->partitions.at));
	if (to->configs.at == NULL || to->partitions.at == NULL)
		return false;
	for (unsigned i = 0; i < TOPIC_CONFIG_KEYS; i++) {
		char text[TOPIC_CONFIG_TEXT_BYTES];
		const char *value;

		if ((from->config.set & 1u << i) == 0)
			continue;
		value = codec_arena_format(arena, "%s", topic_config_text(&from->config, i, text));
		if (value == NULL)
			return false;
		to->configs.at[to->configs.count++] = (struct kafka_controller_image_image_config){
			.name = text_of(topic_config_name(i)), .value = text_of(value)};
	}
	to->partitions.count = from->partitions;
	for (int32_t i = 0; i < from->partitions; i++) {
		struct controller_partition *partition = &from->at[i];

		to->partitions.at[i] = (struct kafka_controller_image_image_partition){
			.replicas = {partition->replicas.at, (int32_t)partition->replicas.count},
			.isr = {partition->isr.at, (int32_t)partition->isr.count},
			.leader = partition->leader,
			.leader_epoch = partition->leader_epoch,
			.epoch = partition->epoch,
			.doubtful = partition->doubtful,
			.emptied = partition->emptied,
			.recovered_epoch = partition->recovered_epoch};
	}
	return true;
}

static bool save_reports(
	const struct controller *controller, struct codec_arena *arena, struct kafka_controller_image *image)
{
	image->reports.at = codec_arena_take_array(arena, controller->report_count, sizeof(*image->reports.at));
	for (unsigned i = 0; image->reports.at != NULL && i < controller->report_count; i++) {
		const struct controller_report *from = &controller->reports[i];

		image->reports.at[image->reports.count++] =
			(struct kafka_controller_image_image_report){.topic_id = from->topic,
				.partition = from->partition,
				.broker = from->broker,
				.incarnation = from->incarnation,
				.leader_epoch = from->leader_epoch,
				.damaged = from->damaged,
				.kept = from->kept,
				.last_epoch = from->last_epoch,
				.start = from->start,
				.end = from->end,
				.synced = from->synced,
				.hw_epoch = from->hw_epoch,
				.hw = from->hw};
	}
	return image->reports.at != NULL;
}

size_t controller_save(const struct controller *controller, struct codec_arena *arena, uint8_t **data_out)
{
	struct kafka_controller_image image = {.cluster_id = text_of(controller->cluster_id),
		.next_producer_id = controller->next_producer_id,
		.unclean_election = controller->unclean_election};

	image.brokers.at = codec_arena_take_array(arena, controller->broker_count, sizeof(*image.brokers.at));
	image.topics.at = codec_arena_take_array(arena, controller->topic_count, sizeof(*image.topics.at));
	if (image.brokers.at == NULL || image.topics.at == NULL)
		return 0;
	image.brokers.count = (int32_t)controller->broker_count;
	image.topics.count = (int32_t)controller->topic_count;
	for (unsigned i = 0; i < controller->broker_count; i++)
		if (!save_broker(&controller->brokers[i], arena, &image.brokers.at[i]))
			return 0;
	for (unsigned i = 0; i < controller->topic_count; i++)
		if (!save_topic(controller->topics[i], arena, &image.topics.at[i]))
			return 0;
	if (!save_reports(controller, arena, &image))
		return 0;
	return codec_encode(&kafka_controller_image_codec, VERSION, &image, arena, 0, data_out, NULL);
}

/* ---- loading ---- */

static bool load_text(char *to, size_t room, struct codec_string from)
{
	if (from.bytes < 0 || (size_t)from.bytes >= room)
		return false;
	snprintf(to, room, "%.*s", from.bytes, from.at);
	return true;
}

static bool load_broker(const struct kafka_controller_image_image_broker *from, struct controller_broker *to)
{
	*to = (struct controller_broker){.id = from->id,
		.incarnation = from->incarnation,
		.alive = from->alive,
		.sequence = from->sequence,
		.error = (enum kafka_error)from->error,
		.first_producer_id = from->first_producer_id,
		.flushes_each = from->flushes_each,
		.life = from->life};
	if (from->endpoints.count < 0 || from->endpoints.count > (int32_t)CONTROLLER_LISTENERS_MAX)
		return false;
	for (int32_t i = 0; i < from->endpoints.count; i++) {
		struct controller_endpoint *endpoint = &to->endpoints[to->endpoint_count++];

		if (!load_text(endpoint->name, sizeof(endpoint->name), from->endpoints.at[i].name) ||
			!load_text(endpoint->host, sizeof(endpoint->host), from->endpoints.at[i].host))
			return false;
		endpoint->port = from->endpoints.at[i].port;
	}
	return true;
}

static bool load_set(struct controller_set *to, const int32_t *at, int32_t count)
{
	if (count < 0 || count > (int32_t)CONTROLLER_BROKERS_MAX)
		return false;
	to->count = (unsigned)count;
	for (int32_t i = 0; i < count; i++)
		to->at[i] = at[i];
	return true;
}

static bool load_topic(struct controller *controller, const struct kafka_controller_image_image_topic *from)
{
	struct controller_topic made = {
		.id = from->id, .partitions = from->partitions.count, .config = controller->defaults};
	struct controller_topic *topic;

	made.config.set = 0;
	for (int32_t i = 0; i < from->configs.count; i++)
		if (topic_config_set(&made.config, &controller->defaults, from->configs.at[i].name,
			    from->configs.at[i].value) != NULL)
			return false;
	if (!controller_topic_name_is_legal(from->name) || made.partitions < 1 ||
		(topic = controller_insert(controller, from->name, &made)) == NULL)
		return false;
	for (int32_t i = 0; i < made.partitions; i++) {
		const struct kafka_controller_image_image_partition *at = &from->partitions.at[i];
		struct controller_partition *to = &topic->at[i];

		*to = (struct controller_partition){.leader = at->leader,
			.leader_epoch = at->leader_epoch,
			.epoch = at->epoch,
			.doubtful = at->doubtful,
			.emptied = at->emptied,
			.recovered_epoch = at->recovered_epoch};
		if (!load_set(&to->replicas, at->replicas.at, at->replicas.count) ||
			!load_set(&to->isr, at->isr.at, at->isr.count))
			return false;
	}
	return true;
}

static bool load_report(struct controller *controller, const struct kafka_controller_image_image_report *from)
{
	const struct controller_report report = {.topic = from->topic_id,
		.partition = from->partition,
		.broker = from->broker,
		.incarnation = from->incarnation,
		.leader_epoch = from->leader_epoch,
		.damaged = from->damaged,
		.kept = from->kept,
		.last_epoch = from->last_epoch,
		.start = from->start,
		.end = from->end,
		.synced = from->synced,
		.hw_epoch = from->hw_epoch,
		.hw = from->hw};

	return controller_report(controller, &report);
}

static bool load(struct controller *controller, const struct kafka_controller_image *image)
{
	controller->next_producer_id = image->next_producer_id;
	controller->unclean_election = image->unclean_election;
	if (!load_text(controller->cluster_id, sizeof(controller->cluster_id), image->cluster_id) ||
		image->brokers.count > (int32_t)CONTROLLER_BROKERS_MAX)
		return false;
	for (int32_t i = 0; i < image->brokers.count; i++)
		if (!load_broker(&image->brokers.at[i], &controller->brokers[controller->broker_count++]))
			return false;
	for (int32_t i = 0; i < image->topics.count; i++)
		if (!load_topic(controller, &image->topics.at[i]))
			return false;
	for (int32_t i = 0; i < image->reports.count; i++)
		if (!load_report(controller, &image->reports.at[i]))
			return false;
	return true;
}

bool controller_load(struct controller *controller, const uint8_t *data, size_t bytes)
{
	struct kafka_controller_image image;
	struct codec_arena arena;
	bool loaded;

	codec_arena_init(&arena, IMAGE_BYTES);
	loaded = codec_decode(&kafka_controller_image_codec, VERSION, data, bytes, &arena, &image, NULL) == CODEC_OK &&
		 load(controller, &image);
	codec_arena_free(&arena);
	return loaded;
}
