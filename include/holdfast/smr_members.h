/* smr_members.h - sessions, changes of the members, and the status of a replica. Included by smr.h. */
#ifndef HOLDFAST_SMR_MEMBERS_H
#define HOLDFAST_SMR_MEMBERS_H

#include <holdfast/smr.h>

/* ---- sessions: a request takes effect once, however often and to whichever leader it is sent ---- */

/* Opens a session: call.result has its number at done(), 8 bytes, little-endian. Requests of a session carry sequences
 * 1, 2, ..., at most 8 of them pending; a request that was applied before gets its earlier result. After UINT32_MAX
 * open another session. */
int hf_smr_session_open(struct hf_smr *smr, struct hf_smr_call *call);
int hf_smr_session_close(struct hf_smr *smr, struct hf_smr_call *call, uint64_t session);

/* ---- members ---- */

/* At the leader: the member receives a snapshot, follows, and is a voter at done() with HF_SMR_DECIDED. A process that
 * takes the place of a member with the same id needs no call, and is not delayed by one. The change continues until the
 * process is connected, this member leads no more (HF_SMR_UNKNOWN), or hf_smr_remove of that id ends it
 * (HF_SMR_NOT_LEADER, while this member leads); other changes are refused meanwhile, so start the process first.
 * -EBUSY: another change is in progress; -EEXIST: the id is taken; -EINVAL: id or number of addresses; -ENOSPC: the
 * ring is too small for the configuration of one more (slots in smr.h); -ENOTCONN: this member does not lead. */
int hf_smr_add(struct hf_smr *smr, const struct hf_smr_member *member, struct hf_smr_call *call);
/* Of a member, or of the id that hf_smr_add waits for: that one is done at once. -EHOSTDOWN: no majority of the
 * remaining members follows, so no entry could be decided any more: start the members that are down, or remove them
 * first. HF_SMR_NOT_LEADER: that became true meanwhile. Done when a majority of the remaining members has applied it:
 * stop the process then, or when it reports HF_SMR_REMOVED. -EINVAL: it is the last member; -ENOENT: no such member;
 * -EBUSY and -ENOTCONN as above. */
int hf_smr_remove(struct hf_smr *smr, uint8_t id, struct hf_smr_call *call);

/* ---- status ---- */

enum hf_smr_role {
	HF_SMR_BLANK,     /* has no configuration: waits for the others */
	HF_SMR_RESTORING, /* takes a snapshot */
	HF_SMR_FOLLOWER,
	HF_SMR_ACQUIRING, /* requests grants, and recovers the logs */
	HF_SMR_LEADER,
	HF_SMR_OUT, /* removed, or failed */
};
const char *hf_smr_role_name(enum hf_smr_role role);

/* The times of one change of leader, at the member that began to lead. */
struct hf_smr_failover {
	uint64_t number;
	uint64_t detected_ns; /* from the last heartbeat of the former leader until it counted as failed */
	uint64_t granted_ns;  /* from there until a majority had granted */
	uint64_t leading_ns;  /* from there until this member led */
};

struct hf_smr_member_status {
	uint8_t id;
	char name[HF_NAME_BYTES];
	uint64_t incarnation; /* 0: not known */
	bool voter, alive, confirmed;
	uint8_t score;    /* 0 to 15 */
	uint64_t applied; /* everything below is */
};

#define HF_SMR_FAILOVERS 16u /* kept in the status */

struct hf_smr_status {
	enum hf_smr_role role;
	uint8_t id;
	uint64_t incarnation, number;
	int leader;
	uint64_t commit, applied, floor; /* all below is decided; is applied; may be overwritten at this leader */
	uint64_t config_index;
	unsigned member_count;
	struct hf_smr_member_status members[HF_SMR_MEMBERS_MAX];
	uint64_t decided, aborted, unknown, reads; /* totals: entries, leaderships, proposals, reads */
	uint64_t granted;                          /* grants given */
	unsigned failover_count;
	struct hf_smr_failover failovers[HF_SMR_FAILOVERS]; /* the latest ones, newest first */
};
void hf_smr_status(const struct hf_smr *smr, struct hf_smr_status *status_out);

#endif
