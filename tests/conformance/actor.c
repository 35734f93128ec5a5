/* An actor: carries out calls on its port and memory. Objects live in slots; what a test leaves behind is destroyed
 * by actor_free in the order that their dependencies ask for. */
#include "actor.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/ensure.h"

#define PASS_NS 1000u

struct actor {
	struct hf_env *env;
	void (*pass)(uint64_t ns);
	struct hf_dev *dev;
	struct hf_pd *pd[ACTOR_SLOTS];
	struct hf_cq *cq[ACTOR_SLOTS];
	struct hf_srq *srq[ACTOR_SLOTS];
	struct hf_mr *mr[ACTOR_SLOTS];
	struct hf_lease *lease[ACTOR_SLOTS];
	struct hf_qp *qp[ACTOR_SLOTS];
	void *mem[ACTOR_SLOTS];
	enum actor_memory memory[ACTOR_SLOTS];
	struct {
		pthread_t thread;
		_Atomic uint64_t *word;
		uint64_t n;
		bool running;
	} adder;
};

struct actor *actor_new(struct hf_env *env, void (*pass)(uint64_t ns))
{
	struct actor *actor = calloc(1, sizeof(*actor));

	ensure(actor != NULL);
	actor->env = env;
	actor->pass = pass;
	return actor;
}

static void *add_on_the_cpu(void *context)
{
	struct actor *actor = context;

	for (uint64_t i = 0; i < actor->adder.n; i++)
		atomic_fetch_add(actor->adder.word, 1);
	return NULL;
}

static void adder_join(struct actor *actor)
{
	if (actor->adder.running)
		pthread_join(actor->adder.thread, NULL);
	actor->adder.running = false;
}

#define DESTROY_ALL(array, destroy)                                                                                    \
	for (unsigned i = 0; i < ACTOR_SLOTS; i++) {                                                                   \
		destroy(array[i]);                                                                                     \
		array[i] = NULL;                                                                                       \
	}

/* The file has no name any more when it is mapped. */
static int mem_map(struct actor *actor, uint64_t bytes, void **addr_out, struct hf_error *error)
{
	struct hf_file *file;
	char path[64];
	int rc;

	snprintf(path, sizeof(path), "/dev/shm/holdfast-conformance-%d", (int)getpid());
	rc = hf_file_open(actor->env, path, HF_FILE_WRITE | HF_FILE_CREATE | HF_FILE_EXCLUSIVE, &file);
	if (rc != 0)
		return rc;
	hf_file_remove(actor->env, path);
	rc = hf_file_resize(file, bytes);
	if (rc == 0)
		rc = hf_mem_map_file(actor->env, file, 0, bytes, HF_MAP_WRITE, addr_out, error);
	hf_file_close(file);
	return rc;
}

static int mem_alloc(struct actor *actor, uint32_t i, uint64_t bytes, enum actor_memory memory, struct hf_error *error)
{
	actor->memory[i] = memory;
	switch (memory) {
	case ACTOR_SHARED:
		return hf_mem_alloc(actor->env, bytes, &actor->mem[i], error);
	case ACTOR_PRIVATE:
		actor->mem[i] = calloc(1, bytes);
		return actor->mem[i] == NULL ? -ENOMEM : 0;
	case ACTOR_FILE:
		return mem_map(actor, bytes, &actor->mem[i], error);
	}
	return -EINVAL;
}

static void mem_free(struct actor *actor, uint32_t i)
{
	if (actor->memory[i] == ACTOR_PRIVATE)
		free(actor->mem[i]);
	else if (actor->mem[i] != NULL)
		hf_mem_free(actor->env, actor->mem[i]);
}

static void close_lease(struct actor *actor, uint32_t i)
{
	hf_lease_close(actor->lease[i]);
	actor->lease[i] = NULL;
}

static void actor_close(struct actor *actor)
{
	adder_join(actor);
	DESTROY_ALL(actor->qp, hf_qp_destroy)
	DESTROY_ALL(actor->srq, hf_srq_destroy)
	DESTROY_ALL(actor->cq, hf_cq_destroy)
	DESTROY_ALL(actor->mr, hf_mr_dereg)
	DESTROY_ALL(actor->pd, hf_pd_free)
	for (unsigned i = 0; i < ACTOR_SLOTS; i++)
		close_lease(actor, i);
	hf_dev_close(actor->dev);
	actor->dev = NULL;
	for (unsigned i = 0; i < ACTOR_SLOTS; i++)
		mem_free(actor, i);
	memset(actor->mem, 0, sizeof(actor->mem));
}

