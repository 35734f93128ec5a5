/* Taking a snapshot (snapshot.c): by a member that is behind, and by a process that is to become one. It grants nothing
 * meanwhile (R-S22), and asks another member when one falls silent. What its own ring has accepted behind the snapshot
 * stays. The tail is applied from the pieces and reaches no ring, which others may hold: it makes the snapshot one at a
 * later index. */
#include "smr/durable.h"
#include "smr/steps.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

#define PATIENCE_NS 500000000ull
#define ALONE_TIMES 4u
#define PIECES      16u /* that came and were not taken */

#define FROM_DISK          (-2)
#define SESSIONS_BYTES_MAX (1u << 30)

struct piece {
	uint8_t *data;
	uint32_t bytes;
	uint8_t part;
	bool end;
};
struct smr_restore {
	uint32_t number;
	int from;          /* id of the giver; SMR_NOBODY: none was asked; FROM_DISK: the own disk */
	uint64_t since_ns; /* since when nothing came */
	uint64_t alone_ns; /* since when no member has a snapshot; 0: one has */
	bool lost;         /* the application's state was dropped, at least once */
	bool opened;       /* it is dropped, and a snapshot comes */
	bool closed;       /* it is whole again, and the tail follows */
	bool saving;       /* it is restored, and is to become durable */
	uint64_t index;
	struct smr_members members;
	uint8_t *sessions;
	size_t sessions_bytes;
	struct piece pieces[PIECES];
	uint32_t came, taken;
};

void smr_restore_begin(struct hf_smr *smr)
{
	smr_abort(smr, "it lacks entries");
	if (smr->stayed && smr->giving_snapshots > 0) /* to one that has nothing else */
		return;
	smr->lacks = smr->app.restore_open == NULL;
	if (smr->restore != NULL || smr->lacks)
		return;
	smr->restore = calloc(1, sizeof(*smr->restore));
	if (smr->restore == NULL)
		return; /* tried again: what it lacks is found again */
	smr_durable_save_drop(smr);
	smr_for_links (link, smr)
		smr_snapshot_drop(link); /* of a state that is about to go */
	smr_abort_calls(smr);            /* the snapshot has what they did, and no results */
	smr->restore->from = SMR_NOBODY;
	smr->role = HF_SMR_RESTORING;
	smr_public_role(smr);
	smr_event(smr, HF_SMR_BEHIND);
}

int smr_restore_from_disk(struct hf_smr *smr, struct hf_error *error)
{
	smr->restore = calloc(1, sizeof(*smr->restore));
	if (smr->restore == NULL)
		return hf_error_set(error, -ENOMEM, "smr %s: no memory", smr->name);
	smr->restore->from = FROM_DISK;
	return 0;
}

static void drop_pieces(struct smr_restore *restore)
{
	for (; restore->taken < restore->came; restore->taken++)
		free(restore->pieces[restore->taken % PIECES].data);
	free(restore->sessions);
	restore->sessions = NULL;
	restore->sessions_bytes = 0;
	restore->came = restore->taken = 0;
	restore->index = 0;
	restore->closed = false;
}

void smr_restore_drop(struct hf_smr *smr)
{
	if (smr->restore == NULL)
		return;
	smr_durable_save_drop(smr);
	if (smr->restore->opened)
		(void)smr->app.restore_close(smr->context, false);
	drop_pieces(smr->restore);
	free(smr->restore);
	smr->restore = NULL;
}

/* A snapshot of one that has applied no more than this one is of no use; what is applied may reach a slow disk, and be
 * told, later than what is decided; the member that was asked before has fallen silent; one without heartbeats may be a
 * leader that waits for this member to follow; one that leads has other tasks. */
static unsigned worth(const struct smr_link *link)
{
	const struct hf_smr *smr = link->smr;
	unsigned another = link->id != smr->restore->from, knows = smr_link_commit(link) > smr->applied;
	unsigned has = smr->applied < link->public[SMR_PUBLIC_APPLIED];

	if (!link->known || (link->public[SMR_PUBLIC_FLAGS] & SMR_FLAG_READY) == 0)
		return 0;
	return 1 + 16 * has + 8 * knows + 4 * another + 2 * link->elect.alive + (smr_link_role(link) != HF_SMR_LEADER);
}

static struct smr_link *choose(struct hf_smr *smr)
{
	struct smr_link *best = NULL;

	smr_for_links (link, smr)
		if (worth(link) > (best == NULL ? 0 : worth(best)))
			best = link;
	return best;
}

static void say_more(struct hf_smr *smr, uint32_t taken)
{
	struct smr_restore *restore = smr->restore;
	uint8_t message[9] = {SMR_SAY_MORE};

	put_le32(message + 1, restore->number);
	put_le32(message + 5, taken);
	if (restore->from >= 0 && smr->links[restore->from].peer != NULL)
		(void)hf_channel_send(smr->channel, smr->links[restore->from].peer, message, sizeof(message));
}

