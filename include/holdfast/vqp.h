/* vqp.h - a queue pair that survives the loss of a rail.
 *
 * A vqp posts each wr on one rail. When that rail fails, both sides agree on another one and the policy says what
 * becomes of the wrs in flight (Varuna, sections 3.4 and 5.1). Regions are registered on the NIC of every rail; the
 * keys that applications see stay the same, whatever rail is in use (section 4, Memory Management).
 *
 * Everything belongs to the node's loop; no function here blocks or takes a lock, registration excepted. */
#ifndef HOLDFAST_VQP_H
#define HOLDFAST_VQP_H

#include <holdfast/node.h>

struct hf_vpd; /* protection domain over all rails */
struct hf_vcq; /* completion queue over all rails */
struct hf_vqp;

int hf_vpd_alloc(struct hf_node *node, struct hf_vpd **pd_out);
int hf_vpd_free(struct hf_vpd *pd); /* -EBUSY while objects of it exist */

/* How atomics on a region survive a failover: a property of the region, the same for all its peers. */
enum hf_atomic_mode {
	HF_ATOMIC_NATIVE, /* the NIC's own; their results are recovered from the NIC that executed them (D4b) */
	HF_ATOMIC_UID, /* in two stages through slots beside the region, for NICs without D4b (Varuna, section 3.3) */
	/* The NIC's own, and nothing is kept for their recovery: one of which nobody can say whether it executed is
	 * sent again. An FAA may execute twice then. A CAS that finds its own value is told to have succeeded: that is
	 * right when a word has one writer, or all values are unique, and who writes waits for each CAS before the next
	 * (section 3.3). */
	HF_ATOMIC_PLAIN,
	HF_ATOMIC_MODES,
};

/* A region registered on every rail. Peers of the protection domain's vqps learn its per-rail keys through the control
 * channel; wrs name it by these keys and plain addresses on any rail. */
struct hf_vmr {
	struct hf_vpd *pd;
	void *addr;
	uint64_t bytes;
	uint32_t lkey, rkey;
	enum hf_atomic_mode mode;
};
/* In HF_ATOMIC_NATIVE. */
int hf_vmr_reg(
	struct hf_vpd *pd, void *addr, uint64_t bytes, int access, struct hf_vmr **mr_out, struct hf_error *error);
/* -EINVAL: the access asked for does not go with the mode; the error says which. */
int hf_vmr_reg_atomic(struct hf_vpd *pd, void *addr, uint64_t bytes, int access, enum hf_atomic_mode mode,
	struct hf_vmr **mr_out, struct hf_error *error);
/* Once it has returned 0 no remote operation touches the memory any more, on any rail, whichever rail its vqp is on or
 * moves to. A wr of a peer that names the region fails then, and its vqp with it: tell peers before, and wait until
 * they have answered. Own wrs that name it must have completed. It blocks while a process of this host stands still in
 * the middle of an operation (shm: 20 ms; 2 s where the kernel copies for it). -EBUSY: that operation cannot be ended;
 * no other begins. Call again, and keep the memory until then. NULL is legal. */
int hf_vmr_dereg(struct hf_vmr *mr);

/* The owner's own atomics on the aligned word at `at`, atomic with those of peers in every mode; in HF_ATOMIC_UID the
 * only right way to touch memory that peers may reach. -EINVAL: not a word of the region; -EAGAIN: peers change it all
 * the time; -EOPNOTSUPP: the NICs' atomics are not atomic with the CPU's, so it takes hf_vmr_atomic_post. */
int hf_vmr_atomic_cas(struct hf_vmr *mr, uint64_t *at, uint64_t compare, uint64_t swap, uint64_t *original_out);
int hf_vmr_atomic_faa(struct hf_vmr *mr, uint64_t *at, uint64_t add, uint64_t *original_out);
int hf_vmr_atomic_load(struct hf_vmr *mr, const uint64_t *at, uint64_t *value_out);

