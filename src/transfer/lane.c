#include "transfer/lane.h"

#include "base/states.h"
#include "node/node.h"
#include "transfer/probe.h"

#define FIRST_NS       1000000000ull
#define BACKOFF_MIN_NS 10000000ull
#define BACKOFF_MAX_NS 1000000000ull
#define WCS            16
#define CONFIRM_BYTES  8u
#define CONFIRM        1u /* in the wr_id of the READ behind a slice */
#define TOLD_PART      4u /* a completion is asked for at least so often in a window */

static const struct state lane_states[LANE_STATES] = {
	[LANE_CLOSED] = {"closed", BIT(LANE_CONNECTING)},
	[LANE_CONNECTING] = {"connecting", BIT(LANE_UP) | BIT(LANE_PROBING) | BIT(LANE_ENDING)},
	[LANE_PROBING] = {"probing", BIT(LANE_UP) | BIT(LANE_ENDING)},
	[LANE_UP] = {"up", BIT(LANE_ENDING)},
	[LANE_ENDING] = {"ending", BIT(LANE_CLOSED)},
};

static void lane_move(struct lane *lane, enum lane_state to)
{
	states_move("lane", lane_states, &lane->state, to, "%s to %s", lane->news.rail, lane->news.peer);
}

static struct blame *blame_of(struct lane *lane)
{
	return &lane->blames[lane->rail];
}

void lane_init(struct lane *lane, struct lane_context *context, struct hf_peer *peer, unsigned rail,
	struct blame *blames, bool reachable)
{
	*lane = (struct lane){.context = context, .peer = peer, .rail = rail, .blames = blames, .state = LANE_CLOSED};
	lane->first_until_ns = hf_loop_now_ns(context->loop) + FIRST_NS;
	list_init(&lane->out);
	lane_load_init(&lane->load, context->window_bytes);
	lane_news_init(
		&lane->news, context->node->config.name, hf_node_rail_name(context->node, rail), hf_peer_name(peer));
	rail_monitor_init(&lane->monitor, lane->news.rail, lane->news.peer, &context->monitor, reachable,
		hf_loop_now_ns(context->loop));
	blame_of(lane)->usable = rail_monitor_available(&lane->monitor);
}

static void monitor_step(struct lane *lane, enum rail_monitor_event_type type, uint64_t now_ns)
{
	struct rail_monitor_actions actions;

	rail_monitor_step(
		&lane->monitor, &(struct rail_monitor_event){.type = type, .life = lane->life}, now_ns, &actions);
	lane_news_step(&lane->news, &lane->monitor, &actions, now_ns);
	blame_of(lane)->usable = rail_monitor_available(&lane->monitor);
	if (actions.probe)
		lane->retry_ns = now_ns;
}

/* ---- one life ---- */

static void drop_vqp(struct lane *lane)
{
	hf_vqp_destroy(lane->vqp);
	(void)hf_vcq_destroy(lane->cq);
	lane->vqp = NULL;
	lane->cq = NULL;
	lane->last = NULL;
	lane->silent_bytes = 0;
	lane->ended = false;
}

/* A vqp in error may wait for the end of its peer, or of the peer's lease, and completes its wrs then. */
static void on_changed(struct hf_vqp *vqp, void *context)
{
	struct lane *lane = context;

	lane->ended = hf_vqp_state(vqp) == HF_VQP_ERROR;
}

