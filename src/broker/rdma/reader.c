/* One-sided consume. */
#include "broker/rdma/reader.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "base/log.h"
#include "base/order.h"
#include "broker/broker.h"

#define WORDS_BYTES   4096u
#define RECEIVE_BYTES 512u /* ATTACH with the longest topic, or RELEASE */
#define SEND_BYTES    64u
#define MEMORY_BYTES  (RDMA_READER_RECEIVES * (RECEIVE_BYTES + SEND_BYTES))
#define SEND_BIT      (1ull << 32) /* of a wr_id */
#define WITHDRAW_NS   1000000000ull

_Static_assert(RDMA_ATTACH_BYTES + RDMA_TOPIC_MAX <= RECEIVE_BYTES, "a receive holds an ATTACH");
_Static_assert(RDMA_ATTACHED_BYTES <= SEND_BYTES, "a send holds an ATTACHED");

/* ---- slots ---- */

static void store(struct reader_slot *slot, bool is_mutable)
{
	struct reader *reader = slot->reader;
	_Atomic uint64_t *at = (_Atomic uint64_t *)(void *)(reader->words + (slot - reader->slots) * RDMA_SLOT_BYTES);
	uint64_t word = rdma_slot(is_mutable, slot->generation, slot->readable);

	/* The records that it tells of were stored before. */
	publish(&at[0], htole64(word));
	publish(&at[1], htole64(~word));
}

static void unfollow(struct reader_slot *slot)
{
	if (slot->partition != NULL)
		partition_remove_wait(&slot->wait);
	slot->partition = NULL;
}

/* Up to hw, by whole batches. Where the next one lies beyond what is registered the slot ends. */
static void follow(struct reader_slot *slot)
{
	struct segment *segment = slot->segment;
	struct batch batch;
	bool beyond = false, complete;

	while (!beyond && segment_at(segment, slot->readable, &batch) &&
		batch_next_offset(&batch) <= slot->partition->hw) {
		beyond = slot->readable + (uint64_t)batch.length > slot->mr->bytes;
		slot->readable += beyond ? 0 : (uint32_t)batch.length;
	}
	complete = beyond || (segment->sealed && slot->readable == segment->bytes);
	store(slot, !complete);
}

/* Its generation is no longer what the reader was told. */
static void withdraw(struct reader_slot *slot, uint64_t now_ns)
{
	unfollow(slot);
	slot->generation = (uint16_t)((slot->generation + 1u) & RDMA_GENERATION_MAX);
	slot->withdrawn_ns = now_ns;
	store(slot, false);
}

static void grown(struct partition_wait *wait, uint32_t bytes)
{
	struct reader_slot *slot = container_of(wait, struct reader_slot, wait);

	if (bytes == UINT32_MAX)
		withdraw(slot, hf_loop_now_ns(slot->reader->client->rdma->broker->loop));
	else
		follow(slot);
}

static void free_slot(struct reader_slot *slot)
{
	unfollow(slot);
	slot->generation = (uint16_t)((slot->generation + 1u) & RDMA_GENERATION_MAX);
	slot->withdrawn_ns = 0;
	slot->readable = 0;
	store(slot, false);
	(void)rdma_dereg(slot->reader->client, slot->mr, slot->segment);
	slot->segment = NULL;
	slot->mr = NULL;
}

/* What has pages: a READ of a hole on a full disk would be our SIGBUS. Of a head without room behind its tail some more
 * are made. */
static int register_segment(struct reader_slot *slot, const char *directory)
{
	struct segment *segment = slot->segment;
	struct hf_error error;
	int rc;

	if (segment_fits(segment, 1))
		(void)segment_prepare(segment, 1); /* else what there is */
	rc = hf_vmr_reg(slot->reader->client->pd, segment->map, segment_present(segment), IBV_ACCESS_REMOTE_READ,
		&slot->mr, &error);
	if (rc != 0)
		log_warn("broker: %s: a segment cannot be registered: %s", directory, error.text);
	return rc;
}

/* ---- what the client asks ---- */

