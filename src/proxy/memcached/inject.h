/* inject.h - memcached's writes: the record in an entry, and its execution at every replica.
 *
 * A record is an array of bulk strings, in which times are moments (milliseconds as deadlines.h has them, 0: none, -1:
 * over at once):
 *   set|add|replace|append|prepend key flags deadline data      cas key flags deadline unique data
 *   incr|decr key delta      touch key deadline      delete key      flush_all deadline      gat|gats deadline key...
 *   due key deadline         a key, or with an empty one a flush_all, whose time is over
 *
 * The proxy has a list of all keys of its server (proxy->deadlines) with their uniques, which are the places in the log
 * of their last changes, and their deadlines. So conditions are evaluated here, alike at every replica, and the server
 * gets only the resulting set, append, incr or delete. An incr, append or prepend that the server refuses still gives
 * the key a new unique, because the server's reply arrives after the next record is evaluated. */
#ifndef HOLDFAST_PROXY_MEMCACHED_INJECT_H
#define HOLDFAST_PROXY_MEMCACHED_INJECT_H

#include "proxy/objects.h"

size_t proxy_memcached_bytes(const struct command *command, const struct command_args *request);
void proxy_memcached_rewrite(
	const struct command *command, const struct command_args *request, uint64_t now_ms, struct resp_out *entry);
void proxy_memcached_rewrite_due(struct resp_out *entry, const uint8_t *key, size_t key_bytes, int64_t shifted_ms);
void proxy_memcached_inject(struct proxy *proxy, const struct entry_record *record, uint64_t time_ms, uint64_t unique,
	struct server_gather *gather);

/* get, gets: appends the line for the server, and sends it. */
void proxy_memcached_ask_keys(struct proxy *proxy, const struct command_args *request, unsigned first, bool uniques,
	enum entry_reply reply, struct server_gather *gather);
/* "set key flags 0 bytes", and the data. */
void proxy_memcached_put_set(struct resp_out *out, const char *verb, const uint8_t *key, size_t key_bytes,
	const uint8_t *flags, size_t flags_bytes, const uint8_t *data, size_t data_bytes);

#endif
