#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>

#include "dev/qp_rules.h"

#define STATES (IBV_QPS_ERR + 1)

#define INIT_MASK (IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)
#define RTR_MASK                                                                                                       \
	(IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |                   \
		IBV_QP_MIN_RNR_TIMER)
#define RTS_MASK (IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC)

static const struct ibv_qp_attr good = {.port_num = 1, .path_mtu = IBV_MTU_1024};

static int check(enum ibv_qp_state from, enum ibv_qp_state to, int mask)
{
	struct ibv_qp_attr attr = good;

	attr.qp_state = to;
	return qp_rules_check(IBV_QPT_RC, from, &attr, mask | IBV_QP_STATE);
}

static int mask_to(enum ibv_qp_state to)
{
	if (to == IBV_QPS_INIT)
		return INIT_MASK;
	if (to == IBV_QPS_RTR)
		return RTR_MASK;
	return to == IBV_QPS_RTS ? RTS_MASK : 0;
}

static bool allowed(enum ibv_qp_state from, enum ibv_qp_state to)
{
	if (to == IBV_QPS_RESET || to == IBV_QPS_ERR)
		return true;
	return (from == IBV_QPS_RESET && to == IBV_QPS_INIT) || (from == IBV_QPS_INIT && to == IBV_QPS_INIT) ||
	       (from == IBV_QPS_INIT && to == IBV_QPS_RTR) || (from == IBV_QPS_RTR && to == IBV_QPS_RTS);
}

static void every_pair_of_states_is_allowed_or_refused_as_the_specification_says(void **state)
{
	(void)state;
	for (enum ibv_qp_state from = IBV_QPS_RESET; from < STATES; from++)
		for (enum ibv_qp_state to = IBV_QPS_RESET; to < STATES; to++)
			assert_int_equal(check(from, to, mask_to(to)), allowed(from, to) ? 0 : -EINVAL);
}

static void a_move_lacks_no_attribute(void **state)
{
	static const struct {
		enum ibv_qp_state from, to;
	} moves[] = {{IBV_QPS_RESET, IBV_QPS_INIT}, {IBV_QPS_INIT, IBV_QPS_RTR}, {IBV_QPS_RTR, IBV_QPS_RTS}};

	(void)state;
	for (unsigned i = 0; i < sizeof(moves) / sizeof(moves[0]); i++) {
		int mask = mask_to(moves[i].to);

		for (int bit = 1; bit <= IBV_QP_DEST_QPN; bit <<= 1)
			if (mask & bit)
				assert_int_equal(check(moves[i].from, moves[i].to, mask & ~bit), -EINVAL);
	}
}

static void a_move_takes_no_attribute_of_another(void **state)
{
	(void)state;
	assert_int_equal(check(IBV_QPS_RESET, IBV_QPS_INIT, INIT_MASK | IBV_QP_SQ_PSN), -EINVAL);
	assert_int_equal(check(IBV_QPS_INIT, IBV_QPS_RTR, RTR_MASK | IBV_QP_TIMEOUT), -EINVAL);
	assert_int_equal(check(IBV_QPS_RTR, IBV_QPS_RTS, RTS_MASK | IBV_QP_DEST_QPN), -EINVAL);
	assert_int_equal(check(IBV_QPS_RTS, IBV_QPS_ERR, IBV_QP_ACCESS_FLAGS), -EINVAL);
	assert_int_equal(check(IBV_QPS_RTR, IBV_QPS_RTS, RTS_MASK | IBV_QP_ACCESS_FLAGS), 0);
}

static void access_changes_in_rts_and_init_but_not_in_reset_or_error(void **state)
{
	(void)state;
	assert_int_equal(qp_rules_check(IBV_QPT_RC, IBV_QPS_RTS, &good, IBV_QP_ACCESS_FLAGS), 0);
	assert_int_equal(qp_rules_check(IBV_QPT_RC, IBV_QPS_INIT, &good, IBV_QP_ACCESS_FLAGS), 0);
	assert_int_equal(qp_rules_check(IBV_QPT_RC, IBV_QPS_RESET, &good, IBV_QP_ACCESS_FLAGS), -EINVAL);
	assert_int_equal(qp_rules_check(IBV_QPT_RC, IBV_QPS_ERR, &good, IBV_QP_ACCESS_FLAGS), -EINVAL);
}

static void the_current_state_can_be_asserted(void **state)
{
	struct ibv_qp_attr attr = good;

	(void)state;
	attr.qp_state = IBV_QPS_RTS;
	attr.cur_qp_state = IBV_QPS_RTR;
	assert_int_equal(qp_rules_check(IBV_QPT_RC, IBV_QPS_RTR, &attr, RTS_MASK | IBV_QP_STATE | IBV_QP_CUR_STATE), 0);
	attr.cur_qp_state = IBV_QPS_INIT;
	assert_int_equal(
		qp_rules_check(IBV_QPT_RC, IBV_QPS_RTR, &attr, RTS_MASK | IBV_QP_STATE | IBV_QP_CUR_STATE), -EINVAL);
}

