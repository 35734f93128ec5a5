/* dc_end.h - our end of a standby qp (pool.h) over DC: the target of the peer's initiator, and the destination of our
 * initiator.
 *
 * Every standby qp has a target of its own, with a key that only its peer receives. So a peer's access ends with its
 * target (R14), the evidence of peers stays separate, and a fence of one standby qp
 * does not affect the others. The initiator is shared (carrier.h). */
#ifndef HOLDFAST_VQP_PATH_DC_END_H
#define HOLDFAST_VQP_PATH_DC_END_H

#include "vqp/objects.h"

struct dc_end {
	struct path path; /* the target; its qp is NULL once it was ended */
	uint64_t key;
	bool fenced;                /* or ended */
	struct hf_dc_dest dest;     /* theirs; dct_num 0: not known yet */
	struct hf_dc_source source; /* their initiator, */
	uint32_t source_psn;        /* and the first psn of its life */
};

/* Whether standby qps of that peer and rail are DC: both devices tell what executed, and agree on sizes without the
 * negotiation that RC has. Both ends come to the same answer. */
bool dc_end_suits(const struct hf_peer *peer, unsigned rail);

/* To where it works, from INIT. */
int dc_end_start(const struct hf_node *node, struct path *path, bool is_initiator);

/* NULL: no room. */
struct dc_end *dc_end_make(struct hf_vpd *pd, unsigned rail, int access, struct hf_lease *lease, struct wc_sink *sink);
void dc_end_free(struct hf_node *node, struct dc_end *end); /* NULL is legal */

/* The description of an end, sent and received. */
/* Part of POOL and POOL_QP; with it, qp_num and psn of the offer are of an initiator. */
struct dc_told {
	uint8_t used; /* 0: not over DC */
	uint32_t dct_num;
	uint64_t key, use;
};
extern const struct fields dc_told_layout;
struct dc_told dc_end_say(const struct dc_end *end, struct hf_qp *initiator);
void dc_end_hear(struct dc_end *end, const uint8_t *gid, const struct path_offer *offer, const struct dc_told *told);

/* Of the peer's initiator: nothing of it executes any more. As hf_qp_fence. */
int dc_end_fence(struct dc_end *end);
int dc_end_end(struct dc_end *end);   /* destroys the target */
void dc_end_stop(struct dc_end *end); /* now: fences it, or else destroys it; may block as fence_insist */
/* After that, as hf_qp_executed_psn, hf_qp_atomic_results and hf_qp_refusal. */
int dc_end_executed_psn(const struct dc_end *end, uint32_t *psn_out);
int dc_end_atomic_results(const struct dc_end *end, struct hf_atomic_result *results_out, unsigned n);
int dc_end_refusal(const struct dc_end *end, struct hf_refusal *refusal_out);

#endif
