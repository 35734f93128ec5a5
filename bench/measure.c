/* Our devices, measured between two processes: near posts and takes the time, far answers.
 *
 *   latency    both spin: poll the device, look at the last word of the landing buffer, WRITE back
 *   cas        near posts one CAS after the other and polls for its completion; far polls its device
 *   bandwidth  near keeps WINDOW WRITEs in flight; far polls its device
 *
 * Memory of each: [0, bytes) to send from, [LANDING, LANDING + bytes) where the other writes. */
#include "bench/bed.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <holdfast/dev.h>

#include "base/order.h"

#define LANDING         (1u << 20)
#define MEM_BYTES       (2u << 20)
#define QUEUE           128u
#define SIGNAL_EVERY    32u
#define WINDOW          32u
#define BATCHES         400u
#define WARM_UP         20u
#define BATCH_STEPS_MAX 4096u
#define BATCH_NS        100000u /* about; a batch that was interrupted does not move the median */
#define STALL_NS        10000000000ull
#define BANDWIDTH_NS    300000000ull
#define ACCESS          (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)

/* What one end tells the other. */
struct card {
	union ibv_gid gid;
	uint32_t qp_num, rkey;
	uint64_t iova;
};

struct end {
	const struct bench_figure *figure;
	struct bench_meeting *meeting;
	struct hf_env *env;
	struct hf_dev *dev;
	struct hf_pd *pd;
	struct hf_cq *cq;
	struct hf_mr *mr;
	struct hf_qp *qp;
	unsigned char *mem;
	struct card other;
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	uint32_t posted, completed; /* signaled ones are completed in steps of SIGNAL_EVERY */
	bool near;
};

struct job {
	const struct bench_figure *figure;
	double value;
	struct hf_error *error;
};

static int open_end(struct end *end, int parent_pid, struct hf_error *error)
{
	char fabric[HF_NAME_BYTES], address[HF_ADDR_TEXT];
	struct hf_dev_config config = {.kind = end->figure->kind,
		.fabric = fabric,
		.node = end->near ? "near" : "far",
		.rail = "r0",
		.mtu = IBV_MTU_4096};
	void *mem;
	int rc;

	bench_fabric_name(fabric, parent_pid);
	snprintf(address, sizeof(address), "127.%d.%d.%d", 200 + parent_pid / 250 % 50, 1 + parent_pid % 250,
		end->near ? 1 : 2);
	hf_addr_parse(address, &config.address);
	if ((rc = hf_dev_open(end->env, &config, &end->dev, error)) != 0 ||
		(rc = hf_mem_alloc(end->env, MEM_BYTES, &mem, error)) != 0)
		return rc;
	end->mem = mem;
	memset(mem, 0, MEM_BYTES);
	if ((rc = hf_pd_alloc(end->dev, &end->pd)) != 0 ||
		(rc = hf_mr_reg(end->pd, mem, MEM_BYTES, (uintptr_t)mem, ACCESS, &end->mr, error)) != 0 ||
		(rc = hf_cq_create(end->dev, 2 * QUEUE, NULL, &end->cq)) != 0)
		return rc;
	return hf_qp_create(end->pd,
		&(struct hf_qp_init){.send_cq = end->cq,
			.recv_cq = end->cq,
			.cap = {QUEUE, 1, 1, 1, end->dev->attr.max_inline < 8 ? 0 : 8},
			.type = IBV_QPT_RC},
		&end->qp);
}

static void close_end(struct end *end)
{
	hf_qp_destroy(end->qp);
	hf_cq_destroy(end->cq);
	hf_mr_dereg(end->mr);
	hf_pd_free(end->pd);
	hf_dev_close(end->dev);
	if (end->mem != NULL)
		hf_mem_free(end->env, end->mem);
}

static int connect_end(struct end *end)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC,
		.path_mtu = IBV_MTU_4096,
		.dest_qp_num = end->other.qp_num,
		.max_dest_rd_atomic = 4,
		.max_rd_atomic = 4,
		.min_rnr_timer = 12,
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = end->other.gid, .hop_limit = 64}}};
	int rc = hf_qp_modify(end->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);

	if (rc != 0)
		return rc;
	attr.qp_state = IBV_QPS_RTR;
	rc = hf_qp_modify(end->qp, &attr,
		IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	if (rc != 0)
		return rc;
	attr.qp_state = IBV_QPS_RTS;
	return hf_qp_modify(end->qp, &attr,
		IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			IBV_QP_MAX_QP_RD_ATOMIC);
}

