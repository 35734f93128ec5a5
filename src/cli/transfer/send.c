#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/draw.h"
#include "cli/process.h"
#include "cli/screen.h"
#include "cli/transfer/copy.h"

#define TURN_NS    5000000u
#define DRAIN_NS   30000000000ull /* more than a transfer may take to end after it was cancelled */
#define SAY_TURNS  20u
#define NAME_BYTES 256u

struct sending {
	struct copy_send_options *options;
	struct copy_node node;
	struct copy_source source;
	struct copy_sender *sender;
	struct copy_watch watch;
	struct screen screen;
};

static void on_peer_down(struct hf_peer *peer, void *context)
{
	struct sending *sending = context;

	if (sending->sender != NULL)
		copy_sender_peer_down(sending->sender, peer);
}

static void on_segment(struct hf_transfer *transfer, struct hf_peer *peer, void *context)
{
	struct sending *sending = context;

	(void)transfer;
	if (sending->sender != NULL)
		copy_sender_segment(sending->sender, peer);
}

static void show(struct sending *sending, uint64_t now_ns)
{
	struct copy_watch *watch = &sending->watch;
	bool moved;

	if (!copy_watch_due(watch, now_ns))
		return;
	moved = copy_watch_look(watch, now_ns);
	if (sending->options->look != NULL) {
		if (!sending->options->look(watch, sending->options->look_context))
			copy_sender_fail(sending->sender, "ended by the program that began it");
		return;
	}
	if (moved) {
		char text[NAME_BYTES];

		screen_event(&sending->screen, "%7.2f s  %s moved, now over %s",
			(double)(now_ns - watch->begun_ns) / 1e9, draw_bytes((double)watch->progress.sent_bytes),
			copy_watch_carriers(watch, text, sizeof(text)));
	}
	if (screen_due(&sending->screen, now_ns)) {
		struct copy_picture picture;

		copy_watch_fill(watch, &picture);
		picture.columns = process_terminal_columns();
		screen_draw(&sending->screen, copy_picture_draw, &picture, now_ns);
	}
}

static enum copy_phase phase_of(const struct sending *sending)
{
	struct copy_progress progress;

	copy_sender_look(sending->sender, &progress);
	return progress.phase;
}

static void move(struct sending *sending)
{
	uint64_t failed_ns = 0;
	enum copy_phase phase;

	while ((phase = phase_of(sending)) != COPY_DONE) {
		uint64_t now_ns;

		if (phase == COPY_FAILED && failed_ns == 0)
			failed_ns = hf_env_now_ns(sending->node.env);
		if (phase == COPY_FAILED && (copy_sender_is_idle(sending->sender) ||
						    hf_env_now_ns(sending->node.env) > failed_ns + DRAIN_NS))
			break;
		hf_loop_turn(sending->node.loop, TURN_NS);
		copy_sender_pump(sending->sender);
		now_ns = hf_env_now_ns(sending->node.env);
		show(sending, now_ns);
		if (process_interrupted())
			copy_sender_fail(sending->sender, "interrupted; the receiver keeps what arrived");
	}
	for (unsigned i = 0; i < SAY_TURNS && phase == COPY_FAILED; i++)
		hf_loop_turn(sending->node.loop, TURN_NS); /* so that the receiver hears why */
}

static int report(struct sending *sending)
{
	struct copy_watch *watch = &sending->watch;
	const struct copy_progress *progress = &watch->progress;
	uint64_t now_ns = hf_env_now_ns(sending->node.env);
	double seconds;
	int status;

	copy_watch_look(watch, now_ns);
	if (sending->options->look != NULL)
		(void)sending->options->look(watch, sending->options->look_context);
	screen_close(&sending->screen);
	status = progress->phase == COPY_DONE ? EXIT_DONE : EXIT_FOUND;
	if (status != EXIT_DONE && sending->options->look == NULL)
		cli_refuse("transfer", "%s: %s", sending->options->path, progress->why);
	for (uint32_t i = 0; i < sending->source.left_out_count; i++) {
		const struct copy_left_out *left = &sending->source.left_out[i];

		(void)cli_fail("transfer", "left out: %s: %s", left->path, left->why);
		status = EXIT_FOUND;
	}
	if (process_interrupted())
		status = EXIT_INTERRUPTED;
	if (sending->options->json) {
		int printed = cli_print_json(copy_watch_json(watch));

		return status != EXIT_DONE ? status : printed;
	}
	if (progress->phase != COPY_DONE)
		return status;
	seconds = (double)(now_ns - watch->begun_ns) / 1e9;
	screen_say(&sending->screen,
		"%s: %u files and directories, %s, verified by SHA-256; %s sent in %.1f s (%s/s), %s were there",
		sending->source.title, progress->files, draw_bytes((double)sending->source.bytes),
		draw_bytes((double)progress->sent_bytes), seconds, draw_bytes((double)progress->sent_bytes / seconds),
		draw_bytes((double)progress->kept_bytes));
	for (unsigned i = 0; i < COPY_WAYS; i++)
		if (watch->ways[i].name[0] != '\0')
			screen_say(&sending->screen, "  %-12s %9s", watch->ways[i].name,
				draw_bytes((double)watch->ways[i].bytes));
	if (sending->source.left_out_count > 0)
		screen_say(&sending->screen, "  left out: %u, each with its reason above; the copy is not whole",
			sending->source.left_out_count);
	return status != EXIT_DONE ? status : cli_flush("transfer");
}

static int begin(struct sending *sending, struct hf_error *error)
{
	struct copy_send_options *options = sending->options;
	const struct copy_sender_config config = {.source = &sending->source,
		.to = options->to,
		.to_count = options->to_count,
		.rate_bytes = options->rate_bytes,
		.burst_bytes = options->burst_bytes,
		.connect_timeout_ns = options->connect_timeout_ns};
	int failed = copy_source_open(&sending->source, options->path, options->copy_links, error);

	options->node.node_events.peer_down = on_peer_down;
	options->node.transfer_events.segment = on_segment;
	options->node.context = sending;
	if (!failed)
		failed = copy_node_open(&sending->node, &options->node, error);
	if (!failed)
		failed = copy_sender_open(sending->node.node, sending->node.transfer, &config, &sending->sender, error);
	return failed;
}

int copy_send(struct copy_send_options *options)
{
	static struct sending sending;
	struct hf_error error = {0};
	int failed, status = EXIT_WRONG_INPUT;

	sending = (struct sending){.options = options};
	failed = begin(&sending, &error);
	if (failed) {
		cli_refuse("transfer", "%s", error.text[0] != '\0' ? error.text : strerror(-failed));
	} else {
		screen_open(&sending.screen, options->json || options->look != NULL);
		copy_watch_open(&sending.watch, &sending.node, sending.sender, &sending.source,
			sending.screen.mode != SCREEN_LINES);
		if (options->look != NULL)
			sending.watch.every_ns = options->look_every_ns;
		move(&sending);
		status = report(&sending);
		copy_watch_close(&sending.watch);
	}
	copy_sender_close(sending.sender);
	if (sending.node.env != NULL)
		copy_node_close(&sending.node);
	copy_source_close(&sending.source);
	return status;
}
