/* Reading segments by READ, up to what a slot says (rdma_wire.h). One READ has the slots of all partitions of a
 * session. */
#include "broker/client/consumer_session.h"

#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"

#define POLL_MAX 32

static struct consumer_partition *partition_of(struct list *node)
{
	return container_of(node, struct consumer_partition, node);
}

static struct consumer_partition *partition_number(struct hf_consumer *consumer, uint64_t number)
{
	list_for_each (at, &consumer->partitions)
		if (number-- == 0)
			return partition_of(at);
	return NULL;
}

/* ---- asking for segments ---- */

static bool attach(struct consumer_partition *partition, struct consumer_session *session, int64_t offset)
{
	uint32_t length = (uint32_t)strlen(partition->topic->name);
	uint8_t message[SEND_BYTES] = {RDMA_ATTACH};

	put_le16(message + 2, ++session->requests);
	put_le32(message + 4, (uint32_t)partition->index);
	put_le64(message + 8, (uint64_t)offset);
	put_le16(message + 16, (uint16_t)length);
	put_le32(message + 20, (uint32_t)leaders_epoch(partition->topic, partition->index));
	memcpy(message + RDMA_ATTACH_BYTES, partition->topic->name, length);
	if (!consumer_session_say(session, message, RDMA_ATTACH_BYTES + length))
		return false;
	partition->request = session->requests;
	partition->session = session;
	consumer_move(partition, CONSUMER_ATTACHING);
	return true;
}

static void release(struct consumer_session *session, uint16_t slot, uint16_t generation)
{
	uint8_t message[RDMA_RELEASE_BYTES] = {RDMA_RELEASE};

	put_le16(message + 2, slot);
	put_le16(message + 4, generation);
	session->full = false;
	session->released = session->requests;
	session->lost |= !consumer_session_say(session, message, sizeof(message));
}

void consumer_direct_end(struct consumer_partition *partition)
{
	struct consumer_session *session = partition->session;

	partition->session = NULL;
	if (session != NULL && session->state == SESSION_UP && partition->way == CONSUMER_DIRECT)
		release(session, partition->slot, partition->generation);
}

bool consumer_direct_begin(struct consumer_partition *partition, uint64_t now_ns)
{
	struct hf_consumer *consumer = partition->consumer;
	struct consumer_session *session;

	if (consumer->node == NULL || partition->leader->access != LEADERS_ACCESS_YES)
		return false;
	session = consumer_session_of(consumer, partition->leader);
	if (session == NULL)
		return false;
	if (session->state == SESSION_DOWN && now_ns >= session->again_ns && !session->call.waiting)
		consumer_session_ask(session);
	if (session->state == SESSION_UP && session->full)
		return false;
	if (session->state != SESSION_UP) /* is it worth waiting for? */
		return session->state != SESSION_DOWN && partition->way == CONSUMER_NEW;
	if (partition->way == CONSUMER_TCP)
		consumer_begin_anew(partition, true);
	return attach(partition, session, partition->position) || partition->way == CONSUMER_NEW;
}

static void attached(struct consumer_session *session, const uint8_t *at, uint32_t bytes)
{
	struct consumer_partition *partition = NULL;

	if (bytes != RDMA_ATTACHED_BYTES || at[0] != RDMA_ATTACHED) {
		session->lost = true;
		return;
	}
	list_for_each (node, &session->consumer->partitions)
		if (partition_of(node)->session == session && partition_of(node)->way == CONSUMER_ATTACHING &&
			partition_of(node)->request == get_le16(at + 2))
			partition = partition_of(node);
	if (partition == NULL) { /* it wants something else by now */
		if (get_le16(at + 4) == KAFKA_NONE)
			release(session, get_le16(at + 6), get_le16(at + 8));
		return;
	}
	if (get_le16(at + 4) == KAFKA_OFFSET_OUT_OF_RANGE) {
		consumer_reset(partition);
		return;
	}
	if (get_le16(at + 4) == KAFKA_INVALID_REQUEST) {
		session->full = (int16_t)(uint16_t)(partition->request - session->released) > 0;
		consumer_begin_anew(partition, true);
		return;
	}
	if (get_le16(at + 4) != KAFKA_NONE || get_le16(at + 6) >= RDMA_SLOTS) {
		consumer_begin_anew(partition, false);
		return;
	}
	partition->slot = get_le16(at + 6);
	partition->generation = get_le16(at + 8);
	partition->key = get_le32(at + 12);
	partition->address = get_le64(at + 16);
	partition->place = partition->readable = get_le32(at + 24);
	partition->complete = partition->withdrawn = false;
	partition->first_look = session->look_number + 1;
	partition->consumer->stats.attached++;
	consumer_move(partition, CONSUMER_DIRECT);
}

