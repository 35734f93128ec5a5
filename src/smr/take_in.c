/* Bringing a member's log to ours, at an acquisition or whenever it grants later (Mu, Listing 4). Its slots are read
 * before they are written: a value that is there already gets the accept word only, and none when it is decided, so
 * that a decided value is never torn (R-S7). What we have appended ourselves since is in no log, and is written
 * unread. In durable mode nothing is written over slots that its disk may lack (DUR-3): a member whose disk hangs stays
 * unconfirmed until it has room, so it holds nothing up. In memory it may be lapped, and takes a snapshot. */
#include "smr/durable.h"
#include "smr/steps.h"

#include "base/log.h"

#define WRS_KEPT 8u /* of a queue, for other things */

uint64_t smr_take_in_oldest(const struct hf_smr *smr)
{
	uint64_t ring = smr->tail > smr->geometry.slots ? smr->tail - smr->geometry.slots : 1;

	return ring > smr->oldest ? ring : smr->oldest;
}

void smr_take_in_begin(struct smr_link *link)
{
	uint64_t from = link->commit > smr_link_commit(link) ? link->commit : smr_link_commit(link);

	/* A later leader has decided more: what we have there counts for nothing (R-S5). */
	if (from > link->smr->tail) {
		smr_mark_abort(link->smr, "a member has entries that a later leader has decided");
		return;
	}
	link->acked = link->sent = from;
	link->fetched = link->fetched_end = 0;
	link->fetching = false;
	link->stage = SMR_STAGE_TAKING;
}

/* As many slots of [from, end) as the scratch memory holds. */
bool smr_take_in_fetch(struct smr_link *link, uint64_t from, uint64_t end)
{
	struct hf_smr *smr = link->smr;
	uint64_t lap = (from | (smr->geometry.slots - 1)) + 1;
	struct smr_post post = {.type = SMR_WR_FETCH, .local = link->scratch, .read = true};

	if (end > lap)
		end = lap;
	if (end > from + smr->chunk)
		end = from + smr->chunk;
	post.bytes = (uint32_t)(end - from) * smr->geometry.slot_bytes;
	post.at = (uint64_t)(smr_slot_at(smr, from) - smr->log);
	post.arg = link->fetches + 1;
	if (!smr_post(link, SMR_OUT, &post))
		return false;
	link->fetches++;
	link->fetching = true;
	link->fetched = from;
	link->fetched_end = end;
	return true;
}

static void skip(struct smr_link *link)
{
	if (link->acked == link->sent)
		link->acked++;
	link->sent++;
}

static bool write_word(struct smr_link *link)
{
	struct hf_smr *smr = link->smr;
	const uint8_t *own = smr_slot_at(smr, link->sent);
	const struct smr_post post = {.type = SMR_WR_SLOTS,
		.local = own,
		.bytes = 8,
		.at = (uint64_t)(own - smr->log),
		.arg = link->sent + 1};

	if (!smr_post(link, SMR_OUT, &post))
		return false;
	link->sent++;
	return true;
}

/* One slot that may hold something. False: no room in the queue. */
static bool compare(struct smr_link *link)
{
	struct hf_smr *smr = link->smr;
	const uint8_t *at = link->scratch + (link->sent - link->fetched) * smr->geometry.slot_bytes;
	struct smr_slot slot;

	if (smr_slot_judge(&smr->geometry, at, link->sent, &slot) != SMR_SLOT_VALID ||
		!smr_slot_same(at, smr_slot_at(smr, link->sent)))
		return smr_accept_post(link, link->sent, link->sent + 1);
	if (link->sent >= smr->commit)
		return write_word(link);
	skip(link);
	return true;
}

static void fall_behind(struct smr_link *link)
{
	if (smr_link_role(link) == HF_SMR_FOLLOWER) /* else it has taken one just now, or does */
		log_info("smr %s: member %u lacks entries that the leader no longer has: it takes a snapshot",
			link->smr->name, link->id);
	link->stage = SMR_STAGE_BEHIND;
	smr_take_in_tell(link);
}

/* At each pulse: until it takes a snapshot; and until it is confirmed, because its disk may need the commit index. */
void smr_take_in_tell(struct smr_link *link)
{
	uint8_t message[9] = {SMR_SAY_BEHIND};

	if (link->stage == SMR_STAGE_TAKING)
		(void)smr_read_post(link);
	put_le64(message + 1, smr_take_in_oldest(link->smr));
	if (link->stage == SMR_STAGE_BEHIND && smr_link_role(link) == HF_SMR_FOLLOWER)
		(void)hf_channel_send(link->smr->channel, link->peer, message, sizeof(message));
}

bool smr_take_in_turn(struct smr_link *link)
{
	struct hf_smr *smr = link->smr;
	uint64_t before = link->sent, room_end = smr_durable_room_end(link);

	while (link->sent < smr->tail && smr_post_room(link) > WRS_KEPT) {
		bool unread = link->sent < smr->recover_end;
		uint64_t lap = (link->sent | (smr->geometry.slots - 1)) + 1, end = link->sent + smr->chunk;

		if (link->sent < smr_take_in_oldest(smr)) {
			fall_behind(link);
			return true;
		}
		if (link->sent >= room_end)
			break;
		if (unread && (link->sent < link->fetched || link->sent >= link->fetched_end)) {
			if (!link->fetching)
				(void)smr_take_in_fetch(link, link->sent, smr->recover_end);
			break;
		}
		if (unread && link->fetching)
			break;
		end = end < lap ? end : lap;
		end = end < smr->tail ? end : smr->tail;
		end = end < room_end ? end : room_end;
		if (unread ? !compare(link) : !smr_accept_post(link, link->sent, end))
			break;
	}
	if (link->sent == smr->tail) {
		link->stage = SMR_STAGE_CONFIRMED;
		/* decided entries that it had under other numbers go to its disk once it knows that they are */
		if (smr->durable != NULL)
			(void)smr_read_post(link);
		return true;
	}
	return link->sent != before;
}
