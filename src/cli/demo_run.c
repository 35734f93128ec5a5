#include "cli/demo_run.h"

#include <holdfast/fabric.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/channel.h"
#include "cli/demo_schedule.h"
#include "cli/process.h"

#define MS             1000000ull
#define STEP_WAIT_MS   2u
#define START_LIMIT_NS (15000 * MS)
#define STALL_LIMIT_NS (20000 * MS) /* beyond a node's own budget without any rail */
#define DEATH_KNOWN_NS (500 * MS)
#define NODE_GRACE_MS  2000u
#define SERIES_STEP_NS (20 * MS)
#define DOWN_NS        (500 * MS)
#define DOWN_NS_QUICK  (250 * MS)
#define CUTS_LEAST     4u
#define FABRIC_PREFIX  "demo-"
#define ADDRESS_TRIES  5u
#define LOG_BYTES      2048
#define WORDS_BYTES    96

enum side { SIDE_A, SIDE_B, SIDES };

enum phase {
	PHASE_STARTING,  /* b makes its file ready, then a connects; until the first completion */
	PHASE_MOVING,    /* until the schedule is over */
	PHASE_FINISHING, /* a finishes its pass, b hashes it */
	PHASE_DONE,
};

struct node_state {
	struct process process;
	struct channel channel;
	bool started;
	char log_path[SCRATCH_PATH_BYTES + 16];
};

struct run {
	const struct demo_task *task;
	struct demo_result *result;
	struct hf_error *error;
	char fabric_name[HF_NAME_BYTES];
	char copy_path[SCRATCH_PATH_BYTES + 16];
	struct hf_fabric *fabric;
	struct node_state nodes[SIDES];
	enum phase phase;
	int failure; /* what a node said it failed of; -errno */

	uint64_t begun_ns;    /* of this run */
	uint64_t start_ns;    /* of traffic */
	uint64_t progress_ns; /* when something moved last */
	uint64_t status_ns;   /* of the last status */
	struct schedule schedule;
	struct schedule_view view;
	bool sender_done;
	uint64_t sender_done_ns;
	uint64_t passes_hashed;
	uint64_t last_failover_ns;
	uint64_t receiver_resent_wrs, receiver_resent_bytes, receiver_failed;
};

/* ---- fabrics ---- */

static void clean_fabric(const char *name, void *context)
{
	long pid = strtol(name + strlen(FABRIC_PREFIX), NULL, 10);

	(void)context;
	if (strncmp(name, FABRIC_PREFIX, strlen(FABRIC_PREFIX)) == 0 && pid > 0 && !process_alive((pid_t)pid))
		hf_fabric_remove(name); /* refuses one on which somebody lives after all */
}

void demo_clean_fabrics(void)
{
	hf_fabric_each(clean_fabric, NULL);
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
	/* Somewhere in 127.64.0.0/10, out of the way of whoever uses 127.0.0.n; two demos at once hardly meet. */
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
	return hf_error_set(
		run->error, failed, "node %s does not listen: %s", side == SIDE_A ? "a" : "b", strerror(-failed));
}

static int start_node(struct run *run, enum side side, const struct hf_addr *base)
{
	static char *const argv[] = {"holdfast", "demo-node", NULL};
	const struct demo_task *task = run->task;
	struct node_state *node = &run->nodes[side];
	char text[HF_ADDR_TEXT];
	int failed;

	snprintf(node->log_path, sizeof(node->log_path), "%s/%s.log", task->scratch->path, side == SIDE_A ? "a" : "b");
	failed = process_start(argv, node->log_path, &node->process);
	if (failed)
		return hf_error_set(run->error, failed, "a node cannot be started: %s", strerror(-failed));
	node->started = true;
	channel_init(&node->channel, node->process.channel_fd);
	return tell(run, side,
		json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:I}", "role", side == SIDE_A ? "a" : "b",
			"device", task->device, "fabric", run->fabric_name, "base", hf_addr_format(base, text),
			"config", task->options->config != NULL ? task->options->config : "", "input",
			task->input->path, "output", run->copy_path, "bytes", (json_int_t)task->input->bytes, "rate",
			(json_int_t)task->options->rate_bytes, "failback_ns", (json_int_t)task->failback_ns));
}

/* ---- what the nodes say ---- */

static uint64_t since_start(const struct run *run, uint64_t at_ns)
{
	return at_ns > run->start_ns ? at_ns - run->start_ns : 0;
}

static void begin_traffic(struct run *run, uint64_t at_ns)
{
	const struct demo_options *options = run->task->options;

	run->phase = PHASE_MOVING;
	run->start_ns = run->status_ns != 0 ? run->status_ns : at_ns; /* when nothing had completed yet */
	run->progress_ns = at_ns;
	schedule_start(&run->schedule, at_ns, options->seconds_ns, options->quick ? DOWN_NS_QUICK : DOWN_NS,
		run->task->failback_ns, CUTS_LEAST, DEMO_CUTS_MAX);
	screen_event(run->task->screen, "%s: traffic on r%d", run->task->device, run->view.active);
}

