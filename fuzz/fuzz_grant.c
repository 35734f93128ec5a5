/* What a client does with a broker's memory and messages: what it asks Access for, what it connects with, and what it
 * writes, reads and says on its vqp then, while others append and retention deletes. Broker and client are two nodes of
 * this process. Whatever came, the logs have whole batches and nothing behind them, the broker keeps nothing of the
 * client, and takes records of others. Only batches in the extent of a holder may it have changed once they were
 * committed, which no rule prevents.
 *
 *   0 u8 how it connects: 0 with its token, 1 with a token that has one bit wrong, 2 with any bytes
 *   1 u8 kind, u8 partition, i8 producer id, i8 producer epoch, i8 acks, i8 leader epoch
 *   7 operations, enum operation, each with its arguments */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/crc.h"
#include "base/ensure.h"
#include "base/log.h"
#include "broker/broker.h"
#include "broker/client/kafka_link.h"
#include "broker/log/records.h"
#include "broker/rdma/rdma.h"

#define TOPIC          "t"
#define PARTITIONS     2
#define SEGMENT_BYTES  65536u
#define EXTENT_BYTES   16384u
#define INPUT_MAX      8192u
#define SENT_BYTES     65536u /* of all that an input sends, then of what comes */
#define RECEIVES       16u
#define RECEIVE_BYTES  (RDMA_ENTRIES_MAX * RDMA_ENTRY_BYTES)
#define MEMORY_BYTES   (SENT_BYTES + RECEIVES * RECEIVE_BYTES)
#define SENDS          32u
#define RECEIVE_BIT    (1ull << 32) /* of a wr_id */
#define BATCH_ROOM     512u
#define ANYWHERE       (1u << 15)
#define OPERATIONS_MAX 256u
#define TURNS_MAX      20000u
#define TURN_NS        1000000u
#define CALL_NS        5000000000u
#define CONTROL_PORT   18515u
#define ACCESS_VERSION 0

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

enum operation {
	SAY,     /* u8 bytes, so many: a SEND */
	ATTACH,  /* u8 partition, u8 offset: a right one */
	OVERRUN, /* u32 bytes: a right one */
	PRODUCE, /* u8 value bytes, u8 sequence, u8 what is wrong, u8 place of a byte, u8 another one there */
	WRITE,   /* u16 place behind the tail, or with bit 15 anywhere, u32 immediate or 0: none, u8 bytes, so many */
	READ,    /* u32 place, u16 bytes */
	APPEND,  /* u8 partition: of another producer, over TCP */
	RETAIN,  /* u8 partition */
	TURN,
	OPERATIONS,
};

struct input {
	const uint8_t *at;
	size_t left;
};

static struct {
	struct hf_loop *loop;
	struct hf_node *node, *brokers;
	struct hf_addr control;
	struct broker *broker;
	struct hf_vpd *pd;
	struct hf_vcq *cq;
	struct hf_vmr *mr;
	uint8_t *memory;
	struct kafka_link link;
	struct kafka_call call;
	struct hf_vqp *vqp;
	int64_t producer; /* an input's own: no sequences are known of it */
	/* of an input */
	uint8_t token[RDMA_TOKEN_BYTES];
	bool has_token, spoils;    /* spoils: it may have changed what is committed in its extent */
	uint32_t sent, key, place; /* bytes of memory; what it was told; the tail, of a producer */
	uint64_t address;
	uint16_t id, order;
} bed;

static char directory[] = "/tmp/holdfast-fuzz-XXXXXX";

static uint32_t take(struct input *input, unsigned bytes)
{
	uint32_t value = 0;

	for (unsigned i = 0; i < bytes && input->left > 0; i++, input->left--)
		value |= (uint32_t)*input->at++ << 8 * i;
	return value;
}

/* ---- the bed ---- */

static void or_die(int rc, const struct hf_error *error)
{
	if (rc != 0)
		fprintf(stderr, "%s\n", error->text);
	ensure(rc == 0);
}

