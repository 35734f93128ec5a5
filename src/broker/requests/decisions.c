/* Requests that wait for the controller. */
#include "broker/requests/decisions.h"

static void one_less(struct decisions *decisions)
{
	if (--decisions->left == 0)
		decisions->finish(decisions);
}

static void proposal_done(struct proposal *proposal, const struct controller_result *result)
{
	struct decision *decision = container_of(proposal, struct decision, proposal);

	if (decision->all->decided != NULL)
		decision->all->decided(decision->all, decision->place, result);
	one_less(decision->all);
}

static void drop(struct request *request)
{
	struct decisions *decisions = request->state;

	for (int32_t i = 0; i < decisions->count; i++)
		proposal_cancel(&decisions->at[i].proposal);
}

static void late(struct request *request)
{
	struct decisions *decisions = request->state;
	const struct controller_result result = {.error = DECISIONS_LATE,
		.message = broker_has_lease(request->broker)
				   ? "the controller has not decided it yet"
				   : "no majority of controller.quorum.voters answers this broker: start the others"};

	for (int32_t i = 0; decisions->decided != NULL && i < decisions->count; i++)
		if (decisions->at[i].proposal.held != NULL)
			decisions->decided(decisions, i, &result);
	drop(request);
	decisions->finish(decisions);
}

struct decisions *decisions_begin(struct request *request, size_t response_bytes, int32_t count,
	void (*decided)(struct decisions *decisions, int32_t place, const struct controller_result *result),
	void (*finish)(struct decisions *decisions))
{
	struct decisions *decisions = codec_arena_take(&request->arena, sizeof(*decisions));

	if (decisions != NULL)
		*decisions = (struct decisions){.request = request,
			.response = codec_arena_take(&request->arena, response_bytes),
			.decided = decided,
			.finish = finish,
			.at = codec_arena_take_array(&request->arena, (size_t)count, sizeof(*decisions->at)),
			.count = count,
			.left = 1};
	if (decisions != NULL && decisions->response != NULL && decisions->at != NULL)
		return decisions;
	request_give_up(request);
	return NULL;
}

struct proposal *decisions_expect(struct decisions *decisions, int32_t place)
{
	struct decision *decision = &decisions->at[place];

	*decision = (struct decision){.proposal = {.done = proposal_done}, .all = decisions, .place = place};
	decisions->left++;
	return &decision->proposal;
}

void decisions_propose(struct decisions *decisions, int32_t place, const struct kafka_controller_command *command)
{
	broker_propose(decisions->request->broker, command, decisions_expect(decisions, place));
}

void decisions_end(struct decisions *decisions, uint64_t timeout_ns)
{
	if (decisions->left > 1) {
		decisions->request->state = decisions;
		request_wait(decisions->request, timeout_ns, late, drop);
	}
	one_less(decisions);
}

void decisions_answer(struct decisions *decisions)
{
	request_answer(decisions->request, decisions->response);
}