static int check_values(struct ibv_qp_attr attr, enum ibv_qp_state from, enum ibv_qp_state to)
{
	attr.qp_state = to;
	attr.port_num = attr.port_num == 0 ? 1 : attr.port_num;
	attr.path_mtu = attr.path_mtu == 0 ? IBV_MTU_1024 : attr.path_mtu;
	return qp_rules_check(IBV_QPT_RC, from, &attr, mask_to(to) | IBV_QP_STATE);
}

static void values_out_of_range_are_refused(void **state)
{
	const struct ibv_qp_attr init[] = {{.port_num = 2}, {.pkey_index = 1}};
	const struct ibv_qp_attr rtr[] = {
		{.path_mtu = IBV_MTU_4096 + 1}, {.rq_psn = 1u << 24}, {.dest_qp_num = 1u << 24}, {.min_rnr_timer = 32}};
	const struct ibv_qp_attr rts[] = {{.timeout = 32}, {.retry_cnt = 8}, {.rnr_retry = 8}, {.sq_psn = 1u << 24}};

	(void)state;
	for (unsigned i = 0; i < sizeof(init) / sizeof(init[0]); i++)
		assert_int_equal(check_values(init[i], IBV_QPS_RESET, IBV_QPS_INIT), -EINVAL);
	for (unsigned i = 0; i < sizeof(rtr) / sizeof(rtr[0]); i++)
		assert_int_equal(check_values(rtr[i], IBV_QPS_INIT, IBV_QPS_RTR), -EINVAL);
	for (unsigned i = 0; i < sizeof(rts) / sizeof(rts[0]); i++)
		assert_int_equal(check_values(rts[i], IBV_QPS_RTR, IBV_QPS_RTS), -EINVAL);
	assert_int_equal(
		check_values((struct ibv_qp_attr){.timeout = 31, .retry_cnt = 7, .rnr_retry = 7, .sq_psn = 0xffffff},
			IBV_QPS_RTR, IBV_QPS_RTS),
		0);
}

static void a_dc_qp_needs_no_peer(void **state)
{
	struct ibv_qp_attr attr = good;

	(void)state;
	attr.qp_state = IBV_QPS_INIT;
	assert_int_equal(qp_rules_check(IBV_QPT_DRIVER, IBV_QPS_RESET, &attr, IBV_QP_STATE | IBV_QP_PORT), 0);
	attr.qp_state = IBV_QPS_RTR;
	assert_int_equal(qp_rules_check(IBV_QPT_DRIVER, IBV_QPS_INIT, &attr, IBV_QP_STATE | IBV_QP_PATH_MTU), 0);
	assert_int_equal(qp_rules_check(IBV_QPT_RC, IBV_QPS_INIT, &attr, IBV_QP_STATE | IBV_QP_PATH_MTU), -EINVAL);
	assert_int_equal(
		qp_rules_check(IBV_QPT_DRIVER, IBV_QPS_INIT, &attr, IBV_QP_STATE | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN),
		-EINVAL);
}

/* ---- work requests ---- */

static int check_send(enum ibv_wr_opcode opcode, int num_sge, uint32_t bytes, unsigned flags)
{
	struct hf_dev dev = {.attr.max_msg_bytes = 1u << 30};
	struct hf_qp qp = {.dev = &dev, .cap = {.max_send_sge = 3, .max_inline_data = 64}};
	struct ibv_sge sge[4] = {{.length = bytes}, {.length = bytes}, {.length = bytes}, {.length = bytes}};
	struct ibv_send_wr wr = {.opcode = opcode, .num_sge = num_sge, .sg_list = sge, .send_flags = flags};

	return qp_rules_check_send(&qp, &wr);
}

static void wrs_keep_to_the_limits_of_their_qp(void **state)
{
	(void)state;
	assert_int_equal(check_send(IBV_WR_RDMA_WRITE, 3, 8, 0), 0);
	assert_int_equal(check_send(IBV_WR_RDMA_WRITE, 4, 8, 0), -EINVAL);
	assert_int_equal(check_send(IBV_WR_RDMA_WRITE, -1, 8, 0), -EINVAL);
	assert_int_equal(check_send(IBV_WR_SEND, 0, 0, 0), 0);
	assert_int_equal(check_send(IBV_WR_SEND, 2, 1u << 29, 0), 0);
	assert_int_equal(check_send(IBV_WR_SEND, 3, 1u << 29, 0), -EINVAL);
	assert_int_equal(check_send(IBV_WR_SEND_WITH_IMM, 2, 32, IBV_SEND_INLINE), 0);
	assert_int_equal(check_send(IBV_WR_SEND_WITH_IMM, 2, 33, IBV_SEND_INLINE), -EINVAL);
	assert_int_equal(check_send(IBV_WR_RDMA_READ, 1, 8, IBV_SEND_INLINE), -EINVAL);
	assert_int_equal(check_send(IBV_WR_ATOMIC_FETCH_AND_ADD, 1, 8, 0), 0);
	assert_int_equal(check_send(IBV_WR_ATOMIC_FETCH_AND_ADD, 2, 8, 0), -EINVAL);
	assert_int_equal(check_send(IBV_WR_ATOMIC_CMP_AND_SWP, 1, 4, 0), -EINVAL);
	assert_int_equal(check_send(IBV_WR_LOCAL_INV, 0, 0, 0), -EINVAL);
}

