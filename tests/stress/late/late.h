/* late.h - nothing of a transfer is late, in real processes: a requester, a target, and a parent who disturbs them.
 *
 * The requester keeps requests under way to the target's memory, READs and WRITEs, some with deadlines, some of which
 * it cancels. At each terminal status, whatever it is, it looks at both buffers at once and gives both another use: it
 * fills them with other bytes, lets them rest, looks at them again, and takes them for the next request. It looks at
 * the target's memory through the kernel, so also while the target is stopped. A byte that neither the request nor the
 * new use has put there is foreign.
 *
 * The parent cuts links in one direction, and stops the target and the requester for shorter and for longer than a
 * lease. Parent and processes share a `struct late` that no product code knows of. */
#ifndef HOLDFAST_TEST_LATE_H
#define HOLDFAST_TEST_LATE_H

#include <holdfast/transfer.h>
#include <stdatomic.h>
#include <sys/types.h>

#define LATE_RAILS      2u
#define LATE_SLOTS      16u
#define LATE_SLOT_BYTES (256u << 10)
#define LATE_BYTES      ((uint64_t)LATE_SLOTS * LATE_SLOT_BYTES)
#define LATE_LEASE_NS   400000000ull
#define LATE_SHOWN      8u
#define LATE_WORDS      200u

struct late {
	const char *kind; /* "soft", "shm"; "tcp": no rails */
	uint64_t seed;
	unsigned group;                  /* the parent's pid: tests run side by side */
	_Atomic unsigned ending;         /* 1: the requester ends what is under way; 2: the target may end, too */
	_Atomic uintptr_t target_memory; /* 0: it is not ready */
	_Atomic int target_pid;
	_Atomic uint64_t turns;                 /* of the requester */
	_Atomic uint64_t ended[7];              /* requests, by enum hf_transfer_status */
	_Atomic unsigned pending;               /* now */
	_Atomic uint64_t rail_bytes, tcp_bytes; /* in the requester's life */
	_Atomic unsigned violations;
	char shown[LATE_SHOWN][LATE_WORDS];
};

void late_violate(struct late *late, const char *format, ...) __attribute__((format(printf, 2, 3)));
const char *late_fabric(const struct late *late);

/* node.c: a node with an engine, in either process */
struct late_node {
	struct late *late;
	struct hf_loop *loop;
	struct hf_node *node;
	struct hf_transfer *engine;
	uint8_t *memory; /* LATE_BYTES, registered */
};
void late_node_open(struct late_node *node, struct late *late, bool target, const struct hf_node_events *events,
	const struct hf_transfer_events *transfer_events, void *context);
struct hf_addr late_control(const struct late *late, bool target);

int late_target(struct late *late);
int late_requester(struct late *late);

#endif
