/* Pairs: making, connecting and waiting for two sides. */
#include "pair.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define QUIET_NS (5 * MS) /* how long nothing is watched to happen */
#define TIMEOUT  14       /* attr.timeout, 67 ms */
#define TICK_NS  1000ull  /* of a world that stands still unless told */

const struct link_options impatient = {.timeout = 8, .retry_cnt = 2};

static void prepare(struct side *side, struct pair *pair, const char *node, unsigned address)
{
	struct actor_config config = {.node = "", .rail = "r0"};

	side->memory = pair->bed->memory;
	side->no_atomics = pair->bed->no_atomics;
	side->which = address;
	side->timeout_least = pair->bed->timeout_least;
	side->cut = pair->bed->cut;
	snprintf(config.kind, sizeof(config.kind), "%s", bed_kind(pair->bed, address));
	snprintf(config.fabric, sizeof(config.fabric), "%s", pair->bed->world_open == NULL ? bed_fabric() : "");
	snprintf(config.node, sizeof(config.node), "%s", node);
	snprintf(config.address, sizeof(config.address), "%s", bed_address(pair->bed, address));
	if (pair->bed->cut != NULL) { /* a test before this one may have left it */
		assert_int_equal(pair->bed->cut(address, HF_LINK_TX, true), 0);
		assert_int_equal(pair->bed->cut(address, HF_LINK_RX, true), 0);
	}
	if (side_open(side, &config) != 0)
		fail_msg("open: %s", side->error.text);
	assert_int_equal(side_pd_alloc(side, 0), 0);
	assert_int_equal(side_cq_create(side, SEND_CQ, 256), 0);
	assert_int_equal(side_cq_create(side, RECV_CQ, 256), 0);
	assert_int_equal(side_mem_alloc(side, 0, PAIR_BYTES), 0);
	if (side_mr_reg(side, 0, 0, side->mem[0], PAIR_BYTES, iova_of(side, 0), ALL_ACCESS) != 0)
		fail_msg("register: %s", side->error.text);
}

static struct side *open_side(const struct bed *bed, struct hf_env *env, bool elsewhere)
{
	return elsewhere ? side_remote(bed->there) : side_local(env, bed->pass, bed->settle);
}

/* The initial state of each test is its bed. */
int pair_setup(void **state)
{
	struct pair *pair = calloc(1, sizeof(*pair));
	struct hf_env *env_a = hf_env_host(), *env_b = hf_env_host();

	pair->bed = *state;
	*state = pair;
	if (pair->bed->world_open != NULL)
		assert_int_equal(pair->bed->world_open(pair->bed, &env_a, &env_b), 0);
	pair->env = env_a;
	pair->a = open_side(pair->bed, env_a, pair->bed->two_processes && pair->bed->a_is_there);
	pair->b = open_side(pair->bed, env_b, pair->bed->two_processes && !pair->bed->a_is_there);
	prepare(pair->a, pair, "a", BED_A);
	prepare(pair->b, pair, "b", BED_B);
	return 0;
}

int pair_teardown(void **state)
{
	struct pair *pair = *state;

	side_free(pair->a);
	side_free(pair->b);
	if (pair->bed->world_close != NULL)
		pair->bed->world_close();
	free(pair);
	return 0;
}

struct pair *pair_of(void **state)
{
	return *state;
}

struct pair *connected_with(void **state, struct link_options options)
{
	struct pair *pair = *state;

	pair_connect(pair, 0, options);
	return pair;
}

struct pair *connected(void **state)
{
	return connected_with(state, (struct link_options){0});
}

/* ---- connecting ---- */

static uint32_t or_default(uint32_t value, uint32_t otherwise)
{
	return value != 0 ? value : otherwise;
}

