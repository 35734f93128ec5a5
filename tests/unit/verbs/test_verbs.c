/* The device on libibverbs, on NICs that are not there: fake.h. Time passes when the test says so. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <rdma/ib_user_verbs.h>
#include <string.h>
#include <unistd.h>

#include "env/linux/linux.h"
#include "stand.h"

/* ---- queue pairs ---- */

static void our_end_of_the_path_is_filled_in(void **state)
{
	struct bed bed;

	(void)state;
	fake->nics[0].ports = 2;
	fake->nics[0].port[1] = ethernet("10.0.1.1");
	fake->nics[0].port[0].link_layer = IBV_LINK_LAYER_INFINIBAND; /* so that it is the second */
	bed = connected(false);
	assert_int_equal(fake->attr[0].port_num, 2);
	assert_int_equal(fake->attr[1].ah_attr.is_global, 1);
	assert_int_equal(fake->attr[1].ah_attr.port_num, 2);
	assert_int_equal(fake->attr[1].ah_attr.grh.sgid_index, 3);
	assert_int_not_equal(fake->attr[1].ah_attr.grh.hop_limit, 0);
	disconnect(&bed);
}

/* Seven retries never end on soft-RoCE. */
static void retries_end_where_seven_do_not(void **state)
{
	struct bed bed = connected(false);

	(void)state;
	assert_int_equal(fake->attr[2].retry_cnt, 6);
	disconnect(&bed);
	fake->nics[0].vendor_id = 0x2c9;
	fake->modified = 0;
	bed = connected(false);
	assert_int_equal(fake->attr[2].retry_cnt, 7);
	disconnect(&bed);
}

static void where_flushes_were_not_tried_the_fence_is_err_a_wait_and_then_the_psn(void **state)
{
	struct bed bed;
	const struct verbs_model *model;
	uint32_t psn;

	(void)state;
	fake->nics[0].vendor_id = FAKE_VENDOR;
	bed = connected(false);
	model = verbs_of(bed.dev)->port.model;
	fake->modified = 0;
	fake->rq_psn = 0x1000005; /* more than 24 bits never leave the device */
	assert_int_equal(hf_qp_fence(bed.qp), -EINPROGRESS);
	assert_int_equal(fake->modified, 1);
	assert_int_equal(fake->attr[0].qp_state, IBV_QPS_ERR);
	time_ns += model->settle_ns - 1;
	assert_int_equal(hf_qp_fence(bed.qp), -EINPROGRESS);
	time_ns += 1;
	assert_int_equal(hf_qp_fence(bed.qp), 0);
	assert_int_equal(hf_qp_fence(bed.qp), 0);
	assert_int_equal(fake->modified, 1);
	assert_int_equal(verbs_qp_executed_psn(bed.qp, &psn), 0);
	assert_int_equal(psn, 5);
	disconnect(&bed);
}

static void flushed(const struct bed *bed, uint64_t wr_id)
{
	fake->wcs[fake->wc_count++] =
		(struct ibv_wc){.qp_num = bed->qp->qp_num, .wr_id = wr_id, .status = IBV_WC_WR_FLUSH_ERR};
}

static void the_fence_holds_when_the_nic_has_flushed_a_marker_at_either_end(void **state)
{
	struct bed bed = connected(false);
	struct ibv_wc wc;

	(void)state;
	fake->modified = 0;
	assert_int_equal(hf_qp_fence(bed.qp), -EINPROGRESS);
	assert_int_equal(fake->sent_count, 1);
	assert_int_equal(fake->sent[0].wr_id, verbs_of(bed.dev)->sent_mark);
	assert_int_equal(fake->modified, 2); /* the second tells that a receive was posted */
	assert_int_equal(fake->attr[1].qp_state, IBV_QPS_ERR);
	time_ns += 500 * MS; /* a processor that was taken away */
	flushed(&bed, 7);
	flushed(&bed, verbs_of(bed.dev)->sent_mark);
	assert_int_equal(hf_qp_fence(bed.qp), -EINPROGRESS);
	flushed(&bed, 8);
	flushed(&bed, verbs_of(bed.dev)->received_mark);
	assert_int_equal(hf_qp_fence(bed.qp), 0);
	assert_int_equal(fake->sent_count, 1);
	for (uint64_t id = 7; id <= 8; id++) { /* the owner gets his own, and no marker */
		assert_int_equal(hf_cq_poll(bed.cq, 1, &wc), 1);
		assert_int_equal(wc.wr_id, id);
	}
	assert_int_equal(hf_cq_poll(bed.cq, 1, &wc), 0);
	disconnect(&bed);
}

