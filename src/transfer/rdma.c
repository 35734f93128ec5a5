#include "transfer/rdma.h"

#include "base/ensure.h"
#include "transfer/buffers.h"
#include "transfer/peer.h"

static struct rdma_transport *rdma_of(struct transport *transport)
{
	return container_of(transport, struct rdma_transport, transport);
}

static struct rdma_peer *rails_to(const struct rdma_transport *rdma, const struct task_request *request)
{
	return &request->segment->peer->rails[rdma->transport.kind == HF_TRANSPORT_SHM ? 0 : 1];
}

static uint32_t open_lanes(const struct rdma_peer *rails)
{
	uint32_t open = 0;

	for (unsigned i = 0; i < HF_RAILS_MAX; i++)
		if ((rails->made & 1u << i) != 0 && lane_is_open(&rails->lanes[i]))
			open |= 1u << i;
	return open;
}

static bool is_reachable(const struct rdma_peer *rails, unsigned rail)
{
	const struct hf_peer *peer = rails->peer->node_peer;

	if (peer == NULL || rails->peer->segment.view->incarnation == 0)
		return false;
	switch (hf_peer_rail(peer, rail)) {
	case HF_RAIL_UP:
	case HF_RAIL_PATH: /* whether slices pass is for the monitor to find out */
		return true;
	case HF_RAIL_PEER:
	case HF_RAIL_PORT_HERE:
	case HF_RAIL_PORT_THERE:
	case HF_RAIL_ASKED:
		return false;
	}
	return false;
}

/* Whether a rail is open, if only for lanes that are being made again. */
static bool has_open_rail(const struct rdma_peer *rails, uint64_t now_ns)
{
	for (unsigned i = 0; i < HF_RAILS_MAX; i++)
		if ((rails->made & 1u << i) != 0 &&
			(lane_is_open(&rails->lanes[i]) ||
				lane_is_coming(&rails->lanes[i], is_reachable(rails, i), now_ns)))
			return true;
	return false;
}

static bool rdma_reaches(struct transport *transport, const struct task_request *request)
{
	const struct rdma_transport *rdma = rdma_of(transport);

	return request->segment->peer->node_peer != NULL &&
	       has_open_rail(rails_to(rdma, request), hf_loop_now_ns(rdma->lanes.loop));
}

static enum transport_answer rdma_submit(struct transport *transport, struct transport_job *above)
{
	struct rdma_transport *rdma = rdma_of(transport);
	struct rdma_peer *rails = rails_to(rdma, above->request);
	struct slice_job *job;

	if (rails->peer->node_peer == NULL)
		return TRANSPORT_REFUSED;
	job = slice_job_new(above, &rails->jobs, rdma->lanes.block_bytes, hf_loop_now_ns(rdma->lanes.loop));
	return job == NULL ? TRANSPORT_REFUSED : TRANSPORT_ACCEPTED;
}

static void withdraw_lanes(struct rdma_peer *rails, const struct slice_job *job)
{
	for (unsigned i = 0; i < HF_RAILS_MAX; i++) {
		bool used = false;

		if ((rails->made & 1u << i) == 0)
			continue;
		list_for_each (at, &rails->lanes[i].out)
			used |= container_of(at, struct slice, link)->job == job;
		if (used)
			lane_withdraw(&rails->lanes[i]);
	}
}

static void rdma_withdraw(struct transport *transport, struct transport_job *above)
{
	struct slice_job *job = above->carried;

	if (job->out > 0)
		withdraw_lanes(rails_to(rdma_of(transport), above->request), job);
	slice_job_withdraw(job);
}

static const struct transport_ops rdma_ops = {
	.reaches = rdma_reaches, .submit = rdma_submit, .withdraw = rdma_withdraw};

void rdma_transport_init(struct rdma_transport *rdma, enum hf_transport kind)
{
	rdma->transport = (struct transport){.ops = &rdma_ops, .kind = kind};
}

/* ---- of one peer ---- */

void rdma_peer_init(struct rdma_peer *rails, struct rdma_transport *rdma, struct peer *peer)
{
	*rails = (struct rdma_peer){.transport = rdma, .peer = peer, .made = rdma->rails};
	list_init(&rails->jobs);
	for (unsigned i = 0; i < HF_RAILS_MAX; i++)
		if (rails->made & 1u << i)
			lane_init(&rails->lanes[i], &rdma->lanes, peer->node_peer, i, rails->blames,
				is_reachable(rails, i));
}

bool rdma_peer_has_ended(const struct rdma_peer *rails)
{
	for (unsigned i = 0; i < HF_RAILS_MAX; i++)
		if ((rails->made & 1u << i) != 0 && rails->lanes[i].state != LANE_CLOSED)
			return false;
	return list_empty(&rails->jobs);
}

static void give_up_all(struct rdma_peer *rails)
{
	while (!list_empty(&rails->jobs))
		slice_job_give_up(container_of(rails->jobs.next, struct slice_job, link));
}

void rdma_peer_close(struct rdma_peer *rails)
{
	for (unsigned i = 0; i < HF_RAILS_MAX; i++)
		if (rails->made & 1u << i)
			lane_close(&rails->lanes[i]);
	give_up_all(rails);
	rails->made = 0;
}

