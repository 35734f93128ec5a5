/* standby.h - one standby qp of a pool (pool.h): its life, its fence, and its evidence. */
#ifndef HOLDFAST_VQP_PATH_STANDBY_H
#define HOLDFAST_VQP_PATH_STANDBY_H

#include "vqp/path/carrier.h"
#include "vqp/path/dc_end.h"

struct pool;

enum standby_state {
	STANDBY_OFFERED, /* waiting for the other end's qp */
	STANDBY_READY,
	STANDBY_BROKEN, /* waiting for its last vqp to leave, and for both ends to know */
};

/* POOL, POOL_QP. */
struct pool_message {
	struct message_head head;
	struct path_offer offer;
	struct dc_told dc;
	uint32_t about_qp; /* POOL_QP: the offer that it answers */
};

struct standby {
	struct list link, carrier_link; /* of the pool's; of the carrier's */
	struct pool *pool;
	struct carrier *carrier;
	struct dc_end *dc; /* NULL: it is an RC qp */
	struct wc_sink dc_sink;
	struct path path; /* of its vqps: the carrier's qp, and by what evidence names wrs on this one */
	uint32_t offer;   /* the number of the picker's RC qp or target: what they call it until both ends have one */
	enum standby_state state;
	bool fenced;
	bool told;      /* the picker, that it is broken */
	bool withdrawn; /* by the picker: it goes with the last vqp on it */
	uint64_t offered_ns;
	struct list vqps; /* pool_link; on it */
	unsigned users;
	uint64_t posted_end; /* behind its newest wr, by the numbers of the carrier */
};

/* On the pool's list, not connected; over DC, with one of this many initiators. NULL: the device has no room. */
struct standby *standby_make(struct pool *pool, unsigned rail, bool dc, unsigned initiators);
int standby_connect(struct hf_vqp *vqp, struct standby *standby, const struct pool_message *theirs);
void standby_free(struct standby *standby); /* no vqp is on it */

/* All its vqps have to settle. */
void standby_break(struct standby *standby);
enum fence standby_fence(struct hf_vqp *vqp, uint64_t now_ns);
uint64_t standby_fence_retry_ns(const struct standby *standby);
/* The vqp ends now: nothing of it happens on the standby qp any more, and the others settle. */
void standby_evict(struct hf_vqp *vqp);
int standby_end(struct standby *standby); /* as path_end_qp, of what cannot be fenced */
/* It breaks. One without vqps is fenced, or ended where that fails; while that goes on the caller asks again. */
void standby_retire(struct standby *standby);
bool standby_is_ended(const struct standby *standby);

/* After the fence, as hf_qp_executed_psn, hf_qp_atomic_results and hf_qp_refusal: of the peer's wrs on it. */
bool standby_tells(const struct standby *standby); /* false: what could was ended */
int standby_executed_psn(const struct standby *standby, uint32_t *psn_out);
int standby_atomic_results(const struct standby *standby, struct hf_atomic_result *results_out, unsigned n);
int standby_refusal(const struct standby *standby, struct hf_refusal *refusal_out);

#endif
