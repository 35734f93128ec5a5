/* Reading segments by READ, up to what a slot says (rdma_wire.h). One session with each broker: a vqp through which all
 * its partitions are read, one READ for the slots of all. */
#include "broker/client/consumer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "base/log.h"

#define SLOTS_BYTES   (RDMA_SLOTS * RDMA_SLOT_BYTES)
#define RECEIVE_BYTES 64u
#define SEND_BYTES    512u
#define RECEIVES_AT   SLOTS_BYTES
#define SENDS_AT      (RECEIVES_AT + RDMA_READER_RECEIVES * RECEIVE_BYTES)
#define MEMORY_BYTES  (SENDS_AT + RDMA_READER_RECEIVES * SEND_BYTES)
#define READS         64u /* under way; shm and soft take 16 of them at a time */
#define SENDS         (READS + RDMA_READER_RECEIVES)
#define CQE           (SENDS + RDMA_READER_RECEIVES)
#define POLL_MAX      32
#define CONNECT_NS    1000000000ull

/* wr_ids: what it is, and for READs of segments the partition's number in the list. */
#define WR_KIND    60
#define WR_RECEIVE 1ull
#define WR_SEND    2ull
#define WR_LOOK    3ull
#define WR_READ    4ull
#define WR_WHICH   ((1ull << WR_KIND) - 1)

_Static_assert(RDMA_ATTACHED_BYTES <= RECEIVE_BYTES, "a receive holds an ATTACHED");
_Static_assert(RDMA_ATTACH_BYTES + RDMA_TOPIC_MAX <= SEND_BYTES, "a send holds an ATTACH");

static const unsigned allowed[SESSION_STATES] = {
	[SESSION_DOWN] = 1u << SESSION_ASKING,
	[SESSION_ASKING] = 1u << SESSION_DOWN | 1u << SESSION_CONNECTING,
	[SESSION_CONNECTING] = 1u << SESSION_DOWN | 1u << SESSION_UP,
	[SESSION_UP] = 1u << SESSION_DOWN,
};

static void move(struct consumer_session *session, enum consumer_session_state to)
{
	ensure((allowed[session->state] & 1u << to) != 0);
	session->state = to;
}

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

/* ---- a session's life ---- */

static void changed(struct hf_vqp *vqp, void *context)
{
	struct consumer_session *session = context;

	session->lost |= hf_vqp_state(vqp) == HF_VQP_ERROR;
}

static bool post_receive(struct consumer_session *session, uint32_t number)
{
	struct ibv_sge sge = {.addr = (uintptr_t)session->memory + RECEIVES_AT + (size_t)number * RECEIVE_BYTES,
		.length = RECEIVE_BYTES,
		.lkey = session->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = WR_RECEIVE << WR_KIND | number, .sg_list = &sge, .num_sge = 1}, *bad;

	return hf_vqp_post_recv(session->vqp, &wr, &bad) == 0;
}

static int open_vqp(struct consumer_session *session)
{
	struct hf_consumer *consumer = session->consumer;
	struct hf_vqp_init init = {.cap = {.max_send_wr = SENDS,
					   .max_recv_wr = RDMA_READER_RECEIVES,
					   .max_send_sge = 1,
					   .max_recv_sge = 1},
		.sq_sig_all = true,
		.context = session,
		.changed = changed};
	struct hf_error error;
	void *memory;
	int rc = hf_mem_alloc(hf_loop_env(consumer->loop), MEMORY_BYTES, &memory, &error);

	session->memory = memory;
	if (rc == 0)
		rc = hf_vmr_reg(consumer->pd, memory, MEMORY_BYTES, IBV_ACCESS_LOCAL_WRITE, &session->mr, &error);
	if (rc == 0)
		rc = hf_vcq_create(consumer->node, CQE, session, &session->cq);
	init.send_cq = session->cq;
	if (rc == 0)
		rc = hf_vqp_create(consumer->pd, &init, &session->vqp);
	session->free_count = 0;
	for (uint32_t i = 0; rc == 0 && i < RDMA_READER_RECEIVES; i++) {
		session->free_sends[session->free_count++] = i;
		rc = post_receive(session, i) ? 0 : -ENOMEM;
	}
	return rc;
}

static void close_vqp(struct consumer_session *session)
{
	hf_vqp_destroy(session->vqp);
	session->vqp = NULL;
	if (session->cq != NULL)
		(void)hf_vcq_destroy(session->cq);
	session->cq = NULL;
	if (session->mr != NULL)
		(void)hf_vmr_dereg(session->mr);
	session->mr = NULL;
	if (session->memory != NULL)
		hf_mem_free(hf_loop_env(session->consumer->loop), session->memory);
	session->memory = NULL;
	session->looking = session->lost = false;
	session->reading = 0;
}

/* Its partitions go on over TCP, until it is up again. */
static void lose(struct consumer_session *session)
{
	struct hf_consumer *consumer = session->consumer;

	consumer->stats.losses += session->state == SESSION_UP;
	close_vqp(session);
	move(session, SESSION_DOWN);
	session->again_ns = hf_loop_now_ns(consumer->loop) + consumer->config.return_ns;
	list_for_each (at, &consumer->partitions) {
		struct consumer_partition *partition = partition_of(at);

		if (partition->in_flight == session)
			partition->in_flight = NULL;
		if (partition->session != session)
			continue;
		partition->session = NULL;
		consumer_begin_anew(partition, true);
	}
}

