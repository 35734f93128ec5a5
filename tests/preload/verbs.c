/* A program written for libibverbs, linked with it and with nothing of ours: what `holdfast run` gives such programs
 * beyond what perftest asks for. Prints TAP. verbs HOLDFAST [WORDS]: under `holdfast run`, whose
 * options say which device; only the tests with these words in their names.
 *
 * Each test runs in two processes of its own, sides 0 and 1, which talk over a socketpair. */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "datagrams.h"
#include "own.h"
#include "receives.h"
#include "side.h"

#define ROUNDS    400
#define SHARED    8
#define WAIT_MS   60000
#define QUEUES    20000
#define CANCELLED 50

/* ---- the tests ---- */

static void what_is_not_there_says_so(struct side *side)
{
	struct ibv_cq_init_attr_ex cq_ex = {.cqe = 1};
	struct ibv_ah_attr ah = {.port_num = 1};
	struct ibv_alloc_dm_attr dm = {.length = 64};
	struct ibv_cq *cq;

	open_device(side);
	cq = ibv_create_cq(side->context, 1, NULL, NULL, 0);
	check(make_qp(side, cq, IBV_QPT_UC) == NULL && errno == EOPNOTSUPP);
	check(ibv_create_ah(side->pd, &ah) == NULL && errno == EINVAL); /* it leads nowhere */
	check(ibv_create_cq_ex(side->context, &cq_ex) == NULL && errno == EOPNOTSUPP);
	check(ibv_alloc_dm(side->context, &dm) == NULL && errno == EOPNOTSUPP);
	check(ibv_alloc_mw(side->pd, IBV_MW_TYPE_1) == NULL && errno == EOPNOTSUPP);
	check(ibv_reg_mr(side->pd, &ah, sizeof(ah), IBV_ACCESS_ON_DEMAND) == NULL && errno == EOPNOTSUPP);
	check(ibv_reg_mr_iova(side->pd, &ah, sizeof(ah), 0, 0) == NULL && errno == EOPNOTSUPP);
}

/* Programs print errno, as the providers of real devices set it. */
static void an_error_is_returned_and_in_errno(struct side *side)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS};
	struct ibv_srq_init_attr srq_init = {.attr = {.max_wr = 1, .max_sge = 1}};
	struct ibv_recv_wr wrs[2] = {{.next = &wrs[1]}}, *bad;
	struct ibv_port_attr port;
	struct ibv_srq *srq;
	struct ibv_cq *cq;
	struct ibv_qp *qp;

	open_device(side);
	cq = ibv_create_cq(side->context, 1, NULL, NULL, 0);
	srq = ibv_create_srq(side->pd, &srq_init);
	qp = make_qp(side, cq, IBV_QPT_RC);
	check(cq != NULL && srq != NULL && qp != NULL);
#define FAILS(call, error) check((errno = 0, (call) == (error) && errno == (error)))
	FAILS(ibv_modify_qp(qp, &attr, IBV_QP_STATE), EINVAL);
	FAILS(ibv_post_recv(qp, wrs, &bad), EINVAL);
	FAILS(ibv_resize_cq(cq, 0), EINVAL);
	FAILS(ibv_destroy_cq(cq), EBUSY);
	FAILS(ibv_query_port(side->context, 2, &port), EINVAL);
	FAILS(ibv_modify_srq(srq, &srq_init.attr, IBV_SRQ_MAX_WR), EOPNOTSUPP);
	FAILS(ibv_post_srq_recv(srq, wrs, &bad), ENOMEM);
	FAILS(ibv_dealloc_pd(side->pd), EBUSY);
#undef FAILS
}

