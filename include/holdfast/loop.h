/* loop.h - the poll loop: pollers, timers and readiness of one thread.
 *
 * A loop owns its pollers, timers and watches; all calls are made on its thread (hf_loop_wake excepted), and nothing
 * attached to it needs a lock. Each turn polls every poller, fires due timers and, once nothing has been busy for a
 * short while, sleeps until a watched io is ready, a timer is due, or hf_loop_wake is called. */
#ifndef HOLDFAST_LOOP_H
#define HOLDFAST_LOOP_H

#include <holdfast/env.h>

/* Whether a process has its cores for itself, or shares them with programs that compute: for a service, the times that
 * it gives others before it takes them to be dead. */
enum hf_cores {
	HF_CORES_OWNED,
	HF_CORES_SHARED,
};

enum hf_poll {
	HF_IDLE, /* there was no work */
	HF_BUSY, /* there was work: poll again soon */
};

int hf_loop_create(struct hf_env *env, struct hf_loop **loop_out);
void hf_loop_destroy(struct hf_loop *loop); /* NULL is legal; everything attached was removed before */

struct hf_env *hf_loop_env(struct hf_loop *loop);
uint64_t hf_loop_now_ns(struct hf_loop *loop); /* time at the start of this turn: free to read */

/* That time less the loop's own gaps, in which its thread had no core or its program did not turn it. The silence of
 * others is measured with it. Never with it: a lease that this side holds or waits for, a device, a fence. */
uint64_t hf_loop_attended_ns(struct hf_loop *loop);
uint64_t hf_loop_gaps_ns(struct hf_loop *loop); /* the sum of the gaps so far */

/* Runs until hf_loop_stop. */
void hf_loop_run(struct hf_loop *loop);
void hf_loop_stop(struct hf_loop *loop);
/* One turn; sleeps for at most max_sleep_ns when nothing is busy. Not inside another turn. */
enum hf_poll hf_loop_turn(struct hf_loop *loop, uint64_t max_sleep_ns);
/* From any thread: the loop's sleep, or its next one, ends at once. */
void hf_loop_wake(struct hf_loop *loop);
/* For pollers: this turn returns to the program without polling descriptors, because the program waits for the result
 * of the poller. The next turn polls descriptors, so call this for rare events only. */
void hf_loop_hurry(struct hf_loop *loop);

/* Several threads may drive a loop, one at a time under a lock of theirs. A thread then does not sleep inside a
 * turn: under the lock it calls hf_loop_prepare, which arms the pollers and returns the time until the next work, 0
 * when a turn is due; without the lock it calls hf_loop_wait, which sleeps for at most that time. Other threads may
 * turn the loop meanwhile, and call hf_loop_wake when that leaves work for an earlier time. Only on a host. */
uint64_t hf_loop_prepare(struct hf_loop *loop, uint64_t max_sleep_ns);
void hf_loop_wait(struct hf_loop *loop, uint64_t sleep_ns);

/* How long the loop continues to poll after its last work before it sleeps: 0, not at all; UINT64_MAX, it never sleeps.
 * The default is 20 us. No effect where a loop never spins: on a host with one core, and in the simulator. A loop that
 * finds a computing program on its core does not spin for a while, unless it never sleeps. */
void hf_loop_set_spin(struct hf_loop *loop, uint64_t spin_ns);
/* How much later than a timer is due the kernel may end a sleep: it combines wake-ups of that time. 0, the default:
 * the slack of the thread (50 us). A thread keeps the slack of the loop that it slept in last. The simulator has
 * none. */
void hf_loop_set_slack(struct hf_loop *loop, uint64_t slack_ns);

/* ---- pollers ---- */

struct hf_poller {
	enum hf_poll (*poll)(struct hf_poller *poller, uint64_t now_ns);
	/* Before the loop sleeps: arm a wake-up (for example of a completion queue) and return true, or return false
	 * because there is work again. NULL: other io or timers of the loop wake it. */
	bool (*arm)(struct hf_poller *poller);
	struct hf_poller *next, *prev; /* the loop's */
};
void hf_loop_add_poller(struct hf_loop *loop, struct hf_poller *poller);
void hf_loop_remove_poller(struct hf_loop *loop, struct hf_poller *poller); /* also from inside a poll */

/* ---- timers: one shot ---- */

struct hf_timer {
	void (*fire)(struct hf_timer *timer, uint64_t now_ns);
	uint64_t due_ns;
	size_t heap_slot; /* the loop's; 0: not set */
	/* Firing does not count as work: pollers get one more turn, then the loop may sleep without spinning. For
	 * timers that recur often and mostly have no work. Set it before the timer is set. */
	bool quiet;
};
void hf_loop_set_timer(struct hf_loop *loop, struct hf_timer *timer, uint64_t due_ns); /* when set: moves it */
void hf_loop_cancel_timer(struct hf_loop *loop, struct hf_timer *timer);               /* not set: nothing happens */

/* ---- readiness ---- */

enum hf_ready {
	HF_READABLE = 1 << 0, /* also: something to accept, end of stream, error, notifier signalled */
	HF_WRITABLE = 1 << 1,
};
struct hf_watch {
	void (*ready)(struct hf_watch *watch, unsigned ready);
	struct hf_io *io; /* the loop's, NULL when not watching */
	unsigned wanted;
	struct hf_loop *loop;
};
/* Level triggered. A second call replaces `wanted`; 0 keeps the watch without callbacks. */
int hf_loop_watch(struct hf_loop *loop, struct hf_watch *watch, struct hf_io *io, unsigned wanted);
void hf_loop_unwatch(struct hf_watch *watch); /* also from inside a ready; never called again after it returns */

#endif
