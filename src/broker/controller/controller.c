/* The cluster's metadata, changed by commands. */
#include "broker/controller/controller.h"

#include <stdlib.h>
#include <string.h>

#include "base/sorted.h"

void controller_init(struct controller *controller, const struct topic_config *defaults)
{
	*controller = (struct controller){.defaults = *defaults};
}

static void topic_free(struct controller_topic *topic)
{
	free(topic->at);
	free(topic);
}

void controller_free(struct controller *controller)
{
	while (controller->topic_count > 0)
		topic_free(controller->topics[--controller->topic_count]);
	free(controller->topics);
	free(controller->reports);
	*controller = (struct controller){.defaults = controller->defaults};
}

static int compare(const void *element, const void *name)
{
	const struct controller_topic *const *topic = element;

	return codec_compare((*topic)->name, *(const struct codec_string *)name);
}

/* Where the topic stands, or would. */
static unsigned place_of(const struct controller *controller, struct codec_string name, bool *there_out)
{
	return sorted_place(controller->topics, controller->topic_count, sizeof(struct controller_topic *), compare,
		&name, there_out);
}

const struct controller_topic *controller_find(const struct controller *controller, struct codec_string name)
{
	bool there;
	unsigned place;

	if (name.bytes < 0)
		return NULL;
	place = place_of(controller, name, &there);
	return there ? controller->topics[place] : NULL;
}

const struct controller_topic *controller_find_id(const struct controller *controller, struct codec_uuid id)
{
	for (unsigned i = 0; i < controller->topic_count; i++)
		if (memcmp(&controller->topics[i]->id, &id, sizeof(id)) == 0)
			return controller->topics[i];
	return NULL;
}

static const char id_digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

const char *controller_id_text(struct codec_uuid id, char text[CONTROLLER_ID_TEXT])
{
	unsigned to = 0;

	for (unsigned bit = 0; bit < 8 * sizeof(id.byte); bit += 6) {
		unsigned next = bit / 8 + 1 < sizeof(id.byte) ? id.byte[bit / 8 + 1] : 0;

		text[to++] = id_digits[((unsigned)id.byte[bit / 8] << 8 | next) >> (10 - bit % 8) & 63];
	}
	text[to] = '\0';
	return text;
}

bool controller_id_parse(const char *text, struct codec_uuid *id_out)
{
	char expected[CONTROLLER_ID_TEXT];
	unsigned bits = 0, have = 0, to = 0;

	for (unsigned i = 0; i < CONTROLLER_ID_TEXT - 1; i++) {
		const char *digit = text[i] == '\0' ? NULL : strchr(id_digits, text[i]);

		if (digit == NULL)
			return false;
		bits = bits << 6 | (unsigned)(digit - id_digits);
		have += 6;
		if (have >= 8 && to < sizeof(id_out->byte))
			id_out->byte[to++] = (uint8_t)(bits >> (have -= 8));
	}
	return memcmp(controller_id_text(*id_out, expected), text, CONTROLLER_ID_TEXT - 1) == 0;
}

bool controller_topic_name_is_legal(struct codec_string name)
{
	if (name.bytes < 1 || (size_t)name.bytes >= CONTROLLER_TOPIC_BYTES)
		return false;
	for (int32_t i = 0; i < name.bytes; i++) {
		char c = name.at[i];

		if (!(c >= 'a' && c <= 'z') && !(c >= 'A' && c <= 'Z') && !(c >= '0' && c <= '9') && c != '.' &&
			c != '_' && c != '-')
			return false;
	}
	return !(name.bytes == 1 && name.at[0] == '.') && !(name.bytes == 2 && memcmp(name.at, "..", 2) == 0);
}

static void refuse(struct controller_result *result, enum kafka_error error, const char *message)
{
	result->error = error;
	result->message = message;
}

/* All of them, or none. */
static const char *set_configs(const struct controller *controller, struct topic_config *config,
	const struct kafka_controller_command *command)
{
	struct topic_config next = *config;

	for (int32_t i = 0; i < command->configs.count; i++) {
		const char *wrong = topic_config_set(
			&next, &controller->defaults, command->configs.at[i].name, command->configs.at[i].value);

		if (wrong != NULL)
			return wrong;
	}
	*config = next;
	return NULL;
}

static bool grow(struct controller *controller)
{
	struct controller_topic **topics = sorted_grow(controller->topics, controller->topic_count,
		&controller->topic_capacity, sizeof(struct controller_topic *));

	if (topics != NULL)
		controller->topics = topics;
	return topics != NULL;
}

