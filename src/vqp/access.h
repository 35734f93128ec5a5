/* access.h - grants: the access of a vqp's peer, and the grant of the vqp's own wrs (R13).
 *
 * Invariants:
 *   ACC-1  A qp never has a flag that its vqp does not grant at that moment.
 *   ACC-2  A qp that may have carried traffic gets no flag in a later grant than the one it was connected in.
 *   ACC-3  The grant in STATE is the one in which the next qp is connected; else that qp is not used.
 *   ACC-4  A wr is posted only to a qp of the grant that it belongs to. */
#ifndef HOLDFAST_VQP_ACCESS_H
#define HOLDFAST_VQP_ACCESS_H

#include <stdbool.h>
#include <stdint.h>

#include <infiniband/verbs.h>

#include "base/fields.h"

struct hf_vqp;
struct path;

/* What the sender lets the receiver do; part of several messages. */
struct access_told {
	uint32_t access, grant;
	uint8_t revocable;
};
extern const struct fields access_layout;

struct grants {
	/* what we grant */
	bool revocable;
	uint64_t revoke_ns;  /* hf_vqp_init */
	uint32_t ours, told; /* the current grant; the one in STATE of this exchange */
	bool given;          /* something was, that is not on yet */
	void (*done)(struct hf_vqp *vqp, void *context);
	void *context;
	void (*over)(struct hf_vqp *vqp, void *context); /* hf_vqp_grant_over */
	void *over_context;
	/* what we use */
	uint32_t theirs, armed; /* the peer's grant as received; the grant of wrs that are posted now */
	bool dedicated;         /* either side is revocable: no standby pool */
	enum ibv_wc_status
		refused; /* with which the peer refused a wr; it has still to say under which grant. 0: none */
	uint64_t refused_at;
};

struct access_told access_tell(const struct hf_vqp *vqp);
void access_connected(struct hf_vqp *vqp, const struct access_told *told);
/* A wr failed with a status that a revocation may have caused: true when the exchange has to tell. */
bool access_may_be_revoked(struct hf_vqp *vqp, uint64_t position, enum ibv_wc_status status);
/* Behind the verdicts: wrs of an earlier grant end here. */
void access_settle(struct hf_vqp *vqp);
/* What a qp that is moved to RTR grants. */
unsigned access_at_rtr(const struct hf_vqp *vqp, struct path *path);
/* Something was revoked since STATE: the next qp has to wait for another exchange (ACC-3). */
bool access_is_stale(const struct hf_vqp *vqp);
/* The path in use was made beforehand, and is of this grant. */
bool access_is_current(const struct hf_vqp *vqp);
/* Something that hf_vqp_set_access or hf_vqp_grant_over waits for may have come about. */
void access_check(struct hf_vqp *vqp);

#endif
