/* Producers and readers. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/ensure.h"
#include "broker/log/records.h"
#include "sim/broker/brokers.h"

#define PRODUCE_VERSION 7
#define FETCH_VERSION   11
#define IDS_VERSION     1
#define BATCH_BYTES     1024u
#define FETCH_WAIT_MS   50

static const struct hf_addr *address_of(const struct broker_sim *all, unsigned broker)
{
	static struct hf_addr address;
	char text[HF_ADDR_TEXT];

	(void)all;
	snprintf(text, sizeof(text), "10.0.0.%u:9092", broker + 1);
	ensure(hf_addr_parse(text, &address) == 0);
	return &address;
}

/* Another broker may lead. */
static void ask_next(struct sim_client *client)
{
	struct broker_sim *all = client->all;

	client->broker = (client->broker + 1) % all->count;
	if (all->count > 1)
		wire_move(&client->wire, address_of(all, client->broker));
}

/* ---- producers ---- */

static struct sim_client *client_of(struct wire *wire)
{
	return container_of(wire, struct sim_client, wire);
}

static void ask_for_id(struct sim_client *client)
{
	struct kafka_init_producer_id_request request = {
		.transactional_id = {NULL, -1}, .transaction_timeout_ms = 1000};

	wire_send(&client->wire, KAFKA_INIT_PRODUCER_ID, IDS_VERSION, &request);
}

static void send_batch(struct sim_client *client)
{
	uint8_t data[BATCH_BYTES], value[PARTITION_VALUE_BYTES];
	struct kafka_produce_request_partition_produce_data partition = {.index = client->partition};
	struct kafka_produce_request_topic_produce_data topic = {
		.name = {SIM_BROKER_TOPIC, sizeof(SIM_BROKER_TOPIC) - 1}, .partition_data = {&partition, 1}};
	struct kafka_produce_request request = {.transactional_id = {NULL, -1},
		.acks = client->all_replicas ? -1 : 1,
		.timeout_ms = 1000,
		.topic_data = {&topic, 1}};
	struct records_writer writer;

	records_start(&writer, data, sizeof(data));
	for (uint32_t i = 0; i < client->count; i++) {
		put_le32(value, client->index);
		put_le64(value + 4, client->number + i);
		ensure(records_add(&writer, (int64_t)(hf_env_wall_ns(&client->process->env) / NS_MS),
			(struct codec_bytes){NULL, -1}, (struct codec_bytes){value, sizeof(value)}));
	}
	partition.records = (struct codec_bytes){
		data, (int32_t)records_finish(&writer, client->idempotent ? client->producer_id : -1,
			      client->idempotent ? 0 : -1, client->idempotent ? client->sequence : -1)};
	client->in_doubt = true;
	client->losses = client->all->losses;
	wire_send(&client->wire, KAFKA_PRODUCE, PRODUCE_VERSION, &request);
}

/* Goes on behind the batch, whatever became of it. */
static void next_batch(struct sim_client *client)
{
	client->in_doubt = false;
	client->number += client->count;
	client->sequence += (int32_t)client->count;
	client->count = 0;
}

/* What is not answered: an idempotent producer sends it again, another one cannot know and goes on behind it. */
static void give_up(struct sim_client *client)
{
	if (!client->idempotent && client->in_doubt) {
		partition_given_up(
			&client->all->accounts[client->partition], client->index, client->number, client->count);
		next_batch(client);
	}
	client->in_doubt = false;
}

static void producer_ready(struct sim_client *client)
{
	struct world *world = client->all->world;

	if (client->idempotent && client->producer_id < 0) {
		ask_for_id(client);
		return;
	}
	if (client->count == 0) {
		if (client->all->stopping || client->number > PARTITION_RECORDS_MAX / SIM_BROKER_PRODUCERS) {
			wire_rest(&client->wire, 50 * NS_MS);
			return;
		}
		client->count = (uint32_t)world_range(world, 1, SIM_BROKER_BATCH_MAX);
		/* What one replica has is lost with it, and so a gap for idempotent producers. */
		client->all_replicas = client->all->count > 1 ? client->idempotent || world_chance(world, 500000)
							      : world_chance(world, 500000);
	}
	send_batch(client);
}

/* Goes on at another broker. */
static void again(struct sim_client *client)
{
	give_up(client);
	ask_next(client);
	wire_rest(&client->wire, world_range(client->all->world, NS_US, 3 * NS_MS));
}

static void produced(struct sim_client *client, const struct kafka_produce_response *response)
{
	const struct kafka_produce_response_partition_produce_response *answer;
	struct broker_sim *all = client->all;

	ensure(response->responses.count == 1 && response->responses.at[0].partition_responses.count == 1);
	answer = &response->responses.at[0].partition_responses.at[0];
	world_note(all->world, "produced", (uint64_t)answer->error_code);
	switch (answer->error_code) {
	case KAFKA_NONE:
		if (client->losses == all->losses &&
			(all->count == 1 || client->all_replicas)) /* else what it was told may have been lost */
			partition_acked(&all->accounts[client->partition], (uint64_t)answer->base_offset, client->index,
				client->number, client->count);
		all->outcome->operations++;
		client->done_since_quiet += all->world->now_ns >= all->faults.quiet_ns;
		next_batch(client);
		break;
	case KAFKA_OUT_OF_ORDER_SEQUENCE:
	case KAFKA_INVALID_PRODUCER_EPOCH:
		/* Only a loss of power makes a broker forget. */
		if (!all->accounts[client->partition].lossy)
			world_violate(all->world, "once", "producer %u is told that a batch is missing", client->index);
		next_batch(client);
		client->producer_id = -1;
		client->sequence = 0;
		break;
	case KAFKA_UNKNOWN_TOPIC_OR_PARTITION:
		client->in_doubt = false;
		again(client);
		return;
	case KAFKA_NOT_LEADER_OR_FOLLOWER:
	case KAFKA_REQUEST_TIMED_OUT:
	case KAFKA_NOT_ENOUGH_REPLICAS:
	case KAFKA_NOT_ENOUGH_REPLICAS_AFTER_APPEND:
		if (all->count > 1) {
			again(client);
			return;
		} /* FALLTHROUGH */
	default:
		world_violate(all->world, "answer", "producer %u got error %d", client->index, answer->error_code);
	}
	wire_rest(&client->wire, world_range(all->world, NS_US, 3 * NS_MS));
}

