#include "proxy/answers.h"

#include <stdlib.h>

#include "base/ensure.h"

static struct answer **bucket_of(struct answers *answers, uint64_t session)
{
	return &answers->buckets[(session * 0x9e3779b97f4a7c15ull >> 32) % ANSWERS_SESSIONS];
}

static struct answer *find_session(struct answers *answers, uint64_t session)
{
	struct answer *answer = *bucket_of(answers, session);

	while (answer != NULL && answer->session != session)
		answer = answer->next;
	return answer;
}

static void drop_reply(struct answers *answers, struct answer *answer)
{
	answers->bytes -= answer->gather.out.room;
	resp_out_free(&answer->gather.out);
	answer->dropped = true;
}

static void forget(struct answers *answers, struct answer *answer)
{
	struct answer **at = bucket_of(answers, answer->session);

	while (*at != answer)
		at = &(*at)->next;
	*at = answer->next;
	list_remove(&answer->order);
	answers->count--;
	if (!answer->whole) {
		answer->orphan = true;
		list_push_back(&answers->orphans, &answer->order);
		return;
	}
	drop_reply(answers, answer);
	free(answer);
}

void proxy_answers_init(struct answers *answers)
{
	*answers = (struct answers){0};
	list_init(&answers->order);
	list_init(&answers->orphans);
}

void proxy_answers_free(struct answers *answers)
{
	while (!list_empty(&answers->order))
		forget(answers, container_of(answers->order.next, struct answer, order));
	while (!list_empty(&answers->orphans)) {
		struct answer *answer = container_of(list_pop_front(&answers->orphans), struct answer, order);

		resp_out_free(&answer->gather.out);
		free(answer);
	}
}

void proxy_answers_forget(struct answers *answers)
{
	list_for_each_safe (at, &answers->order) {
		struct answer *answer = container_of(at, struct answer, order);

		if (answer->whole)
			forget(answers, answer);
	}
}

/* The longest unused replies go until the bounds hold; what waits for its server stays. */
static void bound(struct answers *answers, const struct answer *kept)
{
	list_for_each_safe (at, &answers->order) {
		struct answer *answer = container_of(at, struct answer, order);

		if (answers->count <= ANSWERS_SESSIONS && answers->bytes <= ANSWERS_BYTES)
			return;
		if (answer->whole && answer != kept)
			forget(answers, answer);
	}
}

static void answer_done(struct server_gather *gather)
{
	struct answer *answer = container_of(gather, struct answer, gather);
	struct answers *answers = answer->answers;

	answer->whole = true;
	answers->bytes += gather->out.room;
	while (!list_empty(&answer->waiters)) {
		struct answer_waiter *waiter =
			container_of(list_pop_front(&answer->waiters), struct answer_waiter, node);

		waiter->told(waiter, answer);
	}
	if (answer->orphan) {
		list_remove(&answer->order);
		drop_reply(answers, answer);
		free(answer);
		return;
	}
	if (answer->dropped || answer->skipped || gather->out.room > ANSWERS_BYTES / 64)
		drop_reply(answers, answer);
	bound(answers, answer);
}

static void end_of(struct list *list, uint64_t from, bool skipped)
{
	list_for_each_safe (at, list) {
		struct answer *answer = container_of(at, struct answer, order);

		if (answer->whole || answer->place < from)
			continue;
		answer->skipped = skipped;
		answer->dropped = !skipped;
		answer_done(&answer->gather);
	}
}

void proxy_answers_end(struct answers *answers, uint64_t from, bool skipped)
{
	end_of(&answers->order, from, skipped);
	end_of(&answers->orphans, from, skipped);
}

struct answer *proxy_answers_begin(struct answers *answers, uint64_t session, uint32_t sequence, unsigned commands)
{
	struct answer *answer = find_session(answers, session);

	ensure(commands > 0);
	if (answer != NULL)
		forget(answers, answer);
	answer = calloc(1, sizeof(*answer));
	if (answer == NULL)
		return NULL;
	list_init(&answer->waiters);
	answer->answers = answers;
	answer->session = session;
	answer->sequence = sequence;
	answer->gather.left = commands;
	answer->gather.done = answer_done;
	answer->next = *bucket_of(answers, session);
	*bucket_of(answers, session) = answer;
	list_push_back(&answers->order, &answer->order);
	answers->count++;
	bound(answers, answer);
	return answer;
}

struct answer *proxy_answers_find(struct answers *answers, uint64_t session, uint32_t sequence)
{
	struct answer *answer = find_session(answers, session);

	return answer == NULL || answer->sequence != sequence || (answer->dropped && !answer->skipped) ? NULL : answer;
}
