/* Keys that wait for something: found by their entry in the index, or by the number that peers know a write by. */
#include <errno.h>
#include <stdlib.h>

#include "base/ensure.h"
#include "kv/engine.h"

static struct busy *make(struct hf_kv *kv)
{
	struct busy *busy;

	if (kv->busy_count == kv->busy_room) {
		uint32_t room = kv->busy_room == 0 ? 256 : 2 * kv->busy_room;
		struct busy **all = realloc(kv->busy, room * sizeof(*all));

		if (all == NULL)
			return NULL;
		kv->busy = all;
		kv->busy_room = room;
	}
	busy = calloc(1, sizeof(*busy));
	if (busy == NULL)
		return NULL;
	busy->number = kv->busy_count;
	list_init(&busy->invalid);
	list_init(&busy->waiters);
	list_init(&busy->unsettled);
	list_init(&busy->flight);
	kv->busy[kv->busy_count++] = busy;
	return busy;
}

int kv_busy_open(struct hf_kv *kv)
{
	size_t entries = (size_t)kv->store.mask + 1;

	kv->busy_of = calloc(entries, sizeof(*kv->busy_of));
	kv->busy_bits = calloc(entries / 64 + 1, sizeof(*kv->busy_bits));
	return kv->busy_of == NULL || kv->busy_bits == NULL ? -ENOMEM : 0;
}

static uint64_t *word_of(const struct hf_kv *kv, uint32_t entry)
{
	return &kv->busy_bits[entry / 64];
}

void kv_busy_expect(const struct hf_kv *kv, uint32_t entry)
{
	__builtin_prefetch(word_of(kv, entry));
}

struct busy *kv_busy_find(const struct hf_kv *kv, uint32_t entry)
{
	return (*word_of(kv, entry) >> entry % 64 & 1) == 0 ? NULL : kv->busy[kv->busy_of[entry]];
}

struct busy *kv_busy_get(struct hf_kv *kv, uint32_t entry)
{
	struct busy *busy = kv_busy_find(kv, entry);

	if (busy != NULL)
		return busy;
	if (kv->busy_free != 0) {
		busy = kv->busy[kv->busy_free - 1];
		kv->busy_free = busy->entry;
	} else {
		busy = make(kv);
	}
	if (busy == NULL)
		return NULL;
	busy->used = true;
	busy->entry = entry;
	kv->busy_of[entry] = busy->number;
	*word_of(kv, entry) |= 1ull << entry % 64;
	return busy;
}

struct busy *kv_busy_of_write(const struct hf_kv *kv, uint64_t write)
{
	uint32_t number = (uint32_t)write;
	struct busy *busy = number < kv->busy_count ? kv->busy[number] : NULL;

	if (busy == NULL || !busy->used || busy->write.state == KV_WRITE_NONE || busy_write_number(busy) != write)
		return NULL;
	return busy;
}

void kv_busy_leave(struct hf_kv *kv, struct busy *busy)
{
	if (!busy->used || busy->write.state != KV_WRITE_NONE || !list_empty(&busy->invalid) ||
		!list_empty(&busy->waiters))
		return;
	ensure(busy->used && list_empty(&busy->flight) && busy->inv == NULL && busy->op == NULL);
	ensure(list_empty(&busy->unsettled)); /* a record that is not VALID is busy */
	busy->used = false;
	*word_of(kv, busy->entry) &= ~(1ull << busy->entry % 64);
	busy->entry = kv->busy_free;
	kv->busy_free = busy->number + 1;
}

void kv_busy_reset(struct hf_kv *kv, struct busy *busy)
{
	list_remove(&busy->invalid);
	list_remove(&busy->flight);
	list_remove(&busy->unsettled);
	free(busy->inv);
	busy->inv = NULL;
	busy->op = NULL;
	busy->write = (struct kv_write){0};
	kv_busy_leave(kv, busy);
}

void kv_busy_free_all(struct hf_kv *kv)
{
	for (uint32_t i = 0; i < kv->busy_count; i++) {
		free(kv->busy[i]->inv);
		free(kv->busy[i]);
	}
	free(kv->busy);
	free(kv->busy_of);
	free(kv->busy_bits);
	kv->busy = NULL;
	kv->busy_of = NULL;
	kv->busy_bits = NULL;
	kv->busy_count = 0;
}