static void take_status(struct run *run, json_t *message)
{
	json_int_t at_ns, bytes, operations, resent_bytes, passes;
	int rail, up[DEMO_RAILS], was_active = run->view.active;
	uint64_t moved;

	if (json_unpack(message, "{s:I, s:I, s:I, s:i, s:[b,b], s:I, s:I}", "at_ns", &at_ns, "bytes", &bytes,
		    "operations", &operations, "rail", &rail, "up", &up[0], &up[1], "resent_bytes", &resent_bytes,
		    "passes", &passes) != 0 ||
		rail >= DEMO_RAILS)
		return;
	run->view = (struct schedule_view){.active = rail, .up = {up[0] != 0, up[1] != 0}};
	moved = (uint64_t)bytes - run->result->bytes;
	run->result->bytes = (uint64_t)bytes;
	run->result->operations = (uint64_t)operations;
	run->result->passes = (uint64_t)passes;
	run->result->resent_bytes = (uint64_t)resent_bytes;
	if (run->phase == PHASE_STARTING && bytes > 0)
		begin_traffic(run, (uint64_t)at_ns);
	if (run->phase == PHASE_STARTING) {
		run->status_ns = (uint64_t)at_ns;
		return;
	}
	/* A step in which the rail changed is given to the rail it ended on. */
	series_add(&run->result->moved, since_start(run, run->status_ns), since_start(run, (uint64_t)at_ns),
		rail >= 0 ? (unsigned)rail : 0, moved);
	run->status_ns = (uint64_t)at_ns;
	if (moved > 0)
		run->progress_ns = (uint64_t)at_ns;
	if (rail != was_active && rail >= 0 && was_active >= 0)
		screen_event(run->task->screen, "%s: %6.2f s  traffic has moved to r%d", run->task->device,
			(double)since_start(run, (uint64_t)at_ns) / 1e9, rail);
}

static void take_cut(struct run *run, json_t *message)
{
	json_int_t number, failover_ns;
	struct demo_cut *cut;
	int rail;

	if (json_unpack(message, "{s:I, s:I, s:i}", "cut", &number, "failover_ns", &failover_ns, "rail", &rail) != 0 ||
		number < 0 || number >= (json_int_t)run->result->cut_count)
		return;
	cut = &run->result->cuts[number];
	cut->measured = true;
	cut->failover_ns = run->last_failover_ns = (uint64_t)failover_ns;
	histogram_add(&run->result->failover_ns, cut->failover_ns);
	screen_event(run->task->screen, "%s: %6.2f s  WRITEs complete on r%d again, %s after the cut",
		run->task->device, (double)(cut->at_ns + cut->failover_ns) / 1e9, rail, draw_time(cut->failover_ns));
}

static void take_done(struct run *run, json_t *message)
{
	struct demo_result *result = run->result;
	json_int_t operations, bytes, failed, passes, resent_wrs, resent_bytes, failovers, failbacks;
	const char *why;

	if (json_unpack(message, "{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "why", &why, "operations",
		    &operations, "bytes", &bytes, "failed", &failed, "passes", &passes, "resent_wrs", &resent_wrs,
		    "resent_bytes", &resent_bytes, "failovers", &failovers, "failbacks", &failbacks) != 0)
		return;
	run->sender_done = true;
	run->sender_done_ns = hf_env_now_ns(run->task->env);
	hf_error_set(&result->why, 0, "%.250s", why);
	result->operations = (uint64_t)operations;
	result->bytes = (uint64_t)bytes;
	result->failed = (uint64_t)failed;
	result->passes = (uint64_t)passes;
	result->resent_wrs = (uint64_t)resent_wrs;
	result->resent_bytes = (uint64_t)resent_bytes;
	result->failovers = (uint64_t)failovers;
	result->failbacks = (uint64_t)failbacks;
}

static void take_pass(struct run *run, json_t *message)
{
	json_int_t pass, resent_wrs, resent_bytes, failed;
	const char *sha256;

	if (json_unpack(message, "{s:I, s:s, s:I, s:I, s:I}", "pass", &pass, "sha256", &sha256, "resent_wrs",
		    &resent_wrs, "resent_bytes", &resent_bytes, "failed", &failed) != 0)
		return;
	run->passes_hashed++;
	run->receiver_resent_wrs = (uint64_t)resent_wrs;
	run->receiver_resent_bytes = (uint64_t)resent_bytes;
	run->receiver_failed = (uint64_t)failed;
	run->progress_ns = hf_env_now_ns(run->task->env);
	if (strcmp(sha256, run->task->input->sha256) == 0)
		return;
	run->result->passes_wrong++;
	screen_event(run->task->screen, "%s: pass %lld arrived WRONG: SHA-256 %s", run->task->device,
		(long long)pass + 1, sha256);
}

static void take_error(struct run *run, json_t *message, enum side side)
{
	const char *text;
	int code;

	if (run->failure != 0 || json_unpack(message, "{s:s, s:i}", "error", &text, "code", &code) != 0)
		return;
	run->failure = code < 0 ? code : -EIO;
	hf_error_set(run->error, run->failure, "node %s: %.200s", side == SIDE_A ? "a" : "b", text);
}

