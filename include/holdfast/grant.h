/* grant.h - what a peer may do through a vqp, changed while it is connected (docs/protocol.md, R13).
 *
 * A grant lasts until something of it is taken away. Every wr belongs to the grant under which it was posted, and
 * executes under that one or not at all: what a revocation finds in flight completes in error, nothing of it is sent
 * again under a later grant, not even by packets that were on their way, because a later grant has another qp. To
 * give more does not end a grant.
 *
 *   granting side                                  using side
 *     hf_vqp_set_access(0)                           wrs in flight
 *       off on every qp; returns                     those that executed succeed, the others complete with
 *     | FENCE, STATE: grant 2 ------------------->   IBV_WC_REM_ACCESS_ERR and IBV_WC_WR_FLUSH_ERR; `changed`
 *     hf_vqp_set_access(REMOTE_WRITE)                what is posted now is flushed
 *     | another qp, of grant 2 ------------------>   hf_vqp_rearm: from now on wrs belong to grant 2
 *
 * Only a vqp that was made `revocable` can change what it grants. Both ends keep a qp of their own on every rail then
 * and stay off the standby pool, where another's qp would have to be revoked with it. */
#ifndef HOLDFAST_GRANT_H
#define HOLDFAST_GRANT_H

#include <holdfast/vqp.h>

/* From now on the peer may do `access` (enum ibv_access_flags) through this vqp. What is taken away is off on every
 * path when this returns 0, and what is given is on; also on paths that are being built. The data of
 * WRITEs that executed before is visible (D5); for receives see hf_vqp_grant_over. -EINPROGRESS: done(vqp,
 * context), which may not destroy the vqp, is called once when that is so, or when it failed; a later call replaces it.
 * -EINVAL: not revocable. */
int hf_vqp_set_access(struct hf_vqp *vqp, int access, void (*done)(struct hf_vqp *vqp, void *context), void *context);

/* The number of the grant that this side gives; it grows with each revocation. */
uint32_t hf_vqp_grant(const struct hf_vqp *vqp);
/* 0: every grant before this one is over: no wr that the peer posted under it executes any more, and each receive that
 * one took has its completion in the queue. -EINPROGRESS: over(vqp, context), which may not destroy the vqp, is called
 * once when that is so; a later call replaces it. It needs no answer of the peer; when the peer is gone it comes with
 * the end of the vqp, which the lease bounds. */
int hf_vqp_grant_over(struct hf_vqp *vqp, void (*over)(struct hf_vqp *vqp, void *context), void *context);

/* The number of the grant that the peer gives, as far as it was told; hf_vqp_grant of its vqp. 0: not told yet.
 * `changed` is called when it has become another one. */
uint32_t hf_vqp_remote_grant(const struct hf_vqp *vqp);
/* What the peer grants this side, as far as it was told. */
int hf_vqp_remote_access(const struct hf_vqp *vqp);
/* False since the peer has taken something away: what is posted is flushed until hf_vqp_rearm. */
bool hf_vqp_armed(const struct hf_vqp *vqp);
/* wrs that are posted from now on belong to the grant that this side was told of last. -ENOTCONN: never connected, or
 * failed. */
int hf_vqp_rearm(struct hf_vqp *vqp);

#endif
