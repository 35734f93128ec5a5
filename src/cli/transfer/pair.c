#include "cli/transfer/pair.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cli/last_line.h"

#define STEP_WAIT_MS 2u
#define GRACE_MS     3000u
#define WORDS_BYTES  96

/* ---- starting ---- */

static void draw_names(struct pair *pair)
{
	uint8_t random[4];

	hf_env_entropy(pair->env, random, sizeof(random));
	snprintf(pair->fabric_name, sizeof(pair->fabric_name), PAIR_FABRIC_PREFIX "%d-%02x%02x", process_own_pid(),
		random[0], random[1]);
	/* Somewhere in 127.64.0.0/10, out of the way of programs at 127.0.0.n; two at once hardly meet. */
	memset(&pair->base, 0, sizeof(pair->base));
	pair->base.in.sin_family = AF_INET;
	pair->base.in.sin_addr.s_addr = htonl(0x7f400000u | (uint32_t)(random[0] & 0x3f) << 16 |
					      (uint32_t)random[1] << 8 | (uint32_t)(random[2] & 0xf0) | 1u);
}

static int start_end(struct pair *pair, struct pair_end *end, const char *role, struct hf_error *error)
{
	static char *const argv[] = {"holdfast", "transfer-node", NULL};
	const struct pair_options *options = &pair->options;
	char text[HF_ADDR_TEXT];
	int failed;

	snprintf(end->log_path, sizeof(end->log_path), "%.480s/%s.log", options->scratch, role);
	failed = process_start(argv, end->log_path, &end->process);
	if (failed)
		return hf_error_set(error, failed, "a node cannot be started: %s", strerror(-failed));
	end->started = true;
	channel_init(&end->channel, end->process.channel_fd);
	failed = channel_send(&end->channel,
		json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:b}", "role", role, "device", options->device,
			"fabric", pair->fabric_name, "base", hf_addr_format(&pair->base, text), "source",
			options->source, "into", options->into, "scratch", options->scratch, "rate",
			(json_int_t)options->rate_bytes, "burst", (json_int_t)options->burst_bytes, "fallback_off",
			options->fallback_off));
	return failed ? hf_error_set(error, failed, "node %s does not listen: %s", role, strerror(-failed)) : 0;
}

int pair_start(struct pair *pair, struct hf_env *env, const struct pair_options *options, struct hf_error *error)
{
	memset(pair, 0, sizeof(*pair));
	pair->env = env;
	pair->options = *options;
	draw_names(pair);
	return start_end(pair, &pair->b, "b", error);
}

void pair_stop(struct pair *pair)
{
	struct pair_end *const ends[] = {&pair->a, &pair->b};

	for (unsigned i = 0; i < 2; i++) {
		if (ends[i]->started)
			channel_send(&ends[i]->channel, json_pack("{s:b}", "quit", 1));
		process_stop(&ends[i]->process, GRACE_MS);
	}
	hf_fabric_close(pair->fabric);
	pair->fabric = NULL;
	hf_fabric_remove(pair->fabric_name);
}

/* ---- hearing ---- */

static void take_rails(struct pair_status *status, json_t *rails)
{
	for (unsigned i = 0; i < PAIR_RAILS && i < json_array_size(rails); i++) {
		json_int_t bytes;
		const char *state;

		if (json_unpack(json_array_get(rails, i), "{s:s, s:I}", "state", &state, "bytes", &bytes) != 0)
			continue;
		status->rail_bytes[i] = (uint64_t)bytes;
		snprintf(status->rail_states[i], sizeof(status->rail_states[i]), "%s", state);
	}
}

