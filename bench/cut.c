#include "bench/cut.h"

#include <errno.h>
#include <stdlib.h>

#define SIGNAL_EVERY  8u
#define STEP_NS       500000ull /* of the series, which reaches to where timeouts have found a silent cut */
#define STEP_LOUD_NS  200000ull /* of a cut that ports tell */
#define STEADY_MIN_NS 10000000ull
#define RANDOM_NS     4000000u
#define REPLACE_NS    100000000ull /* three times the timeouts */
#define RETURN_NS     5000000ull   /* from one attempt at the first rail to the next, by replacing a vqp */
#define STALL_NS      15000000000ull
#define POLL_WCS      32
#define CAS_BYTES     8u

static const enum hf_link cut_links[FAILOVER_CUT_KINDS] = {HF_LINK_BOTH, HF_LINK_TX, HF_LINK_RX};

/* One client's list, and what of it has completed. */
struct lane {
	struct ibv_send_wr wrs[BENCH_BATCH];
	struct ibv_sge sges[BENCH_BATCH];
	uint64_t stamp, stamp_before; /* what the list in flight writes; what was there */
	unsigned done;                /* of the list in flight, in wrs */
	uint64_t left_ns;             /* since the cut: the turn in which its vqp found the failure began; 0: not yet */
	unsigned post_failure;        /* so many of the list have to complete until its post-failure requests have */
	bool recovers;                /* the list in flight is the one that the failure met */
	bool busy;                    /* a list is in flight */
	bool lost;                    /* a wr of it failed */
};

struct cuts {
	struct bench_fleet *fleet;
	const struct failover_shape *shape;
	enum failover_cut kind;
	struct lane *lanes;
	uint64_t stamp;
	/* of the mode in use */
	unsigned mode;
	struct bench_nodes *nodes;
	uint64_t bytes_done;
	bool stop;     /* post no further list */
	bool replaces; /* its vqps fail, and the program makes new ones */
	uint64_t return_ns;
	unsigned in_flight;
	/* of the cut being measured */
	bool cut;
	uint64_t cut_ns, turn_ns, detected_ns, first_ns;
	uint64_t post_ns, all_ns; /* of the lane that took longest */
	uint64_t in_flight_bytes, post_failure_bytes;
	unsigned waiting; /* lanes whose list has not completed that the failure met */
	double *series;
	uint64_t start_ns; /* of the series */
};

uint64_t cut_step_ns(enum failover_cut kind)
{
	return kind == FAILOVER_BOTH ? STEP_LOUD_NS : STEP_NS;
}

static uint64_t now_ns(const struct cuts *cuts)
{
	return hf_env_now_ns(cuts->nodes->bed.env);
}

/* ---- lists ---- */

/* Where a wr's number stands at the far side. */
static volatile uint64_t *landing_word(struct cuts *cuts, unsigned at, unsigned wr)
{
	struct lane *lane = &cuts->lanes[at];
	uint64_t local = lane->sges[wr].addr - (uintptr_t)cuts->fleet->setup.near_memory;
	uint8_t *far = cuts->fleet->setup.far_memory;

	return (volatile uint64_t *)(void *)(far + local + lane->sges[wr].length - CAS_BYTES);
}

static void stamp_list(struct cuts *cuts, struct lane *lane)
{
	lane->stamp_before = lane->stamp;
	lane->stamp = ++cuts->stamp;
	for (unsigned i = 0; i < BENCH_BATCH; i++)
		if (lane->wrs[i].opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
			lane->wrs[i].wr.atomic.compare_add = lane->stamp_before;
			lane->wrs[i].wr.atomic.swap = lane->stamp;
		} else {
			*(uint64_t *)(lane->sges[i].addr + lane->sges[i].length - CAS_BYTES) = lane->stamp;
		}
}

