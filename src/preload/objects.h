/* objects.h - the handles of programs: libibverbs' own structures within ours.
 *
 * A program has one more device for each bond of rails. A context opens the bond's node, which all contexts of that
 * device share; protection domains, regions, completion queues and queue pairs are the vqp layer's with the public
 * part in front. A handle of a real device, which the program may use beside ours, is recognized by its context and
 * goes to the real libibverbs (real.h).
 *
 * The lock of drive.h guards everything here, unless a comment states otherwise. */
#ifndef HOLDFAST_PRELOAD_OBJECTS_H
#define HOLDFAST_PRELOAD_OBJECTS_H

#include <holdfast/vqp.h>

#include <errno.h>

#include "base/list.h"
#include "base/table.h"

#define SHARED_GIVEN_MAX 512u /* receives of a shared queue that a queue pair has at once */
#define PROVIDER_BYTES   512  /* providers look behind an ibv_device for their own part: they find zeros */

struct bond;

/* Connection management (cm/cm.h), once the program uses it. */
struct bond_cm {
	void (*arrived)(struct bond *bond, const union ibv_gid *from, const void *message, size_t bytes);
	void (*peer_ended)(struct bond *bond, struct hf_peer *peer); /* its process, or all contact with it */
};

struct bond {
	struct ibv_device device; /* first */
	unsigned char provider[PROVIDER_BYTES];
	struct hf_node_config config;
	bool configured; /* by a file; else names and addresses are chosen at each opening */
	__be64 guid;
	unsigned users; /* contexts, and connection management */
	struct hf_node *node;
	struct hf_addr address; /* of control, by which peers know us: the gid is made of it */
	bool up;                /* any rail */
	struct list contexts;
	struct datagram_links *datagrams; /* datagram.h */
	struct table datagram_qps;        /* by number */
	const struct bond_cm *cm;         /* NULL: not used */
	unsigned datagrams_unpolled;      /* received */
	uint64_t datagrams_polled_ns;     /* when the program looked for some */
};

struct async_event {
	struct list node;
	struct ibv_async_event event;
};

struct context {
	struct verbs_context verbs; /* its last member is what the program has */
	struct bond *bond;
	struct list bond_link;
	struct list events; /* async_event, as many as verbs.context.async_fd counts */
};

struct pd {
	struct ibv_pd pd; /* first */
	struct hf_vpd *vpd;
};

struct region {
	struct ibv_mr mr; /* first */
	struct hf_vmr *vmr;
};

struct channel {
	struct ibv_comp_channel channel; /* first; refcnt: cqs */
	struct list waiting;             /* cqs with events; the descriptor counts their events */
};

struct cq {
	struct ibv_cq cq; /* first */
	struct hf_vcq *vcq;
	struct list channel_link;
	bool armed;            /* by the program, for the next completion */
	struct list datagrams; /* completions of UD queue pairs (datagram.c) */
	unsigned datagram_users;
	unsigned queued;     /* events that wait in the channel */
	unsigned given;      /* events that the program got; it acknowledges as many before the cq can go */
	struct table shared; /* queue pairs on a shared receive queue that complete here; by number */
	struct table
		own; /* queue pairs connected to themselves whose sends complete here; by their second vqp's number */
};

struct shared_receive {
	struct ibv_srq srq; /* first */
	struct ibv_srq_attr attr;
	struct shared_wr *receives;
	struct list free, waiting, queue_pairs;
	unsigned posted; /* waiting, and with queue pairs */
	unsigned given;  /* with queue pairs */
	unsigned users;
};

struct queue_pair {
	struct ibv_qp qp; /* first */
	struct hf_vqp *vqp;
	/* Of a queue pair that is connected to itself: a vqp has one end, so this one is the other end, and sends. */
	struct hf_vqp *sender;
	struct datagram_qp *ud; /* of a UD queue pair, whose vqp is not connected and only gives it a number */
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	struct shared_receive *shared; /* NULL: it has receives of its own */
	struct list shared_link, given;
	unsigned given_count;
	bool last_told;      /* IBV_EVENT_QP_LAST_WQE_REACHED */
	unsigned events_got; /* by the program, which acknowledges as many before the queue pair can go */
};

/* A verb that fails returns the error and sets errno too, as the providers of real devices do: programs print errno. */
static inline int result(int error)
{
	if (error != 0)
		errno = error;
	return error;
}

/* device.c */
bool device_is_ours(const struct ibv_device *device);
/* Opens the device without a context; without the lock. -errno, and words were logged. */
int device_hold(struct bond **bond_out);
void device_release(struct bond *bond);
static inline struct context *context_of(struct ibv_context *context)
{
	return container_of(context, struct context, verbs.context);
}
static inline struct hf_node *node_of(struct ibv_context *context)
{
	return context_of(context)->bond->node;
}

/* query.c */
int query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr, size_t bytes);
int query_device_ex(struct ibv_context *context, const struct ibv_query_device_ex_input *input,
	struct ibv_device_attr_ex *attr, size_t bytes);

/* completion.c */
int completion_poll(struct ibv_cq *cq, int n, struct ibv_wc *wc);
int completion_req_notify(struct ibv_cq *cq, int solicited_only);
void completion_ready(struct cq *cq); /* one that is not of a vqp */

/* queue_pair.c */
int queue_pair_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int queue_pair_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
struct ibv_qp *queue_pair_create_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *init);

/* shared_receive.c */
int shared_receive_join(struct queue_pair *qp, struct ibv_srq *srq);
void shared_receive_leave(struct queue_pair *qp);
void shared_receive_moved(struct queue_pair *qp);  /* to a state in which it receives */
void shared_receive_return(struct queue_pair *qp); /* what it was given: its vqp was reset */
/* Gives the receives among these completions the program's wr_id. Returns how many are left for the program. */
int shared_receive_polled(struct cq *cq, struct ibv_wc *wc, int n);
int shared_receive_post(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);

/* async.c */
void async_last_wqe(struct queue_pair *qp);
void async_forget(struct queue_pair *qp); /* waits, without the lock, for what the program has to acknowledge */
void async_port_changed(struct bond *bond, bool up);
void async_free(struct context *context);

#endif
