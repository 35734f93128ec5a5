/* The poll loop. A turn reads the clock, polls every poller, fires due timers, and then waits: not at all while there
 * is work, with a yield to others for spin_ns after the last work, and otherwise in the world's waiter. A quiet timer
 * is not work: it costs one more turn, for pollers that it gave something to do.
 *
 *   busy --nothing to do--> spinning --spin_ns--> arm every poller --all armed--> sleeping --ready, timer, wake--> busy
 *                                                       |
 *                                                       +--one has work again--> another turn
 *
 * While pollers find work the waiter is asked once per IO_CHECK_NS only: its system call costs more than most polls.
 * In a turn that is hurried it is not asked at all.
 *
 * A gap is time in a turn, or lateness behind the planned wake, beyond GAP_NS: the thread had no core, or the program
 * did not come. Attended time is the time less the gaps (R-G1). After a gap sockets are read first.
 *
 * A yield gives a slice of the core away, to programs of the lowest priority too, and takes milliseconds where such a
 * program computes. A thread that wakes gets the core from it at once. So a loop that lost a yield sleeps instead of
 * spinning, for longer each time that it finds the program still there. */
#include "env/world.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/ensure.h"
#include "env/pause.h"
#include "env/timers.h"

#define IO_CHECK_NS 5000u

#define GAP_NS 1000000u

#define LOST_NS       400000u /* a yield that lasts longer is lost */
#define SHARED_NS_MIN 10000000u
#define SHARED_NS_MAX 640000000u

struct hf_loop {
	struct hf_env *env;
	struct world_waiter *waiter;
	struct hf_poller pollers;    /* head of a ring */
	struct hf_poller *next_poll; /* the poller after the one being called, which may remove either */
	struct timers timers;
	uint64_t now_ns;
	uint64_t planned_ns; /* when the clock was read, or is, once a sleep is over */
	uint64_t gaps_ns;    /* all of them */
	uint64_t spin_ns;
	uint64_t busy_at_ns, io_checked_ns;
	uint64_t shared_ns, shared_until_ns; /* the core is, with a program that does not yield */
	bool now_stale;                      /* a sleep lies between now_ns and the present */
	bool busy;                           /* this turn found work */
	bool gapped;                         /* since sockets were read */
	bool again;                          /* it did not, but a quiet timer fired after the pollers were polled */
	bool hurried;                        /* and the program waits for its end */
	bool in_turn;
	_Atomic bool stopping;
};

int hf_loop_create(struct hf_env *env, struct hf_loop **loop_out)
{
	struct hf_loop *loop = calloc(1, sizeof(*loop));
	int error;

	*loop_out = NULL;
	if (loop == NULL)
		return -ENOMEM;
	loop->env = env;
	loop->spin_ns = env->ops->spin_ns;
	loop->pollers.next = loop->pollers.prev = &loop->pollers;
	loop->now_ns = loop->busy_at_ns = loop->planned_ns = hf_env_now_ns(env);
	error = env->ops->waiter_open(env, loop, &loop->waiter);
	if (error != 0) {
		free(loop);
		return error;
	}
	*loop_out = loop;
	return 0;
}

void hf_loop_destroy(struct hf_loop *loop)
{
	if (loop == NULL)
		return;
	ensure(!loop->in_turn);
	while (loop->pollers.next != &loop->pollers)
		hf_loop_remove_poller(loop, loop->pollers.next);
	timers_destroy(&loop->timers);
	loop->env->ops->waiter_close(loop->waiter);
	free(loop);
}

struct hf_env *hf_loop_env(struct hf_loop *loop)
{
	return loop->env;
}

static void read_clock(struct hf_loop *loop)
{
	loop->now_ns = hf_env_now_ns(loop->env);
	loop->now_stale = false;
	if (loop->now_ns > loop->planned_ns && loop->now_ns - loop->planned_ns > GAP_NS) {
		loop->gaps_ns += loop->now_ns - loop->planned_ns - GAP_NS;
		loop->gapped = true;
	}
	loop->planned_ns = loop->now_ns;
}

uint64_t hf_loop_now_ns(struct hf_loop *loop)
{
	if (loop->now_stale)
		read_clock(loop);
	return loop->now_ns;
}

uint64_t hf_loop_gaps_ns(struct hf_loop *loop)
{
	(void)hf_loop_now_ns(loop);
	return loop->gaps_ns;
}

uint64_t hf_loop_attended_ns(struct hf_loop *loop)
{
	return hf_loop_now_ns(loop) - loop->gaps_ns;
}