/* The same through the NIC where it has to be, else at once. Until done() was called the struct is the library's. That
 * is before hf_vmr_atomic_post returns, or in a turn of the loop, where it may destroy anything of the node, or before
 * hf_vmr_dereg of its region returns. rc: 0; -EIO: nobody can say whether it executed; -EACCES: the region is not
 * registered for atomics; -ECANCELED: it is being deregistered, and refuses what done() posts to it with that too; or
 * as above. */
struct hf_vmr_atomic {
	struct hf_vmr *mr;
	uint64_t *at;
	enum ibv_wr_opcode opcode; /* ATOMIC_CMP_AND_SWP, ATOMIC_FETCH_AND_ADD, RDMA_READ */
	uint64_t compare_add, swap;
	void (*done)(struct hf_vmr_atomic *atomic, int rc);
	void *context;
	uint64_t original;
	struct hf_vmr_atomic *next; /* the library's */
};
int hf_vmr_atomic_post(struct hf_vmr_atomic *atomic);

int hf_vcq_create(struct hf_node *node, uint32_t cqe, void *context, struct hf_vcq **cq_out);
int hf_vcq_destroy(struct hf_vcq *cq);
int hf_vcq_poll(struct hf_vcq *cq, int n, struct ibv_wc *wc); /* as ibv_poll_cq(3); wc.qp_num is the vqp's */
/* The same, of one vqp's wrs alone. */
int hf_vcq_poll_vqp(struct hf_vcq *cq, struct hf_vqp *vqp, int n, struct ibv_wc *wc);
/* The completion of one request (hf_vqp_last_request), once it and all before it are done; the others stay. 1: filled;
 * 0: not done yet; -ENOENT: it has no completion, or that was polled. */
int hf_vcq_poll_request(struct hf_vcq *cq, struct hf_vqp *vqp, uint64_t request, struct ibv_wc *wc);
/* Calls notify(cq, context) at the first completion that becomes ready after the request, once per request: in a turn
 * of the loop, where it may destroy anything, or in the poll that takes that completion, where it may not. As with
 * ibv_req_notify_cq(3), completions that were ready before cause no call: poll after the request. */
void hf_vcq_req_notify(struct hf_vcq *cq, void (*notify)(struct hf_vcq *cq, void *context));

struct hf_vqp_init {
	struct hf_vcq *send_cq, *recv_cq; /* recv_cq NULL: send_cq */
	struct ibv_qp_cap cap;
	bool sq_sig_all;
	int access;     /* what the peer may do through this vqp: enum ibv_access_flags */
	bool revocable; /* that may be changed later: grant.h. Both ends keep a qp on every rail for it */
	/* Taking access ends without a peer whose process has stood still in the middle of an operation for this long
	 * (shm; other devices do not wait). 0: 20 ms. */
	uint64_t revoke_ns;
	/* A lane: it is on the node's rail of this number only, and hands back: hf_vqp_withdraw. Policy varuna alone;
	 * not revocable. Both ends are made so, on rails of the same name, or connecting is refused. */
	bool hand_back;
	unsigned rail;
	void *context;
	/* The vqp came up, changed rail or failed for good. May post, poll and connect, but destroy nothing. NULL: not
	 * told. */
	void (*changed)(struct hf_vqp *vqp, void *context);
};
int hf_vqp_create(struct hf_vpd *pd, const struct hf_vqp_init *init, struct hf_vqp **vqp_out);
/* Its unpolled completions are dropped; NULL is legal. On a standby qp that others use too it may block for some 40 ms,
 * until the NIC says that the qp is fenced. A NIC that has not said so by then loses that qp, and what it knew of the
 * wrs of the others: some of theirs may be unknown. */
void hf_vqp_destroy(struct hf_vqp *vqp);

/* ---- connecting ---- */

#define HF_PRIVATE_BYTES 256

/* A request to connect, valid during the callback. */
struct hf_vqp_request {
	struct hf_peer *peer;
	const void *private_data;
	size_t private_bytes;
	int lane; /* the node's rail that the peer's vqp is pinned to (hf_vqp_init.hand_back); -1: it is not pinned */
};
/* Serves `service` (a name of at most HF_NAME_BYTES - 1): on_request makes a vqp and returns it, with an answer of at
 * most HF_PRIVATE_BYTES in reply, or returns NULL to refuse. */
