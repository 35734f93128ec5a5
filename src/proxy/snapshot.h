/* snapshot.h - the server's keys as a stream of bytes, by SCAN, DUMP and PEXPIRETIME, and back by RESTORE.
 *
 * While a snapshot is read, entries that are applied wait (proxy->held): the server stands still at the index of the
 * snapshot. A replica that begins to lead gives its snapshot up. stream.h has the bytes. */
#ifndef HOLDFAST_PROXY_SNAPSHOT_H
#define HOLDFAST_PROXY_SNAPSHOT_H

#include "proxy/objects.h"

/* What is being read becomes an error, and entries go on. */
void proxy_snapshot_abort(struct proxy *proxy);
void proxy_snapshot_free(struct proxy *proxy); /* and a restore that is under way */
void proxy_restore_free(struct proxy *proxy);
void proxy_inject_held(struct proxy *proxy);

#endif
