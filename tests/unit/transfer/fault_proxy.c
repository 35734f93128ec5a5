#include "fault_proxy.h"

#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"

/* ---- the fake transport ---- */

struct fake_job {
	struct list link;
	struct transport_job *job;
	unsigned turns;
	bool withdrawn;
};

static bool fake_reaches(struct transport *transport, const struct task_request *request)
{
	(void)request;
	return !container_of(transport, struct fake_transport, transport)->unreachable;
}

static enum transport_answer fake_submit(struct transport *transport, struct transport_job *job)
{
	struct fake_transport *fake = container_of(transport, struct fake_transport, transport);
	struct fake_job *taken = calloc(1, sizeof(*taken));

	ensure(taken != NULL);
	taken->job = job;
	taken->turns = fake->turns_held;
	job->carried = taken;
	list_push_back(&fake->jobs, &taken->link);
	fake->submits++;
	return TRANSPORT_ACCEPTED;
}

static void fake_withdraw(struct transport *transport, struct transport_job *job)
{
	(void)transport;
	((struct fake_job *)job->carried)->withdrawn = true;
}

static void copy(struct transport_job *job)
{
	const struct task_request *request = job->request;
	uint8_t *remote = (uint8_t *)request->segment + request->offset;
	struct range hole;

	for (uint64_t at = 0; ranges_next_hole(job->done, at, request->length, &hole); at = hole.end) {
		if (request->opcode == HF_TRANSFER_WRITE)
			memcpy(&remote[hole.begin], &request->source[hole.begin], hole.end - hole.begin);
		else
			memcpy(&request->source[hole.begin], &remote[hole.begin], hole.end - hole.begin);
		job->events->done(job, &hole);
	}
}

bool fake_turn(struct fake_transport *fake)
{
	struct list round, *at;
	bool any = !list_empty(&fake->jobs);

	list_init(&round);
	while ((at = list_pop_front(&fake->jobs)) != NULL)
		list_push_back(&round, at);
	while ((at = list_pop_front(&round)) != NULL) {
		struct fake_job *taken = container_of(at, struct fake_job, link);
		struct transport_job *job = taken->job;

		if (taken->turns > 0 && !taken->withdrawn) {
			taken->turns--;
			list_push_back(&fake->jobs, &taken->link);
			continue;
		}
		if (!taken->withdrawn)
			copy(job);
		free(taken);
		job->events->drained(job);
	}
	return any;
}

static const struct transport_ops fake_ops = {
	.reaches = fake_reaches, .submit = fake_submit, .withdraw = fake_withdraw};

void fake_init(struct fake_transport *fake, enum hf_transport kind)
{
	*fake = (struct fake_transport){.transport = {.ops = &fake_ops, .kind = kind}};
	list_init(&fake->jobs);
}

/* ---- the decorator ---- */

/* Stands between a job and the transport below. */
struct proxied {
	struct transport_job job;
	struct transport_job *above;
	struct fault_proxy *proxy;
	bool corrupt;
};

static bool happens(struct fault_proxy *proxy, double rate)
{
	proxy->seed = proxy->seed * 6364136223846793005ull + 1442695040888963407ull;
	return (double)(proxy->seed >> 40) / (double)(1u << 24) < rate;
}

static bool proxy_reaches(struct transport *transport, const struct task_request *request)
{
	struct fault_proxy *proxy = container_of(transport, struct fault_proxy, transport);

	return !proxy->policy.fail_install && proxy->inner->ops->reaches(proxy->inner, request);
}

static void proxy_done(struct transport_job *job, const struct range *range)
{
	struct proxied *proxied = container_of(job, struct proxied, job);

	if (!proxied->corrupt)
		proxied->above->events->done(proxied->above, range);
}

static void proxy_given_up(struct transport_job *job)
{
	struct proxied *proxied = container_of(job, struct proxied, job);

	proxied->above->events->given_up(proxied->above);
}

static void proxy_program_error(struct transport_job *job)
{
	struct proxied *proxied = container_of(job, struct proxied, job);

	proxied->above->events->program_error(proxied->above);
}

/* The transport below has ended the job: a corrupted one is given up first, and is over then. */
static void proxy_drained(struct transport_job *job)
{
	struct proxied *proxied = container_of(job, struct proxied, job);
	struct transport_job *above = proxied->above;

	above->carried = NULL;
	if (proxied->corrupt && proxied->proxy->policy.program_error)
		above->events->program_error(above);
	else if (proxied->corrupt)
		above->events->given_up(above);
	free(proxied);
	above->events->drained(above);
}

static const struct transport_job_events proxy_events = {
	.done = proxy_done, .given_up = proxy_given_up, .program_error = proxy_program_error, .drained = proxy_drained};

static enum transport_answer proxy_submit(struct transport *transport, struct transport_job *job)
{
	struct fault_proxy *proxy = container_of(transport, struct fault_proxy, transport);
	const struct fault_policy *policy = &proxy->policy;
	struct proxied *proxied;
	enum transport_answer answer;

	proxy->submits++;
	if (happens(proxy, policy->submit_fail_rate) ||
		(policy->fail_after_n_submits >= 0 && proxy->submits > (unsigned)policy->fail_after_n_submits)) {
		proxy->refused++;
		return TRANSPORT_REFUSED;
	}
	proxied = calloc(1, sizeof(*proxied));
	ensure(proxied != NULL);
	*proxied = (struct proxied){.above = job, .proxy = proxy, .job = *job};
	proxied->job.events = &proxy_events;
	proxied->corrupt = happens(proxy, policy->status_corrupt_rate) || policy->program_error ||
			   (policy->poisons != NULL && policy->poisons(job->request));
	proxy->corrupted += proxied->corrupt;
	answer = proxy->inner->ops->submit(proxy->inner, &proxied->job);
	if (answer == TRANSPORT_ACCEPTED)
		job->carried = proxied;
	else
		free(proxied);
	return answer;
}

static void proxy_withdraw(struct transport *transport, struct transport_job *job)
{
	struct fault_proxy *proxy = container_of(transport, struct fault_proxy, transport);
	struct proxied *proxied = job->carried;

	if (proxied != NULL)
		proxy->inner->ops->withdraw(proxy->inner, &proxied->job);
}

static const struct transport_ops proxy_ops = {
	.reaches = proxy_reaches, .submit = proxy_submit, .withdraw = proxy_withdraw};

void fault_proxy_init(struct fault_proxy *proxy, struct transport *inner, const struct fault_policy *policy)
{
	*proxy = (struct fault_proxy){
		.transport = {.ops = &proxy_ops, .kind = inner->kind}, .inner = inner, .policy = *policy, .seed = 1};
}