/* ---- READs ---- */

static bool read_into(
	struct consumer_session *session, uint64_t wr_id, struct ibv_sge sge, uint64_t address, uint32_t key)
{
	struct ibv_send_wr wr = {.wr_id = wr_id,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_READ,
		.wr.rdma = {.remote_addr = address, .rkey = key}};
	struct ibv_send_wr *bad;

	if (session->reading == 0)
		session->progress_ns = hf_loop_now_ns(session->consumer->loop);
	if (hf_vqp_post_send(session->end.vqp, &wr, &bad) != 0) {
		session->lost = true;
		return false;
	}
	session->reading++;
	return true;
}

/* One READ has the slots of all. */
static bool look(struct consumer_session *session)
{
	struct hf_consumer *consumer = session->consumer;
	struct ibv_sge sge = {.addr = (uintptr_t)session->end.memory, .lkey = session->end.mr->lkey};
	uint32_t slots = 0;

	if (session->looking)
		return false;
	list_for_each (at, &consumer->partitions) {
		const struct consumer_partition *partition = partition_of(at);

		if (partition->session == session && partition->way == CONSUMER_DIRECT && !partition->complete &&
			partition->place == partition->readable && partition->slot >= slots)
			slots = partition->slot + 1u;
	}
	sge.length = slots * RDMA_SLOT_BYTES;
	if (slots == 0 || !read_into(session, WR_LOOK << WR_KIND, sge, session->slots_address, session->slots_key))
		return false;
	session->looking = true;
	session->looked_slots = slots;
	session->look_number++;
	consumer->stats.looks++;
	return true;
}

static void take_slot(struct consumer_partition *partition, const uint8_t *at)
{
	struct rdma_slot slot;

	if (!rdma_slot_read(at, &slot))
		return; /* it was changing */
	if (slot.generation != partition->generation) {
		partition->withdrawn = true;
	} else if (slot.readable > partition->readable || (!slot.is_mutable && slot.readable == partition->readable)) {
		partition->readable = (uint32_t)slot.readable;
		partition->complete = !slot.is_mutable;
		partition->session->progress = true;
	}
}

/* Of slots that were given while the READ was on its way it knows nothing. */
static void looked(struct consumer_session *session)
{
	session->looking = false;
	session->looked_number = session->look_number;
	list_for_each (at, &session->consumer->partitions) {
		struct consumer_partition *partition = partition_of(at);

		if (partition->session == session && partition->way == CONSUMER_DIRECT && !partition->complete &&
			partition->slot < session->looked_slots && partition->first_look <= session->look_number)
			take_slot(partition, session->end.memory + partition->slot * RDMA_SLOT_BYTES);
	}
}

/* Bytes of the batch at the front; 0: not known yet. */
static uint64_t batch_bytes(const struct consumer_partition *partition)
{
	if (partition->to - partition->from < BATCH_LENGTH_END)
		return 0;
	return (uint64_t)get_be32(partition->buffer + partition->from + 8) + BATCH_LENGTH_END;
}

static uint32_t wanted_bytes(const struct consumer_partition *partition)
{
	uint32_t have = partition->to - partition->from, left = partition->readable - partition->place, want;

	want = partition->consumer->config.fetch_bytes;
	if (batch_bytes(partition) > (uint64_t)have + want) /* the rest of one that is larger */
		want = batch_bytes(partition) - have > left ? left : (uint32_t)(batch_bytes(partition) - have);
	return want < left ? want : left;
}

static bool read_more(struct consumer_partition *partition, uint64_t number)
{
	uint64_t first = batch_bytes(partition);
	uint32_t bytes = wanted_bytes(partition);
	struct ibv_sge sge;

	if (partition->in_flight != NULL || partition->in_batch || bytes == 0 ||
		(first > 0 && first <= partition->to - partition->from))
		return false; /* what is whole is given out first */
	if (!consumer_make_room(partition, bytes)) {
		consumer_begin_anew(partition, false);
		return false;
	}
	sge = (struct ibv_sge){.addr = (uintptr_t)partition->buffer + partition->to,
		.length = bytes,
		.lkey = partition->buffer_mr->lkey};
	if (!read_into(partition->session, WR_READ << WR_KIND | (uint64_t)partition->life << 24 | number, sge,
		    partition->address + partition->place, partition->key))
		return false;
	partition->reading = bytes;
	partition->in_flight = partition->session;
	partition->consumer->stats.reads++;
	return true;
}

