/* vqp.h - a queue pair that survives the loss of a rail.
 *
 * A vqp posts each wr on one rail. When that rail fails, wrs that took effect are completed from the evidence at the
 * responder, and the others are posted again on another rail (Varuna, sections 3.2 to 3.4; docs/protocol.md has the
 * promises V1 to V8). Other policies do less (section 5.1, enum hf_policy). Regions are registered on the NIC of every
 * rail; the keys that applications see stay the same on all rails (section 4, Memory Management).
 *
 * All objects belong to the node's loop. No function takes a lock. Registration, deregistration and hf_vqp_destroy may
 * block; the others do not. */
#ifndef HOLDFAST_VQP_H
#define HOLDFAST_VQP_H

#include <holdfast/node.h>

struct hf_vpd; /* protection domain over all rails */
struct hf_vcq; /* completion queue over all rails */
struct hf_vqp;

int hf_vpd_alloc(struct hf_node *node, struct hf_vpd **pd_out); /* -ENODEV: the node has no rails */
int hf_vpd_free(struct hf_vpd *pd);                             /* -EBUSY while objects of it exist */

/* How atomics on a region survive a failover: a property of the region, the same for all its peers. */
enum hf_atomic_mode {
	HF_ATOMIC_NATIVE, /* the NIC's atomics; results are recovered from the NIC that executed them (D4b) */
	HF_ATOMIC_UID, /* in two stages through slots beside the region, for NICs without D4b (Varuna, section 3.3) */
	/* The NIC's atomics, without a record: one without evidence is sent again. An FAA may then execute twice. A CAS
	 * that finds its own swap value completes as success; this is correct when each word has one writer, or all
	 * values are unique, and the writer waits for each CAS before the next (section 3.3). */
	HF_ATOMIC_PLAIN,
	HF_ATOMIC_MODES,
};

/* A region registered on every rail. Peers of the protection domain's vqps receive its per-rail keys through the
 * control channel; wrs use these keys and plain addresses on any rail. */
struct hf_vmr {
	struct hf_vpd *pd;
	void *addr;
	uint64_t bytes;
	uint32_t lkey, rkey;
	enum hf_atomic_mode mode;
};
/* Registers in mode HF_ATOMIC_NATIVE. Blocks. */
int hf_vmr_reg(
	struct hf_vpd *pd, void *addr, uint64_t bytes, int access, struct hf_vmr **mr_out, struct hf_error *error);
/* The same in any mode. -EINVAL: the mode does not allow that access, which `error` names. */
int hf_vmr_reg_atomic(struct hf_vpd *pd, void *addr, uint64_t bytes, int access, enum hf_atomic_mode mode,
	struct hf_vmr **mr_out, struct hf_error *error);
/* After a return of 0 no remote operation touches the memory, on any rail, whichever rail a vqp uses or moves to. A
 * later wr of a peer that names the region fails, and the peer's vqp with it: notify the peers first and wait for their
 * replies. The program's own wrs that name the region must have completed. Blocks while a process of this host is
 * stopped in the middle of an operation (shm: 20 ms; 2 s where the kernel copies for it). -EBUSY: that operation cannot
 * be ended, and no other starts; keep the memory and call again. NULL is legal. */
int hf_vmr_dereg(struct hf_vmr *mr);

/* Atomics of the owner on the aligned word at `at`, atomic with those of peers in every mode. In HF_ATOMIC_UID the
 * owner must not touch memory that peers may reach in any other way. -EINVAL: not a word of the region; -EAGAIN:
 * peers kept changing the word; -EOPNOTSUPP: the NICs' atomics do not exclude the CPU's, so use hf_vmr_atomic_post. */
int hf_vmr_atomic_cas(struct hf_vmr *mr, uint64_t *at, uint64_t compare, uint64_t swap, uint64_t *original_out);
int hf_vmr_atomic_faa(struct hf_vmr *mr, uint64_t *at, uint64_t add, uint64_t *original_out);
int hf_vmr_atomic_load(struct hf_vmr *mr, const uint64_t *at, uint64_t *value_out);

