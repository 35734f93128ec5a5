/* dc.h - D6: dynamically connected queue pairs, through mlx5dv, the library of NVIDIA's NICs.
 *
 * Not run on hardware yet. The calls, their arguments and order follow mlx5dv_create_qp(3), mlx5dv_wr_post(3)
 * and the moves that the kernel's driver allows; a fake provider checks them (tests/unit/verbs).
 *
 *            RESET -> INIT            INIT -> RTR                  RTR -> RTS
 *   DCI      pkey, port               path mtu, av                 sq psn, timeout, retries, rd atomic
 *   DCT      pkey, port, access       path mtu, av, rnr timer      never: it has no send side
 *
 * The number of a target is not known before RTR. A target makes no other move, not even to ERR: its fence fails, and
 * it has to be destroyed. No NIC reports the executed operations of one initiator (HF_DEV_DC_EVIDENCE). */
#ifndef HOLDFAST_DEV_VERBS_DC_H
#define HOLDFAST_DEV_VERBS_DC_H

#include "dev/verbs/verbs.h"

#define DC_WAYS_MAX 256u /* address handles that an initiator keeps */

/* Whether this NIC can: one is made and destroyed. */
bool verbs_dc_found(struct verbs_dev *dev);

/* The library's qp for what qp->base and `init` ask for; NULL with errno. */
struct ibv_qp *verbs_dc_make(struct verbs_dev *dev, struct verbs_qp *qp, const struct hf_qp_init *init);
void verbs_dc_end(struct verbs_qp *qp); /* what belongs to it; the qp itself stays */

/* What the move needs in place of `mask`; fills in what the caller need not know. */
int verbs_dc_complete(const struct verbs_qp *qp, struct ibv_qp_attr *attr, int mask);

int verbs_qp_post_send_dc(
	struct hf_qp *base, const struct hf_dc_dest *dest, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr);

#endif