/* The calls of NCCL's net_ib until it has a queue pair, in its order and found as NCCL finds them. */
static void a_library_that_opens_libibverbs_has_our_device(struct side *side)
{
	void *handle = dlopen("libibverbs.so.1", RTLD_NOW);
#define FIND(name, version) __typeof__(&(name)) find_##name = (__typeof__(&(name)))dlvsym(handle, #name, version)
	FIND(ibv_fork_init, "IBVERBS_1.1");
	FIND(ibv_event_type_str, "IBVERBS_1.1");
	FIND(ibv_rate_to_mult, "IBVERBS_1.0");
	FIND(ibv_free_device_list, "IBVERBS_1.1");
	FIND(ibv_open_device, "IBVERBS_1.1");
	FIND(ibv_alloc_pd, "IBVERBS_1.1");
	FIND(ibv_dealloc_pd, "IBVERBS_1.1");
	FIND(ibv_close_device, "IBVERBS_1.1");
#undef FIND
	struct ibv_device **(*get_list)(int *) =
		(struct ibv_device * *(*)(int *)) dlvsym(handle, "ibv_get_device_list", "IBVERBS_1.1");
	struct ibv_mr *(*reg_mr_ex)(struct ibv_pd *, void *) =
		(struct ibv_mr * (*)(struct ibv_pd *, void *)) dlvsym(handle, "ibv_reg_mr_ex", "IBVERBS_1.15");
	int (*query_speed)(struct ibv_context *, uint32_t, uint64_t *) = (int (*)(
		struct ibv_context *, uint32_t, uint64_t *))dlvsym(handle, "ibv_query_port_speed", "IBVERBS_1.16");
	struct ibv_device **devices;
	struct ibv_context *context;
	struct ibv_pd *pd;
	uint64_t speed = 0;
	int count = 0;

	(void)side;
	check(find_ibv_fork_init() == 0);
	check(strstr(find_ibv_event_type_str(IBV_EVENT_PORT_ERR), "port") != NULL);
	check(find_ibv_rate_to_mult(IBV_RATE_10_GBPS) == 4);
	devices = get_list(&count);
	check(devices != NULL && count > 0 && strcmp(devices[0]->name, "holdfast0") == 0);
	check((context = find_ibv_open_device(devices[0])) != NULL && (pd = find_ibv_alloc_pd(context)) != NULL);
	check(query_speed(context, 1, &speed) == 0 && speed > 0 && query_speed(context, 2, &speed) == EINVAL);
	errno = 0;
	check(reg_mr_ex(pd, NULL) == NULL && errno == EOPNOTSUPP);
	check(find_ibv_dealloc_pd(pd) == 0 && find_ibv_close_device(context) == 0);
	find_ibv_free_device_list(devices);
	check(dlvsym(handle, "ibv_no_such_verb", "IBVERBS_1.1") == NULL && dlerror() != NULL && dlerror() == NULL);
}

static void completion_queues_have_limits(struct side *side)
{
	struct ibv_device_attr attr;
	struct ibv_cq *cq;

	open_device(side);
	check(ibv_query_device(side->context, &attr) == 0);
	check(ibv_create_cq(side->context, 0, NULL, NULL, 0) == NULL && errno == EINVAL);
	check(ibv_create_cq(side->context, attr.max_cqe + 1, NULL, NULL, 0) == NULL && errno == EINVAL);
	check(ibv_create_cq(side->context, 1, NULL, NULL, -1) == NULL && errno == EINVAL);
	check(ibv_create_cq(side->context, 1, NULL, NULL, side->context->num_comp_vectors) == NULL && errno == EINVAL);
	cq = ibv_create_cq(side->context, attr.max_cqe, NULL, NULL, side->context->num_comp_vectors - 1);
	check(cq != NULL);
	check(ibv_resize_cq(cq, attr.max_cqe + 1) == EINVAL && ibv_resize_cq(cq, 0) == EINVAL);
	check(ibv_resize_cq(cq, 1) == 0 && ibv_destroy_cq(cq) == 0);
}

/* qperf passes it to free(3). */
static void a_device_list_is_one_piece_of_memory(struct side *side)
{
	struct ibv_device **list;
	int count;

	(void)side;
	list = ibv_get_device_list(&count);
	check(list != NULL && count > 0 && list[count] == NULL);
	free(list);
	ibv_free_device_list(ibv_get_device_list(NULL));
}

static void first_line(const char *path, char *line, int bytes)
{
	FILE *file = fopen(path, "r");

	check(file != NULL && fgets(line, bytes, file) != NULL);
	fclose(file);
}

/* As UCX and Mooncake do before they use a device. */
static void the_device_is_found_in_the_file_system(struct side *side)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	char path[PATH_MAX], real[PATH_MAX], line[64];
	struct dirent *entry;
	struct stat status;
	bool listed = false;
	DIR *folder;
	int fd;

	(void)side;
	check(list != NULL && list[0] != NULL);
	snprintf(path, sizeof(path), "/dev/infiniband/%s", list[0]->dev_name);
	check(stat(path, &status) == 0 && S_ISCHR(status.st_mode) && access(path, R_OK | W_OK) == 0);
	check((fd = open(path, O_RDWR)) >= 0 && close(fd) == 0);
	snprintf(path, sizeof(path), "%.200s/ports/1/gid_attrs/types/0", list[0]->ibdev_path);
	first_line(path, line, sizeof(line));
	check(strcmp(line, "RoCE v2\n") == 0);
	check((fd = open(path, O_RDONLY)) >= 0 && read(fd, line, sizeof(line)) == 8 && close(fd) == 0);
	snprintf(path, sizeof(path), "%.200s/ports/1/gid_attrs/ndevs/0", list[0]->ibdev_path);
	first_line(path, line, sizeof(line));
	check(strcmp(line, "lo\n") == 0);
	snprintf(path, sizeof(path), "%.200s/ports/1/rate", list[0]->ibdev_path);
	first_line(path, line, sizeof(line));
	check(strcmp(line, "100 Gb/sec (4X EDR)\n") == 0);
	snprintf(path, sizeof(path), "%.200s/device", list[0]->ibdev_path);
	check(realpath(path, real) == real);
	snprintf(path, sizeof(path), "%.2000s/max_link_width", real);
	first_line(path, line, sizeof(line));
	check(strcmp(line, "16\n") == 0);
	snprintf(path, sizeof(path), "/sys/class/infiniband/%s/../..", ibv_get_device_name(list[0]));
	check(realpath(path, real) == real);
	snprintf(path, sizeof(path), "%.2000s/numa_node", real);
	first_line(path, line, sizeof(line));
	check(strcmp(line, "-1\n") == 0);
	if ((folder = opendir("/sys/class/infiniband")) == NULL)
		check_failed("/sys/class/infiniband is there", __LINE__);
	while ((entry = readdir(folder)) != NULL)
		listed = listed || strcmp(entry->d_name, ibv_get_device_name(list[0])) == 0;
	check(closedir(folder) == 0);
	check(listed || list[1] != NULL); /* beside devices of the machine it is not listed */
	check(access("/sys/class/infiniband/holdfast1", F_OK) != 0 && access("/dev/infiniband/uverbs10240", F_OK) != 0);
	ibv_free_device_list(list);
}

