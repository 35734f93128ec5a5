/* council.h - membership and leases: the configuration manager on a replicated log, leases, suspicion.
 *
 * Each lease / 10 a member sends ASK to all others: a heartbeat with the list of members that it does not reach, and
 * the request for a lease. The leader of the log confirms that it leads, by a read that begins after the request
 * arrived, and grants the lease from the time when the ASK was sent. A member answers reads and starts writes only
 * while its lease lasts. A shadow that has caught up reports it at once.
 *
 * The leader decides by the latest reports, one entry at a time. It suspects the member that is cut off from most
 * others; of several, the one with the higher place in the list. A leader that has applied SUSPECT grants no lease to
 * that member, and proposes EXCLUDE only when the lease must be over by any clock (R-K21): counted from its own last
 * grant and its takeover, or from when it applied SUSPECT, which no takeover restarts. A member that sends ASKs again
 * before that is cleared. The lease of a process is not waited for if it has given it up (hf_kv_leave), or that has
 * ended: the next one holds the lock of its log, in the same boot. A member that returns joins as a shadow, with the
 * same or another incarnation. Owned by the kv's loop. */
#ifndef HOLDFAST_KV_COUNCIL_H
#define HOLDFAST_KV_COUNCIL_H

#include <holdfast/smr.h>

#include "kv/cm.h"
#include "kv/told.h"
#include "kv/wire.h"

#define COUNCIL_ASKS           10u           /* in the time of a lease */
#define COUNCIL_INSTALL_LEASES 3u            /* an epoch is installed within this many */
#define COUNCIL_COLD_SHARED    2u            /* of them, where they are long because cores are shared */
#define COUNCIL_COLD_LEASES    20u           /* by default, wait for the last members after all have ended */
#define COUNCIL_BEHIND_LEASES  20u           /* the replica of the log restarts after this many without progress */
#define COUNCIL_HANGS_LEASES   20u           /* a disk that ends no flush for so long hangs, */
#define COUNCIL_HANGS_MIN_NS   2000000000ull /* and at least for this time */
#define COUNCIL_WAIT_TOLD_NS   5000000000ull /* a member that serves nothing for so long logs the reason */
#define COUNCIL_CLOCKS_PPM     1000u         /* by which two clocks differ at most */
#define COUNCIL_SUSPECT_PART   2u /* a member that is silent for 1 / this of a lease is suspected, by default */

/* The last report of a member. */
struct council_report {
	uint64_t heard_ns; /* of its last message, in attended time; of no meaning before `heard` */
	uint64_t incarnation, epoch;
	uint32_t note;
	bool heard, returned; /* returned: it has sent an ASK since it is suspected */
	bool died;            /* the end of its process was noticed, and no ASK of another one came (R-G5) */
	uint64_t durable;     /* the end of its log */
	struct told told;     /* the last report of its process that was a member, while others report in its place */
	uint64_t complete;    /* the join for which its store is complete; 0: it is not */
	uint64_t round, highest; /* in that epoch: purge.h */
	/* Of its own log, the part of its last process that was a member; and what it has of all members' reports. */
	struct told kept, told_by[HF_KV_MEMBERS_MAX];
};

/* Why this member does not serve, as its log says once. */
enum council_wait {
	COUNCIL_SERVES,
	COUNCIL_WAITS_FOR_MAJORITY,
	COUNCIL_WAITS_FOR_ALL, /* a cluster begins with all its members */
	COUNCIL_WAITS_FOR_ADMISSION,
	COUNCIL_WAITS_FOR_BUDDY,
	COUNCIL_WAITS_FOR_COPY,
};

/* Of a member that ends on purpose. */
enum council_leave {
	COUNCIL_STAYS,
	COUNCIL_DRAINS, /* it has no lease any more; the writes that it began go on */
	COUNCIL_LEAVES, /* it asks to be excluded */
};

struct council {
	struct hf_node_listener listener;
	bool listening;
	struct hf_smr *smr;
	bool smr_lost; /* with a device: another replica takes its place */
	bool silent;   /* its disk hangs, and the others can exclude it */
	uint64_t lease_ns, suspect_ns, cold_wait_ns;
	uint64_t turn_ns;
	/* followed: when there was a replica, and no member was known to be ahead of it */
	uint64_t next_ask_ns, followed_ns;
	struct council_report reports[HF_KV_MEMBERS_MAX];
	/* This member's lease, by its own hf_env_boot_ns. */
	uint64_t lease_until_ns;
	enum council_leave leave;
	uint64_t leave_until_ns; /* by the loop's clock */
	/* Which suspicion of each was applied last, and when, likewise. */
	uint32_t suspicion[HF_KV_MEMBERS_MAX];
	uint64_t suspected_ns[HF_KV_MEMBERS_MAX];
	uint64_t decided_ns; /* the last epoch, by the loop's clock */
	/* While this member leads. */
	bool leads;
	uint64_t led_ns;                        /* since when no other leader can have granted */
	uint64_t look_ns;                       /* when a member's lease is over that is to be excluded, likewise */
	uint64_t granted_ns[HF_KV_MEMBERS_MAX]; /* the last grant of each */
	uint64_t asked_ns[HF_KV_MEMBERS_MAX];   /* sending times of requests that are not answered; 0: none */
	uint64_t granting_ns[HF_KV_MEMBERS_MAX];
	struct hf_smr_call confirm, propose;
	bool confirming, proposing, hopeless; /* hopeless: no store is complete, and that was logged */
	uint32_t older;                       /* members with an older copy of their log, of which that was logged */
	uint32_t lagging;                     /* and members whose membership log lags, likewise */
	enum council_wait wait;
	uint64_t wait_ns; /* since when; UINT64_MAX: that was logged */
	uint8_t entry[CM_ENTRY_BYTES];
};

struct hf_kv;

int kv_council_open(struct hf_kv *kv, struct hf_error *error);
void kv_council_close(struct hf_kv *kv);
/* True: there was something to do. */
bool kv_council_turn(struct hf_kv *kv, uint64_t now_ns);
uint64_t kv_council_wake_ns(const struct hf_kv *kv);
/* A state that the leader waits for has changed here: sends an ASK now, not at the next tenth of a lease. */
void kv_council_hurry(struct hf_kv *kv);
/* A message of a later epoch, which waits with all behind it: the member is reachable, and ahead. */
void kv_council_heard(struct hf_kv *kv, unsigned from, uint64_t epoch);
bool kv_council_hear(struct hf_kv *kv, unsigned from, const struct wire_message *message); /* false: malformed */
/* Reads the clock, because the lease must hold at this moment (R-K22). */
bool kv_council_has_lease(const struct hf_kv *kv);
uint64_t kv_council_lease_left_ns(const struct hf_kv *kv);
/* hf_kv_leave and hf_kv_has_left. */
void kv_council_leave(struct hf_kv *kv);
bool kv_council_has_left(const struct hf_kv *kv);
/* Whether a message of the member arrived recently; true for this member. */
bool kv_council_hears(const struct hf_kv *kv, unsigned node);

#endif
