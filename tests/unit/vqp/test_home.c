/* Where atomics take place when NICs do not exclude one another. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "pair.h"
#include "vqp/objects.h"
#include "vqp/atomic/uid_slots.h"

static void add_one(struct pair *pair, uint64_t wr_id)
{
	struct ibv_sge sge = {.addr = (uintptr_t)pair->a.memory + wr_id * 8, .length = 8, .lkey = pair->a.mr->lkey};
	struct ibv_send_wr wr = {.wr_id = wr_id,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.atomic = {.remote_addr = (uintptr_t)pair->b.memory, .rkey = pair->b.mr->rkey, .compare_add = 1}};
	struct ibv_send_wr *bad;

	assert_int_equal(hf_vqp_post_send(pair->a.vqp, &wr, &bad), 0);
}

static void expect(struct pair *pair, uint64_t wr_id)
{
	struct ibv_wc wc;

	pair_collect(pair, &pair->a, 1, &wc);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.wr_id, wr_id);
	assert_int_equal(((const uint64_t *)(const void *)pair->a.memory)[wr_id], wr_id);
}

static bool home_is_1(struct pair *pair)
{
	return pair->b.pd->home.rail == 1;
}

static bool home_is_0(struct pair *pair)
{
	return pair->b.pd->home.rail == 0 && hf_vqp_rail(pair->a.vqp) == 0;
}

static void atomics_have_a_rail_of_their_own_and_follow_the_peers(void **state)
{
	struct pair pair;

	(void)state;
	pair_caps_masked = HF_DEV_ATOMIC_GLOBAL;
	pair_open(&pair, HF_POLICY_VARUNA);
	pair_connect(&pair);
	assert_int_equal(region_of(pair.b.mr)->mrs[0]->access & IBV_ACCESS_REMOTE_ATOMIC, 0);
	assert_int_equal(region_of(pair.b.mr)->mrs[1]->access & IBV_ACCESS_REMOTE_ATOMIC, 0);
	assert_true(home_is_0(&pair));
	add_one(&pair, 0);
	expect(&pair, 0);
	pair_cut(&pair, 0, false);
	add_one(&pair, 1);
	expect(&pair, 1);
	assert_true(home_is_1(&pair));
	assert_ptr_equal(region_of(pair.b.mr)->atomics->dev, hf_node_dev(pair.b.node, 1));
	pair_cut(&pair, 0, true);
	assert_true(pair_until(&pair, home_is_0));
	add_one(&pair, 2);
	expect(&pair, 2);
	pair_close(&pair);
	pair_caps_masked = 0;
}

static void see_rail_0(struct end *end, bool usable)
{
	end->peer->control_lost[0] = !usable;
	peer_refresh_rails(end->peer);
}

static bool homes_are_1(struct pair *pair)
{
	return pair->a.pd->home.rail == 1 && home_is_1(pair);
}

static bool homes_are_0(struct pair *pair)
{
	return pair->a.pd->home.rail == 0 && home_is_0(pair);
}

/* As where the other side has a third node that it reaches on that rail only. */
static void a_home_follows_the_home_of_the_other_side(void **state)
{
	struct pair pair;

	(void)state;
	pair_caps_masked = HF_DEV_ATOMIC_GLOBAL;
	pair_open(&pair, HF_POLICY_VARUNA);
	pair_connect(&pair);
	see_rail_0(&pair.a, false);
	assert_true(pair_until(&pair, homes_are_1));
	add_one(&pair, 0);
	expect(&pair, 0);
	see_rail_0(&pair.a, true);
	assert_true(pair_until(&pair, homes_are_0));
	add_one(&pair, 1);
	expect(&pair, 1);
	pair_close(&pair);
	pair_caps_masked = 0;
}

/* A tick goes by the time at which its turn began. */
static void who_began_to_wait_for_the_home_in_the_turn_of_a_tick_does_not_despair(void **state)
{
	struct pair pair;
	struct hf_vqp *vqp;

	(void)state;
	pair_open(&pair, HF_POLICY_VARUNA);
	pair_connect(&pair);
	vqp = pair.a.vqp;
	home_wait(vqp, 1);
	vqp->sends.tail++; /* an atomic waits */
	assert_false(home_despairs(vqp, vqp->home_wait_ns - 1));
	assert_true(home_despairs(vqp, vqp->home_wait_ns + vqp->node->config.budget_ns + 1));
	vqp->sends.tail--;
	home_reached(vqp);
	pair_close(&pair);
}

