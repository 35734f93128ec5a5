/* session.h - a receiver's copy with one peer: state that receiver.c moves and intake.c works on.
 *
 *   NEW -> WAITING (for the end of another session with the name) -> OPENING -> LIVE -> FINISHING -> CLOSING -> NEW
 *   any but CLOSING -> DRAINING (for the helper threads) -> CLOSING; a NEW session whose peer is gone is freed */
#ifndef HOLDFAST_CLI_TRANSFER_SESSION_H
#define HOLDFAST_CLI_TRANSFER_SESSION_H

#include <holdfast/channel.h>
#include <holdfast/work.h>

#include "base/list.h"
#include "cli/digest.h"
#include "cli/transfer/receiver.h"
#include "cli/transfer/store.h"

enum session_state {
	SESSION_NEW,       /* waiting for BEGIN */
	SESSION_WAITING,   /* for the end of a session with the same name */
	SESSION_OPENING,   /* for the store */
	SESSION_LIVE,      /* for files and chunks */
	SESSION_FINISHING, /* for the store to give the copy its name */
	SESSION_DRAINING,  /* failed: for works that are under way */
	SESSION_CLOSING,   /* for the store to be closed */
	SESSION_STATES
};

struct session;

struct session_slot {
	struct hf_work work;
	struct session *session;
	struct session_file *file; /* NULL: the sender's, or a pack's */
	struct copy_chunk chunk;
	struct copy_pack_sent pack; /* bytes 0: none */
	uint32_t files;             /* that were in it; and of these */
	uint64_t bytes;
	struct hf_error error;
};

/* FREE -> OPENING -> READY -> READ -> WHOLE; any -> FREE. */
enum session_file_state {
	SESSION_FILE_FREE,
	SESSION_FILE_OPENING,
	SESSION_FILE_READY, /* for chunks */
	SESSION_FILE_READ,  /* the sender has read all of it, and its hash is here */
	SESSION_FILE_WHOLE, /* hashed and equal; a commit is to say so */
	SESSION_FILE_STATES
};

struct session_file {
	enum session_file_state state;
	bool told;       /* in the commit under way, which says that it is whole */
	bool dirty;      /* written since the last commit began */
	bool hashing;    /* hash_work is under way */
	bool kept;       /* some of it is of an earlier copy */
	uint32_t number; /* the sender's */
	struct session *session;
	struct copy_stored *stored;
	struct hf_file *file;
	uint64_t hash_next, hash_end; /* chunks */
	uint32_t writing;             /* slots */
	struct digest *digest;
	char sha256[DIGEST_TEXT], theirs[DIGEST_TEXT];
	struct hf_work open_work, hash_work;
	bool intact, fresh;    /* fresh: the journal had no record of it */
	struct hf_error error; /* of its works */
};

struct session_records {
	uint8_t *at;
	size_t bytes, room;
};

struct session {
	struct list link;
	struct copy_receiver *receiver;
	struct hf_peer *peer; /* NULL: gone */
	enum session_state state;
	struct copy_begin begin;
	struct copy_receipt receipt;
	struct copy_store store;
	uint8_t *ring;
	struct session_slot slots[COPY_SLOTS];
	struct session_file files[COPY_FILES];
	uint32_t next_file, finish_files; /* next_file: the disk thread's, while packs are */
	unsigned packs;                   /* being written */
	bool files_begun;                 /* no pack follows */
	uint32_t packed, packed_told;     /* files of packs: written; in the commit under way */
	bool finish;
	unsigned works; /* under way */
	struct hf_work store_work;
	struct hf_error error; /* of store_work */
	/* The commit under way, and what the next one has. */
	struct hf_work commit_work;
	struct hf_error commit_error;
	bool committing, commit_urgent, commit_broken;
	uint64_t commit_due_ns;
	struct session_records records, committed;
	struct copy_have have; /* the last record, which may still grow; begin == end: none */
	struct session_file *commit_files[COPY_FILES];
	unsigned commit_count;
	uint8_t *hash_memory; /* of the hashing thread */
	uint8_t *pack_memory; /* of the disk thread: a pack, and a file that is read back */
	struct digest *pack_digest;
};

struct copy_receiver {
	struct hf_env *env;
	struct hf_loop *loop;
	struct hf_node *node;
	struct hf_transfer *transfer;
	const char *directory;
	const struct copy_receiver_events *events;
	void *context;
	struct hf_channel *channel;
	struct hf_workers *disk, *sync; /* a thread each: `sync` hashes and commits */
	struct hf_poller poller;
	struct hf_timer timer;
	struct list sessions;
	unsigned count;
	unsigned rings; /* being unregistered */
	bool closing;
};

/* receiver.c */
void session_move(struct session *session, enum session_state to);
void session_send(struct session *session, const struct copy_message *message);
void session_send_number(struct session *session, enum copy_kind kind, uint32_t number);
/* Ends it with these words, which the sender is told too. */
void session_fail(struct session *session, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Counts the work; -EAGAIN cannot be, as there are places for all. */
void session_work(struct session *session, struct hf_workers *workers, struct hf_work *work);
void session_work_done(struct session *session); /* first in each done() */

/* intake.c */
void intake_file(struct session *session, const struct copy_file *file);
void intake_chunk(struct session *session, const struct copy_chunk *chunk);
void intake_pack(struct session *session, const struct copy_pack_sent *pack);
void intake_hole(struct session *session, const struct copy_have *hole);
void intake_end(struct session *session, const struct copy_end *end);
void intake_commit(struct session *session, uint64_t now_ns); /* when it is due */
bool intake_is_journaled(const struct session *session);      /* or that is not possible any more */
bool intake_is_idle(const struct session *session);           /* no file is open, all is in the journal */
void intake_drop(struct session *session);                    /* once no work is under way */

#endif
