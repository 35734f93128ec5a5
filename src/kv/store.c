#include "kv/store.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/crc.h"
#include "base/ensure.h"
#include "base/list.h"

#define UNIT            64u /* classes: 2, 3, 4, 6, 8, 12, 16, ... units */
#define BYTES_PER_ENTRY 128u
#define ENTRIES_MIN     1024u
#define PIECE_BITS      22u
#define PIECE_BYTES     ((size_t)1 << PIECE_BITS)
#define AHEAD_SHARE     4u
#define LEAST_SHARE     8u  /* of the bytes is ahead of what is used, at least */
#define FETCHED_LINES   3u  /* of a record */
#define KEPT_SHARE      16u /* of the bytes is not given to tombstones */
#define OFFSET_BITS     48
#define OFFSET_MASK     ((1ull << OFFSET_BITS) - 1)
#define GRAVE           OFFSET_MASK /* of the index: a record was removed here */

static size_t class_bytes(unsigned class)
{
	return (size_t)(class % 2 == 0 ? 2 : 3) * UNIT << class / 2;
}

static unsigned class_of(size_t bytes)
{
	unsigned class = 0;

	while (class_bytes(class) < bytes)
		class ++;
	ensure(class < STORE_CLASSES);
	return class;
}

static size_t record_bytes(uint32_t key_bytes, uint32_t value_bytes)
{
	return sizeof(struct record) + key_bytes + value_bytes;
}

static uint64_t mix(uint64_t hash, uint64_t word)
{
	hash = (hash ^ word) * 0xbf58476d1ce4e5b9ull;
	return hash ^ hash >> 29;
}

/* Every operation needs it, some more than once. */
static uint64_t hash_of(const void *key, uint32_t bytes)
{
	const uint8_t *at = key;
	uint64_t hash = mix(0x9e3779b97f4a7c15ull, bytes);
	uint8_t rest[8] = {0};

	for (; bytes >= sizeof(rest); bytes -= (uint32_t)sizeof(rest), at += sizeof(rest))
		hash = mix(hash, get_le64(at));
	memcpy(rest, at, bytes);
	hash = mix(hash, get_le64(rest));
	return hash ^ hash >> 32;
}

/* ---- memory ---- */

static int piece_run(struct hf_work *work)
{
	struct store_piece *piece = container_of(work, struct store_piece, work);

	return hf_mem_alloc(piece->store->env, piece->bytes, &piece->memory, NULL);
}

static void add_piece(struct store *store, void *memory, size_t bytes)
{
	store->pieces[store->made >> PIECE_BITS] = memory;
	store->made += bytes;
}

/* The oldest that was being made: one thread ends them in their order. */
static void piece_done(struct hf_work *work, int rc)
{
	struct store_piece *piece = container_of(work, struct store_piece, work);
	struct store *store = piece->store;

	ensure(piece == &store->making[store->making_first]);
	store->making_first = (store->making_first + 1) % STORE_COMING;
	store->making_count--;
	store->coming -= piece->bytes;
	if (rc == 0)
		add_piece(store, piece->memory, piece->bytes);
	else
		store->refused = store->used;
}

static size_t next_bytes(const struct store *store)
{
	size_t left = store->bytes - store->made - store->coming;

	return left < PIECE_BYTES ? left : PIECE_BYTES;
}

static void begin_piece(struct store *store)
{
	struct store_piece *piece = &store->making[(store->making_first + store->making_count) % STORE_COMING];

	*piece = (struct store_piece){
		.work = {.run = piece_run, .done = piece_done}, .store = store, .bytes = next_bytes(store)};
	ensure(hf_work_submit(store->workers, &piece->work) == 0);
	store->coming += piece->bytes;
	store->making_count++;
}

/* The next piece is there when this returns. */
static int make_piece(struct store *store, struct hf_error *error)
{
	size_t bytes = next_bytes(store);
	void *memory;
	int rc;

	if (store->making_count > 0) {
		struct hf_work *work = &store->making[store->making_first].work;

		rc = hf_work_wait(store->workers, work);
		piece_done(work, rc);
		return rc == 0 ? 0 : hf_error_set(error, rc, "no memory for the records of a store");
	}
	rc = hf_mem_alloc(store->env, bytes, &memory, error);
	if (rc == 0)
		add_piece(store, memory, bytes);
	return rc;
}

static bool is_short_of(const struct store *store, size_t bytes)
{
	return store->made + store->coming < store->bytes && store->made + store->coming - store->used < bytes;
}