static void where_atomicity_is_global_no_rail_is_special(void **state)
{
	struct pair pair;

	(void)state;
	pair_open(&pair, HF_POLICY_VARUNA);
	pair_connect(&pair);
	assert_int_equal(pair.b.pd->home.rail, HOME_ANY);
	assert_null(region_of(pair.b.mr)->atomics);
	assert_int_not_equal(region_of(pair.b.mr)->mrs[1]->access & IBV_ACCESS_REMOTE_ATOMIC, 0);
	pair_cut(&pair, 0, false);
	add_one(&pair, 0);
	expect(&pair, 0);
	pair_close(&pair);
}

static unsigned own_done_count;
static int own_rc;

static void own_done(struct hf_vmr_atomic *atomic, int rc)
{
	(void)atomic;
	own_rc = rc;
	own_done_count++;
}

static bool own_is_done(struct pair *pair)
{
	(void)pair;
	return own_done_count == 1;
}

static uint64_t own(struct pair *pair, enum ibv_wr_opcode opcode, uint64_t compare_add, uint64_t swap)
{
	struct hf_vmr_atomic atomic = {.mr = pair->b.mr,
		.at = (uint64_t *)(void *)pair->b.memory,
		.opcode = opcode,
		.compare_add = compare_add,
		.swap = swap,
		.done = own_done};

	own_done_count = 0;
	assert_int_equal(hf_vmr_atomic_post(&atomic), 0);
	assert_true(pair_until(pair, own_is_done));
	assert_int_equal(own_rc, 0);
	return atomic.original;
}

static void the_owner_goes_through_the_home_too(void **state)
{
	uint64_t original;
	struct pair pair;

	(void)state;
	pair_caps_masked = HF_DEV_ATOMIC_GLOBAL;
	pair_open(&pair, HF_POLICY_VARUNA);
	pair_connect(&pair);
	assert_int_equal(hf_vmr_atomic_cas(pair.b.mr, (uint64_t *)(void *)pair.b.memory, 0, 1, &original), -EOPNOTSUPP);
	add_one(&pair, 0);
	expect(&pair, 0);
	assert_int_equal(own(&pair, IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 0), 1);
	assert_int_equal(own(&pair, IBV_WR_ATOMIC_CMP_AND_SWP, 1, 1), 1);
	pair_cut(&pair, 0, false);
	add_one(&pair, 1);
	expect(&pair, 1);
	assert_true(home_is_1(&pair));
	assert_int_equal(own(&pair, IBV_WR_RDMA_READ, 0, 0), 2);
	pair_close(&pair);
	pair_caps_masked = 0;
}

static void the_owners_atomic_of_a_region_that_goes_is_cancelled(void **state)
{
	struct hf_vmr_atomic atomic = {.opcode = IBV_WR_RDMA_READ, .done = own_done};
	struct pair pair;

	(void)state;
	pair_caps_masked = HF_DEV_ATOMIC_GLOBAL;
	pair_open(&pair, HF_POLICY_VARUNA);
	pair_connect(&pair);
	atomic.mr = pair.b.mr;
	atomic.at = (uint64_t *)(void *)pair.b.memory;
	own_done_count = 0;
	assert_int_equal(hf_vmr_atomic_post(&atomic), 0);
	hf_vmr_dereg(pair.b.mr);
	assert_int_equal(own_done_count, 1);
	assert_int_equal(own_rc, -ECANCELED);
	pair_close(&pair);
	pair_caps_masked = 0;
}

/* ---- what done() of an owner's atomic may do ---- */

#define CHAIN 4u

static struct chain {
	struct hf_vpd *pd;
	struct hf_vmr *mr;
	struct hf_vmr_atomic atomics[CHAIN];
	unsigned told[4 * CHAIN]; /* which of them, in order */
	int rcs[4 * CHAIN];
	unsigned count, again; /* again: so often done() posts its atomic once more */
	int posted_rc;
} chain;

static void note_done(struct hf_vmr_atomic *atomic, int rc)
{
	assert_true(chain.count < 4 * CHAIN);
	chain.told[chain.count] = (unsigned)(atomic - chain.atomics);
	chain.rcs[chain.count++] = rc;
}