static void the_wr_ids_of_markers_are_not_the_same_in_two_runs(void **state)
{
	struct hf_dev *first = opened(), *second = opened();

	(void)state;
	assert_int_not_equal(verbs_of(first)->sent_mark, verbs_of(second)->sent_mark);
	assert_int_not_equal(verbs_of(first)->sent_mark, verbs_of(first)->received_mark);
	hf_dev_close(first);
	hf_dev_close(second);
}

static void a_fence_whose_markers_do_not_come_fails(void **state)
{
	struct bed bed = connected(false);

	(void)state;
	assert_int_equal(hf_qp_fence(bed.qp), -EINPROGRESS);
	time_ns += 2000 * MS;
	assert_int_equal(hf_qp_fence(bed.qp), -EIO);
	flushed(&bed, verbs_of(bed.dev)->sent_mark);
	flushed(&bed, verbs_of(bed.dev)->received_mark);
	assert_int_equal(hf_qp_fence(bed.qp), 0);
	disconnect(&bed);
}

/* The qp may have been in ERR for long; its markers are young. */
static void a_late_fence_has_as_much_patience_as_any(void **state)
{
	struct bed bed = connected(false);

	(void)state;
	assert_int_equal(modify(bed.qp, (struct ibv_qp_attr){.qp_state = IBV_QPS_ERR}, IBV_QP_STATE), 0);
	time_ns += 5000 * MS;
	assert_int_equal(hf_qp_fence(bed.qp), -EINPROGRESS);
	disconnect(&bed);
}

/* A notification is spent on it: who finds nothing then may sleep. */
static void a_marker_does_not_hide_what_is_behind_it(void **state)
{
	struct bed bed = connected(false);
	struct ibv_wc wc;

	(void)state;
	assert_int_equal(hf_qp_fence(bed.qp), -EINPROGRESS);
	flushed(&bed, verbs_of(bed.dev)->sent_mark);
	flushed(&bed, 7);
	assert_int_equal(hf_cq_poll(bed.cq, 1, &wc), 1);
	assert_int_equal(wc.wr_id, 7);
	disconnect(&bed);
}

static void a_marker_that_comes_after_its_qp_has_gone_is_nobodys(void **state)
{
	struct bed bed = connected(false);
	uint32_t number = bed.qp->qp_num;
	struct ibv_wc wc;

	(void)state;
	assert_int_equal(hf_qp_fence(bed.qp), -EINPROGRESS);
	assert_int_equal(hf_qp_destroy(bed.qp), 0);
	fake->wcs[fake->wc_count++] =
		(struct ibv_wc){.qp_num = number, .wr_id = verbs_of(bed.dev)->sent_mark, .status = IBV_WC_WR_FLUSH_ERR};
	assert_int_equal(hf_cq_poll(bed.cq, 1, &wc), 0);
	bed.qp = NULL;
	disconnect(&bed);
}

/* Some NICs look for receives to flush only when they are moved to ERR. */
static void a_receive_posted_to_a_qp_in_err_is_flushed(void **state)
{
	struct bed bed = connected(false);
	struct ibv_recv_wr wr = {0}, *bad;

	(void)state;
	fake->modified = 0;
	assert_int_equal(hf_qp_post_recv(bed.qp, &wr, &bad), 0);
	assert_int_equal(fake->modified, 0);
	assert_int_equal(modify(bed.qp, (struct ibv_qp_attr){.qp_state = IBV_QPS_ERR}, IBV_QP_STATE), 0);
	assert_int_equal(hf_qp_post_recv(bed.qp, &wr, &bad), 0);
	assert_int_equal(fake->modified, 2);
	assert_int_equal(fake->attr[1].qp_state, IBV_QPS_ERR);
	disconnect(&bed);
}

