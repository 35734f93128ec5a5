#include "fleet.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "vqp/path/pool.h"
#include "vqp/recovery/exchange.h"

#define HELD 1000u

struct hf_vqp *ours[FLEET_MAX], *theirs[FLEET_MAX];
unsigned fleet_size;
bool fleet_is_uneven;
uint32_t fleet_queue_most;

/* ---- vqps ---- */

static struct hf_vqp *make(struct pair *pair, struct end *end, bool larger)
{
	struct hf_vqp_init init = {.send_cq = end->cq,
		.recv_cq = end->cq,
		.cap = {.max_send_wr = FLEET_DEPTH,
			.max_recv_wr = FLEET_DEPTH,
			.max_send_sge = larger ? 4 : 1,
			.max_recv_sge = 1,
			.max_inline_data = larger ? 64 : 0},
		.access = pair->access};
	struct hf_vqp *vqp = NULL;

	assert_int_equal(hf_vqp_create(end->pd, &init, &vqp), 0);
	return vqp;
}

static struct hf_vqp *on_request(const struct hf_vqp_request *request, void *reply, size_t *reply_bytes, void *context)
{
	struct pair *pair = context;
	unsigned i = 0;

	(void)request, (void)reply, (void)reply_bytes;
	while (i < fleet_size && theirs[i] != NULL)
		i++;
	assert_in_range(i, 0, FLEET_MAX - 1);
	return theirs[i] = make(pair, &pair->b, fleet_is_uneven && i % 2 == 1);
}

void fleet_open(struct pair *pair, enum hf_policy policy)
{
	fleet_size = 0;
	memset(theirs, 0, sizeof(theirs));
	pair_open(pair, policy);
	for (unsigned i = 0; i < 4 && fleet_queue_most > 0; i++)
		hf_node_dev(i < 2 ? pair->a.node : pair->b.node, i % 2)->attr.max_qp_wr = fleet_queue_most;
	pair->service.on_request = on_request;
	assert_int_equal(hf_peer_connect(pair->a.node, &pair->control[1][0], 1, &pair->a.peer, NULL), 0);
}

void fleet_ask(struct pair *pair, unsigned i)
{
	ours[i] = make(pair, &pair->a, false);
	assert_int_equal(hf_vqp_connect(ours[i], pair->a.peer, "test", NULL, 0), 0);
}

void fleet_connect(struct pair *pair, unsigned n)
{
	while (fleet_size < n)
		fleet_ask(pair, fleet_size++);
	assert_true(pair_until(pair, fleet_is_up));
}

bool fleet_is_up(struct pair *pair)
{
	(void)pair;
	for (unsigned i = 0; i < fleet_size; i++)
		if (hf_vqp_state(ours[i]) != HF_VQP_UP || theirs[i] == NULL || hf_vqp_state(theirs[i]) != HF_VQP_UP)
			return false;
	return true;
}

/* ---- standby qps and the way back ---- */

bool fleet_has_pool(struct pair *pair)
{
	return ours[0]->pool != NULL && pool_pick(ours[0], 0) != NULL && pool_pick(ours[0], 1) != NULL &&
	       fleet_is_up(pair);
}

void fleet_open_with_pool(struct pair *pair)
{
	fleet_open(pair, HF_POLICY_VARUNA);
	fleet_connect(pair, FLEET_MAX);
	assert_true(pair_until(pair, fleet_has_pool));
}

void fleet_hold_rebuilds(struct pair *pair)
{
	vqps_of(pair->a.node)->rebuilds.running_count += HELD;
}

void fleet_let_rebuild(struct pair *pair, unsigned which)
{
	for (unsigned i = 0; i < FLEET_MAX; i++) {
		bool may = which == FLEET_MAX || which == i;

		ours[i]->rebuild.at_ns = may ? 0 : UINT64_MAX;
		ours[i]->rebuild.backoff_ns = may ? 0 : UINT64_MAX / 4;
	}
	vqps_of(pair->a.node)->rebuilds.running_count -= HELD;
}

bool fleet_is_shared(struct pair *pair)
{
	for (unsigned i = 0; i < FLEET_MAX; i++)
		if (ours[i]->path->shared == NULL || theirs[i]->path->shared == NULL)
			return false;
	return fleet_is_up(pair);
}

void fleet_lose_rail_0(struct pair *pair)
{
	fleet_hold_rebuilds(pair);
	pair_cut(pair, 0, false);
	fleet_write_all(pair);
	fleet_collect(pair, FLEET_MAX);
	assert_true(pair_until(pair, fleet_is_shared));
}

void fleet_open_on_standby(struct pair *pair)
{
	fleet_open_with_pool(pair);
	fleet_lose_rail_0(pair);
}

static bool all_dedicated_on(unsigned rail)
{
	for (unsigned i = 0; i < FLEET_MAX; i++)
		if (ours[i]->path->shared != NULL || hf_vqp_rail(ours[i]) != (int)rail ||
			theirs[i]->path->shared != NULL || hf_vqp_rail(theirs[i]) != (int)rail)
			return false;
	return true;
}

bool fleet_is_on_0(struct pair *pair)
{
	return fleet_is_up(pair) && all_dedicated_on(0);
}

bool fleet_is_on_1(struct pair *pair)
{
	return fleet_is_up(pair) && all_dedicated_on(1);
}

void fleet_hear(struct hf_peer *peer, unsigned number, struct message_head *message)
{
	message->kind = peer->node->kinds.by_number[number];
	message->kind->take(peer, message);
}

void fleet_hear_fence(struct hf_vqp *vqp, bool wr_failed)
{
	struct fence_message fence = {
		.head = {.to = vqp->num, .from = vqp->remote_num, .epoch = vqp->recovery.epoch + 1},
		.reason = {.wr_failed = wr_failed}};

	fleet_hear(vqp->peer, MESSAGE_FENCE, &fence.head);
}

/* ---- traffic ---- */

int fleet_write(struct pair *pair, unsigned i, uint32_t rkey)
{
	struct ibv_sge sge = {.addr = (uintptr_t)pair->a.memory + 64 * i, .length = 64, .lkey = pair->a.mr->lkey};
	struct ibv_send_wr wr = {.wr_id = i,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = {.remote_addr = (uintptr_t)pair->b.memory + 64 * i, .rkey = rkey}};
	struct ibv_send_wr *bad;

	return hf_vqp_post_send(ours[i], &wr, &bad);
}

void fleet_write_all(struct pair *pair)
{
	for (unsigned i = 0; i < FLEET_MAX; i++)
		assert_int_equal(fleet_write(pair, i, pair->b.mr->rkey), 0);
}

void fleet_collect(struct pair *pair, unsigned n)
{
	struct ibv_wc wc[FLEET_MAX];

	pair_collect(pair, &pair->a, n, wc);
	for (unsigned i = 0; i < n; i++)
		assert_int_equal(wc[i].status, IBV_WC_SUCCESS);
}
