#include "transfer/owner.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/ensure.h"
#include "base/list.h"
#include "transfer/slice.h"

/* The transport that the caller prefers comes first, then the others in their order. */
static struct transport *ranked_at(
	const struct owner_context *context, const struct task_request *request, unsigned priority)
{
	unsigned hint = request->hint;

	if (hint >= HF_TRANSPORTS || priority > hint)
		return context->ranked[priority];
	return context->ranked[priority == 0 ? hint : priority - 1];
}

static struct transport *transport_at(const struct owner *owner, unsigned priority)
{
	return ranked_at(owner->context, &owner->request, priority);
}

static struct transport *carrier(const struct owner *owner)
{
	return transport_at(owner, owner->task.xport_priority);
}

/* Bit per priority: the transports that this request may go to now. */
static uint32_t reaching(const struct owner_context *context, const struct task_request *request)
{
	uint32_t mask = 0;

	for (unsigned i = 0; i < HF_TRANSPORTS; i++) {
		struct transport *transport = ranked_at(context, request, i);

		if (transport != NULL && transport->ops->reaches(transport, request))
			mask |= 1u << i;
	}
	return mask;
}

static uint32_t reachable(const struct owner *owner)
{
	if (!owner->context->fallback && owner->task.carried_by != TASK_UNSPEC)
		return 0;
	return reaching(owner->context, &owner->request);
}

enum hf_transport owner_resolve(
	const struct owner_context *context, const struct task_request *request, unsigned priority)
{
	uint32_t mask = reaching(context, request);

	for (unsigned i = 0; i < HF_TRANSPORTS; i++)
		if ((mask & 1u << i) != 0 && priority-- == 0)
			return ranked_at(context, request, i)->kind;
	return HF_TRANSPORTS;
}

#define MORE_BYTES 64

/* Of the tasks of one outage one line is said, and then one a second at the most (T6). */
static bool may_say(struct owner *owner, struct log_limit *limit, char more[MORE_BYTES])
{
	uint64_t suppressed;

	more[0] = '\0';
	if (!log_limit_allows(limit, hf_loop_now_ns(owner->context->loop), &suppressed))
		return false;
	if (suppressed > 0)
		(void)snprintf(more, MORE_BYTES, "; %" PRIu64 " such lines were left out", suppressed);
	return true;
}

static void say_switch(struct owner *owner)
{
	const struct task *task = &owner->task;
	enum hf_transport from = transport_at(owner, task->from_priority)->kind, to = carrier(owner)->kind;
	char more[MORE_BYTES];

	owner->context->failovers[from][to]++;
	metrics_failover(owner->context->metrics, from, to);
	if (may_say(owner, &owner->context->switched, more))
		log_info("Transport failover: %s -> %s (attempt %u/%u)%s", hf_transport_name(from),
			hf_transport_name(to), task->failover_count, task->config->max_failover_attempts, more);
}

static enum hf_transport last_transport(const struct owner *owner)
{
	uint8_t last = owner->task.carried_by;

	return last == TASK_UNSPEC ? HF_TRANSPORTS : transport_at(owner, last)->kind;
}

static void say_failure(struct owner *owner, unsigned actions)
{
	const char *last = hf_transport_name(last_transport(owner));
	char more[MORE_BYTES];

	if ((actions & (TASK_LIMIT | TASK_NO_MORE)) == 0 || !may_say(owner, &owner->context->failed, more))
		return;
	if (actions & TASK_LIMIT)
		log_warn("Task failover limit reached (%u), last transport=%s%s",
			owner->task.config->max_failover_attempts, last, more);
	else
		log_warn("No more transports available after %s failed%s", last, more);
}

/* ---- what is measured ---- */

static uint64_t clock_ns(const struct owner *owner)
{
	return owner->context->metrics == NULL ? 0 : hf_env_now_ns(hf_loop_env(owner->context->loop));
}

/* The transport is done with the task, or has refused it. */
static void attempt_ended(struct owner *owner, bool failed)
{
	metrics_attempt_ended(owner->context->metrics, carrier(owner)->kind, owner->request.opcode, failed,
		clock_ns(owner) - owner->attempt_ns);
}

/* By the transport that carried it last; once for all that was merged into it. */
static void request_ended(struct owner *owner)
{
	metrics_request_ended(owner->context->metrics, last_transport(owner), owner->request.opcode, owner->task.status,
		owner->request.length, clock_ns(owner) - owner->begun_ns);
}

/* A TICK for the withdrawal, or the DEADLINE, whichever is due first. */
static void set_timer(struct owner *owner)
{
	uint64_t wake_ns = task_wake_ns(&owner->task), deadline_ns = owner->request.deadline_ns;

	if (owner->task.state == TASK_ACTIVE && deadline_ns < wake_ns)
		wake_ns = deadline_ns;
	if (wake_ns == UINT64_MAX)
		hf_loop_cancel_timer(owner->context->loop, &owner->timer);
	else
		hf_loop_set_timer(owner->context->loop, &owner->timer, wake_ns);
}

