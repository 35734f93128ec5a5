#include "cli/transfer/watch.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "cli/cli.h"

#define NS_A_SECOND 1e9
#define STEP_NS     50000000u

static const char *const phases[] = {[COPY_CONNECTING] = "connecting",
	[COPY_BEGINNING] = "beginning",
	[COPY_MOVING] = "copying",
	[COPY_FINISHING] = "finishing",
	[COPY_DONE] = "done",
	[COPY_FAILED] = "failed"};

/* The engine speaks on the loop's thread; devices may speak on others, and are not heard here. */
static void hear(enum log_level level, const char *line, void *context)
{
	static const char *const heard[] = {
		"Transport failover", "Task failover", "No more transports", "Rail paused", "Rail recovered"};
	struct copy_watch *watch = context;

	(void)level;
	for (unsigned i = 0; i < sizeof(heard) / sizeof(heard[0]); i++) {
		const char *at = strstr(line, heard[i]);

		if (at == NULL)
			continue;
		snprintf(watch->last, sizeof(watch->last), "%s", at);
		watch->last[strcspn(watch->last, "\n")] = '\0';
		watch->said = true;
	}
}

void copy_watch_open(struct copy_watch *watch, const struct copy_node *node, const struct copy_sender *sender,
	const struct copy_source *source, bool hears)
{
	*watch = (struct copy_watch){.node = node, .sender = sender, .source = source, .every_ns = WATCH_EVERY_NS};
	series_init(&watch->moved, STEP_NS);
	watch->begun_ns = watch->looked_ns = hf_env_now_ns(node->env);
	for (unsigned i = 0; i < hf_node_rails(node->node); i++)
		snprintf(watch->ways[i].name, sizeof(watch->ways[i].name), "%.8s %s", hf_node_rail_kind(node->node, i),
			hf_node_rail_name(node->node, i));
	snprintf(watch->ways[COPY_TCP].name, sizeof(watch->ways[COPY_TCP].name), "tcp");
	if (hears)
		log_set_sink(hear, watch);
}

void copy_watch_close(struct copy_watch *watch)
{
	(void)watch;
	log_set_sink(NULL, NULL);
}

bool copy_watch_due(const struct copy_watch *watch, uint64_t now_ns)
{
	return now_ns >= watch->looked_ns + watch->every_ns;
}

static void look_at_way(struct copy_watch *watch, unsigned way, uint64_t bytes, uint64_t now_ns)
{
	struct copy_way *seen = &watch->ways[way];
	uint64_t moved = bytes - seen->bytes, took_ns = now_ns - watch->looked_ns;

	if (moved > 0)
		series_add(&watch->moved, watch->looked_ns - watch->begun_ns, now_ns - watch->begun_ns,
			way == COPY_TCP ? 1 : 0, moved);
	seen->bytes = bytes;
	seen->rate = (double)moved * NS_A_SECOND / (double)(took_ns > 0 ? took_ns : 1);
}

static void look_at_rails(struct copy_watch *watch)
{
	const struct hf_peer *peer = copy_sender_peer(watch->sender);

	for (unsigned i = 0; i < hf_node_rails(watch->node->node); i++) {
		enum hf_rail_cause cause = peer == NULL ? HF_RAIL_PEER : hf_peer_rail(peer, i);

		watch->ways[i].usable = cause == HF_RAIL_UP;
		watch->ways[i].state = hf_rail_cause_name(cause);
	}
	watch->ways[COPY_TCP].usable = peer != NULL;
	watch->ways[COPY_TCP].state = peer != NULL ? "up" : "peer";
}

