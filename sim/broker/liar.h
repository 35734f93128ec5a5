/* liar.h - a client that has tokens as others have, and then writes and says what no client may: bytes at wrong places
 * and of wrong lengths, batches that are none, orders and ids that are not due, messages of any bytes, and all of it
 * again when its grant is over. It shares the broker and its partitions with honest clients (broker_rdma.h), to whom it
 * must make no difference but time. */
#ifndef HOLDFAST_SIM_BROKER_LIAR_H
#define HOLDFAST_SIM_BROKER_LIAR_H

#include "sim/broker/broker_rdma.h"
#include "sim/broker/wire.h"

struct rdma_liar {
	struct rdma_sim_end end;
	struct wire wire;
	struct hf_vpd *pd;
	struct hf_vcq *cq;
	struct hf_vqp *vqp; /* NULL: it asks for a token */
	uint8_t *memory;
	struct hf_vmr *mr;
	uint8_t kind; /* enum access_kind, of the token */
	uint64_t address, next_ns, end_ns;
	uint32_t key, bytes;
	uint16_t id, order;
	bool is_up;
};

extern const struct program rdma_liar_program; /* its context is the end of a struct rdma_liar */

#endif
