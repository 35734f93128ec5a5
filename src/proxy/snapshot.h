/* snapshot.h - the server's keys as a stream of bytes, by SCAN, DUMP and PEXPIRETIME, and back by RESTORE.
 *
 * While a snapshot is read, entries that are applied wait (proxy->held): the server stands still at the index of the
 * snapshot. A replica that begins to lead gives its snapshot up.
 *
 * The stream, little-endian: u32 magic, then for each key
 *    0 u32 key_bytes, not all ones   4 u32 value_bytes   8 i64 deadline, shifted; -1: none   16 key, value of DUMP
 * and at its end u32 0xffffffff, u32 keys. */
#ifndef HOLDFAST_PROXY_SNAPSHOT_H
#define HOLDFAST_PROXY_SNAPSHOT_H

#include "proxy/objects.h"

#define SNAPSHOT_MAGIC      0x31534648u
#define SNAPSHOT_END        0xffffffffu
#define SNAPSHOT_HEAD_BYTES 16u

/* What is being read becomes an error, and entries go on. */
void proxy_snapshot_abort(struct proxy *proxy);
void proxy_snapshot_free(struct proxy *proxy); /* and a restore that is under way */
void proxy_restore_free(struct proxy *proxy);
void proxy_inject_held(struct proxy *proxy);

#endif
