/* Starts and stops a demo's nodes, and cuts and restores their rails. */
#include "cli/demo/node.h"
#include "cli/demo/picture.h"
#include "cli/demo/parent.h"
#include "cli/fabric_sweep.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MS             1000000ull
#define STEP_WAIT_MS   2u
#define START_LIMIT_NS (15000 * MS)
#define STALL_LIMIT_NS (20000 * MS) /* beyond a node's own budget without any rail */
#define DEATH_KNOWN_NS (500 * MS)
#define NODE_GRACE_MS  2000u
#define SERIES_STEP_NS (20 * MS)
#define FABRIC_PREFIX  "demo-"
#define ADDRESS_TRIES  5u
#define DOUBLED_LEAST  1024u

/* ---- fabrics ---- */

void demo_clean_fabrics(void)
{
	fabric_sweep(FABRIC_PREFIX);
}

/* ---- starting ---- */

static void draw_names(struct run *run, struct hf_addr *base)
{
	uint8_t random[4];

	hf_env_entropy(run->task->env, random, sizeof(random));
	snprintf(run->fabric_name, sizeof(run->fabric_name), FABRIC_PREFIX "%d-%02x%02x%02x%02x", process_own_pid(),
		random[0], random[1], random[2], random[3]);
	if (run->task->options->base_given) {
		*base = run->task->options->base;
		return;
	}
	/* Somewhere in 127.64.0.0/10, out of the way of programs at 127.0.0.n; two demos at once hardly meet. */
	memset(base, 0, sizeof(*base));
	base->in.sin_family = AF_INET;
	base->in.sin_addr.s_addr = htonl(0x7f400000u | (uint32_t)(random[0] & 0x3f) << 16 | (uint32_t)random[1] << 8 |
					 (uint32_t)(random[2] & 0xf8) | 1u);
}

/* A node that has just ended is found out by hear_nodes(), which knows why. */
static int tell(struct run *run, enum side side, json_t *message)
{
	int failed = channel_send(&run->nodes[side].channel, message);

	if (failed == 0 || failed == -EPIPE || failed == -ECONNRESET)
		return 0;
	return hf_error_set(run->error, failed, "node %s does not listen: %s", side_name(side), strerror(-failed));
}

static int start_node(struct run *run, enum side side, const struct hf_addr *base)
{
	static char *const argv[] = {"holdfast", "demo-node", NULL};
	const struct demo_task *task = run->task;
	struct node_state *node = &run->nodes[side];
	char text[HF_ADDR_TEXT];
	int failed;

	snprintf(node->log_path, sizeof(node->log_path), "%s/%s.log", task->scratch->path, side_name(side));
	failed = process_start(argv, node->log_path, &node->process);
	if (failed)
		return hf_error_set(run->error, failed, "a node cannot be started: %s", strerror(-failed));
	node->started = true;
	channel_init(&node->channel, node->process.channel_fd);
	return tell(run, side,
		json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:I}", "scratch", task->scratch->path,
			"role", side_name(side), "device", task->device, "fabric", run->fabric_name, "base",
			hf_addr_format(base, text), "config",
			task->options->config != NULL ? task->options->config : "", "input", task->input->path,
			"output", run->copy_path, "bytes", (json_int_t)task->input->bytes, "rate",
			(json_int_t)task->options->rate_bytes, "failback_ns", (json_int_t)task->failback_ns));
}

/* ---- what is done to the nodes ---- */

static int switch_rail(struct run *run, bool up)
{
	/* The ends take turns: the loss of one's own port is told by an event, that of the peer's only by silence. */
	const char *node = run->schedule.cuts % 2 == 1 ? "a" : "b";
	char rail[HF_NAME_BYTES];

	snprintf(rail, sizeof(rail), "r%u", run->schedule.rail);
	return hf_fabric_set_link(run->fabric, node, rail, HF_LINK_BOTH, up, run->error);
}