static void a_fence_that_the_nic_refuses_says_so_and_may_be_tried_again(void **state)
{
	struct bed bed = connected(false);

	(void)state;
	fake->modify_error = EIO;
	assert_int_equal(hf_qp_fence(bed.qp), -EIO);
	fake->modify_error = 0;
	assert_int_equal(hf_qp_fence(bed.qp), -EINPROGRESS);
	disconnect(&bed);
}

/* The NIC's own ERR may be younger than it seems: what counts is ours. */
static void a_qp_that_failed_by_itself_is_fenced_like_any_other(void **state)
{
	struct bed bed = connected(false);
	struct ibv_wc wc = {.qp_num = bed.qp->qp_num, .status = IBV_WC_RETRY_EXC_ERR};

	(void)state;
	fake->wcs[fake->wc_count++] = wc;
	assert_int_equal(hf_cq_poll(bed.cq, 1, &wc), 1);
	time_ns += 500 * MS;
	fake->modified = 0;
	assert_int_equal(hf_qp_fence(bed.qp), -EINPROGRESS);
	assert_int_equal(fake->attr[0].qp_state, IBV_QPS_ERR);
	disconnect(&bed);
}

static void a_qp_is_destroyed_when_the_nic_has_been_quiet_for_long_enough(void **state)
{
	struct bed bed = connected(false);

	(void)state;
	fake->modified = 0;
	assert_int_equal(hf_qp_destroy(bed.qp), 0);
	bed.qp = NULL;
	assert_int_equal(fake->attr[0].qp_state, IBV_QPS_ERR);
	assert_int_equal(fake->qps, 1);
	hf_dev_poll(bed.dev, time_ns);
	assert_int_equal(fake->qps, 1);
	time_ns += verbs_of(bed.dev)->port.model->quiet_ns + VERBS_LOOK_NS;
	hf_dev_poll(bed.dev, time_ns);
	assert_int_equal(fake->qps, 0);
	disconnect(&bed);
}

/* Some NICs die of a reset while packets arrive, and some leave completions of the life before in the queue. */
static void a_reset_goes_through_err_and_forgets_what_completed(void **state)
{
	struct bed bed = connected(false);
	uint32_t other = bed.qp->qp_num + 1000;
	struct ibv_wc wc;

	(void)state;
	fake->modified = 0;
	flushed(&bed, 7);
	fake->wcs[fake->wc_count++] = (struct ibv_wc){.qp_num = other, .wr_id = 8};
	assert_int_equal(modify(bed.qp, (struct ibv_qp_attr){.qp_state = IBV_QPS_RESET}, IBV_QP_STATE), 0);
	assert_int_equal(fake->modified, 2);
	assert_int_equal(fake->attr[0].qp_state, IBV_QPS_ERR);
	assert_int_equal(fake->attr[1].qp_state, IBV_QPS_RESET);
	assert_int_equal(hf_cq_poll(bed.cq, 1, &wc), 1);
	assert_int_equal(wc.qp_num, other);
	assert_int_equal(hf_cq_poll(bed.cq, 1, &wc), 0);
	disconnect(&bed);
}

/* No NIC was shown to have stopped what it executes when the call returns (D5): the driver is not asked. */
static void access_flags_do_not_change_in_rts(void **state)
{
	struct bed bed = connected(false);

	(void)state;
	fake->modified = 0;
	assert_int_equal(modify(bed.qp, (struct ibv_qp_attr){0}, IBV_QP_ACCESS_FLAGS), -EOPNOTSUPP);
	assert_int_equal(
		modify(bed.qp, (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS}, IBV_QP_STATE | IBV_QP_ACCESS_FLAGS),
		-EOPNOTSUPP);
	assert_int_equal(fake->modified, 0);
	fake->modify_error = EINVAL; /* a move that nobody allows is the driver's to refuse */
	assert_int_equal(
		modify(bed.qp, (struct ibv_qp_attr){.qp_state = IBV_QPS_INIT}, IBV_QP_STATE | IBV_QP_ACCESS_FLAGS),
		-EINVAL);
	fake->modify_error = 0;
	disconnect(&bed);
}

/* ---- posting ---- */

static struct ibv_send_wr write_of(struct ibv_sge *sge, uint32_t bytes, int flags)
{
	*sge = (struct ibv_sge){.addr = 0x1000, .length = bytes, .lkey = 7};
	return (struct ibv_send_wr){.wr_id = bytes,
		.sg_list = sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = (unsigned)flags};
}