static void open_chain(struct pair *pair, enum hf_atomic_mode mode, void (*done)(struct hf_vmr_atomic *, int))
{
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

	pair_caps_masked = HF_DEV_ATOMIC_GLOBAL;
	pair_open(pair, HF_POLICY_VARUNA);
	chain = (struct chain){0};
	assert_int_equal(hf_vpd_alloc(pair->b.node, &chain.pd), 0);
	assert_int_equal(hf_vmr_reg_atomic(chain.pd, pair->b.memory, 4096, access, mode, &chain.mr, NULL), 0);
	for (unsigned i = 0; i < CHAIN; i++)
		chain.atomics[i] = (struct hf_vmr_atomic){.mr = chain.mr,
			.at = (uint64_t *)(void *)pair->b.memory,
			.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
			.compare_add = 1,
			.done = done};
}

static void post_chain(void)
{
	for (unsigned i = 0; i < CHAIN; i++)
		assert_int_equal(hf_vmr_atomic_post(&chain.atomics[i]), 0);
}

static void close_chain(struct pair *pair)
{
	pair_close(pair);
	pair_caps_masked = 0;
}

static bool chain_is_told(struct pair *pair)
{
	(void)pair;
	return chain.count == CHAIN + chain.again;
}

static void done_ends_the_domain(struct hf_vmr_atomic *atomic, int rc)
{
	note_done(atomic, rc);
	if (atomic != &chain.atomics[0])
		return;
	assert_int_equal(hf_vmr_dereg(chain.mr), 0);
	assert_int_equal(hf_vpd_free(chain.pd), 0);
}

static void done_may_deregister_the_region_and_free_its_domain(void **state)
{
	struct pair pair;

	(void)state;
	open_chain(&pair, HF_ATOMIC_NATIVE, done_ends_the_domain);
	post_chain();
	assert_true(pair_until(&pair, chain_is_told));
	for (unsigned i = 0; i < CHAIN; i++) {
		assert_int_equal(chain.told[i], i);
		assert_int_equal(chain.rcs[i], i == 0 ? 0 : -ECANCELED);
	}
	close_chain(&pair);
}

static void done_posts_again(struct hf_vmr_atomic *atomic, int rc)
{
	note_done(atomic, rc);
	if (chain.count <= chain.again)
		chain.posted_rc = hf_vmr_atomic_post(atomic);
}

/* One after another: those that are posted again come behind those that wait. */
static void post_again_in_order(enum hf_atomic_mode mode)
{
	struct pair pair;

	open_chain(&pair, mode, done_posts_again);
	chain.again = 2 * CHAIN;
	post_chain();
	assert_true(pair_until(&pair, chain_is_told));
	for (unsigned i = 0; i < 3 * CHAIN; i++) {
		assert_int_equal(chain.told[i], i % CHAIN);
		assert_int_equal(chain.rcs[i], 0);
	}
	for (unsigned i = 0; i < CHAIN; i++)
		assert_int_equal(chain.atomics[i].original, 2 * CHAIN + i);
	close_chain(&pair);
}

static void done_may_post_again_and_is_called_in_order(void **state)
{
	(void)state;
	post_again_in_order(HF_ATOMIC_NATIVE);
	post_again_in_order(HF_ATOMIC_UID);
}

/* Also where the completion was read, and not told yet: it has executed, and is told so. */
static void a_region_that_goes_takes_no_atomics_any_more(void **state)
{
	struct ibv_wc wc;
	struct pair pair;
	uint64_t end_ns;

	(void)state;
	open_chain(&pair, HF_ATOMIC_NATIVE, done_posts_again);
	chain.again = 1;
	post_chain();
	end_ns = hf_env_now_ns(hf_env_host()) + 5000000000ull;
	while (list_empty(&vqps_of(pair.b.node)->owner_ended) && hf_env_now_ns(hf_env_host()) < end_ns) {
		(void)hf_dev_poll(hf_node_dev(pair.b.node, 0), hf_loop_now_ns(pair.loop));
		assert_int_equal(hf_vcq_poll(pair.b.cq, 1, &wc), 0);
	}
	assert_int_equal(chain.count, 0); /* a poll tells nobody */
	assert_int_equal(hf_vmr_dereg(chain.mr), 0);
	assert_int_equal(chain.count, CHAIN);
	assert_int_equal(chain.posted_rc, -ECANCELED);
	for (unsigned i = 0; i < CHAIN; i++) {
		assert_int_equal(chain.told[i], i);
		assert_int_equal(chain.rcs[i], i == 0 ? 0 : -ECANCELED);
	}
	close_chain(&pair);
}