void actor_free(struct actor *actor)
{
	if (actor == NULL)
		return;
	actor_close(actor);
	free(actor);
}

static void open_dev(struct actor *actor, const struct actor_config *from, struct actor_answer *answer)
{
	struct hf_dev_config config = {
		.kind = from->kind,
		.fabric = from->fabric[0] != 0 ? from->fabric : NULL,
		.node = from->node,
		.rail = from->rail,
		.caps_masked = from->caps_masked,
	};
	struct hf_error error = {0};

	if (from->address[0] != 0)
		ensure(hf_addr_parse(from->address, &config.address) == 0);
	answer->rc = hf_dev_open(actor->env, &config, &actor->dev, &error);
	if (answer->rc != 0) {
		answer->error = error;
		return;
	}
	answer->opened.attr = actor->dev->attr;
	answer->opened.gid = hf_dev_gid(actor->dev);
}

static void *slot(void *objects, uint32_t i)
{
	return i < ACTOR_SLOTS ? ((void **)objects)[i] : NULL;
}

static void reg(struct actor *actor, const struct actor_call *call, struct actor_answer *answer)
{
	struct hf_error error = {0};
	struct hf_mr *mr;

	answer->rc = hf_mr_reg(actor->pd[call->pd], (void *)(uintptr_t)call->addr, call->bytes, call->value,
		call->access, &mr, &error);
	if (answer->rc != 0) {
		answer->error = error;
		return;
	}
	actor->mr[call->object] = mr;
	answer->mr.lkey = mr->lkey;
	answer->mr.rkey = mr->rkey;
}

static void do_lease(struct actor *actor, const struct actor_call *call, struct actor_answer *answer)
{
	uint32_t i = call->object;

	if (call->op == ACTOR_LEASE_OPEN)
		answer->rc = hf_lease_open(actor->dev, &actor->lease[i]);
	else if (call->op == ACTOR_LEASE_EXTEND)
		answer->rc = hf_lease_extend(actor->lease[i], hf_env_boot_ns(actor->env) + call->value);
	else
		close_lease(actor, i);
}

static void create_qp(struct actor *actor, const struct actor_call *call, struct actor_answer *answer)
{
	struct hf_qp_init init = {
		.send_cq = slot(actor->cq, call->send_cq),
		.recv_cq = slot(actor->cq, call->recv_cq),
		.srq = slot(actor->srq, call->srq),
		.lease = slot(actor->lease, call->qp.lease_plus1 - 1),
		.cap = call->qp.cap,
		.type = call->qp.dc == HF_DC_NONE ? IBV_QPT_RC : IBV_QPT_DRIVER,
		.dc_key = call->qp.dc_key,
		.sq_sig_all = call->qp.sq_sig_all,
		.revoke_ns = call->qp.revoke_ns,
	};
	struct hf_qp *qp;

	init.dc = (unsigned)call->qp.dc;
	answer->rc = hf_qp_create(actor->pd[call->pd], &init, &qp);
	if (answer->rc != 0)
		return;
	actor->qp[call->object] = qp;
	answer->qp.qp_num = qp->qp_num;
	answer->qp.cap = qp->cap;
}

static void post_send(struct actor *actor, struct actor_call *call, struct actor_answer *answer)
{
	struct hf_qp *qp = actor->qp[call->object];
	struct ibv_send_wr *wr = call->send.wr, *bad = NULL;

	for (unsigned i = 0; i < call->n; i++) {
		wr[i].sg_list = call->send.sge[i];
		wr[i].next = i + 1 < call->n ? &wr[i + 1] : NULL;
	}
	if (call->send.footed)
		answer->rc = hf_qp_post_send_footed(
			qp, call->send.dc ? &call->send.dest : NULL, wr, call->send.footer, &bad);
	else if (call->send.dc)
		answer->rc = hf_qp_post_send_dc(qp, &call->send.dest, wr, &bad);
	else
		answer->rc = hf_qp_post_send(qp, wr, &bad);
	answer->value = bad == NULL ? UINT64_MAX : (uint64_t)(bad - wr);
}

