/* A member that has lost what it had: its own files are damaged, or they are an older copy, which only the others can
 * know (R-D4, R-D5).
 *
 *   damaged --a majority without it has a leader--> its files move aside, and another incarnation begins, which copies
 *   an older copy --HELLO of a member that has seen more--> its mark says so, and it steps out; then it is damaged
 *
 * Each member notes the highest batch that it has seen others publish, on its disk every SEEN_NS, and counts none that
 * publishes less. A batch that has such notes only is no promise, so that notes do not cause notes. */
#include "smr/durable.h"
#include "smr/steps.h"

#include "base/ensure.h"
#include "base/log.h"

#define SEEN_NS 100000000u

struct smr_store_identity smr_durable_identity(const struct hf_smr *smr)
{
	return (struct smr_store_identity){.cluster = {smr->cluster[0], smr->cluster[1]},
		.incarnation = smr->incarnation,
		.slots = smr->geometry.slots,
		.slot_bytes = smr->geometry.slot_bytes,
		.seed = smr->geometry.seed,
		.sessions = smr->config.sessions,
		.id = smr->id,
		.alone = smr->known_count == 1 || smr->app.restore_open == NULL};
}

bool smr_durable_is_lost(const struct hf_smr *smr)
{
	return smr->durable != NULL &&
	       (smr->durable->store.damaged || (smr->durable->store.replaces && !smr->durable->store.has_state));
}

/* ---- moving aside ---- */

static int renew(struct hf_work *work)
{
	struct smr_durable *durable = container_of(work, struct smr_durable, append);
	struct smr_store_identity identity = smr_durable_identity(durable->smr);

	identity.replaces = true;
	return smr_store_renew(&durable->store, &identity, durable->renew_step, &durable->append_error);
}

static void submit(struct smr_durable *durable);

static void renewed(struct hf_work *work, int result)
{
	struct smr_durable *durable = container_of(work, struct smr_durable, append);

	durable->renewing = durable->appending = false;
	if (durable->smr->stopping)
		return;
	if (result != 0)
		durable->smr->failed = durable->append_error.text;
	else if (++durable->renew_step < SMR_STORE_RENEW_STEPS)
		submit(durable);
	else {
		durable->store.damaged = false;
		log_warn("smr %s: the files of member %u are in %s/damaged.*; it copies everything from the others",
			durable->smr->name, durable->smr->id, durable->store.directory);
	}
}

static void submit(struct smr_durable *durable)
{
	durable->append = (struct hf_work){.run = renew, .done = renewed};
	ensure(hf_work_submit(durable->workers, &durable->append) == 0);
	durable->renewing = durable->appending = true;
}

/* Without this member: it grants nothing. */
static bool others_have_leader(const struct hf_smr *smr)
{
	smr_for_links (link, smr)
		if (link->known && link->elect.alive && smr_link_role(link) == HF_SMR_LEADER)
			return true;
	return false;
}

bool smr_durable_renew_turn(struct hf_smr *smr)
{
	struct smr_durable *durable = smr->durable;

	if (durable->renewing || !others_have_leader(smr))
		return false;
	submit(durable);
	return true;
}

/* ---- what is seen of others ---- */

void smr_durable_note_seen(struct smr_link *link)
{
	struct smr_durable *durable = link->smr->durable;
	struct smr_durable_seen *seen = &durable->seen[link->id];
	uint64_t sequence = link->public[SMR_PUBLIC_SEQUENCE];

	if (seen->incarnation != link->incarnation)
		*seen = (struct smr_durable_seen){.incarnation = link->incarnation};
	if (sequence < seen->sequence) {
		if (!link->older)
			log_error(
				"smr %s: member %u has less on its disk than it has published: batch %llu of %llu; it "
				"has no vote",
				link->smr->name, link->id, (unsigned long long)sequence,
				(unsigned long long)seen->sequence);
		link->tell |= !link->older;
		link->older = true;
		smr_mark_lost(link);
		return;
	}
	durable->seen_more |= sequence > seen->sequence;
	seen->sequence = sequence;
	if (link->public[SMR_PUBLIC_DURABLE_ROUND] > seen -> number)
		seen->number = link->public[SMR_PUBLIC_DURABLE_ROUND];
}

uint32_t smr_durable_put_seen(struct smr_durable *durable, uint32_t at)
{
	uint64_t now_ns = durable->smr->now_ns;
	uint8_t bytes[SMR_WAL_SEEN_BYTES];

	if (!durable->rotate && (!durable->seen_more || now_ns - durable->seen_ns < SEEN_NS))
		return at;
	durable->seen_more = false;
	durable->seen_ns = now_ns;
	for (unsigned i = 0; i < HF_SMR_MEMBERS_MAX; i++) {
		const struct smr_durable_seen *seen = &durable->seen[i];

		if (seen->incarnation == 0)
			continue;
		put_le64(bytes, i);
		put_le64(bytes + 8, seen->incarnation);
		put_le64(bytes + 16, seen->sequence);
		put_le64(bytes + 24, seen->number);
		at = smr_wal_put(durable->batch + SMR_WAL_BATCH_HEAD, at, SMR_WAL_SEEN, bytes, sizeof(bytes));
	}
	return at;
}

void smr_durable_replay_seen(struct hf_smr *smr, const struct smr_wal_record *record)
{
	uint64_t id = record->bytes == SMR_WAL_SEEN_BYTES ? get_le64(record->data) : HF_SMR_MEMBERS_MAX;

	struct smr_durable_seen *seen = id < HF_SMR_MEMBERS_MAX ? &smr->durable->seen[id] : NULL;

	/* what was read of it since this process began is newer */
	if (seen == NULL || (smr->links[id].known && seen->incarnation == smr->links[id].incarnation &&
				    seen->sequence >= get_le64(record->data + 16)))
		return;
	*seen = (struct smr_durable_seen){.incarnation = get_le64(record->data + 8),
		.sequence = get_le64(record->data + 16),
		.number = get_le64(record->data + 24)};
}

void smr_durable_hear_seen(struct hf_smr *smr, uint64_t incarnation, uint64_t sequence)
{
	struct smr_durable *durable = smr->durable;

	if (durable == NULL || durable->store.damaged || incarnation != smr->incarnation ||
		sequence <= durable->store.promised || smr->failed != NULL)
		return;
	durable->proven = sequence;
	if (!durable->appending) /* else when its threads have ended */
		smr_store_prove(&durable->store, sequence);
	smr->failed =
		"its files are an older copy: other members have seen more of it than its disk has; start it again, "
		"and it copies everything from them";
}
