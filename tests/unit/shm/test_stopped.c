/* What dead and stopped processes leave behind. Where a second process is needed it is forked before this one opens its
 * port. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <holdfast/fabric.h>
#include "base/order.h"
#include "bed.h"

#define SPIN IBV_WR_LOCAL_INV /* no operation, but a thread that runs */

/* ---- other processes ---- */

struct other {
	pid_t pid;
	int socket;
	struct card card;
};

static void tell(int socket, const struct card *card)
{
	assert_int_equal(write(socket, card, sizeof(*card)), sizeof(*card));
}

static void hear(int socket, struct card *card)
{
	assert_int_equal(read(socket, card, sizeof(*card)), sizeof(*card));
}

/* In a child: sends or writes BIG bytes without end. */
static _Noreturn void be_requester(int socket, enum ibv_wr_opcode opcode)
{
	struct ibv_sge sge;
	struct card card;
	struct end end;

	open_end(&end, "other", BIG, false);
	memset(end.mem, 0xbb, BIG);
	card = card_of(&end);
	tell(socket, &card);
	hear(socket, &card);
	connect_end(&end, &card);
	tell(socket, &card);
	sge = sge_of(&end, BIG);
	while (opcode == SPIN)
		if (recv(socket, &card, sizeof(card), MSG_DONTWAIT) == 0)
			_exit(0); /* the test is over */
	do
		post(&end, opcode, &sge, card.addr, card.rkey);
	while (next_wc(&end).status == IBV_WC_SUCCESS);
	for (;;)
		pause();
}

static struct other start_requester(enum ibv_wr_opcode opcode)
{
	struct other other;
	int ends[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
	other.socket = ends[0];
	other.pid = fork();
	assert_true(other.pid >= 0);
	if (other.pid == 0)
		be_requester(ends[1], opcode);
	close(ends[1]);
	hear(other.socket, &other.card);
	return other;
}

/* Connected, and the requester is in the middle of a copy when this returns. */
static void let_it_copy(struct end *end, struct other *other)
{
	struct share_segment mapped;
	struct qp_slot *slot = &segment_of(end, &mapped)->qps[end->qp->qp_num & QP_SLOT_MASK];
	struct card card = card_of(end);

	connect_end(end, &other->card);
	tell(other->socket, &card);
	hear(other->socket, &card);
	while ((atomic_load(&slot->op) & OP_BUSY) == 0)
		cpu_relax();
	share_segment_close(&mapped);
}

static void end_other(struct other *other, int signal)
{
	kill(other->pid, signal);
	kill(other->pid, SIGKILL);
	assert_int_equal(waitpid(other->pid, NULL, 0), other->pid);
	close(other->socket);
}

/* Its operation was taken over and it has seen that, or it was refused. */
static void wait_until_it_backed_off(struct end *end)
{
	struct share_segment mapped;
	struct qp_slot *slot = &segment_of(end, &mapped)->qps[end->qp->qp_num & QP_SLOT_MASK];

	while ((atomic_load(&slot->op) & OP_TAKEN) != 0 ? (atomic_load(&slot->op) & OP_GIVEN) == 0
							: QP_WORD_STATE(atomic_load(&slot->state)) != IBV_QPS_ERR)
		cpu_relax();
	share_segment_close(&mapped);
}

static void stop(struct other *other)
{
	assert_int_equal(kill(other->pid, SIGSTOP), 0);
	assert_int_equal(waitpid(other->pid, NULL, WUNTRACED), other->pid);
}

static void access_can_be_taken_from_a_stopped_process(void **state)
{
	struct other other = start_requester(IBV_WR_RDMA_WRITE);
	struct ibv_qp_attr attr = {.qp_access_flags = 0};
	struct end end;
	int rc;

	(void)state;
	open_end(&end, "a", BIG, false);
	let_it_copy(&end, &other);
	stop(&other);
	assert_int_equal(hf_qp_modify(end.qp, &attr, IBV_QP_ACCESS_FLAGS), -EINPROGRESS);
	while ((rc = hf_qp_fence(end.qp)) == -EINPROGRESS)
		cpu_relax();
	assert_int_equal(rc, 0);
	memset(end.mem, 0, BIG);
	assert_int_equal(kill(other.pid, SIGCONT), 0);
	wait_until_it_backed_off(&end);
	for (size_t i = 0; i < BIG; i += 64)
		assert_int_equal(end.mem[i], 0);
	end_other(&other, SIGCONT);
	close_end(&end);
}

static struct other stopped_in_a_copy(struct end *end, uint64_t bound_ns)
{
	struct other other = start_requester(IBV_WR_RDMA_WRITE);
	struct ibv_qp_attr attr = {.qp_access_flags = 0};