/* Fills *made but for its partitions; or says what is wrong. */
static void check_creation(const struct controller *controller, const struct kafka_controller_command *command,
	struct controller_topic *made, struct controller_result *result)
{
	const char *wrong;
	bool there;

	*made = (struct controller_topic){
		.id = command->topic_id, .partitions = command->partitions, .config = controller->defaults};
	made->config.set = 0;
	if (!controller_topic_name_is_legal(command->topic)) {
		refuse(result, KAFKA_INVALID_TOPIC, "a topic's name has 1 to 249 of a-z A-Z 0-9 . _ -");
		return;
	}
	(void)place_of(controller, command->topic, &there);
	if (there) {
		refuse(result, KAFKA_TOPIC_ALREADY_EXISTS, "there is a topic of this name");
		return;
	}
	if (command->partitions < 1 || command->partitions > CONTROLLER_PARTITIONS_MAX) {
		refuse(result, KAFKA_INVALID_PARTITIONS, "a topic has 1 to 10000 partitions");
		return;
	}
	wrong = set_configs(controller, &made->config, command);
	if (wrong != NULL) {
		refuse(result, KAFKA_INVALID_CONFIG, wrong);
		return;
	}
	result->message = controller_place(controller, command, NULL, 0, command->partitions, &result->error);
}

struct controller_topic *controller_insert(
	struct controller *controller, struct codec_string name, const struct controller_topic *made)
{
	struct controller_topic *topic =
		controller->topic_count < CONTROLLER_TOPICS_MAX && grow(controller) ? malloc(sizeof(*topic)) : NULL;
	unsigned place;
	bool there;

	if (topic == NULL)
		return NULL;
	*topic = *made;
	topic->at = calloc((size_t)made->partitions, sizeof(*topic->at));
	if (topic->at == NULL) {
		free(topic);
		return NULL;
	}
	memcpy(topic->name, name.at, (size_t)name.bytes);
	place = place_of(controller, name, &there);
	memmove(controller->topics + place + 1, controller->topics + place,
		(controller->topic_count - place) * sizeof(struct controller_topic *));
	controller->topics[place] = topic;
	controller->topic_count++;
	return topic;
}

static void create_topic(
	struct controller *controller, const struct kafka_controller_command *command, struct controller_result *result)
{
	struct controller_topic made, *topic;

	check_creation(controller, command, &made, result);
	if (result->error != KAFKA_NONE)
		return;
	topic = controller_insert(controller, command->topic, &made);
	if (topic == NULL) {
		refuse(result, KAFKA_STORAGE_ERROR, "there is no room for another topic");
		return;
	}
	(void)controller_place(controller, command, topic->at, 0, topic->partitions, &result->error);
	result->topic = topic;
}

static void delete_topic(struct controller *controller, unsigned place)
{
	controller_forget_reports(controller, controller->topics[place]->id);
	topic_free(controller->topics[place]);
	controller->topic_count--;
	memmove(controller->topics + place, controller->topics + place + 1,
		(controller->topic_count - place) * sizeof(struct controller_topic *));
}

static void check_growth(const struct controller *controller, const struct kafka_controller_command *command,
	const struct controller_topic *topic, struct controller_result *result)
{
	if (command->partitions <= topic->partitions || command->partitions > CONTROLLER_PARTITIONS_MAX) {
		refuse(result, KAFKA_INVALID_PARTITIONS, "the number of partitions can only grow, up to 10000");
		return;
	}
	result->message =
		controller_place(controller, command, NULL, topic->partitions, command->partitions, &result->error);
}

static void add_partitions(struct controller *controller, const struct kafka_controller_command *command,
	struct controller_topic *topic, struct controller_result *result)
{
	struct controller_partition *at;

	check_growth(controller, command, topic, result);
	if (result->error != KAFKA_NONE)
		return;
	at = realloc(topic->at, (size_t)command->partitions * sizeof(*at));
	if (at == NULL) {
		refuse(result, KAFKA_STORAGE_ERROR, "there is no room for more partitions");
		return;
	}
	topic->at = at;
	(void)controller_place(controller, command, at, topic->partitions, command->partitions, &result->error);
	topic->partitions = command->partitions;
}

static void take_producer_ids(struct controller *controller, int32_t count, struct controller_result *result)
{
	if (count < 1 || controller->next_producer_id > CONTROLLER_PRODUCER_ID_MAX - count) {
		refuse(result, KAFKA_UNKNOWN_SERVER_ERROR, "all producer ids are taken");
		return;
	}
	result->first_producer_id = controller->next_producer_id;
	controller->next_producer_id += count;
}

