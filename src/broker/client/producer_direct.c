/* The grant of a partition: batches by WRITE_WITH_IMM, answers by SEND (rdma_wire.h).
 *
 * When it is over, for whatever reason, the vqp is destroyed first, so that the memory of batches is ours again, and
 * what is not answered is settled by Access (producer_tcp.c). Only behind a batch that was refused nothing can be in
 * the log (R-B11), and nothing has to be asked. */
#include "broker/client/producer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "base/log.h"

#define RECEIVES      (RDMA_CREDITS + 8u) /* an answer has one entry at least, and EXTENT and END come seldom */
#define RECEIVE_BYTES (RDMA_ENTRIES_MAX * RDMA_ENTRY_BYTES)
#define MEMORY_BYTES  (RECEIVES * RECEIVE_BYTES + RDMA_OVERRUN_BYTES)
#define SENDS         RDMA_CREDITS
#define CQE           (RECEIVES + SENDS)
#define POLL_MAX      32
#define OVERRUN_ID    UINT64_MAX   /* a wr_id */
#define RECEIVE_BIT   (1ull << 63) /* of a wr_id; else it is a batch */
#define CONNECT_NS    1000000000ull

_Static_assert(RDMA_GRANT_BYTES <= HF_PRIVATE_BYTES, "a reply describes a grant");

static struct produce_batch *batch_of(struct list *node)
{
	return container_of(node, struct produce_batch, node);
}

/* ---- opening and closing ---- */

static void changed(struct hf_vqp *vqp, void *context)
{
	struct producer_partition *partition = context;

	if (hf_vqp_state(vqp) == HF_VQP_ERROR || !hf_vqp_armed(vqp))
		partition->lost = true;
}

static bool post_receive(struct producer_partition *partition, uint32_t number)
{
	return direct_end_post_receive(
		&partition->end, RECEIVE_BIT | number, (size_t)number * RECEIVE_BYTES, RECEIVE_BYTES);
}

static int open_vqp(struct producer_partition *partition)
{
	struct hf_producer *producer = partition->producer;
	struct hf_vqp_init init = {
		.cap = {.max_send_wr = SENDS, .max_recv_wr = RECEIVES, .max_send_sge = 1, .max_recv_sge = 1},
		.sq_sig_all = true,
		.revocable = true, /* a qp on every rail */
		.context = partition,
		.changed = changed};
	int rc = direct_end_open(&partition->end, producer->node, producer->pd, MEMORY_BYTES, CQE, &init);

	for (uint32_t i = 0; rc == 0 && i < RECEIVES; i++)
		rc = post_receive(partition, i) ? 0 : -ENOMEM;
	return rc;
}

void producer_direct_close(struct producer_partition *partition)
{
	direct_end_close(&partition->end);
	/* No wr is under way any more. */
	list_for_each_safe (at, &partition->posted) {
		struct produce_batch *batch = batch_of(at);

		batch->posted = false;
		producer_free_batch(partition, batch);
	}
	list_for_each (at, &partition->sent)
		batch_of(at)->posted = false;
}

int producer_direct_connect(struct producer_partition *partition, const struct kafka_access_response *access)
{
	struct hf_producer *producer = partition->producer;
	struct hf_peer *peer = leaders_peer(&producer->leaders, access->addresses.at, access->addresses.count);
	int rc = peer == NULL ? -EHOSTUNREACH : open_vqp(partition);

	if (rc == 0)
		rc = hf_vqp_connect(
			partition->end.vqp, peer, RDMA_SERVICE, access->token.byte, sizeof(access->token.byte));
	if (rc != 0) {
		producer_direct_close(partition);
		return rc;
	}
	partition->lost = false;
	partition->connect_end_ns = hf_loop_now_ns(producer->loop) + CONNECT_NS;
	producer_move(partition, PRODUCER_CONNECTING);
	return 0;
}

/* What is not answered is settled next. */
static void lose(struct producer_partition *partition)
{
	struct hf_producer *producer = partition->producer;

	producer->stats.losses += partition->way == PRODUCER_DIRECT;
	partition->return_ns = hf_loop_now_ns(producer->loop) + producer->config.return_ns;
	producer_direct_close(partition);
	producer_move(partition, PRODUCER_NEW);
}

