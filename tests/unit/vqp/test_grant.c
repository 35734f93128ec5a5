/* What a peer may do, taken away and given again while wrs are in flight (R13). b grants, a writes. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include <holdfast/grant.h>

#include "pair.h"
#include "vqp/path/pool.h"

#define ALL   (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)
#define WRS   32u
#define PIECE 4096u

static unsigned done_called;

static void done(struct hf_vqp *vqp, void *context)
{
	(void)vqp, (void)context;
	done_called++;
}

static bool is_done(struct pair *pair)
{
	(void)pair;
	return done_called > 0;
}

static void open_pair(struct pair *pair)
{
	pair_open(pair, HF_POLICY_VARUNA);
	pair->revocable = true;
	pair_connect(pair);
	memset(pair->a.memory, 0x11, PAIR_BYTES);
	done_called = 0;
}

/* Until what b has said stands on every path. */
static void set_access(struct pair *pair, int access)
{
	int rc = hf_vqp_set_access(pair->b.vqp, access, done, pair);

	done_called = 0;
	if (rc == -EINPROGRESS) {
		assert_true(pair_until(pair, is_done));
		rc = 0;
	}
	assert_int_equal(rc, 0);
}

static bool a_is_disarmed(struct pair *pair)
{
	return !hf_vqp_armed(pair->a.vqp) && hf_vqp_state(pair->a.vqp) == HF_VQP_UP;
}

static unsigned count_landed(const struct pair *pair)
{
	unsigned landed = 0;

	for (unsigned i = 0; i < WRS; i++)
		landed += pair->b.memory[i * PIECE] != 0;
	return landed;
}

static void post_writes(struct pair *pair)
{
	for (unsigned i = 0; i < WRS; i++)
		assert_int_equal(pair_write(pair, i, i * PIECE, PIECE, true), 0);
}

/* Returns how many succeeded: those in front. */
static unsigned collect(struct pair *pair, struct ibv_wc wc[WRS])
{
	unsigned n = 0;

	pair_collect(pair, &pair->a, WRS, wc);
	while (n < WRS && wc[n].status == IBV_WC_SUCCESS)
		n++;
	for (unsigned i = n; i < WRS; i++)
		assert_int_not_equal(wc[i].status, IBV_WC_SUCCESS);
	return n;
}

static void a_write(struct pair *pair, enum ibv_wc_status status)
{
	struct ibv_wc wc;

	assert_int_equal(pair_write(pair, 77, 0, 64, true), 0);
	pair_collect(pair, &pair->a, 1, &wc);
	assert_int_equal(wc.status, status);
}

static void only_a_revocable_vqp_can_change_what_it_grants(void **state)
{
	struct pair pair;

	(void)state;
	pair_open(&pair, HF_POLICY_VARUNA);
	pair_connect(&pair);
	assert_int_equal(hf_vqp_set_access(pair.b.vqp, 0, NULL, NULL), -EINVAL);
	pair_close(&pair);
}

static bool b_has_a_backup(struct pair *pair)
{
	return pair->b.vqp->backup[1].qp != NULL;
}

static bool b_has_a_ready_backup(struct pair *pair)
{
	return pair->b.vqp->backup[1].ready;
}

/* R5: the picker may have moved to it without notice, and its wrs may come late. */
static void a_backup_is_fenced_when_the_lease_is_over(void **state)
{
	struct ibv_qp_attr attr;
	struct pair pair;

	(void)state;
	pair_open(&pair, HF_POLICY_VARUNA);
	pair.revocable = true;
	pair_connect(&pair);
	assert_true(pair_until(&pair, b_has_a_ready_backup));
	peers_lease_over(pair.b.peer);
	assert_int_equal(hf_qp_query(pair.b.vqp->backup[1].qp, &attr, IBV_QP_STATE), 0);
	assert_int_equal(attr.qp_state, IBV_QPS_ERR);
	a_write(&pair, IBV_WC_SUCCESS);
	pair_close(&pair);
}

