/* receiver.h - receives copies of files from senders and writes them below a directory (message.h, store.h).
 *
 * Each peer that begins a copy has a session with slots of its own, into which it WRITEs chunks. A helper thread
 * writes them to disk, another one hashes written data and syncs it before it enters the journal. All calls are on the
 * loop. */
#ifndef HOLDFAST_CLI_TRANSFER_RECEIVER_H
#define HOLDFAST_CLI_TRANSFER_RECEIVER_H

#include <holdfast/transfer.h>

#include "cli/transfer/message.h"

#define COPY_SESSIONS 8u

struct copy_receiver;

/* Of one copy. */
struct copy_receipt {
	char name[COPY_TITLE_BYTES], from[HF_NAME_BYTES];
	uint32_t files;              /* and directories, verified */
	uint64_t bytes;              /* of files that were begun */
	uint64_t new_bytes;          /* that arrived */
	uint64_t begun_ns, ended_ns; /* ended: 0, it goes on */
	struct hf_error why;         /* it ended before its end */
};

struct copy_receiver_events {
	void (*begun)(const struct copy_receipt *receipt, void *context);
	void (*ended)(const struct copy_receipt *receipt, void *context);
};

/* `directory` stays the caller's. */
int copy_receiver_open(struct hf_node *node, struct hf_transfer *transfer, const char *directory,
	const struct copy_receiver_events *events, void *context, struct copy_receiver **receiver_out,
	struct hf_error *error);
/* Turns the loop until no peer reaches the slots, and blocks until what was begun on disk has ended. NULL is legal.
 * Before the engine is closed. */
void copy_receiver_close(struct copy_receiver *receiver);

/* The i-th copy under way; NULL: there are not so many. */
const struct copy_receipt *copy_receiver_look(const struct copy_receiver *receiver, unsigned i);

#endif