static void wrs_go_to_the_nic_as_they_are_and_their_psns_are_counted(void **state)
{
	struct bed bed = connected(false);
	struct ibv_sge sge[3];
	struct ibv_send_wr wr[3] = {write_of(&sge[0], 1, IBV_SEND_SIGNALED), write_of(&sge[1], 2049, IBV_SEND_SIGNALED),
		write_of(&sge[2], 0, 0)};
	struct ibv_send_wr *bad;

	(void)state;
	wr[0].next = &wr[1];
	wr[1].next = &wr[2];
	wr[1].opcode = IBV_WR_RDMA_READ;
	wr[1].wr.rdma.remote_addr = 0xabc;
	wr[1].wr.rdma.rkey = 9;
	assert_int_equal(hf_qp_next_psn(bed.qp), 0xfffffe);
	assert_int_equal(hf_qp_post_send(bed.qp, wr, &bad), 0);
	assert_int_equal(fake->sent_count, 3);
	assert_int_equal(fake->sent[1].opcode, IBV_WR_RDMA_READ);
	assert_int_equal(fake->sent[1].wr.rdma.remote_addr, 0xabc);
	assert_int_equal(fake->sent[1].wr.rdma.rkey, 9);
	assert_ptr_equal(fake->sent[1].sg_list, &sge[1]);
	assert_int_equal(hf_qp_next_psn(bed.qp), 0xfffffe + 5 - 0x1000000);
	disconnect(&bed);
}

static void what_the_nic_has_no_room_for_is_counted_nowhere(void **state)
{
	struct bed bed = connected(false);
	struct ibv_sge sge[2];
	struct ibv_send_wr wr[2] = {write_of(&sge[0], 1, IBV_SEND_SIGNALED), write_of(&sge[1], 1, IBV_SEND_SIGNALED)};
	struct ibv_send_wr *bad = NULL;

	(void)state;
	wr[0].next = &wr[1];
	fake->send_room = 1;
	assert_int_equal(hf_qp_post_send(bed.qp, wr, &bad), -ENOMEM);
	assert_ptr_equal(bad, &wr[1]);
	assert_int_equal(hf_qp_next_psn(bed.qp), 0xffffff);
	disconnect(&bed);
}

/* Drivers differ in what they check: what is malformed does not get there, what is before it does. */
static void a_malformed_wr_ends_its_list_before_the_nic_sees_it(void **state)
{
	struct bed bed = connected(false);
	struct ibv_sge sge[2];
	struct ibv_send_wr wr[2] = {write_of(&sge[0], 1, IBV_SEND_SIGNALED), write_of(&sge[1], 1, IBV_SEND_SIGNALED)};
	struct ibv_send_wr *bad = NULL;

	(void)state;
	wr[0].next = &wr[1];
	wr[1].num_sge = 3;
	assert_int_equal(hf_qp_post_send(bed.qp, wr, &bad), -EINVAL);
	assert_ptr_equal(bad, &wr[1]);
	assert_int_equal(fake->sent_count, 1);
	assert_ptr_equal(wr[0].next, &wr[1]);
	disconnect(&bed);
}

static void memory_whose_iova_is_not_its_address_is_registered_twice(void **state)
{
	struct bed bed = connected(false);
	char memory[64];
	struct hf_mr *mr;

	(void)state;
	assert_int_equal(hf_mr_reg(bed.pd, memory, 64, (uintptr_t)memory, IBV_ACCESS_LOCAL_WRITE, &mr, &words), 0);
	assert_int_equal(fake->mrs, 1);
	assert_int_equal(hf_mr_dereg(mr), 0);
	assert_int_equal(hf_mr_reg(bed.pd, memory, 64, 0x5000, IBV_ACCESS_LOCAL_WRITE, &mr, &words), 0);
	assert_int_equal(fake->mrs, 2);
	assert_int_equal(fake->registered[1].iova, (uintptr_t)memory);
	assert_int_equal(mr->lkey, fake->registered[1].mr.lkey);
	assert_int_equal(fake->registered[2].iova, 0x5000);
	assert_int_equal(mr->rkey, fake->registered[2].mr.rkey);
	assert_int_equal(hf_mr_dereg(mr), 0);
	assert_int_equal(fake->mrs, 0);
	disconnect(&bed);
}