/* ---- readers ---- */

static void send_fetch(struct sim_client *client)
{
	struct kafka_fetch_request_fetch_partition partition = {.partition = client->partition,
		.current_leader_epoch = -1,
		.fetch_offset = (int64_t)client->offset,
		.log_start_offset = -1,
		.partition_max_bytes = (int32_t)world_range(client->all->world, 1, 4000)};
	struct kafka_fetch_request_fetch_topic topic = {
		.topic = {SIM_BROKER_TOPIC, sizeof(SIM_BROKER_TOPIC) - 1}, .partitions = {&partition, 1}};
	struct kafka_fetch_request request = {.replica_id = -1,
		.max_wait_ms = FETCH_WAIT_MS,
		.min_bytes = (int32_t)world_range(client->all->world, 0, 300),
		.max_bytes = 1 << 20,
		.session_epoch = -1,
		.topics = {&topic, 1},
		.rack_id = {"", 0}};

	wire_send(&client->wire, KAFKA_FETCH, FETCH_VERSION, &request);
}

static void reader_ready(struct sim_client *client)
{
	if (client->anew)
		client->offset = 0;
	client->anew = false;
	client->losses = client->all->losses;
	send_fetch(client);
}
static void fetched(struct sim_client *client, const struct kafka_fetch_response *response)
{
	struct partition_account *account = &client->all->accounts[client->partition];
	const struct kafka_fetch_response_partition_data *answer;
	struct world *world = client->all->world;

	ensure(response->responses.count == 1 && response->responses.at[0].partitions.count == 1);
	answer = &response->responses.at[0].partitions.at[0];
	world_note(world, "fetched", (uint64_t)answer->records.bytes);
	if (client->losses != client->all->losses) {
		client->offset = 0; /* an answer from before the loss */
	} else if (answer->error_code == KAFKA_NONE && answer->records.bytes > 0) {
		client->offset =
			partition_read(account, client->offset, answer->records.at, (size_t)answer->records.bytes);
		if ((int64_t)client->offset > answer->high_watermark)
			world_violate(world, "one-log", "a reader got records behind the high watermark");
	} else if (answer->error_code == KAFKA_NONE) {
		client->at_end =
			client->all->settling && !client->anew && (int64_t)client->offset == answer->high_watermark;
	} else if (answer->error_code == KAFKA_OFFSET_OUT_OF_RANGE && account->lossy) {
		client->offset = 0;
	} else if (answer->error_code == KAFKA_UNKNOWN_TOPIC_OR_PARTITION ||
		   (answer->error_code == KAFKA_NOT_LEADER_OR_FOLLOWER && client->all->count > 1)) {
		ask_next(client);
	} else {
		world_violate(world, "answer", "a reader at %llu got error %d", (unsigned long long)client->offset,
			answer->error_code);
	}
	/* Some begin anew: what they read again must be the same. */
	if (!client->all->settling && world_chance(world, 10000))
		client->offset = world_range(world, 0, client->offset);
	wire_rest(&client->wire, world_range(world, NS_US, 5 * NS_MS));
}

/* ---- both ---- */

static void client_ready(struct wire *wire)
{
	struct sim_client *client = client_of(wire);

	if (client->reads)
		reader_ready(client);
	else
		producer_ready(client);
}

static void client_answered(struct wire *wire, const void *response)
{
	struct sim_client *client = client_of(wire);
	const struct kafka_init_producer_id_response *id = response;

	if (client->reads) {
		fetched(client, response);
	} else if (wire->api->key == KAFKA_PRODUCE) {
		produced(client, response);
	} else {
		if (id->error_code == KAFKA_NONE)
			client->producer_id = id->producer_id;
		else
			ask_next(client);
		wire_rest(wire, NS_US);
	}
}

static void client_broken(struct wire *wire)
{
	struct sim_client *client = client_of(wire);

	give_up(client);
	client->broker = (client->broker + 1) % client->all->count;
	wire->remote = *address_of(client->all, client->broker);
}

static int client_start(struct process *process, void *context)
{
	struct sim_client *client = context;
	struct hf_addr local;
	struct hf_loop *loop;
	char text[HF_ADDR_TEXT];
	int rc = hf_loop_create(&process->env, &loop);

	if (rc != 0)
		return rc;
	sim_client_address(client->index, text);
	ensure(hf_addr_parse(text, &local) == 0);
	client->wire.ready = client_ready;
	client->wire.answer = client_answered;
	client->wire.broken = client_broken;
	client->wire.late_ns = 500 * NS_MS;
	client->wire.again_ns = 20 * NS_MS;
	wire_open(&client->wire, loop, &local, address_of(client->all, client->broker));
	return 0;
}

static void client_stop(struct process *process, void *context)
{
	struct sim_client *client = context;
	struct hf_loop *loop = client->wire.loop;

	(void)process;
	wire_close(&client->wire);
	hf_loop_destroy(loop);
}

const struct program sim_client_program = {.name = "client", .start = client_start, .stop = client_stop};
