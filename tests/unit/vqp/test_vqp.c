#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <holdfast/metrics.h>

#include "pair.h"
#include "vqp/objects.h"

static void fill(uint8_t *memory, uint32_t bytes, unsigned seed)
{
	for (uint32_t i = 0; i < bytes; i++)
		memory[i] = (uint8_t)(i * 31 + seed + (i >> 8));
}

static void a_write_lands_and_completes_once(void **state)
{
	struct pair pair;
	struct ibv_wc wc;

	(void)state;
	pair_open(&pair, HF_POLICY_VARUNA);
	pair_connect(&pair);
	fill(pair.a.memory, 4096, 1);
	assert_int_equal(pair_write(&pair, 42, 0, 4096, true), 0);
	pair_collect(&pair, &pair.a, 1, &wc);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.wr_id, 42);
	assert_int_equal(wc.opcode, IBV_WC_RDMA_WRITE);
	assert_int_equal(wc.qp_num, hf_vqp_num(pair.a.vqp));
	assert_memory_equal(pair.a.memory, pair.b.memory, 4096);
	assert_int_equal(hf_vcq_poll(pair.a.cq, 1, &wc), 0);
	pair_close(&pair);
}

static void messages_go_into_receives_in_order(void **state)
{
	struct ibv_wc sent[16], received[16];
	struct pair pair;

	(void)state;
	pair_open(&pair, HF_POLICY_VARUNA);
	pair_connect(&pair);
	fill(pair.a.memory, 16 * 64, 7);
	for (unsigned i = 0; i < 16; i++)
		assert_int_equal(pair_recv(&pair.b, 100 + i, i * 64, 64), 0);
	for (unsigned i = 0; i < 16; i++)
		assert_int_equal(pair_send(&pair, i, i * 64, i + 1), 0);
	pair_collect(&pair, &pair.b, 16, received);
	pair_collect(&pair, &pair.a, 16, sent);
	for (unsigned i = 0; i < 16; i++) {
		assert_int_equal(sent[i].wr_id, i);
		assert_int_equal(received[i].wr_id, 100 + i);
		assert_int_equal(received[i].byte_len, i + 1);
		assert_int_equal(received[i].opcode, IBV_WC_RECV);
		assert_memory_equal(pair.a.memory + i * 64, pair.b.memory + i * 64, i + 1);
	}
	pair_close(&pair);
}

#define MARK       7
#define SETTLED_NS 50000000ull

static size_t landed_when_told;

static size_t landed(const struct pair *pair)
{
	size_t n = 0;

	for (size_t i = 0; i < PAIR_BYTES; i++)
		n += pair->b.memory[i] == MARK;
	return n;
}

static void poll_when_it_failed(struct hf_vqp *vqp, void *context)
{
	struct pair *pair = context;
	struct ibv_wc wc;

	if (hf_vqp_state(vqp) == HF_VQP_ERROR && hf_vcq_poll(pair->a.cq, 1, &wc) == 1)
		landed_when_told = landed(pair);
}

static bool is_told(struct pair *pair)
{
	(void)pair;
	return landed_when_told != SIZE_MAX;
}

/* V4: what is on its way when the program ends the vqp lands before that is told, or never. */
static void a_write_that_completed_as_flushed_does_not_land_later(void **state)
{
	struct pair pair;

	(void)state;
	for (unsigned i = 0; i < 8; i++) {
		landed_when_told = SIZE_MAX;
		pair_open(&pair, HF_POLICY_VARUNA);
		pair_connect(&pair);
		memset(pair.a.memory, MARK, PAIR_BYTES);
		memset(pair.b.memory, 0, PAIR_BYTES);
		pair.a.vqp->changed = poll_when_it_failed;
		pair.a.vqp->context = &pair;
		assert_int_equal(pair_write(&pair, 1, 0, 1024, true), 0);
		hf_vqp_abort(pair.a.vqp);
		assert_true(pair_until(&pair, is_told));
		pair_turn_for(&pair, SETTLED_NS);
		assert_int_equal(landed(&pair), landed_when_told);
		assert_int_equal(hf_vqp_state(pair.b.vqp), HF_VQP_ERROR);
		pair_close(&pair);
	}
}

static bool on_rail_1(struct pair *pair)
{
	return hf_vqp_rail(pair->a.vqp) == 1 && hf_vqp_rail(pair->b.vqp) == 1;
}

static bool on_rail_0(struct pair *pair)
{
	return hf_vqp_rail(pair->a.vqp) == 0 && hf_vqp_rail(pair->b.vqp) == 0;
}

