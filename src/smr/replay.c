/* A restart with state: the snapshot, then the WAL, in turns, because the program may take its time with a snapshot.
 * All files were checked when they were opened; a helper thread reads them again, many batches at a time. Meanwhile
 * this member is `restoring`: it grants nothing and does not lead. Then its promise is the highest number in the WAL,
 * what it had accepted is in its log, and it follows with the incarnation that it had.
 *
 * What a slot says of commit is not believed any more: slots of the next round may be in the WAL where those before
 * them are not yet. The batches say what is decided. */
#include "smr/durable.h"
#include "smr/steps.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "base/log.h"

#define COMMIT_AT    SMR_SLOT_CHECK /* of a slot: its check, and the commit that it covers */
#define COMMIT_BYTES (SMR_SLOT_HEADER - COMMIT_AT)
#define NOTHING      2 /* was read */

struct smr_replay {
	struct smr_store_reader reader;
	bool snapshot; /* is being read; then the WAL */
	uint64_t number, end;
	/* what a helper thread reads */
	struct hf_work work;
	bool reading, read; /* read: `result` is not used yet */
	int result;
	struct smr_store_piece piece;
	struct smr_wal_batch batch;
	struct hf_error error;
};

int smr_replay_begin(struct hf_smr *smr, struct hf_error *error)
{
	const struct smr_store *store;
	struct smr_replay *replay;
	int rc;

	if (smr->durable == NULL || !smr->durable->store.has_state)
		return 0;
	store = &smr->durable->store;
	replay = calloc(1, sizeof(*replay));
	if (replay == NULL)
		return hf_error_set(error, -ENOMEM, "smr %s: no memory", smr->name);
	smr->replay = replay;
	replay->snapshot = store->base != 0;
	if (replay->snapshot && smr->app.restore_open == NULL)
		return hf_error_set(error, -EINVAL, "smr %s: %s has a snapshot, and the application cannot restore one",
			smr->name, store->directory);
	rc = replay->snapshot ? smr_store_read_snapshot(&replay->reader, store, error)
			      : smr_store_read_wal(&replay->reader, store, store->current, error);
	if (rc == 0 && replay->snapshot)
		rc = smr_restore_from_disk(smr, error);
	smr->role = HF_SMR_RESTORING;
	return rc;
}

void smr_replay_drop(struct hf_smr *smr)
{
	if (smr->replay == NULL)
		return;
	smr_store_read_close(&smr->replay->reader);
	free(smr->replay);
	smr->replay = NULL;
}

static void fail(struct hf_smr *smr, const char *what)
{
	struct smr_replay *replay = smr->replay;

	if (what != NULL)
		(void)smr_store_damaged(replay->reader.path, replay->reader.offset, what, &replay->error);
	/* the text outlives the replay */
	smr->durable->append_error = replay->error;
	smr->failed = smr->durable->append_error.text;
}

/* ---- reading ---- */

static int next_piece(struct hf_work *work)
{
	struct smr_replay *replay = container_of(work, struct smr_replay, work);

	return smr_store_next_piece(&replay->reader, &replay->piece, &replay->error);
}

static int next_batch(struct hf_work *work)
{
	struct smr_replay *replay = container_of(work, struct smr_replay, work);

	return smr_store_next_batch(&replay->reader, &replay->batch, &replay->error);
}

static int open_wal(struct hf_work *work)
{
	struct smr_replay *replay = container_of(work, struct smr_replay, work);
	const struct smr_store *store = replay->reader.store;
	int rc;

	smr_store_read_close(&replay->reader);
	rc = smr_store_read_wal(&replay->reader, store, store->current, &replay->error);
	return rc != 0 ? rc : next_batch(work);
}

static void was_read(struct hf_work *work, int result)
{
	struct smr_replay *replay = container_of(work, struct smr_replay, work);

	replay->reading = false;
	replay->read = true;
	replay->result = result;
}

static void read_on(struct hf_smr *smr, int (*run)(struct hf_work *work))
{
	struct smr_replay *replay = smr->replay;

	replay->work = (struct hf_work){.run = run, .done = was_read};
	replay->reading = true;
	ensure(hf_work_submit(smr->durable->workers, &replay->work) == 0);
}

/* What the last work said, once. */
static int take_read(struct smr_replay *replay)
{
	if (!replay->read)
		return NOTHING;
	replay->read = false;
	return replay->result;
}

/* ---- the snapshot ---- */

static bool feed(struct hf_smr *smr)
{
	struct smr_replay *replay = smr->replay;
	bool any = false;

	while (smr_restore_has_room(smr)) {
		int rc = take_read(replay);

		if (rc == NOTHING && !smr_store_near_piece(&replay->reader, &replay->piece)) {
			read_on(smr, next_piece);
			return true;
		}
		if (rc < 0 || !smr_restore_push(smr, replay->piece.part, replay->piece.end, replay->piece.data,
				      replay->piece.bytes)) {
			fail(smr, rc < 0 ? NULL : "no memory to read it");
			return true;
		}
		any = true;
	}
	return any;
}