/* The same, through the NIC where the CPU's atomics do not exclude the NIC's. The struct belongs to the library
 * until it calls done(): before hf_vmr_atomic_post returns, in a turn of the loop (where done() may destroy any
 * object of the node), or before hf_vmr_dereg of the region returns. rc: 0; -EIO: unknown whether it executed;
 * -EACCES: the region is not registered for atomics; -ECANCELED: the region is being deregistered, also for what
 * done() posts to it; or as above. */
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
/* As ibv_poll_cq(3); wc.qp_num is the vqp's. Turns of the loop read the devices' queues. A poll that finds nothing
 * reads them while a wr is in flight, for programs that wait by polling; else only if no turn did since the last. */
int hf_vcq_poll(struct hf_vcq *cq, int n, struct ibv_wc *wc);
/* The same for the wrs of one vqp. */
int hf_vcq_poll_vqp(struct hf_vcq *cq, struct hf_vqp *vqp, int n, struct ibv_wc *wc);
/* Takes the completion of one request (hf_vqp_last_request) after it and all before it are done; the others stay. 1:
 * filled; 0: not done yet; -ENOENT: the request has no completion, or the completion was polled before. */
int hf_vcq_poll_request(struct hf_vcq *cq, struct hf_vqp *vqp, uint64_t request, struct ibv_wc *wc);
/* Calls notify(cq, context) at the first completion that becomes ready after the request, once per request: in a turn
 * of the loop, where it may destroy anything, or in the poll that takes that completion, where it may not. As with
 * ibv_req_notify_cq(3), completions that were ready before cause no call: poll after the request. */
void hf_vcq_req_notify(struct hf_vcq *cq, void (*notify)(struct hf_vcq *cq, void *context));

struct hf_vqp_init {
	struct hf_vcq *send_cq, *recv_cq; /* recv_cq NULL: send_cq */
	struct ibv_qp_cap cap;
	bool sq_sig_all;
	int access;     /* the peer's access through this vqp: enum ibv_access_flags */
	bool revocable; /* `access` may be changed later (grant.h). Both ends then keep a qp on every rail */
	/* A revocation does not wait longer than this for a peer whose process stands still in the middle of an
	 * operation (shm; other devices do not wait). 0: 20 ms. */
	uint64_t revoke_ns;
	/* A lane: it is on the node's rail of this number only, and hands back its wrs: hf_vqp_withdraw. Policy varuna
	 * alone; not revocable. Both ends must be lanes, on rails of the same name, or connecting is refused. */
	bool hand_back;
	unsigned rail;
	void *context;
	/* Called when the vqp came up, changed its rail, or entered HF_VQP_ERROR. May post, poll and connect; must not
	 * destroy anything. May be NULL. */
	void (*changed)(struct hf_vqp *vqp, void *context);
};
int hf_vqp_create(struct hf_vpd *pd, const struct hf_vqp_init *init, struct hf_vqp **vqp_out);
/* Drops completions that were not polled. NULL is legal. On a standby qp that other vqps use it blocks until the qp
 * is fenced: for about 50 ms at most, and over DC for 50 ms at each of two qps. If the fence takes longer, the qp is
 * destroyed with its evidence, and wrs of the other vqps may complete as HF_WC_UNKNOWN. A qp in an operation that
 * cannot be ended (hf_vmr_dereg) ends later. */
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
/* A service by a name of at most HF_NAME_BYTES - 1 bytes. on_request returns a vqp for the requester and puts at most
 * HF_PRIVATE_BYTES of private data into reply, or returns NULL to refuse. */
struct hf_vqp_service {
	const char *name;
	struct hf_vqp *(*on_request)(
		const struct hf_vqp_request *request, void *reply, size_t *reply_bytes, void *context);
	void *context;
};
int hf_vqp_serve(struct hf_node *node, const struct hf_vqp_service *service);    /* the struct stays the caller's */
void hf_vqp_unserve(struct hf_node *node, const struct hf_vqp_service *service); /* vqps that it made stay */

/* Sends a connect request to `peer`; `changed` reports the outcome. Without a reply the vqp stays in HF_VQP_CONNECTING.
 * wrs may be posted at once and wait; when one has waited for the budget, it fails, and the vqp with it. */
