#include "transfer/task.h"

#include "base/ensure.h"
#include "base/states.h"

static const struct state task_states[TASK_STATES] = {
	[TASK_INITIAL] = {"initial", BIT(TASK_ACTIVE) | BIT(TASK_DRAINING) | BIT(TASK_ENDED)},
	[TASK_ACTIVE] = {"active", BIT(TASK_DRAINING) | BIT(TASK_ENDED)},
	[TASK_DRAINING] = {"draining", BIT(TASK_ACTIVE) | BIT(TASK_ENDED)},
	[TASK_ENDED] = {"ended", 0},
};

static void task_move(struct task *task, enum task_state to)
{
	states_move_often("task", task_states, &task->state, to, "%p", (const void *)task);
}

void task_init(struct task *task, const struct task_config *config, uint64_t length)
{
	*task = (struct task){.config = config,
		.state = TASK_INITIAL,
		.status = HF_TRANSFER_INITIAL,
		.reason = HF_TRANSFER_PENDING,
		.length = length,
		.xport_priority = TASK_UNSPEC,
		.from_priority = TASK_UNSPEC,
		.carried_by = TASK_UNSPEC,
		.withdraw_ns = UINT64_MAX};
}

void task_free(struct task *task)
{
	ranges_free(&task->done);
}

static bool is_done(const struct task *task)
{
	return ranges_cover(&task->done, 0, task->length);
}

/* The only writer of a final status (R-T1). */
static unsigned end(struct task *task, enum hf_transfer_status status)
{
	task_move(task, TASK_ENDED);
	task->status = status;
	return TASK_END;
}

/* The first transport behind the one that carried the task last which reaches the peer. */
static uint8_t resolve(const struct task *task, uint32_t reachable)
{
	unsigned first = task->xport_priority == TASK_UNSPEC ? 0 : task->xport_priority + 1u;
	uint32_t left = first < 32 ? reachable >> first << first : 0;

	return left == 0 ? TASK_UNSPEC : (uint8_t)__builtin_ctz(left);
}

static unsigned submit(struct task *task, uint32_t reachable)
{
	task->xport_priority = resolve(task, reachable);
	task->withdrawn = false;
	if (task->xport_priority == TASK_UNSPEC)
		return TASK_NO_MORE | end(task, HF_TRANSFER_FAILED);
	return TASK_SUBMIT;
}

/* The one place where a task moves to another transport. */
static unsigned resubmit(struct task *task, uint32_t reachable)
{
	if (++task->failover_count > task->config->max_failover_attempts)
		return TASK_LIMIT | end(task, HF_TRANSFER_FAILED);
	return submit(task, reachable);
}

static unsigned begin(struct task *task, uint32_t reachable)
{
	unsigned actions;

	ensure(task->state == TASK_INITIAL && task->status == HF_TRANSFER_INITIAL);
	task->status = HF_TRANSFER_PENDING;
	actions = submit(task, reachable);
	task->carried_by = task->xport_priority;
	return actions;
}

static unsigned accepted(struct task *task)
{
	task_move(task, TASK_ACTIVE);
	task->from_priority = task->carried_by;
	task->carried_by = task->xport_priority;
	return task->from_priority != task->carried_by ? TASK_SWITCHED : 0;
}

static unsigned drained(struct task *task, uint32_t reachable)
{
	if (is_done(task))
		return end(task, HF_TRANSFER_COMPLETED);
	ensure(task->state == TASK_DRAINING);
	if (task->reason != HF_TRANSFER_PENDING)
		return end(task, task->reason);
	return resubmit(task, reachable);
}

static unsigned withdraw_if_due(struct task *task, uint64_t now_ns)
{
	if (task->state != TASK_DRAINING || task->withdrawn || now_ns < task->withdraw_ns)
		return 0;
	task->withdrawn = true;
	task->withdraw_ns = UINT64_MAX;
	return TASK_WITHDRAW;
}

/* A failover gives way to the first other reason; a later event may bring the withdrawal forward. */
static unsigned drain(struct task *task, enum hf_transfer_status reason, uint64_t grace_ns, uint64_t now_ns)
{
	if (task->state == TASK_ENDED)
		return 0;
	if (task->state != TASK_DRAINING)
		task_move(task, TASK_DRAINING);
	if (task->reason == HF_TRANSFER_PENDING)
		task->reason = reason;
	if (now_ns + grace_ns < task->withdraw_ns)
		task->withdraw_ns = now_ns + grace_ns;
	return withdraw_if_due(task, now_ns);
}

static unsigned done(struct task *task, const struct range *range)
{
	ensure(task->state == TASK_ACTIVE || task->state == TASK_DRAINING); /* X1: nothing arrives after an end */
	ensure(range->end <= task->length && ranges_add(&task->done, range->begin, range->end));
	return 0;
}

unsigned task_step(struct task *task, const struct task_event *event, uint64_t now_ns)
{
	switch (event->type) {
	case TASK_EVENT_BEGIN:
		return begin(task, event->reachable);
	case TASK_EVENT_ACCEPTED:
		return accepted(task);
	case TASK_EVENT_REFUSED:
		return resubmit(task, event->reachable);
	case TASK_EVENT_INVALID:
		return end(task, task->state == TASK_INITIAL ? HF_TRANSFER_INVALID : HF_TRANSFER_FAILED);
	case TASK_EVENT_DONE:
		return done(task, &event->done);
	case TASK_EVENT_GIVEN_UP:
		return drain(task, HF_TRANSFER_PENDING, 0, now_ns);
	case TASK_EVENT_PROGRAM_ERROR:
		return drain(task, HF_TRANSFER_FAILED, task->config->cancel_grace_ns, now_ns);
	case TASK_EVENT_CANCEL:
		return drain(task, HF_TRANSFER_CANCELED, task->config->cancel_grace_ns, now_ns);
	case TASK_EVENT_DEADLINE:
		return drain(task, HF_TRANSFER_TIMEOUT, 0, now_ns);
	case TASK_EVENT_DRAINED:
		return drained(task, event->reachable);
	case TASK_EVENT_TICK:
		return withdraw_if_due(task, now_ns);
	}
	ensure(false);
	return 0;
}

uint64_t task_wake_ns(const struct task *task)
{
	return task->state == TASK_DRAINING && !task->withdrawn ? task->withdraw_ns : UINT64_MAX;
}
