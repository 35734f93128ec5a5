/* The RC scenario: hosts, lanes, the judge of what devices say after a fence, and liveness. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "sim/device.h"
#include "sim/rc.h"

#define CHECK_NS_MIN    (20 * NS_US)
#define CHECK_NS_MAX    (300 * NS_US)
#define LANE_NS_MAX     (60 * NS_MS)
#define LIVE_NS         (3 * NS_S) /* after the faults have healed */
#define RC_ACCESS       (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)
#define ACCESS_PPM      4000u      /* of looks at a lane that runs */
#define LIVE_OPERATIONS 10u        /* that each lane must complete by then */
#define REST_NS         (2 * NS_S) /* for late packets to arrive, when all is said */
#define RC_FAULTS                                                                                                      \
	(FAULT_BIT(FAULT_CUT) | FAULT_BIT(FAULT_CUT_TX) | FAULT_BIT(FAULT_CUT_RX) | FAULT_BIT(FAULT_PORT_DOWN) |       \
		FAULT_BIT(FAULT_FLAP) | FAULT_BIT(FAULT_LOSS) | FAULT_BIT(FAULT_DELAY) | FAULT_BIT(FAULT_DUPLICATE) |  \
		FAULT_BIT(FAULT_REORDER) | FAULT_BIT(FAULT_LATE) | FAULT_BIT(FAULT_RAIL_DOWN) |                        \
		FAULT_BIT(FAULT_ACKS_LOST) | FAULT_BIT(FAULT_RESPONSES_LOST) | FAULT_BIT(FAULT_DRAIN_HANGS) |          \
		FAULT_BIT(FAULT_DRAIN_FAILS) | FAULT_BIT(FAULT_CLOG) | FAULT_BIT(FAULT_PARTITION) |                    \
		FAULT_BIT(FAULT_FENCE_SLOW) | FAULT_BIT(FAULT_FENCE_FAILS) | FAULT_BIT(FAULT_NIC_CRASH) |              \
		FAULT_BIT(FAULT_PAUSE) | FAULT_BIT(FAULT_PROCESS_CRASH) | FAULT_BIT(FAULT_HOST_STOP))

/* ---- connecting a lane ---- */

static bool ready(const struct rc_end *end)
{
	const struct process *process = end->side->process;
	const struct rc_rail *rail = &end->side->rails[end->lane->rail];

	return process->running && !process->paused && rail->mr != NULL && !nic_of(rail->dev)->dead;
}

