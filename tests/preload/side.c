#include "side.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

const char *side_holdfast;

void check_failed(const char *what, int line)
{
	printf("# line %d: not so: %s (errno %d, %s)\n", line, what, errno, strerror(errno));
	fflush(stdout);
	_exit(1);
}
void meet(struct side *side)
{
	char byte = 'x';

	check(write(side->socket, &byte, 1) == 1);
	check(read(side->socket, &byte, 1) == 1);
}

void open_device(struct side *side)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	check(list != NULL && list[0] != NULL);
	check(strcmp(ibv_get_device_name(list[0]), "holdfast0") == 0);
	side->context = ibv_open_device(list[0]);
	check(side->context != NULL);
	ibv_free_device_list(list);
	side->pd = ibv_alloc_pd(side->context);
	check(side->pd != NULL);
}

struct ibv_qp *make_qp(struct side *side, struct ibv_cq *cq, enum ibv_qp_type type)
{
	struct ibv_qp_init_attr init = {.send_cq = cq,
		.recv_cq = cq,
		.srq = side->srq,
		.qp_type = type,
		.cap = {.max_send_wr = DEPTH,
			.max_recv_wr = DEPTH,
			.max_send_sge = 1,
			.max_recv_sge = 1,
			.max_inline_data = 32}};

	return ibv_create_qp(side->pd, &init);
}

void to_init(struct ibv_qp *qp, unsigned access)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = access};

	check(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
}

int to_rtr(struct ibv_qp *qp, const union ibv_gid *gid, uint32_t number)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = number,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = *gid, .hop_limit = 1}}};

	return ibv_modify_qp(qp, &attr,
		IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
}

void to_rts(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1};

	check(ibv_modify_qp(qp, &attr,
		      IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
			      IBV_QP_MAX_QP_RD_ATOMIC) == 0);
}

void tell(int socket, const struct hello *hello)
{
	struct hello copy = *hello;

	check(write(socket, &copy, sizeof(copy)) == sizeof(copy));
}

void hear(int socket, struct hello *hello)
{
	check(read(socket, hello, sizeof(*hello)) == sizeof(*hello));
}

void connect_opened(struct side *side, unsigned n, unsigned access)
{
	side->channel = ibv_create_comp_channel(side->context);
	check(side->channel != NULL);
	side->memory = calloc(1, BYTES);
	side->mr = ibv_reg_mr(side->pd, side->memory, BYTES, access);
	if (side->mr == NULL && (access & IBV_ACCESS_REMOTE_ATOMIC) != 0)
		_exit(EXIT_SKIP);
	check(side->mr != NULL);
	for (unsigned i = 0; i < n; i++) {
		side->cq[i] = ibv_create_cq(side->context, 2 * DEPTH, side, side->channel, 0);
		check(side->cq[i] != NULL);
		side->qp[i] = make_qp(side, side->cq[i], IBV_QPT_RC);
		check(side->qp[i] != NULL);
		to_init(side->qp[i], access & ~(unsigned)IBV_ACCESS_LOCAL_WRITE);
		side->mine.qp_num[i] = side->qp[i]->qp_num;
	}
	check(ibv_query_gid(side->context, 1, 0, &side->mine.gid) == 0);
	side->mine.rkey = side->mr->rkey;
	side->mine.addr = (uintptr_t)side->memory;
	tell(side->socket, &side->mine);
	hear(side->socket, &side->theirs);
	for (unsigned i = 0; i < n; i++) {
		check(to_rtr(side->qp[i], &side->theirs.gid, side->theirs.qp_num[i]) == 0);
		to_rts(side->qp[i]);
	}
}

void connect_sides(struct side *side, unsigned n, unsigned access)
{
	open_device(side);
	connect_opened(side, n, access);
}

void close_side(struct side *side, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		check(ibv_destroy_qp(side->qp[i]) == 0);
		check(ibv_destroy_cq(side->cq[i]) == 0);
	}
	check(ibv_destroy_comp_channel(side->channel) == 0);
	check(ibv_dereg_mr(side->mr) == 0);
	check(ibv_dealloc_pd(side->pd) == 0);
	check(ibv_close_device(side->context) == 0);
}