	revoke_ns = bound_ns;
	open_end(end, "a", BIG, false);
	revoke_ns = 0;
	let_it_copy(end, &other);
	stop(&other);
	assert_int_equal(hf_qp_modify(end->qp, &attr, IBV_QP_ACCESS_FLAGS), -EINPROGRESS);
	return other;
}

static void a_revocation_waits_for_a_stopped_process_as_long_as_it_was_told_to(void **state)
{
	struct share_segment mapped;
	struct qp_slot *slot;
	struct other other;
	struct end end;

	(void)state;
	other = stopped_in_a_copy(&end, 1);
	assert_int_equal(hf_qp_fence(end.qp), 0);
	end_other(&other, SIGKILL);
	close_end(&end);
	revoke_ns = UINT64_MAX / 2;
	other = start_requester(IBV_WR_RDMA_WRITE);
	open_end(&end, "a", BIG, false);
	revoke_ns = 0;
	slot = &segment_of(&end, &mapped)->qps[end.qp->qp_num & QP_SLOT_MASK];
	let_it_copy(&end, &other);
	stop(&other);
	atomic_store(&slot->touch_kind, TOUCH_WRITE); /* its machine has no guard: it is not looked at */
	assert_int_equal(hf_qp_modify(end.qp, &(struct ibv_qp_attr){0}, IBV_QP_ACCESS_FLAGS), -EINPROGRESS);
	for (unsigned i = 0; i < 1000; i++)
		assert_int_equal(hf_qp_fence(end.qp), -EINPROGRESS);
	assert_int_equal(atomic_load(&slot->op) & (OP_BUSY | OP_TAKEN), OP_BUSY);
	share_segment_close(&mapped);
	end_other(&other, SIGKILL);
	assert_int_equal(hf_qp_fence(end.qp), 0); /* it cannot do anything any more */
	close_end(&end);
}

/* What is stored for a qp that says how long it waits is guarded: nobody has to map anything anew. */
static void no_page_moves_when_access_is_taken_from_a_stopped_process(void **state)
{
	struct share_backing before, after;
	struct other other;
	struct end end;
	int rc;

	(void)state;
	other = stopped_in_a_copy(&end, 200000);
	assert_int_equal(share_backing_find(end.mem, BIG, &before), 0);
	while ((rc = hf_qp_fence(end.qp)) == -EINPROGRESS)
		cpu_relax();
	assert_int_equal(rc, 0);
	assert_int_equal(share_backing_find(end.mem, BIG, &after), 0);
	assert_int_equal(after.inode, before.inode);
	memset(end.mem, 0, BIG);
	assert_int_equal(kill(other.pid, SIGCONT), 0);
	wait_until_it_backed_off(&end);
	for (size_t i = 0; i < BIG; i += 64)
		assert_int_equal(end.mem[i], 0);
	end_other(&other, SIGCONT);
	close_end(&end);
}

/* It waits for a core in the middle of a guarded copy, for ever as far as anybody can tell: the pages move then. */
static void pages_move_when_the_thread_of_a_guarded_copy_cannot_be_seen_stopped(void **state)
{
	struct other other = start_requester(SPIN);
	struct share_backing before, after;
	struct share_segment mapped;
	struct qp_slot *slot;
	struct ibv_sge sge;
	struct card card;
	struct end end;

	(void)state;
	revoke_ns = 1000000;
	open_end(&end, "a", SMALL, false);
	revoke_ns = 0;
	slot = &segment_of(&end, &mapped)->qps[end.qp->qp_num & QP_SLOT_MASK];
	card = card_of(&end);
	connect_end(&end, &other.card);
	tell(other.socket, &card);
	hear(other.socket, &card);
	sge = sge_of(&end, 8);
	assert_int_equal(post(&end, IBV_WR_RDMA_WRITE, &sge, other.card.addr, other.card.rkey), 0);
	assert_int_equal(next_wc(&end).status, IBV_WC_SUCCESS);
	atomic_store(&slot->touch_kind, TOUCH_GUARDED);
	atomic_store(&slot->touch_mr, end.mr->rkey & SLOT_MASK);
	atomic_store(&slot->touch_addr, (uintptr_t)end.mem);
	atomic_store(&slot->touch_bytes, 64);
	atomic_store(&slot->touch_thread, (uint32_t)other.pid);
	atomic_fetch_or(&slot->op, OP_BUSY); /* as that thread would */
	assert_int_equal(share_backing_find(end.mem, SMALL, &before), 0);
	while (hf_qp_fence(end.qp) == -EINPROGRESS)
		cpu_relax();
	assert_int_equal(hf_qp_fence(end.qp), 0);
	assert_int_equal(share_backing_find(end.mem, SMALL, &after), 0);
	assert_int_not_equal(after.inode, before.inode);
	share_segment_close(&mapped);
	end_other(&other, SIGKILL);
	close_end(&end);
}

/* Its machine cannot guard the copy: region and qp are kept until that operation has come to its end. */
static void what_an_operation_touches_that_cannot_be_ended_is_kept(void **state)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};
	struct share_segment mapped;
	struct end pair[2];
	struct qp_slot *slot;

	(void)state;
	open_pair(pair);
	to_rts(&pair[0]);
	assert_int_equal(write_status(&pair[0], &pair[1], pair[1].mr->rkey), IBV_WC_SUCCESS);
	slot = &segment_of(&pair[1], &mapped)->qps[pair[1].qp->qp_num & QP_SLOT_MASK];
	atomic_store(&slot->touch_kind, TOUCH_FREE);
	atomic_fetch_or(&slot->op, OP_BUSY);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(hf_mr_dereg(pair[1].mr), -EBUSY);
		assert_int_equal(hf_qp_modify(pair[1].qp, &attr, IBV_QP_STATE), -EBUSY);
		assert_int_equal(hf_qp_destroy(pair[1].qp), -EBUSY);
		assert_int_equal(hf_qp_fence(pair[1].qp), -EIO);
	}
	atomic_fetch_or(&slot->op, OP_GIVEN); /* as the requester does when it has seen OP_TAKEN */
	assert_int_equal(hf_mr_dereg(pair[1].mr), 0);
	pair[1].mr = NULL;
	share_segment_close(&mapped);
	close_pair(pair); /* destroys the qp */
}

