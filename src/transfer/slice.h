/* slice.h - a job cut into slices, for transports that send it piece by piece.
 *
 * Each slice is in one of three places: in the job's `unsent` list, out (in flight at the transport), or done. A slice
 * that is handed back is unsent again. The job is over, and freed, when none is out and none will be sent; `drained` is
 * its last event (X1). Owned by the engine's loop. */
#ifndef HOLDFAST_TRANSFER_SLICE_H
#define HOLDFAST_TRANSFER_SLICE_H

#include "base/list.h"
#include "transfer/transport.h"

#define SLICES_MAX        64u        /* of a job, unless they would be too long; one more for each hole */
#define SLICE_BYTES_GROWN (1u << 24) /* instead of more slices: at 2 MB/s this takes less than max_timeout_ns */
#define SLICE_BYTES_MAX   (1u << 30) /* of one wr, or one header of tcp; of a configured block */
#define BLOCK_BYTES_MIN   4096u      /* of the slices of any transport, but the last of a hole */

struct slice_job;

struct slice {
	struct list link; /* in the job's unsent list; the transport's while it is out */
	struct slice_job *job;
	struct range range;  /* of the request */
	unsigned retries;    /* lanes that ended under it for a reason of the path */
	uint64_t key;        /* of the registration at the peer that it was sent to */
	uint32_t generation; /* of the segment then */
	bool refreshed;      /* sent again after a refused key */
	bool confirms;       /* a READ follows it on its lane; `written` is how the WRITE itself ended */
	int written;
	uint64_t sent_ns;
};

struct slice_job {
	struct list link; /* in the queue, while a slice is unsent */
	struct list *queue;
	struct transport_job *above;
	struct list unsent;
	unsigned out;
	bool ending; /* given up, failed or withdrawn: nothing is sent any more */
	uint64_t begun_ns;
	struct slice slices[];
};

/* The largest number of slices of `block` bytes or more in a job of this many bytes and holes. */
unsigned slice_count_most(uint64_t length, unsigned holes, uint64_t block);

/* Cuts what is not done of `above` into slices of `block` bytes or more; puts it at the end of
 * `queue`. NULL: no memory. */
struct slice_job *slice_job_new(struct transport_job *above, struct list *queue, uint64_t block, uint64_t now_ns);

/* The next slice of a job in a queue, which is out from now. The job goes to the end of the queue, if it has more. */
struct slice *slice_job_take(struct slice_job *job);

/* A slice that was out: its bytes are in place; or they are not, and nothing of them will arrive. Both may end the job
 * and free it. */
void slice_done(struct slice *slice);
void slice_back(struct slice *slice);

/* A hold on the job, as if one more slice were out: the job stays until its release. */
void slice_job_hold(struct slice_job *job);
void slice_job_release(struct slice_job *job);

/* Whether a slice with a refused key is to be sent again: once, when the segment has changed since (R-T10). */
bool slice_refreshes(struct slice *slice);

/* Ends of the job. Each may free it, when no slice is out. */
void slice_job_withdraw(struct slice_job *job);
void slice_job_give_up(struct slice_job *job);
void slice_job_fail(struct slice_job *job); /* a reason of the program */

/* Nothing has carried the jobs of a queue since stranded_ns: those that may move to another transport are given up, and
 * those that have waited for `patience_ns` (T4). */
void slice_jobs_give_up_stranded(struct list *jobs, uint64_t stranded_ns, uint64_t patience_ns, uint64_t now_ns);

#endif