static void open_node(const char *name, unsigned number, struct hf_node **node_out)
{
	struct hf_node_config config = {.rail_count = 1};
	struct hf_error error = {0};
	unsigned pid = (unsigned)getpid();
	char text[HF_ADDR_TEXT];

	snprintf(config.name, sizeof(config.name), "%s", name);
	snprintf(config.fabric, sizeof(config.fabric), "fuzz-grant-%u", pid);
	snprintf(config.rails[0].name, sizeof(config.rails[0].name), "r0");
	snprintf(config.rails[0].kind, sizeof(config.rails[0].kind), "shm");
	snprintf(text, sizeof(text), "127.%u.%u.%u:%u", 96 + (pid >> 8) % 64, pid & 0xff, number, CONTROL_PORT);
	ensure(hf_addr_parse(text, &config.rails[0].control) == 0);
	config.rails[0].address = config.rails[0].control;
	or_die(hf_node_open(bed.loop, &config, NULL, NULL, node_out, &error), &error);
	bed.control = config.rails[0].control;
}

static void remove_directory(void)
{
	char command[64];

	snprintf(command, sizeof(command), "rm -r %s", directory);
	if (system(command) != 0)
		fprintf(stderr, "%s is left\n", directory);
}

static void open_broker(void)
{
	struct codec_string name = {TOPIC, 1};
	struct broker_config config;
	struct hf_error error = {0};

	ensure(mkdtemp(directory) != NULL);
	atexit(remove_directory);
	broker_config_default(&config);
	config.node_id = 1;
	config.segment_bytes = SEGMENT_BYTES;
	config.extent_bytes = EXTENT_BYTES;
	config.listeners =
		(struct broker_endpoints){.at = {{.name = "PLAINTEXT", .host = "127.0.0.1", .port = 0}}, .count = 1};
	snprintf(config.log_dirs, sizeof(config.log_dirs), "%s", directory);
	or_die(broker_open(bed.loop, bed.brokers, &config, &bed.broker, &error), &error);
	broker_create_topic(bed.broker, name, PARTITIONS, NULL);
}

/* What is refused is what is tried here. */
static void drop_line(enum log_level level, const char *line, void *context)
{
	(void)level, (void)line, (void)context;
}

static void open_bed(void)
{
	struct hf_addr local, kafka;
	struct hf_error error = {0};
	void *memory;

	log_set_sink(drop_line, NULL);
	ensure(hf_loop_create(hf_env_host(), &bed.loop) == 0);
	open_node("client", 1, &bed.node);
	open_node("broker", 2, &bed.brokers);
	open_broker();
	ensure(hf_vpd_alloc(bed.node, &bed.pd) == 0 && hf_vcq_create(bed.node, 4 * SENDS, NULL, &bed.cq) == 0);
	or_die(hf_mem_alloc(hf_env_host(), MEMORY_BYTES, &memory, &error), &error);
	bed.memory = memory;
	or_die(hf_vmr_reg(bed.pd, memory, MEMORY_BYTES, IBV_ACCESS_LOCAL_WRITE, &bed.mr, &error), &error);
	ensure(hf_addr_parse("127.0.0.1:0", &local) == 0 && hf_addr_parse("127.0.0.1:0", &kafka) == 0);
	hf_addr_set_port(&kafka, bed.broker->config.listeners.at[0].port);
	kafka_link_open(&bed.link, bed.loop, &local, &kafka, CALL_NS);
}

static void until(bool (*done)(void))
{
	for (unsigned i = 0; !done(); i++) {
		ensure(i < TURNS_MAX);
		(void)hf_loop_turn(bed.loop, i < 100 ? 0 : TURN_NS);
	}
}

static struct partition *partition_of(uint32_t index)
{
	return topics_partition(&bed.broker->topics, (struct codec_string){TOPIC, 1}, (int32_t)(index % PARTITIONS));
}

/* ---- Access ---- */

static void told(struct kafka_call *call, const void *response)
{
	const struct kafka_access_response *answer = response;

	(void)call;
	ensure(answer != NULL);
	bed.has_token = answer->error_code == KAFKA_NONE;
	memcpy(bed.token, answer->token.byte, sizeof(bed.token));
}

static bool is_told(void)
{
	return !bed.call.waiting;
}

