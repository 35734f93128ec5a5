/* nodes.h - two nodes with two rails, a process each: clients at the near one, a server at the far one.
 *
 * Each client is a vqp with a region of its own at both ends, so that nothing is shared but the NICs (Varuna, section
 * 5: inbound work of several clients to one server). The server only serves: it turns its loop. */
#ifndef HOLDFAST_BENCH_NODES_H
#define HOLDFAST_BENCH_NODES_H

#include <holdfast/vqp.h>

#include "bench/bed.h"

#define BENCH_RAILS       2u
#define BENCH_BATCH       64u /* wrs */
#define BENCH_CLIENTS_MAX 4096u

/* How a vqp is set up; the first is what the others are compared with. */
struct bench_mode {
	const char *name;
	enum hf_policy policy;
	enum hf_evidence evidence;
};
extern const struct bench_mode bench_modes[];
extern const unsigned bench_mode_count;
const struct bench_mode *bench_mode_find(const char *name); /* NULL: there is none */

struct bench_setup {
	const char *kind; /* of the devices */
	const struct bench_mode *mode;
	unsigned clients;
	uint32_t depth;                 /* wrs in flight of a client */
	uint64_t client_bytes;          /* of each client's regions */
	void *near_memory, *far_memory; /* of all clients, when it is not the nodes' own */
	uint64_t failback_ns;
	uint8_t timeout;           /* of the qps, as in ibv_qp_attr */
	unsigned heartbeat_misses; /* 0: the usual */
	uint64_t budget_ns;        /* 0: the usual */
	unsigned number;           /* tells several in the same two processes apart */
};

struct bench_nodes;

struct bench_client {
	struct hf_vqp *vqp;
	struct hf_vqp *former; /* which that one has replaced, until it is destroyed */
	struct bench_nodes *nodes;
	uint8_t *local;
	uint64_t remote;
	bool came_up;
};

struct bench_nodes {
	const struct bench_setup *setup;
	struct bed bed;
	bool broken;
	bool replaces; /* vqps that fail are replaced (bench_nodes_replace), and not counted as down */
	struct hf_node *node;
	struct hf_peer *peer;
	struct hf_vpd *pd;
	struct hf_vcq *cq;
	struct hf_vmr *mr;
	uint8_t *memory, *own_memory;
	struct bench_client *clients;
	unsigned made, up, down;
	/* NULL: not asked for. That vqp is up (again), and has not posted yet what it held. */
	void (*came_up)(void *context, unsigned client);
	void *came_up_context;
	uint64_t connect_ns; /* until all of them were up, the near side's */
	struct hf_vqp_service service;
	uint64_t far_addr;
	uint32_t far_rkey;
};

/* Both sides call it, with the same setup; when it returns 0 at the near side all clients are up. */
int bench_nodes_open(
	struct bench_nodes *nodes, const struct bench_setup *setup, struct bench_meeting *meeting, bool near);
void bench_nodes_close(struct bench_nodes *nodes);
/* The near side's: destroys that client's vqp and connects a new one, as a program does that has lost it; the far side
 * does the same when it is asked. -errno. */
int bench_nodes_replace(struct bench_nodes *nodes, unsigned client);
/* The far side's, after a turn: destroys what was replaced in it. */
void bench_nodes_bury(struct bench_nodes *nodes);
/* The far side's part: turns its loop until the near one has left. */
void bench_nodes_serve(struct bench_nodes *nodes);
/* A turn without sleep, with what is due in the background. */
void bench_nodes_turn(struct bench_nodes *nodes);

enum bench_op { BENCH_WRITE, BENCH_CAS, BENCH_CAS_READS /* one CAS, then three READs, and so on */ };

/* A list of n wrs of that kind into the client's regions, each at an offset of its own where they have room, the
 * last one signaled; every `signal_every`th too (0: none else). Wr and sge arrays have n places. */
void bench_list(const struct bench_client *client, enum bench_op op, uint32_t bytes, unsigned n, unsigned signal_every,
	uint64_t wr_id, struct ibv_send_wr *wrs, struct ibv_sge *sges);

#endif
