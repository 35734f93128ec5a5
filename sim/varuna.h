/* varuna.h - virtual queue pairs that promise exactly once, between two or three nodes, both ends of each at work.
 *
 * Every pair of nodes has a few links, a link being a vqp on either side. Both ends post all kinds of work: WRITEs of
 * several packets, WRITE_WITH_IMM, SEND, READ, CAS and FAA, signaled and not, inline, of several sges, fenced, in
 * lists. The two ends of a link may have queues of different sizes, and in some worlds programs abort or destroy vqps,
 * or close peers, in the midst. Words for atomics are shared by all links that lead to a node. What takes effect is
 * seen at the buses of the NICs; the claims of checkers/execution.h for flows of a vqp hold over all NICs, and besides
 * them:
 *   lost            no wr fails unless the faults made evidence or a fence impossible (V1: no vacuous unknowns); where
 *                   evidence is weaker a vqp fails with one WRITE at most that is unknown, if it keeps a log
 *   outcome         a wr that fails says whether it was not executed or is unknown; the former is true
 *   linearizability the values that atomics returned can be explained by one order for each word (V5)
 *   budget          each wr completes within the configured budget (V7)
 *   one-culprit     a wrong rkey fails the vqp that used it, with that status, soon, and no other vqp (V8); soon:
 *                   without failovers of its own
 *   wr              the caller's wrs are not written to
 *   calm            without faults there is no failover, unless a program asked for it, and no peer ends
 *   blame           without faults no rail is left alone: an error of a program is not the rail's (R6, V8)
 *   liveness        when all has healed, every link makes progress
 *
 * Elsewhere: a node's program (varuna_nodes.c), its work (varuna_work.c), the run and the verdict
 * (scenario_varuna.c). */
#ifndef HOLDFAST_SIM_VARUNA_H
#define HOLDFAST_SIM_VARUNA_H

#include <holdfast/vqp.h>

#include "sim/checkers/execution.h"
#include "sim/checkers/linear.h"
#include "sim/endpoint.h"
#include "sim/faults.h"
#include "sim/scenario.h"

#define VR_NODES        3u
#define VR_RAILS        3u
#define VR_LINKS        6u
#define VR_SLOTS        16u
#define VR_SLOT_BYTES   2048u
#define VR_WINDOW       (VR_SLOTS * VR_SLOT_BYTES)
#define VR_WORDS        3u
#define VR_DEPTH        8u           /* wrs in flight */
#define VR_LEASE_MIN_NS (40 * NS_MS) /* the least that a layer may want: 2 x heartbeat_ns x heartbeat_misses */
#define VR_OPS_MAX      120u         /* of an end and vqp, before the faults have healed */

struct vr;
struct vr_node;
struct vr_link;

/* Atomic words of a node in one incarnation, with what clients saw of them. Kept to the end of the run. */
struct vr_words {
	struct list node;
	uint64_t *at;
	struct area *area;
	struct linear history[VR_WORDS];
};

/* An end's memory: [target][receives][sources][landing], each VR_WINDOW bytes. */
struct vr_end {
	struct vr_node *node;
	struct vr_link *link;
	struct hf_vqp *vqp; /* NULL: none */
	uint8_t *memory;
	struct area *target;
	struct flow *flow;      /* what this end asks of the other */
	bool accepted;          /* flow is that of this vqp, not of the one before */
	struct vr_words *words; /* the other node's */
	size_t history[VR_SLOTS];
	uint64_t seen[VR_WORDS]; /* a value of each word, to compare with */
	uint64_t next_post_ns, retry_at_ns;
	uint32_t receives_posted;
	bool hot;                  /* posts without rest */
	bool same_id;              /* always the same wr_id */
	bool atomics;              /* nothing else, so that several lack a signal in a row */
	uint32_t culprit;          /* number of the wr with a wrong rkey; UINT32_MAX: none yet */
	uint64_t culprit_ns;       /* when that was posted */
	uint64_t failovers_before; /* of the vqp, until then */
	uint32_t unknown_writes;   /* of this vqp */
	bool failed;               /* a wr of it */
	bool may_fail;             /* and so may all that come behind that */
};