static int cut_rail(struct run *run)
{
	struct demo_result *result = run->result;
	uint64_t before_ns = hf_env_now_ns(run->task->env), after_ns;
	int failed = switch_rail(run, false);

	if (failed)
		return failed;
	after_ns = hf_env_now_ns(run->task->env);
	result->cuts[result->cut_count] =
		(struct demo_cut){.rail = run->schedule.rail, .at_ns = since_start(run, before_ns)};
	screen_event(run->task->screen, "%s: %6.2f s  cut r%u at node %s", run->task->device,
		(double)since_start(run, before_ns) / 1e9, run->schedule.rail, run->schedule.cuts % 2 == 1 ? "a" : "b");
	return tell(run, SIDE_A,
		json_pack("{s:I, s:I, s:I, s:i}", "cut", (json_int_t)result->cut_count++, "before_ns",
			(json_int_t)before_ns, "after_ns", (json_int_t)after_ns, "rail", (int)run->schedule.rail));
}

static int restore_rail(struct run *run)
{
	uint64_t now_ns = hf_env_now_ns(run->task->env);
	int failed = switch_rail(run, true);

	if (failed)
		return failed;
	run->result->cuts[run->result->cut_count - 1].restored_ns = since_start(run, now_ns);
	screen_event(run->task->screen, "%s: %6.2f s  restored r%u", run->task->device,
		(double)since_start(run, now_ns) / 1e9, run->schedule.rail);
	return tell(run, SIDE_A, json_pack("{s:b}", "restored", 1));
}

static int follow_schedule(struct run *run, uint64_t now_ns)
{
	if (run->phase == PHASE_FINISHING || run->sender_done)
		return 0;
	switch (schedule_step(&run->schedule, &run->view, now_ns)) {
	case SCHEDULE_CUT:
		return cut_rail(run);
	case SCHEDULE_RESTORE:
		return restore_rail(run);
	case SCHEDULE_WAIT:
		break;
	}
	if (run->schedule.state != SCHEDULE_OVER)
		return 0;
	run->phase = PHASE_FINISHING;
	return tell(run, SIDE_A, json_pack("{s:b}", "finish", 1));
}

/* ---- running ---- */

static void draw(struct run *run, uint64_t now_ns)
{
	static const char *const doing[] = {[PHASE_STARTING] = "starting",
		[PHASE_MOVING] = "moving",
		[PHASE_FINISHING] = "finishing",
		[PHASE_DONE] = "done"};
	struct draw_view view = {
		.device = run->task->device,
		.now_ns = run->phase == PHASE_STARTING ? 0 : since_start(run, now_ns),
		.bytes = run->result->bytes,
		.passes = run->result->passes,
		.resent_bytes = run->result->resent_bytes,
		.last_failover_ns = run->last_failover_ns,
		.cuts = run->result->cut_count,
		.doing = doing[run->phase],
		.columns = process_terminal_columns(),
		.moved = &run->result->moved,
	};

	for (unsigned rail = 0; rail < DEMO_RAILS; rail++) {
		if (run->phase == PHASE_MOVING && run->schedule.state == SCHEDULE_DOWN && run->schedule.rail == rail)
			view.rails[rail] = DRAW_RAIL_CUT;
		else if (run->view.active == (int)rail)
			view.rails[rail] = DRAW_RAIL_CARRIES;
		else
			view.rails[rail] = run->view.up[rail] ? DRAW_RAIL_STANDS_BY : DRAW_RAIL_DOWN;
	}
	screen_draw(run->task->screen, draw_picture, &view, now_ns);
}

static int check_limits(const struct run *run, uint64_t now_ns)
{
	if (process_interrupted())
		return hf_error_set(run->error, -EINTR, "interrupted");
	if (run->phase == PHASE_STARTING && now_ns - run->begun_ns > START_LIMIT_NS)
		return hf_error_set(run->error, -ETIMEDOUT, "the nodes did not connect within %u s",
			(unsigned)(START_LIMIT_NS / 1000 / MS));
	if (run->phase != PHASE_STARTING && now_ns > run->progress_ns + STALL_LIMIT_NS)
		return hf_error_set(run->error, -ETIMEDOUT, "nothing completed for %u s: operations were lost",
			(unsigned)(STALL_LIMIT_NS / 1000 / MS));
	return 0;
}

