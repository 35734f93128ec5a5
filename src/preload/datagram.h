/* datagram.h - UD queue pairs of programs.
 *
 *   ibv_post_send -> datagram.c -> datagram_links.c ~~ a vqp to the peer's process ~~> datagram_links.c -> datagram.c
 *
 * A datagram reaches any UD queue pair of a process by an address handle, which names the process, and a number. All
 * datagrams from one process to another travel as messages of one vqp, so they pass through cuts of rails. They are
 * copied when they are posted, and again when they arrive. One is lost when its queue pair has no receive posted, when
 * it has another qkey, and while many wait for a process that does not run; nothing else loses any. */
#ifndef HOLDFAST_PRELOAD_DATAGRAM_H
#define HOLDFAST_PRELOAD_DATAGRAM_H

#include "preload/objects.h"

#define DATAGRAM_BYTES 4096u /* the MTU */

/* A message of such a vqp; processes of two hosts may have different byte orders. */
struct datagram_head {
	__be32 to, from; /* numbers of queue pairs */
	__be32 qkey, flags;
	__be32 imm;      /* as the program has it */
	uint8_t gid[16]; /* of the sender */
};
#define DATAGRAM_HEAD_BYTES 36u
#define DATAGRAM_IMM        1u
#define DATAGRAM_SOLICITED  2u
/* Messages of connection managers (cm/cm.h) are for queue pair 1, as on InfiniBand. */
#define DATAGRAM_CM_QP_NUM 1u
#define DATAGRAM_CM_QKEY   0x80010000u

_Static_assert(sizeof(struct datagram_head) == DATAGRAM_HEAD_BYTES, "wire layout");

struct datagram_ah {
	struct ibv_ah ah; /* first */
	struct hf_addr address;
	bool own;
};

/* ---- datagram.c; with the lock held ---- */

int datagram_create(struct queue_pair *qp);
void datagram_destroy(struct queue_pair *qp);
int datagram_move(struct queue_pair *qp, const struct ibv_qp_attr *attr, int mask); /* -errno */
int datagram_post_send(struct queue_pair *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int datagram_post_recv(struct queue_pair *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
/* Completions of UD queue pairs. */
int datagram_poll(struct cq *cq, int n, struct ibv_wc *wc);
/* One has arrived, or is for a queue pair of this process. */
void datagram_arrived(struct bond *bond, const void *message, size_t bytes);

/* ---- datagram_links.c ---- */

struct datagram_links;

int datagram_links_open(struct bond *bond);
void datagram_links_close(struct bond *bond);
/* Returns room for a message of that many bytes, to be filled and sent; NULL: it is lost. */
void *datagram_links_room(struct bond *bond, const struct hf_addr *to, size_t bytes);
/* The same without waiting for room, for calls from the loop. */
void *datagram_links_room_now(struct bond *bond, const struct hf_addr *to, size_t bytes);
void datagram_links_send(struct bond *bond);
/* Waits until what was sent has arrived, for 100 ms at most; not inside a turn of the loop. */
void datagram_links_flush(struct bond *bond);
/* Gives what has arrived to datagram_arrived. */
void datagram_links_poll(struct bond *bond);

#endif
