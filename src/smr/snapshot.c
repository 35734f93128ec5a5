/* Giving a snapshot to a member that lacks what no ring has any more, or that is new (Mu, section 5.4): over the
 * channel, in pieces that the taker asks for, so that nothing waits for a slow one.
 *
 *   taker                                   giver
 *     | ASK: u32 number ---------------------> opens the application's snapshot, keeps sessions as they are
 *     | <--- PIECE: u32 number, u32 piece, u8 part, data     part 0: the log; 1: sessions; 2: the application's
 *     | MORE: u32 number, u32 pieces taken --> goes on, WINDOW pieces ahead
 *     | <--- END: u32 number, u32 pieces, u8 whole
 *
 * Part 0: u64 index (the next to be applied), u64 index of the configuration, members. */
#include "smr/durable.h"
#include "smr/steps.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

#define WINDOW      8u
#define PIECE_BYTES 32768u
#define HEAD_BYTES  10u /* u8 kind, u32 number, u32 piece, u8 part */

struct smr_snapshot {
	uint32_t number, sent, taken;
	uint64_t index; /* the next to be applied */
	unsigned part;
	uint8_t *sessions;
	size_t sessions_bytes, sessions_sent;
	void *application;
	bool over;
	uint32_t waiting; /* bytes of a piece in `piece` that the channel did not take yet */
	uint8_t piece[HEAD_BYTES + PIECE_BYTES];
};

void smr_snapshot_close(struct hf_smr *smr, struct smr_snapshot *snapshot)
{
	if (snapshot == NULL)
		return;
	if (snapshot->application != NULL)
		smr->app.snapshot_close(smr->context, snapshot->application);
	free(snapshot->sessions);
	free(snapshot);
}

void smr_snapshot_drop(struct smr_link *link)
{
	smr_snapshot_close(link->smr, link->snapshot);
	link->snapshot = NULL;
}

static uint32_t head(struct smr_snapshot *snapshot, uint8_t kind, uint32_t bytes)
{
	snapshot->piece[0] = kind;
	put_le32(snapshot->piece + 1, snapshot->number);
	put_le32(snapshot->piece + 5, snapshot->sent);
	snapshot->piece[9] = (uint8_t)snapshot->part;
	return HEAD_BYTES + bytes;
}

/* What the log is at this moment. */
static uint32_t put_log(struct hf_smr *smr, struct smr_snapshot *snapshot)
{
	uint8_t *at = snapshot->piece + HEAD_BYTES;

	put_le64(at, smr->entry_first != 0 ? smr->entry_first : smr->applied);
	put_le64(at + 8, smr->members.index);
	return head(snapshot, SMR_SAY_PIECE, 16 + smr_members_encode(&smr->members, at + 16));
}

struct smr_snapshot *smr_snapshot_open(struct hf_smr *smr, uint32_t number)
{
	struct smr_snapshot *snapshot = calloc(1, sizeof(*snapshot));

	if (snapshot == NULL)
		return NULL;
	snapshot->number = number;
	snapshot->sessions_bytes = smr_sessions_bytes(smr->sessions);
	snapshot->sessions = malloc(snapshot->sessions_bytes);
	if (snapshot->sessions == NULL || smr->app.snapshot_open(smr->context, &snapshot->application) != 0) {
		snapshot->application = NULL;
		smr_snapshot_close(smr, snapshot);
		return NULL;
	}
	smr_sessions_encode(smr->sessions, snapshot->sessions);
	snapshot->waiting = put_log(smr, snapshot);
	snapshot->index = get_le64(snapshot->piece + HEAD_BYTES);
	return snapshot;
}

uint64_t smr_snapshot_index(const struct smr_snapshot *snapshot)
{
	return snapshot->index;
}

