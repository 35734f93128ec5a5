/* grant.h - a peer's access through a vqp, changed while it is connected (docs/protocol.md, R13).
 *
 * A grant lasts until some of its access is revoked. Every wr belongs to the grant under which it was posted, and
 * executes under that grant or not at all. A revocation completes the wrs in flight in error; none is sent again
 * under a later grant, and no late packet executes under one, because a later grant has another qp. Giving more
 * access does not end a grant.
 *
 *   granting side                                  using side
 *     hf_vqp_set_access(0)                           wrs in flight
 *       off on every qp; returns                     those that executed succeed, the others complete with
 *     | FENCE, STATE: grant 2 ------------------->   IBV_WC_REM_ACCESS_ERR and IBV_WC_WR_FLUSH_ERR; `changed`
 *     hf_vqp_set_access(REMOTE_WRITE)                new posts are flushed
 *     | another qp, of grant 2 ------------------>   hf_vqp_rearm: from now on wrs belong to grant 2
 *
 * Only a `revocable` vqp can change its access. Both ends then keep a qp of their own on every rail and use no
 * standby qp, because a standby qp would have to be revoked for other vqps too. */
#ifndef HOLDFAST_GRANT_H
#define HOLDFAST_GRANT_H

#include <holdfast/vqp.h>

/* Sets the peer's access through this vqp (enum ibv_access_flags). After a return of 0 the new access holds on
 * every path, including paths that are being built, and the data of WRITEs that executed before is visible (D5); for
 * receives see hf_vqp_grant_over. -EINPROGRESS: done(vqp, context) is called once when that holds, or when the vqp
 * has failed; it must not destroy anything, like `changed`, and a later call replaces it. -EINVAL: not revocable. */
int hf_vqp_set_access(struct hf_vqp *vqp, int access, void (*done)(struct hf_vqp *vqp, void *context), void *context);

/* The number of the grant that this side gives; it grows with each revocation. */
uint32_t hf_vqp_grant(const struct hf_vqp *vqp);
/* 0: every earlier grant is over: no wr that the peer posted under it executes, and each receive that such a wr took
 * has its completion in the queue. -EINPROGRESS: over(vqp, context) is called once when that holds; it must not
 * destroy anything, and a later call replaces it. If the peer is gone and does not reply, the call comes with the end
 * of the vqp, at the latest when the lease is over. */
int hf_vqp_grant_over(struct hf_vqp *vqp, void (*over)(struct hf_vqp *vqp, void *context), void *context);

/* The last number of the peer's grant that arrived: hf_vqp_grant of its vqp. 0: none yet. `changed` is called when it
 * changes. */
uint32_t hf_vqp_remote_grant(const struct hf_vqp *vqp);
/* The last access that the peer granted, as it arrived here. */
int hf_vqp_remote_access(const struct hf_vqp *vqp);
/* False after the peer revoked access: wrs that are posted are flushed until hf_vqp_rearm. */
bool hf_vqp_armed(const struct hf_vqp *vqp);
/* Later wrs belong to the grant hf_vqp_remote_grant. -ENOTCONN: the vqp was never connected, or failed. */
int hf_vqp_rearm(struct hf_vqp *vqp);

#endif