static void was_read(struct consumer_session *session, uint64_t which)
{
	struct consumer_partition *partition = partition_number(session->consumer, which & 0xffffff);

	ensure(partition != NULL);
	partition->in_flight = NULL;
	if (partition->session != session || partition->way != CONSUMER_DIRECT || which >> 24 != partition->life)
		return;
	partition->to += partition->reading;
	partition->place += partition->reading;
	partition->reading = 0;
}

static void completed(struct consumer_session *session, const struct ibv_wc *wc)
{
	uint32_t number = (uint32_t)wc->wr_id;

	if (wc->status != IBV_WC_SUCCESS) {
		session->lost = true;
		return;
	}
	session->progress |= wc->wr_id >> WR_KIND != WR_LOOK;
	session->progress_ns = hf_loop_now_ns(session->consumer->loop);
	session->reading -= wc->wr_id >> WR_KIND == WR_LOOK || wc->wr_id >> WR_KIND == WR_READ;
	switch (wc->wr_id >> WR_KIND) {
	case WR_RECEIVE:
		attached(session, session->end.memory + RECEIVES_AT + (size_t)number * RECEIVE_BYTES, wc->byte_len);
		session->lost |= !consumer_session_post_receive(session, number);
		break;
	case WR_SEND:
		session->free_sends[session->free_count++] = number;
		break;
	case WR_LOOK:
		looked(session);
		break;
	case WR_READ:
		was_read(session, wc->wr_id & WR_WHICH);
		break;
	}
}

/* ---- turns ---- */

/* All of a segment was read and given out: the next one. */
static bool next_segment(struct consumer_partition *partition)
{
	struct consumer_session *session = partition->session;

	if (!partition->complete || partition->place != partition->readable || partition->from != partition->to ||
		session->free_count < 2)
		return false;
	release(session, partition->slot, partition->generation);
	return attach(partition, session, partition->position);
}

static bool partition_turn(struct consumer_partition *partition, uint64_t number)
{
	if (partition->way != CONSUMER_DIRECT)
		return false;
	if (partition->withdrawn) {
		partition->withdrawn = false;
		consumer_begin_anew(partition, true);
		return true;
	}
	return read_more(partition, number) || next_segment(partition);
}

/* The leader is dead, or not the leader any more: READs on their way need not wait for all that a vqp tries (R-B27). */
static bool has_moved(struct consumer_session *session, uint64_t now_ns)
{
	struct hf_consumer *consumer = session->consumer;

	if (session->reading == 0 || now_ns - session->progress_ns < LEADERS_STALL_NS)
		return false;
	list_for_each (at, &consumer->partitions) {
		const struct consumer_partition *partition = partition_of(at);

		if (partition->session == session &&
			leaders_moved(&consumer->leaders, partition->topic, partition->index, session->broker))
			return true;
	}
	return false;
}

static void poll(struct consumer_session *session)
{
	struct ibv_wc wcs[POLL_MAX];
	int n;

	do {
		n = hf_vcq_poll(session->end.cq, POLL_MAX, wcs);
		for (int i = 0; i < n; i++)
			completed(session, &wcs[i]);
	} while (!session->lost && n == POLL_MAX); /* fewer: there are no more */
}

static bool session_turn(struct consumer_session *session, uint64_t now_ns)
{
	struct hf_consumer *consumer = session->consumer;
	uint64_t number = 0;

	session->progress = false;
	if (session->state == SESSION_CONNECTING)
		consumer_session_connecting(session, now_ns);
	if (session->state == SESSION_UP) {
		uint32_t reading;

		poll(session);
		(void)look(session);
		poll(session); /* over shm it is done already */
		reading = session->reading;
		list_for_each (at, &consumer->partitions) {
			struct consumer_partition *partition = partition_of(at);

			if (partition->session == session)
				session->progress |= partition_turn(partition, number);
			number++;
		}
		if (session->reading > reading)
			poll(session);
		session->lost |= has_moved(session, now_ns);
	}
	if (session->lost)
		consumer_session_lose(session);
	return session->progress;
}

bool consumer_direct_turn(struct hf_consumer *consumer, uint64_t now_ns)
{
	bool busy = false;

	list_for_each (at, &consumer->sessions)
		busy |= session_turn(container_of(at, struct consumer_session, node), now_ns);
	return busy;
}

void consumer_direct_close(struct hf_consumer *consumer)
{
	while (!list_empty(&consumer->sessions)) {
		struct consumer_session *session =
			container_of(list_pop_front(&consumer->sessions), struct consumer_session, node);

		consumer_session_close(session);
		free(session);
	}
}