static void old_and_new_queries_agree(struct side *side)
{
	int (*query_port)(struct ibv_context *, uint8_t, void *);
	struct ibv_device_attr_ex device_ex;
	struct ibv_port_attr port, old;
	struct ibv_device_attr device;
	struct ibv_gid_entry entry;
	union ibv_gid gid;

	open_device(side);
	check(ibv_query_device(side->context, &device) == 0);
	check(ibv_query_device_ex(side->context, NULL, &device_ex) == 0);
	check(memcmp(&device, &device_ex.orig_attr, sizeof(device)) == 0);
	check(device.max_qp_wr >= 1000 && device_ex.phys_port_cnt_ex == 1);
	check(ibv_query_port(side->context, 1, &port) == 0 && port.state == IBV_PORT_ACTIVE);
	check(ibv_query_port(side->context, 2, &port) == EINVAL);
	/* What programs of before libibverbs 1.3 call knows less of the structure. */
	*(void **)&query_port = dlsym(RTLD_DEFAULT, "ibv_query_port");
	memset(&old, 0xee, sizeof(old));
	check(query_port(side->context, 1, &old) == 0 && old.state == IBV_PORT_ACTIVE && old.lid == port.lid);
	check(old.port_cap_flags2 == 0xeeee);
	check(ibv_query_gid(side->context, 1, 0, &gid) == 0);
	check(ibv_query_gid_ex(side->context, 1, 0, &entry, 0) == 0);
	check(entry.gid_type == IBV_GID_TYPE_ROCE_V2 && memcmp(&entry.gid, &gid, sizeof(gid)) == 0);
	check(ibv_query_gid(side->context, 1, 1, &gid) != 0);
	check(ibv_query_gid_ex(side->context, 1, 1, &entry, 0) == ENODATA);
	check(ibv_query_gid_table(side->context, &entry, 1, 0) == 1);
}

static void moves_and_posts_follow_the_rules(struct side *side)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS};
	struct ibv_qp_init_attr init;
	struct ibv_send_wr wr = {.opcode = IBV_WR_SEND}, *bad;
	struct ibv_cq *cq;
	struct ibv_qp *qp;

	open_device(side);
	cq = ibv_create_cq(side->context, 1, NULL, NULL, 0);
	qp = make_qp(side, cq, IBV_QPT_RC);
	check(qp != NULL && qp->state == IBV_QPS_RESET && qp->qp_num != 0);
	check(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == EINVAL);
	to_init(qp, 0);
	check(ibv_post_send(qp, &wr, &bad) == EINVAL && bad == &wr);
	check(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init) == 0);
	check(attr.qp_state == IBV_QPS_INIT && init.cap.max_send_wr == DEPTH && init.send_cq == cq);
	check(ibv_destroy_cq(cq) == EBUSY);
	check(ibv_destroy_qp(qp) == 0 && ibv_destroy_cq(cq) == 0);
}

static void a_reset_empties_the_queues_unless_it_was_connected(struct side *side)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET}, error = {.qp_state = IBV_QPS_ERR};
	struct ibv_qp_init_attr init;
	struct ibv_wc wc;
	uint32_t number;

	connect_sides(side, 1, ALL_ACCESS);
	side->qp[1] = make_qp(side, side->cq[0], IBV_QPT_RC);
	check(side->qp[1] != NULL);
	number = side->qp[1]->qp_num;
	for (unsigned round = 0; round < 3; round++) {
		to_init(side->qp[1], 0);
		check(ibv_poll_cq(side->cq[0], 1, &wc) == 0); /* the rest of the round before */
		for (unsigned i = 0; i < DEPTH; i++)
			post_recv(side, 1, i);
		if (round > 0) {
			check(ibv_modify_qp(side->qp[1], &error, IBV_QP_STATE) == 0);
			check(poll_one(side->cq[0]).status == IBV_WC_WR_FLUSH_ERR);
		}
		attr.qp_state = IBV_QPS_RESET;
		check(ibv_modify_qp(side->qp[1], &attr, IBV_QP_STATE) == 0);
		check(ibv_query_qp(side->qp[1], &attr, IBV_QP_STATE, &init) == 0 && attr.qp_state == IBV_QPS_RESET);
		check(side->qp[1]->qp_num == number);
	}
	check(ibv_destroy_qp(side->qp[1]) == 0);
	check(ibv_modify_qp(side->qp[0], &attr, IBV_QP_STATE) == EOPNOTSUPP);
	meet(side);
	close_side(side, 1);
}

