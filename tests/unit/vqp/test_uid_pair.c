/* Atomics by uid between two nodes whose NICs keep no atomic results. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include <holdfast/grant.h>

#include "pair.h"
#include "vqp/atomic/uid.h"
#include "vqp/atomic/uid_slots.h"

#define WORDS  16u
#define ACCESS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)

struct bed {
	struct pair pair;
	uint64_t *words; /* b's, reached by uid */
	struct hf_vmr *mr;
	uint64_t *results; /* a's */
};

static bool revocable; /* b's vqp */

static void open_bed_without(struct bed *bed, uint32_t caps)
{
	struct hf_error error = {0};

	*bed = (struct bed){0};
	pair_caps_masked = HF_DEV_ATOMIC_RESULTS | caps;
	pair_open(&bed->pair, HF_POLICY_VARUNA);
	assert_int_equal(hf_mem_alloc(hf_loop_env(bed->pair.loop), 4096, (void **)&bed->words, &error), 0);
	memset(bed->words, 0, 4096);
	assert_int_equal(
		hf_vmr_reg_atomic(bed->pair.b.pd, bed->words, WORDS * 8, ACCESS, HF_ATOMIC_UID, &bed->mr, &error), 0);
	bed->results = (uint64_t *)(void *)bed->pair.a.memory;
	bed->pair.revocable = revocable;
	pair_connect(&bed->pair);
}

static void open_bed(struct bed *bed)
{
	open_bed_without(bed, 0);
}

static void close_bed(struct bed *bed)
{
	hf_vmr_dereg(bed->mr);
	hf_mem_free(hf_loop_env(bed->pair.loop), bed->words);
	pair_close(&bed->pair);
}

/* The result goes into bed->results[wr_id]. */
static void post(
	struct bed *bed, uint64_t wr_id, enum ibv_wr_opcode opcode, unsigned word, uint64_t compare_add, uint64_t swap)
{
	struct ibv_sge sge = {.addr = (uintptr_t)&bed->results[wr_id], .length = 8, .lkey = bed->pair.a.mr->lkey};
	struct ibv_send_wr wr = {
		.wr_id = wr_id, .sg_list = &sge, .num_sge = 1, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED};
	struct ibv_send_wr *bad;

	if (opcode == IBV_WR_RDMA_READ || opcode == IBV_WR_RDMA_WRITE) {
		wr.wr.rdma.remote_addr = (uintptr_t)&bed->words[word];
		wr.wr.rdma.rkey = bed->mr->rkey;
	} else {
		wr.wr.atomic.remote_addr = (uintptr_t)&bed->words[word];
		wr.wr.atomic.rkey = bed->mr->rkey;
		wr.wr.atomic.compare_add = compare_add;
		wr.wr.atomic.swap = swap;
	}
	assert_int_equal(hf_vqp_post_send(bed->pair.a.vqp, &wr, &bad), 0);
}

static uint64_t value_of(struct bed *bed, unsigned word)
{
	uint64_t value;

	assert_int_equal(hf_vmr_atomic_load(bed->mr, &bed->words[word], &value), 0);
	return value;
}

static void atomics_and_reads_return_what_the_word_meant(void **state)
{
	struct ibv_wc wc[5];
	struct bed bed;

	(void)state;
	open_bed(&bed);
	post(&bed, 0, IBV_WR_ATOMIC_CMP_AND_SWP, 3, 0, 7);
	post(&bed, 1, IBV_WR_ATOMIC_CMP_AND_SWP, 3, 0, 8); /* fails */
	post(&bed, 2, IBV_WR_ATOMIC_FETCH_AND_ADD, 3, 10, 0);
	post(&bed, 3, IBV_WR_RDMA_READ, 3, 0, 0);
	post(&bed, 4, IBV_WR_ATOMIC_CMP_AND_SWP, 3, 17, 1);
	pair_collect(&bed.pair, &bed.pair.a, 5, wc);
	for (unsigned i = 0; i < 5; i++) {
		assert_int_equal(wc[i].status, IBV_WC_SUCCESS);
		assert_int_equal(wc[i].wr_id, i);
	}
	assert_int_equal(wc[0].opcode, IBV_WC_COMP_SWAP);
	assert_int_equal(wc[2].opcode, IBV_WC_FETCH_ADD);
	assert_int_equal(bed.results[0], 0);
	assert_int_equal(bed.results[1], 7);
	assert_int_equal(bed.results[2], 7);
	assert_int_equal(bed.results[3], 17);
	assert_int_equal(bed.results[4], 17);
	assert_int_equal(value_of(&bed, 3), 1);
	close_bed(&bed);
}

