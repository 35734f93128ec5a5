/* vq.h - virtual queue pairs between two nodes over two rails, under each policy: what V1 to V7 leave of a baseline.
 *
 * The client writes once into a slot of its own per wr, adds operands that are used once, and sends messages; the
 * server only serves. Effects are watched at the server's buses. A policy that resends blindly may execute an
 * addition twice, which is counted, not condemned; everything else is held to its claim:
 *   once          under `none` nothing takes effect twice, under `varuna` not even a packet (V1), unless it is
 *                 declared idempotent, under the others nothing whose path did not fail (R1)
 *   order         wrs take effect for the first time in the order in which they were posted (V2)
 *   completed     one completion a wr, in order; success says that it took effect and is there (V1, V3)
 *   lost          under the other policies no wr fails, as long as no process or NIC died or stood still for longer
 *                 than a lease (`varuna`: and no fence failed)
 *   after         nothing of a wr takes effect or lands once it has completed (V4)
 *   outcome       a wr that is told not to have executed did not
 *   grants        in `grants`: what was posted before access was taken away does not take effect later, also when it
 *                 is given again (R13); what is within the grant is not refused (R14)
 *   receives      the k-th message is in the k-th receive; in `grants`: once a grant is told to be over, all that
 *                 it took are in the queue
 *   vacuous       in `lanes`, while only the data path is disturbed: a wr is unknown only if part of it executed
 *   budget        each wr completes within the configured budget (V7)
 *   liveness      when all has healed there is progress
 *
 * Elsewhere: the two programs (vq_nodes.c), the truth and the verdict (scenario_vqp.c). */
#ifndef HOLDFAST_SIM_VQ_H
#define HOLDFAST_SIM_VQ_H

#include <holdfast/vqp.h>

#include "sim/bus.h"
#include "sim/endpoint.h"
#include "sim/faults.h"
#include "sim/scenario.h"

#define VQ_RAILS      2u
#define VQ_OPS_MAX    400u
#define VQ_SLOT_BYTES 4096u
#define VQ_RECEIVES   32u
#define VQ_DEPTH      16u
#define VQ_VQPS_MAX   1024u /* that a server sees in a run, whose pauses prolong it */

enum vq_kind { VQ_WRITE, VQ_FAA, VQ_SEND, VQ_KINDS };

struct vq_op {
	enum vq_kind kind;
	uint32_t bytes, generation; /* of the client's vqp */
	uint64_t argument;
	uint64_t server_memory; /* address: of one incarnation of the server */
	uint64_t posted_ns;
	uint64_t failovers;       /* of its vqp, when it was posted */
	uint32_t begun, executed; /* times */
	uint32_t overtaken_by;    /* a later wr, which took effect sooner; 0: none did */
	uint32_t landed;          /* bytes of a WRITE, by the latest execution */
	bool idempotent;          /* and declared to be: it may be repeated, but for `lanes` */
	bool disclaimed;          /* it failed, and was told not to have executed */
	bool completed, succeeded;
};

/* One of the server's vqps; they are made by requests. */
struct vq_served {
	struct hf_vqp *vqp;
	uint32_t generation, received, posted;
	int access;                    /* granted at the moment */
	uint64_t revoked_ns[VQ_KINDS]; /* what was posted before belongs to a grant that is over */
	uint64_t ended_ns, over_ns;    /* the last revocation; the last of which all receives are there */
};

struct vq;

struct vq_client {
	struct hf_peer *peer;
	struct hf_vqp *vqp;
	bool peer_is_up;
	uint32_t generation, first, next_completed; /* ops of this vqp begin at `first` */
	uint32_t refused; /* the wr that failed first of a vqp in error, when it was refused; VQ_OPS_MAX: none */
	bool unknown;     /* what became of a wr of this vqp */
	uint64_t next_post_ns, retry_at_ns, withdraw_at_ns;
	uint64_t remote_addr;
	uint32_t remote_rkey;
};

struct vq_server {
	struct hf_vqp_service service;
	struct vq_served served[VQ_VQPS_MAX];
	unsigned count;
	uint64_t next_grant_ns;
	bool withdrawn; /* nothing may be done at the moment */
};

struct vq_side {
	struct vq *vq;
	bool is_server;
	struct endpoint endpoint;
	uint8_t *memory; /* client: sources and results. server: slots, receives, the word */
	struct bus_observer observers[VQ_RAILS];
	struct vq_client client;
	struct vq_server server;
};

struct vq {
	struct world *world;
	struct network network;
	struct faults faults;
	struct vq_side client, server;
	enum hf_policy policy;
	enum hf_evidence evidence;
	uint32_t caps_masked;
	uint64_t budget_ns;
	struct vq_op ops[VQ_OPS_MAX];
	uint32_t count;
	uint64_t shadow_word; /* what the additions that took effect leave */
	uint64_t succeeded_since_quiet;
	struct outcome *outcome;
	bool crashed; /* a process or NIC died: wrs may fail */
	bool stopping;
	bool revokes; /* scenario `grants`: the server takes access away and gives it again */
	bool lanes;   /* scenario `lanes`: vqps are pinned to a rail, hand back, and are withdrawn now and then */
	bool only_data_faults;
	bool repeats; /* some WRITEs are declared idempotent, and may be repeated */
};

extern const struct program vq_program; /* vq_nodes.c; its context is a struct vq_side */

static inline uint64_t vq_word(uint32_t op, uint32_t index)
{
	return (uint64_t)(op + 1) << 32 | index;
}

static inline uint8_t *vq_slot(const struct vq *vq, uint32_t op)
{
	return vq->server.memory + (size_t)op * VQ_SLOT_BYTES;
}

static inline uint8_t *vq_receive(const struct vq *vq, uint32_t k)
{
	return vq->server.memory + (VQ_OPS_MAX + k % VQ_RECEIVES) * (size_t)VQ_SLOT_BYTES;
}

static inline uint64_t *vq_counter(const struct vq *vq)
{
	return (uint64_t *)(void *)(vq->server.memory + (VQ_OPS_MAX + VQ_RECEIVES) * (size_t)VQ_SLOT_BYTES);
}

/* ---- the truth: scenario_vqp.c ---- */
void vq_watch(struct vq_side *side);
void vq_completed(struct vq *vq, const struct ibv_wc *wc);
void vq_ended(struct vq *vq); /* the client's vqp is in error, and its last wr has completed */
void vq_received(struct vq *vq, struct vq_served *served, const struct ibv_wc *wc);

#endif
