/* Connecting, as InfiniBand's connection managers do it:
 *
 *     asks                     is asked
 *      | -------- REQ --------> |  an event; each REQ that is repeated gets MRA until the program decides
 *      | <------- REP --------- |  accepted (or REJ)
 *      | -------- RTU --------> |  the program that asked uses its queue pair; both are established
 *      | ------- DREQ --------> |  from either
 *      | <------ DREP --------- |
 *
 * A REQ, a REP and a DREQ are sent again until the answer comes; a message that comes twice is answered
 * twice. So each loss is repaired, and a peer that is gone ends the id after PATIENCE_NS. A REQ that finds no listener
 * is sent again for LISTENER_NS. Of datagrams (port space UDP) the REP brings the number of the peer's queue pair, and
 * there is nothing to disconnect. */
#include "preload/cm/cm.h"

#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "dev/gid.h"
#include "preload/bond.h"
#include "preload/cm/ports.h"
#include "preload/datagram.h"
#include "preload/drive.h"

#define RESEND_NS     20000000u /* at first; then twice as long each time, to RESEND_MAX_NS */
#define RESEND_MAX_NS 1000000000u
#define PATIENCE_NS   15000000000u /* since the peer's manager was heard */
#define PROGRAM_NS    90000000000u /* for the peer's program to decide, while its manager is heard */
#define DISCONNECT_NS 3000000000u
#define LISTENER_NS   500000000u /* for a listener to appear: perftest's server listens twice */
#define LOOK_AGAIN_NS 10000000u
#define NO_ROOM_NS    2000000u
#define RETRIES_MAX   7u

/* Reasons of REJ, as InfiniBand numbers them. */
#define REJ_TIMEOUT      4u
#define REJ_NO_LISTENER  8u
#define REJ_BY_PROGRAM   28u
#define SIDR_NO_LISTENER 1 /* the same for datagrams */

/* What private data may be as long as: the kernel's limits, which the sizes of InfiniBand's messages make. */
#define REQ_PRIVATE_BYTES          56u
#define REP_PRIVATE_BYTES          196u
#define REJ_PRIVATE_BYTES          148u
#define REQ_PRIVATE_BYTES_DATAGRAM 180u
#define REP_PRIVATE_BYTES_DATAGRAM 136u

enum message_kind { REQ = 1, MRA, REP, RTU, REJ, DREQ, DREP };

/* Behind the head of a datagram. */
struct message {
	__be32 kind, reason;
	__be32 to, from; /* numbers of ids */
	__be16 port_space, datagrams;
	__be16 local_port, remote_port; /* of the sender */
	uint8_t local[16], remote[16];  /* IPv4 as in a gid */
	__be32 qp_num, qkey;
	uint8_t srq, responder_resources, initiator_depth, flow_control, retry_count, rnr_retry_count, private_bytes,
		zero;
	uint8_t private_data[RDMA_MAX_PRIVATE_DATA];
};

_Static_assert(sizeof(struct message) == 328, "wire layout");

/* ---- messages ---- */

static void put_address(uint8_t host[16], __be16 *port, const struct hf_addr *addr)
{
	union ibv_gid gid = gid_of_addr(addr);

	memcpy(host, gid.raw, sizeof(gid.raw));
	*port = htons(hf_addr_port(addr));
}

static struct hf_addr get_address(const uint8_t host[16], __be16 port)
{
	union ibv_gid gid;
	struct hf_addr addr = {0};

	memcpy(gid.raw, host, sizeof(gid.raw));
	gid_put_host(&gid, &addr);
	hf_addr_set_port(&addr, ntohs(port));
	return addr;
}

static void put_params(struct message *message, const struct rdma_ucm_conn_param *params)
{
	message->qp_num = htonl(params->qp_num);
	message->qkey = htonl(params->qkey);
	message->srq = params->srq;
	message->responder_resources = params->responder_resources;
	message->initiator_depth = params->initiator_depth;
	message->flow_control = params->flow_control;
	message->retry_count = params->retry_count;
	message->rnr_retry_count = params->rnr_retry_count;
	message->private_bytes = params->private_data_len;
	memcpy(message->private_data, params->private_data, sizeof(message->private_data));
}

/* What the peer initiates is what this side responds to. */
static struct rdma_ucm_conn_param get_params(const struct message *message)
{
	struct rdma_ucm_conn_param params = {.qp_num = ntohl(message->qp_num),
		.qkey = ntohl(message->qkey),
		.srq = message->srq,
		.responder_resources = message->initiator_depth,
		.initiator_depth = message->responder_resources,
		.flow_control = message->flow_control,
		.retry_count = message->retry_count,
		.rnr_retry_count = message->rnr_retry_count,
		.private_data_len = message->private_bytes,
		.valid = 1};