/* A peer reaches its slots with any WRITE. */
static void garbage_in_lent_slots_costs_their_borrower_its_atomics_only(void **state)
{
	struct ibv_wc wc;
	struct bed bed;

	(void)state;
	open_bed(&bed);
	for (unsigned i = 0; i < bed.pair.b.pd->uids->count; i++)
		bed.pair.b.pd->uids->slots[i].word = UINT64_MAX;
	post(&bed, 0, IBV_WR_ATOMIC_FETCH_AND_ADD, 3, 10, 0);
	pair_collect(&bed.pair, &bed.pair.a, 1, &wc);
	assert_int_not_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(value_of(&bed, 3), 0);
	close_bed(&bed);
}

static void reads_of_many_words_are_looked_at_word_by_word(void **state)
{
	const uint64_t hostile = uid_make(1, 12345); /* a value, though it looks like a uid */
	struct ibv_wc wc;
	struct bed bed;

	(void)state;
	open_bed(&bed);
	for (unsigned i = 0; i < WORDS; i++)
		bed.words[i] = i % 3 == 0 ? hostile : i;
	struct ibv_sge sge = {.addr = (uintptr_t)bed.results, .length = WORDS * 8, .lkey = bed.pair.a.mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_READ,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = {.remote_addr = (uintptr_t)bed.words, .rkey = bed.mr->rkey}};
	struct ibv_send_wr *bad;

	assert_int_equal(hf_vqp_post_send(bed.pair.a.vqp, &wr, &bad), 0);
	pair_collect(&bed.pair, &bed.pair.a, 1, &wc);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.byte_len, WORDS * 8);
	assert_memory_equal(bed.results, bed.words, WORDS * 8);
	close_bed(&bed);
}

static void a_write_is_refused_because_it_would_erase_a_uid(void **state)
{
	struct ibv_wc wc[2];
	struct bed bed;

	(void)state;
	open_bed(&bed);
	post(&bed, 0, IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 1, 0);
	post(&bed, 1, IBV_WR_RDMA_WRITE, 0, 0, 0);
	pair_collect(&bed.pair, &bed.pair.a, 2, wc);
	assert_int_equal(wc[0].status, IBV_WC_SUCCESS);
	assert_int_equal(wc[1].status, IBV_WC_REM_INV_REQ_ERR);
	assert_int_equal(value_of(&bed, 0), 1);
	close_bed(&bed);
}

static void a_region_by_uid_cannot_be_open_to_writes(void **state)
{
	struct hf_error error = {0};
	struct hf_vmr *mr;
	struct bed bed;

	(void)state;
	open_bed(&bed);
	assert_int_equal(hf_vmr_reg_atomic(bed.pair.b.pd, bed.words, 8, ACCESS | IBV_ACCESS_REMOTE_WRITE, HF_ATOMIC_UID,
				 &mr, &error),
		-EINVAL);
	assert_non_null(strstr(error.text, "REMOTE_WRITE"));
	assert_int_equal(
		hf_vmr_reg_atomic(bed.pair.b.pd, bed.words, 8, IBV_ACCESS_LOCAL_WRITE, HF_ATOMIC_UID, &mr, &error),
		-EINVAL);
	close_bed(&bed);
}

