/* Standby qps that many vqps share, over soft or shm, as the argument says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "fleet.h"
#include "vqp/path/pool.h"

#define CULPRIT 5u

static bool is_dc(void)
{
	return strcmp(pair_kind, "soft") == 0;
}

/* In one call. */
static void post_list(struct pair *pair, unsigned i, unsigned n)
{
	struct ibv_sge sge = {.addr = (uintptr_t)pair->a.memory + 64 * i, .length = 64, .lkey = pair->a.mr->lkey};
	struct ibv_send_wr wrs[FLEET_DEPTH], *bad;

	assert_true(n <= FLEET_DEPTH);
	for (unsigned k = 0; k < n; k++)
		wrs[k] = (struct ibv_send_wr){.wr_id = k,
			.next = k + 1 < n ? &wrs[k + 1] : NULL,
			.sg_list = &sge,
			.num_sge = 1,
			.opcode = IBV_WR_RDMA_WRITE,
			.send_flags = IBV_SEND_SIGNALED,
			.wr.rdma = {.remote_addr = (uintptr_t)pair->b.memory + 64 * i, .rkey = pair->b.mr->rkey}};
	assert_int_equal(hf_vqp_post_send(ours[i], wrs, &bad), 0);
}

static void all_vqps_of_a_link_go_on_on_one_standby_qp_and_then_on_their_own(void **state)
{
	struct pair pair;

	(void)state;
	fleet_open_with_pool(&pair);
	memset(pair.a.memory, 7, 64 * FLEET_MAX);
	fleet_lose_rail_0(&pair);
	assert_false(hf_vqp_is_dedicated(ours[0]));
	assert_int_equal(ours[0]->path->shared->users, FLEET_MAX);
	assert_int_equal(ours[0]->path->shared->dc != NULL, is_dc());
	assert_int_equal(ours[0]->path->shared->carrier->is_initiator, is_dc());
	assert_memory_equal(pair.b.memory, pair.a.memory, 64 * FLEET_MAX);
	fleet_let_rebuild(&pair, FLEET_MAX);
	fleet_write_all(&pair);
	assert_true(pair_until(&pair, fleet_is_on_1));
	assert_true(hf_vqp_is_dedicated(ours[0]));
	fleet_collect(&pair, FLEET_MAX);
	pair_cut(&pair, 0, true);
	assert_true(pair_until(&pair, fleet_is_on_0));
	fleet_write_all(&pair);
	fleet_collect(&pair, FLEET_MAX);
	pair_close(&pair);
}

static unsigned polled_queues(struct hf_node *node, bool spare)
{
	unsigned n = 0;

	for (unsigned rail = 0; rail < node->rail_count; rail++)
		for (unsigned i = 0; i < node->rails[rail].cqs.count; i++)
			n += node->rails[rail].cqs.cqs[i].spare == spare && node->rails[rail].cqs.cqs[i].active > 0;
	return n;
}

/* Nothing completes into them. */
static void queues_of_standby_qps_are_polled_when_a_vqp_is_on_one(void **state)
{
	struct pair pair;

	(void)state;
	fleet_open_with_pool(&pair);
	assert_int_equal(polled_queues(pair.a.node, true), 0);
	assert_int_not_equal(polled_queues(pair.a.node, false), 0);
	fleet_lose_rail_0(&pair);
	assert_int_equal(polled_queues(pair.a.node, true), 1);
	assert_int_equal(polled_queues(pair.a.node, false), 0);
	pair_close(&pair);
}

/* Turns look at the standby qps only then. */
static void who_waits_for_room_on_a_standby_qp_has_its_turn(void **state)
{
	struct pair pair;

	(void)state;
	fleet_open_on_standby(&pair);
	assert_false(pool_turn(pair.a.node));
	carrier_wait(ours[0]);
	assert_true(pool_turn(pair.a.node));
	assert_true(list_empty(&ours[0]->pool_wait_link));
	assert_false(pool_turn(pair.a.node));
	pair_close(&pair);
}

