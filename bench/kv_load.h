/* kv_load.h - a closed loop of reads and writes at stores with RESP.
 *
 * A connection sends a batch, waits for all of its replies, and sends the next one, at once or at a given rate. It
 * is opened again when it ends, and a refusal counts as failed. All stores are measured by this one client, on one
 * thread; other code may turn its loop meanwhile. The load continues until it is closed. */
#ifndef HOLDFAST_BENCH_KV_LOAD_H
#define HOLDFAST_BENCH_KV_LOAD_H

#include <holdfast/loop.h>

#include "base/histogram.h"
#include "bench/kv_keys.h"
#include "net/resp.h"
#include "net/resp_out.h"

#define KV_LOAD_CONNECTIONS_MAX 32u
#define KV_LOAD_BATCH_MAX       64u
#define KV_LOAD_KEY_BYTES       32u
#define KV_LOAD_VALUE_MAX       (64u << 10)

/* How one talks to a store. */
struct kv_dialect {
	const char *name;
	unsigned set_answers; /* to one set */
	void (*set)(struct resp_out *out, const char *key, const void *value, uint32_t bytes);
	void (*get)(struct resp_out *out, const char *key);
	void (*scan)(struct resp_out *out, const char *start, unsigned count); /* in the order of keys; NULL: none */
	void (*swap)(
		struct resp_out *out, const char *key, const void *value, uint32_t bytes); /* read, modify, write */
	enum resp_outcome (*read)(const uint8_t *data, size_t bytes, size_t *used_out, bool *refused_out);
};
extern const struct kv_dialect kv_dialect_resp, kv_dialect_resp_wait;

struct kv_load_config {
	const struct kv_dialect *dialect;
	const struct hf_addr *to; /* one for each connection, in turn */
	unsigned to_count, connections, batch;
	unsigned set_percent, swap_percent, insert_percent, scan_percent; /* of the operations; the others are GETs */
	enum kv_keys_kind pick;
	uint32_t keys, value_bytes;
	bool distinct; /* every set another key */
	double rate;   /* operations a second, of all connections together; 0: no rests */
};

struct kv_load;

/* NULL: no memory. The loop outlives it; the addresses do too. */
struct kv_load *kv_load_open(struct hf_loop *loop, const struct kv_load_config *config);
void kv_load_close(struct kv_load *load); /* NULL is legal */
/* Goes on until then, or until `operations` more have ended (0: no limit). -ETIMEDOUT: not one ended for 20 s;
 * -EINTR. */
int kv_load_run(struct kv_load *load, uint64_t until_ns, uint64_t operations);
/* Goes on for `warm_ns`, counts from then on, and goes on for `ns`, or longer until one operation has succeeded: a
 * store that stands still has a low rate, not none. *rate_out: successful operations a second. As above. */
int kv_load_measure(struct kv_load *load, uint64_t warm_ns, uint64_t ns, double *rate_out);
/* Writes each key once. As above. */
int kv_load_fill(struct kv_load *load);

struct kv_load_counts {
	struct histogram sets,
		gets; /* swaps and inserts are sets; ns of each operation, from when its batch was sent */
	uint64_t done, failed;
};
uint32_t kv_load_keys(const struct kv_load *load); /* those of the configuration, and those that were inserted */
const struct kv_load_counts *kv_load_counts(const struct kv_load *load);
void kv_load_reset(struct kv_load *load); /* counts from now on */
/* When each connection had had a write answered since kv_load_reset; 0: one has not. */
uint64_t kv_load_all_written_ns(const struct kv_load *load);

#endif