	memcpy(params.private_data, message->private_data, sizeof(params.private_data));
	return params;
}

/* It may be lost: then it is sent again, or asked for again. False: there was no room for it. */
static bool send_message(struct bond *bond, const struct hf_addr *to, const struct message *message)
{
	union ibv_gid own = bond_gid(bond);
	struct datagram_head head = {
		.to = htonl(DATAGRAM_CM_QP_NUM), .from = htonl(DATAGRAM_CM_QP_NUM), .qkey = htonl(DATAGRAM_CM_QKEY)};
	uint8_t *room;

	if (hf_addr_equal(to, &bond->address)) {
		cm_arrived(bond, &own, message, sizeof(*message));
		return true;
	}
	room = datagram_links_room_now(bond, to, sizeof(head) + sizeof(*message));
	if (room == NULL)
		return false;
	memcpy(head.gid, own.raw, sizeof(head.gid));
	memcpy(room, &head, sizeof(head));
	memcpy(room + sizeof(head), message, sizeof(*message));
	datagram_links_send(bond);
	return true;
}

static bool send_kind(struct cm_id *id, enum message_kind kind)
{
	struct message message = {.kind = htonl(kind),
		.to = htonl(id->peer_number),
		.from = htonl(id->number),
		.port_space = htons(id->port_space),
		.datagrams = htons(id->datagrams)};

	put_address(message.local, &message.local_port, &id->local);
	put_address(message.remote, &message.remote_port, &id->remote);
	if (kind == REQ || kind == REP)
		put_params(&message, &id->mine);
	return send_message(id->bond, &id->peer, &message);
}

static void send_rej(struct cm_id *id, uint32_t reason, const void *private_data, uint8_t bytes)
{
	struct message message = {.kind = htonl(REJ),
		.reason = htonl(reason),
		.to = htonl(id->peer_number),
		.from = htonl(id->number),
		.private_bytes = bytes};

	if (bytes > 0)
		memcpy(message.private_data, private_data, bytes);
	(void)send_message(id->bond, &id->peer, &message);
}

/* For a message that no id here is for. */
static void answer(struct bond *bond, const struct hf_addr *from, const struct message *to, enum message_kind kind,
	uint32_t reason)
{
	struct message message = {.kind = htonl(kind), .reason = htonl(reason), .to = to->from, .from = to->to};

	(void)send_message(bond, from, &message);
}

/* ---- waiting for the peer ---- */

static void end(struct cm_id *id, enum cm_event_type type, int status, const struct rdma_ucm_conn_param *params)
{
	hf_loop_cancel_timer(drive_loop(), &id->resend);
	cm_move(id, CM_ENDED);
	cm_event(id, type, status, params);
}

/* What is sent until the answer comes. An id of the own process may have its answer when this returns. */
static void send_again(struct cm_id *id, uint64_t now_ns)
{
	enum cm_state state = id->state;
	bool sent;

	hf_loop_set_timer(drive_loop(), &id->resend, now_ns + id->resend_ns);
	id->resend_ns = id->resend_ns * 2 < RESEND_MAX_NS ? id->resend_ns * 2 : RESEND_MAX_NS;
	sent = send_kind(id, state == CM_REQ_SENT ? REQ : state == CM_REP_SENT ? REP : DREQ);
	if (!sent)
		hf_loop_set_timer(drive_loop(), &id->resend, now_ns + NO_ROOM_NS);
}

static void seek_listener(struct cm_id *id);

static void resend(struct hf_timer *timer, uint64_t now_ns)
{
	struct cm_id *id = container_of(timer, struct cm_id, resend);
	char peer[HF_ADDR_TEXT];

	if (id->state == CM_REQ_SENT && id->peer.sa.sa_family == AF_UNSPEC) {
		seek_listener(id);
		return;
	}
	if (now_ns < id->patience_end_ns) {
		send_again(id, now_ns);
		return;
	}
	if (id->state == CM_DREQ_SENT) {
		end(id, CM_EVENT_DISCONNECTED, 0, NULL);
		return;
	}
	log_warn("rdma_cm id %u: %s does not answer; the program gets RDMA_CM_EVENT_UNREACHABLE", id->handle,
		hf_addr_format(&id->remote, peer));
	send_rej(id, REJ_TIMEOUT, NULL, 0);
	end(id, CM_EVENT_UNREACHABLE, -ETIMEDOUT, NULL);
}

