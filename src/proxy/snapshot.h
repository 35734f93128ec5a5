/* snapshot.h - the server's keys as a stream of bytes, and back. How a server lists and stores its keys is the
 * protocol's (redis/, memcached/).
 *
 * While a snapshot is read, applied entries wait (proxy->held): the server stays at the index of the
 * snapshot. Afterwards the server gets them in portions, and later entries wait behind them. A replica that begins to
 * lead abandons its snapshot. stream.h has the format. */
#ifndef HOLDFAST_PROXY_SNAPSHOT_H
#define HOLDFAST_PROXY_SNAPSHOT_H

#include "proxy/objects.h"
#include "proxy/stream.h"

/* One at a time: protocol->snapshot_more requests some keys and puts them into `out`, then that is read. */
struct proxy_snapshot {
	struct proxy *proxy;
	bool asked; /* a question is at the server */
	bool last;  /* snapshot_more has come to the last key */
	bool ended; /* the end of the stream is in `out` */
	bool gone;  /* closed while a question was at the server */
	int failed;
	struct resp_out out; /* of the stream */
	size_t read;         /* of out */
	uint32_t keys;
	struct resp_out tail; /* entries that the server did not have when the snapshot began */
	uint32_t entries;     /* of tail */
	/* snapshot_more's */
	struct server_gather found, values;
	struct resp_out cursor;
	size_t place;
};

/* An answer is there. False: the snapshot is over and freed. */
bool proxy_snapshot_answered(struct proxy_snapshot *snapshot);
void proxy_snapshot_fail(struct proxy_snapshot *snapshot, int rc);

/* What is being read becomes an error, and entries go on. */
void proxy_snapshot_abort(struct proxy *proxy);
void proxy_snapshot_free(struct proxy *proxy); /* and a restore that is under way */
void proxy_restore_free(struct proxy *proxy);

#endif