/* Lists that others post meanwhile would take what room there is, again and again. */
static void nobody_posts_before_those_that_wait_for_room_on_a_standby_qp(void **state)
{
	struct pair pair;
	struct carrier *carrier;
	uint64_t posted;

	(void)state;
	fleet_open_on_standby(&pair);
	carrier = ours[0]->path->shared->carrier;
	posted = carrier->posted;
	carrier_wait(ours[0]);
	assert_int_equal(fleet_write(&pair, 1, pair.b.mr->rkey), 0);
	assert_int_equal(fleet_write(&pair, 0, pair.b.mr->rkey), 0);
	assert_int_equal(carrier->posted, posted);
	assert_true(pool_turn(pair.a.node));
	assert_int_equal(carrier->wrs[posted % (2 * CARRIER_DEPTH)].num, ours[0]->num);
	assert_int_equal(carrier->wrs[(carrier->posted - 1) % (2 * CARRIER_DEPTH)].num, ours[1]->num);
	fleet_collect(&pair, 2);
	pair_close(&pair);
}

static void a_list_leaves_in_parts_when_a_standby_qp_has_room_for_no_more(void **state)
{
	struct pair pair;
	struct carrier *carrier;
	uint32_t cqes;
	uint64_t posted;

	(void)state;
	fleet_open_on_standby(&pair);
	carrier = ours[0]->path->shared->carrier;
	cqes = carrier->path.cqes;
	posted = carrier->posted;
	carrier->path.cqes = 2 * 6;
	post_list(&pair, 0, FLEET_DEPTH);
	assert_in_range(carrier->posted - posted, 1, 6);
	fleet_collect(&pair, FLEET_DEPTH);
	assert_true(carrier->posted - posted >= FLEET_DEPTH);
	carrier->path.cqes = cqes;
	pair_close(&pair);
}

static void a_standby_qp_is_no_deeper_than_its_device_can_make_it(void **state)
{
	struct pair pair;

	(void)state;
	fleet_queue_most = 2 * FLEET_DEPTH + 4;
	fleet_open_on_standby(&pair);
	for (unsigned i = 0; i < FLEET_MAX; i++)
		post_list(&pair, i, FLEET_DEPTH);
	assert_true(vqps_of(pair.a.node)->standby_waits);
	for (unsigned i = 0; i < FLEET_DEPTH; i++)
		fleet_collect(&pair, FLEET_MAX);
	pair_close(&pair);
	fleet_queue_most = 0;
}

static struct standby *standby_of(const struct hf_vqp *vqp, unsigned rail)
{
	list_for_each (at, &vqp->pool->qps)
		if (container_of(at, struct standby, link)->path.rail == rail)
			return container_of(at, struct standby, link);
	return NULL;
}

static uint32_t lost_offer;

static bool has_another_one(struct pair *pair)
{
	return fleet_has_pool(pair) && pool_pick(ours[0], 1)->offer != lost_offer && standby_of(theirs[0], 1) != NULL &&
	       standby_of(theirs[0], 1)->offer == pool_pick(ours[0], 1)->offer;
}

/* As when another peer's traffic on the same initiator fails, while nobody is on this one: the picker would not see it,
 * and what it posts there nobody could judge. */
static void a_standby_qp_that_breaks_at_the_other_end_is_made_anew(void **state)
{
	struct pair pair;

	(void)state;
	fleet_open_with_pool(&pair);
	lost_offer = standby_of(theirs[0], 1)->offer;
	carrier_break(standby_of(theirs[0], 1)->carrier);
	assert_true(pair_until(&pair, has_another_one));
	fleet_lose_rail_0(&pair);
	pair_close(&pair);
}

