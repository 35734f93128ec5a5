/* D3: the fence, and every other place where the owner waits until requesters are out of its memory.
 *
 * The owner withdraws something (a qp's state, an access flag, a registration) and then looks at the op word: when it
 * is idle, or has changed since, no operation that began before the withdrawal is under way (SEG-1). A requester leaves
 * within a chunk. One that does not is a process that exited, whose operation is taken over at once, or that was
 * stopped, whose operation is taken over after STUCK_NS, or revoke_ns where access was taken from it: it does not count
 * as executed (SEG-2), and the memory that it is about to touch is moved to other pages (SEG-3).
 *
 * Memory whose pages cannot be moved is copied to under guard (guard.h), and all memory for qps with revoke_ns, since
 * moving takes 0.5 ms for each MiB of a region: there the owner waits, behind OP_TAKEN, until the thread is seen
 * stopped, or anywhere but in the copy. If it is neither, pages that can be moved are, after as long again. A thread
 * that is in the system call that copies and stays there (its pages are swapped in, a debugger holds it) makes the
 * fence fail after LATE_NS; it holds later, when the thread has come out.
 *
 * Only an atomic of a stopped process leaves something unknown: whether it took effect before the process was stopped
 * cannot be seen, so the fence holds but the evidence is in doubt about that one (-ENODATA). */
#include "dev/shm/shm.h"
#include "dev/qp_rules.h"

#include <errno.h>

#define QUIESCE_NS 20000ull /* taking access waits this long for an operation to end; a chunk is copied in less */

static uint64_t now_ns(const struct shm_qp *qp)
{
	return hf_env_now_ns(qp->qp.dev->env);
}

static bool requester_is_gone(struct shm_qp *qp)
{
	return qp->peer != NULL && peer_is_gone(qp->peer);
}

static void set_drained(struct shm_qp *qp, uint64_t op)
{
	qp->evidence = op;
	qp->drained = true;
}

/* True: the operation was under way and is ours now. Of a guarded copy it is not known yet where its thread is. */
bool fence_take_op(struct shm_qp *qp)
{
	uint64_t op = atomic_load(&qp->shared->op);

	while ((op & OP_BUSY) != 0 && (op & OP_TAKEN) == 0)
		if (atomic_compare_exchange_weak(&qp->shared->op, &op, op | OP_TAKEN)) {
			uint32_t kind = atomic_load(&qp->shared->touch_kind);

			qp->held = kind == TOUCH_GUARDED || atomic_load(&qp->shared->touch_foot) == FOOT_GUARDED;
			qp->unmoved = kind == TOUCH_GUARDED && atomic_load(&qp->shared->touch_foot) == FOOT_NONE;
			qp->held_since_ns = now_ns(qp);
			qp->unknown = kind == TOUCH_ATOMIC;
			if (qp->held)
				qp->evidence = op;
			else
				set_drained(qp, op);
			return true;
		}
	set_drained(qp, op);
	return false;
}

/* Whether it has backed off, or cannot do any more. */
static bool requester_has_left(struct shm_qp *qp)
{
	return (atomic_load(&qp->shared->op) & OP_GIVEN) != 0 || requester_is_gone(qp);
}

static bool thread_is_out(const struct shm_qp *qp)
{
	return qp->peer != NULL && guard_is_out(qp->peer->shared->header.pid, atomic_load(&qp->shared->touch_thread));
}

static bool is_out(struct shm_qp *qp)
{
	return requester_has_left(qp) || thread_is_out(qp);
}

static int take_over(struct shm_qp *qp)
{
	bool gone = requester_is_gone(qp);
	uint32_t kind;

	if (!fence_take_op(qp) || gone) {
		set_drained(qp, qp->evidence);
		return 0;
	}
	kind = atomic_load(&qp->shared->touch_kind);
	log_warn("%s: the peer of qp 0x%x is stopped in the middle of an operation; the fence does not wait for it",
		qp->qp.dev->attr.name, qp->qp.qp_num);
	if (atomic_load(&qp->shared->touch_foot) == FOOT_FREE)
		return -EIO;
	switch ((enum touch_kind)kind) {
	case TOUCH_READ:
	case TOUCH_GUARDED:
		return 0;
	case TOUCH_WRITE:
	case TOUCH_ATOMIC:
		return move_touched(qp);
	case TOUCH_FREE:
		break;
	}
	return -EIO;
}

bool fence_drain_try(struct shm_qp *qp)
{
	uint64_t op;

	if (qp->drained)
		return true;
	op = atomic_load(&qp->shared->op);
	if (qp->held) {
		if (is_out(qp))
			set_drained(qp, qp->evidence);
	} else if ((op & OP_BUSY) == 0 || (op & OP_TAKEN) != 0) {
		set_drained(qp, op);
	} else if (requester_is_gone(qp)) {
		take_over(qp);
	}
	return qp->drained;
}

/* A thread that waits for a core in the middle of a guarded copy is not waited for where the pages can be moved. */
static bool move_from_under(struct shm_qp *qp)
{
	qp->unmoved = false;
	if (move_touched(qp) != 0)
		return false;
	set_drained(qp, qp->evidence);
	return true;
}

/* 0: drained; -EINPROGRESS; else what keeps it from being fenced. */
static int drain_step(struct shm_qp *qp, uint64_t since_ns)
{
	uint64_t now;

	if (fence_drain_try(qp))
		return qp->fence_error;
	now = now_ns(qp);
	if (!qp->held && now - since_ns > qp->stuck_ns) {
		qp->fence_error = take_over(qp);
		return qp->held && !fence_drain_try(qp) ? -EINPROGRESS : qp->fence_error;
	}
	if (qp->held && qp->unmoved && now - qp->held_since_ns > qp->stuck_ns && move_from_under(qp))
		return 0;
	return !qp->held || now - qp->held_since_ns <= LATE_NS ? -EINPROGRESS : -EIO;
}

