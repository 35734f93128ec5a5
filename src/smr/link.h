/* link.h - a replica's state of another member: its process, the vqps between both, its score in the election, and the
 * leader's progress with its log. Owned by the replica. */
#ifndef HOLDFAST_SMR_LINK_H
#define HOLDFAST_SMR_LINK_H

#include <holdfast/vqp.h>

#include "smr/elect.h"

#define SMR_WRS_MAX 64u /* posted and not completed, of a vqp */

/* ---- the background region, little-endian; every word (slot.h) has one writer ---- */
#define SMR_PUBLIC_HEARTBEAT 0u
#define SMR_PUBLIC_WORDS     64u
#define SMR_PUBLIC_BYTES     128u
#define SMR_MAILBOX(k)       (256u + 64u * (k)) /* written by member k: its request; 8 bytes on: its ack of ours */
#define SMR_BACK_BYTES       4096u
enum smr_public {
	SMR_PUBLIC_INCARNATION,
	SMR_PUBLIC_ROLE, /* number << 8 | role */
	SMR_PUBLIC_APPLIED,
	SMR_PUBLIC_COMMIT,
	SMR_PUBLIC_DURABLE,
	SMR_PUBLIC_DURABLE_ROUND,
	SMR_PUBLIC_FLAGS,    /* fill of the tail of snapshots, in 256ths << 16 | holder + 1 << 8 | flags */
	SMR_PUBLIC_SEQUENCE, /* of the last batch in the WAL that others may count on */
	SMR_PUBLIC_COUNT,
};
#define SMR_FLAG_READY 1u
enum smr_verdict {        /* on a request, in an ack: request << 24 | grant << 8 | verdict */
	SMR_VERDICT_NONE, /* not told yet */
	SMR_VERDICT_GRANTED,
	SMR_VERDICT_LATER,
	SMR_VERDICT_OVER,     /* ask anew */
	SMR_VERDICT_STRANGER, /* no member: as LATER */
	SMR_VERDICT_GIVE,     /* not told: it is about to be granted */
};

/* ---- what is posted ---- */

enum smr_wr_type {
	SMR_WR_PUBLIC, /* READ of the public words */
	SMR_WR_ASK,    /* request, into a mailbox */
	SMR_WR_ACK,
	SMR_WR_HEAD,    /* READ of promise and commit */
	SMR_WR_PROMISE, /* WRITE of the promise */
	SMR_WR_FETCH,   /* READ of slots */
	SMR_WR_SLOTS,   /* WRITE of slots below `arg`, or of the accept word of the last of them */
	SMR_WR_COMMIT,  /* WRITE of the commit word */
	SMR_WR_DURABLE, /* READ of the public words, between two pulses */
};
struct smr_wr {
	enum smr_wr_type type;
	uint32_t life; /* of the link, when it was posted */
	uint64_t arg;
	uint64_t reads; /* the index of the first slot here that it reads; 0: none */
	uint64_t stamp; /* of the replica's clock of posts */
	uint64_t posted_ns;
};
/* The vqp of one kind between two members. Ours is connected to the number that the other end sent last. */
enum smr_end_kind { SMR_OUT, SMR_IN, SMR_BACK, SMR_ENDS }; /* OUT: we write into its log */
struct smr_end {
	struct hf_vqp *vqp;
	uint32_t theirs;   /* its number there; 0: not received */
	uint32_t target;   /* what that one was connected to; 0: nothing yet */
	uint32_t consumed; /* the last one that one of ours was connected to */
	bool used;         /* ours was connected */
	bool stale;        /* what ours was connected to is gone */
	int access;        /* that it begins with */
	uint64_t retry_ns;
	struct smr_wr wrs[SMR_WRS_MAX];
	uint32_t head, tail;
};

/* The progress of the leader, or of a candidate, with a member. */
enum smr_stage {
	SMR_STAGE_NONE,    /* nothing is requested */
	SMR_STAGE_ASKED,   /* the request is in its mailbox, or will be */
	SMR_STAGE_GRANTED, /* it has acked; the vqp is to learn of the grant */
	SMR_STAGE_HEAD,    /* promise and commit are being read */
	SMR_STAGE_READ,    /* they are known */
	SMR_STAGE_PROMISING,
	SMR_STAGE_PROMISED,
	SMR_STAGE_TAKING, /* its slots become ours */
	SMR_STAGE_BEHIND, /* what it lacks is gone here: it takes a snapshot */
	SMR_STAGE_CONFIRMED,
	SMR_STAGES,
};

/* What holds the ring up stands at an index, and since when; 0: nothing is held up. */
struct smr_stall {
	uint64_t at, since_ns;
};

struct smr_link {
	struct hf_smr *smr;
	uint8_t id;
	struct hf_peer *peer; /* NULL: out of reach */
	uint64_t incarnation;
	uint64_t config_index; /* of the configuration that it has applied, as it last said */
	uint64_t refused;      /* of the last process that was told that its place is taken */
	uint64_t missing_ns;   /* since when a node is where it is sought, and it is not there; 0: not so */
	bool missing_told;
	uint64_t log_addr, back_addr;
	uint32_t log_rkey, back_rkey;
	struct smr_end ends[SMR_ENDS];
	bool tell; /* our vqps have changed */
	/* election */
	struct smr_elect elect;
	uint64_t asked_ns; /* attended time when the READ left that is out; 0: none is */
	uint64_t public[SMR_PUBLIC_COUNT];
	bool known; /* they were read */
	/* durable mode: what is durable there, and belongs to that number; the one that counts once the next READ is
	 * back */
	uint64_t durable_number, durable, durable_next;
	bool durable_out; /* such a READ is */
	bool older;       /* it lacks what this incarnation of it has published: R-D4 */
	/* its requests, to us as the owner of a log */
	uint32_t granted; /* the last one that was granted */
	bool grant_holds;
	uint32_t told_request;
	uint8_t told_verdict;
	/* ours, to it */
	enum smr_stage stage;
	uint32_t life;    /* grows when the stage falls back: what was posted before means nothing */
	uint32_t request; /* in its mailbox */
	bool asked;       /* it was written there since the vqp came up */
	uint32_t grant;
	uint64_t promise, commit; /* as read */
	/* bringing its log to ours: [.., acked) is there, [acked, sent) is on its way */
	uint64_t acked, sent;
	bool fetching;
	uint64_t fetches;                  /* READs of slots so far: one that another step began may still be out */
	uint64_t hole;                     /* recovery: the first index without an entry; 0: none yet */
	bool amnesiac;                     /* it lost entries that it had */
	uint64_t fetched, fetched_end;     /* slots in the scratch memory; from == end: none */
	uint64_t posted_stamp, done_stamp; /* of WRITEs that need the grant */
	struct smr_stall stall;            /* it holds the leader's ring up */
	uint8_t *scratch;
	struct smr_snapshot *snapshot; /* that is being given to it; NULL: none */
	bool learner;                  /* it is to become a member */
};

#endif
