/* What a demo's nodes say to their parent, and how they end. */
#include "cli/demo/parent.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cli/draw.h"
#include "cli/last_line.h"

#define MS            1000000ull
#define CUTS_LEAST    4u
#define DOWN_NS       (500 * MS)
#define DOWN_NS_QUICK (250 * MS)
#define WORDS_BYTES   96

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
	json_int_t operations, bytes, failed, passes, resent_wrs, resent_bytes, failovers, failbacks, expected;
	const char *why;

	if (json_unpack(message, "{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "why", &why, "operations",
		    &operations, "bytes", &bytes, "failed", &failed, "passes", &passes, "resent_wrs", &resent_wrs,
		    "resent_bytes", &resent_bytes, "failovers", &failovers, "failbacks", &failbacks, "expected_bytes",
		    &expected) != 0)
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
	run->expected_bytes = (uint64_t)expected;
}

static void take_pass(struct run *run, json_t *message)
{
	json_int_t pass, resent_wrs, resent_bytes, failed, executed;
	const char *sha256;

	if (json_unpack(message, "{s:I, s:I, s:s, s:I, s:I, s:I}", "pass", &pass, "executed_bytes", &executed, "sha256",
		    &sha256, "resent_wrs", &resent_wrs, "resent_bytes", &resent_bytes, "failed", &failed) != 0)
		return;
	run->passes_hashed++;
	run->receiver_resent_wrs = (uint64_t)resent_wrs;
	run->receiver_resent_bytes = (uint64_t)resent_bytes;
	run->receiver_failed = (uint64_t)failed;
	run->executed_bytes = (uint64_t)executed;
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
	if (strncmp(text, "node ", 5) == 0) /* it has named itself */
		hf_error_set(run->error, run->failure, "%.200s", text);
	else
		hf_error_set(run->error, run->failure, "node %s: %.200s", side_name(side), text);
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

/* A node that ended without having been told to. What it wrote to standard error last is the best explanation. */
static int explain_death(struct run *run, enum side side, const char *words)
{
	char text[LAST_LINE_BYTES];
	const char *line = last_line(run->task->env, run->nodes[side].log_path, text);

	return hf_error_set(run->error, -ESRCH, "node %s %s%s%.150s; run the demo again", side_name(side), words,
		line[0] != '\0' ? ": " : "", line);
}

/* What a node has said, also one that has ended since: its last words are the best. */
static void hear_messages(struct run *run, enum side side)
{
	json_t *message;

	while ((message = channel_receive(&run->nodes[side].channel)) != NULL) {
		take_message(run, message, side);
		json_decref(message);
	}
}

int demo_hear(struct run *run)
{
	char words[SIDES][WORDS_BYTES];
	bool ended[SIDES] = {false};

	for (enum side side = SIDE_A; side < SIDES; side++)
		if (run->nodes[side].started)
			ended[side] = process_ended(&run->nodes[side].process, words[side], WORDS_BYTES);
	for (enum side side = SIDE_A; side < SIDES; side++)
		if (run->nodes[side].started)
			hear_messages(run, side);
	for (enum side side = SIDE_A; side < SIDES; side++)
		if (ended[side] && process_killed(&run->nodes[side].process))
			return explain_death(
				run, side, words[side]); /* whatever the other says that it suffers from it */
	for (enum side side = SIDE_A; side < SIDES; side++) {
		const struct channel *channel = &run->nodes[side].channel;

		if (run->failure == 0 && ended[side])
			return explain_death(run, side, words[side]);
		if (run->failure == 0 && run->nodes[side].started && channel->ended && channel->used > 0)
			return hf_error_set(run->error, -EPROTO, "node %s sent a malformed message", side_name(side));
	}
	return run->failure;
}
