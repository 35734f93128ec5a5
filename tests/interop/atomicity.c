/* atomicity A0 B0 A1 B1 ADDITIONS: with whom are the atomics of a NIC atomic (D7)? Measures; nothing is wrong with any
 * answer. The arguments are addresses of RDMA NICs: A0 reaches B0, and A1 reaches B1.
 *
 * One word of memory is registered at B0 and at B1. Then it is added to by B0 through two queue pairs; by B0 and by B1;
 * by B0 and by the CPU's own atomic additions. What is missing in the end was overwritten. */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <holdfast/dev.h>

#define DEPTH   16u
#define TIMEOUT 17 /* 0.5 s */

struct end {
	struct hf_dev *dev;
	struct hf_pd *pd;
	struct hf_cq *cq;
	struct hf_mr *mr;
	struct hf_qp *qp;
};

/* From one NIC to another, with its own objects at both, so that each thread has its own. */
struct way {
	struct end from, to;
	uint64_t landing; /* of the original values */
	uint32_t additions;
};

static uint64_t word __attribute__((aligned(64)));
static _Atomic bool busy;

static void must(int rc, const char *what, const struct hf_error *error)
{
	if (rc == 0)
		return;
	fprintf(stderr, "atomicity: %s: %s %s\n", what, strerror(-rc), error == NULL ? "" : error->text);
	exit(2);
}

static void open_end(struct end *end, const char *address, uint64_t *memory)
{
	const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_REMOTE_WRITE;
	struct hf_dev_config config = {.kind = "verbs"};
	struct hf_qp_init init = {.cap = {DEPTH, DEPTH, 1, 1, 0}, .type = IBV_QPT_RC};
	struct hf_error error = {0};

	must(hf_addr_parse(address, &config.address), address, NULL);
	must(hf_dev_open(hf_env_host(), &config, &end->dev, &error), address, &error);
	must(hf_pd_alloc(end->dev, &end->pd), "pd", NULL);
	must(hf_cq_create(end->dev, 2 * DEPTH, NULL, &end->cq), "cq", NULL);
	must(hf_mr_reg(end->pd, memory, 8, (uintptr_t)memory, access, &end->mr, &error), "memory", &error);
	init.send_cq = init.recv_cq = end->cq;
	must(hf_qp_create(end->pd, &init, &end->qp), "qp", NULL);
}

static void connect_end(struct end *end, const struct end *peer)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_ATOMIC};

	must(hf_qp_modify(end->qp, &attr, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS), "INIT",
		NULL);
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = peer->qp->qp_num,
		.max_dest_rd_atomic = DEPTH,
		.min_rnr_timer = 12,
		.ah_attr = {.is_global = 1, .grh = {.dgid = hf_dev_gid(peer->dev)}}};
	must(hf_qp_modify(end->qp, &attr,
		     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
		"RTR", NULL);
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTS, .timeout = TIMEOUT, .retry_cnt = 6, .rnr_retry = 7, .max_rd_atomic = DEPTH};
	must(hf_qp_modify(end->qp, &attr,
		     IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			     IBV_QP_MAX_QP_RD_ATOMIC),
		"RTS", NULL);
}

static void open_way(struct way *way, const char *from, const char *to)
{
	open_end(&way->from, from, &way->landing);
	open_end(&way->to, to, &word);
	connect_end(&way->from, &way->to);
	connect_end(&way->to, &way->from);
}

static void close_end(struct end *end)
{
	must(hf_qp_destroy(end->qp), "qp", NULL);
	must(hf_mr_dereg(end->mr), "memory", NULL);
	must(hf_cq_destroy(end->cq), "cq", NULL);
	must(hf_pd_free(end->pd), "pd", NULL);
	hf_dev_close(end->dev);
}

static void *add_through(void *context)
{
	struct way *way = context;
	struct ibv_sge sge = {.addr = (uintptr_t)&way->landing, .length = 8, .lkey = way->from.mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.atomic = {.remote_addr = (uintptr_t)&word, .rkey = way->to.mr->rkey, .compare_add = 1}};

	for (uint32_t posted = 0, done = 0; done < way->additions;) {
		struct ibv_send_wr *bad;
		struct ibv_wc wc;

		while (posted < way->additions && posted - done < DEPTH &&
			hf_qp_post_send(way->from.qp, &wr, &bad) == 0)
			posted++;
		if (hf_cq_poll(way->from.cq, 1, &wc) == 0)
			continue;
		must(wc.status == IBV_WC_SUCCESS ? 0 : -EIO, "an addition", NULL);
		done++;
	}
	return NULL;
}

static void *add_by_cpu(void *context)
{
	uint64_t *added = context;

	for (; busy; ++*added)
		__atomic_fetch_add(&word, 1, __ATOMIC_SEQ_CST);
	return NULL;
}

static void measure(const char *who, struct way *one, struct way *other)
{
	uint64_t by_cpu = 0, expected;
	pthread_t thread;

	word = 0;
	busy = true;
	must(-pthread_create(&thread, NULL, other == NULL ? add_by_cpu : add_through,
		     other == NULL ? (void *)&by_cpu : (void *)other),
		"thread", NULL);
	add_through(one);
	busy = false;
	pthread_join(thread, NULL);
	expected = one->additions + (other == NULL ? by_cpu : other->additions);
	printf("%-44s %9" PRIu64 " additions, %" PRIu64 " missing\n", who, expected, expected - word);
}

int main(int argc, char **argv)
{
	struct way first = {0}, same = {0}, second = {0};

	if (argc != 6) {
		fprintf(stderr, "usage: atomicity A0 B0 A1 B1 ADDITIONS\n");
		return 2;
	}
	first.additions = same.additions = second.additions = (uint32_t)strtoul(argv[5], NULL, 10);
	open_way(&first, argv[1], argv[2]);
	open_way(&same, argv[1], argv[2]);
	open_way(&second, argv[3], argv[4]);
	measure("two queue pairs of one NIC", &first, &same);
	measure("two NICs of one host", &first, &second);
	measure("a NIC and the CPU", &first, NULL);
	for (struct way *ways[] = {&first, &same, &second}, **way = ways; way < ways + 3; way++) {
		close_end(&(*way)->from);
		close_end(&(*way)->to);
	}
	return 0;
}
