/* Snapshots on the disk: of the own state, once the WAL has grown, and another member's, as it is restored here. Then
 * the WAL begins anew behind it.
 *
 *   NONE --the WAL is long--> OWN --its last piece--> WHOLE --the next file has what it does not cover-->
 *   FINISH --all is durable, and older files are gone--> NONE
 *   NONE --a piece is restored--> TAKEN --the last one--> WHOLE ...
 *
 * Until FINISH has ended the files from before are whole: what is there at a restart is the newest finished snapshot
 * and all WALs since. */
#include "smr/durable.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "base/states.h"
#include "base/log.h"
#include "smr/steps.h"

#define LEADER_TIMES 4u /* a leader lets its WAL grow so much longer: others take snapshots meanwhile */

static const struct state saving_states[] = {
	[SMR_SAVING_NONE] = {"none", BIT(SMR_SAVING_OWN) | BIT(SMR_SAVING_TAKEN)},
	[SMR_SAVING_OWN] = {"own", BIT(SMR_SAVING_WHOLE) | BIT(SMR_SAVING_DROP) | BIT(SMR_SAVING_NONE)},
	[SMR_SAVING_TAKEN] = {"taken", BIT(SMR_SAVING_WHOLE) | BIT(SMR_SAVING_DROP) | BIT(SMR_SAVING_NONE)},
	[SMR_SAVING_WHOLE] = {"whole", BIT(SMR_SAVING_FINISH) | BIT(SMR_SAVING_DROP) | BIT(SMR_SAVING_NONE)},
	[SMR_SAVING_FINISH] = {"finish", BIT(SMR_SAVING_NONE)},
	[SMR_SAVING_DROP] = {"drop", BIT(SMR_SAVING_NONE)},
};

static void saving_move(struct smr_durable *durable, enum smr_saving saving)
{
	states_move("snapshot", saving_states, &durable->saving, saving, "of replica %u", durable->smr->id);
}

/* ---- on a helper thread ---- */

static int write_piece(struct hf_work *work)
{
	struct smr_durable *durable = container_of(work, struct smr_durable, save);
	const struct smr_store_piece *piece = &durable->piece;
	int rc = piece->part == 0 ? smr_store_snapshot_begin(&durable->store, &durable->save_error) : 0;

	return rc != 0 ? rc
		       : smr_store_snapshot_piece(&durable->store, piece->part, piece->end, piece->data, piece->bytes,
				 &durable->save_error);
}

static int finish_snapshot(struct hf_work *work)
{
	struct smr_durable *durable = container_of(work, struct smr_durable, save);
	struct smr_store *store = &durable->store;

	/* each is durable before the next begins */
	if (durable->finishing == 2)
		return smr_store_snapshot_sync(store, durable->generation, &durable->save_error);
	if (durable->finishing == 1)
		return smr_store_snapshot_name(store, durable->generation, &durable->save_error);
	return smr_store_trim(store, store->base, durable->generation, &durable->save_error);
}

/* ---- on the loop ---- */

static void close_own(struct smr_durable *durable)
{
	if (durable->own != NULL)
		smr_snapshot_close(durable->smr, durable->own);
	durable->own = NULL;
}

static void ended(struct hf_work *work, int result);

static void submit(struct smr_durable *durable, int (*run)(struct hf_work *work))
{
	durable->save = (struct hf_work){.run = run, .done = ended};
	ensure(hf_work_submit(durable->workers, &durable->save) == 0);
	durable->writing = true;
}

static void ended(struct hf_work *work, int result)
{
	struct smr_durable *durable = container_of(work, struct smr_durable, save);

	durable->writing = false;
	free(durable->piece_data);
	durable->piece_data = NULL;
	if (durable->smr->stopping)
		return;
	if (result != 0) {
		smr_durable_failed(durable, &durable->save_error);
		return;
	}
	if (durable->saving == SMR_SAVING_DROP) {
		saving_move(durable, SMR_SAVING_NONE);
	} else if (durable->finishing > 0) {
		durable->finishing--;
		submit(durable, finish_snapshot);
	} else if (durable->saving == SMR_SAVING_FINISH) {
		durable->store.base = durable->generation;
		saving_move(durable, SMR_SAVING_NONE);
	}
}

static void whole(struct smr_durable *durable)
{
	close_own(durable);
	durable->taken = durable->saving == SMR_SAVING_TAKEN;
	saving_move(durable, SMR_SAVING_WHOLE);
}

static void carry_from(struct smr_durable *durable, uint64_t index)
{
	ensure(index >= durable->smr->oldest); /* DUR-4: the ring has the slots for the next file */
	durable->rotate = true;
	durable->rotated = false;
	durable->carry = durable->carried = index;
	durable->carry_end = durable->logged_end;
}

/* ---- of the own state ---- */

