/* deadlines.h - keys with a deadline, one each, and the first deadline. No clock.
 *
 * Servers never expire a key by themselves (their deadlines lie beyond any clock): the leader proposes entries that
 * delete due keys. Every replica keeps the list, from its own server's replies, since any may lead. */
#ifndef HOLDFAST_PROXY_DEADLINES_H
#define HOLDFAST_PROXY_DEADLINES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A key that is listed for its `unique` alone: with memcached every key is. */
#define DEADLINE_NEVER INT64_MAX

struct deadline {
	struct deadline *next; /* of the same bucket */
	int64_t ms;            /* DEADLINE_NEVER: none */
	uint64_t unique;       /* the owner's */
	size_t place;          /* in the heap */
	uint32_t hash, bytes;
	uint8_t key[];
};

struct deadlines { /* zeroed but for the seed: empty */
	uint32_t seed;
	struct deadline **buckets, **heap;
	size_t bucket_count, count, room;
};

/* -ENOMEM: the list is as it was. */
int proxy_deadlines_set(struct deadlines *deadlines, const uint8_t *key, size_t bytes, int64_t ms);
void proxy_deadlines_drop(struct deadlines *deadlines, const uint8_t *key, size_t bytes); /* unknown: nothing happens */
/* NULL: the key is not listed. */
struct deadline *proxy_deadlines_get(const struct deadlines *deadlines, const uint8_t *key, size_t bytes);
/* The earliest; NULL: there is none. */
const struct deadline *proxy_deadlines_first(const struct deadlines *deadlines);
/* Puts the earliest n, or fewer, that are due at `ms` into the array, and returns how many; they stay in the list. */
size_t proxy_deadlines_due(const struct deadlines *deadlines, int64_t ms, const struct deadline **out, size_t n);
void proxy_deadlines_free(struct deadlines *deadlines);

#endif