static bool home_of_chain_is_1(struct pair *pair)
{
	(void)pair;
	return chain.pd->home.rail == 1;
}

static void the_home_moves_for_an_owner_without_peers_too(void **state)
{
	struct pair pair;

	(void)state;
	open_chain(&pair, HF_ATOMIC_NATIVE, note_done);
	assert_int_equal(hf_dev_set_link(hf_node_dev(pair.b.node, 0), HF_LINK_BOTH, false), 0);
	assert_true(pair_until(&pair, home_of_chain_is_1));
	post_chain();
	assert_true(pair_until(&pair, chain_is_told));
	for (unsigned i = 0; i < CHAIN; i++)
		assert_int_equal(chain.rcs[i], 0);
	close_chain(&pair);
}

/* As after a move to a device that had no room for it. */
static void a_region_without_a_registration_for_atomics_refuses_the_owners(void **state)
{
	struct region *region;
	struct pair pair;

	(void)state;
	open_chain(&pair, HF_ATOMIC_NATIVE, note_done);
	post_chain();
	region = region_of(chain.mr);
	assert_int_equal(hf_mr_dereg(region->atomics), 0);
	region->atomics = NULL;
	assert_true(pair_until(&pair, chain_is_told));
	for (unsigned i = 1; i < CHAIN; i++)
		assert_int_equal(chain.rcs[i], -EACCES);
	close_chain(&pair);
}

static bool has_used(uint64_t sequence)
{
	const struct uid_arena *arena = chain.pd->uids;

	for (uint32_t i = 0; i < arena->count; i++)
		if (arena->slots[i].word >> UID_STATE_BITS == sequence)
			return true;
	return false;
}

static bool two_are_told(struct pair *pair)
{
	(void)pair;
	return chain.count == 2;
}

/* It may have come as far as its slot: the next one would take that for its own. */
static void an_owners_atomic_that_was_cancelled_has_used_up_its_uid(void **state)
{
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	struct hf_vmr *mr;
	struct pair pair;

	(void)state;
	open_chain(&pair, HF_ATOMIC_UID, note_done);
	assert_int_equal(hf_vmr_reg_atomic(chain.pd, pair.b.memory, 4096, access, HF_ATOMIC_UID, &mr, NULL), 0);
	chain.atomics[0].mr = mr;
	for (unsigned i = 0; i < 2; i++) {
		chain.atomics[i].opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
		assert_int_equal(hf_vmr_atomic_post(&chain.atomics[i]), 0);
	}
	assert_int_equal(hf_vmr_dereg(mr), 0);
	assert_true(pair_until(&pair, two_are_told));
	assert_int_equal(chain.rcs[0], -ECANCELED);
	assert_int_equal(chain.rcs[1], 0);
	assert_true(has_used(2));
	close_chain(&pair);
}

static struct hf_dev_ops unfenced_ops;

static int fence_that_fails(struct hf_qp *qp)
{
	(void)qp;
	return -EIO;
}

static bool one_is_told(struct pair *pair)
{
	(void)pair;
	return chain.count == 1;
}

/* The first is lost with the rail, where nobody can be asked for it any more; the others go on when it is back. */
static void done_may_post_again_when_the_fence_has_failed(void **state)
{
	const struct hf_dev_ops *ops;
	struct hf_dev *dev;
	struct pair pair;

	(void)state;
	open_chain(&pair, HF_ATOMIC_NATIVE, done_posts_again);
	chain.again = 1;
	dev = hf_node_dev(pair.b.node, 0);
	ops = dev->ops;
	unfenced_ops = *ops;
	unfenced_ops.qp_fence = fence_that_fails;
	dev->ops = &unfenced_ops;
	assert_int_equal(hf_dev_set_link(dev, HF_LINK_BOTH, false), 0);
	post_chain();
	assert_true(pair_until(&pair, one_is_told));
	assert_int_equal(chain.posted_rc, 0);
	assert_int_equal(hf_dev_set_link(dev, HF_LINK_BOTH, true), 0);
	assert_true(pair_until(&pair, chain_is_told));
	for (unsigned i = 0; i < CHAIN + 1; i++) {
		assert_int_equal(chain.told[i], i % CHAIN);
		assert_int_equal(chain.rcs[i], i == 0 ? -EIO : 0);
	}
	dev->ops = ops;
	close_chain(&pair);
}

