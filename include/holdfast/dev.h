/* dev.h - one device contract, several devices: verbs, shm, soft.
 *
 * A device is one port of one NIC, opened by one process. The vocabulary is that of <infiniband/verbs.h>: work
 * requests, completions, opcodes, statuses, states, access flags and attributes are its own types and mean what the
 * InfiniBand specification and ibv_*(3) say. Only the objects have types of this library, because libibverbs does
 * not make them.
 *
 * What a device promises beyond verbs (docs/protocol.md; one conformance test or more for each):
 *   D1  Order: the wrs of a qp execute at the responder in post order.
 *   D2  Completion: a successful wc means that its wr, and all before it on that qp, executed.
 *   D3  Fence: once hf_qp_fence has returned 0, nothing arrives through that qp any more, in either direction: no
 *       packet executes, no response lands in local memory. Executed operations are visible in memory, and a poll of
 *       the qp's cqs finds every completion that the qp will ever have. A fence may fail, and returns an error then.
 *   D4  Executed psn: after the fence, how far the responder executed, to the packet (HF_DEV_EXECUTED_PSN).
 *   D4b Atomic results: after the fence, psn and original value of the last max_dest_rd_atomic atomics that executed
 *       as responder (HF_DEV_ATOMIC_RESULTS).
 *   D5  Access flags can change in RTS (HF_DEV_ACCESS_IN_RTS); otherwise the qp has to be fenced and cycled. Once the
 *       call has returned 0, an operation without permission does not execute, and the data of every operation that
 *       executed before is visible in memory. -EINPROGRESS: no operation begins without permission any more, but one
 *       that began before goes on (shm: its process does not run); call again, or fence the qp, which ends it.
 *   D6  DC initiators and targets (HF_DEV_DC); otherwise the standby pool shares RC qps.
 *   D7  Atomicity: with each other, other NICs and CPU atomics (HF_DEV_ATOMIC_GLOBAL), or within one HCA only.
 *   D8  Events: port up and down, qp fatal, last wqe reached, cq error. A port can be down without any completion.
 *   D9  Lease: a request that reaches a qp after the qp's lease does not execute (HF_DEV_LEASE).
 *   D10 Registered memory that its owner takes away ends no process: what reaches it executes, or fails.
 *
 * Threads: a device and its objects belong to one thread, but hf_cq_poll, post and hf_dev_poll may be called by
 * different threads when no two work on the same qp, cq or srq at once; a poll works on the qps that complete there.
 * hf_dev_set_link may be called by any.
 *
 * Only open, close and the registration of memory block; on verbs also the move of a qp to RESET and the destruction of
 * cqs, srqs and pds (25 ms at most, for NICs that need it), and the move to RTR (1 s at most, where the kernel has no
 * neighbour entry of the peer). A data-path failure is a completion. Posting returns -errno only for what was not
 * posted: -EINVAL for a malformed wr, -ENOMEM for a full queue. */
#ifndef HOLDFAST_DEV_H
#define HOLDFAST_DEV_H

#include <infiniband/verbs.h>

#include <holdfast/env.h>
#include <holdfast/loop.h>

enum hf_dev_cap {
	HF_DEV_EXECUTED_PSN = 1 << 0,   /* D4 */
	HF_DEV_ATOMIC_RESULTS = 1 << 1, /* D4b */
	HF_DEV_ACCESS_IN_RTS = 1 << 2,  /* D5 */
	HF_DEV_DC = 1 << 3,             /* D6 */
	HF_DEV_ATOMIC_GLOBAL = 1 << 4,  /* D7 */
	HF_DEV_SRQ = 1 << 5,
	HF_DEV_DC_EVIDENCE = 1 << 6, /* D3 of each initiator at a DC target, and what it has of D4 and D4b */
	HF_DEV_FOOTER = 1 << 7,      /* hf_qp_post_send_footed, towards peers that have it too */
	/* A wr with IBV_SEND_FENCE is sent when the responses of the READs and atomics before it are in memory, as the
	 * specification requires; without the capability the NIC may send it earlier. */
	HF_DEV_SEND_FENCE = 1 << 8,
	HF_DEV_LEASE = 1 << 9, /* D9 */
	HF_DEV_UD = 1 << 10,   /* IBV_QPT_UD: dev_ud.h */
};

#define HF_NAME_BYTES 32                  /* of a fabric, node, rail or device, with its NUL */
#define HF_NIC_BYTES  (HF_NAME_BYTES + 4) /* and of a port of a NIC: "mlx5_0/2" */