void hf_loop_run(struct hf_loop *loop)
{
	while (!atomic_load_explicit(&loop->stopping, memory_order_acquire))
		hf_loop_turn(loop, UINT64_MAX);
	atomic_store(&loop->stopping, false);
}

void hf_loop_stop(struct hf_loop *loop)
{
	atomic_store_explicit(&loop->stopping, true, memory_order_release);
}

void hf_loop_hurry(struct hf_loop *loop)
{
	loop->hurried = true;
}

void hf_loop_wake(struct hf_loop *loop)
{
	loop->env->ops->waiter_wake(loop->waiter);
}

void hf_loop_set_spin(struct hf_loop *loop, uint64_t spin_ns)
{
	if (loop->env->ops->spin_ns != 0)
		loop->spin_ns = spin_ns;
}

void hf_loop_set_slack(struct hf_loop *loop, uint64_t slack_ns)
{
	if (loop->env->ops->waiter_slack != NULL)
		loop->env->ops->waiter_slack(loop->waiter, slack_ns);
}

/* ---- pollers ---- */

static void ring_insert(struct hf_loop *loop, struct hf_poller *poller)
{
	poller->prev = loop->pollers.prev;
	poller->next = &loop->pollers;
	poller->prev->next = poller;
	poller->next->prev = poller;
}

void hf_loop_add_poller(struct hf_loop *loop, struct hf_poller *poller)
{
	ensure(poller->next == NULL);
	ring_insert(loop, poller);
}

void hf_loop_remove_poller(struct hf_loop *loop, struct hf_poller *poller)
{
	if (poller->next == NULL)
		return;
	if (loop->next_poll == poller)
		loop->next_poll = poller->next;
	poller->prev->next = poller->next;
	poller->next->prev = poller->prev;
	poller->next = poller->prev = NULL;
}

/* Calls visit for every poller that is there at the start and is not removed meanwhile, until one answers false. */
static bool each_poller(struct hf_loop *loop, bool (*visit)(struct hf_loop *loop, struct hf_poller *poller))
{
	struct hf_poller end = {0}; /* what is added during the walk comes behind it */
	bool on = true;

	ring_insert(loop, &end);
	for (struct hf_poller *at = loop->pollers.next; on && at != &end; at = loop->next_poll) {
		loop->next_poll = at->next;
		on = visit(loop, at);
	}
	loop->next_poll = NULL;
	hf_loop_remove_poller(loop, &end);
	return on;
}

static bool poll_one(struct hf_loop *loop, struct hf_poller *poller)
{
	if (poller->poll(poller, loop->now_ns) == HF_BUSY)
		loop->busy = true;
	return true;
}

static bool arm_one(struct hf_loop *loop, struct hf_poller *poller)
{
	(void)loop;
	return poller->arm == NULL || poller->arm(poller);
}

/* ---- timers ---- */

void hf_loop_set_timer(struct hf_loop *loop, struct hf_timer *timer, uint64_t due_ns)
{
	timers_set(&loop->timers, timer, due_ns, loop->now_ns);
}

void hf_loop_cancel_timer(struct hf_loop *loop, struct hf_timer *timer)
{
	timers_cancel(&loop->timers, timer);
}

/* ---- readiness ---- */

int hf_loop_watch(struct hf_loop *loop, struct hf_watch *watch, struct hf_io *io, unsigned wanted)
{
	unsigned before = watch->wanted;
	bool fresh = watch->io != io;
	int error;

	ensure(watch->io == NULL || watch->loop == loop);
	ensure(io->watch == NULL || io->watch == watch);
	if (!fresh && before == wanted)
		return 0;
	if (fresh)
		hf_loop_unwatch(watch);
	watch->io = io;
	watch->loop = loop;
	watch->wanted = wanted;
	io->watch = watch;
	error = loop->env->ops->waiter_watch(loop->waiter, watch);
	if (error != 0 && fresh)
		watch->io = NULL, io->watch = NULL;
	if (error != 0)
		watch->wanted = before;
	return error;
}

void hf_loop_unwatch(struct hf_watch *watch)
{
	if (watch->io == NULL)
		return;
	watch->loop->env->ops->waiter_unwatch(watch->loop->waiter, watch);
	watch->io->watch = NULL;
	watch->io = NULL;
}

/* ---- a turn ---- */

static bool spins(const struct hf_loop *loop)
{
	if (loop->spin_ns == UINT64_MAX)
		return true;
	return loop->now_ns >= loop->shared_until_ns && loop->now_ns - loop->busy_at_ns < loop->spin_ns;
}