/* The topic that the command names; NULL, with the error. */
static struct controller_topic *named(const struct controller *controller,
	const struct kafka_controller_command *command, unsigned *place_out, struct controller_result *result)
{
	bool there;

	*place_out = place_of(controller, command->topic, &there);
	if (there)
		return controller->topics[*place_out];
	refuse(result, KAFKA_UNKNOWN_TOPIC_OR_PARTITION, "there is no topic of this name");
	return NULL;
}

static void apply_to_topic(
	struct controller *controller, const struct kafka_controller_command *command, struct controller_result *result)
{
	const char *wrong;
	unsigned place;
	struct controller_topic *topic = named(controller, command, &place, result);

	if (topic == NULL)
		return;
	result->topic = topic;
	switch (command->kind) {
	case CONTROLLER_DELETE_TOPIC:
		delete_topic(controller, place);
		result->topic = NULL;
		break;
	case CONTROLLER_ADD_PARTITIONS:
		add_partitions(controller, command, topic, result);
		break;
	case CONTROLLER_SET_CONFIGS:
		wrong = set_configs(controller, &topic->config, command);
		if (wrong != NULL)
			refuse(result, KAFKA_INVALID_CONFIG, wrong);
		else
			controller_allow_unclean(controller, topic);
		break;
	default: /* of a newer release */
		refuse(result, KAFKA_INVALID_REQUEST, "this command is not known");
	}
}

void controller_check(const struct controller *controller, const struct kafka_controller_command *command,
	struct controller_result *result)
{
	const struct controller_topic *topic;
	struct controller_topic made;
	unsigned place;

	*result = (struct controller_result){0};
	if (command->kind == CONTROLLER_CREATE_TOPIC)
		check_creation(controller, command, &made, result);
	else if ((topic = named(controller, command, &place, result)) != NULL)
		check_growth(controller, command, topic, result);
}

/* ---- what was applied before ---- */

static struct controller_broker *proposer_of(
	struct controller *controller, const struct kafka_controller_command *command)
{
	for (unsigned i = 0; i < controller->broker_count; i++)
		if (controller->brokers[i].id == command->broker)
			return &controller->brokers[i];
	return NULL;
}

/* Whether a command with a sequence is to be applied now; if not, *result says what it did. */
static bool is_next(
	struct controller *controller, const struct kafka_controller_command *command, struct controller_result *result)
{
	const struct controller_broker *broker = proposer_of(controller, command);

	if (command->kind == CONTROLLER_REGISTER_BROKER &&
		(broker == NULL || broker->incarnation != command->incarnation))
		return true;
	if (broker == NULL || broker->incarnation != command->incarnation || !broker->alive) {
		refuse(result, KAFKA_NOT_CONTROLLER, "the session of the broker that asks is over");
		return false;
	}
	if (command->sequence > broker->sequence)
		return true;
	result->repeated = true;
	result->error = broker->error;
	result->first_producer_id = broker->first_producer_id;
	result->topic = controller_find(controller, command->topic);
	return false;
}

static void remember(struct controller *controller, const struct kafka_controller_command *command,
	const struct controller_result *result)
{
	struct controller_broker *broker = proposer_of(controller, command);

	if (broker == NULL || broker->incarnation != command->incarnation)
		return;
	broker->sequence = command->sequence;
	broker->error = result->error;
	broker->first_producer_id = result->first_producer_id;
}

void controller_apply(
	struct controller *controller, const struct kafka_controller_command *command, struct controller_result *result)
{
	*result = (struct controller_result){0};
	if (command->sequence > 0 && !is_next(controller, command, result))
		return;
	switch (command->kind) {
	case CONTROLLER_CREATE_TOPIC:
		create_topic(controller, command, result);
		break;
	case CONTROLLER_TAKE_PRODUCER_IDS:
		take_producer_ids(controller, command->count, result);
		break;
	case CONTROLLER_REGISTER_BROKER:
	case CONTROLLER_END_SESSION:
	case CONTROLLER_SET_ISR:
	case CONTROLLER_RESIGN:
	case CONTROLLER_REPORT:
	case CONTROLLER_RECOVER:
		controller_apply_broker(controller, command, result);
		break;
	default:
		apply_to_topic(controller, command, result);
	}
	if (command->sequence > 0)
		remember(controller, command, result);
}
