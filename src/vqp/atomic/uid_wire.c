#include "vqp/atomic/uid_wire.h"

static void set_local(struct ibv_sge *sge, void *at, uint32_t bytes)
{
	sge->addr = (uintptr_t)at;
	sge->length = bytes;
}

void uid_wire_access(
	const struct uid_wire *wire, const struct uid_access *access, struct ibv_send_wr *wr, struct ibv_sge *sge)
{
	struct uid_scratch *scratch = wire->scratch;
	uint64_t *ignored = scratch->ignored[access->index % UID_CONFIRMED_MAX];
	uint64_t slot = wire->arena_addr + access->index * sizeof(struct uid_slot);
	bool of_slot = access->kind == UID_CAS_SLOT || access->kind == UID_READ_SLOT || access->kind == UID_WRITE_SLOT;

	*sge = (struct ibv_sge){.lkey = wire->scratch_lkey};
	*wr = (struct ibv_send_wr){.sg_list = sge, .num_sge = 1};
	switch (access->kind) {
	case UID_WRITE_SLOT:
		scratch->out = access->slot;
		set_local(sge, &scratch->out, sizeof(scratch->out));
		wr->opcode = IBV_WR_RDMA_WRITE;
		break;
	case UID_READ_SLOT:
		set_local(sge, &scratch->in, sizeof(scratch->in));
		wr->opcode = IBV_WR_RDMA_READ;
		break;
	case UID_READ_TARGET:
		set_local(sge, &scratch->value, sizeof(scratch->value));
		wr->opcode = IBV_WR_RDMA_READ;
		break;
	case UID_CAS_SLOT:
		set_local(sge, wire->ignored ? &ignored[1] : &scratch->state, sizeof(scratch->state));
		wr->opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
		break;
	case UID_CAS_TARGET:
		set_local(sge, wire->ignored ? &ignored[0] : &scratch->value, sizeof(scratch->value));
		wr->opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
		break;
	}
	if (uid_access_is_cas(access)) {
		wr->wr.atomic.compare_add = access->compare;
		wr->wr.atomic.swap = access->swap;
		wr->wr.atomic.remote_addr = of_slot ? slot : access->target;
		wr->wr.atomic.rkey = of_slot ? wire->arena_atomic : wire->target_atomic;
	} else {
		wr->wr.rdma.remote_addr = of_slot ? slot : access->target;
		wr->wr.rdma.rkey = of_slot ? wire->arena_rkey : wire->target_rkey;
	}
}