static void access_known(struct kafka_call *of, const void *response)
{
	struct consumer_session *session = container_of(of, struct consumer_session, call);
	struct hf_consumer *consumer = session->consumer;
	const struct kafka_access_response *answer = response;
	struct hf_peer *peer = NULL;

	if (answer != NULL && answer->error_code == KAFKA_NONE)
		peer = leaders_peer(&consumer->leaders, answer->addresses.at, answer->addresses.count);
	if (peer == NULL || open_vqp(session) != 0 ||
		hf_vqp_connect(session->vqp, peer, RDMA_SERVICE, answer->token.byte, sizeof(answer->token.byte)) != 0) {
		lose(session);
		return;
	}
	session->connect_end_ns = hf_loop_now_ns(consumer->loop) + CONNECT_NS;
	move(session, SESSION_CONNECTING);
}

static void ask(struct consumer_session *session)
{
	const struct kafka_access_request request = {.kind = ACCESS_READ, .topic = {"", 0}, .current_leader_epoch = -1};

	move(session, SESSION_ASKING);
	session->call.done = access_known;
	if (!kafka_link_call(&session->broker->link, &session->call, KAFKA_ACCESS, 0, &request))
		lose(session);
}

static void connecting(struct consumer_session *session, uint64_t now_ns)
{
	const uint8_t *at;
	size_t bytes;

	if (hf_vqp_state(session->vqp) != HF_VQP_UP) {
		session->lost |= now_ns >= session->connect_end_ns;
		return;
	}
	at = hf_vqp_reply(session->vqp, &bytes);
	if (bytes != RDMA_READING_BYTES || at[0] != RDMA_VERSION || at[1] != ACCESS_READ ||
		get_le16(at + 2) != RDMA_SLOTS) {
		session->lost = true;
		return;
	}
	session->slots_key = get_le32(at + 4);
	session->slots_address = get_le64(at + 8);
	move(session, SESSION_UP);
}

static struct consumer_session *session_of(struct hf_consumer *consumer, struct leaders_broker *broker)
{
	struct consumer_session *session;

	list_for_each (at, &consumer->sessions)
		if (container_of(at, struct consumer_session, node)->broker == broker)
			return container_of(at, struct consumer_session, node);
	session = calloc(1, sizeof(*session));
	if (session == NULL)
		return NULL;
	*session = (struct consumer_session){.consumer = consumer, .broker = broker};
	list_push_back(&consumer->sessions, &session->node);
	return session;
}

/* ---- asking for segments ---- */

static bool say(struct consumer_session *session, const uint8_t *data, uint32_t bytes)
{
	uint32_t number;
	uint8_t *at;
	struct ibv_sge sge = {.length = bytes, .lkey = session->mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;

	if (session->free_count == 0)
		return false;
	number = session->free_sends[--session->free_count];
	at = session->memory + SENDS_AT + (size_t)number * SEND_BYTES;
	memcpy(at, data, bytes);
	sge.addr = (uintptr_t)at;
	wr.wr_id = WR_SEND << WR_KIND | number;
	session->lost |= hf_vqp_post_send(session->vqp, &wr, &bad) != 0;
	return true;
}

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
	if (!say(session, message, RDMA_ATTACH_BYTES + length))
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
	session->lost |= !say(session, message, sizeof(message));
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
	session = session_of(consumer, partition->leader);
	if (session == NULL)
		return false;
	if (session->state == SESSION_DOWN && now_ns >= session->again_ns && !session->call.waiting)
		ask(session);
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
	if (hf_vqp_post_send(session->vqp, &wr, &bad) != 0) {
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
	struct ibv_sge sge = {.addr = (uintptr_t)session->memory, .lkey = session->mr->lkey};
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
			take_slot(partition, session->memory + partition->slot * RDMA_SLOT_BYTES);
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
		attached(session, session->memory + RECEIVES_AT + (size_t)number * RECEIVE_BYTES, wc->byte_len);
		session->lost |= !post_receive(session, number);
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

	while (!session->lost && (n = hf_vcq_poll(session->cq, POLL_MAX, wcs)) > 0)
		for (int i = 0; i < n; i++)
			completed(session, &wcs[i]);
}

static bool session_turn(struct consumer_session *session, uint64_t now_ns)
{
	struct hf_consumer *consumer = session->consumer;
	uint64_t number = 0;

	session->progress = false;
	if (session->state == SESSION_CONNECTING)
		connecting(session, now_ns);
	if (session->state == SESSION_UP) {
		poll(session);
		(void)look(session);
		poll(session); /* over shm it is done already */
		list_for_each (at, &consumer->partitions) {
			struct consumer_partition *partition = partition_of(at);

			if (partition->session == session)
				session->progress |= partition_turn(partition, number);
			number++;
		}
		poll(session);
		session->lost |= has_moved(session, now_ns);
	}
	if (session->lost)
		lose(session);
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

		close_vqp(session);
		free(session);
	}
}