struct hf_dev_config {
	const char *kind;       /* "shm", "soft", "verbs" */
	const char *fabric;     /* other processes switch links by this name; optional for soft (NULL) */
	const char *node;       /* "a": the node of the port */
	const char *rail;       /* "r0": the port's name at the node */
	struct hf_addr address; /* soft: of its NIC; port 0 means 4791. verbs: of the NIC's port */
	const char *nic;        /* verbs: "mlx5_0", "mlx5_0/2" is its second port; NULL: the one with the address */
	enum ibv_mtu mtu;       /* the port's active MTU; 0: the device's best */
	uint32_t caps_masked;   /* enum hf_dev_cap to hide, so that upper layers can be tested without them */
	bool remap_private;     /* shm: private memory gets pages that peers map (docs/devices.md: faster; mind fork) */
};

struct hf_dev_attr {
	uint32_t caps; /* enum hf_dev_cap */
	uint32_t max_qp_wr, max_sge, max_inline, max_cqe, max_srq_wr;
	uint32_t max_qp, max_cq, max_mr, max_pd, max_srq;
	uint8_t max_rd_atomic; /* both as initiator and as responder */
	uint64_t max_msg_bytes;
	char name[HF_NAME_BYTES]; /* "shm:a/r0": for people */
};

/* Objects start with these; the device's own part follows. Fields are read-only. */
struct hf_dev {
	const struct hf_dev_ops *ops;
	struct hf_env *env;
	struct hf_dev_attr attr;
};
struct hf_pd {
	struct hf_dev *dev;
};
struct hf_mr {
	struct hf_dev *dev;
	struct hf_pd *pd;
	void *addr;
	uint64_t bytes;
	uint64_t iova; /* the address that remote work requests use */
	uint32_t lkey, rkey;
	int access; /* enum ibv_access_flags */
};
struct hf_cq {
	struct hf_dev *dev;
	uint32_t cqe;
	void *context; /* the owner's */
};
struct hf_srq {
	struct hf_dev *dev;
	struct hf_pd *pd;
	uint32_t max_wr, max_sge;
	void *context;
};
struct hf_qp {
	struct hf_dev *dev;
	struct hf_pd *pd;
	struct hf_cq *send_cq, *recv_cq;
	struct hf_srq *srq;
	struct ibv_qp_cap cap;
	enum ibv_qp_type type;
	bool sq_sig_all;
	uint64_t revoke_ns;
	uint32_t qp_num;
	void *context;
};

struct hf_qp_init {
	struct hf_cq *send_cq, *recv_cq;
	struct hf_srq *srq;     /* NULL: a receive queue of its own */
	struct hf_lease *lease; /* D9, of the same device; NULL: it executes at any time */
	struct ibv_qp_cap cap;  /* rounded up; the result is in the qp */
	enum ibv_qp_type type;  /* IBV_QPT_RC, _UD (HF_DEV_UD), or _DRIVER with one of the two below (D6) */
	enum { HF_DC_NONE, HF_DC_INITIATOR, HF_DC_TARGET } dc;
	uint64_t dc_key; /* of a target; initiators must present it */
	bool sq_sig_all;
	/* shm: a requester that is still in an operation this long after its access was revoked counts as stopped, and
	 * the fence ends without it; a requester that is observed stopped counts at once. Stores for such a qp are
	 * guarded, some ns each, so that no pages have to move then. 0: 20 ms, as for every other fence. */
	uint64_t revoke_ns;
	void *context;
};

/* ---- device ---- */

/* Opens a port. -ENODEV: no such kind (the error lists the kinds); -EADDRINUSE: node and rail, or address,
 * taken by a live process; -ENOSPC, -ENOMEM: /dev/shm or memory exhausted. Blocks for milliseconds. */
int hf_dev_open(
	struct hf_env *env, const struct hf_dev_config *config, struct hf_dev **dev_out, struct hf_error *error);
void hf_dev_close(struct hf_dev *dev); /* NULL is legal; its objects were destroyed before */

/* All kinds, NULL terminated, with a sentence on each for users. */
struct hf_dev_kind {
	const char *name, *what;
};
const struct hf_dev_kind *hf_dev_kinds(void);

int hf_dev_query_port(struct hf_dev *dev, struct ibv_port_attr *attr_out);
union ibv_gid hf_dev_gid(const struct hf_dev *dev); /* the port's, for ah_attr.grh.dgid of its peers */

/* Handles packets, timers and acknowledgements that are due. Any call that polls does this too. */
enum hf_poll hf_dev_poll(struct hf_dev *dev, uint64_t now_ns);

/* Becomes readable for an armed cq, an event of the port, or when hf_dev_poll has something to do. */
struct hf_io *hf_dev_io(struct hf_dev *dev);
/* Before a wait on it: true when nothing is pending and any new event makes it readable. */
bool hf_dev_arm(struct hf_dev *dev);

/* D8. */
struct hf_dev_event {
	enum ibv_event_type type; /* PORT_ACTIVE, PORT_ERR, QP_FATAL, QP_LAST_WQE_REACHED, CQ_ERR, DEVICE_FATAL, ... */
	struct hf_qp *qp;         /* QP events */
	struct hf_cq *cq;         /* CQ events */
	struct hf_srq *srq;       /* SRQ events */
};
/* 1: filled; 0: none pending. Events of a destroyed object are dropped with it. */
int hf_dev_get_event(struct hf_dev *dev, struct hf_dev_event *event_out);