static int post_lane(struct cuts *cuts, unsigned at)
{
	struct lane *lane = &cuts->lanes[at];
	struct ibv_send_wr *bad;

	lane->done = 0;
	lane->recovers = lane->lost = false;
	lane->busy = true;
	stamp_list(cuts, lane);
	cuts->in_flight++;
	return hf_vqp_post_send(cuts->nodes->clients[at].vqp, lane->wrs, &bad);
}

/* ---- completions ---- */

static void count_bytes(struct cuts *cuts, uint64_t bytes, uint64_t at_ns)
{
	uint64_t step;

	cuts->bytes_done += bytes;
	if (cuts->start_ns == 0 || at_ns < cuts->start_ns)
		return;
	step = (at_ns - cuts->start_ns) / cut_step_ns(cuts->kind);
	if (step < FAILOVER_SERIES)
		cuts->series[step] += (double)bytes;
}

static void keep_longest(uint64_t *longest_ns, uint64_t ns)
{
	*longest_ns = ns > *longest_ns ? ns : *longest_ns;
}

static int list_done(struct cuts *cuts, unsigned at, uint64_t at_ns)
{
	struct lane *lane = &cuts->lanes[at];

	cuts->in_flight--;
	lane->busy = false;
	if (cuts->cut && lane->recovers) {
		cuts->waiting--;
		keep_longest(&cuts->all_ns, at_ns - lane->left_ns);
	}
	return cuts->stop ? 0 : post_lane(cuts, at);
}

/* Not on the rail that is cut. A vqp that has failed is on none. */
static bool is_elsewhere(const struct cuts *cuts, unsigned at)
{
	int rail = hf_vqp_rail(cuts->nodes->clients[at].vqp);

	return cuts->replaces ? rail > 0 : rail != 0;
}

static int take(struct cuts *cuts)
{
	struct ibv_wc wcs[POLL_WCS];
	int n = hf_vcq_poll(cuts->nodes->cq, POLL_WCS, wcs), rc = 0;
	uint64_t at_ns = n > 0 ? now_ns(cuts) : 0;

	for (int i = 0; i < n && rc == 0; i++) {
		unsigned at = (unsigned)wcs[i].wr_id;
		struct lane *lane = &cuts->lanes[at];

		if (wcs[i].status != IBV_WC_SUCCESS) {
			lane->lost = true;
			rc = cuts->replaces ? 0 : -EIO;
			continue;
		}
		count_bytes(cuts, (uint64_t)SIGNAL_EVERY * cuts->shape->bytes, at_ns);
		lane->done += SIGNAL_EVERY;
		if (cuts->cut && cuts->first_ns == 0 && is_elsewhere(cuts, at))
			cuts->first_ns = at_ns;
		if (cuts->cut && lane->recovers && lane->done == lane->post_failure)
			keep_longest(&cuts->post_ns, at_ns - lane->left_ns);
		if (lane->done == BENCH_BATCH)
			rc = list_done(cuts, at, at_ns);
	}
	return rc;
}

/* How many wrs of the list in flight have executed: they do so in order. */
static unsigned executed_wrs(struct cuts *cuts, unsigned at)
{
	unsigned least = cuts->lanes[at].done, most = BENCH_BATCH;

	while (least < most) {
		unsigned middle = (least + most) / 2;

		if (*landing_word(cuts, at, middle) == cuts->lanes[at].stamp)
			least = middle + 1;
		else
			most = middle;
	}
	return least;
}

/* What it has in flight has to be recovered. */
static void mark_lane(struct cuts *cuts, unsigned at)
{
	struct lane *lane = &cuts->lanes[at];
	unsigned executed = executed_wrs(cuts, at);

	lane->left_ns = cuts->turn_ns;
	lane->recovers = true;
	lane->post_failure = executed / SIGNAL_EVERY * SIGNAL_EVERY;
	if (cuts->detected_ns == 0)
		cuts->detected_ns = lane->left_ns;
	cuts->in_flight_bytes += (uint64_t)(BENCH_BATCH - lane->done) * cuts->shape->bytes;
	cuts->post_failure_bytes += (uint64_t)(executed - lane->done) * cuts->shape->bytes;
}