/* A fence that failed holds as soon as the requester runs again and gives the operation up. */
static void forget_error(struct shm_qp *qp)
{
	if (qp->fence_error != 0 && requester_has_left(qp))
		qp->fence_error = 0;
}

int fence_drain_wait(struct shm_qp *qp)
{
	uint64_t since = now_ns(qp);
	int rc;

	forget_error(qp);
	while ((rc = drain_step(qp, since)) == -EINPROGRESS)
		cpu_relax();
	return rc;
}

/* A qp whose peer is stuck is lost, as with a broken path, when something else needs the peer to be out. */
static void lose(struct shm_qp *qp)
{
	qp_enter_error(qp, IBV_WC_SUCCESS);
	qp->fence_error = take_over(qp);
	if (qp->fence_error == 0)
		event_push(shm_dev_of(qp->qp.dev), (struct hf_dev_event){.type = IBV_EVENT_QP_FATAL, .qp = &qp->qp});
}

static int quiesce_one(struct shm_qp *qp)
{
	uint64_t begun = atomic_load(&qp->shared->op), since;

	forget_error(qp);
	if ((begun & OP_BUSY) == 0 || ((begun & OP_TAKEN) != 0 && !qp->held))
		return qp->fence_error;
	since = now_ns(qp);
	while (atomic_load(&qp->shared->op) == begun && !qp->held) {
		if (requester_is_gone(qp) || now_ns(qp) - since > STUCK_NS) {
			lose(qp);
			break;
		}
		cpu_relax();
	}
	return qp->held ? fence_drain_wait(qp) : qp->fence_error;
}

int fence_quiesce_access(struct shm_qp *qp)
{
	uint64_t begun = atomic_load(&qp->shared->op), since;

	if ((begun & OP_BUSY) == 0 || (begun & OP_TAKEN) != 0)
		return 0;
	since = now_ns(qp);
	while (atomic_load(&qp->shared->op) == begun && now_ns(qp) - since <= QUIESCE_NS)
		cpu_relax();
	if (atomic_load(&qp->shared->op) != begun)
		return 0;
	if (requester_is_gone(qp)) {
		lose(qp);
		return 0;
	}
	qp->drain_since_ns = since;
	if (qp->qp.revoke_ns != 0)
		qp->stuck_ns = qp->qp.revoke_ns;
	/* Seen stopped, or exiting. Should it go on meanwhile, it has lost an operation as if it had been slow. */
	if (atomic_load(&qp->shared->touch_kind) == TOUCH_GUARDED && thread_is_out(qp))
		qp->stuck_ns = 0;
	return -EINPROGRESS;
}

int fence_quiesce_all(struct shm_dev *dev)
{
	int rc = 0;

	for (uint32_t slot = 0; slot < QP_SLOTS; slot++)
		if (dev->qps[slot] != NULL && quiesce_one(dev->qps[slot]) != 0)
			rc = -EBUSY;
	return rc;
}

/* ---- the contract ---- */

int shm_qp_fence(struct hf_qp *base)
{
	struct shm_qp *qp = shm_qp_of(base);

	events_look(shm_dev_of(base->dev));
	if (qp->state == IBV_QPS_RESET)
		return shm_qp_modify(base, &(struct ibv_qp_attr){.qp_state = IBV_QPS_ERR}, IBV_QP_STATE);
	qp_enter_error(qp, IBV_WC_SUCCESS);
	forget_error(qp);
	return drain_step(qp, qp->drain_since_ns);
}

static int has_evidence(const struct shm_qp *qp)
{
	if (qp->state == IBV_QPS_RESET || qp->state == IBV_QPS_INIT)
		return -EINVAL;
	return qp->unknown ? -ENODATA : 0;
}

static uint64_t evidence(const struct shm_qp *qp)
{
	return qp->drained ? qp->evidence : atomic_load(&qp->shared->op);
}

int shm_qp_executed_psn(struct hf_qp *base, uint32_t *psn_out)
{
	struct shm_qp *qp = shm_qp_of(base);
	int rc = has_evidence(qp);

	if (rc == 0 || rc == -ENODATA)
		*psn_out = OP_PSN(evidence(qp));
	return rc;
}

/* A result is written before its psn counts, so the newest may be of an atomic that does not. */
int shm_qp_atomic_results(struct hf_qp *base, struct hf_atomic_result *results_out, unsigned n)
{
	struct shm_qp *qp = shm_qp_of(base);
	uint32_t written = atomic_load(&qp->shared->atomics), psn, limit = qp->attr.max_dest_rd_atomic;
	int rc = has_evidence(qp), filled = 0;

	if (rc != 0 && rc != -ENODATA)
		return rc;
	psn = OP_PSN(evidence(qp));
	for (uint32_t i = 0; i < RD_ATOMIC && i < written && (uint32_t)filled < n && (uint32_t)filled < limit; i++) {
		const struct atomic_result *result = &qp->shared->results[(written - 1 - i) % RD_ATOMIC];
		uint32_t of = psn_add(atomic_load(&result->psn), 0); /* the requester may have written anything */

		if (psn_diff(of, psn) < 0)
			results_out[filled++] =
				(struct hf_atomic_result){.psn = of, .original = atomic_load(&result->original)};
	}
	return filled;
}
