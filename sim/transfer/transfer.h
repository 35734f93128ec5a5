/* transfer.h - bulk transfers between three nodes over two rails and tcp.
 *
 * Each node asks both others for READs and WRITEs, in batches. A slot is a place in memory of the requester and one in
 * memory of the target, for one request at a time; at its terminal status, whatever it is, both places get another use
 * at once: other bytes, then another request. Requests are cancelled, have deadlines, lose their target's registration;
 * nodes stop, restart at the same addresses with memory at the same place, lose rails and networks.
 *
 * Claims, besides those of checkers/moves.h and checkers/trips.h:
 *   terminal   a request has one terminal status: it does not change any more, and CANCELED and TIMEOUT were asked for
 *   vacuous    no request fails while a path was there: each of the paths that it may take had trouble meanwhile, its
 *              peer was lost, or its target's registration (T4)
 *   bound      a request whose deadline has passed ends within BOUND_NS (R-T4); of a cancel only liveness is demanded,
 *              because merged requests end when all have asked for it (R-T8)
 *   liveness   when all has healed, every request ends, every node's requests complete, over both rails too (T6)
 *
 * Elsewhere: a node's program (nodes.c), its requests (work.c), what befell each path (trouble.c), the run and the
 * verdict (scenario.c); the same with one peer dead, and the others' times (apart.c); with one rail slow or
 * flapping (rails.c). */
#ifndef HOLDFAST_SIM_TRANSFER_TRANSFER_H
#define HOLDFAST_SIM_TRANSFER_TRANSFER_H

#include <holdfast/transfer.h>

#include "sim/checkers/moves.h"
#include "sim/checkers/trips.h"
#include "sim/endpoint.h"
#include "sim/faults.h"
#include "sim/scenario.h"

#define TR_NODES      3u
#define TR_RAILS      2u
#define TR_MANAGEMENT 2u /* the network behind the rails: for control, and for tcp */
#define TR_PATHS      3u
#define TR_SLOTS      8u
#define TR_SLOT_BYTES 16384u
#define TR_AREA_BYTES ((size_t)TR_SLOTS * TR_SLOT_BYTES)
#define TR_BATCH      4u  /* requests */
#define TR_BATCHES    8u  /* of a node */
#define TR_TASKS_MAX  60u /* of a node, before the faults have healed */

struct tr;
struct tr_node;

/* What one node asks of another. */
struct tr_slot {
	struct move *move; /* NULL: free */
	struct tr_batch *batch;
	uint64_t begun_ns, cancel_ns, deadline_ns; /* of the world; 0: none */
	uint64_t paused_ns;                        /* that the requester had stood still when it began */
	unsigned task;
	bool cancelled;
};

struct tr_batch {
	struct hf_transfer_batch *batch; /* NULL: free */
	unsigned count, pending;
	struct {
		unsigned other, slot;
		enum hf_transfer_status status; /* once it has ended */
	} tasks[TR_BATCH];
};

struct tr_side {
	struct move_area *local;  /* of the requester */
	struct move_area *target; /* of the other node, */
	struct tr_node *owner;    /* which is this */
	uint32_t admitted;        /* incarnation of the requester that the target's registration is for */
	struct hf_peer *peer;     /* that `segment` is of; NULL: none */
	struct hf_segment *segment;
	uint64_t registered_ns; /* when the target's registration changed last */
	bool leaving;           /* it is being unregistered */
	bool spoiled;           /* what the requester knows of it is wrong */
	uint64_t again_ns;      /* when the target is registered again; 0: it is, or is to be now */
	uint64_t completed;     /* since the faults have healed */
	struct tr_slot slots[TR_SLOTS];
};

/* What befell the path between two nodes: rails 0 and 1, and the management network. */
struct tr_path {
	unsigned active;    /* faults that go on */
	uint64_t last_ns;   /* when one began or ended last, or what it left behind did; 0: never */
	uint64_t closed_ns; /* since when nothing passes; 0: it is open */
};

struct tr_node {
	struct tr *tr;
	unsigned index;
	struct endpoint endpoint;
	struct hf_transfer *engine;      /* NULL: none */
	struct hf_peer *peers[TR_NODES]; /* that this node connects to */
	struct tr_side sides[TR_NODES];  /* what it asks of the others */
	struct tr_batch batches[TR_BATCHES];
	struct trips trips;
	uint64_t next_ns, forget_ns; /* the next request; the next registration that goes */
	uint32_t posted;
	bool stopped;                       /* it dies: nothing is looked at any more */
	struct hf_transfer_counters before; /* when the faults had healed */
};

/* Of a world that is measured: how long requests of the first node took, by the node that they went to. */
struct tr_times {
	uint64_t sum_ns[TR_NODES], count[TR_NODES], failed[TR_NODES];
	uint64_t rest_ns; /* before new requests */
	bool asks[TR_NODES];
};

struct tr {
	struct world *world;
	struct network network;
	struct faults faults;
	struct moves moves;
	struct tr_node nodes[TR_NODES];
	struct tr_path paths[TR_NODES][TR_NODES][TR_PATHS]; /* [lower][higher] */
	struct hf_transfer_config config;
	struct outcome *outcome;
	uint64_t quiet_ns;
	enum ibv_mtu mtu;
	bool forgets; /* registrations go while they are in use */
	bool slow;    /* a rail is so slow that packets wait for long */
	bool stopping;
	uint64_t line_gap_ns;   /* between log lines of one rail */
	struct tr_times *times; /* NULL: work and faults are of chance */
};

static inline struct port *tr_port(const struct tr_node *node, unsigned path)
{
	return &node->tr->network.ports[path * TR_NODES + node->index];
}

/* ---- nodes.c: its context is a struct tr_node ---- */
extern const struct program tr_program;
unsigned tr_node_named(const struct hf_peer *peer);
void tr_drain(const struct tr_node *node); /* what its NICs hold is in memory */

/* ---- scenario.c ---- */
void tr_set_up(struct tr *tr, struct world *world, struct outcome *outcome);
void tr_tear_down(struct tr *tr);
void tr_look_at_rails(struct tr_node *node);

/* ---- work.c ---- */
void tr_submit(struct tr_node *node, uint64_t now_ns);
void tr_submit_all(struct tr_node *node, unsigned other); /* as many as there are slots and batches free */
bool tr_take_ends(struct tr_node *node);                  /* of requests; true: there were some */
void tr_cancel_due(struct tr_node *node);
void tr_check_bounds(struct tr *tr);
unsigned tr_pending(const struct tr *tr);

/* ---- trouble.c ---- */
void tr_fault_changed(struct faults *faults, const struct fault *fault, bool begins);
void tr_paths_switched(struct faults *faults);
void tr_path_changed(struct tr *tr, unsigned a, unsigned b, unsigned path);
/* Nothing has happened to the path since then. */
bool tr_path_was_well(const struct tr *tr, unsigned a, unsigned b, unsigned path, uint64_t since_ns);
struct trip_path tr_path_now(const struct tr_node *node, unsigned other, unsigned rail);

#endif
