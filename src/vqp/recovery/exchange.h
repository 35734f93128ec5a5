/* exchange.h - messages of the exchange (recovery.h). Their fields, as bytes: exchange.c. */
#ifndef HOLDFAST_VQP_RECOVERY_EXCHANGE_H
#define HOLDFAST_VQP_RECOVERY_EXCHANGE_H

#include "vqp/access.h"
#include "vqp/kinds.h"
#include "vqp/recovery/evidence.h"

/* Why the sender fences. */
struct fence_reason {
	uint8_t failback;
	uint8_t suspect;   /* the rail of the sender's qp seems to be broken */
	uint8_t wr_failed; /* a wr of the sender's failed as it does when the path is broken */
};

struct fence_message {
	struct message_head head;
	struct fence_reason reason;
};

struct state_message {
	struct message_head head;
	struct fence_reason reason;
	uint8_t fenced; /* 0: the device could not promise it */
	uint8_t has_psn;
	uint32_t executed_psn;
	uint8_t about_rail; /* of the sender; about_qp: what the receiver's wrs there are known by; 0: none */
	uint32_t about_qp;
	uint8_t ended;   /* the qp could not be fenced: its device may have died with writes under way */
	uint8_t refused; /* enum ibv_wc_status, of the request at refused_psn; 0: none */
	uint32_t refused_psn;
	uint8_t in_doubt, atomic_count;
	struct hf_atomic_result atomics[EVIDENCE_ATOMICS];
	uint8_t has_log;
	uint32_t log_number;
	uint64_t log_entry;
	uint64_t consumed; /* messages taken by receives since the vqp was made */
	uint8_t resumes;   /* a WRITE_WITH_IMM of the sender's may go on in its middle */
	struct access_told granted;
	uint32_t up; /* bit per rail of the sender */
};

struct ready_message {
	struct message_head head;
	uint8_t zero;
};

struct closed_message {
	struct message_head head;
	uint8_t zero;
	uint32_t about_qp;
};

struct log_message {
	struct message_head head;
	uint64_t addr;
	uint32_t entries; /* a power of two */
	uint32_t footers; /* bit per rail of the sender: its device supports them */
	uint32_t rkeys[HF_RAILS_MAX];
};
void exchange_say_log(struct hf_vqp *vqp, struct log_message *message); /* fills in its head */

#endif