static void a_refused_write_names_its_qp_and_flushes_the_rest(struct side *side)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct ibv_wc wc;

	connect_sides(side, 1, ALL_ACCESS);
	if (side->number == 0) {
		post_recv(side, 0, 9);
		check(post(side, 0, IBV_WR_RDMA_WRITE, 1, side->theirs.addr, side->theirs.rkey + 1) == 0);
		wc = poll_one(side->cq[0]);
		check(wc.wr_id == 1 && wc.status == IBV_WC_REM_ACCESS_ERR && wc.qp_num == side->qp[0]->qp_num);
		wc = poll_one(side->cq[0]);
		check(wc.wr_id == 9 && wc.status == IBV_WC_WR_FLUSH_ERR);
		check(ibv_query_qp(side->qp[0], &attr, IBV_QP_STATE, &init) == 0 && attr.qp_state == IBV_QPS_ERR);
		check(post(side, 0, IBV_WR_RDMA_WRITE, 2, side->theirs.addr, side->theirs.rkey) == 0);
		wc = poll_one(side->cq[0]);
		check(wc.wr_id == 2 && wc.status == IBV_WC_WR_FLUSH_ERR);
	}
	meet(side);
	close_side(side, 1);
}

static void memory_that_is_not_there_is_not_registered(struct side *side)
{
	char *page = mmap(NULL, BYTES, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	open_device(side);
	check(page != MAP_FAILED);
	check(ibv_reg_mr(side->pd, page, BYTES, ALL_ACCESS) == NULL && errno == EACCES);
	check(munmap(page, BYTES) == 0);
	check(ibv_reg_mr(side->pd, page, BYTES, ALL_ACCESS) == NULL && errno == EFAULT);
}

/* Side 1 registers a page and takes it away; side 0 gets an error, and side 1 goes on. */
static void memory_that_is_taken_away_ends_no_process(struct side *side)
{
	static const int left[] = {-1, PROT_NONE, PROT_READ};
	enum { KINDS = sizeof(left) / sizeof(*left) };
	struct hello whole;

	connect_sides(side, KINDS + 1, ALL_ACCESS);
	whole = side->theirs;
	for (unsigned i = 0; i < KINDS; i++) {
		if (side->number == 0) {
			hear(side->socket, &side->theirs);
			check(post(side, i, IBV_WR_RDMA_WRITE, i, side->theirs.addr, side->theirs.rkey) == 0);
			check(poll_one(side->cq[i]).status == IBV_WC_REM_ACCESS_ERR);
			meet(side);
			continue;
		}
		char *page = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		struct ibv_mr *mr = ibv_reg_mr(side->pd, page, BYTES, ALL_ACCESS);

		check(mr != NULL);
		check((left[i] < 0 ? munmap(page, BYTES) : mprotect(page, BYTES, left[i])) == 0);
		tell(side->socket, &(struct hello){.rkey = mr->rkey, .addr = (uintptr_t)page});
		meet(side);
		check(ibv_dereg_mr(mr) == 0);
	}
	if (side->number == 0) {
		check(post(side, KINDS, IBV_WR_RDMA_WRITE, KINDS, whole.addr, whole.rkey) == 0);
		check(take_done(side, KINDS) == KINDS);
	}
	meet(side);
	close_side(side, KINDS + 1);
}

static void a_channel_can_be_polled_with_others_and_does_not_block_if_told(struct side *side)
{
	struct pollfd ready;
	struct ibv_cq *cq;
	void *context;

	connect_sides(side, 1, ALL_ACCESS);
	ready = (struct pollfd){.fd = side->channel->fd, .events = POLLIN};
	if (side->number == 0) {
		check(fcntl(ready.fd, F_SETFL, fcntl(ready.fd, F_GETFL) | O_NONBLOCK) == 0);
		check(ibv_get_cq_event(side->channel, &cq, &context) == -1 && errno == EAGAIN);
		post_recv(side, 0, 3);
		check(ibv_req_notify_cq(side->cq[0], 0) == 0);
		meet(side);
		check(poll(&ready, 1, WAIT_MS) == 1);
		check(ibv_get_cq_event(side->channel, &cq, &context) == 0 && cq == side->cq[0] && context == side);
		check(poll(&ready, 1, 0) == 0); /* one event a request */
		check(poll_one(cq).wr_id == 3);
		ibv_ack_cq_events(cq, 1);
	} else {
		meet(side);
		check(post(side, 0, IBV_WR_SEND, 1, 0, 0) == 0);
		check(poll_one(side->cq[0]).status == IBV_WC_SUCCESS);
	}
	meet(side);
	close_side(side, 1);
}

static void a_blocked_thread_wakes_for_each_message(struct side *side)
{
	struct ibv_cq *cq;
	void *context;

	connect_sides(side, 1, ALL_ACCESS);
	for (unsigned i = 0; i < ROUNDS; i++) {
		if (side->number == 0) {
			post_recv(side, 0, i);
			check(ibv_req_notify_cq(side->cq[0], 0) == 0);
			meet(side);
			check(ibv_get_cq_event(side->channel, &cq, &context) == 0);
			ibv_ack_cq_events(cq, 1);
			check(poll_one(cq).wr_id == i);
		} else {
			meet(side);
			check(post(side, 0, IBV_WR_SEND, i, 0, 0) == 0);
			check(poll_one(side->cq[0]).status == IBV_WC_SUCCESS);
		}
	}
	meet(side);
	close_side(side, 1);
}

/* A program may poll by itself what it asked to be told of, and look for the event afterwards. */
static void share_receive(struct side *side, uint64_t wr_id)
{
	struct ibv_sge sge = {.addr = (uintptr_t)side->memory + wr_id * 8, .length = 8, .lkey = side->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = wr_id, .sg_list = &sge, .num_sge = 1}, *bad;

	check(ibv_post_srq_recv(side->srq, &wr, &bad) == 0);
}

static uint64_t take_shared(struct side *side, unsigned from)
{
	struct ibv_wc wc = poll_one(side->cq[from]);

	check(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV && wc.qp_num == side->qp[from]->qp_num);
	check(wc.wr_id < SHARED);
	return wc.wr_id;
}

static void expect_last_wqe(struct side *side, struct ibv_qp *qp)
{
	struct ibv_async_event event;

	check(ibv_get_async_event(side->context, &event) == 0);
	check(event.event_type == IBV_EVENT_QP_LAST_WQE_REACHED && event.element.qp == qp);
	ibv_ack_async_event(&event);
}

static void open_shared(struct side *side)
{
	struct ibv_srq_init_attr init = {.attr = {.max_wr = SHARED, .max_sge = 1}};

	open_device(side);
	side->srq = ibv_create_srq(side->pd, &init);
	check(side->srq != NULL);
	connect_opened(side, THREADS, ALL_ACCESS);
}

static void queue_pairs_share_receives(struct side *side)
{
	struct ibv_qp_attr error = {.qp_state = IBV_QPS_ERR};
	struct ibv_srq_attr attr;
	struct ibv_wc wc;

	open_shared(side);
	check(ibv_query_srq(side->srq, &attr) == 0 && attr.max_wr == SHARED);
	check(ibv_destroy_srq(side->srq) == EBUSY);
	for (uint64_t i = 0; side->number == 0 && i < SHARED; i++)
		share_receive(side, i);
	meet(side);
	for (unsigned i = 0; i < 3 * THREADS; i++) {
		if (side->number == 0) {
			share_receive(side, take_shared(side, i % THREADS));
		} else {
			check(post(side, i % THREADS, IBV_WR_SEND, i, 0, 0) == 0);
			check(poll_one(side->cq[i % THREADS]).status == IBV_WC_SUCCESS);
		}
	}
	meet(side);
	/* What queue pair 0 has goes back: all but those of queue pairs 2 and 3 are left for queue pair 1. */
	if (side->number == 0) {
		check(ibv_modify_qp(side->qp[0], &error, IBV_QP_STATE) == 0);
		expect_last_wqe(side, side->qp[0]);
	}
	for (unsigned i = 0; i < SHARED - (THREADS - 2); i++) {
		if (side->number == 0) {
			while (ibv_poll_cq(side->cq[1], 1, &wc) == 0)
				check(ibv_poll_cq(side->cq[0], 1, &wc) == 0); /* none of its receives is flushed */
			check(wc.status == IBV_WC_SUCCESS && wc.wr_id < SHARED);
		} else {
			check(post(side, 1, IBV_WR_SEND, i, 0, 0) == 0);
		}
	}
	for (unsigned i = 0; side->number == 1 && i < SHARED - (THREADS - 2); i++)
		check(poll_one(side->cq[1]).status == IBV_WC_SUCCESS);
	meet(side);
	for (unsigned i = 0; i < THREADS; i++)
		check(ibv_destroy_qp(side->qp[i]) == 0);
	check(ibv_destroy_srq(side->srq) == 0);
}

static void send_silently(struct side *side)
{
	struct ibv_sge sge = {.addr = (uintptr_t)side->memory + BYTES / 2, .length = 8, .lkey = side->mr->lkey};
	struct ibv_send_wr *bad, wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND};

	check(ibv_post_send(side->qp[0], &wr, &bad) == 0);
}

