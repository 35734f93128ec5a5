/* The life of a session: Access, its vqp, and its end. */
#include "broker/client/consumer_session.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/states.h"

#define CONNECT_NS 1000000000ull

_Static_assert(RDMA_ATTACHED_BYTES <= RECEIVE_BYTES, "a receive holds an ATTACHED");
_Static_assert(RDMA_ATTACH_BYTES + RDMA_TOPIC_MAX <= SEND_BYTES, "a send holds an ATTACH");

static const struct state session_states[SESSION_STATES] = {
	[SESSION_DOWN] = {"down", BIT(SESSION_ASKING)},
	[SESSION_ASKING] = {"asking", BIT(SESSION_DOWN) | BIT(SESSION_CONNECTING)},
	[SESSION_CONNECTING] = {"connecting", BIT(SESSION_DOWN) | BIT(SESSION_UP)},
	[SESSION_UP] = {"up", BIT(SESSION_DOWN)},
};

static void session_move(struct consumer_session *session, enum consumer_session_state to)
{
	states_move("session", session_states, &session->state, to, "%d", session->broker->id);
}

static struct consumer_partition *partition_of(struct list *node)
{
	return container_of(node, struct consumer_partition, node);
}

static void changed(struct hf_vqp *vqp, void *context)
{
	struct consumer_session *session = context;

	session->lost |= hf_vqp_state(vqp) == HF_VQP_ERROR;
}

bool consumer_session_post_receive(struct consumer_session *session, uint32_t number)
{
	return direct_end_post_receive(&session->end, WR_RECEIVE << WR_KIND | number,
		RECEIVES_AT + (size_t)number * RECEIVE_BYTES, RECEIVE_BYTES);
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
	int rc = direct_end_open(&session->end, consumer->node, consumer->pd, MEMORY_BYTES, CQE, &init);

	session->free_count = 0;
	for (uint32_t i = 0; rc == 0 && i < RDMA_READER_RECEIVES; i++) {
		session->free_sends[session->free_count++] = i;
		rc = consumer_session_post_receive(session, i) ? 0 : -ENOMEM;
	}
	return rc;
}

void consumer_session_close(struct consumer_session *session)
{
	direct_end_close(&session->end);
	session->looking = session->lost = false;
	session->reading = 0;
}

void consumer_session_lose(struct consumer_session *session)
{
	struct hf_consumer *consumer = session->consumer;

	consumer->stats.losses += session->state == SESSION_UP;
	consumer_session_close(session);
	session_move(session, SESSION_DOWN);
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
		hf_vqp_connect(session->end.vqp, peer, RDMA_SERVICE, answer->token.byte, sizeof(answer->token.byte)) !=
			0) {
		consumer_session_lose(session);
		return;
	}
	session->connect_end_ns = hf_loop_now_ns(consumer->loop) + CONNECT_NS;
	session_move(session, SESSION_CONNECTING);
}

void consumer_session_ask(struct consumer_session *session)
{
	const struct kafka_access_request request = {.kind = ACCESS_READ, .topic = {"", 0}, .current_leader_epoch = -1};

	session_move(session, SESSION_ASKING);
	session->call.done = access_known;
	if (!kafka_link_call(&session->broker->link, &session->call, KAFKA_ACCESS, 0, &request))
		consumer_session_lose(session);
}

void consumer_session_connecting(struct consumer_session *session, uint64_t now_ns)
{
	const uint8_t *at;
	size_t bytes;

	if (hf_vqp_state(session->end.vqp) != HF_VQP_UP) {
		session->lost |= now_ns >= session->connect_end_ns;
		return;
	}
	at = hf_vqp_reply(session->end.vqp, &bytes);
	if (bytes != RDMA_READING_BYTES || at[0] != RDMA_VERSION || at[1] != ACCESS_READ ||
		get_le16(at + 2) != RDMA_SLOTS) {
		session->lost = true;
		return;
	}
	session->slots_key = get_le32(at + 4);
	session->slots_address = get_le64(at + 8);
	session_move(session, SESSION_UP);
	session->full = false;
}

struct consumer_session *consumer_session_of(struct hf_consumer *consumer, struct leaders_broker *broker)
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

bool consumer_session_say(struct consumer_session *session, const uint8_t *data, uint32_t bytes)
{
	uint32_t number;
	uint8_t *at;
	struct ibv_sge sge = {.length = bytes, .lkey = session->end.mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;

	if (session->free_count == 0)
		return false;
	number = session->free_sends[--session->free_count];
	at = session->end.memory + SENDS_AT + (size_t)number * SEND_BYTES;
	memcpy(at, data, bytes);
	sge.addr = (uintptr_t)at;
	wr.wr_id = WR_SEND << WR_KIND | number;
	session->lost |= hf_vqp_post_send(session->end.vqp, &wr, &bad) != 0;
	return true;
}