static void a_wr_takes_a_psn_for_each_packet(void **state)
{
	(void)state;
	assert_int_equal(qp_rules_psns(IBV_WR_RDMA_WRITE, 0, 1024), 1);
	assert_int_equal(qp_rules_psns(IBV_WR_RDMA_WRITE, 1, 1024), 1);
	assert_int_equal(qp_rules_psns(IBV_WR_RDMA_WRITE, 1024, 1024), 1);
	assert_int_equal(qp_rules_psns(IBV_WR_SEND, 1025, 1024), 2);
	assert_int_equal(qp_rules_psns(IBV_WR_RDMA_READ, 64u << 20, 4096), 16384);
	assert_int_equal(qp_rules_psns(IBV_WR_ATOMIC_CMP_AND_SWP, 8, 256), 1);
}

static void psn_distances_have_a_sign_across_the_wrap(void **state)
{
	(void)state;
	assert_int_equal(psn_diff(5, 3), 2);
	assert_int_equal(psn_diff(3, 5), -2);
	assert_int_equal(psn_diff(1, 0xffffff), 2);
	assert_int_equal(psn_diff(0xffffff, 1), -2);
	assert_int_equal(psn_diff(0x7fffff, 0), 0x7fffff);
	assert_int_equal(psn_add(0xffffff, 1), 0);
	assert_int_equal(psn_add(0xfffff0, 0x20), 0x10);
}

/* ---- what dev.c checks for every device ---- */

static void an_unknown_kind_is_refused_with_those_there_are(void **state)
{
	struct hf_dev_config config = {.kind = "telegraph", .node = "a", .rail = "r0"};
	struct hf_error error = {0};
	struct hf_dev *dev;

	(void)state;
	assert_int_equal(hf_dev_open(hf_env_host(), &config, &dev, &error), -ENODEV);
	assert_null(dev);
	assert_string_equal(error.text, "unknown device \"telegraph\": use one of shm, soft, verbs");
	config.kind = NULL;
	assert_int_equal(hf_dev_open(hf_env_host(), &config, &dev, &error), -ENODEV);
}

static void names_that_could_leave_their_directory_are_refused(void **state)
{
	static const char *const names[] = {
		"", "..", "a/b", ".a", "A", "a b", "a\n", "a-name-of-more-than-thirty-one-characters"};
	struct hf_error error;
	struct hf_dev *dev;

	(void)state;
	for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		struct hf_dev_config config = {.kind = "shm", .fabric = names[i], .node = "a", .rail = "r0"};

		assert_int_equal(hf_dev_open(hf_env_host(), &config, &dev, &error), -EINVAL);
		config = (struct hf_dev_config){.kind = "soft", .node = names[i], .rail = "r0"};
		assert_int_equal(hf_dev_open(hf_env_host(), &config, &dev, &error), -EINVAL);
		config = (struct hf_dev_config){.kind = "soft", .node = "a", .rail = names[i]};
		assert_int_equal(hf_dev_open(hf_env_host(), &config, &dev, &error), -EINVAL);
	}
}

static void the_kinds_say_what_they_are(void **state)
{
	const struct hf_dev_kind *kinds = hf_dev_kinds();
	unsigned n = 0;

	(void)state;
	for (; kinds[n].name != NULL; n++)
		assert_int_not_equal(kinds[n].what[0], 0);
	assert_int_equal(n, 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_pair_of_states_is_allowed_or_refused_as_the_specification_says),
		cmocka_unit_test(a_move_lacks_no_attribute),
		cmocka_unit_test(a_move_takes_no_attribute_of_another),
		cmocka_unit_test(access_changes_in_rts_and_init_but_not_in_reset_or_error),
		cmocka_unit_test(the_current_state_can_be_asserted),
		cmocka_unit_test(values_out_of_range_are_refused),
		cmocka_unit_test(a_dc_qp_needs_no_peer),
		cmocka_unit_test(wrs_keep_to_the_limits_of_their_qp),
		cmocka_unit_test(a_wr_takes_a_psn_for_each_packet),
		cmocka_unit_test(psn_distances_have_a_sign_across_the_wrap),
		cmocka_unit_test(an_unknown_kind_is_refused_with_those_there_are),
		cmocka_unit_test(names_that_could_leave_their_directory_are_refused),
		cmocka_unit_test(the_kinds_say_what_they_are),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