/* Cuts the rail with a window of writes in flight; every one completes, in order, and the bytes are right. */
static void cut_in_the_middle(enum hf_policy policy)
{
	const uint32_t piece = 8192, n = PAIR_BYTES / 8192;
	struct hf_vqp_counters counters;
	struct pair pair;
	uint32_t posted = 0, done = 0;

	pair_open(&pair, policy);
	pair_connect(&pair);
	assert_true(pair_until(&pair, on_rail_0));
	fill(pair.a.memory, PAIR_BYTES, 3);
	while (done < n) {
		struct ibv_wc wc;

		while (posted < n && pair_write(&pair, posted, posted * piece, piece, true) == 0)
			posted++;
		if (done == n / 2)
			pair_cut(&pair, 0, false);
		pair_collect(&pair, &pair.a, 1, &wc);
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		assert_int_equal(wc.wr_id, done);
		done++;
	}
	assert_memory_equal(pair.a.memory, pair.b.memory, PAIR_BYTES);
	assert_true(pair_until(&pair, on_rail_1));
	hf_vqp_counters(pair.a.vqp, &counters);
	assert_int_equal(counters.failovers, 1);
	assert_int_equal(counters.failed, 0);
	pair_cut(&pair, 0, true);
	assert_true(pair_until(&pair, on_rail_0));
	hf_vqp_counters(pair.a.vqp, &counters);
	assert_int_equal(counters.failbacks, 1);
	fill(pair.a.memory, PAIR_BYTES, 99);
	assert_int_equal(pair_write(&pair, 7, 0, PAIR_BYTES, true), 0);
	struct ibv_wc wc;

	pair_collect(&pair, &pair.a, 1, &wc);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_memory_equal(pair.a.memory, pair.b.memory, PAIR_BYTES);
	pair_close(&pair);
}

static void writes_outlive_a_cut_rail_and_return_to_it(void **state)
{
	(void)state;
	cut_in_the_middle(HF_POLICY_RESEND);
}

static void writes_outlive_a_cut_rail_each_once(void **state)
{
	(void)state;
	cut_in_the_middle(HF_POLICY_VARUNA);
}

static long long exported(const char *series)
{
	char *text = hf_metrics_prometheus(), *at;
	long long value = -1;

	assert_non_null(text);
	at = strstr(text, series);
	if (at != NULL)
		value = strtoll(at + strlen(series), NULL, 10);
	free(text);
	return value;
}

/* Of the process: they outlive the node. */
static void what_a_failover_did_is_in_the_metrics(void **state)
{
	static const char *const series[] = {"holdfast_vqp_failovers_total{node=\"a\"} ",
		"holdfast_vqp_failover_seconds_count{node=\"a\"} ", "holdfast_vqp_resent_wrs_total{node=\"a\"} "};
	long long before[3];

	(void)state;
	cut_in_the_middle(HF_POLICY_VARUNA); /* they are registered */
	for (unsigned i = 0; i < 3; i++)
		before[i] = exported(series[i]);
	cut_in_the_middle(HF_POLICY_VARUNA);
	for (unsigned i = 0; i < 2; i++)
		assert_true(exported(series[i]) > before[i]);
	assert_true(before[2] >= 0 && exported(series[2]) >= before[2]); /* when none was lost, none is sent again */
}

static void writes_outlive_a_cut_rail_on_a_qp_made_beforehand(void **state)
{
	(void)state;
	cut_in_the_middle(HF_POLICY_RESEND_CACHE);
}

/* What a receive took is not sent again and what none took is: the k-th message is in the k-th receive. */
static void messages_outlive_a_cut_rail_each_once_and_in_order(void **state)
{
	enum { MESSAGES = 400 };
	struct pair pair;
	uint32_t posted = 0, sent = 0, received = 0, offered = 0;

	(void)state;
	pair_open(&pair, HF_POLICY_VARUNA);
	pair_connect(&pair);
	fill(pair.a.memory, MESSAGES * 1024, 5);
	while (received < MESSAGES || sent < MESSAGES) {
		struct ibv_wc wc[8];
		int n;

		while (offered < MESSAGES && pair_recv(&pair.b, offered, offered * 1024, 1024) == 0)
			offered++;
		while (posted < MESSAGES && pair_send(&pair, posted, posted * 1024, 1 + posted * 2) == 0)
			posted++;
		if (received == MESSAGES / 4 || received == MESSAGES / 2)
			pair_cut(&pair, received == MESSAGES / 4 ? 0 : 1, false);
		if (received == MESSAGES * 3 / 8)
			pair_cut(&pair, 0, true);
		n = hf_vcq_poll(pair.b.cq, 1, wc);
		if (n == 1) {
			assert_int_equal(wc[0].status, IBV_WC_SUCCESS);
			assert_int_equal(wc[0].wr_id, received);
			assert_int_equal(wc[0].byte_len, 1 + received * 2);
			received++;
		}
		for (int i = hf_vcq_poll(pair.a.cq, 8, wc); i > 0; i--, sent++)
			assert_int_equal(wc[i - 1].status, IBV_WC_SUCCESS);
		hf_loop_turn(pair.loop, 1000000);
	}
	for (uint32_t i = 0; i < MESSAGES; i++)
		assert_memory_equal(pair.a.memory + i * 1024, pair.b.memory + i * 1024, 1 + i * 2);
	pair_close(&pair);
}

/* Nothing leaves the port, and no event says so: only the wr's own error does. */
static void a_silent_cut_is_found_by_the_error_of_a_wr(void **state)
{
	struct hf_vqp_counters counters;
	struct pair pair;
	struct ibv_wc wc;

	(void)state;
	pair_open(&pair, HF_POLICY_VARUNA);
	pair_connect(&pair);
	assert_true(pair_until(&pair, on_rail_0));
	fill(pair.a.memory, 4096, 9);
	assert_int_equal(hf_dev_set_link(hf_node_dev(pair.a.node, 0), HF_LINK_TX, false), 0);
	assert_int_equal(pair_write(&pair, 1, 0, 4096, true), 0);
	pair_collect(&pair, &pair.a, 1, &wc);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_memory_equal(pair.a.memory, pair.b.memory, 4096);
	hf_vqp_counters(pair.a.vqp, &counters);
	assert_true(counters.failovers >= 1);
	assert_true(counters.resent_wrs >= 1);
	assert_true(hf_node_rail_up(pair.a.node, 0));
	pair_close(&pair);
}

