/* Work requests as the tests want them: one sge in memory 0. */
#include "pair.h"

#include <arpa/inet.h>

#define IOVA_BASE 0x10000000u

uint64_t iova_of(const struct side *side, uint64_t offset)
{
	return (side->mem[0] ^ IOVA_BASE) + offset;
}

static struct wr *one_sge(struct wr *wr, struct side *from, enum ibv_wr_opcode opcode, uint64_t local, uint32_t bytes)
{
	*wr = (struct wr){.wr = {.opcode = opcode, .num_sge = bytes == 0 ? 0 : 1}};
	wr->wr.sg_list = wr->sge;
	wr->sge[0] = (struct ibv_sge){.addr = from->mem[0] + local, .length = bytes, .lkey = from->lkey[0]};
	return wr;
}

static struct wr *to_remote(struct wr *wr, struct side *to, uint64_t remote)
{
	wr->wr.wr.rdma.remote_addr = iova_of(to, remote);
	wr->wr.wr.rdma.rkey = to->rkey[0];
	return wr;
}

struct wr *wr_write(struct wr *wr, struct side *from, struct side *to, uint64_t local, uint64_t remote, uint32_t bytes)
{
	return to_remote(one_sge(wr, from, IBV_WR_RDMA_WRITE, local, bytes), to, remote);
}

struct wr *wr_read(struct wr *wr, struct side *from, struct side *to, uint64_t local, uint64_t remote, uint32_t bytes)
{
	return to_remote(one_sge(wr, from, IBV_WR_RDMA_READ, local, bytes), to, remote);
}

struct wr *wr_send(struct wr *wr, struct side *from, uint64_t local, uint32_t bytes)
{
	return one_sge(wr, from, IBV_WR_SEND, local, bytes);
}

static struct wr *atomic(struct wr *wr, struct side *to, uint64_t remote, uint64_t compare_add, uint64_t swap)
{
	if (to->no_atomics)
		skip_because("the memory is registered without atomics");
	wr->wr.wr.atomic.remote_addr = iova_of(to, remote);
	wr->wr.wr.atomic.rkey = to->rkey[0];
	wr->wr.wr.atomic.compare_add = compare_add;
	wr->wr.wr.atomic.swap = swap;
	return wr;
}

struct wr *wr_faa(struct wr *wr, struct side *from, struct side *to, uint64_t local, uint64_t remote, uint64_t add)
{
	return atomic(one_sge(wr, from, IBV_WR_ATOMIC_FETCH_AND_ADD, local, 8), to, remote, add, 0);
}

struct wr *wr_cas(struct wr *wr, struct side *from, struct side *to, uint64_t local, uint64_t remote, uint64_t compare,
	uint64_t swap)
{
	return atomic(one_sge(wr, from, IBV_WR_ATOMIC_CMP_AND_SWP, local, 8), to, remote, compare, swap);
}

struct wr *wr_imm(struct wr *wr, uint32_t imm)
{
	wr->wr.opcode = wr->wr.opcode == IBV_WR_SEND ? IBV_WR_SEND_WITH_IMM : IBV_WR_RDMA_WRITE_WITH_IMM;
	wr->wr.imm_data = htonl(imm);
	return wr;
}

struct recv *recv_into(struct recv *recv, struct side *side, uint64_t local, uint32_t bytes)
{
	*recv = (struct recv){.wr = {.num_sge = bytes == 0 ? 0 : 1}};
	recv->wr.sg_list = recv->sge;
	recv->sge[0] = (struct ibv_sge){.addr = side->mem[0] + local, .length = bytes, .lkey = side->lkey[0]};
	return recv;
}

void post(struct side *side, uint32_t qp, struct wr *wr, uint64_t wr_id)
{
	wr->wr.wr_id = wr_id;
	wr->wr.send_flags |= IBV_SEND_SIGNALED;
	assert_int_equal(side_post_send(side, qp, &wr->wr, NULL), 0);
}

void post_quiet(struct side *side, uint32_t qp, struct wr *wr, uint64_t wr_id)
{
	wr->wr.wr_id = wr_id;
	wr->wr.send_flags &= ~(unsigned)IBV_SEND_SIGNALED;
	assert_int_equal(side_post_send(side, qp, &wr->wr, NULL), 0);
}

void post_receive(struct side *side, uint32_t qp, struct recv *recv, uint64_t wr_id)
{
	recv->wr.wr_id = wr_id;
	assert_int_equal(side_post_recv(side, qp, &recv->wr, NULL), 0);
}
