/* inspector.h - looks into record batches that clients send or search, without making the loop wait (R-B42).
 *
 *   the loop       as long as no more than 64 KiB come out of the batches of one request
 *   fast threads   16 MiB of one request at a time, then the next request
 *   a slow thread  one batch that alone is larger, up to BATCH_CONTENTS_MOST
 *
 * What does not fit is begun again at the next place. So a client whose batches unpack to very much waits for others of
 * its kind, and nobody else does; and no more is unpacked at a time than there are threads.
 *
 * Owned by the broker's loop. */
#ifndef HOLDFAST_BROKER_INSPECTOR_H
#define HOLDFAST_BROKER_INSPECTOR_H

#include <holdfast/work.h>

struct inspector {
	struct hf_loop *loop;
	struct hf_workers *fast, *slow; /* NULL: none was needed yet */
};

/* The caller's, usually within a larger struct; the inspector's from inspector_begin until done() or drop(). */
struct inspection {
	uint32_t count, next; /* batches; those before `next` were looked into */
	/* Looks into one; on any thread, one after another. The bytes that came out, or -1: more than `most`. */
	int64_t (*look)(struct inspection *inspection, uint32_t index, size_t most);
	void (*done)(struct inspection *inspection); /* on the loop: all were looked into */
	void (*drop)(struct inspection *inspection); /* in its place, once it was abandoned: nothing reads any more */
	struct inspector *inspector;                 /* this and the members below: the inspector's */
	struct hf_work work;
	uint32_t begun;
	bool slow, abandoned;
};

void inspector_open(struct inspector *inspector, struct hf_loop *loop);
void inspector_close(struct inspector *inspector); /* after all inspections were done or abandoned; calls drop() */

/* `packed`: the bytes of the batches. true: all were looked into, and it is the caller's again. false: done()
 * follows. */
bool inspector_begin(struct inspector *inspector, struct inspection *inspection, size_t packed);
/* drop() follows, or was called within, in place of done(). Until then the bytes of the batches stay. */
void inspector_abandon(struct inspection *inspection);

#endif