/* ends[0] connects, ends[1] accepts. */
struct vr_link {
	struct vr *vr;
	unsigned index;
	struct vr_end ends[2];
	unsigned culprits;  /* wrs with a wrong key, ever */
	bool quit;          /* a program ended one of these vqps in the midst */
	uint32_t attempt;   /* of ends[0] to connect */
	uint64_t incidents; /* of both nodes when the vqps were made */
	uint64_t completed_since_quiet;
};

struct vr_node {
	struct vr *vr;
	unsigned index;
	char name[SIM_NAME_BYTES];
	struct endpoint endpoint;
	uint8_t *memory;
	struct vr_words *words;
	struct hf_peer *peers[VR_NODES]; /* that we connected to */
	bool peer_is_up[VR_NODES];
	struct hf_vqp_service service;
	struct hf_node_listener layer; /* one that wants a lease */
	bool listens;
	uint64_t layer_at_ns;  /* when it changes its mind */
	uint64_t lease_ns;     /* of the configuration; 0: the default */
	unsigned peers_failed; /* peers that ended while layers wanted leases */
};

struct vr {
	struct world *world;
	struct network network;
	struct execution execution;
	struct faults faults;
	struct vr_node nodes[VR_NODES];
	unsigned node_count, rail_count, link_count;
	struct vr_link links[VR_LINKS];
	struct list words;
	struct outcome *outcome;
	struct hf_node_config config; /* what all nodes have in common */
	bool triggers, triggered;     /* a program wants traffic off a first rail, once standby qps are there */
	uint64_t failovers;           /* of all vqps, */
	uint64_t unprovoked;          /* and of those of links where nobody used a wrong key: that may take an exchange,
				       * when who refused it is heard before the NAK, and an exchange counts */
	uint32_t caps_masked;         /* enum hf_dev_cap that no NIC of this world has */
	bool lingers;                 /* vqps stay on standby qps for long, and so no messages are sent (R7) */
	bool hca_atomics;             /* atomicity ends at the NIC (R12) */
	bool repeats;                 /* some WRITEs are declared idempotent */
	bool weak;                    /* of some wrs in flight the evidence of this world cannot know */
	bool quits;                   /* programs end vqps in the midst */
	bool closed;                  /* one of them has closed a peer */
	bool leases;                  /* nodes differ in their leases, and layers want others from time to time */
	bool no_device_leases;        /* devices have no D9, so no process stands still for as long as a lease */
	bool short_budget;
	bool stopping; /* nothing new is posted */
};

static inline struct vr_end *vr_other(struct vr_end *end)
{
	return &end->link->ends[end == &end->link->ends[0]];
}

static inline struct port *vr_port(const struct vr_node *node, unsigned rail)
{
	return &node->vr->network.ports[rail * node->vr->node_count + node->index];
}

/* ---- varuna_nodes.c: its context is a struct vr_node ---- */
extern const struct program vr_program;

/* ---- varuna_work.c ---- */
/* Both vqps of the link were just made: what is posted on them from now on is another pair of flows. */
void vr_begin_flows(struct vr_link *link);
void vr_end_flows(struct vr_link *link);
void vr_post_receives(struct vr_end *end);
bool vr_post(struct vr_end *end, uint64_t now_ns);
void vr_take(struct vr_end *end, struct ibv_wc *wc);
/* Wrs without a completion so far. */
uint32_t vr_in_flight(const struct vr_end *end);

/* ---- scenario_varuna.c ---- */
/* What befell a node so far that can cost evidence or the fence: crashes of it or its NICs, fences that failed, pauses
 * longer than its lease, data of its ports lost for longer than the budget. */
uint64_t vr_incidents(const struct vr_node *node);
/* Wrs of the link may fail whatever the evidence of this world can know. */
bool vr_excused(const struct vr_link *link);

#endif
