/* execution.h - the truth about one-directional flows of work requests, seen at the bus, and what it is held against.
 *
 * A flow is what one end of a qp asks of the other. Each wr's payload says which flow, wr and byte it is, and
 * each atomic's operand is used once, so that the bus shows which wr takes effect at any moment. Claims, by name:
 *   once-in-order   every effect is the next byte of the next wr of its flow: none twice, none early (D1, V1, V2)
 *   completed       a success says that the wr and all before it took effect; values are the effect's (D2, V3, V5)
 *   fenced          nothing takes effect, and no response lands, after the fence returned (D3)
 *   executed-psn    the device's executed psn and atomic results are what happened (D4, D4b)
 *   receives        the k-th message is in the k-th receive, with its immediate and length
 *   landing         nothing lands in memory of a wr that completed (V4)
 *   memory          at rest, memory holds what the effects in their order leave (replayed into a shadow)
 *   isolation       a NIC writes only where somebody asked it to
 *   access          no WRITE and no atomic takes effect while the responder denies it (D5)
 *
 * A flow of a vqp runs over several NICs and promises more, but for WRITEs that are declared idempotent, which may be
 * repeated until they complete:
 *   after-completion  nothing of a wr that has completed, with any status, takes effect (V4)
 *   outcome           a wr that completed as "not executed" did not execute, not even in part (V1)
 * What the posted queue of a dying NIC takes with it did not execute: sent again, it executes once. When its wr had
 * been acknowledged already, nothing behind it may take effect any more (V2): the vqp has to fail, unless no entry of a
 * log would show it (unlogged, or a WRITE declared idempotent). */
#ifndef HOLDFAST_SIM_CHECKERS_EXECUTION_H
#define HOLDFAST_SIM_CHECKERS_EXECUTION_H

#include <holdfast/dev.h>

#include "sim/bus.h"

enum op_kind { OP_WRITE, OP_WRITE_IMM, OP_SEND, OP_READ, OP_CAS, OP_FAA };

struct op {
	enum op_kind kind;
	uint32_t number; /* in its flow, from 0 */
	uint32_t psn, psns;
	uint32_t bytes;
	uint64_t target;            /* remote address; of a SEND: unused */
	uint64_t argument, compare; /* of an atomic */
	uint32_t message;           /* SEND, WRITE_IMM: the k-th */
	uint32_t imm;
	bool unsignaled;
	bool fenced;     /* IBV_SEND_FENCE: what it writes is not seen by READs before it */
	bool idempotent; /* a WRITE of a vqp that may be repeated, and all behind it with it */
	/* the truth */
	uint32_t done_bytes;
	bool executed;
	bool lost;     /* it had executed, and a NIC died with it */
	bool vain;     /* a CAS that failed, and a NIC died with what it had posted before: to come again is no harm */
	bool given_up; /* and nobody could know: what is behind it has taken effect */
	bool repeated; /* it took effect before, at least in part, and its turn came again */
	uint64_t original;
	uint64_t sequence; /* of its last effect, among all */
	const struct nic *nic;
	/* what the requester saw */
	bool completed, failed;
	uint64_t posted_ns;
};

static inline bool op_is_atomic(const struct op *op)
{
	return op->kind == OP_CAS || op->kind == OP_FAA;
}

/* Memory that a checker replays: `shadow` is what it must hold at rest. */
struct area {
	struct list node;
	uint64_t addr, bytes;
	uint8_t *shadow;
	bool lossy; /* a NIC died with writes for it */
};

struct flow {
	struct list node;
	struct world *world;
	struct execution *execution;
	struct area *target, *words;
	uint64_t receives; /* address of the receive buffers */
	uint64_t landing;  /* of the requester's buffers for responses, one of slot_bytes per wr in flight */
	uint32_t slots, slot_bytes;
	uint16_t tag;
	uint32_t mtu_bytes;
	struct op *ops;
	uint32_t count, capacity, front; /* front: the first that has not taken effect */
	uint32_t messages, next_completed, received;
	uint32_t received_from; /* no op before it is of a message that was not received */
	bool responder_fenced, requester_fenced;
	bool denied; /* the responder permits nothing at the moment */
	/* of a vqp */
	bool exactly_once;
	bool unlogged;        /* its requester keeps no log of what executed, but for messages */
	bool restarts;        /* evidence speaks of whole wrs only: a WRITE that executed in part begins again */
	bool receives_closed; /* its receives were handed back */
};

struct execution {
	struct world *world;
	struct list flows, areas, observers;
	struct list owned; /* areas; when there are any, what is written elsewhere is the library's own business */
	uint16_t last_tag;
	uint64_t effects;
};

void execution_init(struct execution *execution, struct world *world);
void execution_free(struct execution *execution);
void execution_watch(struct execution *execution, struct nic_bus *bus);

struct area *execution_add_area(struct execution *execution, void *addr, size_t bytes);
void execution_drop_area(struct execution *execution, struct area *area); /* its flows are closed */
/* Memory of applications. */
void execution_own(struct execution *execution, const void *addr, size_t bytes);
/* At rest: everything that was posted is visible. */
void area_check(struct execution *execution, const struct area *area);

struct flow *execution_add_flow(struct execution *execution, struct area *target, struct area *words, void *receives,
	void *landing, uint32_t slots, uint32_t slot_bytes, uint32_t mtu_bytes);
/* Both sides are fenced, or gone: nothing of it may happen any more. */
void execution_drop_flow(struct execution *execution, struct flow *flow);

/* Bytes [at, at + bytes) of a wr's payload. */
void flow_payload(const struct flow *flow, uint32_t number, uint32_t at, uint32_t bytes, uint8_t *out);
/* Before the wr is posted; number, message and the rest are filled in. The pointer holds until the next post. */
struct op *flow_post(struct flow *flow, const struct op *op);
void flow_completed(struct flow *flow, const struct ibv_wc *wc); /* wr_id is the op's number */
void flow_received(struct flow *flow, const struct ibv_wc *wc);  /* wr_id is the receive's number */
void flow_disclaimed(struct flow *flow, uint32_t number);        /* before flow_completed: "not executed" */
void flow_check_psn(struct flow *flow, uint32_t executed_psn);
void flow_check_atomics(struct flow *flow, const struct hf_atomic_result *results, unsigned n, unsigned kept);

#endif