/* It executes, the answer is lost, and nothing of it is known to the device. */
static int post_that_is_not_answered(struct hf_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr)
{
	uint64_t *word = (uint64_t *)(uintptr_t)wr->wr.atomic.remote_addr;

	(void)qp;
	(void)bad_wr;
	if (*word == wr->wr.atomic.compare_add)
		*word = wr->wr.atomic.swap;
	return 0;
}

static int psn_that_nobody_knows(struct hf_qp *qp, uint32_t *psn_out)
{
	(void)qp;
	(void)psn_out;
	return -EOPNOTSUPP;
}

static int no_results(struct hf_qp *qp, struct hf_atomic_result *results, unsigned most)
{
	(void)qp;
	(void)results;
	(void)most;
	return 0;
}

/* CHAIN - 1 others come behind it, which find what it has left. */
static void lose_an_answer(enum hf_atomic_mode mode)
{
	const struct hf_dev_ops *ops;
	struct hf_dev *dev;
	struct pair pair;

	open_chain(&pair, mode, note_done);
	dev = hf_node_dev(pair.b.node, 0);
	ops = dev->ops;
	unfenced_ops = *ops;
	unfenced_ops.qp_post_send = post_that_is_not_answered;
	unfenced_ops.qp_executed_psn = psn_that_nobody_knows;
	unfenced_ops.qp_atomic_results = no_results;
	dev->ops = &unfenced_ops;
	for (unsigned i = 0; i < CHAIN; i++) {
		chain.atomics[i].opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
		chain.atomics[i].compare_add = i;
		chain.atomics[i].swap = i + 1;
	}
	post_chain();
	assert_int_equal(*chain.atomics[0].at, 1);
	assert_int_equal(hf_dev_set_link(dev, HF_LINK_BOTH, false), 0);
	assert_true(pair_until(&pair, chain_is_told));
	dev->ops = ops;
	assert_int_equal(*chain.atomics[0].at, CHAIN);
	close_chain(&pair);
}

static void an_owners_atomic_in_doubt_is_sent_again_where_the_region_says_so(void **state)
{
	(void)state;
	lose_an_answer(HF_ATOMIC_NATIVE);
	assert_int_equal(chain.rcs[0], -EIO);
	lose_an_answer(HF_ATOMIC_PLAIN);
	for (unsigned i = 0; i < CHAIN; i++) {
		assert_int_equal(chain.rcs[i], 0);
		assert_int_equal(chain.atomics[i].original, i);
	}
}

/* Its other peers have drawn it to a rail that we do not share. Nothing is tried elsewhere, and nothing hangs. */
static void an_atomic_whose_home_cannot_be_reached_ends_within_the_budget(void **state)
{
	struct remote_region *remote;
	struct pair pair;
	struct ibv_wc wc;

	(void)state;
	pair_caps_masked = HF_DEV_ATOMIC_GLOBAL;
	pair_open(&pair, HF_POLICY_VARUNA);
	pair_connect(&pair);
	add_one(&pair, 0);
	expect(&pair, 0);
	pair.a.node->config.budget_ns = 100000000;
	remote = (struct remote_region *)(uintptr_t)region_remote(pair.a.peer, pair.b.mr->rkey);
	assert_non_null(remote);
	remote->home = HOME_ELSEWHERE;
	remote->atomic_rkey = 0;
	add_one(&pair, 1);
	pair_collect(&pair, &pair.a, 1, &wc);
	assert_int_equal(wc.status, IBV_WC_RETRY_EXC_ERR);
	assert_int_equal(wc.vendor_err, HF_WC_NOT_EXECUTED);
	assert_int_equal(((const uint64_t *)(const void *)pair.b.memory)[0], 1);
	pair_close(&pair);
	pair_caps_masked = 0;
}

/* The picker does not know that the owner's end of it is fenced, and posts there as soon as it has said GO. */
static void what_is_posted_to_a_qp_that_a_move_has_withdrawn_is_not_unknown(void **state)
{
	struct pair pair;
	struct ibv_wc wc[8];

	(void)state;
	pair_caps_masked = HF_DEV_ATOMIC_GLOBAL;
	pair_open(&pair, HF_POLICY_VARUNA);
	pair.revocable = true; /* so it has a qp on each rail */
	pair_connect(&pair);
	assert_true(pair_until(&pair, pair_has_backups));
	pair.b.pd->home.rail = 1; /* as after a move while the vqp was cut off */
	assert_true(pair_until(&pair, home_is_0));
	assert_true(pair.a.vqp->backup[1].ready && !pair.a.vqp->backup[1].withdrawn);
	pair_cut(&pair, 0, false);
	for (unsigned i = 0; i < 8; i++)
		assert_int_equal(pair_write(&pair, i, i * 64, 64, true), 0);
	pair_collect(&pair, &pair.a, 8, wc);
	for (unsigned i = 0; i < 8; i++) {
		assert_int_equal(wc[i].status, IBV_WC_SUCCESS);
		assert_int_equal(wc[i].wr_id, i);
	}
	assert_int_equal(pair.b.vqp->recovery.epoch, pair.a.vqp->recovery.epoch);
	assert_true(pair.a.vqp->recovery.epoch > 2); /* one more than the failover takes: it was there */
	pair_close(&pair);
	pair_caps_masked = 0;
}

