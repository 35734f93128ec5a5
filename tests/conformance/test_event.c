/* D8, and how a sleeping program is woken: port events, qp and cq events, completion notification. */
#include "pair.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <holdfast/fabric.h>

#define WAKE_NS (30000 * MS) /* a wake-up that takes so long has failed */

static struct side_event next_event(struct pair *pair, struct side *side)
{
	uint64_t end_ns = pair_now_ns(pair) + WAKE_NS;
	struct side_event event;

	while (side_get_event(side, &event) == 0) {
		if (pair_now_ns(pair) > end_ns)
			fail_msg("no event came");
		turn(pair);
	}
	return event;
}

static void expect_no_event(struct pair *pair, struct side *side)
{
	struct side_event event;

	turns_for(pair, 2 * MS);
	assert_int_equal(side_get_event(side, &event), 0);
}

static void a_port_that_goes_down_and_up_says_so(void **state)
{
	struct pair *pair = connected(state);

	assert_int_equal(side_port_state(pair->a), IBV_PORT_ACTIVE);
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(side_set_link(pair->a, HF_LINK_BOTH, false), 0);
		assert_int_equal(next_event(pair, pair->a).type, IBV_EVENT_PORT_ERR);
		assert_int_equal(side_port_state(pair->a), IBV_PORT_DOWN);
		assert_int_equal(side_set_link(pair->a, HF_LINK_BOTH, true), 0);
		assert_int_equal(next_event(pair, pair->a).type, IBV_EVENT_PORT_ACTIVE);
		assert_int_equal(side_port_state(pair->a), IBV_PORT_ACTIVE);
	}
	expect_no_event(pair, pair->a);
}

static void a_cut_of_one_direction_is_silent(void **state)
{
	struct pair *pair = connected(state);

	assert_int_equal(side_set_link(pair->a, HF_LINK_TX, false), 0);
	expect_no_event(pair, pair->a);
	assert_int_equal(side_port_state(pair->a), IBV_PORT_ACTIVE);
	assert_int_equal(side_set_link(pair->a, HF_LINK_TX, true), 0);
	assert_int_equal(side_set_link(pair->a, HF_LINK_RX, false), 0);
	expect_no_event(pair, pair->a);
	assert_int_equal(side_port_state(pair->a), IBV_PORT_ACTIVE);
}

static void a_port_that_is_down_fails_nothing_by_itself(void **state)
{
	struct pair *pair = connected(state);
	struct wr wr;

	assert_int_equal(side_set_link(pair->a, HF_LINK_BOTH, false), 0);
	assert_int_equal(next_event(pair, pair->a).type, IBV_EVENT_PORT_ERR);
	expect_no_wc(pair, pair->a, SEND_CQ);
	assert_int_equal(qp_state(pair->a, 0), IBV_QPS_RTS);
	assert_int_equal(side_set_link(pair->a, HF_LINK_BOTH, true), 0);
	post(pair->a, 0, wr_write(&wr, pair->a, pair->b, 0, 0, 8), 1);
	expect_wc(pair, pair->a, SEND_CQ, 1, IBV_WC_SUCCESS);
}

/* From outside, as an operator does, while the program sleeps. */
static void a_link_switched_through_the_fabric_wakes_its_port(void **state)
{
	struct pair *pair = pair_of(state);
	struct hf_fabric *fabric;
	struct hf_error error;

	if (pair->bed->world_open != NULL)
		skip_because("this world has no fabric");
	if (pair->bed->two_hosts)
		skip_because("a fabric is of one host");
	assert_int_equal(hf_fabric_open(bed_fabric(), false, &fabric, &error), 0);
	while (!side_arm(pair->b))
		side_poll(pair->b);
	assert_false(side_io_readable(pair->b, 0));
	assert_int_equal(hf_fabric_set_link(fabric, "b", "r0", HF_LINK_BOTH, false, &error), 0);
	assert_true(side_io_readable(pair->b, WAKE_NS));
	assert_int_equal(next_event(pair, pair->b).type, IBV_EVENT_PORT_ERR);
	assert_int_equal(hf_fabric_set_link(fabric, "b", "r0", HF_LINK_BOTH, true, &error), 0);
	assert_int_equal(next_event(pair, pair->b).type, IBV_EVENT_PORT_ACTIVE);
	assert_int_equal(hf_fabric_set_link(fabric, "nobody", "r0", HF_LINK_BOTH, false, &error), -ENOENT);
	assert_int_not_equal(error.text[0], 0);
	hf_fabric_close(fabric);
}