static void ask(struct input *input)
{
	struct kafka_access_request request = {.topic = {TOPIC, 1},
		.kind = (int8_t)take(input, 1),
		.partition = (int8_t)take(input, 1),
		.producer_id = (int8_t)take(input, 1),
		.producer_epoch = (int8_t)take(input, 1),
		.acks = (int8_t)take(input, 1),
		.current_leader_epoch = (int8_t)take(input, 1)};

	bed.call.done = told;
	for (unsigned i = 0; !kafka_link_call(&bed.link, &bed.call, KAFKA_ACCESS, ACCESS_VERSION, &request); i++) {
		ensure(i < TURNS_MAX);
		(void)hf_loop_turn(bed.loop, TURN_NS);
	}
	until(is_told);
}

/* ---- the vqp ---- */

static bool is_answered(void)
{
	return hf_vqp_state(bed.vqp) == HF_VQP_UP || hf_vqp_state(bed.vqp) == HF_VQP_ERROR;
}

static void post_receive(uint32_t number)
{
	struct ibv_sge sge = {.addr = (uintptr_t)bed.memory + SENT_BYTES + number * RECEIVE_BYTES,
		.length = RECEIVE_BYTES,
		.lkey = bed.mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = RECEIVE_BIT | number, .sg_list = &sge, .num_sge = 1}, *bad;

	(void)hf_vqp_post_recv(bed.vqp, &wr, &bad); /* it may be over */
}

static void take_reply(void)
{
	size_t bytes;
	const uint8_t *at = hf_vqp_reply(bed.vqp, &bytes);
	bool produces = bytes == RDMA_GRANT_BYTES;

	ensure(produces || bytes == RDMA_READING_BYTES);
	ensure(at[0] == RDMA_VERSION && at[1] == (produces ? ACCESS_PRODUCE : ACCESS_READ));
	bed.id = produces ? get_le16(at + 2) : 0;
	bed.address = get_le64(at + 8);
	bed.key = get_le32(at + (produces ? 16 : 4));
}

/* False: it is refused. */
static bool connect_with(const uint8_t *private, size_t bytes, bool revocable)
{
	const struct hf_vqp_init init = {.send_cq = bed.cq,
		.cap = {.max_send_wr = SENDS, .max_recv_wr = RECEIVES, .max_send_sge = 1, .max_recv_sge = 1},
		.sq_sig_all = true,
		.revocable = revocable};
	struct hf_error error = {0};
	struct hf_peer *peer = hf_peer_find(bed.node, &bed.control);

	if (peer == NULL)
		or_die(hf_peer_connect(bed.node, &bed.control, 1, &peer, &error), &error);
	ensure(hf_vqp_create(bed.pd, &init, &bed.vqp) == 0);
	for (uint32_t i = 0; i < RECEIVES; i++)
		post_receive(i);
	ensure(hf_vqp_connect(bed.vqp, peer, RDMA_SERVICE, private, bytes) == 0);
	until(is_answered);
	if (hf_vqp_state(bed.vqp) == HF_VQP_UP)
		take_reply();
	return hf_vqp_state(bed.vqp) == HF_VQP_UP;
}

/* Entries of a producer, or ATTACHED: what it may write or read next. */
static void hear(const uint8_t *at, uint32_t bytes)
{
	if (bytes == RDMA_ATTACHED_BYTES && at[0] == RDMA_ATTACHED) {
		if (get_le16(at + 4) == KAFKA_NONE) {
			bed.key = get_le32(at + 12);
			bed.address = get_le64(at + 16);
		}
		return;
	}
	ensure(bytes > 0 && bytes % RDMA_ENTRY_BYTES == 0);
	for (uint32_t i = 0; i < bytes; i += RDMA_ENTRY_BYTES) {
		ensure(at[i] == RDMA_ANSWER || at[i] == RDMA_EXTENT || at[i] == RDMA_END);
		if (at[i] != RDMA_EXTENT)
			continue;
		bed.id = get_le16(at + i + 2);
		bed.key = get_le32(at + i + 4);
		bed.address = get_le64(at + i + 8);
		bed.order = 0;
		bed.place = 0;
	}
}

static void poll(void)
{
	struct ibv_wc wc;

	while (hf_vcq_poll(bed.cq, 1, &wc) > 0) {
		uint32_t number = (uint32_t)wc.wr_id;

		if (wc.status != IBV_WC_SUCCESS || (wc.wr_id & RECEIVE_BIT) == 0)
			continue;
		hear(bed.memory + SENT_BYTES + number * RECEIVE_BYTES, wc.byte_len);
		post_receive(number);
	}
}

