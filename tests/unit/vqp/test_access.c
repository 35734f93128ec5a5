/* What the library asks of memory: of the peer's no more than was granted (R14), of its own no relaxed
 * ordering (R17); and no log of what the program does not need it for. b grants, a posts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include <holdfast/grant.h>

#include "pair.h"
#include "vqp/objects.h"
#include "vqp/atomic/uid_slots.h"

#define ADDS  40u /* more than a responder keeps the results of: some have executed at the cut, and some not */
#define WORDS 8u

static const enum hf_evidence evidences[] = {HF_EVIDENCE_BOTH, HF_EVIDENCE_LOG};

static void open_with(struct pair *pair, enum hf_evidence evidence)
{
	pair_open(pair, HF_POLICY_VARUNA);
	pair->a.node->config.evidence = pair->b.node->config.evidence = evidence;
}

/* Their answers are lost, and then the rail. Each has executed once, and says what it found. */
static void add_through_a_cut(struct pair *pair)
{
	struct hf_vqp_counters counters;
	struct ibv_wc wc[ADDS];
	unsigned rail = (unsigned)hf_vqp_rail(pair->a.vqp);

	pair_add_unanswered(pair, ADDS);
	pair_cut(pair, rail, false);
	pair_collect(pair, &pair->a, ADDS, wc);
	for (unsigned i = 0; i < ADDS; i++) {
		assert_int_equal(wc[i].wr_id, i);
		assert_int_equal(wc[i].status, IBV_WC_SUCCESS);
		assert_int_equal(pair_word(pair->a.memory + PAIR_RESULTS + 8 * i), i);
	}
	assert_int_equal(pair_word(pair->b.memory), ADDS);
	assert_int_not_equal(hf_vqp_rail(pair->a.vqp), rail);
	hf_vqp_counters(pair->a.vqp, &counters);
	assert_int_equal(counters.unknown, 0);
}

static void a_peer_that_may_not_write_has_no_log_and_its_atomics_are_known_by_psn(void **state)
{
	struct hf_vqp_memory memory;
	struct pair pair;

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		open_with(&pair, evidences[i]);
		pair.access = IBV_ACCESS_REMOTE_ATOMIC;
		pair_connect(&pair);
		add_through_a_cut(&pair);
		assert_int_equal(pair.a.vqp->log.entries, 0);
		hf_vqp_memory(pair.b.vqp, &memory);
		assert_int_equal(memory.completion_log_bytes, 0);
		pair_close(&pair);
	}
}

static bool a_is_disarmed(struct pair *pair)
{
	return !hf_vqp_armed(pair->a.vqp) && hf_vqp_state(pair->a.vqp) == HF_VQP_UP &&
	       hf_vqp_state(pair->b.vqp) == HF_VQP_UP;
}

/* It has a ring from the time when it could; what that says is of no wr of this grant. */
static void a_peer_that_may_not_write_any_more_leaves_its_log_alone(void **state)
{
	struct pair pair;
	struct ibv_wc wc;
	uint64_t turn;

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		open_with(&pair, evidences[i]);
		pair.revocable = true;
		pair_connect(&pair);
		assert_int_equal(pair_write(&pair, 0, 4096, 64, true), 0);
		pair_collect(&pair, &pair.a, 1, &wc);
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		turn = pair.a.vqp->log.turn;
		assert_int_equal(turn, 1);
		(void)hf_vqp_set_access(pair.b.vqp, IBV_ACCESS_REMOTE_ATOMIC, NULL, NULL);
		assert_true(pair_until(&pair, a_is_disarmed));
		assert_int_equal(hf_vqp_rearm(pair.a.vqp), 0);
		add_through_a_cut(&pair);
		assert_int_equal(pair.a.vqp->log.turn, turn);
		pair_close(&pair);
	}
}

/* On every rail, whatever the program asks for its own. */
static void logs_and_slots_are_registered_without_relaxed_ordering(void **state)
{
	const int relaxed = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
			    IBV_ACCESS_RELAXED_ORDERING;
	const struct region *slots, *region;
	struct hf_vmr *mr;
	struct pair pair;
	void *words;

	(void)state;
	pair_open(&pair, HF_POLICY_VARUNA);
	assert_int_equal(hf_mem_alloc(hf_loop_env(pair.loop), 4096, &words, NULL), 0);
	assert_int_equal(hf_vmr_reg_atomic(pair.b.pd, words, WORDS * 8, relaxed, HF_ATOMIC_UID, &mr, NULL), 0);
	pair_connect(&pair);
	region = region_of(mr);
	slots = region_of(pair.b.pd->uids->mr);
	for (unsigned i = 0; i < 2; i++) {
		assert_true((region->mrs[i]->access & IBV_ACCESS_RELAXED_ORDERING) != 0);
		assert_int_equal(slots->mrs[i]->access & IBV_ACCESS_RELAXED_ORDERING, 0);
		assert_int_equal(
			pair.b.vqp->log_ring.slab->mrs[i]->access, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	}
	hf_vmr_dereg(mr);
	hf_mem_free(hf_loop_env(pair.loop), words);
	pair_close(&pair);
}

/* Nothing is asked of the log, nor of the device, which cannot tell: what was in flight is sent again. */
static void what_is_declared_idempotent_is_not_logged_and_sent_again(void **state)
{
	struct hf_vqp_counters counters;
	struct ibv_sge sge;
	struct ibv_send_wr wr = {.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED | HF_SEND_IDEMPOTENT};
	struct ibv_send_wr *bad;
	struct pair pair;

	(void)state;
	pair_caps_masked = HF_DEV_EXECUTED_PSN;
	pair_open(&pair, HF_POLICY_VARUNA);
	pair_connect(&pair);
	memset(pair.a.memory, 0x5a, 8192);
	sge = (struct ibv_sge){.addr = (uintptr_t)pair.a.memory, .length = 8192, .lkey = pair.a.mr->lkey};
	wr.wr.rdma.remote_addr = (uintptr_t)pair.b.memory;
	wr.wr.rdma.rkey = pair.b.mr->rkey;
	pair_cut(&pair, 0, false);
	for (unsigned i = 0; i < 8; i++)
		assert_int_equal(hf_vqp_post_send(pair.a.vqp, &wr, &bad), 0);
	for (unsigned i = 0; i < 8; i++) {
		struct ibv_wc wc;

		pair_collect(&pair, &pair.a, 1, &wc);
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
	}
	assert_memory_equal(pair.a.memory, pair.b.memory, 8192);
	hf_vqp_counters(pair.a.vqp, &counters);
	assert_int_equal(counters.failovers, 1);
	assert_int_equal(counters.unknown, 0);
	assert_int_equal(pair.a.vqp->log.turn, 0);
	assert_int_equal(pair_write(&pair, 1, 0, 64, true), 0);
	assert_int_equal(pair.a.vqp->log.turn, 1);
	pair_close(&pair);
	pair_caps_masked = 0;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_peer_that_may_not_write_has_no_log_and_its_atomics_are_known_by_psn),
		cmocka_unit_test(a_peer_that_may_not_write_any_more_leaves_its_log_alone),
		cmocka_unit_test(what_is_declared_idempotent_is_not_logged_and_sent_again),
		cmocka_unit_test(logs_and_slots_are_registered_without_relaxed_ordering),
	};

	if (argc > 1)
		pair_kind = argv[1];
	return cmocka_run_group_tests(tests, NULL, NULL);
}
