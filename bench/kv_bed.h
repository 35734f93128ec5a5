/* kv_bed.h - members of a store, or a Redis with its replicas, as processes on loopback for a benchmark. */
#ifndef HOLDFAST_BENCH_KV_BED_H
#define HOLDFAST_BENCH_KV_BED_H

#include <holdfast/dev.h>
#include <holdfast/loop.h>

#include <jansson.h>

#include "cli/process.h"
#include "cli/scratch.h"

#define KV_BED_MAX        5u
#define KV_BED_PATH_BYTES (SCRATCH_PATH_BYTES + 32)

struct kv_bed_process {
	struct process process;
	char config[KV_BED_PATH_BYTES], log[KV_BED_PATH_BYTES];
	struct hf_addr clients, http;
};

struct kv_bed {
	struct hf_loop *loop;
	struct scratch scratch;
	char fabric[HF_NAME_BYTES]; /* of the members; empty: there is none */
	unsigned count;
	struct kv_bed_process members[KV_BED_MAX];
};

struct kv_bed_settings {
	unsigned count, store_mb; /* 0: 3 members, 256 MiB */
	const char *recovery;     /* NULL: heal */
	bool unnoted, ordered;
};
/* Members of one store, with logs of the medium `memory`; they serve when this returns. -errno with words. */
int kv_bed_open(
	struct kv_bed *bed, struct hf_loop *loop, const struct kv_bed_settings *settings, struct hf_error *error);
/* A Redis with two replicas instead. -ENOENT: redis-server is not installed. */
int kv_bed_open_redis(struct kv_bed *bed, struct hf_loop *loop, struct hf_error *error);
void kv_bed_close(struct kv_bed *bed); /* zeroed: harmless */

void kv_bed_kill(struct kv_bed *bed, unsigned i); /* -9 */
/* Starts it again, and waits until it serves. -errno with words. */
int kv_bed_return(struct kv_bed *bed, unsigned i, struct hf_error *error);
/* Its /kv.json; NULL: it does not answer. */
json_t *kv_bed_status(struct kv_bed *bed, unsigned i);

#endif
