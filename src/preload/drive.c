#include "preload/drive.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <time.h>

#define TAKEOVER_NS     100000u  /* after the last poll of the program */
#define TAKEOVER_MAX_NS 1600000u /* the same, when it has polled for long: a thread that wakes takes a core from it */
#define SLEEP_MAX_NS    1000000000u

static struct {
	pthread_mutex_t lock;
	pthread_once_t once;
	pthread_cond_t called; /* ends a nap */
	_Atomic unsigned queueing;
	struct hf_loop *loop;
	struct hf_thread *thread;
	unsigned users;
	bool stopping;
	_Atomic bool thread_turns; /* the thread has the lock, and will let others have it soon */
	bool asleep;               /* the thread sleeps until the devices have something */
	unsigned waiting;
	uint64_t borrowed_ns;
} drive = {.lock = PTHREAD_MUTEX_INITIALIZER, .once = PTHREAD_ONCE_INIT};

/* ---- the lock ---- */

/* A thread of the program that is cancelled (pthread_cancel(3)) would leave the lock behind: the loop's system calls
 * are points where that happens. */
static _Thread_local int cancel_state;

static bool try_lock(void)
{
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
	if (pthread_mutex_trylock(&drive.lock) == 0)
		return true;
	pthread_setcancelstate(cancel_state, NULL);
	return false;
}

void drive_lock(void)
{
	if (try_lock())
		return;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
	atomic_fetch_add(&drive.queueing, 1);
	pthread_mutex_lock(&drive.lock);
	atomic_fetch_sub(&drive.queueing, 1);
}

void drive_unlock(void)
{
	pthread_mutex_unlock(&drive.lock);
	pthread_setcancelstate(cancel_state, NULL);
}

bool drive_try_lock(void)
{
	if (try_lock())
		return true;
	if (atomic_load_explicit(&drive.thread_turns, memory_order_relaxed)) {
		drive_lock(); /* a program that an event has woken finds its completions at the first poll */
		return true;
	}
	sched_yield();
	return false;
}

/* A mutex is not fair: a thread that takes it again at once would keep others out. */
static void let_others(void)
{
	drive_unlock();
	while (atomic_load_explicit(&drive.queueing, memory_order_relaxed) > 0)
		sched_yield();
	drive_lock();
}

/* ---- the thread ---- */

static void nap(uint64_t until_ns)
{
	struct timespec until = {.tv_sec = (time_t)(until_ns / 1000000000u), .tv_nsec = (long)(until_ns % 1000000000u)};

	(void)pthread_cond_timedwait(&drive.called, &drive.lock, &until);
}

static void sleep_until_ready(uint64_t sleep_ns)
{
	drive.asleep = true;
	drive_unlock();
	hf_loop_wait(drive.loop, sleep_ns);
	drive_lock();
	drive.asleep = false;
}

static void run(struct hf_loop *own, void *context)
{
	struct hf_env *env = hf_loop_env(own);
	uint64_t patience_ns = TAKEOVER_NS;

	(void)context;
	drive_lock();
	while (!drive.stopping) {
		uint64_t sleep_ns;

		if (drive.waiting == 0 && hf_env_now_ns(env) < drive.borrowed_ns + TAKEOVER_NS) {
			nap(drive.borrowed_ns + patience_ns);
			patience_ns = patience_ns * 2 < TAKEOVER_MAX_NS ? patience_ns * 2 : TAKEOVER_MAX_NS;
			continue;
		}
		patience_ns = TAKEOVER_NS;
		atomic_store_explicit(&drive.thread_turns, true, memory_order_relaxed);
		(void)hf_loop_turn(drive.loop, 0);
		sleep_ns = hf_loop_prepare(drive.loop, SLEEP_MAX_NS);
		atomic_store_explicit(&drive.thread_turns, false, memory_order_relaxed);
		if (sleep_ns > 0)
			sleep_until_ready(sleep_ns);
		else
			let_others();
	}
	drive_unlock();
}

static void init_once(void)
{
	pthread_condattr_t attr;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC); /* that of hf_env_now_ns */
	pthread_cond_init(&drive.called, &attr);
	pthread_condattr_destroy(&attr);
}

int drive_open(void)
{
	int rc;

	if (drive.users++ > 0)
		return 0;
	pthread_once(&drive.once, init_once);
	drive.stopping = false;
	rc = hf_loop_create(hf_env_host(), &drive.loop);
	if (rc == 0)
		rc = hf_thread_start(hf_env_host(), "holdfast", HF_THREAD_HELPER, run, NULL, &drive.thread);
	if (rc != 0) {
		hf_loop_destroy(drive.loop);
		drive.loop = NULL;
		drive.users--;
	}
	return rc;
}

void drive_close(void)
{
	if (--drive.users > 0)
		return;
	drive_lock();
	drive.stopping = true;
	pthread_cond_signal(&drive.called);
	drive_unlock();
	hf_loop_wake(drive.loop);
	hf_thread_stop(drive.thread);
	hf_loop_destroy(drive.loop);
	drive.loop = NULL;
}

struct hf_loop *drive_loop(void)
{
	return drive.loop;
}

/* ---- the program's threads ---- */

void drive_turn(void)
{
	(void)hf_loop_turn(drive.loop, 0);
	drive.borrowed_ns = hf_loop_now_ns(drive.loop);
	drive_again();
}

void drive_again(void)
{
	if (!drive.asleep)
		return;
	drive.asleep = false;
	hf_loop_wake(drive.loop);
}

void drive_wait_begin(void)
{
	drive_lock();
	drive.waiting++;
	pthread_cond_signal(&drive.called);
	drive_unlock();
}

void drive_wait_end(void *nothing)
{
	(void)nothing;
	drive_lock();
	drive.waiting--;
	drive_unlock();
}