static void turn(void)
{
	for (unsigned i = 0; i < 3; i++) {
		(void)hf_loop_turn(bed.loop, 0);
		poll();
	}
}

/* ---- operations ---- */

/* Memory that no other wr has. NULL: the input has used all. */
static uint8_t *room(uint32_t bytes)
{
	uint8_t *at = bed.memory + bed.sent;

	if (bytes > SENT_BYTES - bed.sent)
		return NULL;
	bed.sent += bytes;
	return at;
}

static bool post(enum ibv_wr_opcode opcode, const uint8_t *at, uint32_t bytes, uint32_t imm, uint64_t place)
{
	struct ibv_sge sge = {.addr = (uintptr_t)at, .length = bytes, .lkey = bed.mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &sge,
				   .num_sge = 1,
				   .opcode = opcode,
				   .imm_data = imm,
				   .wr.rdma = {.remote_addr = bed.address + place, .rkey = bed.key}},
			   *bad;

	return at != NULL && hf_vqp_post_send(bed.vqp, &wr, &bad) == 0;
}

static void take_bytes(struct input *input, uint8_t *to, uint32_t bytes)
{
	for (uint32_t i = 0; to != NULL && i < bytes; i++)
		to[i] = (uint8_t)take(input, 1);
}

static void say(struct input *input)
{
	uint32_t bytes = take(input, 1);
	uint8_t *at = room(bytes);

	take_bytes(input, at, bytes);
	(void)post(IBV_WR_SEND, at, bytes, 0, 0);
}

static void attach(struct input *input)
{
	uint8_t *at = room(RDMA_ATTACH_BYTES + 1);

	if (at == NULL)
		return;
	memset(at, 0, RDMA_ATTACH_BYTES);
	at[0] = RDMA_ATTACH;
	put_le32(at + 4, take(input, 1));
	put_le64(at + 8, (uint64_t)partition_of(get_le32(at + 4))->log->start_offset + take(input, 1));
	put_le16(at + 16, 1);
	put_le32(at + 20, UINT32_MAX);
	memcpy(at + RDMA_ATTACH_BYTES, TOPIC, 1);
	(void)post(IBV_WR_SEND, at, RDMA_ATTACH_BYTES + 1, 0, 0);
}

static void overrun(struct input *input)
{
	uint8_t *at = room(RDMA_OVERRUN_BYTES);

	if (at == NULL)
		return;
	memset(at, 0, RDMA_OVERRUN_BYTES);
	at[0] = RDMA_OVERRUN;
	put_le16(at + 2, bed.order);
	put_le32(at + 4, bed.place);
	put_le32(at + 8, take(input, 4));
	(void)post(IBV_WR_SEND, at, RDMA_OVERRUN_BYTES, 0, 0);
}

static uint32_t make_batch(uint8_t *to, uint32_t value_bytes, int64_t producer, int32_t sequence)
{
	static const uint8_t value[UINT8_MAX];
	struct records_writer writer;

	records_start(&writer, to, BATCH_ROOM);
	ensure(records_add(&writer, 1700000000000, (struct codec_bytes){NULL, -1},
		(struct codec_bytes){value, (int32_t)value_bytes}));
	return (uint32_t)records_finish(&writer, producer, 0, sequence);
}

static void produce(struct input *input)
{
	uint8_t *at = room(BATCH_ROOM);
	uint32_t value_bytes = take(input, 1), sequence = take(input, 1), wrong = take(input, 1), where, bytes;

	if (at == NULL)
		return;
	bytes = make_batch(at, value_bytes, (wrong & 1) != 0 ? BATCH_NO_PRODUCER : bed.producer,
		(wrong & 1) != 0 ? -1 : (int32_t)sequence);
	where = take(input, 1) % bytes;
	if ((wrong & 2) != 0)
		at[where] = (uint8_t)take(input, 1);
	if ((wrong & 4) == 0)
		put_be32(at + 17, crc32c(0, at + 21, bytes - 21));
	if (!post(IBV_WR_RDMA_WRITE_WITH_IMM, at, bytes, rdma_imm(bed.order, bed.id), bed.place))
		return;
	bed.order++;
	bed.place += bytes;
}

