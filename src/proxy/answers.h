/* answers.h - the reply to the latest write of each session, at every replica: a write that is sent again after a
 * change of leader is not executed again, and gets that reply.
 *
 * The log's sessions decide whether a write is executed (hf_smr_session_open); this file keeps replies beside them,
 * within a bound. If a reply was dropped, or is older than a snapshot that was restored here, the client gets an error
 * that states that the write took effect. */
#ifndef HOLDFAST_PROXY_ANSWERS_H
#define HOLDFAST_PROXY_ANSWERS_H

#include "base/list.h"
#include "proxy/server.h"

#define ANSWERS_SESSIONS 4096u       /* as many sessions as the log keeps */
#define ANSWERS_BYTES    (64u << 20) /* of replies; one beyond a 64th of it is not kept */

struct answer {
	struct server_gather gather; /* its `out` is the reply once it is whole */
	struct list order;           /* least recently used first */
	struct list waiters;
	struct answer *next; /* of the same bucket */
	struct answers *answers;
	uint64_t session;
	uint32_t sequence;
	uint64_t place;      /* of its entry in the log */
	bool whole, dropped; /* dropped: the reply is not kept any more */
	bool skipped;        /* the write was executed nowhere */
	bool orphan;         /* its session went on: freed when it is whole */
};

/* Waits for an incomplete answer; removed from its list before told() is called. */
struct answer_waiter {
	struct list node;
	void (*told)(struct answer_waiter *waiter, const struct answer *answer);
};

struct answers {
	struct list order, orphans;
	struct answer *buckets[ANSWERS_SESSIONS];
	unsigned count;
	size_t bytes;
};

void proxy_answers_init(struct answers *answers);
void proxy_answers_free(struct answers *answers);
void proxy_answers_forget(struct answers *answers); /* those that are whole */

/* The reply of this write follows, with this many commands; replaces the session's earlier answer. NULL: no memory. */
struct answer *proxy_answers_begin(struct answers *answers, uint64_t session, uint32_t sequence, unsigned commands);
/* Of those that are not whole, the entries from this place on do not reach the server: they are skipped by all members,
 * or a snapshot contains them, and their replies are lost. */
void proxy_answers_end(struct answers *answers, uint64_t from, bool skipped);
/* NULL: it is not kept. */
struct answer *proxy_answers_find(struct answers *answers, uint64_t session, uint32_t sequence);

#endif
