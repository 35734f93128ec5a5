/* steps.h - functions between the mechanisms of a replica, by file. On the node's loop. */
#ifndef HOLDFAST_SMR_STEPS_H
#define HOLDFAST_SMR_STEPS_H

#include "smr/smr.h"

/* event.c */
void smr_event(struct hf_smr *smr, enum hf_smr_event_kind kind);

/* link.c: processes and their vqps */
extern const struct hf_channel_events smr_link_channel_events;
bool smr_link_turn(struct hf_smr *smr);
void smr_link_remake(struct smr_link *link, enum smr_end_kind kind);
void smr_link_close(struct hf_smr *smr);
void smr_link_seek(struct hf_smr *smr); /* connects to members that are not there */

/* post.c: wrs and their completions */
struct smr_post {
	enum smr_wr_type type;
	const void *local;
	uint32_t bytes;
	uint64_t at; /* offset in the remote region */
	uint64_t arg;
	uint64_t reads; /* the index of the first slot here that the wr reads; 0: none */
	bool read;
};
bool smr_post(struct smr_link *link, enum smr_end_kind kind, const struct smr_post *post); /* false: no room */
bool smr_post_turn(struct hf_smr *smr);
uint64_t smr_post_reads_from(const struct smr_link *link); /* here, by wrs that are out; UINT64_MAX: none */
bool smr_post_end_reading(struct smr_link *link); /* true: such a wr is out; its vqp is made again in the next turn */
void smr_post_drop(struct smr_end *end);          /* its vqp is being destroyed */
uint32_t smr_post_room(const struct smr_link *link);

/* public.c: public words, heartbeats, choice */
void smr_public_store(struct hf_smr *smr, enum smr_public word, uint64_t value);
void smr_public_pulse(struct hf_smr *smr);
void smr_public_beat(struct hf_smr *smr);
void smr_public_yield(struct hf_smr *smr); /* hands leadership on, within a second */
void smr_public_answered(struct smr_link *link);
void smr_public_role(struct hf_smr *smr);
bool smr_public_ready(const struct hf_smr *smr);

/* grant.c: the own log and its holder */
bool smr_grant_promise(const struct hf_smr *smr, uint64_t *number_out); /* in the own log; false: none, or torn */
bool smr_grant_turn(struct hf_smr *smr);
void smr_grant_take(struct hf_smr *smr); /* the own log for ourselves */
void smr_grant_pulse(struct hf_smr *smr);
void smr_grant_destroyed(struct smr_link *link);

/* phase.c, stage.c */
void smr_phase_move(struct hf_smr *smr, enum smr_phase phase);
uint32_t smr_phase_set(const struct hf_smr *smr, enum smr_stage least); /* and this member */
bool smr_phase_majority(const struct hf_smr *smr, uint32_t set);
bool smr_phase_majority_of(const struct hf_smr *smr, const struct smr_members *members, uint32_t set);
void smr_stage_completed(struct smr_link *link, const struct smr_wr *wr);

/* acquire.c */
bool smr_acquire_turn(struct hf_smr *smr);
void smr_acquire_pulse(struct hf_smr *smr);
void smr_acquire_acked(struct smr_link *link);
void smr_acquire_ask(struct smr_link *link, bool again);

/* recover.c, catch_up.c */
void smr_catch_up_begin(struct hf_smr *smr);
void smr_catch_up_turn(struct hf_smr *smr);
void smr_recover_begin(struct hf_smr *smr);
void smr_recover_turn(struct hf_smr *smr);

/* take_in.c */
void smr_take_in_begin(struct smr_link *link);
void smr_take_in_tell(struct smr_link *link);
bool smr_take_in_turn(struct smr_link *link);
uint64_t smr_take_in_oldest(const struct hf_smr *smr); /* the lowest index that the own ring has */
bool smr_take_in_fetch(struct smr_link *link, uint64_t from, uint64_t end);

/* accept.c: proposals into the log, and out of it */
bool smr_accept_turn(struct hf_smr *smr);
bool smr_accept_append(struct hf_smr *smr, enum smr_kind kind, uint16_t requests, const void *data, uint32_t bytes);
void smr_accept_decide(struct hf_smr *smr);
bool smr_accept_post(struct smr_link *link, uint64_t from, uint64_t end);
uint64_t smr_accept_room(const struct hf_smr *smr); /* slots that can be appended now */

/* recycle.c */
uint64_t smr_recycle_floor(const struct hf_smr *smr);
void smr_recycle_turn(struct hf_smr *smr);

