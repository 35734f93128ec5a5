/* owner.h - the owner's own atomics where atomicity ends at the NIC: through the home of the domain, like the peers'
 * (docs/protocol.md, R12), over a qp that is connected with itself.
 *
 * They run one after another. In HF_ATOMIC_UID they have a slot of their own, so that a result that is lost with the qp
 * is recovered; in the other modes the NIC's results are the evidence, and without them the outcome is unknown. */
#ifndef HOLDFAST_VQP_ATOMIC_OWNER_H
#define HOLDFAST_VQP_ATOMIC_OWNER_H

#include "vqp/objects.h"

struct owner;

/* The home is moving: true when nothing of ours arrives through the old one any more. */
bool owner_left(struct hf_vpd *pd);
void owner_tick(struct hf_vpd *pd);
enum hf_poll owner_turn(struct hf_node *node); /* calls done() of one that has ended, which may destroy any object */
/* Calls done() of its atomics: those that have not ended with -ECANCELED. */
void owner_leave_region(struct hf_vpd *pd, const struct hf_vmr *mr);
void owner_close(struct hf_vpd *pd);

#endif
