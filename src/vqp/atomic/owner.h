/* owner.h - the owner's own atomics where atomicity ends at the NIC: through the home of the domain, like everybody's
 * (docs/protocol.md, R12), over a qp that is connected with itself.
 *
 * One after another. In HF_ATOMIC_UID with a slot of their own, so that an answer that is lost with the qp is found
 * again; in the other modes the NIC's results speak, and where it keeps none the outcome is unknown. */
#ifndef HOLDFAST_VQP_ATOMIC_OWNER_H
#define HOLDFAST_VQP_ATOMIC_OWNER_H

#include "vqp/objects.h"

struct owner;

/* The home is moving: true when nothing of ours arrives through the old one any more. */
bool owner_left(struct hf_vpd *pd);
void owner_tick(struct hf_vpd *pd);
enum hf_poll owner_turn(struct hf_node *node); /* tells one that has ended; anything may be gone then */
/* Its atomics are told: those that have not ended, -ECANCELED. */
void owner_leave_region(struct hf_vpd *pd, const struct hf_vmr *mr);
void owner_close(struct hf_vpd *pd);

#endif
