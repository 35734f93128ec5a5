/* segment.h - the layout of a port's segment, which its peers map.
 *
 * Every open port owns the file GID.port of its fabric's directory (GID: the port's identity in hex, 16 random bytes),
 * and files GID.N that hold the rings of its queues (arena.c). Peers map them and do the port's work themselves:
 *
 *        0  struct port_header    identity; whether its owner sleeps; qps that a peer has moved to ERR
 *     4096  struct mr_entry[]     registrations; a key names its entry by its low bits
 *           struct qp_slot[]      queue pairs; a qp number names its slot by its low bits
 *           struct cq_slot[]      qps with completed receives for a cq
 *           struct srq_slot[]     shared receive queues
 *
 * Writers. The port's owner writes everything, with these exceptions: the requester lines of a qp_slot
 * belong to the one requester that is connected to it; srq_slot.head and the claims in its ring to all requesters;
 * bits of faults and of cq_slot are set by requesters and cleared by the owner; qp_slot.state is moved to ERR by a
 * requester that was refused.
 *
 * The op word of a qp_slot is where a requester and the owner meet:
 *
 *     63      32 31     8  2          1       0
 *     receives   psn       OP_GIVEN   OP_TAKEN  OP_BUSY
 *
 *   SEG-1  A requester touches the owner's memory only while OP_BUSY is set, and only after it has seen, behind setting
 *          it, that the qp, the registration and both links are as they must be. Setting is a sequentially consistent
 *          exchange, and so is every withdrawal by the owner (state, access, mr word): one of the two sees the other.
 *   SEG-2  The effect of a request counts (psn, receives consumed) if and only if the exchange that clears OP_BUSY, or
 *          moves the psn under it, succeeds. The owner takes a stuck operation over by exchanging in OP_TAKEN, so that
 *          both always agree on the executed operations. A requester that finds OP_TAKEN sets OP_GIVEN once it has
 *          backed off. (An atomic checks OP_TAKEN and then stores: when it was taken over, its evidence is withheld.)
 *   SEG-3  After OP_TAKEN the requester may still store into `touch`, one recv_slot, one atomic result and the range in
 *          `touch`: the range is moved to other pages (move.c), the slot and its ring are not reused before OP_GIVEN.
 *   SEG-4  Memory whose pages cannot be moved (a file's, a program's private memory) is stored to under guard
 *          (guard.h): the copy and the check of the op word are one. The owner waits, behind OP_TAKEN, until the thread
 *          is out of it. So are footers, to any memory, and all stores for a qp with revoke_ns: moving the pages of a
 *          large region takes longer than its owner may wait.
 *
 * Readers validate counts, offsets and lengths before use. */
#ifndef HOLDFAST_DEV_SHM_SEGMENT_H
#define HOLDFAST_DEV_SHM_SEGMENT_H

#include <holdfast/dev.h>

#include <stdatomic.h>

#include "dev/shm/bitmap.h"

#define SEGMENT_MAGIC   0x74736166646c6f68ull /* "holdfast" */
#define SEGMENT_VERSION 6u

#define MR_SLOTS  16384u
#define CQ_SLOTS  512u
#define SRQ_SLOTS 256u
#define RD_ATOMIC 16u
#define MAX_SGE   16u

/* The low bits of a key or qp number are the index of its entry, the rest is random or a count. */
#define SLOT_BITS    14
#define SLOT_MASK    ((1u << SLOT_BITS) - 1)
#define QP_SLOT_BITS 13
#define QP_SLOT_MASK ((1u << QP_SLOT_BITS) - 1)

struct port_header {
	uint64_t magic;
	uint32_t version;
	int32_t pid;
	uint8_t gid[16];
	char node[HF_NAME_BYTES], rail[HF_NAME_BYTES];
	_Atomic uint32_t open; /* 0: closed, the segment is only mapped still */