static void prepare_wr(struct end *end)
{
	bool cas = end->figure->shape == BENCH_CAS_LATENCY;
	uint64_t target = end->other.iova + LANDING;

	end->sge = (struct ibv_sge){.addr = (uintptr_t)end->mem, .length = end->figure->bytes, .lkey = end->mr->lkey};
	end->wr = (struct ibv_send_wr){
		.sg_list = &end->sge, .num_sge = 1, .opcode = cas ? IBV_WR_ATOMIC_CMP_AND_SWP : IBV_WR_RDMA_WRITE};
	if (!cas && end->figure->bytes <= end->qp->cap.max_inline_data)
		end->wr.send_flags = IBV_SEND_INLINE;
	if (cas) {
		end->wr.wr.atomic.remote_addr = target;
		end->wr.wr.atomic.rkey = end->other.rkey;
	} else {
		end->wr.wr.rdma.remote_addr = target;
		end->wr.wr.rdma.rkey = end->other.rkey;
	}
}

static inline int take_completions(struct end *end)
{
	struct ibv_wc wc[8];
	int n = hf_cq_poll(end->cq, 8, wc);

	for (int i = 0; i < n; i++) {
		if (wc[i].status != IBV_WC_SUCCESS)
			return -EIO;
		end->completed = (uint32_t)wc[i].wr_id;
	}
	return n;
}

static inline int post_one(struct end *end, uint32_t signal_every)
{
	struct ibv_send_wr *bad;

	end->wr.wr_id = ++end->posted;
	if (end->posted % signal_every == 0)
		end->wr.send_flags |= IBV_SEND_SIGNALED;
	else
		end->wr.send_flags &= ~(unsigned)IBV_SEND_SIGNALED;
	return hf_qp_post_send(end->qp, &end->wr, &bad);
}

static _Atomic uint64_t *last_word(struct end *end, uint32_t from)
{
	return (_Atomic uint64_t *)(void *)(end->mem + from + end->figure->bytes - 8);
}

/* Polls until the other's WRITE number `value` is there. */
static int await(struct end *end, uint64_t value)
{
	_Atomic uint64_t *word = last_word(end, LANDING);
	uint64_t tries = 0, end_ns = 0;

	while (observe(word) != value) {
		if (take_completions(end) < 0)
			return -EIO;
		if (++tries % 65536 != 0)
			continue;
		if (bench_other_left(end->meeting, end->near))
			return -EPIPE;
		if (end_ns == 0)
			end_ns = hf_env_now_ns(end->env) + STALL_NS;
		else if (hf_env_now_ns(end->env) > end_ns)
			return -ETIMEDOUT;
	}
	return 0;
}

static int send_word(struct end *end, uint64_t value)
{
	while (end->posted - end->completed >= QUEUE - SIGNAL_EVERY)
		if (take_completions(end) < 0)
			return -EIO;
	atomic_store_explicit(last_word(end, 0), value, memory_order_relaxed);
	return post_one(end, SIGNAL_EVERY);
}

static int answer_pings(struct end *end)
{
	for (uint64_t i = 1;; i++) {
		int rc = await(end, i);

		if (rc == 0)
			rc = send_word(end, i);
		if (rc != 0)
			return rc == -EPIPE ? 0 : rc; /* near has finished */
	}
}

static int one_ping(struct end *end, uint64_t *count)
{
	int rc = send_word(end, ++*count);

	return rc != 0 ? rc : await(end, *count);
}

static int one_cas(struct end *end, uint64_t *count)
{
	int rc;

	end->wr.wr.atomic.compare_add = *count;
	end->wr.wr.atomic.swap = ++*count;
	rc = post_one(end, 1);
	while (rc == 0)
		rc = take_completions(end);
	return rc < 0 ? rc : 0;
}

