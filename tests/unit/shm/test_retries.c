/* What a qp waits for, and for how long: by a clock that the test turns. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>
#include <cmocka.h>

#include <holdfast/dev.h>
#include <holdfast/fabric.h>

#include "env/world.h"
#include "shm/end.h"

#define MS 1000000ull
/* Of end_connect: a message that finds no receive is sent again after 655 ms, and 537 ms without an answer are all. */
#define RNR_MS    656u
#define BUDGET_MS 537u

static char fabric[HF_NAME_BYTES];
static uint64_t clock_ns;
static struct world_ops ops;
static struct hf_env turned = {.ops = &ops};
static struct end a, b;

static uint64_t turned_now_ns(struct hf_env *env)
{
	(void)env;
	return clock_ns;
}

static int setup(void **state)
{
	(void)state;
	ops = *hf_env_host()->ops;
	ops.now_ns = turned_now_ns;
	clock_ns = hf_env_now_ns(hf_env_host());
	end_open(&a, &turned, fabric, "a", false);
	end_open(&b, &turned, fabric, "b", false);
	end_connect(&a, &b);
	end_connect(&b, &a);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	end_close(&a);
	end_close(&b);
	return 0;
}

/* IBV_WC_SUCCESS, or why the message failed; -1: it is under way. */
static int status_after(unsigned ms)
{
	struct ibv_wc wc;

	for (unsigned i = 0; i < ms; i++) {
		clock_ns += MS;
		if (hf_cq_poll(a.cq, 1, &wc) == 1)
			return (int)wc.status;
	}
	return -1;
}

static void send_without_a_receive(void)
{
	struct ibv_send_wr wr = {.opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED}, *bad;

	assert_int_equal(hf_qp_post_send(a.qp, &wr, &bad), 0);
}

static void post_receive(void)
{
	struct ibv_recv_wr wr = {0}, *bad;

	assert_int_equal(hf_qp_post_recv(b.qp, &wr, &bad), 0);
}

static void set_link(bool up)
{
	assert_int_equal(hf_dev_set_link(b.dev, HF_LINK_BOTH, up), 0);
}

/* The time without an answer begins when there is none, and not when the message was last sent. */
static void a_short_cut_does_not_fail_a_message_that_waits_for_its_receive(void **state)
{
	(void)state;
	send_without_a_receive();
	assert_int_equal(status_after(BUDGET_MS + RNR_MS), -1);
	for (unsigned cut = 0; cut < 3; cut++) {
		set_link(false);
		assert_int_equal(status_after(BUDGET_MS / 2), -1);
		set_link(true);
		assert_int_equal(status_after(RNR_MS - 10), -1);
	}
	post_receive();
	assert_int_equal(status_after(RNR_MS), IBV_WC_SUCCESS);
}

static void a_long_cut_fails_a_message_that_waits_for_its_receive(void **state)
{
	(void)state;
	send_without_a_receive();
	assert_int_equal(status_after(RNR_MS - 10), -1);
	set_link(false);
	assert_int_equal(status_after(BUDGET_MS - 10), -1);
	assert_int_equal(status_after(20), IBV_WC_RETRY_EXC_ERR);
	set_link(true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			a_short_cut_does_not_fail_a_message_that_waits_for_its_receive, setup, teardown),
		cmocka_unit_test_setup_teardown(a_long_cut_fails_a_message_that_waits_for_its_receive, setup, teardown),
	};
	int failed;

	snprintf(fabric, sizeof(fabric), "retries-%d", (int)getpid());
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	hf_fabric_remove(fabric);
	return failed;
}
