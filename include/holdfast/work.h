/* work.h - calls that block, run by helper threads, with a completion on a loop.
 *
 * For calls that wait for a disk or the kernel: hf_file_sync, hf_mem_alloc, hf_mem_map_file, hf_mem_populate,
 * hf_mem_flush and others, which any thread may call. Workers belong to one loop, on whose thread all functions
 * here are called; only hf_workers_close and hf_work_wait block. Threads and works are bounded. */
#ifndef HOLDFAST_WORK_H
#define HOLDFAST_WORK_H

#include <holdfast/loop.h>

struct hf_workers; /* the helper threads of a loop and their queue */

#define HF_WORKERS_THREADS_MAX 64u

/* The caller's, usually within a larger struct; it belongs to the workers from hf_work_submit until done(). */
struct hf_work {
	/* On a helper thread; may block. The result, 0 or -errno by custom, is for done(). */
	int (*run)(struct hf_work *work);
	/* On the loop's thread, once: after run() with its result, or with -ECANCELED when hf_workers_close found it
	 * waiting. May submit, cancel and free works, this one too; must not close the workers. */
	void (*done)(struct hf_work *work, int result);
	struct hf_work *next; /* this and the members below: the workers' */
	int result;
	bool waiting;
};

/* Starts `threads` threads (1 to HF_WORKERS_THREADS_MAX) with this name. At most works_max (at least 1) works are
 * submitted and not done at a time. -EINVAL for other numbers; -EAGAIN, -EMFILE, -ENOMEM when the system lacks
 * threads, descriptors or memory. */
int hf_workers_open(struct hf_loop *loop, const char *name, unsigned threads, unsigned works_max,
	struct hf_workers **workers_out, struct hf_error *error);
/* Blocks until every work that was begun has ended, and calls done() of all remaining works. Call it before the loop is
 * destroyed. NULL is legal. */
void hf_workers_close(struct hf_workers *workers);

/* Works begin in the order of their submission; with one thread they also end in it. -EAGAIN when works_max are
 * not done yet: the work stays the caller's. */
int hf_work_submit(struct hf_workers *workers, struct hf_work *work);
/* True: it had not begun and is the caller's again; neither run() nor done() is called. False: done() follows, or was
 * called already. */
bool hf_work_cancel(struct hf_workers *workers, struct hf_work *work);
/* Blocks until a submitted work has run, whose done() has not been called, and returns its result in place of done().
 * A work that had not begun runs here. For opening and closing, and for what cannot go on without it. */
int hf_work_wait(struct hf_workers *workers, struct hf_work *work);

#endif