/* ---- events and the watchdog ---- */

static int next_event(struct hf_dev *dev)
{
	struct hf_dev_event event;

	time_ns += VERBS_EVENT_NS;
	return hf_dev_get_event(dev, &event) == 1 ? (int)event.type : -1;
}

static void happens(enum ibv_event_type type, int port)
{
	fake->events[fake->event_count++] = (struct ibv_async_event){.event_type = type, .element.port_num = port};
}

static void a_port_event_is_told_once_however_often_it_comes(void **state)
{
	struct hf_dev *dev = opened();

	(void)state;
	happens(IBV_EVENT_PORT_ERR, 2); /* another port's */
	happens(IBV_EVENT_PORT_ERR, 1);
	happens(IBV_EVENT_PORT_ERR, 1);
	assert_int_equal(next_event(dev), IBV_EVENT_PORT_ERR);
	assert_int_equal(next_event(dev), -1);
	happens(IBV_EVENT_PORT_ACTIVE, 1);
	happens(IBV_EVENT_PORT_ACTIVE, 1);
	assert_int_equal(next_event(dev), IBV_EVENT_PORT_ACTIVE);
	assert_int_equal(next_event(dev), -1);
	assert_int_equal(fake->acked_events, 5);
	hf_dev_close(dev);
}

static void a_flap_between_two_looks_is_told_in_full(void **state)
{
	struct hf_dev *dev = opened();

	(void)state;
	happens(IBV_EVENT_PORT_ERR, 1);
	happens(IBV_EVENT_PORT_ACTIVE, 1);
	assert_int_equal(next_event(dev), IBV_EVENT_PORT_ERR);
	assert_int_equal(next_event(dev), IBV_EVENT_PORT_ACTIVE);
	assert_int_equal(next_event(dev), -1);
	hf_dev_close(dev);
}

static void events_that_nobody_reads_are_bounded_and_do_not_hide_those_of_the_port(void **state)
{
	struct hf_dev *dev = opened();
	unsigned n = 0;

	(void)state;
	for (unsigned i = 0; i < 2 * VERBS_EVENTS_MAX; i++) {
		happens(IBV_EVENT_GID_CHANGE, 1);
		time_ns += VERBS_EVENT_NS;
		hf_dev_poll(dev, time_ns);
	}
	happens(IBV_EVENT_PORT_ERR, 1);
	time_ns += VERBS_EVENT_NS;
	hf_dev_poll(dev, time_ns);
	assert_int_equal(next_event(dev), IBV_EVENT_PORT_ERR);
	while (next_event(dev) == IBV_EVENT_GID_CHANGE)
		n++;
	assert_int_equal(n, VERBS_EVENTS_MAX);
	hf_dev_close(dev);
}

static void an_address_that_moved_in_the_nics_table_is_found_again(void **state)
{
	struct fake_gid *gids = fake->nics[0].port[0].gids;
	struct hf_dev *dev = opened();

	(void)state;
	assert_int_equal(verbs_of(dev)->port.gid_index, 3);
	gids[5] = gids[3];
	gids[3].address = "10.0.9.9";
	happens(IBV_EVENT_GID_CHANGE, 1);
	assert_int_equal(next_event(dev), IBV_EVENT_GID_CHANGE);
	assert_int_equal(verbs_of(dev)->port.gid_index, 5);
	gids[5].address = NULL; /* it is gone; it may come back */
	happens(IBV_EVENT_GID_CHANGE, 1);
	time_ns += VERBS_EVENT_NS;
	assert_int_equal(next_event(dev), IBV_EVENT_GID_CHANGE);
	assert_int_equal(verbs_of(dev)->port.gid_index, 5);
	gids[4] = (struct fake_gid){.address = "10.0.0.1", .type = IBV_GID_TYPE_ROCE_V2};
	happens(IBV_EVENT_GID_CHANGE, 1);
	time_ns += VERBS_EVENT_NS;
	assert_int_equal(next_event(dev), IBV_EVENT_GID_CHANGE);
	assert_int_equal(verbs_of(dev)->port.gid_index, 4);
	hf_dev_close(dev);
}