static bool is_done(const struct run *run, uint64_t now_ns)
{
	if (!run->sender_done || run->passes_hashed < run->result->passes)
		return false;
	/* What failed may have failed because the other node died: that is told instead, once it is known. */
	return run->result->failed == 0 || now_ns > run->sender_done_ns + DEATH_KNOWN_NS;
}

static int open_fabric_when_there(struct run *run)
{
	if (run->fabric != NULL)
		return 0;
	return hf_fabric_open(run->fabric_name, false, &run->fabric, run->error);
}

static int step(struct run *run, const struct hf_addr *base)
{
	int fds[SIDES];
	unsigned n = 0;
	uint64_t now_ns;
	int failed;

	for (enum side side = SIDE_A; side < SIDES; side++)
		if (run->nodes[side].started)
			fds[n++] = run->nodes[side].process.channel_fd;
	process_wait_readable(fds, n, STEP_WAIT_MS);
	now_ns = hf_env_now_ns(run->task->env);
	failed = demo_hear(run);
	if (!failed)
		failed = check_limits(run, now_ns);
	if (!failed && !run->nodes[SIDE_A].started)
		failed = start_node(run, SIDE_A, base); /* it retries until b listens */
	if (!failed && run->phase == PHASE_MOVING) {
		failed = open_fabric_when_there(run);
		if (!failed)
			failed = follow_schedule(run, now_ns);
	}
	if (!failed && is_done(run, now_ns))
		run->phase = PHASE_DONE;
	if (!failed && (screen_due(run->task->screen, now_ns) || run->phase == PHASE_DONE))
		draw(run, now_ns);
	return failed;
}

static void stop_nodes(struct run *run)
{
	for (enum side side = SIDE_A; side < SIDES; side++)
		if (run->nodes[side].started)
			channel_send(&run->nodes[side].channel, json_pack("{s:b}", "quit", 1));
	for (enum side side = SIDE_A; side < SIDES; side++)
		process_stop(&run->nodes[side].process, NODE_GRACE_MS);
	hf_fabric_close(run->fabric);
	run->fabric = NULL;
	hf_fabric_remove(run->fabric_name);
}

static void settle_result(struct run *run)
{
	struct demo_result *result = run->result;

	result->duration_ns = since_start(run, run->status_ns);
	result->uncounted = run->executed_bytes == 0 && run->expected_bytes > 0;
	/* The last progress may still be on its way when node b counts; a chunk has a page at least. */
	if (run->executed_bytes >= run->expected_bytes + DOUBLED_LEAST) {
		uint64_t chunk_bytes = demo_shape_of(run->task->input->bytes).chunk_bytes;

		result->doubled_bytes = run->executed_bytes - run->expected_bytes;
		result->doubled = (result->doubled_bytes + chunk_bytes - 1) / chunk_bytes;
	}
	result->resent_wrs += run->receiver_resent_wrs;
	result->resent_bytes += run->receiver_resent_bytes;
	result->failed += run->receiver_failed;
}

static int run_once(struct run *run)
{
	struct hf_addr base;
	int failed;

	draw_names(run, &base);
	snprintf(run->copy_path, sizeof(run->copy_path), "%s/copy", run->task->scratch->path);
	run->begun_ns = hf_env_now_ns(run->task->env);
	run->view.active = -1;
	failed = start_node(run, SIDE_B, &base);
	while (!failed && run->phase != PHASE_DONE)
		failed = step(run, &base);
	stop_nodes(run);
	if (!failed)
		failed = demo_judge(run);
	settle_result(run);
	hf_file_remove(run->task->env, run->copy_path);
	return failed;
}

int demo_run(const struct demo_task *task, struct demo_result *result, bool *started_out, struct hf_error *error)
{
	static struct run run;
	int failed;

	for (unsigned tries = 0;; tries++) {
		memset(&run, 0, sizeof(run));
		memset(result, 0, sizeof(*result));
		result->device = task->device;
		series_init(&result->moved, SERIES_STEP_NS);
		run.task = task;
		run.result = result;
		run.error = error;
		failed = run_once(&run);
		*started_out = run.phase != PHASE_STARTING;
		if (failed != -EADDRINUSE || task->options->base_given || tries == ADDRESS_TRIES)
			return failed; /* with addresses drawn at random, others are tried */
	}
}