static void additions_outlive_cuts_each_once(void **state)
{
	const unsigned n = 400;
	struct hf_vqp_counters counters;
	unsigned posted = 0, done = 0;
	struct bed bed;

	(void)state;
	open_bed(&bed);
	while (done < n) {
		struct ibv_wc wc[8];
		int got;

		if (posted % 100 == 50 && posted < n)
			pair_cut(&bed.pair, posted / 100 % 2, false);
		else if (posted % 100 == 90 && posted < n)
			pair_cut(&bed.pair, posted / 100 % 2, true);
		for (; posted < n && posted < done + 8; posted++)
			post(&bed, posted, IBV_WR_ATOMIC_FETCH_AND_ADD, 5, 3, 0);
		got = hf_vcq_poll(bed.pair.a.cq, 8, wc);
		for (int i = 0; i < got; i++) {
			assert_int_equal(wc[i].status, IBV_WC_SUCCESS);
			assert_int_equal(wc[i].wr_id, done);
			assert_int_equal(bed.results[done], done * 3);
			done++;
		}
		if (got == 0)
			hf_loop_turn(bed.pair.loop, 5000000);
	}
	assert_int_equal(value_of(&bed, 5), n * 3);
	hf_vqp_counters(bed.pair.a.vqp, &counters);
	assert_true(counters.failovers > 0);
	close_bed(&bed);
}

static void the_owner_takes_part_in_atomics_of_his_region(void **state)
{
	const unsigned n = 100;
	uint64_t original, sum = 0;
	struct ibv_wc wc;
	struct bed bed;

	(void)state;
	open_bed(&bed);
	for (unsigned i = 0; i < n; i++) {
		post(&bed, i, IBV_WR_ATOMIC_FETCH_AND_ADD, 1, 1, 0);
		for (unsigned turn = 0; turn < 3; turn++) {
			assert_int_equal(hf_vmr_atomic_faa(bed.mr, &bed.words[1], 1, &original), 0);
			assert_true(original < 4 * n); /* never a uid */
			sum++;
			hf_loop_turn(bed.pair.loop, 0);
		}
		pair_collect(&bed.pair, &bed.pair.a, 1, &wc);
		sum++;
	}
	assert_int_equal(value_of(&bed, 1), sum);
	assert_int_equal(hf_vmr_atomic_cas(bed.mr, &bed.words[1], sum, 2, &original), 0);
	assert_int_equal(original, sum);
	assert_int_equal(hf_vmr_atomic_cas(bed.mr, &bed.words[WORDS], 0, 1, &original), -EINVAL);
	close_bed(&bed);
}

/* What a requester that died in the middle leaves behind. */
static void the_slots_of_a_dead_vqp_are_resolved_before_they_are_lent_again(void **state)
{
	struct uid_slot *slot;
	struct ibv_wc wc;
	struct bed bed;

	(void)state;
	open_bed(&bed);
	post(&bed, 0, IBV_WR_ATOMIC_FETCH_AND_ADD, 2, 1, 0);
	pair_collect(&bed.pair, &bed.pair.a, 1, &wc);
	slot = &bed.mr->pd->uids->slots[1];
	*slot = (struct uid_slot){.word = uid_word(900, UID_PENDING), .swap = 44, .target = (uintptr_t)&bed.words[2]};
	__atomic_store_n(&bed.words[2], uid_make(1, 900), __ATOMIC_RELEASE); /* a NIC wrote it last */
	slot[1] = (struct uid_slot){.word = uid_word(901, UID_PENDING), .swap = 45, .target = 0x10}; /* nobody's */
	hf_vqp_destroy(bed.pair.b.vqp);
	bed.pair.b.vqp = NULL;
	assert_int_equal(__atomic_load_n(&bed.words[2], __ATOMIC_ACQUIRE), 44);
	assert_int_equal(slot->word, uid_word(900, UID_DONE));
	close_bed(&bed);
}

/* What a requester has left, or not yet come to: returns the slot. */
static struct uid_slot *leave_a_uid(struct bed *bed, uint32_t index, uint64_t sequence)
{
	struct uid_slot *slot = &bed->mr->pd->uids->slots[index];

	*slot = (struct uid_slot){
		.word = uid_word(sequence, UID_PENDING), .swap = 44, .target = (uintptr_t)&bed->words[2]};
	__atomic_store_n(&bed->words[2], uid_make(index, sequence), __ATOMIC_RELEASE);
	return slot;
}

