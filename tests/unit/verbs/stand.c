#include "stand.h"

#include <dlfcn.h>

const char *stand_library;
struct fake *fake;
struct verbs_lib lib;
struct hf_error words;
uint64_t time_ns;

struct world_ops ops;
struct hf_env env = {.ops = &ops};

static uint64_t now_ns(struct hf_env *asked)
{
	(void)asked;
	return time_ns;
}

struct fake_port ethernet(const char *address)
{
	return (struct fake_port){.state = IBV_PORT_ACTIVE,
		.mtu = IBV_MTU_4096,
		.link_layer = IBV_LINK_LAYER_ETHERNET,
		.max_msg_bytes = 1u << 31,
		.gids = {{.address = "fe80::1", .type = IBV_GID_TYPE_ROCE_V1},
			{.address = "fe80::1", .type = IBV_GID_TYPE_ROCE_V2},
			{.address = address, .type = IBV_GID_TYPE_ROCE_V1},
			{.address = address, .type = IBV_GID_TYPE_ROCE_V2}}};
}

int stand_set_up(void **state)
{
	struct hf_error error = {0};

	(void)state;
	if (verbs_lib_load_from(stand_library, &lib, &error) != 0)
		fail_msg("%s", error.text);
	fake = dlsym(dlopen(stand_library, RTLD_NOW), "fake");
	assert_non_null(fake);
	*fake = (struct fake){.nic_count = 1,
		.inline_most = 256,
		.send_room = FAKE_KEPT,
		.nics[0] = {.name = "rxe_a0",
			.vendor_id = SOFT_ROCE,
			.transport = IBV_TRANSPORT_IB,
			.ports = 1,
			.port[0] = ethernet("10.0.0.1")}};
	ops = *hf_env_host()->ops;
	ops.now_ns = now_ns;
	time_ns = 1000 * MS;
	return 0;
}

int open_dev(struct hf_dev **dev_out, const char *nic, const char *address)
{
	struct hf_dev_config config = {.kind = "verbs", .nic = nic};

	if (address != NULL)
		assert_int_equal(hf_addr_parse(address, &config.address), 0);
	words.text[0] = '\0';
	return verbs_open(&env, &config, &lib, dev_out, &words);
}

struct hf_dev *opened(void)
{
	struct hf_dev *dev;

	if (open_dev(&dev, "rxe_a0", NULL) != 0)
		fail_msg("%s", words.text);
	return dev;
}

int modify(struct hf_qp *qp, struct ibv_qp_attr attr, int mask)
{
	return hf_qp_modify(qp, &attr, mask);
}

struct bed connected(bool with_srq)
{
	struct bed bed = {.dev = opened()};
	struct hf_qp_init init = {.cap = {8, 8, 2, 2, 32}, .type = IBV_QPT_RC};
	struct ibv_qp_attr rtr = {.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024},
			   rts = {.qp_state = IBV_QPS_RTS, .sq_psn = 0xfffffe, .timeout = 10, .retry_cnt = 7};

	assert_int_equal(hf_pd_alloc(bed.dev, &bed.pd), 0);
	assert_int_equal(hf_cq_create(bed.dev, 16, NULL, &bed.cq), 0);
	if (with_srq)
		assert_int_equal(hf_srq_create(bed.pd, 8, 1, NULL, &bed.srq), 0);
	init.send_cq = init.recv_cq = bed.cq;
	init.srq = bed.srq;
	assert_int_equal(hf_qp_create(bed.pd, &init, &bed.qp), 0);
	assert_int_equal(modify(bed.qp, (struct ibv_qp_attr){.qp_state = IBV_QPS_INIT, .port_num = 1},
				 IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS),
		0);
	assert_int_equal(modify(bed.qp, rtr,
				 IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
					 IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
		0);
	assert_int_equal(modify(bed.qp, rts,
				 IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
					 IBV_QP_MAX_QP_RD_ATOMIC),
		0);
	return bed;
}

void disconnect(struct bed *bed)
{
	if (bed->qp != NULL)
		assert_int_equal(hf_qp_destroy(bed->qp), 0);
	time_ns += 1000 * MS;
	if (bed->srq != NULL)
		assert_int_equal(hf_srq_destroy(bed->srq), 0);
	assert_int_equal(hf_cq_destroy(bed->cq), 0);
	assert_int_equal(hf_pd_free(bed->pd), 0);
	hf_dev_close(bed->dev);
	assert_int_equal(fake->qps + fake->cqs + fake->srqs + fake->contexts, 0);
}