static bool may_move(const struct owner *owner)
{
	return owner->task.failover_count < owner->task.config->max_failover_attempts &&
	       (reachable(owner) & ~((2u << owner->task.xport_priority) - 1)) != 0;
}

static enum task_event_type submit(struct owner *owner)
{
	unsigned slices = slice_count_most(owner->request.length, owner->task.done.count + 1, BLOCK_BYTES_MIN);

	if (ranges_reserve(&owner->task.done, slices) != 0)
		return TASK_EVENT_REFUSED;
	owner->job.movable = may_move(owner);
	owner->attempt_ns = clock_ns(owner);
	metrics_attempt(owner->context->metrics, carrier(owner)->kind, owner->request.opcode);
	switch (carrier(owner)->ops->submit(carrier(owner), &owner->job)) {
	case TRANSPORT_ACCEPTED:
		return TASK_EVENT_ACCEPTED;
	case TRANSPORT_REFUSED:
		attempt_ended(owner, true);
		return TASK_EVENT_REFUSED;
	case TRANSPORT_INVALID:
		attempt_ended(owner, true);
		return TASK_EVENT_INVALID;
	}
	ensure(false);
	return TASK_EVENT_INVALID;
}

/* A submit's answer is the next event; each round takes the next transport, so there are few. */
static void step(struct owner *owner, enum task_event_type type, const struct range *done)
{
	struct task_event event = {.type = type, .done = done == NULL ? (struct range){0} : *done};
	unsigned actions;

	do {
		if (event.type != TASK_EVENT_DONE)
			event.reachable = reachable(owner);
		actions = task_step(&owner->task, &event, hf_loop_now_ns(owner->context->loop));
		if (actions & TASK_SWITCHED)
			say_switch(owner);
		if (actions & TASK_SUBMIT)
			event.type = submit(owner);
	} while (actions & TASK_SUBMIT);
	say_failure(owner, actions);
	set_timer(owner);
	if (actions & TASK_WITHDRAW)
		carrier(owner)->ops->withdraw(carrier(owner), &owner->job);
	else if (actions & TASK_END) {
		request_ended(owner);
		owner->ended(owner);
	}
}

static void on_done(struct transport_job *job, const struct range *range)
{
	step(container_of(job, struct owner, job), TASK_EVENT_DONE, range);
}

static void on_given_up(struct transport_job *job)
{
	step(container_of(job, struct owner, job), TASK_EVENT_GIVEN_UP, NULL);
}

static void on_program_error(struct transport_job *job)
{
	step(container_of(job, struct owner, job), TASK_EVENT_PROGRAM_ERROR, NULL);
}

static void on_drained(struct transport_job *job)
{
	struct owner *owner = container_of(job, struct owner, job);
	bool whole = ranges_cover(&owner->task.done, 0, owner->request.length);

	attempt_ended(owner, !whole && owner->task.reason != HF_TRANSFER_CANCELED);
	step(container_of(job, struct owner, job), TASK_EVENT_DRAINED, NULL);
}

static const struct transport_job_events owner_events = {
	.done = on_done, .given_up = on_given_up, .program_error = on_program_error, .drained = on_drained};

static void on_timer(struct hf_timer *timer, uint64_t now_ns)
{
	struct owner *owner = container_of(timer, struct owner, timer);

	step(owner, now_ns >= owner->request.deadline_ns ? TASK_EVENT_DEADLINE : TASK_EVENT_TICK, NULL);
}

void owner_init(struct owner *owner, struct owner_context *context, const struct task_request *request)
{
	*owner = (struct owner){.context = context, .request = *request, .timer = {.fire = on_timer}};
	owner->job =
		(struct transport_job){.events = &owner_events, .request = &owner->request, .done = &owner->task.done};
	task_init(&owner->task, &context->config, request->length);
}

void owner_free(struct owner *owner)
{
	ensure(owner->task.state == TASK_INITIAL || owner->task.state == TASK_ENDED);
	hf_loop_cancel_timer(owner->context->loop, &owner->timer);
	task_free(&owner->task);
}

void owner_begin(struct owner *owner)
{
	owner->begun_ns = clock_ns(owner);
	step(owner, TASK_EVENT_BEGIN, NULL);
}

void owner_cancel(struct owner *owner)
{
	if (owner->task.state == TASK_ENDED) /* its segment may be gone */
		return;
	if (++owner->cancels >= owner->aliases)
		step(owner, TASK_EVENT_CANCEL, NULL);
}
