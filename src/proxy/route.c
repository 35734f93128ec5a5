/* Finds the leader for a run, again and again until it is answered. */
#include <errno.h>

#include "base/ensure.h"
#include "proxy/objects.h"

#define RETRY_NS 5000000ull /* while runs are stranded; events come sooner */

static void strand(struct run *run)
{
	struct proxy *proxy = run->proxy;

	list_push_back(&proxy->stranded, &run->node);
	hf_loop_set_timer(proxy->loop, &proxy->retry, hf_loop_now_ns(proxy->loop) + RETRY_NS);
}

static void end(struct run *run)
{
	struct proxy *proxy = run->proxy;

	service_metrics_took(&proxy->metrics, proxy_run_writes(run), hf_loop_now_ns(proxy->loop) - run->since_ns);
	run->routed(run);
}

static void settle(struct run *run, enum run_status status)
{
	run->status = status;
	if (status == RUN_UNKNOWN)
		run->doubt |= proxy_run_writes(run);
	if (status == RUN_NOT_LEADER || status == RUN_UNKNOWN)
		strand(run);
	else
		end(run);
}

static void led_here(struct run *run)
{
	settle(run, run->status);
}

static void dispatch(struct run *run)
{
	struct proxy *proxy = run->proxy;
	int leader = proxy->smr == NULL ? -1 : hf_smr_leader(proxy->smr);

	if (proxy->smr != NULL && hf_smr_is_leader(proxy->smr)) {
		run->leader = proxy->id;
		run->done = led_here;
		proxy_lead(run);
	} else if (leader >= 0 && leader != proxy->id && proxy_forward(run, leader)) {
		run->leader = leader;
		list_push_back(&proxy->sent, &run->node);
	} else {
		strand(run);
	}
}

void proxy_route(struct run *run)
{
	run->id = ++run->proxy->next_run;
	run->since_ns = hf_loop_now_ns(run->proxy->loop);
	run->doubt = false;
	dispatch(run);
}

void proxy_route_again(struct proxy *proxy)
{
	uint64_t now_ns = hf_loop_now_ns(proxy->loop);
	struct list stranded;

	list_init(&stranded);
	while (!list_empty(&proxy->stranded))
		list_push_back(&stranded, list_pop_front(&proxy->stranded));
	while (!list_empty(&stranded)) {
		struct run *run = container_of(list_pop_front(&stranded), struct run, node);

		if (now_ns - run->since_ns < PROXY_PATIENCE_NS) {
			dispatch(run);
			continue;
		}
		run->status = run->doubt ? RUN_UNKNOWN : RUN_NOT_LEADER;
		end(run);
	}
}

static bool is_alive(const struct proxy *proxy, int member)
{
	struct hf_smr_status status;

	hf_smr_status(proxy->smr, &status);
	for (unsigned i = 0; i < status.member_count; i++)
		if (status.members[i].id == member)
			return status.members[i].alive;
	return false;
}

/* After its leadership too. A change would be found done by the next leader; a read for which the server takes long
 * would make one member after the other give up its leadership. */
static bool answers_later(const struct run *run, int member)
{
	return run->proxy->peers[member] != NULL &&
	       (run->kind == RUN_CHANGE || (run->kind == RUN_READ && is_alive(run->proxy, member)));
}

void proxy_route_lost(struct proxy *proxy, int member)
{
	list_for_each_safe (at, &proxy->sent) {
		struct run *run = container_of(at, struct run, node);

		if (run->leader != member || answers_later(run, member))
			continue;
		list_remove(&run->node);
		run->doubt |= proxy_run_writes(run) || run->kind == RUN_CHANGE;
		strand(run);
	}
}

void proxy_route_answered(struct proxy *proxy, uint64_t id, enum run_status status, struct resp_out *reply)
{
	list_for_each (at, &proxy->sent) {
		struct run *run = container_of(at, struct run, node);
		struct resp_out mine = run->reply;

		if (run->id != id)
			continue;
		list_remove(&run->node);
		run->reply = *reply;
		*reply = mine;
		settle(run, status);
		return;
	}
}