/* Each end knows the caps of its own vqps only, and both must put the same ones on a standby qp. */
static void vqps_share_a_pool_whatever_their_queues_hold(void **state)
{
	struct pair pair;

	(void)state;
	fleet_is_uneven = true;
	fleet_open_on_standby(&pair);
	fleet_is_uneven = false;
	for (unsigned i = 1; i < FLEET_MAX; i++) {
		assert_ptr_equal(ours[i]->pool, ours[0]->pool);
		assert_ptr_equal(theirs[i]->pool, theirs[0]->pool);
	}
	pair_close(&pair);
}

/* Who has no DC with evidence shares RC qps, with whoever has. */
static void without_evidence_of_dc_the_standby_qp_is_an_rc_qp(void **state)
{
	struct pair pair;

	(void)state;
	pair_caps_masked = HF_DEV_DC_EVIDENCE;
	fleet_open_with_pool(&pair);
	pair_caps_masked = 0;
	assert_null(pool_pick(ours[0], 1)->dc);
	assert_int_equal(pool_pick(ours[0], 1)->path.qp->type, IBV_QPT_RC);
	fleet_lose_rail_0(&pair);
	pair_close(&pair);
}

/* Psns of all its peers are compared at each of them. */
static void an_initiator_is_given_up_before_its_psns_are_ambiguous(void **state)
{
	struct carrier *worn;
	uint32_t num;
	struct pair pair;

	(void)state;
	if (!is_dc())
		return;
	fleet_open_on_standby(&pair);
	worn = ours[0]->path->shared->carrier;
	num = worn->path.qp->qp_num;
	worn->path.psn = (worn->path.psn - CARRIER_PACKETS) & 0xffffffu; /* as if it had sent so many */
	fleet_write_all(&pair);
	fleet_collect(&pair, FLEET_MAX);
	for (unsigned i = 0; i < FLEET_MAX; i++)
		assert_int_not_equal(ours[i]->path->qp->qp_num, num);
	assert_int_equal(pair.a.peer->rails[1].pause_ns, 0);
	pair_close(&pair);
}

static bool is_fenced(struct pair *pair)
{
	return standby_fence(ours[0], hf_env_now_ns(hf_loop_env(pair->loop))) == FENCE_DONE;
}

/* POOL-4: what was posted and not answered could land late, on behalf of a standby qp that is over. Where all was
 * answered there is no such wr, and standby qps of other peers go on. */
static void an_initiator_is_fenced_with_wrs_that_were_not_answered_and_only_then(void **state)
{
	struct ibv_qp_attr attr;
	struct pair pair;

	(void)state;
	for (unsigned answered = 0; is_dc() && answered < 2; answered++) {
		struct carrier *initiator;

		fleet_open_on_standby(&pair);
		initiator = ours[0]->path->shared->carrier;
		if (!answered)
			assert_int_equal(fleet_write(&pair, 0, pair.b.mr->rkey), 0);
		while (!is_fenced(&pair))
			; /* no turn: nobody reads the queue meanwhile */
		assert_int_equal(hf_qp_query(initiator->path.qp, &attr, IBV_QP_STATE), 0);
		assert_int_equal(attr.qp_state, answered ? IBV_QPS_RTS : IBV_QPS_ERR);
		assert_int_equal(initiator->fenced, !answered);
		assert_true(ours[0]->path->shared->dc->fenced);
		if (!answered)
			fleet_collect(&pair, 1);
		assert_true(pair_until(&pair, fleet_is_up));
		pair_close(&pair);
	}
}

/* R5: the picker may have moved a vqp to it without notice, and the wrs of that may come late. */
static void a_standby_qp_without_vqps_is_fenced_when_the_lease_is_over(void **state)
{
	struct pair pair;

	(void)state;
	for (unsigned shared = 0; shared < 2; shared++) {
		struct standby *standby;

		pair_caps_masked = HF_DEV_LEASE | (shared ? HF_DEV_DC_EVIDENCE : 0);
		fleet_open_with_pool(&pair);
		standby = pool_pick(theirs[0], 1);
		assert_non_null(standby);
		assert_int_equal(standby->dc != NULL, is_dc() && !shared);
		peers_lease_over(pair.b.peer);
		assert_true(standby->dc != NULL ? standby->dc->fenced : standby->carrier->fenced);
		fleet_write_all(&pair);
		fleet_collect(&pair, FLEET_MAX);
		assert_true(pair_until(&pair, fleet_has_pool));
		pair_close(&pair);
	}
	pair_caps_masked = 0;
}