static void a_change_of_the_port_that_no_event_told_is_seen(void **state)
{
	struct hf_dev *dev = opened();

	(void)state;
	fake->nics[0].port[0].state = IBV_PORT_DOWN;
	assert_int_equal(next_event(dev), -1);
	time_ns += VERBS_LOOK_NS;
	assert_int_equal(next_event(dev), IBV_EVENT_PORT_ERR);
	fake->nics[0].port[0].state = IBV_PORT_ACTIVE;
	time_ns += VERBS_LOOK_NS;
	assert_int_equal(next_event(dev), IBV_EVENT_PORT_ACTIVE);
	hf_dev_close(dev);
}

/* A NIC whose port is down may complete nothing: its qps are moved to ERR, which flushes them. */
static void wrs_that_wait_on_a_dead_port_for_too_long_are_flushed(void **state)
{
	struct bed bed = connected(false);
	struct ibv_sge sge;
	struct ibv_send_wr wr = write_of(&sge, 1, IBV_SEND_SIGNALED), *bad;

	(void)state;
	assert_int_equal(hf_qp_post_send(bed.qp, &wr, &bad), 0);
	fake->modified = 0;
	fake->nics[0].port[0].state = IBV_PORT_DOWN;
	time_ns += VERBS_LOOK_NS;
	hf_dev_poll(bed.dev, time_ns);
	assert_int_equal(fake->modified, 0);
	time_ns += 10000 * MS;
	hf_dev_poll(bed.dev, time_ns);
	assert_int_equal(fake->modified, 1);
	assert_int_equal(fake->attr[0].qp_state, IBV_QPS_ERR);
	disconnect(&bed);
}

static bool wakes(struct hf_dev *dev)
{
	struct pollfd io = {.fd = io_fd(hf_dev_io(dev)), .events = POLLIN};

	assert_true(hf_dev_arm(dev));
	return poll(&io, 1, 0) == 1;
}

/* The clock of the test is far behind that of the alarm, which is over as soon as it is set. */
static void whoever_sleeps_is_woken_to_look_after_what_waits(void **state)
{
	struct bed bed = connected(true);
	struct ibv_sge sge;
	struct ibv_send_wr wr = write_of(&sge, 1, IBV_SEND_SIGNALED), *bad;

	(void)state;
	assert_false(wakes(bed.dev));
	assert_int_equal(hf_qp_post_send(bed.qp, &wr, &bad), 0);
	assert_true(wakes(bed.dev));
	time_ns += VERBS_LOOK_NS;
	hf_dev_poll(bed.dev, time_ns);
	assert_true(wakes(bed.dev));
	assert_int_equal(modify(bed.qp, (struct ibv_qp_attr){.qp_state = IBV_QPS_ERR}, IBV_QP_STATE), 0);
	assert_true(wakes(bed.dev)); /* the last wqe is to be told */
	time_ns += verbs_of(bed.dev)->port.model->settle_ns + VERBS_LOOK_NS;
	assert_int_equal(next_event(bed.dev), IBV_EVENT_QP_LAST_WQE_REACHED);
	assert_false(wakes(bed.dev));
	disconnect(&bed);
}

static bool was_rung(int bell, uint32_t handle)
{
	struct {
		struct ib_uverbs_cmd_hdr header;
		struct ib_uverbs_post_send post;
	} command;

	if (read(bell, &command, sizeof(command)) != (ssize_t)sizeof(command))
		return false;
	assert_int_equal(command.header.command, IB_USER_VERBS_CMD_POST_SEND);
	assert_int_equal(command.header.in_words, sizeof(command) / 4);
	assert_int_equal(command.post.qp_handle, handle);
	assert_int_equal(command.post.wr_count, 0);
	assert_int_equal(read(bell, &command, sizeof(command)), -1); /* once */
	return true;
}

static void look(const struct bed *bed)
{
	time_ns += VERBS_LOOK_NS;
	hf_dev_poll(bed->dev, time_ns);
}