/* As perftest -e does: an event, a request for the next one, a single poll. */
static void each_event_is_followed_by_a_completion_at_the_first_poll(struct side *side)
{
	struct ibv_cq *cq;
	struct ibv_wc wc;
	void *context;

	connect_sides(side, 1, ALL_ACCESS);
	check(ibv_req_notify_cq(side->cq[0], 0) == 0);
	post_recv(side, 0, 0);
	meet(side);
	if (side->number == 0)
		send_silently(side);
	for (unsigned i = 0; i < ROUNDS; i++) {
		check(ibv_get_cq_event(side->channel, &cq, &context) == 0);
		ibv_ack_cq_events(cq, 1);
		check(ibv_req_notify_cq(side->cq[0], 0) == 0);
		check(ibv_poll_cq(side->cq[0], 1, &wc) == 1 && wc.wr_id == i);
		post_recv(side, 0, i + 1);
		if (i + 1 < ROUNDS || side->number == 1)
			send_silently(side);
	}
	meet(side);
	close_side(side, 1);
}

static void what_was_polled_makes_its_event_all_the_same(struct side *side)
{
	struct pollfd ready;
	struct ibv_cq *cq;
	void *context;

	connect_sides(side, 1, ALL_ACCESS);
	ready = (struct pollfd){.fd = side->channel->fd, .events = POLLIN};
	for (unsigned i = 0; i < ROUNDS; i++) {
		if (side->number == 0) {
			post_recv(side, 0, i);
			check(ibv_req_notify_cq(side->cq[0], 0) == 0);
			meet(side);
			check(poll_one(side->cq[0]).wr_id == i);
			check(poll(&ready, 1, WAIT_MS) == 1);
			check(ibv_get_cq_event(side->channel, &cq, &context) == 0 && cq == side->cq[0]);
			ibv_ack_cq_events(cq, 1);
		} else {
			meet(side);
			check(post(side, 0, IBV_WR_SEND, i, 0, 0) == 0);
			check(poll_one(side->cq[0]).status == IBV_WC_SUCCESS);
		}
	}
	meet(side);
	close_side(side, 1);
}

