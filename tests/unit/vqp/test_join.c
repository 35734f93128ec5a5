/* Vqps that know each other's number: hf_vqp_connect_num. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "net/peer_table.h"
#include "pair.h"
#include "vqp/path/pool.h"

#define SHORT_NS 200000000ull
#define NEXT_NUM 77u   /* of the vqp of a process that has not started yet */
#define HELD     1000u /* more qps under way in the background than there may be */

static void find_peer(struct pair *pair, struct end *end, unsigned other)
{
	end->peer = hf_peer_find(end->node, &pair->control[other][0]);
	if (end->peer == NULL)
		assert_int_equal(hf_peer_connect(end->node, &pair->control[other][0], 1, &end->peer, NULL), 0);
}

static void join(struct pair *pair, struct end *end, struct end *other)
{
	find_peer(pair, end, other == &pair->b);
	assert_int_equal(hf_vqp_connect_num(end->vqp, end->peer, hf_vqp_num(other->vqp), pair->access), 0);
}

static void open_both(struct pair *pair)
{
	pair_open(pair, HF_POLICY_VARUNA);
	pair_make_vqp(pair, &pair->a);
	pair_make_vqp(pair, &pair->b);
}

static bool both_up(struct pair *pair)
{
	return hf_vqp_state(pair->a.vqp) == HF_VQP_UP && hf_vqp_state(pair->b.vqp) == HF_VQP_UP;
}

static void open_joined(struct pair *pair)
{
	open_both(pair);
	join(pair, &pair->a, &pair->b);
	join(pair, &pair->b, &pair->a);
	assert_true(pair_until(pair, both_up));
}

static bool peers_know_each_other(struct pair *pair)
{
	return pair->a.peers_up == 1 && pair->b.peers_up == 1;
}

static void check_write(struct pair *pair)
{
	struct ibv_wc wc;

	memset(pair->a.memory, 0x5a, 4096);
	assert_int_equal(pair_write(pair, 1, 0, 4096, true), 0);
	pair_collect(pair, &pair->a, 1, &wc);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_memory_equal(pair->a.memory, pair->b.memory, 4096);
}

static void one_side_may_call_long_before_the_other(void **state)
{
	struct pair pair;

	(void)state;
	open_both(&pair);
	join(&pair, &pair.a, &pair.b);
	assert_true(pair_until(&pair, peers_know_each_other));
	pair_turn(&pair, 50, 1000000); /* b drops what a says */
	assert_int_equal(hf_vqp_state(pair.a.vqp), HF_VQP_CONNECTING);
	assert_int_equal(hf_vqp_state(pair.b.vqp), HF_VQP_INIT);
	join(&pair, &pair.b, &pair.a);
	assert_true(pair_until(&pair, both_up));
	check_write(&pair);
	pair_close(&pair);
}

static void both_sides_may_call_at_once(void **state)
{
	struct pair pair;

	(void)state;
	open_joined(&pair);
	assert_true(peers_know_each_other(&pair));
	assert_int_equal(pair.a.peers_down + pair.b.peers_down, 0);
	check_write(&pair);
	pair_close(&pair);
}

static bool a_failed(struct pair *pair)
{
	return hf_vqp_state(pair->a.vqp) == HF_VQP_ERROR;
}

static void fill_queues(struct pair *pair)
{
	for (unsigned i = 0; i < PAIR_DEPTH; i++) {
		assert_int_equal(pair_send(pair, i, 0, 64), 0);
		assert_int_equal(pair_recv(&pair->a, i, 0, 64), 0);
	}
	assert_int_equal(pair_send(pair, 0, 0, 64), -ENOMEM);
	assert_int_equal(pair_recv(&pair->a, 0, 0, 64), -ENOMEM);
}

