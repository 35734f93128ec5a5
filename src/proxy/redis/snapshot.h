/* snapshot.h - the keys of a Redis, by SCAN, DUMP and PEXPIRETIME, and back by RESTORE: for the table of protocol.h. */
#ifndef HOLDFAST_PROXY_REDIS_SNAPSHOT_H
#define HOLDFAST_PROXY_REDIS_SNAPSHOT_H

#include "proxy/snapshot.h"

void proxy_redis_snapshot_more(struct proxy_snapshot *snapshot);
bool proxy_redis_restore(struct proxy *proxy, const struct stream_key *key, struct resp_out *command);
bool proxy_redis_restored(const uint8_t *replies, size_t bytes);

#endif