/* b sleeps until the receive that it has posted completes. */
static void sleep_until_received(struct pair *pair, uint64_t number)
{
	struct recv recv;
	struct wr wr;

	post_receive(pair->b, 0, recv_into(&recv, pair->b, 0, 64), number);
	assert_int_equal(side_req_notify(pair->b, RECV_CQ, false), 0);
	while (!side_arm(pair->b))
		side_poll(pair->b);
	assert_false(side_io_readable(pair->b, 0));
	assert_false(side_notified(pair->b, RECV_CQ));
	post(pair->a, 0, wr_send(&wr, pair->a, 0, 64), number);
	assert_true(side_io_readable(pair->b, WAKE_NS));
	expect_wc(pair, pair->b, RECV_CQ, number, IBV_WC_SUCCESS);
	expect_wc(pair, pair->a, SEND_CQ, number, IBV_WC_SUCCESS);
}

static void a_notified_completion_wakes_a_sleeper(void **state)
{
	struct pair *pair = connected(state);

	for (unsigned i = 0; i < 3; i++) {
		sleep_until_received(pair, i);
		assert_true(side_notified(pair->b, RECV_CQ));
		assert_false(side_notified(pair->b, RECV_CQ));
	}
}

/* The program works on, awake: an io that stays readable would keep its loop busy, and it would never sleep again. */
static void an_io_is_quiet_once_its_wake_up_was_seen_to(void **state)
{
	struct pair *pair = connected(state);

	for (unsigned i = 0; i < 3; i++) {
		sleep_until_received(pair, i);
		assert_true(side_notified(pair->b, RECV_CQ));
		turns_for(pair, 2 * MS);
		assert_false(side_io_readable(pair->b, 0));
	}
}

static void a_requester_that_sleeps_is_woken_by_its_own_completion(void **state)
{
	struct pair *pair = connected(state);
	uint64_t end_ns = pair_now_ns(pair) + WAKE_NS;
	struct wr wr;

	assert_int_equal(side_req_notify(pair->a, SEND_CQ, false), 0);
	post(pair->a, 0, wr_write(&wr, pair->a, pair->b, 0, 0, 64), 1);
	while (!side_notified(pair->a, SEND_CQ) && pair_now_ns(pair) < end_ns) {
		if (side_arm(pair->a))
			side_io_readable(pair->a, 100 * MS);
		side_poll(pair->a);
		side_poll(pair->b);
	}
	expect_wc(pair, pair->a, SEND_CQ, 1, IBV_WC_SUCCESS);
	assert_in_range(pair_now_ns(pair), 0, end_ns);
}

/* Sleeps whenever it may, until a completion comes; how often it slept. */
static unsigned sleep_until_wc(struct pair *pair, struct side *side, struct ibv_wc *wc)
{
	unsigned sleeps = 0;

	while (side_cq_poll(side, SEND_CQ, 1, wc) == 0) {
		if (side_arm(side)) {
			sleeps++;
			assert_true(side_io_readable(side, WAKE_NS));
		}
		turn(pair);
	}
	return sleeps;
}

static void a_requester_that_sleeps_is_woken_when_its_retries_are_spent(void **state)
{
	struct pair *pair = connected_with(state, (struct link_options){.timeout = 12, .retry_cnt = 1});
	struct ibv_wc wc;
	struct wr wr;

	assert_int_equal(side_set_link(pair->b, HF_LINK_RX, false), 0);
	assert_int_equal(side_req_notify(pair->a, SEND_CQ, false), 0);
	post(pair->a, 0, wr_write(&wr, pair->a, pair->b, 0, 0, 64), 1);
	assert_int_not_equal(sleep_until_wc(pair, pair->a, &wc), 0);
	assert_int_equal(wc.status, IBV_WC_RETRY_EXC_ERR);
}

static void a_requester_sleeps_while_its_peer_has_no_receive(void **state)
{
	struct pair *pair = connected_with(state, (struct link_options){.min_rnr_timer = 16}); /* 2.56 ms */
	struct recv recv;
	struct ibv_wc wc;
	struct wr wr;

	assert_int_equal(side_req_notify(pair->a, SEND_CQ, false), 0);
	post(pair->a, 0, wr_send(&wr, pair->a, 0, 64), 1);
	for (unsigned sleeps = 0; sleeps < 2; turn(pair))
		if (side_arm(pair->a)) {
			sleeps++;
			side_io_readable(pair->a, 5 * MS);
		}
	assert_int_equal(side_cq_poll(pair->a, SEND_CQ, 1, &wc), 0);
	post_receive(pair->b, 0, recv_into(&recv, pair->b, 0, 64), 2);
	sleep_until_wc(pair, pair->a, &wc);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
}