/* The addition executes at b, and its answer is lost on the way: b's device still knows what it found (R9). */
static void an_atomic_whose_answer_was_lost_returns_what_it_found(void **state)
{
	struct hf_vqp_counters counters;
	struct pair pair;
	struct ibv_wc wc;
	uint64_t *word, *result;

	(void)state;
	pair_open(&pair, HF_POLICY_VARUNA);
	pair_connect(&pair);
	assert_true(pair_until(&pair, on_rail_0));
	word = (uint64_t *)(void *)pair.b.memory;
	result = (uint64_t *)(void *)(pair.a.memory + 64);
	*word = 1000;
	assert_int_equal(hf_dev_set_link(hf_node_dev(pair.a.node, 0), HF_LINK_RX, false), 0);
	assert_int_equal(pair_add(&pair, 1, 64, 0, 7), 0);
	pair_collect(&pair, &pair.a, 1, &wc);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.opcode, IBV_WC_FETCH_ADD);
	assert_int_equal(*result, 1000);
	assert_int_equal(*word, 1007);
	assert_true(pair_until(&pair, on_rail_1));
	hf_vqp_counters(pair.a.vqp, &counters);
	assert_int_equal(counters.failovers, 1);
	assert_int_equal(counters.resent_wrs, 0);
	assert_int_equal(counters.unknown, 0);
	pair_close(&pair);
}

static bool both_have_a_backup(struct pair *pair)
{
	return pair->a.vqp->backup[1].ready && pair->b.vqp->backup[1].ready;
}

/* The vqp goes over to a qp on which its probe is on its way yet: that was posted before all that is replayed there. */
static void a_probe_of_another_qp_speaks_for_nothing_in_the_log(void **state)
{
	const uint64_t none = UINT64_MAX;
	struct ibv_wc wc[8];
	struct pair pair;

	(void)state;
	pair_open(&pair, HF_POLICY_VARUNA);
	pair.revocable = true; /* so it has a qp on each rail */
	pair_connect(&pair);
	assert_true(pair_until(&pair, both_have_a_backup));
	pair_cut(&pair, 0, false);
	for (unsigned i = 0; i < 8; i++) {
		memcpy(pair.a.memory + 8 * i, &none, sizeof(none));
		assert_int_equal(pair_add(&pair, i, 8 * i, 0, 1), 0);
	}
	assert_true(post_probe_on(pair.a.vqp, &pair.a.vqp->backup[1]));
	pair_collect(&pair, &pair.a, 8, wc);
	for (uint64_t i = 0; i < 8; i++) {
		assert_int_equal(wc[i].status, IBV_WC_SUCCESS);
		assert_memory_equal(pair.a.memory + 8 * i, &i, sizeof(i));
	}
	assert_int_equal(hf_vqp_rail(pair.a.vqp), 1);
	pair_close(&pair);
}