bool kv_store_grow(struct store *store)
{
	bool is_last = next_bytes(store) < PIECE_BYTES; /* and shorter: another one must not lie where it ends */

	if (!is_short_of(store, store->bytes / AHEAD_SHARE) || store->used == store->refused ||
		store->making_count == STORE_COMING || (is_last && store->coming > 0))
		return false;
	if (store->workers != NULL)
		begin_piece(store);
	else if (make_piece(store, NULL) != 0)
		store->refused = store->used;
	return store->used != store->refused;
}

/* What is to be there at once: the rest comes by and by. */
static int make_ahead(struct store *store, struct hf_error *error)
{
	size_t least = store->workers == NULL ? store->bytes / LEAST_SHARE : PIECE_BYTES;
	int rc = 0;

	while (store->workers != NULL && is_short_of(store, store->bytes / LEAST_SHARE) && kv_store_grow(store))
		continue;
	while (rc == 0 && store->made < store->bytes && store->made - store->used < least)
		rc = make_piece(store, error);
	return rc;
}

/* ---- opening ---- */

int kv_store_open(struct store *store, struct hf_env *env, struct hf_loop *loop, size_t bytes, struct hf_error *error)
{
	uint32_t entries = ENTRIES_MIN;
	void *index;
	int rc = 0;

	while (entries < bytes / BYTES_PER_ENTRY && entries < 1u << 31)
		entries *= 2;
	*store = (struct store){.env = env, .bytes = bytes, .mask = entries - 1, .refused = SIZE_MAX};
	store->pieces = calloc(bytes / PIECE_BYTES + 1, sizeof(*store->pieces));
	store->uses = calloc(bytes / PIECE_BYTES + 1, sizeof(*store->uses));
	if (store->pieces == NULL || store->uses == NULL) {
		kv_store_close(store);
		return hf_error_set(error, -ENOMEM, "no memory for a store");
	}
	if (loop != NULL)
		rc = hf_workers_open(loop, "kv-store", 1, STORE_COMING, &store->workers, error);
	if (rc == 0 && loop != NULL)
		begin_piece(store);
	if (rc == 0)
		rc = hf_mem_alloc(env, entries * sizeof(*store->index), &index, error);
	if (rc == 0) {
		store->index = index;
		rc = make_ahead(store, error);
	}
	if (rc != 0)
		kv_store_close(store);
	return rc;
}

int kv_store_keep_order(struct store *store, struct hf_error *error)
{
	int rc = kv_ordered_index_open(&store->ordered, store->mask + 1);

	return rc == 0 ? 0 : hf_error_set(error, rc, "no memory for the ordered index of a store");
}

void kv_store_close(struct store *store)
{
	if (store->env == NULL)
		return;
	hf_workers_close(store->workers);
	for (size_t at = 0; at < store->made; at += PIECE_BYTES)
		hf_mem_free(store->env, store->pieces[at >> PIECE_BITS]);
	free(store->pieces);
	free(store->uses);
	kv_ordered_index_close(&store->ordered);
	if (store->index != NULL)
		hf_mem_free(store->env, store->index);
	*store = (struct store){0};
}

void kv_store_clear(struct store *store)
{
	if (store->used == 0 && store->graves == 0)
		return; /* its pages may never have been touched */
	memset(store->index, 0, ((size_t)store->mask + 1) * sizeof(*store->index));
	for (size_t at = 0; at < store->used; at += PIECE_BYTES)
		memset(store->pieces[at >> PIECE_BITS], 0,
			store->used - at < PIECE_BYTES ? store->used - at : PIECE_BYTES);
	memset(store->free, 0, sizeof(store->free));
	memset(store->uses, 0, (store->bytes / PIECE_BYTES + 1) * sizeof(*store->uses));
	kv_ordered_index_clear(&store->ordered);
	store->used = store->spare = store->again = store->again_end = 0;
	store->emptied = 0;
	store->records = store->tombstones = store->graves = 0;
}

/* ---- the index ---- */

static struct record *record_at(const struct store *store, uint64_t offset)
{
	return (struct record *)(void *)(store->pieces[offset >> PIECE_BITS] + (offset & (PIECE_BYTES - 1)));
}

static bool is_free(uint64_t entry)
{
	return entry == 0 || entry == GRAVE;
}

struct record *kv_store_look(const struct store *store, uint64_t entry)
{
	return is_free(store->index[entry]) ? NULL : record_at(store, (store->index[entry] & OFFSET_MASK) - 1);
}

