/* sender_parts.h - the state of a sender, which sender.c, packing.c and reading.c share.
 *
 * sender.c has the conversation with the receiver; packing.c the packs, which are first; reading.c the files that the
 * receiver was told of, and the slots, which carry chunks and packs. */
#ifndef HOLDFAST_CLI_TRANSFER_SENDER_PARTS_H
#define HOLDFAST_CLI_TRANSFER_SENDER_PARTS_H

#include <holdfast/channel.h>
#include <holdfast/work.h>

#include "cli/digest.h"
#include "cli/transfer/message.h"
#include "cli/transfer/sender.h"

enum slot_state {
	SLOT_FREE,
	SLOT_READING, /* by the helper thread */
	SLOT_WRITING, /* by the engine */
	SLOT_WRITTEN, /* a pack; the receiver is told of the packs before it first */
	SLOT_TOLD,    /* the receiver writes it to its disk */
	SLOT_STATES
};

enum reading_state {
	READING_NONE,
	READING_ANNOUNCED, /* the receiver opens it */
	READING_READY,     /* its chunks are read and sent */
	READING_READ,      /* all are read, and it is hashed */
	READING_ENDED,     /* the receiver has the hash */
	READING_STATES
};

struct slot {
	struct copy_sender *sender;
	enum slot_state state;
	unsigned number;
	struct reading *file; /* NULL: a pack */
	uint64_t chunk;
	uint32_t bytes, crc32c;
	bool zeros; /* of a sparse file */
	struct {
		uint32_t number, files;
		uint64_t bytes;                       /* of their content */
		const struct copy_source_file *wrong; /* cannot be read, or has changed */
	} pack;
	struct hf_work work;
	struct hf_transfer_batch *batch;
};

/* A file that the receiver was told of. */
struct reading {
	enum reading_state state;
	uint32_t number;
	const struct copy_source_file *source;
	uint64_t chunks, next_chunk;
	uint64_t kept_bytes;
	uint8_t *have;
	unsigned slots; /* that work for it */
	/* The helper thread's. */
	struct hf_file *file;
	struct digest *digest;
	bool changed;
	uint64_t ctime_ns;
	char sha256[DIGEST_TEXT];
};

struct copy_sender {
	struct copy_sender_config config;
	struct hf_env *env;
	struct hf_loop *loop;
	struct hf_transfer *transfer;
	struct hf_channel *channel;
	struct hf_peer *peer;
	struct hf_workers *readers; /* one thread: chunks are hashed in their order */
	enum copy_phase phase;
	struct hf_error why;
	uint64_t begun_ns;
	uint8_t *memory;
	struct copy_ring ring;
	struct hf_segment *segment; /* NULL: the slots are not known to the engine yet */
	struct slot slots[COPY_SLOTS];
	struct reading files[COPY_FILES];
	struct {
		uint32_t begun, told;       /* packs */
		uint32_t read, sent, whole; /* files of them: in slots; the receiver was told; verified */
		unsigned slots;             /* that are not free */
		uint32_t next;              /* file to be read, the helper thread's */
		struct digest *digest;      /* the helper thread's */
	} packs;
	uint32_t next_file, verified, next_read; /* of the source */
	uint64_t read_bytes, sent_bytes, kept_bytes;
	double budget_bytes;
	uint64_t budget_ns;
	bool bursting; /* the budget was full and is being used up */
};

/* sender.c */
void sender_send(struct copy_sender *sender, const struct copy_message *message);

/* packing.c */
bool packing_is_over(const struct copy_sender *sender); /* all packs are at the receiver */
bool packing_next(struct copy_sender *sender);          /* a pack; false: none can be read now */
void packing_written(struct copy_sender *sender);
void packing_whole(struct copy_sender *sender, uint32_t files);

/* reading.c */
void slot_move(struct slot *slot, enum slot_state to);
void slot_write(struct slot *slot); /* a slot that was read, to the receiver */
struct slot *slot_free(struct copy_sender *sender);
bool reading_may(struct copy_sender *sender, uint32_t bytes); /* within the rate */
void reading_announce(struct copy_sender *sender);            /* as many files as there is room for */
void reading_have(struct copy_sender *sender, const struct copy_have *have);
void reading_ready(struct copy_sender *sender, uint32_t number);
void reading_taken(struct copy_sender *sender, uint32_t slot);
void reading_verified(struct copy_sender *sender, uint32_t number);
bool reading_next(struct copy_sender *sender); /* a chunk; false: none can be read now */
void reading_close(struct reading *file);

#endif