static void without_a_policy_a_cut_is_an_error(void **state)
{
	struct pair pair;
	struct ibv_wc wc[2];

	(void)state;
	pair_open(&pair, HF_POLICY_NONE);
	pair_connect(&pair);
	pair_cut(&pair, 0, false);
	assert_int_equal(pair_write(&pair, 1, 0, 64, true), 0);
	assert_int_equal(pair_write(&pair, 2, 0, 64, true), 0);
	pair_collect(&pair, &pair.a, 2, wc);
	assert_int_not_equal(wc[0].status, IBV_WC_SUCCESS);
	assert_int_equal(wc[1].status, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(hf_vqp_state(pair.a.vqp), HF_VQP_ERROR);
	pair_close(&pair);
}

static void without_any_path_wrs_complete_in_error_within_the_budget(void **state)
{
	struct pair pair;
	struct ibv_wc wc[2];

	(void)state;
	pair_open(&pair, HF_POLICY_VARUNA);
	pair_connect(&pair);
	pair_cut(&pair, 0, false);
	pair_cut(&pair, 1, false);
	assert_int_equal(pair_write(&pair, 1, 0, 64, true), 0);
	assert_int_equal(pair_write(&pair, 2, 0, 64, false), 0);
	pair_collect(&pair, &pair.a, 2, wc);
	assert_int_equal(wc[0].wr_id, 1);
	assert_int_equal(wc[0].status, IBV_WC_RETRY_EXC_ERR);
	assert_int_equal(wc[1].status, IBV_WC_RETRY_EXC_ERR);
	pair_close(&pair);
}

static void a_program_error_is_reported_and_starts_no_failover(void **state)
{
	struct hf_vqp_counters counters;
	struct pair pair;
	struct ibv_wc wc[2];
	uint32_t rkey;

	(void)state;
	pair_open(&pair, HF_POLICY_VARUNA);
	pair_connect(&pair);
	rkey = pair.b.mr->rkey;
	pair.b.mr->rkey ^= 0x10000;
	assert_int_equal(pair_write(&pair, 1, 0, 64, true), 0);
	pair.b.mr->rkey = rkey;
	pair_collect(&pair, &pair.a, 1, wc);
	assert_int_equal(wc[0].status, IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(hf_vqp_state(pair.a.vqp), HF_VQP_ERROR);
	hf_vqp_counters(pair.a.vqp, &counters);
	assert_int_equal(counters.failovers, 0);
	pair_close(&pair);
}

static void a_receive_without_a_list_is_refused(void **state)
{
	struct ibv_recv_wr none = {.wr_id = 2}, wr = {.wr_id = 1, .num_sge = 1, .next = &none}, *bad = NULL;
	struct pair pair;

	(void)state;
	pair_open(&pair, HF_POLICY_VARUNA);
	pair_connect(&pair);
	assert_int_equal(hf_vqp_post_recv(pair.a.vqp, &wr, &bad), -EINVAL);
	assert_ptr_equal(bad, &wr);
	assert_int_equal(hf_vqp_post_recv(pair.a.vqp, &none, &bad), 0);
	pair_close(&pair);
}

static void unsignaled_wrs_make_room_and_no_completion(void **state)
{
	struct pair pair;
	struct ibv_wc wc[2];

	(void)state;
	pair_open(&pair, HF_POLICY_VARUNA);
	pair_connect(&pair);
	for (unsigned i = 0; i < 10 * PAIR_DEPTH; i++)
		while (pair_write(&pair, i, 0, 64, false) != 0)
			hf_loop_turn(pair.loop, 1000000);
	while (pair_write(&pair, 777, 0, 64, true) != 0)
		hf_loop_turn(pair.loop, 1000000);
	pair_collect(&pair, &pair.a, 1, wc);
	assert_int_equal(wc[0].wr_id, 777);
	pair_close(&pair);
}

/* All wrs have the same wr_id; what is polled for by number leaves the others where they are. */
static void a_completion_is_polled_for_by_request(void **state)
{
	uint64_t requests[4];
	struct pair pair;
	struct ibv_wc wc[4];
	int rc = 0;

	(void)state;
	pair_open(&pair, HF_POLICY_VARUNA);
	pair_connect(&pair);
	for (unsigned i = 0; i < 4; i++) {
		assert_int_equal(pair_write(&pair, 0, i * 64, 64, i != 1), 0);
		requests[i] = hf_vqp_last_request(pair.a.vqp);
	}
	while (rc == 0) {
		rc = hf_vcq_poll_request(pair.a.cq, pair.a.vqp, requests[2], wc);
		hf_loop_turn(pair.loop, 0);
	}
	assert_int_equal(rc, 1);
	assert_int_equal(wc[0].status, IBV_WC_SUCCESS);
	assert_int_equal(hf_vcq_poll_request(pair.a.cq, pair.a.vqp, requests[2], wc), -ENOENT);
	assert_int_equal(hf_vcq_poll_request(pair.a.cq, pair.a.vqp, requests[1], wc), -ENOENT); /* unsignaled */
	assert_int_equal(hf_vcq_poll_request(pair.a.cq, pair.a.vqp, requests[3] + 1, wc), -ENOENT);
	pair_collect(&pair, &pair.a, 2, wc);
	assert_int_equal(hf_vcq_poll(pair.a.cq, 4, wc), 0);
	assert_int_equal(hf_vcq_poll_vqp(pair.a.cq, pair.a.vqp, 4, wc), 0);
	pair_close(&pair);
}

static void wrs_of_the_vqp_are_posted_without_a_copy(void **state)
{
	struct pair pair;
	struct ibv_send_wr *wr, *bad;
	struct ibv_wc wc[2];

	(void)state;
	pair_open(&pair, HF_POLICY_VARUNA);
	pair_connect(&pair);
	fill(pair.a.memory, 128, 3);
	for (unsigned i = 0; i < 2; i++) {
		wr = hf_vqp_wr(pair.a.vqp);
		assert_non_null(wr);
		wr->wr_id = i;
		wr->opcode = IBV_WR_RDMA_WRITE;
		wr->send_flags = IBV_SEND_SIGNALED | (i == 1 ? IBV_SEND_INLINE : 0);
		wr->sg_list[0] = (struct ibv_sge){
			.addr = (uintptr_t)pair.a.memory + i * 64, .length = 64, .lkey = pair.a.mr->lkey};
		wr->num_sge = 1;
		wr->wr.rdma.remote_addr = (uintptr_t)pair.b.memory + i * 64;
		wr->wr.rdma.rkey = pair.b.mr->rkey;
	}
	assert_int_equal(pair_write(&pair, 7, 0, 64, true), -EBUSY);
	assert_int_equal(hf_vqp_post_wrs(pair.a.vqp, &bad), 0);
	pair_collect(&pair, &pair.a, 2, wc);
	assert_int_equal(wc[0].wr_id, 0);
	assert_int_equal(wc[1].wr_id, 1);
	assert_int_equal(wc[1].status, IBV_WC_SUCCESS);
	assert_memory_equal(pair.a.memory, pair.b.memory, 128);
	wr = hf_vqp_wr(pair.a.vqp);
	wr->num_sge = -1;
	assert_int_equal(hf_vqp_post_wrs(pair.a.vqp, &bad), -EINVAL);
	assert_ptr_equal(bad, wr);
	for (unsigned i = 0; i < PAIR_DEPTH; i++)
		assert_non_null(hf_vqp_wr(pair.a.vqp));
	assert_null(hf_vqp_wr(pair.a.vqp));
	pair_close(&pair);
}

/* An inline source, the list and the wrs may be used again as soon as the post has returned, log writes included. */
static void what_the_caller_posted_is_his_again(void **state)
{
	struct ibv_send_wr wr[2], kept[2], *bad;
	struct ibv_sge sge[2];
	uint64_t words[2] = {0x1111111111111111, 0x2222222222222222};
	struct pair pair;
	struct ibv_wc wc[2];

	(void)state;
	pair_open(&pair, HF_POLICY_VARUNA);
	pair_connect(&pair);
	memset(wr, 0, sizeof(wr));
	for (unsigned i = 0; i < 2; i++) {
		sge[i] = (struct ibv_sge){.addr = (uintptr_t)&words[i], .length = 8};
		wr[i].next = i == 0 ? &wr[1] : NULL;
		wr[i].sg_list = &sge[i];
		wr[i].num_sge = 1;
		wr[i].opcode = IBV_WR_RDMA_WRITE;
		wr[i].send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
		wr[i].wr.rdma.remote_addr = (uintptr_t)pair.b.memory + i * 8;
		wr[i].wr.rdma.rkey = pair.b.mr->rkey;
	}
	memcpy(kept, wr, sizeof(wr));
	pair_cut(&pair, 0, false); /* so that they have to wait, or are sent again */
	assert_int_equal(hf_vqp_post_send(pair.a.vqp, wr, &bad), 0);
	assert_memory_equal(wr, kept, sizeof(wr));
	memset(words, 0xff, sizeof(words));
	memset(sge, 0, sizeof(sge));
	pair_collect(&pair, &pair.a, 2, wc);
	assert_int_equal(wc[1].status, IBV_WC_SUCCESS);
	memset(words, 0x11, 8);
	memset(words + 1, 0x22, 8);
	assert_memory_equal(pair.b.memory, words, 16);
	pair_close(&pair);
}

static bool b_lost_its_peer(struct pair *pair)
{
	return pair->b.peers_down == 1;
}

static void a_peer_that_closes_takes_its_vqps_into_error(void **state)
{
	struct pair pair;

	(void)state;
	pair_open(&pair, HF_POLICY_VARUNA);
	pair_connect(&pair);
	hf_vqp_destroy(pair.a.vqp);
	hf_peer_close(pair.a.peer);
	assert_true(pair_until(&pair, b_lost_its_peer));
	assert_int_equal(hf_vqp_state(pair.b.vqp), HF_VQP_ERROR);
	pair_close(&pair);
}

static int b_sends(struct pair *pair, uint64_t wr_id, uint32_t offset, uint32_t bytes)
{
	struct ibv_sge sge = {.addr = (uintptr_t)pair->b.memory + offset, .length = bytes, .lkey = pair->b.mr->lkey};
	struct ibv_send_wr wr = {.wr_id = wr_id, .sg_list = &sge, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED}, *bad;

	wr.opcode = IBV_WR_SEND;
	return hf_vqp_post_send(pair->b.vqp, &wr, &bad);
}

/* The way back to the primary wants the last wr to complete first, and that one waits for a receive. */
static void a_failback_does_not_keep_receives_from_the_message_it_waits_for(void **state)
{
	struct pair pair;
	struct ibv_wc wc;

	(void)state;
	pair_open(&pair, HF_POLICY_RESEND);
	pair_connect(&pair);
	pair_cut(&pair, 0, false);
	assert_true(pair_until(&pair, on_rail_1));
	fill(pair.b.memory, 64, 3);
	assert_int_equal(b_sends(&pair, 5, 0, 64), 0);
	pair_cut(&pair, 0, true);
	assert_true(pair_until(&pair, on_rail_0)); /* although the message still waits */
	assert_int_equal(pair_recv(&pair.a, 6, 128, 64), 0);
	pair_collect(&pair, &pair.a, 1, &wc);
	assert_int_equal(wc.wr_id, 6);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	pair_collect(&pair, &pair.b, 1, &wc);
	assert_int_equal(wc.wr_id, 5);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_memory_equal(pair.b.memory, pair.a.memory + 128, 64);
	pair_close(&pair);
}

static bool a_is_in_error(struct pair *pair)
{
	return hf_vqp_state(pair->a.vqp) == HF_VQP_ERROR;
}

/* Each side would settle a failure in its own way, so they do not get as far as to have one. */
static void nodes_of_different_policies_refuse_each_other_and_name_both(void **state)
{
	struct pair pair;

	(void)state;
	pair_open_apart(&pair, HF_POLICY_RESEND, HF_POLICY_RESEND_CACHE);
	pair_ask(&pair);
	assert_true(pair_until(&pair, a_is_in_error));
	assert_null(pair.b.vqp);
	assert_string_equal(hf_vqp_reason(pair.a.vqp), "node b refused: its policy is 'resend-cache', that of this "
						       "node a is 'resend'; both must have the same");
	pair_close(&pair);
}

static void nodes_of_different_evidence_refuse_each_other_and_name_both(void **state)
{
	struct pair pair;

	(void)state;
	pair_open(&pair, HF_POLICY_VARUNA);
	pair.a.node->config.evidence = HF_EVIDENCE_PSN;
	pair.b.node->config.evidence = HF_EVIDENCE_LOG;
	pair_ask(&pair);
	assert_true(pair_until(&pair, a_is_in_error));
	assert_null(pair.b.vqp);
	assert_string_equal(hf_vqp_reason(pair.a.vqp), "node b refused: its policy is 'varuna by log', that of this "
						       "node a is 'varuna by psn'; both must have the same");
	pair_close(&pair);
}

/* Its place would be that of one in flight, whose copy is all that there is to send it again. */
static void what_the_request_log_cannot_hold_is_refused_before_it_is_posted(void **state)
{
	struct pair pair;
	struct ibv_wc wc[PAIR_DEPTH];

	(void)state;
	pair_open(&pair, HF_POLICY_VARUNA);
	pair_connect(&pair);
	for (unsigned i = 0; i < PAIR_DEPTH; i++)
		assert_int_equal(pair_write(&pair, i, 64 * i, 64, true), 0);
	memset(pair.a.memory + 64 * PAIR_DEPTH, 7, 64);
	assert_int_equal(pair_write(&pair, PAIR_DEPTH, 64 * PAIR_DEPTH, 64, true), -ENOMEM);
	pair_collect(&pair, &pair.a, PAIR_DEPTH, wc);
	for (unsigned i = 0; i < PAIR_DEPTH; i++)
		assert_int_equal(wc[i].wr_id, i);
	assert_int_equal(pair.b.memory[64 * PAIR_DEPTH], 0);
	assert_int_equal(pair_write(&pair, 0, 64 * PAIR_DEPTH, 64, true), 0);
	pair_collect(&pair, &pair.a, 1, wc);
	assert_int_equal(pair.b.memory[64 * PAIR_DEPTH], 7);
	pair_close(&pair);
}

static void expect_too_deep(struct pair *pair, uint32_t sends, uint32_t recvs)
{
	struct hf_vqp_init init = {.send_cq = pair->a.cq,
		.recv_cq = pair->a.cq,
		.cap = {.max_send_wr = sends, .max_recv_wr = recvs, .max_send_sge = 1, .max_recv_sge = 1}};
	struct hf_vqp *vqp;

	assert_int_equal(hf_vqp_create(pair->a.pd, &init, &vqp), -EINVAL);
	assert_null(vqp);
}

/* With the log writes, or the place for a probe, such a depth is a small number in 32 bits. */
static void queues_deeper_than_the_device_has_are_refused(void **state)
{
	const enum hf_policy policies[] = {HF_POLICY_RESEND, HF_POLICY_VARUNA};

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		struct pair pair;

		pair_open(&pair, policies[i]);
		expect_too_deep(&pair, UINT32_MAX, 1);
		expect_too_deep(&pair, 0x80000000u, 1);
		expect_too_deep(&pair, 0x80000001u, 1);
		expect_too_deep(&pair, 1, UINT32_MAX);
		pair_close(&pair);
	}
}

/* Else the first rail takes it, and the cut that sends it to the second ends the vqp. */
static void a_wr_longer_than_some_rail_takes_is_refused_on_all(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		struct pair pair;
		struct ibv_wc wc;

		pair_open(&pair, HF_POLICY_VARUNA);
		hf_node_dev(pair.a.node, i)->attr.max_msg_bytes = 4096;
		pair_connect(&pair);
		assert_int_equal(pair_write(&pair, 1, 0, 4097, true), -EINVAL);
		assert_int_equal(pair_write(&pair, 2, 0, 4096, true), 0);
		pair_cut(&pair, 0, false);
		pair_collect(&pair, &pair.a, 1, &wc);
		assert_int_equal(wc.wr_id, 2);
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		pair_close(&pair);
	}
}

