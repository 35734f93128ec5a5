/* DC through mlx5dv: what the provider is asked for, in which order and with what. No hardware has seen it. */
#include "stand.h"

#include <errno.h>
#include <string.h>

#include "dev/verbs/dc.h"

#define KEY 0xabcull

static struct bed bed_open(void)
{
	struct bed bed = {0};

	verbs_lib_load_mlx5_from(stand_library, &lib);
	assert_true(lib.has_mlx5);
	fake->mlx5 = true;
	fake->nics[0].vendor_id = MELLANOX;
	bed.dev = opened();
	assert_int_equal(hf_pd_alloc(bed.dev, &bed.pd), 0);
	assert_int_equal(hf_cq_create(bed.dev, 16, NULL, &bed.cq), 0);
	assert_int_equal(hf_srq_create(bed.pd, 8, 1, NULL, &bed.srq), 0);
	fake->trace[0] = '\0';
	fake->modified = 0;
	return bed;
}

static void bed_close(struct bed *bed)
{
	assert_int_equal(hf_srq_destroy(bed->srq), 0);
	assert_int_equal(hf_cq_destroy(bed->cq), 0);
	assert_int_equal(hf_pd_free(bed->pd), 0);
	hf_dev_close(bed->dev);
	assert_int_equal(fake->qps + fake->cqs + fake->srqs + fake->contexts + fake->ways, 0);
}

static struct hf_qp *create(struct bed *bed, struct hf_qp_init init)
{
	struct hf_qp *qp;

	init.type = IBV_QPT_DRIVER;
	init.send_cq = init.recv_cq = bed->cq;
	assert_int_equal(hf_qp_create(bed->pd, &init, &qp), 0);
	return qp;
}

static int to_init(struct hf_qp *qp)
{
	return modify(qp, (struct ibv_qp_attr){.qp_state = IBV_QPS_INIT, .port_num = 1},
		IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS);
}

static int to_rtr(struct hf_qp *qp)
{
	return modify(qp, (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .min_rnr_timer = 1},
		IBV_QP_STATE | IBV_QP_PATH_MTU | IBV_QP_MIN_RNR_TIMER);
}

static struct hf_qp *initiator(struct bed *bed)
{
	struct hf_qp *qp = create(bed, (struct hf_qp_init){.dc = HF_DC_INITIATOR, .cap = {8, 0, 2, 0, 32}});

	assert_int_equal(to_init(qp), 0);
	assert_int_equal(to_rtr(qp), 0);
	assert_int_equal(modify(qp, (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = 10, .retry_cnt = 3},
				 IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY),
		0);
	return qp;
}

static struct hf_dc_dest to(uint8_t host)
{
	struct hf_dc_dest dest = {.dct_num = 77, .dc_key = KEY};

	dest.gid.raw[10] = dest.gid.raw[11] = 0xff;
	dest.gid.raw[15] = host;
	return dest;
}

/* ---- whether there is any ---- */

static uint32_t caps_of(void)
{
	struct hf_dev *dev = opened();
	uint32_t caps = dev->attr.caps;

	hf_dev_close(dev);
	assert_int_equal(fake->qps + fake->cqs, 0);
	return caps & (HF_DEV_DC | HF_DEV_DC_EVIDENCE);
}

static void dc_is_offered_where_the_nic_makes_an_initiator(void **state)
{
	(void)state;
	assert_int_equal(caps_of(), 0); /* without the library */
	verbs_lib_load_mlx5_from("libnobody-has-this.so.1", &lib);
	assert_int_equal(caps_of(), 0);
	verbs_lib_load_mlx5_from(stand_library, &lib);
	assert_int_equal(caps_of(), 0); /* the NIC is somebody else's */
	fake->mlx5 = true;
	assert_int_equal(caps_of(), HF_DEV_DC);
	fake->no_dc = true;
	assert_int_equal(caps_of(), 0);
}

/* ---- making and moving ---- */