static enum kafka_error attach(struct reader *reader, struct codec_string topic, int32_t index, int32_t epoch,
	int64_t offset, struct reader_slot **slot_out, uint32_t *place_out)
{
	enum kafka_error rc;
	struct partition *partition = broker_find_led(reader->client->rdma->broker, topic, index, &rc);
	struct reader_slot *slot = NULL;

	if (partition == NULL || (rc = partition_check_epoch(partition, epoch)) != KAFKA_NONE)
		return rc;
	for (unsigned i = 0; i < RDMA_SLOTS && slot == NULL; i++)
		if (reader->slots[i].segment == NULL)
			slot = &reader->slots[i];
	if (slot == NULL)
		return KAFKA_INVALID_REQUEST; /* it releases too little */
	rc = broker_range_error(
		reader->client->rdma->broker, partition_log_find(partition->log, offset, &slot->segment, place_out));
	if (rc == KAFKA_NONE && register_segment(slot, partition->log->directory) != 0)
		rc = KAFKA_STORAGE_ERROR;
	if (rc != KAFKA_NONE) {
		slot->segment = NULL;
		return rc;
	}
	segment_pin(slot->segment);
	slot->partition = partition;
	slot->readable = *place_out;
	partition_add_wait(partition, &slot->wait);
	follow(slot);
	*slot_out = slot;
	return KAFKA_NONE;
}

static void answer(
	struct reader *reader, uint16_t request, enum kafka_error error, const struct reader_slot *slot, uint32_t place)
{
	uint32_t number = reader->free_sends[--reader->free_count];
	uint8_t *at = reader->memory + RDMA_READER_RECEIVES * RECEIVE_BYTES + (size_t)number * SEND_BYTES;
	struct ibv_sge sge = {.addr = (uintptr_t)at, .length = RDMA_ATTACHED_BYTES, .lkey = reader->mr->lkey};
	struct ibv_send_wr wr = {.wr_id = SEND_BIT | number, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND},
			   *bad;

	memset(at, 0, RDMA_ATTACHED_BYTES);
	at[0] = RDMA_ATTACHED;
	put_le16(at + 2, request);
	put_le16(at + 4, (uint16_t)error);
	if (slot != NULL) {
		put_le16(at + 6, (uint16_t)(slot - reader->slots));
		put_le16(at + 8, slot->generation);
		put_le32(at + 12, slot->mr->rkey);
		put_le64(at + 16, (uintptr_t)slot->segment->map);
		put_le32(at + 24, place);
		put_le64(at + 32, (uint64_t)slot->segment->base_offset);
	}
	if (hf_vqp_post_send(reader->end.vqp, &wr, &bad) != 0)
		hf_vqp_abort(reader->end.vqp);
}

static bool take_attach(struct reader *reader, const uint8_t *at, uint32_t bytes)
{
	struct codec_string topic;
	struct reader_slot *slot = NULL;
	uint32_t place = 0;
	enum kafka_error error;

	if (bytes < RDMA_ATTACH_BYTES || get_le16(at + 16) != bytes - RDMA_ATTACH_BYTES || reader->free_count == 0)
		return false;
	topic = (struct codec_string){(const char *)at + RDMA_ATTACH_BYTES, get_le16(at + 16)};
	error = attach(reader, topic, (int32_t)get_le32(at + 4), (int32_t)get_le32(at + 20), (int64_t)get_le64(at + 8),
		&slot, &place);
	answer(reader, get_le16(at + 2), error, slot, place);
	return true;
}

/* One that comes after the slot was withdrawn and given away means nothing. */
static bool take_release(struct reader *reader, const uint8_t *at, uint32_t bytes)
{
	struct reader_slot *slot;

	if (bytes != RDMA_RELEASE_BYTES || get_le16(at + 2) >= RDMA_SLOTS)
		return false;
	slot = &reader->slots[get_le16(at + 2)];
	if (slot->segment != NULL && (slot->withdrawn_ns != 0 || slot->generation == get_le16(at + 4)))
		free_slot(slot);
	return true;
}

static void post_receive(struct reader *reader, uint32_t number)
{
	struct ibv_sge sge = {.addr = (uintptr_t)reader->memory + (size_t)number * RECEIVE_BYTES,
		.length = RECEIVE_BYTES,
		.lkey = reader->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = number, .sg_list = &sge, .num_sge = 1}, *bad;

	if (hf_vqp_post_recv(reader->end.vqp, &wr, &bad) != 0)
		hf_vqp_abort(reader->end.vqp);
}