struct hf_vqp_service {
	const char *name;
	struct hf_vqp *(*on_request)(
		const struct hf_vqp_request *request, void *reply, size_t *reply_bytes, void *context);
	void *context;
};
int hf_vqp_serve(struct hf_node *node, const struct hf_vqp_service *service); /* the struct stays the caller's */

/* Asks `peer` to connect; `changed` tells the outcome. Without an answer it goes on connecting. wrs may be posted at
 * once and wait; when they have waited for the budget, they fail, and the vqp with them. */
int hf_vqp_connect(
	struct hf_vqp *vqp, struct hf_peer *peer, const char *service, const void *private_data, size_t private_bytes);
/* For programs that have told each other their vqps' numbers by themselves: connects to vqp `num` of `peer`, with what
 * that one may do here. Both sides call it, in any order; without the other's call the vqp goes on connecting,
 * to the next incarnation when this one ends, and what is posted fails after the budget. */
int hf_vqp_connect_num(struct hf_vqp *vqp, struct hf_peer *peer, uint32_t num, int access);
/* As the move of a qp to IBV_QPS_ERR: every wr completes as flushed, and the other side's too. */
void hf_vqp_abort(struct hf_vqp *vqp);
/* Ends a lane by its evidence, as the loss of its rail does: both ends fence it and tell each other what executed. What
 * executed completes with success, the rest as HF_WC_NOT_EXECUTED: the first with IBV_WC_RETRY_EXC_ERR, or the status
 * with which it was refused, the others with IBV_WC_WR_FLUSH_ERR. A wr of which some packets executed is
 * HF_WC_UNKNOWN, as is one whose evidence was lost with a device. Nothing is sent elsewhere, nothing executes later.
 * WRITEs that may be repeated are best posted with HF_SEND_IDEMPOTENT, which costs no log entry. A peer that does not
 * answer delays the end until its lease is over. `changed` is called at the end, on both sides. -EINVAL: not a lane. */
int hf_vqp_withdraw(struct hf_vqp *vqp);
/* As the move of a qp to IBV_QPS_RESET, also after hf_vqp_abort: both queues are empty, and completions that were not
 * polled are dropped. Only of a vqp that was never to be connected; -EISCONN otherwise. */
int hf_vqp_reset(struct hf_vqp *vqp);
/* The answer of the other side, once connected. */
const void *hf_vqp_reply(const struct hf_vqp *vqp, size_t *bytes_out);

enum hf_vqp_state {
	HF_VQP_INIT,       /* made; not connected */
	HF_VQP_CONNECTING, /* waiting for the peer, or for a first qp */
	HF_VQP_UP,         /* posting on a rail */
	HF_VQP_RECOVERING, /* the rail failed; both sides are settling what becomes of the wrs in flight */
	HF_VQP_ERROR,      /* for good, unless it was never connected: every wr completes in error */
	HF_VQP_STATES,
};
enum hf_vqp_state hf_vqp_state(const struct hf_vqp *vqp);
/* Why it was not connected, for people; empty when nobody said. */
const char *hf_vqp_reason(const struct hf_vqp *vqp);
/* Why a vqp is in HF_VQP_ERROR: the first reason that this side saw. */
enum hf_vqp_end {
	HF_VQP_END_NONE,       /* it is not */
	HF_VQP_END_ASKED,      /* hf_vqp_abort, hf_vqp_withdraw or hf_peer_close of this side */
	HF_VQP_END_REFUSED,    /* never connected: refused by the peer, or by this side since both do not agree */
	HF_VQP_END_UNANSWERED, /* never connected: what was posted waited for the budget */
	HF_VQP_END_PEER,       /* the peer's vqp ended: asked there, a program error there, or destroyed */
	HF_VQP_END_PEER_GONE,  /* the peer's process is gone, or was out of reach for longer than its lease */
	HF_VQP_END_PROGRAM,    /* a wr or a receive of this side was at fault: the status */
	HF_VQP_END_NO_PATH,    /* there was no path within the budget */
	HF_VQP_END_PORT_HERE,  /* of a lane, or under policy none: the port of its rail is down here, */
	HF_VQP_END_PORT_THERE, /* or there, */
	HF_VQP_END_DEVICE,     /* or its device here died, */
	HF_VQP_END_PATH,       /* or its wrs had no answer although both ports are up */
	HF_VQP_END_UNKNOWN,    /* the outcome of a wr is unknown, and nothing of the vqp may execute behind it */
	HF_VQP_END_NO_MEMORY,
	HF_VQP_ENDS,
};
/* status_out (NULL is legal): of the wr or receive of HF_VQP_END_PROGRAM, else IBV_WC_SUCCESS. */
enum hf_vqp_end hf_vqp_end(const struct hf_vqp *vqp, enum ibv_wc_status *status_out);
int hf_vqp_rail(const struct hf_vqp *vqp); /* the node's rail in use; -1 when none is */
/* False: after a failover it is on a standby qp that it shares with others, until it has one of its own again. */
bool hf_vqp_is_dedicated(const struct hf_vqp *vqp);
uint32_t hf_vqp_num(const struct hf_vqp *vqp);
void *hf_vqp_context(const struct hf_vqp *vqp);