bool copy_watch_look(struct copy_watch *watch, uint64_t now_ns)
{
	uint32_t before = watch->carriers;

	watch->said = false;
	hf_transfer_counters(watch->node->transfer, &watch->counters);
	copy_sender_look(watch->sender, &watch->progress);
	for (unsigned i = 0; i < HF_RAILS_MAX; i++)
		look_at_way(watch, i, watch->counters.rail_bytes[i], now_ns);
	look_at_way(watch, COPY_TCP, watch->counters.tcp_bytes, now_ns);
	look_at_rails(watch);
	watch->carriers = 0;
	for (unsigned i = 0; i < COPY_WAYS; i++)
		if (watch->ways[i].rate > 0)
			watch->carriers |= 1u << i;
	watch->switches = 0;
	for (unsigned from = 0; from < HF_TRANSPORTS; from++)
		for (unsigned to = 0; to < HF_TRANSPORTS; to++)
			watch->switches += (unsigned)watch->counters.failovers[from][to];
	watch->looked_ns = now_ns;
	return watch->carriers != before && watch->carriers != 0;
}

const char *copy_watch_carriers(const struct copy_watch *watch, char *text, size_t bytes)
{
	size_t used = 0;

	text[0] = '\0';
	for (unsigned i = 0; i < COPY_WAYS && used < bytes; i++)
		if (watch->carriers & 1u << i)
			used += (size_t)snprintf(
				text + used, bytes - used, "%s%s", used > 0 ? ", " : "", watch->ways[i].name);
	return text;
}

void copy_watch_fill(const struct copy_watch *watch, struct copy_picture *picture)
{
	*picture = (struct copy_picture){.doing = phases[watch->progress.phase],
		.now_ns = watch->looked_ns - watch->begun_ns,
		.bytes = watch->source->bytes,
		.done_bytes = watch->progress.read_bytes,
		.kept_bytes = watch->progress.kept_bytes,
		.files = watch->source->count,
		.done_files = watch->progress.files,
		.last = watch->last,
		.switches = watch->switches,
		.moved = &watch->moved};
	snprintf(picture->title, sizeof(picture->title), "%.40s", watch->source->title);
	memcpy(picture->ways, watch->ways, sizeof(picture->ways));
	for (unsigned i = 0; i < COPY_WAYS; i++)
		picture->rate += watch->ways[i].rate;
}

json_t *copy_watch_json(const struct copy_watch *watch)
{
	const struct copy_progress *progress = &watch->progress;
	json_t *rails = json_array(), *failovers = json_array();

	for (unsigned i = 0; i < hf_node_rails(watch->node->node); i++)
		json_array_append_new(
			rails, json_pack("{s:s, s:s, s:s, s:I}", "rail", hf_node_rail_name(watch->node->node, i),
				       "kind", hf_node_rail_kind(watch->node->node, i), "state", watch->ways[i].state,
				       "bytes", (json_int_t)watch->ways[i].bytes));
	for (unsigned from = 0; from < HF_TRANSPORTS; from++)
		for (unsigned to = 0; to < HF_TRANSPORTS; to++)
			if (watch->counters.failovers[from][to] > 0)
				json_array_append_new(
					failovers, json_pack("{s:s, s:s, s:I}", "from", hf_transport_name(from), "to",
							   hf_transport_name(to), "count",
							   (json_int_t)watch->counters.failovers[from][to]));
	return json_pack("{s:o, s:s, s:o, s:i, s:i, s:i, s:i, s:I, s:I, s:I, s:I, s:f, s:o, s:I, s:o}", "name",
		cli_json_text(watch->source->title, strlen(watch->source->title)), "phase", phases[progress->phase],
		"why", cli_json_text(progress->why, strlen(progress->why)), "in_flight", (int)progress->in_flight,
		"files", (int)watch->source->count, "files_verified", (int)progress->files, "left_out",
		(int)watch->source->left_out_count, "bytes", (json_int_t)watch->source->bytes, "read_bytes",
		(json_int_t)progress->read_bytes, "sent_bytes", (json_int_t)progress->sent_bytes, "kept_bytes",
		(json_int_t)progress->kept_bytes, "seconds", (double)(watch->looked_ns - watch->begun_ns) / NS_A_SECOND,
		"rails", rails, "tcp_bytes", (json_int_t)watch->ways[COPY_TCP].bytes, "failovers", failovers);
}