/* Nothing was restored, so the state is whole. The others may lack what this member has, and wait as well. */
static void follow_again(struct hf_smr *smr)
{
	log_info("smr %s: member %u follows again: no other member has a snapshot", smr->name, smr->id);
	smr_restore_drop(smr);
	smr->role = HF_SMR_FOLLOWER;
	smr->stayed = true;
	smr_public_role(smr);
	smr_event(smr, HF_SMR_RESTORED);
}

/* False: no other one is asked any more. */
static bool ask(struct hf_smr *smr)
{
	struct smr_restore *restore = smr->restore;
	struct smr_link *link = choose(smr);
	uint8_t message[5] = {SMR_SAY_ASK};

	drop_pieces(restore);
	restore->since_ns = smr->now_ns;
	if (link == NULL || link->id != restore->from)
		say_more(smr, SMR_TAKEN_STOP);
	if (link != NULL)
		restore->alone_ns = 0;
	else if (restore->alone_ns == 0)
		restore->alone_ns = smr->now_ns;
	if (link == NULL && !restore->lost && smr->members.index != 0 &&
		smr->now_ns - restore->alone_ns > ALONE_TIMES * PATIENCE_NS) {
		follow_again(smr);
		return false;
	}
	if (link == NULL)
		return true;
	restore->from = link->id;
	restore->number = ++smr->snapshots_asked; /* so that no piece of an earlier one fits */
	put_le32(message + 1, restore->number);
	(void)hf_channel_send(smr->channel, link->peer, message, sizeof(message));
	return true;
}

bool smr_restore_has_room(const struct hf_smr *smr)
{
	const struct smr_restore *restore = smr->restore;

	return restore != NULL && restore->came - restore->taken < PIECES &&
	       (restore->came == restore->taken || !restore->pieces[(restore->came - 1) % PIECES].end);
}

bool smr_restore_push(struct hf_smr *smr, uint8_t part, bool end, const void *data, size_t bytes)
{
	struct smr_restore *restore = smr->restore;
	struct piece *piece = &restore->pieces[restore->came % PIECES];

	*piece = (struct piece){.bytes = (uint32_t)bytes, .part = part, .end = end};
	piece->data = malloc(bytes + 1);
	if (piece->data == NULL)
		return false;
	memcpy(piece->data, data, bytes);
	restore->came++;
	restore->since_ns = smr->now_ns;
	return true;
}

void smr_restore_heard(struct smr_link *link, uint8_t kind, const uint8_t *data, size_t bytes)
{
	const struct smr_restore *restore = link->smr->restore;

	if (restore == NULL || restore->from != link->id || restore->saving || bytes < 9 ||
		get_le32(data) != restore->number || get_le32(data + 4) != restore->came ||
		!smr_restore_has_room(link->smr))
		return;
	/* without memory nothing more comes, and another one is asked */
	(void)smr_restore_push(link->smr, data[8], kind == SMR_SAY_END, data + 9, bytes - 9);
}

static bool take_log(struct smr_restore *restore, const struct piece *piece)
{
	if (piece->bytes < 17 || !smr_members_decode(piece->data + 16, piece->bytes - 16, &restore->members))
		return false;
	restore->index = get_le64(piece->data);
	restore->members.index = get_le64(piece->data + 8);
	return restore->index != 0 && restore->members.index != 0;
}

static bool take_sessions(struct smr_restore *restore, const struct piece *piece)
{
	uint8_t *grown;

	if (piece->bytes == 0 || restore->sessions_bytes + piece->bytes > SESSIONS_BYTES_MAX)
		return piece->bytes == 0;
	grown = realloc(restore->sessions, restore->sessions_bytes + piece->bytes);
	if (grown == NULL)
		return false;
	memcpy(grown + restore->sessions_bytes, piece->data, piece->bytes);
	restore->sessions = grown;
	restore->sessions_bytes += piece->bytes;
	return true;
}

static int open_state(struct hf_smr *smr)
{
	struct smr_restore *restore = smr->restore;
	int rc = restore->opened || restore->closed ? 0 : smr->app.restore_open(smr->context);

	restore->opened |= rc == 0 && !restore->closed;
	restore->lost |= restore->opened;
	return rc;
}

static int close_state(struct hf_smr *smr)
{
	struct smr_restore *restore = smr->restore;
	int rc;

	if (restore->closed)
		return 0;
	if (!smr_sessions_decode(smr->sessions, restore->sessions, restore->sessions_bytes))
		return -EINVAL;
	rc = smr->app.restore_close(smr->context, true);
	if (rc != 0)
		return rc;
	restore->opened = false;
	restore->closed = true;
	smr->applied = smr->oldest = restore->index;
	if (smr->commit < restore->index)
		smr->commit = restore->index;
	smr->begun.first = 0;
	smr_follow_reset(smr);
	if (restore->members.index > smr->members.index)
		smr_change_restored(smr, &restore->members);
	return 0;
}