static void without_a_queue_for_receives_they_complete_in_that_of_sends(void **state)
{
	struct pair pair;
	struct hf_vqp_init init;
	struct ibv_wc wc;

	(void)state;
	pair_open(&pair, HF_POLICY_VARUNA);
	init = (struct hf_vqp_init){.send_cq = pair.a.cq,
		.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};
	assert_int_equal(hf_vqp_create(pair.a.pd, &init, &pair.a.vqp), 0);
	assert_int_equal(pair_recv(&pair.a, 9, 0, 64), 0);
	hf_vqp_abort(pair.a.vqp);
	pair_collect(&pair, &pair.a, 1, &wc);
	assert_int_equal(wc.wr_id, 9);
	assert_int_equal(wc.status, IBV_WC_WR_FLUSH_ERR);
	pair_close(&pair);
}

static void what_was_posted_before_a_reset_is_forgotten(void **state)
{
	struct ibv_wc wc[2];
	struct pair pair;

	(void)state;
	open_both(&pair);
	fill_queues(&pair);
	assert_int_equal(hf_vqp_reset(pair.a.vqp), 0);
	fill_queues(&pair);
	hf_vqp_abort(pair.a.vqp);
	assert_int_equal(hf_vqp_reset(pair.a.vqp), 0); /* before anything was flushed */
	fill_queues(&pair);
	hf_vqp_abort(pair.a.vqp);
	pair_collect(&pair, &pair.a, 1, wc);
	assert_int_equal(wc[0].status, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(hf_vqp_reset(pair.a.vqp), 0); /* with more to poll */
	assert_int_equal(hf_vqp_state(pair.a.vqp), HF_VQP_INIT);
	pair_turn(&pair, 50, 0);
	assert_int_equal(hf_vcq_poll(pair.a.cq, 1, wc), 0);

	memset(pair.a.memory, 0x5a, 64);
	assert_int_equal(pair_recv(&pair.b, 21, 128, 64), 0);
	assert_int_equal(pair_send(&pair, 22, 0, 64), 0);
	join(&pair, &pair.a, &pair.b);
	join(&pair, &pair.b, &pair.a);
	pair_collect(&pair, &pair.b, 1, wc);
	assert_int_equal(wc[0].wr_id, 21);
	pair_collect(&pair, &pair.a, 1, wc);
	assert_int_equal(wc[0].wr_id, 22);
	assert_int_equal(wc[0].status, IBV_WC_SUCCESS);
	assert_memory_equal(pair.b.memory + 128, pair.a.memory, 64);
	pair_close(&pair);
}

static void a_vqp_that_was_to_be_connected_is_not_reset(void **state)
{
	struct pair pair;

	(void)state;
	open_both(&pair);
	join(&pair, &pair.a, &pair.b);
	assert_int_equal(hf_vqp_reset(pair.a.vqp), -EISCONN);
	join(&pair, &pair.b, &pair.a);
	assert_true(pair_until(&pair, both_up));
	assert_int_equal(hf_vqp_reset(pair.a.vqp), -EISCONN);
	hf_vqp_abort(pair.a.vqp);
	assert_int_equal(hf_vqp_reset(pair.a.vqp), -EISCONN);
	hf_peer_close(pair.a.peer);
	assert_int_equal(hf_vqp_reset(pair.a.vqp), -EISCONN);
	pair_close(&pair);
}

static void a_number_that_nobody_has_is_refused(void **state)
{
	struct pair pair;

	(void)state;
	open_both(&pair);
	find_peer(&pair, &pair.a, 1);
	assert_int_equal(hf_vqp_connect_num(pair.a.vqp, pair.a.peer, 0, 0), -EINVAL);
	assert_int_equal(hf_vqp_connect_num(pair.a.vqp, pair.a.peer, (hf_vqp_num(pair.b.vqp) + 1) & 0xffffff, 0), 0);
	assert_true(pair_until(&pair, a_failed));
	assert_non_null(strstr(hf_vqp_reason(pair.a.vqp), "it has no vqp"));
	pair_close(&pair);
}

static bool asks_for_the_end(struct pair *pair)
{
	return pair->a.vqp->ending.state == ENDING_ANSWER;
}

/* The request says that nothing of the other side's wrs happens here any more; but it may have moved to a backup. */
static void who_asks_for_the_end_has_no_backup_any_more(void **state)
{
	struct pair pair;

	(void)state;
	pair_open(&pair, HF_POLICY_VARUNA);
	pair.revocable = true;
	pair_connect(&pair);
	assert_true(pair_until(&pair, pair_has_backups));
	pair_cut(&pair, 0, false);
	assert_int_equal(pair_add(&pair, 0, 0, 0, 1), 0);
	hf_vqp_abort(pair.a.vqp);
	assert_true(pair_until(&pair, asks_for_the_end));
	assert_null(pair.a.vqp->backup[1].qp);
	pair_close(&pair);
}

static void an_aborted_vqp_flushes_on_both_sides(void **state)
{
	struct ibv_wc wc[2];
	struct pair pair;

	(void)state;
	open_joined(&pair);
	assert_int_equal(pair_recv(&pair.a, 7, 0, 64), 0);
	hf_vqp_abort(pair.a.vqp);
	pair_collect(&pair, &pair.a, 1, wc);
	assert_int_equal(wc[0].wr_id, 7);
	assert_int_equal(wc[0].status, IBV_WC_WR_FLUSH_ERR);
	pair_close(&pair);
}

static bool a_lost_its_peer(struct pair *pair)
{
	return pair->a.peers_down == 1;
}

static void leave(struct pair *pair)
{
	hf_vqp_destroy(pair->b.vqp);
	hf_peer_close(pair->b.peer);
	assert_true(pair_until(pair, a_lost_its_peer));
}

/* What was sent failed, then the receive went with the vqp. */
static void expect_send_failed(struct pair *pair)
{
	struct ibv_wc wc[2];

	pair_collect(pair, &pair->a, 2, wc);
	assert_int_equal(wc[0].wr_id, 8);
	assert_int_equal(wc[0].status, IBV_WC_RETRY_EXC_ERR);
	assert_int_equal(wc[1].wr_id, 7);
	assert_int_equal(wc[1].status, IBV_WC_WR_FLUSH_ERR);
}

/* As of a plain qp: nothing tells it that the other one is gone until it sends something. */
static void receives_stay_when_the_other_side_ends_and_a_send_fails(void **state)
{
	struct ibv_wc wc[2];
	struct pair pair;

	(void)state;
	open_joined(&pair);
	assert_int_equal(pair_recv(&pair.a, 7, 0, 64), 0);
	leave(&pair);
	assert_int_equal(hf_vqp_state(pair.a.vqp), HF_VQP_UP);
	assert_int_equal(hf_vcq_poll(pair.a.cq, 1, wc), 0);
	assert_int_equal(pair_send(&pair, 8, 0, 64), 0);
	expect_send_failed(&pair);
	pair_close(&pair);
}

/* A SEND waits for a receive, and then nobody answers: that says nothing about the rail, and no peer is left. */
static void what_is_in_flight_when_the_other_side_ends_fails_by_its_own_retries(void **state)
{
	struct ibv_wc wc;
	struct pair pair;

	(void)state;
	open_joined(&pair);
	assert_int_equal(pair_send(&pair, 8, 0, 64), 0);
	leave(&pair);
	pair_collect(&pair, &pair.a, 1, &wc);
	assert_int_equal(wc.wr_id, 8);
	assert_int_equal(wc.status, IBV_WC_RETRY_EXC_ERR);
	pair_close(&pair);
}

static bool a_may_fall_back(struct pair *pair)
{
	return pool_pick(pair->a.vqp, 1) != NULL;
}

static bool both_on_standby(struct pair *pair)
{
	return both_up(pair) && pair->a.vqp->path->shared != NULL && pair->b.vqp->path->shared != NULL;
}

/* Where its own qp has to wait for its turn. */
static void open_on_standby(struct pair *pair)
{
	open_joined(pair);
	assert_true(pair_until(pair, a_may_fall_back));
	vqps_of(pair->a.node)->rebuilds.running_count += HELD;
	pair_cut(pair, 0, false);
	assert_true(pair_until(pair, both_on_standby));
	assert_int_equal(pair->a.vqp->rebuild.state, REBUILD_WAITING);
}

static bool a_is_in_no_pool(struct pair *pair)
{
	return pair->a.vqp->pool == NULL;
}

/* What is said of standby qps is said through a vqp of the pool, and of this one the other side knows nothing more. */
static void a_vqp_whose_other_end_has_gone_leaves_the_pool(void **state)
{
	struct pair pair;

	(void)state;
	open_joined(&pair);
	assert_true(pair_until(&pair, a_may_fall_back));
	hf_vqp_destroy(pair.b.vqp);
	pair.b.vqp = NULL;
	assert_true(pair_until(&pair, a_is_in_no_pool));
	assert_int_equal(hf_vqp_state(pair.a.vqp), HF_VQP_UP);
	pair_close(&pair);
}

static void a_vqp_whose_peer_has_left_makes_no_qp_in_the_background(void **state)
{
	struct pair pair;

	(void)state;
	open_on_standby(&pair);
	assert_int_equal(pair_recv(&pair.a, 7, 0, 64), 0);
	leave(&pair);
	vqps_of(pair.a.node)->rebuilds.running_count -= HELD;
	pair_turn(&pair, 100, 1000000);
	assert_int_equal(hf_vqp_state(pair.a.vqp), HF_VQP_UP);
	assert_int_equal(pair.a.vqp->rebuild.state, REBUILD_NONE);
	pair_close(&pair);
}

/* A SEND waits for that qp, so the vqp fails; it may not be fenced yet when the probe's completion comes. */
static void a_probe_may_end_after_the_peer_has_left(void **state)
{
	struct rebuild *rebuild;
	struct pair pair;

	(void)state;
	open_on_standby(&pair);
	rebuild = &pair.a.vqp->rebuild;
	list_remove(&rebuild->link);
	list_push_back(&vqps_of(pair.a.node)->rebuilds.running, &rebuild->link);
	vqps_of(pair.a.node)->rebuilds.running_count += 1 - HELD;
	rebuild->at_ns = UINT64_MAX;
	rebuild->state = REBUILD_PROBING;
	assert_int_equal(pair_send(&pair, 8, 0, 64), 0);
	hf_peer_close(pair.b.peer);
	assert_true(pair_until(&pair, a_lost_its_peer));
	marks_probed(pair.a.vqp, false);
	assert_true(failover_drain(pair.a.node));
	assert_int_equal(hf_vqp_state(pair.a.vqp), HF_VQP_ERROR);
	assert_int_equal(vqps_of(pair.a.node)->rebuilds.running_count, 0);
	pair_close(&pair);
}

/* The standby qp goes with the peer, and no retries of its own tell. */
static void what_is_in_flight_on_a_standby_qp_fails_with_the_peer(void **state)
{
	struct pair pair;

	(void)state;
	open_on_standby(&pair);
	assert_int_equal(pair_recv(&pair.a, 7, 0, 64), 0);
	assert_int_equal(hf_dev_set_link(hf_node_dev(pair.a.node, 1), HF_LINK_TX, false), 0);
	assert_int_equal(pair_write(&pair, 8, 0, 64, true), 0);
	leave(&pair);
	expect_send_failed(&pair);
	pair_close(&pair);
}

/* What is posted fails when the budget is over; before that nothing ends, as on a plain qp. */
static void expect_no_answer(struct pair *pair)
{
	pair->a.node->config.budget_ns = SHORT_NS;
	assert_int_equal(pair_recv(&pair->a, 7, 0, 64), 0);
	pair_turn_for(pair, 2 * SHORT_NS);
	assert_int_equal(hf_vqp_state(pair->a.vqp), HF_VQP_CONNECTING);
	assert_int_equal(pair_write(pair, 8, 0, 64, true), 0);
	expect_send_failed(pair);
}

static struct hf_addr look_for_nobody(struct pair *pair)
{
	struct hf_addr nobody = pair->control[1][0];

	hf_addr_set_port(&nobody, (uint16_t)(hf_addr_port(&nobody) + 1));
	assert_int_equal(hf_peer_connect(pair->a.node, &nobody, 1, &pair->a.peer, NULL), 0);
	return nobody;
}

static void what_is_posted_to_nobody_fails_within_the_budget(void **state)
{
	struct hf_addr nobody;
	struct pair pair;

	(void)state;
	open_both(&pair);
	nobody = look_for_nobody(&pair);
	assert_int_equal(hf_vqp_connect_num(pair.a.vqp, pair.a.peer, 1, 0), 0);
	expect_no_answer(&pair);
	hf_peer_close_unanswered(pair.a.node);
	assert_ptr_equal(hf_peer_find(pair.a.node, &nobody), pair.a.peer);
	hf_vqp_destroy(pair.a.vqp);
	hf_peer_close_unanswered(pair.a.node);
	assert_null(hf_peer_find(pair.a.node, &nobody)); /* nobody is looked for any more */
	pair_close(&pair);
}

static void what_is_posted_to_a_service_of_nobody_fails_within_the_budget(void **state)
{
	struct pair pair;

	(void)state;
	open_both(&pair);
	look_for_nobody(&pair);
	assert_int_equal(hf_vqp_connect(pair.a.vqp, pair.a.peer, "test", NULL, 0), 0);
	expect_no_answer(&pair);
	assert_string_equal(hf_vqp_reason(pair.a.vqp), "no answer from service 'test' within the budget");
	pair_close(&pair);
}

static void what_is_posted_before_the_other_side_calls_fails_within_the_budget(void **state)
{
	struct pair pair;

	(void)state;
	open_both(&pair);
	join(&pair, &pair.a, &pair.b);
	assert_true(pair_until(&pair, peers_know_each_other));
	expect_no_answer(&pair);
	hf_vqp_destroy(pair.a.vqp);
	hf_peer_close_unanswered(pair.a.node);
	assert_ptr_equal(hf_peer_find(pair.a.node, &pair.control[1][0]), pair.a.peer); /* it has answered */
	pair_close(&pair);
}

/* Without a BYE, as a process that is killed. */
static void kill_b(struct pair *pair)
{
	for (unsigned i = 0; i < 2; i++)
		control_enable(pair->b.node->control, i, false);
	pair_close_end(pair, &pair->b);
	pair->b = (struct end){0};
}

static void restart_b(struct pair *pair)
{
	pair_open_end(pair, &pair->b, "b", HF_POLICY_VARUNA);
	vqps_of(pair->b.node)->next_num = NEXT_NUM - 1;
	pair_make_vqp(pair, &pair->b);
	assert_int_equal(hf_vqp_num(pair->b.vqp), NEXT_NUM);
}

static void join_by_number(struct pair *pair)
{
	struct hf_peer *peer = hf_peer_find(pair->a.node, &pair->control[1][0]);

	assert_ptr_equal(peer, pair->a.peer);
	assert_int_equal(hf_vqp_connect_num(pair->a.vqp, peer, NEXT_NUM, pair->access), 0);
}

static void open_known(struct pair *pair)
{
	open_both(pair);
	find_peer(pair, &pair->a, 1);
	assert_true(pair_until(pair, peers_know_each_other));
}

/* What the program told means the next incarnation, which the node has not heard of yet. */
static void a_peer_that_was_killed_and_comes_again_is_joined(void **state)
{
	struct pair pair;

	(void)state;
	open_known(&pair);
	kill_b(&pair);
	join_by_number(&pair);
	restart_b(&pair);
	join(&pair, &pair.b, &pair.a);
	assert_true(pair_until(&pair, both_up));
	assert_int_equal(pair.a.peers_down, 1);
	check_write(&pair);
	pair_close(&pair);
}

static void a_peer_that_left_and_comes_again_is_joined(void **state)
{
	struct pair pair;

	(void)state;
	open_known(&pair);
	pair_close_end(&pair, &pair.b);
	join_by_number(&pair); /* before the BYE is read */
	pair.b = (struct end){0};
	assert_true(pair_until(&pair, a_lost_its_peer));
	assert_int_equal(hf_vqp_state(pair.a.vqp), HF_VQP_CONNECTING);
	restart_b(&pair);
	join(&pair, &pair.b, &pair.a);
	assert_true(pair_until(&pair, both_up));
	check_write(&pair);
	pair_close(&pair);
}

/* It may say JOIN before control has told that the one before is gone. A REFUSE would end it. */
static void the_next_incarnation_is_not_refused(void **state)
{
	union message message = {.head = {.from = NEXT_NUM}};
	struct hf_peer *next;
	struct pair pair;

	(void)state;
	open_known(&pair);
	join_by_number(&pair);
	next = peer_open(pair.a.node, pair.a.peer->control);
	assert_non_null(next);
	message.head.kind = pair.a.node->kinds.by_number[MESSAGE_JOIN];
	message.head.to = hf_vqp_num(pair.a.vqp);
	message.head.kind->take(next, &message.head);
	assert_int_equal(next->outbox.used, 0);
	peer_free_memory(next);
	pair_close(&pair);
}

/* Two of a's: the second one takes the place of b's. */
static void connect_own(struct pair *pair, struct hf_vqp *ends[2])
{
	for (unsigned i = 0; i < 2; i++) {
		pair_make_vqp(pair, &pair->a);
		ends[i] = pair->a.vqp;
	}
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(hf_vqp_connect_num(
					 ends[i], hf_peer_own(pair->a.node, i), hf_vqp_num(ends[1 - i]), pair->access),
			0);
}

static void write_own(struct pair *pair, struct hf_vqp *vqp, uint64_t wr_id)
{
	struct ibv_sge sge = {.addr = (uintptr_t)pair->a.memory, .length = 64, .lkey = pair->a.mr->lkey};
	struct ibv_send_wr *bad,
		wr = {.wr_id = wr_id,
			.sg_list = &sge,
			.num_sge = 1,
			.opcode = IBV_WR_RDMA_WRITE,
			.send_flags = IBV_SEND_SIGNALED,
			.wr.rdma = {.remote_addr = (uintptr_t)pair->a.memory + 128, .rkey = pair->a.mr->rkey}};
	struct ibv_wc wc;

	assert_int_equal(hf_vqp_post_send(vqp, &wr, &bad), 0);
	pair_collect(pair, &pair->a, 1, &wc);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.wr_id, wr_id);
	assert_int_equal(wc.qp_num, hf_vqp_num(vqp));
}

