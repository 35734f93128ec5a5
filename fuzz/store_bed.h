/* store_bed.h - a store with its node and loop in this process, for fuzz targets. Its member is the first of those that
 * the configuration counts; the others are not there. */
#ifndef HOLDFAST_FUZZ_STORE_BED_H
#define HOLDFAST_FUZZ_STORE_BED_H

#include <stdio.h>

#include <holdfast/kv.h>

#include "base/ensure.h"

struct store_bed {
	struct hf_loop *loop;
	struct hf_node *node;
	struct hf_kv *kv;
};

/* Names the cluster and its members in `kv`. */
static inline void store_bed_open(struct store_bed *bed, struct hf_kv_config *kv)
{
	struct hf_node_config node = {.rail_count = 1};
	struct hf_error error = {0};
	uint64_t own;

	ensure(hf_loop_create(hf_env_host(), &bed->loop) == 0);
	hf_env_entropy(hf_env_host(), &own, sizeof(own));
	snprintf(node.name, sizeof(node.name), "n0");
	snprintf(node.fabric, sizeof(node.fabric), "fuzz-%08x", (unsigned)own);
	snprintf(node.rails[0].name, sizeof(node.rails[0].name), "r0");
	snprintf(node.rails[0].kind, sizeof(node.rails[0].kind), "shm");
	ensure(hf_addr_parse("127.0.0.1:0", &node.rails[0].control) == 0);
	node.rails[0].address = node.rails[0].control;
	snprintf(kv->cluster, sizeof(kv->cluster), "fuzz");
	for (unsigned i = 0; i < kv->member_count; i++) {
		snprintf(kv->members[i].name, sizeof(kv->members[i].name), "n%u", i);
		ensure(hf_addr_parse("127.0.0.1:1", &kv->members[i].control[0]) == 0);
		kv->members[i].control_count = 1;
	}
	if (hf_node_open(bed->loop, &node, NULL, NULL, &bed->node, &error) != 0 ||
		hf_kv_open(bed->node, kv, &bed->kv, &error) != 0) {
		fprintf(stderr, "%s\n", error.text);
		ensure(false);
	}
}

#endif