struct hf_vqp_counters {
	uint64_t posted, completed, failed; /* wrs */
	uint64_t failovers, failbacks;
	uint64_t resent_wrs,
		resent_bytes;      /* handed to another qp after a failover: wrs, and what was left of their bytes */
	uint64_t log_bytes;        /* of log entries that took a wr of their own, once for each wr */
	uint64_t unknown;          /* wrs that completed as HF_WC_UNKNOWN */
	uint64_t last_failover_ns; /* from the detection to traffic on another rail */
};
void hf_vqp_counters(const struct hf_vqp *vqp, struct hf_vqp_counters *counters_out);

/* What a vqp has for its logs once all of them was used; they have the size of its queues and do not grow. */
struct hf_vqp_memory {
	uint64_t request_log_bytes;    /* copies of the wrs in flight, under every policy */
	uint64_t receive_log_bytes;    /* of the receives */
	uint64_t completion_log_bytes; /* what the other side writes here; 0: none */
};
void hf_vqp_memory(const struct hf_vqp *vqp, struct hf_vqp_memory *memory_out);

/* ---- the data path ---- */

/* wc.vendor_err of a wr that failed: what became of it. A wr without evidence is told to be unknown, never guessed. */
enum hf_wc_outcome {
	HF_WC_SUCCEEDED,
	HF_WC_NOT_EXECUTED, /* it did not take effect, and never will */
	HF_WC_UNKNOWN, /* it took effect in full, in part or not at all; if it returns a value, that is lost. Final */
};

/* A send flag besides verbs' own: to execute this wr twice does no harm. It is sent again where nobody can say whether
 * it executed, and costs no evidence. */
#define HF_SEND_IDEMPOTENT (1u << 24)

/* As ibv_post_send(3), in order. Inline payloads are copied; other buffers, and the receive side's too, belong to the
 * vqp until their wc is polled; the list itself may be reused at once. -ENOMEM: the queue is full (poll, post again);
 * -EINVAL: malformed; *bad_wr is the first that was not taken. */
int hf_vqp_post_send(struct hf_vqp *vqp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr);
/* The wr that was posted last, by a number that no other wr of this vqp ever has: for applications that give all their
 * wrs the same wr_id. 0: none was posted yet. */
uint64_t hf_vqp_last_request(const struct hf_vqp *vqp);

/* Posting without a copy: hands out the vqp's own wrs, which live until they have completed. sg_list has room for
 * max_send_sge; num_sge, opcode and all else are zero. hf_vqp_post_wrs posts those handed out, in their order. NULL:
 * the queue is full. Between the two nothing else is posted to the vqp (-EBUSY). */
struct ibv_send_wr *hf_vqp_wr(struct hf_vqp *vqp);
/* -EINVAL: the first that was not posted is malformed; it and those behind it are taken back. */
int hf_vqp_post_wrs(struct hf_vqp *vqp, struct ibv_send_wr **bad_wr);

int hf_vqp_post_recv(struct hf_vqp *vqp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr);

#endif
