#include "proxy/deadlines.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"

#define ROOM_LEAST 64u

static uint32_t hash_key(const struct deadlines *deadlines, const uint8_t *key, size_t bytes)
{
	uint32_t hash = deadlines->seed ^ 2166136261u;

	for (size_t i = 0; i < bytes; i++)
		hash = (hash ^ key[i]) * 16777619u;
	return hash ^ hash >> 15;
}

static struct deadline **find(const struct deadlines *deadlines, uint32_t hash, const uint8_t *key, size_t bytes)
{
	struct deadline **at = &deadlines->buckets[hash & (deadlines->bucket_count - 1)];

	while (*at != NULL && ((*at)->hash != hash || (*at)->bytes != bytes || memcmp((*at)->key, key, bytes) != 0))
		at = &(*at)->next;
	return at;
}

/* ---- the heap ---- */

static void put(struct deadlines *deadlines, size_t place, struct deadline *deadline)
{
	deadlines->heap[place] = deadline;
	deadline->place = place;
}

static void settle(struct deadlines *deadlines, struct deadline *deadline, size_t place)
{
	while (place > 0 && deadlines->heap[(place - 1) / 2]->ms > deadline->ms) {
		put(deadlines, place, deadlines->heap[(place - 1) / 2]);
		place = (place - 1) / 2;
	}
	for (;;) {
		size_t child = 2 * place + 1;

		if (child + 1 < deadlines->count && deadlines->heap[child + 1]->ms < deadlines->heap[child]->ms)
			child++;
		if (child >= deadlines->count || deadlines->heap[child]->ms >= deadline->ms)
			break;
		put(deadlines, place, deadlines->heap[child]);
		place = child;
	}
	put(deadlines, place, deadline);
}

/* ---- the list ---- */

static int grow(struct deadlines *deadlines)
{
	size_t room = deadlines->room == 0 ? ROOM_LEAST : deadlines->room * 2;
	struct deadline **heap = realloc(deadlines->heap, room * sizeof(struct deadline *)), **buckets;

	if (heap == NULL)
		return -ENOMEM;
	deadlines->heap = heap;
	buckets = calloc(room, sizeof(struct deadline *));
	if (buckets == NULL)
		return -ENOMEM;
	for (size_t i = 0; i < deadlines->count; i++) {
		struct deadline **bucket = &buckets[heap[i]->hash & (room - 1)];

		heap[i]->next = *bucket;
		*bucket = heap[i];
	}
	free(deadlines->buckets);
	deadlines->buckets = buckets;
	deadlines->bucket_count = deadlines->room = room;
	return 0;
}

int proxy_deadlines_set(struct deadlines *deadlines, const uint8_t *key, size_t bytes, int64_t ms)
{
	uint32_t hash = hash_key(deadlines, key, bytes);
	struct deadline *deadline;
	int rc;

	if (deadlines->count == deadlines->room) {
		rc = grow(deadlines);
		if (rc != 0)
			return rc;
	}
	deadline = *find(deadlines, hash, key, bytes);
	if (deadline == NULL) {
		struct deadline **bucket = &deadlines->buckets[hash & (deadlines->bucket_count - 1)];

		deadline = malloc(sizeof(*deadline) + bytes);
		if (deadline == NULL)
			return -ENOMEM;
		*deadline = (struct deadline){
			.next = *bucket, .hash = hash, .bytes = (uint32_t)bytes, .place = deadlines->count++};
		memcpy(deadline->key, key, bytes);
		*bucket = deadline;
	}
	deadline->ms = ms;
	settle(deadlines, deadline, deadline->place);
	return 0;
}

void proxy_deadlines_drop(struct deadlines *deadlines, const uint8_t *key, size_t bytes)
{
	struct deadline **at, *deadline, *last;

	if (deadlines->count == 0)
		return;
	at = find(deadlines, hash_key(deadlines, key, bytes), key, bytes);
	deadline = *at;
	if (deadline == NULL)
		return;
	*at = deadline->next;
	last = deadlines->heap[--deadlines->count];
	if (last != deadline)
		settle(deadlines, last, deadline->place);
	free(deadline);
}

struct deadline *proxy_deadlines_get(const struct deadlines *deadlines, const uint8_t *key, size_t bytes)
{
	return deadlines->count == 0 ? NULL : *find(deadlines, hash_key(deadlines, key, bytes), key, bytes);
}

const struct deadline *proxy_deadlines_first(const struct deadlines *deadlines)
{
	return deadlines->count == 0 || deadlines->heap[0]->ms == DEADLINE_NEVER ? NULL : deadlines->heap[0];
}

/* Parents stand before their children, so a walk in the order of the array meets every due one below due ones only. */
size_t proxy_deadlines_due(const struct deadlines *deadlines, int64_t ms, const struct deadline **out, size_t n)
{
	size_t found = 0, looked = 0;

	if (deadlines->count == 0 || n == 0 || deadlines->heap[0]->ms > ms)
		return 0;
	out[found++] = deadlines->heap[0];
	while (looked < found && found < n) {
		size_t child = 2 * out[looked++]->place + 1;

		for (unsigned k = 0; k < 2 && found < n; k++)
			if (child + k < deadlines->count && deadlines->heap[child + k]->ms <= ms)
				out[found++] = deadlines->heap[child + k];
	}
	return found;
}

void proxy_deadlines_free(struct deadlines *deadlines)
{
	for (size_t i = 0; i < deadlines->count; i++)
		free(deadlines->heap[i]);
	free(deadlines->heap);
	free(deadlines->buckets);
	*deadlines = (struct deadlines){.seed = deadlines->seed};
}