static void await_peer(struct cm_id *id, uint64_t patience_ns)
{
	uint64_t now_ns = hf_env_now_ns(hf_env_host()); /* the loop may not have turned for long */

	id->patience_end_ns = now_ns + patience_ns;
	id->last_end_ns = now_ns + PROGRAM_NS;
	id->resend.fire = resend;
	id->resend_ns = RESEND_NS;
	send_again(id, now_ns);
}

static void peer_heard(struct cm_id *id)
{
	uint64_t end_ns = hf_env_now_ns(hf_env_host()) + PATIENCE_NS;

	id->patience_end_ns = end_ns < id->last_end_ns ? end_ns : id->last_end_ns;
}

/* ---- asking ---- */

/* A process of this host by its port; one of another host by its control address, which has the port of ours. */
static int find_peer(const struct cm_id *id, struct hf_addr *peer_out)
{
	const struct bond *bond = id->bond;
	bool local = hf_addr_is_local(hf_env_host(), &id->remote);
	int rc = local ? cm_port_find(bond->config.fabric, id->port_space, &id->remote, peer_out) : -ENOENT;

	if (rc == 0 || (local && !bond->configured))
		return rc;
	if (!bond->configured) {
		log_error("rdma_cm: without --config a program reaches programs of its own host only; give both "
			  "hosts a file");
		return -EHOSTUNREACH;
	}
	*peer_out = id->remote;
	hf_addr_set_port(peer_out, hf_addr_port(&bond->address));
	return 0;
}

static void no_listener(struct cm_id *id, const struct rdma_ucm_conn_param *params)
{
	uint64_t now_ns = hf_env_now_ns(hf_env_host());

	if (now_ns < id->listener_end_ns) {
		id->peer = (struct hf_addr){0};
		hf_loop_set_timer(drive_loop(), &id->resend, now_ns + LOOK_AGAIN_NS);
	} else if (id->datagrams) {
		end(id, CM_EVENT_UNREACHABLE, SIDR_NO_LISTENER, NULL);
	} else {
		end(id, CM_EVENT_REJECTED, REJ_NO_LISTENER, params);
	}
}

static void seek_listener(struct cm_id *id)
{
	char text[HF_ADDR_TEXT], process[HF_ADDR_TEXT];
	int rc = find_peer(id, &id->peer);

	log_debug("rdma_cm id %u: connects to %s: %s", id->handle, hf_addr_format(&id->remote, text),
		rc == 0 ? hf_addr_format(&id->peer, process) : "no process listens there");
	if (rc == -ENOENT) {
		no_listener(id, NULL);
	} else if (rc != 0) {
		end(id, CM_EVENT_UNREACHABLE, rc, NULL);
	} else if (!hf_addr_equal(&id->peer, &id->bond->address) && bond_peer(id->bond, &id->peer) == NULL) {
		end(id, CM_EVENT_UNREACHABLE, -EHOSTUNREACH, NULL);
	} else {
		await_peer(id, PATIENCE_NS);
	}
}

/* ---- what the program does ---- */

/* InfiniBand has three bits for each number of retries; programs ask for more. */
static void set_params(struct cm_id *id, const struct rdma_ucm_conn_param *params)
{
	id->mine = *params;
	if (id->mine.retry_count > RETRIES_MAX)
		id->mine.retry_count = RETRIES_MAX;
	if (id->mine.rnr_retry_count > RETRIES_MAX)
		id->mine.rnr_retry_count = RETRIES_MAX;
	if (id->mine.qkey == 0)
		id->mine.qkey = CM_QKEY;
}

static bool is_too_long(const struct rdma_ucm_conn_param *params, uint8_t most)
{
	return params->private_data_len > most;
}

int cm_connect(struct cm_id *id, const struct rdma_ucm_conn_param *params)
{
	if (id->state != CM_ROUTE_RESOLVED ||
		is_too_long(params, id->datagrams ? REQ_PRIVATE_BYTES_DATAGRAM : REQ_PRIVATE_BYTES))
		return -EINVAL;
	set_params(id, params);
	id->listener_end_ns = hf_env_now_ns(hf_env_host()) + LISTENER_NS;
	id->resend.fire = resend;
	cm_move(id, CM_REQ_SENT);
	seek_listener(id);
	return 0;
}

int cm_accept(struct cm_id *id, const struct rdma_ucm_conn_param *params)
{
	if (id->state == CM_REP_RECEIVED) {
		cm_move(id, CM_ESTABLISHED);
		(void)send_kind(id, RTU);
		return 0;
	}
	if (id->state != CM_REQ_RECEIVED ||
		is_too_long(params, id->datagrams ? REP_PRIVATE_BYTES_DATAGRAM : REP_PRIVATE_BYTES))
		return -EINVAL;
	set_params(id, params);
	cm_move(id, CM_REP_SENT);
	await_peer(id, PATIENCE_NS);
	return 0;
}

