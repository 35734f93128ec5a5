/* durable.h - durable mode: accepts and promises of a member go to its WAL, and an entry is decided when a
 * majority has it there.
 *
 *   slots of the own log, promise --batch, a helper thread: written, synced--> `durable` of this promise's number is
 *   published, and READ by the leader
 *
 * Invariants:
 *   DUR-1  Below `at` every slot is in a batch: with `number`, or as it was decided; below `sure`, as it was decided.
 *   DUR-2  A published index is durable. It belongs to a number: 0 is published between two numbers (R-S24).
 *   DUR-3  No slot is reused before it is in a batch: the published applied index is at most `sure`.
 *   DUR-4  A file is removed once a snapshot covers it; the rest of it is in the next file (`carry`). */
#ifndef HOLDFAST_SMR_DURABLE_H
#define HOLDFAST_SMR_DURABLE_H

#include <holdfast/work.h>

#include "smr/smr.h"
#include "smr/store.h"

enum smr_saving { /* a snapshot, on its way to the disk */
	SMR_SAVING_NONE,
	SMR_SAVING_OWN,    /* of this member's state: pieces are read and written */
	SMR_SAVING_TAKEN,  /* another member's, as it is restored here */
	SMR_SAVING_WHOLE,  /* until what it does not cover is in the next file */
	SMR_SAVING_FINISH, /* it is being made durable, and what is older removed */
	SMR_SAVING_DROP,   /* until a write has ended */
};

struct smr_durable_seen {
	uint64_t incarnation, sequence, number;
};

struct smr_durable {
	struct hf_smr *smr;
	struct smr_store store;
	struct hf_workers *workers;
	/* the WAL, a batch at a time */
	struct hf_work append;
	bool appending, rotate, rotated; /* rotate: the next batch begins a file; rotated: that one is durable */
	unsigned rotating;               /* steps of that which are left */
	bool marking;                    /* the batch is on the disk, and the mark is being written */
	bool founded;                    /* the configuration that founds the cluster is to be written */
	uint8_t *batch;
	struct smr_wal_batch head;
	uint64_t number, at, sure;
	uint64_t batch_at, batch_carry;
	uint64_t carry, carry_end, carried; /* slots with whatever number; carried: durable */
	uint64_t logged_end;                /* behind the last slot in the WAL */
	uint64_t shown_number, shown;
	uint64_t since; /* bytes of batches since a snapshot was tried */
	struct hf_error append_error;
	/* what others have published (durable_seen.c) */
	struct smr_durable_seen seen[HF_SMR_MEMBERS_MAX];
	bool seen_more; /* than is in the WAL */
	uint64_t seen_ns;
	bool batch_promises; /* it has more than that */
	bool renewing;       /* damaged files move aside */
	unsigned renew_step;
	uint64_t proven; /* the batch that another member has seen, and the own disk lacks; 0: none */
	/* a snapshot, a piece at a time */
	enum smr_saving saving;
	bool taken; /* WHOLE, FINISH: another member's */
	struct smr_snapshot *own;
	struct hf_work save;
	bool writing;
	unsigned finishing; /* steps that are left */
	struct smr_store_piece piece;
	uint8_t *piece_data;
	uint64_t generation;
	struct hf_error save_error;
};

/* durable.c */
int smr_durable_open(struct hf_smr *smr, struct hf_error *error); /* gives the replica its incarnation */
void smr_durable_close(struct hf_smr *smr);
/* The log begins at that index: with the cluster, or behind a snapshot. */
void smr_durable_begin(struct hf_smr *smr, uint64_t at, bool founded);
bool smr_durable_turn(struct hf_smr *smr);
void smr_durable_failed(struct smr_durable *durable, const struct hf_error *error);

/* Slots from there on are needed here (DUR-3, DUR-4). */
static inline uint64_t smr_durable_floor(const struct hf_smr *smr)
{
	const struct smr_durable *durable = smr->durable;
	uint64_t floor = smr_applied_entries(smr);

	if (durable == NULL)
		return floor;
	if (durable->sure < floor)
		floor = durable->sure;
	return durable->carry < durable->carry_end && durable->carry < floor ? durable->carry : floor;
}

/* durable_look.c: what the others have. Without durable mode everything is. */
void smr_durable_seen(struct smr_link *link, const uint8_t *words);
void smr_durable_answered(struct smr_link *link);
bool smr_durable_look(struct hf_smr *smr);
bool smr_durable_promised(const struct smr_link *link);
uint64_t smr_durable_end(const struct smr_link *link);
uint64_t smr_durable_room_end(const struct smr_link *link); /* what is below goes over no slot that it needs (DUR-3) */
bool smr_durable_own_promised(const struct hf_smr *smr);
uint64_t smr_durable_own_end(const struct hf_smr *smr);

/* durable_seen.c: damage of a member's files, and what the others know of them */
bool smr_durable_is_lost(const struct hf_smr *smr); /* it has lost what it had, and not copied it yet (R-D5) */
bool smr_durable_renew_turn(struct hf_smr *smr);    /* its files move aside, once a majority without it leads */
void smr_durable_note_seen(struct smr_link *link);  /* its public words were read */
uint32_t smr_durable_put_seen(struct smr_durable *durable, uint32_t at); /* into the batch; the bytes behind it */
void smr_durable_replay_seen(struct hf_smr *smr, const struct smr_wal_record *record);
/* Another member has seen that sequence of this incarnation. */
void smr_durable_hear_seen(struct hf_smr *smr, uint64_t incarnation, uint64_t sequence);
struct smr_store_identity smr_durable_identity(const struct hf_smr *smr);

/* durable_save.c */
bool smr_durable_save_turn(struct hf_smr *smr);
void smr_durable_save_drop(struct hf_smr *smr);
bool smr_durable_is_saved(const struct hf_smr *smr);  /* after the last one */
bool smr_durable_save_room(const struct hf_smr *smr); /* false: not now */
/* A piece of another member's snapshot that was restored, part 0 first; `data` has its bytes and is kept. `index`: the
 * snapshot's. */
void smr_durable_save_taken(struct hf_smr *smr, const struct smr_store_piece *piece, uint8_t *data, uint64_t index);

#endif
