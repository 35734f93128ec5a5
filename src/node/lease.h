/* lease.h - a side that is cut off fences by itself, and the other side can compute when (docs/protocol.md, R5). Pure.
 *
 * Each side sends stamps of its clock and returns the newest one that it received. A returned stamp proves that the
 * other side received a message of ours that was sent at that time, or later:
 *
 *   a  --- stamp 100 ------------>  b      heard from a
 *   a  <----- stamp 7, echo 100 --  b
 *   a: contact at 100; without a later echo a fences b's qps at 100 + lease
 *   b: a's fence is certain `lease` and a margin after the last stamp that b received, whatever was lost on the way
 *
 * A stamp is received after it was sent, so b never counts from an earlier moment than a, however long messages take.
 * Only the rates of the two clocks matter, and the delay with which a runs: the margin.
 *
 * A lease may change. A new one is announced first, and holds when the other side has returned a stamp that was sent
 * with it: stamps of a longer lease are too rare for a shorter one. Until then a message promises the longer of both,
 * and never less than a device was extended for.
 *
 * Both sides use the clock that counts while a host is suspended (hf_env_boot_ns), because the other host's counts too.
 *
 * Invariant:
 *   LEASE-1  While a message that b receives may still extend a's lease, lease_is_over is false at b. */
#ifndef HOLDFAST_NODE_LEASE_H
#define HOLDFAST_NODE_LEASE_H

#include <stdbool.h>
#include <stdint.h>

#define LEASE_NS_MAX 3600000000000ull /* no message promises more */

struct lease {
	uint64_t ours_ns;              /* the time without contact after which we fence */
	uint64_t told_ns;              /* the same, or another one that the other side has not received yet */
	uint64_t until_ns;             /* the latest moment for which the devices have extended it */
	uint64_t changed_ns;           /* our first stamp with it; 0: none was sent yet */
	uint64_t sent_ns;              /* our last stamp */
	uint64_t contact_ns;           /* when we had sent the newest stamp that was returned */
	uint64_t theirs_ns;            /* the other side's lease; 0: not received yet */
	uint64_t heard_ns;             /* when we received its newest stamp */
	uint64_t stamp;                /* that one */
	uint64_t looked_ns, silent_ns; /* lease_is_silent */
	bool urgent;                   /* the other side is to hear of a change */
};

void lease_init(struct lease *lease, uint64_t ours_ns, uint64_t now_ns);
void lease_want(struct lease *lease, uint64_t ours_ns); /* from now on */
/* Between two stamps. Often enough for both sides: each message has a stamp of ours and an echo for theirs. */
uint64_t lease_interval_ns(const struct lease *lease);
bool lease_must_send(const struct lease *lease, uint64_t now_ns);
void lease_sent(struct lease *lease, uint64_t now_ns); /* a stamp of that time */
/* The end of the devices' leases by the last contact; the caller extends them now. */
uint64_t lease_extended(struct lease *lease);
/* In a message of this moment: nothing of the other side executes here for longer than that after it. */
uint64_t lease_promise(const struct lease *lease, uint64_t now_ns);
/* Stamps of the other side are missing: contact was lost, or one of the two stood still. */
bool lease_was_silent(const struct lease *lease, uint64_t now_ns);
void lease_hear(struct lease *lease, uint64_t stamp, uint64_t echo, uint64_t theirs_ns, uint64_t now_ns);
/* We had no contact for the whole lease. */
bool lease_expired(const struct lease *lease, uint64_t now_ns);
/* Called at each tick: no message arrived for the other side's lease and its margin, while this side ran. */
bool lease_is_silent(struct lease *lease, uint64_t now_ns);
/* Of the leases of both sides. */
uint64_t lease_longer_ns(const struct lease *lease);
/* What a lease of that length takes, with its margin. */
uint64_t lease_with_margin(uint64_t lease_ns);
/* The other side has fenced our qps by now, unless it does not run. */
bool lease_is_over(const struct lease *lease, uint64_t now_ns);

#endif