/* ---- a full queue of unsignaled wrs: one that was forced to signal makes room ---- */

#define SHALLOW 4u

static struct hf_vqp *serve_shallow(
	const struct hf_vqp_request *request, void *reply, size_t *reply_bytes, void *context)
{
	struct pair *pair = context;

	(void)request, (void)reply;
	*reply_bytes = 0;
	pair_make_vqp(pair, &pair->b);
	return pair->b.vqp;
}

static bool both_are_up(struct pair *pair)
{
	return hf_vqp_state(pair->a.vqp) == HF_VQP_UP && pair->b.vqp != NULL && hf_vqp_state(pair->b.vqp) == HF_VQP_UP;
}

static bool a_has_posted_all(struct pair *pair)
{
	return pair->a.vqp->sends.next == pair->a.vqp->sends.tail;
}

static bool a_has_room(struct pair *pair)
{
	struct ibv_wc wc;

	(void)hf_vcq_poll(pair->a.cq, 1, &wc);
	return !request_log_full(&pair->a.vqp->sends);
}

static void open_shallow(struct pair *pair)
{
	struct hf_vqp_init init = {.cap = {.max_send_wr = SHALLOW, .max_send_sge = 1}};

	pair_open(pair, HF_POLICY_VARUNA);
	pair->service.on_request = serve_shallow;
	init.send_cq = init.recv_cq = pair->a.cq;
	init.access = pair->access;
	assert_int_equal(hf_peer_connect(pair->a.node, &pair->control[1][0], 1, &pair->a.peer, NULL), 0);
	assert_int_equal(hf_vqp_create(pair->a.pd, &init, &pair->a.vqp), 0);
	assert_int_equal(hf_vqp_connect(pair->a.vqp, pair->a.peer, "test", NULL, 0), 0);
	assert_true(pair_until(pair, both_are_up));
}