static void a_wr_that_waits_for_reads_is_not_left_asleep(void **state)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr = write_of(&sge, 1, IBV_SEND_SIGNALED), *bad;
	struct bed bed;
	int bell[2];

	(void)state;
	assert_int_equal(pipe2(bell, O_NONBLOCK | O_CLOEXEC), 0);
	fake->doorbell = bell[1];
	bed = connected(false);
	fake->last_qp->handle = 77;
	assert_int_equal(hf_qp_post_send(bed.qp, &wr, &bad), 0);
	look(&bed);
	assert_false(was_rung(bell[0], 77)); /* it waits for nothing */
	wr.send_flags = IBV_SEND_FENCE;
	assert_int_equal(hf_qp_post_send(bed.qp, &wr, &bad), 0);
	assert_true(wakes(bed.dev));
	look(&bed);
	assert_true(was_rung(bell[0], 77));
	look(&bed);
	assert_true(was_rung(bell[0], 77)); /* a READ before it may have been lost meanwhile */
	time_ns += 2000 * MS;               /* but by now it was sent, or failed */
	look(&bed);
	assert_true(was_rung(bell[0], 77));
	look(&bed);
	assert_false(was_rung(bell[0], 77));
	disconnect(&bed);
	close(bell[0]);
	close(bell[1]);
}

/* A loop polls with the time at which its turn began. */
static void an_older_time_is_no_long_time(void **state)
{
	struct bed bed = connected(false);
	struct ibv_sge sge;
	struct ibv_send_wr wr = write_of(&sge, 1, IBV_SEND_SIGNALED), *bad;

	(void)state;
	assert_int_equal(hf_qp_post_send(bed.qp, &wr, &bad), 0);
	fake->modified = 0;
	fake->nics[0].port[0].state = IBV_PORT_DOWN;
	time_ns += VERBS_LOOK_NS + 10;
	assert_true(verbs_port_failed(verbs_of(bed.dev)));
	hf_dev_poll(bed.dev, time_ns - 10);
	assert_int_equal(fake->modified, 0);
	disconnect(&bed);
}

static void a_qp_without_work_outlives_a_dead_port(void **state)
{
	struct bed bed = connected(false);

	(void)state;
	fake->modified = 0;
	fake->nics[0].port[0].state = IBV_PORT_DOWN;
	for (unsigned i = 0; i < 3; i++) {
		time_ns += 10000 * MS;
		hf_dev_poll(bed.dev, time_ns);
	}
	assert_int_equal(fake->modified, 0);
	disconnect(&bed);
}

static enum ibv_wc_status status_of_a_local_error(struct bed *bed)
{
	struct ibv_wc wc = {.qp_num = bed->qp->qp_num, .status = IBV_WC_LOC_QP_OP_ERR};

	fake->wcs[fake->wc_count++] = wc;
	assert_int_equal(hf_cq_poll(bed->cq, 1, &wc), 1);
	return wc.status;
}

static void a_local_error_is_a_failed_path_while_the_port_is_down(void **state)
{
	struct bed bed = connected(false);

	(void)state;
	assert_int_equal(status_of_a_local_error(&bed), IBV_WC_LOC_QP_OP_ERR);
	fake->nics[0].port[0].state = IBV_PORT_DOWN;
	assert_int_equal(status_of_a_local_error(&bed), IBV_WC_RETRY_EXC_ERR);
	fake->nics[0].port[0].state = IBV_PORT_ACTIVE; /* a flap, which may be over when the error is polled */
	assert_int_equal(status_of_a_local_error(&bed), IBV_WC_RETRY_EXC_ERR);
	time_ns += VERBS_LATELY_NS;
	assert_int_equal(status_of_a_local_error(&bed), IBV_WC_LOC_QP_OP_ERR);
	disconnect(&bed);
}

static void a_destroyed_qp_tells_nothing_from_its_grave(void **state)
{
	struct bed bed = connected(false);

	(void)state;
	assert_int_equal(hf_qp_destroy(bed.qp), 0);
	bed.qp = NULL;
	assert_int_equal(fake->qps, 1);
	fake->events[fake->event_count++] =
		(struct ibv_async_event){.event_type = IBV_EVENT_QP_FATAL, .element.qp = fake->last_qp};
	assert_int_equal(next_event(bed.dev), -1);
	disconnect(&bed);
}

static void a_port_without_an_interface_has_no_switch(void **state)
{
	struct hf_dev *dev = opened();

	(void)state;
	assert_int_equal(hf_dev_set_link(dev, HF_LINK_BOTH, false), -ENODEV);
	assert_int_equal(hf_dev_set_link(dev, HF_LINK_TX, false), -EOPNOTSUPP);
	assert_int_equal(hf_dev_set_link(dev, (enum hf_link)0, false), -EINVAL);
	hf_dev_close(dev);
}