int cm_reject(struct cm_id *id, const void *private_data, uint8_t bytes)
{
	if ((id->state != CM_REQ_RECEIVED && id->state != CM_REP_RECEIVED) || bytes > REJ_PRIVATE_BYTES)
		return -EINVAL;
	id->mine = (struct rdma_ucm_conn_param){.private_data_len = bytes}; /* should the message be lost */
	if (bytes > 0)
		memcpy(id->mine.private_data, private_data, bytes);
	send_rej(id, REJ_BY_PROGRAM, private_data, bytes);
	if (id->state != CM_ENDED)
		cm_move(id, CM_ENDED);
	return 0;
}

int cm_disconnect(struct cm_id *id)
{
	if (id->state < CM_REQ_SENT)
		return -EINVAL;
	if (id->datagrams || (id->state != CM_ESTABLISHED && id->state != CM_REP_SENT))
		return 0;
	if (id->state == CM_REP_SENT)
		cm_move(id, CM_ESTABLISHED); /* the peer's program may use its queue pair by now */
	cm_move(id, CM_DREQ_SENT);
	await_peer(id, DISCONNECT_NS);
	return 0;
}

int cm_established(struct cm_id *id)
{
	if (id->state != CM_REP_SENT)
		return id->state == CM_ESTABLISHED ? 0 : -EINVAL;
	hf_loop_cancel_timer(drive_loop(), &id->resend);
	cm_move(id, CM_ESTABLISHED);
	if (!id->datagrams)
		cm_event(id, CM_EVENT_ESTABLISHED, 0, NULL);
	return 0;
}

void cm_leave(struct cm_id *id)
{
	if (id->peer.sa.sa_family == AF_UNSPEC)
		return;
	switch (id->state) {
	case CM_REQ_SENT:
	case CM_REP_RECEIVED:
		send_rej(id, REJ_TIMEOUT, NULL, 0);
		break;
	case CM_REQ_RECEIVED:
		send_rej(id, REJ_BY_PROGRAM, NULL, 0);
		break;
	case CM_REP_SENT:
	case CM_ESTABLISHED:
		if (!id->datagrams)
			(void)send_kind(id, DREQ);
		break;
	case CM_IDLE:
	case CM_BOUND:
	case CM_LISTENING:
	case CM_ADDR_RESOLVED:
	case CM_ROUTE_RESOLVED:
	case CM_DREQ_SENT:
	case CM_ENDED:
	case CM_STATES:
		break;
	}
}

/* ---- what the peer does ---- */

static void req_repeated(struct cm_id *id)
{
	if (id->state == CM_REQ_RECEIVED)
		(void)send_kind(id, MRA);
	else if (id->state == CM_REP_SENT)
		(void)send_kind(id, REP);
	else if (id->state == CM_ENDED)
		send_rej(id, REJ_BY_PROGRAM, id->mine.private_data, id->mine.private_data_len);
}

/* A listener with as many requests as it wants gets others when they are sent again. */
static void req_arrived(struct bond *bond, const struct hf_addr *from, const struct message *message)
{
	struct hf_addr at = get_address(message->remote, message->remote_port);
	struct cm_id *known = cm_id_requested(from, ntohl(message->from)), *listener, *id;

	if (known != NULL) {
		req_repeated(known);
		return;
	}
	listener = cm_id_listening(ntohs(message->port_space), &at);
	if (listener == NULL || listener->datagrams != (message->datagrams != 0)) {
		answer(bond, from, message, REJ, REJ_NO_LISTENER);
		return;
	}
	if (listener->requests >= listener->backlog ||
		(id = cm_id_make(listener->channel, listener->port_space, listener->datagrams)) == NULL)
		return;
	cm_id_share_bond(id, bond);
	id->asked = true;
	id->local = at;
	id->remote = get_address(message->local, message->local_port);
	id->peer = *from;
	id->peer_number = ntohl(message->from);
	id->theirs = get_params(message);
	cm_move(id, CM_REQ_RECEIVED);
	if (!cm_event_request(listener, id))
		(void)cm_id_free(id); /* the listener uses the bond too */
}