static void write_into(struct pair *pair, const struct hf_vmr *mr)
{
	struct ibv_sge sge = {.addr = (uintptr_t)pair->a.memory, .length = 64, .lkey = pair->a.mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.wr.rdma = {.remote_addr = (uintptr_t)mr->addr, .rkey = mr->rkey}};
	struct ibv_send_wr *bad;

	assert_int_equal(hf_vqp_post_send(pair->a.vqp, &wr, &bad), 0);
}

static void wrs_that_waited_for_their_region_make_room_too(void **state)
{
	struct pair pair;
	struct hf_vmr *mr;

	(void)state;
	open_shallow(&pair);
	write_into(&pair, pair.b.mr);
	assert_true(pair_until(&pair, a_has_posted_all));
	for (unsigned i = 1; i < SHALLOW; i++) {
		assert_int_equal(hf_vmr_reg(pair.b.pd, pair.b.memory, 4096,
					 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, &mr, NULL),
			0);
		write_into(&pair, mr);
		assert_false(a_has_posted_all(&pair));
		assert_true(pair_until(&pair, a_has_posted_all));
	}
	assert_true(pair_until(&pair, a_has_room));
	pair_close(&pair);
}

static struct hf_dev_ops full_ops;

static int post_to_full(struct hf_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr)
{
	(void)qp;
	*bad_wr = wr;
	return -ENOMEM;
}