/* False: the reply makes no sense. */
static bool begin(struct producer_partition *partition)
{
	size_t bytes;
	const uint8_t *at = hf_vqp_reply(partition->end.vqp, &bytes);

	if (bytes != RDMA_GRANT_BYTES || at[0] != RDMA_VERSION || at[1] != ACCESS_PRODUCE)
		return false;
	partition->extent = get_le16(at + 2);
	partition->credits = get_le32(at + 4);
	partition->address = get_le64(at + 8);
	partition->key = get_le32(at + 16);
	partition->extent_bytes = get_le32(at + 20);
	partition->batch_max = get_le32(at + 24);
	partition->used = partition->said = 0;
	partition->order = 0;
	partition->wants_extent = false;
	partition->producer->stats.grants++;
	producer_move(partition, PRODUCER_DIRECT);
	return true;
}

/* ---- answers ---- */

/* It was refused, and so is all that lies behind it: nothing of that is in the log. */
static void refused(struct producer_partition *partition, int16_t error)
{
	const struct hf_delivery delivery = {.error = -EIO, .refusal = error, .offset = -1, .rdma = true};
	struct produce_batch *batch = batch_of(partition->sent.next);
	int32_t sequence = batch->sequence;

	if (producer_tcp_is_retriable(error))
		partition->topic->stale = true;
	else
		producer_delivered(partition, batch, &delivery);
	lose(partition);
	producer_requeue(partition);
	partition->next_sequence = sequence;
	if (error == KAFKA_OUT_OF_ORDER_SEQUENCE || error == KAFKA_INVALID_PRODUCER_EPOCH)
		partition->id = -1;
}

/* False: it is no answer to anything. */
static bool answered(struct producer_partition *partition, const uint8_t *at)
{
	struct hf_delivery delivery = {.offset = (int64_t)get_le64(at + 16), .rdma = true};
	struct produce_batch *batch;

	if (list_empty(&partition->sent))
		return false;
	batch = batch_of(partition->sent.next);
	if (get_le16(at + 2) != batch->order || get_le16(at + 6) != batch->extent)
		return false;
	partition->credits = get_le32(at + 8);
	partition->progress_ns = hf_loop_now_ns(partition->producer->loop);
	if (get_le16(at + 4) != KAFKA_NONE) {
		refused(partition, (int16_t)get_le16(at + 4));
		return true;
	}
	producer_delivered(partition, batch, &delivery);
	return true;
}

static void take_extent(struct producer_partition *partition, const uint8_t *at)
{
	partition->extent = get_le16(at + 2);
	partition->key = get_le32(at + 4);
	partition->address = get_le64(at + 8);
	partition->extent_bytes = get_le32(at + 16);
	partition->credits = get_le32(at + 20);
	partition->used = 0;
	partition->order = 0;
	partition->wants_extent = false;
	partition->producer->stats.extents++;
}

static void heard(struct producer_partition *partition, const uint8_t *at, uint32_t bytes)
{
	for (uint32_t i = 0; i + RDMA_ENTRY_BYTES <= bytes && partition->end.vqp != NULL; i += RDMA_ENTRY_BYTES) {
		bool right = true;

		if (at[i] == RDMA_ANSWER)
			right = answered(partition, at + i);
		else if (at[i] == RDMA_EXTENT && partition->wants_extent)
			take_extent(partition, at + i);
		else
			right = false; /* END too */
		partition->lost |= !right;
	}
}

static void completed(struct producer_partition *partition, const struct ibv_wc *wc)
{
	struct hf_producer *producer = partition->producer;
	struct produce_batch *batch;

	if (wc->status != IBV_WC_SUCCESS) {
		partition->lost = true;
		return;
	}
	if (wc->wr_id == OVERRUN_ID)
		return;
	if ((wc->wr_id & RECEIVE_BIT) != 0) {
		uint32_t number = (uint32_t)wc->wr_id;

		heard(partition, partition->end.memory + (size_t)number * RECEIVE_BYTES, wc->byte_len);
		if (partition->end.vqp != NULL && !post_receive(partition, number))
			partition->lost = true;
		return;
	}
	batch = &producer->batches[wc->wr_id];
	batch->posted = false;
	if (batch->answered)
		producer_free_batch(partition, batch);
}

/* ---- posting ---- */