struct record *kv_store_at(const struct store *store, uint32_t entry)
{
	ensure(entry <= store->mask && !is_free(store->index[entry]));
	return record_at(store, (store->index[entry] & OFFSET_MASK) - 1);
}

/* The entry of the key, or the free one where it belongs. */
static uint32_t probe(const struct store *store, const void *key, uint32_t key_bytes, uint64_t hash)
{
	uint32_t grave = STORE_NO_ENTRY;

	for (uint32_t at = (uint32_t)hash;; at++) {
		uint64_t entry = store->index[at & store->mask];
		const struct record *record;

		if (entry == 0)
			return grave != STORE_NO_ENTRY ? grave : at & store->mask;
		if (entry == GRAVE && grave == STORE_NO_ENTRY)
			grave = at & store->mask;
		if (entry == GRAVE || entry >> OFFSET_BITS != hash >> OFFSET_BITS)
			continue;
		record = record_at(store, (entry & OFFSET_MASK) - 1);
		if (record->key_bytes == key_bytes && memcmp(record->key, key, key_bytes) == 0)
			return at & store->mask;
	}
}

uint32_t kv_store_find(const struct store *store, const void *key, uint32_t key_bytes)
{
	uint32_t at = probe(store, key, key_bytes, hash_of(key, key_bytes));

	return is_free(store->index[at]) ? STORE_NO_ENTRY : at;
}

/* ---- what is needed soon ---- */

void kv_store_expect_entry(const struct store *store, uint32_t entry)
{
	__builtin_prefetch(&store->index[entry]);
}

uint32_t kv_store_expect(const struct store *store, const void *key, uint32_t key_bytes)
{
	uint32_t entry = (uint32_t)hash_of(key, key_bytes) & store->mask;

	kv_store_expect_entry(store, entry);
	return entry;
}

void kv_store_fetch(const struct store *store, uint32_t entry)
{
	const uint8_t *record = (const uint8_t *)kv_store_look(store, entry);

	for (unsigned i = 0; record != NULL && i < FETCHED_LINES; i++)
		__builtin_prefetch(record + (size_t)i * UNIT, 1);
}

/* ---- slots ---- */

/* Free ones are linked by what a record has in `version`, the next one, and `log_position`, the one before: offset + 1.
 */
static void free_push(struct store *store, uint64_t offset)
{
	struct record *record = record_at(store, offset);
	uint64_t *first = &store->free[record->slot_class];

	record->version = *first;
	record->log_position = 0;
	if (*first != 0)
		record_at(store, *first - 1)->log_position = offset + 1;
	*first = offset + 1;
}

static void free_remove(struct store *store, uint64_t offset)
{
	const struct record *record = record_at(store, offset);

	if (record->version != 0)
		record_at(store, record->version - 1)->log_position = record->log_position;
	if (record->log_position != 0)
		record_at(store, record->log_position - 1)->version = record->version;
	else
		store->free[record->slot_class] = record->version;
}

static size_t piece_bytes(const struct store *store, uint64_t start)
{
	return store->bytes - start < PIECE_BYTES ? store->bytes - start : PIECE_BYTES;
}

/* No slot of it has a record: all are free, of whatever class. */
static void empty_piece(struct store *store, uint64_t start)
{
	struct store_use *use = &store->uses[start >> PIECE_BITS];

	for (uint64_t at = start; at < start + use->end; at += class_bytes(record_at(store, at)->slot_class))
		free_remove(store, at);
	use->end = 0;
	if (store->used - start < PIECE_BYTES) {
		store->used = start; /* it was given out last */
		return;
	}
	if (store->again - start < PIECE_BYTES && store->again < store->again_end) {
		store->spare -= store->again_end - store->again;
		store->again = store->again_end = 0;
	}
	store->spare += piece_bytes(store, start);
	use->next = store->emptied;
	store->emptied = (uint32_t)(start >> PIECE_BITS) + 1;
}

/* Of a piece that is given out anew; UINT64_MAX: there is none. */
static uint64_t divide_again(struct store *store, size_t bytes)
{
	uint64_t offset;

	if (store->again_end - store->again < bytes && store->emptied != 0) {
		uint32_t number = store->emptied - 1;

		store->spare -= store->again_end - store->again;
		store->emptied = store->uses[number].next;
		store->again = (size_t)number << PIECE_BITS;
		store->again_end = store->again + piece_bytes(store, store->again);
	}
	if (store->again_end - store->again < bytes)
		return UINT64_MAX;
	offset = store->again;
	store->again += bytes;
	store->spare -= bytes;
	return offset;
}