static void two_vqps_of_a_node_connect_and_go_on_through_a_cut(void **state)
{
	struct hf_vqp *ends[2];
	struct pair pair;
	int rail;

	(void)state;
	pair_open(&pair, HF_POLICY_VARUNA);
	connect_own(&pair, ends);
	for (unsigned i = 0; i < 2; i++) {
		memset(pair.a.memory, (int)i + 1, 64);
		write_own(&pair, ends[i], i);
		assert_int_equal(pair.a.memory[128], i + 1);
	}
	rail = hf_vqp_rail(ends[0]);
	assert_int_equal(hf_vqp_rail(ends[1]), rail);
	pair_cut(&pair, (unsigned)rail, false);
	for (unsigned i = 0; i < 2; i++) {
		memset(pair.a.memory, (int)i + 3, 64);
		write_own(&pair, ends[i], i + 2);
		assert_int_equal(pair.a.memory[128], i + 3);
		assert_int_equal(hf_vqp_rail(ends[i]), 1 - rail);
	}
	hf_vqp_destroy(ends[0]);
	pair_close(&pair);
}

static bool b_has_a_peer(struct pair *pair)
{
	return pair->b.peer != NULL;
}

/* A peer takes anything before NODE for malformed; NODE itself tells which ports are up. */
static void nothing_is_said_of_ports_before_a_node_is_introduced(void **state)
{
	struct hf_peer *peer;
	struct pair pair;

	(void)state;
	pair_open(&pair, HF_POLICY_VARUNA);
	assert_int_equal(hf_peer_connect(pair.a.node, &pair.control[1][1], 1, &peer, NULL), 0);
	while (hf_peer_name(peer)[0] == '\0') /* it answered, and no path is up yet */
		pair_turn(&pair, 1, 1000000);
	assert_int_equal(hf_peer_report(peer, 1), 0);
	assert_true(list_empty(&peer->control->outgoing));
	assert_true(pair_until(&pair, b_has_a_peer));
	assert_int_equal(pair.b.peer->remote_up, 1);
	pair_close(&pair);
}