/* In a turn a vqp may leave its rail, settle, and execute on another one what it sends again: before that it is known
 * what had executed. */
static void on_up(void *context, unsigned at)
{
	struct cuts *cuts = context;

	if (cuts->cut && !cuts->replaces && cuts->lanes[at].left_ns == 0 &&
		hf_vqp_rail(cuts->nodes->clients[at].vqp) != 0)
		mark_lane(cuts, at);
}

/* Vqps that have left their rail. */
static void look_for_detection(struct cuts *cuts)
{
	for (unsigned i = 0; i < cuts->fleet->setup.clients; i++) {
		struct hf_vqp *vqp = cuts->nodes->clients[i].vqp;

		if (cuts->lanes[i].left_ns == 0 && (hf_vqp_state(vqp) != HF_VQP_UP || hf_vqp_rail(vqp) != 0))
			mark_lane(cuts, i);
	}
}

/* ---- what a program does whose vqps do not survive a cut ---- */

/* It makes a new vqp, and begins anew: of the list that was in flight it does not know what executed. */
static int tend_lane(struct cuts *cuts, unsigned at)
{
	struct lane *lane = &cuts->lanes[at];
	enum hf_vqp_state state = hf_vqp_state(cuts->nodes->clients[at].vqp);

	if (lane->lost || (state == HF_VQP_ERROR && !lane->busy)) {
		cuts->in_flight -= lane->busy;
		lane->busy = lane->lost = false;
		return bench_nodes_replace(cuts->nodes, at);
	}
	return state == HF_VQP_UP && !lane->busy && !cuts->stop ? post_lane(cuts, at) : 0;
}

static int tend_lanes(struct cuts *cuts)
{
	int rc = 0;

	for (unsigned i = 0; i < cuts->fleet->setup.clients && rc == 0; i++)
		rc = tend_lane(cuts, i);
	return rc;
}

/* Nothing is in flight, and the first rail is mended: a lane on another one tries to be there. */
static int return_lanes(struct cuts *cuts)
{
	int rc = 0;

	if (now_ns(cuts) < cuts->return_ns)
		return 0;
	cuts->return_ns = now_ns(cuts) + RETURN_NS;
	for (unsigned i = 0; i < cuts->fleet->setup.clients && rc == 0; i++) {
		struct hf_vqp *vqp = cuts->nodes->clients[i].vqp;

		if (hf_vqp_state(vqp) == HF_VQP_UP && hf_vqp_rail(vqp) > 0)
			rc = bench_nodes_replace(cuts->nodes, i);
	}
	return rc;
}

/* ---- turns ---- */

/* The loop turns at every poll: what a control message waits for otherwise is the benchmark. */
static int turn(struct cuts *cuts)
{
	int rc;

	cuts->turn_ns = now_ns(cuts);
	rc = take(cuts);
	if (rc == 0)
		rc = bench_fleet_turn(cuts->fleet, cuts->mode, now_ns(cuts));
	if (rc == 0 && cuts->replaces)
		rc = tend_lanes(cuts);
	if (cuts->cut && !cuts->replaces)
		look_for_detection(cuts);
	return rc;
}

static int drive_until(struct cuts *cuts, uint64_t until_ns)
{
	int rc = 0;

	while (rc == 0 && now_ns(cuts) < until_ns)
		rc = turn(cuts);
	return rc;
}

/* ---- one cut ---- */

struct totals {
	uint64_t resent_bytes, executed_bytes, log_bytes;
};

/* With nothing in flight: what the vqps sent again, and what the far side's devices executed, up to now. */
static int tally(struct cuts *cuts, struct totals *totals_out)
{
	*totals_out = (struct totals){0};
	for (unsigned i = 0; i < cuts->fleet->setup.clients; i++) {
		struct hf_vqp_counters counters;

		hf_vqp_counters(cuts->nodes->clients[i].vqp, &counters);
		totals_out->resent_bytes += counters.resent_bytes;
		totals_out->log_bytes += counters.log_bytes;
	}
	return bench_fleet_executed(cuts->fleet, cuts->mode, &totals_out->executed_bytes);
}