static void rep_arrived(struct cm_id *id, const struct message *message)
{
	if (id->state == CM_ESTABLISHED)
		(void)send_kind(id, RTU); /* it was lost */
	else if (id->state == CM_REP_RECEIVED)
		(void)send_kind(id, MRA);
	else if (id->state == CM_ENDED)
		answer(id->bond, &id->peer, message, REJ, REJ_TIMEOUT);
	if (id->state != CM_REQ_SENT)
		return;
	hf_loop_cancel_timer(drive_loop(), &id->resend);
	id->peer_number = ntohl(message->from);
	id->theirs = get_params(message);
	cm_move(id, id->datagrams ? CM_ESTABLISHED : CM_REP_RECEIVED);
	if (id->datagrams)
		(void)send_kind(id, RTU);
	cm_event(id, id->datagrams ? CM_EVENT_ESTABLISHED : CM_EVENT_CONNECT_RESPONSE, 0, &id->theirs);
}

static void rej_arrived(struct cm_id *id, const struct message *message)
{
	struct rdma_ucm_conn_param params = get_params(message);
	int reason = (int)ntohl(message->reason);

	if (id->state == CM_REQ_SENT && reason == REJ_NO_LISTENER) {
		no_listener(id, &params);
	} else if (id->state == CM_REQ_RECEIVED) {
		hf_loop_cancel_timer(drive_loop(), &id->resend);
		cm_move(id, CM_ENDED);
	} else if (id->state == CM_REQ_SENT || id->state == CM_REP_SENT || id->state == CM_REP_RECEIVED) {
		end(id, id->datagrams ? CM_EVENT_UNREACHABLE : CM_EVENT_REJECTED, reason, &params);
	}
}

static void dreq_arrived(struct cm_id *id)
{
	(void)send_kind(id, DREP);
	if (id->state == CM_REP_SENT || id->state == CM_REP_RECEIVED || id->state == CM_ESTABLISHED ||
		id->state == CM_DREQ_SENT)
		end(id, CM_EVENT_DISCONNECTED, 0, NULL);
}

static void id_arrived(struct cm_id *id, enum message_kind kind, const struct message *message)
{
	switch (kind) {
	case MRA:
		peer_heard(id);
		break;
	case REP:
		rep_arrived(id, message);
		break;
	case RTU:
		(void)cm_established(id);
		break;
	case REJ:
		rej_arrived(id, message);
		break;
	case DREQ:
		dreq_arrived(id);
		break;
	case DREP:
		if (id->state == CM_DREQ_SENT)
			end(id, CM_EVENT_DISCONNECTED, 0, NULL);
		break;
	case REQ:
		break;
	}
}

void cm_arrived(struct bond *bond, const union ibv_gid *gid, const void *data, size_t bytes)
{
	const struct message *message = data;
	struct hf_addr from = {0};
	enum message_kind kind;
	struct cm_id *id;

	if (bytes != sizeof(*message))
		return;
	kind = ntohl(message->kind);
	gid_put_host(gid, &from);
	hf_addr_set_port(&from, hf_addr_port(&bond->address));
	if (kind == REQ) {
		req_arrived(bond, &from, message);
		return;
	}
	id = cm_id_numbered(ntohl(message->to));
	if (id == NULL && kind == REJ)
		id = cm_id_requested(&from, ntohl(message->from)); /* the peer withdraws before it knows our number */
	if (id != NULL && id->state == CM_REQ_SENT && id->peer.sa.sa_family != AF_UNSPEC)
		id->peer = from; /* it was asked at another address of its own */
	if (id != NULL && hf_addr_equal(&id->peer, &from))
		id_arrived(id, kind, message);
	else if (kind == REP)
		answer(bond, &from, message, REJ, REJ_TIMEOUT); /* its id is gone */
	else if (kind == DREQ)
		answer(bond, &from, message, DREP, 0);
}

struct lost {
	const struct bond *bond;
	const struct hf_peer *peer;
};

/* A peer that has gone is not found any more, nor one that was reached at several addresses by the others. */
static void lose_peer(struct cm_id *id, void *context)
{
	const struct lost *lost = context;
	const struct hf_peer *found;

	if (id->state < CM_REQ_SENT || id->state == CM_ENDED || id->datagrams || id->peer.sa.sa_family == AF_UNSPEC ||
		hf_addr_equal(&id->peer, &lost->bond->address))
		return;
	found = hf_peer_find(lost->bond->node, &id->peer);
	if (id->state == CM_REQ_SENT && found == lost->peer)
		end(id, CM_EVENT_UNREACHABLE, -ETIMEDOUT, NULL);
	else if (id->state != CM_REQ_SENT && (found == NULL || found == lost->peer))
		end(id, CM_EVENT_DISCONNECTED, 0, NULL);
}

void cm_peer_ended(struct bond *bond, struct hf_peer *peer)
{
	struct lost lost = {.bond = bond, .peer = peer};

	cm_id_each(lose_peer, &lost);
}
