/* message.h - what nodes and vqps say to each other over the control channel. Pure; the layout is in message.c. */
#ifndef HOLDFAST_VQP_MESSAGE_H
#define HOLDFAST_VQP_MESSAGE_H

#include <holdfast/vqp.h>

#include "net/control.h"
#include "vqp/recovery/evidence.h"

#define MESSAGE_LENGTHS_MAX 32u /* in one message */

enum message_kind {
	MESSAGE_NODE = 1, /* first: our rails */
	MESSAGE_RAILS,    /* which of our ports are up now */
	MESSAGE_REGION,   /* a region and its key on each of our rails */
	MESSAGE_REGION_GONE,
	MESSAGE_REGION_ASK,  /* a wr names this key, which was not announced yet */
	MESSAGE_REGION_NONE, /* the answer: there is no such region for you */
	MESSAGE_CONNECT,
	MESSAGE_ACCEPT,
	MESSAGE_REFUSE,
	MESSAGE_FENCE, /* recovery.h */
	MESSAGE_STATE,
	MESSAGE_GO,
	MESSAGE_QP,
	MESSAGE_READY,
	MESSAGE_LOG,       /* before the first FENCE: where the receiver's completion log is */
	MESSAGE_LENGTHS,   /* what the receives of WRITE_WITH_IMMs that resume report; all of them */
	MESSAGE_BACKUP,    /* picker: a qp made beforehand on one more rail */
	MESSAGE_BACKUP_QP, /* its match */
	MESSAGE_SLOTS_ASK, /* a vqp wants to do atomics by uid */
	MESSAGE_SLOTS,     /* what it may use for that; lent_slots 0: nothing is left */
	MESSAGE_POOL,      /* picker: a qp that the vqps like this one share when they have to */
	MESSAGE_POOL_QP,   /* its match */
	MESSAGE_POOL_GONE, /* picker: nobody will be sent there any more */
	MESSAGE_MOVE,      /* to the picker: our home of atomics is to be on that rail */
	MESSAGE_GRANT,     /* more may be done than before */
	MESSAGE_CLOSED,    /* the vqp is in error or was destroyed; about_qp: of the standby qp that it was on */
	MESSAGE_JOIN,      /* both sides name both numbers (hf_vqp_connect_num) */
	MESSAGE_LEASE,     /* lease.h */
	MESSAGE_KINDS,
};

/* What the picker goes to. */
enum message_path {
	MESSAGE_PATH_BUILT,  /* a qp still to be matched */
	MESSAGE_PATH_BACKUP, /* the vqp's own, made beforehand on that rail */
	MESSAGE_PATH_POOL,   /* of the pool: qp_num is its our_key of the picker */
	MESSAGE_PATHS,
};

#define MESSAGE_HOME_ANY 0xff

struct message_rail {
	char name[HF_NAME_BYTES], kind[HF_NAME_BYTES];
	uint8_t gid[16];
	uint8_t dc_mtu, dc_rd_atomic; /* dc_mtu: of standby qps over DC; 0: it cannot have such */
};

/* The k-th message of the sender has so many bytes, however many of them are still to come. */
struct message_length {
	uint64_t message;
	uint32_t bytes;
};

