/* watch.h - samples of a sender, a few times a second: the bytes on each rail and transport. */
#ifndef HOLDFAST_CLI_TRANSFER_WATCH_H
#define HOLDFAST_CLI_TRANSFER_WATCH_H

#include <jansson.h>

#include "cli/transfer/node.h"
#include "cli/transfer/picture.h"
#include "cli/transfer/sender.h"

#define WATCH_EVERY_NS   100000000u
#define WATCH_LAST_BYTES 160u

struct copy_watch {
	const struct copy_node *node;
	const struct copy_sender *sender;
	const struct copy_source *source;
	struct series moved; /* in the place of rail 0: all rails; of rail 1: tcp */
	uint64_t begun_ns, looked_ns, every_ns;
	struct hf_transfer_counters counters;
	struct copy_progress progress;
	struct copy_way ways[COPY_WAYS];
	uint32_t carriers;           /* ways that carried something lately, a bit each */
	unsigned switches;           /* of tasks from transport to transport */
	char last[WATCH_LAST_BYTES]; /* what the engine said last */
	bool said;                   /* since the last look */
};

/* With `hears`, log lines of the engine go to `last` instead of standard error, where a picture stands. */
void copy_watch_open(struct copy_watch *watch, const struct copy_node *node, const struct copy_sender *sender,
	const struct copy_source *source, bool hears);
void copy_watch_close(struct copy_watch *watch);

bool copy_watch_due(const struct copy_watch *watch, uint64_t now_ns);
/* True: other ways carry than before. */
bool copy_watch_look(struct copy_watch *watch, uint64_t now_ns);
const char *copy_watch_carriers(const struct copy_watch *watch, char *text, size_t bytes); /* "soft r0, tcp" */
void copy_watch_fill(const struct copy_watch *watch, struct copy_picture *picture_out);
json_t *copy_watch_json(const struct copy_watch *watch);

#endif
