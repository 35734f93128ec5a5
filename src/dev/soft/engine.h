/* engine.h - the RC engine of a soft NIC: queue pairs, memory regions and completion queues, driven by packets and
 * time.
 *
 * Pure: time is an argument, packets are passed in and taken out of `tx`; no clock, thread or descriptor, and no
 * allocation except for a new object (and for each initiator of a DC target). Everything here runs under the NIC's
 * lock, except the application's ends of the rings (requester_post, recv_post, completions_poll) and _Atomic members.
 *
 * Elsewhere: the send side (requester.h), the receive side (responder.h), the threads that drive it (nic.c). */
#ifndef HOLDFAST_DEV_SOFT_ENGINE_H
#define HOLDFAST_DEV_SOFT_ENGINE_H

#include "base/list.h"
#include "dev/soft/bus.h"
#include "dev/soft/lease.h"
#include "dev/soft/requester.h"
#include "dev/soft/responder.h"
#include "dev/soft/ring.h"
#include "dev/soft/tx.h"

#define QP_INDEX_BITS   14u
#define QP_MAX          (1u << QP_INDEX_BITS)
#define MR_BUCKETS      4096u
#define EVENTS_MAX      256u
#define PORT_EVENTS_MAX 4u /* the number of these that is reserved for the port */
#define ENGINE_NO_TIMER UINT64_MAX

struct soft_pd {
	struct hf_pd base;
	unsigned users;
};

struct soft_mr {
	struct hf_mr base;
	struct soft_mr *next; /* in its bucket */
};

struct soft_cq {
	struct hf_cq base;
	struct engine *engine;
	struct ring ring;  /* of ibv_wc; produced by the bus's delivery, consumed by the application */
	_Atomic int armed; /* enum cq_armed */
	_Atomic bool notified;
	bool overflowed;
	_Atomic uint64_t polls_seen; /* of the NIC, when it was last found empty */
	unsigned users;
	struct list node;
};
enum cq_armed { CQ_QUIET, CQ_SOLICITED, CQ_ANY };

/* A receive that was posted; in a ring, with room for its queue's sges. */
struct recv_slot {
	uint64_t wr_id;
	uint32_t num_sge;
	struct ibv_sge sge[];
};

struct soft_srq {
	struct hf_srq base;
	struct ring ring;
	unsigned users;
};

struct soft_qp {
	struct hf_qp base;
	struct engine *engine;
	_Atomic int state;       /* enum ibv_qp_state; written by qp_move alone */
	struct ibv_qp_attr attr; /* as modified */
	uint32_t mtu_bytes;
	struct soft_lease *lease; /* NULL: none */
	int dc;                   /* HF_DC_* */
	uint64_t dc_key;
	struct requester requester;
	struct responder responder; /* of a DC target: unused, its streams have their own */
	struct dc_streams *streams; /* of a DC target */
	struct ring recv_ring;
	struct soft_qp *doorbell_next;
	_Atomic bool doorbell_rung;
	bool last_wqe_reported;
	struct list node; /* of the engine's qps */
};

struct engine {
	struct hf_dev *dev;
	struct soft_bus *bus;
	struct hf_addr local;
	void (*wake)(struct engine *engine); /* an event is pending or a cq was notified */

	struct soft_qp *qps[QP_MAX];
	uint32_t qp_salt, qp_cursor;
	struct soft_mr *mrs[MR_BUCKETS];
	struct list all_qps, cqs;

	_Atomic(struct soft_qp *) doorbells;          /* qps with newly posted work */
	struct list busy_requesters, busy_responders; /* with something to send */
	struct tx tx;
	struct list timed;    /* requesters that wait for a time */
	uint64_t deadline_ns; /* when engine_tick is due, at the latest */
	uint64_t boot_ns;     /* at the latest packet; leases go by it */

	struct hf_dev_event events[EVENTS_MAX];
	unsigned first_event;
	_Atomic unsigned event_count;
	struct hf_dev_counters counters;
};

void engine_init(struct engine *engine, struct hf_dev *dev, struct soft_bus *bus, const struct hf_addr *local);

/* ---- driving it ---- */

/* One datagram. `place`: in the run that it came with, else 0. */
void engine_receive(struct engine *engine, const struct hf_addr *peer, uint16_t place, uint8_t *data, size_t bytes,
	uint64_t now_ns);
/* Looks at what was posted; true when there was something. */
bool engine_answer_doorbells(struct engine *engine);
/* Fires what is due and renews deadline_ns. */
void engine_tick(struct engine *engine, uint64_t now_ns);
/* Fills tx. True: tx was too small, send it and call again. Plain acknowledgements may be held back for a moment,
 * because the application's answer may be about to share their system call. */
bool engine_transmit(struct engine *engine, bool hold_acks, uint64_t now_ns);
/* The requester of this `timed` gets a tick then, or earlier. */
void engine_time(struct engine *engine, struct list *timed, uint64_t due_ns);

/* ---- objects ---- */

struct soft_mr *engine_find_mr(struct engine *engine, uint32_t key);
/* Host memory of a local sge, NULL when it may not be touched: wrong key, other pd, out of range. */
void *engine_local(struct engine *engine, const struct hf_pd *pd, const struct ibv_sge *sge, int access);
/* Of [va, va + bytes) for a peer with this rkey. */
void *engine_remote(
	struct engine *engine, const struct hf_pd *pd, uint32_t rkey, uint64_t va, uint64_t bytes, int access);
int engine_add_qp(struct engine *engine, struct soft_qp *qp); /* gives it its number; -ENOMEM: there are too many */
void engine_remove_qp(struct engine *engine, struct soft_qp *qp);
struct soft_qp *engine_find_qp(struct engine *engine, uint32_t qpn);

void engine_ring_doorbell(struct soft_qp *qp); /* any thread */
void engine_event(struct engine *engine, enum ibv_event_type type, struct hf_qp *qp, struct hf_cq *cq);
int engine_take_event(struct engine *engine, struct hf_dev_event *event_out);
void engine_forget_events(struct engine *engine, void *object);

/* ---- queue pairs ---- */

void qp_move(struct soft_qp *qp, enum ibv_qp_state state); /* ERR flushes, RESET discards */
void qp_fail(struct soft_qp *qp);                          /* to ERR, when it is not there already */
int qp_apply(struct soft_qp *qp, const struct ibv_qp_attr *attr, int mask, uint64_t now_ns);
static inline enum ibv_qp_state qp_state(const struct soft_qp *qp)
{
	return (enum ibv_qp_state)atomic_load_explicit(&qp->state, memory_order_acquire);
}

/* ---- completions ---- */

#define WC_SOLICITED (1u << 30) /* among wc_flags on the way to the cq; not seen by the application */
void completion_add(struct soft_qp *qp, struct hf_cq *cq, struct ibv_wc *wc);
int completions_poll(struct soft_cq *cq, int n, struct ibv_wc *wc);

/* ---- receives ---- */

uint32_t recv_slot_bytes(uint32_t max_sge);
int recv_post(struct ring *ring, uint32_t max_sge, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr);

#endif
