/* home.h - where the atomics of a domain's regions take place, when atomicity ends at the NIC (D7 and R12).
 *
 * Two NICs of most kinds do not exclude one another: two clients that take a lock through two of them may both get it.
 * So the regions of a protection domain have one rail for atomics, their home. Elsewhere they are registered without
 * REMOTE_ATOMIC; on the home they have a second registration, whose key only atomics use. Peers receive the home with
 * the region: an atomic waits until its vqp is on that rail, and vqps move there.
 *
 *   owner                                              peers
 *     | REGION(home 1, no key for atomics) ------------> |  begin no more atomics
 *     | (a peer that picks the path: MOVE(1)) ---------> |
 *     |  every vqp leaves rail 0 by an exchange, in which both ends fence
 *     |  the second registration on rail 0 is removed, another is made on rail 1
 *     | REGION(home 1, key) ---------------------------> |  atomics continue on rail 1
 *
 * It moves to a rail that more peers can reach, and back to the primary when that has been up for failback_ns and all
 * of them can return. A vqp that does not leave in time is fenced by its owner alone.
 *
 * A vqp with atomics in both directions needs both homes on one rail. Where a pair of nodes has lost a rail, their
 * homes leave it, and a third node, which reaches both on that rail, has to follow. So each owner tells its peers the
 * rails on which most of its peers can reach it (HOMES), and of equal rails it takes the one that most peers name.
 *
 * Invariant:
 *   HOME-1  The key for atomics on one rail is given out only after every qp that a vqp with atomic access had, or
 *           could have taken, on the rail before was fenced or destroyed, and the registration there was removed. */
#ifndef HOLDFAST_VQP_ATOMIC_HOME_H
#define HOLDFAST_VQP_ATOMIC_HOME_H

#include <stdbool.h>
#include <stdint.h>

#include <holdfast/node.h>

#define HOME_ANY       (-1) /* atomicity is global */
#define HOME_ELSEWHERE (-2) /* on a rail that we do not have in common */
#define HOMES_ALL      ((1u << HF_RAILS_MAX) - 1)

struct hf_node;
struct hf_vpd;
struct hf_vqp;

/* Of a protection domain. */
struct home {
	int rail;          /* HOME_ANY: no need of one */
	int next;          /* it is moving there; -1: it is not */
	uint64_t since_ns; /* the move began, or ended */
};

void home_init(struct hf_vpd *pd);
/* Of the rails that the vqp could use, those that it should. */
uint32_t home_rails(const struct hf_vqp *vqp, uint32_t usable);
/* The other side's atomics need a home with us: qps made beforehand would outlive its moves, so it has none in common
 * with others. */
bool home_binds(const struct hf_vqp *vqp);
/* Atomics of a peer need a home here, which a change of rails may move. */
bool home_needed(const struct hf_node *node);
/* An atomic of ours has to wait for the other side's home. */
void home_wait(struct hf_vqp *vqp, int rail);
void home_reached(struct hf_vqp *vqp);
/* At each tick: a wr has waited for the whole budget, and fails. A wait ends where no wr waits. */
bool home_despairs(struct hf_vqp *vqp, uint64_t now_ns);
/* The other side, the owner of the home, requests that the picker move to that rail. */
/* The path that the vqp had was fenced, or destroyed. */
void home_left(struct hf_vqp *vqp);
/* But now it is on a qp that the move had withdrawn, and that the other side had named before it received that. */
void home_took_withdrawn(struct hf_vqp *vqp);
void home_tick(struct hf_node *node, uint64_t now_ns);

#endif