static int post_footed_to_full(struct hf_qp *qp, const struct hf_dc_dest *dest, struct ibv_send_wr *wr,
	const struct hf_footer *footers, struct ibv_send_wr **bad_wr)
{
	(void)dest, (void)footers;
	return post_to_full(qp, wr, bad_wr);
}

static void wrs_that_the_device_had_no_room_for_make_room_too(void **state)
{
	struct pair pair;
	struct hf_dev *dev;
	const struct hf_dev_ops *ops;

	(void)state;
	open_shallow(&pair);
	write_into(&pair, pair.b.mr);
	assert_true(pair_until(&pair, a_has_posted_all));
	dev = hf_node_dev(pair.a.node, (unsigned)hf_vqp_rail(pair.a.vqp));
	ops = dev->ops;
	full_ops = *ops;
	full_ops.qp_post_send = post_to_full;
	full_ops.qp_post_send_footed = post_footed_to_full;
	for (unsigned i = 1; i < SHALLOW; i++) {
		dev->ops = &full_ops;
		write_into(&pair, pair.b.mr);
		assert_false(a_has_posted_all(&pair));
		dev->ops = ops;
		post_pump(pair.a.vqp);
		assert_true(a_has_posted_all(&pair));
	}
	assert_true(pair_until(&pair, a_has_room));
	pair_close(&pair);
}

/* It may take so many packets that it waits for all before it to retire. Its source is not all registered, which tells
 * that the device got it. */
static void a_large_wr_behind_an_unsignaled_one_leaves(void **state)
{
	struct pair pair;
	struct ibv_wc wc;

	(void)state;
	pair_open(&pair, HF_POLICY_VARUNA);
	pair_connect(&pair);
	assert_int_equal(pair_write(&pair, 1, 0, 64, false), 0);
	assert_int_equal(pair_write(&pair, 2, 0, 1u << 30, true), 0);
	pair_collect(&pair, &pair.a, 1, &wc);
	assert_int_equal(wc.wr_id, 2);
	assert_int_equal(wc.status, IBV_WC_LOC_PROT_ERR);
	pair_close(&pair);
}

static bool b_has_failed_over(struct pair *pair)
{
	struct hf_vqp_counters counters;

	hf_vqp_counters(pair->b.vqp, &counters);
	return counters.failovers > 0;
}

/* b posts nothing, so that no wr of its own tells it; a counts on it all the same. */
static void who_had_no_contact_for_a_lease_fences_the_peer(void **state)
{
	struct pair pair;
	struct ibv_wc wc;

	(void)state;
	pair_open(&pair, HF_POLICY_VARUNA);
	pair_connect(&pair);
	assert_true(pair_until(&pair, on_rail_0));
	pair.b.peer->lease.ours_ns = 1; /* it has expired */
	assert_true(pair_until(&pair, b_has_failed_over));
	pair.b.peer->lease.ours_ns = 1000000000;
	assert_int_equal(pair_write(&pair, 1, 0, 64, true), 0);
	pair_collect(&pair, &pair.a, 1, &wc);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	pair_close(&pair);
}