static unsigned over_called, received_when_over;

/* What is in b's queue at that moment; a poll would look for more. */
static void over(struct hf_vqp *vqp, void *context)
{
	(void)context;
	over_called++;
	received_when_over = (unsigned)vqp->consumed;
}

static bool is_over(struct pair *pair)
{
	(void)pair;
	return over_called > 0;
}

static bool b_is_in_error(struct pair *pair)
{
	return hf_vqp_state(pair->b.vqp) == HF_VQP_ERROR && over_called > 0;
}

/* Also when the peer ends before it has answered. */
static void when_a_grant_is_over_each_receive_that_it_took_is_in_the_queue(void **state)
{
	(void)state;
	for (unsigned peer_ends = 0; peer_ends < 2; peer_ends++) {
		struct ibv_wc wc[WRS];
		struct pair pair;

		open_pair(&pair);
		over_called = received_when_over = 0;
		for (unsigned i = 0; i < WRS; i++)
			assert_int_equal(pair_recv(&pair.b, i, i * PIECE, PIECE), 0);
		assert_int_equal(hf_vqp_grant(pair.b.vqp), 1);
		assert_int_equal(hf_vqp_remote_grant(pair.a.vqp), 1);
		assert_int_equal(hf_vqp_grant_over(pair.b.vqp, over, &pair), 0);
		for (unsigned i = 0; i < WRS; i++)
			assert_int_equal(pair_send(&pair, i, i * PIECE, PIECE), 0);
		pair_turn(&pair, peer_ends, 0);
		(void)hf_vqp_set_access(pair.b.vqp, 0, NULL, NULL);
		assert_int_equal(hf_vqp_grant(pair.b.vqp), 2);
		assert_int_equal(hf_vqp_grant_over(pair.b.vqp, over, &pair), -EINPROGRESS);
		if (peer_ends)
			hf_vqp_abort(pair.a.vqp);
		assert_true(pair_until(&pair, peer_ends ? b_is_in_error : is_over));
		assert_int_equal(over_called, 1);
		assert_int_equal(count_landed(&pair), received_when_over);
		if (!peer_ends) {
			assert_int_equal(collect(&pair, wc), received_when_over);
			assert_true(pair_until(&pair, a_is_disarmed));
			assert_int_equal(hf_vqp_remote_grant(pair.a.vqp), 2);
		}
		pair_close(&pair);
	}
}

static void every_qp_has_the_bound_of_a_revocation(void **state)
{
	struct pair pair;

	(void)state;
	pair_open(&pair, HF_POLICY_VARUNA);
	pair.revocable = true;
	pair.revoke_ns = 200000;
	pair_connect(&pair);
	assert_int_equal(pair.b.vqp->path->qp->revoke_ns, 200000);
	assert_true(pair_until(&pair, b_has_a_backup));
	assert_int_equal(pair.b.vqp->backup[1].qp->revoke_ns, 200000);
	pair_close(&pair);
}

/* Those that had executed succeed; the others say that they never will, and what comes later is flushed. */
static void a_revocation_ends_the_wrs_in_flight(void **state)
{
	struct ibv_wc wc[WRS];
	struct pair pair;
	unsigned succeeded;

	(void)state;
	open_pair(&pair);
	post_writes(&pair);
	set_access(&pair, IBV_ACCESS_REMOTE_READ);
	succeeded = collect(&pair, wc);
	assert_int_equal(count_landed(&pair), succeeded);
	if (succeeded < WRS) {
		assert_int_equal(wc[succeeded].status, IBV_WC_REM_ACCESS_ERR);
		assert_int_equal(wc[WRS - 1].vendor_err, HF_WC_NOT_EXECUTED);
	}
	assert_true(pair_until(&pair, a_is_disarmed));
	assert_int_equal(hf_vqp_remote_access(pair.a.vqp), IBV_ACCESS_REMOTE_READ);
	a_write(&pair, IBV_WC_WR_FLUSH_ERR);
	pair_close(&pair);
}

