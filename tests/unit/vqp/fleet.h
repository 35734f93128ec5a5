/* fleet.h - many vqps between the two nodes of a pair: ours[i] is a's, theirs[i] its other end at b. */
#ifndef HOLDFAST_TEST_VQP_FLEET_H
#define HOLDFAST_TEST_VQP_FLEET_H

#include "pair.h"
#include "vqp/objects.h"

#define FLEET_MAX   64u
#define FLEET_DEPTH 16u /* wrs of a vqp, as many as fit into a request log */

extern struct hf_vqp *ours[FLEET_MAX], *theirs[FLEET_MAX];
extern unsigned fleet_size;       /* vqps that fleet_is_up asks about */
extern bool fleet_is_uneven;      /* b's vqps hold unequal wrs */
extern uint32_t fleet_queue_most; /* wrs that a qp of these devices holds; 0: as many as they like */

/* Without vqps yet. */
void fleet_open(struct pair *pair, enum hf_policy policy);
void fleet_ask(struct pair *pair, unsigned i); /* a makes ours[i], and b will make its other end */
/* Until there are n, and all are up. */
void fleet_connect(struct pair *pair, unsigned n);
bool fleet_is_up(struct pair *pair);

void fleet_open_with_pool(struct pair *pair); /* FLEET_MAX of them, under `varuna` */
bool fleet_has_pool(struct pair *pair);       /* all are up, and a standby qp waits on either rail */
/* Rail 0 is lost: all are on standby qps of rail 1 then, and stay there until they may rebuild. */
void fleet_lose_rail_0(struct pair *pair);
void fleet_open_on_standby(struct pair *pair); /* both of these */
bool fleet_is_shared(struct pair *pair);       /* all are up and on standby qps */
bool fleet_is_on_0(struct pair *pair);         /* all are up and on qps of their own there */
bool fleet_is_on_1(struct pair *pair);

/* As if so many of others were under way that no other may begin, however long a test takes. */
void fleet_hold_rebuilds(struct pair *pair);
/* Only that of one vqp, or all of them: FLEET_MAX. */
void fleet_let_rebuild(struct pair *pair, unsigned which);

void fleet_hear(struct hf_peer *peer, unsigned number, struct message_head *message); /* as if the peer said so */
/* The vqp hears that its other end has begun the next exchange; wr_failed: because a wr of its own failed. */
void fleet_hear_fence(struct hf_vqp *vqp, bool wr_failed);

/* Signaled, 64 bytes at 64 i of both memories, wr_id i. Returns what posting it did. */
int fleet_write(struct pair *pair, unsigned i, uint32_t rkey);
void fleet_write_all(struct pair *pair);
void fleet_collect(struct pair *pair, unsigned n); /* n completions of a's, at most FLEET_MAX, and each a success */

#endif
