/* Standby qps that many vqps share, the way back to qps of their own, and what a program's own detectors say; over
 * soft or shm, as the argument says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "net/peer_table.h"
#include "pair.h"
#include "vqp/pool.h"

#define VQPS    64u
#define CULPRIT 5u
#define HELD    1000u
#define ASKED   12u /* more than begin at once by themselves */
#define LIST    16u /* as many as fit into a request log */

static struct hf_vqp *ours[VQPS], *theirs[VQPS];
static unsigned made;
static bool uneven;         /* b's vqps hold unequal wrs */
static uint32_t queue_most; /* wrs that a qp of these devices holds; 0: as many as they like */

static struct hf_vqp *make(struct pair *pair, struct end *end)
{
	bool larger = uneven && end == &pair->b && made % 2 == 1;
	struct hf_vqp_init init = {.send_cq = end->cq,
		.recv_cq = end->cq,
		.cap = {.max_send_wr = LIST,
			.max_recv_wr = 16,
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

	(void)request, (void)reply, (void)reply_bytes;
	theirs[made] = make(pair, &pair->b);
	return theirs[made++];
}

static bool is_dc(void)
{
	return strcmp(pair_kind, "soft") == 0;
}

static bool all_up(struct pair *pair)
{
	(void)pair;
	for (unsigned i = 0; i < VQPS; i++)
		if (hf_vqp_state(ours[i]) != HF_VQP_UP || theirs[i] == NULL || hf_vqp_state(theirs[i]) != HF_VQP_UP)
			return false;
	return true;
}

static bool pool_ready(struct pair *pair)
{
	return ours[0]->pool != NULL && pool_pick(ours[0], 0) != NULL && pool_pick(ours[0], 1) != NULL && all_up(pair);
}

static void open_many(struct pair *pair)
{
	made = 0;
	memset(theirs, 0, sizeof(theirs));
	pair_open(pair, HF_POLICY_VARUNA);
	for (unsigned i = 0; i < 4 && queue_most > 0; i++)
		hf_node_dev(i < 2 ? pair->a.node : pair->b.node, i % 2)->attr.max_qp_wr = queue_most;
	pair->service.on_request = on_request;
	assert_int_equal(hf_peer_connect(pair->a.node, &pair->control[1][0], 1, &pair->a.peer, NULL), 0);
	for (unsigned i = 0; i < VQPS; i++) {
		ours[i] = make(pair, &pair->a);
		assert_int_equal(hf_vqp_connect(ours[i], pair->a.peer, "test", NULL, 0), 0);
	}
	assert_true(pair_until(pair, all_up));
	assert_true(pair_until(pair, pool_ready));
}

/* As if so many of others were under way that no other may begin, however long a test takes. */
static void hold_rebuilds(struct pair *pair)
{
	pair->a.node->rebuilds.running_count += HELD;
}

/* Only that of one vqp, or all of them: VQPS. */
static void let_rebuild(struct pair *pair, unsigned which)
{
	for (unsigned i = 0; i < VQPS; i++) {
		bool may = which == VQPS || which == i;

		ours[i]->rebuild.at_ns = may ? 0 : UINT64_MAX;
		ours[i]->rebuild.backoff_ns = may ? 0 : UINT64_MAX / 4;
	}
	pair->a.node->rebuilds.running_count -= HELD;
}

static int write_on(struct pair *pair, unsigned i, uint32_t rkey)
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

/* In one call. */
static void post_list(struct pair *pair, unsigned i, unsigned n)
{
	struct ibv_sge sge = {.addr = (uintptr_t)pair->a.memory + 64 * i, .length = 64, .lkey = pair->a.mr->lkey};
	struct ibv_send_wr wrs[LIST], *bad;

	assert_true(n <= LIST);
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

static void write_on_all(struct pair *pair)
{
	for (unsigned i = 0; i < VQPS; i++)
		assert_int_equal(write_on(pair, i, pair->b.mr->rkey), 0);
}

static void collect_successes(struct pair *pair, unsigned n)
{
	struct ibv_wc wc[VQPS];

	pair_collect(pair, &pair->a, n, wc);
	for (unsigned i = 0; i < n; i++)
		assert_int_equal(wc[i].status, IBV_WC_SUCCESS);
}

static bool all_shared(struct pair *pair)
{
	for (unsigned i = 0; i < VQPS; i++)
		if (ours[i]->path.shared == NULL || theirs[i]->path.shared == NULL)
			return false;
	return all_up(pair);
}

/* All vqps are on standby qps of rail 1 then, and stay there. */
static void lose_rail_0(struct pair *pair)
{
	hold_rebuilds(pair);
	pair_cut(pair, 0, false);
	write_on_all(pair);
	collect_successes(pair, VQPS);
	assert_true(pair_until(pair, all_shared));
}

static void open_on_standby(struct pair *pair)
{
	open_many(pair);
	lose_rail_0(pair);
}

static bool all_dedicated_on(unsigned rail)
{
	for (unsigned i = 0; i < VQPS; i++)
		if (ours[i]->path.shared != NULL || hf_vqp_rail(ours[i]) != (int)rail ||
			theirs[i]->path.shared != NULL || hf_vqp_rail(theirs[i]) != (int)rail)
			return false;
	return true;
}

static bool all_dedicated_on_1(struct pair *pair)
{
	return all_up(pair) && all_dedicated_on(1);
}

static bool all_dedicated_on_0(struct pair *pair)
{
	return all_up(pair) && all_dedicated_on(0);
}

/* A tick goes by the time at which its turn began, which may be before a swap that the turn has begun. Were that taken
 * for one that has waited too long, it would break the standby qp of all. */
static void a_swap_that_began_in_the_turn_of_a_tick_is_not_late(void **state)
{
	struct recovery_event swap = {.type = RECOVERY_EVENT_RETURN};
	struct pair pair;

	(void)state;
	open_many(&pair);
	hold_rebuilds(&pair);
	pair_cut(&pair, 0, false);
	assert_true(pair_until(&pair, all_shared));
	failover_event(ours[0], &swap);
	assert_int_equal(ours[0]->recovery.state, RECOVERY_QUIET);
	failover_tick(ours[0], ours[0]->recovery.since_ns - 1);
	assert_int_equal(ours[0]->recovery.state, RECOVERY_QUIET);
	assert_int_equal(ours[0]->recovery.kind, RECOVERY_FAILBACK);
	assert_false(ours[0]->path.broken);
	assert_true(pair_until(&pair, all_up));
	pair_close(&pair);
}

static void all_vqps_of_a_link_go_on_on_one_standby_qp_and_then_on_their_own(void **state)
{
	struct pair pair;

	(void)state;
	open_many(&pair);
	memset(pair.a.memory, 7, 64 * VQPS);
	lose_rail_0(&pair);
	assert_false(hf_vqp_is_dedicated(ours[0]));
	assert_int_equal(ours[0]->path.shared->users, VQPS);
	assert_int_equal(ours[0]->path.shared->dc != NULL, is_dc());
	assert_int_equal(ours[0]->path.shared->carrier->is_initiator, is_dc());
	assert_memory_equal(pair.b.memory, pair.a.memory, 64 * VQPS);
	let_rebuild(&pair, VQPS);
	write_on_all(&pair);
	assert_true(pair_until(&pair, all_dedicated_on_1));
	assert_true(hf_vqp_is_dedicated(ours[0]));
	collect_successes(&pair, VQPS);
	pair_cut(&pair, 0, true);
	assert_true(pair_until(&pair, all_dedicated_on_0));
	write_on_all(&pair);
	collect_successes(&pair, VQPS);
	pair_close(&pair);
}

/* They share a core, and that one stands still. */
static void nothing_is_rebuilt_while_another_vqp_fails_over(void **state)
{
	struct hf_vqp *stands_still;
	struct rebuilds *rebuilds;
	struct pair pair;
	uint64_t now_ns;

	(void)state;
	open_on_standby(&pair);
	stands_still = ours[0];
	rebuilds = &pair.a.node->rebuilds;
	now_ns = hf_env_now_ns(pair.a.node->env);
	let_rebuild(&pair, VQPS);
	stands_still->state = HF_VQP_RECOVERING;
	stands_still->recovery.since_ns = now_ns + 1; /* begun since the turn */
	list_push_back(&pair.a.node->recovering, &stands_still->recovering_link);
	assert_false(rebuild_turn(pair.a.node, now_ns));
	assert_int_equal(rebuilds->running_count, 0);
	assert_true(rebuild_turn(pair.a.node, now_ns + 1000000000ull)); /* one that finds no path is not waited for */
	assert_true(rebuilds->running_count > 0);
	list_remove(&stands_still->recovering_link);
	stands_still->state = HF_VQP_UP;
	pair_close(&pair);
}

static unsigned polled_queues(struct hf_node *node, bool spare)
{
	unsigned n = 0;

	for (unsigned rail = 0; rail < node->rail_count; rail++)
		for (unsigned i = 0; i < node->rails[rail].cqs.count; i++)
			n += node->rails[rail].cqs.cqs[i].spare == spare && node->rails[rail].cqs.cqs[i].carrying > 0;
	return n;
}

/* Nothing completes into them. */
static void queues_of_standby_qps_are_polled_when_a_vqp_is_on_one(void **state)
{
	struct pair pair;

	(void)state;
	open_many(&pair);
	hold_rebuilds(&pair);
	assert_int_equal(polled_queues(pair.a.node, true), 0);
	assert_int_not_equal(polled_queues(pair.a.node, false), 0);
	pair_cut(&pair, 0, false);
	write_on_all(&pair);
	collect_successes(&pair, VQPS);
	assert_true(pair_until(&pair, all_shared));
	assert_int_equal(polled_queues(pair.a.node, true), 1);
	assert_int_equal(polled_queues(pair.a.node, false), 0);
	pair_close(&pair);
}

/* Turns look at the standby qps only then. */
static void who_waits_for_room_on_a_standby_qp_has_its_turn(void **state)
{
	struct pair pair;

	(void)state;
	open_on_standby(&pair);
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
	open_on_standby(&pair);
	carrier = ours[0]->path.shared->carrier;
	posted = carrier->posted;
	carrier_wait(ours[0]);
	assert_int_equal(write_on(&pair, 1, pair.b.mr->rkey), 0);
	assert_int_equal(write_on(&pair, 0, pair.b.mr->rkey), 0);
	assert_int_equal(carrier->posted, posted);
	assert_true(pool_turn(pair.a.node));
	assert_int_equal(carrier->wrs[posted % (2 * CARRIER_DEPTH)].num, ours[0]->num);
	assert_int_equal(carrier->wrs[(carrier->posted - 1) % (2 * CARRIER_DEPTH)].num, ours[1]->num);
	collect_successes(&pair, 2);
	pair_close(&pair);
}

static void a_list_leaves_in_parts_when_a_standby_qp_has_room_for_no_more(void **state)
{
	struct pair pair;
	struct carrier *carrier;
	uint32_t cqes;
	uint64_t posted;

	(void)state;
	open_on_standby(&pair);
	carrier = ours[0]->path.shared->carrier;
	cqes = carrier->path.cqes;
	posted = carrier->posted;
	carrier->path.cqes = 2 * 6;
	post_list(&pair, 0, LIST);
	assert_in_range(carrier->posted - posted, 1, 6);
	collect_successes(&pair, LIST);
	assert_true(carrier->posted - posted >= LIST);
	carrier->path.cqes = cqes;
	pair_close(&pair);
}

static void a_standby_qp_is_no_deeper_than_its_device_can_make_it(void **state)
{
	struct pair pair;

	(void)state;
	queue_most = 2 * LIST + 4;
	open_on_standby(&pair);
	for (unsigned i = 0; i < VQPS; i++)
		post_list(&pair, i, LIST);
	assert_true(pair.a.node->standby_waits);
	for (unsigned i = 0; i < LIST; i++)
		collect_successes(&pair, VQPS);
	pair_close(&pair);
	queue_most = 0;
}

static struct pool_qp *standby_of(const struct hf_vqp *vqp, unsigned rail)
{
	list_for_each (at, &vqp->pool->qps)
		if (container_of(at, struct pool_qp, link)->path.rail == rail)
			return container_of(at, struct pool_qp, link);
	return NULL;
}

static uint32_t lost_offer;

static bool has_another_one(struct pair *pair)
{
	return pool_ready(pair) && pool_pick(ours[0], 1)->offer != lost_offer && standby_of(theirs[0], 1) != NULL &&
	       standby_of(theirs[0], 1)->offer == pool_pick(ours[0], 1)->offer;
}

/* As when another peer's traffic on the same initiator fails, while nobody is on this one: the picker would not see it,
 * and what it posts there nobody could judge. */
static void a_standby_qp_that_breaks_at_the_other_end_is_made_anew(void **state)
{
	struct pair pair;

	(void)state;
	open_many(&pair);
	lost_offer = standby_of(theirs[0], 1)->offer;
	carrier_break(standby_of(theirs[0], 1)->carrier);
	assert_true(pair_until(&pair, has_another_one));
	lose_rail_0(&pair);
	pair_close(&pair);
}

/* Each end knows the caps of its own vqps only, and both must put the same ones on a standby qp. */
static void vqps_share_a_pool_whatever_their_queues_hold(void **state)
{
	struct pair pair;

	(void)state;
	uneven = true;
	open_on_standby(&pair);
	uneven = false;
	for (unsigned i = 1; i < VQPS; i++) {
		assert_ptr_equal(ours[i]->pool, ours[0]->pool);
		assert_ptr_equal(theirs[i]->pool, theirs[0]->pool);
	}
	pair_close(&pair);
}

static struct log_ring next_ring;
static uint64_t *former_entries;

/* b has said what executed, a goes on at once, and b's vqp ends before it hears where. */
static void end_theirs(struct hf_vqp *vqp, void *context)
{
	struct pair *pair = context;
	struct log_slab *slab = theirs[0]->log_ring.slab;

	if (hf_vqp_state(vqp) != HF_VQP_UP || former_entries != NULL)
		return;
	former_entries = theirs[0]->log_ring.entries;
	hf_vqp_destroy(theirs[0]);
	theirs[0] = NULL;
	assert_int_equal(log_ring_take(pair->b.pd, slab->ring_entries, &next_ring), 0);
}

static bool theirs_has_ended(struct pair *pair)
{
	(void)pair;
	return former_entries != NULL;
}

static void a_log_that_strays_may_write_is_given_to_no_other_vqp(void **state)
{
	struct pair pair;

	(void)state;
	open_many(&pair);
	hold_rebuilds(&pair);
	former_entries = NULL;
	ours[0]->context = &pair;
	ours[0]->changed = end_theirs;
	pair_cut(&pair, 0, false);
	assert_int_equal(write_on(&pair, 0, pair.b.mr->rkey), 0);
	assert_true(pair_until(&pair, theirs_has_ended));
	assert_ptr_not_equal(next_ring.entries, former_entries);
	log_ring_give(&next_ring, 0);
	ours[0]->changed = NULL;
	pair_close(&pair);
}

/* It waits for all of them: one that was asked about first must not be answered last. */
static void vqps_that_the_other_side_asks_about_are_fenced_in_one_turn_in_that_order(void **state)
{
	struct pair pair;
	struct list *at;

	(void)state;
	open_many(&pair);
	for (unsigned i = 0; i < ASKED; i++) {
		struct message fence = {.kind = MESSAGE_FENCE,
			.to = theirs[i]->num,
			.from = theirs[i]->remote_num,
			.epoch = theirs[i]->recovery.epoch + 1};

		exchange_message(theirs[i], &fence);
	}
	at = pair.b.node->asked.next;
	for (unsigned i = 0; i < ASKED; i++, at = at->next)
		assert_ptr_equal(container_of(at, struct hf_vqp, due_link), theirs[i]);
	(void)due_turn(pair.b.node);
	assert_true(list_empty(&pair.b.node->asked));
	assert_true(pair_until(&pair, all_up));
	pair_close(&pair);
}

/* The picker may be on its second path before the other side was on its first, which is when that joins its pool. */
static void who_is_told_of_a_standby_qp_before_it_joined_the_pool_finds_it(void **state)
{
	struct hf_vqp_counters counters;
	struct pair pair;

	(void)state;
	open_many(&pair);
	hold_rebuilds(&pair);
	for (unsigned i = 0; i < VQPS / 2; i++) /* the others keep the pool */
		pool_forget(theirs[i]);
	pair_cut(&pair, 0, false);
	write_on_all(&pair);
	collect_successes(&pair, VQPS);
	assert_true(pair_until(&pair, all_shared));
	for (unsigned i = 0; i < VQPS; i++) {
		hf_vqp_counters(theirs[i], &counters);
		assert_int_equal(counters.failovers, 1);
		assert_non_null(theirs[i]->pool);
	}
	pair_close(&pair);
}

/* a picks, and its own wrs have not failed. */
static void who_picks_hears_of_a_failed_wr_of_the_other_side(void **state)
{
	struct message fence = {.kind = MESSAGE_FENCE, .wr_failed = 1};
	struct pair pair;

	(void)state;
	open_many(&pair);
	assert_true(ours[0]->recovery.picks);
	fence.to = ours[0]->num;
	fence.from = theirs[0]->num;
	fence.epoch = ours[0]->recovery.epoch + 1;
	exchange_message(ours[0], &fence);
	assert_int_equal(write_on(&pair, 0, pair.b.mr->rkey), 0);
	collect_successes(&pair, 1);
	assert_int_equal(hf_vqp_rail(ours[0]), 1);
	pair_close(&pair);
}

static bool some_are_through_while_others_wait(struct pair *pair)
{
	bool through = false, waits = false;

	(void)pair;
	for (unsigned i = 0; i < VQPS; i++) {
		through = through || hf_vqp_rail(ours[i]) == 1;
		waits = waits || ours[i]->path.cut;
	}
	return through && waits;
}

static void the_first_vqps_are_through_the_exchange_while_others_wait_for_their_turn(void **state)
{
	struct pair pair;

	(void)state;
	open_many(&pair);
	hold_rebuilds(&pair);
	pair_cut(&pair, 0, false);
	assert_true(pair_until(&pair, some_are_through_while_others_wait));
	assert_true(pair_until(&pair, all_shared));
	write_on_all(&pair);
	collect_successes(&pair, VQPS);
	pair_close(&pair);
}

static uint64_t messages_of(const struct pair *pair)
{
	const struct hf_peer *theirs_of_us = container_of(pair->b.node->peers.next, struct hf_peer, node_link);

	return pair->a.peer->control->session.queued + theirs_of_us->control->session.queued;
}

/* Each side: that the rail is down; 1, 2, 4, 8, 16, 32 and the rest, a message each; and an answer to each of
 * these. Some of them come together. */
static void many_vqps_settle_a_failure_in_few_messages(void **state)
{
	struct pair pair;
	uint64_t before;

	(void)state;
	open_many(&pair);
	hold_rebuilds(&pair);
	before = messages_of(&pair);
	pair_cut(&pair, 0, false);
	assert_true(pair_until(&pair, all_shared));
	assert_true(messages_of(&pair) - before <= 2 * (1 + 7 + 7));
	pair_close(&pair);
}

/* Who has no DC with evidence shares RC qps, with whoever has. */
static void without_evidence_of_dc_the_standby_qp_is_an_rc_qp(void **state)
{
	struct pair pair;

	(void)state;
	pair_caps_masked = HF_DEV_DC_EVIDENCE;
	open_many(&pair);
	pair_caps_masked = 0;
	assert_null(pool_pick(ours[0], 1)->dc);
	assert_int_equal(pool_pick(ours[0], 1)->path.qp->type, IBV_QPT_RC);
	lose_rail_0(&pair);
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
	open_on_standby(&pair);
	worn = ours[0]->path.shared->carrier;
	num = worn->path.qp->qp_num;
	worn->path.psn = (worn->path.psn - CARRIER_PACKETS) & 0xffffffu; /* as if it had sent so many */
	write_on_all(&pair);
	collect_successes(&pair, VQPS);
	for (unsigned i = 0; i < VQPS; i++)
		assert_int_not_equal(ours[i]->path.qp->qp_num, num);
	assert_int_equal(pair.a.peer->rails[1].pause_ns, 0);
	pair_close(&pair);
}

static bool is_fenced(struct pair *pair)
{
	return pool_qp_fence(ours[0], hf_env_now_ns(hf_loop_env(pair->loop))) == FENCE_DONE;
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

		open_on_standby(&pair);
		initiator = ours[0]->path.shared->carrier;
		if (!answered)
			assert_int_equal(write_on(&pair, 0, pair.b.mr->rkey), 0);
		for (unsigned i = 0; i < 1000000 && !is_fenced(&pair); i++)
			; /* nobody reads the queue meanwhile */
		assert_true(is_fenced(&pair));
		assert_int_equal(hf_qp_query(initiator->path.qp, &attr, IBV_QP_STATE), 0);
		assert_int_equal(attr.qp_state, answered ? IBV_QPS_RTS : IBV_QPS_ERR);
		assert_int_equal(initiator->fenced, !answered);
		assert_true(ours[0]->path.shared->dc->fenced);
		if (!answered)
			collect_successes(&pair, 1);
		assert_true(pair_until(&pair, all_up));
		pair_close(&pair);
	}
}

static bool others_up(struct pair *pair)
{
	(void)pair;
	for (unsigned i = 0; i < VQPS; i++)
		if (i != CULPRIT && hf_vqp_state(ours[i]) != HF_VQP_UP)
			return false;
	return true;
}

/* V8, R6: the qp dies of it, and with it the wrs of all others that are in flight. */
static void on_a_standby_qp_only_the_culprit_sees_its_error(void **state)
{
	struct ibv_wc wc[VQPS];
	struct pair pair;

	(void)state;
	open_on_standby(&pair);
	for (unsigned i = 0; i < VQPS; i++)
		assert_int_equal(write_on(&pair, i, i == CULPRIT ? 1 : pair.b.mr->rkey), 0);
	pair_collect(&pair, &pair.a, VQPS, wc);
	for (unsigned i = 0; i < VQPS; i++)
		assert_int_equal(wc[i].status == IBV_WC_SUCCESS, wc[i].wr_id != CULPRIT);
	assert_int_equal(hf_vqp_state(ours[CULPRIT]), HF_VQP_ERROR);
	assert_true(pair_until(&pair, others_up));
	for (unsigned i = 0; i < VQPS; i++)
		if (i != CULPRIT)
			assert_int_equal(hf_vqp_rail(ours[i]), 1);
	assert_int_equal(pair.a.peer->rails[1].state, RAIL_UP); /* the rail did nothing wrong */
	assert_int_equal(pair.a.peer->rails[1].pause_ns, 0);
	pair_close(&pair);
}

/* A message waits for a qp of its own, and nothing before it is in flight. */
static void a_probe_that_fails_on_the_rail_in_use_is_a_failure_of_it(void **state)
{
	struct pair pair;

	(void)state;
	open_on_standby(&pair);
	list_remove(&ours[0]->rebuild.link);
	list_push_back(&pair.a.node->rebuilds.running, &ours[0]->rebuild.link);
	pair.a.node->rebuilds.running_count++;
	ours[0]->rebuild.rail = ours[0]->path.rail;
	ours[0]->rebuild.state = REBUILD_PROBING;
	rebuild_probed(ours[0], false);
	assert_true(ours[0]->path.broken);
	assert_int_equal(hf_vqp_state(ours[0]), HF_VQP_RECOVERING);
	assert_true(pair_until(&pair, all_up));
	pair_close(&pair);
}

static bool has_failed(struct pair *pair)
{
	(void)pair;
	return ours[0]->state == HF_VQP_ERROR && !ours[0]->failing;
}

/* The other side's vqp ended before it heard that ours is on a standby qp; 2: when ours was about to ask it to end. */
static void what_the_other_side_fenced_nowhere_is_not_over_before_it_cannot_execute(void **state)
{
	struct message closed = {.kind = MESSAGE_CLOSED};
	struct pair pair;
	struct ibv_wc wc;
	uint64_t told_ns;

	(void)state;
	for (unsigned how = 0; how < 3; how++) {
		open_on_standby(&pair);
		pair.a.peer->lease.ours_ns = 100000000;
		assert_int_equal(write_on(&pair, 0, pair.b.mr->rkey), 0);
		closed.about_qp = how == 1 ? ours[0]->path.our_key : 0;
		told_ns = hf_env_now_ns(hf_loop_env(pair.loop));
		if (how == 2)
			hf_vqp_abort(ours[0]);
		(how == 2 ? exchange_ended : exchange_closed)(ours[0], &closed);
		assert_true(pair_until(&pair, has_failed));
		assert_int_equal(hf_vcq_poll(pair.a.cq, 1, &wc), 1);
		assert_int_equal(ours[0]->strays, how != 1);
		if (how != 1)
			assert_true(hf_env_now_ns(hf_loop_env(pair.loop)) - told_ns >= 100000000);
		pair_close(&pair);
	}
}

static void a_vqp_that_ends_on_a_standby_qp_disturbs_no_other(void **state)
{
	struct pair pair;

	(void)state;
	open_on_standby(&pair);
	write_on_all(&pair);
	hf_vqp_destroy(ours[VQPS - 1]);
	collect_successes(&pair, VQPS - 1);
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
	struct pool_qp *standby;
	struct hf_dev *dev;
	struct pair pair;

	(void)state;
	open_on_standby(&pair);
	dev = hf_node_dev(pair.a.node, ours[0]->path.rail);
	nic_ops = dev->ops;
	ops = *nic_ops;
	ops.qp_fence = fence_that_takes_a_while;
	fence_asked_ns = 0;
	dev->ops = &ops;
	write_on_all(&pair);
	standby = ours[0]->path.shared;
	hf_vqp_destroy(ours[VQPS - 1]);
	assert_true(fence_asked_ns != 0);
	assert_true(standby->fenced);
	assert_true(pool_qp_tells(standby));
	dev->ops = nic_ops;
	collect_successes(&pair, VQPS - 1);
	pair_close(&pair);
}

static bool second_done(struct pair *pair)
{
	struct ibv_wc wc;

	return hf_vcq_poll(pair->b.cq, 1, &wc) == 1 && wc.status == IBV_WC_SUCCESS && wc.wr_id == 9;
}

static void send_a_letter(struct pair *pair)
{
	struct ibv_sge sge = {.addr = (uintptr_t)pair->a.memory, .length = 8, .lkey = pair->a.mr->lkey};
	struct ibv_sge into = {.addr = (uintptr_t)pair->b.memory + 4096, .length = 8, .lkey = pair->b.mr->lkey};
	struct ibv_send_wr send = {.wr_id = 1, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;
	struct ibv_recv_wr recv = {.wr_id = 9, .sg_list = &into, .num_sge = 1}, *bad_recv;

	memcpy(pair->a.memory, "a letter", 8);
	assert_int_equal(hf_vqp_post_recv(theirs[3], &recv, &bad_recv), 0);
	assert_int_equal(hf_vqp_post_send(ours[3], &send, &bad), 0);
}

/* R7: a standby qp has no receives, or messages of vqps would be mixed up. */
static void messages_wait_for_a_qp_of_their_own(void **state)
{
	struct pair pair;

	(void)state;
	open_on_standby(&pair);
	send_a_letter(&pair);
	pair_turn(&pair, 100, 0);
	assert_memory_not_equal(pair.b.memory + 4096, "a letter", 8);
	let_rebuild(&pair, 3);
	assert_true(pair_until(&pair, second_done));
	assert_memory_equal(pair.b.memory + 4096, "a letter", 8);
	assert_null(ours[3]->path.shared);
	assert_non_null(ours[4]->path.shared);
	pair_close(&pair);
}

/* As if its wrs had failed there for long. */
static void pause_for_good(struct pair *pair, unsigned rail)
{
	struct rail_actions ignored;

	rail_step(&pair->a.peer->rails[rail], RAIL_EVENT_WC_ERROR, hf_loop_now_ns(pair->loop), &ignored);
	assert_int_equal(pair->a.peer->rails[rail].state, RAIL_PAUSED);
	pair->a.peer->rails[rail].resume_at_ns = UINT64_MAX;
}

static bool rail_0_up(struct pair *pair)
{
	return peer_usable(pair->a.peer) == 3;
}

/* Nobody makes a qp on such a rail, and the way back to a better one is closed to who waits for a qp of its own. */
static void a_message_does_not_wait_for_the_end_of_its_rails_pause(void **state)
{
	struct pair pair;

	(void)state;
	open_on_standby(&pair);
	pair_cut(&pair, 0, true);
	assert_true(pair_until(&pair, rail_0_up));
	assert_true(all_shared(&pair));
	pause_for_good(&pair, 1);
	send_a_letter(&pair);
	let_rebuild(&pair, 3);
	assert_true(pair_until(&pair, second_done));
	assert_int_equal(hf_vqp_rail(ours[3]), 0);
	assert_null(ours[3]->path.shared);
	assert_int_equal(pair.a.peer->rails[1].state, RAIL_PAUSED);
	pair_close(&pair);
}

/* Else one that is whole again and was paused for long waits until the other has been tried for as long. */
static void paused_rails_take_turns_where_no_other_is_left(void **state)
{
	struct rail_actions ignored;
	struct pair pair;

	(void)state;
	open_many(&pair);
	pause_for_good(&pair, 0);
	assert_int_equal(peer_usable(pair.a.peer), 2);
	rail_step(&pair.a.peer->rails[1], RAIL_EVENT_WC_ERROR, hf_loop_now_ns(pair.loop) + 1, &ignored);
	assert_int_equal(peer_usable(pair.a.peer), 1);
	rail_step(&pair.a.peer->rails[0], RAIL_EVENT_WC_ERROR, hf_loop_now_ns(pair.loop) + 2, &ignored);
	assert_int_equal(peer_usable(pair.a.peer), 2);
	pair_close(&pair);
}

static void a_rail_that_the_program_reports_is_left_until_that_is_revoked(void **state)
{
	struct pair pair;

	(void)state;
	open_many(&pair);
	assert_int_equal(hf_peer_report(pair.b.peer, 0), 0); /* by the side that does not pick */
	write_on_all(&pair);
	collect_successes(&pair, VQPS);
	assert_true(pair_until(&pair, all_dedicated_on_1));
	assert_int_equal(hf_peer_revoke(pair.b.peer, 0), 0);
	assert_true(pair_until(&pair, all_dedicated_on_0));
	assert_int_equal(hf_peer_report(pair.a.peer, 2), -EINVAL);
	pair_close(&pair);
}

static bool has_been_on_1(struct pair *pair)
{
	struct hf_vqp_counters counters;

	(void)pair;
	hf_vqp_counters(ours[0], &counters);
	return counters.failovers == 1;
}

static void a_triggered_failover_lasts_a_moment(void **state)
{
	struct pair pair;

	(void)state;
	open_many(&pair);
	assert_int_equal(hf_peer_trigger(pair.a.peer, 0), 0);
	assert_true(pair_until(&pair, has_been_on_1));
	assert_true(pair_until(&pair, all_dedicated_on_0));
	pair_close(&pair);
}

/* What goes over a standby qp is logged as it is elsewhere: its NIC may be the next to die. */
static void a_wr_on_a_standby_qp_has_its_entry_in_the_log(void **state)
{
	struct pair pair;

	(void)state;
	open_on_standby(&pair);
	for (unsigned i = 0; i < VQPS; i++) {
		const struct log_ring *ring = &theirs[i]->log_ring;
		uint64_t turn = ours[i]->log.turn, entry = 0;
		uint32_t number = 0;

		assert_int_equal(write_on(&pair, i, pair.b.mr->rkey), 0);
		collect_successes(&pair, 1);
		assert_non_null(ours[i]->path.shared);
		assert_true(log_newest(ring->entries, ring->slab->ring_entries, &number, &entry));
		assert_int_equal(number, turn & (ours[i]->log.entries - 1));
		assert_true(entry == ours[i]->sends.last_entry);
	}
	pair_close(&pair);
}

static unsigned count_standby_qps(const struct hf_node *node, unsigned rail)
{
	unsigned n = 0;

	list_for_each (at, &node->pools)
		list_for_each (on, &container_of(at, struct pool, node_link)->qps) {
			const struct pool_qp *standby = container_of(on, struct pool_qp, link);

			n += standby->path.rail == rail && standby->state == POOL_READY;
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
	open_many(&pair);
	assert_int_equal(count_standby_qps(pair.a.node, 1), 1);
	pair.a.node->config.pool_vqps = (VQPS + 2) / 3;
	assert_true(pair_until(&pair, three_each));
	pair_close(&pair);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_vqps_of_a_link_go_on_on_one_standby_qp_and_then_on_their_own),
		cmocka_unit_test(a_swap_that_began_in_the_turn_of_a_tick_is_not_late),
		cmocka_unit_test(nothing_is_rebuilt_while_another_vqp_fails_over),
		cmocka_unit_test(queues_of_standby_qps_are_polled_when_a_vqp_is_on_one),
		cmocka_unit_test(who_waits_for_room_on_a_standby_qp_has_its_turn),
		cmocka_unit_test(vqps_that_the_other_side_asks_about_are_fenced_in_one_turn_in_that_order),
		cmocka_unit_test(nobody_posts_before_those_that_wait_for_room_on_a_standby_qp),
		cmocka_unit_test(a_list_leaves_in_parts_when_a_standby_qp_has_room_for_no_more),
		cmocka_unit_test(a_standby_qp_is_no_deeper_than_its_device_can_make_it),
		cmocka_unit_test(a_standby_qp_that_breaks_at_the_other_end_is_made_anew),
		cmocka_unit_test(vqps_share_a_pool_whatever_their_queues_hold),
		cmocka_unit_test(a_log_that_strays_may_write_is_given_to_no_other_vqp),
		cmocka_unit_test(who_is_told_of_a_standby_qp_before_it_joined_the_pool_finds_it),
		cmocka_unit_test(who_picks_hears_of_a_failed_wr_of_the_other_side),
		cmocka_unit_test(the_first_vqps_are_through_the_exchange_while_others_wait_for_their_turn),
		cmocka_unit_test(many_vqps_settle_a_failure_in_few_messages),
		cmocka_unit_test(without_evidence_of_dc_the_standby_qp_is_an_rc_qp),
		cmocka_unit_test(an_initiator_is_fenced_with_wrs_that_were_not_answered_and_only_then),
		cmocka_unit_test(an_initiator_is_given_up_before_its_psns_are_ambiguous),
		cmocka_unit_test(on_a_standby_qp_only_the_culprit_sees_its_error),
		cmocka_unit_test(a_probe_that_fails_on_the_rail_in_use_is_a_failure_of_it),
		cmocka_unit_test(what_the_other_side_fenced_nowhere_is_not_over_before_it_cannot_execute),
		cmocka_unit_test(a_vqp_that_ends_on_a_standby_qp_disturbs_no_other),
		cmocka_unit_test(a_vqp_that_ends_waits_for_the_fence_that_the_others_need),
		cmocka_unit_test(a_wr_on_a_standby_qp_has_its_entry_in_the_log),
		cmocka_unit_test(messages_wait_for_a_qp_of_their_own),
		cmocka_unit_test(a_message_does_not_wait_for_the_end_of_its_rails_pause),
		cmocka_unit_test(paused_rails_take_turns_where_no_other_is_left),
		cmocka_unit_test(a_rail_that_the_program_reports_is_left_until_that_is_revoked),
		cmocka_unit_test(a_triggered_failover_lasts_a_moment),
		cmocka_unit_test(the_number_of_standby_qps_follows_that_of_the_vqps_if_told_to),
	};

	pair_kind = argc > 1 ? argv[1] : "soft";
	return cmocka_run_group_tests(tests, NULL, NULL);
}