static bool say_overrun(struct producer_partition *partition, uint32_t bytes)
{
	uint8_t *at = partition->end.memory + RECEIVES * RECEIVE_BYTES;
	struct ibv_sge sge = {.addr = (uintptr_t)at, .length = RDMA_OVERRUN_BYTES, .lkey = partition->end.mr->lkey};
	struct ibv_send_wr wr = {.wr_id = OVERRUN_ID, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;

	memset(at, 0, RDMA_OVERRUN_BYTES);
	at[0] = RDMA_OVERRUN;
	put_le16(at + 2, partition->order);
	put_le32(at + 4, partition->used);
	put_le32(at + 8, bytes);
	if (hf_vqp_post_send(partition->end.vqp, &wr, &bad) != 0)
		return false;
	partition->said++;
	partition->wants_extent = true;
	return true;
}

static bool post(struct producer_partition *partition, struct produce_batch *batch)
{
	struct hf_producer *producer = partition->producer;
	struct ibv_sge sge = {
		.addr = (uintptr_t)batch->data, .length = batch->bytes, .lkey = producer->buffer_mr->lkey};
	struct ibv_send_wr wr = {.wr_id = (uint64_t)(batch - producer->batches),
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
		.imm_data = rdma_imm(partition->order, partition->extent),
		.wr.rdma = {.remote_addr = partition->address + partition->used, .rkey = partition->key}};
	struct ibv_send_wr *bad;

	batch->order = partition->order;
	batch->extent = partition->extent;
	batch->posted = true;
	if (hf_vqp_post_send(partition->end.vqp, &wr, &bad) != 0) {
		batch->posted = false;
		return false;
	}
	partition->order++;
	partition->used += batch->bytes;
	partition->said++;
	return true;
}

/* As many as there are credits for. The next batch of `queued` becomes one of `sent` only where it is posted. */
static bool post_all(struct producer_partition *partition, uint64_t now_ns)
{
	bool busy = false;

	while (!partition->lost && !partition->wants_extent && (int32_t)(partition->credits - partition->said) > 0) {
		struct produce_batch *batch;
		uint32_t bytes;

		if (list_empty(&partition->queued))
			break;
		batch = batch_of(partition->queued.next);
		bytes = (uint32_t)batch->writer.used;
		if (bytes > partition->batch_max && list_empty(&partition->sent)) {
			const struct hf_delivery delivery = {
				.error = -EIO, .refusal = KAFKA_MESSAGE_TOO_LARGE, .offset = -1, .rdma = true};

			producer_delivered(partition, batch, &delivery);
			continue;
		}
		if (producer_gathers(partition) || bytes > partition->batch_max)
			break;
		if (bytes > partition->extent_bytes - partition->used) {
			partition->lost |= !say_overrun(partition, bytes);
			return true;
		}
		if (list_empty(&partition->sent))
			partition->progress_ns = now_ns;
		batch = producer_next(partition, now_ns);
		if (batch == NULL)
			break;
		partition->lost |= !post(partition, batch);
		busy = true;
	}
	return busy;
}

/* The leader is dead, or not the leader any more: what is on its way need not wait for all that a vqp tries (R-B27). */
static void look_for_leader(struct producer_partition *partition, uint64_t now_ns)
{
	if (list_empty(&partition->sent) || now_ns - partition->progress_ns < LEADERS_STALL_NS ||
		!leaders_moved(&partition->producer->leaders, partition->topic, partition->index, partition->leader))
		return;
	lose(partition);
	partition->return_ns = now_ns; /* the new one has rails as well */
}

static bool poll(struct producer_partition *partition)
{
	struct ibv_wc wcs[POLL_MAX];
	bool busy = false;
	int n;

	while (partition->end.vqp != NULL && (n = hf_vcq_poll(partition->end.cq, POLL_MAX, wcs)) > 0) {
		busy = true;
		for (int i = 0; i < n && partition->end.vqp != NULL; i++)
			completed(partition, &wcs[i]);
	}
	return busy;
}

bool producer_direct_turn(struct producer_partition *partition, uint64_t now_ns)
{
	bool busy = false;

	if (partition->turning)
		return false; /* a callback of this turn has sent something; the turn looks for it */
	partition->turning = true;
	if (partition->way == PRODUCER_CONNECTING) {
		if (hf_vqp_state(partition->end.vqp) == HF_VQP_UP)
			partition->lost |= !begin(partition);
		else
			partition->lost |= now_ns >= partition->connect_end_ns;
	}
	if (partition->way == PRODUCER_DIRECT)
		busy |= poll(partition);
	if (partition->way == PRODUCER_DIRECT)
		busy |= post_all(partition, now_ns);
	if (partition->way == PRODUCER_DIRECT)
		look_for_leader(partition, now_ns);
	if (partition->lost && partition->end.vqp != NULL) {
		lose(partition);
		busy = true;
	}
	partition->turning = false;
	return busy;
}
