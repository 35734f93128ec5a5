/* What is accepted and promised, on its way to the WAL; see durable.h. */
#include "smr/durable.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "base/log.h"
#include "base/order.h"
#include "smr/steps.h"

#define WORKERS 2u /* a snapshot's last sync holds no batch up */

void smr_durable_failed(struct smr_durable *durable, const struct hf_error *error)
{
	if (durable->smr->failed == NULL)
		durable->smr->failed = error->text;
}

/* ---- what is published ---- */

static void show(struct smr_durable *durable, uint64_t number, uint64_t at)
{
	if (number != durable->shown_number) {
		smr_public_store(durable->smr, SMR_PUBLIC_DURABLE, 0);
		durable->shown = 0;
		durable->shown_number = number;
		smr_public_store(durable->smr, SMR_PUBLIC_DURABLE_ROUND, number);
	}
	if (at > durable->shown) {
		durable->shown = at;
		smr_public_store(durable->smr, SMR_PUBLIC_DURABLE, at);
	}
}

/* ---- gathering a batch ---- */

static void see_number(struct smr_durable *durable)
{
	struct hf_smr *smr = durable->smr;
	uint64_t number;

	if (smr_grant_promise(smr, &number) && number > durable->number) {
		durable->number = number;
		durable->at = durable->sure; /* what was not decided counts when it has this number (R-S24) */
	} else if (smr->restore == NULL) {
		/* told under the number that these slots have; the commit of a snapshot is not */
		durable->sure = smr->commit < durable->at ? smr->commit : durable->at;
	}
}

static bool put_slot(struct smr_durable *durable, uint64_t index, bool any)
{
	struct hf_smr *smr = durable->smr;
	struct smr_slot slot;
	uint32_t bytes = durable->head.bytes;

	if (bytes + smr_wal_room(smr->geometry.slot_bytes) > SMR_WAL_BATCH_MAX - SMR_WAL_BATCH_HEAD)
		return false;
	memcpy(smr->copy, smr_slot_at(smr, index), smr->geometry.slot_bytes);
	if (smr_slot_judge(&smr->geometry, smr->copy, index, &slot) != SMR_SLOT_VALID)
		return false;
	if (!any && (index >= smr->commit || smr->restore != NULL) && smr_slot_number(&slot) != durable->number)
		return false;
	durable->head.bytes =
		smr_wal_put(durable->batch + SMR_WAL_BATCH_HEAD, bytes, SMR_WAL_SLOT, smr->copy, smr_slot_bytes(&slot));
	if (index >= durable->logged_end)
		durable->logged_end = index + 1;
	return true;
}

static void put_founded(struct smr_durable *durable)
{
	uint8_t bytes[SMR_MEMBERS_BYTES];

	if (!durable->founded)
		return;
	durable->head.bytes = smr_wal_put(durable->batch + SMR_WAL_BATCH_HEAD, durable->head.bytes, SMR_WAL_FOUNDED,
		bytes, smr_members_encode(&durable->smr->members, bytes));
	durable->founded = false;
}

/* False: there is nothing new. */
static bool gather(struct smr_durable *durable)
{
	uint64_t commit = durable->sure;
	uint32_t seen;

	if (durable->carry < durable->carry_end && commit > durable->carry)
		commit = durable->carry;
	durable->head = (struct smr_wal_batch){.number = durable->number,
		.commit = durable->founded ? 0 : commit,
		.sequence = durable->store.sequence + 1};
	durable->head.bytes = seen = smr_durable_put_seen(durable, 0);
	put_founded(durable);
	while (durable->carry < durable->carry_end && put_slot(durable, durable->carry, true))
		durable->carry++;
	while (put_slot(durable, durable->at, false))
		durable->at++;
	durable->batch_at = durable->at;
	durable->batch_carry = durable->carry;
	durable->batch_promises =
		durable->rotate || durable->head.bytes > seen || durable->number != durable->shown_number;
	return durable->batch_promises || seen > 0 || durable->at != durable->shown;
}

/* ---- writing it ---- */