static void write_anywhere(struct input *input)
{
	uint32_t where = take(input, 2), imm = take(input, 4), bytes = take(input, 1);
	bool anywhere = (where & ANYWHERE) != 0;
	uint32_t place = anywhere ? where & ~ANYWHERE : bed.place + where;
	uint8_t *at = room(bytes);

	bed.spoils |= anywhere;
	take_bytes(input, at, bytes);
	(void)post(imm == 0 ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_WRITE_WITH_IMM, at, bytes, imm, place);
}

static void read_anywhere(struct input *input)
{
	uint32_t place = take(input, 4), bytes = take(input, 2);

	(void)post(IBV_WR_RDMA_READ, room(bytes), bytes, 0, place);
}

static void append(struct partition *partition)
{
	struct append_result result;
	uint8_t batch[BATCH_ROOM];
	uint32_t bytes = make_batch(batch, 10, BATCH_NO_PRODUCER, -1);

	ensure(partition_append(partition, batch, bytes, broker_now_ms(bed.broker), &result) == KAFKA_NONE);
}

static void retain(struct partition *partition)
{
	partition_log_advance_start(partition->log, partition->hw);
}

static void operate(struct input *input)
{
	switch ((enum operation)(take(input, 1) % OPERATIONS)) {
	case SAY:
		say(input);
		break;
	case ATTACH:
		attach(input);
		break;
	case OVERRUN:
		overrun(input);
		break;
	case PRODUCE:
		produce(input);
		break;
	case WRITE:
		write_anywhere(input);
		break;
	case READ:
		read_anywhere(input);
		break;
	case APPEND:
		append(partition_of(take(input, 1)));
		break;
	case RETAIN:
		retain(partition_of(take(input, 1)));
		break;
	case TURN:
	case OPERATIONS:
		turn();
		break;
	}
}

/* ---- what is left ---- */

static bool has_no_client(void)
{
	return list_empty(&bed.broker->rdma->clients);
}

static void judge_segment(const struct segment *segment)
{
	int64_t offset = segment->base_offset;
	uint32_t place = 0;
	struct batch batch;

	for (; segment_at(segment, place, &batch); place += (uint32_t)batch.length) {
		ensure(batch.base_offset == offset && batch_check(segment->map + place, &batch) == BATCH_RIGHT &&
			batch_epoch_is_whole(batch.leader_epoch));
		offset = batch_next_offset(&batch);
	}
	ensure(place == segment->bytes && offset == segment->next_offset);
	for (; place < segment_present(segment); place++)
		ensure(segment->map[place] == 0);
}

static void judge(struct partition *partition)
{
	struct hf_error error;

	ensure(partition->holder == NULL && !partition->log->failed && !partition->log->granted);
	ensure(partition->hw == partition_log_end(partition->log));
	if (bed.spoils) /* its readers find that by the CRC; the next inputs have another log */
		or_die(partition_log_restart(partition->log, partition->hw, &error), &error);
	list_for_each (at, &partition->log->segments)
		judge_segment(container_of(at, struct segment, node));
	append(partition);
	retain(partition);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct input input = {data, bytes};
	uint32_t how;
	size_t any;

	if (bytes < 8 || bytes > INPUT_MAX)
		return 0;
	if (bed.loop == NULL)
		open_bed();
	bed.sent = bed.place = 0;
	bed.order = 0;
	bed.spoils = false;
	bed.producer++;
	how = take(&input, 1) % 3;
	ask(&input);
	if (how == 1)
		bed.token[RDMA_TOKEN_BYTES - 1] ^= 1;
	any = input.left < HF_PRIVATE_BYTES ? input.left : HF_PRIVATE_BYTES;
	if (connect_with(
		    how == 2 ? input.at : bed.token, how == 2 ? any : RDMA_TOKEN_BYTES, data[1] == ACCESS_PRODUCE)) {
		ensure(how == 0 && bed.has_token);
		for (unsigned i = 0; i < OPERATIONS_MAX && input.left > 0; i++)
			operate(&input);
		turn();
	}
	hf_vqp_destroy(bed.vqp);
	until(has_no_client);
	for (uint32_t i = 0; i < PARTITIONS; i++)
		judge(partition_of(i));
	return 0;
}
