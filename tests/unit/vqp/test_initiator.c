/* One DC initiator that carries the standby qps of two peers: a to b, and a to c, over soft. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "pair.h"
#include "vqp/path/pool.h"

#define BYTES  4096u
#define WRITES 32u
#define ADDS   8u

struct third {
	struct hf_node *node;
	struct hf_peer *peer; /* of a: this node */
	struct hf_vpd *pd;
	struct hf_vcq *cq;
	struct hf_vmr *mr;
	uint8_t *memory;
	struct hf_vqp *ours, *theirs; /* of a, of this node */
	struct hf_vqp_service service;
	struct hf_addr control;
};

static struct third c;

static struct hf_vqp *make(struct hf_vpd *pd, struct hf_vcq *cq)
{
	struct hf_vqp_init init = {.send_cq = cq,
		.recv_cq = cq,
		.cap = {.max_send_wr = PAIR_DEPTH, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
		.access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC};
	struct hf_vqp *vqp = NULL;

	assert_int_equal(hf_vqp_create(pd, &init, &vqp), 0);
	return vqp;
}

static struct hf_vqp *on_request(const struct hf_vqp_request *request, void *reply, size_t *reply_bytes, void *context)
{
	(void)request, (void)reply, (void)context;
	*reply_bytes = 0;
	return c.theirs = make(c.pd, c.cq);
}

static void configure(struct pair *pair, struct hf_node_config *config)
{
	pair_config(pair, &pair->a, HF_POLICY_VARUNA, config);
	snprintf(config->name, sizeof(config->name), "c");
	for (unsigned i = 0; i < 2; i++) {
		char text[HF_ADDR_TEXT];

		snprintf(text, sizeof(text), "127.%u.%u.%u", 32 + ((unsigned)getpid() >> 8) % 64,
			(unsigned)getpid() & 0xff, 250 + i);
		assert_int_equal(hf_addr_parse(text, &config->rails[i].address), 0);
		config->rails[i].control = config->rails[i].address;
		hf_addr_set_port(&config->rails[i].control, 18515);
	}
	c.control = config->rails[0].control;
}

static void open_third(struct pair *pair)
{
	static const struct hf_node_events events;
	struct hf_node_config config;

	c = (struct third){.service = {.name = "test", .on_request = on_request}};
	configure(pair, &config);
	assert_int_equal(hf_node_open(pair->loop, &config, &events, NULL, &c.node, NULL), 0);
	assert_int_equal(hf_vpd_alloc(c.node, &c.pd), 0);
	assert_int_equal(hf_vcq_create(c.node, 4 * PAIR_DEPTH, NULL, &c.cq), 0);
	assert_int_equal(hf_mem_alloc(hf_loop_env(pair->loop), BYTES, (void **)&c.memory, NULL), 0);
	assert_int_equal(hf_vmr_reg(c.pd, c.memory, BYTES,
				 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
					 IBV_ACCESS_REMOTE_ATOMIC,
				 &c.mr, NULL),
		0);
	assert_int_equal(hf_vqp_serve(c.node, &c.service), 0);
	assert_int_equal(hf_peer_connect(pair->a.node, &c.control, 1, &c.peer, NULL), 0);
	c.ours = make(pair->a.pd, pair->a.cq);
	assert_int_equal(hf_vqp_connect(c.ours, c.peer, "test", NULL, 0), 0);
}

static bool pools_are_ready(struct pair *pair)
{
	return hf_vqp_state(c.ours) == HF_VQP_UP && c.theirs != NULL && hf_vqp_state(c.theirs) == HF_VQP_UP &&
	       pool_pick(pair->a.vqp, 1) != NULL && pool_pick(c.ours, 1) != NULL;
}

static bool both_are_shared(struct pair *pair)
{
	return pair->a.vqp->path->shared != NULL && c.ours->path->shared != NULL &&
	       hf_vqp_state(pair->a.vqp) == HF_VQP_UP && hf_vqp_state(c.ours) == HF_VQP_UP;
}

/* Both of a's vqps are on standby qps of rail 1, which one initiator carries. */
static void open_three(struct pair *pair)
{
	pair_open(pair, HF_POLICY_VARUNA);
	pair_connect(pair);
	open_third(pair);
	assert_true(pair_until(pair, pools_are_ready));
	pair->a.vqp->rebuild.backoff_ns = c.ours->rebuild.backoff_ns = UINT64_MAX / 4;
	pair->a.vqp->rebuild.failed_ns = c.ours->rebuild.failed_ns = hf_loop_now_ns(pair->loop);
	pair_cut(pair, 0, false);
	assert_true(pair_until(pair, both_are_shared));
	assert_true(pair->a.vqp->path->shared->carrier->is_initiator);
	assert_ptr_equal(pair->a.vqp->path->shared->carrier, c.ours->path->shared->carrier);
	assert_ptr_not_equal(pair->a.vqp->path->shared, c.ours->path->shared);
}

static void close_three(struct pair *pair)
{
	hf_node_close(c.node);
	hf_mem_free(hf_loop_env(pair->loop), c.memory);
	pair_close(pair);
}

static void post_to_c(struct pair *pair, uint64_t wr_id, enum ibv_wr_opcode opcode, uint32_t at)
{
	struct ibv_sge sge = {.addr = (uintptr_t)pair->a.memory + at, .length = 8, .lkey = pair->a.mr->lkey};
	struct ibv_send_wr wr = {
		.wr_id = wr_id, .sg_list = &sge, .num_sge = 1, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED};
	struct ibv_send_wr *bad;

	if (opcode == IBV_WR_RDMA_WRITE) {
		wr.wr.rdma.remote_addr = (uintptr_t)c.memory + at;
		wr.wr.rdma.rkey = c.mr->rkey;
	} else {
		wr.wr.atomic.remote_addr = (uintptr_t)c.memory;
		wr.wr.atomic.rkey = c.mr->rkey;
		wr.wr.atomic.compare_add = 1;
	}
	assert_int_equal(hf_vqp_post_send(c.ours, &wr, &bad), 0);
}

static void two_peers_get_each_what_is_theirs_from_one_initiator(void **state)
{
	struct ibv_wc wc[2 * WRITES];
	struct pair pair;

	(void)state;
	open_three(&pair);
	for (uint64_t i = 0; i < 2 * WRITES; i++) {
		memcpy(pair.a.memory + 8 * i, &i, sizeof(i));
		if (i % 2 == 0)
			assert_int_equal(pair_write(&pair, i, (uint32_t)(8 * i), 8, true), 0);
		else
			post_to_c(&pair, i, IBV_WR_RDMA_WRITE, (uint32_t)(8 * i));
	}
	pair_collect(&pair, &pair.a, 2 * WRITES, wc);
	for (uint64_t i = 0; i < 2 * WRITES; i++) {
		const uint64_t none = 0;

		assert_int_equal(wc[i].status, IBV_WC_SUCCESS);
		assert_memory_equal(pair.b.memory + 8 * i, i % 2 == 0 ? &i : &none, sizeof(i));
		assert_memory_equal(c.memory + 8 * i, i % 2 == 1 ? &i : &none, sizeof(i));
	}
	assert_true(both_are_shared(&pair));
	close_three(&pair);
}

/* R6, V5, V8: b refuses a wr, so the initiator fails under what c has executed already, executes, or never sees. */
static void what_one_peer_refuses_costs_the_other_nothing(void **state)
{
	uint64_t rkey;
	struct pair pair;
	struct ibv_wc wc[2 * ADDS + 1];

	(void)state;
	open_three(&pair);
	rkey = pair.b.mr->rkey;
	for (uint32_t i = 0; i < 2 * ADDS; i++) {
		post_to_c(&pair, i, IBV_WR_ATOMIC_FETCH_AND_ADD, 8 * i);
		if (i != ADDS)
			continue;
		pair.b.mr->rkey = 1;
		assert_int_equal(pair_write(&pair, UINT64_MAX, 2048, 8, true), 0);
		pair.b.mr->rkey = (uint32_t)rkey;
	}
	pair_collect(&pair, &pair.a, 2 * ADDS + 1, wc);
	for (uint64_t i = 0, next = 0; i < 2 * ADDS + 1; i++) {
		assert_int_equal(wc[i].status, wc[i].wr_id == UINT64_MAX ? IBV_WC_REM_ACCESS_ERR : IBV_WC_SUCCESS);
		if (wc[i].wr_id == UINT64_MAX)
			continue;
		assert_int_equal(wc[i].wr_id, next);
		assert_memory_equal(pair.a.memory + 8 * next, &next, sizeof(next)); /* each found those before it */
		next++;
	}
	assert_int_equal(*(const uint64_t *)(const void *)c.memory, 2 * ADDS);
	assert_int_equal(hf_vqp_state(pair.a.vqp), HF_VQP_ERROR);
	assert_int_not_equal(hf_vqp_state(c.ours), HF_VQP_ERROR);
	close_three(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(two_peers_get_each_what_is_theirs_from_one_initiator),
		cmocka_unit_test(what_one_peer_refuses_costs_the_other_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