static void post_recv(struct actor *actor, struct actor_call *call, struct actor_answer *answer)
{
	struct ibv_recv_wr *wr = call->recv.wr, *bad = NULL;

	for (unsigned i = 0; i < call->n; i++) {
		wr[i].sg_list = call->recv.sge[i];
		wr[i].next = i + 1 < call->n ? &wr[i + 1] : NULL;
	}
	if (call->op == ACTOR_SRQ_POST_RECV)
		answer->rc = hf_srq_post_recv(actor->srq[call->object], wr, &bad);
	else
		answer->rc = hf_qp_post_recv(actor->qp[call->object], wr, &bad);
	answer->value = bad == NULL ? UINT64_MAX : (uint64_t)(bad - wr);
}

static uint32_t slot_of(void *objects, const void *object)
{
	for (uint32_t i = 0; i < ACTOR_SLOTS; i++)
		if (object != NULL && ((void **)objects)[i] == object)
			return i;
	return ACTOR_NONE;
}

static void get_event(struct actor *actor, struct actor_answer *answer)
{
	struct hf_dev_event event = {0};

	answer->rc = hf_dev_get_event(actor->dev, &event);
	answer->event.type = event.type;
	answer->event.qp = slot_of(actor->qp, event.qp);
	answer->event.cq = slot_of(actor->cq, event.cq);
	answer->event.srq = slot_of(actor->srq, event.srq);
}

struct io_wait {
	struct hf_watch watch;
	bool ready;
};

static void io_ready(struct hf_watch *watch, unsigned ready)
{
	((struct io_wait *)watch)->ready = (ready & HF_READABLE) != 0;
}

/* True when the device's io becomes readable within `bytes` nanoseconds, seen through a loop. */
static int wait_io(struct actor *actor, uint64_t max_ns)
{
	struct io_wait wait = {.watch.ready = io_ready};
	struct hf_loop *loop;
	uint64_t end_ns = hf_env_now_ns(actor->env) + max_ns;

	ensure(hf_loop_create(actor->env, &loop) == 0);
	ensure(hf_loop_watch(loop, &wait.watch, hf_dev_io(actor->dev), HF_READABLE) == 0);
	do {
		uint64_t now_ns = hf_env_now_ns(actor->env);

		if (actor->pass != NULL)
			actor->pass(PASS_NS);
		else
			hf_loop_turn(loop, now_ns < end_ns ? end_ns - now_ns : 0);
	} while (!wait.ready && hf_env_now_ns(actor->env) < end_ns);
	hf_loop_unwatch(&wait.watch);
	hf_loop_destroy(loop);
	return wait.ready;
}

static void fill(uint8_t *at, uint64_t bytes, uint64_t seed)
{
	for (uint64_t i = 0; i < bytes; i++)
		at[i] = actor_pattern(seed, i);
}

/* The index of the first byte that a fill, of which `first` bytes lie before `at`, would have made different. */
static uint64_t mismatch(const uint8_t *at, uint64_t bytes, uint64_t seed, uint64_t first)
{
	uint64_t i = 0;

	while (i < bytes && at[i] == actor_pattern(seed, first + i))
		i++;
	return i;
}

static uint64_t digest(const uint8_t *at, uint64_t bytes)
{
	uint64_t hash = 0xcbf29ce484222325u;

	for (uint64_t i = 0; i < bytes; i++)
		hash = (hash ^ at[i]) * 0x100000001b3u;
	return hash;
}

static void do_memory(struct actor *actor, const struct actor_call *call, struct actor_answer *answer)
{
	void *at = (void *)(uintptr_t)call->addr;

	if (call->op == ACTOR_FILL) {
		fill(at, call->bytes, call->value);
	} else if (call->op == ACTOR_MISMATCH) {
		answer->value = mismatch(at, call->bytes, call->value, call->first);
	} else if (call->op == ACTOR_DIGEST) {
		answer->value = digest(at, call->bytes);
	} else if (call->op == ACTOR_LOAD) {
		answer->value = atomic_load((_Atomic uint64_t *)at);
	} else if (call->op == ACTOR_STORE) {
		atomic_store((_Atomic uint64_t *)at, call->value);
	} else if (call->op == ACTOR_ADD_START) {
		actor->adder.word = at;
		actor->adder.n = call->value;
		actor->adder.running = true;
		ensure(pthread_create(&actor->adder.thread, NULL, add_on_the_cpu, actor) == 0);
	} else {
		adder_join(actor);
	}
}