int hf_vqp_connect(
	struct hf_vqp *vqp, struct hf_peer *peer, const char *service, const void *private_data, size_t private_bytes);
/* For programs that exchange the numbers of their vqps by other means: connects to vqp `num` of `peer`, and permits
 * `access` to it. Both sides call it, in any order. Until the peer calls it the vqp stays in HF_VQP_CONNECTING, also
 * across restarts of the peer, and posted wrs fail after the budget. */
int hf_vqp_connect_num(struct hf_vqp *vqp, struct hf_peer *peer, uint32_t num, int access);
/* Of messages: ibv_qp_attr.rnr_retry, by default 7. A qp of a verbs device keeps the number it was connected with. */
void hf_vqp_set_rnr_retry(struct hf_vqp *vqp, uint8_t retries);
/* Like the move of a qp to IBV_QPS_ERR: every wr completes as flushed, at the peer too. */
void hf_vqp_abort(struct hf_vqp *vqp);
/* Ends a lane by its evidence, as the loss of its rail does: both ends fence it and exchange evidence. Executed wrs
 * complete with success, the rest as HF_WC_NOT_EXECUTED: the first with IBV_WC_RETRY_EXC_ERR, or the status
 * with which it was refused, the others with IBV_WC_WR_FLUSH_ERR. A wr of which some packets executed is
 * HF_WC_UNKNOWN, as is one whose evidence was lost with a device. Nothing is sent on another rail or executes later.
 * WRITEs that may be repeated are best posted with HF_SEND_IDEMPOTENT, which costs no log entry. A peer that does not
 * answer delays the end until its lease is over. `changed` is called at the end, on both sides. -EINVAL: not a lane. */
int hf_vqp_withdraw(struct hf_vqp *vqp);
/* Like the move of a qp to IBV_QPS_RESET, also after hf_vqp_abort: empties both queues and drops completions that were
 * not polled. -EISCONN: hf_vqp_connect or hf_vqp_connect_num was called for this vqp, or it answered a request. */
int hf_vqp_reset(struct hf_vqp *vqp);
/* The private data that the peer replied; *bytes_out is 0 until the vqp is connected. */
const void *hf_vqp_reply(const struct hf_vqp *vqp, size_t *bytes_out);

enum hf_vqp_state {
	HF_VQP_INIT,       /* made; not connected */
	HF_VQP_CONNECTING, /* waiting for the peer, or for a first qp */
	HF_VQP_UP,         /* posting on a rail */
	HF_VQP_RECOVERING, /* the rail failed; both ends exchange evidence and agree on another rail */
	HF_VQP_ERROR,      /* final unless it was never connected; every wr completes in error */
	HF_VQP_STATES,
};
enum hf_vqp_state hf_vqp_state(const struct hf_vqp *vqp);
/* The reason why it was not connected, as a sentence; empty when no reason is known. */
const char *hf_vqp_reason(const struct hf_vqp *vqp);
/* The reason why a vqp is in HF_VQP_ERROR: the first that this side detected. */
enum hf_vqp_end {
	HF_VQP_END_NONE,       /* it is not in HF_VQP_ERROR */
	HF_VQP_END_ASKED,      /* hf_vqp_abort, hf_vqp_withdraw or hf_peer_close of this side */
	HF_VQP_END_REFUSED,    /* never connected: refused by the peer, or by this side for different settings */
	HF_VQP_END_UNANSWERED, /* never connected: a posted wr waited for the budget */
	HF_VQP_END_PEER,       /* the peer's vqp ended: by its program, a program error there, or destroyed */
	HF_VQP_END_PEER_GONE,  /* the peer's process is gone, or was unreachable for longer than its lease */
	HF_VQP_END_PROGRAM,    /* a wr or a receive of this side was at fault: the status */
	HF_VQP_END_NO_PATH,    /* there was no path within the budget */
	HF_VQP_END_PORT_HERE,  /* of a lane, or under policy none: the port of its rail is down here, */
	HF_VQP_END_PORT_THERE, /* or there, */
	HF_VQP_END_DEVICE,     /* or its device here died, */
	HF_VQP_END_PATH,       /* or its wrs had no response although both ports are up */
	HF_VQP_END_UNKNOWN,    /* the outcome of a wr is unknown, and nothing of the vqp may execute behind it */
	HF_VQP_END_NO_MEMORY,
	HF_VQP_ENDS,
};
/* status_out (NULL is legal): of the wr or receive of HF_VQP_END_PROGRAM, else IBV_WC_SUCCESS. */
enum hf_vqp_end hf_vqp_end(const struct hf_vqp *vqp, enum ibv_wc_status *status_out);
int hf_vqp_rail(const struct hf_vqp *vqp); /* the node's rail in use; -1 when none is */
/* False: after a failover the vqp shares a standby qp with other vqps, until a dedicated qp is rebuilt. */
bool hf_vqp_is_dedicated(const struct hf_vqp *vqp);
uint32_t hf_vqp_num(const struct hf_vqp *vqp);
void *hf_vqp_context(const struct hf_vqp *vqp);