static void *take_events(void *argument)
{
	struct side *side = argument;
	struct ibv_cq *cq;
	void *context;

	while (ibv_get_cq_event(side->channel, &cq, &context) == 0)
		ibv_ack_cq_events(cq, 1);
	return NULL;
}

/* The thread may take the event of a queue that is just being destroyed, and then waits on; it is cancelled there. */
static void queues_are_destroyed_while_a_thread_waits_for_their_events(struct side *side)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
	pthread_t thread;

	open_device(side);
	side->memory = calloc(1, BYTES);
	side->mr = ibv_reg_mr(side->pd, side->memory, BYTES, ALL_ACCESS);
	side->channel = ibv_create_comp_channel(side->context);
	check(side->mr != NULL && side->channel != NULL);
	check(pthread_create(&thread, NULL, take_events, side) == 0);
	for (unsigned i = 0; i < QUEUES; i++) {
		side->cq[0] = ibv_create_cq(side->context, 1, NULL, side->channel, 0);
		side->qp[0] = make_qp(side, side->cq[0], IBV_QPT_RC);
		check(side->qp[0] != NULL);
		to_init(side->qp[0], 0);
		post_recv(side, 0, i);
		check(ibv_req_notify_cq(side->cq[0], 0) == 0);
		check(ibv_modify_qp(side->qp[0], &attr, IBV_QP_STATE) == 0);
		check(poll_one(side->cq[0]).status == IBV_WC_WR_FLUSH_ERR); /* now its event wakes the thread */
		check(ibv_destroy_qp(side->qp[0]) == 0 && ibv_destroy_cq(side->cq[0]) == 0);
	}
	check(pthread_cancel(thread) == 0 && pthread_join(thread, NULL) == 0);
	close_side(side, 0);
}

struct poller {
	struct ibv_cq *cq;
	atomic_bool polls;
};

/* Of all that it calls, only what polls is a place to be cancelled in, but for the end of each round. */
static void *poll_until_cancelled(void *argument)
{
	struct poller *poller = argument;
	struct ibv_wc wc;

	for (;;) {
		for (unsigned i = 0; i < DEPTH; i++)
			(void)ibv_poll_cq(poller->cq, 1, &wc);
		atomic_store(&poller->polls, true);
		pthread_testcancel();
	}
	return NULL;
}