/* UINT64_MAX: none is left. */
static uint64_t divide(struct store *store, size_t bytes)
{
	uint64_t offset = divide_again(store, bytes);

	if (offset != UINT64_MAX)
		return offset;
	offset = store->used;
	if ((offset & (PIECE_BYTES - 1)) + bytes > PIECE_BYTES)
		offset = (offset + PIECE_BYTES - 1) & ~(uint64_t)(PIECE_BYTES - 1);
	if (offset + bytes > store->made)
		return UINT64_MAX;
	store->used = offset + bytes;
	return offset;
}

/* UINT64_MAX: none is left. */
static uint64_t slot_take(struct store *store, unsigned class)
{
	uint64_t offset;

	if (store->free[class] != 0) {
		offset = store->free[class] - 1;
		free_remove(store, offset);
	} else {
		offset = divide(store, class_bytes(class));
		if (offset == UINT64_MAX)
			return UINT64_MAX;
		record_at(store, offset)->slot_class = (uint8_t) class;
		store->uses[offset >> PIECE_BITS].end =
			(uint32_t)(offset & (PIECE_BYTES - 1)) + (uint32_t)class_bytes(class);
	}
	store->uses[offset >> PIECE_BITS].slots++;
	if (store->made - store->used < store->bytes / LEAST_SHARE)
		(void)make_ahead(store, NULL); /* in vain: kv_store_has_room says so before it is needed */
	return offset;
}

/* A deletion is never refused for want of memory: near the end of it a tombstone stays where its record was. */
static bool stays(const struct store *store, const struct store_content *content, unsigned class)
{
	return (content->flags & RECORD_TOMBSTONE) != 0 && store->free[class] == 0 &&
	       store_undivided(store) < store->bytes / KEPT_SHARE;
}

static void slot_leave(struct store *store, uint64_t offset)
{
	struct store_use *use = &store->uses[offset >> PIECE_BITS];

	kv_store_set_state(record_at(store, offset), RECORD_FREE);
	free_push(store, offset);
	if (--use->slots == 0)
		empty_piece(store, offset & ~(uint64_t)(PIECE_BYTES - 1));
}

static void seal(struct record *record)
{
	uint64_t generation = record->word >> 8;
	uint8_t head[sizeof(generation) + offsetof(struct record, slot_class) - offsetof(struct record, version)];
	uint32_t crc;

	memcpy(head, &generation, sizeof(generation));
	memcpy(head + sizeof(generation), (const uint8_t *)record + offsetof(struct record, version),
		sizeof(head) - sizeof(generation));
	crc = crc32c(0, head, sizeof(head));
	record->crc = crc32c(crc, record->key, (size_t)record->key_bytes + record->value_bytes);
}

static void slot_fill(struct record *record, const struct store_content *content, enum record_state state)
{
	record->word = ((record->word >> 8) + 1) << 8 | RECORD_INVALID;
	record->version = content->ts.version;
	record->join = content->ts.join;
	record->node = content->ts.node;
	record->flags = content->flags;
	record->key_bytes = content->key_bytes;
	record->value_bytes = content->value_bytes;
	memmove(record->key, content->key, content->key_bytes);
	if (content->value_bytes > 0)
		memmove(record_value(record), content->value, content->value_bytes);
	seal(record);
	kv_store_set_state(record, state);
}

uint32_t kv_store_put(struct store *store, const struct store_content *content, enum record_state state)
{
	uint64_t hash = hash_of(content->key, content->key_bytes), offset, left = UINT64_MAX;
	uint32_t at = probe(store, content->key, content->key_bytes, hash);
	unsigned class = class_of(record_bytes(content->key_bytes, content->value_bytes));
	bool is_new = is_free(store->index[at]);
	struct record *record;

	if (store->index[at] == 0 && store->records + store->graves >= store->mask / 8 * 7)
		return STORE_NO_ENTRY;
	if (!is_new) {
		record = kv_store_at(store, at);
		if (record->slot_class != class && (record->slot_class < class || !stays(store, content, class)))
			left = (store->index[at] & OFFSET_MASK) - 1;
	}
	offset = is_new || left != UINT64_MAX ? slot_take(store, class) : (store->index[at] & OFFSET_MASK) - 1;
	if (offset == UINT64_MAX)
		return STORE_NO_ENTRY;
	if (!is_new && (kv_store_at(store, at)->flags & RECORD_TOMBSTONE) != 0)
		store->tombstones--;
	record = record_at(store, offset);
	if (left != UINT64_MAX) {
		record->log_position = record_at(store, left)->log_position;
		record->missed_position = record_at(store, left)->missed_position;
	} else if (is_new) {
		record->log_position = record->missed_position = 0;
		store->records++;
	}
	slot_fill(record, content, state);
	store->graves -= store->index[at] == GRAVE;
	if ((content->flags & RECORD_TOMBSTONE) != 0) {
		store->tombstones++;
		if (content->ts.version > store->highest)
			store->highest = content->ts.version;
	}
	store->index[at] = (hash & ~OFFSET_MASK) | (offset + 1);
	if (is_new && store->ordered.nodes != NULL)
		kv_ordered_index_add(&store->ordered, store, at);
	if (left != UINT64_MAX)
		slot_leave(store, left);
	return at;
}