static bool has_no_own_peer(struct pair *pair)
{
	return pair->a.node->own[0] == NULL && pair->a.node->own[1] == NULL;
}

/* As when there is no memory for a message between them. */
static void when_one_end_of_a_loopback_fails_both_end_and_the_next_is_made(void **state)
{
	struct hf_vqp *ends[2];
	struct pair pair;

	(void)state;
	pair_open(&pair, HF_POLICY_VARUNA);
	for (unsigned i = 0; i < 2; i++) {
		connect_own(&pair, ends);
		write_own(&pair, ends[0], 0);
		peer_fail(hf_peer_own(pair.a.node, i), "the test says so");
		assert_true(pair_until(&pair, has_no_own_peer));
		for (unsigned k = 0; k < 2; k++)
			hf_vqp_destroy(ends[k]);
	}
	pair.a.vqp = NULL;
	pair_close(&pair);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_side_may_call_long_before_the_other),
		cmocka_unit_test(both_sides_may_call_at_once),
		cmocka_unit_test(two_vqps_of_a_node_connect_and_go_on_through_a_cut),
		cmocka_unit_test(when_one_end_of_a_loopback_fails_both_end_and_the_next_is_made),
		cmocka_unit_test(nothing_is_said_of_ports_before_a_node_is_introduced),
		cmocka_unit_test(what_was_posted_before_a_reset_is_forgotten),
		cmocka_unit_test(without_a_queue_for_receives_they_complete_in_that_of_sends),
		cmocka_unit_test(a_vqp_that_was_to_be_connected_is_not_reset),
		cmocka_unit_test(a_number_that_nobody_has_is_refused),
		cmocka_unit_test(who_asks_for_the_end_has_no_backup_any_more),
		cmocka_unit_test(an_aborted_vqp_flushes_on_both_sides),
		cmocka_unit_test(receives_stay_when_the_other_side_ends_and_a_send_fails),
		cmocka_unit_test(what_is_in_flight_when_the_other_side_ends_fails_by_its_own_retries),
		cmocka_unit_test(a_vqp_whose_peer_has_left_makes_no_qp_in_the_background),
		cmocka_unit_test(a_vqp_whose_other_end_has_gone_leaves_the_pool),
		cmocka_unit_test(a_probe_may_end_after_the_peer_has_left),
		cmocka_unit_test(what_is_in_flight_on_a_standby_qp_fails_with_the_peer),
		cmocka_unit_test(what_is_posted_to_nobody_fails_within_the_budget),
		cmocka_unit_test(what_is_posted_to_a_service_of_nobody_fails_within_the_budget),
		cmocka_unit_test(what_is_posted_before_the_other_side_calls_fails_within_the_budget),
		cmocka_unit_test(a_peer_that_was_killed_and_comes_again_is_joined),
		cmocka_unit_test(a_peer_that_left_and_comes_again_is_joined),
		cmocka_unit_test(the_next_incarnation_is_not_refused),
	};

	if (argc > 1)
		pair_kind = argv[1];
	return cmocka_run_group_tests(tests, NULL, NULL);
}