static void yield(struct hf_loop *loop)
{
	uint64_t since_ns = loop->spin_ns > 0 ? hf_env_now_ns(loop->env) : 0, now_ns;

	env_relax(loop->env);
	if (loop->spin_ns == 0)
		return;
	now_ns = hf_env_now_ns(loop->env);
	if (now_ns - since_ns < LOST_NS)
		return;
	loop->shared_ns = now_ns - loop->shared_until_ns < loop->shared_ns ? 2 * loop->shared_ns : SHARED_NS_MIN;
	if (loop->shared_ns > SHARED_NS_MAX)
		loop->shared_ns = SHARED_NS_MAX;
	loop->shared_until_ns = now_ns + loop->shared_ns;
}

/* How long the loop may sleep; 0 while there is work or may be soon. */
static uint64_t sleep_ns(struct hf_loop *loop, uint64_t max_sleep_ns)
{
	uint64_t due_ns;

	if (max_sleep_ns == 0 || atomic_load_explicit(&loop->stopping, memory_order_relaxed))
		return 0;
	if (loop->busy || loop->again || spins(loop))
		return 0;
	if (!each_poller(loop, arm_one))
		return 0;
	due_ns = timers_next_due(&loop->timers); /* after the arming, which may have set one */
	if (due_ns <= loop->now_ns)
		return 0;
	return due_ns - loop->now_ns < max_sleep_ns ? due_ns - loop->now_ns : max_sleep_ns;
}

/* Whether this turn asks the waiter, which it need not do each time while pollers are spun. */
static bool waiter_is_due(const struct hf_loop *loop, uint64_t wait_ns)
{
	if (loop->hurried && wait_ns == 0 && loop->env->ops->spin_ns != 0)
		return false;
	return wait_ns > 0 || loop->env->ops->spin_ns == 0 || loop->pollers.next == &loop->pollers ||
	       loop->now_ns - loop->io_checked_ns >= IO_CHECK_NS;
}

/* The time of the turn up to here counts, too. */
static void plan_sleep(struct hf_loop *loop, uint64_t wait_ns)
{
	read_clock(loop);
	loop->planned_ns = loop->now_ns + wait_ns < loop->now_ns ? UINT64_MAX : loop->now_ns + wait_ns;
	loop->now_stale = true;
}

/* In the place of the wait at the end of the turn. */
static bool read_after_gap(struct hf_loop *loop)
{
	if (!loop->gapped)
		return false;
	loop->gapped = false;
	if (loop->env->ops->waiter_wait(loop->waiter, 0) > 0)
		loop->busy = true;
	return true;
}

enum hf_poll hf_loop_turn(struct hf_loop *loop, uint64_t max_sleep_ns)
{
	const struct world_ops *ops = loop->env->ops;
	struct timers_fired fired;
	uint64_t wait_ns;
	bool read;

	ensure(!loop->in_turn);
	loop->in_turn = true;
	read_clock(loop);
	loop->busy = loop->hurried = false;
	read = read_after_gap(loop);
	each_poller(loop, poll_one);
	fired = timers_fire(&loop->timers, loop->now_ns);
	if (fired.others > 0)
		loop->busy = true;
	loop->again = fired.quiet > 0;
	wait_ns = read ? 0 : sleep_ns(loop, max_sleep_ns);
	if (!read && waiter_is_due(loop, wait_ns)) {
		loop->io_checked_ns = loop->now_ns;
		if (wait_ns > 0)
			plan_sleep(loop, wait_ns);
		if (ops->waiter_wait(loop->waiter, wait_ns) > 0)
			loop->busy = true;
		else if (!loop->busy && wait_ns == 0)
			yield(loop);
	}
	if (loop->busy)
		loop->busy_at_ns = hf_loop_now_ns(loop);
	loop->in_turn = false;
	return loop->busy ? HF_BUSY : HF_IDLE;
}

uint64_t hf_loop_prepare(struct hf_loop *loop, uint64_t max_sleep_ns)
{
	uint64_t wait_ns;

	ensure(!loop->in_turn);
	loop->in_turn = true;
	read_clock(loop);
	wait_ns = sleep_ns(loop, max_sleep_ns);
	if (wait_ns > 0)
		plan_sleep(loop, wait_ns);
	loop->in_turn = false;
	return wait_ns;
}

void hf_loop_wait(struct hf_loop *loop, uint64_t max_ns)
{
	loop->env->ops->waiter_sleep(loop->waiter, max_ns);
}
