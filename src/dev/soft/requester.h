/* requester.h - the send side of a queue pair: posted, sent and acknowledged wrs.
 *
 * The send queue is a ring of slots between the application (requester_post) and the engine. Internal psns have 64
 * bits; the wire's are the low 24. A wr's psns are fixed when it is posted.
 *
 *   slots  tail ........ cursor ........ head        tail: oldest not completed; cursor: being sent; head: next post
 *   psns   acked <= next <= sent <= posted           acked: oldest not acknowledged, lies in the slot at tail
 *
 * A retransmission (after a NAK, a time-out, a lost response) sets next to acked and cursor to tail. A READ is
 * requested in pieces, so that responses are bounded by the same window as requests; the pieces' borders do not depend
 * on losses.
 *
 * The window starts at a size that fits every socket buffer, grows with acknowledgements and is halved at a loss: the
 * peer's buffer is not known, and a lost burst costs far more than a smaller window. */
#ifndef HOLDFAST_DEV_SOFT_REQUESTER_H
#define HOLDFAST_DEV_SOFT_REQUESTER_H

#include <holdfast/dev.h>

#include "base/list.h"
#include "dev/soft/flow.h"
#include "dev/soft/ring.h"

struct send_slot {
	uint64_t wr_id, psn, bytes;
	uint32_t psns, num_sge;
	enum ibv_wr_opcode opcode;
	unsigned send_flags;
	enum ibv_wc_status status; /* not success: found wrong before it was sent; completes in its turn */
	bool checked;
	uint32_t imm, rkey;
	uint64_t va, compare_add, swap;
	struct hf_footer footer;
	struct hf_dc_dest dest; /* of a DC initiator's wr */
	struct ibv_sge sge[];   /* max_send_sge of them, then the inline data */
};

struct requester {
	struct soft_qp *qp;
	struct flow flow;
	struct list busy, timed;
	struct ring ring; /* of send_slot */
	uint32_t max_sge;
	_Atomic uint64_t posted;      /* psn; the application's */
	_Atomic uint64_t acked_shown; /* acked, for the application */
	uint64_t undriven;            /* packets posted since post last drove the NIC; the application's */
	uint32_t cursor;
	uint64_t acked, next, sent;
	uint64_t ack_asked; /* for what is before this psn */
	unsigned reads_out; /* READ pieces and atomics that wait for a response */
	unsigned retries, rnr_retries;
	uint32_t window, window_credit; /* in packets; acknowledged ones that have not made it grow yet */
	bool window_was_too_big;
	uint64_t ack_due_ns, rnr_due_ns; /* 0: not set */
	uint64_t period_end_ns;          /* then a retry is used up: ack_due_ns may be earlier */
	uint64_t resend_ns;              /* how long after the last time it sends again */
	bool went_back;                  /* since acked last moved */
	struct hf_dc_dest dest;          /* DC: where flow leads */
	bool connected;                  /* DC: the connect packet left since the stream was (re)started */
	uint64_t life; /* DC: distinguishes this use of the qp from earlier ones; its last byte counts */
};

int requester_init(struct requester *requester, struct soft_qp *qp, const struct ibv_qp_cap *cap);
void requester_free(struct requester *requester);
void requester_start(struct requester *requester, uint32_t psn, uint64_t now_ns); /* RTR to RTS */

/* The application's end. dest: of a DC initiator, else NULL. footers: of each wr, or NULL. */
int requester_post(struct requester *requester, const struct hf_dc_dest *dest, struct ibv_send_wr *wr,
	const struct hf_footer *footers, struct ibv_send_wr **bad_wr);

/* After a post of this many psns: with enough packets in flight the sender will poll for acknowledgements soon, and can
 * send the posted wrs then, in fewer system calls. */
bool requester_may_wait(struct requester *requester, uint64_t psns);

/* True: tx is full. */
bool requester_transmit(struct requester *requester, uint64_t now_ns);
void requester_receive(struct requester *requester, const struct packet *packet, uint64_t now_ns);
bool requester_tick(struct requester *requester, uint64_t now_ns); /* false: it waits for no time */
void requester_flush(struct requester *requester);
void requester_forget(struct requester *requester);

/* ---- requester_send.c to requester_ack.c ---- */

struct send_slot *requester_tail_slot(struct requester *requester); /* NULL: nothing is outstanding */
void requester_go_back(struct requester *requester);
/* The slot at tail is done with; a wc if it is due. */
void requester_complete(struct requester *requester, enum ibv_wc_status status);
void requester_fail(struct requester *requester, enum ibv_wc_status status);
void requester_arm_timer(struct requester *requester, uint64_t now_ns);
void requester_reset_window(struct requester *requester);
void requester_grow_window(struct requester *requester, uint64_t packets); /* that were acknowledged */
void requester_shrink_window(struct requester *requester);
/* The psn behind the piece of a READ (or atomic) that psn lies in. */
uint64_t requester_piece_end(const struct requester *requester, const struct send_slot *slot, uint64_t psn);
static inline uint8_t *send_slot_inline(const struct requester *requester, struct send_slot *slot)
{
	return (uint8_t *)(slot->sge + requester->max_sge);
}

#endif