int post(struct side *side, unsigned i, enum ibv_wr_opcode opcode, uint64_t wr_id, uint64_t remote, uint32_t rkey)
{
	struct ibv_sge sge = {.addr = (uintptr_t)side->memory + BYTES / 2 + i * 8, .length = 8, .lkey = side->mr->lkey};
	struct ibv_send_wr wr = {
		.wr_id = wr_id, .sg_list = &sge, .num_sge = 1, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED};
	struct ibv_send_wr *bad = NULL;
	int rc;

	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = remote;
		wr.wr.atomic.rkey = rkey;
		wr.wr.atomic.compare_add = 1;
	} else {
		wr.wr.rdma.remote_addr = remote;
		wr.wr.rdma.rkey = rkey;
	}
	rc = ibv_post_send(side->qp[i], &wr, &bad);
	check(rc == 0 || bad == &wr);
	return rc;
}

void post_recv(struct side *side, unsigned i, uint64_t wr_id)
{
	struct ibv_sge sge = {.addr = (uintptr_t)side->memory, .length = 64, .lkey = side->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = wr_id, .sg_list = &sge, .num_sge = 1}, *bad;

	check(ibv_post_recv(side->qp[i], &wr, &bad) == 0);
}

struct ibv_wc poll_one(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	int n;

	while ((n = ibv_poll_cq(cq, 1, &wc)) == 0)
		;
	check(n == 1);
	return wc;
}

uint64_t take_done(struct side *side, unsigned i)
{
	struct ibv_wc wc = poll_one(side->cq[i]);

	check(wc.status == IBV_WC_SUCCESS && wc.qp_num == side->qp[i]->qp_num);
	return wc.wr_id;
}

void name_node(unsigned test, int side, char node[NODE_BYTES])
{
	snprintf(node, NODE_BYTES, "test%u-side%d", test, side);
}

void switch_link(const struct side *side, const char *way, int rail)
{
	char command[512], node[NODE_BYTES];

	name_node(side->index, side->number, node);
	snprintf(command, sizeof(command), "env -u LD_PRELOAD %s link %s --fabric %s %s/r%d >/dev/null", side_holdfast,
		way, getenv("HOLDFAST_VERBS_FABRIC"), node, rail);
	check(system(command) == 0);
}

/* ---- running both ---- */

static void run_side(void (*test)(struct side *side), unsigned index, int number, int socket)
{
	struct side side = {.number = number, .index = index, .socket = socket};
	char node[NODE_BYTES];

	name_node(index, number, node);
	check(setenv("HOLDFAST_VERBS_NODE", node, 1) == 0);
	test(&side);
	fflush(stdout);
	_exit(0);
}

/* The worse of both sides' statuses. */
static int run(void (*test)(struct side *side), unsigned index)
{
	int pair[2], worst = 0;

	fflush(stdout);
	check(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
	for (int i = 0; i < 2; i++)
		if (fork() == 0) {
			close(pair[!i]);
			run_side(test, index, i, pair[i]);
		}
	close(pair[0]);
	close(pair[1]);
	for (int i = 0; i < 2; i++) {
		int status;

		check(wait(&status) > 0);
		status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
		worst = status > worst ? status : worst;
	}
	return worst;
}

int side_run(const struct side_test *tests, unsigned n, int argc, char **argv)
{
	bool failed = false;

	side_holdfast = argc > 1 ? argv[1] : "holdfast";
	printf("1..%u\n", n);
	for (unsigned i = 0; i < n; i++) {
		int status;

		if (argc > 2 && strstr(tests[i].name, argv[2]) == NULL)
			continue;
		status = run(tests[i].test, i);
		failed = failed || (status != 0 && status != EXIT_SKIP);
		printf("%s %u - %s%s\n", status == 0 || status == EXIT_SKIP ? "ok" : "not ok", i + 1, tests[i].name,
			status == EXIT_SKIP ? " # SKIP this device has no remote atomics in private memory" : "");
	}
	return failed;
}
