#include "own.h"

#include <stdlib.h>
#include <unistd.h>

static const unsigned partner[THREADS] = {1, 0, 2, 3}; /* 2 and 3 are connected to themselves */

static void connect_own(struct side *side, unsigned access)
{
	union ibv_gid own;

	open_device(side);
	side->channel = ibv_create_comp_channel(side->context);
	side->memory = calloc(1, BYTES);
	side->mr = ibv_reg_mr(side->pd, side->memory, BYTES, access | IBV_ACCESS_LOCAL_WRITE);
	if (side->mr == NULL && (access & IBV_ACCESS_REMOTE_ATOMIC) != 0)
		_exit(EXIT_SKIP);
	check(side->mr != NULL && side->channel != NULL);
	check(ibv_query_gid(side->context, 1, 0, &own) == 0);
	for (unsigned i = 0; i < THREADS; i++) {
		side->cq[i] = ibv_create_cq(side->context, 2 * DEPTH, side, side->channel, 0);
		side->qp[i] = make_qp(side, side->cq[i], IBV_QPT_RC);
		check(side->cq[i] != NULL && side->qp[i] != NULL);
		to_init(side->qp[i], access);
	}
	for (unsigned i = 0; i < THREADS; i++) {
		check(to_rtr(side->qp[i], &own, side->qp[partner[i]]->qp_num) == 0);
		to_rts(side->qp[i]);
	}
}

/* Memory: a counter and received messages in the first half; what each queue pair sends in the second. */
void queue_pairs_of_one_process_reach_each_other_and_themselves(struct side *side)
{
	uint64_t *words, here;

	connect_own(side, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
	words = (uint64_t *)side->memory;
	here = (uintptr_t)side->memory + BYTES / 4;
	for (unsigned i = 0; i < THREADS; i++) {
		words[BYTES / 16 + i] = 100 + i;
		check(post(side, i, IBV_WR_RDMA_WRITE, 1, here, side->mr->rkey) == 0);
		check(take_done(side, i) == 1);
		check(words[BYTES / 32] == 100 + i);
		words[BYTES / 32] = 200 + i;
		check(post(side, i, IBV_WR_RDMA_READ, 2, here, side->mr->rkey) == 0);
		check(take_done(side, i) == 2);
		check(words[BYTES / 16 + i] == 200 + i);
		post_recv(side, partner[i], 3);
		check(post(side, i, IBV_WR_SEND, 4, 0, 0) == 0);
		/* On the queue of one that is connected to itself the two are in any order. */
		check(take_done(side, i) + take_done(side, partner[i]) == 3 + 4);
		check(words[0] == 200 + i);
	}
	close_side(side, THREADS);
}

void a_queue_pair_to_itself_that_fails_flushes_both_its_queues(struct side *side)
{
	unsigned refused = 0, flushed = 0;
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	connect_own(side, IBV_ACCESS_REMOTE_WRITE);
	post_recv(side, 2, 3);
	check(post(side, 2, IBV_WR_RDMA_WRITE, 1, side->mine.addr, side->mr->rkey + 1) == 0);
	check(post(side, 2, IBV_WR_SEND, 2, 0, 0) == 0);
	for (unsigned i = 0; i < 3; i++) {
		struct ibv_wc wc = poll_one(side->cq[2]);

		check(wc.qp_num == side->qp[2]->qp_num);
		refused += wc.wr_id == 1 && wc.status == IBV_WC_REM_ACCESS_ERR;
		flushed += wc.wr_id != 1 && wc.status == IBV_WC_WR_FLUSH_ERR;
	}
	check(refused == 1 && flushed == 2);
	check(ibv_query_qp(side->qp[2], &attr, IBV_QP_STATE, &init) == 0 && attr.qp_state == IBV_QPS_ERR);
	post_recv(side, 2, 4);
	check(poll_one(side->cq[2]).status == IBV_WC_WR_FLUSH_ERR);
	check(ibv_query_qp(side->qp[3], &attr, IBV_QP_STATE, &init) == 0 && attr.qp_state == IBV_QPS_RTS);
	attr.qp_state = IBV_QPS_ERR;
	post_recv(side, 3, 5);
	check(ibv_modify_qp(side->qp[3], &attr, IBV_QP_STATE) == 0);
	check(poll_one(side->cq[3]).status == IBV_WC_WR_FLUSH_ERR);
	close_side(side, THREADS);
}

void queue_pairs_of_one_process_go_on_through_cuts(struct side *side)
{
	uint64_t *counter, sum = 0;

	connect_own(side, IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_REMOTE_WRITE);
	counter = (uint64_t *)side->memory;
	for (int cut = 0; cut < CUTS; cut++) {
		for (unsigned i = 0; i < 2 * DEPTH; i++)
			check(post(side, i % THREADS, IBV_WR_ATOMIC_FETCH_AND_ADD, i, (uintptr_t)counter,
				      side->mr->rkey) == 0);
		switch_link(side, "down", cut % 2);
		for (unsigned i = 0; i < 2 * DEPTH; i++)
			check(take_done(side, i % THREADS) == i);
		switch_link(side, "up", cut % 2);
		sum += 2 * DEPTH;
		check(*counter == sum);
	}
	close_side(side, THREADS);
}
