/* kinds.h - the kinds of messages of vqps, by number. The struct of a kind, its fields and its handler
 * are beside its mechanism; kinds.c finds the vqp of a message. */
#ifndef HOLDFAST_VQP_KINDS_H
#define HOLDFAST_VQP_KINDS_H

#include <holdfast/node.h>

#include "node/message.h"

struct hf_vqp;

#define RAIL_MASK ((1u << HF_RAILS_MAX) - 1)
#define NUM_MASK  0xffffffu

enum {
	MESSAGE_REGION = MESSAGE_VQP_FIRST, /* a region and its key on each of our rails */
	MESSAGE_REGION_GONE,
	MESSAGE_REGION_ASK,  /* a wr names this key, which was not announced yet */
	MESSAGE_REGION_NONE, /* the answer: there is no such region for you */
	MESSAGE_CONNECT,
	MESSAGE_ACCEPT,
	MESSAGE_REFUSE,
	MESSAGE_JOIN,  /* both sides name both numbers (hf_vqp_connect_num) */
	MESSAGE_FENCE, /* recovery.h */
	MESSAGE_STATE,
	MESSAGE_GO,
	MESSAGE_QP,
	MESSAGE_READY,
	MESSAGE_LOG,       /* before the first FENCE: where the receiver's completion log is */
	MESSAGE_LENGTHS,   /* what the receives of WRITE_WITH_IMMs that resume report; all of them */
	MESSAGE_BACKUP,    /* picker: a qp made beforehand on one more rail */
	MESSAGE_BACKUP_QP, /* its match */
	MESSAGE_POOL,      /* picker: a qp that the vqps like this one share when they have to */
	MESSAGE_POOL_QP,   /* its match */
	MESSAGE_POOL_GONE, /* picker: no vqp will be sent there any more */
	MESSAGE_SLOTS_ASK, /* a vqp wants to do atomics by uid */
	MESSAGE_SLOTS,     /* what it may use for that; lent_slots 0: nothing is left */
	MESSAGE_MOVE,      /* to the picker: our home of atomics is to be on that rail */
	MESSAGE_HOMES,     /* rails on which our home may be as well as where it is */
	MESSAGE_GRANT,     /* more may be done than before */
	MESSAGE_CLOSED,    /* the vqp is in error or was destroyed; about_qp: of the standby qp that it was on */
};

/* A kind that is for one vqp, by its number. */
struct vqp_kind {
	struct message_kind kind;
	void (*take)(struct hf_vqp *vqp, const struct message_head *message);
};
void kinds_to_vqp(struct hf_peer *peer, const struct message_head *message);
#define VQP_KIND(number_, name_, struct_, fields_, take_)                                                              \
	{                                                                                                              \
		.kind = MESSAGE_KIND(number_, name_, struct_, fields_, kinds_to_vqp), .take = (take_)                  \
	}
#define VQP_KIND_BARE(number_, name_, struct_, take_)                                                                  \
	{                                                                                                              \
		.kind = MESSAGE_KIND_BARE(number_, name_, struct_, kinds_to_vqp), .take = (take_)                      \
	}

void kinds_register(struct message_kinds *kinds); /* all of them */

/* ---- of each room ---- */
void connect_register(struct message_kinds *kinds);
void region_register(struct message_kinds *kinds);
void access_register(struct message_kinds *kinds);
void exchange_register(struct message_kinds *kinds);
void next_path_register(struct message_kinds *kinds);
void backup_register(struct message_kinds *kinds);
void pool_register(struct message_kinds *kinds);
void uid_slots_register(struct message_kinds *kinds);
void home_register(struct message_kinds *kinds);

#endif