static void a_lease_that_does_not_fit_into_the_budget_is_refused(void **state)
{
	struct hf_node_config config = {.name = "a", .rail_count = 1, .budget_ns = 1000000000, .lease_ns = 900000000};
	struct hf_error error = {0};
	struct hf_loop *loop;
	struct hf_node *node;

	(void)state;
	assert_int_equal(hf_loop_create(hf_env_host(), &loop), 0);
	assert_int_equal(hf_node_open(loop, &config, NULL, NULL, &node, &error), -EINVAL);
	assert_non_null(strstr(error.text, "900 ms does not fit"));
	config.budget_ns = 100000000;
	config.lease_ns = 0; /* half of the budget */
	assert_int_equal(hf_node_open(loop, &config, NULL, NULL, &node, &error), -EINVAL);
	assert_non_null(strstr(error.text, "50 ms does not fit"));
	config.budget_ns = 36000000000000;
	config.lease_ns = 3600001000000;
	assert_int_equal(hf_node_open(loop, &config, NULL, NULL, &node, &error), -EINVAL);
	assert_non_null(strstr(error.text, "at most an hour"));
	hf_loop_destroy(loop);
}

/* On the rail in use, and on the one that the vqp takes when that is cut. */
static void nothing_lands_in_a_region_that_was_deregistered(void **state)
{
	static uint8_t seen[PAIR_BYTES];

	(void)state;
	for (unsigned i = 0; i < 4; i++) {
		struct hf_vmr gone;
		struct pair pair;

		pair_open(&pair, HF_POLICY_VARUNA);
		pair_connect(&pair);
		memset(pair.a.memory, 0x11, PAIR_BYTES);
		for (unsigned k = 0; k < 32; k++)
			assert_int_equal(pair_write(&pair, k, k * 16384, 16384, false), 0);
		if (i % 2 == 1)
			pair_cut(&pair, 0, false);
		pair_turn(&pair, i, 0);
		gone = *pair.b.mr;
		assert_int_equal(hf_vmr_dereg(pair.b.mr), 0);
		pair.b.mr = &gone;
		memcpy(seen, pair.b.memory, PAIR_BYTES);
		assert_int_equal(pair_write(&pair, 32, 0, 64, true), 0);
		pair.b.mr = NULL;
		assert_true(pair_until(&pair, a_is_in_error));
		assert_memory_equal(seen, pair.b.memory, PAIR_BYTES);
		pair_close(&pair);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_lands_in_a_region_that_was_deregistered),
		cmocka_unit_test(a_write_lands_and_completes_once),
		cmocka_unit_test(messages_go_into_receives_in_order),
		cmocka_unit_test(writes_outlive_a_cut_rail_and_return_to_it),
		cmocka_unit_test(writes_outlive_a_cut_rail_each_once),
		cmocka_unit_test(what_a_failover_did_is_in_the_metrics),
		cmocka_unit_test(writes_outlive_a_cut_rail_on_a_qp_made_beforehand),
		cmocka_unit_test(messages_outlive_a_cut_rail_each_once_and_in_order),
		cmocka_unit_test(a_silent_cut_is_found_by_the_error_of_a_wr),
		cmocka_unit_test(an_atomic_whose_answer_was_lost_returns_what_it_found),
		cmocka_unit_test(a_probe_of_another_qp_speaks_for_nothing_in_the_log),
		cmocka_unit_test(without_a_policy_a_cut_is_an_error),
		cmocka_unit_test(without_any_path_wrs_complete_in_error_within_the_budget),
		cmocka_unit_test(a_program_error_is_reported_and_starts_no_failover),
		cmocka_unit_test(a_receive_without_a_list_is_refused),
		cmocka_unit_test(unsignaled_wrs_make_room_and_no_completion),
		cmocka_unit_test(a_completion_is_polled_for_by_request),
		cmocka_unit_test(wrs_of_the_vqp_are_posted_without_a_copy),
		cmocka_unit_test(what_the_caller_posted_is_his_again),
		cmocka_unit_test(a_peer_that_closes_takes_its_vqps_into_error),
		cmocka_unit_test(a_failback_does_not_keep_receives_from_the_message_it_waits_for),
		cmocka_unit_test(nodes_of_different_policies_refuse_each_other_and_name_both),
		cmocka_unit_test(nodes_of_different_evidence_refuse_each_other_and_name_both),
		cmocka_unit_test(what_the_request_log_cannot_hold_is_refused_before_it_is_posted),
		cmocka_unit_test(queues_deeper_than_the_device_has_are_refused),
		cmocka_unit_test(a_wr_longer_than_some_rail_takes_is_refused_on_all),
		cmocka_unit_test(wrs_that_waited_for_their_region_make_room_too),
		cmocka_unit_test(wrs_that_the_device_had_no_room_for_make_room_too),
		cmocka_unit_test(a_large_wr_behind_an_unsignaled_one_leaves),
		cmocka_unit_test(who_had_no_contact_for_a_lease_fences_the_peer),
		cmocka_unit_test(a_lease_that_does_not_fit_into_the_budget_is_refused),
		cmocka_unit_test(a_write_that_completed_as_flushed_does_not_land_later),
	};

	if (argc > 1)
		pair_kind = argv[1];
	return cmocka_run_group_tests(tests, NULL, NULL);
}