static void add_one(struct bed *bed)
{
	struct ibv_wc wc;

	post(bed, 0, IBV_WR_ATOMIC_FETCH_AND_ADD, 2, 1, 0);
	pair_collect(&bed->pair, &bed->pair.a, 1, &wc);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
}

static uint64_t do_one(struct bed *bed, enum ibv_wr_opcode opcode, unsigned word, uint64_t compare_add, uint64_t swap)
{
	struct ibv_wc wc;

	bed->results[1] = 0xbad;
	post(bed, 1, opcode, word, compare_add, swap);
	pair_collect(&bed->pair, &bed->pair.a, 1, &wc);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	return bed->results[1];
}

static void the_owner_replaces_uids_that_peers_leave(void **state)
{
	struct uid_slot *slot;
	struct bed bed;

	(void)state;
	open_bed(&bed);
	add_one(&bed);
	slot = leave_a_uid(&bed, 1, 900);
	uid_slots_tick(bed.pair.b.node, 1);
	assert_int_equal(bed.words[2], 44);
	assert_int_equal(slot->word, uid_word(900, UID_DONE));
	close_bed(&bed);
}

static void where_nics_are_not_atomic_with_the_cpu_it_leaves_living_peers_alone(void **state)
{
	struct uid_slot *slot;
	struct bed bed;

	(void)state;
	open_bed_without(&bed, HF_DEV_ATOMIC_GLOBAL);
	add_one(&bed);
	slot = leave_a_uid(&bed, 1, 900);
	uid_slots_tick(bed.pair.b.node, 1);
	assert_int_equal(bed.words[2], uid_make(1, 900));
	assert_int_equal(slot->word, uid_word(900, UID_PENDING));
	hf_vqp_destroy(bed.pair.b.vqp);
	bed.pair.b.vqp = NULL;
	assert_int_equal(bed.words[2], 44);
	close_bed(&bed);
}

static void where_a_nic_may_write_a_uid_back_the_slots_of_the_dead_are_watched_for_a_while(void **state)
{
	const struct uid_loan *loan;
	struct bed bed;

	(void)state;
	open_bed_without(&bed, HF_DEV_ATOMIC_GLOBAL);
	add_one(&bed);
	loan = &bed.mr->pd->uids->loans[0];
	hf_vqp_destroy(bed.pair.b.vqp);
	bed.pair.b.vqp = NULL;
	(void)leave_a_uid(&bed, 1, 900); /* as a CAS does that failed, and began before */
	uid_slots_tick(bed.pair.b.node, loan->free_ns - UID_LEFT_NS - 1); /* its turn began before it ended */
	uid_slots_tick(bed.pair.b.node, loan->free_ns - 1);
	assert_int_equal(bed.words[2], 44);
	assert_int_not_equal(loan->vqp, 0); /* nobody gets them yet */
	uid_slots_tick(bed.pair.b.node, loan->free_ns);
	assert_int_equal(loan->vqp, 0);
	close_bed(&bed);
}

/* The requester confirms its slot while the owner lets the region go, and learns of that later. */
static void confirm_late(void)
{
	struct hf_error error = {0};
	struct bed bed;
	struct hf_vmr *other;

	open_bed(&bed);
	for (unsigned i = 0; i < 20; i++) {
		struct hf_vmr *gone = bed.mr;

		assert_int_equal(
			hf_vmr_reg_atomic(bed.pair.b.pd, bed.words, WORDS * 8, ACCESS, HF_ATOMIC_UID, &other, &error),
			0);
		pair_turn(&bed.pair, 8, 1000000);
		add_one(&bed);
		assert_int_equal(hf_vmr_dereg(gone), 0);
		bed.mr = other;
		assert_int_equal(do_one(&bed, IBV_WR_ATOMIC_FETCH_AND_ADD, 2, 1, 0), 2 * i + 1);
	}
	close_bed(&bed);
}

static void a_confirmation_that_comes_too_late_fails_no_other_wr(void **state)
{
	(void)state;
	confirm_late();
	revocable = true;
	confirm_late();
	revocable = false;
}