static void a_thread_that_is_cancelled_while_it_polls_stops_no_other(struct side *side)
{
	struct ibv_port_attr port;
	pthread_t thread;

	connect_sides(side, 1, ALL_ACCESS);
	for (unsigned i = 0; i < CANCELLED; i++) {
		struct poller poller = {.cq = side->cq[0]};

		check(pthread_create(&thread, NULL, poll_until_cancelled, &poller) == 0);
		while (!atomic_load(&poller.polls))
			sched_yield();
		check(pthread_cancel(thread) == 0 && pthread_join(thread, NULL) == 0);
		check(ibv_query_port(side->context, 1, &port) == 0);
	}
	meet(side);
	close_side(side, 1);
}

struct worker {
	struct side *side;
	unsigned number;
	enum ibv_wr_opcode opcode;
};

static void *work(void *argument)
{
	struct worker *worker = argument;
	struct side *side = worker->side;
	unsigned posted = 0, done = 0;

	while (done < ROUNDS) {
		struct ibv_wc wc[8];
		int n;

		while (posted < ROUNDS && posted - done < DEPTH / 2) {
			check(post(side, worker->number, worker->opcode, posted, side->theirs.addr,
				      side->theirs.rkey) == 0);
			posted++;
		}
		n = ibv_poll_cq(side->cq[worker->number], 8, wc);
		for (int i = 0; i < n; i++)
			check(wc[i].status == IBV_WC_SUCCESS && wc[i].wr_id == done++);
	}
	return NULL;
}

static void work_in_threads(struct side *side, enum ibv_wr_opcode opcode)
{
	struct worker workers[THREADS];
	pthread_t threads[THREADS];

	for (unsigned i = 0; i < THREADS; i++) {
		workers[i] = (struct worker){.side = side, .number = i, .opcode = opcode};
		check(pthread_create(&threads[i], NULL, work, &workers[i]) == 0);
	}
	for (unsigned i = 0; i < THREADS; i++)
		check(pthread_join(threads[i], NULL) == 0);
}

static void threads_of_both_sides_write_at_once(struct side *side)
{
	connect_sides(side, THREADS, ALL_ACCESS);
	work_in_threads(side, IBV_WR_RDMA_WRITE);
	work_in_threads(side, IBV_WR_RDMA_READ);
	meet(side);
	close_side(side, THREADS);
}

static void threads_of_both_sides_count_each_add_once(struct side *side)
{
	uint64_t count;

	connect_sides(side, THREADS, ALL_ACCESS | IBV_ACCESS_REMOTE_ATOMIC);
	work_in_threads(side, IBV_WR_ATOMIC_FETCH_AND_ADD);
	meet(side);
	memcpy(&count, side->memory, sizeof(count));
	check(count == THREADS * ROUNDS);
	meet(side);
	close_side(side, THREADS);
}

/* ---- adds through cuts ---- */

#define VALUES_MAX (1u << 24)
#define PROGRESS   2000 /* adds between two switches */

struct counting {
	struct side *side;
	atomic_bool stop;
	atomic_uint added;
	atomic_uchar *seen; /* by the value that an add returned */
};

struct adder {
	struct counting *counting;
	unsigned number;
};

static int post_add(struct side *side, unsigned i, uint64_t *result, uint64_t wr_id)
{
	struct ibv_sge sge = {.addr = (uintptr_t)result, .length = 8, .lkey = side->mr->lkey};
	struct ibv_send_wr wr = {.wr_id = wr_id,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.atomic = {.remote_addr = side->theirs.addr, .compare_add = 1, .rkey = side->theirs.rkey}};
	struct ibv_send_wr *bad;

	return ibv_post_send(side->qp[i], &wr, &bad);
}

static void *add_until_told(void *argument)
{
	struct adder *adder = argument;
	struct counting *counting = adder->counting;
	struct side *side = counting->side;
	uint64_t *results = (uint64_t *)(void *)(side->memory + BYTES / 2) + adder->number * DEPTH;
	uint64_t posted = 0, done = 0;
	bool stop = false;

	while (!stop || done < posted) {
		struct ibv_wc wc;

		for (; !stop && posted - done < DEPTH / 2; posted++)
			check(post_add(side, adder->number, &results[posted % DEPTH], posted) == 0);
		if (ibv_poll_cq(side->cq[adder->number], 1, &wc) == 1) {
			uint64_t found = results[done % DEPTH];

			check(wc.status == IBV_WC_SUCCESS && wc.wr_id == done);
			check(found < VALUES_MAX && atomic_exchange(&counting->seen[found], 1) == 0);
			done++;
			atomic_fetch_add(&counting->added, 1);
		}
		stop = atomic_load(&counting->stop) || atomic_load(&counting->added) > VALUES_MAX / 2;
	}
	return NULL;
}

static void let_add(struct counting *counting)
{
	unsigned from = atomic_load(&counting->added);

	while (atomic_load(&counting->added) - from < PROGRESS)
		sched_yield();
}

static void cut_rails(struct counting *counting)
{
	for (int cut = 0; cut < CUTS; cut++) {
		let_add(counting);
		switch_link(counting->side, "down", cut % 2);
		let_add(counting);
		switch_link(counting->side, "up", cut % 2);
	}
}