struct hf_vqp_counters {
	uint64_t posted, completed, failed; /* wrs */
	uint64_t failovers, failbacks;
	uint64_t resent_wrs, resent_bytes; /* posted to another qp after a failover: wrs, and the rest of their bytes */
	uint64_t log_bytes;                /* of log entries that took a wr of their own, once for each wr */
	uint64_t unknown;                  /* wrs that completed as HF_WC_UNKNOWN */
	uint64_t last_failover_ns;         /* from the detection to traffic on another rail */
};
void hf_vqp_counters(const struct hf_vqp *vqp, struct hf_vqp_counters *counters_out);

/* Memory of the logs of a vqp when all pages are in use. The logs have the size of its queues and do not grow. */
struct hf_vqp_memory {
	uint64_t request_log_bytes;    /* copies of the wrs in flight, under every policy */
	uint64_t receive_log_bytes;    /* of the receives */
	uint64_t completion_log_bytes; /* the ring that the peer writes; 0: none */
};
void hf_vqp_memory(const struct hf_vqp *vqp, struct hf_vqp_memory *memory_out);

/* ---- the data path ---- */

/* wc.vendor_err of a failed wr: whether it executed. Without evidence it is HF_WC_UNKNOWN, never a guess (V1). */
enum hf_wc_outcome {
	HF_WC_SUCCEEDED,
	HF_WC_NOT_EXECUTED, /* it did not take effect, and never will */
	HF_WC_UNKNOWN,      /* it took effect in full, in part or not at all; its value, if any, is lost. Final */
};

/* A send flag beside those of verbs: this wr may execute twice. Without evidence it is sent again, and it takes no
 * entry in the completion log: if the peer's NIC acknowledges it and dies with it, nothing shows the loss. */
#define HF_SEND_IDEMPOTENT (1u << 24)

/* Like ibv_post_send(3). Inline payloads are copied. Other buffers, those of receives too, belong to the vqp until
 * their wc is polled; the list may be reused at once. -ENOMEM: the queue is full (poll, then post again); -EINVAL:
 * malformed. *bad_wr is the first wr that was not posted. */
int hf_vqp_post_send(struct hf_vqp *vqp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr);
/* The number of the last posted wr, unique within this vqp, for applications that give all wrs the same wr_id. 0: no wr
 * was posted. */
uint64_t hf_vqp_last_request(const struct hf_vqp *vqp);

/* Posting without a copy: returns a wr of the vqp, valid until it has completed. sg_list has room for max_send_sge; all
 * other members are zero. hf_vqp_post_wrs posts the wrs in the order in which they were returned. NULL: the queue is
 * full. Other posts in between fail with -EBUSY. */
struct ibv_send_wr *hf_vqp_wr(struct hf_vqp *vqp);
/* -EINVAL: *bad_wr is malformed; it and the wrs behind it were not posted and are taken back. */
int hf_vqp_post_wrs(struct hf_vqp *vqp, struct ibv_send_wr **bad_wr);

int hf_vqp_post_recv(struct hf_vqp *vqp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr);

#endif