/* ---- grants that end (R13) ---- */

#define GRANTED     (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)
#define UNSETTLED   3u /* the word of the operations that a grant takes with it */
#define OTHERS_SLOT 100u

static bool may_be_armed(struct pair *pair)
{
	return hf_vqp_remote_access(pair->a.vqp) == GRANTED && hf_vqp_state(pair->a.vqp) == HF_VQP_UP;
}

static bool is_disarmed(struct pair *pair)
{
	return !hf_vqp_armed(pair->a.vqp) && hf_vqp_state(pair->a.vqp) == HF_VQP_UP;
}

static bool is_settled(struct pair *pair)
{
	return !pair->b.vqp->grants.given;
}

/* The first operation of a grant that ends: its answer, if it has one, is lost. */
static enum hf_wc_outcome end_grant_of(struct bed *bed, enum ibv_wr_opcode opcode, uint64_t compare, uint64_t swap)
{
	struct hf_dev *dev = hf_node_dev(bed->pair.a.node, (unsigned)hf_vqp_rail(bed->pair.a.vqp));
	uint64_t before = __atomic_load_n(&bed->words[UNSETTLED], __ATOMIC_ACQUIRE);
	struct hf_vqp_counters counters, later;
	struct ibv_wc wc;

	assert_int_equal(hf_dev_set_link(dev, HF_LINK_RX, false), 0);
	post(bed, 0, opcode, UNSETTLED, compare, swap);
	for (unsigned i = 0; i < 1000 && opcode == IBV_WR_ATOMIC_CMP_AND_SWP &&
			     __atomic_load_n(&bed->words[UNSETTLED], __ATOMIC_ACQUIRE) == before;
		i++)
		pair_turn(&bed->pair, 1, 1000000);
	(void)hf_vqp_set_access(bed->pair.b.vqp, IBV_ACCESS_REMOTE_READ, NULL, NULL);
	pair_collect(&bed->pair, &bed->pair.a, 1, &wc);
	assert_int_equal(wc.status, IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(hf_dev_set_link(dev, HF_LINK_RX, true), 0);
	assert_true(pair_until(&bed->pair, is_disarmed));
	hf_vqp_counters(bed->pair.a.vqp, &counters);
	pair_turn_for(&bed->pair, 20000000);
	hf_vqp_counters(bed->pair.a.vqp, &later);
	assert_int_equal(later.failovers, counters.failovers); /* nothing is tried that the grant does not allow */
	return (enum hf_wc_outcome)wc.vendor_err;
}

static void grant_again(struct bed *bed)
{
	(void)hf_vqp_set_access(bed->pair.b.vqp, GRANTED, NULL, NULL);
	assert_true(pair_until(&bed->pair, may_be_armed));
	assert_true(pair_until(&bed->pair, is_settled));
	assert_int_equal(hf_vqp_rearm(bed->pair.a.vqp), 0);
}

/* More often than the vqp has slots. */
static void an_operation_that_its_grant_took_with_it_is_not_the_next_ones(void **state)
{
	static const uint32_t without[] = {0, HF_DEV_ATOMIC_GLOBAL};
	const unsigned rounds = 2 * UID_SLOTS_PER_VQP;
	struct bed bed;

	(void)state;
	revocable = true;
	for (unsigned k = 0; k < 2; k++) {
		open_bed_without(&bed, without[k]);
		for (unsigned i = 0; i < rounds; i++) {
			assert_int_equal(end_grant_of(&bed, IBV_WR_ATOMIC_CMP_AND_SWP, i, i + 1), HF_WC_UNKNOWN);
			grant_again(&bed);
			assert_int_equal(do_one(&bed, IBV_WR_ATOMIC_FETCH_AND_ADD, 4, 10, 0), 10 * i);
			assert_int_equal(do_one(&bed, IBV_WR_RDMA_READ, UNSETTLED, 0, 0), i + 1);
			assert_int_equal(do_one(&bed, IBV_WR_RDMA_READ, 4, 0, 0), 10 * (i + 1));
		}
		/* when its UIDs are replaced, these are done too */
		assert_int_equal(do_one(&bed, IBV_WR_ATOMIC_FETCH_AND_ADD, UNSETTLED, 0, 0), rounds);
		pair_turn_for(&bed.pair, 20000000);
		assert_int_equal(__atomic_load_n(&bed.words[UNSETTLED], __ATOMIC_ACQUIRE), rounds);
		assert_int_equal(__atomic_load_n(&bed.words[4], __ATOMIC_ACQUIRE), 10 * rounds);
		close_bed(&bed);
	}
	revocable = false;
}

/* Or what is next would be posted as it is, without a uid, and without a look at those of others. */
static void nor_is_a_read(void **state)
{
	struct bed bed;

	(void)state;
	revocable = true;
	open_bed(&bed);
	(void)do_one(&bed, IBV_WR_ATOMIC_FETCH_AND_ADD, UNSETTLED, 1, 0);
	assert_int_equal(end_grant_of(&bed, IBV_WR_RDMA_READ, 0, 0), HF_WC_NOT_EXECUTED);
	grant_again(&bed);
	(void)leave_a_uid(&bed, OTHERS_SLOT, 900);
	assert_int_equal(do_one(&bed, IBV_WR_ATOMIC_CMP_AND_SWP, 2, 44, 9), 44);
	assert_int_equal(value_of(&bed, 2), 9);
	close_bed(&bed);
	revocable = false;
}

static void an_operation_in_doubt_whose_region_is_gone_is_unknown(void **state)
{
	struct hf_dev *dev;
	struct ibv_wc wc;
	struct bed bed;

	(void)state;
	open_bed(&bed);
	add_one(&bed);
	dev = hf_node_dev(bed.pair.a.node, (unsigned)hf_vqp_rail(bed.pair.a.vqp));
	assert_int_equal(hf_dev_set_link(dev, HF_LINK_RX, false), 0);
	post(&bed, 0, IBV_WR_ATOMIC_CMP_AND_SWP, 3, 0, 7);
	for (unsigned i = 0; i < 1000 && __atomic_load_n(&bed.words[3], __ATOMIC_ACQUIRE) == 0; i++)
		pair_turn(&bed.pair, 1, 1000000);
	assert_int_equal(hf_vmr_dereg(bed.mr), 0);
	bed.mr = NULL;
	pair_collect(&bed.pair, &bed.pair.a, 1, &wc);
	assert_int_equal(bed.words[3], 7); /* it took effect */
	assert_int_equal(wc.status, IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(wc.vendor_err, HF_WC_UNKNOWN);
	close_bed(&bed);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(atomics_and_reads_return_what_the_word_meant),
		cmocka_unit_test(garbage_in_lent_slots_costs_their_borrower_its_atomics_only),
		cmocka_unit_test(reads_of_many_words_are_looked_at_word_by_word),
		cmocka_unit_test(a_write_is_refused_because_it_would_erase_a_uid),
		cmocka_unit_test(a_region_by_uid_cannot_be_open_to_writes),
		cmocka_unit_test(additions_outlive_cuts_each_once),
		cmocka_unit_test(the_owner_takes_part_in_atomics_of_his_region),
		cmocka_unit_test(the_slots_of_a_dead_vqp_are_resolved_before_they_are_lent_again),
		cmocka_unit_test(the_owner_replaces_uids_that_peers_leave),
		cmocka_unit_test(where_nics_are_not_atomic_with_the_cpu_it_leaves_living_peers_alone),
		cmocka_unit_test(where_a_nic_may_write_a_uid_back_the_slots_of_the_dead_are_watched_for_a_while),
		cmocka_unit_test(a_confirmation_that_comes_too_late_fails_no_other_wr),
		cmocka_unit_test(an_operation_that_its_grant_took_with_it_is_not_the_next_ones),
		cmocka_unit_test(nor_is_a_read),
		cmocka_unit_test(an_operation_in_doubt_whose_region_is_gone_is_unknown),
	};

	if (argc > 1)
		pair_kind = argv[1];
	return cmocka_run_group_tests(tests, NULL, NULL);
}
