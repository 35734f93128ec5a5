/* cm.h - connection management for programs of librdmacm.
 *
 *   librdmacm -> write(2) -> descriptors.c -> device.c -> id.c, connect.c ~~ datagrams ~~ the peer's connect.c
 *
 * librdmacm writes commands to a device of the kernel, /dev/infiniband/rdma_cm, and gets its events from it. Under
 * `holdfast run` this device is here, and librdmacm is the machine's, with its rsockets. An id is an end of a
 * connection, or a listener. A channel is an opened device, with the events of its ids.
 *
 * The managers of two processes speak by datagrams (datagram.h) to queue pair 1, as those of InfiniBand do: a message
 * may be lost, so each is sent again until it is answered. Which process listens at an address and a port is in
 * ports.h.
 *
 * The lock of drive.h guards everything here. */
#ifndef HOLDFAST_PRELOAD_CM_CM_H
#define HOLDFAST_PRELOAD_CM_CM_H

#include <holdfast/loop.h>

#include <rdma/rdma_user_cm.h>

#include "preload/objects.h"

#define CM_QKEY 0x01234567u /* of queue pairs of datagrams: RDMA_UDP_QKEY of librdmacm */

enum cm_state {
	CM_IDLE,
	CM_BOUND,          /* to an address and a port of this host */
	CM_LISTENING,      /* waits for requests */
	CM_ADDR_RESOLVED,  /* knows the peer's address */
	CM_ROUTE_RESOLVED, /* may connect */
	CM_REQ_SENT,       /* waits for the peer's program to accept or reject */
	CM_REQ_RECEIVED,   /* waits for our program to do so */
	CM_REP_SENT,       /* accepted; waits for the peer's program to use its queue pair */
	CM_REP_RECEIVED,   /* waits for our program to do so */
	CM_ESTABLISHED,
	CM_DREQ_SENT, /* disconnected by our program; waits for the peer's manager */
	CM_ENDED,     /* disconnected, rejected or without an answer */
	CM_STATES,
};

/* As rdma_cm_event_type of librdmacm, whose header a machine need not have. */
enum cm_event_type {
	CM_EVENT_ADDR_RESOLVED,
	CM_EVENT_ADDR_ERROR,
	CM_EVENT_ROUTE_RESOLVED,
	CM_EVENT_ROUTE_ERROR,
	CM_EVENT_CONNECT_REQUEST,
	CM_EVENT_CONNECT_RESPONSE,
	CM_EVENT_CONNECT_ERROR,
	CM_EVENT_UNREACHABLE,
	CM_EVENT_REJECTED,
	CM_EVENT_ESTABLISHED,
	CM_EVENT_DISCONNECTED,
};

struct cm_channel {
	int fd; /* counts the events: a tally (env/tally.h) */
	struct list ids, events;
	unsigned waiting; /* threads */
	bool closed;
};

struct cm_id {
	struct list channel_link;
	struct cm_channel *channel;
	enum cm_state state;
	uint32_t handle; /* librdmacm's name for it */
	uint32_t number; /* the peer's name for it: unguessable, so that no message for an earlier process is for it */
	uint64_t uid;    /* librdmacm's object; 0: of a request that the program has not accepted */
	uint16_t port_space;
	bool datagrams; /* of UD: no connection, but the peer's queue pair */
	struct bond *bond;
	struct cm_port *port; /* that it has taken; NULL: none */
	struct hf_addr local, remote;
	uint8_t ack_timeout;   /* of its queue pair, as the program wants it; 0: any */
	unsigned events_given; /* librdmacm waits for their acknowledgement when it destroys or moves the id */

	/* Of a listener. */
	unsigned backlog, requests; /* that the program has not got */

	/* Of a connection. */
	bool asked;          /* it began with the peer's request */
	struct hf_addr peer; /* of the peer's process */
	uint32_t peer_number;
	struct rdma_ucm_conn_param mine, theirs;
	struct hf_timer resend;
	uint64_t resend_ns; /* until the message is sent again */
	uint64_t listener_end_ns, patience_end_ns, last_end_ns;
};

/* ---- device.c ---- */

/* What descriptors.c finds in this library. A channel's descriptor; -1 and errno. */
int holdfast_cm_open(void);
/* As write(2) to the kernel's device. */
ssize_t holdfast_cm_command(int fd, const void *command, size_t bytes);
void holdfast_cm_close(int fd);

/* ---- id.c ---- */

void cm_move(struct cm_id *id, enum cm_state state);
struct cm_id *cm_id_make(struct cm_channel *channel, uint16_t port_space, bool datagrams); /* NULL: no memory */
struct cm_id *cm_id_find(uint32_t handle);                                                 /* NULL: there is none */
struct cm_id *cm_id_numbered(uint32_t number);
struct cm_id *cm_id_listening(uint16_t port_space, const struct hf_addr *at);
struct cm_id *cm_id_requested(const struct hf_addr *peer, uint32_t peer_number);
/* Calls each(id, context) for every id; it may not free any. */
void cm_id_each(void (*each)(struct cm_id *id, void *context), void *context);

/* Opens the device for the first id that needs it; without the lock. -errno, and words were logged. */
int cm_id_use_bond(struct cm_id *id);
/* For the id of a request: that of its listener. */
void cm_id_share_bond(struct cm_id *id, struct bond *bond);
/* Its events go, and for a listener the requests that the program has not got: they are rejected. What it returns is
 * no longer used by any id, for device_release without the lock; or NULL. */
struct bond *cm_id_free(struct cm_id *id);

int cm_id_bind(struct cm_id *id, const struct hf_addr *local);
int cm_id_listen(struct cm_id *id, unsigned backlog);
int cm_id_resolve_addr(struct cm_id *id, const struct hf_addr *local, const struct hf_addr *remote);
int cm_id_resolve_route(struct cm_id *id);

/* ---- event.c ---- */

/* For the program; `params` may be NULL. One without memory is lost, with words. */
void cm_event(struct cm_id *id, enum cm_event_type type, int status, const struct rdma_ucm_conn_param *params);
/* A request is an event of its listener. False: no memory. */
bool cm_event_request(struct cm_id *listener, struct cm_id *request);
/* Takes the next one, and counts it. False: there is none. */
bool cm_event_take(struct cm_channel *channel, struct rdma_ucm_event_resp *event_out);
/* The id's next events go to that channel, and those that wait too. */
void cm_event_migrate(struct cm_id *id, struct cm_channel *channel);
/* Drops those that wait. For the ids of requests among them: dropped(request). */
void cm_event_drop(struct cm_id *id, void (*dropped)(struct cm_id *request));

/* ---- connect.c; -errno ---- */

int cm_connect(struct cm_id *id, const struct rdma_ucm_conn_param *params);
int cm_accept(struct cm_id *id, const struct rdma_ucm_conn_param *params);
int cm_reject(struct cm_id *id, const void *private_data, uint8_t bytes);
int cm_disconnect(struct cm_id *id);
int cm_established(struct cm_id *id); /* the program has heard from the peer's queue pair */
/* Before the id goes. */
void cm_leave(struct cm_id *id);
/* Of the loop. */
void cm_arrived(struct bond *bond, const union ibv_gid *from, const void *message, size_t bytes);
void cm_peer_ended(struct bond *bond, struct hf_peer *peer); /* its process, or all contact with it */

#endif