/* Wherever the footer goes. It may be about to be stored by a thread that just has not got the core. */
static void the_fence_waits_until_the_thread_of_a_footer_is_out_of_it(void **state)
{
	struct other other = start_requester(SPIN);
	struct share_segment mapped;
	struct qp_slot *slot;
	struct ibv_sge sge;
	struct card card;
	struct end end;

	(void)state;
	open_end(&end, "a", SMALL, false);
	slot = &segment_of(&end, &mapped)->qps[end.qp->qp_num & QP_SLOT_MASK];
	card = card_of(&end);
	connect_end(&end, &other.card);
	tell(other.socket, &card);
	hear(other.socket, &card);
	sge = sge_of(&end, 8);
	assert_int_equal(post(&end, IBV_WR_RDMA_WRITE, &sge, other.card.addr, other.card.rkey), 0);
	assert_int_equal(next_wc(&end).status, IBV_WC_SUCCESS);
	atomic_store(&slot->touch_kind, TOUCH_READ);
	atomic_store(&slot->touch_foot, FOOT_GUARDED);
	atomic_store(&slot->touch_thread, (uint32_t)other.pid);
	atomic_fetch_or(&slot->op, OP_BUSY); /* as that thread would */
	while ((atomic_load(&slot->op) & OP_TAKEN) == 0)
		assert_int_equal(hf_qp_fence(end.qp), -EINPROGRESS);
	assert_int_equal(hf_qp_fence(end.qp), -EINPROGRESS);
	assert_int_equal(kill(other.pid, SIGSTOP), 0);
	assert_int_equal(waitpid(other.pid, NULL, WUNTRACED), other.pid);
	assert_int_equal(hf_qp_fence(end.qp), 0);
	share_segment_close(&mapped);
	end_other(&other, SIGKILL);
	close_end(&end);
}