static void take_message(struct run *run, json_t *message, enum side side)
{
	if (json_object_get(message, "error") != NULL)
		take_error(run, message, side);
	else if (json_object_get(message, "cut") != NULL)
		take_cut(run, message);
	else if (json_object_get(message, "done") != NULL)
		take_done(run, message);
	else if (json_object_get(message, "pass") != NULL)
		take_pass(run, message);
	else if (json_object_get(message, "at_ns") != NULL)
		take_status(run, message);
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
	};

	for (unsigned rail = 0; rail < DEMO_RAILS; rail++) {
		if (run->phase == PHASE_MOVING && run->schedule.state == SCHEDULE_DOWN && run->schedule.rail == rail)
			view.rails[rail] = DRAW_RAIL_CUT;
		else if (run->view.active == (int)rail)
			view.rails[rail] = DRAW_RAIL_CARRIES;
		else
			view.rails[rail] = run->view.up[rail] ? DRAW_RAIL_STANDS_BY : DRAW_RAIL_DOWN;
	}
	screen_draw(run->task->screen, &view, &run->result->moved, now_ns);
}

/* A node that ended without having been told to. What it wrote to standard error last is the best explanation. */
static int explain_death(struct run *run, enum side side, const char *words)
{
	char log[LOG_BYTES + 1] = "", *line;
	struct hf_file *file;

	if (run->failure != 0)
		return run->failure; /* it said why */
	if (hf_file_open(run->task->env, run->nodes[side].log_path, 0, &file) == 0) {
		int64_t bytes = hf_file_bytes(file);
		ssize_t n =
			hf_file_read_at(file, log, LOG_BYTES, bytes > LOG_BYTES ? (uint64_t)(bytes - LOG_BYTES) : 0);

		log[n > 0 ? n : 0] = '\0';
		hf_file_close(file);
	}
	while ((line = strrchr(log, '\n')) != NULL && line[1] == '\0')
		*line = '\0';
	line = line != NULL ? line + 1 : log;
	return hf_error_set(run->error, -ESRCH, "node %s %s%s%.150s; run the demo again", side == SIDE_A ? "a" : "b",
		words, line[0] != '\0' ? ": " : "", line);
}

static int hear_nodes(struct run *run)
{
	for (enum side side = SIDE_A; side < SIDES; side++) {
		struct node_state *node = &run->nodes[side];
		char words[WORDS_BYTES];
		json_t *message;
		bool ended;

		if (!node->started)
			continue;
		ended = process_ended(&node->process, words, sizeof(words)); /* before its last words are read */
		while ((message = channel_receive(&node->channel)) != NULL) {
			take_message(run, message, side);
			json_decref(message);
		}
		if (ended)
			return explain_death(run, side, words);
		if (node->channel.ended && run->failure == 0 && node->channel.used > 0)
			return hf_error_set(
				run->error, -EPROTO, "node %s sent a malformed message", side == SIDE_A ? "a" : "b");
	}
	return run->failure;
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
	failed = hear_nodes(run);
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

/* ---- the end ---- */

static uint64_t count_differing(const uint8_t *a, const uint8_t *b, uint64_t bytes)
{
	uint64_t differ = 0;

	for (uint64_t i = 0; i < bytes; i++)
		differ += a[i] != b[i];
	return differ;
}

static int compare_files(struct run *run, struct hf_file *from, struct hf_file *to)
{
	enum { PIECE = 1 << 18 };
	uint8_t *pieces = malloc(2 * (size_t)PIECE);
	ssize_t n = 0;

	if (pieces == NULL)
		return -ENOMEM;
	for (uint64_t offset = 0; offset < run->task->input->bytes; offset += (uint64_t)n) {
		ssize_t m;

		n = hf_file_read_at(from, pieces, PIECE, offset);
		m = hf_file_read_at(to, pieces + PIECE, PIECE, offset);
		if (n <= 0 || m < n)
			break;
		run->result->bytes_differ += count_differing(pieces, pieces + PIECE, (uint64_t)n);
	}
	free(pieces);
	return 0;
}

/* The copy as it is on the file system, which no node has a say in any more. */
static int judge_copy(struct run *run)
{
	struct demo_result *result = run->result;
	struct hf_env *env = run->task->env;
	struct hf_file *from = NULL, *to = NULL;
	int failed = digest_file(env, run->copy_path, result->sha256_to);

	if (failed)
		return hf_error_set(run->error, failed, "the copy cannot be read: %s", strerror(-failed));
	result->hash_equal = strcmp(result->sha256_to, run->task->input->sha256) == 0 && result->passes_wrong == 0;
	if (result->hash_equal)
		return 0;
	failed = hf_file_open(env, run->task->input->path, 0, &from);
	if (!failed)
		failed = hf_file_open(env, run->copy_path, 0, &to);
	if (!failed)
		failed = compare_files(run, from, to);
	hf_file_close(from);
	hf_file_close(to);
	return failed;
}

static void settle_result(struct run *run)
{
	struct demo_result *result = run->result;

	result->duration_ns = since_start(run, run->status_ns);
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
		failed = judge_copy(run);
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