static int make_vqp(struct lane *lane)
{
	struct lane_context *context = lane->context;
	struct hf_vqp_init init = {
		.cap = {.max_send_wr = LANE_WRS, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
		.hand_back = true,
		.rail = lane->rail,
		.context = lane,
		.changed = on_changed};
	int rc = hf_vcq_create(context->node, LANE_WRS, lane, &lane->cq);

	if (rc != 0)
		return rc;
	init.send_cq = init.recv_cq = lane->cq;
	rc = hf_vqp_create(context->pd, &init, &lane->vqp);
	if (rc == 0)
		rc = hf_vqp_connect(lane->vqp, lane->peer, LANE_SERVICE, NULL, 0);
	if (rc != 0)
		drop_vqp(lane);
	return rc;
}

static void back_off(struct lane *lane, uint64_t now_ns)
{
	lane->backoff_ns = lane->backoff_ns == 0 ? BACKOFF_MIN_NS : lane->backoff_ns * 2;
	if (lane->backoff_ns > BACKOFF_MAX_NS)
		lane->backoff_ns = BACKOFF_MAX_NS;
	lane->retry_ns = now_ns + lane->backoff_ns;
}

static void begin_life(struct lane *lane, uint64_t now_ns)
{
	lane->life = rail_monitor_admit(&lane->monitor);
	lane->probes = lane->monitor.state == RAIL_MONITOR_PROBING;
	if (make_vqp(lane) != 0)
		back_off(lane, now_ns);
	else
		lane_move(lane, LANE_CONNECTING);
	blame_waits(blame_of(lane), now_ns);
	lane->lives++;
}

/* The next wr of those that lane_push posts. False: the vqp takes none. */
static bool add(
	struct lane *lane, uint64_t wr_id, enum ibv_wr_opcode opcode, struct ibv_sge *sge, const struct lane_target *to)
{
	struct ibv_send_wr *wr = hf_vqp_wr(lane->vqp);

	if (wr == NULL)
		return false;
	wr->wr_id = wr_id;
	wr->sg_list[0] = *sge;
	wr->num_sge = 1;
	wr->opcode = opcode;
	wr->send_flags = opcode == IBV_WR_RDMA_WRITE ? HF_SEND_IDEMPOTENT : 0;
	wr->wr.rdma.remote_addr = to->addr;
	wr->wr.rdma.rkey = to->rkey;
	lane->last = wr;
	return true;
}

static void came_up(struct lane *lane, const struct wire_probe *from)
{
	const struct lane_target at = {.addr = from->addr, .rkey = from->rkey};
	struct ibv_sge sge = probe_sge(lane->context->probe, from->bytes);

	lane->backoff_ns = 0;
	lane->was_up = true;
	if (!lane->probes)
		blame_idle(blame_of(lane));
	lane_move(lane, lane->probes ? LANE_PROBING : LANE_UP);
	if (lane->probes && !add(lane, 0, IBV_WR_RDMA_READ, &sge, &at))
		lane_withdraw(lane); /* as in lane_send */
	lane_push(lane);
}

/* ---- slices ---- */

bool lane_is_open(const struct lane *lane)
{
	return lane->state == LANE_UP && rail_monitor_available(&lane->monitor);
}

bool lane_has_room(const struct lane *lane)
{
	return lane->out_count < (lane->context->confirm_writes ? LANE_WRS / 2 : LANE_WRS);
}

/* The last bytes of the WRITE, which executes before. */
static bool add_confirm(struct lane *lane, struct slice *slice, uint32_t length, const struct lane_target *to)
{
	uint32_t bytes = length < CONFIRM_BYTES ? length : CONFIRM_BYTES;
	const struct lane_target end = {.addr = to->addr + length - bytes, .rkey = to->rkey};
	struct ibv_sge sge = probe_sge(lane->context->probe, bytes);

	return add(lane, (uintptr_t)slice | CONFIRM, IBV_WR_RDMA_READ, &sge, &end);
}

/* An acknowledgement costs both ends a packet, so most slices go without a completion of their own. Asked for are the
 * last one of a job, whose task waits for it, and enough others for the window to move on evenly. */
static bool is_told(const struct lane *lane, const struct slice *slice)
{
	return list_empty(&slice->job->unsent) || lane->silent_bytes >= lane->context->window_bytes / TOLD_PART;
}

static void ask_to_tell(struct lane *lane)
{
	lane->last->send_flags |= IBV_SEND_SIGNALED;
	lane->silent_bytes = 0;
}

void lane_send(struct lane *lane, struct slice *slice, const struct lane_target *to)
{
	const struct task_request *request = slice->job->above->request;
	uint32_t length = (uint32_t)(slice->range.end - slice->range.begin);
	struct ibv_sge sge = {
		.addr = (uintptr_t)request->source + slice->range.begin, .length = length, .lkey = to->lkey};
	enum ibv_wr_opcode opcode = request->opcode == HF_TRANSFER_WRITE ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ;

	slice->sent_ns = hf_loop_now_ns(lane->context->loop);
	list_push_back(&lane->out, &slice->link);
	lane->out_count++;
	blame_waits(blame_of(lane), slice->sent_ns);
	lane_load_sent(&lane->load, length, slice->sent_ns);
	slice->confirms = opcode == IBV_WR_RDMA_WRITE && lane->context->confirm_writes;
	slice->written = IBV_WC_SUCCESS;
	/* A vqp that takes no wr has ended, or is about to: the slice comes back with the others. */
	if (!add(lane, (uintptr_t)slice, opcode, &sge, to) ||
		(slice->confirms && !add_confirm(lane, slice, length, to))) {
		lane_withdraw(lane);
		return;
	}
	lane->silent_bytes += length;
	if (is_told(lane, slice))
		ask_to_tell(lane);
}

void lane_push(struct lane *lane)
{
	struct ibv_send_wr *bad;

	if (lane->last == NULL || lane->state == LANE_ENDING)
		return;
	ask_to_tell(lane); /* the last one speaks for those before it, and one that fails speaks for itself */
	lane->last = NULL;
	if (hf_vqp_post_wrs(lane->vqp, &bad) != 0)
		lane_withdraw(lane);
}

static bool is_program_error(enum ibv_wc_status status)
{
	return status == IBV_WC_LOC_LEN_ERR || status == IBV_WC_LOC_PROT_ERR || status == IBV_WC_REM_ACCESS_ERR ||
	       status == IBV_WC_REM_INV_REQ_ERR || status == IBV_WC_REM_OP_ERR;
}

static bool ended_by_path(const struct lane *lane)
{
	if (lane->timed_out)
		return true;
	switch (hf_vqp_end(lane->vqp, NULL)) {
	case HF_VQP_END_NO_PATH:
	case HF_VQP_END_DEVICE:
	case HF_VQP_END_PATH:
	case HF_VQP_END_UNKNOWN:
		return true;
	case HF_VQP_END_NONE:
	case HF_VQP_END_ASKED:
	case HF_VQP_END_REFUSED:
	case HF_VQP_END_UNANSWERED:
	case HF_VQP_END_PEER:
	case HF_VQP_END_PEER_GONE:
	case HF_VQP_END_PROGRAM:
	case HF_VQP_END_PORT_HERE:
	case HF_VQP_END_PORT_THERE:
	case HF_VQP_END_NO_MEMORY:
	case HF_VQP_ENDS:
		return false;
	}
	return false;
}

static bool ended_by_program(const struct lane *lane)
{
	enum hf_vqp_end end = hf_vqp_end(lane->vqp, NULL);

	return !lane->timed_out && (end == HF_VQP_END_NONE || end == HF_VQP_END_ASKED || end == HF_VQP_END_PROGRAM);
}

/* It has had no life, or the first one has neither come up nor failed. */
static bool is_first(const struct lane *lane)
{
	return lane->lives == 0 ||
	       (lane->lives == 1 && (lane->state == LANE_CONNECTING || lane->state == LANE_PROBING));
}

bool lane_is_coming(const struct lane *lane, bool reachable, uint64_t now_ns)
{
	if (is_first(lane))
		return reachable && now_ns < lane->first_until_ns;
	if (!rail_monitor_available(&lane->monitor))
		return false;
	return lane->state == LANE_ENDING ? ended_by_program(lane) : lane->state != LANE_UP && lane->returns;
}

static void take_out(struct lane *lane, struct slice *slice)
{
	list_remove(&slice->link);
	lane->out_count--;
}

static void bring_back(struct lane *lane, struct slice *slice, enum ibv_wc_status status, uint64_t now_ns)
{
	take_out(lane, slice);
	lane_load_ended(&lane->load, slice->range.end - slice->range.begin, false, now_ns);
	if (is_program_error(status) && !(status == IBV_WC_REM_ACCESS_ERR && slice_refreshes(slice)))
		slice_job_fail(slice->job);
	else if (ended_by_path(lane) && ++slice->retries > lane->context->max_retry_count)
		slice_job_give_up(slice->job);
	slice_back(slice);
}

static void probe_completed(struct lane *lane, enum ibv_wc_status status, uint64_t now_ns)
{
	if (lane->state != LANE_PROBING || status != IBV_WC_SUCCESS)
		return; /* the end of this life tells the monitor */
	lane_move(lane, LANE_UP);
	lane->probes = false;
	monitor_step(lane, RAIL_MONITOR_EVENT_PROBE_GOOD, now_ns);
}

static void slice_succeeded(struct lane *lane, struct slice *slice)
{
	uint64_t bytes = slice->range.end - slice->range.begin;

	lane->bytes += bytes;
	lane->ended_bytes += bytes;
	hf_metric_add(lane->news.bytes, bytes);
	take_out(lane, slice);
	slice_done(slice);
}

/* A wr that fails has a completion, and completions keep the order of posts: what was sent before this slice and has
 * had none succeeded. */
static void slice_completed(struct lane *lane, struct slice *slice, enum ibv_wc_status status, uint64_t now_ns)
{
	while (lane->out.next != &slice->link)
		slice_succeeded(lane, container_of(lane->out.next, struct slice, link));
	if (status == IBV_WC_SUCCESS)
		slice_succeeded(lane, slice);
	else
		bring_back(lane, slice, status, now_ns);
}

static void completed(struct lane *lane, const struct ibv_wc *wc, uint64_t now_ns)
{
	struct slice *slice = (struct slice *)(uintptr_t)(wc->wr_id & ~(uint64_t)CONFIRM);

	if (slice == NULL)
		probe_completed(lane, wc->status, now_ns);
	else if (slice->confirms && (wc->wr_id & CONFIRM) == 0)
		slice->written = (int)wc->status; /* the READ comes, or end_life does */
	else if (slice->written != IBV_WC_SUCCESS)
		slice_completed(lane, slice, (enum ibv_wc_status)slice->written, now_ns);
	else
		slice_completed(lane, slice, wc->status, now_ns);
}

static bool take_completions(struct lane *lane, uint64_t now_ns)
{
	struct ibv_wc wcs[WCS];
	int n = lane->cq == NULL ? 0 : hf_vcq_poll(lane->cq, WCS, wcs);

	for (int i = 0; i < n; i++)
		completed(lane, &wcs[i], now_ns);
	/* Of all together: they came together, and the time since the last ones is theirs. */
	if (lane->ended_bytes > 0) {
		lane_load_ended(&lane->load, lane->ended_bytes, true, now_ns);
		blame_served(blame_of(lane), lane->out_count > 0, now_ns);
	}
	lane->ended_bytes = 0;
	return n > 0;
}

/* The vqp is in error, fenced at both ends, and its completions are taken. What was never posted comes back as well. */
static void end_life(struct lane *lane, uint64_t now_ns)
{
	bool path = ended_by_path(lane);

	while (!list_empty(&lane->out))
		bring_back(lane, container_of(lane->out.next, struct slice, link), IBV_WC_WR_FLUSH_ERR, now_ns);
	lane->returns = lane->was_up && ended_by_program(lane);
	lane->was_up = false;
	drop_vqp(lane);
	lane_move(lane, LANE_CLOSED);
	back_off(lane, now_ns);
	if (!path) /* a probe that ended for another reason says nothing: the next life is one, too (R-T16) */
		blame_idle(blame_of(lane));
	else if (lane->probes)
		monitor_step(lane, RAIL_MONITOR_EVENT_PROBE_BAD, now_ns);
	else if (!blame_peer(lane->blames, HF_RAILS_MAX, lane->rail, lane->context->monitor.error_window_ns, now_ns))
		monitor_step(lane, RAIL_MONITOR_EVENT_ERROR, now_ns);
	lane->probes = lane->timed_out = false;
}

void lane_withdraw(struct lane *lane)
{
	if (lane->state == LANE_CLOSED || lane->state == LANE_ENDING)
		return;
	if (hf_vqp_state(lane->vqp) == HF_VQP_UP || hf_vqp_state(lane->vqp) == HF_VQP_RECOVERING)
		(void)hf_vqp_withdraw(lane->vqp);
	else
		hf_vqp_abort(lane->vqp);
	lane_move(lane, LANE_ENDING);
}

void lane_time_out(struct lane *lane)
{
	if (lane->state == LANE_CLOSED || lane->state == LANE_ENDING)
		return;
	lane->timed_out = true;
	lane_withdraw(lane);
}

void lane_close(struct lane *lane)
{
	uint64_t now_ns = hf_loop_now_ns(lane->context->loop);

	lane_news_close(&lane->news);
	if (lane->state == LANE_CLOSED)
		return;
	if (lane->state != LANE_ENDING)
		lane_move(lane, LANE_ENDING);
	hf_vqp_abort(lane->vqp);
	end_life(lane, now_ns);
}

/* ---- turns ---- */

static bool may_begin(const struct lane *lane, uint64_t now_ns)
{
	return lane->monitor.reachable && lane->monitor.state != RAIL_MONITOR_PAUSED && now_ns >= lane->retry_ns;
}

static void note_reachable(struct lane *lane, bool reachable, uint64_t now_ns)
{
	if (reachable != lane->monitor.reachable)
		monitor_step(lane, reachable ? RAIL_MONITOR_EVENT_REACHABLE : RAIL_MONITOR_EVENT_UNREACHABLE, now_ns);
	if (rail_monitor_wake_ns(&lane->monitor) <= now_ns)
		monitor_step(lane, RAIL_MONITOR_EVENT_TICK, now_ns);
	lane_news_turn(&lane->news, &lane->monitor, now_ns);
}

bool lane_turn(struct lane *lane, bool reachable, const struct wire_probe *from, uint64_t now_ns)
{
	bool busy = take_completions(lane, now_ns);
	enum hf_vqp_state state = lane->vqp == NULL ? HF_VQP_INIT : hf_vqp_state(lane->vqp);

	note_reachable(lane, reachable, now_ns);
	if (lane->state == LANE_CONNECTING && state == HF_VQP_UP) {
		came_up(lane, from);
		return true;
	}
	if (lane->vqp != NULL && state == HF_VQP_ERROR) {
		if (lane->state != LANE_ENDING)
			lane_move(lane, LANE_ENDING);
		if (busy || !lane->ended) /* a poll without completions says that none is left */
			return busy;
		end_life(lane, now_ns);
		return true;
	}
	if (lane->state == LANE_UP && lane->monitor.state != RAIL_MONITOR_HEALTHY)
		lane_withdraw(lane); /* a probe takes a new life */
	if (lane->state == LANE_CLOSED && may_begin(lane, now_ns)) {
		begin_life(lane, now_ns);
		return true;
	}
	return busy;
}

uint64_t lane_wake_ns(const struct lane *lane)
{
	uint64_t wake_ns = rail_monitor_wake_ns(&lane->monitor);

	if (lane->state == LANE_CLOSED && lane->monitor.reachable && lane->monitor.state != RAIL_MONITOR_PAUSED &&
		lane->retry_ns < wake_ns)
		wake_ns = lane->retry_ns;
	return wake_ns;
}