static void do_object(struct actor *actor, struct actor_call *call, struct actor_answer *answer)
{
	uint32_t i = call->object;

#define DESTROY(array, destroy)                                                                                        \
	answer->rc = destroy(array[i]);                                                                                \
	if (answer->rc == 0)                                                                                           \
	array[i] = NULL

	if (call->op == ACTOR_PD_ALLOC) {
		answer->rc = hf_pd_alloc(actor->dev, &actor->pd[i]);
	} else if (call->op == ACTOR_PD_FREE) {
		DESTROY(actor->pd, hf_pd_free);
	} else if (call->op == ACTOR_MEM_ALLOC) {
		answer->rc = mem_alloc(actor, i, call->bytes, (enum actor_memory)call->n, &answer->error);
		answer->value = (uintptr_t)actor->mem[i];
	} else if (call->op == ACTOR_MEM_PROTECT) {
		answer->rc = mprotect((void *)(uintptr_t)call->addr, call->bytes, (int)call->n) == 0 ? 0 : -errno;
	} else if (call->op == ACTOR_MR_REG) {
		reg(actor, call, answer);
	} else if (call->op == ACTOR_MR_DEREG) {
		DESTROY(actor->mr, hf_mr_dereg);
	} else if (call->op == ACTOR_CQ_CREATE) {
		answer->rc = hf_cq_create(actor->dev, call->n, NULL, &actor->cq[i]);
	} else if (call->op == ACTOR_CQ_DESTROY) {
		DESTROY(actor->cq, hf_cq_destroy);
	} else if (call->op == ACTOR_SRQ_CREATE) {
		answer->rc = hf_srq_create(actor->pd[call->pd], call->n, ACTOR_SGES, NULL, &actor->srq[i]);
	} else if (call->op == ACTOR_SRQ_DESTROY) {
		DESTROY(actor->srq, hf_srq_destroy);
	} else if (call->op == ACTOR_QP_CREATE) {
		create_qp(actor, call, answer);
	} else {
		DESTROY(actor->qp, hf_qp_destroy);
	}
#undef DESTROY
}

static void do_qp(struct actor *actor, struct actor_call *call, struct actor_answer *answer)
{
	struct hf_qp *qp = slot(actor->qp, call->object);
	uint32_t psn = 0;

	if (call->op == ACTOR_QP_MODIFY) {
		answer->rc = hf_qp_modify(qp, &call->attr, call->mask);
	} else if (call->op == ACTOR_QP_QUERY) {
		answer->rc = hf_qp_query(qp, &answer->qp_attr, call->mask);
	} else if (call->op == ACTOR_POST_SEND) {
		post_send(actor, call, answer);
	} else if (call->op == ACTOR_FENCE) {
		answer->rc = hf_qp_fence(qp);
	} else if (call->op == ACTOR_EXECUTED_PSN) {
		answer->rc = hf_qp_executed_psn(qp, &psn);
		answer->value = psn;
	} else if (call->op == ACTOR_REFUSAL) {
		answer->rc = hf_qp_refusal(qp, &answer->refusal);
	} else if (call->op == ACTOR_ATOMIC_RESULTS) {
		answer->rc = hf_qp_atomic_results(qp, answer->atomics, call->n);
	} else {
		answer->value = hf_qp_next_psn(qp);
	}
}

static void do_qp_dc(struct actor *actor, struct actor_call *call, struct actor_answer *answer)
{
	struct hf_qp *qp = slot(actor->qp, call->object);
	uint32_t psn = 0;

	if (call->op == ACTOR_DC_SOURCE)
		answer->rc = hf_qp_dc_source(qp, &answer->dc_source);
	else if (call->op == ACTOR_FENCE_DC)
		answer->rc = hf_qp_fence_dc(qp, &call->dc_source);
	else if (call->op == ACTOR_EXECUTED_PSN_DC)
		answer->rc = hf_qp_executed_psn_dc(qp, &call->dc_source, &psn);
	else
		answer->rc = hf_qp_atomic_results_dc(qp, &call->dc_source, answer->atomics, call->n);
	if (call->op == ACTOR_EXECUTED_PSN_DC)
		answer->value = psn;
}