/* The pages move under every registration of them, on whichever port of the process. */
static void memory_that_moved_is_still_reached_through_another_port(void **state)
{
	struct other other = start_requester(IBV_WR_RDMA_WRITE);
	struct ibv_qp_attr attr = {.qp_access_flags = 0};
	struct hf_error error;
	struct end end, pair[2];
	struct hf_mr *again;
	struct ibv_sge sge;

	(void)state;
	open_end(&end, "z", BIG, false);
	open_pair(pair);
	to_rts(&pair[0]);
	assert_int_equal(hf_mr_reg(pair[1].pd, end.mem, BIG, (uintptr_t)end.mem, ALL_ACCESS, &again, &error), 0);
	pair[0].mem[0] = 1;
	sge = sge_of(&pair[0], 1);
	assert_int_equal(post(&pair[0], IBV_WR_RDMA_WRITE, &sge, (uintptr_t)end.mem, again->rkey), 0);
	assert_int_equal(next_wc(&pair[0]).status, IBV_WC_SUCCESS);
	let_it_copy(&end, &other);
	stop(&other);
	assert_int_equal(hf_qp_modify(end.qp, &attr, IBV_QP_ACCESS_FLAGS), -EINPROGRESS);
	while (hf_qp_fence(end.qp) == -EINPROGRESS)
		cpu_relax();
	pair[0].mem[0] = 2;
	assert_int_equal(post(&pair[0], IBV_WR_RDMA_WRITE, &sge, (uintptr_t)end.mem, again->rkey), 0);
	assert_int_equal(next_wc(&pair[0]).status, IBV_WC_SUCCESS);
	assert_int_equal(end.mem[0], 2);
	end_other(&other, SIGKILL);
	assert_int_equal(hf_mr_dereg(again), 0);
	close_pair(pair);
	close_end(&end);
}

static void a_receive_held_by_a_killed_process_comes_back(void **state)
{
	struct other other = start_requester(IBV_WR_SEND);
	struct hf_dev_event event = {0};
	struct ibv_recv_wr recv, *bad;
	struct ibv_sge sge;
	struct end end;
	unsigned got = 0;
	struct ibv_wc wc;

	(void)state;
	open_end(&end, "a", BIG, true);
	sge = sge_of(&end, BIG);
	for (unsigned i = 0; i < 4; i++) {
		recv = (struct ibv_recv_wr){.wr_id = i, .sg_list = &sge, .num_sge = 1};
		assert_int_equal(hf_srq_post_recv(end.srq, &recv, &bad), 0);
	}
	let_it_copy(&end, &other);
	end_other(&other, SIGKILL);
	while (hf_qp_fence(end.qp) == -EINPROGRESS)
		cpu_relax();
	while (hf_dev_get_event(end.dev, &event) == 0 || event.type != IBV_EVENT_QP_LAST_WQE_REACHED)
		cpu_relax();
	while (hf_cq_poll(end.cq, 1, &wc) == 1) {
		assert_int_equal(wc.wr_id, got++);
		if (wc.status == IBV_WC_WR_FLUSH_ERR)
			break;
	}
	assert_int_equal(wc.status, IBV_WC_WR_FLUSH_ERR);
	for (unsigned i = 0; i < got; i++)
		assert_int_equal(hf_srq_post_recv(end.srq, &recv, &bad), 0);
	assert_int_equal(hf_srq_post_recv(end.srq, &recv, &bad), -ENOMEM);
	close_end(&end);
}

static void count_file(const char *name, void *context)
{
	*(unsigned *)context += strspn(name, "0123456789abcdef") == 32;
}

static unsigned count_files(void)
{
	struct share_dir *dir;
	unsigned n = 0;

	assert_int_equal(share_dir_open(fabric, &dir, NULL), 0);
	share_dir_list(dir, count_file, &n);
	share_dir_close(dir);
	return n;
}

static void what_a_killed_process_left_is_removed_by_the_next(void **state)
{
	struct other other = start_requester(IBV_WR_SEND);
	unsigned files;
	struct end end;

	(void)state;
	end_other(&other, SIGKILL);
	files = count_files();
	assert_true(files >= 2); /* a port and an arena */
	open_end(&end, "b", SMALL, false);
	assert_int_equal(count_files(), 2);
	close_end(&end);
	assert_int_equal(count_files(), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(access_can_be_taken_from_a_stopped_process),
		cmocka_unit_test(what_an_operation_touches_that_cannot_be_ended_is_kept),
		cmocka_unit_test(a_revocation_waits_for_a_stopped_process_as_long_as_it_was_told_to),
		cmocka_unit_test(no_page_moves_when_access_is_taken_from_a_stopped_process),
		cmocka_unit_test(pages_move_when_the_thread_of_a_guarded_copy_cannot_be_seen_stopped),
		cmocka_unit_test(the_fence_waits_until_the_thread_of_a_footer_is_out_of_it),
		cmocka_unit_test(memory_that_moved_is_still_reached_through_another_port),
		cmocka_unit_test(a_receive_held_by_a_killed_process_comes_back),
		cmocka_unit_test(what_a_killed_process_left_is_removed_by_the_next),
	};
	int failed;

	snprintf(fabric, sizeof(fabric), "test-shm-%d", (int)getpid());
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	hf_fabric_remove(fabric);
	return failed;
}
