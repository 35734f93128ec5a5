/* smr.h - the objects of a replica and their relations; private to src/smr.
 *
 *   replica -- log region (slot.h), in a pd that only replication vqps have
 *    |-- background region: public words, mailboxes
 *    |-- links[], one for each other member: its process, three vqps, its score in the election, and the leader's
 *    |           progress with its log
 *    `-- calls of the program: waiting, in the log, done
 *
 * Everything runs on the node's loop: the loop that stores into the own log also grants it to others (R-S2), and a
 * turn that proposes and applies increments the heartbeat (R-S19). The pure parts are slot, members, elect,
 * sessions. */
#ifndef HOLDFAST_SMR_SMR_H
#define HOLDFAST_SMR_SMR_H

#include <holdfast/channel.h>
#include <holdfast/grant.h>
#include <holdfast/smr.h>

#include "base/bytes.h"
#include "base/list.h"
#include "base/log.h"
#include "smr/entry.h"
#include "smr/link.h"
#include "smr/members.h"
#include "smr/sessions.h"
#include "smr/slot.h"

#define SMR_NOBODY      (-1)
#define SMR_FIRST_INDEX 2u /* behind the configuration that founded the cluster */

enum smr_phase { /* of an acquisition */
	SMR_PHASE_NONE,
	SMR_PHASE_TAKE,    /* the own log, from all others */
	SMR_PHASE_ASK,     /* until a majority has granted and was read */
	SMR_PHASE_PROMISE, /* until a majority has the promise */
	SMR_PHASE_CATCH_UP,
	SMR_PHASE_RECOVER,
	SMR_PHASE_NOOP, /* until an entry of this number is decided */
	SMR_PHASE_LEAD,
	SMR_PHASES,
};

enum smr_giving { SMR_GIVING_NONE, SMR_GIVING_REVOKE, SMR_GIVING_GIVE };

struct hf_smr {
	struct hf_node *node;
	struct hf_loop *loop;
	struct hf_smr_app app;
	void *context;
	struct hf_smr_config config;
	char name[16];
	struct hf_smr_member known[HF_SMR_MEMBERS_MAX]; /* named by the program */
	unsigned known_count;
	uint64_t cluster[2];
	struct smr_geometry geometry;
	uint8_t id;
	uint64_t incarnation;
	struct hf_node_listener listener;
	struct hf_channel *channel;
	struct hf_vpd *log_pd, *back_pd;
	struct hf_vmr *log_mr, *back_mr, *scratch_mr, *look_mr;
	struct hf_vcq *log_cq, *back_cq;
	uint8_t *log, *back, *scratch, *look; /* look: where public words are read to */
	uint32_t chunk;                       /* slots that fit the scratch memory of a link */
	struct smr_link links[HF_SMR_MEMBERS_MAX];
	struct smr_link *here[HF_SMR_MEMBERS_MAX + 1]; /* that have a peer; NULL terminated */
	struct hf_poller poller;
	struct hf_timer pulse;
	uint64_t pulse_ns; /* when the next one is due */
	bool attached, stopping;
	bool device_died;   /* of this node */
	bool unwell;        /* as set by the program */
	uint64_t yields_ns; /* since when it hands leadership on; 0: it does not */
	uint64_t now_ns;

	enum hf_smr_role role;
	uint64_t number, round_seen; /* ours; the highest round seen */
	int choice;                  /* the preferred leader */
	int leader_told;
	uint64_t number_told;

	/* the log */
	struct smr_members members;        /* applied, or that of the snapshot */
	struct smr_members told;           /* newer, decided: another member has applied it; index 0: none */
	struct smr_members found;          /* newer, in the own log since the last recovery, or logged by us; 0: none */
	uint64_t began_ns;                 /* when the cluster was founded; 0: it has had a leader */
	uint64_t promised;                 /* the word of the own log, when it was last taken from its holder */
	uint64_t promise, commit, applied; /* applied: of slots; next to be applied */
	uint64_t oldest;                   /* the ring has nothing before, whatever its size */
	uint64_t forgot;                   /* slots of entries before it accept nothing any more */
	uint64_t tail, recover_end;        /* the leader's: next index; the end of what it found */
	uint64_t reach;                    /* valid slots were seen from commit up to there, without a gap */
	uint64_t gap, gap_ns;              /* the decided slot that is missing here, and since when; 0: none is */
	int holder;                        /* id; SMR_NOBODY */
	uint64_t holder_ns;                /* since when */
	/* an entry of several slots that is being put together */
	uint8_t *entry, *batch, *copy; /* batch: that is about to be logged; copy: of a slot */
	struct smr_entry begun;
	uint8_t result[HF_SMR_RESULT_BYTES];
	struct smr_sessions *sessions;

	/* granting the own log away */
	enum smr_giving giving;
	int giving_to; /* the own id: taking it */
	uint32_t giving_request;
	bool giving_done;

	/* acquiring others' */
	enum smr_phase phase;
	uint32_t requests;     /* counter */
	uint64_t majority_ns;  /* since when a majority is there, and the rest is waited for */
	uint64_t acquiring_ns; /* since when, attempt after attempt; 0: it leads, or another one is to */
	uint64_t recover_at, recover_last, noop_index;
	uint64_t hole; /* as in a link, of the own log */
	uint64_t failed_seen_ns, detected_ns, granted_ns, granted_boot_ns;

