/* side.h - an actor wherever it lives: in this process, or in another one that the test binary executes.
 *
 * The functions are those of dev.h with numbers for objects and addresses for memory; what the device said at
 * creation (keys, numbers, addresses) is kept here. A remote side does nothing but carry out calls, so a device
 * progresses there only when a call makes it, or by itself. */
#ifndef CONFORMANCE_SIDE_H
#define CONFORMANCE_SIDE_H

#include "actor.h"

struct side {
	struct actor *actor;                                         /* NULL: remote */
	int fd;                                                      /* remote: calls and answers */
	pid_t pid;                                                   /* remote */
	bool asking;                                                 /* remote: an answer is owed */
	struct hf_env *env;                                          /* of a local one */
	enum actor_memory memory;                                    /* of side_mem_alloc */
	bool no_atomics;                                             /* taken away from what is registered */
	unsigned which;                                              /* BED_A or BED_B */
	uint8_t timeout_least;                                       /* bed.h */
	int (*cut)(unsigned which, enum hf_link direction, bool up); /* bed.h */
	void (*settle)(void); /* called before memory is looked at, digests excepted; NULL: it need not be */

	struct hf_dev_attr attr;
	union ibv_gid gid;
	uint64_t mem[ACTOR_SLOTS], mem_bytes[ACTOR_SLOTS];
	uint32_t lkey[ACTOR_SLOTS], rkey[ACTOR_SLOTS];
	uint32_t qp_num[ACTOR_SLOTS];
	struct ibv_qp_cap qp_cap[ACTOR_SLOTS];
	struct hf_error error; /* of the last call that failed with words */
};

/* pass: bed.h */
struct side *side_local(struct hf_env *env, void (*pass)(uint64_t ns), void (*settle)(void));
/* Starts another process of this program; with words before it, as an argument of that command. */
struct side *side_remote(const char *const *before);
void side_free(struct side *side);
/* What that process does: answers calls on `fd` until it is closed. */
int side_serve(int fd);
/* Carries out a call; a remote one can be split, so that its process can be stopped in the middle. */
void side_do(struct side *side, struct actor_call *call, struct actor_answer *answer);
void side_ask(struct side *side, const struct actor_call *call);
void side_hear(struct side *side, struct actor_answer *answer);

int side_open(struct side *side, const struct actor_config *config);
void side_close(struct side *side);
int side_pd_alloc(struct side *side, uint32_t pd);
int side_pd_free(struct side *side, uint32_t pd);
int side_mem_alloc(struct side *side, uint32_t mem, uint64_t bytes);
/* Takes away, or gives back, the access of the process itself to whole pages of it (mprotect). */
int side_mem_protect(struct side *side, uint64_t addr, uint64_t bytes, int protection);
int side_mr_reg(struct side *side, uint32_t mr, uint32_t pd, uint64_t addr, uint64_t bytes, uint64_t iova, int access);
int side_mr_dereg(struct side *side, uint32_t mr);
int side_cq_create(struct side *side, uint32_t cq, uint32_t cqe);
int side_cq_destroy(struct side *side, uint32_t cq);
int side_srq_create(struct side *side, uint32_t srq, uint32_t pd, uint32_t max_wr);
int side_srq_destroy(struct side *side, uint32_t srq);

int side_lease_open(struct side *side, uint32_t lease);
int side_lease_extend(struct side *side, uint32_t lease, uint64_t for_ns); /* from now */
void side_lease_close(struct side *side, uint32_t lease);

struct side_qp {
	uint32_t pd, send_cq, recv_cq;
	uint32_t srq; /* ACTOR_NONE: none */
	struct ibv_qp_cap cap;
	int dc;
	uint64_t dc_key;
	uint32_t lease_plus1; /* 0: none */
	bool sq_sig_all;
	uint64_t revoke_ns;
};
int side_qp_create(struct side *side, uint32_t qp, const struct side_qp *init);
int side_qp_destroy(struct side *side, uint32_t qp);
int side_qp_modify(struct side *side, uint32_t qp, const struct ibv_qp_attr *attr, int mask);
int side_qp_query(struct side *side, uint32_t qp, struct ibv_qp_attr *attr_out, int mask);

/* Lists as in verbs. *bad_out (NULL is legal): index of the wr that was refused. */
int side_post_send(struct side *side, uint32_t qp, const struct ibv_send_wr *wr, unsigned *bad_out);
void side_post_send_ask(struct side *side, uint32_t qp, const struct ibv_send_wr *wr);
int side_post_send_dc(struct side *side, uint32_t qp, const struct hf_dc_dest *dest, const struct ibv_send_wr *wr);
int side_post_send_footed(struct side *side, uint32_t qp, const struct hf_dc_dest *dest, const struct ibv_send_wr *wr,
	const struct hf_footer *footers);
int side_post_recv(struct side *side, uint32_t qp, const struct ibv_recv_wr *wr, unsigned *bad_out);
int side_srq_post_recv(struct side *side, uint32_t srq, const struct ibv_recv_wr *wr, unsigned *bad_out);
int side_cq_poll(struct side *side, uint32_t cq, unsigned n, struct ibv_wc *wc);
enum hf_poll side_poll(struct side *side);

int side_fence(struct side *side, uint32_t qp);
int side_executed_psn(struct side *side, uint32_t qp, uint32_t *psn_out);
int side_refusal(struct side *side, uint32_t qp, struct hf_refusal *refusal_out);
int side_atomic_results(struct side *side, uint32_t qp, struct hf_atomic_result *results_out, unsigned n);
uint32_t side_next_psn(struct side *side, uint32_t qp);
int side_dc_source(struct side *side, uint32_t qp, struct hf_dc_source *source_out);
int side_fence_dc(struct side *side, uint32_t qp, const struct hf_dc_source *source);
int side_executed_psn_dc(struct side *side, uint32_t qp, const struct hf_dc_source *source, uint32_t *psn_out);
int side_atomic_results_dc(struct side *side, uint32_t qp, const struct hf_dc_source *source,
	struct hf_atomic_result *results_out, unsigned n);

struct side_event {
	enum ibv_event_type type;
	uint32_t qp, cq, srq;
};
int side_set_link(struct side *side, enum hf_link direction, bool up);
int side_get_event(struct side *side, struct side_event *event_out);
enum ibv_port_state side_port_state(struct side *side);
void side_counters(struct side *side, struct hf_dev_counters *counters_out);
int side_req_notify(struct side *side, uint32_t cq, bool solicited_only);
bool side_notified(struct side *side, uint32_t cq);
bool side_arm(struct side *side);
bool side_io_readable(struct side *side, uint64_t within_ns);

void side_fill(struct side *side, uint64_t addr, uint64_t bytes, uint64_t seed);
uint64_t side_mismatch(struct side *side, uint64_t addr, uint64_t bytes, uint64_t seed);
/* Of a fill that began `first` bytes before. */
uint64_t side_mismatch_from(struct side *side, uint64_t addr, uint64_t bytes, uint64_t seed, uint64_t first);
/* As it is this very moment. */
uint64_t side_digest(struct side *side, uint64_t addr, uint64_t bytes);
uint64_t side_load(struct side *side, uint64_t addr);
void side_store(struct side *side, uint64_t addr, uint64_t value);
void side_add_start(struct side *side, uint64_t addr, uint64_t times);
void side_add_join(struct side *side);

#endif
