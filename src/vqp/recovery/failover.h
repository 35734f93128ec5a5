/* failover.h - moves a vqp from one path to another: executes the actions of recovery.h. Private to
 * src/vqp; all of it runs on the node's loop. */
#ifndef HOLDFAST_VQP_RECOVERY_FAILOVER_H
#define HOLDFAST_VQP_RECOVERY_FAILOVER_H

#include <holdfast/loop.h>

#include "vqp/kinds.h"
#include "vqp/path/path.h"
#include "vqp/recovery/recovery.h"

struct hf_node;
struct hf_vqp;

/* failover.c */
void failover_event(struct hf_vqp *vqp, const struct recovery_event *event);
void failover_broken(struct hf_vqp *vqp);  /* the path in use is of no use any more */
bool failover_drain(struct hf_node *node); /* acts on all marks (marks.h); false: there were none */
/* The path is of no use, and so are those of many other vqps, because their port is down. Each vqp begins when its turn
 * in the fence queue comes, so that the first are through the exchange while others wait. Until then nothing has
 * happened to it. */
void failover_cut(struct hf_vqp *vqp);
void failover_tick(struct hf_vqp *vqp, uint64_t now_ns);

/* exchange.c */
void exchange_say_fence(struct hf_vqp *vqp);
void exchange_say_state(struct hf_vqp *vqp);
void exchange_say_ready(struct hf_vqp *vqp);
/* Before the other side has a new path, so that no message that resumes is there sooner (R8). */
void exchange_tell_lengths(struct hf_vqp *vqp);
/* A failure of the data path has probably broken control on that rail too, and the exchange must not wait for missed
 * heartbeats. But a qp that failed by a program's error is no evidence about its rail, nor is a flush. */
bool exchange_suspects_rail(const struct hf_vqp *vqp);
void exchange_message(struct hf_vqp *vqp, const struct message_head *message);
/* CLOSED promises the other side that nothing of its wrs happens any more on the path that this vqp was on, so it
 * follows the fence, or the end, of all that it had. `standby`: by exchange_standby, while it was on that. */
uint32_t exchange_standby(const struct hf_vqp *vqp);
void exchange_say_closed(struct hf_vqp *vqp, uint32_t standby);
void exchange_closed(struct hf_vqp *vqp, const struct message_head *message);
void exchange_answer_closed(struct hf_peer *peer, const struct message_head *message);
/* Of a vqp that failed and is fenced: the other side is to end too, and sends CLOSED when it has. */
void exchange_ask_end(struct hf_vqp *vqp);
void exchange_ended(struct hf_vqp *vqp, const struct message_head *message);

/* fence_queue.c */
enum hf_poll fence_queue_turn(struct hf_node *node);
/* When there is nothing else to do: verdicts of those that wait for the other side's STATE find what they read in the
 * cache. False: there are none. */
bool fence_queue_warm(struct hf_node *node);
/* The vqp has no peer any more. Its wrs complete when that one's lease is over; `over`: nothing of them goes on there,
 * and no wait is needed. */
void fence_queue_lose_peer(struct hf_vqp *vqp, bool over);
bool fence_queue_waits(const struct hf_vqp *vqp); /* nothing to do for it before a completion comes, or a tick */

/* next_path.c */
enum next_path {
	NEXT_PATH_WAITS,  /* for the other end, or for nothing */
	NEXT_PATH_READY,  /* the picker may post */
	NEXT_PATH_FAILED, /* there is none: the next epoch */
};
enum next_path next_path_go(struct hf_vqp *vqp);    /* the picker takes a path and sends GO */
enum next_path next_path_match(struct hf_vqp *vqp); /* the other end takes its match */
/* After this GO the picker posts without an answer. */
bool next_path_goes_at_once(const struct hf_vqp *vqp, unsigned cached);

/* backup.c */
bool backup_offer(struct hf_vqp *vqp, unsigned rail); /* a qp on one more rail; false: the device refuses */
void backup_offer_all(struct hf_vqp *vqp);            /* where the policy or a revocable grant wants them */
/* The path of that rail must not be used any more, and nothing may arrive through it: its fence is repeated until it
 * holds. */
void backup_withdraw(struct hf_vqp *vqp, unsigned rail);
bool backup_is_withdrawn(struct hf_vqp *vqp, unsigned rail, uint64_t now_ns);
/* The one of that rail becomes the path in use, when both sides have one. */
bool backup_take(struct hf_vqp *vqp, unsigned rail);

#endif
