/* verbs.h - the objects of a device on libibverbs. Each wraps the library's own object of its kind.
 *
 * Additions to verbs:
 *   fence     ERR; then it holds (D3) when the NIC has flushed a marker, a wr and a receive of no bytes that were
 *             posted behind everything else (verbs_model.flushes_end). For a NIC on which that was not verified, or
 *             with a shared receive queue: after a time in which a last packet may still land
 *             (verbs_model.settle_ns).
 *   evidence  the responder's psn is queried from the NIC after the fence (D4), if the model is known to report it.
 *   silence   a NIC whose port is down may complete nothing at all: every VERBS_LOOK_NS the device reads the state
 *             of its port, reports a change without an event, and moves qps to ERR whose wrs have been waiting
 *             on a dead port for longer than their retries take. A sleeping loop is woken for that.
 *   answers   responses without data are detected, where a success does not prove their arrival (answers.h).
 *   doorbell  some NICs may leave a wr with IBV_SEND_FENCE waiting for READs that have completed
 *             (verbs_model.oversleeps): every VERBS_LOOK_NS the device rings, until the wr must have been sent or
 *             failed.
 *   last wqe  not every NIC reports when a failed qp takes nothing more from its shared receive queue: the device
 *             does, when the fence would hold.
 *   quiet     some NICs must not reset or destroy a qp that was just used: it is moved to ERR, and destroyed later.
 *
 * VERBS-1  A qp is in dev->qps and in the table from its creation until hf_qp_destroy; then the library's qp is
 *          destroyed, or is in dev->graves until it may be. */
#ifndef HOLDFAST_DEV_VERBS_VERBS_H
#define HOLDFAST_DEV_VERBS_VERBS_H

#include "base/list.h"
#include "base/table.h"
#include "dev/fabric.h"
#include "dev/verbs/answers.h"
#include "dev/verbs/lib.h"
#include "dev/verbs/port.h"
#include "env/netdev.h"

#define VERBS_LOOK_NS    20000000ull   /* between two looks at the port's state */
#define VERBS_LATELY_NS  1000000000ull /* time for which a failed port explains errors */
#define VERBS_EVENTS_MAX 1024u         /* unread events; when full, the newest are lost, as from a full NIC */
#define VERBS_EVENT_NS   50000ull      /* and at the library's queue of events, each of which is a system call */

#define VERBS_MARKS_MAX 16u /* markers in one queue at a time; the queue is larger by this number */

struct verbs_event {
	struct list link;
	struct hf_dev_event event;
};

struct verbs_dev {
	struct hf_dev base;
	const struct verbs_lib *lib;
	struct ibv_context *context;
	struct verbs_port port;
	enum ibv_mtu mtu;
	struct ibv_comp_channel *channel;
	struct hf_io *async_io, *channel_io, *alarm, *io; /* io: all of them, and the doorbell of the fabric */
	uint64_t alarm_ns;                                /* 0: it is not set */
	unsigned armed;                                   /* cqs that may notify */
	struct list cqs, qps, graves, events;
	uint64_t sent_mark, received_mark; /* wr_ids of markers, which programs do not see */
	struct table by_num, by_lkey;      /* qps, mrs */
	uint64_t looked_ns, events_ns;
	uint64_t resent;   /* verbs_port_resent(), not long ago */
	bool resent_fresh; /* since completions were taken last */
	unsigned event_count;
	bool up;          /* the port, as the NIC reports it */
	bool told_up;     /* and as last reported; reports of the port need no place among the events */
	bool flapped;     /* it was down since the last report */
	uint64_t down_ns; /* when it was last seen to go down; 0: never */
	/* link.c */
	struct fabric_port *fabric;
	char netdev[NETDEV_NAME_BYTES];
	uint32_t link_seen;
	bool cut; /* by us */
};

struct verbs_pd {
	struct hf_pd base;
	struct ibv_pd *pd;
};
struct verbs_mr {
	struct hf_mr base;
	struct ibv_mr *mr, *remote; /* remote: NULL where one has both keys */
};
struct verbs_cq {
	struct hf_cq base;
	struct ibv_cq *cq;
	struct list link;
	unsigned users, unacked;
	unsigned marks; /* of qps, on their way */
	bool armed, notified;
	struct ibv_wc *kept; /* taken out already, older than what the library has */
	unsigned kept_count;
};
struct verbs_srq {
	struct hf_srq base;
	struct ibv_srq *srq;
	unsigned users;
};
struct verbs_qp {
	struct hf_qp base;
	struct verbs_dc *dc; /* dc.h; NULL: it is RC */
	struct ibv_qp *qp;
	struct list link;
	enum ibv_qp_state state; /* as we moved it; a NIC may have moved it to ERR since */
	uint64_t error_ns;       /* when we moved it to ERR; 0: we did not */
	uint64_t failed_ns;      /* when the NIC was seen to have done that; 0: it was not */
	bool fenced, last_told;  /* last_told: QP_LAST_WQE_REACHED */
	struct verbs_mark {
		bool posted, seen;
	} sent, received;   /* the markers of the fence */
	uint64_t marked_ns; /* when both were posted; 0: they are not */
	uint32_t next_psn, mtu_bytes;
	uint32_t posted, completed; /* signaled wrs */
	uint64_t patience_ns;       /* that its retries may take */
	struct verbs_answers *answers;
	uint64_t ordered_ns; /* when the newest wr with IBV_SEND_FENCE was posted; 0: none was, or long ago */
};