static void do_dev(struct actor *actor, struct actor_call *call, struct actor_answer *answer)
{
	struct hf_cq *cq = slot(actor->cq, call->object);

	if (call->op == ACTOR_OPEN)
		open_dev(actor, &call->config, answer);
	else if (call->op == ACTOR_CLOSE)
		actor_close(actor);
	else if (call->op == ACTOR_CQ_POLL)
		answer->rc = hf_cq_poll(cq, (int)call->n, answer->wc);
	else if (call->op == ACTOR_DEV_POLL)
		answer->rc = (int)hf_dev_poll(actor->dev, hf_env_now_ns(actor->env));
	else if (call->op == ACTOR_SET_LINK)
		answer->rc = hf_dev_set_link(actor->dev, (enum hf_link)call->n, call->flag);
	else if (call->op == ACTOR_GET_EVENT)
		get_event(actor, answer);
	else if (call->op == ACTOR_QUERY_PORT)
		answer->rc = hf_dev_query_port(actor->dev, &answer->port_attr);
	else if (call->op == ACTOR_COUNTERS)
		hf_dev_counters(actor->dev, &answer->counters);
	else if (call->op == ACTOR_REQ_NOTIFY)
		answer->rc = hf_cq_req_notify(cq, call->flag);
	else if (call->op == ACTOR_NOTIFIED)
		answer->rc = hf_cq_notified(cq);
	else if (call->op == ACTOR_ARM)
		answer->rc = hf_dev_arm(actor->dev);
	else
		answer->rc = wait_io(actor, call->value);
}

void actor_do(struct actor *actor, struct actor_call *call, struct actor_answer *answer)
{
	answer->rc = 0;
	answer->value = 0;
	switch (call->op) {
	case ACTOR_PD_ALLOC:
	case ACTOR_PD_FREE:
	case ACTOR_MEM_ALLOC:
	case ACTOR_MEM_PROTECT:
	case ACTOR_MR_REG:
	case ACTOR_MR_DEREG:
	case ACTOR_CQ_CREATE:
	case ACTOR_CQ_DESTROY:
	case ACTOR_SRQ_CREATE:
	case ACTOR_SRQ_DESTROY:
	case ACTOR_QP_CREATE:
	case ACTOR_QP_DESTROY:
		do_object(actor, call, answer);
		break;
	case ACTOR_LEASE_OPEN:
	case ACTOR_LEASE_EXTEND:
	case ACTOR_LEASE_CLOSE:
		do_lease(actor, call, answer);
		break;
	case ACTOR_QP_MODIFY:
	case ACTOR_QP_QUERY:
	case ACTOR_POST_SEND:
	case ACTOR_FENCE:
	case ACTOR_EXECUTED_PSN:
	case ACTOR_REFUSAL:
	case ACTOR_ATOMIC_RESULTS:
	case ACTOR_NEXT_PSN:
		do_qp(actor, call, answer);
		break;
	case ACTOR_DC_SOURCE:
	case ACTOR_FENCE_DC:
	case ACTOR_EXECUTED_PSN_DC:
	case ACTOR_ATOMIC_RESULTS_DC:
		do_qp_dc(actor, call, answer);
		break;
	case ACTOR_POST_RECV:
	case ACTOR_SRQ_POST_RECV:
		post_recv(actor, call, answer);
		break;
	case ACTOR_FILL:
	case ACTOR_MISMATCH:
	case ACTOR_DIGEST:
	case ACTOR_LOAD:
	case ACTOR_STORE:
	case ACTOR_ADD_START:
	case ACTOR_ADD_JOIN:
		do_memory(actor, call, answer);
		break;
	case ACTOR_OPEN:
	case ACTOR_CLOSE:
	case ACTOR_CQ_POLL:
	case ACTOR_DEV_POLL:
	case ACTOR_SET_LINK:
	case ACTOR_GET_EVENT:
	case ACTOR_QUERY_PORT:
	case ACTOR_COUNTERS:
	case ACTOR_REQ_NOTIFY:
	case ACTOR_NOTIFIED:
	case ACTOR_ARM:
	case ACTOR_WAIT_IO:
		do_dev(actor, call, answer);
		break;
	}
}
