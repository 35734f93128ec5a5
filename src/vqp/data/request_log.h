/* request_log.h - the request log of a vqp: a copy of every wr from its post until its completion was polled.
 *
 *      head                next               tail
 *   ... | posted to a qp ... | waiting ...... | free ...        positions only grow; slot = position & mask
 *
 * A copy owns its sges and its inline bytes, because a wr may have to be sent again after the caller has reused both.
 * One allocation when the vqp is made, none after that; it is not cleared, so a log that is never used takes no memory
 * but for its ends. Receives are kept in the same kind of log.
 *
 * Invariants:
 *   LOG-1  head <= next <= tail; wrs before `next` were posted to the current qp, or are done.
 *   LOG-2  Completions are returned in the order of positions, so a wr that is done waits for those before it. */
#ifndef HOLDFAST_VQP_DATA_REQUEST_LOG_H
#define HOLDFAST_VQP_DATA_REQUEST_LOG_H

#include <holdfast/vqp.h>

/* Of a receive: what came. */
struct request_log_received {
	enum ibv_wc_opcode opcode;
	uint32_t byte_len;
	uint32_t imm_data; /* as it is in ibv_wc */
	unsigned wc_flags;
};

/* A vqp has one for each wr that may be in flight, so it has no member that can be derived. */
struct request_log_wr {
	struct ibv_send_wr wr; /* first; sg_list points to the log's own sges */
	uint64_t message;      /* number, from 1, of a wr that takes a receive; 0 otherwise */
	uint64_t bytes;        /* of a receive: received */
	uint64_t landed;       /* of a WRITE: the bytes that took effect on failed paths; it resumes behind them */
	uint64_t log_entry;    /* of the completion log, written behind it; 0: none */
	uint32_t psns;         /* packets that it takes: on the path it was posted to, before that an upper bound */
	/* The path it was posted on, by its our_key, and has no verdict of; qp_num 0: none, it is to be posted. */
	uint32_t qp_num, first_psn, mtu_bytes;
	uint32_t log_number;
	struct request_log_received received;
	enum ibv_wc_status status;
	enum ibv_wc_status
		refused; /* refused by the responder, with a lost NAK: it is not posted again. 0: it was not */
	enum hf_wc_outcome outcome; /* of one that failed */
	uint8_t rail;               /* of that qp */
	bool footed;                /* the entry and the wr execute together or not at all */
	bool log_counted;           /* its entry has taken a wr of its own once */
	bool idempotent;
	bool doubted;  /* it was in doubt, and is sent again: it may have executed, whatever becomes of it later */
	bool plain;    /* an atomic of a region in HF_ATOMIC_PLAIN: what is in doubt is sent again */
	bool compares; /* and was, a CAS: if it finds its own value it had executed */
	bool signaled; /* its owner wants a completion when it succeeds */
	bool reports;  /* a completion was requested from the device, for the owner or to make room */
	bool done;
	bool polled;      /* its completion, ahead of others before it */
	bool sent_before; /* handed to a qp that has failed since */
};
_Static_assert(sizeof(struct request_log_wr) <= 224, "thousands of vqps have this for every wr that may be in flight");

struct request_log {
	uint64_t head, next, tail;
	uint64_t noted; /* what is before it was looked at for completions to tell of (vcq_note) */
	uint32_t lent;  /* slots from tail on that the application fills */
	uint32_t capacity, mask, max_sge, max_inline;
	struct request_log_wr *slots;
	struct ibv_sge *sges;
	uint8_t *inlines;
	/* Of the completion log: the last entry that is known to be there; 0: none. That of an atomic which has
	 * completed by its answer may be missing until something behind it completes. */
	struct log_place {
		uint64_t entry;
		uint32_t number;
	} last, answered;
};

int request_log_init(struct request_log *log, uint32_t capacity, uint32_t max_sge, uint32_t max_inline);
void request_log_free(struct request_log *log);
size_t request_log_bytes(const struct request_log *log); /* what it takes once every slot was used */

static inline struct request_log_wr *request_log_at(const struct request_log *log, uint64_t position)
{
	return &log->slots[position & log->mask];
}

static inline bool request_log_full(const struct request_log *log)
{
	return log->tail - log->head >= log->capacity;
}

/* The next free slot with sges (and inline bytes) copied; it counts when log->tail is moved. */
struct request_log_wr *request_log_copy(struct request_log *log, const struct ibv_send_wr *wr);
/* One more slot for the application to fill, empty, with room for sges; NULL: full. */
struct ibv_send_wr *request_log_lend(struct request_log *log);
/* The first of those, as request_log_copy: sges (and inline bytes) that are elsewhere are copied. */
struct request_log_wr *request_log_adopt(struct request_log *log);

/* Drops all entries, done or not; the next one has the next position. */
void request_log_empty(struct request_log *log);

/* Prefetches the posted wrs and the memory that atomics answer to: verdicts are about to be entered, and the entries
 * were written long ago. */
void request_log_fetch(const struct request_log *log);

/* Success of all that was posted up to and including `position` (D2). Returns how many became done. */
uint32_t request_log_retire(struct request_log *log, uint64_t position);
/* The eight bytes there of what the wr reads into, which may lie in several sges; those that it has not are 0. */
uint64_t request_log_word(const struct request_log_wr *entry, uint64_t offset);
void request_log_put_word(const struct request_log_wr *entry, uint64_t offset, uint64_t value);
/* Of one that fails and is not refused: whether it may have executed, in part at least. */
enum hf_wc_outcome request_log_outcome(const struct request_log_wr *entry);
/* Of an atomic: what it found. */
void request_log_answer(const struct request_log_wr *entry, uint64_t original);
/* The status of the oldest that is not done, when that was refused. */
enum ibv_wc_status request_log_refused(const struct request_log *log);
/* What is there from `position` on never left, although it was posted. */
void request_log_take_back(struct request_log *log, uint64_t position);
/* How the wrs end that are not done when a vqp fails: the oldest of them, and the others. */
struct request_log_end {
	enum ibv_wc_status first, rest;
	bool refused; /* the responder refused the oldest, and executed nothing behind it */
};
/* Completes every wr that is not done. A posted wr without a verdict completes as unknown. */
void request_log_fail(struct request_log *log, const struct request_log_end *end);

#endif