/* As when one thread posts and another sleeps. */
static void what_waits_for_a_receive_wakes_who_slept_before_it_was_posted(void **state)
{
	struct pair *pair = connected(state);
	struct recv recv;
	struct ibv_wc wc;
	struct wr wr;

	assert_int_equal(side_req_notify(pair->a, SEND_CQ, false), 0);
	while (!side_arm(pair->a))
		side_poll(pair->a);
	post(pair->a, 0, wr_send(&wr, pair->a, 0, 64), 1);
	post_receive(pair->b, 0, recv_into(&recv, pair->b, 0, 64), 2);
	assert_true(side_io_readable(pair->a, WAKE_NS));
	sleep_until_wc(pair, pair->a, &wc);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
}

static void notification_of_solicited_completions_ignores_the_others(void **state)
{
	struct pair *pair = connected(state);
	struct recv recv;
	struct wr wr;

	post_receive(pair->b, 0, recv_into(&recv, pair->b, 0, 64), 1);
	post_receive(pair->b, 0, recv_into(&recv, pair->b, 0, 64), 2);
	assert_int_equal(side_req_notify(pair->b, RECV_CQ, true), 0);
	post(pair->a, 0, wr_send(&wr, pair->a, 0, 64), 1);
	expect_wc(pair, pair->a, SEND_CQ, 1, IBV_WC_SUCCESS);
	expect_wc(pair, pair->b, RECV_CQ, 1, IBV_WC_SUCCESS);
	assert_false(side_notified(pair->b, RECV_CQ));
	wr_send(&wr, pair->a, 0, 64)->wr.send_flags = IBV_SEND_SOLICITED;
	post(pair->a, 0, &wr, 2);
	expect_wc(pair, pair->b, RECV_CQ, 2, IBV_WC_SUCCESS);
	assert_true(side_notified(pair->b, RECV_CQ));
}

static void a_cq_without_a_request_does_not_notify(void **state)
{
	struct pair *pair = connected(state);
	struct wr wr;

	post(pair->a, 0, wr_write(&wr, pair->a, pair->b, 0, 0, 64), 1);
	expect_wc(pair, pair->a, SEND_CQ, 1, IBV_WC_SUCCESS);
	assert_false(side_notified(pair->a, SEND_CQ));
}

static void a_shared_receive_queue_says_when_a_failed_qp_took_its_last(void **state)
{
	struct pair *pair = pair_of(state);
	struct side_event event;

	require_cap(pair, HF_DEV_SRQ, "the device has no shared receive queues");
	assert_int_equal(side_srq_create(pair->a, 0, 0, 16), 0);
	assert_int_equal(side_srq_create(pair->b, 0, 0, 16), 0);
	pair_connect(pair, 0, (struct link_options){.srq_plus1 = 1});
	assert_int_equal(qp_to(pair->b, 0, IBV_QPS_ERR), 0);
	event = next_event(pair, pair->b);
	assert_int_equal(event.type, IBV_EVENT_QP_LAST_WQE_REACHED);
	assert_int_equal(event.qp, 0);
}

static void a_completion_queue_that_overflows_says_so(void **state)
{
	struct pair *pair = connected(state);
	struct side_event event;
	struct recv recv;
	struct wr wr;

	assert_int_equal(side_cq_create(pair->b, 2, 4), 0);
	assert_int_equal(
		side_qp_create(pair->b, 1,
			&(struct side_qp){.send_cq = 2, .recv_cq = 2, .srq = ACTOR_NONE, .cap = {16, 64, 1, 1}}),
		0);
	assert_int_equal(side_qp_create(pair->a, 1,
				 &(struct side_qp){.recv_cq = RECV_CQ, .srq = ACTOR_NONE, .cap = {64, 16, 1, 1}}),
		0);
	pair_connect_qp(pair, 1, impatient);
	for (unsigned i = 0; i < 60; i++)
		post_receive(pair->b, 1, recv_into(&recv, pair->b, 0, 8), i);
	for (unsigned i = 0; i < 60; i++)
		post_quiet(pair->a, 1, wr_send(&wr, pair->a, 0, 8), i);
	event = next_event(pair, pair->b);
	assert_int_equal(event.type, IBV_EVENT_CQ_ERR);
	assert_int_equal(event.cq, 2);
}

