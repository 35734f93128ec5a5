/* pool_qp.h - one standby qp of a pool (pool.h): its life, its fence, and what it tells after that. */
#ifndef HOLDFAST_VQP_PATH_POOL_QP_H
#define HOLDFAST_VQP_PATH_POOL_QP_H

#include "vqp/path/carrier.h"
#include "vqp/path/dc_end.h"

struct pool;

enum pool_qp_state {
	POOL_OFFERED, /* waiting for the other end's qp */
	POOL_READY,
	POOL_BROKEN, /* waiting for its last vqp to leave, and for both ends to know */
};

struct pool_qp {
	struct list link, carrier_link; /* of the pool's; of the carrier's */
	struct pool *pool;
	struct carrier *carrier;
	struct dc_end *dc; /* NULL: it is an RC qp */
	struct wc_sink dc_sink;
	struct path path; /* the carrier's qp, as the vqps on it have it */
	uint32_t offer;   /* the number of the picker's RC qp or target: what they call it until both ends have one */
	enum pool_qp_state state;
	bool fenced;
	bool told;      /* the picker, that it is broken */
	bool withdrawn; /* by the picker: it goes with the last vqp on it */
	uint64_t offered_ns;
	struct list vqps; /* pool_link; on it */
	unsigned users;
	uint64_t posted_end; /* behind its newest wr, by the numbers of the carrier */
};

/* On the pool's list, not connected; over DC, with one of so many initiators. NULL: the device has no room. */
struct pool_qp *pool_qp_make(struct pool *pool, unsigned rail, bool dc, unsigned initiators);
int pool_qp_connect(struct hf_vqp *vqp, struct pool_qp *standby, const struct message *theirs);
void pool_qp_free(struct pool_qp *standby); /* no vqp is on it */

/* All its vqps have to settle. */
void pool_qp_break(struct pool_qp *standby);
enum fence pool_qp_fence(struct hf_vqp *vqp, uint64_t now_ns);
uint64_t pool_qp_fence_retry_ns(const struct pool_qp *standby);
/* The vqp ends now: nothing of it happens on the standby qp any more, and the others settle. */
void pool_qp_evict(struct hf_vqp *vqp);
int pool_qp_end(struct pool_qp *standby); /* as path_end_qp, of what cannot be fenced */
bool pool_qp_is_ended(const struct pool_qp *standby);

/* After the fence, as hf_qp_executed_psn, hf_qp_atomic_results and hf_qp_refusal: of the peer's wrs on it. */
bool pool_qp_tells(const struct pool_qp *standby); /* false: what could was ended */
int pool_qp_executed_psn(const struct pool_qp *standby, uint32_t *psn_out);
int pool_qp_atomic_results(const struct pool_qp *standby, struct hf_atomic_result *results_out, unsigned n);
int pool_qp_refusal(const struct pool_qp *standby, struct hf_refusal *refusal_out);

#endif
