/* Sides: calls carried out here, or sent as they are to another process of the same program over a socket pair. */
#include "side.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/ensure.h"

#define SERVER_WORDS_MAX 8

struct side *side_local(struct hf_env *env, void (*pass)(uint64_t ns), void (*settle)(void))
{
	struct side *side = calloc(1, sizeof(*side));

	ensure(side != NULL);
	side->fd = -1;
	side->env = env;
	side->settle = settle;
	side->actor = actor_new(env, pass);
	return side;
}

static void exec_server(const char *const *before, char *number)
{
	static char program[256];
	char *words[SERVER_WORDS_MAX + 4];
	unsigned n = 0;
	ssize_t bytes = readlink("/proc/self/exe", program, sizeof(program) - 1);

	if (bytes < 0)
		return;
	for (; before != NULL && before[n] != NULL && n < SERVER_WORDS_MAX; n++)
		words[n] = (char *)(uintptr_t)before[n];
	words[n++] = program;
	words[n++] = (char *)(uintptr_t) "--serve";
	words[n++] = number;
	words[n] = NULL;
	execvp(words[0], words);
}

struct side *side_remote(const char *const *before)
{
	struct side *side = calloc(1, sizeof(*side));
	char number[16];
	int fds[2];

	ensure(side != NULL);
	ensure(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
	snprintf(number, sizeof(number), "%d", fds[1]);
	side->pid = fork();
	ensure(side->pid >= 0);
	if (side->pid == 0) {
		close(fds[0]);
		exec_server(before, number);
		_exit(127);
	}
	close(fds[1]);
	side->fd = fds[0];
	return side;
}

void side_free(struct side *side)
{
	if (side == NULL)
		return;
	actor_free(side->actor);
	if (side->fd >= 0) {
		kill(side->pid, SIGCONT);
		close(side->fd);
		waitpid(side->pid, NULL, 0);
	}
	free(side);
}

static bool move_all(int fd, void *data, size_t bytes, ssize_t (*move)(int fd, void *data, size_t bytes))
{
	for (size_t done = 0; done < bytes;) {
		ssize_t n = move(fd, (char *)data + done, bytes - done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		done += (size_t)n;
	}
	return true;
}

static ssize_t send_some(int fd, void *data, size_t bytes)
{
	return send(fd, data, bytes, MSG_NOSIGNAL);
}

int side_serve(int fd)
{
	struct actor *actor = actor_new(hf_env_host(), NULL);
	static struct actor_call call;
	static struct actor_answer answer;

	while (move_all(fd, &call, sizeof(call), read)) {
		actor_do(actor, &call, &answer);
		if (!move_all(fd, &answer, sizeof(answer), send_some))
			break;
	}
	actor_free(actor);
	return 0;
}

void side_ask(struct side *side, const struct actor_call *call)
{
	ensure(!side->asking);
	side->asking = true;
	move_all(side->fd, (void *)(uintptr_t)call, sizeof(*call), send_some);
}

/* A process that died answers nothing, which looks like -EPIPE. */
void side_hear(struct side *side, struct actor_answer *answer)
{
	side->asking = false;
	if (!move_all(side->fd, answer, sizeof(*answer), read))
		*answer = (struct actor_answer){.rc = -EPIPE};
}

void side_do(struct side *side, struct actor_call *call, struct actor_answer *answer)
{
	if (side->actor != NULL) {
		actor_do(side->actor, call, answer);
		return;
	}
	side_ask(side, call);
	side_hear(side, answer);
}

/* Calls and answers are large and used one at a time. */
static struct actor_call the_call;
static struct actor_answer the_answer;

static struct actor_call *call_of(enum actor_op op, uint32_t object)
{
	the_call.op = op;
	the_call.object = object;
	the_call.srq = ACTOR_NONE;
	return &the_call;
}

static struct actor_answer *answer_of(struct side *side, struct actor_call *call)
{
	side_do(side, call, &the_answer);
	return &the_answer;
}

static int simple(struct side *side, enum actor_op op, uint32_t object)
{
	return answer_of(side, call_of(op, object))->rc;
}

int side_open(struct side *side, const struct actor_config *config)
{
	struct actor_call *call = call_of(ACTOR_OPEN, 0);
	struct actor_answer *answer;

	call->config = *config;
	answer = answer_of(side, call);
	side->error = (struct hf_error){0};
	if (answer->rc != 0) {
		side->error = answer->error;
		return answer->rc;
	}
	side->attr = answer->opened.attr;
	side->gid = answer->opened.gid;
	return 0;
}

void side_close(struct side *side)
{
	simple(side, ACTOR_CLOSE, 0);
}

int side_pd_alloc(struct side *side, uint32_t pd)
{
	return simple(side, ACTOR_PD_ALLOC, pd);
}

int side_pd_free(struct side *side, uint32_t pd)
{
	return simple(side, ACTOR_PD_FREE, pd);
}

int side_mem_alloc(struct side *side, uint32_t mem, uint64_t bytes)
{
	struct actor_call *call = call_of(ACTOR_MEM_ALLOC, mem);
	struct actor_answer *answer;

	call->bytes = bytes;
	call->n = side->memory;
	answer = answer_of(side, call);
	side->mem[mem] = answer->value;
	side->mem_bytes[mem] = bytes;
	return answer->rc;
}

int side_mem_protect(struct side *side, uint64_t addr, uint64_t bytes, int protection)
{
	struct actor_call *call = call_of(ACTOR_MEM_PROTECT, 0);

	call->addr = addr;
	call->bytes = bytes;
	call->n = (uint32_t)protection;
	return answer_of(side, call)->rc;
}

int side_mr_reg(struct side *side, uint32_t mr, uint32_t pd, uint64_t addr, uint64_t bytes, uint64_t iova, int access)
{
	struct actor_call *call = call_of(ACTOR_MR_REG, mr);
	struct actor_answer *answer;

	call->pd = pd;
	call->addr = addr;
	call->bytes = bytes;
	call->value = iova;
	call->access = side->no_atomics ? access & ~IBV_ACCESS_REMOTE_ATOMIC : access;
	answer = answer_of(side, call);
	if (answer->rc == 0) {
		side->lkey[mr] = answer->mr.lkey;
		side->rkey[mr] = answer->mr.rkey;
	} else {
		side->error = answer->error;
	}
	return answer->rc;
}

int side_mr_dereg(struct side *side, uint32_t mr)
{
	return simple(side, ACTOR_MR_DEREG, mr);
}

int side_cq_create(struct side *side, uint32_t cq, uint32_t cqe)
{
	struct actor_call *call = call_of(ACTOR_CQ_CREATE, cq);

	call->n = cqe;
	return answer_of(side, call)->rc;
}

int side_cq_destroy(struct side *side, uint32_t cq)
{
	return simple(side, ACTOR_CQ_DESTROY, cq);
}

int side_srq_create(struct side *side, uint32_t srq, uint32_t pd, uint32_t max_wr)
{
	struct actor_call *call = call_of(ACTOR_SRQ_CREATE, srq);

	call->pd = pd;
	call->n = max_wr;
	return answer_of(side, call)->rc;
}

int side_srq_destroy(struct side *side, uint32_t srq)
{
	return simple(side, ACTOR_SRQ_DESTROY, srq);
}

int side_lease_open(struct side *side, uint32_t lease)
{
	return simple(side, ACTOR_LEASE_OPEN, lease);
}

int side_lease_extend(struct side *side, uint32_t lease, uint64_t for_ns)
{
	struct actor_call *call = call_of(ACTOR_LEASE_EXTEND, lease);

	call->value = for_ns;
	return answer_of(side, call)->rc;
}

void side_lease_close(struct side *side, uint32_t lease)
{
	(void)simple(side, ACTOR_LEASE_CLOSE, lease);
}

int side_qp_create(struct side *side, uint32_t qp, const struct side_qp *init)
{
	struct actor_call *call = call_of(ACTOR_QP_CREATE, qp);
	struct actor_answer *answer;

	call->pd = init->pd;
	call->send_cq = init->send_cq;
	call->recv_cq = init->recv_cq;
	call->srq = init->srq;
	call->qp.cap = init->cap;
	call->qp.dc = init->dc;
	call->qp.dc_key = init->dc_key;
	call->qp.lease_plus1 = init->lease_plus1;
	call->qp.sq_sig_all = init->sq_sig_all;
	call->qp.revoke_ns = init->revoke_ns;
	answer = answer_of(side, call);
	if (answer->rc == 0) {
		side->qp_num[qp] = answer->qp.qp_num;
		side->qp_cap[qp] = answer->qp.cap;
	}
	return answer->rc;
}

int side_qp_destroy(struct side *side, uint32_t qp)
{
	return simple(side, ACTOR_QP_DESTROY, qp);
}

int side_qp_modify(struct side *side, uint32_t qp, const struct ibv_qp_attr *attr, int mask)
{
	struct actor_call *call = call_of(ACTOR_QP_MODIFY, qp);

	call->attr = *attr;
	call->mask = mask;
	return answer_of(side, call)->rc;
}

int side_qp_query(struct side *side, uint32_t qp, struct ibv_qp_attr *attr_out, int mask)
{
	struct actor_call *call = call_of(ACTOR_QP_QUERY, qp);
	struct actor_answer *answer;

	call->mask = mask;
	answer = answer_of(side, call);
	*attr_out = answer->qp_attr;
	return answer->rc;
}

static struct actor_call *call_of_sends(uint32_t qp, const struct ibv_send_wr *wr)
{
	struct actor_call *call = call_of(ACTOR_POST_SEND, qp);

	call->send.dc = call->send.footed = false;
	for (call->n = 0; wr != NULL; wr = wr->next, call->n++) {
		ensure(call->n < ACTOR_WRS);
		call->send.wr[call->n] = *wr;
		for (int i = 0; i < wr->num_sge && i < ACTOR_SGES; i++)
			call->send.sge[call->n][i] = wr->sg_list[i];
	}
	return call;
}

static int posted(struct side *side, struct actor_call *call, unsigned *bad_out)
{
	struct actor_answer *answer = answer_of(side, call);

	if (bad_out != NULL)
		*bad_out = (unsigned)answer->value;
	return answer->rc;
}

int side_post_send(struct side *side, uint32_t qp, const struct ibv_send_wr *wr, unsigned *bad_out)
{
	return posted(side, call_of_sends(qp, wr), bad_out);
}

void side_post_send_ask(struct side *side, uint32_t qp, const struct ibv_send_wr *wr)
{
	side_ask(side, call_of_sends(qp, wr));
}

int side_post_send_dc(struct side *side, uint32_t qp, const struct hf_dc_dest *dest, const struct ibv_send_wr *wr)
{
	struct actor_call *call = call_of_sends(qp, wr);

	call->send.dc = true;
	call->send.dest = *dest;
	return posted(side, call, NULL);
}

int side_post_send_footed(struct side *side, uint32_t qp, const struct hf_dc_dest *dest, const struct ibv_send_wr *wr,
	const struct hf_footer *footers)
{
	struct actor_call *call = call_of_sends(qp, wr);

	call->send.footed = true;
	memcpy(call->send.footer, footers, call->n * sizeof(*footers));
	if (dest != NULL) {
		call->send.dc = true;
		call->send.dest = *dest;
	}
	return posted(side, call, NULL);
}

static int post_recv(
	struct side *side, enum actor_op op, uint32_t object, const struct ibv_recv_wr *wr, unsigned *bad_out)
{
	struct actor_call *call = call_of(op, object);

	for (call->n = 0; wr != NULL; wr = wr->next, call->n++) {
		ensure(call->n < ACTOR_WRS);
		call->recv.wr[call->n] = *wr;
		for (int i = 0; i < wr->num_sge && i < ACTOR_SGES; i++)
			call->recv.sge[call->n][i] = wr->sg_list[i];
	}
	return posted(side, call, bad_out);
}

int side_post_recv(struct side *side, uint32_t qp, const struct ibv_recv_wr *wr, unsigned *bad_out)
{
	return post_recv(side, ACTOR_POST_RECV, qp, wr, bad_out);
}

int side_srq_post_recv(struct side *side, uint32_t srq, const struct ibv_recv_wr *wr, unsigned *bad_out)
{
	return post_recv(side, ACTOR_SRQ_POST_RECV, srq, wr, bad_out);
}

int side_cq_poll(struct side *side, uint32_t cq, unsigned n, struct ibv_wc *wc)
{
	struct actor_call *call = call_of(ACTOR_CQ_POLL, cq);
	struct actor_answer *answer;

	ensure(n <= ACTOR_WCS);
	call->n = n;
	answer = answer_of(side, call);
	if (answer->rc > 0)
		memcpy(wc, answer->wc, (size_t)answer->rc * sizeof(*wc));
	return answer->rc;
}

enum hf_poll side_poll(struct side *side)
{
	return simple(side, ACTOR_DEV_POLL, 0) == HF_BUSY ? HF_BUSY : HF_IDLE;
}

int side_fence(struct side *side, uint32_t qp)
{
	return simple(side, ACTOR_FENCE, qp);
}

int side_executed_psn(struct side *side, uint32_t qp, uint32_t *psn_out)
{
	struct actor_answer *answer = answer_of(side, call_of(ACTOR_EXECUTED_PSN, qp));

	*psn_out = (uint32_t)answer->value;
	return answer->rc;
}

int side_refusal(struct side *side, uint32_t qp, struct hf_refusal *refusal_out)
{
	struct actor_answer *answer = answer_of(side, call_of(ACTOR_REFUSAL, qp));

	*refusal_out = answer->refusal;
	return answer->rc;
}

int side_atomic_results(struct side *side, uint32_t qp, struct hf_atomic_result *results_out, unsigned n)
{
	struct actor_call *call = call_of(ACTOR_ATOMIC_RESULTS, qp);
	struct actor_answer *answer;

	ensure(n <= ACTOR_WCS);
	call->n = n;
	answer = answer_of(side, call);
	if (answer->rc > 0)
		memcpy(results_out, answer->atomics, (size_t)answer->rc * sizeof(*results_out));
	return answer->rc;
}

int side_dc_source(struct side *side, uint32_t qp, struct hf_dc_source *source_out)
{
	struct actor_answer *answer = answer_of(side, call_of(ACTOR_DC_SOURCE, qp));

	*source_out = answer->dc_source;
	return answer->rc;
}

int side_fence_dc(struct side *side, uint32_t qp, const struct hf_dc_source *source)
{
	struct actor_call *call = call_of(ACTOR_FENCE_DC, qp);

	call->dc_source = *source;
	return answer_of(side, call)->rc;
}

int side_executed_psn_dc(struct side *side, uint32_t qp, const struct hf_dc_source *source, uint32_t *psn_out)
{
	struct actor_call *call = call_of(ACTOR_EXECUTED_PSN_DC, qp);
	struct actor_answer *answer;

	call->dc_source = *source;
	answer = answer_of(side, call);
	*psn_out = (uint32_t)answer->value;
	return answer->rc;
}

int side_atomic_results_dc(struct side *side, uint32_t qp, const struct hf_dc_source *source,
	struct hf_atomic_result *results_out, unsigned n)
{
	struct actor_call *call = call_of(ACTOR_ATOMIC_RESULTS_DC, qp);
	struct actor_answer *answer;

	ensure(n <= ACTOR_WCS);
	call->dc_source = *source;
	call->n = n;
	answer = answer_of(side, call);
	if (answer->rc > 0)
		memcpy(results_out, answer->atomics, (size_t)answer->rc * sizeof(*results_out));
	return answer->rc;
}

uint32_t side_next_psn(struct side *side, uint32_t qp)
{
	return (uint32_t)answer_of(side, call_of(ACTOR_NEXT_PSN, qp))->value;
}

int side_set_link(struct side *side, enum hf_link direction, bool up)
{
	struct actor_call *call;

	if (side->cut != NULL && direction != HF_LINK_BOTH)
		return side->cut(side->which, direction, up);
	call = call_of(ACTOR_SET_LINK, 0);

	call->n = direction;
	call->flag = up;
	return answer_of(side, call)->rc;
}

int side_get_event(struct side *side, struct side_event *event_out)
{
	struct actor_answer *answer = answer_of(side, call_of(ACTOR_GET_EVENT, 0));

	*event_out = (struct side_event){
		.type = answer->event.type,
		.qp = answer->event.qp,
		.cq = answer->event.cq,
		.srq = answer->event.srq,
	};
	return answer->rc;
}

enum ibv_port_state side_port_state(struct side *side)
{
	return answer_of(side, call_of(ACTOR_QUERY_PORT, 0))->port_attr.state;
}

void side_counters(struct side *side, struct hf_dev_counters *counters_out)
{
	*counters_out = answer_of(side, call_of(ACTOR_COUNTERS, 0))->counters;
}

int side_req_notify(struct side *side, uint32_t cq, bool solicited_only)
{
	struct actor_call *call = call_of(ACTOR_REQ_NOTIFY, cq);

	call->flag = solicited_only;
	return answer_of(side, call)->rc;
}

bool side_notified(struct side *side, uint32_t cq)
{
	return simple(side, ACTOR_NOTIFIED, cq) != 0;
}

bool side_arm(struct side *side)
{
	return simple(side, ACTOR_ARM, 0) != 0;
}

static uint64_t memory(struct side *side, enum actor_op op, uint64_t addr, uint64_t bytes, uint64_t value)
{
	struct actor_call *call = call_of(op, 0);

	call->addr = addr;
	call->bytes = bytes;
	call->value = value;
	if (side->settle != NULL && (op == ACTOR_MISMATCH || op == ACTOR_LOAD))
		side->settle();
	return answer_of(side, call)->value;
}

bool side_io_readable(struct side *side, uint64_t within_ns)
{
	memory(side, ACTOR_WAIT_IO, 0, 0, within_ns);
	return the_answer.rc != 0;
}

void side_fill(struct side *side, uint64_t addr, uint64_t bytes, uint64_t seed)
{
	memory(side, ACTOR_FILL, addr, bytes, seed);
}

uint64_t side_mismatch_from(struct side *side, uint64_t addr, uint64_t bytes, uint64_t seed, uint64_t first)
{
	the_call.first = first;
	return memory(side, ACTOR_MISMATCH, addr, bytes, seed);
}

uint64_t side_mismatch(struct side *side, uint64_t addr, uint64_t bytes, uint64_t seed)
{
	return side_mismatch_from(side, addr, bytes, seed, 0);
}

uint64_t side_digest(struct side *side, uint64_t addr, uint64_t bytes)
{
	return memory(side, ACTOR_DIGEST, addr, bytes, 0);
}

uint64_t side_load(struct side *side, uint64_t addr)
{
	return memory(side, ACTOR_LOAD, addr, 8, 0);
}

void side_store(struct side *side, uint64_t addr, uint64_t value)
{
	memory(side, ACTOR_STORE, addr, 8, value);
}

void side_add_start(struct side *side, uint64_t addr, uint64_t times)
{
	memory(side, ACTOR_ADD_START, addr, 8, times);
}

void side_add_join(struct side *side)
{
	memory(side, ACTOR_ADD_JOIN, 0, 0, 0);
}