/* Before a free entry no grave is needed: lookups end there. */
void kv_store_remove(struct store *store, uint32_t entry)
{
	if (store->ordered.nodes != NULL)
		kv_ordered_index_remove(&store->ordered, store, entry);
	store->tombstones -= (kv_store_at(store, entry)->flags & RECORD_TOMBSTONE) != 0;
	store->records--;
	slot_leave(store, (store->index[entry] & OFFSET_MASK) - 1);
	store->index[entry] = GRAVE;
	store->graves++;
	if (store->index[(entry + 1) & store->mask] != 0)
		return;
	for (; store->index[entry] == GRAVE; entry = (entry - 1) & store->mask) {
		store->index[entry] = 0;
		store->graves--;
	}
}

/* The entries from `first`, behind a free one, up to the next free one, where it returns; both may be beyond the index,
 * and wrap then. A grave goes if no record behind it is looked up across it. */
static uint64_t sweep_cluster(struct store *store, uint64_t first)
{
	uint64_t end = first, least = UINT64_MAX; /* least: where the look-up of a record behind begins */
	bool any = false;

	for (; store->index[end & store->mask] != 0; end++)
		any |= store->index[end & store->mask] == GRAVE;
	for (uint64_t at = end; any && at-- > first;) {
		uint32_t entry = (uint32_t)at & store->mask;
		const struct record *record = kv_store_look(store, entry);

		if (record != NULL) {
			uint64_t home = at - ((entry - hash_of(record->key, record->key_bytes)) & store->mask);

			least = home < least ? home : least;
		} else if (at < least) {
			store->index[entry] = 0;
			store->graves--;
		}
	}
	return end;
}

bool kv_store_sweep(struct store *store, uint64_t *at, uint64_t entries)
{
	uint64_t stop = *at + entries;

	while (*at <= store->mask && *at < stop) {
		bool begins = store->index[(*at - 1) & store->mask] == 0 && store->index[*at] != 0;

		*at = begins ? sweep_cluster(store, *at) : *at + 1;
	}
	return *at > store->mask;
}

void kv_store_set_state(struct record *record, enum record_state state)
{
	record->word = (record->word & ~0xffull) | state;
}

void kv_store_set_flags(struct record *record, uint8_t flags)
{
	record->word += 1 << 8;
	record->flags = flags;
	seal(record);
}

bool kv_store_has_room(const struct store *store, size_t reserve)
{
	return store_undivided(store) + store->coming >= reserve &&
	       store->records + store->graves < store->mask / 8 * 6;
}

uint64_t kv_store_digest(const struct store *store, uint64_t *at, uint64_t bytes_max)
{
	uint64_t sum = 0, bytes = 0;

	for (; *at <= store->mask && bytes < bytes_max; ++*at) {
		const struct record *record = kv_store_look(store, *at);
		uint32_t head, body;

		bytes += sizeof(*store->index);
		if (record != NULL)
			bytes += record_bytes(record->key_bytes, record->value_bytes);
		if (record == NULL || (record->flags & RECORD_TOMBSTONE) != 0)
			continue;
		head = crc32c(0, &record->version, offsetof(struct record, flags) - offsetof(struct record, version));
		head = crc32c(head, &record->key_bytes, 2 * sizeof(record->key_bytes));
		head = crc32c(head, record->key, record->key_bytes);
		body = crc32c(0x5bd1e995u, record->key, (size_t)record->key_bytes + record->value_bytes);
		sum += (uint64_t)head << 32 | body;
	}
	return sum;
}