static void adds_go_on_through_cuts_each_once_with_its_value(struct side *side)
{
	struct counting counting = {.side = side, .seen = calloc(VALUES_MAX, 1)};
	struct adder adders[THREADS];
	pthread_t threads[THREADS];
	uint64_t counted;
	unsigned theirs;

	connect_sides(side, THREADS, ALL_ACCESS | IBV_ACCESS_REMOTE_ATOMIC);
	for (unsigned i = 0; i < THREADS; i++) {
		adders[i] = (struct adder){.counting = &counting, .number = i};
		check(pthread_create(&threads[i], NULL, add_until_told, &adders[i]) == 0);
	}
	if (side->number == 0)
		cut_rails(&counting);
	meet(side);
	atomic_store(&counting.stop, true);
	for (unsigned i = 0; i < THREADS; i++)
		check(pthread_join(threads[i], NULL) == 0);
	check(write(side->socket, &counting.added, sizeof(theirs)) == sizeof(theirs));
	check(read(side->socket, &theirs, sizeof(theirs)) == sizeof(theirs));
	memcpy(&counted, side->memory, sizeof(counted));
	check(counted == theirs);
	for (unsigned i = 0; i < counting.added; i++)
		check(counting.seen[i] == 1);
	meet(side);
	close_side(side, THREADS);
}

static void a_port_is_up_while_any_of_its_rails_is(struct side *side)
{
	struct ibv_async_event event;
	struct ibv_port_attr port;

	open_device(side);
	switch_link(side, "down", 0);
	check(ibv_query_port(side->context, 1, &port) == 0 && port.state == IBV_PORT_ACTIVE);
	switch_link(side, "down", 1);
	check(ibv_get_async_event(side->context, &event) == 0 && event.event_type == IBV_EVENT_PORT_ERR);
	ibv_ack_async_event(&event);
	check(ibv_query_port(side->context, 1, &port) == 0 && port.state == IBV_PORT_DOWN);
	switch_link(side, "up", 0);
	check(ibv_get_async_event(side->context, &event) == 0 && event.event_type == IBV_EVENT_PORT_ACTIVE);
	ibv_ack_async_event(&event);
	check(ibv_close_device(side->context) == 0);
}

int main(int argc, char **argv)
{
	static const struct side_test tests[] = {SIDE_TEST(what_is_not_there_says_so),
		SIDE_TEST(an_error_is_returned_and_in_errno), SIDE_TEST(a_library_that_opens_libibverbs_has_our_device),
		SIDE_TEST(completion_queues_have_limits), SIDE_TEST(a_device_list_is_one_piece_of_memory),
		SIDE_TEST(the_device_is_found_in_the_file_system), SIDE_TEST(old_and_new_queries_agree),
		SIDE_TEST(moves_and_posts_follow_the_rules),
		SIDE_TEST(queue_pairs_of_one_process_reach_each_other_and_themselves),
		SIDE_TEST(a_queue_pair_to_itself_that_fails_flushes_both_its_queues),
		SIDE_TEST(datagrams_arrive_with_their_header_and_can_be_answered),
		SIDE_TEST(datagrams_need_a_receive_and_the_qkey), SIDE_TEST(datagram_queue_pairs_follow_the_rules),
		SIDE_TEST(datagrams_flow_on_through_cuts), SIDE_TEST(queue_pairs_share_receives),
		SIDE_TEST(one_that_consumes_has_most_receives_and_others_find_some),
		SIDE_TEST(a_reset_empties_the_queues_unless_it_was_connected),
		SIDE_TEST(a_refused_write_names_its_qp_and_flushes_the_rest),
		SIDE_TEST(memory_that_is_not_there_is_not_registered),
		SIDE_TEST(memory_that_is_taken_away_ends_no_process),
		SIDE_TEST(a_channel_can_be_polled_with_others_and_does_not_block_if_told),
		SIDE_TEST(a_blocked_thread_wakes_for_each_message),
		SIDE_TEST(each_event_is_followed_by_a_completion_at_the_first_poll),
		SIDE_TEST(what_was_polled_makes_its_event_all_the_same),
		SIDE_TEST(queues_are_destroyed_while_a_thread_waits_for_their_events),
		SIDE_TEST(a_thread_that_is_cancelled_while_it_polls_stops_no_other),
		SIDE_TEST(threads_of_both_sides_write_at_once), SIDE_TEST(threads_of_both_sides_count_each_add_once),
		SIDE_TEST(adds_go_on_through_cuts_each_once_with_its_value),
		SIDE_TEST(queue_pairs_of_one_process_go_on_through_cuts),
		SIDE_TEST(a_port_is_up_while_any_of_its_rails_is)};

	return side_run(tests, sizeof(tests) / sizeof(tests[0]), argc, argv);
}