static bool take_tail(struct hf_smr *smr, const struct piece *piece)
{
	for (uint32_t at = 0; at < piece->bytes;) {
		const uint8_t *slot = piece->data + at;
		uint32_t left = piece->bytes - at, bytes;

		if (left < SMR_SLOT_HEADER || get_le32(slot + 16) > left - SMR_SLOT_HEADER)
			return false;
		bytes = smr_slot_bytes(&(struct smr_slot){.bytes = get_le32(slot + 16)});
		if (bytes > left || !smr_follow_given(smr, slot))
			return false;
		at += bytes;
	}
	smr->oldest = smr->applied;
	return true;
}

static void finish(struct hf_smr *smr)
{
	const struct smr_restore *restore = smr->restore;

	if (restore->from == FROM_DISK) { /* the WAL follows */
		smr_restore_drop(smr);
		return;
	}
	smr->role = HF_SMR_FOLLOWER;
	smr_durable_begin(smr, smr->applied, false);
	log_info("smr %s: member %u has the snapshot at entry %llu, and the entries up to entry %llu", smr->name,
		smr->id, (unsigned long long)restore->index, (unsigned long long)smr->applied);
	smr_restore_drop(smr);
	smr_public_role(smr);
	smr_for_links (link, smr)
		link->tell = true;
	smr_event(smr, HF_SMR_RESTORED);
}

/* 0; -EAGAIN: the application is busy; -errno: this snapshot is of no use. */
static int take_piece(struct hf_smr *smr, const struct piece *piece)
{
	struct smr_restore *restore = smr->restore;
	int rc = 0;

	if ((restore->index == 0) != (piece->part == 0 && !piece->end) || piece->bytes > SMR_STORE_PIECE_BYTES)
		return -EINVAL;
	if (piece->part > 3 || (restore->closed && piece->part != 3) ||
		(piece->end && (piece->bytes != 1 || piece->data[0] != 1)))
		return -EINVAL;
	if (!piece->end && piece->part == 0)
		return take_log(restore, piece) ? 0 : -EINVAL;
	if (!piece->end && piece->part == 1)
		return take_sessions(restore, piece) ? 0 : -EINVAL;
	rc = open_state(smr);
	if (rc == 0 && !piece->end && piece->part == 2)
		return piece->bytes == 0 ? 0 : smr->app.restore_write(smr->context, piece->data, piece->bytes);
	if (rc == 0)
		rc = close_state(smr);
	if (rc == 0 && !piece->end && !take_tail(smr, piece))
		rc = -EINVAL;
	return rc;
}

/* The application has the piece. In durable mode it goes to the disk too, and the snapshot counts when all is there. */
static void took_piece(struct hf_smr *smr, const struct piece *piece)
{
	struct smr_restore *restore = smr->restore;
	const struct smr_store_piece saved = {
		.part = piece->part, .end = piece->end, .data = piece->data, .bytes = piece->bytes};

	restore->taken++;
	if (smr->durable == NULL || restore->from == FROM_DISK || piece->bytes == 0) {
		free(piece->data);
		if (piece->end)
			finish(smr);
		return;
	}
	restore->saving = piece->end;
	smr_durable_save_taken(smr, &saved, piece->data, smr->applied);
}

static void give_up(struct hf_smr *smr, const char *why)
{
	struct smr_restore *restore = smr->restore;

	if (restore->from >= 0)
		log_warn("smr %s: member %u abandons the snapshot of member %d: %s; it requests another one", smr->name,
			smr->id, restore->from, why);
	if (restore->opened)
		(void)smr->app.restore_close(smr->context, false);
	restore->opened = false;
	if (restore->from == FROM_DISK)
		smr->failed = "the application does not take the snapshot on its disk; see its log";
	else
		(void)ask(smr);
}

bool smr_restore_turn(struct hf_smr *smr)
{
	struct smr_restore *restore = smr->restore;
	bool any = false;

	if (restore == NULL || smr->failed != NULL)
		return false;
	if (smr->durable != NULL && smr->durable->store.damaged) /* nothing is asked for meanwhile */
		return smr_durable_renew_turn(smr);
	if (restore->saving) {
		if (smr_durable_is_saved(smr))
			finish(smr);
		return smr->restore == NULL;
	}
	if (restore->from == SMR_NOBODY && smr->now_ns - restore->since_ns > PATIENCE_NS / 50 && !ask(smr))
		return true;
	while (restore->taken < restore->came && smr_durable_save_room(smr)) {
		struct piece piece = restore->pieces[restore->taken % PIECES];
		int rc = take_piece(smr, &piece);

		if (rc == -EAGAIN)
			return any;
		any = true;
		if (rc != 0) {
			give_up(smr, "it is not whole");
			return true;
		}
		took_piece(smr, &piece);
		if (piece.end)
			return true;
		say_more(smr, restore->taken);
	}
	if (restore->from >= 0 && restore->taken == restore->came && smr->now_ns - restore->since_ns > PATIENCE_NS)
		give_up(smr, "nothing comes any more"); /* last: it may end the restore */
	return any;
}
