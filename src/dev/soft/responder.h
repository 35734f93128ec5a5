/* responder.h - the receive side of a queue pair: requests are executed in psn order, each once, and acknowledged.
 *
 *   expected   psn of the first request packet that has not executed: D4's evidence
 *   replay     the last executed atomics and their results: the source of replies to duplicates, and D4b's
 *              evidence
 *   pending    READ and atomic responses that are due, in psn order; an ACK or NAK is sent after them
 *
 * A READ is executed when its data has been read into packets, so requests behind it that change memory wait until then
 * (D1). Responses are made at once; when there is no room for them, the next request is refused and sent again.
 *
 * A duplicate WRITE or SEND is acknowledged again, a duplicate READ executed again. The PSN of an ACK is never that of
 * a READ or atomic, whose response is its acknowledgement: some requesters (Linux' rxe) would take it for the
 * response, and complete the wr without its data. */
#ifndef HOLDFAST_DEV_SOFT_RESPONDER_H
#define HOLDFAST_DEV_SOFT_RESPONDER_H

#include <holdfast/dev.h>

#include "base/list.h"
#include "dev/soft/flow.h"

#define RD_ATOMIC_MAX 16u
#define RECV_SGE_MAX  16u

struct pending_response {
	bool atomic, started;
	bool repeated;      /* requested again: the first response may have arrived meanwhile */
	uint32_t psn, psns; /* what is left of it */
	uint64_t va;
	uint32_t rkey, bytes;
	uint64_t original;
};

struct responder {
	struct soft_qp *qp;
	struct flow *flow;
	struct list busy;
	uint32_t expected, msn;

	enum { MESSAGE_NONE, MESSAGE_SEND, MESSAGE_WRITE } message; /* begun and not ended */
	uint64_t write_va;
	uint32_t write_rkey, write_left, message_bytes;
	bool has_recv; /* recv holds the receive that a SEND is filling */
	uint64_t recv_wr_id;
	uint32_t recv_num_sge;
	struct ibv_sge recv_sge[RECV_SGE_MAX];

	void *foot_to; /* where the footer of the packet at hand goes; NULL: it has none */
	uint64_t foot_value;

	bool nak_sent; /* for this gap; silent until `expected` arrives */
	bool ack_due;
	uint32_t ack_psn; /* of the last WRITE or SEND packet that executed */
	bool nak_due;
	bool fatal; /* nak_due is the last word: the qp goes to ERR with it */
	uint8_t nak_syndrome;
	struct hf_refusal refusal; /* what was refused for good; status 0: nothing */

	struct pending_response pending[RD_ATOMIC_MAX];
	unsigned pending_first, pending_count;
	struct hf_atomic_result replay[RD_ATOMIC_MAX];
	unsigned replay_next, replay_count;
};

void responder_init(struct responder *responder, struct soft_qp *qp, struct flow *flow);
void responder_start(struct responder *responder, uint32_t psn); /* INIT to RTR */
void responder_receive(struct responder *responder, const struct packet *packet);
/* A datagram into the next receive, behind its header; without a receive it is lost. */
void responder_datagram(
	struct responder *responder, const struct packet *packet, const uint8_t *header, uint32_t header_bytes);
/* Makes the responses that are due, as far as tx has room. False: not all of them. */
bool responder_respond(struct responder *responder);
/* True: tx is full. */
bool responder_acknowledge(struct responder *responder);
bool responder_transmit(struct responder *responder, bool hold_acks);
void responder_stop(struct responder *responder);    /* ERR: the receive in progress is flushed */
void responder_silence(struct responder *responder); /* fence: answers nothing any more */
void responder_forget(struct responder *responder);  /* RESET */
void responder_refused(struct responder *responder, uint8_t code, uint32_t psn); /* kept for hf_qp_refusal */
unsigned responder_atomic_results(const struct responder *responder, struct hf_atomic_result *results_out, unsigned n);

#endif