	/* leading */
	uint64_t clock; /* of posts */
	uint64_t commit_told, told_ns, undecided_ns;
	struct smr_stall stall; /* the own disk holds up what waits */
	bool idle_out;
	uint64_t idle_stamp;

	/* calls */
	struct hf_smr_call *waiting, **waiting_end; /* not in the log yet */
	struct hf_smr_call *logged, **logged_end;   /* call.wait: the index of the last slot */
	struct hf_smr_call *reads, **reads_end;     /* call.wait: the stamp that is needed */
	struct hf_smr_call *done, **done_end;
	uint32_t calls;
	bool refused; /* a proposal, with -EAGAIN */

	unsigned giving_snapshots;
	bool paced;                      /* the tail of a snapshot fills up: what is proposed is limited */
	unsigned tail_fill;              /* of the room for tails, in 256ths */
	int64_t pace_bytes, pace_credit; /* that may be proposed until the next pulse; bytes * ns towards one more */
	bool applying;                   /* an entry, whose calls may be answered within */
	bool stayed;                     /* it lacks entries, and no other member had a snapshot */
	bool lacks;                      /* entries that only a snapshot has, and its program takes none */
	struct smr_restore *restore;
	uint32_t snapshots_asked;    /* counter */
	struct smr_durable *durable; /* NULL: memory is the storage */
	struct smr_replay *replay;   /* what the disk has is being taken in; NULL: no more */
	uint64_t seek_ns;
	/* a change of the members, at the leader */
	struct smr_members next;
	struct hf_smr_member wanted_member;
	struct hf_smr_call *change_call;
	int wanted;            /* id that hf_smr_add or hf_smr_remove named */
	bool change_asked;     /* `next` was requested, and is no process that takes a member's place */
	bool changing;         /* `next` is about to be logged, or in the log */
	uint64_t changed;      /* the entry of the change that was asked for, once it is applied here; 0: none */
	const char *reason;    /* why it stepped out */
	const char *abort_why; /* marks: steps.h */
	const char *failed;
	bool lost, behind, removed;
	uint64_t began_at; /* behind the entries on the disk when this process began */
	bool took_part;    /* change.c */
	bool leaving;      /* it is removed, and stays until a majority of the others has applied that */

	uint64_t decided, aborted, unknown, read_count, granted;
	unsigned failover_count;
	struct hf_smr_failover failovers[HF_SMR_FAILOVERS];
	struct log_limit unconnected; /* members that no connection is begun to */
};

static inline uint8_t *smr_slot_at(const struct hf_smr *smr, uint64_t index)
{
	return smr->log + SMR_LOG_SLOTS + (index & (smr->geometry.slots - 1)) * (size_t)smr->geometry.slot_bytes;
}

static inline enum smr_slot_state smr_own_slot(const struct hf_smr *smr, uint64_t index, struct smr_slot *slot_out)
{
	return smr_slot_judge(&smr->geometry, smr_slot_at(smr, index), index, slot_out);
}

static inline enum hf_smr_role smr_link_role(const struct smr_link *link)
{
	return (enum hf_smr_role)(link->public[SMR_PUBLIC_ROLE] & 0xff);
}

/* All below it is applied in whole entries. */
static inline uint64_t smr_applied_entries(const struct hf_smr *smr)
{
	return smr->begun.first != 0 ? smr->begun.first : smr->applied;
}

/* Whether these need a majority too (R-S20), besides those that are applied. */
static inline bool smr_counts_told(const struct hf_smr *smr)
{
	return smr->told.index > smr->members.index && smr->told.index >= smr->applied;
}

/* A majority of those that were told has all that is below their entry. */
static inline bool smr_counts_found(const struct hf_smr *smr)
{
	return smr->found.index > smr->members.index && smr->found.index >= smr->applied &&
	       smr->found.index > smr->told.index;
}

/* In a configuration that we know of. */
static inline bool smr_is_voter(const struct hf_smr *smr, unsigned id, uint64_t incarnation)
{
	return smr_members_votes(&smr->members, id, incarnation) ||
	       (smr_counts_told(smr) && smr_members_votes(&smr->told, id, incarnation)) ||
	       (smr_counts_found(smr) && smr_members_votes(&smr->found, id, incarnation));
}

/* It votes, and has all that it has acknowledged: a member that stepped out may lack some, as one whose device died
 * (R-S15). */
static inline bool smr_is_known(const struct smr_link *link)
{
	const struct hf_smr *smr = link->smr;

	/* until its public words were read, an older copy of its files is not recognized */
	return link->peer != NULL && !link->amnesiac && (smr->durable == NULL || (link->known && !link->older)) &&
	       smr_link_role(link) != HF_SMR_OUT && smr_is_voter(smr, link->id, link->incarnation);
}

static inline uint64_t smr_link_commit(const struct smr_link *link)
{
	return link->known ? link->public[SMR_PUBLIC_COMMIT] : 0;
}

/* Those that are here. */
#define smr_for_links(link, smr)                                                                                       \
	for (struct smr_link *const *link##_at = (smr)->here, *link; (link = *link##_at) != NULL; link##_at++)

#endif