static int start_lanes(struct cuts *cuts)
{
	int rc = 0;

	cuts->stop = false;
	for (unsigned i = 0; i < cuts->fleet->setup.clients && rc == 0; i++)
		rc = post_lane(cuts, i);
	return rc;
}

static int finish_lanes(struct cuts *cuts)
{
	uint64_t end_ns = now_ns(cuts) + STALL_NS;
	int rc = 0;

	cuts->stop = true;
	while (cuts->in_flight > 0 && rc == 0)
		rc = now_ns(cuts) > end_ns ? -ETIMEDOUT : turn(cuts);
	return rc;
}

static int wait_for_primary(struct cuts *cuts)
{
	uint64_t end_ns = now_ns(cuts) + STALL_NS;
	unsigned back, clients = cuts->fleet->setup.clients;
	int rc = 0;

	do {
		back = 0;
		rc = turn(cuts);
		if (rc == 0 && cuts->replaces)
			rc = return_lanes(cuts);
		for (unsigned i = 0; i < clients && rc == 0; i++)
			back += hf_vqp_state(cuts->nodes->clients[i].vqp) == HF_VQP_UP &&
				hf_vqp_rail(cuts->nodes->clients[i].vqp) == 0;
	} while (rc == 0 && back < clients && now_ns(cuts) < end_ns);
	return rc != 0 ? rc : back < clients ? -ETIMEDOUT : 0;
}

/* The lists of this mode; what CAS will compare with is put in its place. */
static void use_mode(struct cuts *cuts, unsigned mode, double *series)
{
	cuts->mode = mode;
	cuts->replaces = cuts->fleet->modes[mode]->policy == HF_POLICY_NONE;
	cuts->nodes = &cuts->fleet->nodes[mode];
	cuts->nodes->came_up = on_up;
	cuts->nodes->came_up_context = cuts;
	cuts->nodes->replaces = cuts->replaces;
	cuts->stop = true;
	cuts->series = series;
	bench_fleet_use(cuts->fleet, mode);
	for (unsigned i = 0; i < cuts->fleet->setup.clients; i++) {
		struct lane *lane = &cuts->lanes[i];

		bench_list(&cuts->nodes->clients[i], cuts->shape->op, cuts->shape->bytes, BENCH_BATCH, SIGNAL_EVERY, i,
			lane->wrs, lane->sges);
		for (unsigned k = 0; k < BENCH_BATCH; k++)
			*landing_word(cuts, i, k) = lane->stamp;
	}
}

static void begin_cut(struct cuts *cuts)
{
	cuts->detected_ns = cuts->first_ns = cuts->post_ns = cuts->all_ns = 0;
	cuts->in_flight_bytes = cuts->post_failure_bytes = 0;
	cuts->waiting = cuts->fleet->setup.clients;
	for (unsigned i = 0; i < cuts->fleet->setup.clients; i++)
		cuts->lanes[i].left_ns = 0;
	cuts->cut = true;
	cuts->cut_ns = now_ns(cuts);
}

/* Vqps that replace those which failed come to the same rail again where no port tells that it is cut: no vqp waits
 * for another one then. */
static int wait_for_recovery(struct cuts *cuts)
{
	bool patient = !cuts->replaces || cuts->kind == FAILOVER_BOTH;
	uint64_t end_ns = cuts->cut_ns + (patient ? STALL_NS : REPLACE_NS);
	int rc = 0;

	while (rc == 0 && (cuts->first_ns == 0 || (cuts->waiting > 0 && !cuts->replaces))) {
		if (now_ns(cuts) > end_ns)
			return patient ? -ETIMEDOUT : 0;
		rc = turn(cuts);
	}
	return rc;
}

