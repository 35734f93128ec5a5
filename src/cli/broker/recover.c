/* `holdfast broker recover TOPIC`: shows what the replicas of partitions without a leader have, and chooses leaders. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/broker/admin.h"
#include "cli/broker/admin_json.h"
#include "cli/broker/broker.h"
#include "cli/cli.h"

/* ---- asking ---- */

static json_t *replica_of(const struct kafka_recover_response_recover_replica *replica)
{
	json_t *json = json_pack("{s:i, s:b, s:b}", "broker", replica->broker, "in_sync", (int)replica->in_sync,
		"heard", (int)(replica->incarnation != 0));

	if (replica->incarnation != 0)
		json_object_update_new(json, json_pack("{s:I, s:b, s:b, s:i, s:I, s:I, s:I, s:i, s:I}", "incarnation",
						     (json_int_t)replica->incarnation, "damaged", (int)replica->damaged,
						     "kept", (int)replica->kept, "last_epoch", replica->last_epoch,
						     "start", (json_int_t)replica->start, "end",
						     (json_int_t)replica->end, "synced", (json_int_t)replica->synced,
						     "hw_epoch", replica->hw_epoch, "hw", (json_int_t)replica->hw));
	return json;
}

static json_t *partition_of(const struct kafka_recover_response_recover_partition *partition)
{
	json_t *replicas = json_array();

	for (int32_t i = 0; i < partition->replicas.count; i++)
		json_array_append_new(replicas, replica_of(&partition->replicas.at[i]));
	return json_pack("{s:i, s:i, s:i, s:i, s:I, s:o}", "partition", partition->partition, "partition_epoch",
		partition->partition_epoch, "epoch", partition->leader_epoch, "choice", partition->choice, "known_hw",
		(json_int_t)partition->known_hw, "replicas", replicas);
}

static int16_t shown(void *context, const void *response, struct codec_string *words_out)
{
	const struct kafka_recover_response *answer = response;
	json_t *partitions = context;

	*words_out = answer->error_message;
	json_array_clear(partitions);
	for (int32_t i = 0; i < answer->partitions.count; i++)
		json_array_append_new(partitions, partition_of(&answer->partitions.at[i]));
	return answer->error_code;
}

static json_t *find_replica(const json_t *partition, json_int_t broker)
{
	json_t *replica;
	size_t i;

	json_array_foreach(json_object_get(partition, "replicas"), i,
		replica) if (json_integer_value(json_object_get(replica, "broker")) == broker) return replica;
	return NULL;
}

static int32_t number_of(const json_t *json, const char *key)
{
	return (int32_t)json_integer_value(json_object_get(json, key));
}

static int16_t chosen(void *context, const void *response, struct codec_string *words_out)
{
	const struct kafka_recover_response *answer = response;

	(void)context;
	*words_out = answer->error_message;
	return answer->error_code;
}

/* What was shown, by epoch and incarnation: anything else is refused. */
static int choose(struct admin *admin, const json_t *partitions, struct hf_error *error)
{
	size_t i, count = json_array_size(partitions);
	struct kafka_recover_request_recover_choice *choices = calloc(count + 1, sizeof(*choices));
	struct kafka_recover_request body = {.topic = admin_string(admin->options->name),
		.timeout_ms = admin_change_ms(admin),
		.choices = {.at = choices}};
	const struct admin_request request = {.key = KAFKA_RECOVER, .changes = true, .body = &body, .answered = chosen};
	json_t *partition;
	int rc = 0;

	if (choices == NULL)
		return hf_error_set(error, -ENOMEM, "no memory");
	json_array_foreach((json_t *)partitions, i, partition)
	{
		int32_t broker = number_of(partition, "choice");
		const json_t *replica = broker < 0 ? NULL : find_replica(partition, broker);

		if (replica == NULL)
			continue;
		choices[body.choices.count++] =
			(struct kafka_recover_request_recover_choice){.partition = number_of(partition, "partition"),
				.partition_epoch = number_of(partition, "partition_epoch"),
				.broker = broker,
				.incarnation = json_integer_value(json_object_get(replica, "incarnation"))};
	}
	if (body.choices.count > 0)
		rc = admin_ask_any(admin, &request, error);
	free(choices);
	return rc;
}