/* Whether this time has passed since then. A turn's time may be older than events of that turn. */
static inline bool verbs_passed(uint64_t now_ns, uint64_t since_ns, uint64_t ns)
{
	return now_ns >= since_ns && now_ns - since_ns >= ns;
}

static inline struct verbs_dev *verbs_of(const struct hf_dev *dev)
{
	return (struct verbs_dev *)(uintptr_t)dev;
}

/* Through that library; the tests bring their own. */
int verbs_open(struct hf_env *env, const struct hf_dev_config *config, const struct verbs_lib *lib,
	struct hf_dev **dev_out, struct hf_error *error);

/* events.c: completion channels and asynchronous events, the port's state. */
int verbs_events_open(struct verbs_dev *dev);
void verbs_events_close(struct verbs_dev *dev);
enum hf_poll verbs_poll(struct hf_dev *base, uint64_t now_ns);
struct hf_io *verbs_io(struct hf_dev *base);
bool verbs_arm(struct hf_dev *base);
int verbs_get_event(struct hf_dev *base, struct hf_dev_event *event_out);
bool verbs_take_notifications(struct verbs_dev *dev); /* whether there were any */
void verbs_tell(struct verbs_dev *dev, const struct hf_dev_event *event);
void verbs_forget_events(struct verbs_dev *dev, const void *object);
bool verbs_port_failed(struct verbs_dev *dev); /* it is down, or was a moment ago */

/* link.c: the operator's switch, which is that of the network interface. */
int verbs_link_open(struct verbs_dev *dev, const struct hf_dev_config *config, struct hf_error *error);
void verbs_link_close(struct verbs_dev *dev);
void verbs_link_look(struct verbs_dev *dev); /* it may have been switched on the board */
int verbs_set_link(struct hf_dev *base, enum hf_link direction, bool up);

/* memory.c */
int verbs_pd_alloc(struct hf_dev *base, struct hf_pd **pd_out);
int verbs_pd_free(struct hf_pd *base);
int verbs_mr_reg(struct hf_pd *base, void *addr, uint64_t bytes, uint64_t iova, int access, struct hf_mr **mr_out,
	struct hf_error *error);
int verbs_mr_dereg(struct hf_mr *base);

/* queues.c */
int verbs_cq_create(struct hf_dev *base, uint32_t cqe, void *context, struct hf_cq **cq_out);
int verbs_cq_destroy(struct hf_cq *base);
int verbs_cq_poll(struct hf_cq *base, int n, struct ibv_wc *wc);
int verbs_cq_req_notify(struct hf_cq *base, bool solicited_only);
bool verbs_cq_notified(struct hf_cq *base);
void verbs_cq_notify(struct verbs_cq *cq);                  /* its event was taken from the channel */
void verbs_cq_forget(struct verbs_cq *cq, uint32_t qp_num); /* its completions */
void verbs_cq_keep(struct verbs_cq *cq);                    /* what the library has, for the next poll */
int verbs_srq_create(struct hf_pd *base, uint32_t max_wr, uint32_t max_sge, void *context, struct hf_srq **srq_out);
int verbs_srq_destroy(struct hf_srq *base);
int verbs_srq_post_recv(struct hf_srq *base, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr);

/* qp.c: life and states. */
int verbs_qp_create(struct hf_pd *base, const struct hf_qp_init *init, struct hf_qp **qp_out);
int verbs_qp_destroy(struct hf_qp *base);
int verbs_qp_modify(struct hf_qp *base, struct ibv_qp_attr *attr, int mask);
int verbs_qp_move(struct verbs_qp *qp, enum ibv_qp_state to);
int verbs_qp_query(struct hf_qp *base, struct ibv_qp_attr *attr_out, int mask);
int verbs_qp_executed_psn(struct hf_qp *base, uint32_t *psn_out);
void verbs_qps_tell_last(struct verbs_dev *dev, uint64_t now_ns); /* QP_LAST_WQE_REACHED of those that failed */
void verbs_qp_failed(struct verbs_qp *qp);                        /* the NIC moved it to ERR, by a completion */
/* Moves to ERR what waits on a dead port for longer than its retries take. */
void verbs_qps_lose_patience(struct verbs_dev *dev, uint64_t now_ns);
/* Some want that the device looks after them, though nothing happens. */
bool verbs_qps_wait(const struct verbs_dev *dev);
void verbs_bury(struct verbs_dev *dev, uint64_t now_ns); /* graves that are due */
void verbs_bury_all(struct verbs_dev *dev);              /* blocks until it has */

/* fence.c */
int verbs_qp_fence(struct hf_qp *base);
bool verbs_fence_took(struct verbs_dev *dev, const struct ibv_wc *wc); /* it is a marker, which was flushed */
void verbs_fence_forget(struct verbs_qp *qp);                          /* its markers will not come */

/* post.c: the data path. */
bool verbs_qp_takes(const struct verbs_qp *qp, const struct ibv_send_wr *wr); /* it is well formed, and may be posted */
void verbs_qp_count_posted(struct verbs_qp *qp, const struct ibv_send_wr *wr, const struct ibv_send_wr *end);
int verbs_qp_post_send(struct hf_qp *base, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr);
int verbs_qp_post_recv(struct hf_qp *base, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr);
void verbs_qp_flush_receives(struct verbs_qp *qp); /* of one in ERR */
uint32_t verbs_qp_next_psn(struct hf_qp *base);
void verbs_qps_ring(struct verbs_dev *dev, uint64_t now_ns); /* the doorbell of those that may oversleep */

#endif