static bool another_can_lead(const struct hf_smr *smr)
{
	smr_for_links (link, smr)
		if (link->stage == SMR_STAGE_CONFIRMED && smr_is_known(link) && link->elect.alive &&
			(link->public[SMR_PUBLIC_FLAGS] & SMR_FLAG_READY) != 0)
			return true;
	return false;
}

static void begin_own(struct smr_durable *durable)
{
	struct hf_smr *smr = durable->smr;
	uint64_t limit = smr->config.wal_bytes * (smr->role == HF_SMR_LEADER ? LEADER_TIMES : 1);

	if (durable->since < limit || durable->rotate || (smr->role != HF_SMR_FOLLOWER && smr->role != HF_SMR_LEADER))
		return;
	if (smr_applied_entries(smr) < smr->oldest) /* the first slots of an entry came with a snapshot's tail */
		return;
	if (smr->role == HF_SMR_LEADER && smr->config.snapshots_pause && durable->since < 2 * limit &&
		another_can_lead(smr)) {
		smr_public_yield(smr);
		return;
	}
	durable->since = 0; /* one that cannot be had is tried again later */
	durable->own = smr_snapshot_open(smr, 0);
	if (durable->own == NULL)
		return;
	saving_move(durable, SMR_SAVING_OWN);
	carry_from(durable, smr_snapshot_index(durable->own));
}

static bool step_own(struct smr_durable *durable)
{
	struct smr_store_piece piece;

	if (!smr_snapshot_next(durable->smr, durable->own, &piece))
		return false;
	durable->piece_data = malloc(piece.bytes + 1u);
	if (durable->piece_data == NULL || (piece.end && (piece.bytes != 1 || piece.data[0] != 1))) {
		smr_durable_save_drop(durable->smr); /* it could not be read to its end */
		return true;
	}
	memcpy(durable->piece_data, piece.data, piece.bytes);
	piece.data = durable->piece_data;
	durable->piece = piece;
	submit(durable, write_piece);
	if (piece.end)
		whole(durable);
	return true;
}

static bool step_whole(struct smr_durable *durable)
{
	struct hf_smr *smr = durable->smr;
	struct smr_slot slot;

	if (durable->taken && durable->carry < durable->carry_end &&
		smr_own_slot(smr, durable->carry, &slot) != SMR_SLOT_VALID)
		smr->failed = "an entry that it has accepted is torn in its log; start the replica again";
	if (!durable->rotated || durable->carried < durable->carry_end)
		return false;
	durable->generation = durable->store.current;
	saving_move(durable, SMR_SAVING_FINISH);
	durable->finishing = 2;
	submit(durable, finish_snapshot);
	return true;
}

bool smr_durable_save_turn(struct hf_smr *smr)
{
	struct smr_durable *durable = smr->durable;

	if (durable->writing)
		return false;
	switch (durable->saving) {
	case SMR_SAVING_NONE:
		if (smr->app.snapshot_open != NULL)
			begin_own(durable);
		return durable->saving != SMR_SAVING_NONE;
	case SMR_SAVING_OWN:
		return step_own(durable);
	case SMR_SAVING_WHOLE:
		return step_whole(durable);
	case SMR_SAVING_TAKEN:
	case SMR_SAVING_FINISH:
	case SMR_SAVING_DROP:
		break;
	}
	return false;
}

/* Files that were begun stay until a snapshot is finished. */
void smr_durable_save_drop(struct hf_smr *smr)
{
	struct smr_durable *durable = smr->durable;

	if (durable == NULL)
		return;
	close_own(durable);
	if (!durable->writing) {
		free(durable->piece_data);
		durable->piece_data = NULL;
	}
	if (durable->saving == SMR_SAVING_NONE || durable->saving == SMR_SAVING_FINISH ||
		durable->saving == SMR_SAVING_DROP)
		return;
	saving_move(durable, durable->writing ? SMR_SAVING_DROP : SMR_SAVING_NONE);
}

/* ---- as it is restored ---- */

bool smr_durable_is_saved(const struct hf_smr *smr)
{
	return smr->durable->saving == SMR_SAVING_NONE;
}

bool smr_durable_save_room(const struct hf_smr *smr)
{
	const struct smr_durable *durable = smr->durable;

	return durable == NULL ||
	       (!durable->writing && (durable->saving == SMR_SAVING_NONE || durable->saving == SMR_SAVING_TAKEN));
}

void smr_durable_save_taken(struct hf_smr *smr, const struct smr_store_piece *piece, uint8_t *data, uint64_t index)
{
	struct smr_durable *durable = smr->durable;

	if (durable->saving == SMR_SAVING_NONE)
		saving_move(durable, SMR_SAVING_TAKEN);
	durable->piece = *piece;
	durable->piece_data = data;
	submit(durable, write_piece);
	if (piece->end) {
		whole(durable);
		carry_from(durable, index);
	}
}