static int recover(struct admin *admin, json_t **out_json, struct hf_error *error)
{
	json_t *partitions = json_array();
	const struct kafka_recover_request body = {.topic = admin_string(admin->options->name)};
	const struct admin_request request = {
		.key = KAFKA_RECOVER, .body = &body, .answered = shown, .context = partitions};
	int rc = admin_ask_any(admin, &request, error);

	if (rc == 0 && admin->options->yes)
		rc = choose(admin, partitions, error);
	*out_json = json_pack("{s:s, s:b, s:o}", "topic", admin->options->name, "recovered", (int)admin->options->yes,
		"partitions", partitions);
	return rc;
}

/* ---- in words ---- */

#define PRINT_NUMBER(words, json, key) printf(words " %lld", (long long)json_integer_value(json_object_get(json, key)))

static void print_replica(const json_t *replica)
{
	PRINT_NUMBER("    broker", replica, "broker");
	fputs(json_is_true(json_object_get(replica, "in_sync")) ? ", last in sync: " : ": ", stdout);
	if (!json_is_true(json_object_get(replica, "heard"))) {
		puts("not heard");
		return;
	}
	PRINT_NUMBER("offsets", replica, "start");
	PRINT_NUMBER(" to", replica, "end");
	PRINT_NUMBER(", last epoch", replica, "last_epoch");
	PRINT_NUMBER(", synced to", replica, "synced");
	PRINT_NUMBER(", knew high watermark", replica, "hw");
	PRINT_NUMBER(" in epoch", replica, "hw_epoch");
	fputs(json_is_true(json_object_get(replica, "kept")) ? ", has all that it had" : ", may have lost records",
		stdout);
	puts(json_is_true(json_object_get(replica, "damaged")) ? ", damaged" : "");
}

static void print_choice(const json_t *partition, bool done)
{
	json_int_t broker = json_integer_value(json_object_get(partition, "choice"));
	json_int_t hw = json_integer_value(json_object_get(partition, "known_hw"));
	json_int_t end = json_integer_value(json_object_get(find_replica(partition, broker), "end"));

	if (broker < 0) {
		puts("    no replica was heard: start one");
		return;
	}
	printf("    broker %lld %s: ", (long long)broker, done ? "leads now" : "would lead");
	if (end < hw)
		printf("offsets %lld to %lld are lost, and perhaps more\n", (long long)end, (long long)hw - 1);
	else
		puts("no offset is known to be lost, and perhaps some are");
}

static void print_recovery(const json_t *json)
{
	const json_t *partitions = json_object_get(json, "partitions");
	bool done = json_is_true(json_object_get(json, "recovered"));
	json_t *partition, *replica;
	size_t i, k;

	fputs("topic ", stdout);
	admin_json_print(json, "topic");
	fputs(": ", stdout);
	admin_json_print_count(json_array_size(partitions), "partition");
	puts(done ? " had no leader" : " without a leader");
	json_array_foreach((json_t *)partitions, i, partition)
	{
		PRINT_NUMBER("  partition", partition, "partition");
		PRINT_NUMBER(": epoch", partition, "epoch");
		putchar('\n');
		json_array_foreach(json_object_get(partition, "replicas"), k, replica) print_replica(replica);
		print_choice(partition, done);
	}
	if (!done && json_array_size(partitions) > 0)
		puts("Nothing was changed. Start the brokers that were not heard first; --yes accepts the loss.");
}

int broker_recover_command(int argc, char **argv)
{
	static const struct admin_action actions[] = {
		{"recover", true, false, recover, print_recovery, .confirms = true}, {0}};

	return admin_run(argc, argv, actions);
}
