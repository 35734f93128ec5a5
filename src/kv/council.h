/* council.h - who is live and for how long: the configuration manager on a replicated log, leases, suspicion.
 *
 * Each lease / 10 a member says ASK to all others: a heartbeat that names those it does not hear, and the request for a
 * lease. The leader of the log makes sure that it leads, by a read that begins after the request came, and grants the
 * lease from when the ASK was sent. Only while that lasts does a member answer reads and start writes.
 *
 * A shadow that has caught up says so at once.
 *
 * The leader decides by what it heard last, one entry at a time. It suspects the member that is cut off from most
 * others, of several the one with the higher place in the list. No leader grants to it once that is applied there, and
 * one proposes to exclude it only when the lease must be over by any clock (R-K21): counted from its own last grant and
 * its takeover, or from when it applied SUSPECT. The latter no takeover puts off. Who asks again before that is
 * cleared. A member that comes back joins as a shadow, with another incarnation or the same. Owned by the kv's loop. */
#ifndef HOLDFAST_KV_COUNCIL_H
#define HOLDFAST_KV_COUNCIL_H

#include <holdfast/smr.h>

#include "kv/cm.h"
#include "kv/wire.h"

#define COUNCIL_ASKS           10u   /* in the time of a lease */
#define COUNCIL_INSTALL_LEASES 3u    /* an epoch is installed within so many */
#define COUNCIL_COLD_LEASES    20u   /* so long the last members are waited for when all have ended */
#define COUNCIL_BEHIND_LEASES  20u   /* after so many without it the replica of the log is given up */
#define COUNCIL_CLOCKS_PPM     1000u /* by which two clocks differ at most */
#define COUNCIL_SUSPECT_PART   2u    /* of the lease without a word, and a member is suspected */

/* What a member said last. */
struct council_report {
	uint64_t heard_ns; /* by the loop's clock; 0: never */
	uint64_t incarnation, epoch;
	uint32_t note;
	bool heard, returned; /* returned: it has asked since it is suspected */
	/* How far its log was durable as it said, and, at most, as its earlier processes did since it is a member. */
	uint64_t durable, told;
	uint64_t complete;       /* the join as of which its store is whole; 0: it is not */
	uint64_t round, highest; /* in that epoch: purge.h */
};

struct council {
	struct hf_smr *smr;
	uint64_t lease_ns, suspect_ns;
	uint64_t turn_ns;
	uint64_t next_ask_ns, followed_ns; /* followed: when nobody was known to be ahead of this member's log */
	struct council_report reports[HF_KV_MEMBERS_MAX];
	/* This member's lease, by its own hf_env_boot_ns. */
	uint64_t lease_until_ns;
	/* Which suspicion of each was applied last, and when, likewise. */
	uint32_t suspicion[HF_KV_MEMBERS_MAX];
	uint64_t suspected_ns[HF_KV_MEMBERS_MAX];
	uint64_t decided_ns; /* the last epoch, by the loop's clock */
	/* While this member leads. */
	bool leads;
	uint64_t led_ns;                        /* since when nobody else can have granted */
	uint64_t look_ns;                       /* when a member's lease is over that is to be excluded, likewise */
	uint64_t granted_ns[HF_KV_MEMBERS_MAX]; /* the last grant of each */
	uint64_t asked_ns[HF_KV_MEMBERS_MAX];   /* sending times of requests that are not answered; 0: none */
	uint64_t granting_ns[HF_KV_MEMBERS_MAX];
	struct hf_smr_call confirm, propose;
	bool confirming, proposing, hopeless; /* hopeless: no store is whole, which was said */
	uint8_t entry[CM_ENTRY_BYTES];
};

struct hf_kv;

int kv_council_open(struct hf_kv *kv, struct hf_error *error);
void kv_council_close(struct hf_kv *kv);
/* True: there was something to do. */
bool kv_council_turn(struct hf_kv *kv, uint64_t now_ns);
uint64_t kv_council_wake_ns(const struct hf_kv *kv);
/* What the leader waits for has changed here: it is said now, not at the next tenth of a lease. */
void kv_council_hurry(struct hf_kv *kv);
/* A word of a later epoch, which waits with all behind it: the member is there, and ahead. */
void kv_council_heard(struct hf_kv *kv, unsigned from, uint64_t epoch);
bool kv_council_hear(struct hf_kv *kv, unsigned from, const struct wire_message *message); /* false: it is wrong */
/* Reads the clock: what comes now is judged by now (R-K22). */
bool kv_council_has_lease(const struct hf_kv *kv);
uint64_t kv_council_lease_left_ns(const struct hf_kv *kv);
/* Whether the member was heard of lately; this one is. */
bool kv_council_hears(const struct hf_kv *kv, unsigned node);

#endif