static void take_status(struct pair_status *status, json_t *message)
{
	json_int_t at_ns, bytes, read_bytes, sent_bytes, kept_bytes, tcp_bytes;
	const char *phase, *why, *last;
	int files, verified, in_flight, switches;
	json_t *rails;

	if (json_unpack(message, "{s:I, s:s, s:s, s:s, s:i, s:i, s:i, s:i, s:I, s:I, s:I, s:I, s:I, s:o}", "at_ns",
		    &at_ns, "phase", &phase, "why", &why, "last", &last, "switches", &switches, "in_flight", &in_flight,
		    "files", &files, "files_verified", &verified, "bytes", &bytes, "read_bytes", &read_bytes,
		    "sent_bytes", &sent_bytes, "kept_bytes", &kept_bytes, "tcp_bytes", &tcp_bytes, "rails",
		    &rails) != 0)
		return;
	status->at_ns = (uint64_t)at_ns;
	status->bytes = (uint64_t)bytes;
	status->read_bytes = (uint64_t)read_bytes;
	status->sent_bytes = (uint64_t)sent_bytes;
	status->kept_bytes = (uint64_t)kept_bytes;
	status->tcp_bytes = (uint64_t)tcp_bytes;
	status->files = (unsigned)files;
	status->files_verified = (unsigned)verified;
	status->in_flight = (unsigned)in_flight;
	status->switches = (unsigned)switches;
	snprintf(status->phase, sizeof(status->phase), "%s", phase);
	snprintf(status->last, sizeof(status->last), "%s", last);
	snprintf(status->why, sizeof(status->why), "%s", why);
	status->done = strcmp(phase, "done") == 0;
	status->failed = strcmp(phase, "failed") == 0;
	take_rails(status, rails);
}

/* What it wrote to standard error last is the best explanation. */
static int explain_death(const struct pair *pair, const struct pair_end *end, const char *words, struct hf_error *error)
{
	char text[LAST_LINE_BYTES];
	const char *line = last_line(pair->env, end->log_path, text);

	return hf_error_set(error, -ESRCH, "node %s %s%s%.150s", end == &pair->a ? "a" : "b", words,
		line[0] != '\0' ? ": " : "", line);
}

static int hear(struct pair *pair, struct pair_end *end, struct hf_error *error)
{
	char words[WORDS_BYTES];
	json_t *message;
	bool ended;

	if (!end->started)
		return 0;
	ended = process_ended(&end->process, words, sizeof(words));
	while ((message = channel_receive(&end->channel)) != NULL) {
		if (json_object_get(message, "ready") != NULL)
			end->ready = true;
		else if (end == &pair->a)
			take_status(&pair->status, message);
		json_decref(message);
	}
	if (!ended || pair->status.done || pair->status.failed)
		return 0;
	return explain_death(pair, end, words, error);
}

int pair_step(struct pair *pair, struct hf_error *error)
{
	int fds[2] = {pair->b.process.channel_fd, pair->a.process.channel_fd};
	int failed;

	process_wait_readable(fds, pair->a.started ? 2 : 1, STEP_WAIT_MS);
	failed = hear(pair, &pair->b, error);
	if (!failed)
		failed = hear(pair, &pair->a, error);
	if (!failed && pair->b.ready && !pair->a.started)
		failed = start_end(pair, &pair->a, "a", error);
	if (!failed && pair->status.failed)
		failed = hf_error_set(error, -EIO, "the copy failed: %.200s", pair->status.why);
	return failed;
}

int pair_switch(struct pair *pair, unsigned rails, bool up, struct hf_error *error)
{
	int failed = 0;

	if (pair->fabric == NULL)
		failed = hf_fabric_open(pair->fabric_name, false, &pair->fabric, error);
	for (unsigned i = 0; !failed && i < PAIR_RAILS; i++) {
		char rail[HF_NAME_BYTES];

		if ((rails & 1u << i) == 0)
			continue;
		snprintf(rail, sizeof(rail), "r%u", i);
		failed = hf_fabric_set_link(pair->fabric, "a", rail, HF_LINK_BOTH, up, error);
		if (!failed)
			failed = hf_fabric_set_link(pair->fabric, "b", rail, HF_LINK_BOTH, up, error);
	}
	return failed;
}