static void begin(struct smr_link *link, uint32_t number)
{
	struct hf_smr *smr = link->smr;
	/* Who wants to lead may need the log of the one that asks. */
	bool ready = smr->role == HF_SMR_FOLLOWER || smr->role == HF_SMR_ACQUIRING || smr->role == HF_SMR_LEADER;

	smr_snapshot_drop(link);
	if (!ready || smr->app.snapshot_open == NULL || !smr_members_votes(&smr->members, smr->id, smr->incarnation))
		return;
	link->snapshot = smr_snapshot_open(smr, number);
	if (link->snapshot != NULL)
		log_info("smr %s: member %u gives a snapshot at entry %llu to member %u", smr->name, smr->id,
			(unsigned long long)link->snapshot->index, link->id);
}

/* Bytes of the next piece; 0: none now. */
static uint32_t next_piece(struct hf_smr *smr, struct smr_snapshot *snapshot)
{
	uint8_t *at = snapshot->piece + HEAD_BYTES;
	size_t left = snapshot->sessions_bytes - snapshot->sessions_sent;
	ssize_t bytes;

	if (snapshot->part == 0)
		snapshot->part = 1;
	if (snapshot->part == 1 && left > 0) {
		size_t n = left < PIECE_BYTES ? left : PIECE_BYTES;

		memcpy(at, snapshot->sessions + snapshot->sessions_sent, n);
		snapshot->sessions_sent += n;
		return head(snapshot, SMR_SAY_PIECE, (uint32_t)n);
	}
	snapshot->part = 2;
	bytes = smr->app.snapshot_read(smr->context, snapshot->application, at, PIECE_BYTES);
	if (bytes == -EAGAIN)
		return 0;
	if (bytes > 0)
		return head(snapshot, SMR_SAY_PIECE, (uint32_t)bytes);
	snapshot->over = true;
	at[0] = bytes == 0;
	return head(snapshot, SMR_SAY_END, 1);
}

bool smr_snapshot_next(struct hf_smr *smr, struct smr_snapshot *snapshot, struct smr_store_piece *piece_out)
{
	if (snapshot->waiting == 0 && !snapshot->over)
		snapshot->waiting = next_piece(smr, snapshot);
	if (snapshot->waiting == 0)
		return false;
	*piece_out = (struct smr_store_piece){.part = snapshot->piece[HEAD_BYTES - 1],
		.end = snapshot->over,
		.data = snapshot->piece + HEAD_BYTES,
		.bytes = snapshot->waiting - HEAD_BYTES};
	snapshot->waiting = 0;
	return true;
}

static bool give(struct smr_link *link)
{
	struct hf_smr *smr = link->smr;
	struct smr_snapshot *snapshot = link->snapshot;
	bool any = false;

	while (snapshot->sent - snapshot->taken < WINDOW) {
		if (snapshot->waiting == 0 && !snapshot->over)
			snapshot->waiting = next_piece(smr, snapshot);
		if (snapshot->waiting == 0)
			return any;
		if (hf_channel_send(smr->channel, link->peer, snapshot->piece, snapshot->waiting) != 0)
			return any;
		snapshot->waiting = 0;
		snapshot->sent++;
		any = true;
		if (snapshot->over) {
			smr_snapshot_drop(link);
			return true;
		}
	}
	return any;
}

bool smr_snapshot_turn(struct hf_smr *smr)
{
	bool any = false;

	smr_for_links (link, smr)
		any |= link->snapshot != NULL && give(link);
	return any;
}

void smr_snapshot_heard(struct smr_link *link, uint8_t kind, const uint8_t *data, size_t bytes)
{
	struct smr_snapshot *snapshot = link->snapshot;

	if (kind == SMR_SAY_ASK && bytes == 4)
		begin(link, get_le32(data));
	else if (kind == SMR_SAY_MORE && bytes == 8 && snapshot != NULL && get_le32(data) == snapshot->number &&
		 get_le32(data + 4) <= snapshot->sent)
		snapshot->taken = get_le32(data + 4);
}