static bool others_up(struct pair *pair)
{
	(void)pair;
	for (unsigned i = 0; i < FLEET_MAX; i++)
		if (i != CULPRIT && hf_vqp_state(ours[i]) != HF_VQP_UP)
			return false;
	return true;
}

/* V8, R6: the qp dies of it, and with it the wrs of all others that are in flight. */
static void on_a_standby_qp_only_the_culprit_sees_its_error(void **state)
{
	struct ibv_wc wc[FLEET_MAX];
	struct pair pair;

	(void)state;
	fleet_open_on_standby(&pair);
	for (unsigned i = 0; i < FLEET_MAX; i++)
		assert_int_equal(fleet_write(&pair, i, i == CULPRIT ? 1 : pair.b.mr->rkey), 0);
	pair_collect(&pair, &pair.a, FLEET_MAX, wc);
	for (unsigned i = 0; i < FLEET_MAX; i++)
		assert_int_equal(wc[i].status == IBV_WC_SUCCESS, wc[i].wr_id != CULPRIT);
	assert_int_equal(hf_vqp_state(ours[CULPRIT]), HF_VQP_ERROR);
	assert_true(pair_until(&pair, others_up));
	for (unsigned i = 0; i < FLEET_MAX; i++)
		if (i != CULPRIT)
			assert_int_equal(hf_vqp_rail(ours[i]), 1);
	assert_int_equal(pair.a.peer->rails[1].state, RAIL_UP); /* the rail did nothing wrong */
	assert_int_equal(pair.a.peer->rails[1].pause_ns, 0);
	pair_close(&pair);
}

static void a_vqp_that_ends_on_a_standby_qp_disturbs_no_other(void **state)
{
	struct pair pair;

	(void)state;
	fleet_open_on_standby(&pair);
	fleet_write_all(&pair);
	hf_vqp_destroy(ours[FLEET_MAX - 1]);
	fleet_collect(&pair, FLEET_MAX - 1);
	pair_close(&pair);
}

static const struct hf_dev_ops *nic_ops;
static uint64_t fence_asked_ns;

/* For the first 20 ms, the longest that NICs are known to take. */
static int fence_that_takes_a_while(struct hf_qp *qp)
{
	uint64_t now_ns = hf_env_now_ns(qp->dev->env);

	if (fence_asked_ns == 0)
		fence_asked_ns = now_ns;
	return now_ns - fence_asked_ns < 20000000 ? -EINPROGRESS : nic_ops->qp_fence(qp);
}

static void a_vqp_that_ends_waits_for_the_fence_that_the_others_need(void **state)
{
	struct hf_dev_ops ops;
	struct standby *standby;
	struct hf_dev *dev;
	struct pair pair;

	(void)state;
	fleet_open_on_standby(&pair);
	dev = hf_node_dev(pair.a.node, ours[0]->path->rail);
	nic_ops = dev->ops;
	ops = *nic_ops;
	ops.qp_fence = fence_that_takes_a_while;
	fence_asked_ns = 0;
	dev->ops = &ops;
	fleet_write_all(&pair);
	standby = ours[0]->path->shared;
	hf_vqp_destroy(ours[FLEET_MAX - 1]);
	assert_true(fence_asked_ns != 0);
	assert_true(standby->fenced);
	assert_true(standby_tells(standby));
	dev->ops = nic_ops;
	fleet_collect(&pair, FLEET_MAX - 1);
	pair_close(&pair);
}