static void completed(struct rdma_end *end, const struct ibv_wc *wc)
{
	struct reader *reader = container_of(end, struct reader, end);
	uint32_t number = (uint32_t)wc->wr_id;
	const uint8_t *at = reader->memory + (size_t)number * RECEIVE_BYTES;
	bool right;

	if ((wc->wr_id & SEND_BIT) != 0) {
		reader->free_sends[reader->free_count++] = number;
		return;
	}
	if (wc->status != IBV_WC_SUCCESS)
		return;
	right = wc->byte_len > 0 &&
		(at[0] == RDMA_ATTACH ? take_attach(reader, at, wc->byte_len)
				      : at[0] == RDMA_RELEASE && take_release(reader, at, wc->byte_len));
	if (right)
		post_receive(reader, number);
	else
		hf_vqp_abort(end->vqp);
}

/* ---- opening, turns, the end ---- */

static int take_memory(struct rdma_client *client, size_t bytes, int access, uint8_t **at_out, struct hf_vmr **mr_out)
{
	struct hf_error error;
	void *memory;
	int rc = hf_mem_alloc(client->rdma->broker->env, bytes, &memory, &error);

	*at_out = memory;
	if (rc == 0)
		rc = hf_vmr_reg(client->pd, memory, bytes, access, mr_out, &error);
	if (rc != 0)
		log_warn("broker: no memory for a reader: %s", error.text);
	return rc;
}

struct hf_vqp *reader_open(struct rdma_client *client, uint8_t *reply, size_t *reply_bytes)
{
	struct reader *reader = calloc(1, sizeof(*reader));

	if (reader == NULL)
		return NULL;
	*reader = (struct reader){.end = {.completed = completed}, .client = client};
	list_push_back(&client->readers, &reader->node);
	for (unsigned i = 0; i < RDMA_SLOTS; i++)
		reader->slots[i] = (struct reader_slot){.wait = {.grown = grown}, .reader = reader};
	for (uint32_t i = 0; i < RDMA_READER_RECEIVES; i++)
		reader->free_sends[reader->free_count++] = i;
	if (take_memory(client, WORDS_BYTES, IBV_ACCESS_REMOTE_READ, &reader->words, &reader->words_mr) != 0 ||
		take_memory(client, MEMORY_BYTES, IBV_ACCESS_LOCAL_WRITE, &reader->memory, &reader->mr) != 0 ||
		rdma_make_vqp(client, &reader->end, IBV_ACCESS_REMOTE_READ, false, RDMA_READER_RECEIVES,
			RDMA_READER_RECEIVES) == NULL) {
		reader_close(reader);
		return NULL;
	}
	for (uint32_t i = 0; i < RDMA_READER_RECEIVES; i++)
		post_receive(reader, i);
	memset(reply, 0, RDMA_READING_BYTES);
	reply[0] = RDMA_VERSION;
	reply[1] = ACCESS_READ;
	put_le16(reply + 2, RDMA_SLOTS);
	put_le32(reply + 4, reader->words_mr->rkey);
	put_le64(reply + 8, (uintptr_t)reader->words);
	*reply_bytes = RDMA_READING_BYTES;
	return reader->end.vqp;
}

bool reader_turn(struct reader *reader)
{
	if (!reader->end.lost)
		return false;
	reader_close(reader);
	return true;
}

void reader_tick(struct reader *reader, uint64_t now_ns)
{
	for (unsigned i = 0; i < RDMA_SLOTS; i++) {
		struct reader_slot *slot = &reader->slots[i];

		if (slot->segment == NULL)
			continue;
		if (slot->withdrawn_ns == 0 && list_empty(&slot->segment->node))
			withdraw(slot, now_ns); /* it is not in the log any more */
		else if (slot->withdrawn_ns != 0 && now_ns - slot->withdrawn_ns > WITHDRAW_NS)
			free_slot(slot);
	}
}

void reader_close(struct reader *reader)
{
	struct hf_env *env = reader->client->rdma->broker->env;

	for (unsigned i = 0; i < RDMA_SLOTS; i++)
		if (reader->slots[i].segment != NULL)
			free_slot(&reader->slots[i]);
	rdma_drop_vqp(reader->client->rdma, &reader->end);
	if (hf_vmr_dereg(reader->words_mr) == 0)
		hf_mem_free(env, reader->words);
	if (hf_vmr_dereg(reader->mr) == 0)
		hf_mem_free(env, reader->memory);
	list_remove(&reader->node);
	free(reader);
}