struct message {
	enum message_kind kind;
	uint32_t to, from; /* vqp numbers; 0: the node */
	uint32_t epoch;
	/* NODE, RAILS, STATE; LOG: whose devices know footers */
	uint8_t rail_count;
	uint32_t up; /* bit per rail of the sender */
	/* LEASE */
	uint64_t stamp, echo, lease_ns;
	/* REGION... */
	uint32_t rkey;
	uint32_t rkeys[HF_RAILS_MAX];
	uint8_t mode;         /* enum hf_atomic_mode */
	uint8_t home;         /* rail of the sender where atomics go; MESSAGE_HOME_ANY */
	uint32_t atomic_rkey; /* for them, there; 0: not now */
	/* SLOTS, and rkey */
	uint64_t slots_addr, sequence;
	uint32_t slots, first_slot;
	uint8_t lent_slots;
	/* CONNECT, ACCEPT */
	uint32_t access, grant; /* also of JOIN, STATE and GRANT: what the sender lets the receiver do */
	uint8_t revocable;
	uint32_t pd;    /* of the sender's, by a number of its own */
	uint32_t depth; /* of the sender's request log */
	uint16_t private_bytes;
	/* JOIN */
	uint8_t answer; /* 1: to the other side's JOIN, not answered itself */
	/* FENCE, STATE */
	uint8_t failback;  /* 0, 1 */
	uint8_t suspect;   /* the rail of the sender's qp seems to be broken */
	uint8_t wr_failed; /* a wr of the sender's failed as it does when the path is broken */
	uint8_t fenced;    /* 0: the device could not promise it */
	uint8_t has_psn;
	uint32_t executed_psn;
	uint8_t in_doubt, atomic_count;
	uint8_t ended;   /* the qp could not be fenced: its device may have died with writes under way */
	uint8_t refused; /* enum ibv_wc_status, of the request at refused_psn; 0: none */
	uint32_t refused_psn;
	uint8_t about_rail; /* of the sender; about_qp: what the receiver's wrs there are known by; 0: none */
	uint32_t about_qp;
	uint8_t has_log;
	uint32_t log_number;
	uint64_t log_entry;
	uint64_t consumed; /* messages taken by receives since the vqp was made */
	uint8_t resumes;   /* a WRITE_WITH_IMM of the sender's may go on in its middle */
	/* LOG; its keys are in rkeys */
	uint64_t log_addr;
	uint32_t log_entries; /* a power of two */
	/* LENGTHS */
	uint8_t more; /* another one follows */
	uint8_t length_count;
	/* GO, QP, BACKUP, BACKUP_QP, POOL, POOL_QP, POOL_GONE; answers say in about_qp to what */
	uint8_t rail;   /* of the sender */
	uint8_t cached; /* GO: enum message_path */
	uint8_t rd_atomic, mtu, footers;
	uint32_t qp_num, psn;
	/* POOL, POOL_QP: qp_num and psn are of an initiator then */
	uint8_t dc; /* 0, 1 */
	uint32_t dct_num;
	uint64_t dc_key, dc_use;
	/* What is large, of one kind each, so that the others are quickly filled and copied. */
	union {
		struct message_rail rails[HF_RAILS_MAX]; /* NODE */
		struct {                                 /* CONNECT, ACCEPT, REFUSE */
			char service[HF_NAME_BYTES];
			char terms[HF_NAME_BYTES]; /* what the other side must agree with; policy.c */
			uint8_t private_data[HF_PRIVATE_BYTES];
		};
		struct hf_atomic_result atomics[EVIDENCE_ATOMICS];  /* STATE */
		struct message_length lengths[MESSAGE_LENGTHS_MAX]; /* LENGTHS */
	};
};

#define MESSAGE_MAX          (CONTROL_MESSAGE_MAX - MESSAGE_LENGTH_BYTES)
#define MESSAGE_LENGTH_BYTES 2u

/* Returns the length, at most MESSAGE_MAX. */
uint32_t message_encode(const struct message *message, uint8_t *at);
/* False: it does not follow the layout. */
bool message_decode(const uint8_t *at, uint32_t bytes, struct message *message_out);

/* Several messages travel as one of the control channel, each behind its length. */
struct message_box {
	uint32_t used;
	uint8_t bytes[CONTROL_MESSAGE_MAX];
};
bool message_box_add(struct message_box *box, const struct message *message); /* false: no room left */
/* The messages in [*at, end), one a call; false: there is no further one, or it does not follow the layout, which
 * *at == end tells apart. */
bool message_box_next(const uint8_t **at, const uint8_t *end, struct message *message_out);

#endif