static int connect_end(struct rc_end *end, uint32_t sq_psn, uint32_t rq_psn)
{
	struct rc *rc = end->lane->rc;
	struct rc_end *other = rc_other(end);
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = RC_ACCESS,
		.path_mtu = rc->mtu,
		.dest_qp_num = other->qp->qp_num,
		.rq_psn = rq_psn,
		.sq_psn = sq_psn,
		.max_rd_atomic = 4,
		.max_dest_rd_atomic = 4,
		.min_rnr_timer = 1,
		.timeout = rc->timeout,
		.retry_cnt = rc->retry_cnt,
		.rnr_retry = 7,
	};
	int code;

	attr.ah_attr.is_global = 1;
	attr.ah_attr.port_num = 1;
	attr.ah_attr.grh.dgid = hf_dev_gid(other->qp->dev);
	attr.ah_attr.grh.hop_limit = 64;
	code = hf_qp_modify(end->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	if (code == 0)
		code = rc_post_receives(end);
	attr.qp_state = IBV_QPS_RTR;
	if (code == 0)
		code = hf_qp_modify(end->qp, &attr,
			IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	attr.qp_state = IBV_QPS_RTS;
	if (code == 0)
		code = hf_qp_modify(end->qp, &attr,
			IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
				IBV_QP_MAX_QP_RD_ATOMIC);
	return code;
}

static int create_end(struct rc_end *end)
{
	struct rc_rail *rail = &end->side->rails[end->lane->rail];
	struct hf_qp_init init = {
		.send_cq = rail->cq,
		.recv_cq = rail->cq,
		.cap = {.max_send_wr = 2 * RC_SLOTS,
			.max_recv_wr = RC_SLOTS,
			.max_send_sge = 2,
			.max_recv_sge = 1,
			.max_inline_data = 64},
		.type = IBV_QPT_RC,
	};

	end->failed = end->fenced = end->unfenceable = end->last_wqe = end->denies = false;
	end->receives_posted = 0;
	end->budget = (uint32_t)world_range(end->lane->rc->world, 4, 150);
	end->next_post_ns = 0;
	end->hot = world_chance(end->lane->rc->world, 200000);
	if (world_chance(end->lane->rc->world, 300000) && hf_srq_create(rail->pd, RC_SLOTS, 1, end, &end->srq) != 0)
		return -ENOMEM;
	init.srq = end->srq;
	return hf_qp_create(rail->pd, &init, &end->qp);
}

static void begin_flow(struct rc_end *end)
{
	struct rc *rc = end->lane->rc;
	struct rc_end *other = rc_other(end);

	end->words = other->side->rails[end->lane->rail].words;
	memset(end->seen, 0, sizeof(end->seen));
	end->flow = execution_add_flow(&rc->execution, other->target, end->words->area, other->memory + RC_WINDOW,
		end->memory + 3 * RC_WINDOW, RC_SLOTS, RC_SLOT_BYTES, 128u << rc->mtu);
}

static void connect_lane(struct rc_lane *lane)
{
	struct rc *rc = lane->rc;
	uint32_t psn[RC_SIDES];

	if (rc->stopping || !ready(&lane->ends[0]) || !ready(&lane->ends[1]))
		return;
	for (unsigned i = 0; i < RC_SIDES; i++) {
		/* near the wrap, now and then */
		psn[i] = world_chance(rc->world, 300000) ? 0xffffff - (uint32_t)world_range(rc->world, 0, 40)
							 : (uint32_t)world_range(rc->world, 0, 0xffffff);
		begin_flow(&lane->ends[i]);
		if (create_end(&lane->ends[i]) != 0) {
			world_violate(rc->world, "connecting", "a qp cannot be made");
			return;
		}
	}
	for (unsigned i = 0; i < RC_SIDES; i++) {
		int code = connect_end(&lane->ends[i], psn[i], psn[1 - i]);

		if (code != 0)
			world_violate(rc->world, "connecting", "a qp cannot be connected: %s", strerror(-code));
	}
	lane->until_ns =
		rc->world->now_ns + world_range(rc->world, 50 * NS_US, LANE_NS_MAX >> world_range(rc->world, 0, 8));
	lane->state = RC_RUNNING;
	for (unsigned i = 0; i < RC_SIDES; i++)
		hf_loop_wake(lane->ends[i].side->loop);
}

/* ---- settling ---- */

static bool spent(const struct rc_end *end)
{
	return end->flow->count >= end->budget && rc_in_flight(end) == 0;
}

static bool must_settle(const struct rc_lane *lane)
{
	const struct rc_end *a = &lane->ends[0], *b = &lane->ends[1];

	return a->qp == NULL || b->qp == NULL || a->failed || b->failed || (spent(a) && spent(b)) ||
	       lane->rc->world->now_ns > lane->until_ns ||
	       (lane->rc->stopping && !rc_in_flight(a) && !rc_in_flight(b)) || nic_of(a->qp->dev)->dead ||
	       nic_of(b->qp->dev)->dead;
}

/* True: this end is fenced, or gone, or will never be. */
static bool fence_end(struct rc_end *end)
{
	struct rc_end *other = rc_other(end);
	int code;

	if (end->qp == NULL)
		end->unfenceable = true;
	if (end->fenced || end->unfenceable)
		return true;
	if (end->side->process->paused)
		return false;
	code = hf_qp_fence(end->qp);
	if (code == -EINPROGRESS)
		return false;
	end->fenced = code == 0;
	end->unfenceable = code != 0;
	if (end->fenced) {
		other->flow->responder_fenced = end->flow->requester_fenced = true;
		area_check(&end->lane->rc->execution, end->target); /* at rest from now on */
	}
	world_note(end->lane->rc->world, "fenced", end->fenced);
	return true;
}

/* What this end's device says about the other's flow, which it executed. */
static void judge(struct rc_end *end)
{
	struct rc *rc = end->lane->rc;
	struct flow *flow = rc_other(end)->flow;
	struct hf_atomic_result results[4];
	uint32_t caps = end->qp->dev->attr.caps, psn = 0;
	int n = hf_qp_executed_psn(end->qp, &psn);

	if ((caps & HF_DEV_EXECUTED_PSN) ? n != 0 : n != -EOPNOTSUPP)
		world_violate(rc->world, "executed-psn", "a fenced qp answered %d", n);
	if (n == 0)
		flow_check_psn(flow, psn);
	n = hf_qp_atomic_results(end->qp, results, 4);
	if ((caps & HF_DEV_ATOMIC_RESULTS) ? n < 0 : n != -EOPNOTSUPP)
		world_violate(rc->world, "executed-psn", "a fenced qp answered %d for its atomics", n);
	if (n >= 0)
		flow_check_atomics(flow, results, (unsigned)n, 4);
}

/* Who shares receives has to be told that a qp in error takes no more of them. */
static void check_last_wqe(struct rc_end *end)
{
	if (end->qp == NULL || end->srq == NULL || !end->fenced)
		return;
	rc_take_events(end->side, end->lane->rail);
	if (!end->last_wqe)
		world_violate(end->lane->rc->world, "events", "a qp with an srq was fenced without its last-wqe event");
}

static void settle_lane(struct rc_lane *lane)
{
	struct rc *rc = lane->rc;
	bool a = fence_end(&lane->ends[0]), b = fence_end(&lane->ends[1]);

	if (!a || !b)
		return;
	for (unsigned i = 0; i < RC_SIDES; i++)
		if (lane->ends[i].qp != NULL)
			rc_poll_cq(lane->ends[i].side, lane->rail);
	for (unsigned i = 0; i < RC_SIDES; i++)
		if (lane->ends[i].fenced && lane->ends[i].qp != NULL)
			judge(&lane->ends[i]);
	for (unsigned i = 0; i < RC_SIDES; i++) {
		check_last_wqe(&lane->ends[i]);
		rc_destroy_qp(&lane->ends[i]);
	}
	for (unsigned i = 0; i < RC_SIDES; i++) {
		execution_drop_flow(&rc->execution, lane->ends[i].flow);
		lane->ends[i].flow = NULL;
	}
	lane->state = RC_DOWN;
}

/* D5: from when the call has returned until the next one, what the peer asks for is refused. */
static void switch_access(struct rc_end *end)
{
	struct rc *rc = end->lane->rc;
	struct ibv_qp_attr attr = {.qp_access_flags = end->denies ? RC_ACCESS : 0}, now;
	bool can = (end->qp->dev->attr.caps & HF_DEV_ACCESS_IN_RTS) != 0;
	int code;

	if (end->side->process->paused || nic_of(end->qp->dev)->dead || hf_qp_query(end->qp, &now, IBV_QP_STATE) != 0 ||
		now.qp_state != IBV_QPS_RTS)
		return;
	code = hf_qp_modify(end->qp, &attr, IBV_QP_ACCESS_FLAGS);
	if (can ? code != 0 : code == 0)
		world_violate(rc->world, "access", "switching it in RTS answered %d", code);
	if (code == 0)
		rc_other(end)->flow->denied = end->denies = !end->denies;
	world_note(rc->world, "access", end->denies);
	if (end->denies)
		area_check(&rc->execution, end->target); /* what was allowed before has happened */
}

static void check_lane(struct world_event *event)
{
	struct rc_lane *lane = container_of(event, struct rc_lane, check);
	struct world *world = lane->rc->world;

	switch (lane->state) {
	case RC_DOWN:
		connect_lane(lane);
		break;
	case RC_RUNNING:
		if (!must_settle(lane)) {
			if (world_chance(world, ACCESS_PPM))
				switch_access(&lane->ends[world_range(world, 0, 1)]);
			break;
		}
		lane->state = RC_SETTLING;
		settle_lane(lane);
		break;
	case RC_SETTLING:
		settle_lane(lane);
		break;
	}
	if (lane->state != RC_DOWN || !lane->rc->stopping)
		world_schedule(world, &lane->check, world->now_ns + world_range(world, CHECK_NS_MIN, CHECK_NS_MAX));
}

/* ---- the run ---- */

static void set_up(struct rc *rc, struct world *world, struct outcome *outcome)
{
	static const enum ibv_mtu mtus[] = {IBV_MTU_256, IBV_MTU_512, IBV_MTU_1024};
	uint32_t masked = 0;

	rc->world = world;
	rc->outcome = outcome;
	rc->rail_count = (unsigned)world_range(world, 1, RC_RAILS);
	rc->lane_count = (unsigned)world_range(world, 1, RC_LANES);
	rc->mtu = mtus[world_range(world, 0, 2)];
	rc->timeout = (uint8_t)world_range(world, 8, 11);
	rc->retry_cnt = (uint8_t)world_range(world, 1, 5);
	list_init(&rc->words);
	network_init(&rc->network, world);
	execution_init(&rc->execution, world);
	if (world_chance(world, 400000))
		masked = (uint32_t)rng_next(&world->rng) &
			 (HF_DEV_EXECUTED_PSN | HF_DEV_ATOMIC_RESULTS | HF_DEV_ATOMIC_GLOBAL | HF_DEV_ACCESS_IN_RTS);
	for (unsigned i = 0; i < RC_SIDES; i++) {
		struct rc_side *side = &rc->sides[i];

		side->rc = rc;
		side->index = i;
		host_init(&side->host, world, &rc->network, i == 0 ? "a" : "b");
		side->host.caps_masked = masked;
		side->process = process_create(&side->host, i == 0 ? "a" : "b", &rc_program, side);
	}
	for (unsigned rail = 0; rail < rc->rail_count; rail++)
		for (unsigned i = 0; i < RC_SIDES; i++) {
			char address[HF_ADDR_TEXT];

			snprintf(address, sizeof(address), "10.%u.0.%u", rail, i + 1);
			network_add_port(&rc->network, &rc->sides[i].host, rail, address);
		}
	for (unsigned i = 0; i < rc->rail_count * rc->lane_count; i++) {
		struct rc_lane *lane = &rc->lanes[i];

		lane->rc = rc;
		lane->rail = i / rc->lane_count;
		for (unsigned end = 0; end < RC_SIDES; end++)
			lane->ends[end] = (struct rc_end){.side = &rc->sides[end], .lane = lane};
		lane->check.what = "lane";
		lane->check.fire = check_lane;
		lane->check.outermost = true;
		lane->check.detail = i;
		world_schedule(world, &lane->check, 0);
	}
}

static bool all_lanes(const struct rc *rc, bool (*holds)(const struct rc_lane *lane))
{
	for (unsigned i = 0; i < rc->rail_count * rc->lane_count; i++)
		if (!holds(&rc->lanes[i]))
			return false;
	return true;
}

static bool is_alive(const struct rc_lane *lane)
{
	return lane->completed_since_quiet >= LIVE_OPERATIONS;
}

static bool is_down(const struct rc_lane *lane)
{
	return lane->state == RC_DOWN;
}

static void run_until(struct rc *rc, bool (*holds)(const struct rc_lane *lane), uint64_t limit_ns, const char *what)
{
	struct world *world = rc->world;

	while (world->violations == 0 && !all_lanes(rc, holds) && world->now_ns < limit_ns)
		world_run_until(world, world->now_ns + NS_MS);
	if (world->violations == 0 && !all_lanes(rc, holds))
		world_violate(world, "liveness", "%s", what);
}

/* What was seen of the words at rest: chains of values, and nothing lost in memory. */
static void check_words(struct rc *rc)
{
	list_for_each (at, &rc->words) {
		struct rc_words *words = container_of(at, struct rc_words, node);

		for (unsigned i = 0; i < RC_WORDS && !words->area->lossy && rc->world->violations == 0; i++) {
			const char *wrong = linear_check(&words->history[i]);

			if (wrong != NULL)
				world_violate(rc->world, "linearizability", "%s", wrong);
		}
	}
	for (unsigned side = 0; side < RC_SIDES; side++)
		for (unsigned rail = 0; rail < rc->rail_count; rail++)
			if (rc->sides[side].rails[rail].words != NULL) {
				bus_drain(&nic_of(rc->sides[side].rails[rail].dev)->bus);
				area_check(&rc->execution, rc->sides[side].rails[rail].words->area);
			}
}

static void tear_down(struct rc *rc)
{
	for (unsigned i = 0; i < RC_SIDES; i++)
		host_free(&rc->sides[i].host);
	execution_free(&rc->execution);
	network_free(&rc->network);
	while (!list_empty(&rc->words)) {
		struct rc_words *words = container_of(list_pop_front(&rc->words), struct rc_words, node);

		for (unsigned i = 0; i < RC_WORDS; i++)
			linear_free(&words->history[i]);
		free(words);
	}
	free(rc);
}

static void run(struct world *world, struct outcome *outcome)
{
	struct rc *rc = calloc(1, sizeof(*rc));
	struct process *processes[RC_SIDES];
	uint64_t quiet_ns = world_range(world, 20 * NS_MS, 80 * NS_MS);

	ensure(rc != NULL);
	set_up(rc, world, outcome);
	for (unsigned i = 0; i < RC_SIDES; i++)
		process_start(processes[i] = rc->sides[i].process);
	faults_plan(&rc->faults, &rc->network, processes, RC_SIDES, RC_FAULTS, (unsigned)world_range(world, 0, 12),
		quiet_ns);
	world_run_until(world, quiet_ns);
	run_until(rc, is_alive, quiet_ns + LIVE_NS, "a lane made no progress after the faults had healed");
	rc->stopping = true;
	run_until(rc, is_down, world->now_ns + LIVE_NS, "a lane does not come to rest");
	if (world->violations == 0)
		world_run_until(world, world->now_ns + (network_busy(&rc->network) ? REST_NS : NS_MS));
	if (world->violations == 0)
		check_words(rc);
	tear_down(rc);
}

const struct scenario scenario_rc = {
	.name = "rc",
	.what = "plain RC qps on soft devices: the device contract under faults",
	.run = run,
};