static void events_of_a_destroyed_object_go_with_it(void **state)
{
	struct pair *pair = pair_of(state);

	require_cap(pair, HF_DEV_SRQ, "the device has no shared receive queues");
	assert_int_equal(side_srq_create(pair->a, 0, 0, 16), 0);
	assert_int_equal(side_srq_create(pair->b, 0, 0, 16), 0);
	pair_connect(pair, 0, (struct link_options){.srq_plus1 = 1});
	assert_int_equal(qp_to(pair->b, 0, IBV_QPS_ERR), 0);
	turns_for(pair, MS);
	assert_int_equal(side_qp_destroy(pair->b, 0), 0);
	expect_no_event(pair, pair->b);
}

/* ---- opening ---- */

static int open_third(struct pair *pair, const char *kind, const char *node, unsigned address, char *words)
{
	struct side *c = side_local(pair->env, NULL, NULL);
	struct actor_config config = {.rail = "r0"};
	int rc;

	snprintf(config.kind, sizeof(config.kind), "%s", kind);
	snprintf(config.node, sizeof(config.node), "%s", node);
	snprintf(config.fabric, sizeof(config.fabric), "%s", bed_fabric());
	snprintf(config.address, sizeof(config.address), "%s", bed_address(pair->bed, address));
	rc = side_open(c, &config);
	snprintf(words, HF_ERROR_BYTES, "%s", c->error.text);
	side_free(c);
	return rc;
}

static void what_cannot_be_opened_is_refused_with_words(void **state)
{
	struct pair *pair = pair_of(state);
	char words[HF_ERROR_BYTES];

	if (pair->bed->world_open != NULL)
		skip_because("this world has no fabric");
	if (pair->bed->kind_b != NULL)
		skip_because("b's NIC is in another network");
	assert_int_equal(open_third(pair, "telegraph", "c", BED_THIRD, words), -ENODEV);
	assert_non_null(strstr(words, "shm"));
	assert_non_null(strstr(words, "soft"));
	assert_int_equal(open_third(pair, pair->bed->kind, "b", BED_B, words), -EADDRINUSE);
	assert_int_not_equal(words[0], 0);
	assert_int_equal(open_third(pair, pair->bed->kind, "../b", BED_B, words), -EINVAL);
	assert_int_not_equal(words[0], 0);
}

static void a_port_can_be_opened_again_after_it_was_closed(void **state)
{
	struct pair *pair = pair_of(state);
	struct actor_config config = {.node = "b", .rail = "r0"};

	side_close(pair->b);
	snprintf(config.kind, sizeof(config.kind), "%s", bed_kind(pair->bed, BED_B));
	snprintf(config.fabric, sizeof(config.fabric), "%s", pair->bed->world_open == NULL ? bed_fabric() : "");
	snprintf(config.address, sizeof(config.address), "%s", bed_address(pair->bed, BED_B));
	assert_int_equal(side_open(pair->b, &config), 0);
}

const struct CMUnitTest event_tests[] = {
	CONFORMS(a_port_that_goes_down_and_up_says_so),
	CONFORMS(a_cut_of_one_direction_is_silent),
	CONFORMS(a_port_that_is_down_fails_nothing_by_itself),
	CONFORMS(a_link_switched_through_the_fabric_wakes_its_port),
	CONFORMS(a_notified_completion_wakes_a_sleeper),
	CONFORMS(an_io_is_quiet_once_its_wake_up_was_seen_to),
	CONFORMS(a_requester_that_sleeps_is_woken_by_its_own_completion),
	CONFORMS(a_requester_that_sleeps_is_woken_when_its_retries_are_spent),
	CONFORMS(a_requester_sleeps_while_its_peer_has_no_receive),
	CONFORMS(what_waits_for_a_receive_wakes_who_slept_before_it_was_posted),
	CONFORMS(notification_of_solicited_completions_ignores_the_others),
	CONFORMS(a_cq_without_a_request_does_not_notify),
	CONFORMS(a_shared_receive_queue_says_when_a_failed_qp_took_its_last),
	CONFORMS(a_completion_queue_that_overflows_says_so),
	CONFORMS(events_of_a_destroyed_object_go_with_it),
	CONFORMS(what_cannot_be_opened_is_refused_with_words),
	CONFORMS(a_port_can_be_opened_again_after_it_was_closed),
};
const size_t event_tests_count = sizeof(event_tests) / sizeof(event_tests[0]);