/* The median of many short batches; the last of some to warm up says how long a batch should be. */
static int time_batches(struct end *end, int (*step)(struct end *end, uint64_t *count), double *ns_out)
{
	static double batches[BATCHES];
	uint64_t count = 0, steps = 16;

	for (unsigned i = 0; i < WARM_UP + BATCHES; i++) {
		uint64_t start_ns = hf_env_now_ns(end->env), taken_ns;

		for (uint64_t k = 0; k < steps; k++) {
			int rc = step(end, &count);

			if (rc != 0)
				return rc;
		}
		taken_ns = hf_env_now_ns(end->env) - start_ns;
		if (i >= WARM_UP)
			batches[i - WARM_UP] = (double)taken_ns / (double)steps;
		else
			steps = 8 + steps * BATCH_NS / (taken_ns + 1);
		if (steps > BATCH_STEPS_MAX)
			steps = BATCH_STEPS_MAX;
	}
	*ns_out = bench_median(batches, BATCHES);
	return 0;
}

static int stream(struct end *end, double *mb_per_s_out)
{
	uint64_t start_ns = 0, now_ns = 0, bytes;
	uint32_t counted = 0;
	int rc;

	do {
		while (end->posted - end->completed < WINDOW)
			if ((rc = post_one(end, WINDOW / 4)) != 0)
				return rc;
		if (take_completions(end) < 0)
			return -EIO;
		now_ns = hf_env_now_ns(end->env);
		if (start_ns == 0 && end->completed >= 4 * WINDOW) {
			start_ns = now_ns;
			counted = end->completed;
		}
	} while (start_ns == 0 || now_ns - start_ns < BANDWIDTH_NS);
	bytes = (uint64_t)(end->completed - counted) * end->figure->bytes;
	*mb_per_s_out = (double)bytes * 1000.0 / (double)(now_ns - start_ns);
	return 0;
}

static int poll_until_other_left(struct end *end)
{
	while (!bench_other_left(end->meeting, end->near))
		take_completions(end);
	return 0;
}

static int measure(struct end *end, double *value_out)
{
	int rc;

	if (end->figure->shape == BENCH_BANDWIDTH)
		return end->near ? stream(end, value_out) : poll_until_other_left(end);
	if (end->figure->shape == BENCH_CAS_LATENCY)
		return end->near ? time_batches(end, one_cas, value_out) : poll_until_other_left(end);
	if (!end->near)
		return answer_pings(end);
	rc = time_batches(end, one_ping, value_out);
	*value_out /= 2;
	return rc;
}

static int run_end(struct bench_meeting *meeting, struct job *job, bool near)
{
	struct end end = {.figure = job->figure, .meeting = meeting, .env = hf_env_host(), .near = near};
	int parent_pid = near ? bench_own_pid() : 0, theirs = 0, rc;
	struct card mine;

	if (!bench_swap(meeting, near, &parent_pid, &theirs, sizeof(parent_pid)))
		return -EPIPE;
	rc = open_end(&end, near ? parent_pid : theirs, job->error);
	if (rc == 0) {
		mine = (struct card){.gid = hf_dev_gid(end.dev),
			.qp_num = end.qp->qp_num,
			.rkey = end.mr->rkey,
			.iova = end.mr->iova};
		rc = bench_swap(meeting, near, &mine, &end.other, sizeof(mine)) ? connect_end(&end) : -EPIPE;
	}
	if (rc == 0) {
		prepare_wr(&end);
		rc = bench_swap(meeting, near, &rc, &theirs, sizeof(rc)) ? theirs : -EPIPE; /* both are in RTS */
	}
	if (rc == 0)
		rc = measure(&end, &job->value);
	bench_leave(meeting, near);
	close_end(&end);
	return rc;
}

static int run_near(struct bench_meeting *meeting, void *job)
{
	return run_end(meeting, job, true);
}

static int run_far(struct bench_meeting *meeting, void *job)
{
	return run_end(meeting, job, false);
}

int bench_measure(const struct bench_figure *figure, double *value_out, struct hf_error *error)
{
	struct job job = {.figure = figure, .error = error};
	int rc;

	error->text[0] = 0;
	rc = bench_together(run_near, run_far, &job);
	bed_clean();
	*value_out = job.value;
	if (rc != 0 && error->text[0] == 0)
		hf_error_set(error, rc, "%s could not be measured: %s", figure->name, strerror(-rc));
	return rc;
}
