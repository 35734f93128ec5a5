#include "receives.h"

#define RECEIVES 512 /* as perftest posts */
#define MOST     300 /* without a poll of the receiver */
#define SOME     4

static void share_receives(struct side *side, unsigned n)
{
	struct ibv_sge sge = {.addr = (uintptr_t)side->memory, .length = 8, .lkey = side->mr->lkey};
	struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;

	for (unsigned i = 0; i < n; i++)
		check(ibv_post_srq_recv(side->srq, &wr, &bad) == 0);
}

static void send_many(struct side *side, unsigned i, unsigned n)
{
	for (unsigned sent = 0; sent < n; sent++) {
		check(post(side, i, IBV_WR_SEND, sent, 0, 0) == 0);
		check(take_done(side, i) == sent);
	}
}

static void take_many(struct side *side, unsigned i, unsigned n)
{
	for (unsigned taken = 0; taken < n; taken++)
		(void)take_done(side, i);
}

void one_that_consumes_has_most_receives_and_others_find_some(struct side *side)
{
	struct ibv_qp_attr impatient = {.rnr_retry = 0}; /* a message without a receive fails */
	struct ibv_srq_init_attr init = {.attr = {.max_wr = RECEIVES, .max_sge = 1}};

	open_device(side);
	side->srq = ibv_create_srq(side->pd, &init);
	check(side->srq != NULL);
	connect_opened(side, THREADS, ALL_ACCESS);
	for (unsigned i = 0; i < THREADS; i++)
		check(ibv_modify_qp(side->qp[i], &impatient, IBV_QP_RNR_RETRY) == 0);
	if (side->number == 0)
		share_receives(side, RECEIVES);
	meet(side);
	if (side->number == 1)
		send_many(side, 0, 1);
	else
		take_many(side, 0, 1);
	meet(side);
	if (side->number == 1) {
		send_many(side, 0, MOST);
		for (unsigned i = 1; i < THREADS; i++)
			send_many(side, i, SOME);
	}
	meet(side);
	if (side->number == 0) {
		take_many(side, 0, MOST);
		for (unsigned i = 1; i < THREADS; i++)
			take_many(side, i, SOME);
	}
	meet(side);
	for (unsigned i = 0; i < THREADS; i++)
		check(ibv_destroy_qp(side->qp[i]) == 0);
	check(ibv_destroy_srq(side->srq) == 0);
}
