#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/draw.h"
#include "cli/process.h"
#include "cli/screen.h"
#include "cli/transfer/copy.h"
#include "cli/transfer/receiver.h"

#define TURN_NS     5000000u
#define SAY_TURNS   20u
#define NS_A_SECOND 1e9

struct receiving {
	const struct copy_receive_options *options;
	struct copy_node node;
	struct copy_receiver *receiver;
	struct screen screen;
	unsigned ended;
	bool failed;
};

static void on_begun(const struct copy_receipt *receipt, void *context)
{
	struct receiving *receiving = context;

	screen_say(&receiving->screen, "%s: receiving it from %s", receipt->name, receipt->from);
}

static json_t *receipt_json(const struct copy_receipt *receipt)
{
	return json_pack("{s:o, s:s, s:b, s:o, s:i, s:I, s:I, s:f}", "name",
		cli_json_text(receipt->name, strlen(receipt->name)), "from", receipt->from, "done",
		receipt->why.text[0] == '\0', "why", cli_json_text(receipt->why.text, strlen(receipt->why.text)),
		"files", (int)receipt->files, "bytes", (json_int_t)receipt->bytes, "new_bytes",
		(json_int_t)receipt->new_bytes, "seconds",
		receipt->begun_ns == 0 ? 0.0 : (double)(receipt->ended_ns - receipt->begun_ns) / NS_A_SECOND);
}

static void on_ended(const struct copy_receipt *receipt, void *context)
{
	struct receiving *receiving = context;
	double seconds = (double)(receipt->ended_ns - receipt->begun_ns) / NS_A_SECOND;

	receiving->ended++;
	receiving->failed = receipt->why.text[0] != '\0';
	if (receiving->options->json) {
		json_t *json = receipt_json(receipt);

		if (json != NULL)
			json_dumpf(json, stdout, JSON_COMPACT);
		putchar('\n');
		fflush(stdout);
		json_decref(json);
	} else if (receiving->failed) {
		screen_say(&receiving->screen, "%s: ended, %s of it arrived in this run: %s", receipt->name,
			draw_bytes((double)receipt->new_bytes), receipt->why.text);
	} else {
		screen_say(&receiving->screen,
			"%s: %u files and directories, %s, verified by SHA-256; %s of it new, in %.1f s", receipt->name,
			receipt->files, draw_bytes((double)receipt->bytes), draw_bytes((double)receipt->new_bytes),
			seconds);
	}
}

static const struct copy_receiver_events receiver_events = {.begun = on_begun, .ended = on_ended};

static void receive(struct receiving *receiving)
{
	const struct copy_receive_options *options = receiving->options;

	while (!process_interrupted() && (options->ended == NULL || !options->ended(options->context)) &&
		(!options->once || receiving->ended == 0))
		hf_loop_turn(receiving->node.loop, TURN_NS);
	for (unsigned i = 0; i < SAY_TURNS; i++)
		hf_loop_turn(receiving->node.loop, TURN_NS); /* so that the sender hears the end */
}

int copy_receive(struct copy_receive_options *options)
{
	static struct receiving receiving;
	struct hf_error error = {0};
	int failed, status = EXIT_WRONG_INPUT;

	receiving = (struct receiving){.options = options};
	options->node.context = &receiving;
	failed = copy_node_open(&receiving.node, &options->node, &error);
	if (!failed)
		failed = copy_receiver_open(receiving.node.node, receiving.node.transfer, options->directory,
			&receiver_events, &receiving, &receiving.receiver, &error);
	if (failed) {
		cli_refuse("transfer", "%s", error.text[0] != '\0' ? error.text : strerror(-failed));
	} else {
		screen_open(&receiving.screen, options->json);
		screen_say(&receiving.screen, "ready to receive into %s", options->directory);
		if (options->ready != NULL)
			options->ready(options->context);
		receive(&receiving);
		status =
			options->once ? (receiving.ended > 0 && !receiving.failed ? EXIT_DONE : EXIT_FOUND) : EXIT_DONE;
		if (process_interrupted() && options->once)
			status = EXIT_INTERRUPTED;
	}
	copy_receiver_close(receiving.receiver);
	if (receiving.node.env != NULL)
		copy_node_close(&receiving.node);
	return status;
}