	_Alignas(64) _Atomic uint32_t armed; /* the owner sleeps: a peer that has produced something rings its bell */
	_Alignas(64) _Atomic uint32_t rung;  /* by a peer; the owner clears the bell */
	struct qp_bitmap faults;             /* qps that a requester has moved to ERR */
};

enum mr_state {
	MR_FREE,
	MR_VALID,
	MR_LOCAL,   /* peers cannot reach it: for the owner's own wrs */
	MR_REVOKED, /* the owner waits for operations to end */
	MR_MOVING,  /* to other pages; try again */
};
#define MR_WORD(generation, state) ((uint64_t)(generation) << 8 | (uint64_t)(state))
#define MR_WORD_STATE(word)        ((enum mr_state)((word)&0xff))

/* How peers reach the memory. */
enum mr_kind {
	MR_MAPPED,  /* it has pages of its own, which can be moved (move.c): they map it */
	MR_FILE,    /* they map it, and copy under guard (reach.c) since it has to stay where it is */
	MR_PRIVATE, /* the kernel copies for them, under guard */
};

struct mr_entry {
	_Alignas(128) _Atomic uint64_t word; /* MR_WORD: the rest is valid for one word */
	uint32_t rkey, lkey;
	uint32_t access, pd;
	int32_t fd;             /* of the owner, unless it is private */
	uint32_t kind;          /* enum mr_kind */
	uint64_t inode, offset; /* of the file, and of addr in it */
	uint64_t iova, addr, bytes;
};

#define OP_BUSY                1ull
#define OP_TAKEN               2ull
#define OP_GIVEN               4ull
#define OP_FLAGS               7ull
#define OP_WORD(psn, receives) ((uint64_t)(receives) << 32 | (uint64_t)(psn) << 8)
#define OP_PSN(word)           ((uint32_t)((word) >> 8) & 0xffffffu)
#define OP_RECEIVES(word)      ((uint32_t)((word) >> 32))

#define QP_WORD(incarnation, state) ((uint64_t)(incarnation) << 8 | (uint64_t)(state))
#define QP_WORD_STATE(word)         ((enum ibv_qp_state)((word)&0xff))
#define QP_WORD_INCARNATION(word)   ((word) >> 8)

enum touch_kind {
	TOUCH_READ,
	TOUCH_WRITE, /* mapped memory: its pages can be moved */
	TOUCH_ATOMIC,
	TOUCH_GUARDED, /* `touch_thread` copies under guard, with the op word as its gate, to any memory */
	TOUCH_FREE,    /* neither: the requester's machine has no guard */
};

/* Whether the operation ends with a footer (footer.c), which is stored by `touch_thread`. */
enum foot_kind {
	FOOT_NONE,
	FOOT_GUARDED,
	FOOT_FREE, /* the requester's machine has no guard */
};

/* Where a ring lives: file GID.arena, from `offset`. */
struct ring_place {
	uint32_t arena;
	uint32_t stride; /* bytes of an element */
	uint64_t offset;
	uint32_t slots; /* a power of two */
	uint32_t unused;
};

struct atomic_result {
	_Atomic uint32_t psn;
	_Atomic uint64_t original;
};

struct qp_slot {
	/* Quiet: read at each operation. */
	_Alignas(64) _Atomic uint64_t state; /* QP_WORD; a new incarnation with each move to RESET */
	_Atomic uint32_t access;
	_Atomic uint32_t min_rnr_timer;
	uint32_t qp_num, pd;
	uint32_t peer_qp_num, mtu_bytes;
	uint8_t peer_gid[16];
	uint32_t send_cq, recv_cq;
	uint32_t revocable; /* all stores are to be made under guard */
	/* Read when a requester connects. */
	_Alignas(64) struct ring_place receives; /* recv_slot[], or uint32_t indexes of them when there is an srq */
	uint32_t srq;                            /* SRQ_SLOTS: none */
	_Atomic uint32_t recv_tail;              /* receives posted, counted */
	/* The requester's. */
	_Alignas(64) _Atomic uint64_t op; /* OP_WORD */
	_Atomic uint64_t packets, bytes;  /* for the owner's counters */
	_Atomic uint32_t fault;           /* enum ibv_event_type + 1 of why it moved the qp to ERR */
	_Atomic uint32_t atomics;         /* results written, counted */
	_Atomic uint32_t touch_kind;      /* what the operation is about to touch */
	_Atomic uint32_t touch_mr;
	_Atomic uint64_t touch_addr, touch_bytes; /* in the owner's addresses */
	_Atomic uint32_t touch_thread;
	_Atomic uint32_t touch_foot; /* enum foot_kind */
	_Alignas(64) struct atomic_result results[RD_ATOMIC];
};