/* Where the bytes of a slice lie at the peer: the buffer may have gone since the request was checked. */
static bool find_target(struct peer *peer, struct slice *slice, struct lane_target *target_out)
{
	const struct task_request *request = slice->job->above->request;
	int buffer = segment_buffer(&peer->segment, request->offset, request->length);

	if (buffer < 0)
		return false;
	slice->key = peer->segment.view->buffers[buffer].key;
	slice->generation = peer->segment.view->generation;
	*target_out = (struct lane_target){.addr = request->offset + slice->range.begin,
		.rkey = peer->segment.view->buffers[buffer].rkey,
		.lkey = request->local->mr->lkey};
	return true;
}

static int choose(const struct rdma_peer *rails, uint32_t open, uint64_t bytes, uint64_t now_ns)
{
	struct lane_load loads[HF_RAILS_MAX];
	int chosen;

	for (unsigned i = 0; i < HF_RAILS_MAX; i++)
		loads[i] = rails->lanes[i].load;
	chosen = schedule_choose(loads, HF_RAILS_MAX, open, bytes, now_ns);
	return chosen >= 0 && lane_has_room(&rails->lanes[chosen]) ? chosen : -1;
}

static uint64_t next_bytes(const struct slice_job *job)
{
	const struct slice *slice = container_of(job->unsent.next, struct slice, link);

	return slice->range.end - slice->range.begin;
}

/* A slice of the first job, which goes to the end of the queue then: a large job does not keep small ones waiting.
 * False: no lane takes a slice now. */
static bool send_one(struct rdma_peer *rails, uint64_t now_ns)
{
	struct slice_job *job = container_of(rails->jobs.next, struct slice_job, link);
	uint32_t open = open_lanes(rails);
	int lane = open == 0 ? -1 : choose(rails, open, next_bytes(job), now_ns);
	struct lane_target target;
	struct slice *slice;

	if (lane < 0)
		return false;
	slice = slice_job_take(job);
	if (find_target(rails->peer, slice, &target)) {
		lane_send(&rails->lanes[lane], slice, &target);
	} else {
		slice_job_fail(job);
		slice_back(slice);
	}
	return true;
}

static bool send_slices(struct rdma_peer *rails, uint64_t now_ns)
{
	bool any = false;

	while (!list_empty(&rails->jobs) && send_one(rails, now_ns))
		any = true;
	for (unsigned i = 0; any && i < HF_RAILS_MAX; i++)
		if (rails->made & 1u << i)
			lane_push(&rails->lanes[i]);
	return any;
}

static void give_up_stranded(struct rdma_peer *rails, uint64_t now_ns)
{
	if (has_open_rail(rails, now_ns)) {
		rails->stranded_ns = 0;
		return;
	}
	if (rails->stranded_ns == 0)
		rails->stranded_ns = now_ns;
	slice_jobs_give_up_stranded(&rails->jobs, rails->stranded_ns, rails->transport->max_timeout_ns, now_ns);
}

/* A slice that has been out for too long ends with its lane. */
static void withdraw_stuck(struct rdma_peer *rails, struct lane *lane, uint64_t now_ns)
{
	const struct slice *oldest = list_empty(&lane->out) ? NULL : container_of(lane->out.next, struct slice, link);

	if (oldest != NULL && now_ns - oldest->sent_ns >= rails->transport->max_timeout_ns)
		lane_time_out(lane);
}

bool rdma_peer_is_released(const struct rdma_peer *rails)
{
	for (unsigned i = 0; i < HF_RAILS_MAX; i++) {
		if ((rails->made & 1u << i) == 0)
			continue;
		list_for_each (at, &rails->lanes[i].out)
			if (!segment_has(&rails->peer->segment, container_of(at, struct slice, link)->key))
				return false;
	}
	return true;
}

bool rdma_peer_turn(struct rdma_peer *rails, uint64_t now_ns)
{
	const struct wire_probe *from = &rails->peer->segment.view->probe;
	bool busy = false;

	for (unsigned i = 0; i < HF_RAILS_MAX; i++) {
		if ((rails->made & 1u << i) == 0)
			continue;
		if (rails->peer->node_peer == NULL)
			lane_withdraw(&rails->lanes[i]);
		withdraw_stuck(rails, &rails->lanes[i], now_ns);
		busy |= lane_turn(&rails->lanes[i], is_reachable(rails, i), from, now_ns);
	}
	if (rails->peer->node_peer == NULL) {
		give_up_all(rails);
		return busy;
	}
	busy |= send_slices(rails, now_ns);
	give_up_stranded(rails, now_ns);
	return busy;
}

uint64_t rdma_peer_wake_ns(const struct rdma_peer *rails)
{
	uint64_t wake_ns = UINT64_MAX;

	for (unsigned i = 0; i < HF_RAILS_MAX; i++)
		if ((rails->made & 1u << i) && lane_wake_ns(&rails->lanes[i]) < wake_ns)
			wake_ns = lane_wake_ns(&rails->lanes[i]);
	return wake_ns;
}