/* The operator's switch, which cuts sending (TX), receiving (RX) or both. With HF_LINK_BOTH the port is down, and
 * reports it by events and attributes; a single direction is a silent fault. */
enum hf_link { HF_LINK_TX = 1, HF_LINK_RX = 2, HF_LINK_BOTH = 3 };
int hf_dev_set_link(struct hf_dev *dev, enum hf_link direction, bool up);
/* Limits sending to this many MB/s (of 10^6 bytes, headers included), like a slow cable; 0: no limit. -EOPNOTSUPP:
 * the device has no limit (soft has). */
int hf_dev_set_rate(struct hf_dev *dev, uint32_t mb_per_s);

/* Counters for operators and tests. */
struct hf_dev_counters {
	uint64_t packets_sent, packets_received, bytes_sent, bytes_received;
	uint64_t executed_bytes; /* payload that took effect here as responder; shm: whole wrs; verbs: 0, not known */
	uint64_t retransmitted, duplicates, naks_sent, rnr_naks_sent;
	uint64_t malformed;                        /* dropped: truncated, bad ICRC, bad opcode, unknown qp */
	uint64_t dropped_link_down, dropped_lease; /* D9 */
};
void hf_dev_counters(struct hf_dev *dev, struct hf_dev_counters *counters_out);

/* ---- memory ---- */

int hf_pd_alloc(struct hf_dev *dev, struct hf_pd **pd_out);
int hf_pd_free(struct hf_pd *pd); /* -EBUSY while objects of it exist */

/* Registers [addr, addr + bytes), for peers as [iova, iova + bytes); keys are random. Any kind of memory is accepted;
 * the device determines how peers reach it (shm: docs/devices.md). -EOPNOTSUPP with a text: the device, or this host,
 * cannot give peers that access to that kind of memory (shm: atomics on a stack). -EFAULT: not all of it is mapped.
 * -EACCES: it cannot be written. Local write is never implied: access is enum ibv_access_flags as in
 * ibv_reg_mr(3), REMOTE_WRITE and REMOTE_ATOMIC need LOCAL_WRITE. */
int hf_mr_reg(struct hf_pd *pd, void *addr, uint64_t bytes, uint64_t iova, int access, struct hf_mr **mr_out,
	struct hf_error *error);
/* After a return of 0 no remote operation touches the memory. -EBUSY: no operation begins any more, but one that
 * cannot be ended continues (shm: of a process that stands still where its copies cannot be guarded); call again. */
int hf_mr_dereg(struct hf_mr *mr);

/* ---- completion ---- */

int hf_cq_create(struct hf_dev *dev, uint32_t cqe, void *context, struct hf_cq **cq_out);
int hf_cq_destroy(struct hf_cq *cq); /* -EBUSY while a qp uses it */
/* Notifies through hf_dev_io for the next completion (or solicited one), once. */
int hf_cq_req_notify(struct hf_cq *cq, bool solicited_only);
/* True, once per notification, for a cq that was notified. */
bool hf_cq_notified(struct hf_cq *cq);

/* ---- queue pairs ---- */

int hf_srq_create(struct hf_pd *pd, uint32_t max_wr, uint32_t max_sge, void *context, struct hf_srq **srq_out);
int hf_srq_destroy(struct hf_srq *srq);

int hf_qp_create(struct hf_pd *pd, const struct hf_qp_init *init, struct hf_qp **qp_out);
/* After a return of 0 nothing executes on the qp. May block, as a fence does. -EBUSY: an operation of the peer cannot
 * be ended, as with hf_mr_dereg; the qp still exists, on shm in IBV_QPS_ERR; call again. The same holds for a move to
 * IBV_QPS_RESET. */
int hf_qp_destroy(struct hf_qp *qp);

/* As ibv_modify_qp(3): moves that the specification does not allow and attributes missing for a move are -EINVAL.
 * The peer is ah_attr.grh.dgid and dest_qp_num. IBV_QP_ACCESS_FLAGS in RTS: D5. */
int hf_qp_modify(struct hf_qp *qp, struct ibv_qp_attr *attr, int mask);
int hf_qp_query(struct hf_qp *qp, struct ibv_qp_attr *attr_out, int mask);

/* D3, D4, D4b: hf_qp_fence, and evidence of the operations that executed before it. */

#include <holdfast/dev_evidence.h>

/* D6, dynamically connected queue pairs; D9, leases; unreliable datagrams. */
#include <holdfast/dev_dc.h>
#include <holdfast/dev_lease.h>
#include <holdfast/dev_ud.h>

/* ---- the data path: hf_qp_post_send, hf_qp_post_recv, hf_srq_post_recv, hf_cq_poll ---- */

#include <holdfast/dev_ops.h>

#endif