struct cq_slot {
	_Alignas(64) _Atomic uint32_t armed; /* enum cq_armed */
	_Atomic uint32_t notified;
	uint32_t cqe;
	_Alignas(64) _Atomic uint32_t unpolled; /* receives completed and not polled; more than cqe are an overrun */
	struct qp_bitmap receives;
};
enum cq_armed { CQ_QUIET, CQ_ARMED, CQ_ARMED_SOLICITED };

/* A receive: what the owner posted, and then what happened to it. */
struct recv_slot {
	uint64_t wr_id;
	uint32_t num_sge;
	uint32_t status; /* enum ibv_wc_status, from here on filled by the requester */
	uint32_t opcode; /* enum ibv_wc_opcode */
	uint32_t byte_len;
	uint32_t imm;
	uint32_t flags; /* enum ibv_wc_flags */
	struct ibv_sge sges[];
};

/* The ring of an srq holds claims: position (24 bits) | recv_slot (16 bits) | qp number of the claimer, 0 for none. */
#define SRQ_CLAIM(position, slot, qp_num)                                                                              \
	((uint64_t)((position)&0xffffffu) << 40 | (uint64_t)(slot) << 24 | (uint64_t)(qp_num))
#define SRQ_CLAIM_POSITION(claim) ((uint32_t)((claim) >> 40))
#define SRQ_CLAIM_SLOT(claim)     ((uint32_t)((claim) >> 24) & 0xffffu)
#define SRQ_CLAIM_QP(claim)       ((uint32_t)(claim)&0xffffffu)

struct srq_slot {
	_Alignas(64) struct ring_place claims; /* _Atomic uint64_t[] */
	struct ring_place slots;               /* recv_slot[] */
	uint32_t pd;
	_Alignas(64) _Atomic uint32_t tail; /* receives posted, counted */
	_Alignas(64) _Atomic uint32_t head; /* a hint: all before it are claimed */
};

struct segment {
	union {
		struct port_header header;
		uint8_t header_page[4096];
	};
	struct mr_entry mrs[MR_SLOTS];
	struct qp_slot qps[QP_SLOTS];
	struct cq_slot cqs[CQ_SLOTS];
	struct srq_slot srqs[SRQ_SLOTS];
};

_Static_assert(sizeof(struct port_header) <= 4096, "the header fits its page");
_Static_assert(sizeof(struct mr_entry) == 128, "shared layout");
_Static_assert(offsetof(struct qp_slot, receives) == 64 && offsetof(struct qp_slot, op) == 128, "shared layout");
_Static_assert(offsetof(struct qp_slot, results) == 192 && sizeof(struct qp_slot) == 448, "the requester has one line");
_Static_assert(sizeof(struct cq_slot) == 1216, "shared layout");
_Static_assert(sizeof(struct srq_slot) == 192 && sizeof(struct recv_slot) == 32, "shared layout");
_Static_assert(offsetof(struct segment, mrs) == 4096, "shared layout");
_Static_assert(QP_SLOTS == 1u << QP_SLOT_BITS && MR_SLOTS == 1u << SLOT_BITS, "qp numbers and keys name slots");

#endif