/* Under load: some time undisturbed, the cut, until all is back and the series is full; then nothing is in flight. */
static int cut_under_load(struct cuts *cuts)
{
	struct hf_dev *dev = hf_node_dev(cuts->nodes->node, 0);
	uint64_t step_ns = cut_step_ns(cuts->kind), steady_ns;
	uint32_t random;
	int rc;

	hf_env_entropy(cuts->nodes->bed.env, &random, sizeof(random));
	if ((rc = start_lanes(cuts)) != 0)
		return rc;
	steady_ns = now_ns(cuts) + STEADY_MIN_NS + random % RANDOM_NS;
	cuts->start_ns = steady_ns - step_ns * FAILOVER_BEFORE;
	if ((rc = drive_until(cuts, steady_ns)) != 0)
		return rc;
	begin_cut(cuts);
	hf_dev_set_link(dev, cut_links[cuts->kind], false);
	rc = wait_for_recovery(cuts);
	if (rc == 0)
		rc = drive_until(cuts, cuts->cut_ns + step_ns * (FAILOVER_SERIES - FAILOVER_BEFORE));
	cuts->cut = false;
	cuts->start_ns = 0;
	if (rc == 0)
		rc = finish_lanes(cuts);
	hf_dev_set_link(dev, cut_links[cuts->kind], true);
	return rc;
}

static double us_between(uint64_t from_ns, uint64_t to_ns)
{
	return to_ns > from_ns ? (double)(to_ns - from_ns) / 1e3 : 0;
}

int cuts_one(struct cuts *cuts, unsigned mode, double *series, struct cut_sample *sample_out)
{
	uint64_t bytes_before = cuts->bytes_done;
	struct totals before, after;
	double executed;
	int rc;

	use_mode(cuts, mode, series);
	if ((rc = wait_for_primary(cuts)) != 0 || (rc = tally(cuts, &before)) != 0 || (rc = cut_under_load(cuts)) != 0)
		return rc;
	*sample_out = (struct cut_sample){.first_us = us_between(cuts->cut_ns, cuts->first_ns)};
	if (cuts->replaces)
		return wait_for_primary(cuts); /* when all are replaced, nothing of what was lost can still execute */
	if ((rc = tally(cuts, &after)) != 0)
		return rc;
	executed = (double)(after.executed_bytes - before.executed_bytes);
	*sample_out = (struct cut_sample){.in_flight = (double)cuts->in_flight_bytes,
		.post_failure = (double)cuts->post_failure_bytes,
		.resent = (double)(after.resent_bytes - before.resent_bytes),
		.doubled = executed - (double)(cuts->bytes_done - bytes_before) -
			   (double)(after.log_bytes - before.log_bytes),
		.detection_us = us_between(cuts->cut_ns, cuts->detected_ns),
		.first_us = us_between(cuts->cut_ns, cuts->first_ns),
		.post_us = (double)cuts->post_ns / 1e3,
		.all_us = (double)cuts->all_ns / 1e3};
	return 0;
}

int cuts_open(
	struct bench_fleet *fleet, const struct failover_shape *shape, enum failover_cut kind, struct cuts **cuts_out)
{
	struct cuts *cuts = calloc(1, sizeof(*cuts));

	if (cuts == NULL)
		return -ENOMEM;
	*cuts = (struct cuts){.fleet = fleet, .shape = shape, .kind = kind};
	cuts->lanes = calloc(fleet->setup.clients, sizeof(*cuts->lanes));
	if (cuts->lanes == NULL) {
		free(cuts);
		return -ENOMEM;
	}
	*cuts_out = cuts;
	return 0;
}

void cuts_close(struct cuts *cuts)
{
	if (cuts == NULL)
		return;
	for (unsigned i = 0; i < cuts->fleet->n; i++)
		cuts->fleet->nodes[i].came_up = NULL;
	free(cuts->lanes);
	free(cuts);
}