/* ---- the WAL ---- */

static void found(struct hf_smr *smr, const struct smr_wal_record *record)
{
	struct smr_members members;

	if (!smr_members_decode(record->data, record->bytes, &members)) {
		fail(smr, "it has a configuration that is none");
		return;
	}
	members.index = 1;
	smr->members = members;
	smr->commit = smr->applied = smr->tail = smr->oldest = smr->forgot = SMR_FIRST_INDEX;
}

static void place(struct hf_smr *smr, const struct smr_wal_record *record)
{
	struct smr_replay *replay = smr->replay;
	uint64_t index = record->bytes < SMR_SLOT_HEADER ? 0 : get_le64(record->data + 8);
	uint8_t *at = smr_slot_at(smr, index);
	struct smr_slot slot;

	if (index == 0 || record->bytes > smr->geometry.slot_bytes) {
		fail(smr, "it has a slot that is none");
		return;
	}
	if (index >= replay->end)
		replay->end = index + 1;
	if (index < smr->applied)
		return;
	if (index - smr->applied >= smr->geometry.slots) {
		fail(smr, "entries are missing");
		return;
	}
	memcpy(at, record->data, record->bytes);
	memset(at + COMMIT_AT, 0, COMMIT_BYTES);
	if (smr_own_slot(smr, index, &slot) != SMR_SLOT_VALID)
		fail(smr, "it has a slot that is none");
}

static void replay_batch(struct hf_smr *smr, const struct smr_wal_batch *batch)
{
	struct smr_wal_record record;
	uint32_t at = 0;

	smr_follow_commit(smr, batch->commit);
	while (smr_follow_apply(smr))
		continue;
	if (smr->applied < smr->commit)
		fail(smr, "entries are missing");
	if (batch->number > smr->replay->number)
		smr->replay->number = batch->number;
	while (smr->failed == NULL && smr_wal_next(batch, &at, &record)) {
		if (record.type == SMR_WAL_FOUNDED)
			found(smr, &record);
		else if (record.type == SMR_WAL_SLOT)
			place(smr, &record);
		else if (record.type == SMR_WAL_SEEN)
			smr_durable_replay_seen(smr, &record);
	}
}

static void finish(struct hf_smr *smr)
{
	const struct smr_members told = smr->told;
	struct smr_durable *durable = smr->durable;

	durable->number = durable->shown_number = smr->replay->number;
	durable->logged_end = smr->replay->end;
	smr->began_at = smr->replay->end > smr->applied ? smr->replay->end : smr->applied;
	durable->since = durable->store.wal_bytes;
	put_le64(smr->log + SMR_LOG_PROMISE, smr_slot_seal(durable->number));
	smr_replay_drop(smr);
	smr->role = smr->members.index == 0 ? HF_SMR_BLANK : HF_SMR_FOLLOWER;
	if (smr->members.index != 0)
		smr_durable_begin(smr, smr->applied, false);
	durable->shown = durable->at;
	smr_public_role(smr);
	smr_for_links (link, smr)
		link->tell = true;
	log_info("smr %s: member %u resumes at entry %llu from %s", smr->name, smr->id,
		(unsigned long long)smr->applied, durable->store.directory);
	if (smr->members.index != 0 && !smr_members_votes(&smr->members, smr->id, smr->incarnation))
		log_info("smr %s: the log of member %u does not list it as a voter: it waits until it is added",
			smr->name, smr->id);
	if (smr->members.index != 0)
		smr_event(smr, HF_SMR_RESTORED);
	else if (smr->told.index != 0)
		smr_found_heard(smr, &told); /* it was told of a cluster while this was read */
}

bool smr_replay_turn(struct hf_smr *smr)
{
	struct smr_replay *replay = smr->replay;
	int rc;

	if (replay == NULL || smr->failed != NULL || replay->reading)
		return false;
	if (replay->snapshot && smr->restore != NULL)
		return feed(smr);
	if (replay->snapshot) {
		replay->snapshot = false;
		read_on(smr, open_wal);
		return true;
	}
	if (smr->app.busy != NULL && smr->app.busy(smr->context))
		return false;
	rc = take_read(replay);
	if (rc == NOTHING && !smr_store_near_batch(&replay->reader, &replay->batch))
		read_on(smr, next_batch);
	else if (rc < 0)
		fail(smr, NULL);
	else if (rc == 0)
		finish(smr);
	else
		replay_batch(smr, &replay->batch);
	return true;
}
