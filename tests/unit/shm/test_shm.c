/* Corners of the shm device that the conformance suite cannot see: what dead and stopped processes leave behind, what a
 * peer's segment may contain. Where a second process is needed it is forked before this one opens its port. */
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
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <holdfast/dev.h>
#include <holdfast/fabric.h>
#include "base/order.h"
#include "dev/shm/segment.h"
#include "env/share.h"

#define BIG   (64u << 20)
#define SMALL 65536u
#define ALL_ACCESS                                                                                                     \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)
#define PATIENCE 14               /* 67 ms, once */
#define SPIN     IBV_WR_LOCAL_INV /* no operation, but a thread that runs */

struct end {
	struct hf_dev *dev;
	struct hf_pd *pd;
	struct hf_cq *cq;
	struct hf_srq *srq;
	struct hf_qp *qp;
	struct hf_mr *mr;
	uint8_t *mem;
};

/* What one end tells the other. */
struct card {
	union ibv_gid gid;
	uint32_t qp_num, rkey;
	uint64_t addr;
};

static char fabric[HF_NAME_BYTES];
static uint64_t revoke_ns; /* of qps that are made from now on */

static void open_end(struct end *end, const char *node, size_t bytes, bool shared_receives)
{
	struct hf_dev_config config = {.kind = "shm", .fabric = fabric, .node = node, .rail = "r0"};
	struct hf_qp_init init = {.cap = {16, 16, 4, 4, 64}, .type = IBV_QPT_RC, .revoke_ns = revoke_ns};
	struct hf_error error = {0};
	void *mem;

	*end = (struct end){0};
	if (hf_dev_open(hf_env_host(), &config, &end->dev, &error) != 0)
		fail_msg("%s", error.text);
	assert_int_equal(hf_pd_alloc(end->dev, &end->pd), 0);
	assert_int_equal(hf_cq_create(end->dev, 64, NULL, &end->cq), 0);
	if (shared_receives)
		assert_int_equal(hf_srq_create(end->pd, 4, 1, NULL, &end->srq), 0);
	init.send_cq = init.recv_cq = end->cq;
	init.srq = end->srq;
	assert_int_equal(hf_qp_create(end->pd, &init, &end->qp), 0);
	assert_int_equal(hf_mem_alloc(hf_env_host(), bytes, &mem, &error), 0);
	end->mem = mem;
	assert_int_equal(hf_mr_reg(end->pd, mem, bytes, (uintptr_t)mem, ALL_ACCESS, &end->mr, &error), 0);
}

static void close_end(struct end *end)
{
	assert_int_equal(hf_qp_destroy(end->qp), 0);
	assert_int_equal(hf_srq_destroy(end->srq), 0);
	assert_int_equal(hf_mr_dereg(end->mr), 0);
	assert_int_equal(hf_cq_destroy(end->cq), 0);
	assert_int_equal(hf_pd_free(end->pd), 0);
	hf_mem_free(hf_env_host(), end->mem);
	hf_dev_close(end->dev);
}

static struct card card_of(const struct end *end)
{
	return (struct card){.gid = hf_dev_gid(end->dev),
		.qp_num = end->qp->qp_num,
		.rkey = end->mr->rkey,
		.addr = (uintptr_t)end->mem};
}

static void to_rtr(struct end *end, const struct card *peer)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = ALL_ACCESS};

	assert_int_equal(
		hf_qp_modify(end->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), 0);
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_4096,
		.dest_qp_num = peer->qp_num,
		.max_dest_rd_atomic = 4,
		.min_rnr_timer = 1};
	attr.ah_attr.is_global = 1;
	attr.ah_attr.grh.dgid = peer->gid;
	assert_int_equal(hf_qp_modify(end->qp, &attr,
				 IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
					 IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
		0);
}

static void to_rts(struct end *end)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS, .timeout = PATIENCE, .retry_cnt = 0, .rnr_retry = 7, .max_rd_atomic = 4};

	assert_int_equal(hf_qp_modify(end->qp, &attr,
				 IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
					 IBV_QP_MAX_QP_RD_ATOMIC),
		0);
}

static void connect_end(struct end *end, const struct card *peer)
{
	to_rtr(end, peer);
	to_rts(end);
}