/* What goes over a standby qp is logged as it is elsewhere: its NIC may be the next to die. */
static void a_wr_on_a_standby_qp_has_its_entry_in_the_log(void **state)
{
	struct pair pair;

	(void)state;
	fleet_open_on_standby(&pair);
	for (unsigned i = 0; i < FLEET_MAX; i++) {
		const struct log_ring *ring = &theirs[i]->log_ring;
		uint64_t turn = ours[i]->log.turn, entry = 0;
		uint32_t number = 0;

		assert_int_equal(fleet_write(&pair, i, pair.b.mr->rkey), 0);
		fleet_collect(&pair, 1);
		assert_non_null(ours[i]->path->shared);
		assert_true(completion_log_newest(ring->entries, ring->slab->ring_entries, &number, &entry));
		assert_int_equal(number, turn & (ours[i]->log.entries - 1));
		assert_true(entry == ours[i]->sends.last.entry);
	}
	pair_close(&pair);
}

static unsigned count_standby_qps(const struct hf_node *node, unsigned rail)
{
	unsigned n = 0;

	list_for_each (at, &vqps_of(node)->pools)
		list_for_each (on, &container_of(at, struct pool, node_link)->qps) {
			const struct standby *standby = container_of(on, struct standby, link);

			n += standby->path.rail == rail && standby->state == STANDBY_READY;
		}
	return n;
}

static bool three_each(struct pair *pair)
{
	return count_standby_qps(pair->a.node, 1) == 3 && count_standby_qps(pair->b.node, 1) == 3;
}

static void the_number_of_standby_qps_follows_that_of_the_vqps_if_told_to(void **state)
{
	struct pair pair;

	(void)state;
	fleet_open_with_pool(&pair);
	assert_int_equal(count_standby_qps(pair.a.node, 1), 1);
	pair.a.node->config.pool_vqps = (FLEET_MAX + 2) / 3;
	assert_true(pair_until(&pair, three_each));
	pair_close(&pair);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_vqps_of_a_link_go_on_on_one_standby_qp_and_then_on_their_own),
		cmocka_unit_test(queues_of_standby_qps_are_polled_when_a_vqp_is_on_one),
		cmocka_unit_test(who_waits_for_room_on_a_standby_qp_has_its_turn),
		cmocka_unit_test(nobody_posts_before_those_that_wait_for_room_on_a_standby_qp),
		cmocka_unit_test(a_list_leaves_in_parts_when_a_standby_qp_has_room_for_no_more),
		cmocka_unit_test(a_standby_qp_is_no_deeper_than_its_device_can_make_it),
		cmocka_unit_test(a_standby_qp_that_breaks_at_the_other_end_is_made_anew),
		cmocka_unit_test(vqps_share_a_pool_whatever_their_queues_hold),
		cmocka_unit_test(without_evidence_of_dc_the_standby_qp_is_an_rc_qp),
		cmocka_unit_test(an_initiator_is_given_up_before_its_psns_are_ambiguous),
		cmocka_unit_test(an_initiator_is_fenced_with_wrs_that_were_not_answered_and_only_then),
		cmocka_unit_test(a_standby_qp_without_vqps_is_fenced_when_the_lease_is_over),
		cmocka_unit_test(on_a_standby_qp_only_the_culprit_sees_its_error),
		cmocka_unit_test(a_vqp_that_ends_on_a_standby_qp_disturbs_no_other),
		cmocka_unit_test(a_vqp_that_ends_waits_for_the_fence_that_the_others_need),
		cmocka_unit_test(a_wr_on_a_standby_qp_has_its_entry_in_the_log),
		cmocka_unit_test(the_number_of_standby_qps_follows_that_of_the_vqps_if_told_to),
	};

	pair_kind = argc > 1 ? argv[1] : "soft";
	return cmocka_run_group_tests(tests, NULL, NULL);
}
