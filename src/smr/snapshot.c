/* Giving a snapshot to a member that lacks what no ring has any more, or that is new (Mu, section 5.4): over the
 * channel, in pieces that the taker asks for, so that nothing waits for a slow one.
 *
 *   taker                                   giver
 *     | ASK: u32 number ---------------------> opens the application's snapshot, keeps sessions as they are
 *     | <--- PIECE: u32 number, u32 piece, u8 part, data     part 0: the log; 1: sessions; 2: the application's
 *     |                                      an empty one of part 2: the application is not ready yet
 *     | MORE: u32 number, u32 pieces taken --> goes on, WINDOW pieces ahead; SMR_TAKEN_STOP: ends
 *     | <--- PIECE                             part 3: the tail
 *     | <--- END: u32 number, u32 pieces, u8 whole
 *
 * Part 0: u64 index (the next to be applied), u64 index of the configuration, members.
 * Part 3: slots (slot.h) that the giver has applied since it opened the snapshot, each without what it does not fill.
 * The giver keeps them, because no ring may have them any more when the taker has the rest. The tail ends when what
 * is left of it is little beside a ring. */
#include "smr/durable.h"
#include "smr/steps.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

#define WINDOW       8u
#define PIECE_BYTES  SMR_STORE_PIECE_BYTES /* the longest slot is one */
#define HEAD_BYTES   10u                   /* u8 kind, u32 number, u32 piece, u8 part */
#define TAIL_FULL    256u
#define TAIL_SLACK   8u /* a part of its room is for what is on its way */
#define PACED_FROM   (TAIL_FULL / 2)
#define PACE_NS      10000000000ull /* what is left of the room would last so long */
#define TAIL_ROUNDS  16u            /* after which it ends however much comes meanwhile */
#define ALIVE_NS     100000000ull   /* then an empty piece says that it goes on */
#define ABANDONED_NS 30000000000ull /* a taker that takes nothing for so long has gone elsewhere */

struct smr_snapshot {
	uint32_t number, sent, taken;
	uint64_t sent_ns, taken_ns; /* when they changed last */
	uint64_t index;             /* the next to be applied */
	unsigned part;
	uint8_t *sessions;
	size_t sessions_bytes, sessions_sent;
	void *application;
	bool over;
	/* the tail: [tail_sent, tail_bytes) is left, slots up to tail_end */
	uint8_t *tail;
	size_t tail_bytes, tail_sent, tail_room;
	uint64_t tail_end, tail_next; /* indexes: behind what is kept, behind what has left */
	unsigned rounds;
	bool last, broken; /* last: no more is kept; broken: some of it is missing */
	uint32_t waiting;  /* bytes of a piece in `piece` that the channel did not take yet */
	uint8_t piece[HEAD_BYTES + PIECE_BYTES];
};

void smr_snapshot_close(struct hf_smr *smr, struct smr_snapshot *snapshot)
{
	if (snapshot == NULL)
		return;
	if (snapshot->application != NULL)
		smr->app.snapshot_close(smr->context, snapshot->application);
	free(snapshot->sessions);
	free(snapshot->tail);
	free(snapshot);
}

