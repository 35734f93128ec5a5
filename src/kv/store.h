/* store.h - the records of a node: slots by size class in pieces of memory, a hash index of keys, and an ordered index
 * if the configuration has one.
 *
 * Memory is made in pieces, a quarter of all ahead of its use, by a helper thread, because its pages take time: a store
 * that fills rarely waits for them. It is given out from its beginning, and no slot lies in two pieces; a slot that is
 * left goes to the free list of its class, and a piece whose last record left is given out anew. A record has the class
 * of its size, so one that keeps its class needs no memory on any node. The index has a fixed number of entries, and
 * none is moved: an entry's number names its key until its record is removed. A deleted record stays as a tombstone
 * until then (purge.h); a removed record leaves a grave, which lookups pass, and in which another key may be placed; a
 * sweep frees those that no look-up needs.
 *
 * All but the ordered index is hf_mem_alloc memory, so that devices can register it. Owned by the kv's loop. */
#ifndef HOLDFAST_KV_STORE_H
#define HOLDFAST_KV_STORE_H

#include <holdfast/env.h>
#include <holdfast/work.h>

#include "kv/ordered_index.h"
#include "kv/record.h"

#define STORE_CLASSES  30u
#define STORE_COMING   8u /* pieces that a helper makes at most */
#define STORE_NO_ENTRY UINT32_MAX

/* Memory that a helper makes; the loop leaves it alone meanwhile. */
struct store_piece {
	struct hf_work work;
	struct store *store;
	size_t bytes;
	void *memory;
};

/* What a piece is used for. */
struct store_use {
	uint32_t slots, end; /* slots that have a record; bytes that are divided into slots */
	uint32_t next;       /* number + 1 of the next one that is to be given out anew */
};

struct store {
	struct hf_env *env;
	struct hf_workers *workers; /* NULL: pieces are made when they are needed */
	uint8_t **pieces;
	size_t bytes, made, used; /* made: the number of bytes allocated */
	struct store_use *uses;   /* of each piece */
	uint32_t emptied;         /* number + 1 of the first piece that is to be given out again, */
	size_t again, again_end;  /* and the rest of the last one that was */
	size_t spare;             /* bytes of both */
	size_t coming;            /* the bytes being made, in these, the oldest first */
	struct store_piece making[STORE_COMING];
	unsigned making_first, making_count;
	size_t refused;               /* the number in use at the last failed allocation */
	uint64_t *index;              /* offset of the record + 1, and 16 bits of its hash above bit 48; 0: free */
	uint32_t mask;                /* entries - 1 */
	struct ordered_index ordered; /* without nodes: it is not kept */
	uint32_t records, tombstones, graves;
	uint64_t highest;             /* version of a tombstone that was ever put */
	uint64_t free[STORE_CLASSES]; /* offset + 1 of the first free slot */
};

/* Of the memory there is, so much is not divided into slots. */
static inline size_t store_undivided(const struct store *store)
{
	return store->made - store->used + store->spare;
}

/* loop: has a helper make memory; NULL: none does. -ENOMEM and those of hf_workers_open, with words. */
int kv_store_open(struct store *store, struct hf_env *env, struct hf_loop *loop, size_t bytes, struct hf_error *error);
/* From now on the keys are kept in order: called before there is one. */
int kv_store_keep_order(struct store *store, struct hf_error *error);
void kv_store_close(struct store *store);
void kv_store_clear(struct store *store); /* no record is left */

/* Begins a piece of what is to be there ahead. False: enough is, or comes, or there is no memory. */
bool kv_store_grow(struct store *store);

/* STORE_NO_ENTRY: there was never such a key. */
uint32_t kv_store_find(const struct store *store, const void *key, uint32_t key_bytes);
struct record *kv_store_at(const struct store *store, uint32_t entry);
/* Many keys are looked up soon: they wait for memory together, and not each for its own. First the entry at which the
 * search of each begins, which comes into the cache; then the record of each entry. */
uint32_t kv_store_expect(const struct store *store, const void *key, uint32_t key_bytes);
void kv_store_expect_entry(const struct store *store, uint32_t entry);
void kv_store_fetch(const struct store *store, uint32_t entry);
/* The record of an entry, if there is one: for walks over the index. */
struct record *kv_store_look(const struct store *store, uint64_t entry);

/* What a record is to be. */
struct store_content {
	const void *key, *value;
	uint32_t key_bytes, value_bytes;
	struct record_ts ts;
	uint8_t flags; /* enum record_flag */
};
/* Writes it, in the given state, over the record of that key if there is one. The content must not lie in the slot.
 * Returns its entry, or STORE_NO_ENTRY: no memory, or the index is full; nothing has changed then. */
uint32_t kv_store_put(struct store *store, const struct store_content *content, enum record_state state);
void kv_store_remove(struct store *store, uint32_t entry);
/* Frees graves that no look-up needs, of so many entries or some more from *at on, which moves. True: it is the end. */
bool kv_store_sweep(struct store *store, uint64_t *at, uint64_t entries);
void kv_store_set_state(struct record *record, enum record_state state);
void kv_store_set_flags(struct record *record, uint8_t flags); /* and the CRC */

/* Whether a put of any size would succeed, with so much of the memory kept back. */
bool kv_store_has_room(const struct store *store, size_t reserve);
/* Of keys, values and timestamps; deleted records and the order of entries do not count. Of the entries from *at, as
 * many as take so many bytes; those of all parts add up. *at: where the next part begins, behind the last entry when
 * there is none. */
uint64_t kv_store_digest(const struct store *store, uint64_t *at, uint64_t bytes_max);

#endif