static bool has_landed(struct pair *pair)
{
	return __atomic_load_n(&pair->b.memory[0], __ATOMIC_RELAXED) != 0;
}

/* Its answer is lost, and nobody can say that it executed: it would be sent again, but for the revocation. */
static void what_may_have_executed_before_a_revocation_is_unknown(void **state)
{
	struct ibv_send_wr wr = {
		.opcode = IBV_WR_RDMA_WRITE, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED | HF_SEND_IDEMPOTENT};
	struct ibv_send_wr *bad;
	struct ibv_sge sge = {.length = 64};
	struct pair pair;
	struct ibv_wc wc;

	(void)state;
	pair_caps_masked = HF_DEV_EXECUTED_PSN;
	open_pair(&pair);
	pair_caps_masked = 0;
	sge.addr = (uintptr_t)pair.a.memory;
	sge.lkey = pair.a.mr->lkey;
	wr.sg_list = &sge;
	wr.wr.rdma.remote_addr = (uintptr_t)pair.b.memory;
	wr.wr.rdma.rkey = pair.b.mr->rkey;
	assert_int_equal(hf_dev_set_link(hf_node_dev(pair.a.node, 0), HF_LINK_RX, false), 0);
	assert_int_equal(hf_vqp_post_send(pair.a.vqp, &wr, &bad), 0);
	assert_true(pair_until(&pair, has_landed));
	set_access(&pair, IBV_ACCESS_REMOTE_READ);
	pair_collect(&pair, &pair.a, 1, &wc);
	assert_int_equal(wc.status, IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(wc.vendor_err, HF_WC_UNKNOWN);
	pair_close(&pair);
}

/* The whole point: the old leader's writes do not land because the same access is given to it again. */
static void what_was_posted_before_a_revocation_does_not_land_after_the_next_grant(void **state)
{
	struct ibv_wc wc[WRS];
	struct pair pair;

	(void)state;
	for (unsigned rail_lost = 0; rail_lost < 2; rail_lost++) {
		unsigned succeeded;

		open_pair(&pair);
		post_writes(&pair);
		if (rail_lost)
			pair_cut(&pair, 0, false);
		(void)hf_vqp_set_access(pair.b.vqp, 0, NULL, NULL);
		(void)hf_vqp_set_access(pair.b.vqp, ALL, done, NULL);
		succeeded = collect(&pair, wc);
		assert_true(pair_until(&pair, a_is_disarmed));
		assert_int_equal(count_landed(&pair), succeeded);
		a_write(&pair, IBV_WC_WR_FLUSH_ERR);
		assert_int_equal(hf_vqp_rearm(pair.a.vqp), 0);
		a_write(&pair, IBV_WC_SUCCESS);
		pair_close(&pair);
	}
}

static void access_that_is_given_holds_when_the_call_is_over(void **state)
{
	struct pair pair;

	(void)state;
	open_pair(&pair);
	set_access(&pair, IBV_ACCESS_REMOTE_READ);
	assert_true(pair_until(&pair, a_is_disarmed));
	assert_int_equal(hf_vqp_rearm(pair.a.vqp), 0);
	set_access(&pair, ALL);
	a_write(&pair, IBV_WC_SUCCESS); /* more of the same grant: nothing has to be armed again */
	pair_close(&pair);
}

static bool on_rail_1(struct pair *pair)
{
	return hf_vqp_rail(pair->a.vqp) == 1 && hf_vqp_rail(pair->b.vqp) == 1;
}

static void access_that_was_revoked_is_revoked_on_the_other_rail_too(void **state)
{
	struct pair pair;

	(void)state;
	open_pair(&pair);
	set_access(&pair, IBV_ACCESS_REMOTE_READ);
	assert_true(pair_until(&pair, a_is_disarmed));
	pair_cut(&pair, 0, false);
	assert_true(pair_until(&pair, on_rail_1));
	assert_int_equal(hf_vqp_rearm(pair.a.vqp), 0);
	a_write(&pair, IBV_WC_REM_INV_REQ_ERR);
	assert_int_equal(count_landed(&pair), 0);
	pair_close(&pair);
}

static void hear(struct hf_vqp *vqp, unsigned number, struct message_head *message)
{
	*message = (struct message_head){
		.kind = vqp->node->kinds.by_number[number], .to = vqp->num, .from = vqp->remote_num};
	message->kind->take(vqp->peer, message);
}

/* An offer was given up and made again while the answer to it was on its way. */
static void an_answer_to_an_earlier_offer_is_not_taken_for_one_to_this(void **state)
{
	struct path_message answer = {0};
	struct path theirs = {0}, *ours;
	struct pair pair;

	(void)state;
	open_pair(&pair);
	ours = &pair.a.vqp->backup[1];
	path_destroy(pair.a.node, ours);
	assert_int_equal(path_create(pair.a.vqp, ours, 1), 0);
	assert_int_equal(path_create(pair.b.vqp, &theirs, 1), 0);
	answer.offer = path_attributes(pair.b.node, &theirs);
	answer.about_qp = ours->qp->qp_num - 1;
	hear(pair.a.vqp, MESSAGE_BACKUP_QP, &answer.head);
	assert_false(ours->ready);
	answer.about_qp = ours->qp->qp_num;
	hear(pair.a.vqp, MESSAGE_BACKUP_QP, &answer.head);
	assert_true(ours->ready);
	path_destroy(pair.b.node, &theirs);
	pair_close(&pair);
}

/* What the other side posted in the grant before it could post there. */
static void no_backup_is_made_in_a_grant_of_which_the_peer_has_not_heard(void **state)
{
	struct path_message offer = {0};
	struct path theirs = {0};
	struct pair pair;

	(void)state;
	open_pair(&pair);
	assert_int_equal(path_create(pair.a.vqp, &theirs, 1), 0);
	offer.offer = path_attributes(pair.a.node, &theirs);
	(void)hf_vqp_set_access(pair.b.vqp, 0, NULL, NULL);
	hear(pair.b.vqp, MESSAGE_BACKUP, &offer.head);
	assert_true(pair.b.vqp->backup[1].grant != pair.b.vqp->grants.ours);
	path_destroy(pair.a.node, &theirs);
	pair_close(&pair);
}

static bool a_may_read(struct pair *pair)
{
	return (hf_vqp_remote_access(pair->a.vqp) & IBV_ACCESS_REMOTE_READ) != 0;
}

static bool a_may_only_write(struct pair *pair)
{
	return !a_may_read(pair) && hf_vqp_state(pair->a.vqp) == HF_VQP_UP && hf_vqp_state(pair->b.vqp) == HF_VQP_UP;
}

/* The old qp does not allow it: a would post a READ there, and end as for an error of its program. */
static void access_that_is_given_behind_a_broken_path_is_told_with_the_next(void **state)
{
	struct pair pair;

	(void)state;
	open_pair(&pair);
	set_access(&pair, IBV_ACCESS_REMOTE_WRITE);
	assert_true(pair_until(&pair, a_may_only_write));
	assert_int_equal(pair.b.vqp->peer->outbox.used, 0);
	done_called = 0;
	marks_broken(pair.b.vqp);
	assert_int_equal(hf_vqp_set_access(pair.b.vqp, ALL, done, &pair), -EINPROGRESS);
	assert_int_equal(pair.b.vqp->peer->outbox.used, 0);
	assert_true(pair_until(&pair, a_may_read));
	assert_true(pair_until(&pair, is_done));
	pair_close(&pair);
}

/* Refused although nothing was revoked: the program is wrong, and no exchange repairs that. */
static void a_wr_that_the_grant_never_allowed_is_an_error_of_the_program(void **state)
{
	struct pair pair;

	(void)state;
	pair_open(&pair, HF_POLICY_VARUNA);
	pair.revocable = true;
	pair.access = IBV_ACCESS_REMOTE_READ;
	pair_connect(&pair);
	memset(pair.a.memory, 0x11, PAIR_BYTES);
	a_write(&pair, IBV_WC_REM_INV_REQ_ERR);
	assert_int_equal(hf_vqp_state(pair.a.vqp), HF_VQP_ERROR);
	assert_int_equal(count_landed(&pair), 0);
	pair_close(&pair);
}

static int fence_that_fails(struct hf_qp *qp)
{
	(void)qp;
	return -EIO;
}

/* As the NIC of that rail has died: its backup is destroyed, and the other rail is well. */
static void a_revocation_does_not_wait_for_a_backup_that_cannot_be_fenced(void **state)
{
	static struct hf_dev_ops ops;
	const struct hf_dev_ops *true_ops;
	struct hf_dev *dev;
	struct pair pair;

	(void)state;
	pair_caps_masked = HF_DEV_ACCESS_IN_RTS;
	open_pair(&pair);
	pair.b.node->config.budget_ns = 400000000;
	assert_true(pair_until(&pair, pair_has_backups));
	dev = hf_node_dev(pair.b.node, 1);
	true_ops = dev->ops;
	ops = *true_ops;
	ops.qp_fence = fence_that_fails;
	dev->ops = &ops;
	assert_int_equal(hf_dev_set_link(dev, HF_LINK_BOTH, false), 0); /* nothing else is offered there */
	set_access(&pair, IBV_ACCESS_REMOTE_READ);
	assert_null(pair.b.vqp->backup[1].qp);
	dev->ops = true_ops;
	pair_close(&pair);
	pair_caps_masked = 0;
}

static void without_flags_that_change_in_rts_the_qp_is_cycled(void **state)
{
	pair_caps_masked = HF_DEV_ACCESS_IN_RTS;
	a_revocation_ends_the_wrs_in_flight(state);
	what_was_posted_before_a_revocation_does_not_land_after_the_next_grant(state);
	access_that_is_given_holds_when_the_call_is_over(state);
	pair_caps_masked = 0;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(only_a_revocable_vqp_can_change_what_it_grants),
		cmocka_unit_test(a_backup_is_fenced_when_the_lease_is_over),
		cmocka_unit_test(when_a_grant_is_over_each_receive_that_it_took_is_in_the_queue),
		cmocka_unit_test(every_qp_has_the_bound_of_a_revocation),
		cmocka_unit_test(a_revocation_ends_the_wrs_in_flight),
		cmocka_unit_test(what_may_have_executed_before_a_revocation_is_unknown),
		cmocka_unit_test(what_was_posted_before_a_revocation_does_not_land_after_the_next_grant),
		cmocka_unit_test(access_that_is_given_holds_when_the_call_is_over),
		cmocka_unit_test(access_that_was_revoked_is_revoked_on_the_other_rail_too),
		cmocka_unit_test(an_answer_to_an_earlier_offer_is_not_taken_for_one_to_this),
		cmocka_unit_test(no_backup_is_made_in_a_grant_of_which_the_peer_has_not_heard),
		cmocka_unit_test(access_that_is_given_behind_a_broken_path_is_told_with_the_next),
		cmocka_unit_test(a_wr_that_the_grant_never_allowed_is_an_error_of_the_program),
		cmocka_unit_test(a_revocation_does_not_wait_for_a_backup_that_cannot_be_fenced),
		cmocka_unit_test(without_flags_that_change_in_rts_the_qp_is_cycled),
	};

	if (argc > 1)
		pair_kind = argv[1];
	return cmocka_run_group_tests(tests, NULL, NULL);
}