/* follow.c */
bool smr_follow_turn(struct hf_smr *smr);
void smr_follow_reset(struct hf_smr *smr);
bool smr_follow_apply(struct hf_smr *smr);
bool smr_follow_given(struct hf_smr *smr, const uint8_t *at); /* applies a decided slot; false: it is not the next */
void smr_follow_commit(struct hf_smr *smr, uint64_t commit);

/* read.c */
bool smr_read_turn(struct hf_smr *smr);
void smr_read_idle(struct hf_smr *smr);
bool smr_read_post(struct smr_link *link); /* the commit word */

/* abort.c */
void smr_abort(struct hf_smr *smr, const char *why);
void smr_abort_check(struct hf_smr *smr);
void smr_abort_calls(struct hf_smr *smr); /* also those that are decided: nothing more is applied one by one */

/* calls.c */
void smr_calls_init(struct hf_smr *smr);
void smr_calls_end(struct hf_smr *smr, struct hf_smr_call *call, enum hf_smr_outcome outcome);
void smr_calls_applied(struct hf_smr *smr, const struct hf_smr_applied *request, const void *result, uint32_t bytes,
	enum hf_smr_outcome outcome);
bool smr_calls_finish(struct hf_smr *smr);

/* Marks, which the turn acts on: what finds something calls nothing above it. */
static inline void smr_mark_abort(struct hf_smr *smr, const char *why)
{
	if (smr->phase != SMR_PHASE_NONE)
		smr->abort_why = why;
}

/* What is still out for the member counts for nothing. */
static inline void smr_end_life(struct smr_link *link)
{
	link->stage = SMR_STAGE_NONE;
	link->life++;
	link->fetching = false;
}

/* Its log is not ours any more. */
static inline void smr_mark_lost(struct smr_link *link)
{
	if (link->stage == SMR_STAGE_NONE)
		return;
	smr_end_life(link);
	link->smr->lost = true;
}

/* found.c, change.c */
void smr_found_turn(struct hf_smr *smr);
void smr_found_heard(struct hf_smr *smr, const struct smr_members *members);
void smr_change_heard(struct hf_smr *smr, const struct smr_members *members);
void smr_change_applied(struct hf_smr *smr, uint64_t index);
void smr_change_restored(struct hf_smr *smr, const struct smr_members *members); /* those of a snapshot */
void smr_change_turn(struct hf_smr *smr);
void smr_change_end(struct hf_smr *smr);

/* snapshot.c, restore.c: messages of the channel to the member; their first byte */
enum { SMR_SAY_HELLO = 1, SMR_SAY_REFUSE, SMR_SAY_ASK, SMR_SAY_PIECE, SMR_SAY_END, SMR_SAY_MORE, SMR_SAY_BEHIND };
#define SMR_TAKEN_STOP UINT32_MAX /* in SMR_SAY_MORE: the taker wants no more of the snapshot */
void smr_snapshot_heard(struct smr_link *link, uint8_t kind, const uint8_t *data, size_t bytes);
bool smr_snapshot_turn(struct hf_smr *smr);
void smr_snapshot_drop(struct smr_link *link);
void smr_snapshot_pace(struct hf_smr *smr); /* at each pulse, for the leader */
/* While snapshots are given: each slot in turn, as it is applied. */
void smr_snapshot_applies(struct hf_smr *smr, const struct smr_slot *slot, const uint8_t *at);
struct smr_store_piece;
struct smr_snapshot *smr_snapshot_open(struct hf_smr *smr, uint32_t number); /* NULL: not at present */
void smr_snapshot_close(struct hf_smr *smr, struct smr_snapshot *snapshot);
uint64_t smr_snapshot_index(const struct smr_snapshot *snapshot);
/* In the snapshot's memory until the next call. False: not yet. */
bool smr_snapshot_next(struct hf_smr *smr, struct smr_snapshot *snapshot, struct smr_store_piece *piece_out);
void smr_restore_begin(struct hf_smr *smr);
int smr_restore_from_disk(struct hf_smr *smr, struct hf_error *error);
bool smr_restore_has_room(const struct hf_smr *smr);
bool smr_restore_push(struct hf_smr *smr, uint8_t part, bool end, const void *data, size_t bytes); /* there is room */
void smr_restore_heard(struct smr_link *link, uint8_t kind, const uint8_t *data, size_t bytes);
bool smr_restore_turn(struct hf_smr *smr);
void smr_restore_drop(struct hf_smr *smr);

/* replay.c: a restart with state */
int smr_replay_begin(struct hf_smr *smr, struct hf_error *error);
bool smr_replay_turn(struct hf_smr *smr);
void smr_replay_drop(struct hf_smr *smr);

#endif
