/* sender.h - sends one path to a receiver (message.h): reads files on a helper thread, WRITEs their chunks into the
 * receiver's slots, and sends a message for each. All calls are on the loop. */
#ifndef HOLDFAST_CLI_TRANSFER_SENDER_H
#define HOLDFAST_CLI_TRANSFER_SENDER_H

#include <holdfast/transfer.h>

#include "cli/transfer/source.h"

enum copy_phase {
	COPY_CONNECTING,
	COPY_BEGINNING, /* the receiver opens its side */
	COPY_MOVING,
	COPY_FINISHING, /* the receiver gives it its name */
	COPY_DONE,
	COPY_FAILED
};

struct copy_progress {
	enum copy_phase phase;
	uint32_t files;                     /* verified at the receiver */
	uint64_t read_bytes;                /* of files, also of chunks that the receiver has */
	uint64_t sent_bytes;                /* of chunks that are in place there */
	uint64_t kept_bytes;                /* that the receiver had already */
	unsigned in_flight;                 /* chunks that the engine carries */
	const struct copy_source_file *now; /* being read; NULL: none */
	const char *why;                    /* FAILED: in words */
};

struct copy_sender;

struct copy_sender_config {
	const struct copy_source *source; /* stays the caller's */
	const struct hf_addr *to;         /* control addresses of the receiver */
	unsigned to_count;
	uint64_t rate_bytes;         /* read a second, at most; 0: unlimited */
	uint64_t burst_bytes;        /* of these, read at once; 0: 4 chunks */
	uint64_t connect_timeout_ns; /* without an answer for so long it fails */
};

int copy_sender_open(struct hf_node *node, struct hf_transfer *transfer, const struct copy_sender_config *config,
	struct copy_sender **sender_out, struct hf_error *error);
/* Between turns of the loop, until the phase is DONE or FAILED. */
void copy_sender_pump(struct copy_sender *sender);
void copy_sender_look(const struct copy_sender *sender, struct copy_progress *progress_out);
void copy_sender_fail(struct copy_sender *sender, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The receiver, once it was found; else NULL. */
struct hf_peer *copy_sender_peer(const struct copy_sender *sender);

/* From hf_node_events. */
void copy_sender_peer_down(struct copy_sender *sender, const struct hf_peer *peer);
/* From hf_transfer_events. */
void copy_sender_segment(struct copy_sender *sender, struct hf_peer *peer);

/* FAILED: works and transfers are still under way; turn the loop and ask again. */
bool copy_sender_is_idle(const struct copy_sender *sender);
/* Only when idle. NULL is legal. */
void copy_sender_close(struct copy_sender *sender);

#endif