static int append(struct hf_work *work)
{
	struct smr_durable *durable = container_of(work, struct smr_durable, append);
	struct smr_store *store = &durable->store;

	/* each is durable before the next begins */
	if (durable->rotating == 2)
		return smr_store_rotate(store, &durable->append_error);
	if (durable->rotating == 1)
		return smr_store_rotate_name(store, &durable->append_error);
	if (durable->marking)
		return smr_store_mark(store, &durable->append_error);
	return smr_store_append(
		store, durable->batch, SMR_WAL_BATCH_HEAD + durable->head.bytes, &durable->append_error);
}

static void appended(struct hf_work *work, int result);

static void submit(struct smr_durable *durable)
{
	durable->append = (struct hf_work){.run = append, .done = appended};
	ensure(hf_work_submit(durable->workers, &durable->append) == 0);
	durable->appending = true;
}

static void appended(struct hf_work *work, int result)
{
	struct smr_durable *durable = container_of(work, struct smr_durable, append);

	durable->appending = false;
	if (durable->smr->stopping)
		return;
	if (result != 0) {
		smr_durable_failed(durable, &durable->append_error);
		return;
	}
	if (durable->rotating > 0) {
		durable->rotating--;
		submit(durable);
		return;
	}
	durable->marking = !durable->marking;
	if (durable->marking) {
		submit(durable);
		return;
	}
	durable->rotated = durable->rotated || !durable->rotate;
	durable->since += SMR_WAL_BATCH_HEAD + durable->head.bytes;
	durable->carried = durable->batch_carry;
	if (durable->batch_promises)
		durable->store.promised = durable->head.sequence;
	show(durable, durable->head.number, durable->batch_at);
}

static bool log_batch(struct smr_durable *durable)
{
	if (durable->appending || (durable->at == 0 && !durable->rotate))
		return false;
	see_number(durable);
	if (!gather(durable))
		return false;
	smr_wal_seal(durable->smr->geometry.seed, &durable->head, durable->batch);
	durable->rotating = durable->rotate ? 2 : 0;
	durable->rotate = false;
	submit(durable);
	return true;
}

bool smr_durable_turn(struct hf_smr *smr)
{
	bool busy;

	if (smr->durable == NULL || smr->replay != NULL || smr->failed != NULL)
		return false;
	busy = log_batch(smr->durable);
	busy |= smr_durable_save_turn(smr);
	return smr_durable_look(smr) || busy;
}

/* ---- opening ---- */

void smr_durable_begin(struct hf_smr *smr, uint64_t at, bool founded)
{
	struct smr_durable *durable = smr->durable;

	if (durable == NULL)
		return;
	durable->founded = founded;
	if (durable->at < at)
		durable->at = at;
	if (durable->sure < at)
		durable->sure = at;
}

int smr_durable_open(struct hf_smr *smr, struct hf_error *error)
{
	const struct smr_store_identity identity = smr_durable_identity(smr);
	struct smr_durable *durable;
	int rc;

	if (smr->config.directory == NULL)
		return 0;
	durable = calloc(1, sizeof(*durable));
	if (durable == NULL)
		return hf_error_set(error, -ENOMEM, "smr %s: no memory", smr->name);
	smr->durable = durable;
	durable->smr = smr;
	durable->batch = malloc(SMR_WAL_BATCH_MAX);
	if (durable->batch == NULL)
		return hf_error_set(error, -ENOMEM, "smr %s: no memory", smr->name);
	rc = smr_store_open(&durable->store, hf_loop_env(smr->loop), smr->config.directory, &identity, error);
	if (rc != 0 && durable->store.damaged) {
		log_error("smr %s: %s; member %u has no vote until it has copied everything from the others, once they "
			  "have a leader",
			smr->name, error->text, smr->id);
		rc = 0;
	}
	if (rc == 0)
		rc = hf_workers_open(smr->loop, "smr.wal", WORKERS, 2 * WORKERS, &durable->workers, error);
	if (rc != 0)
		return rc;
	if (!durable->store.damaged) /* else it returns as another one */
		smr->incarnation = durable->store.incarnation;
	return 0;
}

void smr_durable_close(struct hf_smr *smr)
{
	struct smr_durable *durable = smr->durable;

	if (durable == NULL)
		return;
	smr_durable_save_drop(smr);
	hf_workers_close(durable->workers);
	if (durable->proven != 0)
		smr_store_prove(&durable->store, durable->proven);
	smr_store_close(&durable->store);
	free(durable->piece_data);
	free(durable->batch);
	free(durable);
	smr->durable = NULL;
}