void smr_snapshot_drop(struct smr_link *link)
{
	link->smr->giving_snapshots -= link->snapshot != NULL;
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

	put_le64(at, smr_applied_entries(smr));
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

/* ---- the tail ---- */

/* What was sent goes; then there is more room, up to the limit. */
static bool make_room(const struct hf_smr *smr, struct smr_snapshot *snapshot, uint32_t bytes)
{
	size_t left = snapshot->tail_bytes - snapshot->tail_sent, room = 2 * snapshot->tail_room + PIECE_BYTES;
	uint8_t *grown;

	if (snapshot->tail_sent >= left) {
		memcpy(snapshot->tail, snapshot->tail + snapshot->tail_sent, left);
		snapshot->tail_bytes = left;
		snapshot->tail_sent = 0;
	}
	if (snapshot->tail_bytes + bytes <= snapshot->tail_room)
		return true;
	if (room > smr->config.tail_bytes)
		room = (size_t)smr->config.tail_bytes;
	grown = snapshot->tail_bytes + bytes > room ? NULL : realloc(snapshot->tail, room);
	if (grown == NULL)
		return false;
	snapshot->tail = grown;
	snapshot->tail_room = room;
	return true;
}

static void keep(
	const struct hf_smr *smr, struct smr_snapshot *snapshot, const struct smr_slot *slot, const uint8_t *at)
{
	uint32_t bytes = smr_slot_bytes(slot);

	if (snapshot->tail_bytes + bytes > snapshot->tail_room && !make_room(smr, snapshot, bytes)) {
		snapshot->broken = true;
		return;
	}
	snapshot->broken |= slot->index != snapshot->tail_end; /* the giver has taken a snapshot itself */
	memcpy(snapshot->tail + snapshot->tail_bytes, at, bytes);
	snapshot->tail_bytes += bytes;
	snapshot->tail_end++;
}

void smr_snapshot_applies(struct hf_smr *smr, const struct smr_slot *slot, const uint8_t *at)
{
	smr_for_links (link, smr)
		if (link->snapshot != NULL && !link->snapshot->last && !link->snapshot->broken)
			keep(smr, link->snapshot, slot, at);
}

static unsigned fill_of(const struct hf_smr *smr)
{
	size_t most = (size_t)(smr->config.tail_bytes - smr->config.tail_bytes / TAIL_SLACK), left = 0;

	smr_for_links (link, smr)
		if (link->snapshot != NULL && link->snapshot->tail_bytes - link->snapshot->tail_sent > left)
			left = link->snapshot->tail_bytes - link->snapshot->tail_sent;
	return left == 0 ? 0 : left < most ? (unsigned)(left * TAIL_FULL / most) : TAIL_FULL - 1;
}

/* Writers get slower as a tail fills up, and never stand, so that a snapshot ends however long it takes. */
void smr_snapshot_pace(struct hf_smr *smr)
{
	unsigned fill = smr->tail_fill = fill_of(smr);
	int64_t most;

	smr_for_links (link, smr)
		if (smr_is_known(link) && (link->public[SMR_PUBLIC_FLAGS] >> 16 & 0xff) > fill)
			fill = (unsigned)(link->public[SMR_PUBLIC_FLAGS] >> 16 & 0xff);
	smr->paced = fill >= PACED_FROM;
	most = (int64_t)(smr->config.tail_bytes / TAIL_FULL * (TAIL_FULL - fill));
	smr->pace_credit += most * (int64_t)smr->config.pulse_ns;
	smr->pace_bytes += smr->pace_credit / (int64_t)PACE_NS;
	smr->pace_credit %= (int64_t)PACE_NS;
	if (!smr->paced || smr->pace_bytes > most)
		smr->pace_bytes = 0;
}

/* The snapshot begins with an entry of which some slots are applied: those are of the tail. False: the ring has them
 * no more. */
static bool keep_begun(struct hf_smr *smr, struct smr_snapshot *snapshot)
{
	struct smr_slot slot;

	snapshot->tail_end = snapshot->tail_next = snapshot->index;
	if (snapshot->index < smr->oldest)
		return false;
	while (snapshot->tail_end < smr->applied && !snapshot->broken) {
		memcpy(smr->copy, smr_slot_at(smr, snapshot->tail_end), smr->geometry.slot_bytes);
		if (smr_slot_judge(&smr->geometry, smr->copy, snapshot->tail_end, &slot) != SMR_SLOT_VALID)
			return false;
		keep(smr, snapshot, &slot, smr->copy);
	}
	return !snapshot->broken;
}

static uint32_t end(struct smr_snapshot *snapshot, bool whole)
{
	snapshot->over = true;
	snapshot->piece[HEAD_BYTES] = whole;
	return head(snapshot, SMR_SAY_END, 1);
}

/* It may end in the middle of an entry: the rest may not be decided before the taker follows. What is less than a piece
 * waits until the taker has those before. */
static uint32_t next_of_tail(struct hf_smr *smr, struct smr_snapshot *snapshot)
{
	bool caught_up = snapshot->sent == snapshot->taken;
	uint32_t bytes = 0;

	if (snapshot->broken)
		return end(snapshot, false);
	if (caught_up && !snapshot->last)
		snapshot->last = snapshot->tail_end - snapshot->tail_next <= smr->geometry.slots / 4 ||
				 snapshot->rounds++ == TAIL_ROUNDS;
	if (!caught_up && !snapshot->last && snapshot->tail_bytes - snapshot->tail_sent < PIECE_BYTES)
		return 0;
	while (snapshot->tail_sent < snapshot->tail_bytes) {
		const uint8_t *from = snapshot->tail + snapshot->tail_sent;
		uint32_t n = smr_slot_bytes(&(struct smr_slot){.bytes = get_le32(from + 16)});

		if (bytes + n > PIECE_BYTES)
			break;
		memcpy(snapshot->piece + HEAD_BYTES + bytes, from, n);
		bytes += n;
		snapshot->tail_sent += n;
		snapshot->tail_next++;
	}
	if (bytes == 0)
		return snapshot->last ? end(snapshot, true) : 0;
	return head(snapshot, SMR_SAY_PIECE, bytes);
}

/* ---- giving ---- */

static void begin(struct smr_link *link, uint32_t number)
{
	struct hf_smr *smr = link->smr;
	/* A member that is to lead may need the log of the one that asks. */
	bool ready = smr->role == HF_SMR_FOLLOWER || smr->role == HF_SMR_ACQUIRING || smr->role == HF_SMR_LEADER;

	smr_snapshot_drop(link);
	if (!ready || smr->app.snapshot_open == NULL || !smr_members_votes(&smr->members, smr->id, smr->incarnation))
		return;
	link->snapshot = smr_snapshot_open(smr, number);
	if (link->snapshot == NULL)
		return;
	smr->giving_snapshots++;
	link->snapshot->sent_ns = link->snapshot->taken_ns = smr->now_ns;
	if (!keep_begun(smr, link->snapshot)) {
		smr_snapshot_drop(link);
		return;
	}
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
	if (snapshot->part == 3)
		return next_of_tail(smr, snapshot);
	snapshot->part = 2;
	bytes = smr->app.snapshot_read(smr->context, snapshot->application, at, PIECE_BYTES);
	if (bytes == -EAGAIN)
		return 0;
	if (bytes > 0)
		return head(snapshot, SMR_SAY_PIECE, (uint32_t)bytes);
	if (bytes < 0 || snapshot->tail_end == 0) /* on the own disk the WAL follows */
		return end(snapshot, bytes == 0);
	snapshot->part = 3;
	return next_of_tail(smr, snapshot);
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

	if (snapshot->sent - snapshot->taken == WINDOW && smr->now_ns - snapshot->taken_ns > ABANDONED_NS) {
		log_warn("smr %s: member %u takes no more of its snapshot", smr->name, link->id);
		smr_snapshot_drop(link);
		return true;
	}
	while (snapshot->sent - snapshot->taken < WINDOW) {
		if (snapshot->waiting == 0 && !snapshot->over)
			snapshot->waiting = next_piece(smr, snapshot);
		if (snapshot->waiting == 0 && snapshot->part == 2 && smr->now_ns - snapshot->sent_ns > ALIVE_NS)
			snapshot->waiting = head(snapshot, SMR_SAY_PIECE, 0);
		if (snapshot->waiting == 0)
			return any;
		if (hf_channel_send(smr->channel, link->peer, snapshot->piece, snapshot->waiting) != 0)
			return any;
		snapshot->waiting = 0;
		snapshot->sent++;
		snapshot->sent_ns = smr->now_ns;
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

static void more(struct smr_link *link, uint32_t taken)
{
	struct smr_snapshot *snapshot = link->snapshot;

	if (taken == SMR_TAKEN_STOP) {
		smr_snapshot_drop(link);
	} else if (taken <= snapshot->sent) {
		snapshot->taken = taken;
		snapshot->taken_ns = link->smr->now_ns;
	}
}

void smr_snapshot_heard(struct smr_link *link, uint8_t kind, const uint8_t *data, size_t bytes)
{
	if (kind == SMR_SAY_ASK && bytes == 4)
		begin(link, get_le32(data));
	else if (kind == SMR_SAY_MORE && bytes == 8 && link->snapshot != NULL &&
		 get_le32(data) == link->snapshot->number)
		more(link, get_le32(data + 4));
}