static void a_failed_qp_says_once_when_it_takes_nothing_more_from_its_srq(void **state)
{
	struct bed bed = connected(true);

	(void)state;
	assert_int_equal(modify(bed.qp, (struct ibv_qp_attr){.qp_state = IBV_QPS_ERR}, IBV_QP_STATE), 0);
	assert_int_equal(next_event(bed.dev), -1);
	time_ns += verbs_of(bed.dev)->port.model->settle_ns + VERBS_LOOK_NS;
	assert_int_equal(next_event(bed.dev), IBV_EVENT_QP_LAST_WQE_REACHED);
	fake->events[fake->event_count++] = (struct ibv_async_event){
		.event_type = IBV_EVENT_QP_LAST_WQE_REACHED, .element.qp = fake->last_qp}; /* a NIC that says it too */
	assert_int_equal(next_event(bed.dev), -1);
	disconnect(&bed);
}

static void a_notification_is_seen_by_whoever_asks(void **state)
{
	struct bed bed = connected(false);

	(void)state;
	assert_int_equal(hf_cq_req_notify(bed.cq, false), 0);
	assert_false(hf_cq_notified(bed.cq));
	fake->notified = ((struct verbs_cq *)bed.cq)->cq;
	assert_true(hf_cq_notified(bed.cq));
	assert_false(hf_cq_notified(bed.cq));
	disconnect(&bed);
	assert_int_equal(fake->acked_cq_events, 1);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(our_end_of_the_path_is_filled_in),
		TEST(retries_end_where_seven_do_not),
		TEST(where_flushes_were_not_tried_the_fence_is_err_a_wait_and_then_the_psn),
		TEST(the_fence_holds_when_the_nic_has_flushed_a_marker_at_either_end),
		TEST(the_wr_ids_of_markers_are_not_the_same_in_two_runs),
		TEST(a_fence_whose_markers_do_not_come_fails),
		TEST(a_late_fence_has_as_much_patience_as_any),
		TEST(a_marker_does_not_hide_what_is_behind_it),
		TEST(a_marker_that_comes_after_its_qp_has_gone_is_nobodys),
		TEST(a_receive_posted_to_a_qp_in_err_is_flushed),
		TEST(a_fence_that_the_nic_refuses_says_so_and_may_be_tried_again),
		TEST(a_qp_that_failed_by_itself_is_fenced_like_any_other),
		TEST(a_qp_is_destroyed_when_the_nic_has_been_quiet_for_long_enough),
		TEST(a_reset_goes_through_err_and_forgets_what_completed),
		TEST(access_flags_do_not_change_in_rts),
		TEST(wrs_go_to_the_nic_as_they_are_and_their_psns_are_counted),
		TEST(what_the_nic_has_no_room_for_is_counted_nowhere),
		TEST(a_malformed_wr_ends_its_list_before_the_nic_sees_it),
		TEST(memory_whose_iova_is_not_its_address_is_registered_twice),
		TEST(a_port_event_is_told_once_however_often_it_comes),
		TEST(a_flap_between_two_looks_is_told_in_full),
		TEST(events_that_nobody_reads_are_bounded_and_do_not_hide_those_of_the_port),
		TEST(an_address_that_moved_in_the_nics_table_is_found_again),
		TEST(a_change_of_the_port_that_no_event_told_is_seen),
		TEST(wrs_that_wait_on_a_dead_port_for_too_long_are_flushed),
		TEST(whoever_sleeps_is_woken_to_look_after_what_waits),
		TEST(a_wr_that_waits_for_reads_is_not_left_asleep),
		TEST(an_older_time_is_no_long_time),
		TEST(a_qp_without_work_outlives_a_dead_port),
		TEST(a_local_error_is_a_failed_path_while_the_port_is_down),
		TEST(a_destroyed_qp_tells_nothing_from_its_grave),
		TEST(a_port_without_an_interface_has_no_switch),
		TEST(a_failed_qp_says_once_when_it_takes_nothing_more_from_its_srq),
		TEST(a_notification_is_seen_by_whoever_asks),
	};

	return STAND_RUN(argc, argv, tests);
}