static void an_initiator_is_made_without_a_receive_side_and_moved_as_the_driver_wants_it(void **state)
{
	struct bed bed = bed_open();
	struct hf_qp *qp = initiator(&bed);

	(void)state;
	assert_string_equal(fake->trace, "dci(wr 8/0,ops 7f)");
	assert_int_equal(fake->mask[0], IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT);
	assert_int_equal(fake->mask[1], IBV_QP_STATE | IBV_QP_PATH_MTU | IBV_QP_AV);
	assert_int_equal(fake->attr[1].ah_attr.is_global, 1);
	assert_int_equal(fake->attr[1].ah_attr.grh.sgid_index, 3);
	assert_int_equal(fake->mask[2], IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
						IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
	assert_int_equal(fake->attr[2].max_rd_atomic, 8);
	assert_int_equal(hf_qp_destroy(qp), 0);
	bed_close(&bed);
}

static void a_target_has_its_key_and_gets_its_number_with_rtr(void **state)
{
	struct bed bed = bed_open();
	struct hf_qp_init init = {.dc = HF_DC_TARGET, .dc_key = KEY, .srq = bed.srq};
	struct hf_qp *one = create(&bed, init), *other = create(&bed, init);

	(void)state;
	assert_string_equal(fake->trace, "dct(key abc,srq 1,ops 0) dct(key abc,srq 1,ops 0)");
	assert_int_equal(one->qp_num, 0);
	assert_int_equal(to_init(one), 0);
	assert_int_equal(fake->mask[0], IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	assert_int_equal(to_init(other), 0);
	assert_int_equal(to_rtr(one), 0);
	assert_int_equal(fake->mask[2], IBV_QP_STATE | IBV_QP_PATH_MTU | IBV_QP_AV | IBV_QP_MIN_RNR_TIMER);
	assert_int_equal(to_rtr(other), 0);
	assert_int_not_equal(one->qp_num, 0);
	assert_int_not_equal(other->qp_num, one->qp_num);
	assert_int_equal(hf_qp_destroy(one), 0);
	assert_int_equal(hf_qp_destroy(other), 0);
	bed_close(&bed);
}

static void a_target_needs_a_shared_receive_queue(void **state)
{
	struct bed bed = bed_open();
	struct hf_qp_init init = {.dc = HF_DC_TARGET, .type = IBV_QPT_DRIVER, .send_cq = bed.cq, .recv_cq = bed.cq};
	struct hf_qp *qp;

	(void)state;
	assert_int_equal(hf_qp_create(bed.pd, &init, &qp), -EINVAL);
	bed_close(&bed);
}

/* The kernel moves a target to RTR and nowhere else. */
static void the_fence_of_a_target_fails_and_says_so(void **state)
{
	struct bed bed = bed_open();
	struct hf_qp *qp = create(&bed, (struct hf_qp_init){.dc = HF_DC_TARGET, .srq = bed.srq});

	(void)state;
	assert_int_equal(to_init(qp), 0);
	assert_int_equal(to_rtr(qp), 0);
	fake->modify_error = EINVAL;
	assert_int_equal(hf_qp_fence(qp), -EINVAL);
	fake->modify_error = 0;
	assert_int_equal(hf_qp_destroy(qp), 0);
	bed_close(&bed);
}

/* ---- posting ---- */

static struct ibv_sge sges[2] = {{.addr = 0x1000, .length = 8, .lkey = 5}, {.addr = 0x2000, .length = 8, .lkey = 6}};

static struct ibv_send_wr wr_of(enum ibv_wr_opcode opcode)
{
	struct ibv_send_wr wr = {.wr_id = 9,
		.opcode = opcode,
		.sg_list = sges,
		.num_sge = 1,
		.send_flags = IBV_SEND_SIGNALED,
		.imm_data = 31,
		.wr.rdma = {.remote_addr = 0x40, .rkey = 3}};

	if (opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = 0x40;
		wr.wr.atomic.compare_add = 1;
		wr.wr.atomic.swap = 2;
		wr.wr.atomic.rkey = 3;
	}
	return wr;
}

static int post(struct hf_qp *qp, uint8_t host, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct hf_dc_dest dest = to(host);

	fake->trace[0] = '\0';
	return hf_qp_post_send_dc(qp, &dest, wr, bad);
}

static void expect_calls(struct hf_qp *qp, struct ibv_send_wr wr, const char *calls)
{
	struct ibv_send_wr *bad;

	assert_int_equal(post(qp, 7, &wr, &bad), 0);
	assert_string_equal(fake->trace, calls);
}

static void each_operation_is_put_together_in_the_order_of_the_manual(void **state)
{
	struct bed bed = bed_open();
	struct hf_qp *qp = initiator(&bed);
	struct ibv_send_wr small = wr_of(IBV_WR_RDMA_WRITE);

	(void)state;
	expect_calls(qp, wr_of(IBV_WR_RDMA_WRITE),
		"ah(7,port 1,sgid 3) start write(3,40)id9,flags2 dc(7,77,abc) sges1,5 complete");
	expect_calls(qp, wr_of(IBV_WR_RDMA_WRITE_WITH_IMM),
		"start write-imm(3,40)id9,flags2 imm31 dc(7,77,abc) sges1,5 complete");
	expect_calls(qp, wr_of(IBV_WR_RDMA_READ), "start read(3,40)id9,flags2 dc(7,77,abc) sges1,5 complete");
	expect_calls(qp, wr_of(IBV_WR_SEND), "start send(0,0)id9,flags2 dc(7,77,abc) sges1,5 complete");
	expect_calls(
		qp, wr_of(IBV_WR_SEND_WITH_IMM), "start send-imm(0,0)id9,flags2 imm31 dc(7,77,abc) sges1,5 complete");
	expect_calls(
		qp, wr_of(IBV_WR_ATOMIC_CMP_AND_SWP), "start cas(3,40)id9,flags2 1->2 dc(7,77,abc) sges1,5 complete");
	expect_calls(
		qp, wr_of(IBV_WR_ATOMIC_FETCH_AND_ADD), "start faa(3,40)id9,flags2 +1 dc(7,77,abc) sges1,5 complete");
	small.send_flags |= IBV_SEND_INLINE;
	small.num_sge = 2;
	expect_calls(qp, small, "start write(3,40)id9,flags2 dc(7,77,abc) inline2,8 complete");
	assert_int_equal(hf_qp_destroy(qp), 0);
	bed_close(&bed);
}

static void a_list_is_posted_with_one_doorbell_up_to_what_is_malformed(void **state)
{
	struct bed bed = bed_open();
	struct hf_qp *qp = initiator(&bed);
	struct ibv_send_wr wrs[3] = {wr_of(IBV_WR_SEND), wr_of(IBV_WR_SEND), wr_of(IBV_WR_SEND)}, *bad;

	(void)state;
	wrs[0].next = &wrs[1];
	wrs[1].next = &wrs[2];
	wrs[2].num_sge = 3;
	assert_int_equal(post(qp, 7, wrs, &bad), -EINVAL);
	assert_ptr_equal(bad, &wrs[2]);
	assert_string_equal(fake->trace,
		"ah(7,port 1,sgid 3) start send(0,0)id9,flags2 dc(7,77,abc) sges1,5 send(0,0)id9,flags2 "
		"dc(7,77,abc) sges1,5 complete");
	fake->complete_error = ENOMEM;
	assert_int_equal(post(qp, 7, wrs, &bad), -ENOMEM);
	assert_ptr_equal(bad, &wrs[0]);
	assert_int_equal(hf_qp_destroy(qp), 0);
	bed_close(&bed);
}

static void who_was_spoken_to_last_is_remembered(void **state)
{
	struct bed bed = bed_open();
	struct hf_qp *qp = initiator(&bed);
	struct ibv_send_wr wr = wr_of(IBV_WR_SEND), *bad;

	(void)state;
	for (unsigned i = 0; i < 6; i++)
		assert_int_equal(post(qp, (uint8_t)(1 + i % 2), &wr, &bad), 0);
	assert_int_equal(fake->ways_made, 2);
	for (unsigned i = 0; i < DC_WAYS_MAX; i++) { /* of which 1 and 2 are two, and others push them out */
		struct hf_dc_dest dest = to((uint8_t)i);

		dest.gid.raw[14] = 1;
		assert_int_equal(hf_qp_post_send_dc(qp, &dest, &wr, &bad), 0);
		fake->trace[0] = '\0';
	}
	assert_int_equal(fake->ways, DC_WAYS_MAX);
	assert_int_equal(post(qp, 1, &wr, &bad), 0);
	assert_int_equal(fake->ways_made, 2 + DC_WAYS_MAX + 1);
	assert_int_equal(hf_qp_destroy(qp), 0);
	bed_close(&bed);
}

static void an_initiator_must_be_told_where_to_and_a_target_sends_nothing(void **state)
{
	struct bed bed = bed_open();
	struct hf_qp *from = initiator(&bed),
		     *target = create(&bed, (struct hf_qp_init){.dc = HF_DC_TARGET, .srq = bed.srq});
	struct ibv_send_wr wr = wr_of(IBV_WR_SEND), *bad = NULL;

	(void)state;
	fake->trace[0] = '\0';
	assert_int_equal(hf_qp_post_send(from, &wr, &bad), -EINVAL);
	assert_ptr_equal(bad, &wr);
	assert_int_equal(post(target, 7, &wr, &bad), -EINVAL);
	assert_string_equal(fake->trace, "");
	assert_int_equal(hf_qp_destroy(from), 0);
	assert_int_equal(hf_qp_destroy(target), 0);
	bed_close(&bed);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(dc_is_offered_where_the_nic_makes_an_initiator),
		TEST(an_initiator_is_made_without_a_receive_side_and_moved_as_the_driver_wants_it),
		TEST(a_target_has_its_key_and_gets_its_number_with_rtr),
		TEST(a_target_needs_a_shared_receive_queue),
		TEST(the_fence_of_a_target_fails_and_says_so),
		TEST(each_operation_is_put_together_in_the_order_of_the_manual),
		TEST(a_list_is_posted_with_one_doorbell_up_to_what_is_malformed),
		TEST(who_was_spoken_to_last_is_remembered),
		TEST(an_initiator_must_be_told_where_to_and_a_target_sends_nothing),
	};

	return STAND_RUN(argc, argv, tests);
}