static void create_one(struct side *side, uint32_t qp, struct link_options options, uint32_t lease_plus1)
{
	struct side_qp init = {
		.pd = options.pd,
		.send_cq = SEND_CQ,
		.recv_cq = RECV_CQ,
		.srq = options.srq_plus1 == 0 ? ACTOR_NONE : options.srq_plus1 - 1,
		.cap = {or_default(options.send_wr, 64), 64, ACTOR_SGES, ACTOR_SGES, 64},
		.lease_plus1 = lease_plus1,
		.sq_sig_all = options.sq_sig_all,
		.revoke_ns = options.revoke_ns,
	};

	assert_int_equal(side_qp_create(side, qp, &init), 0);
}

void pair_create_qp(struct pair *pair, uint32_t qp, struct link_options options)
{
	create_one(pair->a, qp, options, 0);
	create_one(pair->b, qp, options, options.lease_plus1);
}

int qp_to_init(struct side *side, uint32_t qp, int access)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = (unsigned)access};

	return side_qp_modify(side, qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

int qp_to_rtr(struct side *side, uint32_t qp, const struct side *peer, struct link_options options)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = (enum ibv_mtu)or_default(options.mtu, IBV_MTU_1024),
		.dest_qp_num = peer->qp_num[qp],
		.rq_psn = options.psn_a,
		.max_dest_rd_atomic = (uint8_t)or_default(options.rd_atomic, 4),
		.min_rnr_timer = (uint8_t)or_default(options.min_rnr_timer, 1),
		.ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = peer->gid, .hop_limit = 64}},
	};

	return side_qp_modify(side, qp, &attr,
		IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
}

int qp_to_rts(struct side *side, uint32_t qp, uint32_t sq_psn, struct link_options options)
{
	uint8_t timeout = (uint8_t)or_default(options.timeout, TIMEOUT);
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS,
		.sq_psn = sq_psn,
		.timeout = timeout < side->timeout_least ? side->timeout_least : timeout,
		.retry_cnt = (uint8_t)or_default(options.retry_cnt, 7),
		.rnr_retry = (uint8_t)(or_default(options.rnr_retry_plus1, 8) - 1),
		.max_rd_atomic = (uint8_t)or_default(options.rd_atomic, 4),
	};

	return side_qp_modify(side, qp, &attr,
		IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			IBV_QP_MAX_QP_RD_ATOMIC);
}

int qp_to(struct side *side, uint32_t qp, enum ibv_qp_state to)
{
	return side_qp_modify(side, qp, &(struct ibv_qp_attr){.qp_state = to}, IBV_QP_STATE);
}

enum ibv_qp_state qp_state(struct side *side, uint32_t qp)
{
	struct ibv_qp_attr attr;

	assert_int_equal(side_qp_query(side, qp, &attr, IBV_QP_STATE), 0);
	return attr.qp_state;
}

int qp_access(struct side *side, uint32_t qp, int access)
{
	struct ibv_qp_attr attr = {.qp_access_flags = (unsigned)access};

	return side_qp_modify(side, qp, &attr, IBV_QP_ACCESS_FLAGS);
}

void pair_connect_qp(struct pair *pair, uint32_t qp, struct link_options options)
{
	int access = REMOTE_ACCESS & ~options.no_access;
	struct link_options of_a = options, of_b = options; /* psn_a is where the peer's requests start */

	options.psn_a = or_default(options.psn_a, 1000);
	options.psn_b = or_default(options.psn_b, 2000);
	of_a.psn_a = options.psn_b;
	of_b.psn_a = options.psn_a;
	assert_int_equal(qp_to_init(pair->a, qp, access), 0);
	assert_int_equal(qp_to_init(pair->b, qp, access), 0);
	assert_int_equal(qp_to_rtr(pair->a, qp, pair->b, of_a), 0);
	assert_int_equal(qp_to_rtr(pair->b, qp, pair->a, of_b), 0);
	assert_int_equal(qp_to_rts(pair->a, qp, options.psn_a, options), 0);
	assert_int_equal(qp_to_rts(pair->b, qp, options.psn_b, options), 0);
}

void pair_connect(struct pair *pair, uint32_t qp, struct link_options options)
{
	pair_create_qp(pair, qp, options);
	pair_connect_qp(pair, qp, options);
}