static void open_pair(struct end pair[2])
{
	open_end(&pair[0], "a", SMALL, false);
	open_end(&pair[1], "b", SMALL, false);
	to_rtr(&pair[0], &(struct card){.gid = hf_dev_gid(pair[1].dev), .qp_num = pair[1].qp->qp_num});
	to_rtr(&pair[1], &(struct card){.gid = hf_dev_gid(pair[0].dev), .qp_num = pair[0].qp->qp_num});
}

static void close_pair(struct end pair[2])
{
	close_end(&pair[0]);
	close_end(&pair[1]);
}

static int post(struct end *end, enum ibv_wr_opcode opcode, const struct ibv_sge *sge, uint64_t addr, uint32_t rkey)
{
	struct ibv_sge local = *sge;
	struct ibv_send_wr wr = {.wr_id = 7,
		.sg_list = &local,
		.num_sge = 1,
		.opcode = opcode,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = {.remote_addr = addr, .rkey = rkey}};
	struct ibv_send_wr *bad;

	return hf_qp_post_send(end->qp, &wr, &bad);
}

static struct ibv_sge sge_of(const struct end *end, uint32_t bytes)
{
	return (struct ibv_sge){.addr = (uintptr_t)end->mem, .length = bytes, .lkey = end->mr->lkey};
}

static struct ibv_wc next_wc(struct end *end)
{
	struct ibv_wc wc;

	while (hf_cq_poll(end->cq, 1, &wc) == 0)
		cpu_relax();
	return wc;
}

static enum ibv_wc_status write_status(struct end *from, const struct end *to, uint32_t rkey)
{
	struct ibv_sge sge = sge_of(from, 8);

	assert_int_equal(post(from, IBV_WR_RDMA_WRITE, &sge, (uintptr_t)to->mem, rkey), 0);
	return next_wc(from).status;
}

static struct segment *segment_of(const struct end *end, struct share_segment *mapped)
{
	union ibv_gid gid = hf_dev_gid(end->dev);
	struct share_dir *dir;
	char name[40];

	for (int i = 0; i < 16; i++)
		snprintf(name + 2 * i, 3, "%02x", gid.raw[i]);
	snprintf(name + 32, sizeof(name) - 32, ".port");
	assert_int_equal(share_dir_open(fabric, &dir, NULL), 0);
	assert_int_equal(share_segment_open(dir, name, mapped, NULL), 0);
	share_dir_close(dir);
	return mapped->addr;
}

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
	other = stopped_in_a_copy(&end, UINT64_MAX / 2);
	slot = &segment_of(&end, &mapped)->qps[end.qp->qp_num & QP_SLOT_MASK];
	for (unsigned i = 0; i < 1000; i++)
		assert_int_equal(hf_qp_fence(end.qp), -EINPROGRESS);
	assert_int_equal(atomic_load(&slot->op) & (OP_BUSY | OP_TAKEN), OP_BUSY);
	share_segment_close(&mapped);
	end_other(&other, SIGKILL);
	assert_int_equal(hf_qp_fence(end.qp), 0); /* it cannot do anything any more */
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
		cmocka_unit_test(thousands_of_qps_share_a_port),
		cmocka_unit_test(writes_that_executed_and_want_no_completion_take_no_places),
		cmocka_unit_test(writes_that_wait_for_the_link_keep_their_places),
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
		cmocka_unit_test(access_can_be_taken_from_a_stopped_process),
		cmocka_unit_test(what_an_operation_touches_that_cannot_be_ended_is_kept),
		cmocka_unit_test(a_revocation_waits_for_a_stopped_process_as_long_as_it_was_told_to),
		cmocka_unit_test(the_fence_waits_until_the_thread_of_a_footer_is_out_of_it),
		cmocka_unit_test(memory_that_moved_is_still_reached_through_another_port),
		cmocka_unit_test(memory_of_a_peer_is_mapped_once_for_all_rails),
		cmocka_unit_test(whoever_is_ready_first_has_the_rings_of_the_other_mapped),
		cmocka_unit_test(a_receive_held_by_a_killed_process_comes_back),
		cmocka_unit_test(what_a_killed_process_left_is_removed_by_the_next),
	};

	int failed;

	snprintf(fabric, sizeof(fabric), "test-shm-%d", (int)getpid());
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	hf_fabric_remove(fabric);
	return failed;
}
