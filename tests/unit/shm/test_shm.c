/* Corners of the shm device that the conformance suite cannot see: many qps, memory of all kinds, what a peer's segment
 * may contain. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <holdfast/fabric.h>
#include "base/order.h"
#include "bed.h"
#include "dev/shm/shm.h"

/* ---- many ---- */

#define MANY          5000u
#define QP_BYTES_MOST 16384u /* resident, of a qp that was not used yet */

static uint64_t resident_bytes(void)
{
	FILE *file = fopen("/proc/self/statm", "re");
	unsigned long long total = 0, resident = 0;

	assert_non_null(file);
	assert_int_equal(fscanf(file, "%llu %llu", &total, &resident), 2);
	fclose(file);
	return resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* By a sanitizer, or by the C library that fills them to find who reads them too early. */
static bool allocations_are_touched(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	return true;
#else
	const char *perturb = getenv("MALLOC_PERTURB_");

	return perturb != NULL && strcmp(perturb, "0") != 0;
#endif
}

static void create_many(struct end *end, struct hf_qp **qps)
{
	struct hf_qp_init init = {
		.send_cq = end->cq, .recv_cq = end->cq, .cap = {256, 16, 2, 1, 64}, .type = IBV_QPT_RC};

	for (unsigned i = 0; i < MANY; i++)
		assert_int_equal(hf_qp_create(end->pd, &init, &qps[i]), 0);
}

static void connect_many(struct end *end, struct hf_qp **qps, const struct end *peer, struct hf_qp **peer_qps)
{
	struct end one = *end;

	for (unsigned i = 0; i < MANY; i++) {
		one.qp = qps[i];
		connect_end(&one, &(struct card){.gid = hf_dev_gid(peer->dev), .qp_num = peer_qps[i]->qp_num});
	}
}

/* All with a wr under way when the port goes down: one event, and every wr completes behind its fence. */
static void thousands_of_qps_share_a_port(void **state)
{
	static struct hf_qp *of_a[MANY], *of_b[MANY];
	struct hf_dev_event event;
	struct end pair[2], one;
	struct ibv_wc wc[64];
	unsigned flushed = 0;
	uint64_t before;

	(void)state;
	open_pair(pair);
	before = resident_bytes();
	create_many(&pair[0], of_a);
	create_many(&pair[1], of_b);
	connect_many(&pair[0], of_a, &pair[1], of_b);
	connect_many(&pair[1], of_b, &pair[0], of_a);
	if (!allocations_are_touched())
		assert_in_range(resident_bytes() - before, 1, 2ull * MANY * QP_BYTES_MOST);
	assert_int_equal(hf_dev_set_link(pair[0].dev, HF_LINK_BOTH, false), 0);
	one = pair[0];
	for (unsigned i = 0; i < MANY; i++) {
		struct ibv_sge sge = {.addr = (uintptr_t)one.mem, .length = 8, .lkey = one.mr->lkey};

		one.qp = of_a[i];
		assert_int_equal(post(&one, IBV_WR_RDMA_WRITE, &sge, (uintptr_t)pair[1].mem, pair[1].mr->rkey), 0);
	}
	assert_int_equal(hf_dev_get_event(pair[0].dev, &event), 1);
	assert_int_equal(event.type, IBV_EVENT_PORT_ERR);
	assert_int_equal(hf_dev_get_event(pair[0].dev, &event), 0);
	for (unsigned i = 0; i < MANY; i++)
		assert_int_equal(hf_qp_fence(of_a[i]), 0);
	while (flushed < MANY)
		flushed += (unsigned)hf_cq_poll(pair[0].cq, 64, wc);
	assert_int_equal(hf_cq_poll(pair[0].cq, 64, wc), 0);
	for (unsigned i = 0; i < MANY; i++) {
		assert_int_equal(hf_qp_destroy(of_a[i]), 0);
		assert_int_equal(hf_qp_destroy(of_b[i]), 0);
	}
	assert_int_equal(hf_dev_set_link(pair[0].dev, HF_LINK_BOTH, true), 0);
	close_pair(pair);
}

static int post_unsignaled(struct end *end, struct ibv_sge *sge, const struct end *peer)
{
	struct ibv_send_wr *bad, wr = {.sg_list = sge,
					 .num_sge = 1,
					 .opcode = IBV_WR_RDMA_WRITE,
					 .wr.rdma = {.remote_addr = (uintptr_t)peer->mem, .rkey = peer->mr->rkey}};

	return hf_qp_post_send(end->qp, &wr, &bad);
}

/* Log writes, and the wrs that they follow, are such. */
static void writes_that_executed_and_want_no_completion_take_no_places(void **state)
{
	struct end pair[2];
	struct ibv_sge sge;
	struct ibv_wc wc[2];

	(void)state;
	open_pair(pair);
	to_rts(&pair[0]);
	to_rts(&pair[1]);
	sge = (struct ibv_sge){.addr = (uintptr_t)pair[0].mem, .length = 8, .lkey = pair[0].mr->lkey};
	for (unsigned i = 1; i <= 4 * pair[0].qp->cap.max_send_wr; i++) {
		memcpy(pair[0].mem, &i, sizeof(i));
		assert_int_equal(post_unsignaled(&pair[0], &sge, &pair[1]), 0);
		assert_memory_equal(pair[1].mem, &i, sizeof(i));
	}
	assert_int_equal(hf_cq_poll(pair[0].cq, 2, wc), 0);
	assert_int_equal(post(&pair[0], IBV_WR_RDMA_WRITE, &sge, (uintptr_t)pair[1].mem, pair[1].mr->rkey), 0);
	assert_int_equal(hf_cq_poll(pair[0].cq, 2, wc), 1);
	close_pair(pair);
}

/* Those that cannot execute wait, and the queue becomes full. */
static void writes_that_wait_for_the_link_keep_their_places(void **state)
{
	struct end pair[2];
	struct ibv_sge sge;
	unsigned taken = 0;

	(void)state;
	open_pair(pair);
	to_rts(&pair[0]);
	to_rts(&pair[1]);
	sge = (struct ibv_sge){.addr = (uintptr_t)pair[0].mem, .length = 8, .lkey = pair[0].mr->lkey};
	assert_int_equal(hf_dev_set_link(pair[1].dev, HF_LINK_BOTH, false), 0);
	while (taken <= pair[0].qp->cap.max_send_wr && post_unsignaled(&pair[0], &sge, &pair[1]) == 0)
		taken++;
	assert_int_equal(taken, pair[0].qp->cap.max_send_wr);
	assert_int_equal(hf_dev_set_link(pair[1].dev, HF_LINK_BOTH, true), 0);
	close_pair(pair);
}

static void psns_that_cannot_be_are_no_atomic_result(void **state)
{
	struct hf_atomic_result results[4];
	struct end pair[2];
	struct qp_slot *shared;

	(void)state;
	open_pair(pair);
	shared = shm_qp_of(pair[1].qp)->shared;
	shared->results[0].psn = UINT32_MAX;
	shared->atomics = 1;
	assert_int_equal(hf_qp_fence(pair[1].qp), 0);
	assert_int_equal(hf_qp_atomic_results(pair[1].qp, results, 4), 1);
	assert_int_equal(results[0].psn, 0xffffff);
	close_pair(pair);
}

static _Atomic bool is_over;

/* The owner: fences its qp in the middle of the next operation. */
static void *fence_a_busy_qp(void *context)
{
	struct end *owner = context;
	struct shm_qp *qp = shm_qp_of(owner->qp);

	qp->stuck_ns = 0;
	while (!atomic_load(&is_over) && (atomic_load(&qp->shared->op) & OP_BUSY) == 0)
		cpu_relax();
	(void)hf_qp_fence(owner->qp);
	return NULL;
}

/* The answer to a READ is lost, so it executes again, and the owner takes that over. False: it came too late. */
static bool reads_again_from_a_fenced_qp(void)
{
	struct end pair[2];
	struct ibv_sge sge;
	pthread_t owner;
	bool taken;
	struct ibv_wc wc;

	open_end(&pair[0], "a", BIG, false);
	open_end(&pair[1], "b", BIG, false);
	to_rtr(&pair[0], &(struct card){.gid = hf_dev_gid(pair[1].dev), .qp_num = pair[1].qp->qp_num});
	to_rtr(&pair[1], &(struct card){.gid = hf_dev_gid(pair[0].dev), .qp_num = pair[0].qp->qp_num});
	to_rts(&pair[0]);
	to_rts(&pair[1]);
	sge = sge_of(&pair[0], BIG);
	assert_int_equal(hf_dev_set_link(pair[0].dev, HF_LINK_RX, false), 0);
	assert_int_equal(post(&pair[0], IBV_WR_RDMA_READ, &sge, (uintptr_t)pair[1].mem, pair[1].mr->rkey), 0);
	assert_int_equal(hf_cq_poll(pair[0].cq, 1, &wc), 0);
	atomic_store(&is_over, false);
	assert_int_equal(pthread_create(&owner, NULL, fence_a_busy_qp, &pair[1]), 0);
	assert_int_equal(hf_dev_set_link(pair[0].dev, HF_LINK_RX, true), 0);
	wc = next_wc(&pair[0]);
	atomic_store(&is_over, true);
	assert_int_equal(pthread_join(owner, NULL), 0);
	taken = (atomic_load(&shm_qp_of(pair[1].qp)->shared->op) & OP_TAKEN) != 0;
	if (taken)
		assert_int_not_equal(wc.status, IBV_WC_SUCCESS);
	close_pair(pair);
	return taken;
}

static void a_read_that_executes_again_fails_when_the_owner_fences_it(void **state)
{
	(void)state;
	while (!reads_again_from_a_fenced_qp())
		continue;
}

/* ---- memory ---- */

#define NO_ATOMICS (ALL_ACCESS & ~IBV_ACCESS_REMOTE_ATOMIC)

static void private_memory_is_written_read_and_received_into(void **state)
{
	static uint64_t words[3]; /* 0: of a; 1: of b, written and read; 2: of b, received into */
	struct hf_error error = {0};
	struct end pair[2];
	struct ibv_sge sge = {.addr = (uintptr_t)&words[0], .length = 8};
	struct ibv_sge into = {.addr = (uintptr_t)&words[2], .length = 8};
	struct ibv_recv_wr recv = {.sg_list = &into, .num_sge = 1}, *bad;
	struct hf_mr *mr[2];

	(void)state;
	words[0] = 42;
	open_pair(pair);
	to_rts(&pair[0]);
	assert_int_equal(hf_mr_reg(pair[0].pd, &words[0], 8, 0, IBV_ACCESS_LOCAL_WRITE, &mr[0], &error), 0);
	assert_int_equal(hf_mr_reg(pair[1].pd, &words[1], 16, (uintptr_t)&words[1], NO_ATOMICS, &mr[1], &error), 0);
	sge.lkey = mr[0]->lkey;
	into.lkey = mr[1]->lkey;
	assert_int_equal(post(&pair[0], IBV_WR_RDMA_WRITE, &sge, (uintptr_t)&words[1], mr[1]->rkey), 0);
	assert_int_equal(next_wc(&pair[0]).status, IBV_WC_SUCCESS);
	assert_int_equal(words[1], 42);
	words[1] = 43;
	assert_int_equal(post(&pair[0], IBV_WR_RDMA_READ, &sge, (uintptr_t)&words[1], mr[1]->rkey), 0);
	assert_int_equal(next_wc(&pair[0]).status, IBV_WC_SUCCESS);
	assert_int_equal(words[0], 43);
	assert_int_equal(hf_qp_post_recv(pair[1].qp, &recv, &bad), 0);
	assert_int_equal(post(&pair[0], IBV_WR_SEND, &sge, 0, 0), 0);
	assert_int_equal(next_wc(&pair[0]).status, IBV_WC_SUCCESS);
	assert_int_equal(next_wc(&pair[1]).byte_len, 8);
	assert_int_equal(words[2], 43);
	assert_int_equal(hf_mr_dereg(mr[0]), 0);
	assert_int_equal(hf_mr_dereg(mr[1]), 0);
	close_pair(pair);
}

static void memory_that_is_not_there_is_not_registered(void **state)
{
	char *pages = mmap(NULL, 3 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct hf_error error = {0};
	struct end pair[2];
	struct hf_mr *mr;

	(void)state;
	assert_ptr_not_equal(pages, MAP_FAILED);
	assert_int_equal(munmap(pages + 4096, 4096), 0);
	assert_int_equal(mprotect(pages, 4096, PROT_READ), 0);
	open_pair(pair);
	assert_int_equal(hf_mr_reg(pair[0].pd, pages, 3 * 4096, 0, IBV_ACCESS_LOCAL_WRITE, &mr, &error), -EFAULT);
	assert_non_null(strstr(error.text, "not all of the memory is mapped"));
	assert_int_equal(hf_mr_reg(pair[0].pd, pages, 4096, 0, IBV_ACCESS_LOCAL_WRITE, &mr, &error), -EACCES);
	assert_int_equal(hf_mr_reg(pair[0].pd, pages, 4096, 0, IBV_ACCESS_REMOTE_READ, &mr, &error), 0);
	assert_int_equal(hf_mr_dereg(mr), 0);
	close_pair(pair);
	munmap(pages, 3 * 4096);
}

/* A NIC would have pinned it; here its peer is refused, and lives. */
static void private_memory_that_was_unmapped_while_registered_is_refused(void **state)
{
	char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct hf_error error = {0};
	struct end pair[2];
	struct ibv_sge sge = {.length = 8};
	struct hf_mr *mr;

	(void)state;
	assert_ptr_not_equal(page, MAP_FAILED);
	open_pair(pair);
	to_rts(&pair[0]);
	assert_int_equal(hf_mr_reg(pair[1].pd, page, 4096, (uintptr_t)page, NO_ATOMICS, &mr, &error), 0);
	munmap(page, 4096);
	sge.addr = (uintptr_t)pair[0].mem;
	sge.lkey = pair[0].mr->lkey;
	assert_int_equal(post(&pair[0], IBV_WR_RDMA_WRITE, &sge, (uintptr_t)page, mr->rkey), 0);
	assert_int_equal(next_wc(&pair[0]).status, IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(hf_mr_dereg(mr), 0);
	close_pair(pair);
}

static void memory_that_is_registered_anew_is_reached_by_its_new_key_only(void **state)
{
	struct hf_error error;
	struct end pair[2];
	uint32_t old;

	(void)state;
	open_pair(pair);
	to_rts(&pair[0]);
	old = pair[1].mr->rkey;
	assert_int_equal(write_status(&pair[0], &pair[1], old), IBV_WC_SUCCESS);
	assert_int_equal(hf_mr_dereg(pair[1].mr), 0);
	assert_int_equal(
		hf_mr_reg(pair[1].pd, pair[1].mem, SMALL, (uintptr_t)pair[1].mem, ALL_ACCESS, &pair[1].mr, &error), 0);
	assert_int_equal(write_status(&pair[0], &pair[1], pair[1].mr->rkey), IBV_WC_SUCCESS);
	assert_int_equal(write_status(&pair[0], &pair[1], old), IBV_WC_REM_ACCESS_ERR);
	close_pair(pair);
}

static void a_local_key_does_not_pass_for_a_remote_one(void **state)
{
	struct end pair[2];

	(void)state;
	open_pair(pair);
	to_rts(&pair[0]);
	assert_int_equal(write_status(&pair[0], &pair[1], pair[1].mr->lkey), IBV_WC_REM_ACCESS_ERR);
	close_pair(pair);
}

/* ---- what a peer shows ---- */

static void a_ring_that_is_nowhere_is_no_answer(void **state)
{
	struct share_segment mapped;
	struct end pair[2];
	struct qp_slot *slot;

	(void)state;
	open_pair(pair);
	slot = &segment_of(&pair[1], &mapped)->qps[pair[1].qp->qp_num & QP_SLOT_MASK];
	slot->receives.offset = UINT64_MAX / 64 * 64;
	to_rts(&pair[0]);
	assert_int_equal(write_status(&pair[0], &pair[1], pair[1].mr->rkey), IBV_WC_RETRY_EXC_ERR);
	share_segment_close(&mapped);
	close_pair(pair);
}

static void counts_that_cannot_be_are_no_answer(void **state)
{
	struct share_segment mapped;
	struct ibv_sge sge;
	struct end pair[2];
	struct qp_slot *slot;

	(void)state;
	open_pair(pair);
	to_rts(&pair[0]);
	slot = &segment_of(&pair[1], &mapped)->qps[pair[1].qp->qp_num & QP_SLOT_MASK];
	atomic_store(&slot->recv_tail, 1u << 30);
	sge = sge_of(&pair[0], 8);
	assert_int_equal(post(&pair[0], IBV_WR_SEND, &sge, 0, 0), 0);
	assert_int_equal(next_wc(&pair[0]).status, IBV_WC_RETRY_EXC_ERR);
	share_segment_close(&mapped);
	close_pair(pair);
}

static void a_registration_of_a_file_that_is_not_there_is_no_answer(void **state)
{
	struct share_segment mapped;
	struct end pair[2];
	struct mr_entry *entry;

	(void)state;
	open_pair(pair);
	to_rts(&pair[0]);
	entry = &segment_of(&pair[1], &mapped)->mrs[pair[1].mr->rkey & SLOT_MASK];
	entry->fd = 1 << 20;
	assert_int_equal(write_status(&pair[0], &pair[1], pair[1].mr->rkey), IBV_WC_RETRY_EXC_ERR);
	share_segment_close(&mapped);
	close_pair(pair);
}

/* Another path would not mend it, so it must not look like one that is broken. */
static void a_wr_whose_memory_we_cannot_map_fails_as_our_own_error(void **state)
{
	struct rlimit limit, none;
	struct end pair[2];

	(void)state;
	open_pair(pair);
	to_rts(&pair[0]);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	none = limit;
	none.rlim_cur = 3;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	assert_int_equal(write_status(&pair[0], &pair[1], pair[1].mr->rkey), IBV_WC_LOC_QP_OP_ERR);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	close_pair(pair);
}

static void receives_that_were_never_posted_do_not_complete(void **state)
{
	struct share_segment mapped;
	struct segment *shared;
	struct end pair[2];
	struct ibv_wc wc;
	uint32_t slot;

	(void)state;
	open_pair(pair);
	slot = pair[1].qp->qp_num & QP_SLOT_MASK;
	shared = segment_of(&pair[1], &mapped);
	atomic_store(&shared->qps[slot].op, OP_WORD(0, 1u << 20));
	qp_bitmap_set(&shared->cqs[shared->qps[slot].recv_cq].receives, slot);
	assert_int_equal(hf_cq_poll(pair[1].cq, 1, &wc), 0);
	share_segment_close(&mapped);
	close_pair(pair);
}

/* ---- what is mapped before it is needed ---- */

/* Mappings of this process of the file that `addr` lies in; or, with a name, of files whose path has that in it. */
static unsigned count_mappings(const void *addr, const char *name)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	unsigned long long start, end, inode, wanted = 0;
	char line[512], path[256];
	unsigned n = 0;

	assert_non_null(maps);
	for (int pass = 0; pass < 2; pass++) {
		rewind(maps);
		while (fgets(line, sizeof(line), maps) != NULL) {
			path[0] = '\0';
			if (sscanf(line, "%llx-%llx %*s %*s %*s %llu %255s", &start, &end, &inode, path) < 3)
				continue;
			if (pass == 0 && start <= (uintptr_t)addr && (uintptr_t)addr < end)
				wanted = inode;
			if (pass == 1 && (name == NULL ? inode == wanted : strstr(path, name) != NULL))
				n++;
		}
	}
	fclose(maps);
	return n;
}

static void memory_of_a_peer_is_mapped_once_for_all_rails(void **state)
{
	struct end rails[2][2];
	struct hf_error error;
	struct hf_mr *again;
	struct ibv_sge sge;
	uint8_t *memory;

	(void)state;
	open_pair(rails[0]);
	open_end(&rails[1][0], "c", SMALL, false);
	open_end(&rails[1][1], "d", SMALL, false);
	to_rtr(&rails[1][0], &(struct card){.gid = hf_dev_gid(rails[1][1].dev), .qp_num = rails[1][1].qp->qp_num});
	to_rtr(&rails[1][1], &(struct card){.gid = hf_dev_gid(rails[1][0].dev), .qp_num = rails[1][0].qp->qp_num});
	to_rts(&rails[0][0]);
	to_rts(&rails[1][0]);
	memory = rails[0][1].mem;
	assert_int_equal(hf_mr_reg(rails[1][1].pd, memory, SMALL, (uintptr_t)memory, ALL_ACCESS, &again, &error), 0);
	assert_int_equal(count_mappings(memory, NULL), 1);
	assert_int_equal(write_status(&rails[0][0], &rails[0][1], rails[0][1].mr->rkey), IBV_WC_SUCCESS);
	assert_int_equal(count_mappings(memory, NULL), 2);
	rails[1][0].mem[0] = 9;
	sge = sge_of(&rails[1][0], 1);
	assert_int_equal(post(&rails[1][0], IBV_WR_RDMA_WRITE, &sge, (uintptr_t)memory, again->rkey), 0);
	assert_int_equal(next_wc(&rails[1][0]).status, IBV_WC_SUCCESS);
	assert_int_equal(memory[0], 9);
	assert_int_equal(count_mappings(memory, NULL), 2);
	/* The one that mapped it ends; the other still has it. */
	close_end(&rails[0][0]);
	assert_int_equal(count_mappings(memory, NULL), 2);
	rails[1][0].mem[0] = 10;
	assert_int_equal(post(&rails[1][0], IBV_WR_RDMA_WRITE, &sge, (uintptr_t)memory, again->rkey), 0);
	assert_int_equal(next_wc(&rails[1][0]).status, IBV_WC_SUCCESS);
	assert_int_equal(memory[0], 10);
	close_end(&rails[1][0]);
	assert_int_equal(count_mappings(memory, NULL), 1);
	assert_int_equal(hf_mr_dereg(again), 0);
	close_end(&rails[0][1]);
	close_end(&rails[1][1]);
}

static void whoever_is_ready_first_has_the_rings_of_the_other_mapped(void **state)
{
	struct end a, b;
	unsigned before;

	(void)state;
	open_end(&a, "a", SMALL, false);
	open_end(&b, "b", SMALL, false);
	to_rtr(&a, &(struct card){.gid = hf_dev_gid(b.dev), .qp_num = b.qp->qp_num});
	before = count_mappings(NULL, ".0"); /* the first arena of a port */
	to_rts(&a);
	assert_int_equal(count_mappings(NULL, ".0"), before + 1);
	close_end(&a);
	close_end(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(thousands_of_qps_share_a_port),
		cmocka_unit_test(writes_that_executed_and_want_no_completion_take_no_places),
		cmocka_unit_test(writes_that_wait_for_the_link_keep_their_places),
		cmocka_unit_test(psns_that_cannot_be_are_no_atomic_result),
		cmocka_unit_test(a_read_that_executes_again_fails_when_the_owner_fences_it),
		cmocka_unit_test(private_memory_is_written_read_and_received_into),
		cmocka_unit_test(memory_that_is_not_there_is_not_registered),
		cmocka_unit_test(private_memory_that_was_unmapped_while_registered_is_refused),
		cmocka_unit_test(memory_that_is_registered_anew_is_reached_by_its_new_key_only),
		cmocka_unit_test(a_local_key_does_not_pass_for_a_remote_one),
		cmocka_unit_test(a_ring_that_is_nowhere_is_no_answer),
		cmocka_unit_test(counts_that_cannot_be_are_no_answer),
		cmocka_unit_test(a_registration_of_a_file_that_is_not_there_is_no_answer),
		cmocka_unit_test(a_wr_whose_memory_we_cannot_map_fails_as_our_own_error),
		cmocka_unit_test(receives_that_were_never_posted_do_not_complete),
		cmocka_unit_test(memory_of_a_peer_is_mapped_once_for_all_rails),
		cmocka_unit_test(whoever_is_ready_first_has_the_rings_of_the_other_mapped),
	};
	int failed;

	snprintf(fabric, sizeof(fabric), "test-shm-%d", (int)getpid());
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	hf_fabric_remove(fabric);
	return failed;
}