/* A turn's time is taken when it begins; what begins to wait in that turn may be younger. */
static void a_wait_that_began_in_this_turn_has_not_lasted_for_ever(void **state)
{
	struct hf_node node = {.config = {.budget_ns = 100}};
	struct hf_vqp vqp = {.node = &node, .home_wait_ns = 1000, .sends = {.tail = 1}};

	(void)state;
	assert_false(home_despairs(&vqp, 990));
	assert_false(home_despairs(&vqp, 1100));
	assert_true(home_despairs(&vqp, 1101));
}

/* As when the grant of the atomic that waited has ended, or only a confirmation of a UID is owed. */
static void nothing_despairs_where_no_wr_waits_for_the_home(void **state)
{
	struct hf_node node = {.config = {.budget_ns = 100}};
	struct hf_vqp vqp = {.node = &node, .home_wait_ns = 1000, .sends = {.next = 7, .tail = 7}};

	(void)state;
	assert_false(home_despairs(&vqp, 1101));
	vqp.sends.tail++; /* a WRITE that waits for something else */
	assert_false(home_despairs(&vqp, 1102));
}

/* The atomic was ended by a revocation: a WRITE that is posted next does not inherit its wait. */
static void a_wr_that_is_posted_ends_the_wait_for_the_home(void **state)
{
	struct pair pair;
	struct ibv_wc wc;

	(void)state;
	pair_open(&pair, HF_POLICY_VARUNA);
	pair_connect(&pair);
	home_wait(pair.a.vqp, 1);
	assert_int_equal(pair_write(&pair, 0, 0, 64, true), 0);
	pair_collect(&pair, &pair.a, 1, &wc);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(pair.a.vqp->home_wait_ns, 0);
	pair_close(&pair);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(atomics_have_a_rail_of_their_own_and_follow_the_peers),
		cmocka_unit_test(a_home_follows_the_home_of_the_other_side),
		cmocka_unit_test(where_atomicity_is_global_no_rail_is_special),
		cmocka_unit_test(who_began_to_wait_for_the_home_in_the_turn_of_a_tick_does_not_despair),
		cmocka_unit_test(the_owner_goes_through_the_home_too),
		cmocka_unit_test(the_owners_atomic_of_a_region_that_goes_is_cancelled),
		cmocka_unit_test(done_may_deregister_the_region_and_free_its_domain),
		cmocka_unit_test(done_may_post_again_and_is_called_in_order),
		cmocka_unit_test(a_region_that_goes_takes_no_atomics_any_more),
		cmocka_unit_test(the_home_moves_for_an_owner_without_peers_too),
		cmocka_unit_test(a_region_without_a_registration_for_atomics_refuses_the_owners),
		cmocka_unit_test(an_owners_atomic_that_was_cancelled_has_used_up_its_uid),
		cmocka_unit_test(done_may_post_again_when_the_fence_has_failed),
		cmocka_unit_test(an_owners_atomic_in_doubt_is_sent_again_where_the_region_says_so),
		cmocka_unit_test(what_is_posted_to_a_qp_that_a_move_has_withdrawn_is_not_unknown),
		cmocka_unit_test(a_wait_that_began_in_this_turn_has_not_lasted_for_ever),
		cmocka_unit_test(nothing_despairs_where_no_wr_waits_for_the_home),
		cmocka_unit_test(a_wr_that_is_posted_ends_the_wait_for_the_home),
		cmocka_unit_test(an_atomic_whose_home_cannot_be_reached_ends_within_the_budget),
	};

	if (argc > 1 && strcmp(argv[1], pair_kind) != 0) {
		fprintf(stderr, "usage: test-vqp-home [soft]; on other devices nothing is in flight to be cancelled\n");
		return 2;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
