/* atomicity [N] - how far the atomics of rxe reach: N additions to one word through each of two NICs of a host, beside
 * one another and beside the CPU's own; what is missing from the sum was lost. Runs in the guest of scripts/rxe_vm.py.
 *
 * It measures, and judges nothing: docs/devices.md says what came out. */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <holdfast/dev.h>

#define BATCH  8u
#define ACCESS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC)

struct end {
	struct hf_dev *dev;
	struct hf_pd *pd;
	struct hf_cq *cq;
	struct hf_qp *qp;
	struct hf_mr *mr;
};

/* One path from host a to host b, and who adds through it. */
struct adder {
	struct end from, to;
	uint64_t answer;
	uint64_t times;
	pthread_t thread;
};

static _Alignas(4096) uint64_t word;

static void need(int rc, const char *what)
{
	if (rc == 0)
		return;
	fprintf(stderr, "atomicity: %s: %s\n", what, strerror(-rc));
	exit(1);
}

static void open_end(struct end *end, const char *address, void *memory)
{
	struct hf_dev_config config = {.kind = "verbs", .node = "n", .rail = "r"};
	struct hf_qp_init init = {.cap = {.max_send_wr = BATCH, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
		.type = IBV_QPT_RC};
	struct hf_error error = {0};

	need(hf_addr_parse(address, &config.address), address);
	if (hf_dev_open(hf_env_host(), &config, &end->dev, &error) != 0) {
		fprintf(stderr, "atomicity: %s\n", error.text);
		exit(1);
	}
	need(hf_pd_alloc(end->dev, &end->pd), "pd");
	need(hf_cq_create(end->dev, 2 * BATCH, NULL, &end->cq), "cq");
	init.send_cq = init.recv_cq = end->cq;
	need(hf_qp_create(end->pd, &init, &end->qp), "qp");
	need(hf_mr_reg(end->pd, memory, 8, (uintptr_t)memory, ACCESS, &end->mr, &error), "mr");
}

static void connect_to(const struct end *end, const struct end *peer)
{
	struct ibv_qp_attr init = {
		.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_ATOMIC};
	struct ibv_qp_attr rtr = {.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = peer->qp->qp_num,
		.rq_psn = 1,
		.max_dest_rd_atomic = BATCH,
		.min_rnr_timer = 1,
		.ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = hf_dev_gid(peer->dev), .hop_limit = 64}}};
	struct ibv_qp_attr rts = {.qp_state = IBV_QPS_RTS,
		.sq_psn = 1,
		.timeout = 14,
		.retry_cnt = 6,
		.rnr_retry = 7,
		.max_rd_atomic = BATCH};

	need(hf_qp_modify(end->qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
		"INIT");
	need(hf_qp_modify(end->qp, &rtr,
		     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
		"RTR");
	need(hf_qp_modify(end->qp, &rts,
		     IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			     IBV_QP_MAX_QP_RD_ATOMIC),
		"RTS");
}

static void *add_through_nic(void *argument)
{
	struct adder *adder = argument;
	struct ibv_sge sge = {.addr = (uintptr_t)&adder->answer, .length = 8, .lkey = adder->from.mr->lkey};
	uint64_t posted = 0, done = 0;
	struct ibv_wc wc;

	while (done < adder->times) {
		for (; posted < adder->times && posted < done + BATCH; posted++) {
			struct ibv_send_wr wr = {.sg_list = &sge,
						   .num_sge = 1,
						   .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
						   .send_flags = IBV_SEND_SIGNALED},
					   *bad;

			wr.wr.atomic.remote_addr = (uintptr_t)&word;
			wr.wr.atomic.rkey = adder->to.mr->rkey;
			wr.wr.atomic.compare_add = 1;
			need(hf_qp_post_send(adder->from.qp, &wr, &bad), "post");
		}
		while (hf_cq_poll(adder->from.cq, 1, &wc) == 1) {
			need(wc.status == IBV_WC_SUCCESS ? 0 : -EIO, "an addition");
			done++;
		}
	}
	return NULL;
}

static void *add_by_cpu(void *argument)
{
	for (uint64_t i = 0; i < *(const uint64_t *)argument; i++)
		__atomic_fetch_add(&word, 1, __ATOMIC_SEQ_CST);
	return NULL;
}

static void say(const char *who, uint64_t asked)
{
	uint64_t got = __atomic_exchange_n(&word, 0, __ATOMIC_SEQ_CST);

	printf("atomicity: %s: %" PRIu64 " additions, %" PRIu64 " lost\n", who, asked, asked - got);
}

int main(int argc, char **argv)
{
	static const char *const addresses[2][2] = {{"10.10.0.1", "10.10.0.3"}, {"10.10.0.2", "10.10.0.4"}};
	static struct adder adders[2];
	uint64_t times = argc > 1 ? strtoull(argv[1], NULL, 10) : 20000, by_cpu = 200 * times;
	pthread_t cpu;

	for (unsigned i = 0; i < 2; i++) {
		open_end(&adders[i].from, addresses[i][0], &adders[i].answer);
		open_end(&adders[i].to, addresses[i][1], &word);
		connect_to(&adders[i].from, &adders[i].to);
		connect_to(&adders[i].to, &adders[i].from);
		adders[i].times = times;
	}
	for (unsigned i = 0; i < 2; i++)
		need(-pthread_create(&adders[i].thread, NULL, add_through_nic, &adders[i]), "a thread");
	for (unsigned i = 0; i < 2; i++)
		(void)pthread_join(adders[i].thread, NULL);
	say("two NICs", 2 * times);
	need(-pthread_create(&adders[0].thread, NULL, add_through_nic, &adders[0]), "a thread");
	need(-pthread_create(&cpu, NULL, add_by_cpu, &by_cpu), "a thread");
	(void)pthread_join(adders[0].thread, NULL);
	(void)pthread_join(cpu, NULL);
	say("a NIC and the CPU", times + by_cpu);
	return 0;
}