/* ---- skipping ---- */

void skip_because(const char *reason)
{
	print_message("skipped because %s\n", reason);
	skip();
	abort();
}

void require_cap(struct pair *pair, uint32_t cap, const char *reason)
{
	if ((pair->a->attr.caps & pair->b->attr.caps & cap) != cap)
		skip_because(reason);
}

/* ---- time ---- */

uint64_t pair_now_ns(struct pair *pair)
{
	return hf_env_now_ns(pair->env);
}

void turn(struct pair *pair)
{
	side_poll(pair->a);
	if (!pair->b->asking)
		side_poll(pair->b);
	if (pair->bed->pass != NULL)
		pair->bed->pass(TICK_NS);
}

void turns_for(struct pair *pair, uint64_t ns)
{
	uint64_t end_ns = pair_now_ns(pair) + ns;

	while (pair_now_ns(pair) < end_ns)
		turn(pair);
}

void until_word(struct pair *pair, struct side *side, uint64_t addr, uint64_t value)
{
	uint64_t end_ns = pair_now_ns(pair) + LIMIT_NS;

	while (side_load(side, addr) != value) {
		if (pair_now_ns(pair) > end_ns)
			fail_msg("the word never became %llu", (unsigned long long)value);
		turn(pair);
	}
}

struct ibv_wc next_wc(struct pair *pair, struct side *side, uint32_t cq)
{
	uint64_t end_ns = pair_now_ns(pair) + LIMIT_NS;
	struct ibv_wc wc;

	while (side_cq_poll(side, cq, 1, &wc) == 0) {
		if (pair_now_ns(pair) > end_ns)
			fail_msg("no completion came");
		turn(pair);
	}
	return wc;
}

/* Of a failed path some NICs tell by a flush, or as an error of their own; and refusals have other names. */
bool status_is(const struct pair *pair, enum ibv_wc_status status, enum ibv_wc_status expected)
{
	if (status == expected || !pair->bed->real)
		return status == expected;
	if (expected == IBV_WC_RETRY_EXC_ERR)
		return status == IBV_WC_WR_FLUSH_ERR || status == IBV_WC_LOC_QP_OP_ERR;
	if (expected == IBV_WC_LOC_PROT_ERR || expected == IBV_WC_LOC_LEN_ERR)
		return status == IBV_WC_LOC_QP_OP_ERR;
	if (expected == IBV_WC_REM_INV_REQ_ERR)
		return status == IBV_WC_REM_OP_ERR;
	return expected == IBV_WC_REM_ACCESS_ERR && status == IBV_WC_REM_INV_REQ_ERR;
}

void expect_wc(struct pair *pair, struct side *side, uint32_t cq, uint64_t wr_id, enum ibv_wc_status status)
{
	struct ibv_wc wc = next_wc(pair, side, cq);

	if (wc.wr_id != wr_id || !status_is(pair, wc.status, status))
		fail_msg("%s: expected wr %llu with status %d, got wr %llu with status %d", side == pair->a ? "a" : "b",
			(unsigned long long)wr_id, (int)status, (unsigned long long)wc.wr_id, (int)wc.status);
}

void expect_no_wc(struct pair *pair, struct side *side, uint32_t cq)
{
	uint64_t end_ns = pair_now_ns(pair) + QUIET_NS;
	struct ibv_wc wc;

	do {
		turn(pair);
		if (side_cq_poll(side, cq, 1, &wc) != 0)
			fail_msg("unexpected completion of wr %llu with status %d", (unsigned long long)wc.wr_id,
				(int)wc.status);
	} while (pair_now_ns(pair) < end_ns);
}

void fence(struct pair *pair, struct side *side, uint32_t qp)
{
	uint64_t end_ns = pair_now_ns(pair) + LIMIT_NS;
	int rc;

	while ((rc = side_fence(side, qp)) == -EINPROGRESS && pair_now_ns(pair) < end_ns)
		turn(pair);
	assert_int_equal(rc, 0);
}
